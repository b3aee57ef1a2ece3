"""Draws for the divergence of a chain's mechanism, in both directions.

They serve every sampling scheme in which records are taken independently of each other by a
finite chain (:class:`~sklearn_dpop.privacy.accounting._automaton.Automaton`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from threadpoolctl import threadpool_limits

from sklearn_dpop.privacy.accounting._automaton import Automaton, Float, LogRatio
from sklearn_dpop.privacy.accounting._power_tilt import PowerTilt, renyi_bound

__all__ = ["AddSummand", "Boost", "RemoveSummand", "check_summand", "choose_summand"]

# Largest number of joint states of the copies of a power tilt, and of copies.
_JOINT_STATES = 600_000
_MAX_ORDER = 6
# Share of the draws that come from the power tilt and bound the weights.
_POWER_SHARE = 0.5
# Points whose likelihood ratios are computed at once: their states should stay in the cache.
_TILE = 512
# Numbers (of 8 bytes) of one batch of points.
_BATCH_SIZE = 1 << 21
# Boosts of means: scaled with this power while shifted, or scaled alone.
_SHIFTED_POWER = 0.6
_PILOT_DRAWS = 256


class _Draws:
    """What both directions share."""

    def __init__(self, chain: Automaton, n_steps: int, sigma: float, log_ratio: LogRatio) -> None:
        self.chain, self.n_steps, self.sigma = chain, int(n_steps), float(sigma)
        self._log_ratio = log_ratio
        # Of L: at most 3 * 600 roundings of the exponents and 100 of sums and products per step.
        self._error = 1e-12 * self.n_steps

    def _batches(self, size: int) -> list[int]:
        batch = max(_TILE, _BATCH_SIZE // self.n_steps // _TILE * _TILE)
        return [min(batch, size - start) for start in range(0, size, batch)]

    def _losses(self, chain: Automaton, points: Float) -> Float:
        losses = np.empty(points.shape[1])
        for i in range(0, len(losses), _TILE):
            tile = np.ascontiguousarray(points[:, i : i + _TILE])
            losses[i : i + _TILE] = self._log_ratio(chain, tile)
        return losses


@dataclass(frozen=True, eq=False)
class Boost:
    r"""A law R' of outputs like P, with larger means.

    Attributes
    ----------
    chain : Automaton
        Chain that R' is the P of, before the shift; it drops no path.
    shift : ndarray of shape (n_steps,)
        Added to the outputs.
    """

    chain: Automaton
    shift: Float

    def draw(self, rng: np.random.Generator, sigma: float, size: int) -> Float:
        """Return points, shape (n_steps, size)."""
        points = self.chain.draw(rng, len(self.shift), size)
        points += self.shift[:, None]
        points += sigma * rng.standard_normal(points.shape)
        return points


class RemoveSummand(_Draws):
    r"""Draws whose mean is an upper bound of :math:`H_\epsilon(P\|Q)`, P given by a chain.

    With :math:`L = \log dP/dQ` the draws :math:`X = (e^L - e^\epsilon)_+\, dQ/dR` come from

    .. math:: R = w_0 R_a + \sum_k w_k R'_k, \qquad R_a = Q e^{aL} / Z .

    The boosts :math:`R'_k` (:class:`Boost`) make the variance small, and :math:`R_a`
    (:class:`PowerTilt`) makes the supremum small: for every L

    .. math:: X \le \frac{Z}{w_0} (e^L - e^\epsilon)_+ e^{-aL} \le M(\epsilon) =
              \frac{Z}{w_0} \frac{1}{a} \Bigl(\frac{a-1}{a}\Bigr)^{a-1} e^{-(a-1)\epsilon} .

    Where the tilt is not exact, Z stands for the bound :math:`W \ge w/\tilde q` of its weights
    and a draw from :math:`R_a` is multiplied by :math:`w/(\tilde q W) \le 1`, which keeps the
    mean and the supremum.  :math:`w_0 M` is by itself a bound of delta, the one of the Rényi
    divergence of order a (:func:`renyi_bound`).

    Parameters
    ----------
    chain : Automaton
        Chain of one record.
    n_steps : int
        T.
    sigma : float
        Noise multiplier.
    log_ratio : callable
        Returns log dP/dQ of points for a chain, see :func:`forward_log_ratio`.
    tilt : PowerTilt
        Of the same chain, steps and sigma.
    boosts : sequence of Boost
        May be empty; `log_ratio` must accept their chains.
    """

    def __init__(
        self,
        chain: Automaton,
        n_steps: int,
        sigma: float,
        log_ratio: LogRatio,
        *,
        tilt: PowerTilt,
        boosts: Sequence[Boost] = (),
    ) -> None:
        super().__init__(chain, n_steps, sigma, log_ratio)
        self.tilt, self.boosts = tilt, tuple(boosts)
        # A tilt of order 1 is P itself: more of it makes the supremum smaller, next to 1.
        share = _POWER_SHARE if tilt.order > 1 else 0.9
        others = [(1.0 - share) / len(boosts) for _ in boosts]
        self._shares = [1.0 - sum(others), *others]
        self._dropped = chain.dropped(self.n_steps) * (1.0 + 1e-9)

    def bound(self, epsilon: float) -> float:
        """Return the supremum of the draws at `epsilon`, by the formula above."""
        tilted = renyi_bound(self.tilt, epsilon, self._error)
        return tilted / self._shares[0] + self._charge(epsilon)

    def _charge(self, epsilon: float) -> float:
        """Return what is lost: dropped paths, and rounding of transition probabilities."""
        rounding = 2.0**-50 * 2.0**self.tilt.order * self.n_steps
        return self._dropped + rounding * renyi_bound(self.tilt, epsilon, self._error)

    def draw(self, rng: np.random.Generator, size: int) -> Callable[[float], Float]:
        """Draw `size` points; the returned function maps epsilon to all their values."""
        drawn = [self._draw_batch(rng, n) for n in self._batches(size)]
        losses, log_weights = np.concatenate(drawn, axis=1)
        known = np.isfinite(losses) & np.isfinite(log_weights)

        def values(epsilon: float) -> Float:
            x = np.full(size, self.bound(epsilon))
            excess = np.maximum(losses[known] + self._error - epsilon, 0.0)
            scale = np.where(excess > 0.0, losses[known] + log_weights[known], 0.0)
            x[known] = -np.expm1(-excess) * np.exp(scale) + self._charge(epsilon)
            return x

        return values

    def _draw_batch(self, rng: np.random.Generator, size: int) -> tuple[Float, Float]:
        """Return L and the log of dQ/dR, times the weight of a draw of the tilt."""
        n_tilt, *n_boosts = rng.multinomial(size, self._shares).tolist()
        sums, log_weight = self.tilt.draw(rng, n_tilt)
        sums += self.sigma * rng.standard_normal(sums.shape)
        drawn = [b.draw(rng, self.sigma, n) for b, n in zip(self.boosts, n_boosts, strict=True)]
        points = np.concatenate([sums, *drawn], axis=1)
        losses = self._losses(self.chain, points)
        mixed = self.tilt.order * (losses - self._error) - self.tilt.log_supremum
        mixed += math.log(self._shares[0])
        for boost, share in zip(self.boosts, self._shares[1:], strict=True):
            # dR'/dQ of x is that of the unshifted law at x - shift, times dN(shift)/dQ.
            moved = points - boost.shift[:, None]
            ratio = boost.shift @ (points + moved) / (2.0 * self.sigma**2)
            ratio += self._losses(boost.chain, moved) - self._error
            ratio = np.nan_to_num(ratio, nan=-math.inf, neginf=-math.inf)
            with np.errstate(invalid="ignore"):  # nan losses stay nan
                mixed = np.logaddexp(mixed, math.log(share) + ratio)
        log_weights = self._error - mixed
        log_weights[:n_tilt] += log_weight - self.tilt.log_supremum
        return losses, log_weights


class AddSummand(_Draws):
    r"""Draws whose mean is an upper bound of :math:`H_\epsilon(Q\|P)`, P given by a chain.

    They come from :math:`R = N(-c\mu, \sigma^2 I)`, where :math:`\mu` is the mean of the
    outputs under a law q of the paths with smaller odds of joining.  By Jensen's inequality

    .. math:: L = \log \frac{dP}{dQ} \ge \frac{\langle \mu, x \rangle}{\sigma^2} - A, \qquad
              A = \mathrm{KL}(q\|p) + \frac{\mathbb{E}_q |m|^2}{2\sigma^2},

    so :math:`X = (1 - e^{\epsilon + L})_+\, dQ/dR \le (1 - e^{\epsilon+L})_+
    e^{cL + cA + c^2|\mu|^2/(2\sigma^2)}`, at most

    .. math:: M(\epsilon) = \frac{1}{1+c} \Bigl(\frac{c}{1+c}\Bigr)^c
              e^{c (A - \epsilon) + c^2 |\mu|^2/(2\sigma^2)} .

    Parameters
    ----------
    chain, n_steps, sigma, log_ratio
        As for :class:`RemoveSummand`.
    shift : float
        c >= 0; 0 draws from Q, with M = 1.
    odds : float
        q has the odds of joining of P times `odds`.
    """

    def __init__(
        self,
        chain: Automaton,
        n_steps: int,
        sigma: float,
        log_ratio: LogRatio,
        *,
        shift: float,
        odds: float = 1.0,
    ) -> None:
        super().__init__(chain, n_steps, sigma, log_ratio)
        self.shift, self.odds = shift, odds
        self._mean, self._norm, self._offset = _jensen_terms(chain, n_steps, sigma, odds)

    def bound(self, epsilon: float) -> float:
        """Return the supremum of the draws at `epsilon`, by the formula above."""
        log_bound = _log_shift_bound(self.shift, self._offset - epsilon, self._norm)
        return math.exp(min(log_bound + 2.0 * (1.0 + self.shift) * self._error, 700.0))

    def draw(self, rng: np.random.Generator, size: int) -> Callable[[float], Float]:
        """Draw `size` points; the returned function maps epsilon to all their values."""
        drawn = [self._draw_batch(rng, n) for n in self._batches(size)]
        losses, log_weights = np.concatenate(drawn, axis=1)
        known = np.isfinite(losses)

        def values(epsilon: float) -> Float:
            x = np.full(size, self.bound(epsilon))
            excess = np.maximum(self._error - losses[known] - epsilon, 0.0)
            scale = np.where(excess > 0.0, log_weights[known] + self._error, 0.0)
            x[known] = -np.expm1(-excess) * np.exp(scale)
            return x

        return values

    def _draw_batch(self, rng: np.random.Generator, size: int) -> tuple[Float, Float]:
        """Return L and the log of dQ/dR."""
        points = rng.standard_normal((self.n_steps, size))
        points *= self.sigma
        points -= self.shift * self._mean[:, None]
        projection = self._mean @ points / self.sigma**2
        log_weights = self.shift * projection + 0.5 * self.shift**2 * self._norm
        return self._losses(self.chain, points), log_weights


def choose_summand(
    chain: Automaton,
    n_steps: int,
    sigma: float,
    log_ratio: LogRatio,
    *,
    direction: str,
    target_epsilon: float,
    boosted: Automaton | None = None,
    periodic: bool = False,
) -> RemoveSummand | AddSummand:
    r"""Return the draws of one direction with the proposal that suits `target_epsilon`.

    The supremum decides on the order of the tilt, and on the shift and the odds of the other
    direction.  The boost has means times :math:`\theta^{0.6}`, shifted by :math:`(\theta - 1)
    \mathbb{E}_P x`; one for periodic participation has means times :math:`\theta` and no shift.
    :math:`\theta` is such that about a third of the losses exceed the target (a pilot with a
    fixed seed).  Public numbers alone are used.

    Parameters
    ----------
    chain : Automaton
        Chain of one record.
    n_steps : int
        T.
    sigma : float
        Noise multiplier.
    log_ratio : callable
        See :func:`forward_log_ratio`.
    direction : {"remove", "add"}
        With the record against without it, or the reverse.
    target_epsilon : float
        Where the bound is to be small; every epsilon may be evaluated.
    boosted : Automaton, optional
        Chain that boosts are made of, by default `chain`; a coarser one is faster.
    periodic : bool
        Whether the record takes part almost periodically, which a second boost is for.
    """
    if direction == "add":
        return _choose_shift(chain, n_steps, sigma, log_ratio, target_epsilon)
    tilt = PowerTilt(chain, n_steps, sigma, 1)
    for order in range(2, _MAX_ORDER + 1):
        if len(chain) ** order > _JOINT_STATES:
            break
        higher = PowerTilt(chain, n_steps, sigma, order)
        if renyi_bound(higher, target_epsilon) >= renyi_bound(tilt, target_epsilon):
            break
        tilt = higher
    base, mean = boosted or chain, chain.mean_and_energy(n_steps)[0]

    def shifted(theta: float) -> Boost:
        return Boost(base.scaled(theta**_SHIFTED_POWER), (theta - 1.0) * mean)

    def unshifted(theta: float) -> Boost:
        return Boost(base.scaled(theta), 0.0 * mean)

    def above(boost: Boost) -> bool:
        points = boost.draw(np.random.default_rng(0), sigma, _PILOT_DRAWS)
        # Points too far out for their losses (nan) count as above.
        return bool(np.mean(log_ratio(chain, points) <= target_epsilon) < 2.0 / 3.0)

    families = (shifted, unshifted) if periodic else (shifted,)
    with threadpool_limits(1, user_api="blas"):  # many small products
        boosts = [family(_threshold(above, family)) for family in families]
    return RemoveSummand(chain, n_steps, sigma, log_ratio, tilt=tilt, boosts=boosts)


def _threshold(above: Callable[[Boost], bool], family: Callable[[float], Boost]) -> float:
    """Return about the smallest theta whose boost is above."""
    low, high = 0.0, math.log(300.0)
    for _ in range(7):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if above(family(math.exp(middle))) else (middle, high)
    return math.exp(low)


def _choose_shift(
    chain: Automaton, n_steps: int, sigma: float, log_ratio: LogRatio, target_epsilon: float
) -> AddSummand:
    best, smallest = (0.0, 1.0), math.inf
    for odds in np.linspace(1.0, 0.1, 10).tolist():
        _, norm, offset = _jensen_terms(chain, n_steps, sigma, odds)
        shift = _best_shift(offset - target_epsilon, norm)
        log_bound = _log_shift_bound(shift, offset - target_epsilon, norm)
        if log_bound < smallest:
            best, smallest = (shift, odds), log_bound
    return AddSummand(chain, n_steps, sigma, log_ratio, shift=best[0], odds=best[1])


def _jensen_terms(
    chain: Automaton, n_steps: int, sigma: float, odds: float
) -> tuple[Float, float, float]:
    """Return the mean, its squared length over sigma^2 and A of :class:`AddSummand`."""
    thin = chain.thinned(odds)
    mean, energy = thin.mean_and_energy(n_steps)
    offset = thin.divergence_from(chain, n_steps) + 0.5 * energy / sigma**2
    return mean, float(mean @ mean) / sigma**2, offset


def check_summand(n_steps: int, sigma: float, direction: str, target_epsilon: float) -> None:
    """Raise a ValueError if a parameter that all schemes share is out of range."""
    if not (isinstance(n_steps, int | np.integer) and n_steps >= 1):
        raise ValueError(f"n_steps={n_steps!r} must be a positive integer")
    if not (math.isfinite(sigma) and sigma > 0.0):
        raise ValueError(f"sigma={sigma!r} must be a positive number")
    if direction not in ("remove", "add"):
        raise ValueError(f"direction={direction!r} must be 'remove' or 'add'")
    if not (math.isfinite(target_epsilon) and target_epsilon >= 0.0):
        raise ValueError(f"target_epsilon={target_epsilon!r} must be a nonnegative number")


def _log_shift_bound(c: float, exponent: float, norm: float) -> float:
    peak = c * math.log(c / (1.0 + c)) - math.log1p(c) if c > 0.0 else 0.0
    return c * exponent + 0.5 * c * c * norm + peak


def _best_shift(exponent: float, norm: float) -> float:
    """Return the c that minimizes :func:`_log_shift_bound`."""

    def slope(log_c: float) -> float:
        c = math.exp(log_c)
        return exponent + c * norm + math.log(c / (1.0 + c))

    low, high = -20.0, 7.0
    if slope(high) < 0.0:
        return math.exp(high)
    return math.exp(float(brentq(slope, low, high))) if slope(low) < 0.0 else 0.0
