"""The command ``sklearn-dpop``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sklearn_dpop.privacy._composition_report import CompositionReport
    from sklearn_dpop.privacy._report import PrivacyReport

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; by default those of the process.

    Returns
    -------
    int
        0: done (``verify``: everything holds); 1: ``verify``: some condition does not hold;
        2: bad usage or unreadable file.
    """
    parser = _parser()
    try:
        args = parser.parse_args(argv)
    except SystemExit as stop:  # argparse has printed help, version or error already
        return int(stop.code or 0)
    if args.command == "verify":
        return _verify(args.report, quiet=args.quiet)
    if args.command == "demo":
        from sklearn_dpop._demo import run_demo

        run_demo(args.output)
        return 0
    parser.print_help()
    return 0


def _parser() -> argparse.ArgumentParser:
    from sklearn_dpop.privacy._report import package_versions

    parser = argparse.ArgumentParser(
        prog="sklearn-dpop",
        description="Private classifiers for scikit-learn, each with a privacy report that can "
        "be checked.",
    )
    version = package_versions()["sklearn-dpop"]
    parser.add_argument("--version", action="version", version=f"sklearn-dpop {version}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    verify = commands.add_parser(
        "verify",
        help="check a privacy report",
        description="Recompute the guarantee of a privacy report from its public inputs alone. "
        "Exit code: 0 if everything holds, 1 if a condition does not, 2 if the file cannot be "
        "read as a report.",
    )
    verify.add_argument(
        "report", metavar="report.json", help="as written by to_json() of a report or a total"
    )
    verify.add_argument("--quiet", action="store_true", help="print nothing but errors")
    demo = commands.add_parser("demo", help="train a private classifier on public data")
    demo.add_argument("--output", metavar="DIR", help="where to write the report and plots")
    return parser


def _verify(path: str, *, quiet: bool) -> int:
    from sklearn_dpop.privacy._composition_report import CompositionReport
    from sklearn_dpop.privacy._report import COMPOSITION_SCHEMA, PrivacyReport, read_json
    from sklearn_dpop.privacy._report_text import clean

    def make(data: Any) -> PrivacyReport | CompositionReport:
        total = isinstance(data, dict) and data.get("schema") == COMPOSITION_SCHEMA
        return CompositionReport.from_dict(data) if total else PrivacyReport.from_dict(data)

    try:
        report = read_json(Path(path).read_bytes(), make)
    except OSError as error:
        print(f"sklearn-dpop verify: {path}: {error.strerror or error}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"sklearn-dpop verify: {path}: not a report: {clean(str(error))}", file=sys.stderr)
        return 2
    verification = report.verify()
    if not quiet:
        try:
            print(verification, flush=True)
        except BrokenPipeError:  # the reader has seen enough; the outcome stands
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0 if verification else 1
