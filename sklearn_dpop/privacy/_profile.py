"""What follows from any certified profile ``epsilon -> delta``."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["smallest_epsilon"]


def smallest_epsilon(
    delta_at: Callable[[float], float],
    delta: float,
    *,
    start: float,
    largest: float,
    tolerance: float,
) -> float:
    """Return an epsilon with ``delta_at(epsilon) <= delta`` that is about the smallest.

    Only values at which the profile was evaluated are returned, so that it need not be
    monotone for the result to be certified.

    Parameters
    ----------
    delta_at : callable
        Certified profile.
    delta : float
        Target.
    start : float
        Positive; where to look first.
    largest : float
        Beyond it nothing is looked for.
    tolerance : float
        Relative.

    Returns
    -------
    float
        ``inf`` if no epsilon was found.
    """
    if delta_at(0.0) <= delta:
        return 0.0
    low, high = 0.0, start
    while delta_at(high) > delta:
        low, high = high, 2.0 * high
        if high > largest:
            return math.inf
    while high - low > tolerance * high:
        middle = 0.5 * (low + high)
        if delta_at(middle) <= delta:
            high = middle
        else:
            low = middle
    return high
