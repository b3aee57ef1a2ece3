"""The total of several releases in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sklearn_dpop.privacy._report_text import (
    distance_of,
    facts,
    guarantee_name,
    meaning,
    number,
    pair_name,
    row,
    statement,
    warning_texts,
    wrap,
)

if TYPE_CHECKING:
    from sklearn_dpop.privacy._composition_report import CompositionReport

__all__ = [
    "Part",
    "composition_alarms",
    "composition_in_words",
    "composition_statement",
    "composition_warnings",
    "parts",
    "sum_of_epsilons",
    "summary",
]


class Part(NamedTuple):
    """Reports that a reader need not tell apart."""

    estimator: str
    guarantee: str
    n_samples: int | None
    # 0 where it is not known how many are like this.
    fits: int


def composition_statement(total: CompositionReport) -> str:
    """Return the total in one line."""
    count = total.n_releases + len(total.others)
    return f"{statement(total)}, total of {count} release{'s' if count > 1 else ''}"


def composition_alarms(total: CompositionReport) -> tuple[str, ...]:
    """Return what a reader must know before anything else."""
    if total._verified:
        return ()
    return ("DOES NOT VERIFY: total.verify() says why. The numbers below are as stated.",)


def composition_warnings(total: CompositionReport) -> tuple[str, ...]:
    """Return the warnings of all reports, each once."""
    return tuple(dict.fromkeys(text for report in total.reports for text in warning_texts(report)))


def composition_in_words(total: CompositionReport) -> str:
    """Return what the total means."""
    distance = distance_of(float(total.epsilon), float(total.delta))
    if total._verified:
        # Where other releases are known by a pair only, nothing may be certified at 0.
        at = np.linspace(0.0, 1.0, 41) * float(total.epsilon)
        distance = min(distance, *(distance_of(float(e), total.delta_at(float(e))) for e in at))
    # Where networks are among the releases, their words hold for all: a blank record of a linear
    # model has no gradient.
    mechanisms = {report.mechanism for report in total.reports}
    network = "correlated-noise-gd"
    text = meaning(
        network if network in mechanisms else total.reports[0].mechanism,
        total.adjacency,
        total.epsilon,
        0.5 + 0.5 * min(distance, 1.0),
    )
    return f"{text} All releases together are meant."


def parts(total: CompositionReport) -> tuple[Part, ...]:
    """Return the reports of the total, those that read alike once."""
    alike: dict[Part, int] = {}
    counts = total.counts or [0] * len(total.reports)
    for count, report in zip(counts, total.reports, strict=True):
        found = facts(report)
        n_samples = found.get("n_samples", found.get("schedule.n_samples"))
        key = Part(report.estimator, guarantee_name(report), n_samples, 0)
        alike[key] = alike.get(key, 0) + count
    return tuple(key._replace(fits=count) for key, count in alike.items())


def sum_of_epsilons(total: CompositionReport) -> float:
    """Return what basic composition gives for epsilon."""
    epsilons = [float(report.epsilon) for report in total.reports]
    if total.fits is not None:
        basic = total.fits * max(epsilons)
    else:
        assert total.counts is not None
        basic = sum(n * epsilon for n, epsilon in zip(total.counts, epsilons, strict=True))
    return basic + sum(epsilon for epsilon, _ in total.others.values())


def summary(total: CompositionReport) -> str:
    """Return the total and its parts as text of at most 88 columns."""
    lines = list(composition_alarms(total))
    lines += wrap(composition_statement(total), "") + wrap(composition_in_words(total), "  ")
    if total.fits is not None:
        lines += row("fits", f"a record takes part in at most {total.fits}, each like one of:")
    for part in parts(total):
        text = f"{part.estimator} {part.guarantee}, {part.n_samples} records"
        lines += row("fits", f"{part.fits} x {text}") if part.fits else row("", text)
    for name, (epsilon, delta) in total.others.items():
        lines += row("other", f"{name} {pair_name(epsilon, delta)}, as declared")
    basic = number(sum_of_epsilons(total))
    lines += row("their sum", f"epsilon = {basic}, by basic composition")
    for text in composition_warnings(total):
        lines += row("warnings", f"! {text}")
    lines += row("not covered", "what is not listed here: other fits, scores, plots of records")
    lines += row("check it", "total.verify(), or: sklearn-dpop verify total.json")
    return "\n".join(lines)
