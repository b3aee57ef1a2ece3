r"""Balls-in-bins sampling with orthogonal bins: certified privacy profile without sampling.

If the means of the b bins are orthogonal and of equal length g (independent noise, C = I, has
``g = sqrt(epochs)``), the pair of a record against no record is that of 1-out-of-b random
allocation of one Gaussian mechanism (Feldman & Shenfeld 2026, arXiv 2602.17284),

.. math:: P = \frac{1}{b} \sum_i N(g e_i, \sigma^2 I_b), \qquad Q = N(0, \sigma^2 I_b),

and depends on b and the ratio :math:`q = \sigma / g` alone.

**The divergences are expectations of convex functions of a mean.**  Under Q the likelihood
ratio is :math:`Y = dP/dQ = (A_1 + \dots + A_b)/b` with independent log-normal
:math:`A_i = e^{X_i}`, :math:`X_i \sim N(-1/(2 q^2), 1/q^2)`, of mean 1, and

.. math::

    \delta_{remove}(\epsilon) = H_{e^\epsilon}(P \| Q) = \mathbb{E} (Y - e^\epsilon)_+, \qquad
    \delta_{add}(\epsilon) = H_{e^\epsilon}(Q \| P) = \mathbb{E} (1 - e^\epsilon Y)_+ .

**Rounding that is an upper bound of both.**  Replace a value a by the two neighbours
:math:`l \le a \le u` on a grid, with the probabilities (u - a)/(u - l) and (a - l)/(u - l):
the mean stays, and by Jensen's inequality the expectation of every convex function can only
grow.  A sum of independent variables is convex in each of them, so that this holds as well if
summands or partial sums are replaced, at any stage.  The error is of second order in the
spacing of the grid, where rounding up (remove) or down (add) has one of first order.

**Tails.**  Values above the grid are moved down to its end U.  That lowers Y, so that it
raises the add divergence, and lowers the remove divergence by at most the expected excess
:math:`\mathbb{E} (a - U)_+ / b`, which is added.

**Computation.**  The law of a sum of m terms is a list of about 1500 points; the law of 2 m
terms follows from all pairs of points, spread over a fine grid (uniform in the logarithm) and
then over 1500 of its points, placed where the divergences are curved.  Everything is a sum of
positive products, so that rounding errors stay relative: they are bounded along the way (see
`_Law`) and added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from sklearn_dpop.privacy._gaussian import log_gaussian_delta

__all__ = ["random_allocation_delta", "random_allocation_deltas"]

Float = NDArray[np.float64]

_POINTS = 1500
_FINE = 1 << 16
# Pairs that are added at once: they should stay in the cache.
_ROWS = 64
# Mass below the grid and expected excess above it: far below any delta of interest.
_TINY = 1e-30
# Points per unit of sqrt(probability / divergence**0.85): an exponent of 1 would make the
# relative error of a step equal at all epsilon, smaller ones favour large divergences.
_TAIL_EXPONENT = 0.85
_TAIL_FLOOR = 1e-12
# Standard deviations of X on the grid, and points of that grid.
_REACH = 12.0
_BASE_POINTS = 6000
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
# Ratios for which no value leaves 1e-150..1e150 and none is finer than rounding errors.
_RATIOS = (0.06, 1e4)
_UNIT = 2.0**-53
# Relative error of a computed base mass: exp(-z^2/2), |z| <= 12, and 8 nodes on 0.004 sd.
_BASE_SLACK = 1e-13
# Relative error of a value per sum: the logarithm that finds its interval, |log| < 700.
_VALUE_SLACK = 1000 * _UNIT
# Products that underflow lose less than 1e-300 of mass at values below 1e155.
_UNDERFLOW = 1e-100


@dataclass(frozen=True, eq=False)
class _Law:
    """Discrete law that dominates, in convex order, a sum of `terms` log-normals of mean 1.

    Dominates means: for convex f of slope at most 1, and f increasing or decreasing,
    ``E f(sum) <= exp(mass_slack) * sum(masses * f(points * (1 +- value_slack))) + excess``,
    with the sign that makes the right side larger.

    Attributes
    ----------
    points : ndarray of shape (n,)
        Increasing, the first one 0.
    masses : ndarray of shape (n,)
        Probabilities, not normalised.
    terms : int
        Number of terms.
    excess : float
        Expected loss of value through cuts of the upper tail.
    mass_slack, value_slack : float
        Bounds of the rounding errors.
    """

    points: Float
    masses: Float
    terms: int
    excess: float
    mass_slack: float
    value_slack: float


def random_allocation_delta(ratio: float, n_bins: int, epsilons: ArrayLike) -> Float:
    r"""Return an upper bound of the privacy profile of 1-out-of-b random allocation.

    The bound covers both directions (record added, record removed) and holds without failure
    probability; the module's description has the proof.  For ratios above 0.3 and deltas down to
    1e-5 it exceeds the exact value by about one percent at most, mostly by a tenth of that.

    Parameters
    ----------
    ratio : float
        Noise standard deviation over the length of the means of the bins, positive:
        ``sigma / sqrt(epochs)`` for independent noise and clip norm 1.  Outside of
        [0.06, 10000] the bound is the profile without amplification.
    n_bins : int
        Number of bins b, at least 1.
    epsilons : array_like
        Finite real numbers.

    Returns
    -------
    ndarray of the shape of `epsilons`
        Upper bounds of delta, in (0, 1].

    Raises
    ------
    ValueError
        If `ratio` is not positive and finite, `n_bins` not a positive integer or an epsilon
        not finite.

    Examples
    --------
    64 steps per epoch, 4 epochs, noise multiplier 2:

    >>> float(random_allocation_delta(2.0 / 4**0.5, 64, 1.806).round(9))
    1e-08
    """
    removed, added = random_allocation_deltas(ratio, n_bins, epsilons)
    return np.maximum(removed, added)


def random_allocation_deltas(
    ratio: float, n_bins: int, epsilons: ArrayLike
) -> tuple[Float, Float]:
    """Return upper bounds of the profile of each direction, remove H(P||Q) and add H(Q||P).

    Parameters
    ----------
    ratio, n_bins, epsilons
        As in `random_allocation_delta`.

    Returns
    -------
    remove, add : ndarrays of the shape of `epsilons`
        Upper bounds of the two divergences.

    Examples
    --------
    Amplification helps more where a record is added:

    >>> removed, added = random_allocation_deltas(1.0, 64, [0.5, 1.0])
    >>> bool((added < removed).all())
    True
    """
    if not (math.isfinite(ratio) and ratio > 0):
        raise ValueError(f"ratio must be a positive finite number, got {ratio!r}.")
    if n_bins != int(n_bins) or n_bins < 1:
        raise ValueError(f"n_bins must be a positive integer, got {n_bins!r}.")
    eps = np.asarray(epsilons, dtype=float)
    if not np.isfinite(eps).all():
        raise ValueError(f"epsilons must be finite, got {epsilons!r}.")
    # By joint convexity neither direction exceeds the mechanism without amplification.
    plain: Float = np.exp(log_gaussian_delta(1.0 / ratio, eps))
    if n_bins == 1 or not _RATIOS[0] <= ratio <= _RATIOS[1]:
        return plain, plain.copy()
    law = _mean_law(float(ratio), int(n_bins))
    y, factor = law.points, math.exp(law.mass_slack)
    removed, added = np.empty(eps.size), np.empty(eps.size)
    for i, threshold in enumerate(np.exp(np.minimum(eps.ravel(), 300.0))):
        larger = np.maximum(y * (1.0 + law.value_slack) - threshold, 0.0)
        smaller = np.maximum(1.0 - threshold * (1.0 - law.value_slack) * y, 0.0)
        removed[i] = factor * (law.masses @ larger + law.excess) + _UNDERFLOW
        added[i] = factor * (law.masses @ smaller) + _UNDERFLOW
    return (
        np.minimum(removed.reshape(eps.shape), plain),
        np.minimum(added.reshape(eps.shape), plain),
    )


@lru_cache(maxsize=4)  # a search over epsilon asks for the same law again
def _mean_law(ratio: float, n_bins: int) -> _Law:
    """Return the law of the mean of `n_bins` terms, by the binary digits of `n_bins`."""
    one = _coarse(_base_law(1.0 / ratio))
    law = one
    for digit in f"{n_bins:b}"[1:]:
        law = _sum(law if law is one else _coarse(law), None)
        if digit == "1":
            law = _sum(_coarse(law), one)
    slack = law.mass_slack + law.points.size * _UNIT
    return _Law(law.points / n_bins, law.masses, 1, law.excess / n_bins, slack, law.value_slack)


def _base_law(sd: float) -> _Law:
    r"""Return a law that dominates :math:`e^X`, X normal of deviation sd and mean -sd^2/2.

    Between two points l < u the masses are the integrals of :math:`(u - e^x)/(u - l)` and
    :math:`(e^x - l)/(u - l)` against the density of X: no differences of probabilities.
    """
    low = -0.5 * sd * sd - _REACH * sd
    high = 0.5 * sd * sd + _REACH * sd
    x = np.linspace(low, high, _BASE_POINTS)
    half = 0.5 * (high - low) / (_BASE_POINTS - 1)
    offset = half * (1.0 + _NODES)
    z = (x[:-1, None] + offset + 0.5 * sd * sd) / sd
    density = half * _WEIGHTS * np.exp(-0.5 * z * z) / (math.sqrt(2.0 * math.pi) * sd)
    up = np.expm1(offset) / math.expm1(2.0 * half)
    down = math.exp(2.0 * half) * -np.expm1(offset - 2.0 * half) / math.expm1(2.0 * half)
    points = np.concatenate(([0.0], np.exp(x)))
    masses = np.zeros(points.size)
    masses[1:-1] += density @ down
    masses[2:] += density @ up
    # Below the grid: E[e^X; X < low] is e^low times the mass that goes to the first point.
    mean_share = float(ndtr((low - 0.5 * sd * sd) / sd)) * math.exp(-low)
    masses[0] = float(ndtr((low + 0.5 * sd * sd) / sd)) - mean_share
    masses[1] += mean_share
    masses[-1] += float(ndtr(-(high + 0.5 * sd * sd) / sd))
    excess = 2.0 * math.exp(float(log_gaussian_delta(sd, high)))  # twice: rounding errors
    law = _Law(points, masses, 1, excess, _BASE_SLACK, _VALUE_SLACK)
    return _cut(law)


def _sum(a: _Law, b: _Law | None) -> _Law:
    """Return a fine law that dominates the sum of two independent variables (or a and a)."""
    other = a if b is None else b
    low = a.points[1] + other.points[1]
    high = a.points[-1] + other.points[-1]
    log_low = math.log(low)
    step = (math.log(high) - log_low) / (_FINE - 1)
    grid = np.concatenate(([0.0], low * np.exp(step * np.arange(_FINE))))
    grid[-1] = high * (1.0 + 4.0 * _UNIT)
    gap = np.diff(grid)
    masses = np.zeros(grid.size)
    for start in range(0, a.points.size, _ROWS):
        rows = slice(start, start + _ROWS)
        columns = slice(start if b is None else 0, None)
        value = np.add.outer(a.points[rows], other.points[columns]).ravel()
        weight = np.multiply.outer(a.masses[rows], other.masses[columns])
        if b is None:
            weight[:, _ROWS:] *= 2.0  # pairs (i, j) and (j, i)
        weight = weight.ravel()
        place = (np.log(np.maximum(value, low)) - log_low) / step
        left = np.where(value < low, 0, 1 + place.astype(np.intp)).clip(0, _FINE - 1)
        share = ((value - grid[left]) / gap[left]).clip(0.0, 1.0)
        masses += np.bincount(left, weight * (1.0 - share), grid.size)
        masses += np.bincount(left + 1, weight * share, grid.size)
    pairs = a.points.size * other.points.size
    return _cut(
        _Law(
            grid,
            masses,
            a.terms + other.terms,
            a.excess + other.excess,
            a.mass_slack + other.mass_slack + (pairs + 10) * _UNIT,
            max(a.value_slack, other.value_slack) + _VALUE_SLACK,
        )
    )


def _cut(law: _Law) -> _Law:
    """Drop the points at both ends that do not matter: below to 0 and the rest, above down."""
    x, p = law.points, law.masses
    first = max(int(np.searchsorted(np.cumsum(p), _TINY)), 1)
    above = _mean_above(x, p)
    last = int(np.argmax(above <= _TINY * law.terms))
    kept = p[first : last + 1].copy()
    share = p[1:first] * (x[1:first] / x[first])
    kept[0] += share.sum()
    kept[-1] += p[last + 1 :].sum()
    zero = p[0] + (p[1:first] * (1.0 - x[1:first] / x[first])).sum()
    return _Law(
        np.concatenate(([0.0], x[first : last + 1])),
        np.concatenate(([zero], kept)),
        law.terms,
        law.excess + float(above[last]),
        law.mass_slack + (x.size + 10) * _UNIT,
        law.value_slack + 10 * _UNIT,
    )


def _coarse(law: _Law) -> _Law:
    """Return a law of `_POINTS` points that dominates `law`."""
    x, p = law.points, law.masses
    if x.size <= _POINTS:
        return law
    # E(S - x)_+ and E(x - S)_+ have curvature p; linear interpolation between points at a
    # distance w, which is what spreading does to them, errs by w^2 p / 8.
    above = _mean_above(x, p)
    below = np.concatenate(([0.0], np.cumsum(np.cumsum(p)[:-1] * np.diff(x))))
    divergence = np.maximum(np.minimum(above, below) / above[0], _TAIL_FLOOR)
    density = np.sqrt(p * np.gradient(x) / divergence**_TAIL_EXPONENT)
    place = np.cumsum(density)
    chosen = np.searchsorted(place, np.linspace(0.0, place[-1], _POINTS)).clip(0, x.size - 1)
    chosen = np.unique(np.concatenate(([0, 1, x.size - 1], chosen)))
    grid = x[chosen]
    left = np.searchsorted(chosen, np.arange(x.size), side="right") - 1
    left = np.minimum(left, grid.size - 2)
    share = (x - grid[left]) / (grid[left + 1] - grid[left])
    masses = np.zeros(grid.size)
    masses += np.bincount(left, p * (1.0 - share), grid.size)
    masses += np.bincount(left + 1, p * share, grid.size)
    return _Law(
        grid,
        masses,
        law.terms,
        law.excess,
        law.mass_slack + (x.size + 10) * _UNIT,
        law.value_slack + 10 * _UNIT,
    )


def _mean_above(x: Float, p: Float) -> Float:
    """Return E(S - x_i)_+ at every point, as a sum of positive terms."""
    tail = np.cumsum(p[::-1])[::-1]
    above: Float = np.concatenate((np.cumsum((tail[1:] * np.diff(x))[::-1])[::-1], [0.0]))
    return above
