"""
A private network in a pipeline
===============================

`KANClassifierDP` is for tables whose effects are not straight lines, and with some thousand
records or more.  It drops into a pipeline like any other classifier, and carries a report.
It needs torch and skorch: ``pip install ".[kan]"`` in a copy of the repository.
"""

# %%
# Data
# ----
# Six measurements of 12,000 persons.  What counts is how far they are from normal, in either
# direction: no linear model can see that.  The measurements are known to lie between -3 and 3;
# such **public** bounds must not be read off the records.

from sklearn.datasets import make_gaussian_quantiles
from sklearn.model_selection import train_test_split

X, y = make_gaussian_quantiles(n_samples=16_000, n_features=6, n_classes=2, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=4_000, random_state=0)

# %%
# Training
# --------
# ``epsilon`` and ``delta`` are the budget of the whole training.  The learning rate and the noise
# follow from public numbers, so there is nothing to search.  With the default
# ``sampling="balls_in_bins"`` there would be less noise, but finding out how much takes some
# seconds; ``"cyclic"`` batches need no such run.

from sklearn.pipeline import make_pipeline

from sklearn_dpop import KANClassifierDP, ObjPertGDLogisticRegression
from sklearn_dpop.preprocessing import BoundedScaler


def network(epsilon, lr="auto"):
    """Scale by public bounds, then train."""
    return make_pipeline(
        BoundedScaler(([-3] * 6, [3] * 6)),
        KANClassifierDP(
            epsilon=epsilon,
            delta=1e-5,
            classes=[0, 1],
            feature_bounds=(-1, 1),
            batch_size=300,
            epochs=10,
            lr=lr,
            sampling="cyclic",
        ),
    )


private = network(epsilon=2.0).fit(X_train, y_train)
print(private[-1].privacy_report_)

# %%
# What privacy costs
# ------------------
# The same network without noise (``epsilon=inf``), with a learning rate that suits it, and a
# private linear model.

import math
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # no noise, no guarantee
    open_network = network(epsilon=math.inf, lr=8.0).fit(X_train, y_train)
linear = make_pipeline(
    BoundedScaler(([-3] * 6, [3] * 6)),
    ObjPertGDLogisticRegression(
        epsilon=2.0,
        delta=1e-5,
        classes=[0, 1],
        data_norm=6**0.5,
        adjacency="zero-out",
        calibration="tight",
        n_iter=300,
    ),
).fit(X_train, y_train)

print(f"private network, epsilon = 2: {private.score(X_test, y_test):.3f}")
print(f"network, not private:         {open_network.score(X_test, y_test):.3f}")
print(f"private linear model:         {linear.score(X_test, y_test):.3f}")

# %%
# More budget, more accuracy
# --------------------------
# Each of these is a fit of its own, with a budget of its own; together they would cost the sum.
# Each has noise of its own, so a larger budget is not better every time.

import matplotlib.pyplot as plt

budgets = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
scores = [network(epsilon).fit(X_train, y_train).score(X_test, y_test) for epsilon in budgets]
best = open_network.score(X_test, y_test)
for epsilon, score in zip(budgets, scores, strict=True):
    print(f"{epsilon:5g}   {score:.3f}")

fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
ax.axhline(best, color="0.4", lw=1, ls="--")
ax.text(0.25, best + 0.008, "not private", color="0.3")
ax.plot(budgets, scores, "o-")
ax.text(0.28, scores[0] - 0.02, "private network", color="C0", va="top")
ax.axhline(linear.score(X_test, y_test), color="C3", lw=1)
ax.text(0.25, linear.score(X_test, y_test) + 0.01, "private linear model, epsilon 2", color="C3")
ax.set(
    xscale="log",
    xticks=budgets,
    xlabel="epsilon (delta = 1e-5)",
    ylabel="test accuracy",
    ylim=(0.45, 1.02),
)
ax.set_xticklabels([f"{epsilon:g}" for epsilon in budgets])
ax.minorticks_off()
plt.show()
