"""Theorem 4.1, Corollary 4.13 and Theorem C.13 against the numbers of arXiv 2610.02716.

``tests/data/objective_perturbation.json`` holds an independent high-precision evaluation.
"""

import json
import math
from pathlib import Path

import pytest

from sklearn_dpop.privacy import _utility as utility
from sklearn_dpop.privacy._bounds import limit_noise_multiplier
from sklearn_dpop.privacy._calibration import calibrate_objective_perturbation
from sklearn_dpop.privacy._gaussian import gaussian_noise_multiplier, log_q1
from sklearn_dpop.privacy._loss_constants import softplus_constants
from sklearn_dpop.privacy._objective_perturbation import (
    PerturbedGradientDescent,
    eps_0,
    finite_iteration,
    log_delta_theorem_41,
    log_delta_theorem_c13,
    s_n,
    tau_star,
    threshold_7,
)

REFERENCE = json.loads(
    (Path(__file__).parents[1] / "data" / "objective_perturbation.json").read_text()
)
TEN_DIGITS = 1e-10
LOGISTIC = softplus_constants("logistic", 0.0, 1.0)


def example_48(n_iter, mu=1e-2):
    """The constants of Example 4.8: n = 1e6, d = 1e4, sigma = 5 G."""
    return PerturbedGradientDescent(
        n_samples=10**6,
        n_features=10**4,
        data_norm=1.0,
        loss=LOGISTIC,
        adjacency="replace-one",
        mu=mu,
        sigma=1e-5,
        n_iter=n_iter,
        eta=1.0 / (mu + 0.25),
    )


def c4_delta(release, u=6.0, epsilon=1.0):
    """Section C.4: radii of Theorem 4.1, truncation exp(-u^2/2)."""
    r = release.sigma * (math.sqrt(release.d_star) + u)
    finite = finite_iteration(release, r, r + 2.0 * release.L * release.G / release.mu)
    if finite is None:
        return 1.0
    return math.exp(float(log_delta_theorem_c13(release, finite, epsilon, -0.5 * u * u)))


def test_example_48():
    release = example_48(1500)
    expected = REFERENCE["example_4_8"]
    assert threshold_7(release, 6.0) == pytest.approx(float(expected["threshold"]), rel=TEN_DIGITS)
    assert math.ceil(threshold_7(release, 6.0)) == 1319
    assert eps_0(release) == pytest.approx(float(expected["eps0"]), rel=TEN_DIGITS)
    delta = math.exp(float(log_delta_theorem_41(release, 6.0, 1.0)))
    assert delta == pytest.approx(float(expected["delta"]), rel=TEN_DIGITS)


def test_example_48_utility():
    # The example prints E_opt <= 3e-27, d sigma^2 / mu = 1e-4, 0.0586 and 0.059, 0.064.
    release = example_48(1500)
    assert utility.e_opt(release) <= 3e-27
    assert 2 * utility.empirical_risk_bound(release) == pytest.approx(1e-4, rel=1e-9)
    assert utility.sample_term(release, 1e-2) == pytest.approx(0.0586, abs=5e-5)
    assert utility.population_risk_bound(release, 1e-2) == pytest.approx(0.059, abs=5e-4)
    assert utility.unregularized_risk_bound(release, 1e-2, 1.0) == pytest.approx(0.064, abs=5e-4)
    assert utility.population_risk_bound(example_48(519), 1e-2) == pytest.approx(0.0586, abs=1e-4)


def test_e_opt_is_formula_12_term_by_term():
    release = example_48(40)
    a = 1.0 / release.mu
    b = 1.0 / release.mu
    d, sigma, rho = release.n_features, release.sigma, release.rho
    root = sigma * math.sqrt(d)
    expected = release.L / 2 * rho**80 * (b**2 * d * sigma**2 + 2 * a * b * root + a**2)
    expected += rho**40 * (b * d * sigma**2 + a * root)
    assert utility.e_opt(release) == pytest.approx(expected, rel=1e-12)


def test_single_release_bound_is_corollary_411():
    release = example_48(40)
    beta = 0.01
    r = release.sigma * (math.sqrt(release.n_features) + math.sqrt(2 * math.log(1 / beta)))
    big_r = (1.0 + r) / release.mu
    rho = release.rho
    expected = r**2 / (2 * release.mu) + release.L / 2 * rho**80 * big_r**2 + rho**40 * r * big_r
    assert utility.single_release_bound(release, beta) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n_iter", [518, 519])
def test_section_c4(n_iter):
    release = example_48(n_iter)
    expected = REFERENCE[f"C4_N{n_iter}"]
    r = release.sigma * (math.sqrt(release.d_star) + 6.0)
    finite = finite_iteration(release, r, r + 2.0 * release.L * release.G / release.mu)
    assert finite.alpha_bar == pytest.approx(float(expected["alpha"]), rel=TEN_DIGITS)
    assert s_n(release, finite) == pytest.approx(float(expected["s"]), rel=TEN_DIGITS)
    assert c4_delta(release) == pytest.approx(float(expected["delta"]), rel=TEN_DIGITS)


def test_section_c4_radius_condition():
    release = example_48(519)
    r = release.sigma * (math.sqrt(release.d_star) + 6.0)
    gap = 2.0 * release.L * release.G / release.mu
    finite = finite_iteration(release, r, r + gap)
    needed = release.G * (1 - release.rho**519) / (release.mu * finite.alpha_bar)
    assert gap == pytest.approx(1.04e-4, rel=1e-12)
    assert needed == pytest.approx(5.20352425e-5, rel=1e-8)


@pytest.mark.parametrize(
    "row",
    REFERENCE["regularization_table_n1e6_d1e4_sigma5G_u6_eps1_delta1e-7"],
    ids=lambda r: r["mu"],
)
def test_regularization_table(row):
    mu = float(row["mu"])
    assert example_48(1, mu).kappa == pytest.approx(float(row["kappa"]), rel=1e-12)
    assert math.ceil(threshold_7(example_48(1, mu), 6.0)) == row["threshold_7"]
    first = row["first_C13"]
    assert c4_delta(example_48(first, mu)) <= 1e-7
    for n_iter in range(1, first):
        assert c4_delta(example_48(n_iter, mu)) > 1e-7


def test_section_c5_bound():
    ratio = 5.0
    t = ratio * (1.0 - 0.5 / ratio**2)
    bound = 2.0 / ratio * math.exp(float(log_q1(t)))
    assert bound == pytest.approx(float(REFERENCE["C5"]["bound"]), rel=TEN_DIGITS)


@pytest.mark.parametrize("row", REFERENCE["corollary_4_13"], ids=lambda r: f"n{r['n']}")
def test_corollary_413(row):
    certificate = calibrate_objective_perturbation(
        row["n"],
        row["d"],
        float(row["epsilon"]),
        float(row["delta"]),
        data_norm=float(row["zeta"]),
        comparator_norm=float(row["W"]),
        failure_probability=float(row["delta_S"]),
    )
    names = (
        "u",
        "sigma",
        "mu_priv",
        "mu_util",
        "mu",
        "A",
        "eta",
        "L",
        "c_N",
        "eps0",
        "leading_risk",
    )
    for name in names:
        assert getattr(certificate, name) == pytest.approx(float(row[name]), rel=TEN_DIGITS), name
    assert certificate.n_iter == row["N"]
    assert certificate.delta_at(certificate.epsilon) == pytest.approx(
        float(row["delta_at_eps"]), rel=1e-9
    )


@pytest.mark.parametrize("row", REFERENCE["corollary_4_13"], ids=lambda r: f"n{r['n']}")
def test_corollary_413_takes_the_smallest_n(row):
    certificate = calibrate_objective_perturbation(
        row["n"],
        row["d"],
        float(row["epsilon"]),
        float(row["delta"]),
        data_norm=float(row["zeta"]),
        comparator_norm=float(row["W"]),
        failure_probability=float(row["delta_S"]),
    )
    fewer = PerturbedGradientDescent(
        **{**certificate.release.__dict__, "n_iter": certificate.n_iter - 1}
    )
    assert certificate.n_iter >= threshold_7(certificate.release, certificate.u)
    assert certificate.c_N <= certificate.epsilon / 4
    from sklearn_dpop.privacy._objective_perturbation import c_n

    below = fewer.n_iter < threshold_7(fewer, certificate.u)
    assert below or c_n(fewer) > certificate.epsilon / 4


@pytest.mark.parametrize(
    "row", REFERENCE["tight_limit"], ids=lambda r: f"{r['epsilon']}-{r['delta']}-{r['n_times_mu']}"
)
def test_limit_of_theorem_c13(row):
    epsilon, delta = float(row["epsilon"]), float(row["delta"])
    expected = float(row["sigma_over_G_limit"])
    arguments = {"curvature": 1.0 / row["n_times_mu"], "adjacency": "replace-one"}
    paper = limit_noise_multiplier(epsilon, delta, bound="theorem-c13", **arguments)
    assert paper == pytest.approx(expected, rel=TEN_DIGITS)
    # The refinement needs less, and nothing can need less than the Gaussian mechanism.
    refined = limit_noise_multiplier(epsilon, delta, bound="one-sided", **arguments)
    assert gaussian_noise_multiplier(epsilon, delta) * (1 - 1e-11) <= refined < paper


def test_tau_star_and_n_rho_half():
    release = example_48(1319)
    rho = release.rho
    expected = math.log(1 + 0.5 / (2 * 10**6 * 1e-2))
    expected += min(1.0, release.M * release.G / release.L) * (
        math.e * release.eta * release.mu / 2 * 1319 * rho ** (1319 / 2)
    )
    assert tau_star(release) == pytest.approx(expected, rel=1e-12)


def test_nothing_is_certified_below_the_threshold():
    assert float(log_delta_theorem_41(example_48(1318), 6.0, 1.0)) == 0.0
    assert float(log_delta_theorem_41(example_48(1319), 6.0, 1.0)) < -16.0


def test_nothing_is_certified_below_the_floor():
    release = example_48(1500)
    floor = eps_0(release)
    assert float(log_delta_theorem_41(release, 6.0, floor * 0.999)) == 0.0
    assert float(log_delta_theorem_41(release, 6.0, floor)) < 0.0
