"""
What a private network has learned
==================================

A Kolmogorov-Arnold network has a function of one variable on every connection, so it can be
looked at.  This costs no privacy: the pictures are made from the released weights alone.
"""

# %%
# A table whose truth is known
# ----------------------------
# Invented records of a clinic, so that what is learned can be held against what is true: the
# risk rises with age from 50 on, is lowest at a middle weight and at seven to eight hours of
# sleep, jumps with a high blood pressure, and does not depend on the height.

import math
import warnings

import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
n = 20_000
table = pd.DataFrame(
    {
        "age": rng.uniform(18, 90, n),
        "bmi": rng.normal(26, 5, n).clip(14, 45),
        "sleep": rng.normal(7, 1.5, n).clip(2, 12),
        "pressure": rng.normal(128, 18, n).clip(80, 200),
        "height": rng.normal(170, 10, n).clip(140, 205),
    }
)
truth = {
    "age": lambda v: np.maximum(v - 50, 0) / 14,
    "bmi": lambda v: ((v - 24) / 7) ** 2,
    "sleep": lambda v: ((v - 7.5) / 2) ** 2,
    "pressure": lambda v: 2.0 / (1 + np.exp(-(v - 140) / 4)),
    "height": lambda v: 0 * v,
}
risk = sum(f(table[name].to_numpy()) for name, f in truth.items())
y = np.where(risk + rng.logistic(size=n) > np.median(risk), "ill", "well")

# %%
# Training
# --------
# The bounds are common knowledge about such measurements, not the extremes of these records.

from sklearn_dpop import KANClassifierDP

bounds = {"age": (18, 90), "bmi": (12, 50), "sleep": (0, 14), "pressure": (70, 220)}
bounds["height"] = (130, 220)


def network(epsilon, **parameters):
    """Train on the first 15,000 records."""
    clf = KANClassifierDP(
        epsilon=epsilon,
        delta=1e-6,
        classes=["ill", "well"],
        feature_bounds=bounds,
        batch_size=500,
        sampling="cyclic",  # the default has less noise, but takes some seconds to find it
        **parameters,
    )
    return clf.fit(table[:15_000], y[:15_000])


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # no noise, no guarantee
    exact = network(math.inf, lr=8.0)
clf = network(epsilon=1.0)

print("test accuracy")
print(f"  not private: {exact.score(table[15_000:], y[15_000:]):.3f}")
print(f"  epsilon = 1: {clf.score(table[15_000:], y[15_000:]):.3f}")

# %%
# Importances
# -----------
# The size of a feature's effect over its bounds, as a share of all.  Height has none in truth.
# What is left of it is noise, and what splines do near the bounds, where there are hardly any
# records.

print(f"{'':12s}{'epsilon = 1':>12s}{'not private':>12s}")
pairs = zip(table.columns, clf.feature_importances_, exact.feature_importances_, strict=True)
for name, private, without in pairs:
    print(f"{name:12s}{private:12.2f}{without:12.2f}")

# %%
# One feature
# -----------
# Grey: the functions that the connections of a feature have learned.  In colour: the effect on the
# logit of ``well`` when this feature moves and the others stay at the middle of their bounds.
# The band: where 95 in 100 effects would lie of a feature of which nothing was learned, by the
# random initial weights and the noise alone.  Hardly anybody sleeps less than three hours or more
# than eleven: what the curve does there means nothing.

import matplotlib.pyplot as plt

clf.plot_edges("sleep")
plt.show()

# %%
# All features, and the truth
# ---------------------------
# Effects of both networks beside the true ones (minus the risk, since the logit is that of
# ``well``).  All are shifted to mean zero over the values shown, which are those of 98 in 100
# records.  Beyond them there is little to learn from.
#
# The shapes are right, the sizes are too large, with and without noise.  Clipping cuts the
# gradients of those records that the network gets most wrong, and so it is too sure of itself.

grid = {name: np.linspace(*np.quantile(table[name], [0.01, 0.99]), 80) for name in table.columns}
middle = pd.DataFrame([{name: sum(bounds[name]) / 2 for name in table.columns}] * 80)

fig, axes = plt.subplots(2, 3, figsize=(8, 5.2), sharey=True, layout="constrained")
for ax, (name, values) in zip(axes.flat, grid.items(), strict=False):
    curves = {
        "true": -truth[name](values),
        "not private": exact.decision_function(middle.assign(**{name: values})),
        "epsilon = 1": clf.decision_function(middle.assign(**{name: values})),
    }
    for style, (label, effect) in zip(("k:", "C1--", "C0-"), curves.items(), strict=True):
        ax.plot(values, effect - effect.mean(), style, lw=2, label=label)
    ax.set(xlabel=name)
for ax in axes[:, 0]:
    ax.set_ylabel("effect on the logit")
axes[1, 2].axis("off")
axes[1, 2].legend(*ax.get_legend_handles_labels(), loc="center", frameon=False)
plt.show()
# sphinx_gallery_thumbnail_number = 2

# %%
# How sure it is
# --------------
# So the probabilities serve to compare records, not as probabilities.

for label, network_ in {"not private": exact, "epsilon = 1": clf}.items():
    claimed = network_.predict_proba(table[15_000:]).max(axis=1).mean()
    right = network_.score(table[15_000:], y[15_000:])
    print(f"{label}: says {claimed:.2f}, is right in {right:.2f}")
