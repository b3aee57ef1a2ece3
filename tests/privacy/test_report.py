"""The report: content, JSON, text, HTML and plot."""

import copy
import json
import math
import pickle
import re
import sys
from dataclasses import FrozenInstanceError, replace
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from sklearn_dpop import ObjPertGDLogisticRegression
from sklearn_dpop.privacy._calibration import calibrate_objective_perturbation
from sklearn_dpop.privacy._loss_constants import LossConstants, softplus_constants
from sklearn_dpop.privacy._report import PrivacyReport, expected_warnings, package_versions
from sklearn_dpop.privacy._report_html import DARK, LIGHT
from sklearn_dpop.privacy._report_text import attack_success, number

PUBLIC = {"classes": [0, 1], "rows_clipped": True, "class_weight": None}
CASES = [
    (calibration, adjacency, n_problems)
    for calibration in ("corollary", "tight")
    for adjacency in ("replace-one", "zero-out")
    for n_problems in (1, 10)
]


def make_report(
    calibration="corollary",
    adjacency="replace-one",
    n_problems=1,
    *,
    epsilon=1.0,
    delta=1e-5,
    seeded=False,
    public_inputs=None,
    warnings=None,
    **given,
):
    certificate = calibrate_objective_perturbation(
        10_000,
        20,
        epsilon,
        delta,
        calibration=calibration,
        adjacency=adjacency,
        n_problems=n_problems,
        **given,
    )
    if public_inputs is None:
        classes = [0, 1] if n_problems == 1 else list(range(n_problems))
        public_inputs = PUBLIC | {"classes": classes, "n_classes": len(classes)}
    if warnings is None:
        warnings = expected_warnings(certificate, public_inputs, seeded=seeded)
    return PrivacyReport(
        mechanism="objective-perturbation-gd",
        estimator="ObjPertGDLogisticRegression",
        certificate=certificate,
        public_inputs=public_inputs,
        assumptions=("one person contributes one record",),
        noise_source="ChaCha20, key from the operating system",
        seeded=seeded,
        warnings=warnings,
        versions=package_versions(),
    )


@pytest.fixture(scope="module")
def reports():
    return {case: make_report(*case) for case in CASES}


# --- content ----------------------------------------------------------------------------------


def test_states_what_the_certificate_says(reports):
    for report in reports.values():
        certificate = report.certificate
        assert report.epsilon == certificate.epsilon == 1.0
        assert report.delta == certificate.delta == 1e-5
        assert report.adjacency == certificate.adjacency
        assert report.theorem == certificate.theorem
        assert report.n_problems == certificate.n_problems
        assert report.stated["intermediates"] == certificate.intermediates
        assert report.stated["utility"] == certificate.utility


@pytest.mark.parametrize("case", CASES)
def test_profile_is_consistent_with_the_stated_pair(reports, case):
    report = reports[case]
    assert report.delta(report.epsilon) <= report.delta
    assert report.epsilon(report.delta) <= report.epsilon * (1 + 1e-9)
    grid = [report.delta(x) for x in np.linspace(0.0, 1.2, 9)]
    assert grid == sorted(grid, reverse=True)
    assert grid[0] < 1.0


def test_stated_numbers_are_numbers(reports):
    report = reports["tight", "replace-one", 1]
    assert isinstance(report.epsilon, float)
    assert repr(report.delta) == "1e-05"
    assert f"{report.epsilon:.2f}" == "1.00"
    assert type(pickle.loads(pickle.dumps(report.epsilon))) is float
    assert type(copy.deepcopy(report.delta)) is float


def test_versions_are_those_installed():
    versions = package_versions()
    assert versions["numpy"] == np.__version__
    assert versions["scikit-learn"] == version("scikit-learn")
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))


def test_is_immutable(reports):
    report = reports["corollary", "replace-one", 1]
    with pytest.raises(FrozenInstanceError):
        report.seeded = True
    with pytest.raises(TypeError):
        report.public_inputs["classes"] = (1, 2)
    with pytest.raises(TypeError):
        report.stated["guarantee"]["epsilon"] = 0.1


def test_copies_are_equal_and_differences_are_seen(reports):
    report = reports["tight", "replace-one", 1]
    str(report)  # fills the caches, which are no part of the content
    assert pickle.loads(pickle.dumps(report)) == report
    assert copy.deepcopy(report) == report
    assert str(pickle.loads(pickle.dumps(report))) == str(report)
    for changed in (
        {"seeded": True},
        {"noise_source": "a coin"},
        {"public_inputs": PUBLIC | {"rows_clipped": False}},
        {"versions": {}},
        {"certificate": reports["corollary", "replace-one", 1].certificate},
    ):
        assert replace(report, **changed) != report


def test_numpy_values_and_label_keys_become_plain_data():
    inputs = {
        "classes": np.array(["a", "b"]),
        "class_weight": {np.int64(0): np.float32(0.5), 1: 2.0},
        "clip": np.True_,
    }
    report = make_report(public_inputs=inputs)
    assert report.public_inputs["classes"] == ("a", "b")
    assert report.public_inputs["class_weight"] == {"0": 0.5, "1": 2.0}
    assert PrivacyReport.from_json(report.to_json()) == report


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ({"bound": math.inf}, ValueError, r"public_inputs.bound=inf: must be finite"),
        ({"a": {"b": [1, object()]}}, TypeError, r"public_inputs.a.b\[1\]=.*must be a string"),
        ({"w": {1: 2.0, "1": 3.0}}, ValueError, r"public_inputs.w: two keys"),
    ],
)
def test_refuses_public_inputs_that_json_cannot_hold(inputs, error, message):
    with pytest.raises(error, match=message):
        make_report(public_inputs=inputs, warnings=())


def test_refuses_unknown_mechanism_and_string_for_sequence(reports):
    report = reports["corollary", "replace-one", 1]
    with pytest.raises(ValueError, match=r"mechanism='magic': must be one of 'objective"):
        replace(report, mechanism="magic")
    with pytest.raises(TypeError, match="warnings='x': must be a sequence"):
        replace(report, warnings="x")
    with pytest.raises(ValueError, match="schema_version=2: must be 1"):
        replace(report, schema_version=2)


def test_warnings_follow_from_public_facts():
    certificate = make_report(delta=1e-3).certificate
    inputs = {"classes": "inferred", "bounds": [0, 1], "diagnostics": True}
    seeded, large_delta, leak, diagnostics = expected_warnings(certificate, inputs, seeded=True)
    assert "reproducible and so not private" in seeded
    assert "1/n (delta = 0.001, n = 10000)" in large_delta
    assert leak.startswith("classes: inferred from the records")
    assert "diagnostics are" not in leak
    assert "outside the guarantee" in diagnostics
    mine = LossConstants("mine", 1.0, 0.25, 0.1, one_sided=True)
    (unknown,) = expected_warnings(make_report(loss=mine).certificate, {}, seeded=False)
    assert "mine" in unknown
    assert "one-sided" in unknown


# --- JSON ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_json_round_trip(reports, case):
    report = reports[case]
    text = report.to_json()
    read = PrivacyReport.from_json(text)
    assert read == report
    assert read.to_json() == text
    assert PrivacyReport.from_json(text.encode()) == report
    assert PrivacyReport.from_dict(report.to_dict()) == report
    assert read.delta(0.5) == report.delta(0.5)


def test_json_is_strict_readable_and_stable(reports):
    text = reports["tight", "replace-one", 1].to_json()
    data = json.loads(text, parse_constant=pytest.fail)
    assert text.isascii()
    assert list(data)[:5] == ["schema", "schema_version", "mechanism", "estimator", "guarantee"]
    assert data["schema"] == "sklearn_dpop.privacy_report"
    assert data["schema_version"] == 1
    assert data["guarantee"] == {
        "epsilon": 1.0,
        "delta": 1e-05,
        "adjacency": "replace-one",
        "theorem": "Theorem C.13 of arXiv 2610.02716 with the one-sided divergence",
        "n_problems": 1,
    }


def test_non_finite_numbers_are_strings(reports):
    report = reports["corollary", "replace-one", 1]
    stated = report.to_dict()
    stated["certificate"]["utility"]["E_opt"] = "Infinity"
    stated["certificate"]["utility"]["empirical_risk_bound"] = "-Infinity"
    read = PrivacyReport.from_dict(stated)
    assert read.stated["utility"]["E_opt"] == math.inf
    assert read.to_dict() == stated
    assert '"E_opt": "Infinity"' in read.to_json()
    assert PrivacyReport.from_json(read.to_json()) == read


def changed(report, path, value):
    data = report.to_dict()
    *parents, key = path.split(".")
    target = data
    for parent in parents:
        target = target[parent]
    if value is ...:
        del target[key]
    else:
        target[key] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("schema", "other", "schema='other': must be"),
        ("schema", ..., "schema=None: must be"),
        ("schema_version", 2, "schema_version=2: must be 1"),
        ("schema_version", True, "schema_version=True: must be 1"),
        ("mechanism", "magic", "mechanism='magic': must be one of"),
        ("seeded", ..., "seeded: missing"),
        ("extra", 1, "extra: unknown key"),
        ("seeded", 1, "seeded: must be true or false, not int"),
        ("seeded", None, "seeded: must be true or false, not null"),
        ("warnings", "text", "warnings: must be an array, not str"),
        ("warnings", [1], r"warnings\[0\]: must be a string, not int"),
        ("versions", [], "versions: must be an object, not array"),
        ("versions.numpy", 2, "versions.numpy: must be a string"),
        ("guarantee.epsilon", "1", "guarantee.epsilon: must be a number, not str"),
        ("guarantee.epsilon", True, "guarantee.epsilon: must be a number, not bool"),
        ("guarantee.n_problems", 1.5, "guarantee.n_problems: must be an integer"),
        ("guarantee.adjacency", ..., "guarantee.adjacency: missing"),
        ("certificate.public_inputs.n_iter", 2.0, "public_inputs.n_iter: must be an integer"),
        ("certificate.public_inputs.mu", None, "public_inputs.mu: must be a number, not null"),
        ("certificate.public_inputs.mu", ..., "certificate.public_inputs.mu: missing"),
        ("certificate.public_inputs.nu", 1.0, "certificate.public_inputs.nu: unknown key"),
        ("certificate.public_inputs.loss", 1.0, "loss: must be an object, not float"),
        ("certificate.public_inputs.loss.L1", ..., "loss.L1: missing"),
        ("certificate.public_inputs.loss.one_sided", 1, "one_sided: must be true or false"),
        ("certificate.intermediates.G", "x", "intermediates.G: must be a number"),
        ("certificate.contributions.delta", ..., "contributions.delta: missing"),
        ("certificate.utility", [], "certificate.utility: must be an object"),
    ],
)
def test_from_json_names_what_is_malformed(reports, path, value, message):
    text = changed(reports["corollary", "replace-one", 1], path, value)
    with pytest.raises(ValueError, match=message):
        PrivacyReport.from_json(text)


@pytest.mark.parametrize(
    ("find", "put", "message"),
    [
        ('"seeded": false', '"seeded": false, "seeded": true', "seeded: appears twice"),
        ('"delta": 1e-05', '"delta": NaN', "NaN: not a JSON number"),
        ('"delta": 1e-05', '"delta": Infinity', "Infinity: not a JSON number"),
        ('"delta": 1e-05', '"delta": 1e999', "1e999: too large"),
        ("{", "[" * 100_000, "nested too deeply"),
        ("{", "[", "Expecting"),
        ("{", " " * 10_000_001 + "{", "more than the 10000000"),
        ('"schema"', '"\\ud800"', "schema=None"),
    ],
)
def test_from_json_is_strict(reports, find, put, message):
    text = reports["corollary", "replace-one", 1].to_json()
    assert find in text
    with pytest.raises(ValueError, match=message):
        PrivacyReport.from_json(text.replace(find, put, 1))


@pytest.mark.parametrize("text", ["[]", "null", "1", '"x"', "{}"])
def test_from_json_refuses_other_json(text):
    with pytest.raises(ValueError, match="this is no privacy report"):
        PrivacyReport.from_json(text)


@pytest.mark.parametrize("text", ["report.json", "", "/home/x/report.json", "epsilon: 1"])
def test_from_json_says_how_to_read_a_file(text):
    with pytest.raises(json.JSONDecodeError, match="the text of a report is expected") as caught:
        PrivacyReport.from_json(text)
    message = str(caught.value)
    assert repr(text) in message
    assert "from_json(Path('report.json').read_text())" in message
    assert message.endswith("Expecting value: line 1 column 1 (char 0)")
    with pytest.raises(TypeError, match=r"is expected, not \w+Path; to read a file"):
        PrivacyReport.from_json(Path(text))


def test_from_json_points_to_an_error_of_syntax(reports):
    lines = reports["corollary", "replace-one", 1].to_json().splitlines()
    text = "\n".join([*lines[:3], lines[3].replace(":", ""), *lines[4:]])
    with pytest.raises(json.JSONDecodeError, match=r"^Expecting ':' delimiter: line 4 column"):
        PrivacyReport.from_json(text)


# --- text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (1.0, 6, "1"),
        (1e-5, 6, "1e-05"),
        (0.1, 6, "0.1"),
        (0.12341, 3, "0.124"),
        (0.9999999, 6, "1"),
        (math.inf, 6, "inf"),
        (0.0, 6, "0"),
    ],
)
def test_numbers_round_up(value, digits, expected):
    assert number(value, digits, up=True) == expected


def test_bounds_are_never_understated():
    rng = np.random.default_rng(0)
    for value in 10.0 ** rng.uniform(-12, 12, size=300):
        shown = float(number(float(value), 3, up=True))
        assert value <= shown <= value * 1.0101


@pytest.mark.parametrize("case", CASES)
def test_summary_fits_and_says_what_matters(reports, case):
    report = reports[case]
    lines = str(report).splitlines()
    assert len(lines) < 30
    assert max(map(len, lines)) <= 88
    assert lines[0] == f"(epsilon = 1, delta = 1e-05)-differential privacy, {case[1]} adjacency"
    text = " ".join(str(report).split())
    for part in ("e^epsilon = 2.72", report.theorem, "n = 10000 records", "report.verify()"):
        assert part in text
    assert ("total over 10 one-vs-rest problems" in text) == (case[2] == 10)
    assert ("by the sharper bound" in text) == (case[0] == "corollary")
    assert "DOES NOT VERIFY" not in text


def test_summary_stays_short_with_long_contents():
    report = make_report(n_problems=10, delta=1e-3, seeded=True)
    report = replace(
        report,
        estimator="A" * 300,
        noise_source="a long story " * 60,
        warnings=(*report.warnings, *(f"warning {i} " * 20 for i in range(9))),
    )
    lines = str(report).splitlines()
    assert len(lines) < 30
    assert max(map(len, lines)) <= 88
    assert lines[0].startswith("NOT PRIVATE: random_state was given")
    assert re.search(r"\d+ more: report\.warnings", str(report))
    assert "report.verify()" in lines[-1]


def test_text_cannot_steer_a_terminal(reports):
    report = reports["corollary", "replace-one", 1]
    report = replace(report, noise_source="x\x1b[2J\u202e", estimator="a\nb")
    for text in (str(report), str(report.verify()), report.to_html()):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_attack_success_of_a_known_profile():
    # (1 + delta(0))/2 with the total variation of one Gaussian against another: 2 Phi(m/2) - 1.
    # The certificate's bound is above that of the Gaussian mechanism with the same noise.
    report = make_report("tight")
    shift = 1.0 / report.certificate.intermediates["noise_multiplier"]
    gaussian = norm.cdf(shift / 2)
    stated = (math.e + 1e-5) / (1 + math.e)  # optimal test at even odds, by (epsilon, delta)
    assert gaussian <= attack_success(report) <= stated
    # A report that does not verify is not evaluated: the stated pair is all there is.
    altered = PrivacyReport.from_json(changed(report, "certificate.intermediates.G", 1.0))
    assert attack_success(altered) == pytest.approx(stated, rel=1e-12)


@pytest.mark.parametrize("n_problems", [1, 10])
def test_sharper_epsilon_is_certified_and_nearly_smallest(reports, n_problems):
    report = reports["corollary", "replace-one", n_problems]
    p = report.certificate.release
    tight = calibrate_objective_perturbation(
        p.n_samples,
        p.n_features,
        None,
        1e-5,
        calibration="tight",
        mu=p.mu,
        sigma=p.sigma,
        n_iter=p.n_iter,
        eta=p.eta,
        n_problems=n_problems,
    )
    sharper = report._sharper_epsilon
    assert tight.delta_at(sharper) <= 1e-5
    assert tight.epsilon == pytest.approx(sharper, rel=0.01)
    assert sharper < report.certificate.epsilon_at(1e-5) < 1.0
    assert f"epsilon = {sharper:g}" in str(report)


@pytest.mark.parametrize(
    ("loss", "trivial"),
    [
        (softplus_constants("logistic", 0.0, 1.0), math.log(2)),
        (softplus_constants("logistic", 1.0, 1.0).scaled(3.0), 3 * math.log1p(math.e)),
        (softplus_constants("smoothed_hinge", 1.0, 0.25), 0.25 * math.log1p(math.exp(4))),
    ],
)
def test_a_bound_worse_than_the_zero_model_is_called_useless(loss, trivial):
    text = str(make_report(loss=loss))
    assert f"says nothing: w = 0 has {trivial:.3g}" in text


def test_a_report_that_does_not_verify_says_so_first(reports):
    report = reports["corollary", "replace-one", 1]
    altered = PrivacyReport.from_json(changed(report, "certificate.public_inputs.mu", -1.0))
    assert str(altered).startswith("DOES NOT VERIFY")
    assert "DOES NOT VERIFY" in altered._repr_html_()
    assert "<svg" not in altered._repr_html_()


# --- HTML ---------------------------------------------------------------------------------------


class Checker(HTMLParser):
    """Collects tags and fails on any that is not closed in order."""

    VOID = ("meta", "line", "path", "circle")

    def __init__(self):
        super().__init__()
        self.stack, self.tags, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"repeated attribute in {tag}: {attrs}"
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if "style" not in self.stack:
            self.text += data


def parse(html):
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.stack == []
    return checker


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", ["_repr_html_", "to_html"])
def test_html_is_well_formed_self_contained_and_accessible(reports, case, form):
    html = getattr(reports[case], form)()
    found = parse(html)
    assert not re.search(r"https?:|//|url\(|@import|\ssrc=|<script|<link|javascript", html)
    tags = [tag for tag, _ in found.tags]
    assert set(tags).isdisjoint({"script", "link", "img", "iframe", "object"})
    assert not any("id" in attributes for _, attributes in found.tags)  # may be shown twice
    assert all(attributes.get("scope") for tag, attributes in found.tags if tag == "th")
    (svg,) = (attributes for tag, attributes in found.tags if tag == "svg")
    assert svg["role"] == "img"
    assert "epsilon 1, delta 1e-05" in svg["aria-label"]
    assert "(ε\xa0=\xa01, δ\xa0=\xa01e-05)-differential privacy" in found.text
    for part in (case[1], "delta δ", "epsilon ε", "Where epsilon", "alpha_bar", "tau_star"):
        absent = {"corollary": "alpha_bar", "tight": "tau_star"}[case[0]]
        assert (part in found.text) == (part != absent)


def test_page_has_language_title_and_viewport(reports):
    html = reports["tight", "replace-one", 1].to_html()
    assert html.startswith("<!DOCTYPE html>")
    found = parse(html)
    assert ("html", {"lang": "en"}) in found.tags
    assert any(attributes.get("name") == "viewport" for _, attributes in found.tags)
    assert {"title", "h1", "main"} <= {tag for tag, _ in found.tags}
    assert "prefers-color-scheme:dark" in html
    assert "@media print" in html


def test_html_escapes_everything(reports):
    evil = "<b onclick='x'>&\"</b>"
    report = replace(
        reports["corollary", "replace-one", 1],
        estimator=evil,
        noise_source=evil,
        warnings=(evil,),
        assumptions=(evil,),
        versions={evil: evil},
        public_inputs={evil: evil, "list": [evil], "map": {evil: evil}},
    )
    data = report.to_dict()
    data["guarantee"]["adjacency"] = data["guarantee"]["theorem"] = evil
    data["certificate"]["intermediates"][evil] = 1.0
    data["certificate"]["contributions"]["epsilon"][evil] = 1.0
    data["certificate"]["utility"][evil] = 1.0
    data["certificate"]["public_inputs"]["loss"]["name"] = evil
    report = PrivacyReport.from_dict(data)
    found = parse(report.to_html())
    assert "b" not in {tag for tag, _ in found.tags}
    assert found.text.count(evil) >= 14


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast_of_text(theme):
    # Contrast ratio of WCAG 2: at least 4.5 for text.
    for text, ground in (
        ("text", "bg"),
        ("muted", "bg"),
        ("text", "soft"),
        ("mark", "bg"),
        ("warn", "warn-bg"),
        ("stop", "stop-bg"),
    ):
        low, high = sorted((luminance(theme[text]), luminance(theme[ground])))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ground)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast_of_graphics(theme):
    # WCAG 2: at least 3 for curves and bars.
    for mark, ground in (("accent", "bg"), ("accent", "soft"), ("muted", "bg"), ("mark", "bg")):
        low, high = sorted((luminance(theme[mark]), luminance(theme[ground])))
        assert (high + 0.05) / (low + 0.05) >= 3.0, (mark, ground)


def test_the_theme_of_the_host_wins_over_that_of_the_system_and_paper_over_both(reports):
    html = reports["tight", "replace-one", 1]._repr_html_()
    light, dark = f"--sd-bg:{LIGHT['bg']}", f"--sd-bg:{DARK['bg']}"
    # Equal or growing specificity, so that the last rule that applies wins.
    order = [
        (r"\n\.sk-dpop-report\{", light),
        (r"@media \(prefers-color-scheme:dark\)\{\.sk-dpop-report\{", dark),
        (r"\[data-theme=light\] \.sk-dpop-report,[^{]*\{", light),
        (r"\[data-theme=dark\] \.sk-dpop-report,[^{]*\{", dark),
        (r"@media print\{\.sk-dpop-report,\[data-theme=dark\] \.sk-dpop-report,[^{]*\{", light),
    ]
    at = [re.search(rule + re.escape(colors), html).start() for rule, colors in order]
    assert at == sorted(at)


def test_html_prints_what_is_folded(reports):
    # On paper nobody can open a part: looked at in Chromium, which knows this selector.
    html = reports["tight", "replace-one", 1].to_html()
    print_rules = html[html.rindex("@media print{.sk-dpop-report{") :]
    assert "details::details-content{content-visibility:visible;display:block}" in print_rules


def test_html_says_once_that_rounding_is_outside(reports):
    report = reports["tight", "replace-one", 1]
    with_it = replace(report, assumptions=("float32 rounding is outside the theorem",))
    assert parse(with_it.to_html()).text.count("rounding is outside") == 1
    without = replace(report, assumptions=("one person contributes one record",))
    assert parse(without.to_html()).text.count("rounding is outside") == 1


def test_html_names_empty_choices_and_breaks_names_but_not_numbers(reports):
    report = replace(reports["tight", "replace-one", 1], public_inputs={"class_weight": {}})
    found = parse(report.to_html())
    assert re.search(r"class_weight\s*none", found.text)
    cells = [attributes.get("class", "") for tag, attributes in found.tags if tag == "td"]
    # No value of this report is a name of several words.
    assert any("sk-dpop-num" in cell for cell in cells)
    assert not any("sk-dpop-long" in cell for cell in cells)


# --- plot ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_problems", [1, 10])
def test_plot_shows_the_profile_the_stated_pair_and_the_gaussian(reports, n_problems):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    report = reports["tight", "replace-one", n_problems]
    _, given = plt.subplots()
    ax = report.plot_profile(given)
    assert ax is given
    assert ax.get_yscale() == "log"
    assert ax.get_xlabel() == "ε"
    assert ax.get_ylabel() == "δ(ε)"
    assert "replace-one" in ax.get_title()
    certified, gaussian, stated = ax.get_lines()
    assert len(ax.get_legend().get_texts()) == 3
    # Those of the HTML, whose contrast is tested; the curves differ without colours, too.
    assert certified.get_color() == LIGHT["accent"]
    assert stated.get_color() == LIGHT["mark"]
    assert (certified.get_linestyle(), gaussian.get_linestyle()) == ("-", "--")
    for x, y in list(zip(*certified.get_data(), strict=True))[::4]:
        assert y == report.delta(x)
    assert (stated.get_xdata()[0], stated.get_ydata()[0]) == (1.0, 1e-5)
    # Balle and Wang (2018), Theorem 8; K releases are one with sensitivity sqrt(K) larger.
    m = math.sqrt(n_problems) / report.certificate.intermediates["noise_multiplier"]
    x = np.asarray(gaussian.get_xdata())
    exact = norm.cdf(m / 2 - x / m) - np.exp(x) * norm.cdf(-m / 2 - x / m)
    np.testing.assert_allclose(gaussian.get_ydata(), exact, rtol=1e-6, atol=1e-14)
    plt.close("all")
    assert report.plot_profile().figure is not given.figure
    plt.close("all")


def test_plot_names_what_is_missing(reports, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install matplotlib$"):
        reports["tight", "replace-one", 1].plot_profile()


def test_plot_refuses_a_report_that_does_not_verify(reports):
    pytest.importorskip("matplotlib")
    text = changed(reports["tight", "replace-one", 1], "certificate.public_inputs.mu", -1.0)
    with pytest.raises(ValueError, match="does not verify"):
        PrivacyReport.from_json(text).plot_profile()


# --- with an estimator --------------------------------------------------------------------------


def test_report_of_an_estimator_verifies_elsewhere():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)) / 4, rng.integers(0, 3, 300)
    model = ObjPertGDLogisticRegression(
        epsilon=1.0, delta=1e-6, classes=[0, 1, 2], class_weight={0: 2.0}, random_state=0
    )
    report = model.fit(X, y).privacy_report_
    read = PrivacyReport.from_json(report.to_json())
    assert read == report
    assert read.verify()
    assert not read.verify().private
    assert str(read).startswith("NOT PRIVATE")
