"""Where the automatic learning rate of `KANClassifierDP` comes from.

Test accuracy when the rate lets a noise of root mean square c into every weight (whose initial
standard deviation is 1), for several c and for rates that do not look at the noise; small data
sets, 10 to 40 batches an epoch, balls-in-bins, 10 epochs, BIFR of bandwidth 4 with gamma chosen
from public numbers.  The multipliers are estimates, not certificates: good enough to compare
rates, all of which get the same noise.

Bundled data sets, and with a directory also spambase and pima (``name.npz`` with X and y).

Run: python benchmarks/kan_lr.py [DIRECTORY]
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

from sklearn_dpop import KANClassifierDP
from sklearn_dpop.factorization import BIFR
from sklearn_dpop.neural_network._plan import Plan, automatic_lr, best_gamma_for
from sklearn_dpop.privacy import Schedule
from sklearn_dpop.privacy.accounting import estimate_noise_multiplier

RESULT = Path(__file__).parent / "results" / "kan_lr.md"
DELTA, SEEDS, CLIP = 1e-5, 3, 0.5
NOISES = (0.15, 0.3, 0.5, 0.8, 1.3)
FIXED = (1.0, 4.0, 16.0)


def scaled(X):
    low, high = X.min(axis=0), X.max(axis=0)
    return ((X - low) / np.where(high > low, high - low, 1) * 2 - 1).astype(np.float32)


def data_sets(directory):
    # Extremes of the data as bounds: that is not private, and the same for all rates.
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer", scaled(X), y
    X, y = load_digits(return_X_y=True)
    yield "digits", scaled(X), y
    for name in ("pima", "spambase") if directory else ():
        found = np.load(Path(directory) / f"{name}.npz")
        X = found["X"].astype(float)
        yield name, scaled(np.log1p(X) if name == "spambase" else X), found["y"]


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rates = [f"c = {c}" for c in NOISES] + [f"lr = {lr:g}" for lr in FIXED]
    lines = [
        "# Learning rates of the private network",
        "",
        "Test accuracy (mean of 3 seeds); what each column is stands at the top of the script.",
        "`c = 0.5` is `lr='auto'`.  Regenerate: `python benchmarks/kan_lr.py DIRECTORY`.",
        "",
        "| data | n | batches an epoch | epsilon | " + " | ".join(rates) + " |",
        "|---" * (4 + len(rates)) + "|",
    ]
    means = []
    for name, X, y in data_sets(sys.argv[1] if len(sys.argv) > 1 else None):
        X0, X1, y0, y1 = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
        for bins in (10, 20, 40):
            size = -(-len(X0) // bins)
            schedule = Schedule(len(X0), size, epochs=10, sampling="balls_in_bins")
            for epsilon in (0.5, 2.0, 8.0):
                gamma = best_gamma_for(schedule, epsilon, DELTA, 4, "zero-out")
                strategy = BIFR(gamma, 4)
                kappa = estimate_noise_multiplier(epsilon, DELTA, strategy, schedule)
                params = {
                    "epsilon": None, "noise_multiplier": kappa, "strategy": strategy,
                    "sampling": "cyclic", "batch_size": size, "max_grad_norm": CLIP,
                    "feature_bounds": (-1, 1), "classes": np.unique(y), "device": "cpu",
                }  # fmt: skip
                automatic = automatic_lr(Plan(schedule, strategy, kappa, None), CLIP)
                row = []
                for lr in [*(min(64.0, automatic * c / 0.5) for c in NOISES), *FIXED]:
                    scores = []
                    for seed in range(SEEDS):
                        model = KANClassifierDP(**params, lr=lr, random_state=seed)
                        scores.append(model.fit(X0, y0).score(X1, y1))
                    row.append(np.mean(scores))
                means.append(row)
                cells = " | ".join(f"{value:.3f}" for value in row)
                lines.append(f"| {name} | {len(X0)} | {bins} | {epsilon:g} | {cells} |")
                print(lines[-1], flush=True)
    cells = " | ".join(f"{value:.3f}" for value in np.mean(means, axis=0))
    lines.append(f"| mean | | | | {cells} |")
    RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
