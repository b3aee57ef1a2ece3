r"""Buffered linear Toeplitz strategies (BLT) optimized for a Toeplitz workload.

Dvijotham et al., arXiv 2404.16706; multi-participation: McMahan et al., arXiv 2408.08868.  The
strategy has coefficients :math:`c_0 = 1`, :math:`c_t = \sum_j \omega_j \theta_j^{t-1}`.

*Inverse.*  With :math:`s_j = \sqrt{\omega_j}` and the symmetric matrix
:math:`M = \mathrm{diag}(\theta) - s s^T = \sum_j \hat\theta_j v_j v_j^T`, the series
:math:`1/c` has coefficients 1 and :math:`-s^T M^{t-1} s = -\sum_j \hat\omega_j \hat\theta_j^{t-1}`
with :math:`\hat\omega_j = (v_j^T s)^2`: a BLT again, with the same number of buffers, whose
parameters a symmetric eigenproblem gives to full accuracy (Inversion theorem, arXiv 2504.21413).

*Derivatives.*  Multiplying by :math:`x / (1 - \theta x)` and by its square, the derivatives of
``c`` by :math:`\omega_j` and (divided by :math:`\omega_j`) by :math:`\theta_j`, are first-order
recursions; an evaluation costs O(n d) for ``d`` buffers.

*Sensitivity.*  :math:`\omega \ge 0`, :math:`0 \le \theta \le 1` and :math:`\sum_j \omega_j \le 1`
make the coefficients nonnegative and nonincreasing, so the column-sum theorem holds at every point
that the optimizer visits.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.signal import lfilter

from ._optimize_objective import (
    LossAndGradient,
    check_length_and_size,
    check_workload,
    column_sum_squared_and_gradient,
    descend,
    error_weights,
)
from ._participation import check_participation
from ._toeplitz import Array

# Limits of the unconstrained parameters: 1 - theta >= 1e-12 and omega >= 1e-12 nearly.
_LIMITS = (-27.6, 27.6)
# Weight with which a new buffer joins the optimum with one buffer less.
_NEW_WEIGHT = 1e-3
_MAX_EVALUATIONS = 1500


def optimize_blt(
    n: int,
    buffers: int,
    workload_coef: ArrayLike,
    *,
    participations: int,
    separation: int,
    error: str = "mean",
) -> tuple[Array, Array]:
    r"""Parameters of the buffered linear Toeplitz strategy with the least error.

    Minimizes :math:`\|A C^{-1}\|\, \mathrm{sens}_{k,b}(C)` over :math:`0 < \theta_j < 1`,
    :math:`\omega_j > 0`, :math:`\sum_j \omega_j < 1`, adding one buffer at a time.

    Parameters
    ----------
    n : int
        Number of steps, at least 1.
    buffers : int
        Number of buffers ``d``, between 1 and ``n``; more than 10 rarely gain anything.
    workload_coef : array-like of shape (n,)
        First column of the Toeplitz workload; finite, the first entry positive.
    participations, separation : int
        A record takes part in at most ``participations`` steps, any two at least ``separation``
        apart; at most ``ceil(n / separation)`` participations fit.
    error : {"mean", "max"}, default="mean"
        Mean squared error over the steps or that of the worst (the last) step.

    Returns
    -------
    theta : ndarray of shape (buffers,)
        Decay of each buffer, in (0, 1), decreasing.
    omega : ndarray of shape (buffers,)
        Weight of each buffer, positive, with a sum below 1.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Notes
    -----
    The problem is not convex: the result is the best local minimum found from several starting
    points, and never worse than with one buffer less.

    Examples
    --------
    >>> import numpy as np
    >>> theta, omega = optimize_blt(100, 2, np.ones(100), participations=1, separation=100)
    >>> theta.round(2), omega.round(2)
    (array([0.97, 0.66]), array([0.22, 0.28]))
    """
    check_length_and_size(n, "buffers", buffers)
    w = check_workload(workload_coef, n)
    weights = error_weights(n, error)
    check_participation(n, participations, separation)
    loss = blt_loss(w, weights, participations, separation)
    best = np.zeros(0)
    for d in range(1, buffers + 1):
        starts = _starts(best, d, n, separation)
        # Of the many starting points only the two most promising are worth a descent.
        starts.sort(key=lambda x: loss(x)[0])
        ends = [
            descend(loss, start, bounds=_LIMITS, max_evaluations=_MAX_EVALUATIONS)
            for start in starts[:2]
        ]
        best = min(ends, key=lambda end: end[1])[0]
    theta, omega = blt_parameters(best)
    order = np.argsort(-theta)
    return theta[order], omega[order]


def blt_parameters(x: Array) -> tuple[Array, Array]:
    r"""Map unconstrained numbers to ``(theta, omega)``.

    :math:`\theta_j = 1 / (1 + e^{-x_j})` and
    :math:`\omega_j = e^{y_j} / (1 + \sum_i e^{y_i})` for ``x = (x_1 .. x_d, y_1 .. y_d)``.
    """
    d = len(x) // 2
    exponentials = np.exp(x[d:])
    return 1.0 / (1.0 + np.exp(-x[:d])), exponentials / (1.0 + exponentials.sum())


def blt_inverse(theta: Array, omega: Array) -> tuple[Array, Array]:
    r"""Parameters :math:`\hat\theta, \hat\omega` of the inverse.

    Its coefficients are 1 and :math:`-\sum_j \hat\omega_j \hat\theta_j^{t-1}`, ``t >= 1``.

    Parameters
    ----------
    theta, omega : ndarray of shape (d,)
        Decays and nonnegative weights.

    Returns
    -------
    theta_hat, omega_hat : ndarray of shape (d,)

    Examples
    --------
    One buffer: ``1 + w x / (1 - t x)`` has the inverse ``1 - w x / (1 - (t - w) x)``.

    >>> blt_inverse(np.array([0.75]), np.array([0.5]))
    (array([0.25]), array([0.5]))
    """
    root = np.sqrt(omega)
    values, vectors = np.linalg.eigh(np.diag(theta) - np.outer(root, root))
    return values, (vectors.T @ root) ** 2


def blt_loss(w: Array, weights: Array, participations: int, separation: int) -> LossAndGradient:
    r"""Logarithm of squared error times squared sensitivity, and its derivative.

    The argument is that of `blt_parameters`.  With :math:`\beta = w / c` and
    :math:`\lambda = C^{-T}(q \beta)`, the squared error changes by
    :math:`-2 \langle \lambda, \beta * \partial c \rangle`.
    """
    n = len(w)
    impulse = np.zeros(n)
    impulse[0] = 1.0

    def loss(x: Array) -> tuple[float, Array]:
        theta, omega = blt_parameters(x)
        inverse = blt_inverse(theta, omega)
        beta = _apply_inverse(*inverse, w)
        weighted = weights * beta
        squared = float(weighted @ beta)
        adjoint = _apply_inverse(*inverse, weighted[::-1])[::-1]

        powers = np.array([_delayed_decay(t, impulse) for t in theta])
        coef = impulse + omega @ powers
        sensitivity, by_coef = column_sum_squared_and_gradient(coef, participations, separation)

        by_theta, by_omega = np.empty_like(theta), np.empty_like(omega)
        for j, t in enumerate(theta):
            first = _delayed_decay(t, beta)
            second = _delayed_decay(t, first)
            by_omega[j] = -2.0 * (adjoint @ first) / squared + by_coef @ powers[j] / sensitivity
            by_theta[j] = omega[j] * (
                -2.0 * (adjoint @ second) / squared
                + by_coef @ _delayed_decay(t, powers[j]) / sensitivity
            )
        by_x = by_theta * theta * (1.0 - theta)
        by_y = omega * (by_omega - omega @ by_omega)
        return float(np.log(squared) + np.log(sensitivity)), np.concatenate((by_x, by_y))

    return loss


def _delayed_decay(theta: float, v: Array) -> Array:
    """Multiply the series ``v`` by ``x / (1 - theta x)``."""
    return np.asarray(lfilter([0.0, 1.0], [1.0, -theta], v))


def _apply_inverse(theta_hat: Array, omega_hat: Array, v: Array) -> Array:
    out = v.copy()
    for t, weight in zip(theta_hat, omega_hat, strict=True):
        out -= weight * _delayed_decay(t, v)
    return out


def _starts(smaller: Array, d: int, n: int, separation: int) -> list[Array]:
    r"""Return starting points with ``d`` buffers.

    The optimum with ``d - 1`` buffers, joined by a light one of some decay; and weights
    :math:`\omega_j \propto \sqrt{1 - \theta_j}` for :math:`1 - \theta_j` evenly spaced on a
    logarithmic scale, a quadrature of
    :math:`\binom{2t}{t} 4^{-t} = \pi^{-1} \int_0^1 \theta^t (\theta (1 - \theta))^{-1/2} d\theta`,
    the coefficients of the square root of the prefix sum.
    """
    starts = []
    for horizon in {n, separation, max(2, separation // 4)}:
        for scale in (0.3, 1.0, 3.0):
            gaps = np.geomspace(min(0.5, scale / horizon), 0.5, d + 1)[:d]
            for total in (0.1, 0.5, 0.9):
                root = np.sqrt(gaps)
                starts.append(_unconstrained(1.0 - gaps, total * root / root.sum()))
    if d > 1:
        theta, omega = blt_parameters(smaller)
        for gap in np.geomspace(min(0.5, 0.1 / n), 0.9, 12):
            starts.append(
                _unconstrained(
                    np.append(theta, 1.0 - gap),
                    np.append(omega * (1.0 - _NEW_WEIGHT), _NEW_WEIGHT),
                )
            )
    return starts


def _unconstrained(theta: Array, omega: Array) -> Array:
    """Inverse of `blt_parameters`."""
    x = np.concatenate((np.log(theta) - np.log1p(-theta), np.log(omega / (1.0 - omega.sum()))))
    return np.asarray(np.clip(x, *_LIMITS))
