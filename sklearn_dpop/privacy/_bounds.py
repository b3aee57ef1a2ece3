"""Profiles of one release: the best radius, the limit of many iterations, small epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar

from sklearn_dpop.privacy._gaussian import (
    chi_radius,
    gaussian_noise_multiplier,
    log_folded_divergence,
    log_q1,
)
from sklearn_dpop.privacy._loss_constants import LossConstants
from sklearn_dpop.privacy._objective_perturbation import (
    FiniteIteration,
    PerturbedGradientDescent,
    finite_iteration,
    log_delta_one_sided,
    log_delta_theorem_c13,
    log_divergence_one_sided,
    log_divergence_through_null_record,
)

__all__ = [
    "BOUNDS",
    "best_radius",
    "extend_to_small_epsilon",
    "limit_log_delta",
    "limit_noise_multiplier",
    "log_delta_at_radius",
    "log_deltas",
    "sharpest_bound",
    "smallest_certified",
]

BOUNDS = ("theorem-c13", "one-sided")
# Neighbouring radii of this many differ in delta by under 1%.
_RADII = 160


def sharpest_bound(loss: LossConstants) -> str:
    """Return the name of the sharpest bound whose conditions the loss meets."""
    return "one-sided" if loss.one_sided else "theorem-c13"


def _divergence_is_certified(bound: str, loss: LossConstants) -> None:
    if bound not in BOUNDS:
        raise ValueError(f"bound={bound!r}: must be one of {BOUNDS}")
    if bound == "one-sided" and not loss.one_sided:
        raise ValueError(
            f"bound='one-sided' needs a loss whose slope keeps one sign per label; "
            f"{loss.name!r} is not declared one-sided"
        )


def _log_delta(bound: str) -> Callable[..., NDArray[np.float64]]:
    return log_delta_one_sided if bound == "one-sided" else log_delta_theorem_c13


def log_delta_at_radius(
    p: PerturbedGradientDescent, r: float, epsilon: float, bound: str
) -> tuple[float, FiniteIteration | None]:
    """Return the log profile at truncation radius `r`, and the constants used (or 0, None)."""
    finite = finite_iteration(p, r)
    if finite is None:
        return 0.0, None
    return float(_log_delta(bound)(p, finite, epsilon)), finite


def best_radius(
    p: PerturbedGradientDescent, epsilon: float, bound: str, *, log_delta: float | None = None
) -> tuple[float, FiniteIteration | None]:
    """Return the smallest certified log delta over truncation radii, and its constants.

    The released map depends on no radius, so each epsilon may use its own.  With a
    target `log_delta`, only radii whose truncated mass is a sensible part of it are
    searched, which is faster; any radius gives a valid bound.
    """
    _divergence_is_certified(bound, p.loss)

    def at(log_truncation: float) -> tuple[float, FiniteIteration | None]:
        return log_delta_at_radius(
            p, p.sigma * chi_radius(log_truncation, p.d_star), epsilon, bound
        )

    if log_delta is not None:
        low, high = log_delta - 14.0, log_delta - 1e-6
        best = at(log_delta - 5.0)
    else:
        grid = -np.geomspace(0.5, 740.0, 36)
        i = int(np.argmin([at(x)[0] for x in grid]))
        low, high = float(grid[min(i + 1, 35)]), float(grid[max(i - 1, 0)])
        best = at(float(grid[i]))
    found = minimize_scalar(
        lambda x: at(x)[0], bounds=(low, high), method="bounded", options={"xatol": 1e-3}
    )
    refined = at(float(found.x))
    return refined if refined[0] < best[0] else best


def log_deltas(
    p: PerturbedGradientDescent, epsilons: ArrayLike, bound: str
) -> NDArray[np.float64]:
    """Return certified log deltas at many epsilons, about as small as by :func:`best_radius`.

    The radii are those of a fine grid, each evaluated at all epsilons.

    Parameters
    ----------
    p : PerturbedGradientDescent
    epsilons : array_like
        Nonnegative.
    bound : {"theorem-c13", "one-sided"}
    """
    _divergence_is_certified(bound, p.loss)
    epsilons = np.asarray(epsilons, dtype=float)
    evaluate = _log_delta(bound)
    best = np.zeros(epsilons.shape)
    for log_truncation in -np.geomspace(0.5, 740.0, _RADII):
        finite = finite_iteration(p, p.sigma * chi_radius(float(log_truncation), p.d_star))
        if finite is not None:
            best = np.minimum(best, evaluate(p, finite, epsilons))
    return best


def limit_log_delta(
    epsilon: ArrayLike, *, noise_multiplier: float, curvature: float, adjacency: str, bound: str
) -> NDArray[np.float64]:
    r"""Return the log profile in the limit of infinitely many iterations (Remark C.16).

    The exact minimizer's certificate: no truncation, no residual.

    Parameters
    ----------
    epsilon : array_like
        Privacy budgets, nonnegative.
    noise_multiplier : float
        :math:`\sigma/G`.
    curvature : float
        :math:`c = 4L_2\zeta^2/(n\mu)`.
    adjacency : {"replace-one", "zero-out"}
        Neighbouring relation.
    bound : {"theorem-c13", "one-sided"}
        The paper's divergence or the refinement.
    """
    lam = 1.0 / noise_multiplier
    tau_0 = math.log1p(0.25 * curvature)
    if bound == "one-sided":
        direct = log_divergence_one_sided(
            lam, epsilon, adjacency=adjacency, curvature=curvature, tau_0=tau_0
        )
        if adjacency == "zero-out":
            return direct
        detour, _ = log_divergence_through_null_record(
            lam, epsilon, curvature=curvature, tau_0=tau_0
        )
        return np.minimum(direct, detour)
    excess = np.asarray(epsilon, dtype=float) - (0.5 * lam**2 + tau_0)
    t = np.maximum(excess, 0.0) * noise_multiplier
    if adjacency == "replace-one":
        log_delta = math.log(2.0 * lam) + log_q1(t)
    else:
        log_delta = log_folded_divergence(lam, t)
    return np.where(excess >= 0.0, np.minimum(log_delta, 0.0), 0.0)


def smallest_certified(
    certified: Callable[[float], bool], start: float, *, limit: float = 1e12, rtol: float = 1e-12
) -> float | None:
    """Return the smallest positive number that is certified, to `rtol`, from above.

    `certified` is monotone (false, then true).  None if nothing up to
    ``start * limit`` is.
    """
    high = start
    while not certified(high):
        high *= 2.0
        if high > start * limit:
            return None
    low = 0.5 * high
    while certified(low):
        high, low = low, 0.5 * low
    while high - low > rtol * high:
        middle = 0.5 * (low + high)
        if certified(middle):
            high = middle
        else:
            low = middle
    return high


def limit_noise_multiplier(
    epsilon: float,
    delta: float,
    *,
    curvature: float,
    adjacency: str,
    bound: str,
    rtol: float = 1e-12,
) -> float | None:
    r"""Return the smallest :math:`\sigma/G` that the limit certificate allows.

    None where no noise suffices (the log-determinant alone exceeds epsilon).
    """
    log_delta = math.log(delta)

    def certified(multiplier: float) -> bool:
        limit = limit_log_delta(
            epsilon,
            noise_multiplier=multiplier,
            curvature=curvature,
            adjacency=adjacency,
            bound=bound,
        )
        return float(limit) <= log_delta

    return smallest_certified(certified, gaussian_noise_multiplier(epsilon, delta), rtol=rtol)


def extend_to_small_epsilon(upper: float, epsilon: float, anchor: float) -> float:
    r"""Return a bound on delta at an epsilon below the certified range.

    The profile of a pair is convex in :math:`x = e^\epsilon`, and
    :math:`\delta_{P,Q}(-\epsilon) = 1 - e^{-\epsilon} + e^{-\epsilon}\delta_{Q,P}(\epsilon)`,
    so the chord between ``-anchor`` and ``anchor`` bounds it from above.

    Parameters
    ----------
    upper : float
        Certified delta at `anchor`, valid for both orders of the pair.
    epsilon : float
        In ``[0, anchor]``.
    anchor : float
        A positive epsilon inside the certified range.
    """
    lower = -math.expm1(-anchor) + math.exp(-anchor) * upper
    # (e^anchor - e^epsilon) / (e^anchor - e^-anchor), without overflow
    weight = -math.expm1(epsilon - anchor) / -math.expm1(-2.0 * anchor)
    return weight * lower + (1.0 - weight) * upper
