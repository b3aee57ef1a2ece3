"""The first minute: a private classifier on public data, and a report that can be checked."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_dpop.datasets import breast_cancer_bounds
from sklearn_dpop.linear_model import ObjPertGDLogisticRegression
from sklearn_dpop.preprocessing import BoundedScaler

__all__ = ["run_demo"]

_EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
_FITS = 11
_ADJACENCIES = ("replace-one", "zero-out")


def _pipeline(classifier: Any) -> Pipeline:
    """Scale by published bounds and a fixed square root: no step looks at the records."""
    return make_pipeline(
        BoundedScaler(breast_cancer_bounds(), feature_range=(0, 1)),
        FunctionTransformer(np.sqrt),
        BoundedScaler((0, 1)),
        classifier,
    )


def _private(epsilon: float, adjacency: str) -> ObjPertGDLogisticRegression:
    return ObjPertGDLogisticRegression(
        epsilon=epsilon,
        delta=1e-5,
        adjacency=adjacency,
        data_norm=1.5,
        classes=[0, 1],
        calibration="tight",
    )


def run_demo(output: str | None = None) -> None:
    """Train, compare with the non-private model, print and write the privacy report.

    Parameters
    ----------
    output : str, optional
        Folder for the report (JSON, HTML) and, if matplotlib is installed, the pictures; by
        default ``demo_output``.
    """
    folder = Path("demo_output" if output is None else output)
    folder.mkdir(parents=True, exist_ok=True)

    X, y = load_breast_cancer(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
    print(f"Breast cancer data: {len(X_train)} records to train on, {len(X_test)} to test.")
    print("Features are scaled by published bounds, never by the records themselves.\n")
    baseline = _pipeline(LogisticRegression()).fit(X_train, y_train).score(X_test, y_test)
    print(f"Test accuracy without privacy: {baseline:.3f}")
    print(f"Test accuracy with (epsilon, 1e-5)-differential privacy, median of {_FITS} fits:")
    print(f"  {'':>7}  {'adjacency':>13}")
    print(f"  {'epsilon':>7}" + "".join(f"{name:>15}" for name in _ADJACENCIES))
    medians: dict[str, list[float]] = {name: [] for name in _ADJACENCIES}
    for epsilon in _EPSILONS:
        for name in _ADJACENCIES:
            scores = [
                _pipeline(_private(epsilon, name)).fit(X_train, y_train).score(X_test, y_test)
                for _ in range(_FITS)
            ]
            medians[name].append(float(np.median(scores)))
        row = "".join(f"{medians[name][-1]:>15.3f}" for name in _ADJACENCIES)
        print(f"  {epsilon:>7g}{row}")
    print("The columns differ in the adjacency only, that is in what is hidden: any change of one")
    print("record (replace-one), or whether one record counts (zero-out; half the noise).")

    model = _pipeline(_private(1.0, "replace-one")).fit(X_train, y_train)
    report = model[-1].privacy_report_
    print("\nThe privacy report of one released model (model[-1].privacy_report_):\n")
    print(report)
    (folder / "report.json").write_text(report.to_json(), encoding="utf-8")
    (folder / "report.html").write_text(report.to_html(), encoding="utf-8")
    written = "report.json, report.html"
    if importlib.util.find_spec("matplotlib") is not None:
        _save_profile(report, folder / "privacy_profile.png")
        _save_accuracy(medians, baseline, folder / "accuracy.png")
        written += ", privacy_profile.png, accuracy.png"
    print(f"\nWritten to {folder}: {written}")
    if "png" not in written:
        print("No pictures: matplotlib is not installed (pip install matplotlib).")
    print(f"A reviewer checks it with: {_command()} verify {folder / 'report.json'}")


def _command() -> str:
    """Return what to type for the command, also where its environment is not activated."""
    beside = Path(sys.executable).with_name("sklearn-dpop")
    return "sklearn-dpop" if shutil.which("sklearn-dpop") or not beside.exists() else str(beside)


def _save_profile(report: Any, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    report.plot_profile(figure.subplots())
    figure.savefig(path, dpi=150)


def _save_accuracy(medians: dict[str, list[float]], baseline: float, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    ax = figure.subplots()
    ax.axhline(baseline, color="0.45", linestyle="--", label="without privacy")
    for (name, values), color, marker in zip(
        medians.items(), ("#0b6e99", "#b3541e"), "os", strict=True
    ):
        ax.plot(_EPSILONS, values, marker=marker, color=color, label=f"private, {name}")
    ax.set_xscale("log", base=2)
    ax.set_xticks(_EPSILONS, [f"{e:g}" for e in _EPSILONS])
    ax.set_xlabel("epsilon (delta = 1e-5)")
    ax.set_ylabel(f"test accuracy, median of {_FITS} fits")
    ax.set_title("Breast cancer: accuracy against privacy budget")
    ax.grid(alpha=0.25)
    ax.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150)
