"""Composition of privacy profiles.

Oracles: the Gaussian mechanism, whose K-fold composition is a Gaussian mechanism again
(Dong, Roth and Su 2022; evaluated by mpmath with 60 digits); the binomial formula of
randomized response and Kairouz, Oh and Viswanath's optimal composition (2015, Theorem 3.3),
both in mpmath; enumeration of all outcomes of small product distributions; exact rational
convolution; and the package dp-accounting where it is installed.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr

from sklearn_dpop.privacy import _composition
from sklearn_dpop.privacy._composition import (
    PrivacyLossDistribution,
    chords,
    compose_profile,
    compose_profiles,
    dominating_distribution,
    optimal_composition_delta,
    optimal_composition_epsilon,
)

DIGITS = 60


@pytest.fixture(scope="module", autouse=True)
def _digits():
    with mp.workdps(DIGITS):
        yield


# ------------------------------------------------------------------ profiles and oracles


def exact_gaussian(epsilon, m):
    """Hockey-stick divergence of N(m, 1) and N(0, 1) at any real epsilon, by mpmath."""
    epsilon, m = mp.mpf(epsilon), mp.mpf(m)
    return mp.ncdf(m / 2 - epsilon / m) - mp.exp(epsilon) * mp.ncdf(-m / 2 - epsilon / m)


def exact_gaussian_epsilon(delta, m):
    """Inverse of exact_gaussian by bisection."""
    low, high = mp.mpf(0), mp.mpf(1)
    while exact_gaussian(high, m) > delta:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if exact_gaussian(middle, m) > delta else (low, middle)
    return high


def gaussian_log_delta(m):
    """Return the Gaussian profile, raised by 1e-9 to cover its own rounding."""

    def log_delta(epsilon):
        a = log_ndtr(m / 2 - epsilon / m)
        b = epsilon + log_ndtr(-m / 2 - epsilon / m)
        ratio = np.exp(np.minimum(b - a, 0.0))
        # Where the difference is lost to rounding, the first term alone is still a bound.
        return a + np.where(ratio < 1 - 1e-6, np.log1p(-np.minimum(ratio, 1 - 1e-6)), 0) + 1e-9

    return log_delta


def constant_log_delta(delta):
    return lambda epsilon: np.full(epsilon.shape, math.log(delta) if delta else -math.inf)


def hockey_stick(p, q, epsilon):
    """Return sum of (p - exp(epsilon) q)+ over outcomes, by mpmath."""
    x = mp.exp(mp.mpf(epsilon))
    return mp.fsum(max(mp.mpf(0), to_mpf(a) - x * to_mpf(b)) for a, b in zip(p, q, strict=True))


def to_mpf(value):
    value = Fraction(value)
    return mp.mpf(value.numerator) / value.denominator


def product(masses, count):
    return [math.prod(c) for c in itertools.product(masses, repeat=count)]


def exact_optimal_composition(epsilon, delta, count, total):
    """Kairouz, Oh and Viswanath's total delta at `total`, by mpmath."""
    with mp.workdps(DIGITS + int(count * epsilon)):
        epsilon, delta, total = mp.mpf(epsilon), mp.mpf(delta), mp.mpf(total)
        inner = mp.fsum(
            mp.binomial(count, i)
            * (mp.exp((count - i) * epsilon) - mp.exp(total + i * epsilon))
            / (1 + mp.exp(epsilon)) ** count
            for i in range(count + 1)
            if (count - 2 * i) * epsilon > total
        )
        return 1 - (1 - delta) ** count * (1 - inner)


def exact_delta(distribution, epsilon, count=1):
    """Composition of the masses as they are, in rational arithmetic: the slow oracle."""
    masses = [Fraction(float(p)) for p in distribution.probs]
    infinity, total = Fraction(distribution.infinity), sum(masses)
    composed = [Fraction(1)]
    for _ in range(count):
        longer = [Fraction(0)] * (len(composed) + len(masses) - 1)
        for i, a in enumerate(composed):
            for j, b in enumerate(masses):
                longer[i + j] += a * b
        composed = longer
    step = to_mpf(distribution.step)
    finite = mp.fsum(
        to_mpf(p) * -mp.expm1(mp.mpf(epsilon) - (count * distribution.offset + i) * step)
        for i, p in enumerate(composed)
        if (count * distribution.offset + i) * step > epsilon
    )
    return finite + to_mpf((total + infinity) ** count - total**count)


# ------------------------------------------------------------------------- Gaussian case


@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-25])
@pytest.mark.parametrize("count", [1, 2, 10, 100, 1000])
@pytest.mark.parametrize("m", [0.003, 0.1, 1.0])
def test_gaussian_composition_is_tight_and_never_below(m, count, delta):
    total_m = m * math.sqrt(count)
    if exact_gaussian(0, total_m) < delta:
        pytest.skip("epsilon = 0 suffices")
    epsilon = exact_gaussian_epsilon(delta, total_m)
    composed = compose_profile(gaussian_log_delta(m), count, delta=delta)
    for point in (float(epsilon), float(epsilon) * 0.7):
        exact = exact_gaussian(point, total_m)
        assert exact <= composed.delta(point) <= exact * 1.007
    assert epsilon <= composed.epsilon(delta) <= epsilon * 1.0002


def test_one_release_keeps_its_certified_profile():
    log_delta = gaussian_log_delta(0.7)
    composed = compose_profile(log_delta, 1, delta=1e-12)
    points = np.linspace(0.0, 5.0, 41)
    certified = np.exp(log_delta(points))
    computed = np.array([composed.delta(p) for p in points])
    np.testing.assert_array_less(certified, computed)
    np.testing.assert_allclose(computed, certified, rtol=1e-4)


@pytest.mark.parametrize("m", [0.05, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.02, 0.8, 4.0])
def test_symmetry_gives_the_curve_at_negative_epsilon(m, epsilon):
    # H(1/x) = 1 - 1/x + H(x)/x, exactly for the Gaussian pair, whose two orders agree ...
    x = mp.exp(epsilon)
    mirrored = 1 - 1 / x + exact_gaussian(epsilon, m) / x
    assert mp.almosteq(exact_gaussian(-epsilon, m), mirrored, rel_eps=mp.mpf(10) ** -50)
    # ... and the discrete distribution obeys it at its grid points.
    d = dominating_distribution(
        gaussian_log_delta(m), eps_min=0.0, eps_max=12 * m + m * m, step=epsilon / 64
    )
    losses = (d.offset + np.arange(d.probs.size)) * d.step
    at_negative = d.infinity + d.probs @ np.maximum(-np.expm1(-epsilon - losses), 0.0)
    assert at_negative == pytest.approx(
        -math.expm1(-epsilon) + math.exp(-epsilon) * d.delta(epsilon), rel=1e-10
    )
    assert at_negative >= exact_gaussian(-epsilon, m)


def test_masses_are_symmetric_and_sum_to_one():
    d = dominating_distribution(gaussian_log_delta(0.5), eps_min=0.1, eps_max=5.0, step=0.01)
    losses = (d.offset + np.arange(d.probs.size)) * d.step
    assert d.probs.sum() + d.infinity == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(d.probs[::-1], d.probs * np.exp(-losses), rtol=1e-9)


@pytest.mark.parametrize("count", [4, 30])
@pytest.mark.parametrize("m", [0.2, 1.0])
def test_agrees_with_dp_accounting(m, count):
    peer = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    pld = peer.from_gaussian_mechanism(1 / m, value_discretization_interval=1e-3 * m)
    pld = pld.self_compose(count)
    composed = compose_profile(gaussian_log_delta(m), count, delta=1e-8)
    for delta in (1e-2, 1e-5, 1e-8):
        epsilon = pld.get_epsilon_for_delta(delta)
        assert composed.epsilon(delta) == pytest.approx(epsilon, rel=2e-4)


# -------------------------------------------------- randomized response, optimal composition

GUARANTEES = [(1e-3, 0.0), (0.1, 1e-8), (0.5, 1e-3), (1.0, 0.0), (3.0, 1e-30), (50.0, 1e-6)]


@pytest.mark.parametrize("count", [1, 2, 7, 40])
@pytest.mark.parametrize(("epsilon", "delta"), GUARANTEES)
def test_optimal_composition_matches_the_formula(epsilon, delta, count):
    for total in np.linspace(0.0, 1.02 * count * epsilon, 7):
        exact = exact_optimal_composition(epsilon, delta, count, total)
        computed = optimal_composition_delta(epsilon, delta, count, total)
        assert exact <= computed <= exact * (1 + 1e-9) + 1e-290
        # The inverse: enough at the computed epsilon, too little just under it.
        wanted = min(float(exact) * 1.01, 0.5 * float(exact) + 0.5)
        inverse = optimal_composition_epsilon(epsilon, delta, count, wanted)
        assert exact_optimal_composition(epsilon, delta, count, inverse) <= wanted
        under = exact_optimal_composition(epsilon, delta, count, inverse * (1 - 1e-7))
        assert inverse == 0.0 or under > wanted * (1 - 1e-9)


def test_optimal_composition_of_many():
    # One evaluation of the binomial formula with large cancelling logarithms.
    exact = exact_optimal_composition(0.01, 1e-12, 2000, 3.0)
    assert exact <= optimal_composition_delta(0.01, 1e-12, 2000, 3.0) <= exact * (1 + 1e-8)


@pytest.mark.parametrize("count", [1, 2, 7, 40])
@pytest.mark.parametrize(("epsilon", "delta"), GUARANTEES)
def test_one_certified_point_composes_optimally(epsilon, delta, count):
    # Nothing but (epsilon, delta) is certified: connect-the-dots finds the worst mechanism.
    base = dominating_distribution(
        constant_log_delta(delta), eps_min=epsilon, eps_max=epsilon, step=epsilon
    )
    composed = base.compose(count, tail=0.0)
    for share in (0.0, 0.3, 0.55, 0.9, 1.0):
        exact = exact_optimal_composition(epsilon, delta, count, share * count * epsilon)
        computed = composed.delta(share * count * epsilon)
        assert exact <= computed <= exact * (1 + 1e-9)


@pytest.mark.parametrize("count", [2, 40])
@pytest.mark.parametrize(("epsilon", "delta"), GUARANTEES)
def test_chosen_grid_is_close_to_optimal_composition(epsilon, delta, count):
    target = 1e-7 + 2 * count * delta
    composed = compose_profile(
        constant_log_delta(delta), count, delta=target, eps_min=epsilon
    ).epsilon(target)
    optimal = optimal_composition_epsilon(epsilon, delta, count, target)
    assert optimal * (1 - 1e-12) <= composed <= optimal * 1.001


@pytest.mark.parametrize(("epsilon", "delta"), GUARANTEES)
@pytest.mark.parametrize("count", [1, 3, 100])
def test_optimal_composition_never_worse_than_basic(epsilon, delta, count):
    basic = 1 - (1 - delta) ** count
    assert optimal_composition_delta(epsilon, delta, count, count * epsilon * (1 + 1e-12)) <= (
        basic * (1 + 1e-9) + 1e-15
    )
    total = optimal_composition_epsilon(epsilon, delta, count, min(1.0, 2 * count * delta + 1e-9))
    assert total <= count * epsilon * (1 + 1e-12)


@pytest.mark.parametrize("count", [2, 10, 100])
@pytest.mark.parametrize("m", [0.05, 0.5, 3.0])
def test_profile_composition_never_worse_than_basic(m, count):
    log_delta = gaussian_log_delta(m)
    composed = compose_profile(log_delta, count, delta=1e-12)
    epsilons = np.linspace(0.0, 6 * m, 9)
    basic = count * np.exp(log_delta(epsilons))  # total epsilon: count * epsilons
    for epsilon, bound in zip(epsilons, basic, strict=True):
        if bound > 1e-12:
            assert composed.delta(count * epsilon) <= bound


def test_perfect_and_failing_mechanisms():
    assert optimal_composition_delta(0.0, 0.0, 5, 0.0) == 0.0
    assert optimal_composition_epsilon(0.0, 0.0, 5, 0.0) == 0.0
    assert optimal_composition_delta(0.3, 1.0, 2, 100.0) == 1.0
    assert optimal_composition_epsilon(0.3, 0.1, 2, 0.18) == math.inf
    perfect = compose_profile(constant_log_delta(0.0), 9, delta=1e-9)
    assert perfect.epsilon(1e-12) == 0.0
    uncertified = compose_profile(constant_log_delta(1.0), 9, delta=1e-9)
    assert uncertified.delta(50.0) == 1.0
    assert uncertified.epsilon(0.5) == math.inf


def test_pure_loss_is_exhausted_at_its_largest_value():
    twice = PrivacyLossDistribution(1000.0, -1, np.array([0.5, 0.0, 0.5]), 0.0).compose(
        2, tail=0.0
    )
    assert 2000.0 <= twice.epsilon(0.0) <= 2000.0 * (1 + 1e-14)
    # delta(eps) = 1 / 4 - exp(eps - 2000) / 4 = 1 / 8 at eps = 2000 - log 2; the steps are too
    # wide for exp, and a bound is all that is asked.
    assert 2000.0 - math.log(2.0) <= twice.epsilon(0.125) <= 2000.0


# -------------------------------------------------------------------- never below: enumeration

masses = st.lists(st.integers(1, 1000), min_size=2, max_size=4)


@st.composite
def pairs(draw):
    """Return a pair of distributions with few outcomes, with rational masses."""
    p = draw(masses)
    q = draw(st.lists(st.integers(0, 1000), min_size=len(p), max_size=len(p)).filter(any))
    return [Fraction(a, sum(p)) for a in p], [Fraction(b, sum(q)) for b in q]


def profile_of(p, q):
    """Certified profile of a pair: the larger order at each epsilon, rounded up."""

    def log_delta(epsilon):
        worst = [max(hockey_stick(p, q, e), hockey_stick(q, p, e)) for e in epsilon]
        return np.array([math.log(w) * (1 - 1e-15) + 1e-15 if w > 0 else -math.inf for w in worst])

    return log_delta


@settings(max_examples=60, deadline=None)
@given(
    pair=pairs(),
    count=st.integers(1, 4),
    step=st.floats(0.05, 2.0),
    eps_min=st.sampled_from([0.0, 0.2, 1.3]),
    share=st.floats(0.0, 1.1),
    tail=st.sampled_from([0.0, 1e-6, 1e-2]),
)
def test_never_below_the_product_distribution(pair, count, step, eps_min, share, tail):
    p, q = pair
    base = dominating_distribution(profile_of(p, q), eps_min=eps_min, eps_max=7.0, step=step)
    composed = base.compose(count, tail=tail)
    p_all, q_all = product(p, count), product(q, count)
    for total in (0.0, share * count * 7.0, share * count):
        exact = max(hockey_stick(p_all, q_all, total), hockey_stick(q_all, p_all, total))
        assert composed.delta(total) >= exact
    wanted = min(1.0, 0.9 * float(hockey_stick(p_all, q_all, 0.0)) + 1e-3)
    needed = composed.epsilon(wanted)
    if needed < math.inf:
        assert (
            max(hockey_stick(p_all, q_all, needed), hockey_stick(q_all, p_all, needed)) <= wanted
        )


@settings(max_examples=40, deadline=None)
@given(
    probs=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6).filter(any),
    infinity=st.sampled_from([0.0, 1e-20, 0.01]),
    offset=st.integers(-6, 3),
    step=st.sampled_from([0.01, 0.7, 3.0]),
    count=st.integers(1, 5),
    place=st.floats(0.0, 1.0),
)
def test_rounding_never_lowers_the_exact_convolution(probs, infinity, offset, step, count, place):
    scaled = np.array(probs) / (1.0001 * sum(probs))
    base = PrivacyLossDistribution(step, offset, scaled, infinity)
    composed = base.compose(count, tail=0.0)
    top = max(0.0, step * count * (offset + len(probs) - 1))
    for epsilon in (0.0, place * top, top):
        exact = exact_delta(base, epsilon, count)
        assert min(exact, 1) <= composed.delta(epsilon) <= exact * (1 + 1e-12) + 1e-14


def test_small_deltas_keep_their_relative_accuracy():
    # 1e-40 next to 1: an absolute error of 1e-16, as that of an FFT, would hide it.
    base = PrivacyLossDistribution(1.0, -1, np.array([0.6, 0.4, 0.0, 1e-40]), 0.0)
    exact = exact_delta(base, 3.0, 3)
    assert 0 < exact < 1e-39
    assert exact <= base.compose(3, tail=0.0).delta(3.0) <= exact * (1 + 1e-13)


def test_masses_that_underflow_are_charged():
    base = PrivacyLossDistribution(1.0, 0, np.array([0.9, 1e-200]), 0.0)
    assert base.compose(2, tail=0.0).delta(1.5) >= exact_delta(base, 1.5, 2)
    single = PrivacyLossDistribution(0.01, 1, np.array([0.9, 2e-308]), 0.0)
    assert single.delta(0.02 * (1 - 1e-15)) >= exact_delta(single, 0.02 * (1 - 1e-15))


def test_deltas_that_underflow_are_not_zero():
    # exp(-1000) is no double, and is no zero either.
    base = dominating_distribution(
        lambda e: np.full(e.shape, -1000.0), eps_min=800.0, eps_max=800.0, step=800.0
    )
    assert base.epsilon(0.0) == math.inf
    assert base.probs[0] > 0.0  # exp(-800)
    # The mass of the largest of 2000 losses is about exp(-1376).
    assert optimal_composition_delta(0.01, 0.0, 2000, 19.995) > 0.0


@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize("step", [0.003, 0.25, 2.0])
@mp.workdps(250)
def test_masses_are_those_of_the_chords_rounded_up(step, start):
    index = np.arange(start, 40)
    delta = np.exp(gaussian_log_delta(min(20 * step, 4.0))(index * step))
    kept, probs, mirrored, infinity = _composition._connect_the_dots(index, step, delta)
    # The curve's change of slope at x is the mass over x, by mpmath on the same deltas.
    assert infinity == delta[-1]
    losses = [to_mpf(step) * int(i) for i in index[kept]]
    x = [mp.exp(-loss) for loss in reversed(losses)] + [mp.exp(loss) for loss in losses]
    y = [to_mpf(d) for d in delta[kept]]
    y = [1 - 1 / b + d / b for b, d in zip(x[len(y) :], y, strict=True)][::-1] + y
    if start == 0:
        del x[len(kept)], y[len(kept)]
    masses = np.concatenate((mirrored[::-1][: len(x) - len(kept)], probs))
    slopes = [mp.mpf(0)] * (len(x) + 1)
    slopes[0] = (y[0] - 1) / x[0]
    for i in range(1, len(x)):
        slopes[i] = (y[i] - y[i - 1]) / (x[i] - x[i - 1])
    for i, mass in enumerate(masses):
        exact = x[i] * (slopes[i + 1] - slopes[i])
        assert exact <= mass <= exact * (1 + 1e-10)


def test_profile_is_evaluated_under_the_exact_grid_points():
    # delta decreases: a grid point rounded up would be charged too small a delta.
    seen = []

    def log_delta(epsilon):
        seen.extend(epsilon)
        return -epsilon

    dominating_distribution(log_delta, eps_min=0.0, eps_max=30.0, step=0.1)
    for index, epsilon in enumerate(seen):
        assert (
            Fraction(epsilon)
            <= Fraction(0.1) * index
            <= Fraction(epsilon) * (1 + Fraction(1, 10**15))
        )


@pytest.mark.parametrize("index", [1, 3, 10**6 + 1, 2**26 - 1, 2**27 + 1, 2**40 + 1])
def test_losses_are_exact_products(index):
    # Just under the loss, the curve is the rounding error of its product.
    for step in (0.1, 0.7, 1 / 3, math.pi * 1e-4):
        single = PrivacyLossDistribution(step, index, np.array([1.0]), 0.0)
        loss = Fraction(step) * index
        for relative in (-1e-9, -1e-14, -2e-16, 0.0):
            epsilon = index * step * (1 + relative)
            exact = max(mp.mpf(0), -mp.expm1(to_mpf(Fraction(epsilon) - loss)))
            slack = 0.0 if index < 2**26 else 1e-15 * epsilon
            assert exact <= single.delta(epsilon) <= exact * (1 + 1e-14) + slack + 1e-300
        assert loss <= Fraction(single.epsilon(0.0)) <= loss * (1 + Fraction(4, 10**15))


def test_grid_starts_in_the_certified_range():
    # Quotients eps_min / step that round down to an integer: the grid point under eps_min is
    # not certified.
    rounded = 0
    for step in np.linspace(0.1, 0.2, 50):
        for multiple in range(3, 9):
            eps_min = math.nextafter(multiple * step, math.inf)
            rounded += eps_min / step == multiple and Fraction(step) * multiple < Fraction(eps_min)
            d = dominating_distribution(
                constant_log_delta(0.1), eps_min=eps_min, eps_max=2.0, step=step
            )
            first = int(np.flatnonzero(d.probs)[-1]) + d.offset
            assert Fraction(step) * first >= Fraction(eps_min)
    assert rounded > 10


@settings(max_examples=40, deadline=None)
@given(
    probs=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=7).filter(any),
    offset=st.integers(-5, 3),
    step=st.floats(0.01, 3.0),
    drop=st.sampled_from([0.0, 0.05, 0.4]),
)
def test_coarser_and_shorter_distributions_dominate(probs, offset, step, drop):
    base = PrivacyLossDistribution(step, offset, np.array(probs) / sum(probs), 1e-9)
    shorter = base._shorten(drop)
    assert shorter.infinity <= 1e-9 + drop * (1 + 1e-12) + 1e-15
    for larger in (base._coarsen(), shorter, shorter._coarsen()):
        for index in range(0, max(0, offset + len(probs)) + 2):
            for epsilon in (index * step, (index + 0.3) * step):
                assert exact_delta(larger, epsilon) >= exact_delta(base, epsilon)
    # The coarser curve meets the finer one at its grid points.
    coarse = base._coarsen()
    for index in range(max(0, coarse.offset), coarse.offset + coarse.probs.size):
        exact = exact_delta(base, index * coarse.step)
        assert exact_delta(coarse, index * coarse.step) <= exact * (1 + 1e-13) + 1e-14


# ------------------------------------------------------------------------------ properties


def test_monotone_in_epsilon_and_count():
    log_delta = gaussian_log_delta(0.3)
    composed = [compose_profile(log_delta, count, delta=1e-10) for count in (1, 2, 3, 5, 8, 21)]
    epsilons = np.linspace(0.0, 4.0, 60)
    curves = np.array([[c.delta(e) for e in epsilons] for c in composed])
    resolved = curves > 1e-9
    assert (np.diff(curves, axis=1) < 0)[resolved[:, 1:]].all()
    assert (np.diff(curves, axis=0) > 0)[resolved[1:]].all()


def test_epsilon_inverts_delta():
    composed = compose_profile(gaussian_log_delta(0.3), 6, delta=1e-12)
    for delta in (0.2, 1e-3, 1e-7, 1e-12):
        epsilon = composed.epsilon(delta)
        assert composed.delta(epsilon) <= delta < composed.delta(epsilon * (1 - 1e-9))
    assert composed.epsilon(0.9) == 0.0
    assert composed.epsilon(0.0) == math.inf
    assert composed.delta(math.inf) == pytest.approx(composed.infinity)


def test_coarser_grid_is_larger():
    log_delta = gaussian_log_delta(0.5)
    curves = []
    for step in (0.0125, 0.025, 0.05, 0.1, 0.2):
        base = dominating_distribution(log_delta, eps_min=0.0, eps_max=6.0, step=step)
        composed = base.compose(5, tail=0.0)
        curves.append([composed.delta(e) for e in (0.5, 1.1, 3.0, 5.0)])
    assert (np.diff(curves, axis=0) > 0).all()
    assert all(
        c > exact_gaussian(e, 0.5 * 5**0.5)
        for c, e in zip(curves[0], (0.5, 1.1, 3.0, 5.0), strict=True)
    )


def test_long_arrays_are_coarsened_without_lowering_the_curve(monkeypatch):
    log_delta = gaussian_log_delta(0.4)
    fine = compose_profile(log_delta, 50, delta=1e-8)
    monkeypatch.setattr(_composition, "_MAX_SIZE", 300)
    base = dominating_distribution(log_delta, eps_min=0.0, eps_max=3.0, step=0.01)
    coarse = base.compose(50, tail=1e-14)
    assert coarse.probs.size <= 300
    assert coarse.step > base.step
    for epsilon in (1.0, 5.0, 15.0):
        exact = exact_gaussian(epsilon, 0.4 * 50**0.5)
        assert exact <= fine.delta(epsilon) < coarse.delta(epsilon) <= 1.5 * exact


@pytest.mark.parametrize("count", [1, 12])
def test_start_of_the_certified_range(count):
    # Certified from eps_min on only: between the curve of the full range and that of the
    # single point eps_min.
    m, eps_min = 0.3, 0.4
    log_delta = gaussian_log_delta(m)

    def partial(epsilon):
        assert (epsilon >= eps_min).all()
        return log_delta(epsilon)

    composed = compose_profile(partial, count, delta=1e-9, eps_min=eps_min)
    full = compose_profile(log_delta, count, delta=1e-9)
    at_start = math.exp(log_delta(np.array([eps_min]))[0])
    for epsilon in (0.5, 1.0, 2.0):
        point = optimal_composition_delta(eps_min, at_start, count, epsilon)
        assert full.delta(epsilon) * 0.999 <= composed.delta(epsilon) <= point * 1.001
    if count == 1:
        assert composed.delta(0.7) == pytest.approx(
            math.exp(log_delta(np.array([0.7]))[0]), rel=1e-4
        )
    # A threshold the profile reports itself (nothing certified under it) is found as well.
    thresholded = compose_profile(
        lambda e: np.where(e < eps_min, 0.0, log_delta(e)), count, delta=1e-9
    )
    assert thresholded.epsilon(1e-8) == pytest.approx(composed.epsilon(1e-8), rel=1e-3)


@pytest.mark.parametrize("count", [1, 10, 301])
def test_constant_part_of_delta_adds_up(count):
    # With probability p anything happens, else a Gaussian release:
    # delta(eps) = 1 - (1 - p)^K (1 - gaussian(eps)), in both orders.
    p, m = 1e-6, 0.2
    log_delta = gaussian_log_delta(m)
    composed = compose_profile(
        lambda e: np.logaddexp(math.log(p), math.log1p(-p) + log_delta(e)), count, delta=1e-9
    )
    none = -math.expm1(count * math.log1p(-p))
    assert composed.infinity == pytest.approx(none, rel=1e-5)
    for epsilon in (0.1, 0.8, 4.0):
        gaussian = float(exact_gaussian(epsilon, m * math.sqrt(count)))
        exact = none + (1 - none) * gaussian
        assert exact <= composed.delta(epsilon) <= exact * 1.004


def test_bounds_that_are_not_convex_are_replaced_by_their_hull():
    log_delta = gaussian_log_delta(0.5)
    rng = np.random.default_rng(0)
    noise = 0.05 * rng.random(401)
    bumpy = dominating_distribution(
        lambda e: np.minimum(log_delta(e) + noise, 0.0), eps_min=0.0, eps_max=4.0, step=0.01
    )
    smooth = np.exp(log_delta(0.01 * np.arange(401)))
    excess = np.array([bumpy.delta(0.01 * i) for i in range(401)]) / smooth - 1
    assert (excess >= -1e-8).all()  # the smooth bounds are raised by 1e-9 themselves
    assert (excess <= np.expm1(noise) + 1e-9).all()
    assert excess.mean() < 0.7 * noise.mean()


def test_lower_hull_against_all_chords():
    rng = np.random.default_rng(1)
    for _ in range(30):
        index = np.sort(rng.choice(40, size=8, replace=False))
        delta = rng.random(8) * np.exp(-0.1 * index)
        kept = _composition._lower_hull(index, 0.1, delta)
        x = np.append(-1.0, np.exp(0.1 * index))
        y = np.append(1.0, delta)
        # A point is a vertex iff it lies under every chord around it and no later point is
        # lower or equal.
        expected = [
            k - 1
            for k in range(1, 9)
            if all(
                y[k] < y[i] + (y[j] - y[i]) * (x[k] - x[i]) / (x[j] - x[i])
                for i in range(k)
                for j in range(k + 1, 9)
            )
            and all(y[k] < y[i] for i in range(k))
        ]
        assert kept.tolist() == expected


def test_result_does_not_depend_on_scale():
    # Losses from 1e-3 to 50: the relative accuracy is the same.
    for m, delta in ((1e-4, 1e-6), (1e-2, 1e-6), (1.0, 1e-6), (6.0, 1e-6)):
        epsilon = exact_gaussian_epsilon(delta, 2 * m)
        computed = compose_profile(gaussian_log_delta(m), 4, delta=delta).epsilon(delta)
        assert epsilon <= computed <= epsilon * 1.0002


# ---------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compose_profile(constant_log_delta(0.1), 0, delta=0.1), r"count=0"),
        (lambda: compose_profile(constant_log_delta(0.1), 2.5, delta=0.1), r"count=2.5"),
        (lambda: compose_profile(constant_log_delta(0.1), 2, delta=0.0), r"delta=0.0"),
        (lambda: compose_profile(constant_log_delta(0.1), 2, delta=math.nan), r"delta=nan"),
        (
            lambda: compose_profile(constant_log_delta(0.1), 2, delta=0.1, eps_min=-1.0),
            r"eps_min=-1.0",
        ),
        (
            lambda: compose_profile(constant_log_delta(0.1), 2, delta=0.1, eps_min=2e4),
            r"eps_min=20000.0",
        ),
        (lambda: compose_profile(lambda e: e * math.nan, 2, delta=0.1), r"NaN at epsilon=.*0\.0"),
        (lambda: compose_profile(lambda e: 0.0, 2, delta=0.1), r"shape"),
        (
            lambda: dominating_distribution(
                constant_log_delta(0.1), eps_min=1.0, eps_max=0.5, step=0.1
            ),
            r"eps_max=0.5",
        ),
        (
            lambda: dominating_distribution(
                constant_log_delta(0.1), eps_min=0.0, eps_max=0.5, step=0.0
            ),
            r"step=0.0",
        ),
        (lambda: optimal_composition_delta(-0.1, 0.0, 2, 1.0), r"epsilon=-0.1"),
        (lambda: optimal_composition_delta(math.inf, 0.0, 2, 1.0), r"epsilon=inf"),
        (lambda: optimal_composition_delta(0.1, 1.5, 2, 1.0), r"delta=1.5"),
        (lambda: optimal_composition_delta(0.1, 0.0, 2, math.nan), r"total_epsilon=nan"),
        (lambda: optimal_composition_epsilon(0.1, 0.0, 2, 1.5), r"total_delta=1.5"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ------------------------------------------------------------------ several kinds of releases

KINDS = (
    [(0.6, 1), (0.8, 1)],
    [(0.05, 40), (1.2, 2), (0.3, 7)],
    [(0.004, 3), (2.5, 1)],  # grids of very different scales
    [(0.02, 900), (0.021, 100)],
)


@pytest.mark.parametrize("delta", [1e-3, 1e-9])
@pytest.mark.parametrize("kinds", KINDS)
def test_gaussians_of_several_scales_compose_to_one(kinds, delta):
    # Ratios m_i, k_i times each: a Gaussian mechanism with ratio sqrt(sum k_i m_i^2).
    m = mp.sqrt(sum(count * mp.mpf(m) ** 2 for m, count in kinds))
    total = compose_profiles([(gaussian_log_delta(m), count) for m, count in kinds], delta=delta)
    exact = exact_gaussian_epsilon(delta, m)
    assert exact <= total.epsilon(delta) <= exact * 1.0005
    for epsilon in (0.0, 0.5 * float(exact), float(exact)):
        curve = exact_gaussian(epsilon, m)
        assert curve <= total.delta(epsilon) <= curve * 1.005


def test_one_kind_is_the_composition_of_equal_releases():
    profile = gaussian_log_delta(0.3)
    one = compose_profiles([(profile, 12)], delta=1e-6).epsilon(1e-6)
    two = compose_profiles([(profile, 5), (profile, 7)], delta=1e-6).epsilon(1e-6)
    assert one == pytest.approx(compose_profile(profile, 12, delta=1e-6).epsilon(1e-6), rel=1e-4)
    assert two == pytest.approx(one, rel=3e-4)


@settings(max_examples=40, deadline=None)
@given(first=pairs(), second=pairs(), counts=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_several_kinds_are_never_below_the_product_distribution(first, second, counts):
    kinds = [
        (profile_of(*pair), count) for pair, count in zip((first, second), counts, strict=True)
    ]
    total = compose_profiles(kinds, delta=1e-6)
    p, q = (
        [a * b for a in product(first[i], counts[0]) for b in product(second[i], counts[1])]
        for i in (0, 1)
    )
    for epsilon in (0.0, 0.3, 1.0, 4.0):
        exact = max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))
        assert total.delta(epsilon) >= exact


def test_a_constant_curve_among_others():
    # A release that does nothing at all (delta = 0 from epsilon = 0 on) changes nothing, and
    # one that fails with probability 1e-4 adds 1e-4 (1 - delta of the other).
    gaussian = gaussian_log_delta(1.0)
    alone = compose_profiles([(gaussian, 1)], delta=1e-5).delta(1.0)
    nothing = compose_profiles([(gaussian, 1), (constant_log_delta(0.0), 3)], delta=1e-5)
    failing = compose_profiles([(gaussian, 1), (constant_log_delta(1e-4), 1)], delta=1e-5)
    assert nothing.delta(1.0) == pytest.approx(alone, rel=2e-3)
    assert failing.delta(1.0) == pytest.approx(alone + 1e-4 * (1 - alone), rel=2e-3)


@pytest.mark.parametrize(
    ("kinds", "delta", "message"),
    [
        ([], 1e-5, "profiles"),
        ([(0.5, 0)], 1e-5, "count=0"),
        ([(0.5, 1.5)], 1e-5, "count=1.5"),
        ([(0.5, 1)], 0.0, "delta=0.0"),
        ([(0.5, 1)], 1.0, "delta=1.0"),
    ],
)
def test_several_kinds_refuse(kinds, delta, message):
    with pytest.raises((ValueError, TypeError), match=message):
        compose_profiles([(gaussian_log_delta(m), count) for m, count in kinds], delta=delta)


@mp.workdps(60)
@settings(max_examples=100, deadline=None)
@given(
    gaps=st.lists(st.floats(1e-6, 400.0), min_size=1, max_size=6),
    falls=st.lists(st.floats(0.0, 30.0), min_size=7, max_size=7),
    places=st.lists(st.floats(0.0, 1.2), min_size=1, max_size=8),
)
def test_chords_are_rounded_up(gaps, falls, places):
    points = np.concatenate(([0.0], np.cumsum(gaps)))
    deltas = np.exp(-np.cumsum(falls))[: points.size]
    at = np.array(places) * points[-1]
    found = np.exp(chords(points, deltas)(at))
    for e, value in zip(at.tolist(), found.tolist(), strict=True):
        e = min(e, float(points[-1]))
        i = min(int(np.searchsorted(points, e, side="right")) - 1, points.size - 2)
        a, b, x = (mp.exp(mp.mpf(v)) for v in (float(points[i]), float(points[i + 1]), e))
        high, low = mp.mpf(float(deltas[i])), mp.mpf(float(deltas[i + 1]))
        exact = high - (x - a) / (b - a) * (high - low)
        assert exact * (1 - mp.mpf(10) ** -15) <= value  # exp and log of the test itself
        assert value <= exact + high * mp.mpf(10) ** -12
