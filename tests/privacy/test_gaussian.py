"""Gaussian tails and divergences against mpmath at 60 digits."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpop.privacy._gaussian import (
    chi_radius,
    gaussian_delta,
    gaussian_noise_multiplier,
    log_chi_sf,
    log_folded_divergence,
    log_gaussian_delta,
    log_normal_sf,
    log_q1,
)

mp.mp.dps = 60

SHIFTS = [1e-4, 2.6e-4, 1e-3, 0.01, 0.1, 0.268, 0.5, 0.99, 1.01, 2.0, 5.0, 8.0, 20.0]
THRESHOLDS = [0.0, 0.3, 1.0, 2.0, 5.0, 11.5, 14.99, 15.01, 30.0, 37.0]


def exact_gaussian_delta(shift, epsilon):
    shift, epsilon = mp.mpf(shift), mp.mpf(epsilon)
    half = shift / 2
    return mp.ncdf(half - epsilon / shift) - mp.exp(epsilon) * mp.ncdf(-half - epsilon / shift)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("x", [-5.9, -1.0, -0.01, *THRESHOLDS])
def test_gaussian_delta_against_high_precision(shift, x):
    epsilon = shift * (x + shift / 2)
    exact = mp.log(exact_gaussian_delta(shift, epsilon))
    assert abs(mp.mpf(float(log_gaussian_delta(shift, epsilon))) - exact) < 1e-12


@pytest.mark.parametrize("shift", [2.0, 8.0, 30.0])
def test_gaussian_delta_close_to_one(shift):
    epsilon = -3.0
    exact = mp.log(exact_gaussian_delta(shift, epsilon))
    assert abs(mp.mpf(float(log_gaussian_delta(shift, epsilon))) - exact) < 1e-13


@pytest.mark.parametrize("t", THRESHOLDS)
def test_q1_against_high_precision(t):
    exact = mp.log(mp.npdf(t) - mp.mpf(t) * mp.ncdf(-mp.mpf(t)))
    assert abs(mp.mpf(float(log_q1(t))) - exact) < 1e-13


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("t", THRESHOLDS)
def test_folded_divergence_against_its_closed_form(shift, t):
    lam, tt = mp.mpf(shift), mp.mpf(t)
    exact = 2 * (mp.ncdf(-tt) - mp.exp(lam * tt + lam**2 / 2) * mp.ncdf(-tt - lam))
    assert abs(mp.mpf(float(log_folded_divergence(shift, t))) - mp.log(exact)) < 1e-12


@pytest.mark.parametrize(("shift", "t"), [(0.2, 0.0), (0.268, 3.6), (1.1, 2.0)])
def test_folded_divergence_is_the_expectation(shift, t):
    integrand = lambda w: 2 * mp.npdf(w) * (1 - mp.exp(-shift * (w - t)))  # noqa: E731
    expectation = mp.quad(integrand, [t, t + 1, t + 3, t + 10, t + 30])
    assert float(log_folded_divergence(shift, t)) == pytest.approx(
        float(mp.log(expectation)), abs=1e-12
    )


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("t", THRESHOLDS)
def test_lemma_c12_bounds_the_folded_divergence(shift, t):
    lemma = math.log(2.0 * shift) + float(log_q1(t))
    assert float(log_folded_divergence(shift, t)) <= lemma + 1e-12


def test_lemma_c12_constant_is_attained():
    shift = 1e-5  # Lemma C.12: ratio 1 + o(1) as lambda -> 0
    ratio = float(log_folded_divergence(shift, 2.0)) - math.log(2.0 * shift) - float(log_q1(2.0))
    assert -1e-4 < ratio <= 0.0


@pytest.mark.parametrize("dimension", [1, 2, 7, 64, 1000, 10_001])
@pytest.mark.parametrize("log_p", [-0.5, -5.0, -11.5, -69.0, -300.0, -600.0])
def test_chi_tail_against_high_precision(dimension, log_p):
    radius = chi_radius(log_p, dimension)
    half = mp.mpf(radius) ** 2 / 2
    exact = mp.log(mp.gammainc(mp.mpf(dimension) / 2, half, regularized=True))
    got = float(log_chi_sf(radius, dimension))
    assert abs(got - exact) < 1e-10 * max(1.0, abs(log_p))
    assert float(exact) == pytest.approx(log_p, rel=1e-8)


@pytest.mark.parametrize("log_p", [-5.0, -30.0, -300.0])
def test_chi_tail_in_ten_million_dimensions(log_p):
    # Independent evaluation: the chi-square density integrated from the radius on, with
    # its logarithm in high precision.
    d = mp.mpf(10**7)
    radius = chi_radius(log_p, 10**7)
    start = mp.mpf(radius) ** 2

    def density(x):
        return mp.exp((d / 2 - 1) * mp.log(x) - x / 2 - d / 2 * mp.log(2) - mp.loggamma(d / 2))

    scale = mp.sqrt(2 * d)
    exact = mp.log(mp.quad(density, [start + k * scale / 4 for k in range(0, 40)]))
    assert float(log_chi_sf(radius, 10**7)) == pytest.approx(float(exact), abs=1e-7)


@pytest.mark.parametrize(("radius", "dimension"), [(60.0, 3), (400.0, 1000)])
def test_chi_tail_below_the_smallest_float_is_still_a_bound(radius, dimension):
    half = mp.mpf(radius) ** 2 / 2
    exact = mp.log(mp.gammainc(mp.mpf(dimension) / 2, half, regularized=True))
    got = float(log_chi_sf(radius, dimension))
    assert exact < -690
    assert float(exact) <= got < 0.97 * float(exact)


def test_example_c5():
    # Section C.5: the exact Gaussian value at sigma / G = 5 and epsilon = 1.
    assert gaussian_delta(1.0, noise_multiplier=5.0) == pytest.approx(
        1.75463333189623e-8, rel=1e-13
    )


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1e-3, 1e-30), (0.1, 1e-5), (1.0, 1e-5), (50.0, 1e-30)]
)
def test_noise_multiplier_is_where_the_profile_meets_delta(epsilon, delta):
    multiplier = gaussian_noise_multiplier(epsilon, delta)
    exact = exact_gaussian_delta(1 / mp.mpf(multiplier), epsilon)
    assert float(exact / mp.mpf(delta)) == pytest.approx(1.0, rel=1e-9)


@settings(deadline=None, max_examples=60)
@given(shift=st.floats(1e-4, 20.0), epsilon=st.floats(0.0, 50.0), factor=st.floats(1.001, 3.0))
def test_gaussian_delta_grows_with_shift_and_falls_with_epsilon(shift, epsilon, factor):
    here = float(log_gaussian_delta(shift, epsilon))
    assert np.isfinite(here) or epsilon / shift > 37
    assert float(log_gaussian_delta(shift * factor, epsilon)) >= here - 1e-12
    assert float(log_gaussian_delta(shift, epsilon * factor)) <= here + 1e-12


def test_normal_tail():
    assert float(log_normal_sf(10.0)) == pytest.approx(float(mp.log(mp.ncdf(-10))), rel=1e-14)
