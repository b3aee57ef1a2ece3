"""Lower-triangular Toeplitz matrices as vectors: arithmetic of power series.

The n x n lower-triangular Toeplitz matrix with first column ``a_0, .., a_{n-1}`` is the power
series ``a_0 + a_1 x + ..`` modulo ``x^n``: product of matrices, product of series; inverse,
reciprocal.  A vector shorter than ``n`` stands for a banded matrix (the rest is zero).  All
functions are pure, take 1-d float arrays and need O(n) memory.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.signal import lfilter

Array = NDArray[np.float64]

# Up to this many multiplications a recursion in C is faster than the fast Fourier transform
# and keeps the relative accuracy of small coefficients, which the transform does not.
_DIRECT_COST = 3 * 10**8
_TINY = 1e-290
_BLOCK = 4096


def multiply(a: ArrayLike, b: ArrayLike, n: int) -> Array:
    """First ``n`` coefficients of the product of two series.

    O(n p) for factors of length ``p`` small, O(n log n) otherwise.

    Parameters
    ----------
    a, b : array-like of shape (p,), (q,)
        Coefficients; those beyond the end are zero.
    n : int
        Number of coefficients wanted.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> multiply([1.0, -0.5], [1.0, 1.0, 1.0], 4)
    array([ 1. ,  0.5,  0.5, -0.5])
    """
    a, b = _trim(a, n), _trim(b, n)
    if len(a) > len(b):
        a, b = b, a
    if len(a) * n <= _DIRECT_COST:
        return np.asarray(lfilter(a, [1.0], _pad(b, n)))
    return _fft_multiply(a, b, n)


def solve(a: ArrayLike, v: ArrayLike, n: int | None = None) -> Array:
    """Solve ``A x = v`` for the Toeplitz matrix with first column ``a`` (divide two series).

    Parameters
    ----------
    a : array-like of shape (p,)
        Coefficients with ``a[0] != 0``.
    v : array-like of shape (m,)
        Right-hand side, zero beyond its end.
    n : int, default=None
        Length of the solution; ``None`` means ``len(v)``.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> solve([1.0, -1.0], [1.0, 1.0, 1.0])
    array([1., 2., 3.])
    """
    v = np.asarray(v, dtype=float)
    n = len(v) if n is None else n
    a, v = _trim(a, n), _trim(v, n)
    if len(a) * n <= _DIRECT_COST:
        return _recurse(a, _pad(v, n))
    return multiply(_newton_reciprocal(a, n), v, n)


def reciprocal(a: ArrayLike, n: int) -> Array:
    """First ``n`` coefficients of the inverse matrix (the reciprocal series).

    Parameters
    ----------
    a : array-like of shape (p,)
        Coefficients with ``a[0] != 0``.
    n : int
        Number of coefficients wanted.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> reciprocal([1.0, -0.5], 4)
    array([1.   , 0.5  , 0.25 , 0.125])
    """
    return solve(a, [1.0], n)


def fractional_power(exponent: float, n: int) -> Array:
    """First ``n`` coefficients of ``(1 - x)^exponent``.

    Positive exponents give ``E^-gamma`` (``(-1)^j binom(gamma, j)``), negative ones ``E^gamma``,
    where ``E`` is the matrix of ones (prefix sums).

    Parameters
    ----------
    exponent : float
        Any real number.
    n : int
        Number of coefficients wanted.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> fractional_power(0.5, 4)
    array([ 1.    , -0.5   , -0.125 , -0.0625])
    >>> fractional_power(-0.5, 4)
    array([1.    , 0.5   , 0.375 , 0.3125])
    """
    j = np.arange(1.0, n)
    return np.concatenate(([1.0], np.cumprod((j - 1.0 - exponent) / j)))[:n]


def toeplitz_matrix(a: ArrayLike, n: int) -> Array:
    """Dense n x n lower-triangular Toeplitz matrix; O(n^2) memory, for small ``n`` only.

    Parameters
    ----------
    a : array-like of shape (p,)
        First column; zero beyond its end.
    n : int
        Number of rows and columns.

    Returns
    -------
    ndarray of shape (n, n)

    Examples
    --------
    >>> toeplitz_matrix([1.0, 0.5], 3)
    array([[1. , 0. , 0. ],
           [0.5, 1. , 0. ],
           [0. , 0.5, 1. ]])
    """
    column = _pad(_trim(a, n), n)
    lag = np.subtract.outer(np.arange(n), np.arange(n))
    return np.where(lag >= 0, column[np.maximum(lag, 0)], 0.0)


def _trim(a: ArrayLike, n: int) -> Array:
    """Return at most ``n`` coefficients as floats, without trailing zeros."""
    values: Array = np.asarray(a, dtype=float)[:n]
    nonzero = np.flatnonzero(values)
    return values[: nonzero[-1] + 1] if len(nonzero) else values[:1]


def _pad(a: Array, n: int) -> Array:
    return a if len(a) == n else np.concatenate((a, np.zeros(n - len(a))))


def _recurse(a: Array, v: Array) -> Array:
    """``x_t = (v_t - a_1 x_{t-1} - ..) / a_0`` in O(n p)."""
    if len(a) == 1:
        return np.asarray(v / a[0])
    # A response that has decayed into denormal numbers costs a hundred times as much per step
    # and never reaches zero.  When the recursion is a contraction, nothing can grow again.
    contraction = np.abs(a[1:]).sum() <= abs(a[0])
    last = np.flatnonzero(v)
    last_input = last[-1] if len(last) else -1
    if not contraction or len(v) - last_input <= 2 * _BLOCK:
        return np.asarray(lfilter([1.0], a, v))
    out = np.zeros_like(v)
    state = np.zeros(len(a) - 1)
    for start in range(0, len(v), _BLOCK):
        block = slice(start, start + _BLOCK)
        out[block], state = lfilter([1.0], a, v[block], zi=state)
        if start + _BLOCK > last_input and np.abs(state).max() < _TINY:
            break
    return out


def _fft_multiply(a: Array, b: Array, n: int) -> Array:
    size = next_fast_len(min(len(a) + len(b) - 1, 2 * n), real=True)
    return np.asarray(_pad_or_cut(irfft(rfft(a, size) * rfft(b, size), size), n))


def _pad_or_cut(a: Array, n: int) -> Array:
    return a[:n] if len(a) >= n else _pad(a, n)


def _newton_reciprocal(a: Array, n: int) -> Array:
    """Newton's iteration ``g <- g (2 - a g)``, which doubles the number of right coefficients."""
    m = min(n, 1024)
    g = _recurse(a[:m], _pad(np.array([1.0]), m))
    while m < n:
        m = min(2 * m, n)
        residual = -_fft_multiply(_fft_multiply(a[:m], g, m), g, m)
        residual[: len(g)] += 2.0 * g
        g = np.concatenate((g, residual[len(g) :]))
    return g
