"""Optimized buffered linear Toeplitz strategies."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optimize_oracles import (
    column_norm,
    error_norm,
    momentum,
    mp_divide,
    mp_gradient,
    mp_squared_columns,
    mp_squared_error,
    reference_rows,
    row_name,
    toeplitz,
)
from scipy.optimize import minimize

from sklearn_dpop.factorization._optimize_banded import optimize_banded
from sklearn_dpop.factorization._optimize_blt import (
    blt_inverse,
    blt_loss,
    blt_parameters,
    optimize_blt,
)
from sklearn_dpop.factorization._optimize_objective import error_weights
from sklearn_dpop.factorization._participation import column_sum_squared
from sklearn_dpop.factorization._toeplitz import reciprocal


def coefficients(theta, omega, n):
    return np.concatenate(([1.0], theta ** np.arange(n - 1)[:, None] @ omega))


def error_of(theta, omega, w, k, b, error="mean"):
    """Dense error, column-sum sensitivity after checking that the theorem applies."""
    c = coefficients(theta, omega, len(w))
    assert c.min() >= 0
    assert np.diff(c).max(initial=0) <= 0
    dense = toeplitz(c, len(w))
    return error_norm(w, dense, error) * column_norm(dense, k, b)


@pytest.mark.parametrize("row", reference_rows("blt"), ids=row_name)
def test_losses_of_jax_privacy(row):
    n, k, b, error = row["n"], row["participations"], row["separation"], row["error"]
    theta, omega = optimize_blt(
        n, row["size"], np.ones(n), participations=k, separation=b, error=error
    )
    loss = error_of(theta, omega, np.ones(n), k, b, error)
    assert loss <= row["loss"] * (1 + 1e-6)
    assert loss == pytest.approx(row["loss"], rel=3e-3)


@pytest.mark.parametrize(("k", "b"), [(1, 9), (3, 3), (2, 4)])
@pytest.mark.parametrize("error", ["mean", "max"])
@pytest.mark.parametrize("workload", [np.ones(9), momentum(9)], ids=["prefix", "momentum"])
def test_gradient_in_high_precision(workload, error, k, b):
    """Central differences with 60 digits; everything but the parameters the naive way."""
    x = np.array([2.0, -0.5, -1.0, 0.3])
    with mp.workdps(60):
        w = [mp.mpf(float(v)) for v in workload]

        def loss(point):
            theta = [1 / (1 + mp.exp(-v)) for v in point[:2]]
            total = 1 + mp.exp(point[2]) + mp.exp(point[3])
            omega = [mp.exp(v) / total for v in point[2:]]
            c = [mp.mpf(1)] + [
                mp.fsum(o * t**i for o, t in zip(omega, theta, strict=True))
                for i in range(len(w) - 1)
            ]
            return mp.log(mp_squared_error(w, c, error) * mp_squared_columns(c, k, b))

        expected_value = float(loss([mp.mpf(float(v)) for v in x]))
        expected = mp_gradient(loss, x)
    value, gradient = blt_loss(workload, error_weights(9, error), k, b)(x)
    assert value == pytest.approx(expected_value, rel=1e-12)
    assert gradient == pytest.approx(expected, rel=1e-11)


unit = st.floats(0.0, 1.0)


@given(st.lists(st.tuples(unit, unit), min_size=1, max_size=5))
@settings(deadline=None)
def test_inverse_is_a_blt(pairs):
    """Oracle: division of series.  Equal decays and zero weights are allowed."""
    theta, omega = np.array(pairs).T
    omega = omega / max(1.0, omega.sum())
    theta_hat, omega_hat = blt_inverse(theta, omega)
    powers = theta_hat ** np.arange(39)[:, None]
    expected = reciprocal(coefficients(theta, omega, 40), 40)
    assert -(powers @ omega_hat) == pytest.approx(expected[1:], abs=1e-12)
    assert np.all(omega_hat >= 0)
    assert np.all(theta_hat <= theta.max() + 1e-12)
    assert np.all(theta_hat >= -1 - 1e-12)


def test_inverse_with_decays_close_to_one():
    """A product form of the inverse would lose half of the digits here; oracle: 50 digits."""
    theta = 1 - np.array([1e-8, 1.1e-8, 1e-5, 1e-3, 0.3])
    omega = np.array([1e-4, 2e-4, 1e-3, 1e-2, 0.3])
    with mp.workdps(50):
        c = [mp.mpf(1)] + [
            mp.fsum(mp.mpf(o) * mp.mpf(t) ** i for o, t in zip(omega, theta, strict=True))
            for i in range(199)
        ]
        expected = [float(v) for v in mp_divide([mp.mpf(1)] + [mp.mpf(0)] * 199, c)]
    theta_hat, omega_hat = blt_inverse(theta, omega)
    inverse = -(theta_hat ** np.arange(199)[:, None] @ omega_hat)
    assert inverse == pytest.approx(expected[1:], rel=1e-10)


@pytest.mark.parametrize(("k", "b"), [(1, 60), (4, 15), (12, 5)])
def test_one_buffer_by_simplex_search(k, b):
    """Independent search with dense matrices; theta and omega without transformation."""
    w = np.ones(60)

    def loss(x):
        feasible = 0 <= x[0] <= 1 and 0 <= x[1] <= 1
        return error_of(x[:1], x[1:], w, k, b) if feasible else np.inf

    best = minimize(loss, [0.9, 0.3], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 0})
    theta, omega = optimize_blt(60, 1, w, participations=k, separation=b)
    assert error_of(theta, omega, w, k, b) <= best.fun * (1 + 1e-10)
    assert [theta[0], omega[0]] == pytest.approx(list(best.x), abs=1e-4)


@pytest.mark.parametrize(("k", "b"), [(1, 100), (5, 20)])
@pytest.mark.parametrize("workload", [np.ones(100), momentum(100)], ids=["prefix", "momentum"])
def test_more_buffers_never_hurt(workload, k, b):
    losses = [
        error_of(*optimize_blt(100, d, workload, participations=k, separation=b), workload, k, b)
        for d in (1, 2, 3, 4)
    ]
    assert np.all(np.diff(losses) <= 1e-9)


def test_buffers_reach_the_optimal_toeplitz_matrix():
    """Max error, one participation: E^(1/2) is optimal, with error sum of binom(2j, j)^2/16^j."""
    n = 64
    optimum = float(sum((mp.binomial(2 * j, j) / 4**j) ** 2 for j in range(n)))
    theta, omega = optimize_blt(n, 5, np.ones(n), participations=1, separation=n, error="max")
    loss = error_of(theta, omega, np.ones(n), 1, n, "max")
    assert optimum <= loss <= optimum * (1 + 1e-5)


def test_buffers_reach_the_optimum_for_momentum():
    """The best of all Toeplitz matrices, from the optimizer of full bandwidth."""
    n, w = 100, momentum(100)
    c = optimize_banded(n, n, w)
    optimum = error_norm(w, toeplitz(c, n), "mean") * np.linalg.norm(c)
    theta, omega = optimize_blt(n, 3, w, participations=1, separation=n)
    assert optimum <= error_of(theta, omega, w, 1, n) <= optimum * 1.001


def test_participation_at_every_step_gives_the_identity():
    """With k = n and b = 1 nothing beats the identity: max error sqrt(n) sqrt(n)."""
    theta, omega = optimize_blt(16, 3, np.ones(16), participations=16, separation=1, error="max")
    assert error_of(theta, omega, np.ones(16), 16, 1, "max") == pytest.approx(16.0, rel=1e-5)


def max_error_ratio(n, buffers):
    """Max error over Mathias' bound 1 + log(n) / pi (arXiv 2404.16706, Eq. 2.8)."""
    theta, omega = optimize_blt(
        n, buffers, np.ones(n), participations=1, separation=n, error="max"
    )
    theta_hat, omega_hat = blt_inverse(theta, omega)
    inverse = np.concatenate(([1.0], -(theta_hat ** np.arange(n - 1)[:, None] @ omega_hat)))
    squared = np.sum(np.cumsum(inverse) ** 2)
    sensitivity = column_sum_squared(coefficients(theta, omega, n), 1, n)
    return np.sqrt(squared * sensitivity) / (1 + np.log(n) / np.pi)


@pytest.mark.parametrize(
    ("n", "buffers", "ratio"),
    [
        (10, 1, 1.04),
        (100, 2, 1.03),
        (1000, 2, 1.04),
        (10_000, 1, 1.45),
        (10_000, 3, 1.03),
        pytest.param(100_000, 2, 1.16, marks=pytest.mark.slow),
        pytest.param(100_000, 4, 1.03, marks=pytest.mark.slow),
    ],
)
def test_ratios_of_jax_privacy(n, buffers, ratio):
    """Tolerances of JAX-Privacy's own tests of its optimizer (buffered_toeplitz_test.py)."""
    assert max_error_ratio(n, buffers) <= ratio


@pytest.mark.slow
def test_golden_values_of_jax_privacy():
    """Two buffers, n = 100000, from the same file."""
    theta, omega = optimize_blt(
        100_000, 2, np.ones(100_000), participations=1, separation=100_000, error="max"
    )
    assert omega == pytest.approx([0.0122853238, 0.1878393665], rel=1e-5)
    assert theta == pytest.approx([0.9999528892, 0.9857068667], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "b"), [(1, 256), (4, 64), (16, 16)])
@pytest.mark.parametrize("error", ["mean", "max"])
def test_random_starts_find_nothing_better(k, b, error):
    n, w = 256, np.ones(256)
    loss = blt_loss(w, error_weights(n, error), k, b)
    rng = np.random.default_rng(0)
    best = min(
        minimize(loss, rng.normal(0, 3, 6), jac=True, method="L-BFGS-B").fun for _ in range(60)
    )
    theta, omega = optimize_blt(n, 3, w, participations=k, separation=b, error=error)
    assert error_of(theta, omega, w, k, b, error) <= np.exp(best / 2) * (1 + 1e-4)


def test_parameters_are_feasible_and_sorted():
    theta, omega = optimize_blt(80, 4, momentum(80), participations=4, separation=20)
    assert np.all((theta > 0) & (theta < 1))
    assert np.all(omega > 0)
    assert omega.sum() < 1
    assert np.all(np.diff(theta) <= 0)


def test_stationary():
    n, w = 200, momentum(200)
    theta, omega = optimize_blt(n, 2, w, participations=2, separation=100)
    x = np.concatenate((np.log(theta / (1 - theta)), np.log(omega / (1 - omega.sum()))))
    assert blt_parameters(x)[0] == pytest.approx(theta, rel=1e-9)
    assert np.abs(blt_loss(w, error_weights(n, "mean"), 2, 100)(x)[1]).max() < 1e-5


def test_scale_of_the_workload_does_not_matter():
    first, second = (
        optimize_blt(50, 2, s * np.ones(50), participations=2, separation=25) for s in (1.0, 3.0)
    )
    assert first[0] == pytest.approx(second[0], rel=1e-6)
    assert first[1] == pytest.approx(second[1], rel=1e-6)


def test_one_step():
    theta, omega = optimize_blt(1, 1, [2.0], participations=1, separation=1)
    assert theta.shape == omega.shape == (1,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": -1}, "n must be an integer >= 1, got -1"),
        ({"buffers": 0}, "buffers must be an integer between 1 and n=8, got 0"),
        ({"buffers": True}, "buffers must be an integer between 1 and n=8, got True"),
        ({"workload_coef": np.ones((8, 1))}, r"workload_coef must have shape \(n,\) = \(8,\)"),
        ({"workload_coef": np.full(8, np.inf)}, "workload_coef must be finite"),
        ({"workload_coef": -np.ones(8)}, r"workload_coef\[0\] must be positive"),
        ({"error": "rms"}, r"error must be one of \('mean', 'max'\), got 'rms'"),
        ({"participations": 5}, "participations=5 does not fit"),
        ({"separation": 1.5}, "separation must be an integer >= 1, got 1.5"),
    ],
)
def test_bad_input(change, message):
    good = {
        "n": 8,
        "buffers": 2,
        "workload_coef": np.ones(8),
        "participations": 4,
        "separation": 2,
        "error": "mean",
    }
    with pytest.raises(ValueError, match=message):
        optimize_blt(**{**good, **change})
