"""One accountant per sampling scheme, all with one interface."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from sklearn_dpop.factorization import Sensitivity, Strategy, sensitivity
from sklearn_dpop.factorization._describe import strategy_to_dict
from sklearn_dpop.factorization._strategy import ToeplitzStrategy
from sklearn_dpop.privacy._gaussian import log_gaussian_delta
from sklearn_dpop.privacy.accounting._balls_in_bins import (
    AddSummand,
    Bins,
    RemoveSummand,
    bins_of,
)
from sklearn_dpop.privacy.accounting._energy_law import EnergyLaw, energy_law
from sklearn_dpop.privacy.accounting._min_separated import min_separated_summand
from sklearn_dpop.privacy.accounting._monte_carlo import Float, Summand, stream_key
from sklearn_dpop.privacy.accounting._poisson import (
    check_bandwidth,
    correlated_poisson_delta,
    cyclic_poisson_delta,
    operator_norm_bound,
    poisson_delta,
)
from sklearn_dpop.privacy.accounting._poisson_states import poisson_summand
from sklearn_dpop.privacy.accounting._random_allocation import random_allocation_delta
from sklearn_dpop.privacy.accounting._renyi_bins import renyi_bins_delta
from sklearn_dpop.privacy.accounting._schedule import Schedule
from sklearn_dpop.privacy.accounting._without_replacement import (
    Participation,
    choose_participation_summand,
    convex_mixture_delta,
    participation_of,
    subset_delta,
)

__all__ = [
    "Accountant",
    "BallsInBins",
    "Bound",
    "Cyclic",
    "CyclicPoisson",
    "MinSeparated",
    "Poisson",
    "WithoutReplacement",
]

# The law of the energy takes a second per 100 steps beyond this.
_MOST_ENERGY_STEPS = 1000
_LARGEST_CORRELATION = 0.999
# Beyond this correlation there are too many states to follow.
_MOST_FOLLOWED = 0.95
# Orders of Rényi moments: higher ones are affordable for bands of one bin only.
_LARGEST_ORDER = 24


class Bound(NamedTuple):
    """A deterministic upper bound of delta.

    Attributes
    ----------
    theorem : str
        Where it is proven.
    deltas : callable
        Maps a noise multiplier and an array of epsilons to deltas.
    """

    theorem: str
    deltas: Callable[[float, Float], Float]


class Accountant(ABC):
    """Prices the noise of one strategy under one schedule, for clip norm 1.

    Parameters
    ----------
    strategy : Strategy
        C, as it is.
    schedule : Schedule
        Of the accountant's sampling scheme.
    factor : float
        Sensitivity of one participation: 1 under zero-out, 2 under replace-one.

    Attributes
    ----------
    max_draws : int
        Draws of a Monte Carlo bound that take a few minutes.
    pair : str
        Where the pair of distributions of a Monte Carlo bound is proven to dominate.
    """

    max_draws: int = 0
    pair: str = ""

    def __init__(self, strategy: Strategy, schedule: Schedule, factor: float) -> None:
        self.strategy = strategy
        self.schedule = schedule
        self.factor = factor
        self._check()

    def _check(self) -> None:  # noqa: B027 (not every strategy needs one)
        """Raise a ValueError if the strategy does not fit the sampling."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[Bound, ...]:
        """Deterministic bounds, the cheapest first; the smallest counts."""

    @property
    def quick_bounds(self) -> tuple[Bound, ...]:
        """Bounds that an estimate should not ignore."""
        return self.bounds

    @property
    @abstractmethod
    def largest_shift(self) -> float:
        """Largest norm of what one record adds: the sensitivity without amplification."""

    @property
    def directions(self) -> tuple[str, ...]:
        """Directions of the Monte Carlo bound; empty if there is none."""
        return ()

    @property
    def is_sharp(self) -> bool:
        """Whether the deterministic bounds leave a Monte Carlo bound nothing to gain."""
        return not self.directions

    @property
    def slow_bounds(self) -> tuple[Bound, ...]:
        """Deterministic bounds that take seconds, where no Monte Carlo is wanted."""
        return ()

    def deltas(self, sigma: float, epsilons: Float, *, slow: bool = False) -> Float:
        """Return the smallest of the deterministic bounds at each epsilon.

        Parameters
        ----------
        sigma : float
            Noise multiplier.
        epsilons : ndarray
            Nonnegative.
        slow : bool, default=False
            Whether to use the slow bounds as well.
        """
        bounds = self.bounds + self.slow_bounds if slow else self.bounds
        found: Float = np.minimum.reduce([bound.deltas(sigma, epsilons) for bound in bounds])
        return found

    def summand(self, direction: str, sigma: float, epsilon: float) -> Summand:
        """Return the draws of one direction, aimed at `epsilon`."""
        raise NotImplementedError

    def _gaussian(self, theorem: str) -> Bound:
        return Bound(
            theorem,
            lambda sigma, epsilons: np.asarray(
                np.exp(log_gaussian_delta(self.largest_shift / sigma, epsilons))
            ),
        )


class Cyclic(Accountant):
    """No amplification: a Gaussian mechanism whose sensitivity is that of C."""

    @cached_property
    def _sensitivity(self) -> Sensitivity:
        s = self.schedule
        return sensitivity(self.strategy, s.max_participations, s.min_separation, s.n_steps)

    @property
    def largest_shift(self) -> float:
        """Sensitivity of C for the participations that the schedule allows."""
        return self.factor * float(self._sensitivity)

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The exact profile of the Gaussian mechanism."""
        kind = "exact" if self._sensitivity.exact else "an upper bound"
        return (
            self._gaussian(
                f"Gaussian mechanism (Balle and Wang 2018) at the sensitivity of C, {kind} "
                f"({self._sensitivity.theorem})"
            ),
        )


class BallsInBins(Accountant):
    """A mixture over the bins; see :mod:`._balls_in_bins`."""

    max_draws = 10_000_000
    pair = "Lemma 3.2 of arXiv 2410.06266"

    @cached_property
    def bins(self) -> Bins:
        """Means of the mixture."""
        return bins_of(self.strategy, self.schedule.n_steps, self.schedule.steps_per_epoch)

    @property
    def largest_shift(self) -> float:
        """Norm of the longest mean."""
        return self.factor * math.sqrt(float(self.bins.gram.diagonal().max()))

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """Joint convexity over the bins, and random allocation of independent noise."""
        schedule = self.schedule
        norm = operator_norm_bound(self.strategy, schedule.n_steps)
        norm *= math.sqrt(schedule.epochs)  # the length of a mean for C = I
        where = "" if self.bins.is_orthogonal else " at the operator norm of C"
        return (
            self._gaussian(f"{self.pair}; joint convexity over the bins"),
            Bound(
                f"{self.pair}; random allocation (arXiv 2602.17284) by convex order{where}",
                lambda sigma, epsilons: random_allocation_delta(
                    sigma / norm, schedule.steps_per_epoch, epsilons
                ),
            ),
        )

    @property
    def slow_bounds(self) -> tuple[Bound, ...]:
        """Moments of the mixture, for correlated noise."""
        if self.bins.is_orthogonal:
            return ()
        return (
            Bound(
                f"{self.pair}; Rényi moments of the mixture (arXiv 2601.21636)",
                lambda sigma, epsilons: renyi_bins_delta(
                    self.bins.gram, sigma, epsilons, max_order=_LARGEST_ORDER
                ),
            ),
        )

    @property
    def quick_bounds(self) -> tuple[Bound, ...]:
        """Joint convexity over the bins."""
        return self.bounds[:1]

    @property
    def directions(self) -> tuple[str, ...]:
        """Both."""
        return ("remove", "add")

    @property
    def is_sharp(self) -> bool:
        """For independent noise and for a single bin."""
        return self.bins.is_orthogonal

    def summand(self, direction: str, sigma: float, epsilon: float) -> Summand:
        """Return the draws of one direction."""
        kind = RemoveSummand if direction == "remove" else AddSummand
        return kind.aimed_at(self.bins, sigma, epsilon)


class _Drawn(Accountant):
    """Every step takes a record with the same probability, independently of other steps."""

    @cached_property
    def participation(self) -> Participation:
        """How often a record takes part, and with which norms."""
        schedule = self.schedule
        return participation_of(self.strategy, schedule.n_steps, schedule.rate)

    @property
    def largest_shift(self) -> float:
        """Norm of a record that takes part in every step that is not too improbable."""
        return self.factor * float(self.participation.norms.max())

    @cached_property
    def _geometric(self) -> tuple[float, float] | None:
        """c_0 and lambda if ``C_ij = c_0 lambda^(i-j)``."""
        return geometric_terms(self.strategy, self.schedule.n_steps)

    @cached_property
    def _energy_law(self) -> EnergyLaw | None:
        n_steps = self.schedule.n_steps
        if self._geometric is None or n_steps > _MOST_ENERGY_STEPS:
            return None
        correlation = abs(self._geometric[1])
        if correlation > _LARGEST_CORRELATION:
            return None
        return energy_law(correlation, self.schedule.rate, n_steps)

    def _mixtures(self) -> tuple[Bound, ...]:
        """Joint convexity over the participations, which the batches may even reveal."""
        found = [
            Bound(
                "joint convexity over the number of participations, worst places",
                lambda sigma, epsilons: convex_mixture_delta(
                    self.participation, sigma, epsilons, sensitivity_factor=self.factor
                ),
            )
        ]
        law, terms = self._energy_law, self._geometric
        if law is not None and terms is not None:
            factor = self.factor * abs(terms[0])
            found.append(
                Bound(
                    "joint convexity over the participations, law of their energy",
                    lambda sigma, epsilons: law.delta(sigma, epsilons, sensitivity_factor=factor),
                )
            )
        return tuple(found)


class WithoutReplacement(_Drawn):
    """Fresh batches of a fixed size in every step."""

    max_draws = 10_000_000
    pair = "joint convexity over the participations"

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """Mixtures over the participations, and amplification by secret subsets."""
        norm = operator_norm_bound(self.strategy, self.schedule.n_steps)
        adjacency = "zero-out" if self.factor == 1.0 else "replace-one"
        return (
            *self._mixtures(),
            Bound(
                "advanced joint convexity (arXiv 1807.01647, Theorem 2) per step, composed, "
                "at the operator norm of C",
                lambda sigma, epsilons: subset_delta(
                    sigma / norm,
                    self.schedule.rate,
                    self.schedule.n_steps,
                    epsilons,
                    adjacency=adjacency,
                ),
            ),
        )

    @property
    def directions(self) -> tuple[str, ...]:
        """One: the Gaussian profile is the same in both."""
        return ("both",)

    @property
    def is_sharp(self) -> bool:
        """If the law of the energy is known."""
        return self._energy_law is not None

    def summand(self, direction: str, sigma: float, epsilon: float) -> Summand:
        """Return draws of the participations."""
        inputs = {
            "strategy": strategy_to_dict(self.strategy),
            "schedule": self.schedule.to_dict(),
        }
        made, _ = choose_participation_summand(
            self.participation,
            sigma,
            epsilon,
            stream_key(inputs, "proposal"),
            n_draws=self.max_draws,
            failure_probability=1e-8,
            sensitivity_factor=self.factor,
        )
        return made


class Poisson(_Drawn):
    """Every step takes every record independently."""

    max_draws = 200_000
    pair = "Lemma 4.5 of arXiv 2310.15526, states rounded up"

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """Privacy-loss distributions, and mixtures over the participations."""
        schedule = self.schedule
        norm = operator_norm_bound(self.strategy, schedule.n_steps)
        if self._geometric is not None and self._geometric[1] == 0.0:
            return (
                Bound(
                    "privacy-loss distribution of the Poisson-subsampled Gaussian mechanism "
                    "(arXiv 2106.08567, Theorem 11)",
                    lambda sigma, epsilons: poisson_delta(
                        sigma / norm, schedule.rate, schedule.n_steps, epsilons
                    ),
                ),
            )
        return (
            *self._mixtures(),
            Bound(
                "Poisson-subsampled Gaussian mechanism (arXiv 2106.08567, Theorem 11) at the "
                "operator norm of C",
                lambda sigma, epsilons: correlated_poisson_delta(
                    self.strategy, sigma, schedule.rate, schedule.n_steps, epsilons
                ),
            ),
        )

    @property
    def directions(self) -> tuple[str, ...]:
        """Both, for noise correlated by one buffer with a positive share."""
        terms = self._geometric
        if terms is None or self.schedule.rate == 1.0:
            return ()
        return ("remove", "add") if 0.0 < terms[1] <= _MOST_FOLLOWED else ()

    def summand(self, direction: str, sigma: float, epsilon: float) -> Summand:
        """Return the draws of one direction."""
        assert self._geometric is not None
        scale, correlation = self._geometric
        return poisson_summand(
            correlation,
            self.schedule.rate,
            self.schedule.n_steps,
            sigma / abs(scale),
            direction=direction,
            target_epsilon=epsilon,
        )


class CyclicPoisson(Cyclic):
    """Groups that take turns, for a banded C."""

    def _check(self) -> None:
        check_bandwidth(self.strategy, self.schedule.min_separation, self.schedule.n_steps)

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """Blocks of steps as one subsampled Gaussian mechanism each."""
        schedule = self.schedule
        return (
            Bound(
                "Theorem 4 of arXiv 2306.08153",
                lambda sigma, epsilons: cyclic_poisson_delta(
                    self.strategy,
                    sigma,
                    schedule.min_separation,
                    schedule.participation_probability,
                    schedule.n_steps,
                    epsilons,
                ),
            ),
        )


class MinSeparated(Cyclic):
    """Rested records are taken at random, for a banded C."""

    max_draws = 200_000
    pair = "arXiv 2602.09338"

    @cached_property
    def _coef(self) -> Float:
        """Absolute values of the first column of C, which has to end before the separation."""
        separation = self.schedule.min_separation
        if not isinstance(self.strategy, ToeplitzStrategy):
            raise ValueError(
                f"strategy={self.strategy!r} must be a Toeplitz one for min-separated sampling."
            )
        c = np.abs(self.strategy.coef(self.schedule.n_steps))
        bandwidth = int(np.flatnonzero(c).max()) + 1
        if bandwidth > separation:
            raise ValueError(
                f"strategy={self.strategy!r} has bandwidth {bandwidth} with "
                f"n_steps={len(c)}; min-separated sampling needs at most "
                f"separation={separation}."
            )
        return c

    def _check(self) -> None:
        self._coef  # noqa: B018 (it checks)

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """Joint convexity over the patterns: the Gaussian mechanism at the worst of them."""
        return (self._gaussian("joint convexity over the patterns, sensitivity of C"),)

    @property
    def directions(self) -> tuple[str, ...]:
        """Both."""
        return ("remove", "add")

    def summand(self, direction: str, sigma: float, epsilon: float) -> Summand:
        """Return the draws of one direction."""
        schedule = self.schedule
        return min_separated_summand(
            self._coef,
            schedule.min_separation,
            schedule.participation_probability,
            schedule.n_steps,
            sigma,
            direction=direction,
            target_epsilon=epsilon,
        )


def geometric_terms(strategy: Strategy, n_steps: int) -> tuple[float, float] | None:
    """Return c_0 and lambda if ``C_ij = c_0 lambda^(i-j)``, else None.

    Examples
    --------
    >>> from sklearn_dpop.factorization import BIFR
    >>> geometric_terms(BIFR(0.25, 2), 5), geometric_terms(BIFR(0.25, 3), 5)
    ((1.0, 0.25), None)
    """
    if not isinstance(strategy, ToeplitzStrategy):
        return None
    inverse = strategy.inverse_coef(n_steps)
    if np.any(inverse[2:] != 0.0):
        return None
    return 1.0 / float(inverse[0]), -float(inverse[1] / inverse[0]) if n_steps > 1 else 0.0
