"""Verification: whatever is altered or false in a report is found, and named."""

import copy
import json
import math
import re
from dataclasses import replace

import pytest
from test_report import make_report

from sklearn_dpop.privacy import calibrate_objective_perturbation
from sklearn_dpop.privacy._loss_constants import LossConstants, softplus_constants
from sklearn_dpop.privacy._report import PrivacyReport, expected_warnings

# What nothing in a report can check: free text, descriptions, and the margin of a softplus loss
# (its constants are the same for every margin).
FREE = (
    "estimator",
    "noise_source",
    "assumptions",
    "versions",
    "public_inputs.rows_clipped",
    "public_inputs.row_norm_bound",  # checked from above only
    "public_inputs.class_weight",  # likewise
    "public_inputs.classes.[",  # the labels; their number is checked
    "certificate.public_inputs.loss.margin",
)
CASES = [
    ("corollary", "replace-one", 1),
    ("corollary", "zero-out", 10),
    ("tight", "zero-out", 1),
    ("tight", "replace-one", 10),
]


def full_report(calibration, adjacency, n_problems):
    """Return a report in which every kind of leaf occurs, two warnings among them."""
    classes = ["no", "yes"] if n_problems == 1 else [f"class {i}" for i in range(n_problems)]
    return make_report(
        calibration,
        adjacency,
        n_problems,
        delta=2e-4,
        seeded=True,
        loss=softplus_constants("smoothed_hinge", 1.0, 0.5).scaled(2.0),
        public_inputs={
            "classes": classes,
            "n_classes": len(classes),
            "row_norm_bound": 1.0,
            "rows_clipped": True,
            "class_weight": {classes[0]: 2.0},
        },
    )


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from leaves(item, (*path, i))
    else:
        yield path, value


def dotted(path):
    return ".".join(f"[{key}]" if isinstance(key, int) else key for key in path)


def alterations(value):
    """Yield other values of a leaf; Ellipsis stands for its removal."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield max(value + 1, round(1.01 * value))
        yield min(value - 1, round(0.9 * value))
    elif isinstance(value, float):
        yield from (1.01 * value, 0.9 * value) if value else (1e-3,)
    elif isinstance(value, str):
        yield value + "x"
        yield ""
    else:
        yield 1.0
    yield ...


def altered(data, path, value):
    data = copy.deepcopy(data)
    target = data
    for key in path[:-1]:
        target = target[key]
    if value is ...:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return json.dumps(data)


def read_and_verify(text):
    try:
        return PrivacyReport.from_json(text).verify(), ""
    except ValueError as error:
        return None, str(error)


@pytest.mark.parametrize("case", CASES)
def test_any_altered_leaf_is_found_and_named(case):
    report = full_report(*case)
    assert report.verify(), str(report.verify())
    data = report.to_dict()
    count = 0
    for path, value in leaves(data):
        name = dotted(path)
        if name.startswith(FREE):
            continue
        for other in alterations(value):
            count += 1
            verification, error = read_and_verify(altered(data, path, other))
            if verification is None:
                assert str(path[-1]) in error, (name, other)
                continue
            assert not verification, f"{name} = {other!r} is not found"
            named = [check.name for check in verification.failures]
            assert all(part in str(verification) for part in named)
            if path[0] == "guarantee" or path[:2] in (
                ("certificate", "intermediates"),
                ("certificate", "contributions"),
                ("certificate", "utility"),
            ):
                assert name in named
            elif path[0] in ("seeded", "warnings"):
                assert any(part.startswith("warnings.") for part in named)
    assert count > 150


def test_the_free_leaves_are_the_only_ones_that_may_change():
    # Guards the list above: each of its entries occurs, and its change is indeed not seen.
    report = full_report(*CASES[0])
    data = report.to_dict()
    for prefix in FREE:
        path, value = next(
            (path, value) for path, value in leaves(data) if dotted(path).startswith(prefix)
        )
        other = not value if isinstance(value, bool) else "x" if isinstance(value, str) else 0.5
        assert PrivacyReport.from_json(altered(data, path, other)).verify(), prefix


# --- reports that agree with themselves and yet claim what is not proven -------------------------


def restate(report, *, epsilon=None, **release):
    """Return a report whose every number follows from changed public inputs."""
    certificate = replace(
        report.certificate, release=replace(report.certificate.release, **release)
    )
    if epsilon is not None:
        certificate = replace(certificate, epsilon=epsilon)
    return replace(report, certificate=certificate, stated=None)


def failing(report):
    verification = PrivacyReport.from_json(report.to_json()).verify()
    assert bool(verification) == (not verification.failures)
    return [check.name for check in verification.failures]


@pytest.mark.parametrize("calibration", ["corollary", "tight"])
def test_less_noise_is_not_certified(calibration):
    report = make_report(calibration)
    sigma = report.certificate.sigma
    assert failing(restate(report, sigma=1.001 * sigma)) == []
    # The corollary leaves slack (its delta is half of the stated one), the tight bound none.
    less = 0.9999 * sigma if calibration == "tight" else 0.02 * sigma
    assert "delta at the stated epsilon" in failing(restate(report, sigma=less))


def test_smaller_epsilon_is_not_certified():
    assert failing(restate(make_report("tight"), epsilon=0.9999)) == [
        "delta at the stated epsilon"
    ]


def test_too_few_steps_violate_condition_7():
    report = make_report("corollary")
    n_iter = report.certificate.n_iter
    assert n_iter == math.ceil(report.certificate.intermediates["threshold_7"])
    assert "condition (7) on N" in failing(restate(report, n_iter=n_iter - 1))


def test_too_few_steps_violate_condition_47():
    names = failing(restate(make_report("tight"), n_iter=500))
    assert names == ["condition (47): alpha_bar > 0 and r' exists", "delta at the stated epsilon"]


def test_too_long_steps_violate_eta():
    report = make_report("corollary")
    eta = report.certificate.eta
    assert "step size eta <= 1/L" in failing(restate(report, eta=1.000001 * eta))


def test_more_problems_are_not_certified():
    report = make_report("tight")
    certificate = replace(report.certificate, n_problems=2)
    several = replace(report, certificate=certificate, stated=None, public_inputs={})
    assert "delta at the stated epsilon" in failing(several)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mu", 0.0),
        ("sigma", -1.0),
        ("sigma", math.inf),
        ("eta", math.nan),
        ("data_norm", -1.0),
        ("n_samples", 0),
        ("n_iter", 2**63),
        ("adjacency", "add-remove"),
    ],
)
def test_inputs_out_of_range_are_named(name, value):
    report = make_report("corollary").to_dict()
    report["certificate"]["public_inputs"][name] = {math.inf: "Infinity"}.get(value, value)
    if isinstance(value, float) and math.isnan(value):
        report["certificate"]["public_inputs"][name] = "NaN"
    verification = PrivacyReport.from_dict(report).verify()
    assert f"certificate.public_inputs.{name}" in [c.name for c in verification.failures]
    assert f"[FAIL] certificate.public_inputs.{name}: " in str(verification)


@pytest.mark.parametrize("calibration", ["corollary", "tight"])
def test_each_calibration_uses_its_own_radius(calibration):
    data = make_report(calibration).to_dict()
    inputs = data["certificate"]["public_inputs"]
    inputs["u"], inputs["r"] = inputs["r"], inputs["u"]
    names = [check.name for check in PrivacyReport.from_dict(data).verify().failures]
    assert {"certificate.public_inputs.u", "certificate.public_inputs.r"} <= set(names)


def test_formulas_that_overflow_are_a_failure_not_a_crash():
    data = make_report("corollary").to_dict()
    data["certificate"]["public_inputs"]["data_norm"] = 1e200
    verification = PrivacyReport.from_dict(data).verify()
    assert "recomputation" in [check.name for check in verification.failures]


def test_what_a_certificate_has_cached_is_not_believed():
    report = make_report("corollary")
    certificate = copy.deepcopy(report.certificate)
    certificate.__dict__["_intermediates"] = {"G": 0.0}
    lying = replace(report, certificate=certificate, stated=None)
    assert lying.stated["intermediates"] == {"G": 0.0}
    assert "certificate.intermediates.mu_util" in failing(lying)


def test_last_bits_may_differ_between_machines():
    data = make_report("tight").to_dict()
    for path, value in list(leaves(data["certificate"]["intermediates"])):
        data["certificate"]["intermediates"][path[0]] = value * (1.0 + 1e-12)
    for total, terms in data["certificate"]["contributions"].items():
        for term, value in terms.items():
            data["certificate"]["contributions"][total][term] = value * (1.0 - 1e-13)
    assert PrivacyReport.from_dict(data).verify()
    data["certificate"]["intermediates"]["mu"] = 1.0
    assert not PrivacyReport.from_dict(data).verify()


# --- losses, choices and warnings ---------------------------------------------------------------


def test_unknown_loss_is_an_assumption_to_check():
    mine = LossConstants("mine", 1.0, 0.25, 0.1, one_sided=True)
    report = make_report("tight", loss=mine)
    verification = report.verify()
    assert verification
    assert "'mine' is not known to the package" in str(verification)
    (listed,) = (text for text in verification.not_checked if "the loss 'mine'" in text)
    assert all(name in listed for name in ("L1", "L2", "L3", "one_sided"))
    assert failing(replace(report, warnings=())) == ["warnings.expected"]


def test_known_loss_cannot_have_better_constants():
    better = LossConstants("logistic", 1.0, 0.2, 0.09, one_sided=True)
    assert {"loss.L2", "loss.L3"} <= set(failing(make_report("tight", loss=better)))


@pytest.mark.parametrize(
    ("choice", "failure"),
    [
        ({"class_weight": {"0": 1.5}}, "public_inputs.class_weight"),
        ({"class_weight": {"0": "a", "1": 2}}, "public_inputs"),
        ({"row_norm_bound": 1.01}, "public_inputs.row_norm_bound"),
        ({"row_norm_bound": 1.0, "intercept_scaling": 0.25}, "public_inputs.row_norm_bound"),
        ({"classes": ["a", "b", "c"], "n_classes": 3}, "public_inputs.n_classes"),
        ({"classes": ["a", "b", "c"]}, "public_inputs.n_classes"),
        ({"n_classes": 3}, "public_inputs.n_classes"),
        ({"n_classes": 2.0}, "public_inputs.n_classes"),
        ({"classes": "0..1"}, "public_inputs.classes"),
        ({"class_weight": [1.0, 1.0]}, "public_inputs.class_weight"),
        ({"adjacency": "zero-out"}, "guarantee.public_inputs.adjacency"),
        ({"epsilon": 0.5}, "guarantee.public_inputs.epsilon"),
    ],
)
def test_choices_that_the_certificate_does_not_cover_are_found(choice, failure):
    report = make_report("corollary", public_inputs=COMPLETE | choice)
    assert set(failing(report)) == {failure}


COMPLETE = {"classes": ["0", "1"], "n_classes": 2, "class_weight": None}


@pytest.mark.parametrize("weights", [None, {}, {"0": 1e-3}, {"a": 1e-3, "b": 1e-3}, [1e-3, 1e-3]])
def test_a_loss_lighter_than_its_classes_is_found(weights):
    # Classes that are not named in class_weight weigh 1.
    light = softplus_constants("logistic", 0.0, 1.0).scaled(1e-3)
    report = make_report("tight", loss=light, public_inputs=COMPLETE | {"class_weight": weights})
    assert "public_inputs.class_weight" in failing(report)
    fine = COMPLETE | {"class_weight": {"0": 1e-3, "1": 1e-3}}
    assert failing(make_report("tight", loss=light, public_inputs=fine)) == []


@pytest.mark.parametrize("classes", ["inferred", "0..9", 10, None, {"a": 1}, ...])
def test_the_number_of_problems_cannot_be_hidden(classes):
    report = make_report("tight", public_inputs={} if classes is ... else {"classes": classes})
    assert "public_inputs.n_classes" in failing(report)


def test_a_seed_named_only_by_the_noise_source_is_found():
    report = replace(make_report("corollary"), noise_source="ChaCha20 (seeded: reproducible)")
    assert "noise_source" in failing(report)


def test_epsilon_zero_may_be_stated():
    certificate = calibrate_objective_perturbation(
        300, 5, None, 1e-2, sigma=1e4, calibration="tight"
    )
    assert certificate.epsilon == 0.0
    report = make_report("tight")
    zero = replace(
        report,
        certificate=certificate,
        stated=None,
        warnings=expected_warnings(certificate, report.public_inputs, seeded=False),
    )
    assert failing(zero) == []


def test_huge_integers_are_refused_in_reading():
    text = make_report("corollary").to_json().replace('"epsilon": 1.0', f'"epsilon": 1{"0" * 400}')
    with pytest.raises(ValueError, match="too large"):
        PrivacyReport.from_json(text)


def test_choices_that_the_certificate_covers_are_accepted():
    choice = {
        "n_classes": 2,
        "class_weight": {"0": 0.5},
        "row_norm_bound": 0.9,
        "intercept_scaling": None,
        "classes": ["a", "b"],
        "adjacency": "replace-one",
        "epsilon": 1.0,
        "n_iter": "auto",
    }
    assert failing(make_report("corollary", public_inputs=choice)) == []


def test_warnings_must_be_those_that_the_report_calls_for():
    report = make_report("corollary", public_inputs=COMPLETE | {"classes": "inferred"})
    assert failing(report) == []
    assert failing(replace(report, warnings=())) == ["warnings.expected"]
    assert failing(replace(report, warnings=(*report.warnings, "use with care"))) == []
    seeded = expected_warnings(report.certificate, {}, seeded=True)
    assert failing(replace(report, warnings=(*report.warnings, *seeded))) == [
        "warnings.unexpected"
    ]
    assert failing(replace(report, seeded=True)) == ["warnings.expected"]


def flat(text):
    """Return text without markup and line breaks."""
    return " ".join(re.sub("<[^>]*>", " ", text).split())


def test_words_of_the_author_are_marked_wherever_they_are_shown():
    claim = "VERIFIED BY THE AUTHORITY"
    report = make_report("corollary", public_inputs=COMPLETE | {"approval": claim})
    report = replace(report, warnings=("none: epsilon is really 0.1",))
    verification = PrivacyReport.from_json(report.to_json()).verify()
    assert verification  # nothing in it is false by the package's knowledge
    mark = "words of the author, not of the package"
    assert f"{mark}: public_inputs.approval" in verification.not_checked
    assert f"{mark}: none: epsilon is really 0.1" in verification.not_checked
    for text in (str(report), report.to_html(), str(verification)):
        assert f"{mark}: none: epsilon is really 0.1" in flat(text)
        assert claim not in text or f"approval ({mark}) {claim}" in flat(text)
    assert claim in report.to_html()
    ours = make_report("corollary", public_inputs=COMPLETE | {"classes": "inferred"}, seeded=True)
    assert len(ours.warnings) == 2
    for text in (str(ours), ours.to_html(), str(ours.verify())):
        assert mark not in flat(text)


def test_choices_that_nothing_compares_are_listed():
    report = full_report(*CASES[0])
    (listed,) = (text for text in report.verify().not_checked if "these settings" in text)
    assert listed.endswith("chosen without looking at the records: rows_clipped")


@pytest.mark.parametrize("temperature", [0.0, 1e-200, 1e200])
def test_absurd_losses_are_shown_and_not_verified(temperature):
    report = full_report(*CASES[0]).to_dict()
    report["certificate"]["public_inputs"]["loss"]["temperature"] = temperature
    report = PrivacyReport.from_dict(report)
    assert "DOES NOT VERIFY" in str(report)
    assert not report.verify()


# --- as text ------------------------------------------------------------------------------------


def test_text_of_success_lists_what_holds_and_what_cannot_be_checked():
    verification = make_report("corollary").verify()
    text = " ".join(str(verification).split())
    assert text.startswith("VERIFIED: ")
    assert "[FAIL]" not in text
    for part in (
        "(epsilon = 1, delta = 1e-05)-differential privacy, replace-one adjacency",
        "condition (7) on N",
        "step size eta <= 1/L",
        "the model was trained on 10000 records",
        "the noise came from the source named (ChaCha20, key from the operating system)",
        "float64 rounding, that of the noise included, gives nothing away",
    ):
        assert part in text
    assert len(str(verification).splitlines()) < 40


def test_text_of_failure_shows_both_numbers():
    data = make_report("corollary").to_dict()
    data["certificate"]["intermediates"]["G"] = 0.125
    text = str(PrivacyReport.from_dict(data).verify())
    assert text.startswith("NOT VERIFIED: 1 of ")
    assert "[FAIL] certificate.intermediates.G: stated 0.125, recomputed 0.0002" in text


def test_seeded_reports_verify_but_are_called_not_private():
    verification = make_report("corollary", seeded=True).verify()
    assert verification
    assert not verification.private
    assert str(verification).startswith("VERIFIED, BUT NOT PRIVATE")
