"""Bounds for fixed-size batches.

Oracles: enumeration of all steps of a record for small T (worst norms, laws, expectations, with
the Gaussian profile from mpmath); quadrature of the real one-step mechanism; the numbers of the
table for n = 5000, B = 125, T = 400, delta = 1e-5 that were computed independently (Theorem
E.1's formula, convex mixtures, Monte Carlo estimates with a standard error of 0.4%); and the
accountants of the package dp-accounting.
"""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import chisquare, norm

from sklearn_dpop.factorization import (
    BIFR,
    BSR,
    Dense,
    Identity,
    LambdaCGD,
    ToeplitzStrategy,
)
from sklearn_dpop.privacy.accounting import _energy_law, _without_replacement
from sklearn_dpop.privacy.accounting._energy_law import energy_law
from sklearn_dpop.privacy.accounting._monte_carlo import certify, stream_key
from sklearn_dpop.privacy.accounting._without_replacement import (
    ParticipationSummand,
    choose_participation_summand,
    convex_mixture_delta,
    exact_split_noise_multiplier,
    participation_of,
    participation_tail,
    subset_delta,
    theorem_e1_noise_multiplier,
    worst_case_norms,
)

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
RATE, STEPS = 0.025, 400
# Rows of the table: lambda, then one number per epsilon.
E1 = {
    0.0: (107.65, 53.82, 26.91, 13.46, 6.73),
    0.5: (215.30, 107.65, 53.82, 26.91, 13.46),
    0.9: (1076.49, 538.25, 269.12, 134.56, 67.28),
}
SPLIT = {
    0.0: (36.93, 19.57, 10.45, 5.66, 3.13),
    0.5: (72.02, 38.17, 20.38, 11.03, 6.10),
    0.9: (302.19, 159.87, 85.14, 45.99, 25.42),
}
CONVEX = {
    0.0: (24.61, 13.19, 7.13, 3.93, 2.22),
    0.5: (46.90, 25.17, 13.64, 7.52, 4.27),
    0.9: (174.89, 94.54, 51.64, 28.77, 16.53),
}
TRUE_LAW = {
    0.0: (24.61, 13.19, 7.13, 3.93, 2.22),
    0.5: (29.47, 15.81, 8.57, 4.73, 2.69),
    0.9: (72.86, 39.36, 21.48, 11.97, 6.88),
}
LAMBDAS = tuple(E1)


class Toeplitz(ToeplitzStrategy):
    """Any first column."""

    def __init__(self, column):
        self.column = tuple(column)

    def _column(self, n, inverse):
        assert not inverse
        return np.array(self.column[:n])

    apply_inverse = noise_stream = None


STRATEGIES = {
    "identity": Identity(),
    "lambda": LambdaCGD(0.7),
    "inverse banded": BIFR(0.8, 4),
    "banded": BSR(3),
    "momentum": BIFR(0.9, 2, momentum=0.9),  # coefficients that rise
    "signs": Toeplitz([1.0, -0.5, 0.25, -0.125, 0.06, -0.03, 0.01, 0.0, 0.0]),
    "bump": Toeplitz([1.0, 0.1, 0.1, 0.9, 0.0, 0.0, 0.3, 0.0, 0.0]),
    "dense": Dense(np.tril(np.random.default_rng(5).normal(size=(9, 9))) + 2.0 * np.eye(9)),
    "dense toeplitz": Dense(LambdaCGD(0.7).matrix(9)),
}
MONOTONE = ("identity", "lambda", "inverse banded", "banded", "signs", "dense toeplitz")


def strategy_of(lam):
    return LambdaCGD(lam) if lam else Identity()


def all_steps(n):
    return np.array(list(itertools.product([0.0, 1.0], repeat=n)))


def enumerated(strategy, n, rate):
    """Probability, number of participations and norm of |C| y for every y."""
    y = all_steps(n)
    k = y.sum(axis=1)
    norms = np.linalg.norm(y @ np.abs(strategy.matrix(n)).T, axis=1)
    return rate**k * (1 - rate) ** (n - k), k.astype(int), norms


def gaussian_profile(shift, epsilon):
    """Hockey-stick divergence of N(shift, 1) and N(0, 1), by mpmath with 40 digits."""
    if shift == 0:
        return 0.0
    with mp.workdps(40):
        s, e = mp.mpf(float(shift)), mp.mpf(epsilon)
        return float(mp.ncdf(s / 2 - e / s) - mp.exp(e) * mp.ncdf(-s / 2 - e / s))


def expected_profile(strategy, n, rate, kappa, epsilon, factor=1.0):
    p, _, norms = enumerated(strategy, n, rate)
    return sum(
        w * gaussian_profile(factor * s / kappa, epsilon) for w, s in zip(p, norms, strict=True)
    )


def calibrated(delta_of, low=0.3, high=3000.0):
    """Multiplier at which a decreasing function of it crosses DELTA."""

    def excess(log_kappa):
        return math.log(max(delta_of(math.exp(log_kappa)), 1e-300) / DELTA)

    return math.exp(brentq(excess, math.log(low), math.log(high), xtol=1e-7))


# ------------------------------------------------------------------ Theorem E.1


@pytest.mark.parametrize("lam", LAMBDAS)
def test_theorem_e1_reproduces_the_table(lam):
    got = [
        theorem_e1_noise_multiplier(e, DELTA, rate=RATE, n_steps=STEPS, correlation=lam)
        for e in EPSILONS
    ]
    np.testing.assert_array_equal(np.round(got, 2), E1[lam])


@pytest.mark.parametrize("n_steps", [1, 7, 400])
@pytest.mark.parametrize("threshold", [0, 0.5, 3, 17.6])
def test_tail_of_the_participations(n_steps, threshold):
    with mp.workdps(40):
        p = mp.mpf("0.025")
        exact = mp.fsum(
            mp.binomial(n_steps, k) * p**k * (1 - p) ** (n_steps - k)
            for k in range(math.floor(threshold) + 1, n_steps + 1)
        )
    assert participation_tail(threshold, 0.025, n_steps) == pytest.approx(float(exact), rel=1e-12)


# Expected numbers of participations; the tails are those of the binomial law of 400 steps.
@pytest.mark.parametrize(
    ("mean", "holds"), [(0.5, False), (2.0, False), (5.0, True), (20.0, True)]
)
def test_theorem_e1_checks_its_tail_exactly(mean, holds):
    tau = mean + math.sqrt(3 * mean * math.log(2 / DELTA))
    assert (participation_tail(tau, mean / STEPS, STEPS) <= DELTA / 2) == holds

    def call():
        return theorem_e1_noise_multiplier(
            1.0, DELTA, rate=mean / STEPS, n_steps=STEPS, correlation=0.5
        )

    if holds:
        assert call() > 0
    else:
        with pytest.raises(ValueError, match=r"takes part more than tau = .* needs .* 36\.6"):
            call()


def test_theorem_e1_checks_its_gaussian_step():
    arguments = {"rate": 0.1, "n_steps": 1000, "correlation": 0.0}
    assert theorem_e1_noise_multiplier(8.0, DELTA, **arguments) > 0
    with pytest.raises(ValueError, match=r"epsilon=200\.0 is too large for its Gaussian"):
        theorem_e1_noise_multiplier(200.0, DELTA, **arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon=0.0 must be positive"),
        ({"epsilon": math.nan}, "epsilon=nan"),
        ({"delta": 1.0}, r"delta=1.0 must be in \(0, 1\)"),
        ({"rate": 0.0}, r"rate=0.0 must be in \(0, 1\]"),
        ({"rate": math.nan}, "rate=nan"),
        ({"n_steps": 2.5}, "n_steps=2.5 must be an integer"),
        ({"correlation": 1.0}, r"correlation=1.0 must be in \[0, 1\)"),
    ],
)
def test_theorem_e1_refuses(change, message):
    arguments = {"epsilon": 1.0, "delta": 1e-5, "rate": 0.1, "n_steps": 400, "correlation": 0.5}
    with pytest.raises(ValueError, match=message):
        theorem_e1_noise_multiplier(**{**arguments, **change})


@pytest.mark.parametrize("lam", LAMBDAS)
def test_exact_split_reproduces_the_table(lam):
    participation = participation_of(strategy_of(lam), STEPS, RATE)
    got = [exact_split_noise_multiplier(e, DELTA, participation) for e in EPSILONS]
    np.testing.assert_allclose(got, SPLIT[lam], atol=0.005001)


# ------------------------------------------------------------------ worst places


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("n", [4, 9])
def test_worst_case_norms_against_all_patterns(name, n):
    strategy = STRATEGIES[name]
    if isinstance(strategy, Dense):
        strategy = Dense(strategy.matrix(9)[:n, :n])
    got = worst_case_norms(strategy, n, n)
    _, k, norms = enumerated(strategy, n, 0.5)
    worst = np.array([norms[k == count].max() for count in range(1, n + 1)])
    if name in MONOTONE:
        np.testing.assert_allclose(got, worst, rtol=1e-9)
    assert np.all(got >= worst * (1 - 1e-12))
    assert np.all(got <= 2.3 * worst)  # the loosest is "momentum", whose coefficients explode


def test_worst_case_norms_are_not_those_of_spread_steps():
    # A mistake that is easy to make: D_k^2 = k |c|^2 holds for participations that do not meet.
    norms = worst_case_norms(LambdaCGD(0.9), 400, 10)
    assert norms[9] ** 2 > 3.0 * 10 * norms[0] ** 2


def test_worst_case_norms_formula_for_powers():
    lam, n = 0.9, 400
    for k, norm_k in enumerate(worst_case_norms(LambdaCGD(lam), n, 50), start=1):
        state = [(1 - lam**t) / (1 - lam) for t in range(1, k + 1)]
        rest = sum((state[-1] * lam**j) ** 2 for j in range(1, n - k + 1))
        assert norm_k == pytest.approx(math.sqrt(sum(s * s for s in state) + rest), rel=1e-12)


@pytest.mark.parametrize("name", STRATEGIES)
def test_gram_matrix(name):
    strategy = STRATEGIES[name]
    magnitude = np.abs(strategy.matrix(9))
    got = participation_of(strategy, 9, 0.3).gram
    np.testing.assert_allclose(got, magnitude.T @ magnitude, rtol=1e-12, atol=1e-14)


def test_gram_by_lag_is_above_the_table(monkeypatch):
    strategy = STRATEGIES["bump"]
    table = participation_of(strategy, 9, 0.3).gram
    monkeypatch.setattr(_without_replacement, "_TABLE_LIMIT", 8)
    lags = participation_of(strategy, 9, 0.3).gram
    i = np.arange(9)
    assert lags.shape == (9,)
    assert np.all(lags[np.abs(i[:, None] - i)] >= table)
    assert lags[0] == pytest.approx(table[0, 0], rel=1e-12)


# ------------------------------------------------------------------ convex mixture


@pytest.mark.parametrize("lam", LAMBDAS)
def test_convex_mixture_reproduces_the_table(lam):
    participation = participation_of(strategy_of(lam), STEPS, RATE)
    got = [
        calibrated(lambda kappa, e=e: convex_mixture_delta(participation, kappa, [e])[0])
        for e in EPSILONS
    ]
    np.testing.assert_allclose(got, CONVEX[lam], atol=0.005001)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_convex_mixture_is_its_sum_and_above_the_true_law(name, factor):
    strategy, n, rate, kappa, epsilon = STRATEGIES[name], 9, 0.3, 2.0, 0.7
    participation = participation_of(strategy, n, rate)
    (got,) = convex_mixture_delta(participation, kappa, [epsilon], sensitivity_factor=factor)
    total = sum(
        math.comb(n, k)
        * rate**k
        * (1 - rate) ** (n - k)
        * gaussian_profile(factor * participation.norms[k - 1] / kappa, epsilon)
        for k in range(1, n + 1)
    )
    assert got == pytest.approx(total, rel=1e-8)
    assert got >= total
    assert got >= expected_profile(strategy, n, rate, kappa, epsilon, factor)


def test_replacing_costs_twice_the_noise():
    participation = participation_of(LambdaCGD(0.5), STEPS, RATE)
    once = convex_mixture_delta(participation, 25.0, EPSILONS)
    twice = convex_mixture_delta(participation, 50.0, EPSILONS, sensitivity_factor=2.0)
    np.testing.assert_allclose(once, twice, rtol=1e-9)


def test_truncation_of_the_number_of_participations_is_counted():
    participation = participation_of(Identity(), STEPS, RATE)
    assert len(participation.norms) < STEPS
    exact = participation_tail(len(participation.norms), RATE, STEPS)
    assert participation.tail >= max(exact, 1e-300)
    # No noise to speak of: delta is the probability to take part at all.
    (delta,) = convex_mixture_delta(participation, 1e-3, [1.0])
    assert 0 <= delta - (1 - (1 - RATE) ** STEPS) < 1e-8


def test_every_step_is_a_gaussian_mechanism():
    participation = participation_of(Identity(), 50, 1.0)
    (delta,) = convex_mixture_delta(participation, 20.0, [1.0])
    assert delta == pytest.approx(gaussian_profile(math.sqrt(50) / 20.0, 1.0), rel=1e-8)


@pytest.mark.parametrize("noise_multiplier", [0.0, -1.0, math.nan, math.inf])
def test_bad_noise_multiplier(noise_multiplier):
    participation = participation_of(Identity(), 4, 0.5)
    with pytest.raises(ValueError, match="noise_multiplier="):
        convex_mixture_delta(participation, noise_multiplier, [1.0])


# ------------------------------------------------------------------ the counterexample


def mixture_divergence(first, second, epsilon, kappa):
    """H of two mixtures [(weight, mean), ...] of normals with scale kappa, by quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    edges = np.linspace(-12 * kappa, 12 * kappa + 2, 20_001)
    half = 0.5 * np.diff(edges)[:, None]
    x = edges[:-1, None] + half * (1 + nodes)

    def density(mixture):
        return sum(w * norm.pdf(x, m, kappa) for w, m in mixture)

    excess = np.maximum(density(first) - math.exp(epsilon) * density(second), 0.0)
    return float((half * excess @ weights[:, None]).sum())


COUNTEREXAMPLE = [
    # rate, kappa, epsilon; true and claimed delta (section 3.2 of the project's notes)
    (0.025, 1.0, 1.0, 9.0e-4, 4.4e-7),
    (0.1, 2.0, 1.0, 2.3e-5, 1.1e-10),
    (0.5, 1.0, 0.1, 0.1734, 0.1625),
]


@pytest.mark.parametrize(("r", "kappa", "epsilon", "true", "claimed"), COUNTEREXAMPLE)
def test_pair_of_theorem_e10_is_no_bound_for_fixed_batches(r, kappa, epsilon, true, claimed):
    # One step, B - 1 other records with gradient -1 in each batch: the sum is -B + 2 y with the
    # record's gradient 1, and -B + y with 0 in its place.
    with_record = [(1 - r, 0.0), (r, 2.0)]
    zeroed = [(1 - r, 0.0), (r, 1.0)]
    nothing = [(1.0, 0.0)]
    real = mixture_divergence(with_record, zeroed, epsilon, kappa)
    pair = max(
        mixture_divergence(zeroed, nothing, epsilon, kappa),
        mixture_divergence(nothing, zeroed, epsilon, kappa),
    )
    assert real == pytest.approx(true, rel=0.03)
    assert pair == pytest.approx(claimed, rel=0.05)
    assert pair < real
    ours = convex_mixture_delta(participation_of(Identity(), 1, r), kappa, [epsilon])[0]
    amplified = subset_delta(kappa, r, 1, [epsilon], adjacency="zero-out")[0]
    other_order = mixture_divergence(zeroed, with_record, epsilon, kappa)
    assert min(ours, amplified) >= max(real, other_order)
    assert amplified <= 1.01 * real  # attained


# ------------------------------------------------------------------ amplified


@pytest.mark.parametrize(("r", "kappa", "epsilon"), [c[:3] for c in COUNTEREXAMPLE])
def test_subset_bound_is_attained_by_replacing_in_one_step(r, kappa, epsilon):
    # All other gradients are -1, and the record's is replaced: -1 by 1.
    exact = mixture_divergence([(1 - r, 0.0), (r, 2.0)], [(1.0, 0.0)], epsilon, kappa)
    (got,) = subset_delta(kappa, r, 1, [epsilon], adjacency="replace-one")
    assert exact * (1 - 1e-6) <= got <= exact * 1.01


@pytest.mark.parametrize("beta", [0.02, 0.5, 0.98])
@pytest.mark.parametrize("kappa", [0.7, 4.0, 60.0])
def test_mixture_profile_against_many_digits(kappa, beta):
    epsilons = np.array([0.01, 0.3, 3.0]) / kappa
    got = _without_replacement._log_mixture_profile(kappa, epsilons, np.full(3, math.log(beta)))
    for epsilon, log_delta in zip(epsilons, got, strict=True):
        with mp.workdps(60):
            k, e, b = mp.mpf(kappa), mp.mpf(float(epsilon)), mp.mpf(math.exp(math.log(beta)))

            def excess(x, k=k, e=e, b=b):
                return mp.npdf(x, 0, k) - mp.exp(e) * (
                    (1 - b) * mp.npdf(x, 2, k) + b * mp.npdf(x, 1, k)
                )

            # The ratio of the densities decreases: positive below one root.
            low, high = -60 * k, 60 * k
            for _ in range(200):
                middle = (low + high) / 2
                low, high = (middle, high) if excess(middle) > 0 else (low, middle)
            exact = mp.ncdf(low / k) - mp.exp(e) * (
                (1 - b) * mp.ncdf((low - 2) / k) + b * mp.ncdf((low - 1) / k)
            )
            exact = float(mp.log(exact))
        assert exact <= log_delta <= exact + 1e-10


def test_means_in_one_direction_are_worst():
    # The lemma behind the zero-out bound, on a grid in two dimensions.
    kappa, epsilon, beta = 1.0, 0.3, 0.4
    x = np.linspace(-8, 8, 801)
    cell = (x[1] - x[0]) ** 2
    point = np.stack(np.meshgrid(x, x, indexing="ij"))

    def density(mean):
        distance = (point[0] - mean[0]) ** 2 + (point[1] - mean[1]) ** 2
        return np.exp(-0.5 * distance / kappa**2) / (2 * math.pi * kappa**2)

    def divergence(long, short):
        mixture = (1 - beta) * density(long) + beta * density(short)
        return np.maximum(density((0, 0)) - math.exp(epsilon) * mixture, 0).sum() * cell

    worst = math.exp(
        _without_replacement._log_mixture_profile(
            kappa, np.array([epsilon]), np.array([math.log(beta)])
        )[0]
    )
    assert divergence((2, 0), (1, 0)) == pytest.approx(worst, rel=1e-4)
    for angle in (0.5, 1.5, 3.0):
        turned = (math.cos(angle), math.sin(angle))
        assert divergence((2, 0), turned) < worst * 0.999
        assert divergence((1.5, 0), turned) < divergence((2, 0), turned)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_subset_bound_of_full_batches_is_the_gaussian_mechanism(adjacency):
    factor = 1.0 if adjacency == "zero-out" else 2.0
    (got,) = subset_delta(10.0, 1.0, 9, [0.5], adjacency=adjacency)
    assert got == pytest.approx(gaussian_profile(factor * 3 / 10.0, 0.5), rel=5e-3)


@pytest.mark.parametrize("others", [(-1, -1), (-1, 1), (1, 1)])
@pytest.mark.parametrize(("r", "kappa", "epsilon"), [(0.1, 1.5, 0.5), (0.4, 2.0, 0.2)])
def test_subset_bound_of_two_steps_by_quadrature(others, r, kappa, epsilon):
    # All other gradients are -1, or 1, in a step; with the record (gradient 1), or 0 instead.
    nodes, weights = np.polynomial.legendre.leggauss(6)
    edges = np.linspace(-9 * kappa, 9 * kappa + 2, 301)
    half = 0.5 * np.diff(edges)[:, None]
    x, w = (edges[:-1, None] + half * (1 + nodes)).ravel(), (half * weights).ravel()

    def step(other, own):  # the batch sum without the record, up to a constant, is 0 or `other`
        return (1 - r) * norm.pdf(x, 0, kappa) + r * norm.pdf(x, own - other, kappa)

    first, second = (np.multiply.outer(*(step(o, own) for o in others)) for own in (1, 0))
    exact = max(
        float(w @ np.maximum(p - math.exp(epsilon) * q, 0.0) @ w)
        for p, q in ((first, second), (second, first))
    )
    (got,) = subset_delta(kappa, r, 2, [epsilon], adjacency="zero-out")
    assert got >= exact
    if others == (-1, -1):
        assert got <= 1.1 * exact


def test_subset_bound_is_between_two_accountants_of_a_peer():
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    accounting = pytest.importorskip("dp_accounting")
    rdp = pytest.importorskip("dp_accounting.rdp")
    kappa, n, batch = 4.0, 1000, 25
    rate = batch / n
    (got,) = subset_delta(kappa, rate, STEPS, [1.0], adjacency="replace-one")
    # Below: a record of gradient 1 among others of -1 that becomes one of them, in all steps.
    below = pld.from_gaussian_mechanism(
        kappa, sensitivity=2.0, sampling_prob=rate, value_discretization_interval=1e-3
    )
    assert got >= below.self_compose(STEPS).get_delta_for_epsilon(1.0) * 0.98
    # Above: Renyi accountant of the same sampling, another proof.
    accountant = rdp.RdpAccountant(neighboring_relation=accounting.NeighboringRelation.REPLACE_ONE)
    event = accounting.SampledWithoutReplacementDpEvent(
        n, batch, accounting.GaussianDpEvent(kappa / 2.0)
    )
    accountant.compose(accounting.SelfComposedDpEvent(event, STEPS))
    assert got <= accountant.get_delta(1.0)


def test_subset_bound_order_of_the_adjacencies_and_monotone():
    kappas = (2.0, 3.0, 5.0)
    zero = [subset_delta(k, RATE, 100, [0.5, 1.0], adjacency="zero-out") for k in kappas]
    replace = [subset_delta(k, RATE, 100, [0.5, 1.0], adjacency="replace-one") for k in kappas]
    assert np.all(np.array(zero) < np.array(replace))
    for rows in (zero, replace):
        assert np.all(np.diff(rows, axis=0) < 0)
        assert np.all(np.diff(rows, axis=1) < 0)
    larger = subset_delta(3.0, RATE, 200, [0.5, 1.0], adjacency="zero-out")
    assert np.all(larger > zero[1])


def test_subset_bound_needs_less_noise_than_unamplified():
    # n = 5000, B = 125, T = 400, C = I: 4.7 instead of 24.6 at epsilon = 0.5.
    got = calibrated(
        lambda kappa: subset_delta(kappa, RATE, STEPS, [0.5], adjacency="zero-out")[0], 1.0, 50.0
    )
    assert got == pytest.approx(4.70, abs=0.01)


def test_subset_bound_refuses():
    with pytest.raises(ValueError, match="adjacency='add-remove' must be 'zero-out' or"):
        subset_delta(1.0, 0.1, 1, [1.0], adjacency="add-remove")
    with pytest.raises(ValueError, match=r"epsilons=.* must be nonnegative"):
        subset_delta(1.0, 0.1, 1, [-1.0], adjacency="zero-out")
    with pytest.raises(ValueError, match=r"rate=1\.5"):
        subset_delta(1.0, 1.5, 1, [1.0], adjacency="zero-out")


# ------------------------------------------------------------------ law of the energy


@pytest.mark.parametrize(("lam", "rate"), [(0.0, 0.3), (0.3, 0.1), (0.8, 0.3), (0.99, 0.5)])
@pytest.mark.parametrize("kappa", [3.0, 8.0, 25.0])
def test_energy_law_bounds_the_enumerated_law(lam, rate, kappa):
    n = 10
    law = energy_law(lam, rate, n)
    assert law.masses.sum() + law.beyond == pytest.approx(1.0, abs=1e-12)
    for epsilon in (0.1, 1.0, 3.0):
        exact = expected_profile(strategy_of(lam), n, rate, kappa, epsilon)
        (got,) = law.delta(kappa, [epsilon])
        assert got >= exact * (1 - 1e-12)
        # Close where the profile is convex, i.e. delta is small.
        if 1e-10 < exact < 1e-3:
            assert got <= exact * 1.02


def test_energy_law_of_two_steps_by_hand():
    lam, rate = 0.5, 0.25
    law = energy_law(lam, rate, 2)
    # Energies 1 (second step only), 1.25 (first only), 0.25 + 2.25 + .. = 1 + 1.5^2 (both).
    energies, masses = [1.0, 1.25, 3.25], [0.1875, 0.1875, 0.0625]
    for epsilon in (0.5, 2.0):
        exact = sum(
            p * gaussian_profile(math.sqrt(e) / 10.0, epsilon)
            for e, p in zip(energies, masses, strict=True)
        )
        (got,) = law.delta(10.0, [epsilon])
        assert exact <= got <= 1.002 * exact
        (doubled,) = law.delta(20.0, [epsilon], sensitivity_factor=2.0)
        assert doubled == pytest.approx(got, rel=1e-12)


def test_majorant_of_the_profile_is_convex_and_above():
    v = np.linspace(1e-4, 60.0, 4001)
    for epsilon in (0.3, 2.0, 8.0):
        profile = np.array([gaussian_profile(math.sqrt(x), epsilon) for x in v[::40]])
        # The function of one point mass at a time is the majorant itself.
        majorant = np.array(
            [
                _energy_law._smallest_expectation(np.array([x]), np.ones(1), 0.0, epsilon)
                for x in v[::40]
            ]
        )
        assert np.all(majorant >= profile * (1 - 1e-12))
        assert np.all(np.diff(majorant, 2) >= -1e-12 * majorant.max())
        small = v[::40] < 2 * (math.sqrt(1 + epsilon**2) - 1)
        np.testing.assert_allclose(majorant[small], profile[small], rtol=1e-9)


@pytest.mark.parametrize("lam", LAMBDAS)
def test_energy_law_reproduces_the_table(lam):
    law = energy_law(lam, RATE, STEPS)
    got = [calibrated(lambda kappa, e=e: law.delta(kappa, [e])[0]) for e in EPSILONS]
    np.testing.assert_allclose(got, TRUE_LAW[lam], rtol=4e-3)


def test_energy_law_without_correlation_is_the_convex_mixture():
    law = energy_law(0.0, RATE, STEPS)
    participation = participation_of(Identity(), STEPS, RATE)
    exact = convex_mixture_delta(participation, 13.19, EPSILONS)
    got = law.delta(13.19, EPSILONS)
    assert np.all(got >= exact * (1 - 1e-8))
    np.testing.assert_allclose(got[:3], exact[:3], rtol=0.05)


@pytest.mark.parametrize("lam", [-0.1, 0.9999, math.nan])
def test_energy_law_refuses(lam):
    with pytest.raises(ValueError, match=r"correlation=.* must be between 0 and 0\.999"):
        energy_law(lam, 0.1, 10)


# ------------------------------------------------------------------ Monte Carlo


def test_subsets_are_uniform():
    rng = np.random.default_rng(0)
    steps = np.sort(_without_replacement._subsets(rng, 6, 3, 40_000), axis=0)
    codes = (1 << steps).sum(axis=0)
    _, counts = np.unique(codes, return_counts=True)
    assert len(counts) == math.comb(6, 3)
    assert chisquare(counts).pvalue > 1e-6


def summand_of(strategy, n, rate, kappa, proposal, factor=1.0):
    participation = participation_of(strategy, n, rate)
    return ParticipationSummand(participation, kappa, factor, np.asarray(proposal, dtype=float))


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_draws_have_the_right_mean_and_supremum(name, factor):
    n, rate, kappa = 9, 0.3, 2.0
    proposal = np.array([1, 2, 3, 4, 5, 4, 3, 2, 1]) / 25  # nothing like the binomial law
    summand = summand_of(STRATEGIES[name], n, rate, kappa, proposal, factor)
    values = summand.draw(np.random.default_rng(1), 40_000)
    for epsilon in (0.3, 2.0):
        x = values(epsilon)
        exact = expected_profile(STRATEGIES[name], n, rate, kappa, epsilon, factor)
        assert abs(x.mean() - exact) < 5 * x.std() / math.sqrt(len(x)) + 1e-9 * exact
        assert x.max() <= summand.bound(epsilon) * (1 + 1e-12)
        if name in MONOTONE:  # the norms are attained, and were drawn
            assert x.max() >= 0.98 * summand.bound(epsilon)


def test_numbers_that_are_not_drawn_are_bounded():
    n, rate, kappa, epsilon = 9, 0.3, 2.0, 0.5
    summand = summand_of(Identity(), n, rate, kappa, [0, 0.2, 0.3, 0.3, 0.2, 0, 0, 0, 0])
    x = summand.draw(np.random.default_rng(2), 40_000)(epsilon)
    exact = expected_profile(Identity(), n, rate, kappa, epsilon)
    assert abs(x.mean() - exact) < 5 * x.std() / math.sqrt(len(x)) + 1e-8
    assert x.max() <= summand.bound(epsilon) * (1 + 1e-12)


def test_energies_by_lag_are_above_the_exact_ones(monkeypatch):
    strategy, n = LambdaCGD(0.9), 12
    exact = participation_of(strategy, n, 0.3)
    monkeypatch.setattr(_without_replacement, "_TABLE_LIMIT", 8)
    by_lag = participation_of(strategy, n, 0.3)
    for k in (1, 4, 12):
        one = _without_replacement._energies(exact, np.random.default_rng(k), k, 500)
        other = _without_replacement._energies(by_lag, np.random.default_rng(k), k, 500)
        assert np.all(other >= one * (1 - 1e-12))
        assert np.all(other <= exact.norms[k - 1] ** 2)


def test_certified_bound_is_above_the_enumerated_law():
    strategy, n, rate, kappa, epsilon = LambdaCGD(0.8), 10, 0.2, 15.0, 1.0
    participation = participation_of(strategy, n, rate)
    summand, moments = choose_participation_summand(
        participation, kappa, epsilon, 7, n_draws=200_000, failure_probability=1e-6
    )
    exact = expected_profile(strategy, n, rate, kappa, epsilon)
    bound = certify(
        summand,
        np.array([epsilon]),
        moments.tilts(200_000, 1e-6),
        stream_key({"kappa": kappa}, "verify"),
        n_draws=200_000,
        failure_probabilities=np.array([1e-6]),
    )
    assert exact < bound.upper[0] < 1.05 * exact
    assert abs(bound.estimate[0] - exact) < 5 * bound.standard_error[0]


@pytest.mark.parametrize(("lam", "column"), [(0.5, 0), (0.9, 1), (0.9, 4)])
def test_draws_reproduce_the_table(lam, column):
    # 0.4% of the multiplier is up to 10% of delta.
    epsilon, kappa = EPSILONS[column], TRUE_LAW[lam][column]
    participation = participation_of(strategy_of(lam), STEPS, RATE)
    _, moments = choose_participation_summand(
        participation, kappa, epsilon, 3, n_draws=10**6, failure_probability=1e-8
    )
    assert abs(moments.mean[0] - DELTA) < 0.1 * DELTA + 5 * moments.standard_error[0]
    # A million draws are expected to certify delta within a few per cent of the multiplier.
    assert moments.predicted(10**6, 1e-8)[0] < 1.6 * DELTA
    assert moments.bound[0] < 0.2


def test_draws_agree_with_the_energy_law():
    lam, epsilon, kappa = 0.7, 1.0, 22.0
    participation = participation_of(LambdaCGD(lam), 200, 0.04)
    _, moments = choose_participation_summand(
        participation, kappa, epsilon, 3, n_draws=10**6, failure_probability=1e-8
    )
    (law,) = energy_law(lam, 0.04, 200).delta(kappa, [epsilon])
    assert abs(moments.mean[0] - law) < 5 * moments.standard_error[0] + 0.01 * law
