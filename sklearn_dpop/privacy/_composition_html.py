"""The total of several releases as HTML, in the style of the privacy report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sklearn_dpop.privacy._composition_text import (
    composition_alarms,
    composition_in_words,
    composition_warnings,
    parts,
    plain_sums,
)
from sklearn_dpop.privacy._report import ONE_FIT
from sklearn_dpop.privacy._report_html import (
    STYLE,
    claim,
    escape,
    folded,
    head_of,
    page_of,
    table_of,
    warnings_of,
    words,
)
from sklearn_dpop.privacy._report_text import pair_name

if TYPE_CHECKING:
    from sklearn_dpop.privacy._composition_report import CompositionReport

__all__ = ["fragment", "page"]


def page(total: CompositionReport) -> str:
    """Return the total as a page of its own."""
    return page_of("Total privacy report", _article(total, opened=True))


def fragment(total: CompositionReport) -> str:
    """Return the total as an element for notebooks."""
    return _article(total, opened=False)


def _article(total: CompositionReport, *, opened: bool) -> str:
    heading = "h1" if opened else "div"
    count = total.n_releases + len(total.others) + len(total.disjoint)
    releases = f"{count} release{'s' if count > 1 else ''}"
    items = [_which(total), "Nothing else that depends on the records was published"]
    items += dict.fromkeys(text for report in total.reports for text in report.assumptions)
    listed = "".join(f"<li>{escape(text)}</li>" for text in items if text != ONE_FIT)
    return "\n".join(
        (
            '<section class="sk-dpop-report" aria-label="Total privacy report">',
            f"<style>{STYLE}</style>",
            f'<p class="sk-dpop-kicker">Total privacy report · {releases}</p>',
            *(
                f'<p class="sk-dpop-note sk-dpop-stop" role="note">{escape(text)}</p>'
                for text in composition_alarms(total)
            ),
            f'<{heading} class="sk-dpop-claim">{claim(total)}</{heading}>',
            f"<p>{escape(total.adjacency)} adjacency · composition of the certified curves; "
            f"plain sums would be {_greek(plain_sums(total))}</p>",
            f'<p class="sk-dpop-words">{words(composition_in_words(total))}</p>',
            warnings_of(composition_warnings(total)),
            f'<div style="margin-top:1.25rem">{_releases(total)}</div>',
            folded("What must hold besides, and is not checked", f"<ul>{listed}</ul>", opened),
            '<p class="sk-dpop-muted" style="margin-top:.6rem">Check it: '
            "<code>total.verify()</code>, or <code>sklearn-dpop verify total.json</code></p>",
            "</section>",
        )
    )


def _which(total: CompositionReport) -> str:
    if total.fits is None:
        return "These are all releases that used a record"
    return f"No record took part in more than {total.fits} fits, each like one of those listed"


def _releases(total: CompositionReport) -> str:
    rows = [
        (
            escape(f"{part.estimator}, {part.n_samples} records"),
            _greek(part.guarantee),
            str(part.fits),
        )
        for part in parts(total)
    ]
    for pairs, where in ((total.others, ""), (total.disjoint, "on other records, ")):
        for name, pair in pairs.items():
            rows.append((escape(name), f"{_greek(pair_name(*pair))}, {where}as declared", "1"))
    if total.fits is None:
        return head_of("Releases") + table_of("Releases", ("release", "guarantee", "number"), rows)
    title = f"A record takes part in at most {total.fits} fits, each like one of these"
    return head_of(title) + table_of(title, ("release", "guarantee"), [row[:2] for row in rows])


def _greek(text: str) -> str:
    return escape(text).replace("epsilon", "ε").replace("delta", "δ")
