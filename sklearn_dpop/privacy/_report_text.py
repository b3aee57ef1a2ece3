"""The privacy report in words: the summary that ``print`` shows, and what the numbers mean."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sklearn_dpop.privacy._bounds import best_radius, sharpest_bound
from sklearn_dpop.privacy._certificate import ObjectivePerturbationCertificate
from sklearn_dpop.privacy._gaussian import chi_radius, gaussian_delta
from sklearn_dpop.privacy.accounting import CorrelatedNoiseCertificate, Schedule

if TYPE_CHECKING:
    from sklearn_dpop.privacy._composition_report import CompositionReport
    from sklearn_dpop.privacy._report import PrivacyReport

__all__ = [
    "INPUTS",
    "INTERMEDIATES",
    "UTILITY",
    "WORDS",
    "alarms",
    "attack_success",
    "clean",
    "distance_of",
    "facts",
    "guarantee_name",
    "in_words",
    "meaning",
    "number",
    "pair_name",
    "profile_floor",
    "profile_points",
    "reference_profile",
    "row",
    "sharper_epsilon",
    "sharper_note",
    "statement",
    "summary",
    "trivial_risk",
    "warning_texts",
    "wrap",
]

WIDTH = 88
MAX_LINES = 29
_LABEL = 13

# Symbol and meaning of every public input of the certificate, in the order of a reader; see
# :func:`facts`.
_OBJECTIVE_INPUTS = {
    "n_samples": ("n", "records"),
    "n_features": ("d", "released coefficients per problem, intercept included"),
    "data_norm": ("zeta", "bound on the norm of a record's features, intercept included"),
    "n_problems": ("K", "problems released together, each with its own noise"),
    "calibration": ("", "which theorem certifies the release"),
    "mu": ("mu", "regularization"),
    "sigma": ("sigma", "standard deviation of the noise added to the objective"),
    "n_iter": ("N", "gradient steps"),
    "eta": ("eta", "step size"),
    "u": ("u", "truncation parameter of Theorem 4.1"),
    "r": ("r", "truncation radius of Theorem C.13"),
    "comparator_norm": ("W", "norm of the coefficients to compete with (utility only)"),
    "failure_probability": ("delta_S", "failure probability of utility bounds (utility only)"),
}
_GRADIENT_INPUTS = {
    "schedule.n_samples": ("n", "records"),
    "max_grad_norm": ("C_clip", "bound on the norm of a record's gradient: longer ones are cut"),
    "schedule.sampling": ("", "how batches are drawn"),
    "schedule.batch_size": ("B", "records in a batch, on average if batches are random"),
    "schedule.epochs": ("E", "epochs"),
    "schedule.separation": ("b", "fewest steps between two uses of a record"),
    "strategy": ("C", "how the noise of one step is taken back in later ones"),
    "noise_multiplier": ("kappa", "standard deviation of the noise Z, in units of C_clip"),
    "n_draws": ("", "draws of the Monte Carlo bound in each direction"),
    "failure_probability": ("", "probability that this bound is too small, part of delta"),
    "aim": ("", "epsilon at which the draws are aimed"),
    "attempt": ("", "number of the stream of draws"),
}
INPUTS = {
    "objective-perturbation-gd": _OBJECTIVE_INPUTS,
    "correlated-noise-gd": _GRADIENT_INPUTS,
}

_OBJECTIVE_INTERMEDIATES = {
    "L1": "bound on the slope of the loss",
    "L2": "bound on its second derivative",
    "L3": "Lipschitz constant of its second derivative",
    "L": "smoothness of the objective, mu + L2 zeta^2",
    "M": "Lipschitz constant of the Hessian, L3 zeta^3",
    "G": "change of the gradient when one record changes",
    "Delta_H": "change of n times the Hessian when one record changes",
    "kappa": "condition number, L / mu",
    "rho": "contraction per step, 1 - eta mu",
    "d_star": "dimension that one record can reach",
    "noise_multiplier": "sigma / G",
    "tau_0": "log-determinant term, log(1 + Delta_H / (2 n mu))",
    "A": "d sigma^2 plus the cost of sampling (Corollary 4.13)",
    "mu_util": "mu that utility asks for, sqrt(2 A) / W",
    "mu_priv": "smallest mu that privacy allows",
    "leading_risk": "W sqrt(2 A)",
    "u": "truncation parameter",
    "threshold_7": "fewest steps that condition (7) allows",
    "c_N": "cost of stopping after N steps",
    "tau_star": "log-determinant term of N steps (8)",
    "eps0": "smallest epsilon that Theorem 4.1 certifies (9)",
    "curvature": "4 L2 zeta^2 / (n mu)",
    "r": "truncation radius",
    "r_prime": "radius of the larger ball (47)",
    "alpha_bar": "singular-value margin (47), positive",
    "Delta_xi": "residual of the last step (48)",
    "tau_corr": "log-determinant correction of N steps (48)",
    "residual": "cost of the residual, Term (B) of Theorem C.4",
    "s_N": "part of epsilon that does not depend on t (Section C.4)",
}
_GRADIENT_INTERMEDIATES = {
    "n_steps": "gradient steps T",
    "steps_per_epoch": "steps of an epoch; with balls in bins, the number of bins",
    "expected_batch_size": "what the sum over a batch is divided by",
    "participation_probability": "probability that a record that may take part in a step does",
    "largest_shift": "most that one record can add, in units of C_clip: no amplification",
    "noise_of_unamplified": "kappa / largest_shift",
    "monte_carlo_delta": "Monte Carlo bound of delta at the epsilon aimed at",
}
INTERMEDIATES = {
    "objective-perturbation-gd": _OBJECTIVE_INTERMEDIATES,
    "correlated-noise-gd": _GRADIENT_INTERMEDIATES,
}

UTILITY = {
    "E_opt": "cost of stopping after N steps",
    "empirical_risk_bound": "expected excess regularized risk on the records (Theorem 4.10)",
    "population_risk_bound": "the same on the population (Theorem 4.9)",
    "unregularized_risk_bound": "excess risk on the population over norm W (Theorem 4.7)",
    "single_release_bound": "excess regularized risk of this one draw (Corollary 4.11)",
    "rmse": "noise in the sum of gradients so far, root mean square of a coordinate",
}

# What the adjacency compares, and what an attacker has to guess.
_REPLACE_ONE = (
    "Replacing any one record by any other",
    "tell two equally likely candidates for the last one apart",
)
# Floating-point numbers that a mechanism computes and releases in.
ARITHMETIC = {"objective-perturbation-gd": "float64", "correlated-noise-gd": "float32"}
_CHANGES = {
    "objective-perturbation-gd": {
        "replace-one": _REPLACE_ONE,
        "zero-out": (
            "Replacing any one record by a blank one (which contributes nothing)",
            "tell whether the last one was blank, at even odds,",
        ),
    },
    "correlated-noise-gd": {
        "replace-one": _REPLACE_ONE,
        "zero-out": (
            "Replacing the gradients of any one record by zeros",
            "tell whether those of the last one were, at even odds,",
        ),
        "add-remove": (
            "Adding or removing any one record",
            "tell whether the last one is there, at even odds,",
        ),
    },
}
_DATA = {
    "n_samples": "n = {} records",
    "n_features": "d = {} coefficients",
    "data_norm": "norm of a record's features <= {}",
    "schedule.n_samples": "n = {} records",
    "max_grad_norm": "gradient of a record clipped to norm {}",
}
_PARAMETERS = {
    "strategy": "strategy {}",
    "noise_multiplier": "noise multiplier kappa = {}",
    "mu": "mu = {}",
    "sigma": "noise sigma = {}",
    "n_iter": "N = {} steps",
    "eta": "step eta = {}",
}


# --- numbers --------------------------------------------------------------------------------


def number(value: float, digits: int = 4, *, up: bool = False) -> str:
    """Return `value` with `digits` significant digits, rounded up if asked for.

    Examples
    --------
    >>> number(0.123456), number(0.123412, up=True), number(1e-5, 6, up=True), number(12887)
    ('0.1235', '0.1235', '1e-05', '12887')
    """
    if isinstance(value, int):
        return str(value)
    if up and math.isfinite(value) and value != 0.0:
        exact = Decimal(repr(float(value)))
        unit = Decimal((0, (1,), exact.adjusted() - digits + 1))
        value = float(exact.quantize(unit, rounding=ROUND_CEILING))
    return f"{value:.{digits}g}"


def attack_success(report: PrivacyReport) -> float:
    """Return a bound on the success of guessing which of two neighbouring data sets was used.

    With even odds it is ``(1 + delta(0)) / 2``, by the profile at epsilon = 0 and by the
    stated pair, whichever is smaller.
    """
    distance = distance_of(float(report.epsilon), float(report.delta))
    if report._verified:
        distance = min(distance, report.certificate.delta_at(0.0))
    return 0.5 + 0.5 * min(distance, 1.0)


def distance_of(epsilon: float, delta: float) -> float:
    """Return the largest total variation distance under (epsilon, delta)."""
    odds = math.exp(-epsilon)
    return (1.0 - odds + 2.0 * delta * odds) / (1.0 + odds)


def trivial_risk(report: PrivacyReport) -> float | None:
    """Return the risk of the model ``w = 0``: a larger bound on an excess risk says nothing."""
    from sklearn_dpop.privacy._report import known_loss_constants

    loss = report.certificate.public_inputs().get("loss")
    if not report._verified or loss is None or known_loss_constants(loss) is None:
        return None
    temperature = float(loss["temperature"])
    return float(loss["weight"] * temperature * np.logaddexp(0.0, loss["margin"] / temperature))


def sharper_epsilon(report: PrivacyReport) -> float | None:
    """Return the epsilon that the sharpest bound certifies for this very release.

    Only for releases that were certified by Theorem 4.1; None elsewhere and where nothing
    is gained.  Rounded up; valid because both bounds are functions of public numbers.
    """
    certificate = report.certificate
    if not isinstance(certificate, ObjectivePerturbationCertificate):
        return None
    if certificate.calibration != "corollary" or not report._verified:
        return None
    p, k, delta = certificate.release, certificate.n_problems, certificate.delta
    if k == 1:
        bound, log_delta = sharpest_bound(p.loss), math.log(delta) - 1e-10

        def certified(epsilon: float) -> bool:
            return best_radius(p, epsilon, bound, log_delta=log_delta)[0] <= log_delta

    else:
        radius = p.sigma * chi_radius(math.log(0.01 * delta / k), p.d_star)
        tight = replace(certificate, calibration="tight", u=None, r=radius)

        def certified(epsilon: float) -> bool:
            return tight.delta_at(epsilon) <= delta

    low, high = 0.0, certificate.epsilon
    if not certified(high):
        return None
    while high - low > 1e-4 * high and high > 1e-12:
        middle = 0.5 * (low + high)
        if certified(middle):
            high = middle
        else:
            low = middle
    rounded = float(number(high, 3, up=True))
    return rounded if rounded < certificate.epsilon else None


def profile_points(report: PrivacyReport) -> tuple[tuple[float, float], ...]:
    """Return points ``(epsilon, delta)`` of the profile; none if the report does not verify."""
    if not report._verified:
        return ()
    certificate = report.certificate
    # One tight release searches its best radius anew at every point, and random batches compose
    # privacy losses: about 0.1 s each.
    searched = report.n_problems == 1 and certificate.public_inputs().get("calibration") == "tight"
    if isinstance(certificate, CorrelatedNoiseCertificate):
        searched = certificate.schedule.sampling not in ("cyclic", "balls_in_bins")
    # Denser near zero, where the profile of a loose certificate bends.
    unit = np.linspace(0.0, 1.0, 17 if searched else 61) ** 1.5
    grid = min(1.25 * certificate.epsilon, 1e6) * unit
    return tuple((float(x), certificate.delta_at(float(x))) for x in grid)


class Reference(NamedTuple):
    """A profile to compare with, and what it is."""

    profile: Callable[[float], float]
    name: str


def reference_profile(report: PrivacyReport) -> Reference | None:
    """Return the exact profile of a Gaussian mechanism to compare with, if there is one."""
    assert report.stated is not None
    certificate, numbers = report.certificate, report.stated["intermediates"]
    if isinstance(certificate, CorrelatedNoiseCertificate):
        if certificate.schedule.sampling == "cyclic":
            return None  # it is the very profile
        multiplier, name = numbers.get("noise_of_unamplified"), "without amplification"
        if certificate.adjacency == "replace-one":  # both records add at most the largest shift
            multiplier *= 0.5 * certificate.accountant.factor
    else:
        multiplier, name = numbers.get("noise_multiplier"), "with the same noise"
    if multiplier is None or not 0.0 < multiplier < math.inf:
        return None
    total = multiplier / math.sqrt(report.n_problems)
    return Reference(lambda epsilon: gaussian_delta(epsilon, noise_multiplier=total), name)


def profile_floor(report: PrivacyReport) -> float:
    """Return the power of ten at which a plot of the profile ends."""
    return 10.0 ** max(math.floor(math.log10(report.certificate.delta)) - 2, -300)


# --- sentences --------------------------------------------------------------------------------


def guarantee_name(report: PrivacyReport | CompositionReport) -> str:
    """Return ``(epsilon = ..., delta = ...)``, rounded up."""
    return pair_name(float(report.epsilon), float(report.delta))


def pair_name(epsilon: float, delta: float) -> str:
    """Return ``(epsilon = ..., delta = ...)``, rounded up.

    Examples
    --------
    >>> pair_name(0.12345649, 1e-5)
    '(epsilon = 0.123457, delta = 1e-05)'
    """
    return f"(epsilon = {number(epsilon, 6, up=True)}, delta = {number(delta, 6, up=True)})"


def statement(report: PrivacyReport | CompositionReport) -> str:
    """Return the guarantee in one line."""
    return clean(f"{guarantee_name(report)}-differential privacy, {report.adjacency} adjacency")


def in_words(report: PrivacyReport) -> str:
    """Return what the guarantee means, for readers who do not know the definition."""
    text = meaning(report.mechanism, report.adjacency, report.epsilon, attack_success(report))
    problems = report.n_problems
    if problems > 1:
        text += f" Epsilon and delta are the total over {problems} one-vs-rest problems."
    return text


def meaning(mechanism: str, adjacency: str, epsilon: float, success: float) -> str:
    change, guess = _CHANGES[mechanism].get(
        adjacency, (f"Changing one record ({adjacency})", "tell what changed")
    )
    return (
        f"{change} changes the probability of any outcome by a factor of at most "
        f"e^epsilon = {_factor(float(epsilon))}, plus at most delta. Someone who knows "
        f"all other records and has to {guess} is right at most "
        f"{number(100.0 * success, 3, up=True)}% of the time (a coin: 50%)."
    )


def _factor(epsilon: float) -> str:
    if not epsilon < 700.0:
        return "infinity"
    factor = math.exp(epsilon)
    return f"{math.ceil(factor):,}" if 100.0 <= factor < 1e9 else number(factor, 3, up=True)


NOT_VERIFIED = "DOES NOT VERIFY: report.verify() says why. The numbers below are as stated."
NOT_PRIVATE = "NOT PRIVATE: random_state was given, so the noise can be reproduced and removed."


def alarms(report: PrivacyReport) -> tuple[str, ...]:
    """Return what a reader must know before anything else."""
    found = [] if report._verified else [NOT_VERIFIED]
    return (*found, NOT_PRIVATE) if report.seeded else tuple(found)


def sharper_note(report: PrivacyReport) -> str | None:
    """Return the hint that a sharper theorem certifies more, if there is one."""
    epsilon = report._sharper_epsilon
    if epsilon is None:
        return None
    return (
        f"this very release has epsilon = {number(epsilon)} at the same delta by the sharper "
        f"bound; calibration='tight' adds less noise for the epsilon asked for"
    )


# Before what the author of a report has added to it.
WORDS = "words of the author, not of the package"


def warning_texts(report: PrivacyReport) -> tuple[str, ...]:
    """Return the warnings, with a remark before those that do not follow from the report."""
    from sklearn_dpop.privacy._report import foreign_warnings

    foreign = foreign_warnings(report)
    return tuple(f"{WORDS}: {text}" if text in foreign else text for text in report.warnings)


def clean(text: str) -> str:
    """Return `text` with characters that could steer a terminal shown as ``?``."""
    return "".join(c if c.isprintable() else "?" for c in text)


def wrap(text: str, label: str, *, max_lines: int | None = None) -> list[str]:
    """Return `text` as lines of at most 88 columns, the first one after `label`."""
    return textwrap.wrap(
        clean(" ".join(text.split())),
        WIDTH,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_on_hyphens=False,
        max_lines=max_lines,
        placeholder=" ...",
    ) or [label.rstrip()]


def row(label: str, text: str) -> list[str]:
    return wrap(text, label.ljust(_LABEL), max_lines=3)


def _value(value: Any) -> str:
    return number(value) if isinstance(value, int | float) else str(value)


def facts(report: PrivacyReport) -> dict[str, Any]:
    """Return the public inputs of the certificate by name, those of the schedule by path.

    Along with the clip norm, which the certificate does not depend on, and the strategy in words.
    """
    inputs = report.certificate.public_inputs()
    if "schedule" not in inputs:
        return inputs
    schedule = {f"schedule.{key}": value for key, value in inputs["schedule"].items()}
    return {
        **inputs,
        **schedule,
        "strategy": _strategy(inputs["strategy"]),
        "max_grad_norm": report.public_inputs.get("max_grad_norm"),
    }


def _strategy(parameters: Mapping[str, Any]) -> str:
    """Return a strategy in words, without what makes no difference; long lists are cut."""
    words = []
    silent = {"momentum": 0.0, "weight_decay": 1.0}
    for key, value in parameters.items():
        if key in ("family", "error", "n_steps") or value == silent.get(key):
            continue  # silent.get is None for a key without default, as is a missing value
        if key == "matrix":
            words.append(f"{len(value)} x {len(value)} {key}")
        elif isinstance(value, list):
            shown = ", ".join(number(x) for x in value[:8]) + (", ..." if len(value) > 8 else "")
            words.append(f"{key} {shown}")
        else:
            words.append(f"{key.rstrip('_')} {_value(value)}")
    details = f" ({', '.join(words)})" if words else ""
    return f"{parameters['family']}{details}"


def summary(report: PrivacyReport) -> str:
    """Return the report as text: fewer than 30 lines of at most 88 columns."""
    assert report.stated is not None
    from sklearn_dpop.privacy._report import MECHANISMS

    inputs = facts(report)
    lines = [*alarms(report)]
    lines += wrap(statement(report), "Without it: " if report.seeded else "", max_lines=2)
    lines += wrap(in_words(report), "  ", max_lines=6)
    body = row("mechanism", f"{report.estimator}: {MECHANISMS[report.mechanism].title}")
    calibration = inputs.get("calibration")
    body += row(
        "theorem", report.theorem + (f" (calibration: {calibration})" if calibration else "")
    )
    for label, formats in (("data", _DATA), ("parameters", _PARAMETERS)):
        items = [text.format(_value(inputs[k])) for k, text in formats.items() if k in inputs]
        body += row(label, ", ".join(items))
    body += _sampling_rows(inputs)
    each = "of one problem: " if report.n_problems > 1 else ""
    for total, terms in report.stated["contributions"].items():
        if list(terms) == ["divergence"]:
            continue  # nothing is split
        if "schedule" in inputs:  # without draws nothing fails; what is left over may be rounding
            terms = {k: x for k, x in terms.items() if not abs(x) <= 1e-9 * float(report.delta)}
        largest_first = sorted(terms.items(), key=lambda term: -term[1])
        body += row(
            total,
            each + "; ".join(f"{number(x, 3)} {_short(k, terms)}" for k, x in largest_first),
        )
    body += row("utility", _utility(report))
    body += row("noise", report.noise_source)
    note = sharper_note(report)
    if note is not None:
        body += row("sharper", note)
    tail = row(
        "not covered",
        f"the assumptions (report.assumptions), {ARITHMETIC[report.mechanism]} rounding, anything "
        f"else published",
    )
    tail += row("check it", "report.verify(), or: sklearn-dpop verify report.json")
    room = MAX_LINES - len(lines) - len(body) - len(tail)
    return "\n".join(lines + body + _warning_lines(warning_texts(report), room) + tail)


def _sampling_rows(inputs: Mapping[str, Any]) -> list[str]:
    """Return the lines on batches and on how delta was bounded, where there is a schedule."""
    if "schedule" not in inputs:
        return []
    lines = row("sampling", Schedule(**inputs["schedule"]).describe())
    if inputs["n_draws"]:
        failure = number(inputs["failure_probability"], up=True)
        text = f"Monte Carlo, {inputs['n_draws']} draws in each direction; the bound holds with "
        return lines + row("method", f"{text}confidence 1 - {failure}, which is part of delta")
    return lines + row("method", "deterministic")


def _short(term: str, terms: Mapping[str, float]) -> str:
    """Return the name of `term` without its formula, where that stays unique."""
    short = term.split(", ")[0]
    return term if sum(other.startswith(short) for other in terms) > 1 else short


def _utility(report: PrivacyReport) -> str:
    assert report.stated is not None
    utility = report.stated["utility"]
    trivial = trivial_risk(report)
    parts = []
    for key, where in (
        ("empirical_risk_bound", "on the records"),
        ("population_risk_bound", "on the population"),
    ):
        if key in utility:
            bound = utility[key]
            useless = trivial is not None and bound >= trivial
            remark = f" (says nothing: w = 0 has {number(trivial, 3)})" if useless else ""  # type: ignore[arg-type]
            parts.append(f"{where} <= {number(bound, 3, up=True)}{remark}")
    if not parts:
        unit = " clip norms" if "rmse" in utility else ""
        return ", ".join(f"{UTILITY.get(k, k)}: {number(x)}{unit}" for k, x in utility.items())
    return f"expected excess regularized risk {', '.join(parts)}"


def _warning_lines(warnings: tuple[str, ...], room: int) -> list[str]:
    if not warnings:
        return row("warnings", "none")
    lines: list[str] = []
    for i, text in enumerate(warnings):
        item = row("warnings" if i == 0 else "", f"! {text}")
        more = i < len(warnings) - 1
        if len(lines) + len(item) + more > room:
            left = len(warnings) - i
            return [*lines, *row("" if i else "warnings", f"! {left} more: report.warnings")]
        lines += item
    return lines
