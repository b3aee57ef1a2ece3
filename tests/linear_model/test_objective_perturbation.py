"""The estimator: scikit-learn's contract, the law of the release, and peers' defects."""

import copy
import json
import math
import multiprocessing
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from joblib import Parallel, delayed
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_dpop import ObjPertGDLogisticRegression, PrivacyLeakWarning, PrivacyReport
from sklearn_dpop.datasets import breast_cancer_bounds
from sklearn_dpop.linear_model import _objective_perturbation
from sklearn_dpop.preprocessing import BoundedScaler, RowNormClipper
from sklearn_dpop.privacy import LossConstants
from sklearn_dpop.release import LogisticLoss, SmoothedHingeLoss

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 5)) / 3
Y = (X[:, 0] + 0.1 * RNG.normal(size=300) > 0).astype(int)


def make(**parameters):
    return ObjPertGDLogisticRegression(
        **({"calibration": "tight", "classes": [0, 1], "epsilon": 1.0} | parameters)
    )


@pytest.mark.filterwarnings("ignore::sklearn_dpop.PrivacyLeakWarning", "ignore:delta")
@parametrize_with_checks(
    [
        ObjPertGDLogisticRegression(),
        ObjPertGDLogisticRegression(calibration="tight", epsilon=8.0, adjacency="zero-out"),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


# --- the law of the release ------------------------------------------------------------------


class LinearLoss:
    """psi(u) = -u: the closed form of Section C.5, one-sided with zero curvature."""

    @property
    def constants(self):
        return LossConstants("linear", L1=1.0, L2=1e-12, L3=1e-12, one_sided=False)

    def derivative(self, u, out=None):
        out = np.empty_like(u) if out is None else out
        out[...] = -1.0
        return out


@pytest.mark.filterwarnings("ignore")
def test_release_has_the_law_of_the_closed_form():
    # Section C.5: w_N = -(1 - rho^N)/mu (b + Z), b = -(1/n) sum y_i x_i.
    # m = 400 fits x 51 coordinates of standard normals.  Two-sided tests at 1e-7 each:
    # the sum of squares (chi-square, relative s.e. of sigma sqrt(1/(2m)) = 0.5%: a sigma
    # wrong by 3% fails with probability > 0.6 and by 4% > 0.99) and the mean.
    n, d, fits = 200, 50, 400
    rng = np.random.default_rng(1)
    features = rng.normal(size=(n, d))
    features /= 1.2 * np.linalg.norm(features, axis=1, keepdims=True)
    labels = rng.integers(0, 2, n)
    model = make(loss=LinearLoss(), mu=0.5, n_iter=40, delta=1e-3)
    whitened = []
    for _ in range(fits):
        model.fit(features, labels)
        w = np.append(model.coef_[0], model.intercept_ / model.intercept_scaling)
        augmented = np.column_stack([features, np.full(n, model.intercept_scaling)])
        b = -((2 * labels - 1) @ augmented) / n
        rho = 1.0 - model.eta_ * model.mu_
        z = -w * model.mu_ / (1.0 - rho**model.n_iter_) - b
        whitened.append(z / model.sigma_)
    whitened = np.concatenate(whitened)
    m = whitened.size
    low, high = stats.chi2.interval(1 - 1e-7, m)
    assert low < (whitened**2).sum() < high
    assert abs(whitened.mean()) * math.sqrt(m) < stats.norm.isf(0.5e-7)
    assert stats.kstest(whitened, "norm").pvalue > 1e-7


def test_sigma_is_the_certified_noise_for_the_true_sensitivity():
    # Independent of the package's algebra: the largest change of the averaged gradient
    # over two records at the bound, divided into sigma, is the Gaussian multiplier of
    # (epsilon, delta) up to the 1% that a finite N may cost.
    from sklearn_dpop.privacy import gaussian_noise_multiplier

    model = make(data_norm=2.0, intercept_scaling=0.5, mu=0.5).fit(X, Y)
    norm = math.hypot(2.0, 0.5)
    largest_change = 2.0 * norm / len(X)
    assert model.sigma_ / largest_change >= gaussian_noise_multiplier(1.0, 1e-5)
    assert model.sigma_ / largest_change <= 1.011 * gaussian_noise_multiplier(1.0, 1e-5)


def test_released_point_is_the_nth_iterate():
    # Recover the noise from the release by inverting the last step is not possible; run
    # the recursion on plain arrays with the same (seeded) noise instead.
    from sklearn_dpop.release._noise import gaussian_noise, noise_generator

    model = make(random_state=3, n_iter=50, margin=1.0, class_weight={1: 2.0}).fit(X, Y)
    generator, _ = noise_generator(3, context=model._context(np.array([0, 1]), X.shape))
    z = gaussian_noise(generator, model.sigma_, (6, 1))[:, 0]
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    rows = np.column_stack([X / np.maximum(norms, 1.0), np.full(len(X), 0.25)])
    sign = 2.0 * Y - 1.0
    weight = np.where(Y == 1, 2.0, 1.0)
    w = np.zeros(6)
    for _ in range(50):
        s = 1.0 / (1.0 + np.exp(sign * (rows @ w) - 1.0))
        gradient = -(weight * sign * s) @ rows / len(X) + model.mu_ * w
        w = w - model.eta_ * (gradient + z)
    assert np.allclose(model.coef_[0], w[:5], rtol=1e-9, atol=1e-12)
    assert model.intercept_[0] == pytest.approx(0.25 * w[5], rel=1e-9)


# --- what goes in ----------------------------------------------------------------------------


def test_every_container_gives_the_same_release(tmp_path):
    seeded = make(random_state=0)
    expected = clone(seeded).fit(X, Y).coef_
    np.save(tmp_path / "x.npy", X)
    for data in (
        np.asfortranarray(X),
        sparse.csr_matrix(X),
        sparse.csr_array(X),
        np.load(tmp_path / "x.npy", mmap_mode="r"),
        pd.DataFrame(X, columns=list("abcde")),
        pl.DataFrame(X, schema=list("abcde")),
        X.tolist(),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            got = clone(seeded).fit(data, Y)
        assert np.allclose(got.coef_, expected, rtol=1e-9, atol=1e-12)
        assert (got.predict(data) == clone(seeded).fit(X, Y).predict(X)).all()
    single = clone(seeded).fit(X.astype(np.float32), Y).coef_
    assert np.allclose(single, expected, rtol=1e-4, atol=1e-6)


def test_sparse_duplicates_are_one_entry():
    row = sparse.csr_matrix(([0.9, 0.9], [0, 0], [0, 2]), shape=(1, 5))
    stacked = sparse.vstack([sparse.csr_matrix(X), row], format="csr")
    doubled = sparse.csr_matrix(
        (
            np.append(sparse.csr_matrix(X).data, [0.9, 0.9]),
            np.append(sparse.csr_matrix(X).indices, [0, 0]),
            np.append(sparse.csr_matrix(X).indptr, sparse.csr_matrix(X).nnz + 2),
        ),
        shape=(301, 5),
    )
    y = np.append(Y, 1)
    a = make(random_state=0).fit(stacked, y).coef_
    b = make(random_state=0).fit(doubled, y).coef_
    assert np.allclose(a, b, rtol=1e-12)


def test_stale_memory_of_a_sparse_matrix_does_not_defeat_clipping():
    # scipy caches "no duplicates"; indices changed in place (hashing) make that false.
    n, d = 60, 16
    data = sparse.csr_matrix(
        (np.full(n * d, 0.25), np.tile(np.arange(d), n), np.arange(n + 1) * d), shape=(n, d)
    )
    assert data.has_canonical_format
    data.indices[:] = 0  # every row is now 4 in column 0
    dense = np.zeros((n, d))
    dense[:, 0] = 4.0
    labels = np.arange(n) % 2
    assert np.allclose(
        make(random_state=0).fit(data, labels).coef_,
        make(random_state=0).fit(dense, labels).coef_,
        rtol=1e-9,
    )
    data.indices[:] = d + 3
    with pytest.raises(ValueError, match=r"index|indices"):
        make().fit(data, labels)


def test_errors_and_warnings_quote_no_cell_and_no_label():
    data = X.astype(object)
    data[5, 1] = "John Smith"
    with pytest.raises(ValueError, match="not numbers") as caught:
        make().fit(data, Y)
    assert "John" not in str(caught.value)
    with pytest.raises(ValueError, match="Complex data not supported") as caught:
        make().fit(X + 1j, Y)
    assert len(str(caught.value)) < 60
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # scikit-learn warns of many distinct labels
        make(classes=range(20), delta=1e-3).fit(X[:30], np.arange(30) % 16)


@pytest.mark.parametrize(
    "classes", [np.array([0, 1], dtype=object), [0.0, 1.0], [False, True], range(2)]
)
def test_numeric_labels_match_whatever_their_type(classes):
    model = make(classes=classes)
    found, codes = model._encode(Y)
    assert (codes == Y).all()
    assert set(model.fit(X, Y).predict(X).tolist()) <= set(found.tolist())


def test_single_precision_bound_is_widened_before_use():
    a = make(data_norm=np.float32(0.1), random_state=0).fit(X, Y)
    b = make(data_norm=float(np.float32(0.1)), random_state=0)
    b.fit(X, Y)
    assert a.sigma_ == b.sigma_
    assert a.mu_ == b.mu_


def test_string_labels_frames_and_column_transformer():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {"age": rng.integers(18, 90, 400), "ward": rng.choice(["a", "b", "c"], 400)}
    )
    label = np.where(frame["age"] + 20 * (frame["ward"] == "a") > 55, "ill", "well")
    model = make_pipeline(
        ColumnTransformer(
            [
                ("age", BoundedScaler(bounds=(0, 110)), ["age"]),
                ("ward", OneHotEncoder(categories=[["a", "b", "c"]]), ["ward"]),
            ]
        ),
        make(classes=["ill", "well"], data_norm=1.5, epsilon=5.0),
    ).fit(frame, label)
    assert set(model.predict(frame)) <= {"ill", "well"}
    assert model.score(frame, label) > 0.8
    assert list(model[-1].classes_) == ["ill", "well"]
    named = make(random_state=0).fit(pd.DataFrame(X, columns=list("abcde")), Y)
    assert list(named.feature_names_in_) == list("abcde")


def test_data_are_not_changed_and_parameters_not_overwritten():
    data, labels = X.copy(), Y.copy()
    model = make(data_norm=0.1)
    before = copy.deepcopy(model.get_params())
    model.fit(data, labels)
    assert (data == X).all()
    assert (labels == Y).all()
    assert model.get_params() == before
    assert not hasattr(make(), "classes_")


def test_clipping_bounds_the_influence_of_a_record():
    wild = X.copy()
    wild[0] = 1e200
    aligned = X.copy()
    aligned[0] = 1.0 / math.sqrt(5)
    a = make(random_state=0).fit(wild, Y)
    b = make(random_state=0).fit(aligned, Y)
    assert np.allclose(a.coef_, b.coef_, rtol=1e-9)


def test_unclipped_rows_are_refused_without_naming_the_record():
    with pytest.raises(ValueError, match=r"exceeds data_norm=0.5, and clip=False") as caught:
        make(clip=False, data_norm=0.5).fit(X, Y)
    assert not any(character in str(caught.value) for character in "[]")
    fine = make(clip=False, data_norm=10.0, random_state=0).fit(X, Y)
    assert np.isfinite(fine.coef_).all()


def test_prediction_clips_as_fit_does():
    model = make(random_state=0).fit(X, Y)
    long = 50.0 * X
    norms = np.linalg.norm(long, axis=1, keepdims=True)
    expected = (long / norms) @ model.coef_.T + model.intercept_
    assert np.allclose(model.decision_function(long), expected[:, 0], rtol=1e-9)
    assert np.allclose(model.decision_function(sparse.csr_matrix(long)), expected[:, 0], rtol=1e-9)
    free = make(clip=False, data_norm=100.0, random_state=0).fit(X, Y)
    expected = long @ free.coef_.T + free.intercept_
    assert np.allclose(free.decision_function(long), expected[:, 0], rtol=1e-12)


@pytest.mark.parametrize("classes", [[0, 1], None])
def test_probabilities(classes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        model = make(classes=classes).fit(X, Y)
    proba = model.predict_proba(X)
    assert proba.shape == (300, 2)
    assert np.allclose(proba.sum(1), 1.0)
    assert np.allclose(np.log(proba), model.predict_log_proba(X))
    assert np.allclose(proba[:, 1], 1 / (1 + np.exp(-model.decision_function(X))))


# --- several classes --------------------------------------------------------------------------


def test_one_vs_rest_on_digits():
    data, labels = load_digits(return_X_y=True)
    train, test, y_train, y_test = train_test_split(data / 16, labels, random_state=0)
    model = make(classes=range(10), epsilon=8.0, adjacency="zero-out").fit(train, y_train)
    assert model.coef_.shape == (10, 64)
    assert model.intercept_.shape == (10,)
    assert model.decision_function(test).shape == (len(test), 10)
    assert np.allclose(model.predict_proba(test).sum(1), 1.0)
    assert model.score(test, y_test) > 0.75
    report = model.privacy_report_
    assert report.certificate.n_problems == 10
    assert report.delta(8.0) <= 1e-5


def test_noise_is_not_shared_between_the_problems_of_one_fit():
    # Peers reused one vector for all classes.  With mu large, w_N is -Z/mu plus a little.
    labels = np.arange(300) % 3
    model = make(classes=[0, 1, 2], mu=1e4, n_iter=5, delta=1e-3).fit(X, labels)
    noise = -model.coef_ * model.mu_ / model.sigma_
    correlation = np.corrcoef(noise)
    assert np.abs(noise[0] - noise[1]).min() > 1e-6
    assert np.abs(correlation[np.triu_indices(3, 1)]).max() < 0.9999


def test_absent_declared_class_is_allowed():
    model = make(classes=[0, 1, 2], delta=1e-3).fit(X, Y)
    assert list(model.classes_) == [0, 1, 2]


# --- noise is never reused --------------------------------------------------------------------


def noise_of(model, data=X, labels=Y):
    return model.fit(data, labels).coef_.copy()


def all_different(arrays):
    flat = [np.asarray(a).ravel() for a in arrays]
    return all(np.abs(flat[i] - flat[j]).min() > 1e-12 for i in range(len(flat)) for j in range(i))


def test_successive_fits_clones_copies_and_pickles_draw_new_noise():
    model = make()
    first = noise_of(model)
    others = [
        noise_of(model),
        noise_of(clone(model)),
        noise_of(copy.deepcopy(model)),
        noise_of(pickle.loads(pickle.dumps(model))),
    ]
    assert all_different([first, *others])


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_parallel_workers_draw_new_noise(backend):
    fits = Parallel(n_jobs=2, backend=backend)(delayed(noise_of)(make()) for _ in range(4))
    assert all_different(fits)


def _fit_in_child(queue):
    queue.put(noise_of(make()))


@pytest.mark.skipif(sys.platform == "win32", reason="fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_processes_draw_new_noise():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_fit_in_child, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    found = [queue.get(timeout=60) for _ in children]
    for child in children:
        child.join()
    assert all_different([*found, noise_of(make())])


def test_seeded_fits_repeat_and_public_changes_give_new_noise():
    seeded = make(random_state=7, mu=1e4, n_iter=5, delta=1e-3)
    first = noise_of(clone(seeded))
    assert (noise_of(clone(seeded)) == first).all()
    changed = [
        noise_of(clone(seeded).set_params(epsilon=1.1)),
        noise_of(clone(seeded).set_params(margin=0.5)),
        noise_of(clone(seeded).set_params(random_state=8)),
        noise_of(clone(seeded), X[:299], Y[:299]),
    ]
    scaled = [a / np.linalg.norm(a) for a in (first, *changed)]
    assert np.abs(np.corrcoef([a.ravel() for a in scaled])[np.triu_indices(5, 1)]).max() < 0.9999
    assert all_different(scaled)


def test_generator_instances_advance():
    model = make(random_state=np.random.RandomState(0))
    assert all_different([noise_of(model), noise_of(model)])
    model = make(random_state=np.random.default_rng(0))
    assert all_different([noise_of(model), noise_of(model)])


def test_nothing_secret_is_kept():
    model = make().fit(X, Y)
    kept = {name for name in vars(model) if name.endswith("_")}
    assert kept == {
        "classes_", "coef_", "intercept_", "mu_", "sigma_", "eta_", "n_iter_",
        "n_features_in_", "privacy_report_",
    }  # fmt: skip
    assert len(pickle.dumps(model)) < 20_000


# --- refusals, before any noise is drawn ------------------------------------------------------


@pytest.fixture
def no_noise(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("noise was drawn")

    module = "sklearn_dpop.linear_model._objective_perturbation"
    monkeypatch.setattr(f"{module}.noise_generator", refuse)
    monkeypatch.setattr(f"{module}.gaussian_noise", refuse)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"data_norm": 0.0}, "data_norm"),
        ({"data_norm": math.inf}, "data_norm"),
        ({"calibration": "loose"}, "calibration"),
        ({"calibration": "corollary", "epsilon": 2.0}, "calibration='tight'"),
        ({"adjacency": "add-remove"}, "adjacency"),
        ({"loss": "hinge"}, "loss"),
        ({"margin": -1.0}, "margin"),
        ({"temperature": 0.0}, "temperature"),
        ({"class_weight": "balanced"}, "private label counts"),
        ({"class_weight": {5: 1.0}}, "label 5 is not one of the classes"),
        ({"class_weight": {1: -2.0}}, r"class_weight\[1\]=-2.0"),
        ({"class_weight": {1: math.nan}}, r"class_weight\[1\]=nan"),
        ({"classes": [0]}, "at least 2 labels"),
        ({"classes": [0, 1, 1]}, "each once"),
        ({"classes": [[0, 1]]}, "flat list"),
        ({"classes": [0.0, math.nan]}, "NaN"),
        ({"classes": np.array([0, "a"], dtype=object)}, "all text or all numbers"),
        ({"class_weight": {1: 10**400}}, "positive finite number"),
        ({"classes": [0, 2]}, "labels that are not in classes"),
        ({"classes": ["0", "1"]}, "labels that are not in classes"),
        ({"intercept_scaling": 0.0}, "intercept_scaling"),
        ({"mu": 1e-12}, "mu=1e-12: too little regularization"),
        ({"sigma": 1e-9}, "sigma=1e-09: too little noise"),
        ({"eta": 50.0, "mu": 0.1}, "eta=50.0: must be at most 1/L"),
        ({"n_iter": 0}, "n_iter"),
        ({"n_iter": 2, "mu": 1e-3}, "n_iter=2: too few iterations"),
        ({"random_state": "x"}, "random_state"),
    ],
)
def test_bad_parameters_are_refused_before_the_draw(parameters, message):
    model = make(**parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y)
    assert not hasattr(model, "coef_")


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_data_are_refused_before_the_draw(bad):
    data = X.copy()
    data[3, 2] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        make().fit(data, Y)


@pytest.mark.usefixtures("no_noise")
def test_sample_weight_is_refused():
    with pytest.raises(TypeError, match="sample_weight"):
        make().fit(X, Y, sample_weight=np.ones(300))


# --- the report -------------------------------------------------------------------------------


def test_report_verifies_elsewhere_from_the_json_alone():
    model = make(classes=[0, 1], class_weight={1: 2.0}, margin=1.0).fit(X, Y)
    text = model.privacy_report_.to_json()
    assert bool(PrivacyReport.from_json(text).verify())
    assert model.privacy_report_.warnings == ()
    altered = json.loads(text)
    flat = json.dumps(altered).replace('"epsilon": 1.0', '"epsilon": 0.5')
    assert not PrivacyReport.from_json(flat).verify()


def test_undeclared_classes_are_announced_and_recorded():
    with pytest.warns(PrivacyLeakWarning, match="inferred"):
        model = make(classes=None).fit(X, Y)
    assert any("inferred" in text for text in model.privacy_report_.warnings)


def test_large_delta_is_announced_and_recorded():
    with pytest.warns(UserWarning, match="1/n"):
        model = make(delta=0.01).fit(X, Y)
    assert any("1/n" in text for text in model.privacy_report_.warnings)


def test_seed_is_recorded():
    report = make(random_state=0).fit(X, Y).privacy_report_
    assert report.seeded
    assert any("reproducible" in text for text in report.warnings)
    assert "seeded" in report.noise_source


def test_report_holds_no_number_that_depends_on_the_records():
    other = RNG.normal(size=X.shape)
    first = make().fit(X, Y).privacy_report_
    second = make().fit(other, 1 - Y).privacy_report_
    assert first.to_json() == second.to_json()


def test_given_noise_states_its_epsilon():
    model = make(epsilon=None, sigma=0.05, mu=0.1).fit(X, Y)
    report = model.privacy_report_
    assert report.delta(float(report.epsilon)) <= 1e-5 * (1 + 1e-9)
    assert 0.1 < float(report.epsilon) < 2.0


# --- inside scikit-learn ----------------------------------------------------------------------


def test_cross_validation_and_grid_search():
    scores = cross_val_score(make(epsilon=4.0), X, Y, cv=3)
    assert scores.mean() > 0.7
    search = GridSearchCV(make(epsilon=4.0), {"comparator_norm": [3.0, 10.0]}, cv=3).fit(X, Y)
    assert search.best_estimator_.privacy_report_.epsilon == 4.0


def test_losses():
    for loss, parameters in (
        ("logistic", {}),
        ("smoothed_hinge", {"margin": 1.0, "temperature": 0.25}),
        (LogisticLoss(margin=2.0), {}),
        (SmoothedHingeLoss(), {}),
    ):
        model = make(loss=loss, epsilon=4.0, **parameters).fit(X, Y)
        assert model.score(X, Y) > 0.7
    by_name = make(loss="smoothed_hinge", margin=1.0, random_state=0).fit(X, Y)
    assert by_name.privacy_report_.certificate.release.loss == SmoothedHingeLoss().constants


def test_importing_the_package_is_quiet():
    # Neither torch, nor a plotting library, nor a change of the warning filters.
    code = (
        "import sys, warnings; before = list(warnings.filters); import sklearn_dpop; "
        "assert warnings.filters == before or "
        "all('dpop' not in str(f) for f in warnings.filters); "
        "print([m for m in ('torch', 'skorch', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- accuracy ---------------------------------------------------------------------------------


def public_scaling():
    return make_pipeline(
        BoundedScaler(breast_cancer_bounds(), feature_range=(0, 1)),
        FunctionTransformer(np.sqrt),
        BoundedScaler((0, 1)),
    )


def median_accuracy(data, labels, seeds=20, **parameters):
    train, test, y_train, y_test = train_test_split(data, labels, test_size=0.3, random_state=0)
    return np.median(
        [
            make(random_state=seed, **parameters).fit(train, y_train).score(test, y_test)
            for seed in range(seeds)
        ]
    )


@pytest.mark.parametrize(
    ("parameters", "least"),
    [
        ({"epsilon": 1.0}, 0.89),
        ({"epsilon": 4.0}, 0.93),
        ({"epsilon": 1.0, "adjacency": "zero-out", "margin": 1.0}, 0.925),
        ({"epsilon": 4.0, "adjacency": "zero-out", "margin": 1.0}, 0.94),
    ],
)
def test_accuracy_on_breast_cancer(parameters, least):
    data, labels = load_breast_cancer(return_X_y=True)
    data = public_scaling().fit_transform(data)
    assert median_accuracy(data, labels, **parameters) >= least


@pytest.mark.parametrize("margin", [1.0, 4.0])
def test_accuracy_on_two_digits(margin):
    data, labels = load_digits(return_X_y=True)
    keep = np.isin(labels, (3, 8))
    accuracy = median_accuracy(
        data[keep] / 16,
        labels[keep],
        classes=[3, 8],
        epsilon=1.0,
        adjacency="zero-out",
        margin=margin,
    )
    assert accuracy >= 0.96


def test_row_norm_clipper_before_the_estimator_changes_nothing():
    plain = make(random_state=0).fit(5 * X, Y)
    piped = make_pipeline(RowNormClipper(1.0), make(random_state=0)).fit(5 * X, Y)
    assert np.allclose(plain.coef_, piped[-1].coef_, rtol=1e-9)


def test_a_long_fit_is_announced(monkeypatch):
    X, y = np.random.default_rng(0).uniform(-0.5, 0.5, (200, 3)), np.arange(200) % 2
    model = ObjPertGDLogisticRegression(classes=[0, 1], calibration="tight", delta=1e-5)
    monkeypatch.setattr(_objective_perturbation, "_MANY_CELLS", 1e4)
    with pytest.warns(UserWarning, match=r"n_iter='auto' takes [\d,]+ steps, .* 200 records"):
        model.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(model).set_params(n_iter=20_000).fit(X, y)
    monkeypatch.setattr(_objective_perturbation, "_MANY_CELLS", 1e11)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(model).fit(X, y)


def test_a_model_that_cannot_say_anything_is_announced():
    X, y = np.random.default_rng(0).uniform(-0.5, 0.5, (2000, 3)), np.arange(2000) % 2
    parameters = {"classes": [0, 1], "calibration": "tight", "delta": 1e-5}
    with pytest.warns(UserWarning, match="so much regularization that no score of the model"):
        flat = ObjPertGDLogisticRegression(n_iter=3, **parameters).fit(X, y)
    # Theorem of the message: |w| <= L1 zeta / mu without noise, so scores below L1 zeta^2 / mu.
    certificate = flat.privacy_report_.certificate
    largest = certificate.L1 * certificate.release.data_norm**2 / certificate.mu
    assert largest < 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ObjPertGDLogisticRegression(n_iter=300, **parameters).fit(X, y)
