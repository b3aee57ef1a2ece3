"""Verification: the guarantee of a report, recomputed from its public inputs alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from sklearn_dpop.privacy._certificate import CALIBRATIONS, ObjectivePerturbationCertificate
from sklearn_dpop.privacy._composition_report import CompositionReport
from sklearn_dpop.privacy._composition_text import composition_statement
from sklearn_dpop.privacy._objective_perturbation import (
    ADJACENCIES,
    finite_iteration,
    threshold_7,
)
from sklearn_dpop.privacy._report import (
    MECHANISMS,
    PLANNED,
    WARNING_MARKS,
    Certificate,
    PrivacyReport,
    expected_warnings,
    foreign_choices,
    foreign_warnings,
    known_loss_constants,
)
from sklearn_dpop.privacy._report_text import (
    ARITHMETIC,
    WORDS,
    number,
    pair_name,
    statement,
    wrap,
)
from sklearn_dpop.privacy.accounting import CorrelatedNoiseCertificate, Schedule
from sklearn_dpop.privacy.accounting._adjacency import ADJACENCIES as CORRELATED_ADJACENCIES
from sklearn_dpop.privacy.accounting._schedule import SAMPLINGS

__all__ = ["Check", "Verification", "verify", "verify_composition"]

# Between two machines the elementary functions differ in their last bits.
_RTOL = 1e-9
# Terms that are a difference of nearly equal numbers are exact to this part of their total.
_DIFFERENCES = ("left for the divergence", "divergence")
_DIFFERENCE_TOL = 1e-12
# The epsilon of one of several problems comes from a bisection with a tolerance of 1e-13.
_BISECTED_TOL = 1e-10
# The estimators whose report must say how many classes they have.
_CLASSIFIERS = ("ObjPertGDLogisticRegression", "KANClassifierDP")
# eta = 1/L is stated in floating point.
_ONE = 1.0 + 1e-12
# Larger computations than these are refused instead of begun.
_MOST_DRAWS = 10**9
_MOST_STEPS = 10**7
_MOST_BINS = 20_000
_MOST_MEANS = 10**9  # steps times bins: 8 GB
_MOST_ATTEMPTS = 50
# Part of delta that the failure of a Monte Carlo bound may take.
_FAILURE_SHARE = 0.01
# What formulas raise at absurd inputs, or where an optional package is missing.
_CANNOT_EVALUATE = (
    ArithmeticError,
    ImportError,
    LookupError,
    MemoryError,
    RuntimeError,
    ValueError,
)
_NOTHING_ELSE = "nothing else that depends on the records was published"
# What depends on the draws of a Monte Carlo bound.
_DRAWN = ("delta at the stated epsilon", "certificate.intermediates.monte_carlo_delta")


class Check(NamedTuple):
    """One condition of a verification.

    Attributes
    ----------
    name : str
        What was checked, as a path into the report or a condition of the theorem.
    ok : bool
        Whether it holds.
    stated, recomputed : object
        What the report says and what follows from the public inputs; None where there is
        nothing to compare.
    detail : str
        The condition in words.
    """

    name: str
    ok: bool
    stated: object = None
    recomputed: object = None
    detail: str = ""


@dataclass(frozen=True)
class Verification:
    """Outcome of :meth:`PrivacyReport.verify`; true in a boolean context if everything holds.

    Attributes
    ----------
    ok : bool
        Whether every check holds.
    checks : tuple of Check
        All checks, in order.
    statement : str
        The guarantee that was checked, in words.
    private : bool
        False if the report itself says that the noise can be reproduced.
    not_checked : tuple of str
        What no verification can check from a report.
    """

    ok: bool
    checks: tuple[Check, ...]
    statement: str
    private: bool
    not_checked: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.ok

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that do not hold."""
        return tuple(check for check in self.checks if not check.ok)

    def __str__(self) -> str:
        if not self.ok:
            count = len(self.failures)
            lines = [f"NOT VERIFIED: {count} of {len(self.checks)} conditions do not hold"]
        elif self.private:
            lines = [f"VERIFIED: {len(self.checks)} conditions hold"]
        else:
            lines = [
                f"VERIFIED, BUT NOT PRIVATE: {len(self.checks)} conditions hold for fresh noise,",
                "but random_state was given, so the noise can be reproduced and removed",
            ]
        lines += wrap(self.statement, "  ")
        for check in self.failures:
            lines += wrap(f"{check.name}: {check.detail}", "  [FAIL] ")
        passed: dict[str, list[Check]] = {}
        for check in self.checks:
            if check.ok:
                passed.setdefault(_group_of(check), []).append(check)
        for text, checks in passed.items():
            if text in _GROUPS.values():
                lines.append(f"  [ok]   {len(checks)} {text}")
            else:
                for check in checks:
                    lines += wrap(f"{check.name}: {check.detail}", "  [ok]   ")
        lines.append("Not checked, because a report alone cannot show it:")
        for text in self.not_checked:
            lines += wrap(text, "  - ")
        return "\n".join(lines)


_GROUPS = {
    "certificate.public_inputs": "public inputs are in their ranges",
    "guarantee": "stated numbers and names agree with the certificate's inputs",
    "certificate.intermediates": "intermediate numbers agree with the recomputed ones",
    "certificate.contributions": "contributions to epsilon and delta agree",
    "certificate.utility": "utility bounds agree",
    "loss": "constants of the loss agree with its formula",
    "public_inputs": "choices of the estimator are covered by the certificate",
    "warnings": "warnings that the public inputs call for are present",
}


def _group_of(check: Check) -> str:
    for prefix, text in _GROUPS.items():
        if check.name.startswith(f"{prefix}."):
            return text
    return check.name


def _shown(value: object) -> str:
    return "(absent)" if value is None else repr(value)


def verify(report: PrivacyReport, *, draw_again: bool = True) -> Verification:
    """Return the outcome of checking everything that a report alone can show.

    Parameters
    ----------
    report : PrivacyReport
        Usually read from JSON.
    draw_again : bool, default=True
        Run a Monte Carlo bound again even if the certificate carries the outcome of its run.

    Returns
    -------
    Verification
        True in a boolean context if every check holds.
    """
    # Absurd inputs may overflow on the way; what comes of it fails a comparison.
    with np.errstate(all="ignore"):
        checks = _explained(report, tuple(_checks(report, draw_again=draw_again)))
    return Verification(
        ok=all(check.ok for check in checks),
        checks=checks,
        statement=statement(report),
        private=not report.seeded,
        not_checked=_not_checked(report, checks),
    )


def verify_composition(total: CompositionReport, *, draw_again: bool = True) -> Verification:
    """Return the outcome of verifying the reports of a total, and of composing them again.

    Parameters
    ----------
    total : CompositionReport
        Usually read from JSON.
    draw_again : bool, default=True
        As in :func:`verify`.

    Returns
    -------
    Verification
        True in a boolean context if every report verifies and the total follows from them.
    """
    parts = [verify(report, draw_again=draw_again) for report in total.reports]
    checks = []
    for i, part in enumerate(parts):
        detail = f"{part.statement}: {len(part.checks)} conditions hold"
        if not part:
            failures = "; ".join(f"{check.name}: {check.detail}" for check in part.failures)
            detail = f"{part.statement}: {failures}"
        checks.append(Check(f"reports[{i}]", bool(part), detail=detail))
    seeded = [f"reports[{i}]" for i, report in enumerate(total.reports) if report.seeded]
    checks.append(
        Check(
            "noise",
            not seeded,
            detail=f"random_state was given in {', '.join(seeded)}: the noise may be that of "
            f"another fit"
            if seeded
            else "no report names a seed, by which noise could be used twice",
        )
    )
    adjacencies = sorted({report.adjacency for report in total.reports})
    checks.append(
        Check(
            "adjacency",
            adjacencies == [total.adjacency],
            adjacencies,
            [total.adjacency],
            f"all reports are for {' and '.join(adjacencies)}",
        )
    )
    stated = float(total.delta)
    if all(check.ok for check in checks):
        with np.errstate(all="ignore"):
            try:
                # Fresh certificates, with nothing but the draws that the verification made.
                fresh = CompositionReport.from_dict(total.to_dict())
                for source, target in zip(total.reports, fresh.reports, strict=True):
                    _share_profile(source.certificate, target.certificate)
                delta = fresh.delta_at(total.epsilon)
            except _CANNOT_EVALUATE as error:
                checks.append(Check("total", False, detail=f"cannot be composed ({error})"))
            else:
                checks.append(
                    Check(
                        "delta at the stated epsilon",
                        delta <= stated * (1.0 + _RTOL),
                        stated,
                        delta,
                        f"the certified curves compose to delta = {number(delta, up=True)} at "
                        f"epsilon = {number(float(total.epsilon))}; at most {number(stated)} is "
                        f"stated",
                    )
                )
    unchecked = dict.fromkeys(
        text for part in parts for text in part.not_checked if not text.startswith(_NOTHING_ELSE)
    )
    named = " and what is named here" if total.others or total.disjoint else ""
    items = [
        "these are all releases that used a record"
        if total.fits is None
        else f"no record took part in more than {total.fits} fits, each with the guarantee of one "
        f"of the reports",
        f"{_NOTHING_ELSE} than these fits{named}",
        "how many releases there are, and their guarantees, did not depend on their outcomes",
        *(
            f"{name} has {pair_name(*pair)}: the author's statement"
            for name, pair in (*total.others.items(), *total.disjoint.items())
        ),
        *(f"{name} used no record of the fits" for name in total.disjoint),
        *unchecked,
    ]
    return Verification(
        ok=all(check.ok for check in checks),
        checks=tuple(checks),
        statement=composition_statement(total),
        private=not any(report.seeded for report in total.reports),
        not_checked=tuple(items),
    )


def _checks(report: PrivacyReport, *, draw_again: bool) -> Iterator[Check]:
    # A fresh certificate: nothing that the given one may have cached is believed.
    inputs = report.certificate.public_inputs()
    certificate = MECHANISMS[report.mechanism].make_certificate(inputs)
    yield from _agreement(report, certificate)
    ranges = tuple(_RANGES[report.mechanism](certificate))
    yield from ranges
    if not all(check.ok for check in ranges):
        return
    if not draw_again:
        _share_profile(report.certificate, certificate)
    conditions: tuple[Check, ...] = ()
    try:
        conditions = tuple(_CONDITIONS[report.mechanism](certificate))
        recomputed: dict[str, Any] = {
            "intermediates": certificate.intermediates,
            "contributions": certificate.contributions,
            "utility": certificate.utility,
        }
        theorem = certificate.theorem
        delta = certificate.delta_at(report.epsilon)
    except _CANNOT_EVALUATE as error:
        yield from conditions
        yield Check(
            "recomputation",
            False,
            detail=f"the formulas cannot be evaluated at these inputs ({error})",
        )
        return
    _share_profile(certificate, report.certificate)
    yield _equality("guarantee.theorem", report.theorem, theorem)
    yield from conditions
    stated_delta = float(report.delta)
    yield Check(
        "delta at the stated epsilon",
        delta <= stated_delta * (1.0 + _RTOL),
        stated_delta,
        delta,
        f"{theorem} certifies delta = {number(delta, up=True)} at epsilon = "
        f"{number(float(report.epsilon))}; at most {number(stated_delta)} is stated"
        f"{_draws_in_words(certificate)}",
    )
    assert report.stated is not None
    for part in ("intermediates", "utility"):
        yield from _equalities(f"certificate.{part}", report.stated[part], recomputed[part])
    for total, terms in recomputed["contributions"].items():
        whole = abs(float(report.epsilon if total == "epsilon" else report.delta))
        slack = (_BISECTED_TOL if report.n_problems > 1 else _DIFFERENCE_TOL) * whole
        yield from _equalities(
            f"certificate.contributions.{total}",
            report.stated["contributions"].get(total, {}),
            terms,
            # What is left of delta is as uncertain as what is certified.
            slacks=dict.fromkeys(_DIFFERENCES, slack) | {"unused": _RTOL * whole},
        )
    try:
        yield from _consistency(report, inputs)
    except (ArithmeticError, TypeError, ValueError) as error:
        yield Check("public_inputs", False, detail=f"cannot be compared with the rest ({error})")
    yield from _warning_checks(report, certificate)


def _share_profile(source: Certificate, target: Certificate) -> None:
    """Spare `target` the Monte Carlo run, of minutes, that its equal `source` has done."""
    profile = vars(source).get("_profile")
    if profile is not None:
        vars(target)["_profile"] = profile


def _draws_in_words(certificate: Certificate) -> str:
    if not isinstance(certificate, CorrelatedNoiseCertificate) or not certificate.n_draws:
        return ""
    return (
        f"; {certificate.n_draws} Monte Carlo draws in each direction were made again from the "
        f"stated inputs, confidence 1 - {number(certificate.failure_probability, up=True)}"
    )


def _explained(report: PrivacyReport, checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """Say so if nothing but the draws of another version of numpy may have changed."""
    failures = [check for check in checks if not check.ok]
    drawn = all(
        check.name in _DRAWN or check.name.startswith("certificate.contributions.delta.")
        for check in failures
    )
    version = report.versions.get("numpy")
    if (
        not report.certificate.public_inputs().get("n_draws")
        or not drawn
        or version == np.__version__
    ):
        return checks
    remark = (
        f"; all else agrees, and the draws of numpy {_shown(version)}, which made the report, may "
        f"differ from those of numpy {np.__version__!r}: verify with the former"
    )
    return tuple(c if c.ok else c._replace(detail=c.detail + remark) for c in checks)


def _agreement(report: PrivacyReport, certificate: Certificate) -> Iterator[Check]:
    """Check that what is stated in several places is stated alike."""
    assert report.stated is not None
    inputs = certificate.public_inputs()
    values = {"n_problems": 1, **inputs}
    for name, stated in report.stated["guarantee"].items():
        if name != "theorem":  # it may take a computation
            yield _equality(f"guarantee.{name}", stated, values[name])
    for name in ("adjacency", "epsilon", "delta", "calibration"):
        stated, value = report.public_inputs.get(name), inputs.get(name)
        if stated is not None and value is not None and isinstance(stated, float | int | str):
            yield Check(
                f"guarantee.public_inputs.{name}",
                stated == value,
                stated,
                value,
                f"public_inputs.{name} is {_shown(stated)}, in the certificate {_shown(value)}",
            )


def _equality(name: str, stated: object, value: object) -> Check:
    detail = f"stated {_shown(stated)}, by the certificate's inputs {_shown(value)}"
    return Check(name, stated == value, stated, value, detail)


def _consistency(report: PrivacyReport, inputs: Mapping[str, Any]) -> Iterator[Check]:
    """Check that the certificate covers the choices that the estimator states."""
    given = report.public_inputs
    classes = given.get("classes")
    listed = tuple(str(label) for label in classes) if isinstance(classes, tuple) else ()
    n_classes = given.get("n_classes")
    yield from _class_checks(report, inputs, listed, n_classes)
    if isinstance(inputs.get("loss"), Mapping):
        weights, weight = given.get("class_weight"), inputs["loss"]["weight"]
        needed: Any = 1.0  # what every class weighs unless it is named
        if isinstance(weights, Mapping):
            unnamed = not set(listed) <= set(weights) if listed else len(weights) != n_classes
            needed = max([*weights.values(), *([1.0] if unnamed or not weights else [])])
        elif weights is not None:
            needed = math.inf
        yield Check(
            "public_inputs.class_weight",
            needed <= weight * (1.0 + _RTOL),
            needed,
            weight,
            f"the largest class weight, {_shown(needed)} (classes that are not named weigh 1), "
            f"must be at most the weight of the loss, {_shown(weight)}",
        )
    if isinstance(inputs.get("schedule"), Mapping):
        yield from _gradient_checks(given, inputs["schedule"])
    row_norm = given.get("row_norm_bound")
    if row_norm is not None and "data_norm" in inputs:
        norm = math.hypot(row_norm, given.get("intercept_scaling") or 0.0)
        yield Check(
            "public_inputs.row_norm_bound",
            norm <= inputs["data_norm"] * (1.0 + _RTOL),
            norm,
            inputs["data_norm"],
            f"the norm of a record, intercept included, is up to {_shown(norm)}; it must be at "
            f"most data_norm, {_shown(inputs['data_norm'])}",
        )


def _class_checks(
    report: PrivacyReport, inputs: Mapping[str, Any], listed: tuple[str, ...], n_classes: Any
) -> Iterator[Check]:
    """Check the number of classes, and that as many problems are certified as they make."""
    classes = report.public_inputs.get("classes")
    if report.estimator in _CLASSIFIERS or classes is not None:
        yield Check(
            "public_inputs.n_classes",
            type(n_classes) is int and n_classes >= 2 and len(listed) in (0, n_classes),
            n_classes,
            len(listed) or None,
            f"the number of classes is stated as {_shown(n_classes)}; it must be an integer from "
            f"2 on, and the number of the classes listed",
        )
        yield Check(
            "public_inputs.classes",
            bool(listed) or classes == "inferred",
            classes,
            "inferred",
            "must be a list of labels, or 'inferred'",
        )
    if "n_problems" in inputs and type(n_classes) is int:
        needed = 1 if n_classes == 2 else n_classes
        yield Check(
            "public_inputs.n_classes",
            needed == inputs["n_problems"],
            needed,
            inputs["n_problems"],
            f"{n_classes} classes make {needed} one-vs-rest problems; the guarantee is that of "
            f"{inputs['n_problems']}",
        )


def _gradient_checks(given: Mapping[str, Any], inputs: Mapping[str, Any]) -> Iterator[Check]:
    """Check that gradients were clipped, and summed over the batches that are certified."""
    clip: Any = given.get("max_grad_norm")
    yield Check(
        "public_inputs.max_grad_norm",
        type(clip) in (int, float) and 0.0 < clip < math.inf,
        clip,
        detail=f"the clip norm is stated as {_shown(clip)}; it must be a positive number",
    )
    schedule = Schedule(**inputs)
    public = {**inputs, "n_steps": schedule.n_steps}
    # The sum over a batch may be divided by a public number only, never by the batch's size.
    public["expected_batch_size"] = schedule.expected_batch_size
    for name, value in public.items():
        if name in given:
            yield Check(
                f"public_inputs.{name}",
                given[name] == value,
                given[name],
                value,
                f"{name} is stated as {_shown(given[name])}, the schedule has {_shown(value)}",
            )


def _equalities(
    path: str,
    stated: Mapping[str, float],
    recomputed: Mapping[str, float],
    slacks: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[Check]:
    for key in [*recomputed, *(key for key in stated if key not in recomputed)]:
        a, b = stated.get(key), recomputed.get(key)
        yield Check(
            f"{path}.{key}",
            a is not None and b is not None and _close(a, b, slacks.get(key, 0.0)),
            a,
            b,
            f"stated {_shown(a)}, recomputed {_shown(b)}",
        )


def _close(a: float, b: float, slack: float) -> bool:
    return a == b or math.isclose(a, b, rel_tol=_RTOL, abs_tol=slack)


def _warning_checks(report: PrivacyReport, certificate: Certificate) -> Iterator[Check]:
    consistent = report.seeded or "seeded" not in report.noise_source
    yield Check(
        "noise_source",
        consistent,
        report.noise_source,
        detail="fits what the report says of a seed"
        if consistent
        else "names a seed, but the report says that none was given",
    )
    expected = expected_warnings(certificate, report.public_inputs, seeded=report.seeded)
    for text in expected:
        yield Check(
            "warnings.expected",
            text in report.warnings,
            detail=f"must contain what follows from the report itself: {text}",
        )
    # Other words of the author are no contradiction: _not_checked lists them.
    false = [t for t in foreign_warnings(report) if any(mark in t for mark in WARNING_MARKS)]
    for text in false:
        yield Check(
            "warnings.unexpected",
            False,
            detail=f"contradicts seeded, public_inputs or the certificate: {text}",
        )
    if not expected and not false:
        yield Check("warnings", True, detail="the public inputs call for none")


def _not_checked(report: PrivacyReport, checks: tuple[Check, ...]) -> tuple[str, ...]:
    inputs = report.certificate.public_inputs()
    if isinstance(report.certificate, CorrelatedNoiseCertificate):
        schedule = report.certificate.schedule
        # A fixed order gives no amplification, and may be known.
        secret = "" if schedule.sampling == "cyclic" else " and kept secret"
        records = (
            f"the model was trained on {schedule.n_samples} records; in every step the gradient "
            f"of each was scaled down to length {report.public_inputs.get('max_grad_norm')} where "
            f"it was longer; the batches were drawn as stated{secret}"
        )
    else:
        records = (
            f"the model was trained on {inputs.get('n_samples')} records; it has "
            f"{inputs.get('n_features')} coefficients for each problem; no row was longer than "
            f"{inputs.get('data_norm')}, the constant column of the intercept, if any, included"
        )
    made = (
        "the fit was made as planned, with noise that the operating system keyed and that served "
        "no other release"
        if report.noise_source == PLANNED
        else f"the noise came from the source named ({report.noise_source}) and served no other "
        f"release"
    )
    items = [
        "the released model was computed by this mechanism with these parameters",
        made,
        records,
        "what the file lists under assumptions holds",
        f"{_NOTHING_ELSE}: no score, plot, log or other fit",
        f"{ARITHMETIC[report.mechanism]} rounding, that of the noise included, gives nothing "
        f"away: the theorem is about exact real numbers",
    ]
    foreign = foreign_choices(report)
    compared = {check.name.rpartition("public_inputs.")[2] for check in checks}
    stated = [k for k in report.public_inputs if k not in compared and k not in foreign]
    if stated:
        items.append(
            f"these settings under public_inputs, which no formula of the guarantee contains, "
            f"were as stated and chosen without looking at the records: "
            f"{', '.join(sorted(stated))}"
        )
    items += [f"{WORDS}: public_inputs.{name}" for name in foreign]
    items += [f"{WORDS}: {text}" for text in foreign_warnings(report)]
    loss = inputs.get("loss")
    if isinstance(loss, Mapping) and known_loss_constants(loss) is None:
        sided = "; one_sided: with s = -slope / L1, 0 <= s <= 1 and l'' <= 4 L2 s (1 - s)"
        items.append(
            f"the loss {loss['name']!r}, which the package does not know, has the stated "
            f"constants: its slope is at most L1 in size, its second derivative l'' is between 0 "
            f"and L2 and changes by at most L3 per unit{sided if loss['one_sided'] else ''}"
        )
    return tuple(items)


# --- gradient descent on a perturbed objective -----------------------------------------------


def _objective_perturbation_ranges(
    certificate: ObjectivePerturbationCertificate,
) -> Iterator[Check]:
    p = certificate.release
    yield Check(
        "certificate.public_inputs.epsilon",
        0.0 <= certificate.epsilon < math.inf,
        certificate.epsilon,
        detail=f"epsilon is {_shown(certificate.epsilon)}; it must be nonnegative and finite",
    )
    positive: dict[str, float] = {
        "comparator_norm": certificate.comparator_norm,
        "data_norm": p.data_norm,
        "mu": p.mu,
        "sigma": p.sigma,
        "eta": p.eta,
        "loss.L1": p.loss.L1,
        "loss.L2": p.loss.L2,
        "loss.L3": p.loss.L3,
        "loss.temperature": p.loss.temperature,
        "loss.weight": p.loss.weight,
    }
    counts = {
        "n_samples": p.n_samples,
        "n_features": p.n_features,
        "n_problems": certificate.n_problems,
        "n_iter": p.n_iter,
    }
    shares = {
        "delta": certificate.delta,
        "failure_probability": certificate.failure_probability,
    }
    choices = {
        "adjacency": (p.adjacency, ADJACENCIES),
        "calibration": (certificate.calibration, CALIBRATIONS),
    }
    margin, used, unused = p.loss.margin, "u", "r"
    if certificate.calibration == "tight":
        used, unused = unused, used
    radius, other = getattr(certificate, used), getattr(certificate, unused)
    found: list[tuple[str, object, bool, str]] = [
        *((k, x, 0.0 < x < math.inf, "a positive number") for k, x in positive.items()),
        *((k, x, 1 <= x < 2**63, "a positive integer") for k, x in counts.items()),
        *((k, x, 0.0 < x < 1.0, "inside (0, 1)") for k, x in shares.items()),
        *((k, x, x in allowed, f"one of {allowed}") for k, (x, allowed) in choices.items()),
        ("loss.margin", margin, 0.0 <= margin < math.inf, "a nonnegative number"),
        (used, radius, radius is not None and 0.0 < radius < math.inf, "a positive number"),
        (unused, other, other is None, f"null for calibration {certificate.calibration!r}"),
    ]
    for key, value, ok, allowed in found:
        detail = f"{_shown(value)} must be {allowed}"
        yield Check(f"certificate.public_inputs.{key}", ok, value, None, detail)


def _objective_perturbation_conditions(
    certificate: ObjectivePerturbationCertificate,
) -> Iterator[Check]:
    p = certificate.release
    yield from _loss_checks(certificate)
    yield Check(
        "step size eta <= 1/L",
        p.eta * p.L <= _ONE and p.eta * p.mu < 1.0,
        p.eta,
        1.0 / p.L,
        f"eta = {number(p.eta)}, 1/L = {number(1.0 / p.L)} with L = mu + L2 data_norm^2",
    )
    if certificate.calibration == "corollary":
        assert certificate.u is not None
        least = threshold_7(p, certificate.u)
        yield Check(
            "condition (7) on N",
            p.n_iter >= least,
            p.n_iter,
            least,
            f"N = {p.n_iter} iterations, at least {number(least, up=True)} are needed",
        )
    else:
        assert certificate.r is not None
        finite = finite_iteration(p, certificate.r)
        yield Check(
            "condition (47): alpha_bar > 0 and r' exists",
            finite is not None,
            None,
            None if finite is None else finite.alpha_bar,
            f"the preimage of the ball of radius r = {number(certificate.r)} stays in a ball "
            f"of radius r' on which the map is invertible",
        )


def _loss_checks(certificate: ObjectivePerturbationCertificate) -> Iterator[Check]:
    inputs = certificate.public_inputs()["loss"]
    known = known_loss_constants(inputs)
    if known is None:
        yield Check(
            "loss",
            True,
            detail=f"{inputs['name']!r} is not known to the package: its constants are an "
            f"assumption that the reviewer must check",
        )
        return
    for key, stated in inputs.items():
        value = getattr(known, key)
        same = _close(stated, value, 0.0) if isinstance(stated, float) else stated == value
        yield Check(
            f"loss.{key}",
            same,
            stated,
            value,
            f"stated {_shown(stated)}, the {inputs['name']} loss has {_shown(value)}",
        )


# --- clipped gradient steps with correlated noise --------------------------------------------


def _correlated_noise_ranges(certificate: CorrelatedNoiseCertificate) -> Iterator[Check]:
    c, schedule = certificate, certificate.schedule
    drawn, delta = c.n_draws > 0, c.delta
    bins = schedule.steps_per_epoch if schedule.sampling == "balls_in_bins" else 0
    bandwidth = getattr(c.strategy, "bandwidth", 1)
    steps = c.strategy.n_steps
    none = "0 without draws, else "
    found: list[tuple[str, object, bool, str]] = [
        ("epsilon", c.epsilon, 0.0 <= c.epsilon < math.inf, "a nonnegative number"),
        ("delta", delta, 0.0 < delta < 1.0, "inside (0, 1)"),
        (
            "adjacency",
            c.adjacency,
            c.adjacency in CORRELATED_ADJACENCIES,
            f"one of {CORRELATED_ADJACENCIES}",
        ),
        (
            "noise_multiplier",
            c.noise_multiplier,
            0.0 < c.noise_multiplier < math.inf,
            "a positive number",
        ),
        ("n_draws", c.n_draws, 0 <= c.n_draws <= _MOST_DRAWS, f"between 0 and {_MOST_DRAWS}"),
        (
            "failure_probability",
            c.failure_probability,
            0.0 < c.failure_probability <= _FAILURE_SHARE * delta
            if drawn
            else c.failure_probability == 0.0,
            f"{none}positive and at most {_FAILURE_SHARE:g} delta",
        ),
        (
            "aim",
            c.aim,
            0.0 < c.aim < math.inf if drawn else c.aim == 0.0,
            f"{none}a positive number",
        ),
        (
            "attempt",
            c.attempt,
            0 <= c.attempt <= (_MOST_ATTEMPTS if drawn else 0),
            f"{none}between 0 and {_MOST_ATTEMPTS}",
        ),
        (
            "schedule",
            f"{schedule.n_steps} steps, {bins} bins",
            schedule.n_steps <= _MOST_STEPS
            and bins <= _MOST_BINS
            and bins * schedule.n_steps <= _MOST_MEANS,
            f"at most {_MOST_STEPS} steps and {_MOST_BINS} bins, with a product of at most "
            f"{_MOST_MEANS}",
        ),
        (
            "strategy.bandwidth",
            bandwidth,
            bandwidth <= _MOST_STEPS,
            f"at most {_MOST_STEPS}",
        ),
        (
            "strategy.n_steps",
            steps,
            steps in (None, schedule.n_steps),
            f"{schedule.n_steps}, the steps of the schedule, or null",
        ),
        (
            "strategy",
            repr(c.strategy),
            getattr(c.strategy, "is_optimized", True),
            "given with its coefficients",
        ),
    ]
    for key, value, ok, allowed in found:
        detail = f"{_shown(value)} must be {allowed}"
        yield Check(f"certificate.public_inputs.{key}", ok, value, None, detail)


def _correlated_noise_conditions(certificate: CorrelatedNoiseCertificate) -> Iterator[Check]:
    words = SAMPLINGS[certificate.schedule.sampling]
    try:
        certificate.accountant  # noqa: B018 (it checks)
        error = ""
    except ValueError as found:
        error = f" ({found})"
    yield Check(
        "strategy, sampling and adjacency fit",
        not error,
        detail=f"{certificate.strategy!r}; {words}; {certificate.adjacency} adjacency{error}",
    )


_RANGES: dict[str, Callable[[Any], Iterator[Check]]] = {
    "objective-perturbation-gd": _objective_perturbation_ranges,
    "correlated-noise-gd": _correlated_noise_ranges,
}
_CONDITIONS: dict[str, Callable[[Any], Iterator[Check]]] = {
    "objective-perturbation-gd": _objective_perturbation_conditions,
    "correlated-noise-gd": _correlated_noise_conditions,
}
