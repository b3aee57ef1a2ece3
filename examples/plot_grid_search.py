"""
What a grid search costs
========================

Every fit on private records is a release, and releases add up.  A grid search makes many.
This example runs one, adds up its cost, repairs the one part that has no guarantee at all, and
compares it with a cheaper search and with two ways of choosing that cost nothing.
"""

# %%
# The search
# ----------
# Breast cancer data stands for private records again.  We search over two parameters of
# the private classifier: ``comparator_norm`` (larger means less regularization) and
# ``margin``.  The folds must not depend on the labels, so we use ``KFold``: the default for
# classifiers, ``StratifiedKFold``, assigns every record by the labels of the others.

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, KFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_dpop import ObjPertGDLogisticRegression
from sklearn_dpop.datasets import breast_cancer_bounds
from sklearn_dpop.preprocessing import BoundedScaler

X, y = load_breast_cancer(return_X_y=True)
scale = make_pipeline(
    BoundedScaler(breast_cancer_bounds(), feature_range=(0, 1)),
    FunctionTransformer(np.sqrt),
    BoundedScaler((0, 1)),
)
X = scale.fit_transform(X)  # public constants only: each row alone
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=400, random_state=0)

grid = {"comparator_norm": [3.0, 10.0], "margin": [0.0, 2.0]}
folds = KFold(5, shuffle=True, random_state=0)


def classifier(epsilon, delta=1e-5, **parameters):
    return ObjPertGDLogisticRegression(
        epsilon=epsilon,
        delta=delta,
        data_norm=1.5,
        classes=[0, 1],
        adjacency="zero-out",
        calibration="tight",
        **parameters,
    )


search = GridSearchCV(classifier(epsilon=1.0), grid, cv=folds).fit(X_train, y_train)
print("best:", search.best_params_)
print(f"test accuracy: {search.score(X_test, y_test):.3f}")
print("epsilon in the report:", float(search.best_estimator_.privacy_report_.epsilon))

# %%
# The report says 1.  It is right about the one fit that it belongs to.  It cannot know of
# the others.
#
# How many fits saw a record?
# ---------------------------
# With 4 candidates and 5 folds there are 20 fits, and one more with the winner on all
# records.  A record is held out once per candidate, so it is used in 4 of the 5 fits, and
# in the last one.

n_candidates = len(search.cv_results_["params"])
n_fits = n_candidates * folds.n_splits + 1
n_used = n_candidates * (folds.n_splits - 1) + 1
print(f"{n_fits} fits; every record is used in {n_used} of them")

# %%
# Adding up
# ---------
# *Basic composition* adds the epsilons and the deltas.
#
# *Composition of the curves* uses the whole certified curve of every fit, and gives much less.
# ``plan`` returns the report that a fit would carry, from public numbers alone.  The fits of the
# search are known by their plans: those on four folds of five, and the last one on all records.
# ``fits`` says how many of them a record is used in; the worst plan is counted.

from sklearn.model_selection import ParameterGrid

from sklearn_dpop.privacy import budget_per_fit, compose_reports


def plans(epsilon, delta, sizes):
    return [
        classifier(epsilon, delta, **parameters).plan(n_samples, X.shape[1])
        for parameters in ParameterGrid(grid)
        for n_samples in sizes
    ]


SIZES = (len(X_train) * 4 // 5, len(X_train))
careless = compose_reports(plans(1.0, 1e-5, SIZES), fits=n_used, delta=n_used * 1e-5)
print(careless)

# %%
# The winner itself
# -----------------
# There is a second leak.  ``best_params_`` and ``cv_results_`` are computed from the
# held-out records, without any noise.  No sum of epsilons covers them.
#
# ``GridSearchCV`` lets us choose the winner ourselves.  Changing one record changes one
# held-out prediction of each candidate, and so each mean accuracy by at most 1/400.
# ``choose_privately`` picks a winner with a guarantee of its own, whose epsilon is added to the
# total.  The scores themselves must not be published.

from sklearn_dpop.model_selection import choose_privately

EPSILON_WINNER = 0.2


def private_winner(results):
    return choose_privately(
        results["mean_test_score"], sensitivity=1 / len(X_train), epsilon=EPSILON_WINNER
    )


# %%
# A search within a total of 1
# ----------------------------
# ``budget_per_fit`` finds what each fit may have.

budget = budget_per_fit(
    lambda epsilon, delta: plans(epsilon, delta, SIZES),
    n_used,
    epsilon=1.0,
    delta=1e-5,
    others={"choice of the winner": (EPSILON_WINNER, 0.0)},
)
print(f"each fit: epsilon = {budget.epsilon:g}, delta = {budget.delta:g}\n")
print(budget.total)

# %%

search = GridSearchCV(
    classifier(budget.epsilon, budget.delta), grid, cv=folds, refit=private_winner
).fit(X_train, y_train)
print("winner:", search.best_params_)
print(f"test accuracy: {search.score(X_test, y_test):.3f}")

# %%
# The reviewer gets the total as a file, ``budget.total.to_json()``.  It holds the report of every
# plan, and ``sklearn-dpop verify total.json`` checks them and adds them up again.

from sklearn_dpop.privacy import CompositionReport

received = CompositionReport.from_json(budget.total.to_json())
print("verified:", bool(received.verify()))

# %%
# A cheaper search: one hold-out part
# -----------------------------------
# Folds are expensive.  With one split, a record is either trained on, in 4 fits, or held out, and
# then only the choice sees it.  These two do not add up: the guarantee of the whole is the
# weaker one of both.  So the fits may share a total of 1, and the choice has an epsilon of
# 1 as well.  The winner is released as it is, without another fit.

X_fit, X_hold, y_fit, y_hold = train_test_split(X_train, y_train, test_size=100, random_state=1)
split = budget_per_fit(
    lambda epsilon, delta: plans(epsilon, delta, [len(X_fit)]),  # each of them once
    epsilon=1.0,
    delta=1e-5,
    disjoint={"choice of the winner": (1.0, 0.0)},
)
print(f"each of {n_candidates} fits: epsilon = {split.epsilon:g}, delta = {split.delta:g}\n")
print(split.total)


# %%


def search_once():
    fitted = [
        classifier(split.epsilon, split.delta, **parameters).fit(X_fit, y_fit)
        for parameters in ParameterGrid(grid)
    ]
    right = [int((model.predict(X_hold) == y_hold).sum()) for model in fitted]
    return fitted[choose_privately(right, sensitivity=1, epsilon=1.0)]


print(f"test accuracy: {search_once().score(X_test, y_test):.3f}")

# %%
# Choosing for nothing, first way: public numbers
# -----------------------------------------------
# The certificate of a fit can be computed before there is any data.  Its utility bound
# tells how far the noise can move the model, in units of the loss.  The model with all
# coefficients 0 has the loss log(1 + exp(margin)).  A simple rule: of the candidates whose
# bound is below half of that loss, take the largest ``comparator_norm``, and of those the
# smallest margin.  It is a rule of thumb, not a theorem, but it costs nothing.

acceptable = []
for w in grid["comparator_norm"]:
    planned = classifier(1.0, comparator_norm=w).plan(len(X_train), X.shape[1])
    bound = planned.certificate.utility["empirical_risk_bound"]
    for margin in grid["margin"]:
        share = bound / np.logaddexp(0, margin)
        print(f"comparator_norm {w:4g}, margin {margin:g}: {share:.2f} of the loss of w = 0")
        if share < 0.5:
            acceptable.append((w, -margin))
w, margin = max(acceptable)
by_rule = {"comparator_norm": w, "margin": -margin}
print("chosen:", by_rule)

# %%
# Choosing for nothing, second way: other data
# --------------------------------------------
# A search on data that is public, or made up, costs nothing, however many fits it takes.  It
# helps if the data has the same shape: as many records and columns, and features of a
# similar size.  Here it is made up.

from sklearn.datasets import make_classification

X_made, y_made = make_classification(
    n_samples=400, n_features=30, n_informative=8, n_redundant=12, random_state=0
)
X_made = BoundedScaler((-6, 6)).transform(X_made)
by_other_data = (
    GridSearchCV(classifier(epsilon=1.0), grid, cv=folds).fit(X_made, y_made).best_params_
)
print("chosen:", by_other_data)

# %%
# Comparison
# ----------
# Each of the last two ways makes one fit on the private records, with the whole budget.  The
# noise differs from fit to fit, so we repeat everything three times and look at the median.

import matplotlib.pyplot as plt

outcomes = {
    "search, epsilon = 1 each\n(winner: no guarantee)": (
        careless.epsilon,
        lambda: GridSearchCV(classifier(epsilon=1.0), grid, cv=folds).fit(X_train, y_train),
    ),
    "search within the budget": (budget.total.epsilon, lambda: search.fit(X_train, y_train)),
    "one hold-out part": (split.total.epsilon, search_once),
    "public numbers": (1.0, lambda: classifier(1.0, **by_rule).fit(X_train, y_train)),
    "other data": (1.0, lambda: classifier(1.0, **by_other_data).fit(X_train, y_train)),
}
fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, (total, make) in outcomes.items():
    accuracy = np.median([make().score(X_test, y_test) for _ in range(3)])
    print(f"total epsilon {total:5.2f}, test accuracy {accuracy:.3f}: {name.splitlines()[0]}")
    ax.plot(accuracy, name, "o", markersize=8, label=name)
    ax.text(accuracy - 0.01, name, f"epsilon = {total:.2f}", ha="right", va="center")
ax.set_xlim(0.7, 1.0)
ax.margins(y=0.15)
ax.invert_yaxis()
ax.set_xlabel("test accuracy, median of 3")
plt.show()

# %%
# The lesson: a search must improve the model by more than its share of the budget costs.
# With few records it rarely does.
