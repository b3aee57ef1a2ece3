"""The guarantee of training with correlated noise, as a function of public numbers alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np

from sklearn_dpop.factorization import PrefixSum, Strategy, amplified_rmse
from sklearn_dpop.factorization._describe import strategy_from_dict, strategy_to_dict
from sklearn_dpop.privacy._profile import smallest_epsilon
from sklearn_dpop.privacy.accounting._accountants import Accountant
from sklearn_dpop.privacy.accounting._adjacency import Conversion, accountant_for
from sklearn_dpop.privacy.accounting._cache import Cache
from sklearn_dpop.privacy.accounting._monte_carlo import Float, certify, pilot, stream_key
from sklearn_dpop.privacy.accounting._schedule import Schedule

__all__ = ["CorrelatedNoiseCertificate"]

# Epsilons that one Monte Carlo run certifies, relative to the one it is aimed at.
_GRID = 2.0 ** (np.arange(-12, 9) / 4.0)
_AIM = 12
_PILOT_DRAWS = 1 << 17
_LARGEST_EPSILON = 1e6
# A change of streams, summands or proposals makes saved profiles useless.
CODE_VERSION = 1


@dataclass(frozen=True, eq=False)
class CorrelatedNoiseCertificate:
    r"""What is proven about gradients released with noise :math:`\kappa\, C^{-1} Z`.

    Every step releases the sum of the clipped gradients (norm at most 1) of its batch plus
    its row of the noise.  Made by :func:`account` and :func:`calibrate_noise_multiplier`.

    Attributes
    ----------
    strategy : Strategy
        C, as it is (not divided by its sensitivity).
    schedule : Schedule
        How records meet steps.
    noise_multiplier : float
        :math:`\kappa`, standard deviation of Z per unit of clip norm.
    epsilon, delta : float
        The stated guarantee.
    adjacency : {"zero-out", "add-remove", "replace-one"}
        Neighbouring relation.
    n_draws : int
        Draws of the Monte Carlo bound in each direction; 0 for a deterministic bound.
    failure_probability : float
        Probability, over the draws, that the Monte Carlo bound is too small; it is part of every
        delta.
    aim : float
        Epsilon at which the draws are aimed.
    attempt : int
        Number of the stream, from 0: a calibration that failed on one takes the next.  Attempt j
        may fail with a probability of 2^-(j+1) times the stated one.
    """

    strategy: Strategy
    schedule: Schedule
    noise_multiplier: float
    epsilon: float
    delta: float
    adjacency: str
    n_draws: int = 0
    failure_probability: float = 0.0
    aim: float = 0.0
    attempt: int = 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CorrelatedNoiseCertificate):
            return NotImplemented
        return self.public_inputs() == other.public_inputs()

    def __getstate__(self) -> dict[str, Any]:
        # Fields, and what took long to compute.
        kept = [*(field.name for field in fields(self)), "_profile"]
        return {name: self.__dict__[name] for name in kept if name in self.__dict__}

    def __hash__(self) -> int:
        return hash((self.schedule, self.noise_multiplier, self.epsilon, self.delta))

    # --- the guarantee ---------------------------------------------------------------------

    @cached_property
    def accountant(self) -> Accountant:
        """Accountant of the schedule."""
        return self._accounting[0]

    @cached_property
    def _accounting(self) -> tuple[Accountant, Conversion]:
        return accountant_for(self.strategy, self.schedule, self.adjacency)

    def delta_at(self, epsilon: float) -> float:
        """Return the certified delta at `epsilon`.

        Parameters
        ----------
        epsilon : float
            Nonnegative.

        Returns
        -------
        float
            The failure probability of a Monte Carlo bound included.

        Raises
        ------
        ValueError
            If `epsilon` is negative or NaN.
        """
        epsilon = float(epsilon)
        if not epsilon >= 0.0:
            raise ValueError(f"epsilon={epsilon!r} must be a nonnegative number.")
        return float(self.deltas_at(np.array([epsilon]))[0])

    def deltas_at(self, epsilons: Float) -> Float:
        """Return the certified deltas at many `epsilons`.

        Parameters
        ----------
        epsilons : ndarray of shape (n_points,)
            Nonnegative.

        Returns
        -------
        ndarray of shape (n_points,)
        """
        accountant, conversion = self._accounting
        epsilons = np.minimum(epsilons, _LARGEST_EPSILON)  # delta does not increase with epsilon
        inner = np.array([conversion.inner_epsilon(float(e)) for e in epsilons])
        found = accountant.deltas(self.noise_multiplier, inner, slow=self.n_draws == 0)
        if self.n_draws:
            drawn = np.array([self.monte_carlo_delta(float(e)) for e in inner])
            found = np.minimum(found, drawn + self.failure_probability)
        outer = [
            conversion.outer_delta(float(d), float(e))
            for d, e in zip(found, epsilons, strict=True)
        ]
        return np.minimum(1.0, outer)

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest certified epsilon at `delta`.

        Parameters
        ----------
        delta : float
            In (0, 1).

        Returns
        -------
        float
            ``inf`` if nothing is certified at this delta.
        """
        delta = float(delta)
        if not 0.0 < delta < 1.0:
            raise ValueError(f"delta={delta!r} must be in (0, 1).")
        start = self.epsilon if 0.0 < self.epsilon < math.inf else 1.0
        return smallest_epsilon(self.delta_at, delta, start=start, largest=1e6, tolerance=1e-12)

    def monte_carlo_delta(self, epsilon: float) -> float:
        r"""Return the Monte Carlo bound at a zero-out epsilon, without the failure probability.

        The divergence is convex in :math:`e^\epsilon`, 1 at :math:`e^\epsilon = 0` and
        nonincreasing: chords between certified points bound it.

        Parameters
        ----------
        epsilon : float
            Nonnegative.
        """
        epsilons, upper = self._profile
        x, points = math.exp(min(epsilon, 700.0)), np.exp(epsilons)
        return float(np.interp(x, np.append(0.0, points), np.append(1.0, upper)))

    @cached_property
    def _profile(self) -> tuple[Float, Float]:
        return self._monte_carlo_profile(cache=None, progress=None)

    def run(self, *, cache: Cache | None, progress: str | None = None) -> None:
        """Run the Monte Carlo bound now, instead of when it is first asked for.

        Parameters
        ----------
        cache : Cache, optional
            Where runs are kept; without, everything is computed.
        progress : str, optional
            Title of a progress bar.
        """
        if not self.n_draws or "_profile" in self.__dict__:
            return
        inputs = {
            "profile": self._stream_inputs(),
            "attempt": self.attempt,
            "failure_probability": self.failure_probability,
            "versions": [np.__version__, CODE_VERSION],
        }
        saved = cache.load(inputs) if cache is not None else None
        if saved is None:
            epsilons, upper = self._monte_carlo_profile(cache=cache, progress=progress)
            saved = {"epsilons": epsilons.tolist(), "upper": upper.tolist()}
            if cache is not None:
                cache.save(inputs, saved)
        self.__dict__["_profile"] = (np.array(saved["epsilons"]), np.array(saved["upper"]))

    def restated(self, epsilon: float) -> CorrelatedNoiseCertificate:
        """Return the certificate that states `epsilon` instead; what was drawn is kept.

        Parameters
        ----------
        epsilon : float
            The draws do not depend on it.
        """
        made = replace(self, epsilon=epsilon)
        if "_profile" in self.__dict__:
            made.__dict__["_profile"] = self._profile
        return made

    def _monte_carlo_profile(
        self, *, cache: Cache | None, progress: str | None
    ) -> tuple[Float, Float]:
        """Choose on a pilot stream, certify on others: points of the zero-out profile."""
        accountant, sigma = self.accountant, self.noise_multiplier
        inputs = self._stream_inputs()
        search = stream_key(inputs, "pilot")
        epsilons = self.aim * _GRID
        # All attempts together fail with the stated probability.  Half of this one's share is
        # for the point that is aimed at.
        share = self.failure_probability * 0.5 ** (self.attempt + 1) / len(accountant.directions)
        shares = np.full(len(_GRID), 0.5 * share / (len(_GRID) - 1))
        shares[_AIM] = 0.5 * share
        drawn = []
        for direction in accountant.directions:
            summand = accountant.summand(direction, sigma, self.aim)
            moments = pilot(summand, epsilons, search, min(_PILOT_DRAWS, self.n_draws))
            expected = float(moments.predicted(self.n_draws, float(shares[_AIM]))[_AIM])
            drawn.append((expected, direction, summand, moments))
        upper = np.zeros(len(_GRID))
        for _, direction, summand, moments in sorted(drawn, key=itemgetter(0), reverse=True):
            n_draws = self.n_draws
            # The smaller of the two needs no more draws than it takes to stay well below.
            while n_draws > _PILOT_DRAWS and (
                moments.predicted(n_draws // 4, float(shares[_AIM]))[_AIM] < 0.8 * upper[_AIM]
            ):
                n_draws //= 4
            bound = certify(
                summand,
                epsilons,
                moments.tilts(n_draws, float(shares[_AIM])),
                stream_key(inputs, f"verify {direction} {self.attempt}"),
                n_draws=n_draws,
                failure_probabilities=shares,
                cache=cache,
                progress=progress and f"{progress}, {direction}",
            )
            upper = np.maximum(upper, bound.upper)
        return epsilons, np.minimum.accumulate(upper)

    def _stream_inputs(self) -> dict[str, Any]:
        return {
            "strategy": strategy_to_dict(self.strategy),
            "schedule": self.schedule.to_dict(),
            "factor": self.accountant.factor,
            "noise_multiplier": self.noise_multiplier,
            "aim": self.aim,
            "n_draws": self.n_draws,
        }

    # --- what a report shows ---------------------------------------------------------------

    @property
    def confidence(self) -> float:
        """Probability that the bound holds, over the draws of the Monte Carlo; 1 without."""
        return 1.0 - self.failure_probability

    @property
    def method(self) -> str:
        """How delta was bounded: "deterministic" or "monte carlo"."""
        return "monte carlo" if self.n_draws else "deterministic"

    @cached_property
    def _is_drawn(self) -> bool:
        """Whether the stated pair rests on the Monte Carlo bound."""
        if not self.n_draws:
            return False
        accountant, conversion = self._accounting
        inner = conversion.inner_epsilon(min(self.epsilon, _LARGEST_EPSILON))
        plain = float(accountant.deltas(self.noise_multiplier, np.array([inner]))[0])
        return self.monte_carlo_delta(inner) + self.failure_probability < plain

    @property
    def theorem(self) -> str:
        """Where the guarantee is proven."""
        accountant, conversion = self._accounting
        if self._is_drawn:
            parts = [accountant.pair, "Markov's inequality for the Monte Carlo bound"]
        else:
            at = np.array([conversion.inner_epsilon(min(self.epsilon, _LARGEST_EPSILON))])
            best = min(
                accountant.bounds + accountant.slow_bounds,
                key=lambda bound: float(bound.deltas(self.noise_multiplier, at)[0]),
            )
            parts = [best.theorem]
        return "; ".join([*parts, *conversion.theorem])

    @property
    def intermediates(self) -> dict[str, float]:
        """Numbers between the public inputs and the guarantee."""
        schedule, accountant = self.schedule, self.accountant
        found = {
            "n_steps": float(schedule.n_steps),
            "steps_per_epoch": float(schedule.steps_per_epoch),
            "expected_batch_size": schedule.expected_batch_size,
            "participation_probability": schedule.participation_probability,
            "largest_shift": accountant.largest_shift,
            "noise_of_unamplified": self.noise_multiplier / accountant.largest_shift,
        }
        if self.n_draws:
            found["monte_carlo_delta"] = self.monte_carlo_delta(self.aim)
        return found

    @property
    def contributions(self) -> dict[str, dict[str, float]]:
        """Terms of the stated delta."""
        certified = self.delta_at(self.epsilon)
        failure = 0.0
        if self._is_drawn:
            conversion = self._accounting[1]
            failure = conversion.outer_delta(self.failure_probability, self.epsilon)
            failure = min(failure, certified)
        return {
            "epsilon": {"divergence": self.epsilon},
            "delta": {
                "divergence": certified - failure,
                "failure of the Monte Carlo bound": failure,
                "unused": self.delta - certified,
            },
        }

    @property
    def utility(self) -> dict[str, float]:
        """Root mean squared error of the sums of gradients up to a step, per coordinate."""
        workload = PrefixSum(self.schedule.n_steps)
        return {"rmse": amplified_rmse(workload, self.strategy, self.noise_multiplier)}

    # --- as data ---------------------------------------------------------------------------

    def public_inputs(self) -> dict[str, Any]:
        """Return everything that the guarantee is a function of, JSON-able."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["strategy"] = strategy_to_dict(self.strategy)
        values["schedule"] = self.schedule.to_dict()
        return values

    @classmethod
    def from_public_inputs(cls, inputs: Mapping[str, Any]) -> CorrelatedNoiseCertificate:
        """Make the certificate from what :meth:`public_inputs` returned.

        Parameters
        ----------
        inputs : mapping
            JSON-able data.

        Returns
        -------
        CorrelatedNoiseCertificate
        """
        values = dict(inputs)
        values["strategy"] = strategy_from_dict(values["strategy"])
        values["schedule"] = Schedule(**values["schedule"])
        return cls(**values)
