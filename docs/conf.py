"""Configuration of the documentation: ``make docs`` builds it without network access."""

import re
import sys
from importlib import metadata
from pathlib import Path

import matplotlib

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
matplotlib.use("agg")

project = "sklearn_dpop"
author = "The sklearn_dpop developers"
copyright = author
release = metadata.version("sklearn-dpop")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "mathml",
]
exclude_patterns = ["_build", "auto_examples/*.ipynb", "auto_examples/**/*.ipynb"]
templates_path = ["_templates"]

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3
myst_update_mathjax = False
html_math_renderer = "mathml"

autodoc_typehints = "none"
autosummary_generate = True
toc_object_entries_show_parents = "hide"
maximum_signature_line_length = 88
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "within_subsection_order": "gallery_order.Order",
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "default_thumb_file": str(Path(__file__).parent / "images" / "thumbnail.png"),
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 60,
    "write_computation_times": False,
    "download_all_examples": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "sklearn_dpop"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_show_sourcelink = False
html_theme_options = {
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "show_prev_next": True,
}
# Pages without pages below them have nothing to show in the sidebar.
_PAGES = (
    "index",
    "quickstart",
    "choosing",
    "pipelines",
    "report",
    "threat_model",
    "logistic",
    "accuracy",
    "network",
    "gpu",
    "correlated",
    "sampling",
    "glossary",
    "contributing",
    "auto_examples/*",
    "api",
    "mathematics",
    "factorization",
    "changelog",
)
html_sidebars = {page: [] for page in _PAGES}


def _quote_names(app, what, name, obj, options, lines):
    # In "ndarray of shape (n_features_in_,)" the trailing underscore would make a link.
    lines[:] = [re.sub(r"\((\w+_),\)", r"(``\1``,)", line) for line in lines]


def setup(app):
    app.connect("autodoc-process-docstring", _quote_names, priority=400)
