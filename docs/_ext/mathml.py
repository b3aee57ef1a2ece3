"""Formulas as MathML, which browsers draw themselves: pages need no script and no network."""

import re

from docutils import nodes
from latex2mathml.converter import convert

_TAG = re.compile(r"\\tag\{([^{}]*)\}")
_TEXT = re.compile(r"\\text\{[^{}]*\}")


def _mathml(node, display):
    formula = _TAG.sub("", node.astext()).strip().replace("aligned}", "split}")
    # Within \text the converter takes every character as it is.
    formula = _TEXT.sub(lambda text: text[0].replace(r"\_", "_"), formula)
    made = convert(formula, display=display)
    # What the converter does not know it passes on as text.
    if re.search(r">\s*(\\|&<)", made):
        raise ValueError(f"a formula has no MathML: {formula}")
    return made


def _visit_inline(translator, node):
    translator.body.append(_mathml(node, "inline"))
    raise nodes.SkipNode


def _visit_block(translator, node):
    tag = _TAG.search(node.astext())
    number = f'<span class="eqno">({tag[1]})</span>' if tag else ""
    translator.body.append(f'<div class="math-block">{_mathml(node, "block")}{number}</div>')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_visit_inline, None), block_renderers=(_visit_block, None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
