"""The privacy report: what is guaranteed, from which public numbers, and how to check it."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from importlib import metadata
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from sklearn_dpop.factorization import Dense
from sklearn_dpop.factorization._describe import FAMILIES
from sklearn_dpop.privacy._certificate import ObjectivePerturbationCertificate
from sklearn_dpop.privacy._loss_constants import LossConstants, softplus_constants
from sklearn_dpop.privacy._objective_perturbation import PerturbedGradientDescent
from sklearn_dpop.privacy.accounting import CorrelatedNoiseCertificate, Schedule

if TYPE_CHECKING:
    from sklearn_dpop.privacy._verify import Verification

__all__ = [
    "COMPOSITION_SCHEMA",
    "ONE_FIT",
    "PLANNED",
    "Certificate",
    "PrivacyReport",
    "ProfileEnd",
    "expected_warnings",
    "known_loss_constants",
    "package_versions",
    "read_json",
]

SCHEMA = "sklearn_dpop.privacy_report"
COMPOSITION_SCHEMA = "sklearn_dpop.composition_report"
SCHEMA_VERSION = 1
# The assumption of every fit, which a total takes care of.
ONE_FIT = "this is the guarantee of one fit: other fits on the same records add to it"
# The source of the noise in the report of a fit that has not been made.
PLANNED = "none was drawn: this is a plan, nothing was released"

# A report is a few kilobytes; anything of this size is not one.
_MAX_JSON = 10_000_000
_HOW_TO_READ_A_FILE = "to read a file: PrivacyReport.from_json(Path('report.json').read_text())"
_PACKAGES = ("sklearn-dpop", "numpy", "scipy", "scikit-learn", "randomgen")
# What only some mechanisms compute with; named in their reports if it is installed.
_OPTIONAL_PACKAGES = {"correlated-noise-gd": ("dp-accounting", "skorch", "torch")}
_Made = TypeVar("_Made")
_NON_FINITE = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


class Certificate(Protocol):
    """What a report needs to know about a guarantee, whatever the mechanism."""

    @property
    def epsilon(self) -> float:
        """Stated epsilon, total over everything that is released."""

    @property
    def delta(self) -> float:
        """Stated delta, total over everything that is released."""

    @property
    def adjacency(self) -> str:
        """Neighbouring relation."""

    @property
    def theorem(self) -> str:
        """Where the guarantee is proven."""

    @property
    def intermediates(self) -> Mapping[str, float]:
        """Every number between the public inputs and the guarantee."""

    @property
    def contributions(self) -> Mapping[str, Mapping[str, float]]:
        """Terms of the stated epsilon and of the stated delta."""

    @property
    def utility(self) -> Mapping[str, float]:
        """Utility bounds."""

    def delta_at(self, epsilon: float) -> float:
        """Return the certified delta at `epsilon`."""

    def deltas_at(self, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return certified deltas at many `epsilons`."""

    def epsilon_at(self, delta: float) -> float:
        """Return the certified epsilon at `delta`."""

    def public_inputs(self) -> dict[str, Any]:
        """Return everything that the guarantee is a function of, JSON-able."""


@dataclass(frozen=True)
class _Mechanism:
    title: str
    certificate: type[Any]
    input_types: Mapping[str, Any]
    # What the package's estimators state in public_inputs.
    choices: frozenset[str]

    def make_certificate(self, inputs: Mapping[str, Any]) -> Certificate:
        made: Certificate = self.certificate.from_public_inputs(dict(inputs))
        return made


@dataclass(frozen=True)
class _Variants:
    """Types of an object whose keys depend on the value of one of them."""

    key: str
    types: Mapping[str, Mapping[str, Any]]


def _field_types(cls: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def _objective_perturbation() -> _Mechanism:
    types = _field_types(ObjectivePerturbationCertificate) | _field_types(PerturbedGradientDescent)
    del types["release"]
    return _Mechanism(
        title="gradient descent on a perturbed objective",
        certificate=ObjectivePerturbationCertificate,
        input_types=types | {"loss": _field_types(LossConstants)},
        choices=frozenset(
            {*types, "class_weight", "classes", "intercept_scaling", "n_classes"}
            | {"row_norm_bound", "rows_clipped"}
        ),
    )


_NETWORK_CHOICES = (
    "activation", "base_branch", "center_basis", "classes", "degree", "diagnostics",
    "expected_batch_size", "feature_bounds", "hidden_width", "lr", "max_grad_norm", "n_basis",
    "n_classes", "n_steps", "n_validation", "optimizer", "optimizer_params", "projection_radius",
    "train_output_layer",
)  # fmt: skip


def _correlated_noise() -> _Mechanism:
    families = {
        name: {"matrix": tuple[tuple[float, ...], ...]} if cls is Dense else _field_types(cls)
        for name, cls in FAMILIES.items()
    }
    types, schedule = _field_types(CorrelatedNoiseCertificate), _field_types(Schedule)
    return _Mechanism(
        title="clipped gradient steps with correlated noise",
        certificate=CorrelatedNoiseCertificate,
        input_types=types | {"strategy": _Variants("family", families), "schedule": schedule},
        choices=frozenset({*types, *schedule, *_NETWORK_CHOICES}),
    )


MECHANISMS: dict[str, _Mechanism] = {
    "objective-perturbation-gd": _objective_perturbation(),
    "correlated-noise-gd": _correlated_noise(),
}


# --- versions and warnings -----------------------------------------------------------------


def package_versions(mechanism: str | None = None) -> dict[str, str]:
    """Return the versions of this package, of what it computes with, and of Python.

    Parameters
    ----------
    mechanism : str, optional
        Adds the optional packages of this mechanism, as far as they are installed.

    Examples
    --------
    >>> sorted(package_versions())
    ['numpy', 'python', 'randomgen', 'scikit-learn', 'scipy', 'sklearn-dpop']
    """
    return dict(_installed_versions(mechanism))


@lru_cache(maxsize=8)  # reading the metadata takes longer than a small fit
def _installed_versions(mechanism: str | None) -> tuple[tuple[str, str], ...]:
    versions = {"python": platform.python_version()}
    optional = _OPTIONAL_PACKAGES.get(mechanism or "", ())
    for name in (*_PACKAGES, *optional):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            if name not in optional:
                versions[name] = "unknown"
    return tuple(sorted(versions.items()))


def known_loss_constants(loss: Mapping[str, Any]) -> LossConstants | None:
    """Return the constants that the package derives for a named loss, None if unknown to it.

    Parameters
    ----------
    loss : mapping
        The fields of :class:`LossConstants`.
    """
    try:
        if loss["name"] == "logistic":
            made = softplus_constants("logistic", loss["margin"], 1.0)
        elif loss["name"] == "smoothed_hinge":
            made = softplus_constants("smoothed_hinge", loss["margin"], loss["temperature"])
        else:
            return None
    except ArithmeticError:  # an absurd temperature
        return None
    return made.scaled(loss["weight"])


_SEEDED = "random_state was given"
_LARGE_DELTA = "delta is at least 1/n"
_LEAK = "inferred from the records"
_DIAGNOSTICS = "diagnostics=True"
_UNKNOWN_LOSS = "loss not known to the package"
# How to tell which rule a stated warning belongs to.
WARNING_MARKS = (_SEEDED, _LARGE_DELTA, _LEAK, _DIAGNOSTICS, _UNKNOWN_LOSS)


def expected_warnings(
    certificate: Certificate, public_inputs: Mapping[str, Any], *, seeded: bool
) -> tuple[str, ...]:
    """Return the warnings that follow from public facts about a release.

    Estimators store them in their report, and :meth:`PrivacyReport.verify` requires them.

    Parameters
    ----------
    certificate : Certificate
        The guarantee.
    public_inputs : mapping
        Estimator-level choices.  A value ``"inferred"`` means that the choice was read off
        the records; ``diagnostics=True`` that numbers outside the guarantee were kept.
    seeded : bool
        Whether `random_state` was given.

    Returns
    -------
    tuple of str
        Empty if there is nothing to warn of.

    Examples
    --------
    >>> from sklearn_dpop.privacy._calibration import calibrate_objective_perturbation
    >>> certificate = calibrate_objective_perturbation(1000, 5, epsilon=1.0, delta=1e-5)
    >>> expected_warnings(certificate, {"classes": [0, 1]}, seeded=False)
    ()
    >>> expected_warnings(certificate, {"classes": "inferred"}, seeded=False)
    ('classes: inferred from the records, not declared; what it reveals is outside the guarantee',)
    """
    found = []
    if seeded:
        found.append(
            f"{_SEEDED}: the noise is reproducible and so not private, whoever knows or guesses "
            f"the seed can remove it; use random_state=None for a release"
        )
    inputs = certificate.public_inputs()
    n_samples = inputs.get("schedule", inputs).get("n_samples")
    if n_samples is not None and certificate.delta * n_samples >= 1.0:
        found.append(
            f"{_LARGE_DELTA} (delta = {certificate.delta!r}, n = {n_samples}): publishing one "
            f"record in full, drawn at random, would satisfy it too"
        )
    found.extend(
        f"{name}: {_LEAK}, not declared; what it reveals is outside the guarantee"
        for name, value in public_inputs.items()
        if isinstance(value, str) and value == "inferred"
    )
    if public_inputs.get("diagnostics") is True:
        found.append(f"{_DIAGNOSTICS}: the diagnostics kept are outside the guarantee")
    loss = inputs.get("loss")
    if isinstance(loss, Mapping) and known_loss_constants(loss) is None:
        sided = ", and its slope is declared one-sided" if loss["one_sided"] else ""
        found.append(
            f"{_UNKNOWN_LOSS}: {loss['name']}; its constants L1, L2, L3 are the user's "
            f"statement{sided}: check them"
        )
    return tuple(found)


def foreign_choices(report: PrivacyReport) -> tuple[str, ...]:
    """Return the names in `public_inputs` that no estimator of the package states."""
    known = MECHANISMS[report.mechanism].choices
    return tuple(name for name in report.public_inputs if name not in known)


def foreign_warnings(report: PrivacyReport) -> tuple[str, ...]:
    """Return the warnings that do not follow from the report: words of its author."""
    expected = expected_warnings(report.certificate, report.public_inputs, seeded=report.seeded)
    return tuple(text for text in report.warnings if text not in expected)


# --- plain, immutable data ------------------------------------------------------------------


def _plain(value: Any, path: str) -> Any:
    """Return `value` as JSON-able Python data; numpy scalars and arrays are unpacked."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{path}={value!r}: must be finite")
        return float(value)
    if isinstance(value, Mapping):
        # Keys may be class labels; JSON knows strings only.
        named = {str(_plain(key, f"{path}: key")): item for key, item in value.items()}
        if len(named) < len(value):
            raise ValueError(f"{path}: two keys of {list(value)!r} are the same text")
        return {key: _plain(item, f"{path}.{key}") for key, item in named.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_plain(item, f"{path}[{i}]") for i, item in enumerate(value)]
    raise TypeError(
        f"{path}={value!r}: must be a string, number, boolean, None, or a list or mapping of them"
    )


def _freeze(value: Any) -> Any:
    if isinstance(value, Mapping):
        return MappingProxyType({key: _freeze(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return tuple(_freeze(item) for item in value)
    return value


def _thaw(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _thaw(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_thaw(item) for item in value]
    return value


def _numbers_to_json(value: Any) -> Any:
    """Return nested mappings of numbers with non-finite ones as strings (JSON has none)."""
    if isinstance(value, Mapping):
        return {key: _numbers_to_json(item) for key, item in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def _type_name(value: Any) -> str:
    return {"NoneType": "null", "dict": "object", "list": "array"}.get(
        type(value).__name__, type(value).__name__
    )


def _object(value: Any, path: str, keys: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the JSON object `value`, with exactly `keys` if given."""
    if not isinstance(value, dict):
        raise ValueError(f"{path}: must be an object, not {_type_name(value)}")
    if keys is not None:
        prefix = "" if path == "report" else f"{path}."
        for key in keys:
            if key not in value:
                raise ValueError(f"{prefix}{key}: missing")
        for key in value:
            if key not in set(keys):
                raise ValueError(f"{prefix}{key}: unknown key")
    return value


def _array(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{path}: must be an array, not {_type_name(value)}")
    return value


def _typed(value: Any, path: str, expected: Any) -> Any:
    """Return the JSON leaf (or object or array of leaves) `value` if it has the `expected` type.

    Expected are a mapping of keys to types, :class:`_Variants`, ``tuple[kind, ...]``,
    ``kind | None``, float, int, str or bool.
    """
    if isinstance(expected, _Variants):
        key, types = expected.key, expected.types
        if key not in _object(value, path):
            raise ValueError(f"{path}.{key}: missing")
        name = _typed(value[key], f"{path}.{key}", str)
        if name not in types:
            raise ValueError(
                f"{path}.{key}={name!r}: must be one of {', '.join(map(repr, types))}"
            )
        expected = {key: str, **types[name]}
    if isinstance(expected, Mapping):
        _object(value, path, expected)
        return {key: _typed(value[key], f"{path}.{key}", kind) for key, kind in expected.items()}
    if get_origin(expected) is tuple:
        return [
            _typed(item, f"{path}[{i}]", get_args(expected)[0])
            for i, item in enumerate(_array(value, path))
        ]
    if NoneType in get_args(expected):
        (kind,) = (kind for kind in get_args(expected) if kind is not NoneType)
        return None if value is None else _typed(value, path, kind)
    if expected is float and isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    allowed = (int, float) if expected is float else (expected,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and expected is not bool):
        name = {float: "a number", int: "an integer", str: "a string", bool: "true or false"}
        raise ValueError(f"{path}: must be {name[expected]}, not {_type_name(value)}")
    return value


def _numbers(value: Any, path: str) -> dict[str, float]:
    return {key: _typed(x, f"{path}.{key}", float) for key, x in _object(value, path).items()}


def _strings(value: Any, path: str) -> tuple[str, ...]:
    return tuple(_typed(value, path, tuple[str, ...]))


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key}: appears twice in one object")
        found[key] = value
    return found


def _reject_constant(literal: str) -> float:
    raise ValueError(f"{literal}: not a JSON number")


def _integer_literal(literal: str) -> int:
    if len(literal) > 300:  # a float field could not hold it
        raise ValueError(f"{literal[:20]}...: too large for a double-precision number")
    return int(literal)


def _finite_literal(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise ValueError(f"{literal}: too large for a double-precision number")
    return value


def read_json(text: str | bytes, make: Callable[[Any], _Made]) -> _Made:
    """Return what is made of the data of strict JSON text.

    Parameters
    ----------
    text : str or bytes
        UTF-8 if bytes.
    make : callable
        Of the data; what it raises is raised.

    Raises
    ------
    ValueError
        If it is too long for a report, has duplicate keys, ``NaN`` or ``Infinity`` literals or
        numbers beyond double precision, is nested too deeply, or is not JSON.
    TypeError
        If it is no text.
    """
    if not isinstance(text, str | bytes | bytearray):
        raise TypeError(
            f"the text of a report is expected, not {_type_name(text)}; {_HOW_TO_READ_A_FILE}"
        )
    if len(text) > _MAX_JSON:
        raise ValueError(f"{len(text)} characters: more than the {_MAX_JSON} of any report")
    try:
        data = json.loads(
            text,
            object_pairs_hook=_no_duplicates,
            parse_constant=_reject_constant,
            parse_float=_finite_literal,
            parse_int=_integer_literal,
        )
        return make(data)
    except json.JSONDecodeError as error:
        if isinstance(text, str) and not text.lstrip().startswith("{"):  # the name of a file?
            raise json.JSONDecodeError(
                f"the text of a report is expected, not {text[:60]!r}; {_HOW_TO_READ_A_FILE}; "
                f"{error.msg}",
                error.doc,
                error.pos,
            ) from None
        raise
    except RecursionError:  # in parsing, or in what is made of data nested less deeply
        raise ValueError("nested too deeply for a report") from None


class ProfileEnd(float):
    """A stated number that, called, evaluates the whole privacy profile.

    So that ``report.delta`` is the stated delta and ``report.delta(eps)`` the delta at `eps`.
    """

    _profile: Any

    def __new__(cls, value: float, profile: Any) -> ProfileEnd:
        number = super().__new__(cls, value)
        number._profile = profile
        return number

    def __call__(self, at: float) -> float:
        return float(self._profile(at))

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        return float, (float(self),)


# --- the report ------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class PrivacyReport:
    """The privacy guarantee of one release, with all that is needed to check it.

    Estimators make it in ``fit``; :meth:`to_json` and :meth:`from_json` carry it to another
    machine, where :meth:`verify` recomputes the guarantee from the public inputs alone.
    Immutable; two reports are equal when their contents are.

    Parameters
    ----------
    mechanism : {"objective-perturbation-gd", "correlated-noise-gd"}
        What was run.
    estimator : str
        Name of the class that ran it.
    certificate : Certificate
        The guarantee as a function of its public inputs.
    public_inputs : mapping of str to JSON-able values
        Estimator-level public choices: classes, clipping, class weights...  What was read off
        the records instead has the value ``"inferred"``.
    assumptions : sequence of str
        What must hold for the guarantee and cannot be checked here.
    noise_source : str
        Where the noise was drawn from.
    seeded : bool
        True if `random_state` was given: the release is reproducible, hence not private.
    warnings : sequence of str
        At least those of :func:`expected_warnings`.
    versions : mapping of str to str
        See :func:`package_versions`.
    schema_version : int, default=1
        Version of the JSON form.
    stated : mapping, optional
        The numbers as they were stated when the report was made: objects ``guarantee``
        (epsilon, delta, adjacency, theorem, n_problems), ``intermediates``, ``contributions`` and
        ``utility``.  By default those of `certificate`; :meth:`from_json` keeps those
        of the file, so that :meth:`verify` can compare them.

    Raises
    ------
    ValueError
        If `mechanism` is unknown, or a public input is not finite.
    TypeError
        If a public input cannot be written as JSON.

    Notes
    -----
    ``report.epsilon`` and ``report.delta`` are the stated numbers, total over all problems.
    Both can be called: ``report.delta(eps)`` is the delta certified at any epsilon and
    ``report.epsilon(delta)`` the epsilon certified at any delta.

    Examples
    --------
    >>> from sklearn_dpop.privacy._calibration import calibrate_objective_perturbation
    >>> report = PrivacyReport(
    ...     mechanism="objective-perturbation-gd",
    ...     estimator="ObjPertGDLogisticRegression",
    ...     certificate=calibrate_objective_perturbation(1000, 5, epsilon=1.0, delta=1e-5),
    ...     public_inputs={"classes": [0, 1], "n_classes": 2},
    ...     assumptions=("every record has features of norm at most 1",),
    ...     noise_source="operating system",
    ...     seeded=False,
    ...     warnings=(),
    ...     versions=package_versions(),
    ... )
    >>> report
    PrivacyReport(ObjPertGDLogisticRegression, epsilon=1.0, delta=1e-05, 'replace-one')
    >>> report.delta(0.5) < report.delta(0.1)
    True
    >>> bool(PrivacyReport.from_json(report.to_json()).verify())
    True
    """

    mechanism: str
    estimator: str
    certificate: Certificate
    public_inputs: Mapping[str, Any]
    assumptions: tuple[str, ...]
    noise_source: str
    seeded: bool
    warnings: tuple[str, ...]
    versions: Mapping[str, str]
    schema_version: int = SCHEMA_VERSION
    stated: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise ValueError(
                f"mechanism={self.mechanism!r}: must be one of {', '.join(map(repr, MECHANISMS))}"
            )
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema_version={self.schema_version!r}: must be {SCHEMA_VERSION}")
        for name in ("assumptions", "warnings"):
            if isinstance(getattr(self, name), str):
                raise TypeError(f"{name}={getattr(self, name)!r}: must be a sequence of strings")
        stated = _statement_of(self.certificate) if self.stated is None else self.stated
        self._set(
            public_inputs=_freeze(_plain(self.public_inputs, "public_inputs")),
            assumptions=tuple(str(text) for text in self.assumptions),
            warnings=tuple(str(text) for text in self.warnings),
            versions=_freeze(dict(self.versions)),
            seeded=bool(self.seeded),
            stated=_freeze(stated),
        )

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        # Mapping proxies cannot be pickled; what is cached is not part of the content.
        return {
            field.name: getattr(self, field.name)
            if field.name == "certificate"
            else _thaw(getattr(self, field.name))
            for field in fields(self)
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set(**{name: _freeze(value) for name, value in state.items()})

    # --- the guarantee ---------------------------------------------------------------------

    @property
    def _guarantee(self) -> Mapping[str, Any]:
        assert self.stated is not None
        guarantee: Mapping[str, Any] = self.stated["guarantee"]
        return guarantee

    @property
    def epsilon(self) -> ProfileEnd:
        """Stated epsilon; called, the epsilon certified at a delta."""
        return ProfileEnd(self._guarantee["epsilon"], self.certificate.epsilon_at)

    @property
    def delta(self) -> ProfileEnd:
        """Stated delta; called, the delta certified at an epsilon."""
        return ProfileEnd(self._guarantee["delta"], self.certificate.delta_at)

    @property
    def adjacency(self) -> str:
        """Stated neighbouring relation."""
        return str(self._guarantee["adjacency"])

    @property
    def theorem(self) -> str:
        """Stated theorem."""
        return str(self._guarantee["theorem"])

    @property
    def n_problems(self) -> int:
        """Stated number of problems that the guarantee is the total of."""
        return int(self._guarantee["n_problems"])

    def verify(self) -> Verification:
        """Recompute the guarantee from the public inputs alone, and compare.

        Returns
        -------
        Verification
            True in a boolean context if everything holds; printed, it says which condition
            fails and what no verification can check.
        """
        from sklearn_dpop.privacy._verify import verify

        return verify(self)

    # --- for people -----------------------------------------------------------------------

    @cached_property
    def _verified(self) -> bool:
        # What is shown besides the stated numbers is computed from inputs that passed this.
        from sklearn_dpop.privacy._verify import verify

        return bool(verify(self, draw_again=False))

    @cached_property
    def _sharper_epsilon(self) -> float | None:
        from sklearn_dpop.privacy._report_text import sharper_epsilon

        return sharper_epsilon(self)

    @cached_property
    def _profile_points(self) -> tuple[tuple[float, float], ...]:
        from sklearn_dpop.privacy._report_text import profile_points

        return profile_points(self)

    def __repr__(self) -> str:
        return (
            f"PrivacyReport({self.estimator}, epsilon={float(self.epsilon)!r}, "
            f"delta={float(self.delta)!r}, {self.adjacency!r})"
        )

    def __str__(self) -> str:
        from sklearn_dpop.privacy._report_text import summary

        return summary(self)

    def _repr_html_(self) -> str:
        from sklearn_dpop.privacy._report_html import fragment

        return fragment(self)

    def to_html(self) -> str:
        """Return the report as a self-contained page, to keep or to print.

        Returns
        -------
        str
            HTML without scripts and without references to other resources.
        """
        from sklearn_dpop.privacy._report_html import page

        return page(self)

    def plot_profile(self, ax: Any = None) -> Any:
        """Plot the certified delta against epsilon, and mark the stated pair.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to plot; a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
            With a logarithmic delta axis.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If the report does not verify.
        """
        from sklearn_dpop.privacy._report_plot import plot_profile

        return plot_profile(self, ax)

    # --- as data --------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-able data, in a fixed order of keys.

        Returns
        -------
        dict
            A number that is not finite is written as ``"Infinity"``, ``"-Infinity"`` or
            ``"NaN"``.
        """
        stated = _numbers_to_json(self.stated)
        guarantee = stated.pop("guarantee")
        return {
            "schema": SCHEMA,
            "schema_version": self.schema_version,
            "mechanism": self.mechanism,
            "estimator": self.estimator,
            "guarantee": guarantee,
            "certificate": {
                "public_inputs": _numbers_to_json(self.certificate.public_inputs()),
                **stated,
            },
            "public_inputs": _thaw(self.public_inputs),
            "assumptions": list(self.assumptions),
            "noise_source": self.noise_source,
            "seeded": self.seeded,
            "warnings": list(self.warnings),
            "versions": _thaw(self.versions),
        }

    def to_json(self) -> str:
        """Return the report as JSON text (strict, ASCII, floats exact).

        Returns
        -------
        str
            :meth:`from_json` makes an equal report of it.
        """
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PrivacyReport:
        """Make the report from what :meth:`to_dict` returned.

        Parameters
        ----------
        data : mapping
            JSON-able data.

        Returns
        -------
        PrivacyReport
            It keeps the stated numbers as they are: see :meth:`verify`.

        Raises
        ------
        ValueError
            If the schema or its version is not this one, or a key is missing, unknown or of
            the wrong type.  The message names the key.
        """
        data = _thaw(data)
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema != SCHEMA:
            hint = (
                "; a total is read by CompositionReport"
                if schema == COMPOSITION_SCHEMA
                else "; this is no privacy report"
            )
            raise ValueError(f"schema={schema!r}: must be {SCHEMA!r}{hint}")
        version = data.get("schema_version")
        if isinstance(version, bool) or version != SCHEMA_VERSION:
            raise ValueError(
                f"schema_version={version!r}: must be {SCHEMA_VERSION}, the only version that "
                f"this package reads"
            )
        _object(data, "report", _TOP_LEVEL)
        name = _typed(data["mechanism"], "mechanism", str)
        if name not in MECHANISMS:
            raise ValueError(
                f"mechanism={name!r}: must be one of {', '.join(map(repr, MECHANISMS))}"
            )
        certificate = _object(data["certificate"], "certificate", _CERTIFICATE)
        path = "certificate.public_inputs"
        inputs = _typed(certificate["public_inputs"], path, MECHANISMS[name].input_types)
        try:
            made = MECHANISMS[name].make_certificate(inputs)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        contributions = _object(
            certificate["contributions"], "certificate.contributions", ("epsilon", "delta")
        )
        versions = _object(data["versions"], "versions")
        return cls(
            mechanism=name,
            estimator=_typed(data["estimator"], "estimator", str),
            certificate=made,
            public_inputs=_plain(_object(data["public_inputs"], "public_inputs"), "public_inputs"),
            assumptions=_strings(data["assumptions"], "assumptions"),
            noise_source=_typed(data["noise_source"], "noise_source", str),
            seeded=_typed(data["seeded"], "seeded", bool),
            warnings=_strings(data["warnings"], "warnings"),
            versions={key: _typed(x, f"versions.{key}", str) for key, x in versions.items()},
            schema_version=version,
            stated={
                "guarantee": _typed(data["guarantee"], "guarantee", _GUARANTEE),
                "intermediates": _numbers(
                    certificate["intermediates"], "certificate.intermediates"
                ),
                "contributions": {
                    key: _numbers(terms, f"certificate.contributions.{key}")
                    for key, terms in contributions.items()
                },
                "utility": _numbers(certificate["utility"], "certificate.utility"),
            },
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> PrivacyReport:
        """Make the report from what :meth:`to_json` returned.

        Parameters
        ----------
        text : str or bytes
            JSON, UTF-8 if bytes.  Not the name of a file: read it with
            ``Path("report.json").read_text()``.

        Returns
        -------
        PrivacyReport
            It keeps the stated numbers as they are: see :meth:`verify`.

        Raises
        ------
        ValueError
            If `text` is not strict JSON (duplicate keys, ``NaN`` and ``Infinity`` literals
            are refused) or not a report: see :meth:`from_dict`.
        TypeError
            If `text` is neither.
        """
        return read_json(text, cls.from_dict)


_TOP_LEVEL = (
    "schema",
    "schema_version",
    "mechanism",
    "estimator",
    "guarantee",
    "certificate",
    "public_inputs",
    "assumptions",
    "noise_source",
    "seeded",
    "warnings",
    "versions",
)
_CERTIFICATE = ("public_inputs", "intermediates", "contributions", "utility")
_GUARANTEE = {
    "epsilon": float,
    "delta": float,
    "adjacency": str,
    "theorem": str,
    "n_problems": int,
}


def _statement_of(certificate: Certificate) -> dict[str, Any]:
    """Return what a report states about `certificate`."""
    return {
        "guarantee": {
            "epsilon": certificate.epsilon,
            "delta": certificate.delta,
            "adjacency": certificate.adjacency,
            "theorem": certificate.theorem,
            # A mechanism without problems releases one.
            "n_problems": certificate.public_inputs().get("n_problems", 1),
        },
        "intermediates": dict(certificate.intermediates),
        "contributions": {key: dict(terms) for key, terms in certificate.contributions.items()},
        "utility": dict(certificate.utility),
    }
