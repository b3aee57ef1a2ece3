"""Private neural networks; the only part of the package that needs torch (extra ``kan``)."""
