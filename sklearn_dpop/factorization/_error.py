"""Error of a mechanism: ``B = A C^-1`` times the sensitivity of ``C``."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from ._checks import check_integer, check_real
from ._explicit import BIFR
from ._sensitivity import sensitivity
from ._strategy import Strategy
from ._workload import PrefixSum, Workload, check_same_length


def rmse(
    workload: Workload, strategy: Strategy, participations: int = 1, separation: int | None = None
) -> float:
    """Root mean squared error ``|B|_F sens(C) / sqrt(n)`` for unit noise per unit sensitivity.

    Multiply by the noise multiplier of the Gaussian mechanism and by the clip norm (and by
    ``sqrt(d)`` for the error of a whole vector).

    Parameters
    ----------
    workload : Workload
        ``A``, which fixes the number of steps ``n``.
    strategy : Strategy
        ``C``.  A family with free parameters (:class:`BandMF`, :class:`BandInvMF`,
        :class:`BLT`) is optimized for the task first.
    participations : int, default=1
        ``k``; see :func:`sensitivity`.
    separation : int, default=None
        ``b``; ``None`` means ``n``.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the arguments do not fit together.

    Examples
    --------
    >>> from sklearn_dpop.factorization import BIFR, Identity, PrefixSum
    >>> round(rmse(PrefixSum(2000), BIFR(0.899, 4), participations=20, separation=100), 3)
    25.398
    >>> round(rmse(PrefixSum(2000), Identity(), participations=20, separation=100), 2)
    141.46
    """
    return _error(workload, strategy, participations, separation, "mean")


def max_error(
    workload: Workload, strategy: Strategy, participations: int = 1, separation: int | None = None
) -> float:
    """Error of the worst step, ``max_i |B_i|_2 sens(C)``.

    Parameters
    ----------
    workload, strategy, participations, separation
        See :func:`rmse`.

    Returns
    -------
    float

    Examples
    --------
    >>> from sklearn_dpop.factorization import Identity, PrefixSum
    >>> max_error(PrefixSum(64), Identity())
    8.0
    """
    return _error(workload, strategy, participations, separation, "max")


def amplified_rmse(
    workload: Workload,
    strategy: Strategy,
    noise_multiplier: float | Callable[[Strategy, int], float],
    *,
    error: str = "mean",
) -> float:
    """Error when an accountant of the sampling scheme gives the noise: ``|B|_F kappa / sqrt(n)``.

    Parameters
    ----------
    workload : Workload
        ``A``.
    strategy : Strategy
        ``C``.
    noise_multiplier : float or callable
        ``kappa``: standard deviation of ``Z`` per unit of clip norm for this ``C`` as it is (not
        divided by its sensitivity).  A callable is called with the strategy and ``n``.
    error : {"mean", "max"}, default="mean"
        Over the steps.

    Returns
    -------
    float

    Examples
    --------
    >>> from sklearn_dpop.factorization import Identity, PrefixSum
    >>> round(amplified_rmse(PrefixSum(400), Identity(), 4.31), 1)
    61.0
    """
    check_same_length(workload, strategy)
    kappa = noise_multiplier
    if callable(kappa):
        kappa = kappa(strategy, workload.n)
    kappa = check_real("noise_multiplier", kappa, 0.0, np.inf, open_high=True)
    return kappa * _spread(workload, strategy, error)


def best_gamma(
    n: int,
    bandwidth: int,
    participations: int = 1,
    separation: int | None = None,
    workload: Workload | None = None,
    *,
    objective: str | Callable[[BIFR], float] = "mean",
    noise_multiplier: Callable[[Strategy, int], float] | None = None,
) -> float:
    """Gamma of :class:`BIFR` with the smallest error, by scalar search.

    Parameters
    ----------
    n : int
        Number of steps.
    bandwidth : int
        ``p >= 2``.
    participations : int, default=1
        ``k``.
    separation : int, default=None
        ``b``; ``None`` means ``n``.
    workload : Workload, default=None
        With ``n`` steps; ``None`` means prefix sums.
    objective : {"mean", "max", "amplified"} or callable, default="mean"
        What to minimize: :func:`rmse`, :func:`max_error`, :func:`amplified_rmse`, or a function
        of the strategy.
    noise_multiplier : callable, default=None
        For ``"amplified"`` only, and required there: called with a strategy and ``n``, it
        returns the noise multiplier that an accountant demands, for example
        :func:`sklearn_dpop.privacy.estimate_noise_multiplier` for a target.  It is called some
        30 times, and gamma is found to about 0.002.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> round(best_gamma(2000, 4, 20, 100), 3)
    0.899

    An accountant's multiplier instead of the sensitivity (here of batches in a fixed order):

    >>> from sklearn_dpop.privacy import Schedule, estimate_noise_multiplier
    >>> schedule = Schedule(10_000, 100, epochs=20, sampling="cyclic")
    >>> def multiplier(strategy, n):
    ...     return estimate_noise_multiplier(1.0, 1e-5, strategy, schedule)
    >>> round(best_gamma(2000, 4, objective="amplified", noise_multiplier=multiplier), 2)
    0.9
    """
    workload = PrefixSum(n) if workload is None else workload
    if workload.n != n:
        raise ValueError(f"workload must have n={n} steps, has {workload.n}.")
    check_integer("bandwidth", bandwidth, 2)
    if (noise_multiplier is None) == (objective == "amplified"):
        raise ValueError(
            f"noise_multiplier must be a function for objective='amplified' and None otherwise, "
            f"got {noise_multiplier!r} for objective={objective!r}."
        )
    amplified = noise_multiplier is not None

    def measure(strategy: BIFR) -> float:
        if noise_multiplier is not None:
            return amplified_rmse(workload, strategy, noise_multiplier)
        if callable(objective):
            return float(objective(strategy))
        return _error(workload, strategy, participations, separation, _check_error(objective))

    points, tolerance = (17, 2e-3) if amplified else (33, 1e-7)

    def value(gamma: float) -> float:
        return measure(BIFR(float(gamma), bandwidth))

    # The error has one minimum in all cases seen; the grid guards against a second one.
    grid = np.linspace(0.0, 1.0, points)
    values = [value(gamma) for gamma in grid]
    i = int(np.argmin(values))
    low, high = grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)]
    found: Any = minimize_scalar(
        value, bounds=(low, high), method="bounded", options={"xatol": tolerance}
    )
    return float(found.x if found.fun < values[i] else grid[i])


def _error(workload: Workload, strategy: Strategy, k: int, b: int | None, error: str) -> float:
    if not isinstance(workload, Workload):
        raise ValueError(f"workload must be a Workload, got {workload!r}.")
    check_same_length(workload, strategy)
    b = workload.n if b is None else b
    strategy = strategy.optimize(workload, participations=k, separation=b)
    return float(sensitivity(strategy, k, b, workload.n)) * _spread(workload, strategy, error)


def _spread(workload: Workload, strategy: Strategy, error: str) -> float:
    energies = workload.row_energies(strategy)
    return float(np.sqrt(energies.mean() if _check_error(error) == "mean" else energies.max()))


def _check_error(error: str) -> str:
    if error not in ("mean", "max"):
        raise ValueError(f"error must be 'mean' or 'max', got {error!r}.")
    return error
