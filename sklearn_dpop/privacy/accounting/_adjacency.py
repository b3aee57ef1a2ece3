"""Which accountant proves what under which neighbouring relation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sklearn_dpop.factorization import Strategy
from sklearn_dpop.privacy.accounting._accountants import (
    Accountant,
    BallsInBins,
    Cyclic,
    CyclicPoisson,
    MinSeparated,
    Poisson,
    WithoutReplacement,
)
from sklearn_dpop.privacy.accounting._schedule import Schedule

__all__ = ["ADJACENCIES", "Conversion", "accountant_for"]

ADJACENCIES = ("zero-out", "add-remove", "replace-one")

_ACCOUNTANTS: dict[str, type[Accountant]] = {
    "cyclic": Cyclic,
    "balls_in_bins": BallsInBins,
    "without_replacement": WithoutReplacement,
    "poisson": Poisson,
    "cyclic_poisson": CyclicPoisson,
    "min_separated": MinSeparated,
}
# Batches do not depend on the other records, so that a record less changes nothing else.
_INDEPENDENT = ("balls_in_bins", "poisson", "min_separated")
# Both neighbours can be given the same batches: replacing doubles the shift.
_COUPLED = ("cyclic", "without_replacement")


@dataclass(frozen=True)
class Conversion:
    r"""From a zero-out profile to one under the adjacency that is asked for.

    Replacing a record is zeroing it out and filling it in again: if a mechanism is
    :math:`(\epsilon/2, \delta)`-private under zero-out, then for all sets S

    .. math:: P_x(S) \le e^{\epsilon/2} P_0(S) + \delta
              \le e^{\epsilon/2} (e^{\epsilon/2} P_{x'}(S) + \delta) + \delta .

    Attributes
    ----------
    group : bool
        Whether this composition of two zero-outs is applied; nothing is otherwise.
    """

    group: bool

    def inner_epsilon(self, epsilon: float) -> float:
        """Return the zero-out epsilon that `epsilon` needs."""
        return 0.5 * epsilon if self.group else epsilon

    def outer_delta(self, delta: float, epsilon: float) -> float:
        """Return the delta at `epsilon` from the zero-out `delta` at the inner epsilon."""
        return delta * (1.0 + math.exp(min(0.5 * epsilon, 700.0))) if self.group else delta

    def inner_delta(self, delta: float, epsilon: float) -> float:
        """Return the zero-out delta that `delta` at `epsilon` allows."""
        return delta / self.outer_delta(1.0, epsilon) * (1.0 - 1e-15 * self.group)

    @property
    def theorem(self) -> tuple[str, ...]:
        """What the conversion rests on."""
        return ("group composition of two zero-outs for replace-one",) if self.group else ()


def accountant_for(
    strategy: Strategy, schedule: Schedule, adjacency: str
) -> tuple[Accountant, Conversion]:
    """Return the accountant of a schedule, and how its profile becomes that of `adjacency`.

    Parameters
    ----------
    strategy : Strategy
        C.
    schedule : Schedule
        How records meet steps.
    adjacency : {"zero-out", "add-remove", "replace-one"}
        Neighbouring relation.

    Raises
    ------
    ValueError
        If nothing is proven for this adjacency and sampling, or the strategy does not fit.
    """
    if adjacency not in ADJACENCIES:
        raise ValueError(
            f"adjacency={adjacency!r} must be one of {', '.join(map(repr, ADJACENCIES))}."
        )
    sampling = schedule.sampling
    if adjacency == "add-remove" and sampling not in _INDEPENDENT:
        raise ValueError(
            f"adjacency='add-remove' does not fit sampling={sampling!r}: a record more or less "
            f"changes the batches of the others; use 'zero-out' or 'replace-one', or a sampling "
            f"of {', '.join(map(repr, _INDEPENDENT))}."
        )
    coupled = adjacency == "replace-one" and sampling in _COUPLED
    group = adjacency == "replace-one" and not coupled
    accountant = _ACCOUNTANTS[sampling](strategy, schedule, 2.0 if coupled else 1.0)
    return accountant, Conversion(group)
