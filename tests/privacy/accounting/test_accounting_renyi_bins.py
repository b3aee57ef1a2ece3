"""Moment bounds for balls-in-bins sampling with correlated noise.

Oracles: the sum over all b^a assignments, quadrature in the space of the observations (b = 2),
the certified profile of orthogonal bins, the Gaussian mechanism, simulation, dp-accounting.
"""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklearn_dpop.factorization import BSR, LambdaCGD
from sklearn_dpop.privacy._gaussian import log_gaussian_delta
from sklearn_dpop.privacy.accounting._balls_in_bins import bins_of
from sklearn_dpop.privacy.accounting._random_allocation import random_allocation_deltas
from sklearn_dpop.privacy.accounting._renyi_bins import (
    renyi_add,
    renyi_bins_delta,
    renyi_bins_deltas,
    renyi_remove,
)

# Two means that are neither orthogonal nor of equal length.
MEANS = np.array([[1.0, 0.5], [0.25, 1.5]])


def by_enumeration(gram, sigma, order):
    """R_a(P||Q) from E_Q (dP/dQ)^a: one Gaussian moment for each of the b^a products."""
    b, total = len(gram), 0.0
    for r in itertools.product(range(b), repeat=order):
        joint = gram[np.ix_(r, r)]
        total += math.exp((joint.sum() - np.trace(joint)) / (2 * sigma**2))
    return math.log(total / b**order) / (order - 1)


def ring(n_bins, bandwidth, seed=0, cyclic=True):
    """Random nonnegative symmetric matrix, zero for bins at a distance of `bandwidth`."""
    g = np.random.default_rng(seed).uniform(0.2, 1.0, (n_bins, n_bins))
    d = np.abs(np.subtract.outer(np.arange(n_bins), np.arange(n_bins)))
    if cyclic:
        d = np.minimum(d, n_bins - d)
    return np.where(d < bandwidth, g + g.T, 0.0)


class Plane:
    """Densities of P and Q on a grid of observations, two bins with means `MEANS`."""

    def __init__(self, sigma):
        t = np.linspace(-12 * sigma, 10.0 + 12 * sigma, 1501)  # P^a/Q^(a-1) is centred at a m
        x = np.stack(np.meshgrid(t, t, indexing="ij"), axis=-1)

        def density(mean):
            z = ((x - mean) ** 2).sum(axis=-1) / (2 * sigma**2)
            return (t[1] - t[0]) ** 2 * np.exp(-z) / (2 * math.pi * sigma**2)

        self.p = 0.5 * (density(MEANS[0]) + density(MEANS[1]))
        self.q = density(np.zeros(2))

    def renyi(self, order, forward=True):
        p, q = (self.p, self.q) if forward else (self.q, self.p)
        return math.log((p * np.exp((order - 1) * (np.log(p) - np.log(q)))).sum()) / (order - 1)

    def hockey_stick(self, epsilon, forward=True):
        p, q = (self.p, self.q) if forward else (self.q, self.p)
        return np.maximum(p - math.exp(epsilon) * q, 0.0).sum()


@pytest.mark.parametrize("cyclic", [True, False])
@pytest.mark.parametrize(
    ("n_bins", "bandwidth", "order"),
    [(b, p, 4) for b in (1, 2, 3, 4, 5, 6) for p in (1, 2, 3)] + [(7, 3, 3), (8, 4, 3), (3, 2, 7)],
)
def test_banded_moments_match_enumeration(n_bins, bandwidth, order, cyclic):
    gram = ring(n_bins, bandwidth, cyclic=cyclic)
    expected = [by_enumeration(gram, 1.3, a) for a in range(2, order + 1)]
    assert_allclose(renyi_remove(gram, 1.3, max_order=order), expected, rtol=1e-8)


def test_long_ring_does_not_depend_on_where_it_is_cut():
    gram = ring(15, 3)
    turned = np.roll(gram, 4, axis=(0, 1))
    assert_allclose(
        renyi_remove(gram, 1.0, max_order=8), renyi_remove(turned, 1.0, max_order=8), rtol=1e-9
    )
    # The pairs across the cut count: without them the divergence is smaller.
    opened = gram.copy()
    opened[-2:, :2] = opened[:2, -2:] = 0.0
    closed, cut = renyi_remove(gram, 1.0, max_order=8), renyi_remove(opened, 1.0, max_order=8)
    assert (closed > cut * 1.001).all()


@pytest.mark.parametrize("n_bins", [3, 5])
def test_full_matrix_is_bounded_from_above(n_bins):
    rng = np.random.default_rng(1)
    distance = np.abs(np.subtract.outer(np.arange(n_bins), np.arange(n_bins)))
    gram = 2.0 * 0.6**distance * rng.uniform(0.8, 1.0)
    exact = np.array([by_enumeration(gram, 1.1, a) for a in range(2, 6)])
    bound = renyi_remove(gram, 1.1, max_order=5)
    assert (bound >= exact * (1 - 1e-12)).all()
    assert (bound <= exact * 1.3).all()


def test_constant_part_is_a_gaussian_mechanism():
    """Equal means: R_a = a g / (2 sigma^2), from the remainder of the band alone."""
    gram = np.full((30, 30), 3.0)
    a = np.arange(2, 21)
    assert_allclose(renyi_remove(gram, 2.0, max_order=20), a * 3.0 / 8.0, rtol=1e-7)
    assert_allclose(renyi_add(gram, 2.0, a), a * 3.0 / 8.0, rtol=1e-12)
    eps = np.array([0.5, 2.0])
    _, added = renyi_bins_deltas(gram, 2.0, eps)
    assert_allclose(added, np.exp(log_gaussian_delta(3.0**0.5 / 2.0, eps)), rtol=1e-9)


@pytest.mark.parametrize("sigma", [1.0, 2.0])
def test_orders_by_quadrature(sigma):
    plane, gram = Plane(sigma), MEANS @ MEANS.T
    a = np.arange(2, 7)
    removed = np.array([plane.renyi(k) for k in a])
    assert_allclose(renyi_remove(gram, sigma, max_order=6), removed, rtol=1e-6)
    added = np.array([plane.renyi(k, forward=False) for k in a])
    bound = renyi_add(gram, sigma, a)
    assert (bound >= added).all()
    assert (bound <= 1.5 * added).all()
    # Exchanging P and Q would be seen.
    assert (np.abs(removed / added - 1) > 1e-3).all()


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5, 3.0])
def test_profile_bounds_by_quadrature(epsilon):
    sigma = 1.0
    plane, gram = Plane(sigma), MEANS @ MEANS.T
    removed, added = renyi_bins_deltas(gram, sigma, epsilon)
    exact = plane.hockey_stick(epsilon), plane.hockey_stick(epsilon, forward=False)
    assert exact[0] <= removed <= 12 * exact[0]
    assert exact[1] <= added <= 3 * exact[1]
    assert renyi_bins_delta(gram, sigma, epsilon) == max(removed, added)


@pytest.mark.parametrize(("epochs", "sigma", "epsilon"), [(10, 2.5, 2.0), (20, 3.6, 2.0)])
def test_orthogonal_bins_against_the_exact_profile(epochs, sigma, epsilon):
    """Each direction is bounded; the add bound does not cover remove (a swap is seen).

    The Gram matrix is epochs times the identity, the ratio sigma / sqrt(epochs): the two
    accountants disagree if either loses the root.
    """
    n_bins = 40
    gram = epochs * np.eye(n_bins)
    exact = random_allocation_deltas(sigma / math.sqrt(epochs), n_bins, epsilon)
    removed, added = renyi_bins_deltas(gram, sigma, epsilon)
    assert exact[0] <= removed <= 25 * exact[0]
    assert exact[1] <= added < 0.2 * exact[0]


def test_one_bin_against_the_gaussian_mechanism():
    eps = np.array([0.5, 1.0, 2.0])
    exact = np.exp(log_gaussian_delta(0.5, eps))
    removed, added = renyi_bins_deltas([[4.0]], 4.0, eps)
    assert_allclose(added, exact, rtol=1e-9)
    # Never above the profile without amplification, which is exact here.
    assert_allclose(removed, exact, rtol=1e-9)


def test_conversion_agrees_with_dp_accounting():
    rdp = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant")
    gram, sigma, eps = 10.0 * np.eye(40), 3.5, 1.0
    orders = list(range(2, 33))
    divergences = renyi_remove(gram, sigma, max_order=32)
    expected, _ = rdp.compute_delta(orders, list(divergences), eps)
    removed, _ = renyi_bins_deltas(gram, sigma, eps)
    assert float(removed) == pytest.approx(expected, rel=1e-9)


def test_bound_grows_with_the_gram_matrix_and_shrinks_with_noise():
    gram = bins_of(BSR(2), 60, 12).gram
    eps = np.array([[0.5, 1.0], [2.0, 4.0]])
    base = renyi_bins_delta(gram, 3.0, eps)
    assert base.shape == eps.shape
    assert (renyi_bins_delta(gram, 3.3, eps) < base).all()
    assert (renyi_bins_delta(1.1 * gram, 3.0, eps) > base).all()
    assert (renyi_bins_delta(gram + 0.1, 3.0, eps) > base).all()
    assert_allclose(renyi_bins_delta(4 * gram, 6.0, eps), base, rtol=1e-12)
    assert (renyi_bins_delta(gram, 3.0, eps, max_order=3) >= base).all()


def test_no_means_no_loss():
    removed, added = renyi_bins_deltas(np.zeros((3, 3)), 1.0, [0.0, 1.0, -1.0])
    assert_allclose(removed, [0.0, 0.0, 1 - math.exp(-1)])
    assert_allclose(added, removed)


@pytest.mark.parametrize(
    ("strategy", "sigma", "epsilon"),
    [
        (BSR(2), 3.0, 1.0),
        (BSR(3), 2.6, 2.0),
        (LambdaCGD(0.5), 2.6, 2.0),
        (LambdaCGD(0.9), 9.0, 2.0),
    ],
)
def test_bounds_lie_above_a_simulation_of_the_steps(strategy, sigma, epsilon):
    """Draws in the space of the steps, not of the bins; importance sampling by longer means."""
    n_steps, n_bins, n_draws, tilt = 60, 12, 40_000, 1.5
    c = strategy.matrix(n_steps)
    means = np.stack([c[:, i::n_bins].sum(axis=1) for i in range(n_bins)])
    square = (means**2).sum(axis=1)
    rng = np.random.default_rng(3)
    noise = sigma * rng.standard_normal((n_draws, n_steps))
    gram = bins_of(strategy, n_steps, n_bins).gram

    def log_mixture(x, scale):
        exponent = (scale * (x @ means.T) - 0.5 * scale**2 * square) / sigma**2
        return np.logaddexp.reduce(exponent, axis=1) - math.log(n_bins)

    x = noise + tilt * means[rng.integers(n_bins, size=n_draws)]
    loss = log_mixture(x, 1.0)
    draws = np.exp(loss - log_mixture(x, tilt)) * np.maximum(0.0, -np.expm1(epsilon - loss))
    removed, added = renyi_bins_deltas(gram, sigma, epsilon)
    error = draws.std() / math.sqrt(n_draws)
    assert error < 0.2 * draws.mean()
    assert removed > draws.mean() - 3 * error
    # Under Q; plain draws are enough to see an add bound that is far too small.
    draws = np.maximum(0.0, -np.expm1(epsilon + log_mixture(noise, 1.0)))
    assert added > draws.mean() - 3 * draws.std() / math.sqrt(n_draws)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0, 0.0]], 1.0, 1.0), r"gram must be a square matrix, got shape \(1, 2\)"),
        (([[1.0, -0.1], [-0.1, 1.0]], 1.0, 1.0), "gram must be symmetric with finite entries"),
        (([[1.0, 0.5], [0.0, 1.0]], 1.0, 1.0), "gram must be symmetric"),
        (([[math.nan]], 1.0, 1.0), "gram must be symmetric with finite entries"),
        (([[1.0]], 0.0, 1.0), "sigma must be a positive finite number, got 0.0"),
        (([[1.0]], math.nan, 1.0), "sigma must be"),
        (([[1.0]], 1.0, math.inf), "epsilons must be finite"),
    ],
)
def test_refuses_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        renyi_bins_delta(*arguments)


def test_refuses_bad_orders():
    with pytest.raises(ValueError, match="max_order must be an integer >= 2, got 1"):
        renyi_bins_delta([[1.0]], 1.0, 1.0, max_order=1)
    with pytest.raises(ValueError, match="orders must be > 1"):
        renyi_add([[1.0]], 1.0, [1.0, 2.0])
