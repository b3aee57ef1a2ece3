"""Pieces shared by the optimizers."""

import mpmath as mp
import numpy as np
import pytest
from optimize_oracles import momentum, toeplitz

from sklearn_dpop.factorization._optimize_objective import (
    OVERFLOW,
    column_sum_squared_and_gradient,
    correlate_lags,
    descend,
    error_weights,
    series_power,
)


@pytest.mark.parametrize("exponent", [-0.9, -0.5, 0.3, 0.5, 1.0])
def test_power_of_prefix_sum_is_binomial(exponent):
    """(1 / (1 - x))^a has coefficients binom(a + j - 1, j)."""
    expected = [float(mp.binomial(exponent + j - 1, j)) for j in range(12)]
    assert series_power(np.ones(12), exponent, 12) == pytest.approx(expected, rel=1e-13)


def test_square_of_square_root():
    w = momentum(30)
    root = toeplitz(series_power(w, 0.5, 30), 30)
    assert (root @ root)[:, 0] == pytest.approx(w, rel=1e-12)


def test_correlation_is_the_adjoint_of_multiplication():
    rng = np.random.default_rng(0)
    a, b, x = rng.standard_normal(20), rng.standard_normal(20), rng.standard_normal(5)
    assert correlate_lags(a, b, 5) @ x == pytest.approx(a @ (toeplitz(b, 20)[:, :5] @ x))


@pytest.mark.parametrize(("k", "b"), [(1, 1), (1, 9), (3, 3), (2, 5), (4, 2), (9, 1)])
def test_column_sum_and_gradient(k, b):
    """The value is a quadratic form S c . S c with the dense S = sum of shifts."""
    c = np.random.default_rng(1).standard_normal(9)
    shifts = sum(np.eye(9, k=-j * b) for j in range(k))
    value, gradient = column_sum_squared_and_gradient(c, k, b)
    assert value == pytest.approx(np.sum((shifts @ c) ** 2), rel=1e-13)
    assert gradient == pytest.approx(2 * shifts.T @ shifts @ c, rel=1e-12)


@pytest.mark.parametrize("error", ["mean", "max"])
def test_weights_give_row_norms(error):
    """Oracle: the rows of the dense factor."""
    beta = np.array([1.0, -2.0, 0.5, 3.0])
    rows = (toeplitz(beta, 4) ** 2).sum(axis=1)
    expected = rows.mean() if error == "mean" else rows.max()
    assert error_weights(4, error) @ beta**2 == pytest.approx(expected, rel=1e-14)


def test_descent_passes_a_wall_of_overflow():
    """Minimum of x - log(x) at 1, next to points where the loss stands for overflow."""

    def loss(x):
        if x[0] <= 0:
            return OVERFLOW, np.zeros(1)
        return float(x[0] - np.log(x[0])), 1.0 - 1.0 / x

    point, value = descend(loss, np.array([1e-3]))
    assert point[0] == pytest.approx(1.0, abs=1e-6)
    assert value == pytest.approx(1.0, abs=1e-12)
