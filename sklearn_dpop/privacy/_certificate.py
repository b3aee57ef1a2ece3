"""The certificate of a release by gradient descent on a perturbed objective."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sklearn_dpop.privacy._bounds import (
    best_radius,
    extend_to_small_epsilon,
    log_deltas,
    sharpest_bound,
)
from sklearn_dpop.privacy._composition import FloatArray, PrivacyLossDistribution, compose_profile
from sklearn_dpop.privacy._gaussian import log_chi_sf, log_q1
from sklearn_dpop.privacy._objective_perturbation import (
    FiniteIteration,
    PerturbedGradientDescent,
    c_n,
    eps_0,
    finite_iteration,
    log_delta_one_sided,
    log_delta_one_sided_detour,
    log_delta_one_sided_direct,
    log_delta_theorem_41,
    log_delta_theorem_c13,
    s_n,
    tau_star,
    threshold_7,
)
from sklearn_dpop.privacy._profile import smallest_epsilon
from sklearn_dpop.privacy._utility import (
    e_opt,
    empirical_risk_bound,
    population_risk_bound,
    single_release_bound,
    unregularized_risk_bound,
)

__all__ = ["CALIBRATIONS", "ObjectivePerturbationCertificate"]

CALIBRATIONS = ("corollary", "tight")

# Covers the rounding of the formulas themselves (measured: below 1e-12 relative).
ROUND_UP = 1.0 + 1e-11

_THEOREMS = {
    "theorem-4.1": "Theorem 4.1 of arXiv 2610.02716",
    "theorem-c13": "Theorem C.13 of arXiv 2610.02716",
    "one-sided": "Theorem C.13 of arXiv 2610.02716 with the one-sided divergence",
}


@dataclass(frozen=True)
class ObjectivePerturbationCertificate:
    r"""What is proven about a release, as a function of public numbers alone.

    Made by :func:`calibrate_objective_perturbation`.  Every key of
    :attr:`intermediates` can also be read as an attribute.

    Attributes
    ----------
    release : PerturbedGradientDescent
        Constants of one release: ``n, d``, :math:`\zeta`, loss, adjacency,
        :math:`\mu, \sigma, N, \eta`.
    epsilon, delta : float
        The stated guarantee, total over all `n_problems` releases.
    calibration : {"corollary", "tight"}
        Which theorem certifies it.
    comparator_norm, failure_probability : float
        :math:`W` and :math:`\delta_S` of the utility bounds; privacy does not depend on them.
    n_problems : int
        Number of releases with independent noise on the same records (one-vs-rest).
    u : float or None
        Truncation parameter of Theorem 4.1 (corollary).
    r : float or None
        Truncation radius at which the stated pair is certified (tight).
    """

    release: PerturbedGradientDescent
    epsilon: float
    delta: float
    calibration: str
    comparator_norm: float
    failure_probability: float
    n_problems: int = 1
    u: float | None = None
    r: float | None = None

    # --- the parameters of the mechanism ---------------------------------------------------

    @property
    def mu(self) -> float:
        r"""Regularization :math:`\mu`."""
        return self.release.mu

    @property
    def sigma(self) -> float:
        r"""Standard deviation :math:`\sigma` of the perturbation of every problem."""
        return self.release.sigma

    @property
    def n_iter(self) -> int:
        """Number of gradient steps N."""
        return self.release.n_iter

    @property
    def eta(self) -> float:
        r"""Step size :math:`\eta`."""
        return self.release.eta

    @property
    def adjacency(self) -> str:
        """Neighbouring relation."""
        return self.release.adjacency

    @property
    def bound(self) -> str:
        """Short name of the certifying bound."""
        if self.calibration == "corollary":
            return "theorem-4.1"
        return sharpest_bound(self.release.loss)

    @property
    def theorem(self) -> str:
        """The theorem that gives the guarantee."""
        return _THEOREMS[self.bound]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name != "release":
            try:
                return self._intermediates[name]
            except KeyError:
                pass
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # --- the profile -------------------------------------------------------------------------

    @cached_property
    def _finite(self) -> FiniteIteration | None:
        return None if self.r is None else finite_iteration(self.release, self.r)

    @cached_property
    def _certified_from(self) -> float:
        """Smallest epsilon of one release at which its formula applies."""
        p = self.release
        if self.calibration == "corollary":
            assert self.u is not None
            return eps_0(p) if p.n_iter >= threshold_7(p, self.u) else math.inf
        if self._finite is None:
            return math.inf
        if self.bound == "one-sided":
            return self._finite.correction + p.tau_0
        return s_n(p, self._finite)

    def _log_delta_one(self, epsilon: Any) -> Any:
        """Log profile of one release at the stored radius, vectorized over epsilon."""
        p = self.release
        if self.calibration == "corollary":
            assert self.u is not None
            return log_delta_theorem_41(p, self.u, epsilon)
        if self._finite is None:
            return np.zeros_like(np.asarray(epsilon, dtype=float))
        if self.bound == "one-sided":
            return log_delta_one_sided(p, self._finite, epsilon)
        return log_delta_theorem_c13(p, self._finite, epsilon)

    @cached_property
    def _composed(self) -> PrivacyLossDistribution | None:
        if self._certified_from > 100.0:  # far beyond any budget; also when nothing applies
            return None
        return compose_profile(
            self._log_delta_one,
            self.n_problems,
            eps_min=self._certified_from * (1.0 + 1e-12),
            delta=self.delta,
        )

    def _delta_one(self, epsilon: float) -> float:
        if self.calibration == "corollary":
            return math.exp(float(self._log_delta_one(epsilon)))
        # The stored radius is one candidate: a search cannot lose what calibration found.
        searched = best_radius(self.release, epsilon, self.bound)[0]
        return math.exp(min(searched, float(self._log_delta_one(epsilon))))

    @cached_property
    def _anchors(self) -> tuple[tuple[float, float], ...]:
        """Points of the profile of one release that bound it below its certified range."""
        start = self._certified_from
        if not 0.0 < start < 100.0:
            return ()
        return tuple((x, self._delta_one(x)) for x in (1.001 * start, 2.0 * start, 4.0 * start))

    def delta_at(self, epsilon: float) -> float:
        r"""Return the certified :math:`\delta` at `epsilon`, rounded up.

        Parameters
        ----------
        epsilon : float
            Nonnegative.

        Returns
        -------
        float
            In ``[0, 1]``; 1 where nothing is certified.

        Raises
        ------
        ValueError
            If `epsilon` is negative or not a number.
        """
        epsilon = float(epsilon)
        if not epsilon >= 0.0:
            raise ValueError(f"epsilon={epsilon!r}: must be a nonnegative number")
        if math.isinf(epsilon):
            epsilon = 1e6
        if self.n_problems > 1:
            composed = self._composed
            value = 1.0 if composed is None else composed.delta(epsilon)
        else:
            value = self._delta_one(epsilon)
            for anchor, delta in self._anchors:
                if epsilon < anchor:
                    value = min(value, extend_to_small_epsilon(delta, epsilon, anchor))
        return min(1.0, value * ROUND_UP)

    def deltas_at(self, epsilons: FloatArray) -> FloatArray:
        r"""Return :math:`\delta` certified at many `epsilons`: as `delta_at` about, but faster.

        Parameters
        ----------
        epsilons : ndarray of shape (n_points,)
            Nonnegative and finite.

        Returns
        -------
        ndarray of shape (n_points,)
            In ``[0, 1]``, rounded up.
        """
        if self.n_problems > 1:
            return np.array([self.delta_at(float(epsilon)) for epsilon in epsilons])
        logs = np.asarray(self._log_delta_one(epsilons))
        if self.calibration != "corollary":
            logs = np.minimum(logs, log_deltas(self.release, epsilons, self.bound))
        values: FloatArray = np.exp(logs)
        for anchor, delta in self._anchors:
            below = epsilons < anchor
            extended = [extend_to_small_epsilon(delta, float(e), anchor) for e in epsilons[below]]
            values[below] = np.minimum(values[below], extended)
        return np.asarray(np.minimum(1.0, values * ROUND_UP))

    def epsilon_at(self, delta: float) -> float:
        r"""Return the smallest certified :math:`\epsilon` at `delta`, rounded up.

        Parameters
        ----------
        delta : float
            In ``(0, 1)``.

        Returns
        -------
        float
            Infinity where no epsilon is certified at this delta.

        Raises
        ------
        ValueError
            If `delta` is not inside ``(0, 1)``.
        """
        delta = float(delta)
        if not 0.0 < delta < 1.0:
            raise ValueError(f"delta={delta!r}: must be inside (0, 1)")
        start = max(self.epsilon, 1e-3) if math.isfinite(self.epsilon) else 1.0
        return smallest_epsilon(self.delta_at, delta, start=start, largest=1e5, tolerance=1e-10)

    # --- the explanation ---------------------------------------------------------------------

    @property
    def intermediates(self) -> dict[str, float]:
        """Every constant between the public inputs and the guarantee, by the papers' symbols."""
        return dict(self._intermediates)

    @cached_property
    def _intermediates(self) -> dict[str, float]:
        p = self.release
        values: dict[str, float] = {
            "L1": p.loss.L1,
            "L2": p.loss.L2,
            "L3": p.loss.L3,
            "L": p.L,
            "M": p.M,
            "G": p.G,
            "Delta_H": p.Delta_H,
            "kappa": p.kappa,
            "rho": p.rho,
            "d_star": p.d_star,
            "noise_multiplier": p.noise_multiplier,
            "tau_0": p.tau_0,
        }
        if self.calibration == "corollary":
            assert self.u is not None
            values |= _corollary_constants(self)
            values |= {
                "u": self.u,
                "threshold_7": threshold_7(p, self.u),
                "c_N": c_n(p),
                "tau_star": tau_star(p),
                "eps0": eps_0(p),
            }
        else:
            assert self.r is not None
            values |= {"curvature": p.curvature, "r": self.r}
            if self._finite is not None:
                values |= asdict(self._finite)
                values |= {"s_N": s_n(p, self._finite)}
        return values

    @property
    def contributions(self) -> dict[str, dict[str, float]]:
        """Where the stated epsilon and delta of one release come from, term by term."""
        p = self.release
        if self.calibration == "corollary":
            assert self.u is not None
            lam = p.G / p.sigma
            eps_one = self.problem_epsilon
            t = max(eps_one - eps_0(p), 0.0) / lam
            return {
                "epsilon": {
                    "Gaussian density ratio, G^2/(2 sigma^2)": 0.5 * lam**2,
                    "log-determinant, log(1 + Delta_H/(2 n mu))": p.tau_0,
                    "finite iterations, c_N": c_n(p),
                    "left for the divergence": eps_one - eps_0(p),
                },
                "delta": {
                    "truncation, exp(-u^2/2)": math.exp(-0.5 * self.u**2),
                    "divergence, (2 G/sigma) Q1(t)": 2.0 * lam * math.exp(float(log_q1(t))),
                },
            }
        return self._tight_contributions(self.problem_epsilon)

    def _tight_contributions(self, eps_one: float) -> dict[str, dict[str, float]]:
        p, finite = self.release, self._finite
        if finite is None:
            return {"epsilon": {}, "delta": {}}
        lam = p.G / p.sigma
        truncation = math.exp(float(log_chi_sf(finite.r / p.sigma, p.d_star)))
        # By way of the null record every correction is paid twice.
        steps, log_determinant = 1.0, p.tau_0
        gaussian = {"Gaussian density ratio, G^2/(2 sigma^2)": 0.5 * lam**2}
        if self.bound == "one-sided":
            gaussian = {}
            left = eps_one - finite.correction
            direct = float(log_delta_one_sided_direct(p, finite, eps_one))
            if float(log_delta_one_sided_detour(p, finite, eps_one)) < direct:
                left = 0.5 * (eps_one - 2.0 * finite.correction) - 0.125 * lam**2
                steps, truncation = 2.0, truncation * (1.0 + math.exp(left + finite.correction))
            log_determinant = 0.0 if left >= p.curvature else steps * p.tau_0
        spent = {
            "last-step residual": steps * finite.residual,
            "log-determinant, finite iterations": steps * finite.tau_corr,
            "log-determinant, limit": log_determinant,
            **gaussian,
        }
        delta = math.exp(float(self._log_delta_one(eps_one)))
        return {
            "epsilon": {**spent, "left for the divergence": eps_one - sum(spent.values())},
            "delta": {
                "truncation, Pr(|Z| > r)": truncation,
                "divergence": max(delta - truncation, 0.0),
            },
        }

    @cached_property
    def problem_epsilon(self) -> float:
        """Epsilon of one of the `n_problems` releases alone (the total when there is one)."""
        if self.n_problems == 1:
            return self.epsilon
        single_delta = self.delta / self.n_problems
        low, high = self._certified_from, max(self.epsilon, self._certified_from)
        while math.exp(float(self._log_delta_one(high))) > single_delta and high < 1e5:
            low, high = high, 2.0 * high
        while high - low > 1e-13 * high:
            middle = 0.5 * (low + high)
            if math.exp(float(self._log_delta_one(middle))) <= single_delta:
                high = middle
            else:
                low = middle
        return high

    @property
    def utility(self) -> dict[str, float]:
        r"""Utility bounds of one release (Section 4.3), in units of the loss."""
        p, w, failure = self.release, self.comparator_norm, self.failure_probability
        return {
            "E_opt": e_opt(p),
            "empirical_risk_bound": empirical_risk_bound(p),
            "population_risk_bound": population_risk_bound(p, failure),
            "unregularized_risk_bound": unregularized_risk_bound(p, failure, w),
            "single_release_bound": single_release_bound(p, failure),
        }

    # --- as data ------------------------------------------------------------------------------

    def public_inputs(self) -> dict[str, Any]:
        """Return what :meth:`from_public_inputs` needs to make this certificate again."""
        inputs = asdict(self)
        inputs.update(inputs.pop("release"))
        return inputs

    @classmethod
    def from_public_inputs(cls, inputs: dict[str, Any]) -> ObjectivePerturbationCertificate:
        """Make the certificate from the dictionary of :meth:`public_inputs`."""
        from sklearn_dpop.privacy._loss_constants import LossConstants

        inputs = dict(inputs)
        release = PerturbedGradientDescent(
            **{
                name: inputs.pop(name)
                for name in PerturbedGradientDescent.__dataclass_fields__
                if name != "loss"
            },
            loss=LossConstants(**inputs.pop("loss")),
        )
        return cls(release=release, **inputs)


def _corollary_constants(certificate: ObjectivePerturbationCertificate) -> dict[str, float]:
    """Return the constants of Corollary 4.13 that explain the choice of mu.

    The corollary's epsilon of one problem is read back from ``sigma = 4 G u / epsilon``.
    """
    p, w = certificate.release, certificate.comparator_norm
    assert certificate.u is not None
    epsilon = 4.0 * p.G * certificate.u / p.sigma
    mu_priv = p.loss.L2 * p.data_norm**2 / (p.n_samples * math.expm1(0.25 * epsilon))
    log_term = 32.0 + math.log(1.0 / certificate.failure_probability)
    a = p.n_features * p.sigma**2 + 16.0 * p.gradient_bound**2 * log_term / p.n_samples
    return {
        "A": a,
        "mu_util": math.sqrt(2.0 * a) / w,
        "mu_priv": mu_priv,
        "leading_risk": w * math.sqrt(2.0 * a),
    }
