"""From a total budget to that of one of several fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from sklearn_dpop.privacy._composition_report import (
    CompositionReport,
    check_count,
    check_pairs,
    compose_reports,
    sums_of,
)
from sklearn_dpop.privacy._report import PrivacyReport

__all__ = ["FitBudget", "budget_per_fit"]

# The total comes this close to what is allowed, unless that takes too many trials.
_CLOSE = 0.005
_MOST_TRIALS = 12


class FitBudget(NamedTuple):
    """What one of several fits may spend.

    Attributes
    ----------
    epsilon : float
        For each fit.
    delta : float
        For each fit.
    total : CompositionReport
        The total of all fits with this budget.
    """

    epsilon: float
    delta: float
    total: CompositionReport


def budget_per_fit(
    plan: Callable[[float, float], PrivacyReport | Iterable[PrivacyReport]],
    fits: int | None = None,
    *,
    epsilon: float,
    delta: float,
    others: Mapping[str, tuple[float, float]] | None = None,
    disjoint: Mapping[str, tuple[float, float]] | None = None,
) -> FitBudget:
    """Find what each of several fits on the same records may spend within a total.

    Parameters
    ----------
    plan : callable
        Maps (epsilon, delta) of one fit to its report, or to those of all fits that may be made:
        see the ``plan`` method of the estimators.  Called about five times.
    fits : int, optional
        Most fits that a record takes part in, each like one of the plans; the worst of them is
        counted.  By default every plan is carried out once.
    epsilon, delta : float
        The total, positive and in (0, 1).  Each of several fits gets the delta
        ``delta / (2 * fits)``, after `others`: the composition of curves makes use of the rest.
    others, disjoint : mapping of str to (epsilon, delta), optional
        What else is released from the same records, and from other ones, as in
        :func:`compose_reports`.

    Returns
    -------
    FitBudget
        Its epsilon has three digits; ``total.epsilon`` is at most the total, and within about
        1% of it.

    Raises
    ------
    ValueError
        If a number is out of range, `others` leave nothing, or no budget was found.

    Examples
    --------
    >>> from sklearn_dpop import ObjPertGDLogisticRegression
    >>> from sklearn_dpop.privacy import budget_per_fit
    >>> def plan(epsilon, delta):
    ...     return ObjPertGDLogisticRegression(
    ...         epsilon, delta, classes=[0, 1], calibration="tight", adjacency="zero-out",
    ...     ).plan(n_samples=500, n_features=30)
    >>> budget = budget_per_fit(plan, fits=17, epsilon=1.0, delta=1e-5)
    >>> 0.19 < budget.epsilon < 0.22, 0.98 < budget.total.epsilon <= 1.0
    (True, True)
    """
    if not 0.0 < epsilon < math.inf:
        raise ValueError(f"epsilon={epsilon!r}: must be a positive number")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta={delta!r}: must be in (0, 1)")
    if fits is not None:
        fits = check_count("fits", fits)
    others = check_pairs("others", {} if others is None else others)
    disjoint = check_pairs("disjoint", {} if disjoint is None else disjoint)
    for name, pair in disjoint.items():
        if pair[0] > epsilon or pair[1] > delta:
            raise ValueError(
                f"disjoint[{name!r}]={pair!r}: must be within epsilon={epsilon!r}, delta={delta!r}"
            )
    spent = sums_of(others)
    left = epsilon - spent[0]
    if left <= 0.0 or spent[1] >= delta:
        raise ValueError(
            f"others={others!r}: leave nothing of epsilon={epsilon!r}, delta={delta!r}"
        )

    def reports(epsilon_fit: float, delta_fit: float) -> list[PrivacyReport]:
        planned = plan(epsilon_fit, delta_fit)
        return [planned] if isinstance(planned, PrivacyReport) else list(planned)

    count = len(reports(left, delta - spent[1])) if fits is None else fits
    delta_fit = _three_digits((delta - spent[1]) / (2 * count if count > 1 else 1))
    # Basic composition allows left / count, up to the roundings.
    low, high = 0.9 * left / count, left
    best: tuple[float, list[PrivacyReport], CompositionReport] | None = None
    trial = left / math.sqrt(count) / 1.5 if count > 1 else 0.999 * left
    tried = set()
    for _ in range(_MOST_TRIALS):
        trial = _three_digits(min(max(trial, low), high))
        if trial in tried:  # three digits tell no more
            break
        tried.add(trial)
        planned = reports(trial, delta_fit)
        found = compose_reports(planned, delta=delta, fits=fits, others=others)
        used = float(found.epsilon) - spent[0]
        if found.epsilon <= epsilon:
            if best is None or trial > best[0]:
                best = (trial, planned, found)
            if used >= (1.0 - _CLOSE) * left or trial >= 0.995 * high:
                break
            low = trial
        else:
            high = trial
        # The total is nearly proportional to the budget of a fit; aim at the middle of what
        # counts as close.
        if used > 0.0:
            trial *= (1.0 - _CLOSE / 2) * left / used
        if not low < trial < high:
            trial = math.sqrt(low * high)
    if best is None:
        raise ValueError(
            f"epsilon={epsilon!r}: no budget for {count} fits was found whose total is within it"
        )
    per_fit, planned, total = best
    if disjoint:
        total = compose_reports(planned, delta=delta, fits=fits, others=others, disjoint=disjoint)
    return FitBudget(per_fit, delta_fit, total)


def _three_digits(value: float) -> float:
    """Return `value` rounded down to three significant digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.floor(value / unit) * unit:.3g}")
