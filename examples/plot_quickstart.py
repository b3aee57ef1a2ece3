"""
A private classifier and its report
===================================

We train a private logistic regression on scikit-learn's breast cancer data, compare it
with one that is not private, and read its privacy report.  The data set is public.  It
stands for one that is not.
"""

# %%
# The data
# --------
# Each of the 569 records describes one tumour by 30 measurements.

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

X, y = load_breast_cancer(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
print(f"{len(X_train)} training records, {len(X_test)} test records")

# %%
# Scaling without looking
# -----------------------
# A private model needs features of bounded size.  The bounds have to be public: they come
# from what the columns mean, never from the training records.  ``StandardScaler`` would
# learn means and deviations from the records, and the guarantee would be lost.
#
# For this data set the range of every column is published with the data.  Measurements
# are positive and have a long upper tail.  A square root spreads the small values out.  It
# is a fixed function, so it needs no data either.

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_dpop.datasets import breast_cancer_bounds
from sklearn_dpop.preprocessing import BoundedScaler


def with_public_scaling(classifier):
    return make_pipeline(
        BoundedScaler(breast_cancer_bounds(), feature_range=(0, 1)),
        FunctionTransformer(np.sqrt),
        BoundedScaler((0, 1)),
        classifier,
    )


# %%
# The private classifier
# ----------------------
# ``data_norm`` is a public bound on the length of a row.  Longer rows are scaled down to
# it, one by one.  ``classes`` declares the labels, so that they are not read off the
# records.

from sklearn_dpop import ObjPertGDLogisticRegression

model = with_public_scaling(
    ObjPertGDLogisticRegression(
        epsilon=1.0,
        delta=1e-5,
        data_norm=1.5,
        classes=[0, 1],
        calibration="tight",
    )
)
model.fit(X_train, y_train)
print(f"test accuracy at epsilon = 1: {model.score(X_test, y_test):.3f}")

# %%
# The report
# ----------
# Every fitted classifier carries its report.  The page :doc:`/report` explains it line by
# line.

report = model[-1].privacy_report_
print(report)

# %%
# The stated pair (epsilon, delta) is one point of a curve.  The whole curve is certified:
# ``report.delta(epsilon)`` and ``report.epsilon(delta)`` read it, and this draws it.

import matplotlib.pyplot as plt

report.plot_profile()
plt.show()

# %%
# ``verify`` computes the guarantee again, from the public numbers in the report.

print(report.verify())

# %%
# What privacy costs
# ------------------
# We repeat the fit for several epsilon, and nine times each because of the noise.  (On
# private records each of these fits would be a release of its own, and their budgets
# would add up.)
#
# Two choices are compared.  The first is the one above.  The second protects against the
# removal of a record instead of its replacement (``adjacency="zero-out"``), which needs half
# the noise, and asks the loss for a margin, which gives a stronger signal.  The page
# :doc:`/choosing` explains both.

from sklearn.linear_model import LogisticRegression

baseline = with_public_scaling(LogisticRegression(max_iter=1000)).fit(X_train, y_train)
baseline_accuracy = baseline.score(X_test, y_test)
print(f"not private: {baseline_accuracy:.3f}")

choices = {
    "replace-one": {"adjacency": "replace-one"},
    "zero-out, margin 1": {"adjacency": "zero-out", "margin": 1.0},
}
budgets = [0.25, 0.5, 1.0, 2.0, 4.0]
medians = {name: [] for name in choices}
for name, choice in choices.items():
    for epsilon in budgets:
        private = with_public_scaling(
            ObjPertGDLogisticRegression(
                epsilon=epsilon, data_norm=1.5, classes=[0, 1], calibration="tight", **choice
            )
        )
        scores = [private.fit(X_train, y_train).score(X_test, y_test) for _ in range(9)]
        medians[name].append(np.median(scores))

print(f"{'epsilon':>8}" + "".join(f"{name:>20}" for name in choices))
for i, epsilon in enumerate(budgets):
    print(f"{epsilon:8g}" + "".join(f"{medians[name][i]:20.3f}" for name in choices))

# %%

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for name in choices:
    ax.plot(budgets, medians[name], "o-", label=name)
ax.axhline(baseline_accuracy, color="0.5", linestyle="--", label="not private")
ax.set_ylim(top=1.0)
ax.set_xscale("log", base=2)
ax.set_xticks(budgets, [f"{epsilon:g}" for epsilon in budgets])
ax.set_xlabel("epsilon (delta = 1e-5)")
ax.set_ylabel("test accuracy, median of 9 fits")
ax.legend()
plt.show()
