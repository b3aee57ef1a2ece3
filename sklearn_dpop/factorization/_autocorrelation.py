r"""A sensitivity bound for Toeplitz matrices of any sign and shape, sharp for most of them.

Let :math:`A_i(g) = \sum_{r=0}^{n-1-i-g} |c_r|\, |c_{r+g}|`, the autocorrelation at lag ``g`` of
the first ``n - i`` absolute coefficients.  For every lower-triangular Toeplitz ``C`` and every
(k, b)-participation,

.. math::

    \mathrm{sens}(C)^2 \le U = \sum_{a=0}^{k-1} A_{ab}(0)
        + 2 \sum_{0 \le a < a' < k} \max_{g \ge (a'-a) b} A_{ab}(g).

*Proof.*  With :math:`X = C^T C`, :math:`|X_{i,i+g}| \le A_i(g)`, and :math:`A_i(g)` decreases in
``i`` (fewer terms).  Participation ``a`` (from 0) of a pattern is at step :math:`i_a \ge ab` and
:math:`i_{a'} - i_a \ge (a'-a) b`, so
:math:`|X_{i_a i_{a'}}| \le A_{ab}(i_{a'} - i_a) \le \max_{g \ge (a'-a)b} A_{ab}(g)` for all pairs
at once; and :math:`\mathrm{sens}^2 \le \max_\pi \sum_{i,j \in \pi} |X_{ij}|`.

When ``C`` is nonnegative and every maximum sits at :math:`g = (a'-a)b`, the bound is the squared
norm of the sum of columns ``0, b, .., (k-1)b``, which one pattern attains: then both are the exact
sensitivity.  Nonnegative nonincreasing coefficients (Theorem 2 of arXiv 2405.13763) are a special
case; coefficients that rise a little, as those of an optimized banded inverse do, are covered too.
``U`` never exceeds the bound through the nonincreasing majorant of ``|c|``, whose products
dominate every :math:`A_i(g)` and satisfy the theorem.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from ._toeplitz import Array

__all__ = ["autocorrelation_bound_squared", "autocorrelation_bound_squared_and_gradient"]

# Coefficients whose norm is this fraction of the whole do not change an autocorrelation by more
# than its rounding error.
_ROUNDING = 1e-17
# The same for an objective of an optimizer, where speed is worth more than the last digits.
_OBJECTIVE = 1e-10


def autocorrelation_bound_squared(coef: Array, participations: int, separation: int) -> float:
    """Upper bound ``U`` on the squared sensitivity; at most O(k n log n) time, O(n) memory.

    Parameters
    ----------
    coef : ndarray of shape (n,)
        First column of the matrix, any signs.
    participations, separation : int
        ``k`` and ``b``, with ``(k - 1) b < n``.

    Returns
    -------
    float
        At least the squared norm of the sum of columns ``0, b, .., (k-1) b`` (up to rounding);
        exact when it equals that.

    Examples
    --------
    A matrix whose coefficients rise, so that the column-sum theorem does not apply:

    >>> round(autocorrelation_bound_squared(np.array([1.0, 1.2, 0.3, 0.0]), 2, 2), 12)
    5.57
    """
    magnitude = np.abs(coef)
    shared = _effective_length(magnitude, _ROUNDING)
    total = 0.0
    for m, lags, counts in _rows(len(coef), participations, separation, shared):
        # A_0 >= A_i, so sharing it keeps the bound valid.
        _, correlation, _ = _autocorrelation(magnitude[:m])
        total += float(counts @ _suffix_maximum(correlation)[lags])
    return total


def autocorrelation_bound_squared_and_gradient(
    coef: Array, participations: int, separation: int
) -> tuple[float, Array]:
    """Return the bound ``U``, to about 9 digits, and its derivative by the coefficients.

    ``U`` is a maximum of smooth functions of ``|c|``; where several of them tie or a coefficient
    is zero the derivative of one of them is returned (a generalized gradient).  A negligible
    tail of the coefficients is dropped, which makes the cost that of the part that matters.

    Parameters
    ----------
    coef : ndarray of shape (n,)
        First column of the matrix, any signs.
    participations, separation : int
        ``k`` and ``b``, with ``(k - 1) b < n``.

    Returns
    -------
    value : float
    gradient : ndarray of shape (n,)

    Examples
    --------
    >>> value, gradient = autocorrelation_bound_squared_and_gradient(np.array([1.0, 0.5]), 1, 1)
    >>> round(value, 12), gradient.round(12)
    (1.25, array([2., 1.]))
    """
    magnitude = np.abs(coef)
    n, total = len(coef), 0.0
    gradient = np.zeros(n)
    length = _effective_length(magnitude, _OBJECTIVE)
    for row_length, lags, counts in _rows(n, participations, separation, length):
        m = min(row_length, length)
        transform, correlation, size = _autocorrelation(magnitude[:m])
        inside = lags < m
        # The first position at or after each lag that is its own suffix maximum attains it.
        record = correlation >= _suffix_maximum(correlation)
        position = np.where(record, np.arange(m), m)
        position = np.minimum.accumulate(position[::-1])[::-1]
        weights = np.zeros(m)
        np.add.at(weights, position[lags[inside]], counts[inside])
        total += float(weights @ correlation)
        # d/dx_r of sum_g q_g sum_s x_s x_{s+g} is sum_g q_g (x_{r+g} + x_{r-g}).
        gradient[:m] += irfft(2.0 * rfft(weights, size).real * transform, size)[:m]
    return total, gradient * np.sign(coef)


def _rows(
    n: int, participations: int, separation: int, shared: int
) -> Iterator[tuple[int, NDArray[np.int64], Array]]:
    """Yield the rows ``A_{ab}`` as (coefficients used, lags, how often each lag counts).

    All rows with at least `shared` coefficients are taken together, as the first one.
    """
    together = min((n - shared) // separation + 1, participations)
    steps = np.arange(participations)
    repeats = np.minimum(together, participations - steps) * np.where(steps == 0, 1.0, 2.0)
    yield n, steps * separation, repeats
    for a in range(together, participations):
        steps = np.arange(participations - a)
        yield n - a * separation, steps * separation, np.where(steps == 0, 1.0, 2.0)


def _effective_length(magnitude: Array, fraction: float) -> int:
    """Smallest length, at least 1, beyond which the norm is at most a fraction of the whole."""
    tail = np.cumsum(magnitude[::-1] ** 2)[::-1]
    return max(1, int(np.count_nonzero(tail > fraction**2 * tail[0])))


def _suffix_maximum(values: Array) -> Array:
    return np.asarray(np.maximum.accumulate(values[::-1])[::-1])


def _autocorrelation(x: Array) -> tuple[Array, Array, int]:
    """Transform, autocorrelation at lags 0 .. len(x) - 1, and size of the transform."""
    size = next_fast_len(2 * len(x), real=True)
    transform = rfft(x, size)
    return transform, irfft(transform.real**2 + transform.imag**2, size)[: len(x)], size
