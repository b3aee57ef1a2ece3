"""Deterministic bounds for Poisson batches.

Oracles: the closed form of one step (Gaussian profiles by mpmath), quadrature of the mixtures of
two steps in the plane, the Gaussian mechanism where every record is in every batch, the event
interface of the package dp-accounting, which chooses its own grid, and the multipliers of the
table for n = 5000, B = 125, T = 400, delta = 1e-5.
"""

from __future__ import annotations

import math
import sys

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import brentq

from sklearn_dpop.factorization import BIFR, BSR, Dense, Identity, LambdaCGD, ToeplitzStrategy
from sklearn_dpop.privacy.accounting import _poisson
from sklearn_dpop.privacy.accounting._poisson import (
    correlated_poisson_delta,
    cyclic_poisson_delta,
    operator_norm_bound,
    poisson_delta,
)

dp_accounting = pytest.importorskip("dp_accounting")

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
RATE, STEPS = 0.025, 400
INDEPENDENT = (3.665, 2.071, 1.281, 0.899, 0.682)  # the table's exact column, lambda = 0


class Toeplitz(ToeplitzStrategy):
    """Any first column."""

    def __init__(self, column):
        self.column = tuple(column)

    def _column(self, n, inverse):
        assert not inverse
        return np.append(self.column, np.zeros(max(n - len(self.column), 0)))[:n]

    apply_inverse = noise_stream = None


def gaussian_profile(shift, epsilon):
    """Hockey-stick divergence of N(shift, 1) and N(0, 1) at any real epsilon, by mpmath."""
    s, e = mp.mpf(shift), mp.mpf(epsilon)
    return mp.ncdf(s / 2 - e / s) - mp.exp(e) * mp.ncdf(-s / 2 - e / s)


def one_step(kappa, rate, epsilon):
    """Both orders of one step, from the profile of the Gaussian mechanism."""
    with mp.workdps(40):
        r, e = mp.mpf(rate), mp.mpf(epsilon)
        # H((1-r) Q + r P, Q; e^eps) = r H(P, Q; 1 + (e^eps - 1) / r), and
        # H(Q, M; x) = 1 - x + x H(M, Q; 1 / x) with 1 / x below 1 - r if epsilon is large.
        remove = r * gaussian_profile(1 / mp.mpf(kappa), mp.log1p(mp.expm1(e) / r))
        inner = 1 + mp.expm1(-e) / r
        if inner <= 0:
            return float(remove), 0.0
        add = 1 - mp.exp(e) + mp.exp(e) * r * gaussian_profile(1 / mp.mpf(kappa), mp.log(inner))
        return float(remove), float(add)


def plane_divergences(means, weights, kappa, epsilon):
    """H(P, Q) and H(Q, P) of sum_i w_i N(m_i, kappa^2 I) and N(0, kappa^2 I) in the plane."""
    means = np.asarray(means) / kappa
    largest = np.abs(means).max()
    nodes, node_weights = np.polynomial.legendre.leggauss(6)
    edges = np.linspace(-9.0 - largest, 9.0 + largest, 301)
    half = 0.5 * np.diff(edges)[:, None]
    x = (edges[:-1, None] + half * (1 + nodes)).ravel()
    w = (half * node_weights).ravel()
    cells = w[:, None] * w
    q = np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)
    q = q[:, None] * q
    ratio = sum(
        p * np.exp(m[0] * x[:, None] + m[1] * x - 0.5 * (m @ m))
        for p, m in zip(weights, means, strict=True)
    )
    remove = (cells * q * np.maximum(ratio - math.exp(epsilon), 0)).sum()
    add = (cells * q * np.maximum(1 - math.exp(epsilon) * ratio, 0)).sum()
    return remove, add


def two_steps(matrix, rate, kappa, epsilon):
    """Both orders of the pair E_y N(C y, kappa^2 I), N(0, kappa^2 I) for T = 2."""
    patterns = [(0, 0), (0, 1), (1, 0), (1, 1)]
    weights = [rate ** sum(y) * (1 - rate) ** (2 - sum(y)) for y in patterns]
    return plane_divergences([matrix @ y for y in patterns], weights, kappa, epsilon)


def calibrated(delta_of, low, high):
    return math.exp(
        brentq(
            lambda log_kappa: math.log(delta_of(math.exp(log_kappa)) / DELTA),
            math.log(low),
            math.log(high),
            xtol=1e-6,
        )
    )


# ------------------------------------------------------------------ independent noise


def test_table_of_independent_noise():
    got = [
        calibrated(lambda k, e=e: poisson_delta(k, RATE, STEPS, [e])[0], 0.4, 8) for e in EPSILONS
    ]
    np.testing.assert_allclose(got, INDEPENDENT, atol=0.0012)


@pytest.mark.parametrize(("kappa", "rate"), [(0.5, 0.1), (1.0, 0.025), (4.0, 0.5), (30.0, 0.01)])
def test_one_step_in_closed_form(kappa, rate):
    epsilons = np.array([0.0, 0.1, 1.0]) / kappa
    got = poisson_delta(kappa, rate, 1, epsilons)
    exact = np.array([max(one_step(kappa, rate, e)) for e in epsilons])
    assert np.all(got >= exact * (1 - 1e-9))
    np.testing.assert_allclose(got, exact, rtol=5e-3, atol=1e-12)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0])
@pytest.mark.parametrize(("kappa", "rate"), [(0.8, 0.2), (2.0, 0.5), (1.0, 0.9)])
def test_two_steps_by_quadrature(kappa, rate, epsilon):
    remove, add = two_steps(np.eye(2), rate, kappa, epsilon)
    (got,) = poisson_delta(kappa, rate, 2, [epsilon])
    assert got >= max(remove, add) * (1 - 1e-4)
    assert got == pytest.approx(max(remove, add), rel=1e-3)
    assert remove > add * 1.002  # so taking the wrong order would be seen


@pytest.mark.parametrize("n_steps", [1, 16, 100])
def test_every_record_in_every_batch(n_steps):
    kappa = 3.0 * math.sqrt(n_steps)
    got = poisson_delta(kappa, 1.0, n_steps, [0.3, 1.0])
    exact = [float(gaussian_profile(1 / 3.0, e)) for e in (0.3, 1.0)]
    assert np.all(got >= np.array(exact) * (1 - 1e-9))
    np.testing.assert_allclose(got, exact, rtol=5e-3)


@pytest.mark.parametrize(("kappa", "rate", "n_steps"), [(2.071, 0.025, 400), (0.9, 0.01, 1000)])
def test_agrees_with_the_event_interface_of_a_peer(kappa, rate, n_steps):
    pld = pytest.importorskip("dp_accounting.pld")
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(kappa))
    for relation in ("ADD_OR_REMOVE_ONE", "REPLACE_SPECIAL"):  # the latter is zero-out
        accountant = pld.PLDAccountant(
            dp_accounting.NeighboringRelation[relation], value_discretization_interval=1e-4
        )
        accountant.compose(dp_accounting.SelfComposedDpEvent(event, n_steps))
        for epsilon in (0.5, 1.0):
            (got,) = poisson_delta(kappa, rate, n_steps, [epsilon])
            assert got == pytest.approx(accountant.get_delta(epsilon), rel=0.01)


def test_replacing_a_record_is_not_covered():
    # Under replace-one the peer needs clearly more: add/remove must not be sold as it.
    pld = pytest.importorskip("dp_accounting.pld")
    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    event = dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(2.071))
    accountant.compose(dp_accounting.SelfComposedDpEvent(event, STEPS))
    (got,) = poisson_delta(2.071, RATE, STEPS, [1.0])
    assert accountant.get_delta(1.0) > 3.0 * got


def test_monotone():
    def delta(kappa=2.0, rate=0.02, n_steps=100, epsilon=0.5):
        return poisson_delta(kappa, rate, n_steps, [epsilon])[0]

    assert delta(kappa=2.2) < delta() < delta(kappa=1.8)
    assert delta(rate=0.018) < delta() < delta(rate=0.022)
    assert delta(n_steps=90) < delta() < delta(n_steps=110)
    assert delta(epsilon=0.55) < delta() < delta(epsilon=0.45)


@pytest.mark.parametrize(("kappa", "rate", "n_steps"), [(1000.0, 0.001, 1000), (0.05, 0.01, 3)])
def test_extremes(kappa, rate, n_steps):
    (delta,) = poisson_delta(kappa, rate, n_steps, [0.0])
    if kappa > 1:
        # Sum of many small losses: total variation of N(0, 1) and N(r sqrt(T) / kappa, 1).
        shift = rate * math.sqrt(n_steps) / kappa
        assert delta == pytest.approx(shift / math.sqrt(2 * math.pi), rel=0.01)
    else:
        assert delta == pytest.approx(1 - (1 - rate) ** n_steps, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 0.1, 1, [1.0]), r"noise_multiplier=0\.0 must be positive"),
        ((math.nan, 0.1, 1, [1.0]), "noise_multiplier=nan"),
        ((1.0, 0.0, 1, [1.0]), r"rate=0\.0 must be in \(0, 1\]"),
        ((1.0, math.nan, 1, [1.0]), "rate=nan"),
        ((1.0, 0.1, 0, [1.0]), "n_steps=0 must be an integer of at least 1"),
        ((1.0, 0.1, 1, [-1.0]), "epsilons=.* must be nonnegative"),
        ((1.0, 0.1, 1, [math.nan]), "epsilons=.* must be nonnegative"),
        ((1.0, 0.1, 1, 1.0), "in one dimension"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        poisson_delta(*arguments)


def test_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "dp_accounting"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ImportError, match="pip install dp-accounting"):
        poisson_delta(1.0, 0.1, 1, [1.0])


# ------------------------------------------------------------------ correlated noise


@pytest.mark.parametrize("lam", [0.5, 0.9])
def test_table_of_correlated_noise(lam):
    # Both factors independently: the norm by the dense matrix, the multiplier from the table.
    strategy = LambdaCGD(lam)
    norm = np.linalg.svd(strategy.matrix(STEPS), compute_uv=False)[0]
    got = [
        calibrated(
            lambda k, e=e: correlated_poisson_delta(strategy, k, RATE, STEPS, [e])[0], 0.4, 80
        )
        for e in (0.5, 8.0)
    ]
    expected = [norm * INDEPENDENT[0], norm * INDEPENDENT[-1]]
    np.testing.assert_allclose(got, expected, rtol=1.5e-3)


@pytest.mark.parametrize("lam", [0.3, 0.9])
@pytest.mark.parametrize("rate", [0.2, 0.7])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_correlated_bound_is_above_the_exact_pair(lam, rate, epsilon):
    strategy, kappa = LambdaCGD(lam), 1.5
    exact = max(two_steps(strategy.matrix(2), rate, kappa, epsilon))
    (got,) = correlated_poisson_delta(strategy, kappa, rate, 2, [epsilon])
    assert exact < got < 4.0 * exact


def test_correlated_bound_without_correlation():
    one = correlated_poisson_delta(Identity(), 2.0, RATE, STEPS, EPSILONS)
    other = poisson_delta(2.0, RATE, STEPS, EPSILONS)
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-14)
    with pytest.raises(ValueError, match="noise_multiplier=nan"):
        correlated_poisson_delta(Identity(), math.nan, RATE, STEPS, EPSILONS)


NORMS = {
    "lambda": LambdaCGD(0.9),
    "inverse banded": BIFR(0.8, 4),
    "long tail": BSR(300),
    "momentum": BIFR(0.5, 4, momentum=0.9),
    "alternating": Toeplitz((-0.5) ** np.arange(300)),
    "mixed signs": Toeplitz(np.cos(np.arange(300.0)) * 0.93 ** np.arange(300)),
    "dense": Dense(np.tril(np.random.default_rng(3).normal(size=(300, 300))) + 9 * np.eye(300)),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("limit", [1024, 16])
def test_operator_norm(name, limit, monkeypatch):
    monkeypatch.setattr(_poisson, "_DENSE_LIMIT", limit)
    operator_norm_bound.cache_clear()
    got = operator_norm_bound(NORMS[name], 300)
    operator_norm_bound.cache_clear()
    exact = math.sqrt(np.linalg.eigvalsh(NORMS[name].matrix(300) @ NORMS[name].matrix(300).T)[-1])
    assert got >= exact * (1 - 1e-12)
    if limit > 300:
        assert got <= exact * (1 + 1e-9)
    elif name != "dense":
        assert got <= exact * 1.03
    else:
        assert got <= exact * 20


def test_bounds_of_the_operator_norm_one_by_one():
    c = NORMS["mixed signs"].coef(300)
    exact = np.linalg.norm(NORMS["mixed signs"].matrix(300), 2)
    # Signs matter: the sum of the magnitudes is far too large, the maximum on the circle is not.
    assert np.abs(c).sum() > 1.2 * exact
    assert exact <= _poisson._circle_bound(c) <= 1.03 * exact
    long_tail = BSR(300).coef(300)
    exact = np.linalg.norm(BSR(300).matrix(300), 2)
    assert exact <= _poisson._collatz_bound(long_tail) <= 1.0001 * exact
    assert long_tail.sum() > 1.3 * exact


def test_circle_bound_between_grid_points():
    # |1 + z^k| has its maximum 2 at the roots of unity, which a grid of other size misses.
    for k in (3, 7, 50):
        c = np.zeros(k + 1)
        c[[0, k]] = 1.0
        fine = np.abs(np.fft.fft(c, 100_003)).max()
        assert fine <= _poisson._circle_bound(c) <= 1.01 * 2.0


# ------------------------------------------------------------------ cyclic Poisson


def test_cyclic_groups_of_banded_noise_by_quadrature():
    # Two groups, three steps, C with bandwidth 2.  The first group is in steps 0 and 2; columns 0
    # and 2 are orthogonal and have lengths |(1, .7)| and 1 (the last column is cut off).
    c, rate, kappa = np.array([1.0, 0.7, 0.0]), 0.4, 1.2
    lengths = [math.hypot(1.0, 0.7), 1.0]
    patterns = [(0, 0), (0, 1), (1, 0), (1, 1)]
    weights = [rate ** sum(y) * (1 - rate) ** (2 - sum(y)) for y in patterns]
    means = [np.array(lengths) * y for y in patterns]
    for epsilon in (0.1, 1.0):
        exact = max(plane_divergences(means, weights, kappa, epsilon))
        (got,) = cyclic_poisson_delta(Toeplitz(c), kappa, 2, rate, 3, [epsilon])
        assert exact <= got <= 1.6 * exact
        # With four steps no column of the group is cut off, and the bound is exact.
        means_of_four = [lengths[0] * np.array(y) for y in patterns]
        exact = max(plane_divergences(means_of_four, weights, kappa, epsilon))
        (got,) = cyclic_poisson_delta(Toeplitz(c), kappa, 2, rate, 4, [epsilon])
        assert got == pytest.approx(exact, rel=5e-3)


def test_cyclic_groups_are_steps_of_independent_noise():
    strategy = BSR(4)
    length = np.linalg.norm(strategy.coef(100))
    got = cyclic_poisson_delta(strategy, 2.0, 7, 0.1, 100, [0.5])
    np.testing.assert_allclose(got, poisson_delta(2.0 / length, 0.1, 15, [0.5]), rtol=1e-9)
    # One group is plain Poisson sampling.
    alone = cyclic_poisson_delta(Identity(), 2.0, 1, 0.1, 100, [0.5])
    np.testing.assert_allclose(alone, poisson_delta(2.0, 0.1, 100, [0.5]), rtol=1e-9)


def test_cyclic_groups_with_a_dense_matrix():
    matrix = np.eye(6) + 0.5 * np.eye(6, k=-1)
    matrix[4, 4] = 3.0  # the longest column is not the first
    got = cyclic_poisson_delta(Dense(matrix), 4.0, 2, 0.3, 6, [0.5])
    expected = poisson_delta(4.0 / math.hypot(3.0, 0.5), 0.3, 3, [0.5])
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_cyclic_groups_refuse():
    with pytest.raises(ValueError, match=r"bandwidth 4 with n_steps=100; .* at most separation=3"):
        cyclic_poisson_delta(BSR(4), 2.0, 3, 0.1, 100, [0.5])
    with pytest.raises(ValueError, match="bandwidth 100"):
        cyclic_poisson_delta(LambdaCGD(0.5), 2.0, 3, 0.1, 100, [0.5])
    with pytest.raises(ValueError, match="bandwidth 3 "):
        cyclic_poisson_delta(Dense(np.tril(np.ones((3, 3)))), 2.0, 2, 0.1, 3, [0.5])
    with pytest.raises(ValueError, match="separation=0 must be an integer"):
        cyclic_poisson_delta(Identity(), 2.0, 0, 0.1, 100, [0.5])
    with pytest.raises(ValueError, match=r"rate=1\.5"):
        cyclic_poisson_delta(Identity(), 2.0, 2, 1.5, 100, [0.5])
