r"""Gaussian tails and divergences in log space, stable from moderate values to 1e-300.

Everything here is a pure function of real numbers; arrays broadcast.  With
:math:`\varphi` the normal density, :math:`Q` its upper tail and
:math:`R(x) = Q(x)/\varphi(x)` the Mills ratio, all divergences of this package are
:math:`\varphi(x)` times a difference of Mills ratios, which is how they are computed:
no large exponential meets a small tail, and no two nearly equal tails are subtracted.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, gammaincc, gammainccinv, log_ndtr, ndtr

__all__ = [
    "chi_radius",
    "gaussian_delta",
    "gaussian_noise_multiplier",
    "log_chi_sf",
    "log_folded_divergence",
    "log_gaussian_delta",
    "log_normal_sf",
    "log_q1",
]

Float = NDArray[np.float64]

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_SQRT_HALF_PI = math.sqrt(0.5 * math.pi)
_SERIES_FROM = 15.0
# 20 nodes integrate the (entire) defect over an interval of length <= 1 to full precision.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


def log_normal_sf(x: ArrayLike) -> Float:
    """Return ``log Q(x)``, the log of the standard normal upper tail."""
    value: Float = log_ndtr(-np.asarray(x, dtype=float))
    return value


def _log_density(x: Float) -> Float:
    return -0.5 * x * x - _LOG_SQRT_2PI


def _mills_ratio(x: Float) -> Float:
    value: Float = _SQRT_HALF_PI * erfcx(x / math.sqrt(2.0))
    return value


def _mills_defect(x: Float) -> Float:
    """Return ``1 - x R(x) = -R'(x)``; by its asymptotic series where the difference cancels."""
    x = np.asarray(x, dtype=float)
    direct = 1.0 - x * _mills_ratio(x)
    if not (x > _SERIES_FROM).any():  # a calibration asks thousands of times
        return np.asarray(direct)
    inverse_square = np.where(x > _SERIES_FROM, x, _SERIES_FROM) ** -2.0
    series = np.ones_like(x)
    for k in range(24, 0, -1):  # 1/x^2 - 3/x^4 + 15/x^6 - ..., smallest term far below 1e-17
        series = 1.0 - (2 * k + 1) * inverse_square * series
    return np.where(x > _SERIES_FROM, series * inverse_square, direct)


def _mills_decrement(x: Float, step: Float) -> Float:
    """Return ``R(x) - R(x + step)`` for ``x > -6`` and ``step > 0``."""
    half = 0.5 * np.minimum(step, 1.0)
    points = x[..., None] + half[..., None] * (1.0 + _NODES)
    small = half * (_mills_defect(points) @ _WEIGHTS)
    return np.where(step <= 1.0, small, _mills_ratio(x) - _mills_ratio(x + step))


def log_q1(t: ArrayLike) -> Float:
    r"""Return :math:`\log \mathcal{Q}_1(t)`, :math:`\mathcal{Q}_1(t) = \varphi(t) - t Q(t)` (44).

    Parameters
    ----------
    t : array_like
        Thresholds, ``t >= 0``.
    """
    t = np.asarray(t, dtype=float)
    return _log_density(t) + np.log(_mills_defect(t))


def log_gaussian_delta(shift: ArrayLike, epsilon: ArrayLike) -> Float:
    r"""Return the log of the exact privacy profile of the Gaussian mechanism.

    :math:`\delta_G(\epsilon) = \Phi(\lambda/2 - \epsilon/\lambda)
    - e^{\epsilon}\Phi(-\lambda/2 - \epsilon/\lambda)` (Balle & Wang 2018; Section C.5).

    Parameters
    ----------
    shift : array_like
        :math:`\lambda = G/\sigma > 0`, sensitivity over noise scale.
    epsilon : array_like
        Any real numbers.
    """
    lam, eps = np.broadcast_arrays(
        np.asarray(shift, dtype=float), np.asarray(epsilon, dtype=float)
    )
    x = eps / lam - 0.5 * lam
    inner = np.maximum(x, -6.0)
    with np.errstate(divide="ignore"):
        tail = _log_density(inner) + np.log(_mills_decrement(inner, lam))
        # Far below zero the profile is 1 minus a small number.
        complement = ndtr(x) + np.exp(np.minimum(eps + log_ndtr(-x - lam), 0.0))
        near_one = np.log1p(-np.minimum(complement, 1.0))
    return np.minimum(np.where(x >= -6.0, tail, near_one), 0.0)


def gaussian_delta(epsilon: float, *, noise_multiplier: float) -> float:
    """Return the exact delta of the Gaussian mechanism (the benchmark of Section C.5).

    Parameters
    ----------
    epsilon : float
        Nonnegative.
    noise_multiplier : float
        Noise standard deviation over sensitivity, ``sigma / G > 0``.

    Examples
    --------
    >>> f"{gaussian_delta(1.0, noise_multiplier=5.0):.9g}"
    '1.75463333e-08'
    """
    return math.exp(float(log_gaussian_delta(1.0 / noise_multiplier, epsilon)))


def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the smallest ``sigma / G`` of an (epsilon, delta) Gaussian mechanism.

    No mechanism that adds Gaussian noise to a gradient sum of sensitivity G can use
    less, so this is the yardstick of every calibration here.

    Examples
    --------
    >>> round(gaussian_noise_multiplier(1.0, 1e-5), 4)
    3.7306
    """
    log_delta = math.log(delta)

    def excess(log_shift: float) -> float:
        return float(log_gaussian_delta(math.exp(log_shift), epsilon)) - log_delta

    low, high = _bracket(excess)
    return math.exp(-float(brentq(excess, low, high, xtol=1e-14, rtol=1e-14)))


def _bracket(excess: Callable[[float], float]) -> tuple[float, float]:
    """Return an interval of log shifts on which the increasing function changes sign."""
    low = high = 0.0
    while excess(low) > 0:
        low -= 2.0
    while excess(high) < 0:
        high += 1.0
    return low, high


def log_folded_divergence(shift: ArrayLike, t: ArrayLike) -> Float:
    r"""Return :math:`\log \mathbb{E}[(1 - e^{-\lambda(|W| - t)})_+]` for standard normal W.

    The expectation is :math:`2(Q(t) - e^{\lambda t + \lambda^2/2} Q(t + \lambda))`; it is
    what Lemma C.12 bounds by :math:`2 \lambda \mathcal{Q}_1(t)`.

    Parameters
    ----------
    shift : array_like
        :math:`\lambda > 0`.
    t : array_like
        Thresholds, ``t >= 0``.
    """
    lam, t = np.broadcast_arrays(np.asarray(shift, dtype=float), np.asarray(t, dtype=float))
    return math.log(2.0) + _log_density(t) + np.log(_mills_decrement(t, lam))


def log_chi_sf(radius: ArrayLike, dimension: int) -> Float:
    """Return an upper bound of ``log Pr(|Z| > radius)``, Z standard normal in `dimension`.

    Exact (regularized incomplete gamma function) while it is representable; below that,
    the Chernoff bound ``-(x - d - d log(x/d))/2`` at ``x = radius**2``.
    """
    x = np.asarray(radius, dtype=float) ** 2
    d = float(dimension)
    with np.errstate(divide="ignore"):
        exact = np.log(gammaincc(0.5 * d, 0.5 * x))
        chernoff = -0.5 * (x - d - d * np.log(np.maximum(x, d) / d))
    return np.where(exact > -680.0, exact, np.where(x > d, chernoff, 0.0))


def chi_radius(log_probability: float, dimension: int) -> float:
    """Return a radius whose tail ``Pr(|Z| > radius)`` is about ``exp(log_probability)``."""
    d = float(dimension)
    if log_probability > -680.0:
        return math.sqrt(2.0 * float(gammainccinv(0.5 * d, math.exp(log_probability))))
    return math.sqrt(d) + math.sqrt(-2.0 * log_probability)
