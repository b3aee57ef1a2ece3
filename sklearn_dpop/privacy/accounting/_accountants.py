"""One accountant per sampling scheme, all with one interface."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np

from sklearn_dpop.factorization import Strategy, sensitivity
from sklearn_dpop.privacy._gaussian import log_gaussian_delta
from sklearn_dpop.privacy.accounting._balls_in_bins import (
    AddSummand,
    Bins,
    RemoveSummand,
    bins_of,
)
from sklearn_dpop.privacy.accounting._monte_carlo import Float, Summand
from sklearn_dpop.privacy.accounting._random_allocation import random_allocation_delta
from sklearn_dpop.privacy.accounting._schedule import Schedule

__all__ = ["Accountant", "BallsInBins", "Cyclic"]


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
    directions : tuple of str
        Monte Carlo bounds that the accountant offers; empty if it needs none.
    max_draws : int
        Draws of a Monte Carlo bound that take a few minutes.
    is_sharp : bool
        Whether the deterministic bound leaves a Monte Carlo bound nothing to gain.
    """

    directions: tuple[str, ...] = ()
    max_draws: int = 0
    is_sharp: bool = True

    def __init__(self, strategy: Strategy, schedule: Schedule, factor: float) -> None:
        self.strategy = strategy
        self.schedule = schedule
        self.factor = factor

    @abstractmethod
    def deltas(self, sigma: float, epsilons: Float) -> Float:
        """Return a deterministic upper bound of delta at each epsilon.

        Parameters
        ----------
        sigma : float
            Noise multiplier.
        epsilons : ndarray
            Nonnegative.
        """

    @abstractmethod
    def theorem(self, *, monte_carlo: bool) -> str:
        """Return where the bound is proven.

        Parameters
        ----------
        monte_carlo : bool
            Of the Monte Carlo bound, or of the deterministic one.
        """

    @property
    @abstractmethod
    def largest_shift(self) -> float:
        """Largest norm of what one record adds: the sensitivity without amplification."""

    def summand(self, direction: str, sigma: float, epsilon: float) -> Summand:
        """Return the draws of one direction, aimed at `epsilon`."""
        raise NotImplementedError


def gaussian_deltas(shift: float, epsilons: Float) -> Float:
    """Return the profile of a Gaussian mechanism with sensitivity over noise `shift`."""
    return np.asarray(np.exp(log_gaussian_delta(shift, epsilons)))


class Cyclic(Accountant):
    """No amplification: a Gaussian mechanism whose sensitivity is that of C."""

    @cached_property
    def _sensitivity(self) -> Any:
        s = self.schedule
        return sensitivity(self.strategy, s.epochs, s.steps_per_epoch, s.n_steps)

    @property
    def largest_shift(self) -> float:
        """Sensitivity of C under (epochs, steps per epoch)-participation."""
        return self.factor * float(self._sensitivity)

    def deltas(self, sigma: float, epsilons: Float) -> Float:
        """Return the exact profile of the Gaussian mechanism."""
        return gaussian_deltas(self.largest_shift / sigma, epsilons)

    def theorem(self, *, monte_carlo: bool) -> str:
        """Return the sources."""
        kind = "exact" if self._sensitivity.exact else "an upper bound"
        return (
            f"Gaussian mechanism (Balle and Wang 2018) at the sensitivity of C, {kind} "
            f"({self._sensitivity.theorem})"
        )


class BallsInBins(Accountant):
    """The mixture over the bins; see :mod:`._balls_in_bins`."""

    directions = ("remove", "add")
    max_draws = 10_000_000

    @cached_property
    def bins(self) -> Bins:
        """Means of the mixture."""
        return bins_of(self.strategy, self.schedule.n_steps, self.schedule.steps_per_epoch)

    @property
    def largest_shift(self) -> float:
        """Norm of the longest mean."""
        return self.factor * math.sqrt(float(self.bins.gram.diagonal().max()))

    def deltas(self, sigma: float, epsilons: Float) -> Float:
        """Return the smallest of the deterministic bounds."""
        found = gaussian_deltas(self.largest_shift / sigma, epsilons)
        if self.bins.is_orthogonal:
            ratio = sigma / self.largest_shift
            found = np.minimum(found, random_allocation_delta(ratio, self.bins.n_bins, epsilons))
        return found

    @property
    def is_sharp(self) -> bool:  # type: ignore[override]
        """For independent noise."""
        return self.bins.is_orthogonal

    def theorem(self, *, monte_carlo: bool) -> str:
        """Return the sources."""
        pair = "Lemma 3.2 of arXiv 2410.06266"
        if monte_carlo:
            return pair
        if self.bins.is_orthogonal:
            return f"{pair}; random allocation, arXiv 2602.17284, by convex order"
        return f"{pair}; joint convexity over the bins"

    def summand(self, direction: str, sigma: float, epsilon: float) -> Summand:
        """Return the draws of one direction."""
        kind = RemoveSummand if direction == "remove" else AddSummand
        return kind.aimed_at(self.bins, sigma, epsilon)
