"""How sure the network is, and how often it is right, for several clip norms.

Default parameters otherwise, 10 epochs of 40 batches, delta = 1e-5.  The automatic learning rate
times the clip norm is the same in all rows of an epsilon.
Data as in ``kan_accuracy.py``: a directory with ``adult.npz``, ``covertype.npz``, ``mnist.npz``.

Run: python benchmarks/kan_confidence.py DIRECTORY
"""

import math
import sys
from pathlib import Path

import numpy as np
from kan_accuracy import data_set

from sklearn_dpop import KANClassifierDP

TABLE = Path(__file__).parent / "results" / "kan_confidence.md"
CLIPS, EPSILONS, FITS = (0.5, 1.0, 2.0), (0.5, 2.0), 3
DATA = ("adult", "covertype 2", "covertype 7", "mnist 3/8")


def measure(data, epsilon, clip):
    """Probability of the predicted class, accuracy, log-loss on test rows; means over fits."""
    X, y, X_test, y_test, _ = data
    classes = np.unique(y)
    found = []
    for _ in range(FITS):
        clf = KANClassifierDP(
            epsilon=epsilon, delta=1e-5, classes=classes, feature_bounds=(-1, 1),
            batch_size=math.ceil(len(X) / 40), max_grad_norm=clip, device="cpu",
        ).fit(X, y)  # fmt: skip
        probability = clf.predict_proba(X_test).astype(float)
        true = probability[np.arange(len(y_test)), np.searchsorted(classes, y_test)]
        right = classes[probability.argmax(axis=1)] == y_test
        loss = -np.log(np.maximum(true, 1e-12)).mean()
        found.append((probability.max(axis=1).mean(), right.mean(), loss))
    return np.mean(found, axis=0)


def main():
    lines = [
        "| data | epsilon | clip norm | says | is right | log-loss |",
        "|---|---|---|---|---|---|",
    ]
    for name in DATA:
        data = data_set(name, Path(sys.argv[1]))
        for epsilon in EPSILONS:
            for clip in CLIPS:
                says, right, loss = measure(data, epsilon, clip)
                lines.append(
                    f"| {name} | {epsilon:g} | {clip:g} | {says:.3f} | {right:.3f} | {loss:.3f} |"
                )
                print(lines[-1], flush=True)
                TABLE.write_text(
                    "# Confidence of the private network\n\n"
                    f"Mean of {FITS} fits; what is measured stands at the top of the script.\n"
                    "Regenerate: `python benchmarks/kan_confidence.py DIRECTORY`.\n\n"
                    + "\n".join(lines)
                    + "\n"
                )


if __name__ == "__main__":
    main()
