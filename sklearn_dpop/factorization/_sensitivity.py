"""Sensitivity of a strategy matrix under (k, b)-participation.

``sens^2 = sup sum_{i,j in pattern} X_ij <g_i, g_j>`` with ``X = C^T C``, over all patterns of at
most ``k`` steps, any two at least ``b`` apart, and all ``||g_i|| <= 1``.  Replacing ``X_ij`` by
``|X_ij|`` gives an upper bound, and the value itself if signs ``s_i`` exist with
``s_i s_j X_ij >= 0`` for all pairs that can meet.  Each function below computes the best pattern
under conditions that are checked first.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ._autocorrelation import autocorrelation_bound_squared
from ._checks import check_integer
from ._dense import Dense
from ._participation import best_pattern_sum, check_participation, column_sum_squared
from ._strategy import DENSE_LIMIT, Strategy, ToeplitzStrategy
from ._toeplitz import Array, toeplitz_matrix

# Rounding in computed coefficients, relative to each of them and to the first.
_RELATIVE, _ABSOLUTE = 1e-12, 1e-15
# Most additions spent on one dynamic program (about a second).
_CHAIN_COST = 4 * 10**8
_TWO_STAGE_COST = 2 * 10**8
_AUTOCORRELATION_COST = 5 * 10**7
# A bound attained up to this is exact: the rounding of a Fourier transform.
_ATTAINED = 1e-11


class Sensitivity(float):
    """A sensitivity that knows how it was obtained; behaves as a float.

    Attributes
    ----------
    exact : bool
        Whether it is the sensitivity (up to rounding) or a proven upper bound.
    theorem : str
        One of ``"single participation"``, ``"column sum"``, ``"banded"``, ``"chain"``,
        ``"dominated pairs"`` (all exact), ``"autocorrelation"`` (either), ``"majorant"`` and
        ``"two-stage"`` (upper bounds); see :func:`sensitivity`.

    Examples
    --------
    >>> s = Sensitivity(2.0, exact=True, theorem="column sum")
    >>> s**2, s.theorem
    (4.0, 'column sum')
    """

    exact: bool
    theorem: str

    def __new__(cls, value: float, *, exact: bool, theorem: str) -> "Sensitivity":
        self = super().__new__(cls, value)
        self.exact = exact
        self.theorem = theorem
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[float], dict[str, object]]:
        return (float(self),), {"exact": self.exact, "theorem": self.theorem}

    def __repr__(self) -> str:
        return f"Sensitivity({float(self)!r}, exact={self.exact}, theorem={self.theorem!r})"


def sensitivity(
    strategy: Strategy, participations: int, separation: int, n: int | None = None
) -> Sensitivity:
    """Largest change of ``C G`` that one record can cause.

    The exact value whenever one of these applies, tried in this order:

    * ``single participation``: ``k = 1``; the largest column norm.
    * ``column sum`` (Kalinin and Lampert 2024, Theorem 2): ``C`` Toeplitz with
      ``c_0 >= c_1 >= .. >= 0``; the norm of the sum of columns ``0, b, .., (k-1) b``.  Also when
      this holds after flipping the sign of every second coefficient, or with ``0 <= c_0 <= c_1
      <= ..``.
    * ``banded``: ``X_ij = 0`` for ``|i - j| >= b``; dynamic program over the diagonal of ``X``.
    * ``chain``: only consecutive participations interact (``k = 2``, or ``X_ij = 0`` for
      ``|i - j| >= 2 b``); dynamic program over the last participation.
    * ``autocorrelation`` (``C`` Toeplitz): ``|X_ij|`` is bounded by autocorrelations of ``|c|``
      (proof in the module ``_autocorrelation``); exact when the column sum attains the bound,
      a bound otherwise.
    * ``dominated pairs`` (``C`` dense): every ``|X_ij|`` with ``i >= a b``, ``j - i >= m b`` is
      at most ``X_{a b, (a + m) b}``, which is what the proof of the column sum needs.

    Otherwise a proven upper bound, the smallest of ``autocorrelation`` and

    * ``majorant`` (instead of ``autocorrelation`` above ``n k = 5e7``): the column sum of the
      smallest nonincreasing (or nondecreasing) sequence above ``|c|``;
    * ``two-stage`` (Algorithms 3 and 4 of arXiv 2306.08153): best pattern of the best pattern
      sums of the rows of ``|X|``.

    Parameters
    ----------
    strategy : Strategy
        The matrix ``C``.
    participations : int
        ``k``: a record takes part at most this often, ``1 <= k <= ceil(n / b)``.
    separation : int
        ``b >= 1``: two participations are at least this many steps apart.  Reshuffling the
        records in every epoch gives ``b = 1``; the same order in every epoch gives ``b`` equal
        to the number of steps in an epoch.
    n : int, default=None
        Number of steps.  ``None`` means that of the strategy if it is dense or was optimized
        for one, and ``k * b`` (``k`` epochs of ``b`` steps) otherwise; pass it if more steps
        than that are made.

    Returns
    -------
    Sensitivity
        A float, with the attributes ``exact`` and ``theorem``.

    Raises
    ------
    ValueError
        If the participation parameters do not fit, or the coefficients overflow.

    Examples
    --------
    >>> from sklearn_dpop.factorization import BIFR, BSR
    >>> sensitivity(BIFR(0.9, 2), 1, 64)
    Sensitivity(2.29415..., exact=True, theorem='single participation')
    >>> sensitivity(BIFR(0.9, 4), 20, 100, n=2000).theorem
    'column sum'
    """
    if isinstance(strategy, Dense):
        n = strategy.n_steps if n is None else n
        matrix = strategy.matrix(n)
        check_participation(n, participations, separation)
        return _dense_sensitivity(matrix, participations, separation)
    if not isinstance(strategy, ToeplitzStrategy):
        raise ValueError(f"strategy must be a Strategy, got {strategy!r}.")
    if n is None:
        n = strategy.n_steps or check_integer("participations", participations) * check_integer(
            "separation", separation
        )
    check_participation(n, participations, separation)
    return coefficient_sensitivity(strategy.coef(n), participations, separation)


def sensitivity_bounds(
    strategy: ToeplitzStrategy, participations: int, separation: int, n: int | None = None
) -> tuple[float, float]:
    """Lemma 1 of the gamma-BIFR paper: two-sided bound from two norms of the first column.

    ``k/2 |c|_2^2 + k/(3b) |c|_1^2 <= sens^2 <= k |c|_2^2 + k/b |c|_1^2`` for ``n = k b``.  The
    upper bound holds for every ``n``.  The lower bound does not (neither for ``n > k b`` nor for
    ``n < k b``), so it is taken from the first ``m b <= n`` steps, ``m = min(k, floor(n / b))``.

    Parameters
    ----------
    strategy : ToeplitzStrategy
        With nonnegative, nonincreasing coefficients.
    participations, separation, n
        See :func:`sensitivity`.

    Returns
    -------
    lower, upper : float

    Raises
    ------
    ValueError
        If the coefficients are not nonnegative and nonincreasing.

    Examples
    --------
    >>> from sklearn_dpop.factorization import BISR
    >>> lower, upper = sensitivity_bounds(BISR(4), 4, 16)
    >>> lower < sensitivity(BISR(4), 4, 16) < upper
    True
    """
    k, b = participations, separation
    n = k * b if n is None else n
    check_participation(n, k, b)
    c = strategy.coef(n)
    if not _is_close(_majorant(c), c):
        raise ValueError(
            f"strategy must have nonnegative, nonincreasing coefficients, {strategy!r} has not."
        )
    b = min(b, n)
    m = min(k, n // b)
    head = c[: m * b]
    lower = m / 2 * (head @ head) + m / (3 * b) * head.sum() ** 2
    upper = k * (c @ c) + k / b * c.sum() ** 2
    return float(np.sqrt(lower)), float(np.sqrt(upper))


def coefficient_sensitivity(coef: Array, participations: int, separation: int) -> Sensitivity:
    """Sensitivity of the Toeplitz matrix with a given first column; see :func:`sensitivity`.

    Parameters
    ----------
    coef : ndarray of shape (n,)
        First column of ``C``.
    participations, separation : int
        ``k`` and ``b``.

    Returns
    -------
    Sensitivity

    Examples
    --------
    >>> coefficient_sensitivity(np.array([1.0, 0.1, 0.1, 0.9] + 8 * [0.0]), 4, 2)
    Sensitivity(3.4510..., exact=True, theorem='chain')
    """
    if not np.isfinite(coef).all():
        raise ValueError(
            f"the coefficients of C overflow within n={len(coef)} steps: the strategy amplifies."
        )
    scale = float(np.abs(coef).max())
    squared, exact, theorem = _toeplitz_squared(coef / scale, participations, separation)
    return Sensitivity(scale * np.sqrt(squared), exact=exact, theorem=theorem)


class _Squared(NamedTuple):
    value: float
    exact: bool
    theorem: str


def _toeplitz_squared(c: Array, k: int, b: int) -> _Squared:
    n = len(c)
    if k == 1:
        return _Squared(float(c @ c), True, "single participation")
    falling, rising = _majorant(c), np.maximum.accumulate(np.abs(c))
    oriented = _orientations(c)
    for monotone in (falling, rising):
        if any(_is_close(monotone, candidate) for candidate in oriented):
            return _Squared(column_sum_squared(monotone, k, b), True, "column sum")
    bandwidth = int(np.flatnonzero(c)[-1]) + 1
    if bandwidth <= b:
        norms = np.cumsum(c * c)[::-1]
        return _Squared(float(norms[: k * b : b].sum()), True, "banded")
    if (bandwidth <= 2 * b or k == 2) and k * (bandwidth - b) * n <= _CHAIN_COST:
        norms = np.cumsum(c * c)[::-1]
        value = _chain(norms, lambda lag: np.abs(_lag_products(c, lag)), k, b, bandwidth)
        return _Squared(value, True, "chain")
    if k * n > _AUTOCORRELATION_COST:
        bound = min(column_sum_squared(falling, k, b), column_sum_squared(rising, k, b))
        return _Squared(bound, False, "majorant")
    bound = autocorrelation_bound_squared(c, k, b)
    attained = max(column_sum_squared(candidate, k, b) for candidate in oriented)
    if attained >= bound * (1.0 - _ATTAINED):
        return _Squared(max(attained, bound), True, "autocorrelation")
    if n * n * k <= _TWO_STAGE_COST:
        matrix = toeplitz_matrix(c, n)
        refined = _two_stage(matrix.T @ matrix, k, b)
        if refined < bound:
            return _Squared(refined, False, "two-stage")
    return _Squared(bound, False, "autocorrelation")


def _dense_sensitivity(matrix: Array, k: int, b: int) -> Sensitivity:
    n = len(matrix)
    x = matrix.T @ matrix
    norms = np.diagonal(x).copy()
    rows, columns = np.nonzero(x)
    last = int(np.abs(rows - columns).max()) + 1
    if k == 1:
        return Sensitivity(np.sqrt(norms.max()), exact=True, theorem="single participation")
    if last <= b:
        value = float(best_pattern_sum(norms, k, b))
        return Sensitivity(np.sqrt(value), exact=True, theorem="banded")
    if last <= 2 * b or k == 2:
        value = _chain(norms, lambda lag: np.abs(np.diagonal(x, lag)), k, b, last)
        return Sensitivity(np.sqrt(value), exact=True, theorem="chain")
    steps = np.arange(k) * b
    if _pairs_dominated(lambda lag: np.diagonal(x, lag), n, k, b, norms):
        value = float(x[np.ix_(steps, steps)].sum())
        return Sensitivity(np.sqrt(value), exact=True, theorem="dominated pairs")
    return Sensitivity(np.sqrt(_two_stage(x, k, b)), exact=False, theorem="two-stage")


def _majorant(c: Array) -> Array:
    """Smallest nonincreasing sequence above ``|c|``."""
    return np.maximum.accumulate(np.abs(c)[::-1])[::-1]


def _orientations(c: Array) -> list[Array]:
    """``c`` with positive start, and with every second sign flipped.

    The second is ``D C D`` with a diagonal matrix ``D`` of signs, which leaves the sensitivity
    as it is: the record flips its ``g_i`` too.
    """
    c = -c if c[0] < 0.0 else c
    flipped = c.copy()
    flipped[1::2] *= -1.0
    return [c, flipped]


def _is_close(monotone: Array, c: Array) -> bool:
    return bool(np.all(monotone - c <= _RELATIVE * monotone + _ABSOLUTE * monotone.max()))


def _lag_products(c: Array, lag: int) -> Array:
    """``X_{i, i+lag} = sum_r c_r c_{r+lag}`` over ``r < n - i - lag``, for ``i = 0, ..``."""
    n = len(c)
    return np.cumsum(c[: n - lag] * c[lag:])[::-1]


def _chain(norms: Array, pairs: Callable[[int], Array], k: int, b: int, last: int) -> float:
    """Best pattern if a participation meets only the one before it, less than ``last`` earlier.

    ``F_m[j]`` is the best value of ``m`` participations, the last at ``j``.  Signs ``g_i = +-u``
    make every product of a chain positive, so the sum of ``|X|`` is reached.
    """
    n = len(norms)
    best = norms
    top = float(best.max())
    lags = range(b, last)
    stored = [pairs(lag) for lag in lags] if len(lags) * n <= DENSE_LIMIT**2 // 2 else None
    for _ in range(k - 1):
        before = np.full(n, -np.inf)
        if last < n:
            before[last:] = np.maximum.accumulate(best)[: n - last]
        for index, lag in enumerate(lags):
            pair = pairs(lag) if stored is None else stored[index]
            np.maximum(before[lag:], best[: n - lag] + 2.0 * pair, out=before[lag:])
        best = norms + before
        top = max(top, float(best.max()))
    return top


def _pairs_dominated(
    pairs: Callable[[int], Array], n: int, k: int, b: int, norms: Array | None = None
) -> bool:
    """Whether ``|X_ij| <= X_{a b, (a+m) b}`` whenever ``i >= a b`` and ``j - i >= m b``."""
    if norms is not None:
        largest = np.maximum.accumulate(norms[::-1])[::-1]
        if np.any(largest[: k * b : b] > norms[: k * b : b] * (1.0 + _RELATIVE)):
            return False
    # Largest |X_{i, i+lag}| over the lags seen so far, from the longest down.
    largest = np.zeros(n)
    for lag in range(n - 1, b - 1, -1):
        pair = pairs(lag)
        np.maximum(largest[: n - lag], np.abs(pair), out=largest[: n - lag])
        m, rest = divmod(lag, b)
        if rest == 0 and m < k:
            suffix = np.maximum.accumulate(largest[::-1])[::-1]
            wanted = pair[: (k - m) * b : b]
            if np.any(suffix[: (k - m) * b : b][: len(wanted)] > wanted * (1.0 + _RELATIVE)):
                return False
    return True


def _two_stage(x: Array, k: int, b: int) -> float:
    return float(best_pattern_sum(best_pattern_sum(np.abs(x), k, b), k, b))
