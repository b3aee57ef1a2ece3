"""Utility bounds of Section 4.3: pure functions of the public constants of a release."""

from __future__ import annotations

import math

from sklearn_dpop.privacy._objective_perturbation import PerturbedGradientDescent

__all__ = [
    "e_opt",
    "empirical_risk_bound",
    "population_risk_bound",
    "sample_term",
    "single_release_bound",
    "unregularized_risk_bound",
]


def e_opt(p: PerturbedGradientDescent) -> float:
    r"""Return :math:`\mathcal{E}_{\rm opt}(N)` of (12), at the uniform :math:`a_R = L_\ell/\mu`.

    The expected cost of stopping after N steps, in units of the loss.
    """
    a, b = p.gradient_bound / p.mu, 1.0 / p.mu
    root = p.sigma * math.sqrt(p.n_features)
    rho_n = math.exp(p.n_iter * p.log_rho)
    quadratic = b * b * root**2 + 2.0 * a * b * root + a * a
    return 0.5 * p.L * rho_n**2 * quadratic + rho_n * (b * root**2 + a * root)


def empirical_risk_bound(p: PerturbedGradientDescent) -> float:
    r"""Return Theorem 4.10: :math:`d\sigma^2/(2\mu) + \mathcal{E}_{\rm opt}(N)`.

    Bounds the expected excess regularized empirical risk of the release.
    """
    return p.n_features * p.sigma**2 / (2.0 * p.mu) + e_opt(p)


def sample_term(p: PerturbedGradientDescent, failure_probability: float) -> float:
    r"""Return :math:`16 L_\ell^2 (32 + \log(1/\delta_S))/(\mu n)`, the cost of sampling."""
    log_term = 32.0 + math.log(1.0 / failure_probability)
    return 16.0 * p.gradient_bound**2 * log_term / (p.mu * p.n_samples)


def population_risk_bound(p: PerturbedGradientDescent, failure_probability: float) -> float:
    """Return Theorem 4.9: expected excess regularized population risk.

    Holds with probability at least ``1 - failure_probability`` over the sample.
    """
    return 2.0 * empirical_risk_bound(p) + sample_term(p, failure_probability)


def unregularized_risk_bound(
    p: PerturbedGradientDescent, failure_probability: float, comparator_norm: float
) -> float:
    """Return Theorem 4.7 for every comparator of norm at most `comparator_norm`."""
    return population_risk_bound(p, failure_probability) + 0.5 * p.mu * comparator_norm**2


def single_release_bound(p: PerturbedGradientDescent, beta: float) -> float:
    r"""Return :math:`U_N(\beta)` of Corollary 4.11.

    With probability at least ``1 - beta`` over the one perturbation drawn, the excess
    regularized empirical risk of the released model is at most this.
    """
    r_beta = p.sigma * (math.sqrt(p.n_features) + math.sqrt(2.0 * math.log(1.0 / beta)))
    scale = (p.gradient_bound + r_beta) / p.mu
    rho_n = math.exp(p.n_iter * p.log_rho)
    return r_beta**2 / (2.0 * p.mu) + 0.5 * p.L * rho_n**2 * scale**2 + rho_n * r_beta * scale
