"""Test accuracy of the private linear model by the number of its steps, with many records.

Fewer steps are certified with more regularization only.  Data and their public scaling are those
of kan_accuracy.py; epsilon = 2, delta = 1e-5, zero-out neighbours, all else at its defaults.

Run: python benchmarks/steps_of_linear.py DIRECTORY [--steps N ...]
"""

import argparse
import json
import time
import warnings
from pathlib import Path

from kan_accuracy import data_set
from sklearn.linear_model import LogisticRegression

from sklearn_dpop import ObjPertGDLogisticRegression

RESULT = Path(__file__).parent / "results" / "steps_of_linear.json"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--steps", nargs="*", type=int, default=(300, 1000, 3000, 10_000))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    found = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in ("adult", "covertype 2"):
        X, y, X_test, y_test, norm = data_set(name, args.directory)
        rows = found.setdefault(name, {})
        if "not private" not in rows:
            fitted = LogisticRegression(max_iter=1000).fit(X, y)
            rows["not private"] = {"accuracy": fitted.score(X_test, y_test)}
        for n_iter in args.steps:
            start = time.perf_counter()
            model = ObjPertGDLogisticRegression(
                2.0, 1e-5, data_norm=norm, classes=[0, 1], adjacency="zero-out",
                calibration="tight", n_iter=n_iter,
            ).fit(X, y)  # fmt: skip
            rows[str(n_iter)] = {
                "accuracy": model.score(X_test, y_test),
                "mu": model.mu_,
                "seconds": round(time.perf_counter() - start, 1),
            }
            RESULT.write_text(json.dumps(found, indent=1) + "\n")
            print(name, n_iter, rows[str(n_iter)], flush=True)


if __name__ == "__main__":
    main()
