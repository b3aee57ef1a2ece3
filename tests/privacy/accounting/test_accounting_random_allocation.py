"""Certified profile of balls-in-bins sampling with orthogonal bins.

Oracles: quadrature of the two divergences in the space of the observations (b = 2, 3),
convolution by a Fourier transform on an equidistant grid, simulation of the steps of several
epochs, and published numbers.
"""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

from sklearn_dpop.privacy._gaussian import log_gaussian_delta
from sklearn_dpop.privacy.accounting import _random_allocation
from sklearn_dpop.privacy.accounting._random_allocation import (
    random_allocation_delta,
    random_allocation_deltas,
)


def by_quadrature(ratio, n_bins, epsilon):
    """Return (H(P||Q), H(Q||P)) for P = mean_i N(e_i, q^2 I), Q = N(0, q^2 I).

    Both are differences of probabilities of {L > eps} or {L < -eps}; the last coordinate is
    integrated by the normal distribution function, the others by the trapezoidal rule.
    """
    n_nodes = {2: 20001, 3: 1501}[n_bins]
    t = np.linspace(-10.0 * ratio, 1.0 + 10.0 * ratio, n_nodes)
    axes = np.meshgrid(*[t] * (n_bins - 1), indexing="ij")
    likelihood = sum(np.exp((x - 0.5) / ratio**2) for x in axes)

    def density(means):
        z = sum(((x - m) / ratio) ** 2 for x, m in zip(axes, means, strict=True))
        cell = (t[1] - t[0]) / (ratio * math.sqrt(2 * math.pi))
        return cell ** (n_bins - 1) * np.exp(-0.5 * z)

    def above(log_ratio):
        rest = n_bins * math.exp(log_ratio) - likelihood
        with np.errstate(invalid="ignore", divide="ignore"):
            edge = np.where(rest > 0, 0.5 + ratio**2 * np.log(rest), -np.inf)
        origin = np.zeros(n_bins - 1)
        q = (density(origin) * ndtr(-edge / ratio)).sum()
        p = (density(origin) * ndtr((1.0 - edge) / ratio)).sum()
        for unit in np.eye(n_bins - 1):
            p += (density(unit) * ndtr(-edge / ratio)).sum()
        return p / n_bins, q

    p, q = above(epsilon)
    removed = p - math.exp(epsilon) * q
    p, q = above(-epsilon)
    return removed, (1.0 - q) - math.exp(epsilon) * (1.0 - p)


def by_fourier(ratio, n_bins, epsilon, spacing=0.004, size=1 << 19):
    """Return both divergences, the mean of log-normals rounded to multiples of `spacing`."""
    sd, x = 1.0 / ratio, np.arange(size // 2 + 1) * spacing
    with np.errstate(divide="ignore"):
        log_x = np.log(x)
    mass = np.diff(ndtr((log_x + 0.5 * sd**2) / sd))
    mean = np.diff(ndtr((log_x - 0.5 * sd**2) / sd))
    up = (mean - x[:-1] * mass) / spacing
    law = np.zeros(size)
    law[: size // 2] += mass - up
    law[1 : size // 2 + 1] += up
    law = np.fft.irfft(np.fft.rfft(law) ** n_bins, size)
    y = np.arange(size) * spacing / n_bins
    k = math.exp(epsilon)
    return law @ np.maximum(y - k, 0.0), law @ np.maximum(1.0 - k * y, 0.0)


def test_one_bin_is_the_gaussian_mechanism():
    eps = np.array([0.0, 1.0, 3.0])
    removed, added = random_allocation_deltas(1.3, 1, eps)
    np.testing.assert_allclose(removed, np.exp(log_gaussian_delta(1 / 1.3, eps)), rtol=1e-12)
    np.testing.assert_allclose(added, removed, rtol=1e-12)


@pytest.mark.parametrize(
    ("ratio", "n_bins", "epsilon"),
    [
        (1.0, 2, 0.3),
        (1.0, 2, 2.5),
        (0.5, 2, 4.0),
        (2.0, 2, 1.0),
        (5.0, 2, 0.2),
        (1.0, 2, -0.4),
        (1.0, 3, 0.5),
        (1.0, 3, 2.5),
        (0.5, 3, 5.0),
        (3.0, 3, 0.5),
    ],
)
def test_tight_upper_bound_in_each_direction(ratio, n_bins, epsilon):
    exact = by_quadrature(ratio, n_bins, epsilon)
    bound = random_allocation_deltas(ratio, n_bins, epsilon)
    # The divergences of the two directions differ by far more than the tolerance, so that
    # this fails as well if P and Q are swapped.
    assert abs(exact[0] / exact[1] - 1) > 0.004
    for value, upper in zip(exact, bound, strict=True):
        assert value > 1e-9
        assert value * (1 - 1e-6) <= upper <= value * 1.002
    assert random_allocation_delta(ratio, n_bins, epsilon) == max(bound)


@pytest.mark.parametrize(
    ("ratio", "n_bins", "epsilon"),
    [(1.0153, 128, 0.5), (1.2, 64, 0.05), (0.8, 64, 1.0), (2.0, 1000, 0.05), (1.5, 37, 0.6)],
)
def test_agrees_with_fourier_convolution(ratio, n_bins, epsilon):
    exact = by_fourier(ratio, n_bins, epsilon)
    for value, upper in zip(exact, random_allocation_deltas(ratio, n_bins, epsilon), strict=True):
        assert value > 1e-9
        assert value * (1 - 1e-4) <= upper <= value * 1.006


@pytest.mark.parametrize(("ratio", "n_bins"), [(1.0, 64), (0.5, 9)])
def test_coarser_rounding_gives_larger_bounds(ratio, n_bins, monkeypatch):
    """Rounding in the wrong direction, at any stage, would give smaller ones."""
    eps = np.array([0.1, 0.5, 1.0, 2.0])
    fine = random_allocation_deltas(ratio, n_bins, eps)
    monkeypatch.setattr(_random_allocation, "_POINTS", 60)
    _random_allocation._mean_law.cache_clear()
    coarse = random_allocation_deltas(ratio, n_bins, eps)
    _random_allocation._mean_law.cache_clear()
    for f, c in zip(fine, coarse, strict=True):
        assert (c[f > 1e-12] > f[f > 1e-12] * 1.001).all()


@pytest.mark.parametrize(("ratio", "n_bins"), [(1.0, 100), (0.3, 7), (50.0, 1000)])
def test_law_keeps_mass_and_mean(ratio, n_bins):
    law = _random_allocation._mean_law(ratio, n_bins)
    assert law.points[0] == 0.0
    assert (law.masses >= 0).all()
    assert law.masses.sum() == pytest.approx(1.0, abs=1e-11)
    assert law.masses @ law.points == pytest.approx(1.0, abs=1e-11)
    assert law.mass_slack < 1e-5
    assert law.excess < 1e-28


@pytest.mark.parametrize(
    ("n_bins", "epochs", "sigma", "epsilon"),
    [(64, 4, 2.0, 1.806), (16, 2, 1.0, 5.769), (32, 4, 2.0, 2.410)],
)
def test_published_epsilons(n_bins, epochs, sigma, epsilon):
    """Epsilon at delta 1e-8, rounded up, by another implementation of random allocation.

    The ratio is sigma over sqrt(epochs); without the root the deltas are far off.
    """
    delta = float(random_allocation_delta(sigma / math.sqrt(epochs), n_bins, epsilon))
    assert 0.94e-8 < delta <= 1e-8


def test_ratio_of_several_epochs_by_simulation():
    """Two steps per epoch, three epochs: six observations, losses from their densities."""
    n_bins, epochs, sigma, epsilon = 2, 3, 2.0, 0.5
    means = np.tile(np.eye(n_bins), epochs)
    rng = np.random.default_rng(0)
    x = sigma * rng.standard_normal((400_000, n_bins * epochs))
    x += means[rng.integers(n_bins, size=len(x))]
    loss = np.log(np.mean(np.exp((x @ means.T - epochs / 2) / sigma**2), axis=1))
    draws = np.maximum(0.0, -np.expm1(epsilon - loss))
    removed, _ = random_allocation_deltas(sigma / math.sqrt(epochs), n_bins, epsilon)
    error = draws.std() / math.sqrt(len(draws))
    assert abs(draws.mean() - removed) < 4 * error
    assert error < 0.01 * removed


# Multipliers for delta = 1e-5, point estimates with a 95 % interval from 10.75 million draws of
# jax_privacy's Monte Carlo accountant: bins, epochs, epsilon, sigma, half width.
_REFERENCE = [
    (64, 4, 0.5, 2.4057, 0.0060),
    (64, 4, 1.0, 1.8894, 0.0008),
    (64, 4, 2.0, 1.5250, 0.0020),
    (64, 4, 4.0, 1.1838, 0.0009),
    (64, 4, 8.0, 0.8541, 0.0003),
    (128, 4, 0.5, 2.0370, 0.0050),
    (128, 4, 1.0, 1.6767, 0.0009),
    (128, 4, 8.0, 0.8174, 0.0003),
]


@pytest.mark.parametrize(("n_bins", "epochs", "epsilon", "sigma", "half_width"), _REFERENCE)
def test_published_multipliers(n_bins, epochs, epsilon, sigma, half_width):
    def delta(s):
        return float(random_allocation_delta(s / math.sqrt(epochs), n_bins, epsilon))

    # Two widths, about four standard errors: the certified multiplier is within them, and
    # within half a percent of the estimate.
    width = min(2 * half_width, 0.005 * sigma)
    assert delta(sigma - width) > 1e-5 > delta(sigma + width)


@pytest.mark.slow
@pytest.mark.parametrize(("n_bins", "epochs", "epsilon", "sigma", "half_width"), _REFERENCE)
def test_calibrated_multiplier_against_fourier(n_bins, epochs, epsilon, sigma, half_width):
    def excess(s, profile):
        return math.log(max(profile(s / math.sqrt(epochs), n_bins, epsilon)) / 1e-5)

    certified = brentq(excess, 0.95 * sigma, 1.05 * sigma, (random_allocation_deltas,), xtol=1e-6)
    if epsilon <= 1.0:  # above, the grid of the transform is too short
        exact = brentq(excess, 0.95 * sigma, 1.05 * sigma, (by_fourier,), xtol=1e-6)
        assert exact * (1 - 1e-5) <= certified <= exact * 1.0005
    assert certified == pytest.approx(sigma, rel=0.005)


def test_profile_is_monotone_and_below_the_gaussian():
    eps = np.linspace(-1.0, 6.0, 29).reshape(1, 29)
    for bound in random_allocation_deltas(0.8, 20, eps):
        assert bound.shape == eps.shape
        assert (np.diff(bound[0]) < 0).all()
        assert (bound <= np.exp(log_gaussian_delta(1 / 0.8, eps))).all()


@pytest.mark.parametrize("ratio", [0.06, 0.059, 1e4, 1.1e4, 1e-3, 1e9])
def test_extreme_ratios_stay_bounds(ratio):
    """Against the no-amplification profile from above and one bin in a hundred from below."""
    eps = np.array([0.0, 1e-5, 1.0, 50.0, 800.0])
    # H(P||Q) >= P(x_1 > c) - e^eps Q(x_1 > c) for every c, the mixture in one coordinate.
    n_bins = 100
    c = 0.5 + ratio**2 * np.log1p(n_bins * np.expm1(np.minimum(eps, 500.0)) + 1e-12)
    hit = ndtr((1.0 - c) / ratio) + (n_bins - 1) * ndtr(-c / ratio)
    lower = hit / n_bins - np.exp(np.minimum(eps, 500.0)) * ndtr(-c / ratio)
    removed, added = random_allocation_deltas(ratio, n_bins, eps)
    assert (removed >= lower - 1e-15).all()
    plain = np.exp(log_gaussian_delta(1 / ratio, eps))
    assert (removed <= plain).all()
    assert (added <= plain).all()


@pytest.mark.slow
def test_many_bins_and_small_noise():
    """The cases that the transform cannot do: only rough bounds, but of all orders of delta."""
    for ratio, n_bins in [(0.5, 10_000), (1.0, 10_000), (0.3, 1000)]:
        eps = np.linspace(0.1, 8.0, 20)
        removed, _ = random_allocation_deltas(ratio, n_bins, eps)
        c = 0.5 + ratio**2 * np.log1p(n_bins * np.expm1(eps))
        hit = ndtr((1.0 - c) / ratio) + (n_bins - 1) * ndtr(-c / ratio)
        lower = hit / n_bins - np.exp(eps) * ndtr(-c / ratio)
        assert (removed >= lower).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 3, 1.0), "ratio must be a positive finite number, got 0.0"),
        ((math.nan, 3, 1.0), "ratio must be"),
        ((math.inf, 3, 1.0), "ratio must be"),
        ((1.0, 0, 1.0), "n_bins must be a positive integer, got 0"),
        ((1.0, 2.5, 1.0), "n_bins must be a positive integer, got 2.5"),
        ((1.0, 3, [1.0, math.nan]), "epsilons must be finite"),
    ],
)
def test_refuses_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        random_allocation_delta(*arguments)
