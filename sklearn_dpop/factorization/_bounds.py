"""Theory of gamma-BIFR: Theorem 2's gamma and the explicit bounds of Appendix C.

All for ``E = B C``, prefix sums, with ``C`` of :class:`BIFR`, ``0 < gamma < 1`` and bandwidth
``p >= 2`` (arXiv 2605.18379).
"""

import math

import numpy as np
from scipy.special import gammaln

from ._checks import check_integer, check_real
from ._participation import check_participation
from ._toeplitz import Array, fractional_power


def gamma_star(n: int, bandwidth: int) -> float:
    """``max(1/2, 1 - log(1 + p log(p) / sqrt(n)) / log(p))`` (Theorem 2).

    With this choice the error has the best order known for every bandwidth.

    Parameters
    ----------
    n : int
        Number of steps.
    bandwidth : int
        ``2 <= p <= n``.

    Returns
    -------
    float
        In [1/2, 1).

    Raises
    ------
    ValueError
        If ``p < 2`` or ``p > n``.

    Examples
    --------
    >>> round(gamma_star(64, 4), 6)
    0.620146
    """
    n = check_integer("n", n)
    p = _check_bandwidth(bandwidth, n)
    return max(0.5, 1.0 - math.log1p(p * math.log(p) / math.sqrt(n)) / math.log(p))


def decay_rate(gamma: float, bandwidth: int) -> float:
    """``beta`` of Lemma 7: beyond the bandwidth ``c_j <= (c_gamma)_p (1 - beta)^(j - p)``.

    Parameters
    ----------
    gamma : float
        In (0, 1).
    bandwidth : int
        ``p >= 2``.

    Returns
    -------
    float

    Examples
    --------
    >>> 0.0 < decay_rate(0.9, 4) < 1.0
    True
    """
    gamma, p = _check_gamma(gamma), check_integer("bandwidth", bandwidth, 2)
    first = (1.0 - gamma) / (2 * p) * math.log(2 * p / (p + 1))
    second = (1.0 - gamma) / (8.0 * p**gamma * (p - 1) ** (1.0 - gamma))
    return float(min(first, second))


def coefficient_bound(n: int, gamma: float, bandwidth: int) -> Array:
    """Lemmas 4 and 7: upper bounds of the coefficients of ``C``.

    ``(c_gamma)_j`` up to ``j = p``, where the truncation has no effect before ``p``, and the
    geometric tail beyond.

    Parameters
    ----------
    n : int
        Number of coefficients.
    gamma : float
        In (0, 1).
    bandwidth : int
        ``2 <= p <= n``.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> from sklearn_dpop.factorization import BIFR
    >>> bool(np.all(BIFR(0.7, 4).coef(50) <= coefficient_bound(50, 0.7, 4) + 1e-15))
    True
    """
    gamma, p = _check_gamma(gamma), _check_bandwidth(bandwidth, check_integer("n", n))
    head = fractional_power(-gamma, p + 1)
    tail = head[p] * (1.0 - decay_rate(gamma, p)) ** np.arange(max(n - p, 0))
    return np.concatenate((head[:p], tail))


def frobenius_bound(n: int, gamma: float, bandwidth: int) -> float:
    """Bound of ``|B|_F`` (Section C.3).

    ``|B|_F^2 <= n + n H_{p-1}^{(2 gamma)} / Gamma(1-gamma)^2
    + (n-p)(n-p+1) / (2 Gamma(1-gamma)^2 (p-1)^(2 gamma))``.

    Parameters
    ----------
    n : int
        Number of steps.
    gamma : float
        In (0, 1).
    bandwidth : int
        ``2 <= p <= n``.

    Returns
    -------
    float

    Examples
    --------
    >>> frobenius_bound(100, 0.5, 4) > 10.0
    True
    """
    gamma, p = _check_gamma(gamma), _check_bandwidth(bandwidth, check_integer("n", n))
    g = math.exp(-2.0 * gammaln(1.0 - gamma))
    squared = (
        n
        + n * g * _harmonic(p - 1, 2.0 * gamma)
        + (n - p) * (n - p + 1) / 2.0 * g / (p - 1) ** (2.0 * gamma)
    )
    return math.sqrt(squared)


def column_norm_bound(gamma: float, bandwidth: int) -> float:
    """Lemma 9: bound of ``|C|_{1->2}``, the largest Euclidean norm of a column.

    ``|C|_{1->2}^2 <= 1 + H_{p-1}^{(2-2 gamma)} / Gamma(gamma)^2
    + 1 / (Gamma(gamma)^2 p^(2-2 gamma) beta (2 - beta))``, for every number of steps.

    Parameters
    ----------
    gamma : float
        In (0, 1).
    bandwidth : int
        ``p >= 2``.

    Returns
    -------
    float

    Examples
    --------
    >>> column_norm_bound(0.5, 4) > 1.0
    True
    """
    gamma, p = _check_gamma(gamma), check_integer("bandwidth", bandwidth, 2)
    g = math.exp(-2.0 * gammaln(gamma))
    beta = decay_rate(gamma, p)
    tail = g / (p ** (2.0 - 2.0 * gamma) * beta * (2.0 - beta))
    return math.sqrt(1.0 + g * _harmonic(p - 1, 2.0 - 2.0 * gamma) + tail)


def column_sum_bound(gamma: float, bandwidth: int) -> float:
    """Lemma 10: bound of ``|C|_{1->1}``, the largest sum of a column.

    ``|C|_{1->1} <= 1 + H_{p-1}^{(1-gamma)} / Gamma(gamma) + 1 / (Gamma(gamma) p^(1-gamma) beta)``,
    for every number of steps.

    Parameters
    ----------
    gamma : float
        In (0, 1).
    bandwidth : int
        ``p >= 2``.

    Returns
    -------
    float

    Examples
    --------
    >>> column_sum_bound(0.5, 4) > 1.0
    True
    """
    gamma, p = _check_gamma(gamma), check_integer("bandwidth", bandwidth, 2)
    g = math.exp(-gammaln(gamma))
    tail = g / (p ** (1.0 - gamma) * decay_rate(gamma, p))
    return float(1.0 + g * _harmonic(p - 1, 1.0 - gamma) + tail)


def rmse_bound(
    n: int, gamma: float, bandwidth: int, participations: int = 1, separation: int | None = None
) -> float:
    """Section C.4 with explicit constants: the three bounds above and Lemma 1 together.

    Parameters
    ----------
    n : int
        Number of steps.
    gamma : float
        In (0, 1).
    bandwidth : int
        ``2 <= p <= n``.
    participations : int, default=1
        ``k``.
    separation : int, default=None
        ``b``; ``None`` means ``n``.

    Returns
    -------
    float
        At least :func:`rmse` of prefix sums with ``BIFR(gamma, bandwidth)``.

    Examples
    --------
    >>> from sklearn_dpop.factorization import BIFR, PrefixSum, rmse
    >>> rmse(PrefixSum(100), BIFR(0.8, 4), 5, 20) < rmse_bound(100, 0.8, 4, 5, 20)
    True
    """
    k, b = participations, n if separation is None else separation
    check_participation(n, k, b)
    sens = math.sqrt(
        k * column_norm_bound(gamma, bandwidth) ** 2
        + k / b * column_sum_bound(gamma, bandwidth) ** 2
    )
    return frobenius_bound(n, gamma, bandwidth) * sens / math.sqrt(n)


def _harmonic(m: int, s: float) -> float:
    """``H_m^{(s)} = sum_{j<=m} j^-s``."""
    return float(np.sum(np.arange(1.0, m + 1.0) ** -s))


def _check_gamma(gamma: float) -> float:
    return check_real("gamma", gamma, 0.0, 1.0, open_low=True, open_high=True)


def _check_bandwidth(bandwidth: int, n: int) -> int:
    p = check_integer("bandwidth", bandwidth, 2)
    if p > n:
        raise ValueError(f"bandwidth must be at most n, got bandwidth={p} with n={n}.")
    return p
