"""Composition of releases whose privacy is known as a curve ``epsilon -> delta(epsilon)``.

The curve is turned into a discrete privacy-loss distribution that dominates every release
(connect-the-dots), and the distribution is convolved with itself.  Two rules make the
result a guarantee rather than an approximation:

* a discretization, a truncation or a merge of atoms only ever raises the hockey-stick curve;
* all masses are nonnegative and are combined by sums of products only, so a computed mass is
  within a known relative error of the exact one, and is raised by it.  (A convolution by
  FFT has an absolute error near 1e-16 instead and resolves no smaller delta.)
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

__all__ = [
    "PrivacyLossDistribution",
    "chords",
    "compose_profile",
    "compose_profiles",
    "dominating_distribution",
    "optimal_composition_delta",
    "optimal_composition_epsilon",
]

FloatArray = NDArray[np.float64]
LogProfile = Callable[[FloatArray], FloatArray]

# Twice the unit roundoff.  Error bounds below count roundings in this unit; the factor two
# covers the second-order terms, and exp, expm1, log1p are taken to be within four units.
_U = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)
# Longest array of masses: one convolution of two such arrays takes about 10 ms.
_MAX_SIZE = 8192
# Relative error of the composed delta that one discretization may cause.
_GRID_ERROR = 3e-4
# Mass moved to an infinite loss by truncation, relative to the delta of interest.
_TAIL_SHARE = 1e-6


@dataclass(frozen=True, eq=False)
class PrivacyLossDistribution:
    r"""Masses of the privacy loss on a regular grid, with an atom at infinity.

    It stands for the hockey-stick curve

    .. math:: \delta(\varepsilon) = p_\infty + \sum_i p_i\,(1 - e^{\varepsilon - l_i})_+,
              \qquad l_i = (\mathtt{offset} + i)\,\mathtt{step}.

    Attributes
    ----------
    step : float
        Distance of two grid points, in nats.
    offset : int
        Index of the first grid point.
    probs : ndarray of shape (n_points,)
        Nonnegative masses.  Their sum may exceed ``1 - infinity`` slightly, for masses are
        rounded up.
    infinity : float
        Mass of the infinite loss.

    Examples
    --------
    Randomized response with epsilon = 1, twice: the losses are -2, 0 and 2.

    >>> import math
    >>> import numpy as np
    >>> from sklearn_dpop.privacy._composition import PrivacyLossDistribution
    >>> p = math.e / (1 + math.e)
    >>> once = PrivacyLossDistribution(1.0, -1, np.array([1 - p, 0.0, p]), 0.0)
    >>> twice = once.compose(2, tail=0.0)
    >>> round(twice.delta(1.0), 6), round(p**2 * (1 - math.exp(-1)), 6)
    (0.337835, 0.337835)
    >>> round(twice.epsilon(0.0), 6)
    2.0
    """

    step: float
    offset: int
    probs: FloatArray
    infinity: float

    def delta(self, epsilon: float) -> float:
        """Return the hockey-stick divergence at `epsilon`, rounded up.

        Parameters
        ----------
        epsilon : float
            Nonnegative, ``inf`` included.

        Returns
        -------
        delta : float
            In [0, 1].  Not resolved under about 1e-300.
        """
        epsilon = _nonnegative("epsilon", epsilon)
        index = np.arange(max(self.offset, 0), self.offset + self.probs.size)
        # The loss index * step is a real number: with the step in two halves of 26 and 27 bits
        # both products are exact, and the excess is right to a few roundings of itself.
        mantissa, exponent = math.frexp(self.step)
        high = math.ldexp(math.floor(mantissa * 2.0**26), exponent - 26)
        excess = (index * high - epsilon) + index * (self.step - high)
        excess += np.where(index > 2**26, index * high * 4.0 * _U, 0.0)  # no longer exact
        probs = self.probs[self.probs.size - index.size :]
        counted = (excess > 0.0) & (probs > 0.0)
        terms = int(np.count_nonzero(counted))
        total = float(probs[counted] @ -np.expm1(-excess[counted])) + terms * _TINY
        return min(1.0, (self.infinity + total) * (1.0 + (terms + 8) * _U))

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 with ``self.delta(epsilon) <= delta``, rounded up.

        Parameters
        ----------
        delta : float
            In [0, 1].

        Returns
        -------
        epsilon : float
            ``inf`` when the mass of the infinite loss exceeds `delta`.
        """
        delta = _probability("delta", delta)
        if self.delta(0.0) <= delta:
            return 0.0
        if self.delta(math.inf) > delta:
            return math.inf
        low, high = 0, self.offset + self.probs.size - 1
        if self.delta(high * self.step) > delta:
            # The answer is the largest loss, but its product is rounded down.
            start, end = high * self.step, math.inf
        else:
            # Bisect for the grid interval that holds the answer; in it, the curve is linear
            # in exp(epsilon).
            while high - low > 1:
                middle = (low + high) // 2
                if self.delta(middle * self.step) <= delta:
                    high = middle
                else:
                    low = middle
            at_low, at_high = self.delta(low * self.step), self.delta(high * self.step)
            share = (at_low - delta) / (at_low - at_high)
            start = low * self.step + math.log1p(share * math.expm1(min(self.step, 700.0)))
            end = high * self.step
        # The solution is rounded: move up until the (rounded up) curve agrees.
        result, move = start, _U * max(start, self.step)
        while self.delta(result) > delta:
            result, move = min(start + move, end), 2.0 * move
        return result

    def compose(self, count: int, *, tail: float) -> PrivacyLossDistribution:
        """Return a distribution that dominates `count` independent copies of this one.

        Parameters
        ----------
        count : int
            Number of copies, at least 1.
        tail : float
            Bound on the mass that truncation may add to the infinite loss.  It limits the
            length of the arrays, and never makes the result optimistic.

        Returns
        -------
        composed : PrivacyLossDistribution
            Its step is that of this distribution times a power of two.
        """
        count = _count("count", count)
        tail = _probability("tail", tail)
        if count == 1:
            return self
        # Mass truncated from c copies reaches the result about count / c times.
        share = tail / (2 * count.bit_length() * count)
        base = result = self
        done = 1
        for bit in f"{count:b}"[1:]:
            result = result._convolve(result)
            done *= 2
            result = result._shorten(share * done)
            if bit == "1":
                while base.step < result.step:
                    base = base._coarsen()
                result = result._convolve(base)
                done += 1
                result = result._shorten(share * done)
        return result

    def _convolve(self, other: PrivacyLossDistribution) -> PrivacyLossDistribution:
        """Return the distribution of the sum of two independent losses on one grid."""
        # Sums of n nonnegative products have a relative error under n + 1 roundings in
        # whatever order (and with or without fused operations) they are evaluated.
        terms = min(self.probs.size, other.probs.size)
        probs = np.convolve(self.probs, other.probs) * (1.0 + (terms + 4) * _U)
        mass, other_mass = (
            float(d.probs.sum()) * (1.0 + d.probs.size * _U) for d in (self, other)
        )
        infinity = self.infinity * (other_mass + other.infinity) + mass * other.infinity
        infinity *= 1.0 + 8.0 * _U
        smallest = [float(np.min(d.probs, where=d.probs > 0, initial=1.0)) for d in (self, other)]
        if smallest[0] * smallest[1] < 4.0 * _TINY:
            # Products that underflow lose up to _TINY each.
            infinity += terms * probs.size * _TINY
        return PrivacyLossDistribution(self.step, self.offset + other.offset, probs, infinity)

    def _shorten(self, drop: float) -> PrivacyLossDistribution:
        """Truncate both tails by at most `drop` each and coarsen to at most _MAX_SIZE points.

        The upper tail moves to the infinite loss and the lower tail up to the first kept
        point: both raise losses, hence the hockey-stick curve.
        """
        probs = self.probs
        size = probs.size
        kept_above = size - int(np.searchsorted(np.cumsum(probs[::-1]), drop, side="right"))
        below = int(np.searchsorted(np.cumsum(probs), drop, side="right"))
        last = max(kept_above, 1)
        first = min(below, last - 1)
        grow = 1.0 + (size + 4) * _U
        kept = probs[first:last].copy()
        infinity = self.infinity
        if first > 0:
            kept[0] = (kept[0] + float(probs[:first].sum())) * grow
        if last < size:
            infinity = (infinity + float(probs[last:].sum())) * grow
        result = PrivacyLossDistribution(self.step, self.offset + first, kept, infinity)
        while result.probs.size > _MAX_SIZE:
            result = result._coarsen()
        return result

    def _coarsen(self) -> PrivacyLossDistribution:
        r"""Double the step: split each odd atom between its even neighbours.

        The shares :math:`1/(1+e^{h})` (below) and :math:`1/(1+e^{-h})` (above) keep both the
        mass and its likelihood-ratio image, i.e. they connect the dots of the curve at the
        even points, which raises a convex curve.
        """
        left = self.offset % 2
        right = (self.offset + self.probs.size - 1) % 2
        padded = np.pad(self.probs, (left, right))
        coarse = padded[::2].copy()
        odd = padded[1::2]
        coarse[:-1] += odd / (1.0 + math.exp(min(self.step, 700.0)))
        coarse[1:] += odd / (1.0 + math.exp(-self.step))
        coarse *= 1.0 + 16.0 * _U
        return PrivacyLossDistribution(
            2.0 * self.step, (self.offset - left) // 2, coarse, self.infinity
        )


def dominating_distribution(
    log_delta: LogProfile, *, eps_min: float, eps_max: float, step: float
) -> PrivacyLossDistribution:
    r"""Return a discrete privacy-loss distribution that dominates a certified profile.

    Let :math:`H_{P,Q}(x) = \sup_S P(S) - x\,Q(S)`.  It is convex and nonincreasing, it obeys
    :math:`H_{P,Q}(1/x) = 1 - 1/x + H_{Q,P}(x)/x`, and the profile bounds it at the grid points
    :math:`x = e^{\varepsilon}` in both orders.  The piecewise linear curve through the
    bounds, constant beyond the last of them, is the curve of a discrete distribution, which
    dominates the release [1]_; products of dominating pairs dominate compositions (Theorem 10
    of [2]_).

    Parameters
    ----------
    log_delta : callable
        Maps an array of epsilon >= `eps_min` to an array of the same shape: the logarithm
        of a delta such that the release is (epsilon, delta)-differentially private in both
        orders of every neighbouring pair; 0 where nothing is certified, -inf for delta = 0.
    eps_min : float
        Start of the certified range, >= 0.  Losses in (-eps_min, eps_min) are replaced by
        the chord between its ends.
    eps_max : float
        End of the grid, >= `eps_min`.  The delta at the last grid point becomes an
        infinite loss.
    step : float
        Distance of two grid points, > 0.  A finer grid gives a lower curve.

    Returns
    -------
    distribution : PrivacyLossDistribution
        Symmetric: the same for both orders of a pair.

    Raises
    ------
    ValueError
        If a parameter is out of range, or `log_delta` returns NaN or another shape.

    Notes
    -----
    A chord between *any* two bounds lies above the convex curve H.  So bounds may be skipped
    freely, and those that are not convex (rounding, or a certificate that is not) are: what
    remains is the lower convex hull, the lowest curve that the bounds prove.

    References
    ----------
    .. [1] V. Doroshenko, B. Ghazi, P. Kamath, R. Kumar and P. Manurangsi, "Connect the dots:
       tighter discrete approximations of privacy loss distributions", PoPETs 2022(4).
    .. [2] Y. Zhu, J. Dong and Y.-X. Wang, "Optimal accounting of differential privacy via
       characteristic function", AISTATS 2022.

    Examples
    --------
    A mechanism with epsilon = 1 and delta = 0.01, of which nothing else is known:

    >>> import numpy as np
    >>> from sklearn_dpop.privacy._composition import dominating_distribution
    >>> d = dominating_distribution(
    ...     lambda eps: np.full(eps.shape, np.log(0.01)), eps_min=1.0, eps_max=1.0, step=1.0
    ... )
    >>> d.offset, d.probs.round(4).tolist(), round(d.infinity, 4)
    (-1, [0.2663, 0.0, 0.7237], 0.01)
    """
    eps_min = _nonnegative("eps_min", eps_min)
    eps_max = _nonnegative("eps_max", eps_max)
    if not eps_min <= eps_max < math.inf:
        raise ValueError(f"eps_max={eps_max!r} must be finite and >= eps_min={eps_min!r}.")
    if not 0.0 < step < math.inf:
        raise ValueError(f"step={step!r} must be positive and finite.")
    first = math.ceil(eps_min / step)
    if first * Fraction(step) < Fraction(eps_min):  # the quotient was rounded down
        first += 1
    last = max(first, math.ceil(eps_max / step))
    index = np.arange(first, last + 1)
    # The profile is nonincreasing: evaluated a little under the exact grid point (where the
    # rounded product cannot exceed it), it bounds delta at the grid point.
    delta = _evaluate(log_delta, np.maximum(eps_min, index * step * (1.0 - 2.0 * _U)))
    kept, probs, mirrored, infinity = _connect_the_dots(index, step, delta)
    full = np.zeros(2 * last + 1)
    full[last - index[kept]] = mirrored
    full[last + index[kept]] = probs
    return PrivacyLossDistribution(step, -last, full, infinity)


def compose_profile(
    log_delta: LogProfile, count: int, *, delta: float, eps_min: float = 0.0
) -> PrivacyLossDistribution:
    """Bound the privacy of `count` releases with independent noise on the same records.

    Grid and truncation are chosen from the profile; they decide how close the result is to
    the exact composition of the profile, never whether it is a bound.  For Gaussian profiles
    with a total epsilon up to 300 it is within 0.5% in delta and 0.02% in epsilon.

    Parameters
    ----------
    log_delta : callable
        Certified profile of one release, as in :func:`dominating_distribution`.  It is
        evaluated at epsilon from `eps_min` up to 1e5.
    count : int
        Number of releases, at least 1.
    delta : float
        The smallest total delta of interest, in (0, 1).  The result is valid for every
        epsilon and delta, and loose for smaller deltas.
    eps_min : float, default=0
        Start of the certified range, in [0, 1e4].

    Returns
    -------
    composed : PrivacyLossDistribution
        ``composed.delta(epsilon)`` and ``composed.epsilon(delta)`` hold for all releases
        together.

    Raises
    ------
    ValueError
        If a parameter is out of range, or `log_delta` returns NaN or another shape.

    Examples
    --------
    Four releases, each with the privacy of a Gaussian mechanism with sensitivity / sigma = 0.5,
    are as private as one with ratio 0.5 * sqrt(4) = 1.

    >>> import numpy as np
    >>> from scipy.special import ndtr
    >>> from sklearn_dpop.privacy._composition import compose_profile
    >>> def gaussian_delta(eps, m):
    ...     return ndtr(m / 2 - eps / m) - np.exp(eps) * ndtr(-m / 2 - eps / m)
    >>> def profile(eps):
    ...     return np.log(np.maximum(gaussian_delta(np.minimum(eps, 4.0), 0.5), 1e-300))
    >>> total = compose_profile(profile, 4, delta=1e-5)
    >>> exact = gaussian_delta(3.0, 1.0)
    >>> bool(exact <= total.delta(3.0) <= 1.002 * exact)
    True
    """
    count = _count("count", count)
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta={delta!r} must be in (0, 1).")
    eps_min = _nonnegative("eps_min", eps_min)
    if eps_min > 1e4:
        raise ValueError(f"eps_min={eps_min!r} must be at most 1e4.")
    sketch = _sketch(log_delta, count, delta, eps_min)
    step = _choose_step(sketch.losses, sketch.probs, count, sketch.target)
    step = max(step, sketch.finest)
    if step < eps_min:
        # Put a grid point on eps_min, or (rounded up) just above it.
        step = math.nextafter(eps_min / math.ceil(eps_min / step), math.inf)
    base = dominating_distribution(log_delta, eps_min=eps_min, eps_max=sketch.eps_max, step=step)
    return base.compose(count, tail=_TAIL_SHARE * sketch.target)


def compose_profiles(
    profiles: Iterable[tuple[LogProfile, int]], *, delta: float
) -> PrivacyLossDistribution:
    """Bound the privacy of releases of several kinds, with independent noise.

    As :func:`compose_profile`, for the same records, but every kind has a profile of its own.

    Parameters
    ----------
    profiles : iterable of (callable, int)
        Certified profile of each kind, from epsilon = 0 on, as in
        :func:`dominating_distribution`; and the number of releases of that kind.
    delta : float
        The smallest total delta of interest, in (0, 1).

    Returns
    -------
    composed : PrivacyLossDistribution
        ``composed.delta(epsilon)`` and ``composed.epsilon(delta)`` hold for all releases
        together.

    Raises
    ------
    ValueError
        If `profiles` is empty, a parameter is out of range, or a profile returns NaN or another
        shape.

    Examples
    --------
    Gaussian mechanisms with sensitivity / sigma = 0.6 and 0.8 are together as private as one
    with ratio 1.

    >>> import numpy as np
    >>> from scipy.special import ndtr
    >>> from sklearn_dpop.privacy import compose_profiles
    >>> def gaussian_delta(eps, m):
    ...     return ndtr(m / 2 - eps / m) - np.exp(eps) * ndtr(-m / 2 - eps / m)
    >>> def profile(m):
    ...     return lambda eps: np.log(np.maximum(gaussian_delta(np.minimum(eps, 6), m), 1e-300))
    >>> total = compose_profiles([(profile(0.6), 1), (profile(0.8), 1)], delta=1e-5)
    >>> exact = gaussian_delta(3.0, 1.0)
    >>> bool(exact <= total.delta(3.0) <= 1.002 * exact)
    True
    """
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta={delta!r} must be in (0, 1).")
    kinds = [(log_delta, _count("count", count)) for log_delta, count in profiles]
    if not kinds:
        raise ValueError("profiles: at least one is needed.")
    total = sum(count for _, count in kinds)
    sketches = [_sketch(log_delta, total, delta, 0.0) for log_delta, _ in kinds]
    step = min(_choose_step(s.losses, s.probs, max(total, 2), s.target) for s in sketches)
    tail = _TAIL_SHARE * delta / (2 * len(kinds))
    result: PrivacyLossDistribution | None = None
    for (log_delta, count), sketch in zip(kinds, sketches, strict=True):
        # Powers of two, so that the grids can be made one.
        own = step * 2.0 ** math.ceil(math.log2(max(1.0, sketch.finest / step)))
        base = dominating_distribution(log_delta, eps_min=0.0, eps_max=sketch.eps_max, step=own)
        made = base.compose(count, tail=tail)
        if result is None:
            result = made
            continue
        while result.step < made.step:
            result = result._coarsen()
        while made.step < result.step:
            made = made._coarsen()
        result = result._convolve(made)._shorten(tail)
    assert result is not None
    return result


def chords(epsilons: FloatArray, deltas: FloatArray) -> LogProfile:
    r"""Return a profile that interpolates certified points, rounded up.

    The curve :math:`\delta(\varepsilon)` of any mechanism is convex in
    :math:`e^\varepsilon` and nonincreasing: between two certified points their chord in
    :math:`e^\varepsilon` bounds it, and beyond the last one its delta.

    Parameters
    ----------
    epsilons : ndarray of shape (n_points,)
        Increasing, from 0 on; at least two.
    deltas : ndarray of shape (n_points,)
        Certified there, in [0, 1].

    Returns
    -------
    log_delta : callable
        As :func:`dominating_distribution` and :func:`compose_profile` take it.

    Examples
    --------
    Nothing is known of a mechanism but delta = 0.1 at epsilon = 0 and 0.02 at log(2):

    >>> import numpy as np
    >>> from sklearn_dpop.privacy._composition import chords
    >>> log_delta = chords(np.log([1.0, 2.0]), np.array([0.1, 0.02]))
    >>> np.exp(log_delta(np.log([1.0, 1.5, 2.0, 9.0]))).round(6).tolist()
    [0.1, 0.06, 0.02, 0.02]
    """
    epsilons = np.asarray(epsilons, dtype=np.float64)
    deltas = np.minimum.accumulate(np.asarray(deltas, dtype=np.float64))

    def log_delta(at: FloatArray) -> FloatArray:
        at = np.minimum(at, epsilons[-1])
        i = np.minimum(np.searchsorted(epsilons, at, side="right") - 1, epsilons.size - 2)
        left, right = epsilons[i], epsilons[i + 1]
        # (e^at - e^left) / (e^right - e^left), for any size of the exponents.
        share = np.exp(at - right) * (np.expm1(left - at) / np.expm1(left - right))
        value = deltas[i] - share * (deltas[i] - deltas[i + 1])
        # The share is right to some roundings of itself and of its exponents.
        slack = (16.0 + 2.0 * right) * _U * (deltas[i] - deltas[i + 1]) + 4.0 * _U * deltas[i]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.minimum(value + slack, 1.0)))

    return log_delta


class _Sketch(NamedTuple):
    """Range and scale of the losses of a profile."""

    losses: FloatArray
    probs: FloatArray
    eps_max: float
    # The smallest total delta that matters, and the smallest step that an array has room for.
    target: float
    finest: float


def _sketch(log_delta: LogProfile, count: int, delta: float, eps_min: float) -> _Sketch:
    """Evaluate the profile on a geometric grid."""
    sketch = np.geomspace(max(eps_min, 1e-6), 1e5, 600)
    if eps_min == 0.0:
        sketch = np.concatenate(([0.0], sketch))
    sketch_delta = _evaluate(log_delta, sketch)
    floor = float(sketch_delta.min())
    target = max(delta, min(1.0, count * floor))
    tail = _TAIL_SHARE * target
    above = sketch_delta > floor * (1.0 + _TAIL_SHARE) + tail / (4 * count * count.bit_length())
    end = min(int(np.flatnonzero(above).max(initial=-1)) + 2, sketch.size)
    eps_max = float(sketch[end - 1])
    kept, probs, mirrored, _ = _connect_the_dots(sketch[:end], 1.0, sketch_delta[:end])
    losses = np.concatenate((-sketch[kept], sketch[kept]))
    masses = np.concatenate((mirrored, probs))
    return _Sketch(losses, masses, eps_max, target, 2.0 * eps_max / (_MAX_SIZE - 2))


def _choose_step(losses: FloatArray, probs: FloatArray, count: int, target: float) -> float:
    r"""Return the step for which `count` discretizations change `target` little.

    Connecting dots at distance h adds a variance of about h^2 / 6 to each loss (and half of
    that to its mean, so that :math:`E[e^{-l}]` stays), and so multiplies a delta reached by
    tilting the distribution by :math:`e^{\theta l}` by about
    :math:`\exp(K \theta (1 + \theta) h^2 / 12)`.  The tilt of interest is that of the
    Chernoff bound :math:`\log\delta = K(\kappa(\theta) - \theta\kappa'(\theta))`, with the
    cumulant function :math:`\kappa` of the loss.
    """
    mass = probs / probs.sum() if probs.sum() > 0.0 else np.full(probs.shape, 1.0 / probs.size)
    deviation = math.sqrt(float(mass @ (losses - mass @ losses) ** 2))
    if deviation == 0.0:
        return 1.0
    if count == 1:
        return 0.0  # nothing to convolve: as fine as the array may be
    tilts = np.geomspace(0.05, 100.0, 64) / (deviation * math.sqrt(count))
    with np.errstate(divide="ignore"):
        exponents = tilts[:, None] * losses + np.log(mass)
    peak = exponents.max(axis=1, keepdims=True)
    tilted = np.exp(exponents - peak)
    norm = tilted.sum(axis=1, keepdims=True)
    means = (tilted / norm) @ losses
    log_bound = count * (peak[:, 0] + np.log(norm[:, 0]) - tilts * means)
    # A bounded loss reaches no delta under the mass of its largest value.
    useful = (log_bound >= math.log(target)) & (means <= 0.97 * losses.max())
    tilt = float(tilts[useful].max(initial=tilts[0]))
    return min(math.sqrt(12.0 * _GRID_ERROR / (count * tilt * (1.0 + tilt))), deviation / 16.0)


def _evaluate(log_delta: LogProfile, epsilons: FloatArray) -> FloatArray:
    """Return delta at `epsilons`, rounded up and at most 1."""
    logs = np.asarray(log_delta(epsilons), dtype=np.float64)
    if logs.shape != epsilons.shape:
        raise ValueError(
            f"log_delta must return an array of the shape of its argument, {epsilons.shape}; "
            f"got shape {logs.shape}."
        )
    if np.isnan(logs).any():
        raise ValueError(f"log_delta returned NaN at epsilon={epsilons[np.isnan(logs)][0]!r}.")
    delta = np.minimum(np.exp(np.minimum(logs, 0.0)) * (1.0 + 8.0 * _U), 1.0)
    return np.where(np.isneginf(logs), 0.0, np.maximum(delta, _TINY))


def _connect_the_dots(
    index: NDArray[Any], step: float, delta: FloatArray
) -> tuple[NDArray[np.intp], FloatArray, FloatArray, float]:
    r"""Return the masses whose hockey-stick curve joins the points ``(exp(loss), delta)``.

    By symmetry only losses >= 0 are given.  In x = exp(loss), the chord from the mirror image
    of a point, ``(1/x, 1 - 1/x + delta/x)``, to the point itself passes through (-1, 1)
    whatever the point: the right half of the lower hull of all points and images is the lower
    hull of the points and (-1, 1).

    Parameters
    ----------
    index : ndarray of shape (n_points,)
        Losses in units of `step`: increasing, nonnegative.
    step : float
        The unit.
    delta : ndarray of shape (n_points,)
        Bounds on the curve, in [0, 1].

    Returns
    -------
    kept : ndarray of shape (n_kept,)
        Indices of the vertices of the lower hull.
    probs, mirrored : ndarray of shape (n_kept,)
        Masses at the kept losses and at their negatives, rounded up.
    infinity : float
        Mass of the infinite loss.
    """
    kept = np.arange(index.size)
    left, right = _scaled_slopes(index, step, delta)
    if (right > left).any():
        kept = _lower_hull(index, step, delta)
        left, right = _scaled_slopes(index[kept], step, delta[kept])
    eps = index[kept] * step
    gap = np.diff(index[kept]) * step  # eps is rounded, its differences would be off by more
    # Each slope has a relative error of a few roundings, and more for wide gaps, whose own
    # rounding expm1 magnifies; raising a mass raises the curve.
    wide = np.maximum(np.append(eps[0], gap), np.append(gap, 0.0))
    probs = np.maximum(left - right, 0.0) + (16.0 + wide) * _U * (left + right)
    mirrored = np.maximum(probs * np.exp(-eps), np.where(probs > 0.0, _TINY, 0.0))
    mirrored *= 1.0 + (8.0 + eps) * _U
    if eps[0] == 0.0:
        probs[0] = mirrored[0] = 2.0 * mirrored[0]  # the vertex is its own image
    return kept, probs, mirrored, float(delta[kept[-1]])


def _scaled_slopes(
    index: NDArray[Any], step: float, delta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return -x times the slopes in x = exp(index * step) on both sides of each point.

    The slope before the first point is that of the chord to (-1, 1), the slope beyond the
    last one is 0.
    """
    gap = np.diff(index) * step
    fall = -np.diff(delta)
    left, right = np.empty(index.size), np.zeros(index.size)
    left[0] = (1.0 - delta[0]) / (1.0 + math.exp(-index[0] * step))
    left[1:] = fall / -np.expm1(-gap)
    right[:-1] = fall / np.expm1(np.minimum(gap, 700.0))
    return left, right


def _lower_hull(index: NDArray[Any], step: float, delta: FloatArray) -> NDArray[np.intp]:
    """Return the vertices of the lower convex hull of the points, (-1, 1) and (inf, 0 slope)."""
    points = list(zip(index.tolist(), delta.tolist(), strict=True))
    hull: list[int] = []
    lefts: list[float] = []  # scaled slope before each vertex, as in _scaled_slopes
    for i, (place, height) in enumerate(points):
        while hull:
            gap = (place - points[hull[-1]][0]) * step
            fall = points[hull[-1]][1] - height
            if fall / math.expm1(min(gap, 700.0)) < lefts[-1]:
                break
            hull.pop()
            lefts.pop()
        if hull:
            lefts.append(fall / -math.expm1(-gap))
        else:
            lefts.append((1.0 - height) / (1.0 + math.exp(-place * step)))
        hull.append(i)
    while len(hull) > 1 and lefts[-1] <= 0.0:  # the curve does not rise
        hull.pop()
        lefts.pop()
    return np.array(hull)


def optimal_composition_delta(
    epsilon: float, delta: float, count: int, total_epsilon: float
) -> float:
    """Return the total delta of `count` mechanisms of which only (epsilon, delta) is known.

    This is the optimal composition of Kairouz, Oh and Viswanath (ICML 2015, Theorem 3.3),
    evaluated at any total epsilon: some `count` mechanisms attain it.

    Parameters
    ----------
    epsilon : float
        Guarantee of each mechanism, finite and >= 0.
    delta : float
        Guarantee of each mechanism, in [0, 1].
    count : int
        Number of mechanisms, at least 1.
    total_epsilon : float
        Nonnegative.

    Returns
    -------
    total_delta : float
        Rounded up.

    Examples
    --------
    >>> from sklearn_dpop.privacy._composition import optimal_composition_delta
    >>> round(optimal_composition_delta(1.0, 0.01, 2, 2.0), 6)
    0.0199
    """
    composed = _optimal_composition(epsilon, delta, count)
    return composed.delta(_nonnegative("total_epsilon", total_epsilon))


def optimal_composition_epsilon(
    epsilon: float, delta: float, count: int, total_delta: float
) -> float:
    """Return the total epsilon of `count` mechanisms of which only (epsilon, delta) is known.

    The inverse of :func:`optimal_composition_delta`.

    Parameters
    ----------
    epsilon : float
        Guarantee of each mechanism, finite and >= 0.
    delta : float
        Guarantee of each mechanism, in [0, 1].
    count : int
        Number of mechanisms, at least 1.
    total_delta : float
        In [0, 1].

    Returns
    -------
    total_epsilon : float
        Rounded up; ``inf`` when ``1 - (1 - delta)**count`` exceeds `total_delta`.

    Examples
    --------
    A hundred mechanisms with epsilon = 0.1: basic composition gives 10.

    >>> from sklearn_dpop.privacy._composition import optimal_composition_epsilon
    >>> round(optimal_composition_epsilon(0.1, 0.0, 100, 1e-6), 3)
    4.775
    """
    composed = _optimal_composition(epsilon, delta, count)
    return composed.epsilon(_probability("total_delta", total_delta))


def _optimal_composition(epsilon: float, delta: float, count: int) -> PrivacyLossDistribution:
    """Return the loss of `count` randomized responses, each failing with probability delta."""
    epsilon = _nonnegative("epsilon", epsilon)
    if math.isinf(epsilon):
        raise ValueError(f"epsilon={epsilon!r} must be finite.")
    delta = _probability("delta", delta)
    count = _count("count", count)
    negative = np.arange(count + 1)  # how many of the losses are -epsilon instead of +epsilon
    parts = (
        gammaln(count + 1.0),
        -gammaln(negative + 1.0),
        -gammaln(count - negative + 1.0),
        -epsilon * negative,
        -count * math.log1p(math.exp(-epsilon)),
        count * math.log1p(-delta) if delta < 1.0 else -math.inf,
    )
    logs = np.sum(np.broadcast_arrays(*parts), axis=0)
    error = 16.0 * _U * (1.0 + np.abs(np.broadcast_arrays(*parts[:-1])).sum(axis=0))
    if delta < 1.0:
        error -= 16.0 * _U * parts[-1]
    probs = np.zeros(2 * count + 1)
    # Losses (count - 2 negative) epsilon; a mass that underflows is raised to the smallest.
    probs[::-2] = np.maximum(np.exp(logs) * np.exp(error) * (1.0 + 8.0 * _U), _TINY)
    infinity = -math.expm1(parts[-1]) * (1.0 + 8.0 * _U)
    return PrivacyLossDistribution(epsilon, -count, probs, infinity)


def _nonnegative(name: str, value: float) -> float:
    if not value >= 0.0:
        raise ValueError(f"{name}={value!r} must be a nonnegative number.")
    return float(value)


def _probability(name: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name}={value!r} must be in [0, 1].")
    return float(value)


def _count(name: str, value: int) -> int:
    if not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name}={value!r} must be an integer of at least 1.")
    return int(value)
