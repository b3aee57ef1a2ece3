"""Power series arithmetic against dense matrices and closed forms."""

import mpmath as mp
import numpy as np
import pytest
from strategy_oracles import patterns, toeplitz

from sklearn_dpop.factorization import _toeplitz
from sklearn_dpop.factorization._participation import (
    best_pattern_sum,
    check_participation,
    column_sum,
    column_sum_squared,
)
from sklearn_dpop.factorization._toeplitz import (
    fractional_power,
    multiply,
    reciprocal,
    solve,
    toeplitz_matrix,
)


@pytest.mark.parametrize(("p", "q", "n"), [(1, 1, 5), (3, 9, 9), (9, 3, 12), (12, 12, 7)])
def test_against_dense_matrices(p, q, n):
    rng = np.random.default_rng(p)
    a, b = rng.standard_normal(p), rng.standard_normal(q)
    a[0] = 2.0
    dense = toeplitz(a, n)
    np.testing.assert_array_equal(toeplitz_matrix(a, n), dense)
    np.testing.assert_allclose(toeplitz(multiply(a, b, n), n), dense @ toeplitz(b, n), atol=1e-12)
    np.testing.assert_allclose(reciprocal(a, n), np.linalg.inv(dense)[:, 0], rtol=1e-9, atol=1e-12)
    v = rng.standard_normal(n)
    np.testing.assert_allclose(solve(a, v), np.linalg.solve(dense, v), rtol=1e-9, atol=1e-10)


def test_fast_transform_agrees_with_recursion(monkeypatch):
    n = 5000
    a = fractional_power(0.7, n)
    direct = reciprocal(a, n), multiply(a, a, n), solve(a, np.arange(n))
    monkeypatch.setattr(_toeplitz, "_DIRECT_COST", 0)
    fast = reciprocal(a, n), multiply(a, a, n), solve(a, np.arange(n))
    for x, y in zip(direct, fast, strict=True):
        # The transform has an absolute error, relative to the largest entry.
        np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-13 * x.max())


@pytest.mark.parametrize("exponent", [-1.0, -0.9, -0.5, 0.0, 0.3, 0.9, 1.0])
def test_fractional_power(exponent):
    expected = [float((-1) ** j * mp.binomial(mp.mpf(exponent), j)) for j in range(40)]
    np.testing.assert_allclose(fractional_power(exponent, 40), expected, rtol=1e-12, atol=1e-300)
    assert len(fractional_power(exponent, 1)) == 1


def test_decay_to_zero_is_cut_and_not_denormal():
    """0.9^t is below the smallest normal number from t = 6700 on."""
    c = reciprocal([1.0, -0.9], 50_000)
    np.testing.assert_allclose(c[:5000], 0.9 ** np.arange(5000), rtol=1e-10)
    assert not np.any(c[10_000:])
    late = np.zeros(50_000)
    late[30_000] = 1.0
    shifted = solve([1.0, -0.9], late)
    np.testing.assert_allclose(shifted[30_000:32_000], c[:2000], rtol=1e-12)
    assert not np.any(shifted[:30_000])


@pytest.mark.parametrize(
    ("n", "k", "b"), [(12, 3, 4), (11, 3, 4), (12, 12, 1), (40, 10, 4), (9, 1, 3)]
)
def test_column_sum(n, k, b):
    c = np.random.default_rng(0).standard_normal(n)
    expected = toeplitz(c, n)[:, : k * b : b].sum(axis=1)
    np.testing.assert_allclose(column_sum(c, k, b), expected, atol=1e-12)
    assert column_sum_squared(c, k, b) == pytest.approx(expected @ expected, rel=1e-12)


@pytest.mark.parametrize(("n", "k", "b"), [(8, 3, 2), (9, 9, 1), (7, 2, 3), (5, 1, 9)])
def test_best_pattern_sum(n, k, b):
    weights = np.random.default_rng(n).random((n, 4))
    expected = [max(w[steps].sum() for steps in patterns(n, k, b)) for w in weights.T]
    np.testing.assert_allclose(best_pattern_sum(weights, k, b), expected, rtol=1e-12)


def test_participations_that_fit():
    check_participation(10, 4, 3)
    for n, k, b in ((10, 5, 3), (0, 1, 1), (10, 1, 0), (10, True, 1)):
        with pytest.raises(ValueError, match=r"must be an integer|does not fit"):
            check_participation(n, k, b)
