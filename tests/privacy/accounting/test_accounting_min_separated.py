"""Draws for min-separated sampling.

Oracles: enumeration of all patterns by the sampler's definition (a counter of the steps to rest),
three-dimensional quadrature of the divergences, dp-accounting at separation 1, the mixture of
balls in bins at probability 1, and the batches of Schedule.  Monte Carlo means are compared at 5
standard errors with fixed seeds; with fresh seeds a comparison would fail by chance with
probability 6e-7.
"""

import math
from functools import partial

import numpy as np
import pytest
from scipy.linalg import toeplitz
from scipy.special import logsumexp
from scipy.stats import chi2

from sklearn_dpop.privacy.accounting import Schedule
from sklearn_dpop.privacy.accounting._automaton import forward_log_ratio
from sklearn_dpop.privacy.accounting._chain_summands import AddSummand, Boost, RemoveSummand
from sklearn_dpop.privacy.accounting._min_separated import (
    backward_log_ratio,
    min_separated_chain,
    min_separated_summand,
)
from sklearn_dpop.privacy.accounting._power_tilt import PowerTilt

ERRORS = 5.0  # standard errors


# --- oracles ---------------------------------------------------------------------------------


def patterns_of(separation, probability, n_steps, warm=True):
    """Probability of each possible pattern of participation, {tuple of 0/1: probability}."""
    b, p = separation, probability
    law = {((), 0): 1.0 / (1.0 + (b - 1) * p) if warm else 1.0}
    if warm:
        law |= {((), rest): p / (1.0 + (b - 1) * p) for rest in range(1, b)}
    for _ in range(n_steps):
        new = {}
        for (pattern, rest), weight in law.items():
            moves = [(0, rest - 1, 1.0)] if rest else [(0, 0, 1.0 - p), (1, b - 1, p)]
            for y, after, chance in moves:
                key = ((*pattern, y), after)
                new[key] = new.get(key, 0.0) + weight * chance
        law = new
    total = {}
    for (pattern, _), weight in law.items():
        total[pattern] = total.get(pattern, 0.0) + weight
    return {k: v for k, v in total.items() if v > 0.0}


def mixture_of(coef, separation, probability, n_steps, **kwargs):
    """Means C y, shape (n_patterns, T), and their probabilities."""
    law = patterns_of(separation, probability, n_steps, **kwargs)
    c = np.zeros(n_steps)
    c[: len(coef)] = coef[:n_steps]
    matrix = toeplitz(c, np.zeros(n_steps))
    return np.array(list(law), dtype=float) @ matrix.T, np.array(list(law.values()))


def log_ratio_of(means, weights, points, sigma):
    exponents = (means @ points - 0.5 * (means**2).sum(axis=1)[:, None]) / sigma**2
    return logsumexp(exponents, axis=0, b=weights[:, None])


def quadrature(means, weights, sigma, epsilon, n=121):
    """H_eps(P || Q) and H_eps(Q || P) in three dimensions by the trapezoidal rule."""
    x = np.linspace(-6.5 * sigma, 6.5 * sigma + means.max(), n)
    points = np.stack([g.ravel() for g in np.meshgrid(x, x, x, indexing="ij")])
    q = np.exp(-0.5 * (points**2).sum(axis=0) / sigma**2) * (2.0 * math.pi * sigma**2) ** -1.5
    exponents = (means @ points - 0.5 * (means**2).sum(axis=1)[:, None]) / sigma**2
    p = q * (weights @ np.exp(exponents))
    cell, e = (x[1] - x[0]) ** 3, math.exp(epsilon)
    return np.maximum(p - e * q, 0.0).sum() * cell, np.maximum(q - e * p, 0.0).sum() * cell


def mean_of(summand, epsilon, size, seed=0):
    x = summand.draw(np.random.default_rng(seed), size)(epsilon)
    assert x.shape == (size,)
    assert x.max() <= summand.bound(epsilon) * (1.0 + 1e-12)
    return x.mean(), x.std() / math.sqrt(size)


CASES = [  # coef, separation, probability, n_steps
    ([1.0], 1, 0.3, 7),
    ([1.0, 0.5], 2, 0.4, 8),
    ([1.0, 0.6, 0.2], 3, 0.25, 9),
    ([1.0, 0.5], 4, 0.5, 9),
    ([0.7, 0.9], 3, 0.2, 1),
    ([1.0, 0.5, 0.3, 0.2], 4, 1.0, 9),
    ([1.0, 0.5, 0.3, 0.2], 6, 0.1, 4),
]


# --- chain and likelihood ratio --------------------------------------------------------------


@pytest.mark.parametrize(("coef", "separation", "probability", "n_steps"), CASES)
@pytest.mark.parametrize("recursion", [backward_log_ratio, forward_log_ratio])
def test_recursions_are_the_mixture_over_all_patterns(
    recursion, coef, separation, probability, n_steps
):
    sigma = 0.8
    means, weights = mixture_of(coef, separation, probability, n_steps)
    chain = min_separated_chain(coef, separation, probability)
    points = 2.0 * sigma * np.random.default_rng(0).standard_normal((n_steps, 100)) + 0.5
    expected = log_ratio_of(means, weights, points, sigma)
    np.testing.assert_allclose(recursion(chain, points, sigma), expected, rtol=1e-12, atol=1e-11)
    if separation > 1:
        cold = mixture_of(coef, separation, probability, n_steps, warm=False)
        assert np.abs(log_ratio_of(*cold, points, sigma) - expected).max() > 0.01


def test_recursions_agree_over_many_steps():
    sigma, coef = 1.5, 0.8 ** np.arange(12)
    chain = min_separated_chain(coef, 15, 0.1)
    rng = np.random.default_rng(1)
    points = chain.draw(rng, 200, 60) + sigma * rng.standard_normal((200, 60))
    np.testing.assert_allclose(
        backward_log_ratio(chain, points, sigma),
        forward_log_ratio(chain, points, sigma),
        rtol=1e-11,
        atol=1e-11,
    )
    boosted = chain.scaled(1.7)
    np.testing.assert_allclose(
        backward_log_ratio(boosted, points, sigma),
        forward_log_ratio(boosted, points, sigma),
        rtol=1e-11,
        atol=1e-11,
    )


@pytest.mark.parametrize(("separation", "probability"), [(1, 0.2), (4, 0.3), (5, 1.0)])
def test_the_start_is_stationary(separation, probability):
    # Every step takes the record with probability 1 / (b - 1 + 1/p), the first one included.
    chain = min_separated_chain([1.0], separation, probability)
    mean, _ = chain.mean_and_energy(30)
    expected = 1.0 / (separation - 1 + 1.0 / probability)
    np.testing.assert_allclose(mean, expected, rtol=1e-12)


def test_batches_of_the_schedule_follow_the_chain():
    # One record's pattern in 6 steps, for 60,000 records, against the enumeration: chi-square
    # at a false-alarm probability of 1e-6.
    schedule = Schedule(60_000, 12_000, 2, "min_separated", separation=3)
    taken = np.zeros((60_000, 6), dtype=int)
    for step, batch in zip(range(6), schedule.batches(np.random.default_rng(2)), strict=False):
        taken[batch, step] = 1
    counts = {}
    for pattern in map(tuple, taken.tolist()):
        counts[pattern] = counts.get(pattern, 0) + 1

    def statistic(law):
        return sum((counts.get(k, 0) - 60_000 * v) ** 2 / (60_000 * v) for k, v in law.items())

    p = schedule.participation_probability
    law = patterns_of(3, p, 6)
    assert set(counts) <= set(law)
    assert statistic(law) < chi2.isf(1e-6, len(law) - 1)
    assert statistic(patterns_of(3, p, 6, warm=False)) > 100 * len(law)


def test_probability_one_is_balls_in_bins():
    # P = 1/b sum_i N(m_i), m_i the sum of the columns i, i + b, ... (Lemma 3.2 of 2410.06266).
    b, n_steps, sigma = 4, 12, 1.1
    coef = np.array([1.0, 0.7, 0.2])
    c = np.concatenate([coef, np.zeros(n_steps)])
    means = np.zeros((b, n_steps))
    for i in range(b):
        for start in range(i, n_steps, b):
            means[i, start:] += c[: n_steps - start]
    points = np.random.default_rng(3).standard_normal((n_steps, 50)) * 2.0
    expected = log_ratio_of(means, np.full(b, 1.0 / b), points, sigma)
    chain = min_separated_chain(coef, b, 1.0)
    np.testing.assert_allclose(backward_log_ratio(chain, points, sigma), expected, rtol=1e-11)


def test_points_too_far_out_are_marked():
    chain = min_separated_chain([1.0, 0.5], 3, 0.2)
    points = np.zeros((5, 3))
    points[2, 1] = 700.0
    assert np.isnan(backward_log_ratio(chain, points, 1.0)).tolist() == [False, True, False]


# --- draws -----------------------------------------------------------------------------------


def summands_of(coef, separation, probability, n_steps, sigma):
    """Draws of both directions with several proposals."""
    chain = min_separated_chain(coef, separation, probability)
    common = (chain, n_steps, sigma, partial(backward_log_ratio, sigma=sigma))
    mean = chain.mean_and_energy(n_steps)[0]
    boosts = [Boost(chain.scaled(1.4), 1.5 * mean), Boost(chain.scaled(2.0), 0.0 * mean)]
    tilts = [PowerTilt(chain, n_steps, sigma, a) for a in (1, 2, 3)]
    remove = [RemoveSummand(*common, tilt=t, boosts=b) for t in tilts for b in ([], boosts)]
    add = [AddSummand(*common, shift=c, odds=o) for c, o in ((0.0, 1.0), (0.8, 1.0), (0.8, 0.5))]
    return remove, add


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_means_of_draws_at_all_proposals_are_the_divergences(epsilon):
    coef, separation, probability, sigma = [1.0, 0.5], 2, 0.35, 0.8
    mixture = mixture_of(coef, separation, probability, 3)
    exact = quadrature(*mixture, sigma, epsilon)
    assert exact[0] > 1.1 * exact[1] > 0.0  # a swap of P and Q shows
    cold = quadrature(*mixture_of(coef, separation, probability, 3, warm=False), sigma, epsilon)
    for summands, expected, other in zip(
        summands_of(coef, separation, probability, 3, sigma), exact, cold, strict=True
    ):
        for summand in summands:
            mean, error = mean_of(summand, epsilon, 60_000)
            tolerance = ERRORS * error + 2e-3 * expected  # of the quadrature
            assert mean == pytest.approx(expected, abs=tolerance)
            assert error < 0.03 * expected
            assert abs(other - expected) > tolerance  # a cold start shows


@pytest.mark.parametrize(("sigma", "epsilon"), [(1.0, 1.0), (2.0, 0.3)])
def test_separation_one_agrees_with_dp_accounting(sigma, epsilon):
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    one = pld.from_gaussian_mechanism(sigma, value_discretization_interval=1e-4, sampling_prob=0.1)
    many = one.self_compose(20)
    for direction, pmf in (("remove", many._pmf_remove), ("add", many._pmf_add)):
        delta = pmf.get_delta_for_epsilon(epsilon)
        means = [
            mean_of(
                min_separated_summand(
                    [1.0], 1, 0.1, 20, s, direction=direction, target_epsilon=epsilon
                ),
                epsilon,
                40_000,
            )
            for s in (sigma, 0.95 * sigma)
        ]
        assert means[0][0] == pytest.approx(delta, abs=ERRORS * means[0][1])
        assert means[1][0] - delta > ERRORS * means[1][1]  # 5 % less noise shows


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("separation", "probability"), [(6, 0.1), (8, 1.0)])
def test_bound_is_never_exceeded(direction, separation, probability):
    summand = min_separated_summand(
        [1.0, 0.5, 0.25],
        separation,
        probability,
        40,
        1.5,
        direction=direction,
        target_epsilon=1.5,
    )
    values = summand.draw(np.random.default_rng(4), 100_000)
    for epsilon in (0.0, 0.5, 1.5, 3.0):
        x = values(epsilon)
        assert x.min() >= 0.0
        assert x.max() <= summand.bound(epsilon)
        assert epsilon > 1.0 or x.max() > 0.0


@pytest.mark.parametrize(
    ("separation", "probability", "sigma"), [(10, 1 / 31, 2.1), (20, 1 / 21, 2.1), (40, 1.0, 3.2)]
)
def test_chosen_proposal_has_a_small_supremum_and_variance(separation, probability, sigma):
    summand = min_separated_summand(
        0.5 ** np.arange(8),
        separation,
        probability,
        200,
        sigma / math.sqrt(2.0),
        direction="remove",
        target_epsilon=2.0,
    )
    x = summand.draw(np.random.default_rng(5), 20_000)(2.0)
    assert summand.bound(2.0) < 0.15
    assert (x @ x) / len(x) < 100.0 * x.mean() ** 2


def test_more_separation_costs_less_noise_at_the_same_rate():
    # All take a record in one of 20 steps on average.
    deltas = []
    for separation in (3, 10):
        summand = min_separated_summand(
            [1.0, 0.5, 0.25],
            separation,
            1.0 / (20 - separation + 1),
            100,
            1.8,
            direction="remove",
            target_epsilon=1.5,
        )
        deltas.append(mean_of(summand, 1.5, 30_000))
    assert deltas[0][0] - deltas[1][0] > ERRORS * math.hypot(deltas[0][1], deltas[1][1])


# --- input -----------------------------------------------------------------------------------


def test_zeros_at_the_end_of_the_column_are_dropped():
    chain = min_separated_chain([1.0, 0.5, 0.0, 0.0, 0.0], 2, 0.1)
    np.testing.assert_array_equal(chain.coef, [1.0, 0.5])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coef": [1.0, 0.5, 0.1]}, r"3 entries up to its last nonzero one and separation=2"),
        ({"coef": [1.0, -0.5]}, r"coef must be finite, nonnegative and not all zero"),
        ({"coef": [math.nan]}, r"coef must be finite"),
        ({"coef": [0.0]}, r"not all zero"),
        ({"separation": 0}, r"separation=0 must be a positive integer"),
        ({"probability": 0.0}, r"probability=0.0 must be above 0 and at most 1"),
        ({"probability": 1.5}, r"probability=1.5 must be"),
        ({"n_steps": 0}, r"n_steps=0 must be a positive integer"),
        ({"sigma": -1.0}, r"sigma=-1.0 must be a positive number"),
        ({"direction": "up"}, r"direction='up' must be 'remove' or 'add'"),
        ({"target_epsilon": math.inf}, r"target_epsilon=inf must be a nonnegative number"),
    ],
)
def test_bad_input_is_refused(change, message):
    good = {"coef": [1.0, 0.5], "separation": 2, "probability": 0.1, "n_steps": 5, "sigma": 1.0}
    arguments = {**good, "direction": "add", "target_epsilon": 1.0, **change}
    with pytest.raises(ValueError, match=message):
        min_separated_summand(**arguments)


def test_little_noise_gives_a_useless_bound_but_no_failure():
    for direction in ("remove", "add"):
        summand = min_separated_summand(
            [1.0, 0.5], 2, 0.1, 50, 0.03, direction=direction, target_epsilon=1.0
        )
        x = summand.draw(np.random.default_rng(0), 200)(1.0)
        assert np.all(np.isfinite(x))
        assert 0.5 < x.mean() <= summand.bound(1.0)
