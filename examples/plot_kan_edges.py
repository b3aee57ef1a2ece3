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
lower, upper = np.transpose([bounds[name] for name in table.columns])

clf = KANClassifierDP(
    epsilon=1.0,
    delta=1e-6,
    classes=["ill", "well"],
    feature_bounds=(lower, upper),
    batch_size=500,
    sampling="cyclic",
).fit(table[:15_000], y[:15_000])
print(f"test accuracy at epsilon = 1: {clf.score(table[15_000:], y[15_000:]):.3f}")
for name, share in zip(table.columns, clf.feature_importances_, strict=True):
    print(f"{name:10s} {share:.2f}")

# %%
# One feature
# -----------
# Grey: the functions that the connections of a feature have learned.  In colour: the effect on the
# logit of ``well`` when this feature moves and the others stay at the middle of their bounds.

import matplotlib.pyplot as plt

clf.plot_edges("sleep")
plt.show()

# %%
# All features, and the truth
# ---------------------------
# Effects of the private network beside the true ones (minus the risk, since the logit is that of
# ``well``).  Both are shifted to mean zero over the records of the picture.  Where there are few
# records, at the ends, noise is all that the network can learn.

grid = {name: np.linspace(*np.quantile(table[name], [0.01, 0.99]), 80) for name in table.columns}
middle = pd.DataFrame([(lower + upper) / 2] * 80, columns=table.columns)

fig, axes = plt.subplots(1, 5, figsize=(11, 2.8), sharey=True, layout="constrained")
for ax, (name, values) in zip(axes, grid.items(), strict=True):
    learned = clf.decision_function(middle.assign(**{name: values}))
    true = -truth[name](values)
    ax.plot(values, true - true.mean(), color="0.5", lw=1, ls="--", label="true")
    ax.plot(values, learned - learned.mean(), lw=2, label="learned, epsilon = 1")
    ax.set(xlabel=name)
axes[0].set_ylabel("effect on the logit of 'well'")
axes[-1].legend(loc="lower center", fontsize=8)
plt.show()
