"""What takes the place of a privacy report where there is nothing to report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["NoGuarantee"]


@dataclass(frozen=True)
class NoGuarantee:
    """States that a training had no noise.

    Parameters
    ----------
    estimator : str
        Name of the class that ran it.
    adjacency : str
        Neighbouring relation that was asked for.
    public_inputs : mapping of str to JSON-able values
        Choices of the estimator, as in a privacy report.

    Examples
    --------
    >>> statement = NoGuarantee("KANClassifierDP", "zero-out", {"lr": 1.0})
    >>> print(statement)
    KANClassifierDP was trained without noise (epsilon=inf): there is no privacy guarantee.
    >>> statement.epsilon, statement.delta, statement.verify()
    (inf, 1.0, False)
    """

    estimator: str
    adjacency: str
    public_inputs: Mapping[str, Any]

    @property
    def epsilon(self) -> float:
        """Infinite."""
        return math.inf

    @property
    def delta(self) -> float:
        """One."""
        return 1.0

    def verify(self) -> bool:
        """Return False: there is nothing to verify."""
        return False

    def __str__(self) -> str:
        return (
            f"{self.estimator} was trained without noise (epsilon=inf): there is no privacy "
            f"guarantee."
        )
