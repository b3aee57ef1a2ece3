"""What the network has learned of Adult, with privacy and without; writes a picture.

Four numeric features of the census table (income above 50,000 dollars a year): the effect of each
on the logit when the others stay at the middle of their bounds.  Three private fits with noise of
their own show what of a curve is noise.

Run: python benchmarks/kan_edges.py DIRECTORY
"""

import math
import sys
import warnings
from pathlib import Path

import matplotlib
import numpy as np

from sklearn_dpop import KANClassifierDP

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "kan_edges.png"
# Public bounds, from what the questions of a census can have as answers.
BOUNDS = {
    "age": (17, 90),
    "fnlwgt": (0, 500_000),
    "education-num": (1, 16),
    "capital-gain": (0, math.log1p(99_999)),
    "capital-loss": (0, math.log1p(4356)),
    "hours-per-week": (1, 99),
}
SHOWN = {
    "age": "age (years)",
    "education-num": "education (1 to 16)",
    "hours-per-week": "work (hours a week)",
    "capital-gain": "capital gain (dollars)",
}


def main():
    found = np.load(Path(sys.argv[1]) / "adult.npz")
    X, y, train = found["X"].astype(float), found["y"], found["split"] == 0
    names = [str(name) for name in found["feature_names"]]
    for name in ("capital-gain", "capital-loss"):
        X[:, names.index(name)] = np.log1p(X[:, names.index(name)])
    # Indicators of categories: 0 is the middle, where a centred spline is zero.
    lower, upper = np.transpose([BOUNDS.get(name, (-1, 1)) for name in names])

    def fit(epsilon):
        return KANClassifierDP(
            epsilon=epsilon, delta=1e-5, classes=[0, 1], feature_bounds=(lower, upper),
            batch_size=814, lr=16.0, device="cpu",
        ).fit(X[train], y[train])  # fmt: skip

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = [fit(2.0) for _ in range(3)] + [fit(math.inf)]
    scores = [model.score(X[~train], y[~train]) for model in models]
    print("test accuracy:", [round(score, 4) for score in scores])

    fig, axes = plt.subplots(1, 4, figsize=(10, 2.9), sharey=True, layout="constrained")
    for ax, (name, label) in zip(axes, SHOWN.items(), strict=True):
        column = names.index(name)
        rows = np.tile((lower + upper) / 2, (200, 1))
        rows[:, column] = np.linspace(lower[column], upper[column], 200)
        for model in models:
            private = model is not models[-1]
            effect = model.decision_function(rows)
            ax.plot(
                rows[:, column],
                effect - effect.mean(),
                color="#1f5f99" if private else "0.2",
                lw=1.5 if private else 2,
                ls="-" if private else "--",
                alpha=0.8 if private else 1,
                label={0: "epsilon = 2, three fits", 3: "not private"}.get(models.index(model)),
            )
        ax.set_xlabel(label)
        if name.startswith("capital"):
            dollars = [0, 10, 100, 1000, 10_000, 100_000]
            ax.set_xticks(
                [math.log1p(d) for d in dollars], ["0", "10", "100", "1k", "10k", "100k"]
            )
    axes[0].set_ylabel("effect on the logit")
    axes[0].legend(frameon=False, fontsize=8)
    fig.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
