r"""From a privacy budget to :math:`\mu, \sigma, N, \eta`: pure functions of public numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from sklearn_dpop.privacy._bounds import (
    best_radius,
    limit_log_delta,
    limit_noise_multiplier,
    sharpest_bound,
    smallest_certified,
)
from sklearn_dpop.privacy._certificate import CALIBRATIONS, ObjectivePerturbationCertificate
from sklearn_dpop.privacy._composition import compose_profile
from sklearn_dpop.privacy._gaussian import chi_radius, gaussian_noise_multiplier
from sklearn_dpop.privacy._loss_constants import LossConstants, softplus_constants
from sklearn_dpop.privacy._objective_perturbation import (
    ADJACENCIES,
    PerturbedGradientDescent,
    c_n,
    threshold_7,
)

__all__ = ["calibrate_objective_perturbation"]

# An automatic N is the smallest whose noise is within 1% of the limit of many iterations.
_LIMIT_SLACK = 1.01
# Part of epsilon kept for the finite-iteration corrections when mu is chosen.
_EPSILON_KEPT = 0.99
# Part of delta given to truncation when several problems share one radius.
_TRUNCATION_SHARE = 0.01
_MAX_ITER = 2**60
# Logarithm of a cost above all others, finite for the minimizer's arithmetic.
_HOPELESS = 1e3


@dataclass(frozen=True)
class _Request:
    """The validated public numbers of one calibration."""

    n_samples: int
    n_features: int
    epsilon: float | None
    delta: float
    data_norm: float
    comparator_norm: float
    failure_probability: float
    calibration: str
    loss: LossConstants
    adjacency: str
    n_problems: int
    mu: float | None
    sigma: float | None
    n_iter: int | None
    eta: float | None

    def release(self, mu: float, sigma: float, n_iter: int = 1) -> PerturbedGradientDescent:
        smoothness = mu + self.loss.L2 * self.data_norm**2
        # eta L <= 1 is a condition of every theorem, so 1/L is rounded down.
        eta = (1.0 - 2.0**-51) / smoothness if self.eta is None else self.eta
        if eta * smoothness > 1.0 or eta * mu >= 1.0:
            raise ValueError(
                f"eta={eta!r}: must be at most 1/L = {1.0 / smoothness!r} for mu={mu!r} "
                f"(L = mu + L2 data_norm^2)"
            )
        return PerturbedGradientDescent(
            n_samples=self.n_samples,
            n_features=self.n_features,
            data_norm=self.data_norm,
            loss=self.loss,
            adjacency=self.adjacency,
            mu=mu,
            sigma=sigma,
            n_iter=n_iter,
            eta=eta,
        )

    def release_at_unit_mu(self) -> PerturbedGradientDescent:
        """Return a release for the constants that do not depend on mu, sigma, N or eta."""
        return replace(self, eta=0.5 / (1.0 + self.loss.L2 * self.data_norm**2)).release(1.0, 1.0)

    def certificate(
        self,
        release: PerturbedGradientDescent,
        *,
        u: float | None = None,
        r: float | None = None,
        epsilon: float | None = None,
    ) -> ObjectivePerturbationCertificate:
        stated = self.epsilon if epsilon is None else epsilon
        return ObjectivePerturbationCertificate(
            release=release,
            epsilon=math.nan if stated is None else stated,
            delta=self.delta,
            calibration=self.calibration,
            comparator_norm=self.comparator_norm,
            failure_probability=self.failure_probability,
            n_problems=self.n_problems,
            u=u,
            r=r,
        )


def calibrate_objective_perturbation(
    n_samples: int,
    n_features: int,
    epsilon: float | None,
    delta: float,
    *,
    data_norm: float = 1.0,
    comparator_norm: float = 10.0,
    failure_probability: float = 0.05,
    calibration: str = "corollary",
    mu: float | None = None,
    sigma: float | None = None,
    n_iter: int | str | None = None,
    eta: float | None = None,
    adjacency: str = "replace-one",
    loss: LossConstants | None = None,
    n_problems: int = 1,
) -> ObjectivePerturbationCertificate:
    r"""Choose :math:`\mu, \sigma, N, \eta` for a privacy budget and certify them.

    A pure function of public numbers: it sees no record and costs no privacy.

    Parameters
    ----------
    n_samples : int
        Number of records ``n >= 1`` (public under both adjacencies).
    n_features : int
        Dimension ``d >= 1`` of the released vector, intercept included.
    epsilon : float or None
        Total privacy budget, positive; at most 1 for ``calibration="corollary"``.  None
        asks for the epsilon that a given `sigma` certifies.
    delta : float
        Total, inside ``(0, 1)``.
    data_norm : float, default=1.0
        Bound :math:`\zeta > 0` on the norm of every feature vector, intercept included.
    comparator_norm : float, default=10.0
        Public radius :math:`W > 0` of the coefficient vectors to compete with; it only
        steers :math:`\mu`.
    failure_probability : float, default=0.05
        :math:`\delta_S \in (0, 1)` of the utility bounds.
    calibration : {"corollary", "tight"}, default="corollary"
        ``"corollary"``: Corollary 4.13 exactly, with the smallest N that satisfies both
        of its conditions.  ``"tight"``: Theorem C.13 evaluated numerically, with the
        one-sided divergence where the loss allows it (softplus losses do): any epsilon,
        several times less noise.
    mu, sigma, n_iter, eta : float, float, int, float, optional
        Fix a parameter instead of having it chosen.  ``n_iter`` None or ``"auto"``: the
        smallest N whose noise is within 1% of the limit of many iterations (tight), or
        the smallest certified N when `sigma` is fixed.  ``eta`` None: :math:`1/L`,
        :math:`L = \mu + L_2\zeta^2`.
    adjacency : {"replace-one", "zero-out"}, default="replace-one"
        Neighbouring relation.
    loss : LossConstants, optional
        Constants of the loss; by default the logistic loss.
    n_problems : int, default=1
        Releases with independent noise on the same records; (epsilon, delta) is their total.

    Returns
    -------
    ObjectivePerturbationCertificate
        Immutable; ``mu``, ``sigma``, ``n_iter``, ``eta``, every intermediate constant,
        ``delta_at(epsilon)`` and ``epsilon_at(delta)``.

    Raises
    ------
    ValueError
        For a parameter outside its range, and when no theorem certifies the request.

    Examples
    --------
    >>> tight = calibrate_objective_perturbation(
    ...     10_000, 20, epsilon=1.0, delta=1e-5, calibration="tight")
    >>> corollary = calibrate_objective_perturbation(10_000, 20, epsilon=1.0, delta=1e-5)
    >>> round(tight.noise_multiplier, 2), round(corollary.noise_multiplier, 2)
    (3.77, 19.76)
    >>> tight.delta_at(1.0) <= 1e-5
    True
    """
    request = _validated(
        n_samples=n_samples,
        n_features=n_features,
        epsilon=epsilon,
        delta=delta,
        data_norm=data_norm,
        comparator_norm=comparator_norm,
        failure_probability=failure_probability,
        calibration=calibration,
        mu=mu,
        sigma=sigma,
        n_iter=n_iter,
        eta=eta,
        adjacency=adjacency,
        loss=softplus_constants("logistic", 0.0, 1.0) if loss is None else loss,
        n_problems=n_problems,
    )
    try:
        return _calibrate(request)
    except (OverflowError, ZeroDivisionError):
        raise ValueError(
            "the public numbers are too large or too small for the formulas: check data_norm, "
            "comparator_norm, mu, sigma and the constants of the loss"
        ) from None


@lru_cache(maxsize=256)
def _calibrate(request: _Request) -> ObjectivePerturbationCertificate:
    calibrate = _corollary if request.calibration == "corollary" else _tight
    certificate = calibrate(request)
    if request.epsilon is not None:
        certified = certificate.delta_at(request.epsilon)
        if certified > request.delta * (1.0 + 1e-12):
            raise ValueError(_refusal(request, certificate))
        return certificate
    epsilon = certificate.epsilon_at(request.delta)
    if not math.isfinite(epsilon):
        raise ValueError(_refusal(request, certificate))
    return replace(certificate, epsilon=epsilon)


def _refusal(request: _Request, certificate: ObjectivePerturbationCertificate) -> str:
    given = ", ".join(
        f"{name}={value!r}"
        for name in ("mu", "sigma", "n_iter", "eta")
        if (value := getattr(request, name)) is not None
    )
    epsilon = certificate.epsilon_at(request.delta)
    found = (
        f"they certify epsilon={epsilon:.6g}"
        if math.isfinite(epsilon)
        else "its conditions fail for them (more iterations, more regularization or more noise "
        "are needed)"
    )
    return (
        f"{certificate.theorem} does not certify epsilon={request.epsilon!r} at "
        f"delta={request.delta!r} with {given or 'these public numbers'}: {found}"
    )


# --- Corollary 4.13 ---------------------------------------------------------------------------


def _corollary(request: _Request) -> ObjectivePerturbationCertificate:
    if request.epsilon is None:
        if request.sigma is None or request.mu is None:
            raise ValueError(
                "epsilon=None: calibration='corollary' then needs both sigma and mu; "
                "calibration='tight' needs sigma alone"
            )
        return _corollary_single(request, 1.0, request.delta / request.n_problems)
    if request.n_problems == 1:
        return _corollary_single(request, request.epsilon, request.delta)

    single_delta = request.delta / request.n_problems

    def certified(inverse_epsilon: float) -> bool:
        single = _corollary_single(request, 1.0 / inverse_epsilon, single_delta)
        return single.delta_at(request.epsilon or 0.0) <= request.delta

    # The largest epsilon of one problem, as the smallest certified inverse.
    inverse = _bisect(certified, 1.0 / request.epsilon, request.n_problems / request.epsilon)
    return _corollary_single(request, 1.0 / inverse, single_delta)


def _corollary_single(
    request: _Request, epsilon: float, delta: float
) -> ObjectivePerturbationCertificate:
    """Return Corollary 4.13's choice for one problem at (epsilon, delta)."""
    u = math.sqrt(2.0 * math.log(2.0 / delta))
    probe = request.release_at_unit_mu()
    sigma = 4.0 * probe.G * u / epsilon if request.sigma is None else request.sigma
    mu = request.mu
    if mu is None:
        log_term = 32.0 + math.log(1.0 / request.failure_probability)
        a = request.n_features * sigma**2 + (
            16.0 * probe.gradient_bound**2 * log_term / request.n_samples
        )
        mu_priv = (
            request.loss.L2
            * request.data_norm**2
            / (request.n_samples * math.expm1(0.25 * epsilon))
        )
        mu = max(math.sqrt(2.0 * a) / request.comparator_norm, mu_priv)
    release = request.release(mu, sigma)
    if request.n_iter is None:
        # The smallest integer that meets (7) and c_N <= epsilon / 4; c_N falls with N
        # over the range that (7) covers.
        low = max(1, math.ceil(threshold_7(release, u)))
        n_iter = _smallest_integer(
            lambda n: c_n(replace(release, n_iter=n)) <= 0.25 * epsilon, low
        )
    else:
        n_iter = request.n_iter
    return request.certificate(replace(release, n_iter=n_iter), u=u)


# --- Theorem C.13 -----------------------------------------------------------------------------


def _tight(request: _Request) -> ObjectivePerturbationCertificate:
    if request.epsilon is None:
        return _tight_given_noise(request)
    mu = _choose_mu(request) if request.mu is None else request.mu
    certified = _certifier(request, mu)
    if request.sigma is not None:
        sigma = request.sigma
        if request.n_iter is None and not certified(sigma, _MAX_ITER):
            raise ValueError(
                f"sigma={sigma!r}: too little noise; with mu={mu!r} no number of iterations "
                f"certifies epsilon={request.epsilon!r} at delta={request.delta!r}"
            )
        n_iter = request.n_iter or _smallest_integer(lambda n: certified(sigma, n), 1)
    elif request.n_iter is not None:
        n_iter = request.n_iter
        limit = _limit_sigma(request, mu)
        found = smallest_certified(lambda s: certified(s, n_iter), limit, limit=1e6)
        if found is None:
            raise ValueError(
                f"n_iter={n_iter}: too few iterations for mu={mu!r}; no noise certifies "
                f"epsilon={request.epsilon!r} at delta={request.delta!r}"
            )
        sigma = found
    else:
        limit = _limit_sigma(request, mu)
        n_iter = _smallest_integer(lambda n: certified(_LIMIT_SLACK * limit, n), 1)
        # Bisection ends on a certified value, so rounding is upward.
        sigma = _bisect(lambda s: certified(s, n_iter), limit, _LIMIT_SLACK * limit)
    return request.certificate(
        request.release(mu, sigma, n_iter), r=_radius(request, mu, sigma, n_iter)
    )


def _tight_given_noise(request: _Request) -> ObjectivePerturbationCertificate:
    """Return the certificate of a fixed sigma; its epsilon is still to be stated."""
    sigma = request.sigma
    if sigma is None:
        raise ValueError("epsilon=None: sigma must be given, to certify the epsilon it gives")
    mu = request.mu
    if mu is None:
        mu = sigma * math.sqrt(request.n_features) / request.comparator_norm
    n_iter = request.n_iter
    if n_iter is None:
        long_run = _epsilon_of(request, mu, sigma, _MAX_ITER)
        if not math.isfinite(long_run):
            raise ValueError(
                f"sigma={sigma!r}: too little noise or regularization (mu={mu!r}); no epsilon is "
                f"certified at delta={request.delta!r}"
            )
        certified = _certifier(replace(request, epsilon=_LIMIT_SLACK * long_run), mu)
        n_iter = _smallest_integer(lambda n: certified(sigma, n), 1)
    epsilon = _epsilon_of(request, mu, sigma, n_iter)
    stated = replace(request, epsilon=epsilon if math.isfinite(epsilon) else None)
    return stated.certificate(
        stated.release(mu, sigma, n_iter), r=_radius(stated, mu, sigma, n_iter)
    )


def _epsilon_of(request: _Request, mu: float, sigma: float, n_iter: int) -> float:
    probe = request.certificate(
        request.release(mu, sigma, n_iter),
        r=_shared_radius(request, sigma),
        epsilon=1.0,
    )
    return probe.epsilon_at(request.delta)


def _shared_radius(request: _Request, sigma: float) -> float:
    """Return the one radius that all problems use when their profiles are composed."""
    share = math.log(_TRUNCATION_SHARE * request.delta / request.n_problems)
    return sigma * chi_radius(share, request.release_at_unit_mu().d_star)


def _radius(request: _Request, mu: float, sigma: float, n_iter: int) -> float:
    if request.n_problems > 1 or request.epsilon is None:
        return _shared_radius(request, sigma)
    release = request.release(mu, sigma, n_iter)
    _, finite = best_radius(
        release,
        request.epsilon,
        sharpest_bound(request.loss),
        log_delta=math.log(request.delta),
    )
    return _shared_radius(request, sigma) if finite is None else finite.r


def _certifier(request: _Request, mu: float) -> Callable[[float, int], bool]:
    """Return the predicate that tells whether (sigma, N) certify the requested pair."""
    bound = sharpest_bound(request.loss)
    assert request.epsilon is not None
    epsilon, log_delta = request.epsilon, math.log(request.delta) - 2e-11

    if request.n_problems == 1:

        def certified(sigma: float, n_iter: int) -> bool:
            release = request.release(mu, sigma, n_iter)
            if best_radius(release, epsilon, bound, log_delta=log_delta)[0] <= log_delta:
                return True
            # Below its formulas' range the profile is still bounded, by convexity.
            if epsilon > 5.0 * release.tau_0 + 1.0 / release.noise_multiplier:
                return False
            probe = request.certificate(release, r=_shared_radius(request, sigma))
            return probe.delta_at(epsilon) <= request.delta

    else:

        def certified(sigma: float, n_iter: int) -> bool:
            certificate = request.certificate(
                request.release(mu, sigma, n_iter), r=_shared_radius(request, sigma)
            )
            return certificate.delta_at(epsilon) <= request.delta

    return certified


def _limit_sigma(request: _Request, mu: float) -> float:
    """Return the smallest sigma that infinitely many iterations would allow."""
    assert request.epsilon is not None
    release = request.release(mu, 1.0)
    found = _limit_multiplier(request, release.curvature, request.epsilon, rtol=1e-12)
    if found is None:
        raise ValueError(
            f"mu={mu!r}: too little regularization for epsilon={request.epsilon!r}; the "
            f"log-determinant term log(1 + Delta_H/(2 n mu)) = {release.tau_0:.6g} must stay "
            f"below epsilon"
        )
    return found * release.G


def _limit_multiplier(
    request: _Request, curvature: float, epsilon: float, *, rtol: float
) -> float | None:
    """Return the smallest sigma/G of every problem in the limit of many iterations."""
    bound, adjacency = sharpest_bound(request.loss), request.adjacency
    if request.n_problems == 1:
        return limit_noise_multiplier(
            epsilon,
            request.delta,
            curvature=curvature,
            adjacency=adjacency,
            bound=bound,
            rtol=rtol,
        )
    truncation = math.log(_TRUNCATION_SHARE * request.delta / request.n_problems)
    tau_0 = math.log1p(0.25 * curvature)

    def certified(multiplier: float) -> bool:
        def log_delta(eps: NDArray[np.float64]) -> NDArray[np.float64]:
            divergence = limit_log_delta(
                eps,
                noise_multiplier=multiplier,
                curvature=curvature,
                adjacency=adjacency,
                bound=bound,
            )
            return np.minimum(np.logaddexp(divergence, truncation), 0.0)

        start = tau_0 if bound == "one-sided" else tau_0 + 0.5 / multiplier**2
        composed = compose_profile(
            log_delta,
            request.n_problems,
            eps_min=start * (1.0 + 1e-12),
            delta=request.delta,
        )
        return composed.delta(epsilon) <= request.delta

    gaussian = gaussian_noise_multiplier(epsilon, request.delta)
    return smallest_certified(certified, gaussian * math.sqrt(request.n_problems), rtol=rtol)


def _choose_mu(request: _Request) -> float:
    r"""Minimize the public utility bound :math:`d\sigma(\mu)^2/(2\mu) + \mu W^2/2`.

    sigma is the fixed one, or the limit of many iterations at slightly less than epsilon,
    so that a finite N can meet the conditions that hold at the chosen mu.  A fixed N raises
    mu to the smallest that N iterations can certify with 1% more noise than the limit.
    """
    assert request.epsilon is not None
    epsilon = _EPSILON_KEPT * request.epsilon
    d, w = request.n_features, request.comparator_norm
    probe = request.release_at_unit_mu()
    gaussian = gaussian_noise_multiplier(request.epsilon, request.delta)
    sigma_0 = probe.G * gaussian * math.sqrt(request.n_problems)
    if request.sigma is not None:
        sigma_0 = request.sigma
    start = math.sqrt(d) * sigma_0 / w  # the minimizer at a constant sigma
    # From this mu on, the one-sided bound charges nothing for the log-determinant.
    free = probe.curvature / epsilon
    if request.sigma is not None:
        return max(start, free)
    mu = _cheapest_mu(request, probe, epsilon, start, free)
    if request.n_iter is None:
        return mu

    def certified(mu: float) -> bool:
        sigma = _LIMIT_SLACK * _limit_sigma(request, mu)
        return _certifier(request, mu)(sigma, request.n_iter or 1)

    if certified(mu):
        return mu
    found = smallest_certified(certified, mu, limit=1e15, rtol=1e-3)
    if found is None:
        raise ValueError(
            f"n_iter={request.n_iter}: too few iterations; no regularization certifies "
            f"epsilon={request.epsilon!r} at delta={request.delta!r}"
        )
    return found


def _cheapest_mu(
    request: _Request, probe: PerturbedGradientDescent, epsilon: float, start: float, free: float
) -> float:
    d, w = request.n_features, request.comparator_norm

    def cost(log_mu: float) -> float:  # logarithm of the bound
        mu = math.exp(log_mu)
        found = _limit_multiplier(request, probe.curvature / mu, epsilon, rtol=1e-3)
        if found is None:
            return _HOPELESS
        return math.log(d * (found * probe.G) ** 2 / (2.0 * mu) + 0.5 * mu * w**2)

    points = 33 if request.n_problems == 1 else 7
    grid = np.log(start) + np.log(2.0) * np.linspace(-2.0, 6.0, points)
    grid = np.sort(np.append(grid, max(math.log(free), grid[0])))
    costs = [cost(x) for x in grid]
    best = int(np.argmin(costs))
    if costs[best] == _HOPELESS:
        return free
    if request.n_problems > 1:
        return math.exp(grid[best])
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, points)]
    refined = minimize_scalar(cost, bounds=(low, high), method="bounded", options={"xatol": 1e-3})
    return math.exp(refined.x if refined.fun < costs[best] else grid[best])


# --- searches and checks ------------------------------------------------------------------------


def _bisect(certified: Callable[[float], bool], low: float, high: float) -> float:
    """Return a certified number within 1e-12 of the smallest in (low, high]; high is certified."""
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        if certified(middle):
            high = middle
        else:
            low = middle
    return high


def _smallest_integer(
    certified: Callable[[int], bool], start: int, *, limit: int = _MAX_ITER
) -> int:
    """Return the smallest certified integer from `start` on (`limit` if there is none)."""
    high = start
    while not certified(high):
        if high >= limit:
            return limit
        high = min(2 * high, limit)
    low = max(start - 1, high // 2)
    while high - low > 1:
        middle = (low + high) // 2
        if certified(middle):
            high = middle
        else:
            low = middle
    return high


def _number(name: str, value: Any, low: float, high: float, allowed: str) -> float:
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not low < number < high:
        raise ValueError(f"{name}={value!r}: must be {allowed}")
    return number


def _count(name: str, value: Any) -> int:
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else 0
    if not 1 <= number <= _MAX_ITER:
        raise ValueError(f"{name}={value!r}: must be a positive integer, at most 2**60")
    return number


def _choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(map(repr, allowed))}")
    return str(value)


def _validated(**given: Any) -> _Request:
    positive = "a positive finite number"
    checked = dict(given)
    for name in ("n_samples", "n_features", "n_problems"):
        checked[name] = _count(name, given[name])
    for name in ("delta", "failure_probability"):
        checked[name] = _number(name, given[name], 0.0, 1.0, "a number inside (0, 1)")
    for name in ("data_norm", "comparator_norm"):
        checked[name] = _number(name, given[name], 0.0, math.inf, positive)
    for name in ("epsilon", "mu", "sigma", "eta"):
        if given[name] is not None:
            checked[name] = _number(name, given[name], 0.0, math.inf, positive)
    checked["calibration"] = _choice("calibration", given["calibration"], CALIBRATIONS)
    checked["adjacency"] = _choice("adjacency", given["adjacency"], ADJACENCIES)
    n_iter = given["n_iter"]
    checked["n_iter"] = None if n_iter is None or n_iter == "auto" else _count("n_iter", n_iter)
    epsilon = checked["epsilon"]
    if checked["calibration"] == "corollary" and epsilon is not None and epsilon > 1.0:
        raise ValueError(
            f"epsilon={epsilon!r}: calibration='corollary' (Corollary 4.13) needs epsilon <= 1; "
            f"use calibration='tight' for any positive epsilon"
        )
    return _Request(**checked)
