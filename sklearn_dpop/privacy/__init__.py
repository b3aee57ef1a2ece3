"""Certificates, calibration, composition and reports: public numbers only, no records."""

from sklearn_dpop.privacy._budget import FitBudget, budget_per_fit
from sklearn_dpop.privacy._calibration import calibrate_objective_perturbation
from sklearn_dpop.privacy._certificate import ObjectivePerturbationCertificate
from sklearn_dpop.privacy._composition import (
    PrivacyLossDistribution,
    compose_profile,
    compose_profiles,
    dominating_distribution,
    optimal_composition_delta,
    optimal_composition_epsilon,
)
from sklearn_dpop.privacy._composition_report import CompositionReport, compose_reports
from sklearn_dpop.privacy._gaussian import gaussian_delta, gaussian_noise_multiplier
from sklearn_dpop.privacy._loss_constants import LossConstants, softplus_constants
from sklearn_dpop.privacy._report import PrivacyReport
from sklearn_dpop.privacy._verify import Verification
from sklearn_dpop.privacy.accounting import (
    CorrelatedNoiseCertificate,
    NoiseMultiplier,
    Schedule,
    account,
    calibrate_noise_multiplier,
    estimate_noise_multiplier,
)

__all__ = [
    "CompositionReport",
    "CorrelatedNoiseCertificate",
    "FitBudget",
    "LossConstants",
    "NoiseMultiplier",
    "ObjectivePerturbationCertificate",
    "PrivacyLossDistribution",
    "PrivacyReport",
    "Schedule",
    "Verification",
    "account",
    "budget_per_fit",
    "calibrate_noise_multiplier",
    "calibrate_objective_perturbation",
    "compose_profile",
    "compose_profiles",
    "compose_reports",
    "dominating_distribution",
    "estimate_noise_multiplier",
    "gaussian_delta",
    "gaussian_noise_multiplier",
    "optimal_composition_delta",
    "optimal_composition_epsilon",
    "softplus_constants",
]
