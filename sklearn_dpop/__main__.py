"""``python -m sklearn_dpop`` is the command ``sklearn-dpop``."""

import sys

from sklearn_dpop.cli import main

if __name__ == "__main__":
    sys.exit(main())
