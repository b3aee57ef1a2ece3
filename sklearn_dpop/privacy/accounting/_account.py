"""Account for a noise multiplier, or find the smallest one for a target."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import brentq

from sklearn_dpop.factorization import Strategy
from sklearn_dpop.factorization._describe import strategy_to_dict
from sklearn_dpop.privacy._gaussian import gaussian_noise_multiplier
from sklearn_dpop.privacy.accounting._accountants import Accountant, Bound
from sklearn_dpop.privacy.accounting._adjacency import accountant_for
from sklearn_dpop.privacy.accounting._cache import default_cache
from sklearn_dpop.privacy.accounting._certificate import CorrelatedNoiseCertificate
from sklearn_dpop.privacy.accounting._monte_carlo import Pilot, pilot, stream_key
from sklearn_dpop.privacy.accounting._schedule import Schedule

__all__ = [
    "NoiseMultiplier",
    "account",
    "calibrate_noise_multiplier",
    "estimate_noise_multiplier",
]

METHODS = ("auto", "deterministic", "monte_carlo")

# Part of delta that pays for a Monte Carlo bound that is too small.
_FAILURE_SHARE = 1e-3
# A Monte Carlo bound is run if it promises a multiplier smaller than by this factor.
_WORTHWHILE = 0.995
# The number of draws grows until the bound is expected this close to delta.
_EXCESS = 0.06
_FEWEST_DRAWS = 1 << 18
_PILOT_DRAWS = 1 << 17
_FEW_DRAWS = 1 << 14
# The next attempt after one that failed: delta falls about as the 12th power of the multiplier.
_SLOPE = 1.0 / 12.0
_STEP_UP = 1.0005
# Digits of a multiplier: it is rounded up to them.
_DIGITS = 6


class NoiseMultiplier(float):
    """A noise multiplier that knows what it guarantees; behaves as a float.

    Attributes
    ----------
    certificate : CorrelatedNoiseCertificate
        The guarantee.
    """

    certificate: CorrelatedNoiseCertificate

    def __new__(cls, certificate: CorrelatedNoiseCertificate) -> NoiseMultiplier:
        number = super().__new__(cls, certificate.noise_multiplier)
        number.certificate = certificate
        return number

    def __reduce__(self) -> tuple[Any, ...]:
        return NoiseMultiplier, (self.certificate,)


def account(
    strategy: Strategy,
    schedule: Schedule,
    noise_multiplier: float,
    *,
    delta: float = 1e-5,
    adjacency: str = "zero-out",
    method: str = "auto",
    n_draws: int | None = None,
    verbose: bool = False,
) -> CorrelatedNoiseCertificate:
    r"""Certify the privacy of gradients released with correlated noise.

    Parameters
    ----------
    strategy : Strategy
        C, as it is: the noise of a step is a row of :math:`\kappa\, C^{-1} Z`.
    schedule : Schedule
        How records meet steps.
    noise_multiplier : float
        :math:`\kappa > 0`, standard deviation of Z per unit of clip norm.
    delta : float, default=1e-5
        In (0, 1); the certificate states epsilon at this delta, and Monte Carlo draws are
        aimed there.  ``delta_at`` and ``epsilon_at`` hold for other values too.
    adjacency : {"zero-out", "add-remove", "replace-one"}, default="zero-out"
        Neighbouring relation: the gradients of one record are replaced by zeros; the record is
        added or removed; it is replaced by another.  See the notes.
    method : {"auto", "deterministic", "monte_carlo"}, default="auto"
        Use the smaller of all bounds that apply, only those without draws, or draw in any
        case (the others still count where they are smaller).
    n_draws : int, default=None
        Draws of a Monte Carlo bound; None chooses.
    verbose : bool, default=False
        Show a progress bar of a Monte Carlo bound on standard error.

    Returns
    -------
    CorrelatedNoiseCertificate

    Raises
    ------
    ValueError
        If a parameter is out of range, or strategy, schedule, adjacency and method do not fit.

    Notes
    -----
    Replace-one is proven directly, with twice the sensitivity, where two neighbours can be
    given the same batches (``"cyclic"``, ``"without_replacement"``), and by composition of two
    zero-outs elsewhere; the certificate says so.

    A Monte Carlo bound holds up to a failure probability that is part of its delta.  Its random
    streams are determined by the public inputs: anyone can run it again.  Runs are kept in the
    user's cache folder (environment variable ``SKLEARN_DPOP_CACHE``).

    Examples
    --------
    >>> from sklearn_dpop.factorization import BIFR
    >>> from sklearn_dpop.privacy import Schedule, account
    >>> schedule = Schedule(5000, 125, epochs=10, sampling="cyclic")
    >>> certificate = account(BIFR(0.8, 4), schedule, 28.04)
    >>> round(certificate.epsilon, 3), certificate.delta, certificate.method
    (1.0, 1e-05, 'deterministic')
    """
    _check(strategy, schedule, method, n_draws)
    sigma = _real("noise_multiplier", noise_multiplier)
    delta = _probability("delta", delta)
    accountant, conversion = accountant_for(strategy, schedule, adjacency)
    _check_method(accountant, method)
    _warn_of_large_delta(delta, schedule)
    plain = CorrelatedNoiseCertificate(strategy, schedule, sigma, math.inf, delta, adjacency)
    if method != "monte_carlo":
        plain = replace(plain, epsilon=plain.epsilon_at(delta))
    if not _needs_monte_carlo(accountant, method) or plain.epsilon == 0.0:
        return plain
    limit = min(plain.epsilon, 100.0)
    search = _Search(accountant, n_draws)

    def excess(log_epsilon: float) -> float:
        outer = math.exp(log_epsilon)
        inner = conversion.inner_delta(delta, outer)
        return search.log_excess(sigma, conversion.inner_epsilon(outer), inner)

    found = _decreasing_root(excess, math.log(limit) - 8.0, math.log(limit))
    if found is None:
        if method == "monte_carlo":
            raise ValueError(
                f"noise_multiplier={sigma!r} is too small for a Monte Carlo bound at "
                f"delta={delta!r}."
            )
        return plain
    outer = math.exp(found)
    aim, inner = conversion.inner_epsilon(outer), conversion.inner_delta(delta, outer)
    made = replace(
        plain,
        aim=aim,
        n_draws=search.draws(sigma, aim, inner),
        failure_probability=_FAILURE_SHARE * inner,
    )
    made.run(cache=default_cache(), progress=_title(verbose))
    certified = made.epsilon_at(delta)
    if certified >= plain.epsilon and method == "auto":
        return plain
    return made.restated(certified)


def calibrate_noise_multiplier(
    epsilon: float,
    delta: float,
    strategy: Strategy,
    schedule: Schedule,
    *,
    adjacency: str = "zero-out",
    method: str = "auto",
    n_draws: int | None = None,
    verbose: bool = False,
) -> NoiseMultiplier:
    r"""Find the smallest noise multiplier whose certified delta is at most the target.

    Parameters
    ----------
    epsilon : float
        Positive and finite.
    delta : float
        In (0, 1), well below ``1 / n_samples``.
    strategy : Strategy
        C, as it is.
    schedule : Schedule
        How records meet steps.
    adjacency : {"zero-out", "add-remove", "replace-one"}, default="zero-out"
        Neighbouring relation, see :func:`account`.
    method : {"auto", "deterministic", "monte_carlo"}, default="auto"
        Bounds to use, see :func:`account`.
    n_draws : int, default=None
        Draws of a Monte Carlo bound; None chooses.  More draws give a slightly smaller
        multiplier.
    verbose : bool, default=False
        Show a progress bar of a Monte Carlo bound on standard error.

    Returns
    -------
    NoiseMultiplier
        A float, :math:`\kappa`: standard deviation of Z per unit of clip norm; its attribute
        ``certificate`` is the guarantee.

    Raises
    ------
    ValueError
        If a parameter is out of range, or strategy, schedule, adjacency and method do not fit.

    Notes
    -----
    With Monte Carlo, a multiplier is searched on one random stream and verified on another,
    independent one.  If the verification fails, a larger one is tried on a new stream, with half
    the failure probability; all of them together are part of delta.

    Examples
    --------
    >>> from sklearn_dpop.factorization import BIFR, Identity
    >>> from sklearn_dpop.privacy import Schedule, calibrate_noise_multiplier
    >>> schedule = Schedule(5000, 125, epochs=10, sampling="cyclic")
    >>> kappa = calibrate_noise_multiplier(1.0, 1e-5, Identity(), schedule)
    >>> round(kappa, 4), kappa.certificate.delta_at(1.0) <= 1e-5
    (11.7973, True)
    """
    _check(strategy, schedule, method, n_draws)
    epsilon = _real("epsilon", epsilon)
    delta = _probability("delta", delta)
    accountant, conversion = accountant_for(strategy, schedule, adjacency)
    _check_method(accountant, method)
    _warn_of_large_delta(delta, schedule)
    aim, inner = conversion.inner_epsilon(epsilon), conversion.inner_delta(delta, epsilon)
    limit = math.inf
    if method != "monte_carlo":
        bounds = accountant.bounds
        if method == "deterministic":
            bounds += accountant.slow_bounds
        limit = _deterministic_multiplier(bounds, accountant, aim, inner)
    plain = CorrelatedNoiseCertificate(strategy, schedule, limit, epsilon, delta, adjacency)
    if not _needs_monte_carlo(accountant, method):
        return NoiseMultiplier(plain)
    search = _Search(accountant, n_draws)
    sigma = search.multiplier(aim, inner, limit)
    if math.isinf(sigma):  # draws that few cannot beat the deterministic bound
        if method == "monte_carlo":
            raise ValueError(f"n_draws={n_draws!r} must be larger to certify delta={delta!r}.")
        return NoiseMultiplier(plain)
    made = replace(
        plain,
        noise_multiplier=sigma,
        aim=aim,
        n_draws=search.draws(sigma, aim, inner),
        failure_probability=_FAILURE_SHARE * inner,
    )
    while made.noise_multiplier < _WORTHWHILE * limit:
        made.run(cache=default_cache(), progress=_title(verbose))
        if made.delta_at(epsilon) <= delta:
            return NoiseMultiplier(made)
        # Where the new stream would probably agree; it is independent of what was seen.
        factor = (made.delta_at(epsilon) / delta) ** _SLOPE * _STEP_UP
        larger = _rounded_up(factor * made.noise_multiplier)
        made = replace(made, noise_multiplier=larger, attempt=made.attempt + 1)
    return NoiseMultiplier(plain)


def estimate_noise_multiplier(
    epsilon: float,
    delta: float,
    strategy: Strategy,
    schedule: Schedule,
    *,
    adjacency: str = "zero-out",
) -> float:
    """Estimate the noise multiplier of a target quickly, without any guarantee.

    To compare strategies before one of them is calibrated: a second where
    :func:`calibrate_noise_multiplier` may take a minute, and usually within 2% of it.

    Parameters
    ----------
    epsilon, delta, strategy, schedule, adjacency
        See :func:`calibrate_noise_multiplier`.

    Returns
    -------
    float
        Not certified: do not release anything with it.

    Examples
    --------
    >>> from sklearn_dpop.factorization import LambdaCGD
    >>> from sklearn_dpop.privacy import Schedule, estimate_noise_multiplier
    >>> kappa = estimate_noise_multiplier(1.0, 1e-5, LambdaCGD(0.5), Schedule(5000, 125, 10))
    >>> 4.3 < kappa < 4.5
    True
    """
    _check(strategy, schedule, "auto", None)
    epsilon = _real("epsilon", epsilon)
    delta = _probability("delta", delta)
    accountant, conversion = accountant_for(strategy, schedule, adjacency)
    aim, inner = conversion.inner_epsilon(epsilon), conversion.inner_delta(delta, epsilon)
    if not _needs_monte_carlo(accountant, "auto"):
        return _deterministic_multiplier(accountant.bounds, accountant, aim, inner)
    limit = _deterministic_multiplier(accountant.quick_bounds, accountant, aim, inner)
    return min(limit, _Search(accountant, None).estimate(aim, inner))


# --- search ------------------------------------------------------------------------------------


class _Search:
    """Predicts Monte Carlo bounds from a stream on which nothing is certified."""

    def __init__(self, accountant: Accountant, n_draws: int | None) -> None:
        self._accountant = accountant
        self._n_draws = n_draws
        self._key = stream_key(
            {
                "schedule": accountant.schedule.to_dict(),
                "factor": accountant.factor,
            },
            "search",  # the same for all strategies, so that their estimates compare well
        )

    def _pilots(self, sigma: float, aim: float, n_draws: int) -> list[Pilot]:
        return [
            pilot(
                self._accountant.summand(direction, sigma, aim),
                np.array([aim]),
                self._key,
                min(n_draws, self._accountant.max_draws // 16),
            )
            for direction in self._accountant.directions
        ]

    def _failure(self, inner: float) -> float:
        """Beta of the point that is aimed at, in the first attempt."""
        return 0.25 * _FAILURE_SHARE * inner / len(self._accountant.directions)

    def log_excess(
        self, sigma: float, aim: float, inner: float, n_pilot: int = _FEW_DRAWS
    ) -> float:
        """Return about the log of bound / delta, both at `aim`."""
        n_draws = self._n_draws or self._accountant.max_draws
        pilots = self._pilots(sigma, aim, n_pilot)
        predicted = max(
            float(found.predicted(n_draws, self._failure(inner))[0]) for found in pilots
        )
        return math.log(predicted) - math.log(inner * (1.0 - _FAILURE_SHARE))

    def draws(self, sigma: float, aim: float, inner: float) -> int:
        """Return the number of draws after which more would hardly help."""
        if self._n_draws is not None:
            return self._n_draws
        most = self._accountant.max_draws
        pilots = self._pilots(sigma, aim, _FEW_DRAWS)
        least = max(float(found.mean[0]) for found in pilots) + _EXCESS * inner
        n_draws = min(_FEWEST_DRAWS, most)
        while n_draws < most:
            predicted = [found.predicted(n_draws, self._failure(inner))[0] for found in pilots]
            if max(predicted) <= least:
                break
            n_draws *= 2
        return min(n_draws, most)

    def multiplier(self, aim: float, inner: float, limit: float) -> float:
        """Return a multiplier at which the bound will probably be at most `inner`.

        Infinity if it is larger than `limit`.
        """
        plain = self._accountant.largest_shift * gaussian_noise_multiplier(aim, inner)
        limit = min(limit, 10.0 * plain)
        sigma = self._solve(aim, inner, _FEW_DRAWS, 0.3 * plain, 0.3, limit)
        if math.isinf(sigma):
            return sigma
        if self._n_draws is None:
            self._n_draws = self.draws(sigma, aim, inner)
        found = self._solve(aim, inner, _PILOT_DRAWS, sigma, 0.02, limit)
        return found if math.isinf(found) else _rounded_up(found)

    def estimate(self, aim: float, inner: float) -> float:
        """Return about the multiplier at which the divergence is `inner`."""
        self._n_draws = 10**12  # what an endless run would certify
        start = 0.3 * self._accountant.largest_shift * gaussian_noise_multiplier(aim, inner)
        x, value = math.log(start), self.log_excess(start, aim, inner)
        slope = -1.0 / _SLOPE
        for _ in range(12):
            step = min(max(-value / slope, -0.5), 0.5)
            x += step
            if abs(step) < 1e-3:
                break
            before, value = value, self.log_excess(math.exp(x), aim, inner)
            slope = min(max((value - before) / step, -40.0), -3.0)
        return math.exp(x)

    def _solve(
        self,
        aim: float,
        inner: float,
        n_pilot: int,
        start: float,
        step: float,
        limit: float,
    ) -> float:
        def excess(log_sigma: float) -> float:
            return self.log_excess(math.exp(log_sigma), aim, inner, n_pilot)

        x, value = math.log(start), excess(math.log(start))
        sign = 1.0 if value > 0.0 else -1.0
        while True:
            following = x + sign * step
            found = excess(following)
            if (found > 0.0) != (value > 0.0):
                break
            if found > 0.0 and math.exp(following) > limit:
                return math.inf
            x, value = following, found
        low, high = sorted((x, following))
        return math.exp(float(brentq(excess, low, high, xtol=2e-4)))


def _deterministic_multiplier(
    bounds: tuple[Bound, ...], accountant: Accountant, epsilon: float, delta: float
) -> float:
    """Return the smallest multiplier, rounded up, that needs no Monte Carlo."""
    where, best = np.array([epsilon]), math.inf
    for bound in bounds:

        def excess(log_sigma: float, bound: Bound = bound) -> float:
            found = float(bound.deltas(math.exp(log_sigma), where)[0])
            return math.log(max(found, 1e-300)) - math.log(delta)

        if math.isfinite(best) and excess(math.log(best)) > 0.0:
            continue  # an earlier bound is better
        high = math.log(
            min(best, accountant.largest_shift * gaussian_noise_multiplier(epsilon, delta))
        )
        while excess(high) > 0.0:
            high += 0.5
        low = high - 0.5
        while excess(low) <= 0.0:
            low, high = low - 0.5, low
        sigma = math.exp(float(brentq(excess, low, high, xtol=1e-12, rtol=1e-14)))
        while float(bound.deltas(sigma, where)[0]) > delta:
            sigma *= 1.0 + 1e-12
        best = min(best, sigma)
    return best


def _decreasing_root(function: Callable[[float], float], low: float, high: float) -> float | None:
    """Return a root of a decreasing function, None if it is positive at the end."""
    if function(high) > 0.0:
        return None
    if function(low) <= 0.0:
        return low
    return float(brentq(function, low, high, xtol=1e-3))


def _rounded_up(value: float) -> float:
    """Return `value` with few digits, not smaller."""
    unit = 10.0 ** (math.floor(math.log10(value)) - _DIGITS + 1)
    return float(f"{math.ceil(value / unit) * unit:.{_DIGITS}g}")


# --- checks ------------------------------------------------------------------------------------


def _check(strategy: Any, schedule: Any, method: Any, n_draws: Any) -> None:
    if not isinstance(strategy, Strategy):
        raise ValueError(
            f"strategy={strategy!r} must be a strategy of sklearn_dpop.factorization."
        )
    if not isinstance(schedule, Schedule):
        raise ValueError(f"schedule={schedule!r} must be a Schedule.")
    strategy_to_dict(strategy)  # refuses classes that a report could not name
    if strategy.n_steps is not None and strategy.n_steps != schedule.n_steps:
        raise ValueError(
            f"strategy={strategy!r} was made for {strategy.n_steps} steps; schedule has "
            f"{schedule.n_steps}."
        )
    if getattr(strategy, "is_optimized", True) is False:
        raise ValueError(
            f"strategy={strategy!r} must be optimized first: strategy.optimize(workload, ...)."
        )
    if method not in METHODS:
        raise ValueError(f"method={method!r} must be one of {', '.join(map(repr, METHODS))}.")
    if n_draws is None:
        return
    if not isinstance(n_draws, numbers.Integral) or isinstance(n_draws, bool) or n_draws < 1:
        raise ValueError(f"n_draws={n_draws!r} must be None or an integer of at least 1.")


def _needs_monte_carlo(accountant: Accountant, method: str) -> bool:
    if method == "auto":
        return bool(accountant.directions) and not accountant.is_sharp
    return method == "monte_carlo"


def _check_method(accountant: Accountant, method: str) -> None:
    if method == "monte_carlo" and not accountant.directions:
        raise ValueError(
            f"method='monte_carlo' does not fit sampling={accountant.schedule.sampling!r} with "
            f"strategy={accountant.strategy!r}, whose bound is deterministic."
        )


def _real(name: str, value: Any) -> float:
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise ValueError(f"{name}={value!r} must be a positive finite number.")
    number = float(value)
    if not 0.0 < number < math.inf:
        raise ValueError(f"{name}={value!r} must be a positive finite number.")
    return number


def _probability(name: str, value: Any) -> float:
    number = _real(name, value)
    if number >= 1.0:
        raise ValueError(f"{name}={value!r} must be in (0, 1).")
    return number


def _warn_of_large_delta(delta: float, schedule: Schedule) -> None:
    if delta * schedule.n_samples >= 1.0:
        warnings.warn(
            f"delta={delta!r} is at least 1 / n_samples = {1.0 / schedule.n_samples:.3g}: "
            f"publishing one record in full, drawn at random, would satisfy it too.",
            UserWarning,
            stacklevel=3,
        )


def _title(verbose: bool) -> str | None:
    return "Monte Carlo bound" if verbose else None
