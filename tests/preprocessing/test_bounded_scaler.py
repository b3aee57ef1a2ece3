"""BoundedScaler: exact arithmetic and MinMaxScaler are the oracles, refusals are complete."""

import inspect
import pickle
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_dpop.preprocessing import BoundedScaler

LOWER = np.array([0.0, -40.0, 1e5])
UPPER = np.array([100.0, 60.0, 1e6])
FRAME = pd.DataFrame(
    [[25.0, -50.0, 2e5], [50.0, 10.0, 1e5], [130.0, 60.0, 9e5]], columns=["age", "temp", "pay"]
)
needs_polars_names = pytest.mark.skipif(
    not hasattr(MinMaxScaler().fit(pl.DataFrame({"a": [1.0]})), "feature_names_in_"),
    reason="scikit-learn before 1.9 cannot read the column names of polars 2",
)
MAPPING = {"pay": (1e5, 1e6), "age": (0, 100), "temp": (-40, 60)}


@parametrize_with_checks(
    [
        BoundedScaler((-3, 3)),
        BoundedScaler((-3, 3), feature_range=(0, 1), clip=False),
        BoundedScaler((0.5, 1), feature_range=(0.1, 0.3)),
    ]
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def exact(x, lower, upper, a, b, clip=True):
    """Return the docstring's formula in rational arithmetic."""
    x, lower, upper, a, b = map(Fraction, (x, lower, upper, a, b))
    if clip:
        x = min(max(x, lower), upper)
    return a + (b - a) * (x - lower) / (upper - lower)


@pytest.mark.parametrize("feature_range", [(-1, 1), (0, 1), (-0.1, 0.7), (3, 1e4)])
@pytest.mark.parametrize("clip", [True, False])
def test_agrees_with_exact_arithmetic(feature_range, clip):
    X = np.random.default_rng(0).uniform(LOWER - 50, UPPER + 50, size=(40, 3))
    scaled = BoundedScaler((LOWER, UPPER), feature_range=feature_range, clip=clip).transform(X)
    for i, j in np.ndindex(X.shape):
        expected = exact(X[i, j], LOWER[j], UPPER[j], *feature_range, clip=clip)
        # five roundings, the largest operand being an end of the range or the result
        scale = max(map(abs, (*feature_range, expected)))
        assert abs(Fraction(scaled[i, j]) - expected) <= 5 * Fraction(2) ** -52 * scale


@pytest.mark.parametrize("feature_range", [(-1, 1), (0, 1), (2, 5)])
def test_is_a_min_max_scaler_fitted_on_the_public_bounds(feature_range):
    peer = MinMaxScaler(feature_range=feature_range, clip=True).fit([LOWER, UPPER])
    X = np.random.default_rng(1).uniform(LOWER - 50, UPPER + 50, size=(200, 3))
    scaled = BoundedScaler((LOWER, UPPER), feature_range=feature_range).fit_transform(X)
    np.testing.assert_allclose(scaled, peer.transform(X), rtol=0, atol=1e-14)


finite = st.floats(allow_nan=False, allow_infinity=False)


def test_bounds_keep_double_precision_for_single_precision_records():
    X = np.array([[-1.0], [0.0], [1.0]], np.float32)
    scaled = BoundedScaler((-1e-90, 0.0), feature_range=(0, 1)).transform(X)
    np.testing.assert_array_equal(scaled.ravel(), [0.0, 1.0, 1.0])


@settings(max_examples=300, deadline=None)
@given(
    values=st.lists(finite, min_size=2, max_size=8),
    bounds=st.tuples(finite, finite).filter(lambda p: p[0] < p[1] and p[1] - p[0] < np.inf),
    feature_range=st.tuples(st.floats(-1e6, 1e6), st.floats(0.2, 1e6)).map(  # 0.2: see below
        lambda p: (p[0], p[0] + p[1])
    ),
    dtype=st.sampled_from([np.float64, np.float32]),
)
def test_stays_in_the_range_and_keeps_the_order(values, bounds, feature_range, dtype):
    with np.errstate(over="ignore"):
        X = np.clip(np.array(values), -3e38, 3e38).astype(dtype)[:, np.newaxis]
    scaled = BoundedScaler(bounds, feature_range=feature_range).transform(X)
    assert scaled.dtype == dtype
    # Python floats: NumPy would round the ends to single precision first
    assert all(feature_range[0] <= float(v) <= feature_range[1] for v in scaled.ravel())
    assert (np.diff(scaled.ravel()[np.argsort(X.ravel(), kind="stable")]) >= 0).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("feature_range", [(-0.3, 0.3), (0.7, 0.9)])
def test_an_end_that_single_precision_cannot_hold_is_not_overstepped(dtype, feature_range):
    assert float(np.float32(0.3)) > 0.3
    assert float(np.float32(0.7)) < 0.7
    X = np.array([[0.0, 1.0]], dtype=dtype)
    low, high = BoundedScaler((0, 1), feature_range=feature_range).transform(X)[0]
    assert float(low) >= feature_range[0]
    assert float(high) <= feature_range[1]
    np.testing.assert_allclose([low, high], feature_range, rtol=2e-7)


def test_a_range_between_two_single_precision_numbers_is_refused_for_them():
    scaler = BoundedScaler((0, 1), feature_range=(1 + 1e-9, 1 + 2e-9))
    assert scaler.transform([[1.0]]).tolist() == [[1 + 2e-9]]
    with pytest.raises(ValueError, match="feature_range must contain a float32 number"):
        scaler.transform(np.array([[1.0]], dtype=np.float32))


@pytest.mark.parametrize("feature_range", [(-1, 1), (0, 1)])
def test_bounds_map_to_the_ends_exactly(feature_range):
    scaled = BoundedScaler((0.1, 0.7), feature_range=feature_range).transform([[0.1, 0.7]])
    assert scaled.tolist() == [list(feature_range)]


def test_without_clipping_values_leave_the_range():
    assert BoundedScaler((0, 10), clip=False).transform([[-5.0, 20.0]]).tolist() == [[-2.0, 3.0]]


@pytest.mark.parametrize(
    "bounds",
    [
        (LOWER, UPPER),
        [LOWER.tolist(), UPPER.tolist()],
        np.array([LOWER, UPPER]),
        MAPPING,
        {**MAPPING, "unused": (0, 1)},
    ],
)
def test_ways_to_declare_the_same_bounds(bounds):
    expected = [[-0.5, -1.0, 2 / 9 - 1], [0.0, 0.0, -1.0], [1.0, 1.0, 16 / 9 - 1]]
    np.testing.assert_allclose(BoundedScaler(bounds).transform(FRAME), expected, atol=1e-15)
    np.testing.assert_allclose(BoundedScaler(bounds).fit_transform(FRAME), expected, atol=1e-15)


def test_a_number_and_an_array_mix():
    scaled = BoundedScaler((0, [1, 10]), feature_range=(0, 1)).transform([[0.5, 5.0]])
    assert scaled.tolist() == [[0.5, 0.5]]


def test_a_mapping_follows_the_names_not_the_order():
    scaler = BoundedScaler(MAPPING)
    swapped = FRAME[["pay", "temp", "age"]]
    np.testing.assert_array_equal(scaler.transform(swapped)[:, ::-1], scaler.transform(FRAME))
    with pytest.raises(ValueError, match="feature names should match"):
        scaler.fit(FRAME).transform(swapped)


def test_a_mapping_fitted_on_a_frame_applies_to_arrays():
    scaler = BoundedScaler(MAPPING).fit(FRAME)
    with pytest.warns(UserWarning, match="valid feature names"):  # scikit-learn's
        scaled = scaler.transform(FRAME.to_numpy())
    np.testing.assert_array_equal(scaled, scaler.transform(FRAME))


def test_each_row_is_transformed_alone_and_fit_learns_no_values():
    X = np.random.default_rng(2).normal(scale=60, size=(30, 3))
    scaler = BoundedScaler((LOWER, UPPER)).fit(X)
    other = BoundedScaler((LOWER, UPPER)).fit(X[:1] * 0)
    whole = scaler.transform(X)
    np.testing.assert_array_equal(whole, other.transform(X))
    np.testing.assert_array_equal(whole, np.vstack([scaler.transform(row[None]) for row in X]))
    assert vars(scaler).keys() - scaler.get_params().keys() == {"n_features_in_"}
    named = BoundedScaler(MAPPING).fit(FRAME)
    learned = vars(named).keys() - named.get_params().keys()
    assert learned == {"n_features_in_", "feature_names_in_"}
    assert named.feature_names_in_.tolist() == ["age", "temp", "pay"]


def test_transform_needs_no_fit_and_says_nothing_about_clipped_values():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaled = BoundedScaler(MAPPING).transform(FRAME)
        BoundedScaler((0, 1)).fit_transform(FRAME)
        BoundedScaler((-1e307, 1e307)).transform([[1.7e308, -1.7e308]])
        BoundedScaler((0, 1e-30)).transform(np.array([[3e38]], dtype=np.float32))
        make_pipeline(BoundedScaler((0, 1))).transform(FRAME)
    assert scaled.shape == (3, 3)
    with pytest.raises(NotFittedError):
        BoundedScaler((0, 1)).get_feature_names_out()


def test_data_frames_in_and_out():
    expected = BoundedScaler(MAPPING).transform(FRAME)
    scaler = BoundedScaler(MAPPING).set_output(transform="pandas")
    out = scaler.fit_transform(FRAME.set_axis([7, 8, 9]))
    pd.testing.assert_frame_equal(
        out, pd.DataFrame(expected, columns=FRAME.columns, index=[7, 8, 9])
    )
    assert scaler.get_feature_names_out().tolist() == list(FRAME.columns)


@needs_polars_names
def test_polars_in_and_out():
    expected = BoundedScaler(MAPPING).transform(FRAME)
    scaler = BoundedScaler(MAPPING).set_output(transform="polars")
    out = scaler.fit_transform(pl.DataFrame(FRAME.to_dict("list")))
    assert isinstance(out, pl.DataFrame)
    assert out.columns == list(FRAME.columns)
    np.testing.assert_array_equal(out.to_numpy(), expected)
    assert scaler.get_feature_names_out().tolist() == list(FRAME.columns)


@pytest.mark.parametrize(("given", "kept"), [("f4", "f4"), ("f8", "f8"), ("i8", "f8")])
def test_dtype(given, kept):
    X = np.array([[1, 2], [3, 4]], dtype=given)
    before = X.copy()
    scaled = BoundedScaler((0, 3), feature_range=(0, 1)).fit_transform(X)
    assert scaled.dtype == np.dtype(kept)
    np.testing.assert_allclose(scaled, [[1 / 3, 2 / 3], [1, 1]], rtol=1e-7)
    np.testing.assert_array_equal(X, before)


def test_clone_and_pickle():
    for bounds in [(LOWER, UPPER), MAPPING]:
        scaler = BoundedScaler(bounds, feature_range=(0, 1))
        assert scaler.bounds is bounds  # __init__ stores what it is given
        expected = scaler.fit_transform(FRAME)
        for copy in (clone(scaler), pickle.loads(pickle.dumps(scaler))):
            np.testing.assert_array_equal(copy.transform(FRAME), expected)


def test_bounds_have_no_default():
    assert inspect.signature(BoundedScaler).parameters["bounds"].default is inspect.Parameter.empty
    with pytest.raises(TypeError, match="bounds"):
        BoundedScaler()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bounds": None}, "bounds must be a pair .* Got None"),
        ({"bounds": 3.0}, "bounds must be a pair .* Got 3.0"),
        ({"bounds": "01"}, "bounds must be a pair .* Got '01'"),
        ({"bounds": FRAME}, "bounds must be a pair .* Names are not used here"),
        ({"bounds": (0, 1, 2)}, r"bounds must be a pair .* Got \(0, 1, 2\)"),
        ({"bounds": ("low", "high")}, "bounds must be a pair .* Got .'low', 'high'"),
        ({"bounds": ([0, 0], 1)}, r"shape \(3,\), one number per column. Got shapes \(2,\)"),
        ({"bounds": ([0], [1])}, r"shape \(3,\)"),
        ({"bounds": (np.zeros((3, 1)), 1)}, r"Got shapes \(3, 1\)"),
        ({"bounds": [(0, 1)] * 3}, r"Got .* one per column, give np.transpose\(bounds\)"),
        ({"bounds": np.ones((3, 2))}, r"Got .* one per column, give np.transpose\(bounds\)"),
        ({"bounds": (1, 0)}, "lower=1.0 and upper=0.0"),
        ({"bounds": ([0, 5, 0], [1, 5, 1])}, "lower=5.0 and upper=5.0 for column 1"),
        ({"bounds": (0, np.inf)}, "must be finite"),
        ({"bounds": (np.nan, 1)}, "must be finite"),
        ({"bounds": (-1e308, 1e308)}, "must be finite"),  # their distance is not
        ({"bounds": {"age": (0, 1)}}, r"name every column of X.*Missing: \['temp', 'pay'\]"),
        ({"bounds": {**MAPPING, "pay": 3}}, r"bounds\['pay'\] must be a pair .* Got 3"),
        ({"bounds": {**MAPPING, "pay": (3, 2)}}, r"bounds\['pay'\] must be finite .*upper=2.0"),
        ({"bounds": (0, 1), "feature_range": 1}, "feature_range must be a pair .* Got 1"),
        ({"bounds": (0, 1), "feature_range": (1, 1)}, "feature_range .* lower=1.0 and upper=1.0"),
        ({"bounds": (0, 1), "feature_range": ([0, 0], 1)}, r"of numbers. Got shapes \(2,\)"),
        ({"bounds": (0, 1), "feature_range": (0, 1, 2)}, "feature_range must be a pair"),
        ({"bounds": (0, 1), "feature_range": (0, np.nan)}, "feature_range must be finite"),
        ({"bounds": (0, 1), "clip": "yes"}, "'clip' parameter .* Got 'yes'"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "transform", "fit_transform"])
def test_bad_parameters_are_refused_when_used(parameters, message, method):
    scaler = BoundedScaler(**parameters)
    with pytest.raises(ValueError, match=message):
        getattr(scaler, method)(FRAME)


def test_pairs_of_two_columns_are_told_from_two_lists():
    pairs = [(18, 90), (0, 1)]  # read as lower bounds 18, 90
    X = [[54.0, 0.5]]
    with pytest.raises(ValueError, match=r"upper=0.0 for column 0. If these are pairs"):
        BoundedScaler(pairs).fit(X)
    assert BoundedScaler(np.transpose(pairs)).transform(X).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("method", ["fit", "transform"])
def test_a_mapping_needs_column_names(method):
    scaler = BoundedScaler(MAPPING)
    for X in (FRAME.to_numpy(), FRAME.set_axis([0, 1, 2], axis=1)):
        with pytest.raises(ValueError, match="column names are strings"):
            getattr(scaler, method)(X)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", ["fit", "transform"])
def test_missing_and_infinite_values_are_refused_without_a_word_on_the_records(bad, method):
    X = np.array([[0.123456, 1.0], [bad, 2.0]])
    with pytest.raises(ValueError, match=r"NaN or infinity.*public constant") as refusal:
        getattr(BoundedScaler((0, 1)), method)(X)
    assert "0.123" not in str(refusal.value)


def test_nullable_missing_values_are_refused():
    frame = pd.DataFrame({"age": pd.array([1, None], dtype="Int64")})
    with pytest.raises(ValueError, match="NaN or infinity"):
        BoundedScaler((0, 1)).transform(frame)
    with pytest.raises(ValueError, match="NaN or infinity"):
        BoundedScaler((0, 1)).transform(pl.DataFrame({"age": [1.0, None]}))


@pytest.mark.parametrize("method", ["fit", "transform"])
def test_sparse_input_is_refused(method):
    with pytest.raises(TypeError, match="dense data is required"):
        getattr(BoundedScaler((0, 1)), method)(sparse.csr_array(np.eye(3)))


def test_another_number_of_columns_is_refused_after_fit():
    with pytest.raises(ValueError, match="expecting 3 features"):
        BoundedScaler((0, 1)).fit(FRAME.to_numpy()).transform([[1.0, 2.0]])
