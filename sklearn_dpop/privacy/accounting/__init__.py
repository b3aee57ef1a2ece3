"""Accountants for noise that is correlated across steps: public numbers only, no records."""

from sklearn_dpop.privacy.accounting._account import (
    NoiseMultiplier,
    account,
    calibrate_noise_multiplier,
    estimate_noise_multiplier,
)
from sklearn_dpop.privacy.accounting._certificate import CorrelatedNoiseCertificate
from sklearn_dpop.privacy.accounting._schedule import Schedule

__all__ = [
    "CorrelatedNoiseCertificate",
    "NoiseMultiplier",
    "Schedule",
    "account",
    "calibrate_noise_multiplier",
    "estimate_noise_multiplier",
]
