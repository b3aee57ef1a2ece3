r"""What the strategy optimizers share: input checks, error weights, starting points, descent.

All optimizers minimize :math:`\log \|B\|^2 + \log \mathrm{sens}(C)^2` with
:math:`B = A C^{-1}`, which does not change when ``C`` is rescaled.  For a Toeplitz workload with
coefficients ``w`` the factor has coefficients :math:`\beta = w / c` (division of series), and

* ``error="mean"``: :math:`\|B\|_F^2 / n = \sum_r (1 - r/n) \beta_r^2`,
* ``error="max"``: the largest squared row norm, that of the last row, :math:`\sum_r \beta_r^2`.
"""

import numbers
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from ._participation import column_sum
from ._toeplitz import Array

LossAndGradient = Callable[[Array], tuple[float, Array]]

ERRORS = ("mean", "max")
# Stands for the logarithm of a loss that overflows: above every finite one, and finite, because
# the line search interpolates through it.
OVERFLOW = 2000.0


def check_length_and_size(n: int, name: str, value: int) -> None:
    """Refuse a number of steps or a size of strategy outside ``1 <= value <= n``."""
    if isinstance(n, bool) or not isinstance(n, numbers.Integral) or n < 1:
        raise ValueError(f"n must be an integer >= 1, got {n!r}.")
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not 1 <= value <= n:
        raise ValueError(f"{name} must be an integer between 1 and n={n}, got {value!r}.")


def check_workload(workload_coef: ArrayLike, n: int) -> Array:
    """Return the workload's coefficients as floats, scaled to a first one of 1."""
    w = np.asarray(workload_coef, dtype=float)
    if w.shape != (n,):
        raise ValueError(f"workload_coef must have shape (n,) = ({n},), got {w.shape}.")
    if not np.isfinite(w).all():
        raise ValueError("workload_coef must be finite, got nan or infinity.")
    if w[0] <= 0:
        raise ValueError(f"workload_coef[0] must be positive, got {w[0]!r}.")
    scaled: Array = w / w[0]
    return scaled


def error_weights(n: int, error: str) -> Array:
    """Return the weights ``q`` with squared error ``sum_r q_r beta_r^2``."""
    if error not in ERRORS:
        raise ValueError(f"error must be one of {ERRORS}, got {error!r}.")
    return np.arange(n, 0.0, -1.0) / n if error == "mean" else np.ones(n)


def series_power(a: Array, exponent: float, length: int) -> Array:
    r"""First coefficients of ``a(x)^exponent`` for a series with ``a_0 = 1``, in O(length^2).

    From :math:`a f' = \mathrm{exponent} \cdot a' f`:
    :math:`j f_j = \sum_{i=1}^{j} (i \cdot \mathrm{exponent} - (j - i)) a_i f_{j-i}`.

    Examples
    --------
    >>> series_power(np.ones(4), -0.5, 4)  # (1 - x)^(1/2)
    array([ 1.    , -0.5   , -0.125 , -0.0625])
    """
    f = np.zeros(length)
    f[0] = 1.0
    # A workload that jumps by orders of magnitude may overflow; its series is then no use.
    with np.errstate(over="ignore", invalid="ignore"):
        for j in range(1, length):
            i = np.arange(1, j + 1)
            f[j] = ((i * exponent - (j - i)) * a[1 : j + 1]) @ f[:j][::-1] / j
    return f


def correlate_lags(a: Array, b: Array, lags: int) -> Array:
    """``sum_r a_r b_{r-j}`` for ``j = 0 .. lags - 1``; the adjoint of multiplying by ``b``."""
    return np.correlate(np.concatenate((np.zeros(lags - 1), b)), a, "valid")[::-1]


def column_sum_squared_and_gradient(
    coef: Array, participations: int, separation: int
) -> tuple[float, Array]:
    """Squared norm of the sum of columns ``0, b, .., (k-1) b`` and its derivative by ``coef``."""
    v = column_sum(coef, participations, separation)
    adjoint = column_sum(v[::-1], participations, separation)[::-1]
    return float(v @ v), 2.0 * adjoint


def descend(
    loss: LossAndGradient,
    start: Array,
    *,
    bounds: tuple[float, float] | None = None,
    max_evaluations: int = 5000,
) -> tuple[Array, float]:
    """Minimize by L-BFGS-B, from the point it stops at once more while that helps.

    A second run forgets the curvature of the first, which unblocks line searches that stopped
    at a kink of the loss or next to points where it overflows.
    """
    point, value = start, loss(start)[0]
    if len(start) == 0:
        return point, value
    limits = None if bounds is None else [bounds] * len(start)
    while max_evaluations > 0:
        result = minimize(
            loss,
            point,
            jac=True,
            method="L-BFGS-B",
            bounds=limits,
            options={
                "maxcor": 30,
                "ftol": 1e-15,
                "gtol": 1e-9,
                "maxiter": max_evaluations,
                "maxfun": max_evaluations,
            },
        )
        max_evaluations -= int(result.nfev)
        gain = value - float(result.fun)
        if gain > 0:
            point, value = np.asarray(result.x), float(result.fun)
        if gain < 1e-10:
            break
    return point, value
