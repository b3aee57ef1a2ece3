"""Run the Python blocks of the pages and refresh the output shown after them.

``python docs/pages.py`` rewrites the pages, ``python docs/pages.py network.md`` one of them; the
tests compare them with a fresh run.  A block ````` ```text ````` directly after a block
````` ```python ````` is what the latter printed.
"""

import argparse
import contextlib
import io
import re
import tempfile
from pathlib import Path

PAGES = (
    "../README.md",
    "index.md",
    "quickstart.md",
    "report.md",
    "choosing.md",
    "pipelines.md",
    "correlated.md",
    "logistic.md",
    "sampling.md",
    "network.md",
)

_BLOCK = re.compile(r"^```python\n(.*?)^```\n(\n```text\n.*?^```\n)?", re.DOTALL | re.MULTILINE)


def rerun(text):
    """Return the page `text` with the output of its blocks, run in order in one namespace."""
    namespace = {"__name__": "page"}

    def fresh(block):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(block[1], namespace)
        shown = f"\n```text\n{printed.getvalue().rstrip()}\n```\n" if block[2] else ""
        return f"```python\n{block[1]}```\n{shown}"

    return _BLOCK.sub(fresh, text)


def main(argv=None):
    """Rewrite the pages named, by default all."""
    parser = argparse.ArgumentParser(
        description="Run the Python blocks of pages and refresh the output shown after them."
    )
    parser.add_argument("pages", nargs="*", metavar="page", help=f"any of: {', '.join(PAGES)}")
    names = parser.parse_args(argv).pages
    for name in names:
        if name not in PAGES:
            parser.error(f"{name}: must be one of {', '.join(PAGES)}")
    for name in names or PAGES:
        page = Path(__file__).resolve().parent / name
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            page.write_text(rerun(page.read_text()))


if __name__ == "__main__":
    main()
