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
    "plain_sums",
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
    fits = f"{total.n_releases} fit{'s' if total.n_releases > 1 else ''}"
    declared = [fits if total.fits is None else f"at most {fits} of a record"]
    declared += [f"{name} {pair_name(*pair)}" for name, pair in total.others.items()]
    declared += [
        f"on other records {name} {pair_name(*pair)}" for name, pair in total.disjoint.items()
    ]
    return f"{statement(total)}; declared: {', '.join(declared)}"


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


def plain_sums(total: CompositionReport) -> str:
    """Return what basic composition gives."""
    sums = []
    for i, attribute in enumerate(("epsilon", "delta")):
        values = [float(getattr(report, attribute)) for report in total.reports]
        if total.fits is not None:
            basic = total.fits * max(values)
        else:
            assert total.counts is not None
            basic = sum(n * value for n, value in zip(total.counts, values, strict=True))
        sums.append(basic + sum(pair[i] for pair in total.others.values()))
    return f"epsilon = {number(sums[0])}, delta = {number(sums[1])}"


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
    for name, pair in total.disjoint.items():
        lines += row("other", f"{name} {pair_name(*pair)}, on other records, as declared")
    lines += row("compare", f"plain sums would be {plain_sums(total)}")
    for text in composition_warnings(total):
        lines += row("warnings", f"! {text}")
    lines += row("not covered", "what is not listed here: other fits, scores, plots of records")
    lines += row("check it", "total.verify(), or: sklearn-dpop verify total.json")
    return "\n".join(lines)
