"""Certificates, calibration, composition and reports: public numbers only, no records."""

from sklearn_dpop.privacy._calibration import calibrate_objective_perturbation
from sklearn_dpop.privacy._certificate import ObjectivePerturbationCertificate
from sklearn_dpop.privacy._composition import (
    PrivacyLossDistribution,
    compose_profile,
    dominating_distribution,
    optimal_composition_delta,
    optimal_composition_epsilon,
)
from sklearn_dpop.privacy._gaussian import gaussian_delta, gaussian_noise_multiplier
from sklearn_dpop.privacy._loss_constants import LossConstants, softplus_constants
from sklearn_dpop.privacy._report import PrivacyReport
from sklearn_dpop.privacy._verify import Verification

__all__ = [
    "LossConstants",
    "ObjectivePerturbationCertificate",
    "PrivacyLossDistribution",
    "PrivacyReport",
    "Verification",
    "calibrate_objective_perturbation",
    "compose_profile",
    "dominating_distribution",
    "gaussian_delta",
    "gaussian_noise_multiplier",
    "optimal_composition_delta",
    "optimal_composition_epsilon",
    "softplus_constants",
]
