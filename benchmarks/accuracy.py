"""Test accuracy against epsilon on bundled data, for both calibrations and adjacencies.

Writes ``benchmarks/results/accuracy.md`` (included in the documentation) and ``.json``.
Every cell is the median over noise draws of the test accuracy; delta = 1e-5, 70/30 split,
automatic regularization (W = 10), default intercept.  Features are scaled by public
constants: breast cancer by its published bounds and a square root, digits by 16.
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_dpop import ObjPertGDLogisticRegression
from sklearn_dpop.datasets import breast_cancer_bounds
from sklearn_dpop.preprocessing import BoundedScaler

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
VARIANTS = {
    "corollary, replace-one": {"calibration": "corollary"},
    "tight, replace-one": {"calibration": "tight"},
    "tight, replace-one, margin 1": {"calibration": "tight", "margin": 1.0},
    "corollary, zero-out, margin 1": {
        "calibration": "corollary",
        "adjacency": "zero-out",
        "margin": 1.0,
    },
    "tight, zero-out": {"calibration": "tight", "adjacency": "zero-out"},
    "tight, zero-out, margin 1": {
        "calibration": "tight",
        "adjacency": "zero-out",
        "margin": 1.0,
    },
    "tight, zero-out, margin 4": {
        "calibration": "tight",
        "adjacency": "zero-out",
        "margin": 4.0,
    },
}


def data_sets():
    X, y = load_breast_cancer(return_X_y=True)
    scaling = make_pipeline(
        BoundedScaler(breast_cancer_bounds(), feature_range=(0, 1)),
        FunctionTransformer(np.sqrt),
        BoundedScaler((0, 1)),
    )
    yield "breast cancer", scaling.fit_transform(X), y, 1.5
    X, y = load_digits(return_X_y=True)
    keep = np.isin(y, (3, 8))
    yield "digits, 3 against 8", X[keep] / 16.0, y[keep], 1.0
    yield "digits, 10 classes", X / 16.0, y, 1.0


def accuracy(split, data_norm, seeds, **parameters):
    X_train, X_test, y_train, y_test = split
    model = ObjPertGDLogisticRegression(
        delta=1e-5, data_norm=data_norm, classes=np.unique(y_train), **parameters
    )
    scores = []
    for _ in range(seeds):
        scores.append(model.fit(X_train, y_train).score(X_test, y_test))
    return float(np.median(scores))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore")
    folder = Path(__file__).parent / "results"
    results, lines = {}, []
    for name, X, y, data_norm in data_sets():
        split = train_test_split(X, y, test_size=0.3, random_state=0)
        baseline = LogisticRegression(max_iter=5000).fit(split[0], split[2])
        baseline = baseline.score(split[1], split[3])
        results[name] = {"non-private": baseline}
        lines += [f"**{name}**: n = {len(split[0])}, d = {X.shape[1]}, data_norm = {data_norm}; "]
        lines[-1] += f"non-private logistic regression {baseline:.3f}\n"
        lines.append("| mode | " + " | ".join(f"ε = {e:g}" for e in EPSILONS) + " |")
        lines.append("|" + "---|" * (len(EPSILONS) + 1))
        for variant, parameters in VARIANTS.items():
            cells = []
            for epsilon in EPSILONS:
                if parameters["calibration"] == "corollary" and epsilon > 1.0:
                    cells.append(None)  # Corollary 4.13 needs epsilon <= 1
                    continue
                cells.append(accuracy(split, data_norm, seeds, epsilon=epsilon, **parameters))
            results[name][variant] = dict(zip(map(str, EPSILONS), cells, strict=True))
            shown = " | ".join("–" if c is None else f"{c:.3f}" for c in cells)
            lines.append(f"| {variant} | {shown} |")
            print(name, variant, shown, flush=True)
        lines.append("")
    (folder / "accuracy.md").write_text("\n".join(lines), encoding="utf-8")
    (folder / "accuracy.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
