"""From public numbers to the schedule, the strategy and the noise of a training: no records."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache

from scipy.optimize import minimize_scalar

from sklearn_dpop.factorization import BIFR, Identity, PrefixSum, Strategy, amplified_rmse
from sklearn_dpop.privacy.accounting import (
    CorrelatedNoiseCertificate,
    Schedule,
    account,
    calibrate_noise_multiplier,
    estimate_noise_multiplier,
)

__all__ = ["Plan", "automatic_lr", "best_gamma_for", "make_plan"]

# Around its minimum the error is flat: this much in gamma changes it by less than 1%, and every
# point costs a second.
_GAMMA_TOLERANCE = 0.03
# Noise that an automatic learning rate lets into every weight, in units of its initial standard
# deviation: measured, see benchmarks/kan_lr.py.  Where there is little noise, the limits are a
# rate, a length of a step, and a rate for gradients that are not clipped.
_NOISE_IN_WEIGHTS = 0.5
_LARGEST_LR = 64.0
_LONGEST_STEP = 32.0
_UNCLIPPED_LR = 16.0


@dataclass(frozen=True)
class Plan:
    """What a training is going to do, decided before it sees a record.

    Attributes
    ----------
    schedule : Schedule
        Which records take part in which steps.
    strategy : Strategy
        ``C`` of the noise ``C^-1 Z``.
    noise_multiplier : float
        Standard deviation of Z per unit of clip norm; 0 for a training without noise.
    certificate : CorrelatedNoiseCertificate or None
        The guarantee, of this very schedule, strategy and multiplier; None without noise.
    """

    schedule: Schedule
    strategy: Strategy
    noise_multiplier: float
    certificate: CorrelatedNoiseCertificate | None


def make_plan(
    schedule: Schedule,
    *,
    epsilon: float | None,
    delta: float,
    noise_multiplier: float | None = None,
    strategy: Strategy | None = None,
    gamma: float | str = "auto",
    bandwidth: int = 4,
    adjacency: str = "zero-out",
    verbose: bool = False,
) -> Plan:
    """Choose the strategy, and the noise that the target needs.

    Parameters
    ----------
    schedule : Schedule
    epsilon : float or None
        Target; ``inf`` means no noise; None states what `noise_multiplier` guarantees.
    delta : float
        In (0, 1).
    noise_multiplier : float, optional
        For ``epsilon=None``, and required there.
    strategy : Strategy, optional
        None takes ``BIFR(gamma, bandwidth)``.  One that is still to be optimized is optimized
        for prefix sums.
    gamma : float or "auto"
        In [0, 1]; ``"auto"`` takes `best_gamma_for`.
    bandwidth : int
        At least 1; at most as many as there are steps are used.
    adjacency : str
        See :func:`sklearn_dpop.privacy.account`.
    verbose : bool, default=False
        Show the progress of a Monte Carlo bound.

    Returns
    -------
    Plan

    Raises
    ------
    ValueError
        If parameters contradict each other or no accountant fits them.

    Examples
    --------
    >>> schedule = Schedule(5000, 125, epochs=10, sampling="cyclic")
    >>> plan = make_plan(schedule, epsilon=1.0, delta=1e-5, gamma=0.0)
    >>> round(plan.noise_multiplier, 3), plan.certificate.schedule is plan.schedule
    (11.797, True)
    """
    if (epsilon is None) != (noise_multiplier is not None):
        raise ValueError(
            f"exactly one of epsilon={epsilon!r} and noise_multiplier={noise_multiplier!r} must "
            f"be given; epsilon=None states the guarantee of a noise_multiplier"
        )
    if epsilon == math.inf:
        return Plan(schedule, Identity() if strategy is None else strategy, 0.0, None)
    if strategy is None:
        p = min(bandwidth, schedule.n_steps)
        if gamma != "auto":
            strategy = BIFR(float(gamma), p)
        elif epsilon is None:
            raise ValueError("gamma='auto' needs epsilon: with a given noise_multiplier, give it")
        else:
            strategy = BIFR(best_gamma_for(schedule, epsilon, delta, p, adjacency), p)
    elif getattr(strategy, "is_optimized", True) is False:
        strategy = strategy.optimize(
            PrefixSum(schedule.n_steps),
            participations=schedule.max_participations,
            separation=schedule.min_separation,
        )
    certificate = _certificate(
        strategy, schedule, epsilon, delta, noise_multiplier, adjacency, verbose
    )
    return Plan(
        certificate.schedule, certificate.strategy, certificate.noise_multiplier, certificate
    )


@lru_cache(maxsize=128)  # a grid search asks again and again
def _certificate(
    strategy: Strategy,
    schedule: Schedule,
    epsilon: float | None,
    delta: float,
    noise_multiplier: float | None,
    adjacency: str,
    verbose: bool,
) -> CorrelatedNoiseCertificate:
    with warnings.catch_warnings():
        # The report repeats these as its own, for every fit.
        warnings.simplefilter("ignore", UserWarning)
        if epsilon is not None:
            return calibrate_noise_multiplier(
                epsilon, delta, strategy, schedule, adjacency=adjacency, verbose=verbose
            ).certificate
        assert noise_multiplier is not None
        return account(
            strategy,
            schedule,
            noise_multiplier,
            delta=delta,
            adjacency=adjacency,
            verbose=verbose,
        )


def automatic_lr(plan: Plan, max_grad_norm: float) -> float:
    r"""Learning rate that keeps the noise in the weights at half of their initial spread.

    After t steps of plain SGD the noise in a weight is ``lr * C_clip / B`` times row t of
    :math:`\kappa A C^{-1} Z`, with the prefix sums A; its root mean square over the steps is
    0.5.  The rate is at most 64, and ``lr * C_clip`` at most 32; it is 16 without clipping.  All
    of this is public.

    Parameters
    ----------
    plan : Plan
    max_grad_norm : float
        ``C_clip``.

    Returns
    -------
    float

    Examples
    --------
    >>> schedule = Schedule(5000, 125, epochs=10, sampling="cyclic")
    >>> plan = make_plan(schedule, epsilon=1.0, delta=1e-5, gamma=0.0)
    >>> lr = automatic_lr(plan, 0.5)
    >>> rms = (sum(range(1, 401)) / 400) ** 0.5 * plan.noise_multiplier
    >>> round(lr * 0.5 / 125 * rms, 6)
    0.5
    """
    if max_grad_norm == math.inf:  # only without noise
        return _UNCLIPPED_LR
    limit = min(_LARGEST_LR, _LONGEST_STEP / max_grad_norm)
    if not plan.noise_multiplier:
        return limit
    workload = PrefixSum(plan.schedule.n_steps)
    rmse = amplified_rmse(workload, plan.strategy, plan.noise_multiplier)
    noise = max_grad_norm * rmse / plan.schedule.expected_batch_size
    return min(limit, _NOISE_IN_WEIGHTS / noise)


@lru_cache(maxsize=128)
def best_gamma_for(
    schedule: Schedule, epsilon: float, delta: float, bandwidth: int, adjacency: str
) -> float:
    """Gamma with the smallest error of the sums of gradients at a target, about.

    The estimates behind it are not certified, which is fine: any gamma is private with the
    noise that is certified for it.

    Parameters
    ----------
    schedule : Schedule
    epsilon, delta : float
    bandwidth : int
    adjacency : str

    Returns
    -------
    float
        In [0, 1), to 0.03; 0 if that is better.

    Examples
    --------
    >>> best_gamma_for(Schedule(100, 100, 8, "cyclic"), 1.0, 1e-5, 1, "zero-out")
    0.0
    """
    if bandwidth == 1:
        return 0.0
    workload = PrefixSum(schedule.n_steps)

    def error(gamma: float) -> float:
        strategy = BIFR(float(gamma), bandwidth)
        kappa = estimate_noise_multiplier(epsilon, delta, strategy, schedule, adjacency=adjacency)
        return amplified_rmse(workload, strategy, kappa)

    found = minimize_scalar(
        error, bounds=(0.0, 1.0), method="bounded", options={"xatol": _GAMMA_TOLERANCE}
    )
    return round(float(found.x), 3) if found.fun < error(0.0) else 0.0
