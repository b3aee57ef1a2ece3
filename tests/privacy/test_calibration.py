"""Calibration: round trips, monotonicity, extremes, refusals."""

import math
import pickle
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_dpop.privacy import (
    calibrate_objective_perturbation,
    gaussian_noise_multiplier,
    softplus_constants,
)
from sklearn_dpop.privacy._certificate import ObjectivePerturbationCertificate
from sklearn_dpop.privacy._loss_constants import LossConstants

# Limits of Theorem C.13 (tests/data/objective_perturbation.json), replace-one.
LIMITS = {(0.1, 10): 42.1833635396781, (1.0, 100): 3.90539365168086, (8.0, 100): 0.623407559704516}


def test_example_48_needs_fewer_iterations_than_the_paper():
    certificate = calibrate_objective_perturbation(
        10**6, 10**4, 1.0, 1e-7, calibration="tight", mu=1e-2, sigma=1e-5
    )
    assert certificate.n_iter <= 514  # paper: 519 at its fixed radii
    assert certificate.delta_at(1.0) <= 1e-7
    with pytest.raises(ValueError, match=r"does not certify epsilon=1\.0"):
        calibrate_objective_perturbation(
            10**6, 10**4, 1.0, 1e-7, calibration="tight", mu=1e-2, sigma=1e-5,
            n_iter=certificate.n_iter - 1,
        )  # fmt: skip


@pytest.mark.parametrize(("epsilon", "n_mu"), list(LIMITS))
def test_noise_is_within_one_percent_of_the_limit(epsilon, n_mu):
    n = 10_000
    certificate = calibrate_objective_perturbation(
        n, 20, epsilon, 1e-5, calibration="tight", mu=n_mu / n
    )
    limit = LIMITS[epsilon, n_mu]
    assert gaussian_noise_multiplier(epsilon, 1e-5) <= certificate.noise_multiplier
    assert certificate.noise_multiplier <= 1.011 * limit


def test_noise_at_the_issue_s_example():
    # (1, 1e-5), n mu = 100: the corollary has 19.76, the exact Gaussian mechanism 3.73.
    tight = calibrate_objective_perturbation(10_000, 20, 1.0, 1e-5, calibration="tight", mu=0.01)
    corollary = calibrate_objective_perturbation(10_000, 20, 1.0, 1e-5)
    assert 3.7306 <= tight.noise_multiplier <= 3.95
    assert corollary.noise_multiplier == pytest.approx(19.76, abs=0.005)


def test_smallest_automatic_n():
    certificate = calibrate_objective_perturbation(
        5000, 10, 1.0, 1e-5, calibration="tight", mu=0.02
    )
    fewer = calibrate_objective_perturbation(
        5000, 10, 1.0, 1e-5, calibration="tight", mu=0.02, n_iter=certificate.n_iter - 1
    )
    many = calibrate_objective_perturbation(
        5000, 10, 1.0, 1e-5, calibration="tight", mu=0.02, n_iter=100_000
    )
    assert certificate.sigma <= 1.01 * many.sigma * (1 + 1e-9) < fewer.sigma


@settings(deadline=None, max_examples=15)
@given(
    n=st.integers(2, 10**9),
    d=st.integers(1, 10**7),
    epsilon=st.floats(1e-3, 50.0),
    log_delta=st.floats(-69.0, -3.0),
    adjacency=st.sampled_from(["replace-one", "zero-out"]),
)
def test_tight_round_trip_over_the_whole_range(n, d, epsilon, log_delta, adjacency):
    delta = math.exp(log_delta)
    certificate = calibrate_objective_perturbation(
        n, d, epsilon, delta, calibration="tight", adjacency=adjacency
    )
    numbers = [
        certificate.mu,
        certificate.sigma,
        certificate.eta,
        *certificate.intermediates.values(),
    ]
    assert all(math.isfinite(x) for x in numbers)
    assert certificate.delta_at(epsilon) <= delta
    assert certificate.epsilon_at(delta) <= epsilon * (1 + 1e-9)
    assert certificate.eta * certificate.L <= 1.0
    # Its noise is at least the Gaussian mechanism's: nothing of this kind can do better.
    assert certificate.noise_multiplier >= gaussian_noise_multiplier(epsilon, delta) * (1 - 1e-9)
    again = ObjectivePerturbationCertificate.from_public_inputs(certificate.public_inputs())
    assert again == certificate
    assert again.delta_at(epsilon) == certificate.delta_at(epsilon)


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(2, 10**9),
    d=st.integers(1, 10**7),
    epsilon=st.floats(1e-3, 1.0),
    log_delta=st.floats(-69.0, -0.1),
    w=st.floats(0.01, 1000.0),
)
def test_corollary_round_trip_over_the_whole_range(n, d, epsilon, log_delta, w):
    delta = math.exp(log_delta)
    certificate = calibrate_objective_perturbation(n, d, epsilon, delta, comparator_norm=w)
    assert certificate.delta_at(epsilon) <= delta
    # 25/32 of epsilon: the arithmetic in the proof of Corollary 4.13.
    assert certificate.epsilon_at(delta) <= epsilon * 25 / 32 * (1 + 1e-9)


@pytest.mark.parametrize("calibration", ["corollary", "tight"])
def test_more_budget_never_means_more_noise(calibration):
    def sigma(epsilon, delta):
        return calibrate_objective_perturbation(
            2000, 8, epsilon, delta, calibration=calibration, mu=0.05
        ).sigma

    in_epsilon = [sigma(e, 1e-6) for e in (0.1, 0.2, 0.4, 0.8)]
    in_delta = [sigma(0.5, d) for d in (1e-9, 1e-7, 1e-5, 1e-3)]
    assert in_epsilon == sorted(in_epsilon, reverse=True)
    assert in_delta == sorted(in_delta, reverse=True)


@pytest.mark.parametrize("calibration", ["corollary", "tight"])
def test_profile_is_nonincreasing_and_starts_below_one(calibration):
    certificate = calibrate_objective_perturbation(2000, 8, 0.8, 1e-6, calibration=calibration)
    epsilons = [0.0, 1e-4, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.4, 0.8, 1.2, 2.0]
    deltas = [certificate.delta_at(e) for e in epsilons]
    assert all(a >= b * (1 - 1e-9) for a, b in pairwise(deltas))
    assert deltas[0] < 0.5


def test_zero_out_needs_half_the_noise():
    arguments = {"calibration": "tight", "mu": 0.05}
    one = calibrate_objective_perturbation(2000, 8, 1.0, 1e-6, **arguments)
    out = calibrate_objective_perturbation(2000, 8, 1.0, 1e-6, adjacency="zero-out", **arguments)
    assert out.G == one.G / 2
    assert out.sigma / one.sigma == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize("n_iter", [1, 10, 100, 10_000])
def test_a_fixed_number_of_steps_raises_the_regularization_if_it_must(n_iter):
    free = calibrate_objective_perturbation(30_000, 50, 1.0, 1e-6, calibration="tight")
    fixed = calibrate_objective_perturbation(
        30_000, 50, 1.0, 1e-6, calibration="tight", n_iter=n_iter
    )
    assert fixed.n_iter == n_iter
    assert fixed.mu >= free.mu * (1 - 1e-9)
    assert fixed.delta_at(1.0) <= 1e-6
    assert fixed.noise_multiplier <= 1.012 * gaussian_noise_multiplier(1.0, 1e-6)


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize(
    ("calibration", "n_problems"), [("tight", 3), ("corollary", 3), ("tight", 10)]
)
def test_several_problems_share_the_total(adjacency, calibration, n_problems):
    certificate = calibrate_objective_perturbation(
        1500, 20, 1.0, 1e-5, calibration=calibration, n_problems=n_problems, adjacency=adjacency
    )
    assert certificate.delta_at(1.0) <= 1e-5
    assert certificate.epsilon_at(1e-5) <= 1.0 + 1e-9
    # Better than splitting the budget evenly; no better than composing Gaussian mechanisms.
    gaussian = math.sqrt(n_problems) * gaussian_noise_multiplier(1.0, 1e-5)
    assert certificate.noise_multiplier >= gaussian
    if calibration == "tight":
        even = calibrate_objective_perturbation(
            1500, 20, 1.0 / n_problems, 1e-5 / n_problems, calibration="tight",
            adjacency=adjacency, mu=certificate.mu,
        )  # fmt: skip
        assert certificate.sigma < even.sigma


def test_given_noise_states_its_epsilon():
    certificate = calibrate_objective_perturbation(
        5000, 10, None, 1e-5, calibration="tight", sigma=2e-3, mu=0.02
    )
    again = calibrate_objective_perturbation(
        5000, 10, certificate.epsilon, 1e-5, calibration="tight", mu=0.02
    )
    assert again.sigma == pytest.approx(2e-3, rel=0.02)
    assert certificate.delta_at(certificate.epsilon) <= 1e-5


@pytest.mark.parametrize(
    ("n", "d", "epsilon", "delta", "given"),
    [
        (100_000, 20, None, 1e-5, {"sigma": 1.0}),
        (300, 5, None, 1e-2, {"sigma": 1e4}),
        (300, 5, 0.001, 1e-2, {"sigma": 1.0, "mu": 0.22}),
        (300, 5, 0.01, 5e-3, {"sigma": 1.5, "mu": 0.05, "adjacency": "zero-out"}),
    ],
)
def test_much_noise_needs_few_iterations(n, d, epsilon, delta, given):
    # The stated epsilon lies below the range of the formulas, where convexity certifies it.
    certificate = calibrate_objective_perturbation(
        n, d, epsilon, delta, calibration="tight", **given
    )
    assert certificate.n_iter < 200
    assert certificate.delta_at(certificate.epsilon) <= delta


def test_corollary_states_the_epsilon_of_given_noise():
    certificate = calibrate_objective_perturbation(1000, 10, None, 1e-5, sigma=0.1, mu=0.1)
    assert 0.0 < certificate.epsilon < 0.1
    assert certificate.delta_at(certificate.epsilon) <= 1e-5


@pytest.mark.parametrize("calibration", ["corollary", "tight"])
def test_tiny_features_and_linear_losses(calibration):
    tiny = calibrate_objective_perturbation(
        1000, 5, 1.0, 1e-5, data_norm=1e-8, calibration=calibration
    )
    assert tiny.delta_at(1.0) <= 1e-5
    linear = calibrate_objective_perturbation(
        1000, 5, 1.0, 1e-5, mu=0.1, loss=LossConstants("linear", 1.0, 0.0, 0.0),
        calibration=calibration,
    )  # fmt: skip
    assert linear.delta_at(1.0) <= 1e-5


def test_a_loss_that_is_not_one_sided_gets_the_paper_s_theorem():
    loss = LossConstants(name="custom", L1=1.0, L2=0.25, L3=0.1)
    custom = calibrate_objective_perturbation(
        10_000, 20, 1.0, 1e-5, calibration="tight", mu=0.01, loss=loss
    )
    assert custom.bound == "theorem-c13"
    assert 0.999 * LIMITS[1.0, 100] <= custom.noise_multiplier <= 1.011 * LIMITS[1.0, 100]


def test_constants_scale_with_the_class_weight_and_data_norm():
    heavy = calibrate_objective_perturbation(
        1000,
        5,
        0.5,
        1e-5,
        loss=softplus_constants("logistic", 0.0, 1.0).scaled(3.0),
        data_norm=2.0,
    )
    assert pytest.approx(2 * 3.0 * 2.0 / 1000, rel=1e-15) == heavy.G
    assert pytest.approx(heavy.mu + 3.0 * 0.25 * 4.0, rel=1e-15) == heavy.L
    assert pytest.approx(3.0 * 8.0 / (6 * math.sqrt(3)), rel=1e-15) == heavy.M


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_samples": 0}, "n_samples=0: must be a positive integer"),
        ({"n_samples": 2.5}, "n_samples=2.5"),
        ({"n_features": True}, "n_features=True"),
        ({"epsilon": 0.0}, "epsilon=0.0: must be a positive finite number"),
        ({"epsilon": math.nan}, "epsilon=nan"),
        ({"epsilon": math.inf}, "epsilon=inf"),
        ({"epsilon": "1"}, "epsilon='1'"),
        ({"epsilon": 1.01}, "use calibration='tight'"),
        ({"delta": 0.0}, r"delta=0.0: must be a number inside \(0, 1\)"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"data_norm": -1.0}, "data_norm=-1.0"),
        ({"comparator_norm": 0}, "comparator_norm=0"),
        ({"failure_probability": 2.0}, "failure_probability=2.0"),
        ({"calibration": "loose"}, "calibration='loose': must be one of 'corollary', 'tight'"),
        ({"adjacency": "add"}, "adjacency='add': must be one of 'replace-one', 'zero-out'"),
        ({"mu": -1.0}, "mu=-1.0"),
        ({"sigma": math.inf}, "sigma=inf"),
        ({"n_iter": 0}, "n_iter=0"),
        ({"eta": 100.0, "mu": 0.1}, "eta=100.0: must be at most 1/L"),
        ({"n_problems": 0}, "n_problems=0"),
        ({"n_samples": 10**400}, "n_samples=1000"),
        ({"n_iter": 10**30}, "n_iter=1000"),
        ({"epsilon": 10**400}, "epsilon=1000"),
        ({"data_norm": 1e200}, "too large or too small"),
        ({"calibration": "tight", "sigma": 1e-9, "mu": 0.1}, "sigma=1e-09: too little noise"),
        ({"n_iter": 3}, "does not certify"),
        ({"mu": 1e-9}, "does not certify"),
        ({"sigma": 1e-9}, "does not certify"),
        ({"epsilon": None}, "epsilon=None"),
        ({"epsilon": None, "calibration": "tight"}, "sigma must be given"),
        ({"calibration": "tight", "mu": 1e-12}, "too little regularization"),
        ({"calibration": "tight", "mu": 1e-2, "n_iter": 5}, "too few iterations"),
    ],
)
def test_refusals_name_the_parameter(change, message):
    arguments = {"n_samples": 1000, "n_features": 10, "epsilon": 0.5, "delta": 1e-5} | change
    with pytest.raises(ValueError, match=message):
        calibrate_objective_perturbation(**arguments)


def test_certificate_refuses_bad_questions():
    certificate = calibrate_objective_perturbation(1000, 10, 0.5, 1e-5)
    for bad in (-0.1, math.nan):
        with pytest.raises(ValueError, match="epsilon="):
            certificate.delta_at(bad)
    for bad in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="delta="):
            certificate.epsilon_at(bad)
    with pytest.raises(AttributeError, match="no_such_constant"):
        certificate.no_such_constant  # noqa: B018


def test_certificate_is_immutable_and_pickles():
    certificate = calibrate_objective_perturbation(1000, 10, 0.5, 1e-5, calibration="tight")
    with pytest.raises(AttributeError):
        certificate.epsilon = 0.1
    assert pickle.loads(pickle.dumps(certificate)) == certificate


@pytest.mark.parametrize("calibration", ["corollary", "tight"])
def test_contributions_add_up(calibration):
    certificate = calibrate_objective_perturbation(1000, 10, 0.5, 1e-5, calibration=calibration)
    parts = certificate.contributions
    assert sum(parts["epsilon"].values()) == pytest.approx(0.5, rel=1e-12)
    assert sum(parts["delta"].values()) <= 1e-5 * (1 + 1e-9)
    assert min(parts["epsilon"].values()) >= 0.0


def test_wrong_sensitivity_or_noise_is_refused():
    # 3% less noise than the certified one, or 3% more data norm, must not pass.
    certificate = calibrate_objective_perturbation(
        5000, 10, 1.0, 1e-5, calibration="tight", mu=0.02, n_iter=100_000
    )
    for change in ({"sigma": 0.97 * certificate.sigma}, {"data_norm": 1.03}):
        arguments = {"sigma": certificate.sigma, "mu": 0.02, "n_iter": 100_000} | change
        with pytest.raises(ValueError, match="does not certify"):
            calibrate_objective_perturbation(5000, 10, 1.0, 1e-5, calibration="tight", **arguments)
