"""Participation patterns: who may take part when, and optimization over all patterns.

(k, b)-participation: a record takes part in at most ``k`` of the ``n`` steps, any two at least
``b`` steps apart.  ``b = 1`` allows every step.
"""

import numbers

import numpy as np

from ._toeplitz import Array


def check_participation(n: int, participations: int, separation: int) -> None:
    """Refuse participation parameters that no record can meet.

    Parameters
    ----------
    n : int
        Number of steps, at least 1.
    participations : int
        At most this many participations, at least 1 and at most ``ceil(n / separation)``.
    separation : int
        Two participations are at least this many steps apart, at least 1.

    Raises
    ------
    ValueError
        If a parameter is not an integer or out of range.

    Examples
    --------
    >>> check_participation(10, 4, 3)
    >>> check_participation(10, 5, 3)
    Traceback (most recent call last):
        ...
    ValueError: participations=5 does not fit: n=10 steps hold at most 4 participations that are
    separation=3 apart.
    """
    for name, value in (
        ("n", n),
        ("participations", participations),
        ("separation", separation),
    ):
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
            raise ValueError(f"{name} must be an integer >= 1, got {value!r}.")
    largest = -(-n // separation)
    if participations > largest:
        raise ValueError(
            f"participations={participations} does not fit: n={n} steps hold at most "
            f"{largest} participations that are separation={separation} apart."
        )


def column_sum_squared(coef: Array, participations: int, separation: int) -> float:
    """Squared norm of the sum of columns ``0, b, .., (k-1) b`` of a Toeplitz matrix, in O(n).

    The sum of the columns is ``v_t = c_t + c_{t-b} + ..`` with at most ``k`` terms.

    Parameters
    ----------
    coef : ndarray of shape (n,)
        First column of the matrix.
    participations, separation : int
        ``k`` and ``b``.

    Returns
    -------
    float

    Examples
    --------
    >>> column_sum_squared(np.ones(4), 2, 2)  # columns 0 and 2: (1, 1, 2, 2)
    10.0
    """
    v = column_sum(coef, participations, separation)
    return float(v @ v)


def column_sum(coef: Array, participations: int, separation: int) -> Array:
    """Sum of columns ``0, b, .., (k-1) b`` of a Toeplitz matrix, in O(n).

    Parameters
    ----------
    coef : ndarray of shape (n,)
        First column of the matrix.
    participations, separation : int
        ``k`` and ``b``.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> column_sum(np.array([4.0, 2.0, 1.0, 0.0]), 2, 2)
    array([4., 2., 5., 2.])
    """
    n, b, k = len(coef), separation, participations
    rows = -(-n // b)
    padded = np.zeros(rows * b)
    padded[:n] = coef
    stacked = padded.reshape(rows, b)
    sums = np.cumsum(stacked, axis=0)
    if k < rows:
        # Adding k terms directly avoids the cancellation of a difference of two prefix sums.
        if k <= 8:
            sums = stacked.copy()
            for shift in range(1, k):
                sums[shift:] += stacked[:-shift]
        else:
            sums[k:] -= sums[:-k].copy()
    return sums.reshape(-1)[:n]


def best_pattern_sum(weights: Array, participations: int, separation: int) -> Array:
    """Largest sum of weights over all (k, b)-patterns, by dynamic programming.

    ``F_m[i] = max(w_i + F_{m-1}[i + b], F_m[i + 1])``; O(n k) per vector.  Algorithm 3 of
    Choquette-Choo et al., arXiv 2306.08153 ("VecSens").

    Parameters
    ----------
    weights : ndarray of shape (n,) or (n, q)
        Nonnegative weights; each column is a problem of its own.
    participations, separation : int
        ``k`` and ``b``.

    Returns
    -------
    ndarray of shape () or (q,)

    Examples
    --------
    >>> float(best_pattern_sum(np.array([1.0, 5.0, 1.0, 1.0, 5.0]), 2, 2))
    10.0
    """
    n = len(weights)
    best = np.zeros((n + 1, *weights.shape[1:]))
    for _ in range(participations):
        following = np.zeros_like(best[:-1])
        if separation < n:
            following[: n - separation] = best[separation:n]
        taken = weights + following
        best[:-1] = np.maximum.accumulate(taken[::-1], axis=0)[::-1]
    return np.asarray(best[0])
