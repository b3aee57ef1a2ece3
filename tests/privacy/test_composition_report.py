"""Totals of several fits.

Oracles: the network's plain accountant is that of the Gaussian mechanism, whose compositions are
Gaussian mechanisms again (Dong, Roth and Su 2022), evaluated by mpmath; basic composition;
what a fit reports of itself.
"""

from __future__ import annotations

import copy
import json
import math
import pickle
import re
from html import unescape
from unittest import mock

import mpmath as mp
import numpy as np
import pytest

from sklearn_dpop import ObjPertGDLogisticRegression
from sklearn_dpop.factorization import BIFR, Identity
from sklearn_dpop.linear_model import _objective_perturbation as linear
from sklearn_dpop.privacy import (
    CompositionReport,
    PrivacyReport,
    Schedule,
    account,
    budget_per_fit,
    calibrate_noise_multiplier,
    compose_reports,
)
from sklearn_dpop.privacy._report import package_versions


def gaussian_epsilon(delta, m):
    """Epsilon of the Gaussian mechanism with sensitivity / sigma = m, by bisection in mpmath."""
    with mp.workdps(40):
        low, high = mp.mpf(0), mp.mpf(100)
        for _ in range(100):
            e = (low + high) / 2
            curve = mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)
            low, high = (e, high) if curve > delta else (low, e)
        return float(high)


def linear_model(epsilon=0.3, delta=1e-7, **parameters):
    defaults = {"classes": [0, 1], "calibration": "tight", "adjacency": "zero-out"}
    return ObjPertGDLogisticRegression(epsilon, delta, **(defaults | parameters))


def correlated(certificate, **changes):
    return PrivacyReport(
        mechanism="correlated-noise-gd",
        estimator="trainer",
        certificate=certificate,
        public_inputs={"max_grad_norm": 1.0},
        assumptions=(),
        noise_source="operating system",
        seeded=False,
        warnings=(),
        versions=package_versions("correlated-noise-gd"),
        **changes,
    )


def gaussian_report(noise_multiplier, epochs=1, delta=1e-6, adjacency="zero-out"):
    """Report of plain DP-SGD in a fixed order: a Gaussian mechanism with ratio sqrt(E)/kappa."""
    schedule = Schedule(1000, 100, epochs, "cyclic")
    return correlated(
        account(Identity(), schedule, noise_multiplier, delta=delta, adjacency=adjacency)
    )


@pytest.fixture(scope="module")
def plans():
    return [linear_model().plan(n, 10) for n in (400, 500)]


@pytest.fixture(scope="module")
def total(plans):
    return compose_reports(plans, delta=1e-5, fits=9, others={"winner": (0.1, 1e-7)})


# --- the number ------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize(
    "kinds", [[(10.0, 1, 3)], [(3.0, 1, 1), (8.0, 4, 5)], [(40.0, 2, 60), (5.0, 1, 2)]]
)
def test_gaussian_fits_compose_to_a_gaussian(kinds, delta):
    # Noise, epochs and number of fits; a change of 1% in any sensitivity moves epsilon by 1%.
    reports = [gaussian_report(k, epochs) for k, epochs, count in kinds for _ in range(count)]
    exact = gaussian_epsilon(delta, math.sqrt(sum(n * e / k**2 for k, e, n in kinds)))
    found = compose_reports(reports, delta=delta)
    assert exact <= found.epsilon <= 1.004 * exact
    assert found.counts == tuple(count for *_, count in kinds)


def test_one_fit_keeps_its_guarantee():
    # The curve is read at a number of points, so the total is a little above.
    report = linear_model(1.0, 1e-5).plan(500, 10)
    assert 1.0 <= compose_reports([report], delta=1e-5).epsilon < 1.005


def test_fits_that_are_not_all_known_count_as_the_worst(plans):
    worst = max(compose_reports([plan], delta=1e-5, fits=9).epsilon for plan in plans)
    listed = compose_reports([plans[0]] * 4 + [plans[1]] * 5, delta=1e-5).epsilon
    both = compose_reports(plans, delta=1e-5, fits=9).epsilon
    assert listed <= both * (1 + 1e-4)
    assert worst <= both * (1 + 1e-4)
    assert both <= worst * 1.01  # these two hardly differ


def test_the_worst_is_taken_at_every_epsilon():
    # Calibrated for one pair, the curves of sampled and of fixed batches cross there.
    a, b = (
        correlated(calibrate_noise_multiplier(1.0, 1e-5, Identity(), shape).certificate)
        for shape in SHAPES
    )
    assert (a.delta(0.3) - b.delta(0.3)) * (a.delta(2.0) - b.delta(2.0)) < 0
    total = compose_reports([a, b], delta=1e-5, fits=1)
    for epsilon in np.linspace(0, 3, 13):
        assert total.delta(epsilon) >= max(a.delta(epsilon), b.delta(epsilon)) * (1 - 1e-12)


SHAPES = (Schedule(1000, 100, 1, "poisson"), Schedule(1000, 100, 3, "cyclic"))


def test_other_releases_are_added(plans, total):
    alone = compose_reports(plans, delta=1e-5 - 1e-7, fits=9)
    assert total.epsilon == pytest.approx(alone.epsilon + 0.1, rel=1e-5)
    assert total.delta(0.09) == 1.0
    assert total.delta(0.6) == pytest.approx(alone.delta(0.5) + 1e-7, rel=1e-3)
    assert total.epsilon(5e-8) == math.inf


def test_is_far_below_the_sum_and_never_above_it(plans):
    for fits in (1, 2, 30):
        found = compose_reports(plans, delta=fits * 1e-7, fits=fits).epsilon
        assert found <= 0.3 * fits * 1.005
    assert found < 0.3 * 30 / 3


def test_called_it_gives_the_curve(total):
    assert total.delta(total.epsilon) <= total.delta
    assert total.epsilon(total.delta) <= total.epsilon
    assert total.epsilon < total.epsilon(1e-6)
    assert total.n_releases == 9


# --- plans -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"fit_intercept": False, "data_norm": 2.0},
        {"classes": ["a", "b", "c"], "class_weight": {"b": 3.0}},
        {"calibration": "corollary", "delta": 1e-5, "adjacency": "replace-one"},
        {"loss": "smoothed_hinge", "margin": 1.0},
        {"epsilon": None, "sigma": 30.0, "mu": 0.1},
    ],
)
def test_a_plan_is_the_report_of_the_fit(parameters):
    model = linear_model(**parameters)
    labels = np.array(parameters.get("classes", [0, 1]))
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 4)), labels[rng.integers(len(labels), size=300)]
    plan = model.plan(300, 4)
    report = model.fit(X, y).privacy_report_
    assert plan.noise_source != report.noise_source
    expected, found = report.to_dict(), plan.to_dict()
    del expected["noise_source"], found["noise_source"]
    assert found == expected
    assert plan.verify()


def test_a_plan_draws_nothing_and_leaves_nothing():
    model = linear_model()
    before = copy.deepcopy(vars(model))
    with mock.patch.object(linear, "noise_generator", side_effect=AssertionError):
        assert "plan" in model.plan(np.int64(100), 3).noise_source
    assert vars(model) == before


@pytest.mark.parametrize(
    ("parameters", "shape", "message"),
    [
        ({"classes": None}, (10, 2), "classes=None"),
        ({}, (0, 2), "n_samples=0"),
        ({}, (10.5, 2), "n_samples=10.5"),
        ({}, (10, True), "n_features=True"),
        ({"epsilon": -1.0}, (10, 2), "epsilon"),
        ({"class_weight": "balanced"}, (10, 2), "balanced"),
    ],
)
def test_plan_refuses(parameters, shape, message):
    with pytest.raises(ValueError, match=message):
        linear_model(**parameters).plan(*shape)


# --- what has no total -----------------------------------------------------------------------


def test_seeded_fits_have_no_total(plans):
    seeded = linear_model(random_state=0).plan(400, 10)
    with pytest.raises(ValueError, match=r"reports\[1\]: random_state"):
        compose_reports([plans[0], seeded], delta=1e-5)


def test_different_neighbours_have_no_total(plans):
    other = linear_model(adjacency="replace-one").plan(400, 10)
    with pytest.raises(ValueError, match=r"reports\[1\]: its adjacency is 'replace-one'"):
        compose_reports([plans[0], other], delta=1e-5)


def test_what_does_not_verify_has_no_total(plans):
    data = plans[0].to_dict()
    data["guarantee"]["epsilon"] = 0.1
    with pytest.raises(ValueError, match=r"reports\[0\]: does not verify"):
        compose_reports([PrivacyReport.from_dict(data)], delta=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reports": []}, "at least one"),
        ({"reports": [1.0]}, r"reports\[0\]=1.0"),
        ({"delta": 0.0}, "delta=0.0"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"delta": 1e-300}, "delta=1e-300: too small"),
        ({"delta": "1e-5"}, "delta='1e-5'"),
        ({"fits": 0}, "fits=0"),
        ({"fits": 2.0}, "fits=2.0"),
        ({"fits": True}, "fits=True"),
        ({"others": [(1, 0)]}, "others="),
        ({"others": {"a": 1.0}}, r"others\['a'\]=1.0"),
        ({"others": {"a": (-1.0, 0.0)}}, r"others\['a'\]"),
        ({"others": {"a": (math.nan, 0.0)}}, r"others\['a'\]"),
        ({"others": {"a": (1e308, 0.0), "b": (1e308, 0.0)}}, r"others\['a'\]"),
        ({"others": {"a": (1.0, 1e-5)}}, "must exceed"),
    ],
)
def test_refuses(plans, changes, message):
    arguments = {"reports": plans, "delta": 1e-5} | changes
    with pytest.raises((TypeError, ValueError), match=message):
        compose_reports(arguments.pop("reports"), **arguments)


# --- as data ---------------------------------------------------------------------------------


def test_round_trips(plans, total):
    listed = compose_reports(plans, delta=1e-5)
    for made in (total, listed):
        again = CompositionReport.from_json(made.to_json())
        assert again == made == pickle.loads(pickle.dumps(made)) == copy.deepcopy(made)
        assert again.to_json() == made.to_json()
        assert again.verify()
        assert again != compose_reports(plans, delta=2e-5)


def altered(total, change):
    data = json.loads(total.to_json())
    change(data)
    return CompositionReport.from_dict(data)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(epsilon=d["epsilon"] * 0.999),
        lambda d: d.update(delta=d["delta"] * 0.99),
        lambda d: d.update(fits=d["fits"] + 1),
        lambda d: d["others"].update(more=[0.01, 0.0]),
        lambda d: d["others"].update(winner=[0.1, 2e-7]),
        lambda d: d["reports"].append(linear_model(0.4).plan(400, 10).to_dict()),
        lambda d: d["reports"].append(linear_model(random_state=1).plan(400, 10).to_dict()),
        lambda d: d["reports"][0]["guarantee"].update(epsilon=0.2),
        lambda d: d["reports"][0]["certificate"]["public_inputs"].update(sigma=1e9),
    ],
)
def test_what_is_altered_does_not_verify(total, change):
    assert not altered(total, change).verify()


def test_nothing_that_a_certificate_has_cached_is_believed():
    honest = compose_reports([gaussian_report(20.0, epochs=16)], delta=1e-5, fits=9)
    lying = altered(honest, lambda d: d.update(epsilon=0.5 * d["epsilon"]))
    fewer = gaussian_report(20.0, epochs=1).certificate
    vars(lying.reports[0].certificate)["_accounting"] = fewer._accounting
    assert lying.delta(lying.epsilon) < 1e-5
    assert not lying.verify()


def test_counts_are_part_of_the_total(plans):
    listed = compose_reports([plans[0]] * 3 + [plans[1]], delta=1e-5)
    assert listed.counts == (3, 1)
    assert listed.verify()
    assert not altered(listed, lambda d: d.update(counts=[4, 1])).verify()
    assert "1 of" in str(altered(listed, lambda d: d.update(counts=[3, 2])).verify())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(schema="sklearn_dpop.privacy_report"), "schema="),
        (lambda d: d.update(schema_version=2), "schema_version=2"),
        (lambda d: d.update(schema_version=True), "schema_version=True"),
        (lambda d: d.pop("fits"), "fits: missing"),
        (lambda d: d.update(extra=1), "extra"),
        (lambda d: d.update(fits=None), "fits, counts"),
        (lambda d: d.update(counts=[1, 1]), "fits, counts"),
        (lambda d: d.update(fits=None, counts=[1]), "counts: must"),
        (lambda d: d.update(fits=None, counts=[1, 0]), r"counts\[1\]=0"),
        (lambda d: d.update(fits=1.5), "fits=1.5"),
        (lambda d: d.update(epsilon="1"), "epsilon='1'"),
        (lambda d: d.update(epsilon=-1.0), "epsilon=-1.0"),
        (lambda d: d.update(epsilon=True), "epsilon=True"),
        (lambda d: d.update(epsilon=10**400), "epsilon=1000"),
        (lambda d: d["others"].update(winner=[10**400, 0.0]), "others"),
        (lambda d: d.update(delta=1.0), "delta=1.0"),
        (lambda d: d.update(others=[]), "others"),
        (lambda d: d.update(disjoint={"a": [1.0]}), r"disjoint\['a'\]"),
        (lambda d: d.pop("disjoint"), "disjoint: missing"),
        (lambda d: d.update(reports={}), "reports: must be an array"),
        (lambda d: d.update(reports=[]), "at least one"),
        (lambda d: d["reports"][1].pop("seeded"), r"reports\[1\]: seeded"),
        (lambda d: d["reports"].append(3), r"reports\[2\]: schema"),
    ],
)
def test_from_dict_names_what_is_malformed(total, change, message):
    with pytest.raises(ValueError, match=message):
        altered(total, change)


def test_from_json_is_strict(total):
    text = total.to_json()
    with pytest.raises(ValueError, match="twice"):
        CompositionReport.from_json(text.replace('"fits"', '"delta": 0.1, "fits"', 1))
    with pytest.raises(ValueError, match="schema"):
        CompositionReport.from_json("[1]")
    with pytest.raises(ValueError, match="schema"):
        PrivacyReport.from_json(text)


# --- for people ------------------------------------------------------------------------------


def test_print_says_what_counts(plans, total):
    text = str(total)
    assert max(map(len, text.splitlines())) <= 88
    for part in ("zero-out", "at most 9", "winner (epsilon = 0.1, delta = 1e-07)", "500 records"):
        assert part in " ".join(text.split())
    assert (
        "plain sums would be epsilon = 2.8, delta = 1e-06" in text
    )  # 9 x (0.3, 1e-7) and the winner
    listed = str(compose_reports([plans[0]] * 3 + [plans[1]], delta=1e-5))
    assert "3 x ObjPertGDLogisticRegression" in listed
    assert "plain sums would be epsilon = 1.2, delta = 4e-07" in listed
    other = compose_reports(plans, delta=1e-5, others={"a": (0.12345649, 0.0)})
    for text in (
        str(other),
        str(other.verify()),
        unescape(other.to_html()).replace("ε", "epsilon"),
    ):
        assert "epsilon = 0.123457" in text  # up
    assert repr(total).startswith("CompositionReport(9 releases, epsilon=")


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(epsilon=0.001),
        lambda d: d["reports"][0]["certificate"]["public_inputs"].update(sigma=1e-300),
        lambda d: d["reports"][0]["certificate"]["public_inputs"].update(n_iter=10**300, mu=0.0),
        lambda d: d["reports"].append(linear_model(random_state=1).plan(400, 10).to_dict()),
        lambda d: [
            r["guarantee"].update(epsilon="NaN", adjacency="\x1b[2J") for r in d["reports"]
        ],
    ],
)
def test_what_does_not_verify_is_shown_as_stated(total, change):
    made = altered(total, change)
    for text in (str(made), made._repr_html_(), made.to_html()):
        assert "DOES NOT VERIFY: total.verify() says why" in text
        assert "\x1b" not in text
    # By the stated pair alone: (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), halved.
    e, d = float(made.epsilon), float(made.delta)
    shown = float(str(made).split("right at most ")[1].split("%")[0])
    assert shown == pytest.approx(50 * (1 + (math.expm1(e) + 2 * d) / (math.exp(e) + 1)), rel=0.01)
    assert "DOES NOT" not in str(total)


def test_warnings_of_the_reports_are_those_of_the_total(plans):
    loose = linear_model(0.3, 0.01).plan(400, 10)
    made = compose_reports([loose, plans[0]], delta=0.1)
    text = "delta is at least 1/n (delta = 0.01, n = 400)"
    assert text in " ".join(str(made).split())
    assert text in made.to_html()
    assert "at least 1/n" not in str(compose_reports(plans, delta=1e-5))


def test_attack_success_is_that_of_a_gaussian():
    # Two equally likely candidates: success Phi(m / 2) for a Gaussian mechanism of ratio m.
    made = compose_reports([gaussian_report(4.0)] * 4, delta=1e-6)
    shown = float(str(made).split("right at most ")[1].split("%")[0].split()[0])
    exact = 100 * float(mp.ncdf(0.25))
    assert exact <= shown <= exact + 0.2


# --- from a total to one fit -----------------------------------------------------------------


@pytest.mark.parametrize("fits", [1, 2, 17, 300])
def test_budget_of_gaussian_fits(fits):
    def plan(epsilon, delta):
        schedule = Schedule(1000, 100, 1, "cyclic")
        return correlated(
            calibrate_noise_multiplier(epsilon, delta, Identity(), schedule).certificate
        )

    found = budget_per_fit(plan, fits, epsilon=1.5, delta=1e-5)
    assert found.total.epsilon <= 1.5
    assert found.total.verify()
    kappa = plan(found.epsilon, found.delta).certificate.noise_multiplier
    exact = gaussian_epsilon(1e-5, math.sqrt(fits) / kappa)
    assert 0.98 * 1.5 <= exact <= 1.5
    assert float(f"{found.epsilon:.3g}") == found.epsilon
    assert found.total.fits == fits


def test_budget_makes_room_for_other_releases():
    def plan(epsilon, delta):
        return linear_model(epsilon, delta).plan(400, 10)

    without = budget_per_fit(plan, 5, epsilon=1.0, delta=1e-5)
    found = budget_per_fit(plan, 5, epsilon=1.0, delta=1e-5, others={"winner": (0.25, 0.0)})
    assert 0.98 <= found.total.epsilon <= 1.0
    assert found.total.others == {"winner": (0.25, 0.0)}
    assert found.epsilon == pytest.approx(0.75 * without.epsilon, rel=0.05)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fits": 0}, "fits=0"),
        ({"fits": 1.0}, "fits=1.0"),
        ({"others": {"winner": (0.1,)}}, r"others\['winner'\]"),
        ({"others": [0.1]}, r"others=\[0.1\]"),
        ({"epsilon": 0.0}, "epsilon=0.0"),
        ({"epsilon": math.inf}, "epsilon=inf"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"others": {"winner": (1.0, 0.0)}}, "leave nothing"),
        ({"others": {"winner": (0.1, 1e-5)}}, "leave nothing"),
    ],
)
def test_budget_refuses(changes, message):
    arguments = {"fits": 3, "epsilon": 1.0, "delta": 1e-5} | changes
    with pytest.raises(ValueError, match=message):
        budget_per_fit(mock.Mock(side_effect=AssertionError), **arguments)


def test_a_total_of_nothing_is_within_every_budget():
    # Two fits with epsilon = 5e-5 have a total variation distance of about 5e-5 < delta.
    def plan(epsilon, delta):
        schedule = Schedule(100, 100, 1, "cyclic")
        return correlated(
            calibrate_noise_multiplier(epsilon, delta, Identity(), schedule).certificate
        )

    found = budget_per_fit(plan, np.int64(2), epsilon=1e-4, delta=1e-3)
    assert found.total.epsilon == 0.0
    assert 0.99e-4 < found.epsilon <= 1e-4


def test_a_plan_that_cannot_be_met_has_no_budget():
    fixed = linear_model(5.0, 1e-6).plan(400, 10)
    with pytest.raises(ValueError, match="no budget for 3 fits"):
        budget_per_fit(lambda epsilon, delta: fixed, 3, epsilon=1.0, delta=1e-5)


# --- curves at many epsilons -----------------------------------------------------------------


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"adjacency": "replace-one", "epsilon": 3.0},
        {"calibration": "corollary", "epsilon": 0.9, "delta": 1e-5, "adjacency": "replace-one"},
        {"classes": [1, 2, 3]},
    ],
)
def test_curves_at_many_epsilons_are_those_at_each(parameters):
    certificate = linear_model(**parameters).plan(400, 10).certificate
    at = certificate.epsilon * np.array([0.0, 0.1, 0.5, 1.0, 1.7, 2.5])
    each = np.array([certificate.delta_at(float(e)) for e in at])
    np.testing.assert_allclose(certificate.deltas_at(at), each, rtol=0.01)


@pytest.mark.parametrize("form", ["_repr_html_", "to_html"])
def test_html_has_the_parts_and_nothing_foreign(plans, form):
    evil = "<b onclick='x'>&\"</b>"
    total = compose_reports(plans, delta=1e-5, fits=9, others={evil: (0.1, 1e-7)})
    html = getattr(total, form)()
    assert not re.search(r"https?:|//|url\(|@import|\ssrc=|<script|<link", html)
    assert evil not in html
    text = unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL))
    text = " ".join(text.split())
    for part in (
        evil,
        "10 releases",
        "zero-out adjacency",
        "at most 9 fits",
        "500 records",
        "(ε = 0.1, δ = 1e-07), as declared",
        "would be ε = 2.8, δ = 1e-06",
        "no record took part in more than 9 fits".capitalize(),
        "total.verify()",
    ):
        assert part in text
    assert html.startswith("<!DOCTYPE html>") == (form == "to_html")


def test_many_equal_reports_are_one_part_and_different_ones_are_limited(plans, total):
    made = compose_reports([copy.deepcopy(plans[0]) for _ in range(1500)], delta=1e-3)
    assert made.counts == (1500,)
    with pytest.raises(ValueError, match="reports: 1001"):
        altered(total, lambda d: d.update(reports=d["reports"][:1] * 1001))


def test_no_monte_carlo_bound_of_many_plans_may_fail():
    # One fit of three that were planned: each bound fails with a probability of its own.
    schedule = Schedule(400, 100, 2, "balls_in_bins")
    drawn = [
        correlated(account(BIFR(0.5, 2), schedule, noise, delta=1e-3, n_draws=1 << 14))
        for noise in (4.0, 4.1, 4.2)
    ]
    failures = [report.certificate.failure_probability for report in drawn]
    assert all(failures)
    one, all_three = (
        compose_reports(parts, delta=1e-3, fits=1).delta(1.0) for parts in (drawn[:1], drawn)
    )
    assert all_three == pytest.approx(one + sum(failures), rel=1e-6)
    enough = compose_reports(drawn, delta=1e-3, fits=3)
    assert enough._other[1] == 0.0


def test_a_part_on_other_records_counts_by_the_larger_epsilon(plans):
    alone = compose_reports(plans, delta=1e-5, fits=4)
    small = compose_reports(plans, delta=1e-5, fits=4, disjoint={"choice": (0.2, 1e-6)})
    large = compose_reports(plans, delta=1e-5, fits=4, disjoint={"choice": (2.0, 1e-6)})
    assert small.epsilon == alone.epsilon
    assert large.epsilon == 2.0
    assert large.delta(1.99) == 1.0
    assert large.delta(2.5) == 1e-6  # the fits have less by then
    assert small.delta(0.4) == alone.delta(0.4)
    assert large.epsilon(5e-7) == math.inf
    assert "choice (epsilon = 2, delta = 1e-06), on other records" in " ".join(str(large).split())
    assert "choice used no record of the fits" in large.verify().not_checked
    for made in (small, large):
        assert CompositionReport.from_json(made.to_json()) == made
        assert made.verify()
    assert not altered(large, lambda d: d["disjoint"].update(choice=[2.1, 0.0])).verify()
    with pytest.raises(ValueError, match="must be at least that of 'choice'"):
        compose_reports(plans, delta=1e-5, fits=4, disjoint={"choice": (0.2, 1e-4)})
    with pytest.raises(ValueError, match=r"disjoint\['choice'\]=1"):
        compose_reports(plans, delta=1e-5, fits=4, disjoint={"choice": 1})


def test_what_is_declared_stands_at_the_top(plans):
    others, disjoint = {"winner": (0.1, 0.0)}, {"choice": (0.2, 0.0)}
    total = compose_reports(plans, delta=1e-5, fits=9, others=others, disjoint=disjoint)
    expected = (
        "; declared: at most 9 fits of a record, winner (epsilon = 0.1, delta = 0), on other "
        "records choice (epsilon = 0.2, delta = 0)"
    )
    first = " ".join(str(total.verify()).split("[ok]")[0].split())
    assert first.endswith(expected)
    listed = compose_reports([plans[0]] * 2, delta=1e-5).verify().statement
    assert listed.endswith("; declared: 2 fits")


def test_budget_for_plans_that_are_carried_out_once():
    def plan(epsilon, delta):
        return [linear_model(epsilon, delta, comparator_norm=w).plan(400, 10) for w in (2, 20)]

    choice = {"choice": (1.0, 0.0)}
    worst = budget_per_fit(plan, 2, epsilon=1.0, delta=1e-5)
    found = budget_per_fit(plan, epsilon=1.0, delta=1e-5, disjoint=choice)
    assert found.total.counts == (1, 1)
    assert found.total.disjoint == choice
    assert found.epsilon > worst.epsilon
    assert found.total.epsilon == 1.0  # that of the choice
    fits = compose_reports(found.total.reports, delta=1e-5)
    assert 0.98 < fits.epsilon <= 1.0
    with pytest.raises(ValueError, match=r"disjoint\['choice'\]"):
        budget_per_fit(plan, epsilon=0.9, delta=1e-5, disjoint=choice)


def test_what_is_no_report_is_named_with_what_is(plans):
    one = compose_reports(plans[0], delta=1e-5)
    assert one == compose_reports(plans[:1], delta=1e-5)
    with pytest.raises(TypeError, match=r"such as model\.privacy_report_") as error:
        compose_reports([linear_model(comparator_norm=7.0)] * 2, delta=1e-5)
    assert len(str(error.value)) < 200
    with pytest.raises(ValueError, match="a total is read by CompositionReport"):
        PrivacyReport.from_json(one.to_json())
