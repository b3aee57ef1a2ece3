"""The total of several releases: composed from their reports, and verified with them."""

from __future__ import annotations

import json
import math
import numbers
import reprlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from sklearn_dpop.privacy._composition import (
    FloatArray,
    PrivacyLossDistribution,
    chords,
    compose_profile,
    compose_profiles,
)
from sklearn_dpop.privacy._report import (
    COMPOSITION_SCHEMA,
    Certificate,
    PrivacyReport,
    ProfileEnd,
    read_json,
)
from sklearn_dpop.privacy.accounting import CorrelatedNoiseCertificate

if TYPE_CHECKING:
    from sklearn_dpop.privacy._verify import Verification

__all__ = ["CompositionReport", "check_count", "check_pairs", "compose_reports", "sums_of"]

SCHEMA_VERSION = 1
_KEYS = (
    "schema", "schema_version", "epsilon", "delta", "fits", "counts", "others", "disjoint",
    "reports",
)  # fmt: skip

# Where the curve of a fit is evaluated, relative to its stated epsilon.  Between the points
# stands the chord; twice as many points change a total by less than 0.1%.
_POINTS = np.append(np.linspace(0.0, 2.5, 101), [3.0, 4.0, 6.0, 8.0])
# To verify that many takes minutes.
_MOST_REPORTS = 1000
# A total is stated with so many digits, rounded up, so that it reads well and the last bits of
# another machine do not matter.
_DIGITS = 6


@dataclass(frozen=True, repr=False)
class CompositionReport:
    """The total privacy guarantee of several releases from the same records.

    Made by :func:`compose_reports`.  It holds the report of every release, so that
    :meth:`verify` can check them and their total from the JSON alone.

    Attributes
    ----------
    reports : tuple of PrivacyReport
        The releases, equal ones once.
    counts : tuple of int or None
        How many releases each of `reports` stands for; None where `fits` is given.
    fits : int or None
        Most releases that a record takes part in, each with the guarantee of one of `reports`.
    others : mapping of str to (float, float)
        Other releases from the same records, of which only (epsilon, delta) is known.
    disjoint : mapping of str to (float, float)
        Releases from records that none of the above used.

    Notes
    -----
    ``total.epsilon`` and ``total.delta`` are the stated numbers.  Both can be called, like those
    of a :class:`PrivacyReport`: ``total.delta(eps)``, ``total.epsilon(delta)``.

    The theorem is that of composition by dominating pairs (Zhu, Dong and Wang, AISTATS 2022,
    Theorem 10), with pairs made from the certified curves; see :func:`compose_profiles`.  What
    is listed under `others` is added by basic composition.  A record that none of these used has
    the guarantee of one of `disjoint`, and the weaker one is stated.  A later fit may depend on
    what earlier ones released, but how many there are and which guarantees they have must not.
    """

    reports: tuple[PrivacyReport, ...]
    counts: tuple[int, ...] | None
    fits: int | None
    others: Mapping[str, tuple[float, float]]
    disjoint: Mapping[str, tuple[float, float]]
    stated_epsilon: float
    stated_delta: float

    def __post_init__(self) -> None:
        for name in ("others", "disjoint"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __reduce__(self) -> Any:  # a mapping proxy cannot be pickled
        return type(self).from_dict, (self.to_dict(),)

    @property
    def adjacency(self) -> str:
        """Neighbouring relation, that of every report."""
        return self.reports[0].adjacency

    @property
    def n_releases(self) -> int:
        """Number of composed releases of one record, without `others`."""
        return sum(self.counts) if self.fits is None else self.fits  # type: ignore[arg-type]

    @property
    def epsilon(self) -> ProfileEnd:
        """Stated total epsilon; called, the epsilon certified at a delta."""
        return ProfileEnd(self.stated_epsilon, self.epsilon_at)

    @property
    def delta(self) -> ProfileEnd:
        """Stated total delta; called, the delta certified at an epsilon."""
        return ProfileEnd(self.stated_delta, self.delta_at)

    @cached_property
    def _other(self) -> tuple[float, float]:
        """What is added to the composed fits, rounded up: `others`, and failing bounds."""
        sums = sums_of(self.others)
        if self.fits is not None:
            # Which of the plans are carried out may depend on earlier releases, so that no Monte
            # Carlo bound may fail; the curves charge for as many failures as there are fits.
            failures = [
                certificate.failure_probability
                for certificate in _distinct(self.reports)
                if isinstance(certificate, CorrelatedNoiseCertificate) and certificate.n_draws
            ]
            if len(failures) > self.fits:
                sums = sums[0], sums[1] + math.fsum(failures)
        epsilon, delta = (math.nextafter(x, math.inf) if x else 0.0 for x in sums)
        return epsilon, delta

    @cached_property
    def _composed(self) -> PrivacyLossDistribution:
        left = self.stated_delta - self._other[1]
        if self.fits is not None:
            return compose_profile(_largest(self.reports), self.fits, delta=left)
        assert self.counts is not None
        kinds = [_largest([report]) for report in self.reports]
        return compose_profiles(zip(kinds, self.counts, strict=True), delta=left)

    def delta_at(self, epsilon: float) -> float:
        """Return the total delta certified at `epsilon`.

        Parameters
        ----------
        epsilon : float
            Nonnegative.

        Returns
        -------
        float
            At most 1.
        """
        epsilon = float(epsilon)
        if not epsilon >= 0.0:
            raise ValueError(f"epsilon={epsilon!r}: must be a nonnegative number")
        others, lost = self._other
        # One step down, for the difference is rounded.
        left = math.nextafter(epsilon - others, -math.inf) if others else epsilon
        if left < 0.0 or any(epsilon < pair[0] for pair in self.disjoint.values()):
            return 1.0
        composed = (self._composed.delta(left) + lost) * (1.0 + 1e-15)
        return min(1.0, max(composed, *(pair[1] for pair in self.disjoint.values()), 0.0))

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest total epsilon certified at `delta`.

        Parameters
        ----------
        delta : float
            In (0, 1).

        Returns
        -------
        float
            ``inf`` where none is certified.
        """
        delta = float(delta)
        if not 0.0 < delta < 1.0:
            raise ValueError(f"delta={delta!r}: must be inside (0, 1)")
        others, lost = self._other
        left = math.nextafter(delta - lost, -math.inf) if lost else delta
        if left <= 0.0 or any(delta < pair[1] for pair in self.disjoint.values()):
            return math.inf
        found = self._composed.epsilon(left)
        if others:
            found = math.nextafter(found + others, math.inf)
        return max(found, *(pair[0] for pair in self.disjoint.values()), 0.0)

    def verify(self) -> Verification:
        """Verify every report, and compose them again.

        Returns
        -------
        Verification
            True in a boolean context if everything holds.
        """
        from sklearn_dpop.privacy._verify import verify_composition

        return verify_composition(self)

    # --- for people -----------------------------------------------------------------------

    @cached_property
    def _verified(self) -> bool:
        # What is shown besides the stated numbers is computed from reports that passed this.
        from sklearn_dpop.privacy._verify import verify_composition

        return bool(verify_composition(self, draw_again=False))

    def __repr__(self) -> str:
        return (
            f"CompositionReport({self.n_releases} releases, epsilon={self.stated_epsilon!r}, "
            f"delta={self.stated_delta!r}, {self.adjacency!r})"
        )

    def __str__(self) -> str:
        from sklearn_dpop.privacy._composition_text import summary

        return summary(self)

    def _repr_html_(self) -> str:
        from sklearn_dpop.privacy._composition_html import fragment

        return fragment(self)

    def to_html(self) -> str:
        """Return the total as a self-contained page, to keep or to print.

        Returns
        -------
        str
            HTML without scripts and without references to other resources.
        """
        from sklearn_dpop.privacy._composition_html import page

        return page(self)

    # --- as data --------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-able data.

        Returns
        -------
        dict
        """
        return {
            "schema": COMPOSITION_SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "epsilon": self.stated_epsilon,
            "delta": self.stated_delta,
            "fits": self.fits,
            "counts": None if self.counts is None else list(self.counts),
            "others": {name: list(pair) for name, pair in self.others.items()},
            "disjoint": {name: list(pair) for name, pair in self.disjoint.items()},
            "reports": [report.to_dict() for report in self.reports],
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
    def from_dict(cls, data: Mapping[str, Any]) -> CompositionReport:
        """Make the report from what :meth:`to_dict` returned.

        Parameters
        ----------
        data : mapping
            JSON-able data.

        Returns
        -------
        CompositionReport
            It keeps the stated numbers as they are: see :meth:`verify`.

        Raises
        ------
        ValueError
            If the data are not those of such a report.  The message names the key.
        """
        if not isinstance(data, Mapping) or data.get("schema") != COMPOSITION_SCHEMA:
            found = data.get("schema") if isinstance(data, Mapping) else None
            raise ValueError(f"schema={found!r}: must be {COMPOSITION_SCHEMA!r}")
        if set(data) != set(_KEYS):
            odd = sorted(set(data) ^ set(_KEYS))
            raise ValueError(f"{odd[0]}: missing or unknown key")
        version = data["schema_version"]
        if isinstance(version, bool) or version != SCHEMA_VERSION:
            raise ValueError(f"schema_version={version!r}: must be {SCHEMA_VERSION}")
        if not isinstance(data["reports"], list):
            raise ValueError("reports: must be an array")
        _check_number(data["reports"])
        reports = []
        for i, item in enumerate(data["reports"]):
            try:
                reports.append(PrivacyReport.from_dict(item))
            except ValueError as error:
                raise ValueError(f"reports[{i}]: {error}") from None
        fits, counts = data["fits"], data["counts"]
        if (fits is None) == (counts is None):
            raise ValueError("fits, counts: one must be null, the other not")
        if counts is not None:
            if not isinstance(counts, list) or len(counts) != len(reports):
                raise ValueError("counts: must be an array with one number for each of reports")
            counts = tuple(check_count(f"counts[{i}]", count) for i, count in enumerate(counts))
        if fits is not None:
            fits = check_count("fits", fits)
        _check_adjacency(reports)
        epsilon, delta = data["epsilon"], data["delta"]
        if not _is_number(epsilon) or not 0.0 <= epsilon <= sys.float_info.max:
            raise ValueError(f"epsilon={epsilon!r}: must be a nonnegative number")
        others = check_pairs("others", data["others"])
        disjoint = check_pairs("disjoint", data["disjoint"])
        _check_delta(delta, others, disjoint)
        return cls(tuple(reports), counts, fits, others, disjoint, float(epsilon), float(delta))

    @classmethod
    def from_json(cls, text: str | bytes) -> CompositionReport:
        """Make the report from what :meth:`to_json` returned.

        Parameters
        ----------
        text : str or bytes
            JSON, UTF-8 if bytes.

        Returns
        -------
        CompositionReport

        Raises
        ------
        ValueError
            If `text` is not strict JSON or not such a report.
        TypeError
            If `text` is neither.
        """
        return read_json(text, cls.from_dict)


def compose_reports(
    reports: PrivacyReport | Iterable[PrivacyReport],
    *,
    delta: float,
    fits: int | None = None,
    others: Mapping[str, tuple[float, float]] | None = None,
    disjoint: Mapping[str, tuple[float, float]] | None = None,
) -> CompositionReport:
    """Add up the privacy of several releases from the same records.

    Composes the certified curves, which gives far less than the sum of the epsilons.

    Parameters
    ----------
    reports : PrivacyReport or iterable of PrivacyReport
        ``privacy_report_`` of fitted models, or what their ``plan`` returned.  Each must verify,
        and all must have the same adjacency.
    delta : float
        Total delta to state, in (0, 1).  It must exceed the sum of the deltas in `others`, and
        should be at least about the sum of the deltas of the fits.
    fits : int, optional
        By default the reports are those of all releases.  With a number, a record takes part in
        at most so many fits, each of which has the guarantee of one of the reports, whichever:
        at every epsilon the worst of them is counted.  So for cross-validation, where a
        record is held out of some fits, and for a grid search, whose fits are known by their
        plans.  Under "add-remove", one record more must not move others from fold to fold.
    others : mapping of str to (epsilon, delta), optional
        What else was released from the same records, by name, and its guarantee, which is added
        as it stands: a choice of the winner by folds, for example.  It is your statement: no
        verification can check it.
    disjoint : mapping of str to (epsilon, delta), optional
        What was released from records that took part in none of the fits, nor in `others`: a
        choice of the winner by a part that was held out.  A record has one guarantee or the
        other, so the larger epsilon counts.  Your statement, too.

    Returns
    -------
    CompositionReport
        Its epsilon is rounded up.

    Raises
    ------
    TypeError
        If one of `reports` is not a privacy report (a fit with ``epsilon=inf`` has none).
    ValueError
        If there are none, or more than 1000 different ones; if one does not verify, or is of a
        seeded fit (noise that can be reproduced may have been used twice); if adjacencies
        differ; or if a number is out of range.

    Examples
    --------
    Seventeen fits with epsilon = 0.2 each: those of a search over four candidates that see
    a given record, for five folds and the final fit.

    >>> from sklearn_dpop import ObjPertGDLogisticRegression
    >>> from sklearn_dpop.privacy import compose_reports
    >>> model = ObjPertGDLogisticRegression(
    ...     epsilon=0.2, delta=1e-7, classes=[0, 1], calibration="tight", adjacency="zero-out")
    >>> plans = [model.plan(n_samples, n_features=30) for n_samples in (320, 400)]
    >>> total = compose_reports(plans, delta=5e-6, fits=17)
    >>> 0.95 < total.epsilon < 1.05
    True
    >>> bool(total.verify())
    True
    """
    found = [reports] if isinstance(reports, PrivacyReport) else list(reports)
    for i, report in enumerate(found):
        if not isinstance(report, PrivacyReport):
            raise TypeError(
                f"reports[{i}]={reprlib.repr(report)}: must be a PrivacyReport, such as "
                f"model.privacy_report_ or model.plan(...)"
            )
    kept: list[PrivacyReport] = []
    counts: list[int] = []
    for i, report in enumerate(found):
        if report in kept:
            counts[kept.index(report)] += 1
            continue
        if report.seeded:
            raise ValueError(
                f"reports[{i}]: random_state was given, so its noise can be reproduced, and may "
                f"be that of another fit; seeded fits have no total"
            )
        if not report._verified:
            raise ValueError(f"reports[{i}]: does not verify; report.verify() says why")
        kept.append(report)
        counts.append(1)
    _check_number(kept)
    _check_adjacency(found)
    others = check_pairs("others", {} if others is None else others)
    disjoint = check_pairs("disjoint", {} if disjoint is None else disjoint)
    _check_delta(delta, others, disjoint)
    if fits is not None:
        fits = check_count("fits", fits)
    listed = None if fits else tuple(counts)
    made = CompositionReport(tuple(kept), listed, fits, others, disjoint, math.inf, float(delta))
    epsilon = made.epsilon_at(delta)
    if math.isinf(epsilon):
        raise ValueError(
            f"delta={delta!r}: too small, no total epsilon is certified; the fits state "
            f"{' + '.join(sorted({repr(float(r.delta)) for r in kept}))}, each of them"
        )
    stated = replace(made, stated_epsilon=_rounded_up(epsilon))
    # What does not depend on the stated epsilon, and what has just been found.
    vars(stated).update(_composed=made._composed, _verified=True)
    return stated


def _distinct(reports: Iterable[PrivacyReport]) -> list[Certificate]:
    """Return the certificates; reports may differ in what no guarantee depends on."""
    certificates: list[Certificate] = []
    for report in reports:
        inputs = report.certificate.public_inputs()
        if all(inputs != other.public_inputs() for other in certificates):
            certificates.append(report.certificate)
    return certificates


def _largest(reports: Iterable[PrivacyReport]) -> Any:
    """Return the profile that is at every epsilon the largest of those of `reports`."""
    certificates = _distinct(reports)
    points: FloatArray = np.unique([_POINTS * max(c.epsilon, 1e-6) for c in certificates])
    return chords(points, np.max([c.deltas_at(points) for c in certificates], axis=0))


def _rounded_up(epsilon: float) -> float:
    from sklearn_dpop.privacy._report_text import number

    return float(number(epsilon, _DIGITS, up=True))


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def sums_of(pairs: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """Return the sums of the epsilons and of the deltas."""
    return math.fsum(e for e, _ in pairs.values()), math.fsum(d for _, d in pairs.values())


def check_count(name: str, value: Any) -> int:
    """Return a number of fits as an int."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value < 1e9:
        raise ValueError(f"{name}={value!r}: must be an integer from 1 to 1e9")
    return int(value)


def _check_number(reports: Sequence[Any]) -> None:
    if not 1 <= len(reports) <= _MOST_REPORTS:
        raise ValueError(
            f"reports: {len(reports)}; at least one is needed, and at most {_MOST_REPORTS} "
            f"different ones"
        )


def _check_adjacency(reports: Sequence[PrivacyReport]) -> None:
    for i, report in enumerate(reports):
        if report.adjacency != reports[0].adjacency:
            raise ValueError(
                f"reports[{i}]: its adjacency is {report.adjacency!r}, that of reports[0] is "
                f"{reports[0].adjacency!r}; guarantees for different neighbours have no total"
            )


def check_pairs(name: str, pairs: Any) -> dict[str, tuple[float, float]]:
    """Return a mapping of names to (epsilon, delta), as floats."""
    if not isinstance(pairs, Mapping):
        raise ValueError(f"{name}={pairs!r}: must be a mapping of names to (epsilon, delta)")
    found = {}
    for key, pair in pairs.items():
        ok = isinstance(pair, list | tuple) and len(pair) == 2 and all(map(_is_number, pair))
        # So large that any number of them have a sum.
        if not ok or not 0.0 <= pair[0] <= 1e300 or not 0.0 <= pair[1] < 1.0:
            raise ValueError(
                f"{name}[{key!r}]={pair!r}: must be (epsilon, delta), epsilon in [0, 1e300] and "
                f"delta in [0, 1)"
            )
        found[str(key)] = (float(pair[0]), float(pair[1]))
    return found


def _check_delta(
    delta: Any,
    others: Mapping[str, tuple[float, float]],
    disjoint: Mapping[str, tuple[float, float]],
) -> None:
    if not _is_number(delta) or not 0.0 < delta < 1.0:
        raise ValueError(f"delta={delta!r}: must be a number in (0, 1)")
    _, lost = sums_of(others)
    if not delta > lost * (1.0 + 1e-12):
        raise ValueError(f"delta={delta!r}: must exceed the deltas of others, {lost!r} together")
    for name, pair in disjoint.items():
        if delta < pair[1]:
            raise ValueError(f"delta={delta!r}: must be at least that of {name!r}, {pair[1]!r}")
