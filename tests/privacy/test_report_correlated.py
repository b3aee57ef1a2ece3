"""The report of gradient steps with correlated noise: JSON, verification, text, HTML, plot."""

import copy
import json
import math
import pickle
import re
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm
from test_report import Checker
from test_verify import alterations, altered, dotted

from sklearn_dpop.factorization import (
    BIFR,
    BLT,
    BSR,
    BandInvMF,
    BandMF,
    Dense,
    Identity,
    InverseLinear,
    LambdaCGD,
    PrefixSum,
)
from sklearn_dpop.privacy import PrivacyReport, Schedule, calibrate_noise_multiplier
from sklearn_dpop.privacy import _report as report_module
from sklearn_dpop.privacy._report import expected_warnings, package_versions
from sklearn_dpop.privacy._report_text import attack_success

MECHANISM = "correlated-noise-gd"
BINS = Schedule(800, 100, 4)
CYCLIC = Schedule(800, 100, 4, "cyclic")
FIXED = Schedule(800, 100, 4, "without_replacement")
POISSON = Schedule(800, 100, 4, "poisson")
DETERMINISTIC = {"method": "deterministic"}
CASES = {
    "monte carlo": (LambdaCGD(0.8), BINS, "zero-out", {"n_draws": 1 << 16}),
    "bins, replaced": (LambdaCGD(0.8), BINS, "replace-one", DETERMINISTIC),
    "cyclic": (BIFR(0.8, 4), CYCLIC, "replace-one", {}),
    "dense": (Dense([[1.0, 0.0], [0.5, 1.0]]), Schedule(4, 2, 1, "cyclic"), "zero-out", {}),
    "poisson": (Identity(), POISSON, "add-remove", {}),
    "without replacement": (
        BandMF(3, coefficients=(1.0, 0.5, 0.375), n_steps=32),
        FIXED,
        "zero-out",
        DETERMINISTIC,
    ),
}


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setenv("SKLEARN_DPOP_CACHE", "")


def make_report(
    strategy=LambdaCGD(0.8),  # noqa: B008 (immutable)
    schedule=CYCLIC,
    adjacency="zero-out",
    *,
    delta=1e-5,
    seeded=False,
    choices=None,
    **given,
):
    """Return a report on a release at epsilon = 2; some delta is left over on purpose."""
    if schedule.sampling == "poisson":
        pytest.importorskip("dp_accounting")
    kappa = calibrate_noise_multiplier(
        2.0, delta, strategy, schedule, adjacency=adjacency, **given
    )
    certificate = replace(kappa.certificate, delta=1.25 * delta)
    choices = {
        "classes": ["no", "yes"],
        "n_classes": 2,
        "max_grad_norm": 0.5,
        "n_samples": schedule.n_samples,
        "batch_size": schedule.batch_size,
        "epochs": schedule.epochs,
        "expected_batch_size": schedule.expected_batch_size,
        "gamma": "auto",
        **(choices or {}),
    }
    return PrivacyReport(
        mechanism=MECHANISM,
        estimator="KANClassifierDP",
        certificate=certificate,
        public_inputs={key: value for key, value in choices.items() if value is not ...},
        assumptions=("one person contributes one record",),
        noise_source="ChaCha20, key from the operating system",
        seeded=seeded,
        warnings=expected_warnings(certificate, choices, seeded=seeded),
        versions=package_versions(MECHANISM),
    )


def of_case(name, **given):
    strategy, schedule, adjacency, options = CASES[name]
    return make_report(strategy, schedule, adjacency, **options, **given)


@pytest.fixture(scope="module")
def reports():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKLEARN_DPOP_CACHE", "")
        return {name: of_case(name) for name in CASES}


def failing(report):
    """Return the names of the checks that fail after a journey through JSON."""
    verification = PrivacyReport.from_json(report.to_json()).verify()
    assert bool(verification) == (not verification.failures)
    return [check.name for check in verification.failures]


def restate(report, choices=None, **values):
    """Return a report whose every number follows from changed inputs of the certificate."""
    certificate = replace(report.certificate, **values)
    made = replace(report, certificate=certificate, stated=None)
    return replace(made, public_inputs={**report.public_inputs, **(choices or {})})


def edited(report, *changes):
    """Return the report read from JSON in which values at dotted paths are changed."""
    data = report.to_dict()
    for path, value in changes:
        *parents, key = path.split(".")
        target = data
        for parent in parents:
            target = target[parent]
        if value is ...:
            del target[key]
        else:
            target[key] = value
    return PrivacyReport.from_json(json.dumps(data))


# --- JSON ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_round_trip_verification_and_pickle(reports, case):
    report = reports[case]
    text = report.to_json()
    read = PrivacyReport.from_json(text)
    assert read == report
    assert read.to_json() == text
    verification = read.verify()
    assert verification, str(verification)
    assert pickle.loads(pickle.dumps(report)) == report
    assert copy.deepcopy(report) == report
    assert read.delta(2.0) == report.delta(2.0) <= 1e-5
    assert report.n_problems == 1
    assert json.loads(text, parse_constant=pytest.fail)["mechanism"] == MECHANISM


@pytest.mark.parametrize(
    "strategy",
    [
        InverseLinear(0.1, 3),
        BLT(1, theta=(0.5,), omega=(0.4,), n_steps=32),
        BandInvMF(2).optimize(PrefixSum(32), participations=4, separation=8),
        BSR(4, momentum=0.5, weight_decay=0.9),
    ],
)
def test_every_kind_of_strategy_is_read(strategy):
    report = make_report(strategy)
    read = PrivacyReport.from_json(report.to_json())
    assert read.certificate.strategy == strategy
    assert read.verify()


def test_schedules_with_a_separation_are_read():
    schedule = Schedule(800, 100, 4, "min_separated", separation=3)
    report = make_report(BSR(2), schedule, method="deterministic")
    read = PrivacyReport.from_json(report.to_json())
    assert read.certificate.schedule == schedule
    assert read.verify()


PUBLIC = "certificate.public_inputs"


@pytest.mark.parametrize(
    ("case", "path", "value", "message"),
    [
        ("cyclic", "strategy", "BIFR", "strategy: must be an object, not str"),
        ("cyclic", "strategy", {}, "strategy.family: missing"),
        ("cyclic", "strategy.family", 1, "strategy.family: must be a string, not int"),
        ("cyclic", "strategy.family", "Magic", "strategy.family='Magic': must be one of 'Ident"),
        ("cyclic", "strategy.gamma", ..., "strategy.gamma: missing"),
        ("cyclic", "strategy.gamma", "0.8", "strategy.gamma: must be a number, not str"),
        ("cyclic", "strategy.gamma", 1.5, r"public_inputs: gamma must be a number in \[0, 1\]"),
        ("cyclic", "strategy.gamma", "NaN", "public_inputs: gamma must be a number"),
        ("cyclic", "strategy.bandwidth", 4.0, "strategy.bandwidth: must be an integer"),
        ("cyclic", "strategy.lambda_", 0.5, "strategy.lambda_: unknown key"),
        ("without replacement", "strategy.coefficients", 1.0, "coefficients: must be an array"),
        ("without replacement", "strategy.coefficients", ["x"], r"coefficients\[0\]: must be a"),
        ("without replacement", "strategy.coefficients", [1.0], "must have 3 entries, got 1"),
        ("without replacement", "strategy.n_steps", "32", "strategy.n_steps: must be an integer"),
        ("dense", "strategy.matrix", [1.0], r"matrix\[0\]: must be an array, not float"),
        ("dense", "strategy.matrix", [[1.0], [None]], r"matrix\[1\]\[0\]: must be a number"),
        ("dense", "strategy.matrix", [[1.0], [0.5, 1.0]], "public_inputs: matrix must be"),
        ("dense", "strategy.matrix", [], "public_inputs: matrix must be square"),
        ("cyclic", "schedule", None, "schedule: must be an object, not null"),
        ("cyclic", "schedule.epochs", 4.0, "schedule.epochs: must be an integer, not float"),
        ("cyclic", "schedule.epochs", 0, "public_inputs: epochs=0 must be"),
        ("cyclic", "schedule.separation", "8", "schedule.separation: must be an integer"),
        ("cyclic", "schedule.separation", 8, "public_inputs: separation=8 must be None"),
        ("cyclic", "schedule.sampling", "shuffled", "public_inputs: sampling='shuffled' must be"),
        ("cyclic", "schedule.seed", 1, "schedule.seed: unknown key"),
        ("cyclic", "noise_multiplier", None, "noise_multiplier: must be a number, not null"),
        ("cyclic", "n_draws", True, "n_draws: must be an integer, not bool"),
        ("cyclic", "aim", ..., "certificate.public_inputs.aim: missing"),
    ],
)
def test_from_json_names_what_is_malformed(reports, case, path, value, message):
    with pytest.raises(ValueError, match=message):
        edited(reports[case], (f"{PUBLIC}.{path}", value))


def nodes(value, path=()):
    yield path, value
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from nodes(item, (*path, key))


def read_altered(data, path, value):
    """Return the report with one altered node, or None, and the message of a ValueError."""
    try:
        return PrivacyReport.from_json(altered(data, path, value)), ""
    except ValueError as error:
        return None, str(error)


@pytest.mark.parametrize("case", ["cyclic", "dense", "without replacement"])
def test_nothing_but_a_value_error_escapes_whatever_stands_in_the_file(reports, case):
    data = reports[case].to_dict()
    others = (None, True, -1, 10**200, 1e300, "Infinity", "NaN", "x", [], {}, [[1.0]], {"a": 1})
    read = 0
    for path, _ in nodes(data):
        if path[:2] != ("certificate", "public_inputs"):
            continue
        for other in others:
            found, error = read_altered(data, path, other)
            if found is None:
                assert PUBLIC in error
                continue
            read += 1
            assert found.verify() or "[FAIL]" in str(found.verify())
            assert len(str(found).splitlines()) < 30
    assert read >= 15


# --- verification: altered leaves ---------------------------------------------------------------

# What nothing in a report can check: free text, and numbers that privacy does not depend on.
FREE = (
    "estimator",
    "noise_source",
    "assumptions",
    "versions",
    "public_inputs.classes.[",  # the labels; their number is checked
    "public_inputs.gamma",
    "public_inputs.max_grad_norm",  # noise and sensitivity are in units of it
)
# They may be left out: the certificate has them.
MAY_LACK = ("n_samples", "batch_size", "epochs", "expected_batch_size")


@pytest.mark.parametrize("case", CASES)
def test_any_altered_leaf_is_found_and_named(reports, case):
    report = replace(of_case(case, delta=2e-4, seeded=True), versions={})
    assert report.verify(), str(report.verify())
    data = report.to_dict()
    count = 0
    for path, value in nodes(data):
        name = dotted(path)
        if isinstance(value, dict | list) or name.startswith(FREE):
            continue
        for other in alterations(value):
            if other is ... and path[0] == "public_inputs" and path[-1] in MAY_LACK:
                continue
            count += 1
            found, error = read_altered(data, path, other)
            if found is None:
                # The key; that of its list for an entry; or the list that no longer fits it.
                named = any(str(key) in error for key in path[-1:] + path[3:])
                assert named or "coefficients must have" in error, (name, other, error)
                continue
            verification = found.verify()
            assert not verification, f"{name} = {other!r} is not found"
            failures = [check.name for check in verification.failures]
            if path[0] == "guarantee" or path[:2] in (
                ("certificate", "intermediates"),
                ("certificate", "contributions"),
                ("certificate", "utility"),
            ):
                assert name in failures
            elif path[0] in ("seeded", "warnings"):
                assert any(part.startswith("warnings.") for part in failures)
            elif path[0] == "public_inputs":
                assert any(part.startswith("public_inputs.") for part in failures)
    assert count > 90


def test_choices_of_the_network_that_nothing_compares_are_listed(reports):
    choices = {"lr": 1.0, "optimizer": "SGD", "optimizer_params": {}, "n_validation": None}
    choices |= {"hidden_width": [32], "feature_bounds": [0.0, 1.0]}
    report = replace(
        reports["cyclic"], public_inputs={**reports["cyclic"].public_inputs, **choices}
    )
    verification = report.verify()
    assert verification
    listed = next(t for t in verification.not_checked if t.startswith("these settings"))
    assert listed.endswith(f"without looking at the records: {', '.join(sorted(choices))}")
    # `gamma` is no statement of the estimator: it stands for what the author added.
    assert [t for t in verification.not_checked if "words of the author" in t] == [
        "words of the author, not of the package: public_inputs.gamma"
    ]


# --- verification: consistent reports that claim what is not proven -----------------------------


@pytest.mark.parametrize("case", CASES)
def test_less_noise_and_smaller_epsilon_are_not_certified(reports, case):
    report = reports[case]
    kappa = report.certificate.noise_multiplier
    assert failing(restate(report, noise_multiplier=1.001 * kappa)) == []
    for claim in ({"noise_multiplier": 0.9 * kappa}, {"epsilon": 1.8}):
        assert failing(restate(report, **claim)) == ["delta at the stated epsilon"]


def test_a_stronger_adjacency_is_not_certified(reports):
    found = failing(restate(reports["monte carlo"], adjacency="replace-one"))
    assert "delta at the stated epsilon" in found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", -1.0),
        ("epsilon", "Infinity"),
        ("delta", 1.0),
        ("delta", 0.0),
        ("adjacency", "swap"),
        ("noise_multiplier", 0.0),
        ("noise_multiplier", "NaN"),
        ("n_draws", -1),
        ("n_draws", 0),
        ("n_draws", 10**9 + 1),
        ("failure_probability", 0.0),
        ("failure_probability", 2e-7),  # more than a hundredth of delta
        ("aim", 0.0),
        ("attempt", -1),
        ("attempt", 51),
    ],
)
def test_inputs_out_of_range_are_named(reports, name, value):
    report = edited(reports["monte carlo"], (f"{PUBLIC}.{name}", value))
    named = [check.name for check in report.verify().failures]
    key = "failure_probability" if (name, value) == ("n_draws", 0) else name
    assert f"{PUBLIC}.{key}" in named
    assert "delta at the stated epsilon" not in named  # nothing is computed
    assert f"[FAIL] {PUBLIC}.{key}: " in str(report.verify())


@pytest.mark.parametrize("name", ["failure_probability", "aim", "attempt"])
def test_a_deterministic_bound_has_no_draws_to_describe(reports, name):
    report = edited(reports["cyclic"], (f"{PUBLIC}.{name}", 1))
    assert f"{PUBLIC}.{name}" in [check.name for check in report.verify().failures]


@pytest.mark.parametrize(
    ("schedule", "key"),
    [
        (Schedule(10**9, 1, 1, "cyclic"), "schedule"),  # steps
        (Schedule(20_001, 1, 1), "schedule"),  # bins
        (Schedule(20_000, 1, 3), "schedule"),  # bins times steps
    ],
)
def test_absurd_sizes_are_refused_before_anything_is_computed(reports, schedule, key):
    data = reports["cyclic"].to_dict()
    data["certificate"]["public_inputs"]["schedule"] = schedule.to_dict()
    report = PrivacyReport.from_json(json.dumps(data))
    assert f"{PUBLIC}.{key}" in [check.name for check in report.verify().failures]
    assert "accountant" not in vars(report.certificate)
    wide = edited(reports["cyclic"], (f"{PUBLIC}.strategy.bandwidth", 10**15))
    assert f"{PUBLIC}.strategy.bandwidth" in [c.name for c in wide.verify().failures]


def test_strategies_that_do_not_fit_are_named(reports):
    steps = restate_unchecked(reports["without replacement"], ("strategy.n_steps", 31))
    assert f"{PUBLIC}.strategy.n_steps" in steps
    unfinished = restate_unchecked(reports["without replacement"], ("strategy.coefficients", None))
    assert f"{PUBLIC}.strategy" in unfinished
    dense = restate_unchecked(reports["dense"], ("schedule.epochs", 2))
    assert f"{PUBLIC}.strategy.n_steps" in dense


def restate_unchecked(report, change):
    path, value = change
    verification = edited(report, (f"{PUBLIC}.{path}", value)).verify()
    return [check.name for check in verification.failures]


def test_adjacency_and_band_must_fit_the_sampling(reports):
    fit = "strategy, sampling and adjacency fit"
    changes = ((f"{PUBLIC}.adjacency", "add-remove"), ("guarantee.adjacency", "add-remove"))
    verification = edited(reports["cyclic"], *changes).verify()
    assert fit in [check.name for check in verification.failures]
    assert "a record more or less changes the batches" in " ".join(str(verification).split())
    schedule = {**CYCLIC.to_dict(), "sampling": "min_separated", "separation": 3}
    wide = edited(reports["cyclic"], (f"{PUBLIC}.schedule", schedule)).verify()
    assert fit in [check.name for check in wide.failures]


def test_a_missing_package_is_a_failure_that_names_it(reports, monkeypatch):
    report = PrivacyReport.from_json(reports["poisson"].to_json())
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.privacy_loss_distribution", None)
    verification = report.verify()
    assert [check.name for check in verification.failures] == ["recomputation"]
    assert "pip install dp-accounting" in " ".join(str(verification).split())
    assert str(report).startswith("DOES NOT VERIFY")


@pytest.mark.parametrize("kind", [IndexError, MemoryError, OverflowError, RuntimeError])
def test_whatever_a_formula_raises_is_a_failure(reports, monkeypatch, kind):
    def fails(self, epsilon):
        raise kind("absurd")

    report = PrivacyReport.from_json(reports["cyclic"].to_json())
    monkeypatch.setattr(type(report.certificate), "delta_at", fails)
    verification = report.verify()
    assert [check.name for check in verification.failures] == ["recomputation"]
    assert "cannot be evaluated at these inputs (absurd)" in str(verification)
    assert str(report).startswith("DOES NOT VERIFY")


@pytest.mark.parametrize(
    ("choices", "failure"),
    [
        ({"n_classes": ...}, "n_classes"),
        ({"n_classes": 3}, "n_classes"),
        ({"n_classes": 1, "classes": ["a"]}, "n_classes"),
        ({"classes": 2}, "classes"),
        ({"max_grad_norm": ...}, "max_grad_norm"),
        ({"max_grad_norm": 0.0}, "max_grad_norm"),
        ({"max_grad_norm": True}, "max_grad_norm"),
        ({"max_grad_norm": "auto"}, "max_grad_norm"),
        ({"batch_size": 101}, "batch_size"),
        ({"n_samples": 801}, "n_samples"),
        ({"epochs": 5}, "epochs"),
        ({"n_steps": 31}, "n_steps"),
        ({"sampling": "balls_in_bins"}, "sampling"),
        ({"separation": 8}, "separation"),
        ({"expected_batch_size": 99.5}, "expected_batch_size"),
    ],
)
def test_choices_that_the_certificate_does_not_cover_are_found(choices, failure):
    assert failing(make_report(choices=choices)) == [f"public_inputs.{failure}"]


def test_more_classes_are_one_problem():
    ten = {"classes": list(range(10)), "n_classes": 10, "sampling": "cyclic", "separation": None}
    assert failing(make_report(choices=ten)) == []


def test_the_divisor_of_balls_in_bins_is_the_expected_size():
    schedule = Schedule(810, 100, 4)  # 9 bins of 90 records on average
    assert failing(make_report(schedule=schedule, **DETERMINISTIC)) == []
    wrong = {"expected_batch_size": 100.0}
    found = failing(make_report(schedule=schedule, choices=wrong, **DETERMINISTIC))
    assert found == ["public_inputs.expected_batch_size"]


def test_large_delta_is_judged_by_the_records_of_the_schedule(reports):
    (warning,) = make_report(delta=1e-3).warnings
    assert "delta is at least 1/n (delta = 0.00125, n = 800)" in warning
    assert reports["cyclic"].warnings == ()


# --- the Monte Carlo bound ----------------------------------------------------------------------


def test_draws_are_made_again_from_the_inputs_and_nothing_that_is_carried_is_believed(
    reports, monkeypatch
):
    report = reports["monte carlo"]
    assert report.certificate.method == "monte carlo"
    lying = copy.deepcopy(report)
    epsilons, upper = vars(lying.certificate)["_profile"]
    vars(lying.certificate)["_profile"] = (epsilons, 0.5 * upper)
    lying = replace(lying, stated=None)
    stated = lying.stated["intermediates"]["monte_carlo_delta"]
    assert stated < report.stated["intermediates"]["monte_carlo_delta"]
    named = [check.name for check in lying.verify().failures]
    assert "certificate.intermediates.monte_carlo_delta" in named
    # Nor does a cache folder with a false outcome help.
    from sklearn_dpop.privacy.accounting import _cache

    monkeypatch.setattr(_cache.Cache, "load", lambda *_: pytest.fail("the cache was read"))
    assert PrivacyReport.from_json(report.to_json()).verify()


def test_verification_says_how_delta_was_recomputed(reports):
    text = " ".join(str(reports["monte carlo"].verify()).split())
    assert "65536 Monte Carlo draws in each direction were made again from the stated" in text
    assert "confidence 1 - 1e-08" in text
    assert "Monte Carlo" not in str(reports["cyclic"].verify())


def test_printing_does_not_repeat_a_run(monkeypatch):
    report = of_case("monte carlo")
    read = PrivacyReport.from_json(report.to_json())
    runs = []
    kind = type(report.certificate)
    run = kind._monte_carlo_profile

    def counted(self, **given):
        runs.append(self)
        return run(self, **given)

    monkeypatch.setattr(kind, "_monte_carlo_profile", counted)
    assert str(report) == str(pickle.loads(pickle.dumps(report)))
    report.to_html()
    assert runs == []  # the run of the calibration serves
    read.to_html()
    assert str(read) == str(report)
    assert read.delta(1.0) == report.delta(1.0)
    assert len(runs) == 1
    assert read.verify()
    assert len(runs) == 2  # a verification draws


def test_other_versions_of_numpy_may_draw_differently(reports):
    report = reports["monte carlo"]
    drawn = "certificate.intermediates.monte_carlo_delta"
    changes = [(drawn, 1e-6), ("versions.numpy", "1.26.0")]
    remark = "all else agrees, and the draws of numpy '1.26.0', which made the report"
    for chosen, expected in ((changes, True), (changes[:1], False)):
        verification = edited(report, *chosen).verify()
        assert [check.name for check in verification.failures] == [drawn]
        assert (remark in verification.failures[0].detail) == expected
    # Not if something else is wrong, too.
    other = ("certificate.intermediates.n_steps", 31.0)
    verification = edited(report, *changes, other).verify()
    assert not any(remark in check.detail for check in verification.checks)


# --- versions -----------------------------------------------------------------------------------


def test_versions_name_optional_packages_if_they_are_installed(monkeypatch):
    optional = {"dp-accounting", "skorch", "torch"}
    versions = package_versions(MECHANISM)
    for name in optional:
        try:
            assert versions[name] == metadata(name)["Version"]
        except PackageNotFoundError:
            assert name not in versions
    assert set(package_versions()).isdisjoint(optional)
    assert set(package_versions("objective-perturbation-gd")).isdisjoint(optional)

    def nothing_installed(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(report_module.metadata, "version", nothing_installed)
    assert set(report_module._installed_versions.__wrapped__(MECHANISM)) == {
        (name, version)
        for name, version in [
            *((name, "unknown") for name in ("numpy", "randomgen", "scikit-learn", "scipy")),
            ("sklearn-dpop", "unknown"),
            ("python", versions["python"]),
        ]
    }


# --- text ---------------------------------------------------------------------------------------

WORDS = {
    "zero-out": "Replacing the gradients of any one record by zeros changes",
    "replace-one": "Replacing any one record by any other changes",
    "add-remove": "Adding or removing any one record changes",
}


@pytest.mark.parametrize("case", CASES)
def test_summary_fits_and_says_what_matters(reports, case):
    report = reports[case]
    lines = str(report).splitlines()
    assert len(lines) < 30
    assert max(map(len, lines)) <= 88
    text = " ".join(str(report).split())
    n, kappa = report.certificate.schedule.n_samples, report.certificate.noise_multiplier
    for part in (
        f"delta = 1.25e-05)-differential privacy, {report.adjacency} adjacency",
        WORDS[report.adjacency],
        "KANClassifierDP: clipped gradient steps with correlated noise",
        report.theorem,
        f"data n = {n} records, gradient of a record clipped to norm 0.5",
        f"noise multiplier kappa = {kappa:.4g}",
        f"sampling {report.certificate.schedule.describe()}",
        {"monte carlo": "method Monte Carlo, 65536 draws"}.get(case, "method deterministic"),
        f"{report.certificate.utility['rmse']:.4g} clip norms",
    ):
        assert part in text
    assert ("confidence 1 - 1e-08, which is part of delta" in text) == (case == "monte carlo")
    assert ("failure of the Monte Carlo bound" in text) == (case == "monte carlo")
    assert "one-vs-rest" not in text
    assert "DOES NOT VERIFY" not in text


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("monte carlo", "strategy LambdaCGD (lambda 0.8), noise"),
        ("cyclic", "strategy BIFR (gamma 0.8, bandwidth 4), noise"),
        ("dense", "strategy Dense (2 x 2 matrix), noise"),
        ("poisson", "strategy Identity, noise"),
        (
            "without replacement",
            "strategy BandMF (bandwidth 3, coefficients 1, 0.5, 0.375), noise",
        ),
    ],
)
def test_strategy_in_words(reports, case, words):
    assert words in " ".join(str(reports[case]).split())


def test_long_strategies_are_cut():
    coefficients = tuple(0.9**j for j in range(32))
    report = make_report(BandMF(32, coefficients=coefficients), delta=1e-3, seeded=True)
    assert "0.4783, ...)" in " ".join(str(report).split())
    lines = str(report).splitlines()
    assert len(lines) < 30
    assert max(map(len, lines)) <= 88


def test_seeded_reports_verify_but_are_called_not_private(reports):
    report = make_report(seeded=True)
    verification = PrivacyReport.from_json(report.to_json()).verify()
    assert verification
    assert not verification.private
    assert str(report).startswith("NOT PRIVATE: random_state was given")


@pytest.mark.parametrize(("case", "secret"), [("cyclic", False), ("without replacement", True)])
def test_what_cannot_be_checked_is_said(reports, case, secret):
    text = " ".join(str(reports[case].verify()).split())
    assert "trained on 800 records; in every step the gradient of each was scaled down to" in text
    assert "length 0.5 where it was longer; the batches were drawn as stated" in text
    assert ("drawn as stated and kept secret" in text) == secret


def test_attack_success_without_amplification(reports):
    # Exact total variation of one Gaussian against another: 2 Phi(shift / 2) - 1.
    report = reports["cyclic"]
    shift = 1.0 / report.certificate.intermediates["noise_of_unamplified"]
    assert attack_success(report) == pytest.approx(norm.cdf(shift / 2), rel=1e-9)


@pytest.mark.parametrize("case", ["monte carlo", "bins, replaced", "poisson"])
def test_attack_success_is_at_most_that_without_amplification(reports, case):
    numbers = reports[case].certificate.intermediates
    shift = 1.0 / numbers["noise_of_unamplified"]
    if case == "bins, replaced":
        shift *= 2.0  # by way of zeros
    assert 0.5 < attack_success(reports[case]) <= norm.cdf(shift / 2) + 1e-9


# --- HTML and plot ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", ["_repr_html_", "to_html"])
def test_html_is_well_formed_and_complete(reports, case, form):
    report = reports[case]
    html = getattr(report, form)()
    found = Checker()
    found.feed(html)
    found.close()
    assert found.stack == []
    assert not re.search(r"https?:|//|url\(|@import|\ssrc=|<script|<link|javascript", html)
    for part in (
        "clipped gradient steps with correlated noise",
        "how batches are drawn",
        report.certificate.schedule.sampling,
        "kappa",
        "C_clip",
        "Noise, in units of the clip norm",
        "most that one record can add",
        "Where delta goes",
        "delta δ",
    ):
        assert part in found.text, part
    assert "Where epsilon goes" not in found.text
    for part in ("draws of the Monte Carlo bound", "Monte Carlo bound of delta at the epsilon"):
        assert (part in found.text) == (case == "monte carlo")
    for key in report.stated["intermediates"]:
        assert key in found.text
    # The name of a strategy may be broken into lines; that of Identity is one word.
    broken = re.search(r'<td class="sk-dpop-num sk-dpop-long">\w+ \(', html)
    assert (broken is None) == (case == "poisson")
    cyclic = report.certificate.schedule.sampling == "cyclic"
    assert ("Gaussian mechanism without amplification (dashed)" in found.text) != cyclic


def test_html_escapes_everything(reports):
    evil = "<b onclick='x'>&\"</b>"
    data = reports["cyclic"].to_dict()
    data["guarantee"]["adjacency"] = data["guarantee"]["theorem"] = evil
    data["public_inputs"] = {evil: evil, "max_grad_norm": evil}
    for part in ("intermediates", "utility"):
        data["certificate"][part][evil] = 1.0
    data["certificate"]["contributions"]["delta"][evil] = 1.0
    data["certificate"]["public_inputs"]["adjacency"] = evil
    found = Checker()
    found.feed(PrivacyReport.from_json(json.dumps(data)).to_html())
    assert "b" not in {tag for tag, _ in found.tags}
    assert found.text.count(evil) >= 8


@pytest.mark.parametrize(
    ("case", "factor"),
    # A replaced record adds up to twice the largest shift where zeros are the detour.
    [("cyclic", None), ("poisson", 1.0), ("bins, replaced", 2.0)],
)
def test_plot_compares_with_the_gaussian_without_amplification(reports, case, factor):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    report = reports[case]
    lines = report.plot_profile().get_lines()
    assert len(lines) == (2 if factor is None else 3)
    for x, y in list(zip(*lines[0].get_data(), strict=True))[::4]:
        assert y == report.delta(x)
    if factor is not None:
        # Balle and Wang (2018), Theorem 8.
        m = factor / report.certificate.intermediates["noise_of_unamplified"]
        x = np.asarray(lines[1].get_xdata())
        exact = norm.cdf(m / 2 - x / m) - np.exp(x) * norm.cdf(-m / 2 - x / m)
        np.testing.assert_allclose(lines[1].get_ydata(), exact, rtol=1e-6, atol=1e-14)
        assert "without amplification" in lines[1].get_label()
    plt.close("all")


# --- the page on reports ------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_page_on_the_report_explains_every_key_and_line(reports, case):
    report = reports[case]
    page = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    explained = {name.split(".")[-1] for name in re.findall(r"`([^`\n]+)`", page)}
    data = report.to_dict()
    del data["certificate"]["contributions"], data["versions"]  # keyed by words
    data["public_inputs"].pop("gamma")  # a parameter of the estimator
    keys = {key for path, _ in nodes(data) for key in path if isinstance(key, str)}
    assert keys - explained == set()
    labels = {line[:13].strip() for line in str(report).splitlines() if line[0].islower()}
    assert labels >= {"mechanism", "theorem", "data", "parameters", "sampling", "method"}
    assert labels - explained == set()
    parts = {part for terms in report.stated["contributions"].values() for part in terms}
    assert {part for part in parts if part.lower() not in page.lower()} == set()


def test_page_on_the_report_explains_the_choices_of_the_network():
    pytest.importorskip("torch")
    pytest.importorskip("skorch")
    from sklearn_dpop import KANClassifierDP

    X = np.random.default_rng(0).uniform(-1, 1, size=(60, 2))
    model = KANClassifierDP(
        epsilon=4.0,
        classes=[0, 1],
        feature_bounds=(-1, 1),
        sampling="cyclic",
        gamma=0.5,
        bandwidth=2,
        batch_size=20,
        epochs=2,
        hidden_width=2,
        device="cpu",
    ).fit(X, (X[:, 0] > 0).astype(int))
    report = PrivacyReport.from_json(model.privacy_report_.to_json())
    assert report.verify(), str(report.verify())
    page = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    explained = set(re.findall(r"`([^`\n]+)`", page))
    assert set(report.public_inputs) - explained == set()


def test_certified_numbers_are_finite(reports):
    for report in reports.values():
        for part in ("intermediates", "utility"):
            assert all(math.isfinite(x) for x in report.stated[part].values())
