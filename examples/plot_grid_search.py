"""
What a grid search costs
========================

Every fit on private records is a release, and releases add up.  A grid search makes many.
This example runs one, adds up its cost in two ways, repairs the one part that has no
guarantee at all, and compares it with two ways of choosing that cost nothing.
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
# *Basic composition* adds the epsilons and the deltas.  It needs no more than the pairs.
#
# *Composition of the profiles* uses the whole certified curve of every fit and is much
# better.  We read the curve of each candidate on a grid, and take the largest delta at each
# epsilon.  Between two grid points we may use the chord in :math:`e^\varepsilon`: the true
# curve is convex in :math:`e^\varepsilon`, so it lies below.  (The margin does not enter the
# guarantee, so one certificate for each ``comparator_norm`` is enough.)

from sklearn_dpop.privacy import calibrate_objective_perturbation, compose_profile


def certificate(n_samples, epsilon, delta, comparator_norm):
    return calibrate_objective_perturbation(
        n_samples,
        X.shape[1] + 1,  # the intercept is a coefficient, too
        epsilon,
        delta,
        data_norm=np.hypot(1.5, 0.25),  # the intercept is a feature of size 0.25
        comparator_norm=comparator_norm,
        adjacency="zero-out",
        calibration="tight",
    )


def total_epsilon(epsilon, delta, total_delta):
    """Return the epsilon of all fits together, by composing their profiles."""
    certificates = [
        certificate(n, epsilon, delta, w)
        for n in (len(X_train) * 4 // 5, len(X_train))
        for w in grid["comparator_norm"]
    ]
    points = np.append(np.linspace(0, 2.5 * epsilon, 15), 4 * epsilon)
    curve = [max(c.delta_at(e) for c in certificates) for e in points]

    def log_delta(e):
        return np.log(np.interp(np.exp(e.clip(max=points[-1])), np.exp(points), curve))

    return compose_profile(log_delta, n_used, delta=total_delta).epsilon(total_delta)


def print_account(epsilon, delta):
    total_delta = n_used * delta
    by_profiles = total_epsilon(epsilon, delta, total_delta)
    print(f"each fit: epsilon = {epsilon:g}, delta = {delta:g}; total delta = {total_delta:.2g}")
    print(f"  basic, over all {n_fits} fits:      {n_fits * epsilon:6.2f}")
    print(f"  basic, over {n_used} fits a record: {n_used * epsilon:6.2f}")
    print(f"  from the certified profiles: {by_profiles:6.2f}")
    return by_profiles


total_careless = print_account(1.0, 1e-5)

# %%
# The winner itself
# -----------------
# There is a second leak.  ``best_params_`` and ``cv_results_`` are computed from the
# held-out records, without any noise.  No sum of epsilons covers them.
#
# ``GridSearchCV`` lets us choose the winner ourselves.  Changing one record changes one
# held-out prediction of each candidate, and so each mean accuracy by at most 1/400.  The
# exponential mechanism picks a winner with a guarantee of its own: it adds Gumbel noise of
# scale 2 / (400 epsilon) to the scores and takes the largest.  Its epsilon is added to the
# total.  The scores themselves must not be published.  (For a real release, this noise should
# come from a cryptographic generator, too.)

EPSILON_WINNER = 0.2
gumbel = np.random.default_rng()


def private_winner(results):
    scale = 2 / (len(X_train) * EPSILON_WINNER)
    scores = results["mean_test_score"]
    return int(np.argmax(scores + gumbel.gumbel(scale=scale, size=scores.shape)))


# %%
# A search within a total of 1
# ----------------------------
# To stay within a total of 1, each fit can have only this much:

EPSILON_FIT, DELTA_FIT = 0.13, 1e-6
total_search = print_account(EPSILON_FIT, DELTA_FIT) + EPSILON_WINNER
print(f"  with the choice of the winner: {total_search:6.2f}")

# %%

search = GridSearchCV(
    classifier(EPSILON_FIT, DELTA_FIT), grid, cv=folds, refit=private_winner
).fit(X_train, y_train)
print("winner:", search.best_params_)
print(f"test accuracy: {search.score(X_test, y_test):.3f}")

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
    bound = certificate(len(X_train), 1.0, 1e-5, w).utility["empirical_risk_bound"]
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
# Each of the two ways makes one fit on the private records, with the whole budget.  The
# noise differs from fit to fit, so we repeat everything three times and look at the median.

import matplotlib.pyplot as plt


def median_accuracy(model):
    return np.median([model.fit(X_train, y_train).score(X_test, y_test) for _ in range(3)])


outcomes = {
    "search, epsilon = 1 each\n(winner: no guarantee)": (
        total_careless,
        GridSearchCV(classifier(epsilon=1.0), grid, cv=folds),
    ),
    "search within the budget": (total_search, search),
    "public numbers": (1.0, classifier(epsilon=1.0, **by_rule)),
    "other data": (1.0, classifier(epsilon=1.0, **by_other_data)),
}
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for name, (total, model) in outcomes.items():
    accuracy = median_accuracy(model)
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
