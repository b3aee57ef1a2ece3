r"""Privacy of gradient descent on a perturbed objective: the theorems as functions.

Equation and theorem numbers are those of arXiv 2610.02716.  A
:class:`PerturbedGradientDescent` holds the public constants of one release
:math:`w_N(Z)`, :math:`Z \sim N(0, \sigma^2 I)`; every function below is a pure function
of it and returns the log of a bound on the privacy profile
:math:`\delta(\epsilon)`, valid for both orders of every neighbouring pair.

Two adjacencies are certified by the same chain of lemmas:

* ``"replace-one"``: :math:`G = 2 L_1\zeta/n` and :math:`d_\star = \min(d, n+1)` (the paper's);
* ``"zero-out"``: one record's loss is replaced by that of the null record ``x = 0``.
  This is a replace-one pair with :math:`x'_n = 0`, so :math:`G = L_1\zeta/n`,
  :math:`d_\star = \min(d, n)`, and only one Gaussian projection is random.

The *one-sided* bound is this package's refinement of Theorem C.13 (derivation in
``docs/mathematics.md``): it replaces Lemma C.12 by the exact Gaussian profile at every
vertex of the set of possible slopes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklearn_dpop.privacy._gaussian import (
    log_chi_sf,
    log_folded_divergence,
    log_gaussian_delta,
    log_normal_sf,
    log_q1,
)
from sklearn_dpop.privacy._loss_constants import LossConstants

__all__ = [
    "ADJACENCIES",
    "FiniteIteration",
    "PerturbedGradientDescent",
    "c_n",
    "eps_0",
    "finite_iteration",
    "log_delta_one_sided",
    "log_delta_one_sided_detour",
    "log_delta_one_sided_direct",
    "log_delta_theorem_41",
    "log_delta_theorem_c13",
    "log_divergence_one_sided",
    "log_divergence_through_null_record",
    "s_n",
    "tau_star",
    "threshold_7",
]

Float = NDArray[np.float64]

ADJACENCIES = ("replace-one", "zero-out")


@dataclass(frozen=True)
class PerturbedGradientDescent:
    r"""Public constants of one release (Section 3).

    Attributes
    ----------
    n_samples, n_features : int
        ``n`` and the dimension ``d`` of the released vector (intercept included).
    data_norm : float
        :math:`\zeta`, bound on the norm of a feature vector (intercept included).
    loss : LossConstants
        :math:`L_1, L_2, L_3` of the loss.
    adjacency : {"replace-one", "zero-out"}
        Neighbouring relation.
    mu : float
        Regularization :math:`\mu > 0`.
    sigma : float
        Standard deviation of the perturbation.
    n_iter : int
        Number of gradient steps ``N``.
    eta : float
        Step size, :math:`0 < \eta \le 1/L` and :math:`\eta\mu < 1`.
    """

    n_samples: int
    n_features: int
    data_norm: float
    loss: LossConstants
    adjacency: str
    mu: float
    sigma: float
    n_iter: int
    eta: float

    @property
    def L(self) -> float:
        r"""Smoothness :math:`L = \mu + L_2\zeta^2` (Lemma B.1)."""
        return self.mu + self.loss.L2 * self.data_norm**2

    @property
    def M(self) -> float:
        r"""Lipschitz constant :math:`M = L_3\zeta^3` of the Hessian (Lemma B.2)."""
        return self.loss.L3 * self.data_norm**3

    @property
    def G(self) -> float:
        r"""Gradient sensitivity: :math:`2L_1\zeta/n` for replace-one, half for zero-out."""
        factor = 2.0 if self.adjacency == "replace-one" else 1.0
        return factor * self.gradient_bound / self.n_samples

    @property
    def gradient_bound(self) -> float:
        r"""Bound :math:`L_\ell = L_1\zeta` on the gradient of one record."""
        return self.loss.L1 * self.data_norm

    @property
    def d_star(self) -> int:
        """Bound on the dimension of the span of the features of both data sets (2)."""
        spanned = self.n_samples + (1 if self.adjacency == "replace-one" else 0)
        return min(self.n_features, spanned)

    @property
    def Delta_H(self) -> float:
        r""":math:`\Delta_H = 2L_2\zeta^2`."""
        return 2.0 * self.loss.L2 * self.data_norm**2

    @property
    def kappa(self) -> float:
        r"""Condition number :math:`L/\mu`."""
        return self.L / self.mu

    @property
    def rho(self) -> float:
        r"""Contraction factor :math:`1 - \eta\mu`."""
        return 1.0 - self.eta * self.mu

    @property
    def log_rho(self) -> float:
        r""":math:`\log\rho`, precise for tiny :math:`\eta\mu`."""
        return math.log1p(-self.eta * self.mu)

    @property
    def noise_multiplier(self) -> float:
        r""":math:`\sigma / G`."""
        return self.sigma / self.G

    @property
    def tau_0(self) -> float:
        r"""Log-determinant term :math:`\log(1 + \Delta_H/(2n\mu))` of Lemma C.6, with
        :math:`\bar g_N \le 1`.
        """  # noqa: D205
        return math.log1p(self.Delta_H / (2.0 * self.n_samples * self.mu))

    @property
    def curvature(self) -> float:
        r""":math:`c = 4L_2\zeta^2/(n\mu)`: the slope of the log-determinant term at full slope."""
        return 4.0 * self.loss.L2 * self.data_norm**2 / (self.n_samples * self.mu)


# --- Theorem 4.1: the explicit certificate -------------------------------------------------


def _min_1_mgl(p: PerturbedGradientDescent) -> float:
    return min(1.0, p.M * p.G / p.L)


def threshold_7(p: PerturbedGradientDescent, u: float) -> float:
    """Return the right-hand side of condition (7) on N, as a real number.

    ``p.n_iter`` plays no part.
    """
    r_u = p.sigma * (math.sqrt(p.d_star) + u)
    r_prime = r_u + 2.0 * p.L * p.G / p.mu
    r_bar = (r_prime + p.gradient_bound) / p.mu
    first = math.log(2.0 * p.mu) + math.log(r_bar) + math.log(r_prime) - math.log(p.G * p.sigma)
    # 8 L M B R / (e rho mu min{1, M G / L}) with B = 1/mu; M / min{1, M G / L} = max{M, L / G}
    second = (
        math.log(8.0 * p.L / math.e)
        + math.log(max(p.M, p.L / p.G))
        + math.log(r_bar)
        - p.log_rho
        - 2.0 * math.log(p.mu)
    )
    return 2.0 / (p.eta * p.mu) * max(first, second, math.log(4.0))


def _n_rho_half(p: PerturbedGradientDescent) -> float:
    return p.n_iter * math.exp(0.5 * p.n_iter * p.log_rho)


def tau_star(p: PerturbedGradientDescent) -> float:
    r"""Return :math:`\tau^\star` of (8)."""
    return p.tau_0 + _min_1_mgl(p) * 0.5 * math.e * p.eta * p.mu * _n_rho_half(p)


def c_n(p: PerturbedGradientDescent) -> float:
    """Return the finite-iteration part ``c_N`` of the floor (Corollary 4.13)."""
    lam = p.G / p.sigma
    half = math.exp(0.5 * p.n_iter * p.log_rho)
    return (
        lam * half
        + 0.5 * lam**2 * (2.0 * half + half**2)
        + _min_1_mgl(p) * 0.5 * math.e * p.eta * p.mu * _n_rho_half(p)
    )


def eps_0(p: PerturbedGradientDescent) -> float:
    r"""Return the floor :math:`\epsilon_0` of (9)."""
    lam = p.G / p.sigma
    half = math.exp(0.5 * p.n_iter * p.log_rho)
    return lam * half + 0.5 * lam**2 * (1.0 + half) ** 2 + tau_star(p)


def log_delta_theorem_41(p: PerturbedGradientDescent, u: float, epsilon: ArrayLike) -> Float:
    r"""Return the log of the profile (10) of Theorem 4.1.

    Zero (``delta = 1``: nothing is certified) where :math:`\epsilon < \epsilon_0` or when
    condition (7) fails.
    """
    eps = np.asarray(epsilon, dtype=float)
    if p.n_iter < threshold_7(p, u):
        return np.zeros_like(eps)
    excess = eps - eps_0(p)
    t = np.maximum(excess, 0.0) * p.noise_multiplier
    log_divergence = math.log(2.0 / p.noise_multiplier) + log_q1(t)
    log_delta = np.minimum(np.logaddexp(-0.5 * u * u, log_divergence), 0.0)
    return np.where(excess >= 0.0, log_delta, 0.0)


# --- Theorem C.13: the exact finite-N form --------------------------------------------------


@dataclass(frozen=True)
class FiniteIteration:
    r"""Finite-iteration constants of Theorem C.13 on the ball of radius ``r``.

    Attributes
    ----------
    r, r_prime : float
        Truncation radius and the radius of the larger ball, (47).
    alpha_bar : float
        Singular-value margin :math:`\bar\alpha > 0`, (47).
    Delta_xi : float
        :math:`\Delta_\xi = 2\mu\rho^N\bar R`, (48).
    tau_corr : float
        Finite-N part of the log-determinant term, (48).
    residual : float
        :math:`r\Delta_\xi/\sigma^2 + (2G\Delta_\xi + \Delta_\xi^2)/(2\sigma^2)`: Term (B) of
        Theorem C.4, everything of (49) that the residual of the last step adds.
    """

    r: float
    r_prime: float
    alpha_bar: float
    Delta_xi: float
    tau_corr: float
    residual: float

    @property
    def correction(self) -> float:
        """Total that the finite number of iterations adds to epsilon."""
        return self.residual + self.tau_corr


def finite_iteration(
    p: PerturbedGradientDescent, r: float, r_prime: float | None = None
) -> FiniteIteration | None:
    r"""Evaluate the constants of Theorem C.13, or return None where its conditions fail.

    Parameters
    ----------
    p : PerturbedGradientDescent
        The release.
    r : float
        Truncation radius, ``r > 0``.
    r_prime : float, optional
        Radius of the larger ball; by default the smallest one that satisfies the
        fixed-point inequality (47).  With :math:`\bar\alpha(r') = a - k(r' - r)` the
        inequality is :math:`k x^2 - a x + g \le 0` in :math:`x = r' - r`.
    """
    rho_n = math.exp(p.n_iter * p.log_rho)
    one_minus_rho_n = -math.expm1(p.n_iter * p.log_rho)
    gamma_n = (
        -math.expm1(p.n_iter * math.log1p(-min(p.eta * p.L, 1.0))) / p.L
        if (p.eta * p.L < 1.0)
        else 1.0 / p.L
    )
    # nu~_N of (22); its terms cancel for small N, where N itself is a valid bound.
    nu = p.n_iter * (1.0 + rho_n) - (1.0 + p.rho) * one_minus_rho_n / (p.eta * p.mu)
    nu = 0.0 if p.n_iter == 1 else min(nu + 1e-12 * p.n_iter, float(p.n_iter))
    # C_D nu~ rho^(N-1) = k (r' + L1 zeta), B = 1/mu
    k = p.eta * p.M / p.mu**2 * nu * math.exp((p.n_iter - 1) * p.log_rho)
    g = p.G * one_minus_rho_n / p.mu
    if r_prime is None:
        a = gamma_n - k * (r + p.gradient_bound)
        discriminant = a * a - 4.0 * k * g
        if a <= 0.0 or discriminant < 0.0:
            return None
        r_prime = r + 2.0 * g / (a + math.sqrt(discriminant))
        alpha_bar = gamma_n - k * (r_prime + p.gradient_bound)
    else:
        alpha_bar = gamma_n - k * (r_prime + p.gradient_bound)
        if alpha_bar <= 0.0 or r_prime < r + g / alpha_bar:
            return None
    if alpha_bar <= 0.0:
        return None
    delta_xi = 2.0 * rho_n * (r_prime + p.gradient_bound)
    return FiniteIteration(
        r=r,
        r_prime=r_prime,
        alpha_bar=alpha_bar,
        Delta_xi=delta_xi,
        tau_corr=2.0 * k * (r_prime + p.gradient_bound) / alpha_bar,
        residual=(r * delta_xi + p.G * delta_xi + 0.5 * delta_xi**2) / p.sigma**2,
    )


def s_n(p: PerturbedGradientDescent, finite: FiniteIteration) -> float:
    """Return ``s_N``: the part of (49) that does not depend on t (Section C.4)."""
    return finite.correction + 0.5 * (p.G / p.sigma) ** 2 + p.tau_0


def _left(epsilon: Float, *spent: float) -> Float:
    """Return ``epsilon - sum(spent)``, rounded down by more than its floating-point error."""
    total = sum(spent)
    return epsilon - total - 2.0**-50 * (epsilon + total)


def _log_truncation(p: PerturbedGradientDescent, r: float) -> Float:
    return log_chi_sf(r / p.sigma, p.d_star)


def log_delta_theorem_c13(
    p: PerturbedGradientDescent,
    finite: FiniteIteration,
    epsilon: ArrayLike,
    log_truncation: float | None = None,
) -> Float:
    r"""Return the log of :math:`\delta_{\rm total}` (50) at :math:`\epsilon_{\rm total}` (49).

    For replace-one the divergence is Lemma C.12's; for zero-out
    :math:`\mathcal{T} = |W|` and the integral is evaluated exactly.  `log_truncation`
    replaces the exact chi tail :math:`\Pr(|Z| > r)`, for instance by the paper's
    :math:`-u^2/2`.
    """
    eps = np.asarray(epsilon, dtype=float)
    excess = _left(eps, s_n(p, finite))
    t = np.maximum(excess, 0.0) * p.noise_multiplier
    lam = 1.0 / p.noise_multiplier
    if p.adjacency == "replace-one":
        log_divergence = math.log(2.0 * lam) + log_q1(t)
    else:
        log_divergence = log_folded_divergence(lam, t)
    tail = _log_truncation(p, finite.r) if log_truncation is None else log_truncation
    log_delta = np.minimum(np.logaddexp(tail, log_divergence), 0.0)
    return np.where(excess >= 0.0, log_delta, 0.0)


# --- The one-sided refinement ----------------------------------------------------------------


def _log_null_record_profile(
    shift: float, epsilon: Float, *, curvature: float, tau_0: float
) -> Float:
    """Return the log of the one-sided profile between a data set and one with a null record."""
    charged = np.where(epsilon >= tau_0, log_gaussian_delta(shift, epsilon - tau_0), 0.0)
    free = np.where(epsilon >= curvature, log_gaussian_delta(shift, epsilon), 0.0)
    return np.minimum(charged, free)


def log_divergence_one_sided(
    shift: float, epsilon: ArrayLike, *, adjacency: str, curvature: float, tau_0: float
) -> Float:
    r"""Return the log of the divergence of the one-sided refinement.

    Let :math:`h_\lambda(\epsilon)` be the Gaussian profile at shift
    :math:`\lambda = G/\sigma`.  For a one-sided loss the slopes of the differing records
    lie in [0, 1] (times a fixed sign), and the privacy loss is largest at a vertex:

    * log-determinant term charged in full, for :math:`\epsilon \ge \tau_0`:
      :math:`h_\lambda(\epsilon-\tau_0)`, plus :math:`2h_{\lambda/2}(\epsilon-\tau_0)` for
      replace-one;
    * not charged at all, for :math:`\epsilon \ge c`, because at full slope the curvature
      :math:`4L_2 s(1-s)` vanishes: :math:`h_\lambda(\epsilon)`, plus
      :math:`h_{\lambda/2}(\epsilon) + Q(2(\epsilon-c)/\lambda - \lambda/4)` for replace-one.

    The smaller of those whose condition holds is returned, 0 where none does.

    Parameters
    ----------
    shift : float
        :math:`\lambda > 0`.
    epsilon : array_like
        Budget left after the finite-iteration corrections.
    adjacency : {"replace-one", "zero-out"}
        Neighbouring relation.
    curvature, tau_0 : float
        :math:`c = 4L_2\zeta^2/(n\mu)` and :math:`\tau_0 = \log(1 + c/4)`.
    """
    eps = np.asarray(epsilon, dtype=float)
    if adjacency == "zero-out":
        return _log_null_record_profile(shift, eps, curvature=curvature, tau_0=tau_0)
    charged = np.logaddexp(
        log_gaussian_delta(shift, eps - tau_0),
        math.log(2.0) + log_gaussian_delta(0.5 * shift, eps - tau_0),
    )
    with np.errstate(over="ignore"):  # hardly any shift: the tail is 0
        mixed = log_normal_sf(2.0 * (eps - curvature) / shift - 0.25 * shift)
    free = np.logaddexp(
        log_gaussian_delta(shift, eps),
        np.logaddexp(log_gaussian_delta(0.5 * shift, eps), mixed),
    )
    charged = np.where(eps >= tau_0, charged, 0.0)
    free = np.where(eps >= curvature, free, 0.0)
    return np.minimum(np.minimum(charged, free), 0.0)


def log_divergence_through_null_record(
    shift: float, epsilon: ArrayLike, *, curvature: float, tau_0: float
) -> tuple[Float, Float]:
    r"""Bound replace-one by two zero-out steps: the record leaves, another one comes.

    With the zero-out profile :math:`\delta_0`, for every split
    :math:`\epsilon_1 + \epsilon_2 = \epsilon` of the budget
    :math:`\delta(\epsilon) \le \delta_0(\epsilon_1) + e^{\epsilon_1}\delta_0(\epsilon_2)`.
    The split :math:`\epsilon_{1,2} = \epsilon/2 \mp \lambda^2/8` is the best one of Gaussian
    mechanisms, for which it returns exactly :math:`h_\lambda(\epsilon)`.

    Returns
    -------
    log_delta, first : ndarray
        The log of the bound (0 where nothing is certified) and :math:`\epsilon_1`.
    """
    eps = np.asarray(epsilon, dtype=float)
    first, second = 0.5 * eps - 0.125 * shift**2, 0.5 * eps + 0.125 * shift**2
    constants = {"curvature": curvature, "tau_0": tau_0}
    out = _log_null_record_profile(0.5 * shift, first, **constants)
    back = _log_null_record_profile(0.5 * shift, second, **constants)
    certified = (out < 0.0) & (back < 0.0)
    return np.where(certified, np.minimum(np.logaddexp(out, first + back), 0.0), 0.0), first


def log_delta_one_sided_direct(
    p: PerturbedGradientDescent, finite: FiniteIteration, epsilon: ArrayLike
) -> Float:
    r"""Return the log of the profile of Theorem C.13 with the one-sided divergence.

    Truncation, preimage radii, the residual of the last step and the finite-N part of
    the log-determinant are those of Theorem C.13; only its Term (A) and the frozen
    log-determinant are treated together by :func:`log_divergence_one_sided`.
    """
    log_divergence = log_divergence_one_sided(
        p.G / p.sigma,
        _left(np.asarray(epsilon, dtype=float), finite.correction, p.tau_0) + p.tau_0,
        adjacency=p.adjacency,
        curvature=p.curvature,
        tau_0=p.tau_0,
    )
    return np.minimum(np.logaddexp(_log_truncation(p, finite.r), log_divergence), 0.0)


def log_delta_one_sided_detour(
    p: PerturbedGradientDescent, finite: FiniteIteration, epsilon: ArrayLike
) -> Float:
    r"""Return the log of the replace-one profile by way of the null record.

    Each of the two zero-out steps pays the truncation :math:`P` and the corrections
    :math:`\kappa` (those of replace-one bound them):
    :math:`\delta \le \delta_0(e_1) + P + e^{e_1 + \kappa}(\delta_0(e_2) + P)` with
    :math:`e_1 + e_2 = \epsilon - 2\kappa`.  Zero for zero-out, which has no such detour.
    """
    eps = np.asarray(epsilon, dtype=float)
    if p.adjacency == "zero-out":
        return np.zeros_like(eps)
    kappa, tail = finite.correction, _log_truncation(p, finite.r)
    divergence, first = log_divergence_through_null_record(
        p.G / p.sigma,
        _left(eps, 2.0 * kappa, 2.0 * p.tau_0) + 2.0 * p.tau_0,
        curvature=p.curvature,
        tau_0=p.tau_0,
    )
    detour = np.logaddexp(divergence + kappa, tail + np.logaddexp(0.0, first + kappa))
    return np.where(divergence < 0.0, np.minimum(detour, 0.0), 0.0)


def log_delta_one_sided(
    p: PerturbedGradientDescent, finite: FiniteIteration, epsilon: ArrayLike
) -> Float:
    """Return the smaller of the direct bound and the one by way of the null record."""
    return np.minimum(
        log_delta_one_sided_direct(p, finite, epsilon),
        log_delta_one_sided_detour(p, finite, epsilon),
    )
