"""How records meet steps: what the accountant prices and what the batch sampler draws."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SAMPLINGS", "Schedule"]

Indices = NDArray[np.int64]

# Sampling schemes, each in words.
SAMPLINGS = {
    "cyclic": "fixed batches in the same order every epoch",
    "balls_in_bins": "every record draws one batch and stays in it every epoch",
    "without_replacement": "every step draws a fresh batch of fixed size",
    "poisson": "every step takes every record independently",
    "cyclic_poisson": "every step takes records of one of several fixed groups independently",
    "min_separated": "a record that rested long enough is taken at random",
}
_WITH_SEPARATION = ("cyclic_poisson", "min_separated")


@dataclass(frozen=True)
class Schedule:
    r"""Which records take part in which steps: one object for the accountant and the sampler.

    Parameters
    ----------
    n_samples : int
        Number of records n, public.
    batch_size : int
        (Expected) batch size B, at most `n_samples`.
    epochs : int
        Number of epochs E; an epoch has ``ceil(n / B)`` steps.
    sampling : str, default="balls_in_bins"
        * ``"cyclic"``: the records are put in one order, and every epoch takes the same
          batches in the same order.  No amplification, two participations of a record are
          exactly one epoch apart.
        * ``"balls_in_bins"``: every record draws one of the steps of an epoch, independently
          of all others, and takes part in that step of every epoch.  Batch sizes vary.
        * ``"without_replacement"``: every step draws a fresh batch of exactly B records.
          Two participations may follow each other directly.
        * ``"poisson"``: every step takes every record with probability B / n, independently.
        * ``"cyclic_poisson"``: the records are split beforehand into `separation` groups; step
          t takes every record of group ``t mod separation`` with probability
          ``separation * B / n``.
        * ``"min_separated"``: a record that took part in none of the last
          ``separation - 1`` steps takes part with a fixed probability, chosen such that
          batches have B records on average.  It starts in the stationary law.
    separation : int, default=None
        Smallest distance of two participations of a record, for the last two schemes only;
        the others determine theirs.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or they do not fit together.

    Notes
    -----
    Batches are independent of the records' values, and sums over a batch are to be divided by
    :attr:`expected_batch_size`, never by the size of the batch, which the guarantees for random
    batch sizes do not cover.  Amplification by random batches needs the draws to stay secret.

    Shuffling anew in every epoch is none of these schemes: a record can then take part in the
    last step of one epoch and the first of the next, so that the separation is 1.

    Examples
    --------
    >>> schedule = Schedule(n_samples=5000, batch_size=125, epochs=10)
    >>> schedule.n_steps, schedule.steps_per_epoch, schedule.expected_batch_size
    (400, 40, 125.0)
    >>> import numpy as np
    >>> batches = list(schedule.batches(np.random.default_rng(0)))
    >>> len(batches), sum(len(batch) for batch in batches)
    (400, 50000)
    >>> bool(np.array_equal(batches[3], batches[43]))
    True
    """

    n_samples: int
    batch_size: int
    epochs: int
    sampling: str = "balls_in_bins"
    separation: int | None = None

    def __post_init__(self) -> None:
        for name in ("n_samples", "batch_size", "epochs"):
            object.__setattr__(self, name, _integer(name, getattr(self, name)))
        if self.sampling not in SAMPLINGS:
            raise ValueError(
                f"sampling={self.sampling!r} must be one of {', '.join(map(repr, SAMPLINGS))}."
            )
        if self.batch_size > self.n_samples:
            raise ValueError(
                f"batch_size={self.batch_size} must be at most n_samples={self.n_samples}."
            )
        if self.sampling not in _WITH_SEPARATION:
            if self.separation is not None:
                raise ValueError(
                    f"separation={self.separation!r} must be None for sampling={self.sampling!r}, "
                    f"which determines it."
                )
            return
        if self.separation is None:
            raise ValueError(f"separation must be given for sampling={self.sampling!r}.")
        object.__setattr__(self, "separation", _integer("separation", self.separation))
        assert self.separation is not None
        if self.separation * self.batch_size > self.n_samples:
            raise ValueError(
                f"separation={self.separation} must be at most n_samples / batch_size = "
                f"{self.n_samples / self.batch_size:g}: rested records must fill a batch."
            )

    # --- public numbers --------------------------------------------------------------------

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of an epoch, ``ceil(n / B)``."""
        return -(-self.n_samples // self.batch_size)

    @property
    def n_steps(self) -> int:
        """Number of steps T of all epochs."""
        return self.epochs * self.steps_per_epoch

    @property
    def expected_batch_size(self) -> float:
        """Public divisor of the sum over a batch."""
        if self.sampling == "balls_in_bins":
            return self.n_samples / self.steps_per_epoch
        return float(self.batch_size)

    @property
    def rate(self) -> float:
        """Share of the steps that a record takes part in, on average."""
        return self.expected_batch_size / self.n_samples

    @property
    def min_separation(self) -> int:
        """Smallest possible distance of two participations of a record."""
        if self.sampling in ("cyclic", "balls_in_bins"):
            return self.steps_per_epoch
        return self.separation or 1

    @property
    def max_participations(self) -> int:
        """Largest possible number of participations of a record."""
        return -(-self.n_steps // self.min_separation)

    @property
    def participation_probability(self) -> float:
        """Probability that a record that may take part in a step does.

        For ``"min_separated"`` the p with ``separation - 1 + 1/p = n / B``.
        """
        if self.sampling == "cyclic":
            return 1.0
        if self.sampling == "balls_in_bins":
            return 1.0 / self.steps_per_epoch
        if self.sampling == "cyclic_poisson":
            assert self.separation is not None
            return self.separation * self.batch_size / self.n_samples
        if self.sampling == "min_separated":
            assert self.separation is not None
            return 1.0 / (self.n_samples / self.batch_size - self.separation + 1)
        return self.batch_size / self.n_samples

    def describe(self) -> str:
        """Return the schedule in words.

        Examples
        --------
        >>> Schedule(5000, 125, 10, "cyclic").describe()
        'fixed batches in the same order every epoch; n = 5000, B = 125, 400 steps'
        """
        separation = "" if self.separation is None else f", separation {self.separation}"
        return (
            f"{SAMPLINGS[self.sampling]}; n = {self.n_samples}, "
            f"B = {self.expected_batch_size:g}, "
            f"{self.n_steps} steps{separation}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters."""
        return asdict(self)

    # --- batches ---------------------------------------------------------------------------

    def batches(self, rng: np.random.Generator, start: int = 0) -> Iterator[Indices]:
        """Draw the batches of all steps, one after the other.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of randomness, used by nothing else.  The guarantees of all schemes but
            ``"cyclic"`` need it to be secret.
        start : int, default=0
            First step to return.  The draws of earlier steps are repeated and dropped, so a
            generator in the same initial state continues the same sequence.

        Yields
        ------
        ndarray of shape (batch_size_of_the_step,)
            Indices of records, sorted for schemes with random sizes; it may be empty.

        Examples
        --------
        >>> import numpy as np
        >>> schedule = Schedule(6, 2, 1, "poisson")
        >>> whole = list(schedule.batches(np.random.default_rng(1)))
        >>> rest = list(schedule.batches(np.random.default_rng(1), start=2))
        >>> bool(np.array_equal(whole[2], rest[0])), len(rest)
        (True, 1)
        """
        if not 0 <= start <= self.n_steps:
            raise ValueError(f"start={start!r} must be between 0 and n_steps={self.n_steps}.")
        draws = {
            "cyclic": self._cyclic,
            "balls_in_bins": self._balls_in_bins,
            "without_replacement": self._without_replacement,
            "poisson": self._poisson,
            "cyclic_poisson": self._cyclic_poisson,
            "min_separated": self._min_separated,
        }[self.sampling](rng)
        for step, batch in enumerate(draws):
            if step >= start:
                yield batch

    def _cyclic(self, rng: np.random.Generator) -> Iterator[Indices]:
        order = rng.permutation(self.n_samples)
        for step in range(self.n_steps):
            first = step % self.steps_per_epoch * self.batch_size
            yield order[first : first + self.batch_size]

    def _balls_in_bins(self, rng: np.random.Generator) -> Iterator[Indices]:
        bins = rng.integers(self.steps_per_epoch, size=self.n_samples)
        order = np.argsort(bins, kind="stable")
        ends = np.cumsum(np.bincount(bins, minlength=self.steps_per_epoch))
        members = np.split(order, ends[:-1])
        for step in range(self.n_steps):
            yield members[step % self.steps_per_epoch]

    def _without_replacement(self, rng: np.random.Generator) -> Iterator[Indices]:
        for _ in range(self.n_steps):
            yield rng.choice(self.n_samples, self.batch_size, replace=False)

    def _poisson(self, rng: np.random.Generator) -> Iterator[Indices]:
        for _ in range(self.n_steps):
            yield np.flatnonzero(rng.random(self.n_samples) < self.participation_probability)

    def _cyclic_poisson(self, rng: np.random.Generator) -> Iterator[Indices]:
        assert self.separation is not None
        order = rng.permutation(self.n_samples)
        groups = [np.sort(order[i :: self.separation]) for i in range(self.separation)]
        for step in range(self.n_steps):
            group = groups[step % self.separation]
            yield group[rng.random(len(group)) < self.participation_probability]

    def _min_separated(self, rng: np.random.Generator) -> Iterator[Indices]:
        assert self.separation is not None
        p, b = self.participation_probability, self.separation
        # Steps that a record still has to rest.  In the stationary law each of 1, .., b - 1 has
        # p times the probability of none.
        rest = np.zeros(self.n_samples, dtype=np.int64)
        resting = rng.random(self.n_samples) < (b - 1) * p / (1.0 + (b - 1) * p)
        rest[resting] = rng.integers(1, b, size=int(resting.sum())) if b > 1 else 0
        for _ in range(self.n_steps):
            batch = np.flatnonzero((rest == 0) & (rng.random(self.n_samples) < p))
            rest = np.maximum(rest - 1, 0)
            rest[batch] = b - 1
            yield batch


def _integer(name: str, value: Any) -> int:
    integral = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not integral or not 1 <= value < 2**53:
        shown = "nan" if isinstance(value, float) and math.isnan(value) else repr(value)
        raise ValueError(f"{name}={shown} must be an integer of at least 1.")
    return int(value)
