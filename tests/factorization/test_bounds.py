"""Bounds of Appendix C of the gamma-BIFR paper: each must hold."""

import math

import numpy as np
import pytest

from sklearn_dpop.factorization import (
    BIFR,
    PrefixSum,
    coefficient_bound,
    column_norm_bound,
    column_sum_bound,
    decay_rate,
    frobenius_bound,
    gamma_star,
    rmse,
    rmse_bound,
)

ROUNDING = 1 + 1e-12
GRID = [
    (gamma, p, n)
    for gamma in (0.01, 0.3, 0.5, 0.7, 0.9, 0.99)
    for p in (2, 3, 8, 40)
    for n in (p, p + 1, 50, 400)
    if n >= p
]


@pytest.mark.parametrize(("gamma", "p", "n"), GRID)
def test_bounds_hold(gamma, p, n):
    strategy = BIFR(gamma, p)
    c = strategy.coef(n)
    assert np.all(c <= coefficient_bound(n, gamma, p) * ROUNDING)
    assert math.sqrt(c @ c) <= column_norm_bound(gamma, p) * ROUNDING
    assert c.sum() <= column_sum_bound(gamma, p) * ROUNDING
    frobenius = math.sqrt(PrefixSum(n).row_energies(strategy).sum())
    assert frobenius <= frobenius_bound(n, gamma, p) * ROUNDING
    for k in (1, 2, n):
        b = n // k
        assert rmse(PrefixSum(n), strategy, k, b) <= rmse_bound(n, gamma, p, k, b) * ROUNDING


def test_frobenius_bound_has_the_right_order():
    """C.3: n + n H / Gamma^2 + n^2 / (2 Gamma^2 p^(2 gamma)) is within a constant of the value."""
    for gamma, p in ((0.5, 4), (0.9, 16), (0.7, 64)):
        exact = math.sqrt(PrefixSum(10**5).row_energies(BIFR(gamma, p)).sum())
        assert exact <= frobenius_bound(10**5, gamma, p) <= 2.0 * exact


def test_gamma_star():
    """Theorem 2, evaluated by hand for n = 64, p = 2: W = 2 log 2 / 8."""
    w = 2 * math.log(2) / 8
    assert gamma_star(64, 2) == pytest.approx(1 - math.log(1 + w) / math.log(2), rel=1e-14)
    assert gamma_star(64, 64) == 0.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gamma_star(64, 1), "bandwidth must be an integer >= 2"),
        (lambda: gamma_star(64, 65), "bandwidth must be at most n"),
        (lambda: decay_rate(1.0, 4), r"gamma must be a number in \(0, 1\)"),
        (lambda: rmse_bound(10, 0.5, 4, 3, 5), "does not fit"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
