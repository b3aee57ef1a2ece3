r"""Banded Toeplitz strategies optimized for a Toeplitz workload: BandMF and BandInvMF.

BandMF: Choquette-Choo et al., arXiv 2306.08153, in its Toeplitz form (McKenna, arXiv 2405.15913);
BandInvMF: the banded inverse of arXiv 2505.12128 with free coefficients.  Losses are minimized by
L-BFGS-B with exact derivatives from adjoint recursions, O(n p) per evaluation.
"""

import numpy as np
from numpy.typing import ArrayLike

from ._autocorrelation import (
    autocorrelation_bound_squared,
    autocorrelation_bound_squared_and_gradient,
)
from ._optimize_objective import (
    OVERFLOW,
    LossAndGradient,
    check_length_and_size,
    check_workload,
    column_sum_squared_and_gradient,
    correlate_lags,
    descend,
    error_weights,
    series_power,
)
from ._participation import check_participation
from ._toeplitz import Array, reciprocal, solve

# Powers w^-g of the workload from which BandInvMF starts; 1/2 is the square root (BISR).
_POWERS = (0.3, 0.5, 0.7, 0.9)
# Relative gap below which the column sum and its upper bound count as equal: the sensitivity
# is then known to that accuracy.
_EXACT = 1e-9
# Coefficients are cut off here: their squares, summed, stay far from overflow.
_LARGEST = 1e100


def optimize_banded(
    n: int, bandwidth: int, workload_coef: ArrayLike, *, error: str = "mean"
) -> Array:
    r"""Coefficients of the banded Toeplitz strategy with the least error (BandMF).

    Minimizes :math:`\|A C^{-1}\|^2 \|c\|^2` over ``C`` with ``bandwidth`` diagonals.  When
    participations are at least ``bandwidth`` steps apart, the columns of a pattern are disjoint,
    the sensitivity is :math:`\sqrt{k}\, \|c\|_2` whatever the signs, and the result is optimal
    for every ``k``.

    Parameters
    ----------
    n : int
        Number of steps, at least 1.
    bandwidth : int
        Number of nonzero coefficients ``p``, between 1 and ``n``.
    workload_coef : array-like of shape (n,)
        First column of the Toeplitz workload; finite, the first entry positive.
    error : {"mean", "max"}, default="mean"
        Mean squared error over the steps or that of the worst (the last) step.

    Returns
    -------
    ndarray of shape (bandwidth,)
        Coefficients ``c`` with ``c[0] = 1``.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> optimize_banded(100, 4, np.ones(100)).round(3)
    array([1.   , 0.707, 0.607, 0.525])
    """
    check_length_and_size(n, "bandwidth", bandwidth)
    w = check_workload(workload_coef, n)
    loss = banded_loss(w, error_weights(n, error))
    starts = [series_power(w, 0.5, bandwidth)[1:], np.zeros(bandwidth - 1)]
    best, _ = descend(loss, min(starts, key=lambda x: loss(x)[0]))
    return _with_leading_one(best)


def optimize_banded_inverse(
    n: int,
    bandwidth: int,
    workload_coef: ArrayLike,
    *,
    participations: int,
    separation: int,
    error: str = "mean",
) -> Array:
    r"""Coefficients of the banded inverse with the least error (BandInvMF).

    Minimizes :math:`\|A C^{-1}\|\, \mathrm{sens}_{k,b}(C)` over :math:`C^{-1}` with ``bandwidth``
    diagonals.  The smooth norm of the sum of columns ``0, b, .., (k-1) b``, a lower bound on the
    sensitivity, is minimized first.  If an upper bound (module ``_autocorrelation``) confirms
    it, the minimizer is returned; otherwise the upper bound itself is minimized.

    Parameters
    ----------
    n : int
        Number of steps, at least 1.
    bandwidth : int
        Number of nonzero coefficients ``p`` of the inverse, between 1 and ``n``.
    workload_coef : array-like of shape (n,)
        First column of the Toeplitz workload; finite, the first entry positive.
    participations, separation : int
        A record takes part in at most ``participations`` steps, any two at least ``separation``
        apart; at most ``ceil(n / separation)`` participations fit.
    error : {"mean", "max"}, default="mean"
        Mean squared error over the steps or that of the worst (the last) step.

    Returns
    -------
    ndarray of shape (bandwidth,)
        Coefficients of :math:`C^{-1}`, the first one 1.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Notes
    -----
    The problem is not convex.  A minimum of the first stage is a stationary point of the exact
    loss; the second stage has kinks and its result is within about a percent of the best found
    from many starting points.

    Examples
    --------
    >>> import numpy as np
    >>> optimize_banded_inverse(100, 3, np.ones(100), participations=1, separation=100).round(3)
    array([ 1.   , -0.459, -0.407])
    """
    check_length_and_size(n, "bandwidth", bandwidth)
    w = check_workload(workload_coef, n)
    weights = error_weights(n, error)
    check_participation(n, participations, separation)
    gram = workload_gram(w, weights, bandwidth)

    smooth = banded_inverse_loss(gram, n, participations, separation, exact=False)
    starts = [series_power(w, -power, bandwidth)[1:] for power in _POWERS]
    starts = sorted([*starts, np.zeros(bandwidth - 1)], key=lambda x: smooth(x)[0])
    best, column_loss = descend(smooth, starts[0])
    inverse = _with_leading_one(best)
    bound = autocorrelation_bound_squared(reciprocal(inverse, n), participations, separation)
    if np.log(inverse @ gram @ inverse) + np.log(bound) <= column_loss + 2.0 * _EXACT:
        return inverse

    upper = banded_inverse_loss(gram, n, participations, separation, exact=True)
    ends = [descend(upper, start, max_evaluations=1000) for start in starts[:2]]
    return _with_leading_one(min(ends, key=lambda end: end[1])[0])


def banded_loss(w: Array, weights: Array) -> LossAndGradient:
    r"""Logarithm of :math:`\|A C^{-1}\|^2 \|c\|^2` and its derivative by ``c_1 .. c_{p-1}``.

    With :math:`\beta = w / c` and :math:`\lambda = C^{-T} (q \beta)`,
    :math:`\partial / \partial c_j \sum_r q_r \beta_r^2 = -2 \sum_r \lambda_r \beta_{r-j}`.
    """

    def loss(x: Array) -> tuple[float, Array]:
        c = _with_leading_one(x)
        with np.errstate(over="ignore", invalid="ignore"):
            beta = solve(c, w)
            weighted = weights * beta
            squared = float(weighted @ beta)
            if not squared < _LARGEST**2:
                return OVERFLOW, np.zeros_like(x)
            adjoint = solve(c, weighted[::-1])[::-1]
        norm = float(c @ c)
        derivative = -2.0 * correlate_lags(adjoint, beta, len(c))[1:] / squared + 2.0 * x / norm
        return float(np.log(squared) + np.log(norm)), derivative

    return loss


def banded_inverse_loss(
    gram: Array, n: int, participations: int, separation: int, *, exact: bool
) -> LossAndGradient:
    r"""Logarithm of squared error times squared sensitivity, and its derivative.

    The squared error is the quadratic form :math:`m^T G m` of the coefficients ``m`` of
    :math:`C^{-1}`.  With ``g`` the derivative of the squared sensitivity by the coefficients ``c``
    of ``C`` and :math:`\lambda = C^T g`, its derivative by ``m_j`` is
    :math:`-\sum_r \lambda_r c_{r-j}`.

    Parameters
    ----------
    gram : ndarray of shape (p, p)
        ``G``.
    n, participations, separation : int
        Number of steps, ``k`` and ``b``.
    exact : bool
        Whether to use the upper bound, valid everywhere, or the smooth column sum, valid where
        the bound confirms it.
    """
    squared_sensitivity = (
        autocorrelation_bound_squared_and_gradient if exact else column_sum_squared_and_gradient
    )

    def loss(x: Array) -> tuple[float, Array]:
        m = _with_leading_one(x)
        with np.errstate(over="ignore", invalid="ignore"):
            gram_m = gram @ m
            squared = float(m @ gram_m)
            c = reciprocal(m, n)
            if not (0.0 < squared < np.inf and np.abs(c).max() < _LARGEST):
                return OVERFLOW, np.zeros_like(x)
            sensitivity, by_coef = squared_sensitivity(c, participations, separation)
            adjoint = solve(m, by_coef[::-1])[::-1]
        by_inverse = -correlate_lags(adjoint, c, len(m))
        derivative = 2.0 * gram_m / squared + by_inverse / sensitivity
        return float(np.log(squared) + np.log(sensitivity)), derivative[1:]

    return loss


def workload_gram(w: Array, weights: Array, bandwidth: int) -> Array:
    """``G_ij = sum_r q_r w_{r-i} w_{r-j}``, so that the squared error is ``m G m``."""
    shifted = np.zeros((bandwidth, len(w)))
    for j in range(bandwidth):
        shifted[j, j:] = w[: len(w) - j]
    return np.asarray((shifted * weights) @ shifted.T)


def _with_leading_one(x: Array) -> Array:
    return np.concatenate(([1.0], x))
