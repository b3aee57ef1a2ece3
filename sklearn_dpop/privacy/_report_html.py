"""The privacy report as HTML: a fragment for notebooks and a page to keep.

Self-contained: one scoped style sheet, no scripts, no references to anything outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape as escape_markup
from typing import TYPE_CHECKING, Any

from sklearn_dpop.privacy._report_text import (
    ARITHMETIC,
    INPUTS,
    INTERMEDIATES,
    UTILITY,
    WORDS,
    alarms,
    clean,
    facts,
    guarantee_name,
    in_words,
    number,
    profile_floor,
    reference_profile,
    sharper_note,
    trivial_risk,
    warning_texts,
)

if TYPE_CHECKING:
    from sklearn_dpop.privacy._composition_report import CompositionReport
    from sklearn_dpop.privacy._report import PrivacyReport

__all__ = [
    "STYLE",
    "claim",
    "escape",
    "folded",
    "fragment",
    "head_of",
    "page",
    "page_of",
    "table_of",
    "warnings_of",
    "words",
]

LIGHT = {
    "bg": "#ffffff",
    "text": "#1c2127",
    "muted": "#57606a",
    "line": "#d5dae0",
    "soft": "#f3f5f8",
    "accent": "#0b5cad",
    "mark": "#b3261e",
    "warn-bg": "#fff4dc",
    "warn": "#6b3f00",
    "stop-bg": "#fde7e6",
    "stop": "#8c1d18",
}
DARK = {
    "bg": "#14181d",
    "text": "#e4e8ec",
    "muted": "#a3adb8",
    "line": "#384049",
    "soft": "#1f252c",
    "accent": "#79b8ff",
    "mark": "#ff9a91",
    "warn-bg": "#3a2b0d",
    "warn": "#f7cf87",
    "stop-bg": "#4a1714",
    "stop": "#ffb9b3",
}


def _variables(colors: Mapping[str, str]) -> str:
    return "".join(f"--sd-{name}:{value};" for name, value in colors.items())


# Notebooks and documentation sites have themes of their own, whatever the system's is.
_ON_LIGHT = ("[data-theme=light]", "[data-jp-theme-light=true]", ".vscode-light")
_ON_DARK = ("[data-theme=dark]", "[data-jp-theme-light=false]", ".vscode-dark")


def _theme(colors: Mapping[str, str], scheme: str, hosts: Iterable[str] = ("",)) -> str:
    selectors = ",".join(f"{host} .sk-dpop-report".strip() for host in hosts)
    return f"{selectors}{{{_variables(colors)}color-scheme:{scheme}}}"


STYLE = f"""
{_theme(LIGHT, "light")}
@media (prefers-color-scheme:dark){{{_theme(DARK, "dark")}}}
{_theme(LIGHT, "light", _ON_LIGHT)}
{_theme(DARK, "dark", _ON_DARK)}
@media print{{{_theme(LIGHT, "light", ("", *_ON_DARK))}}}
.sk-dpop-report{{background:var(--sd-bg);color:var(--sd-text);
 border:1px solid var(--sd-line);border-radius:10px;padding:1.25rem 1.5rem;max-width:60rem;
 box-sizing:border-box;font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
 font-variant-numeric:tabular-nums;text-align:left;overflow-wrap:break-word}}
.sk-dpop-report *{{box-sizing:border-box}}
.sk-dpop-report p{{margin:0}}
.sk-dpop-report .sk-dpop-kicker{{color:var(--sd-muted);font-size:.86em}}
.sk-dpop-report .sk-dpop-claim{{font-size:1.55em;line-height:1.25;font-weight:650;
 margin:.15rem 0 .2rem;letter-spacing:-.01em}}
.sk-dpop-report .sk-dpop-words{{max-width:46rem;margin:.6rem 0 0}}
.sk-dpop-report .sk-dpop-note{{border-radius:8px;padding:.6rem .85rem;margin:.8rem 0 0}}
.sk-dpop-report .sk-dpop-note p+p{{margin-top:.35rem}}
.sk-dpop-report .sk-dpop-note+.sk-dpop-claim{{margin-top:.8rem}}
.sk-dpop-report .sk-dpop-warn{{background:var(--sd-warn-bg);color:var(--sd-warn)}}
.sk-dpop-report .sk-dpop-stop{{background:var(--sd-stop-bg);color:var(--sd-stop);
 font-weight:650}}
.sk-dpop-report .sk-dpop-info{{background:var(--sd-soft)}}
.sk-dpop-report .sk-dpop-columns{{display:flex;flex-wrap:wrap;gap:1.25rem 2.25rem;
 margin-top:1.25rem}}
.sk-dpop-report .sk-dpop-columns>*{{flex:1 1 20rem;min-width:0}}
.sk-dpop-report .sk-dpop-head{{font-size:1em;font-weight:650;margin:0 0 .35rem}}
.sk-dpop-report table{{border-collapse:collapse;width:100%;margin:0 0 1rem;
 border:0;font-size:.95em;background:none;color:inherit}}
.sk-dpop-report tr{{background:none!important}}
.sk-dpop-report th,.sk-dpop-report td{{padding:.24rem .6rem .24rem 0;text-align:left;
 vertical-align:top;border:0;border-bottom:1px solid var(--sd-line);font-weight:400;
 white-space:normal;max-width:none}}
.sk-dpop-report thead th{{color:var(--sd-muted);font-size:.88em}}
.sk-dpop-report .sk-dpop-num{{text-align:right}}
.sk-dpop-report td.sk-dpop-num:not(.sk-dpop-long){{white-space:nowrap}}
.sk-dpop-report td.sk-dpop-long{{max-width:10em}}
.sk-dpop-report th.sk-dpop-sym{{font-family:ui-monospace,SFMono-Regular,Consolas,monospace;
 font-size:.92em;white-space:nowrap}}
.sk-dpop-report .sk-dpop-muted{{color:var(--sd-muted)}}
.sk-dpop-report .sk-dpop-foot{{font-size:.88em;margin:-.6rem 0 1rem}}
.sk-dpop-report sup{{line-height:0}}
.sk-dpop-report .sk-dpop-bar{{display:block;height:.42rem;margin-top:.22rem;
 background:var(--sd-soft);border-radius:3px;overflow:hidden}}
.sk-dpop-report .sk-dpop-bar span{{display:block;height:100%;background:var(--sd-accent)}}
.sk-dpop-report figure{{margin:0 0 1rem}}
.sk-dpop-report figcaption{{color:var(--sd-muted);font-size:.88em;margin-top:.2rem}}
.sk-dpop-report svg{{display:block;width:100%;height:auto;max-width:32rem}}
.sk-dpop-report svg text{{fill:var(--sd-muted);font-size:12px;font-family:inherit}}
.sk-dpop-report svg .sk-dpop-grid{{stroke:var(--sd-line);stroke-width:1}}
.sk-dpop-report svg .sk-dpop-curve{{fill:none;stroke:var(--sd-accent);stroke-width:2.2;
 stroke-linejoin:round}}
.sk-dpop-report svg .sk-dpop-reference{{fill:none;stroke:var(--sd-muted);stroke-width:1.4;
 stroke-dasharray:5 4}}
.sk-dpop-report svg .sk-dpop-stated{{fill:var(--sd-mark);stroke:var(--sd-bg);stroke-width:1.5}}
.sk-dpop-report svg text.sk-dpop-statedlabel{{fill:var(--sd-mark);font-weight:650}}
.sk-dpop-report details{{border-top:1px solid var(--sd-line);padding:.45rem 0}}
.sk-dpop-report summary{{cursor:pointer;font-weight:650;padding:.1rem 0}}
.sk-dpop-report summary:focus-visible{{outline:2px solid var(--sd-accent);outline-offset:2px}}
.sk-dpop-report details>*:not(summary){{margin-top:.4rem}}
.sk-dpop-report ul{{margin:.3rem 0 .3rem;padding-left:1.2rem}}
.sk-dpop-report code{{font-family:ui-monospace,SFMono-Regular,Consolas,monospace;
 font-size:.92em;background:none;color:inherit;padding:0}}
@media (max-width:40rem){{.sk-dpop-report{{padding:1rem}}
 .sk-dpop-report th.sk-dpop-sym{{white-space:normal;max-width:9em}}
 .sk-dpop-report .sk-dpop-claim{{font-size:1.3em}}}}
@media print{{.sk-dpop-report{{border:0;padding:0;max-width:none;font-size:11px}}
 .sk-dpop-report tr,.sk-dpop-report figure,.sk-dpop-report .sk-dpop-note{{break-inside:avoid}}
 .sk-dpop-report details::details-content{{content-visibility:visible;display:block}}
 .sk-dpop-report summary{{break-after:avoid}}}}
"""

_PAGE_STYLE = f"""
:root{{color-scheme:light dark}}
body{{margin:0;padding:1.5rem 1rem;background:{LIGHT["soft"]}}}
.sk-dpop-report{{margin:0 auto}}
@media (prefers-color-scheme:dark){{body{{background:#0c0f12}}}}
@media print{{body{{background:none;padding:0}}}}
@media (max-width:40rem){{body{{padding:0}}.sk-dpop-report{{border:0;border-radius:0}}}}
"""


def escape(text: str) -> str:
    """Return `text` without markup and without characters that reorder or hide other text."""
    return escape_markup(clean(text))


def page(report: PrivacyReport) -> str:
    """Return the report as a page of its own: see :meth:`PrivacyReport.to_html`."""
    return page_of(f"Privacy report: {report.estimator}", _article(report, opened=True))


def page_of(title: str, article: str) -> str:
    """Return `article`, HTML already, as a page of its own."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_PAGE_STYLE}</style>\n</head>\n<body>\n"
        f"<main>\n{article}\n</main>\n</body>\n</html>\n"
    )


def fragment(report: PrivacyReport) -> str:
    """Return the report as an element for notebooks."""
    return _article(report, opened=False)


def _article(report: PrivacyReport, *, opened: bool) -> str:
    from sklearn_dpop.privacy._report import MECHANISMS

    assert report.stated is not None
    heading = "h1" if opened else "div"
    parts = [
        '<section class="sk-dpop-report" aria-label="Privacy report">',
        f"<style>{STYLE}</style>",
        f'<p class="sk-dpop-kicker">Privacy report · {escape(report.estimator)} · '
        f"{escape(MECHANISMS[report.mechanism].title)}</p>",
    ]
    parts += [
        f'<p class="sk-dpop-note sk-dpop-stop" role="note">{escape(text)}</p>'
        for text in alarms(report)
    ]
    if report.seeded:
        parts.append('<p class="sk-dpop-kicker" style="margin-top:.8rem">Without it</p>')
    parts += [
        f'<{heading} class="sk-dpop-claim">{claim(report)}</{heading}>',
        f"<p>{escape(report.adjacency)} adjacency · {escape(report.theorem)}</p>",
        f'<p class="sk-dpop-words">{words(in_words(report))}</p>',
        warnings_of(warning_texts(report)),
    ]
    note = sharper_note(report)
    if note is not None:
        parts.append(
            f'<p class="sk-dpop-note sk-dpop-info">{escape(note[0].upper() + note[1:])}.</p>'
        )
    left = _inputs_table(report) + _utility_table(report)
    right = _figure(report) + _contributions(report)
    parts += [
        f'<div class="sk-dpop-columns"><div>{left}</div><div>{right}</div></div>',
        folded("What must hold besides, and is not checked", _assumptions(report), opened),
        folded("Intermediate numbers", _intermediates(report), opened),
        folded("Choices of the estimator", _choices(report), opened),
        folded("Versions", _versions(report.versions), opened),
        '<p class="sk-dpop-muted" style="margin-top:.6rem">Check it: '
        "<code>report.verify()</code>, or <code>sklearn-dpop verify report.json</code></p>",
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def claim(report: PrivacyReport | CompositionReport) -> str:
    """Return the guarantee as HTML."""
    name = escape(guarantee_name(report)).replace("epsilon", "ε").replace("delta", "δ")
    return f"{name.replace(' = ', '&nbsp;=&nbsp;')}-differential privacy"


def words(text: str) -> str:
    """Return the guarantee in words as HTML."""
    text = escape(text).replace("e^epsilon = ", "e<sup>ε</sup>&nbsp;=&nbsp;")
    return text.replace("at most delta", "at most δ").replace("Epsilon and delta", "ε and δ")


def warnings_of(warnings: Iterable[str]) -> str:
    items = "".join(f"<p>{escape(text)}</p>" for text in warnings)
    return items and f'<div class="sk-dpop-note sk-dpop-warn" role="note">{items}</div>'


def folded(title: str, body: str, opened: bool) -> str:
    state = " open" if opened else ""
    return body and f"<details{state}><summary>{escape(title)}</summary>{body}</details>"


def head_of(text: str) -> str:
    return f'<p class="sk-dpop-head">{escape(text)}</p>'


def table_of(label: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table of cells that are HTML already; the last column is numeric."""
    head = "".join(
        f'<th scope="col"{_numeric(i, columns)}>{escape(name)}</th>'
        for i, name in enumerate(columns)
    )
    body = ""
    for first, *rest in rows:
        cells = "".join(
            f"<td{_numeric(i, columns, cell)}>{cell}</td>" for i, cell in enumerate(rest, 1)
        )
        symbol = ' class="sk-dpop-sym"' if len(columns) == 3 else ""
        body += f'<tr><th scope="row"{symbol}>{first}</th>{cells}</tr>'
    return (
        f'<table aria-label="{escape(label)}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _numeric(i: int, columns: tuple[str, ...], cell: str = "") -> str:
    if i < len(columns) - 1 or columns[i] != "value":
        return ""
    # A name in the column of values may be broken into lines; a number may not.
    return ' class="sk-dpop-num sk-dpop-long"' if " " in cell else ' class="sk-dpop-num"'


def _shown(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value, 6)
    return escape(str(value))


def _inputs_table(report: PrivacyReport) -> str:
    inputs = facts(report)
    # What there is one of, or none, goes without saying.
    silent = {"n_problems": 1}
    if inputs.get("n_draws") == 0:
        silent |= dict.fromkeys(("n_draws", "failure_probability", "aim", "attempt"), 0)
    rows = []
    for key, (symbol, meaning) in INPUTS[report.mechanism].items():
        if inputs.get(key) is not None and inputs[key] != silent.get(key):
            name = symbol or key.split(".")[-1]
            rows.append((escape(name), escape(meaning), _shown(inputs[key])))
    loss = inputs.get("loss")
    if isinstance(loss, Mapping):
        details = ", ".join(
            f"{key} {_shown(loss[key])}"
            for key, default in (("margin", 0.0), ("temperature", 1.0), ("weight", 1.0))
            if loss[key] != default
        )
        meaning = f"function of the margin{f' ({details})' if details else ''}"
        rows.insert(3, ("loss", meaning, escape(str(loss["name"]))))
    return head_of("Public inputs") + table_of("Public inputs", ("", "meaning", "value"), rows)


def _utility_table(report: PrivacyReport) -> str:
    assert report.stated is not None
    utility = report.stated["utility"]
    if not utility:
        return ""
    trivial = trivial_risk(report)
    rows, useless = [], False
    for key, value in utility.items():
        star = trivial is not None and value >= trivial
        useless |= star
        text = number(value, 3, up=True) + ("*" if star else "")
        meaning = escape(UTILITY[key]) if key in UTILITY else ""
        name = f'{meaning} <code class="sk-dpop-muted">{escape(key)}</code>'
        rows.append((name, text))
    table = table_of("Utility bounds", ("bound", "value"), rows)
    if useless:
        table += (
            f'<p class="sk-dpop-muted sk-dpop-foot">* says nothing: the model w = 0 has a risk of '
            f"{number(trivial or 0.0, 3)}.</p>"
        )
    if "rmse" in utility:
        return head_of("Noise, in units of the clip norm") + table
    return head_of("Utility bounds, in units of the loss") + table


def _contributions(report: PrivacyReport) -> str:
    assert report.stated is not None
    each = " of one problem" if report.n_problems > 1 else ""
    blocks = []
    for total, terms in report.stated["contributions"].items():
        if not terms or list(terms) == ["divergence"]:
            continue  # nothing is split
        whole = sum(x for x in terms.values() if x > 0.0)
        rows = ""
        for name, value in sorted(terms.items(), key=lambda term: -term[1]):
            share = min(max(value / whole, 0.0), 1.0) if 0.0 < whole < math.inf else 0.0
            rows += (
                f'<tr><th scope="row">{escape(name)}<span class="sk-dpop-bar" '
                f'aria-hidden="true"><span style="width:{100 * share:.2f}%"></span></span></th>'
                f'<td class="sk-dpop-num">{number(value, 3)}</td></tr>'
            )
        title = f"Where {total}{each} goes"
        blocks.append(
            head_of(title)
            + f'<table aria-label="{escape(title)}"><thead><tr><th scope="col">term</th>'
            f'<th scope="col" class="sk-dpop-num">value</th></tr></thead>'
            f"<tbody>{rows}</tbody></table>"
        )
    return "".join(blocks)


def _assumptions(report: PrivacyReport) -> str:
    items = [*report.assumptions, f"The noise came from: {report.noise_source}"]
    if not any("rounding is outside" in text for text in report.assumptions):
        items.append(
            f"The guarantee is one in exact arithmetic: {ARITHMETIC[report.mechanism]} rounding "
            f"is outside it"
        )
    items.append("Nothing else that depends on the records was published")
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in items) + "</ul>"


def _intermediates(report: PrivacyReport) -> str:
    assert report.stated is not None
    meanings = INTERMEDIATES[report.mechanism]
    rows = [
        (escape(key), escape(meanings.get(key, "")), _shown(value))
        for key, value in report.stated["intermediates"].items()
    ]
    return (rows and table_of("Intermediate numbers", ("symbol", "meaning", "value"), rows)) or ""


def _choices(report: PrivacyReport) -> str:
    from sklearn_dpop.privacy._report import foreign_choices

    foreign = foreign_choices(report)
    rows = [
        (escape(f"{key} ({WORDS})" if key in foreign else key), _choice(value))
        for key, value in report.public_inputs.items()
    ]
    return (rows and table_of("Choices of the estimator", ("parameter", "choice"), rows)) or ""


def _choice(value: Any) -> str:
    if value is None or value == {} or value == ():
        return '<span class="sk-dpop-muted">none</span>'
    if isinstance(value, tuple):
        shown = [_choice(item) for item in value[:20]]
        return ", ".join(shown) + (f", … ({len(value)})" if len(value) > 20 else "")
    if isinstance(value, Mapping):
        return ", ".join(f"{escape(str(k))}: {_choice(x)}" for k, x in value.items())
    return _shown(value)


def _versions(versions: Mapping[str, str]) -> str:
    return "<p>" + " · ".join(f"{escape(k)} {escape(v)}" for k, v in versions.items()) + "</p>"


# --- the plot --------------------------------------------------------------------------------

_W, _H = 480, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 14, 44


def _figure(report: PrivacyReport) -> str:
    points = report._profile_points
    if not points:
        return ""
    epsilon, delta = report.certificate.epsilon, report.certificate.delta
    x_max, bottom = points[-1][0], math.log10(profile_floor(report))

    def x(eps: float) -> float:
        return _LEFT + (_W - _LEFT - _RIGHT) * eps / x_max

    def y(d: float) -> float:
        log = math.log10(d) if d > 0.0 else -math.inf
        return _TOP + (_H - _TOP - _BOTTOM) * min(max(log / bottom, 0.0), 1.0)

    def path(curve: Iterable[tuple[float, float]]) -> str:
        coordinates = []
        for eps, d in curve:
            coordinates.append(f"{x(eps):.1f},{y(d):.1f}")
            if d <= 10.0**bottom:
                break  # below the plot
        return "M" + " L".join(coordinates)

    svg = "".join(_axes(x, y, x_max, int(bottom)))
    reference = reference_profile(report)
    caption = "Certified δ for every ε (line)"
    if reference is not None:
        grid = [x_max * i / 100 for i in range(101)]
        line = path((e, reference.profile(e)) for e in grid)
        svg += f'<path class="sk-dpop-reference" d="{line}"/>'
        caption += f"; the exact Gaussian mechanism {reference.name} (dashed)"
    svg += f'<path class="sk-dpop-curve" d="{path(points)}"/>'
    svg += f'<circle class="sk-dpop-stated" cx="{x(epsilon):.1f}" cy="{y(delta):.1f}" r="5"/>'
    svg += (
        f'<text class="sk-dpop-statedlabel" x="{x(epsilon) + 8:.1f}" y="{y(delta) - 8:.1f}">'
        f"stated</text>"
    )
    label = (
        f"Privacy profile: certified delta against epsilon; the stated pair is epsilon "
        f"{number(epsilon, 6, up=True)}, delta {number(delta, 6, up=True)}"
    )
    return (
        f'<figure>{head_of("Privacy profile")}<svg viewBox="0 0 {_W} {_H}" role="img" '
        f'aria-label="{escape(label)}">{svg}</svg>'
        f"<figcaption>{caption}; the stated pair (dot).</figcaption></figure>"
    )


def _axes(x: Any, y: Any, x_max: float, bottom: int) -> Iterable[str]:
    step = 10.0 ** math.floor(math.log10(x_max))
    step = next(step * k for k in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0) if x_max / (step * k) <= 6)
    for i in range(int(x_max / step * (1 + 1e-9)) + 1):
        at = x(i * step)
        yield f'<line class="sk-dpop-grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" '
        yield f'y2="{_H - _BOTTOM}"/><text x="{at:.1f}" y="{_H - _BOTTOM + 16}" '
        yield f'text-anchor="middle">{i * step:.4g}</text>'
    for exponent in range(0, bottom - 1, -max(1, math.ceil(-bottom / 6))):
        at = y(10.0**exponent)
        yield f'<line class="sk-dpop-grid" x1="{_LEFT}" x2="{_W - _RIGHT}" y1="{at:.1f}" '
        yield f'y2="{at:.1f}"/><text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">'
        yield f"{'1' if exponent == 0 else f'1e{exponent}'}</text>"
    center, middle = (_LEFT + _W - _RIGHT) / 2, (_TOP + _H - _BOTTOM) / 2
    yield f'<text x="{center}" y="{_H - 6}" text-anchor="middle">epsilon ε</text>'
    yield f'<text x="13" y="{middle}" text-anchor="middle" transform="rotate(-90 13 {middle})">'
    yield "delta δ (log scale)</text>"
