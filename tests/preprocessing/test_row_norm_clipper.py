"""RowNormClipper: the bound holds in exact arithmetic, dense and sparse agree with an oracle."""

import math
import pickle
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_dpop.preprocessing import RowNormClipper


@parametrize_with_checks([RowNormClipper(), RowNormClipper(2.5)])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def squared_norm(row):
    return sum(Fraction(float(v)) ** 2 for v in row)


def clip_slowly(X, norm):
    """Return the docstring's formula, row by row, with norms rounded once."""
    rows = []
    for row in np.asarray(X, dtype=np.float64):
        length = math.hypot(*row)
        rows.append(row * min(1.0, norm / length) if length else row)
    return np.array(rows)


@pytest.mark.parametrize("norm", [1.0, 0.3, 7.5, 1e-30, 1e30])
@pytest.mark.parametrize("d", [1, 2, 30])
def test_agrees_with_the_slow_formula(norm, d):
    rng = np.random.default_rng(d)
    X = norm * rng.normal(size=(50, d)) * rng.choice([0.0, 0.1, 1.0, 100.0], size=(50, 1))
    np.testing.assert_allclose(
        RowNormClipper(norm).transform(X), clip_slowly(X, norm), rtol=1e-13, atol=0
    )


entry = st.one_of(
    st.floats(-2, 2), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([0.0, 1.0])
)


@settings(max_examples=300, deadline=None)
@given(
    rows=st.integers(1, 6).flatmap(
        lambda d: st.lists(st.lists(entry, min_size=d, max_size=d), min_size=1, max_size=4)
    ),
    norm=st.one_of(st.sampled_from([1.0, 1e-30, 1e30]), st.floats(0.1, 10)),
    dtype=st.sampled_from([np.float64, np.float32]),
    layout=st.sampled_from([np.asarray, sparse.csr_array]),
)
def test_the_norm_is_never_above_the_bound(rows, norm, dtype, layout):
    X = np.clip(np.array(rows), -3e38, 3e38).astype(dtype) if dtype == np.float32 else rows
    clipper = RowNormClipper(norm)
    clipped = clipper.transform(layout(np.array(X, dtype=dtype)))
    again = clipper.transform(clipped)
    if layout is sparse.csr_array:
        clipped, again = clipped.toarray(), again.toarray()
    assert clipped.dtype == dtype
    for row in clipped:
        assert squared_norm(row) <= Fraction(norm) ** 2
    wide = clipped.astype(np.float64)
    assert (np.linalg.norm(wide, axis=1) <= norm).all()
    assert all(math.hypot(*row) <= norm for row in wide)
    assert all(np.linalg.norm(row[::-1]) <= norm for row in wide)
    np.testing.assert_array_equal(again, clipped)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_normalised_by_somebody_else_end_within_the_bound(dtype):
    # x / |x| misses norm 1 by rounding, upwards in about half of the rows: not vacuous
    X = np.random.default_rng(0).normal(size=(300, 17))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(dtype)
    above = [squared_norm(row) > 1 for row in X]
    assert 50 < sum(above) < 250
    clipped = RowNormClipper().transform(X)
    assert not any(squared_norm(row) > 1 for row in clipped)
    np.testing.assert_allclose(clipped, X, rtol=1e-6 if dtype == np.float32 else 1e-13)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1.0, 1e200, 1e308])
def test_squares_neither_overflow_nor_underflow(scale):
    X = np.array([[1.0, 1.0, 0.0], [0.5, 0.0, -0.25]]) * scale
    expected = X if scale < 1e-30 else clip_slowly(X / scale * 1e3, 1.0)
    if scale == 1.0:
        expected = clip_slowly(X, 1.0)
    for layout in (np.asarray, sparse.csr_array):
        clipped = RowNormClipper().transform(layout(X))
        clipped = clipped.toarray() if sparse.issparse(clipped) else clipped
        np.testing.assert_allclose(clipped, expected, rtol=1e-14)


def test_rows_within_the_bound_are_untouched():
    X = np.random.default_rng(3).normal(size=(100, 5))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * np.linspace(1.0000001, 3, 100)[:, None]
    np.testing.assert_array_equal(RowNormClipper().transform(X), X)
    assert RowNormClipper().transform([[0.0, 0.0]]).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csr_matrix, sparse.csc_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_equals_dense(make, dtype):
    rng = np.random.default_rng(4)
    X = (rng.normal(size=(40, 12)) * (rng.random((40, 12)) < 0.2)).astype(dtype)
    X[[0, 17, 39]] = 0
    given = make(X)
    before = given.copy()
    clipped = RowNormClipper(0.8).fit_transform(given)
    assert clipped.format == "csr"
    assert clipped.dtype == dtype
    assert sparse.issparse(clipped)
    assert clipped.nnz == given.nnz
    np.testing.assert_allclose(
        clipped.toarray(), RowNormClipper(0.8).transform(X), rtol=1e-6 if dtype == "f4" else 1e-14
    )
    np.testing.assert_array_equal(given.toarray(), before.toarray())
    clipped.indices[:] = 0
    clipped.data[:] = 9
    np.testing.assert_array_equal(given.toarray(), before.toarray())  # no shared memory


def test_duplicate_entries_of_a_sparse_row_are_summed_before_the_norm_is_taken():
    # the row is (6, 0); the entries alone would have norm sqrt(18)
    X = sparse.csr_array((np.array([3.0, 3.0]), np.array([0, 0]), np.array([0, 2])), shape=(1, 2))
    clipped = RowNormClipper(5.0).transform(X)
    np.testing.assert_allclose(clipped.toarray(), [[5.0, 0.0]], rtol=1e-14)
    assert X.nnz == 2  # the caller's matrix is as it was
    big = sparse.csr_array((np.array([1e308, 1e308]), np.array([0, 0]), np.array([0, 2])))
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="infinity"):
        RowNormClipper().transform(big)


def test_each_row_is_clipped_alone_and_fit_learns_no_values():
    X = np.random.default_rng(5).normal(size=(30, 3))
    clipper = RowNormClipper().fit(X)
    whole = clipper.transform(X)
    np.testing.assert_array_equal(whole, RowNormClipper().fit(X[:1] * 0).transform(X))
    np.testing.assert_array_equal(whole, np.vstack([clipper.transform(row[None]) for row in X]))
    assert vars(clipper).keys() - clipper.get_params().keys() == {"n_features_in_"}


def test_data_frames_clone_and_pickle():
    frame = pd.DataFrame({"a": [3.0, 0.1], "b": [4.0, 0.2]}, index=[5, 6])
    expected = [[0.6, 0.8], [0.1, 0.2]]
    clipper = RowNormClipper().set_output(transform="pandas").fit(frame)
    for copy in (clipper, clone(clipper).fit(frame), pickle.loads(pickle.dumps(clipper))):
        out = copy.transform(frame)
        pd.testing.assert_frame_equal(
            out, pd.DataFrame(expected, columns=["a", "b"], index=[5, 6]), rtol=1e-14
        )
    out = RowNormClipper().set_output(transform="polars").fit_transform(frame)
    assert out.columns == ["a", "b"]
    assert isinstance(out, pl.DataFrame)
    np.testing.assert_allclose(out.to_numpy(), expected, rtol=1e-14)
    assert RowNormClipper().transform(np.array([[3, 4]])).dtype == np.float64


@pytest.mark.parametrize("norm", [0, -1.0, np.nan, np.inf, 1e-31, 1e31, "1", None])
@pytest.mark.parametrize("method", ["fit", "transform"])
def test_bad_norms_are_refused_when_used(norm, method):
    with pytest.raises(ValueError, match=r"'norm' parameter .* Got .* instead"):
        getattr(RowNormClipper(norm), method)([[1.0, 2.0]])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_missing_and_infinite_values_are_refused(bad, layout):
    with pytest.raises(ValueError, match=r"NaN or infinity.*public constant"):
        RowNormClipper().transform(layout(np.array([[0.5, 0.0], [bad, 2.0]])))
