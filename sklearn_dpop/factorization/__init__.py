"""Strategy matrices: correlated noise for private learning, its sensitivity and its error.

A strategy ``C`` turns independent noise ``Z`` into ``C^-1 Z``, which is correlated over the steps
of a training so that much of it cancels in the model.  ``sensitivity`` says how much noise ``C``
needs, ``rmse`` how much of it is left in the model, ``noise_stream`` makes it.
"""

from ._bounds import (
    coefficient_bound,
    column_norm_bound,
    column_sum_bound,
    decay_rate,
    frobenius_bound,
    gamma_star,
    rmse_bound,
)
from ._dense import Dense
from ._error import amplified_rmse, best_gamma, max_error, rmse
from ._explicit import BFR, BIFR, BISR, BSR, Identity, InverseLinear, LambdaCGD
from ._noise import NoiseState, NoiseStream
from ._optimized import BLT, BandInvMF, BandMF
from ._plot import plot_error_against_bandwidth, plot_error_against_gamma, plot_strategy
from ._sensitivity import Sensitivity, sensitivity, sensitivity_bounds
from ._strategy import Strategy, ToeplitzStrategy
from ._workload import LearningRates, Momentum, PrefixSum, ToeplitzWorkload, Workload

__all__ = [
    "BFR",
    "BIFR",
    "BISR",
    "BLT",
    "BSR",
    "BandInvMF",
    "BandMF",
    "Dense",
    "Identity",
    "InverseLinear",
    "LambdaCGD",
    "LearningRates",
    "Momentum",
    "NoiseState",
    "NoiseStream",
    "PrefixSum",
    "Sensitivity",
    "Strategy",
    "ToeplitzStrategy",
    "ToeplitzWorkload",
    "Workload",
    "amplified_rmse",
    "best_gamma",
    "coefficient_bound",
    "column_norm_bound",
    "column_sum_bound",
    "decay_rate",
    "frobenius_bound",
    "gamma_star",
    "max_error",
    "plot_error_against_bandwidth",
    "plot_error_against_gamma",
    "plot_strategy",
    "rmse",
    "rmse_bound",
    "sensitivity",
    "sensitivity_bounds",
]
