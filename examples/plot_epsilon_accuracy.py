"""
Accuracy against epsilon, and what more records buy
===================================================

How much accuracy does a budget cost?  That depends on the number of records more than on
anything else: the noise on the average gradient falls as 1/n, so ten times the records
are worth a tenth of the epsilon.
"""

# %%
# Data of three sizes
# -------------------
# The same problem with 500, 2,000 and 8,000 records, and a large test set.  The features have
# public bounds by construction: they are cut to [-4, 4].

import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

X, y = make_classification(
    n_samples=14_000, n_features=10, n_informative=8, n_redundant=0, class_sep=1.2, random_state=3
)
X = X.clip(-4, 4) / 4
X_test, y_test = X[8000:], y[8000:]
sizes = [500, 2_000, 8_000]
reference = LogisticRegression().fit(X[:8000], y[:8000]).score(X_test, y_test)
print(f"not private, 8,000 records: {reference:.3f}")

# %%
# The curves
# ----------
# Nine private fits for every size and budget; the line is the median, the band holds the
# middle half.  ``n_iter=1000`` fixes the number of passes over the records, which keeps this
# example short and costs some regularization: see the gap at the right end.

from sklearn_dpop import ObjPertGDLogisticRegression

budgets = np.array([0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0])
scores = {}
for n in sizes:
    for epsilon in budgets:
        model = ObjPertGDLogisticRegression(
            epsilon=epsilon,
            delta=1e-6,
            data_norm=1.5,
            classes=[0, 1],
            adjacency="zero-out",
            calibration="tight",
            n_iter=1000,
        )
        fits = [model.fit(X[:n], y[:n]).score(X_test, y_test) for _ in range(9)]
        scores[n, epsilon] = np.quantile(fits, [0.25, 0.5, 0.75])

print("epsilon" + "".join(f"{n:>12,}" for n in sizes))
for epsilon in budgets:
    print(f"{epsilon:7g}" + "".join(f"{scores[n, epsilon][1]:12.3f}" for n in sizes))

# %%
# Left, against epsilon.  Right, against epsilon times the number of records: the three curves
# become one, until they reach what that many records can teach at all.

import matplotlib.pyplot as plt

colors = ["#7a3b9a", "#1f5f99", "#b3541e"]
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
for n, color in zip(sizes, colors, strict=True):
    low, middle, high = np.array([scores[n, epsilon] for epsilon in budgets]).T
    for ax, x in ((left, budgets), (right, n * budgets)):
        ax.plot(x, middle, "o-", color=color, markersize=4, label=f"{n:,} records")
        ax.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)
for ax in (left, right):
    ax.axhline(reference, color="0.4", linestyle="--", label="not private, 8,000 records")
    ax.axhline(0.5, color="0.7", linewidth=0.8)
    ax.set_xscale("log")
left.set(xlabel="epsilon (delta = 1e-6)", ylabel="test accuracy", title="Against epsilon")
right.set(xlabel="epsilon times number of records", title="The curves become one")
left.legend(frameon=False, loc="lower right", fontsize=8)
plt.show()
