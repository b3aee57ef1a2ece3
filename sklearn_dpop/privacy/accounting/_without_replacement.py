r"""Fixed-size batches: every step draws exactly B of the n records anew.

The steps of a record, :math:`y \in \{0, 1\}^T`, are independent with probability
:math:`r = B / n` each, and do not depend on the data.  Batch sizes are public, and the
guarantees are for zero-out or replace-one adjacency, in which n does not change.

The dominating pair of Theorem E.10 of arXiv 2605.12648, :math:`\mathbb{E}_y N(C y, \kappa^2 I)`
against :math:`N(0, \kappa^2 I)`, does *not* hold for these batches: a record that is in a batch of
fixed size keeps another one out, so the rest of the sum depends on y.  (One step, all other
gradients -1 and the record's +1: with the record the sum is -B + 2y, with zeros instead it is
-B + y.)  What does hold, and is computed here:

* Given all batches the release is a Gaussian mechanism, and the hockey-stick divergence H is
  jointly convex, so that :math:`\delta \le \mathbb{E}_y\, H(f \|\,|C| y\| / \kappa; \epsilon)`
  with f = 1 for zero-out and 2 for replace-one, H(s; .) being the profile of a Gaussian mechanism
  with shift s.  This uses that the steps are random, not that they are secret.
  :func:`convex_mixture_delta` keeps the number of participations and takes their worst places;
  :class:`ParticipationSummand` draws the places for a Monte Carlo bound, and
  :mod:`._energy_law` has their law where :math:`C_{ij} = \lambda^{i-j}`.
* Noise correlated by C contains independent noise of scale :math:`\kappa / \|C\|_2`
  (:func:`~sklearn_dpop.privacy.accounting._poisson.operator_norm_bound`), for which secret
  batches amplify: :func:`subset_delta`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import betainc, gammaln, log_ndtr, logsumexp

from sklearn_dpop.factorization import Strategy
from sklearn_dpop.factorization._strategy import ToeplitzStrategy
from sklearn_dpop.privacy._composition import compose_profile
from sklearn_dpop.privacy._gaussian import gaussian_noise_multiplier, log_gaussian_delta
from sklearn_dpop.privacy.accounting._monte_carlo import Float, Pilot, pilot

__all__ = [
    "Participation",
    "ParticipationSummand",
    "choose_participation_summand",
    "convex_mixture_delta",
    "exact_split_noise_multiplier",
    "participation_of",
    "participation_tail",
    "subset_delta",
    "theorem_e1_noise_multiplier",
    "worst_case_norms",
]

# Above this number of steps X is replaced by its largest entry at each lag.
_TABLE_LIMIT = 2000
# Probability of the numbers of participations that are not looked at one by one.
_NEGLIGIBLE = 1e-290
# Numbers of participations with less of a proposal are bounded instead of drawn.
_RARE = 1e-15
# Covers the rounding of sums of positive terms and of their logarithms.
_ROUND_UP = 1.0 + 1e-9
_PILOT_DRAWS = 1 << 14
_DRAWS_PER_COUNT = 512


# --- the paper's formula -------------------------------------------------------------------


def participation_tail(threshold: float, rate: float, n_steps: int) -> float:
    """Return the probability that a record takes part in more than `threshold` steps.

    Parameters
    ----------
    threshold : float
        Nonnegative.
    rate : float
        Probability r of a step, in (0, 1].
    n_steps : int
        Number of steps T.

    Examples
    --------
    Of Theorem E.1 at rT = 10 and delta = 1e-5, which may be 5e-6:

    >>> f"{participation_tail(10 + (30 * math.log(2e5)) ** 0.5, 0.025, 400):.1e}"
    '1.5e-07'
    """
    rate, n_steps = _check(rate, n_steps)
    largest = math.floor(threshold)
    return 0.0 if largest >= n_steps else float(betainc(largest + 1, n_steps - largest, rate))


def theorem_e1_noise_multiplier(
    epsilon: float, delta: float, *, rate: float, n_steps: int, correlation: float
) -> float:
    r"""Return the noise multiplier of Theorem E.1 of arXiv 2605.12648, for reference.

    .. math:: \kappa^2 = \Bigl(\frac{1 - \lambda^T}{1 - \lambda}\Bigr)^2 \tau\,
              \frac{8 \log(2.5 / \delta)}{\epsilon^2}, \qquad
              \tau = r T + \sqrt{3 r T \log(2 / \delta)}

    for :math:`C_{ij} = \lambda^{i - j}` and zero-out adjacency.  :func:`convex_mixture_delta`
    and :func:`subset_delta` prove the same privacy with several times less noise.

    Parameters
    ----------
    epsilon : float
        Positive.
    delta : float
        In (0, 1).
    rate : float
        r = B / n, in (0, 1].
    n_steps : int
        T.
    correlation : float
        :math:`\lambda`, in [0, 1).

    Raises
    ------
    ValueError
        If a parameter is out of range, or one of the two steps of the proof fails: more than
        tau participations have a probability above delta / 2, or the Gaussian mechanism with
        the squared multiplier ``8 log(2.5 / delta) / epsilon**2`` has a delta above that.

    Notes
    -----
    The proof bounds the first probability by the Chernoff form :math:`e^{-\eta^2 r T / 3}`,
    which needs :math:`\eta \le 1`, i.e. :math:`r T \ge 3 \log(2 / \delta)` (36.6 at
    delta = 1e-5).  Below that the formula may or may not hold; it is the exact binomial tail
    that is checked here.

    Examples
    --------
    >>> kappa = theorem_e1_noise_multiplier(
    ...     1.0, 1e-5, rate=0.025, n_steps=400, correlation=0.5
    ... )
    >>> round(kappa, 2)
    107.65
    """
    rate, n_steps = _check(rate, n_steps)
    _check_target(epsilon, delta)
    if not 0.0 <= correlation < 1.0:
        raise ValueError(f"correlation={correlation!r} must be in [0, 1).")
    mean = rate * n_steps
    threshold = mean + math.sqrt(3.0 * mean * math.log(2.0 / delta))
    tail = participation_tail(threshold, rate, n_steps)
    if tail > 0.5 * delta:
        raise ValueError(
            f"Theorem E.1 fails: a record takes part more than tau = {threshold:.4g} times with "
            f"probability {tail:.3g} > delta / 2 = {0.5 * delta:.3g}; its Chernoff bound needs "
            f"rate * n_steps >= 3 log(2 / delta) = {3.0 * math.log(2.0 / delta):.4g}, got "
            f"{mean:.4g}."
        )
    ratio = epsilon / math.sqrt(8.0 * math.log(2.5 / delta))
    reached = math.exp(float(log_gaussian_delta(ratio, epsilon)))
    if reached > 0.5 * delta:
        raise ValueError(
            f"Theorem E.1 fails: epsilon={epsilon!r} is too large for its Gaussian mechanism, "
            f"whose delta is {reached:.3g} > delta / 2 = {0.5 * delta:.3g}."
        )
    total = (1.0 - correlation**n_steps) / (1.0 - correlation)
    return total * math.sqrt(threshold) / ratio


# --- places of the participations ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Participation:
    """How often a record takes part, and how large its trace in the release can be.

    Attributes
    ----------
    n_steps : int
        T.
    rate : float
        r.
    log_probability : ndarray of shape (K,)
        Log probabilities of 1, .., K participations.
    tail : float
        Probability of more than K.
    norms : ndarray of shape (K,)
        ``D_k``: upper bounds of the norm of |C| y for 1, .., K participations.
    gram : ndarray of shape (T, T) or (T,)
        ``X = |C|^T |C|``, or an upper bound of its entries at each lag.
    """

    n_steps: int
    rate: float
    log_probability: Float
    tail: float
    norms: Float
    gram: Float


def participation_of(strategy: Strategy, n_steps: int, rate: float) -> Participation:
    """Return what the bounds need to know of a strategy and a sampling rate.

    Parameters
    ----------
    strategy : Strategy
        C; signs are dropped, which only raises the bounds.
    n_steps : int
        Number of steps T.
    rate : float
        r = B / n, in (0, 1].

    Examples
    --------
    >>> from sklearn_dpop.factorization import LambdaCGD
    >>> participation = participation_of(LambdaCGD(0.5), 3, 0.5)
    >>> (participation.norms**2).round(4), participation.tail
    (array([1.3125, 3.8125, 6.3125]), 0.0)
    """
    rate, n_steps = _check(rate, n_steps)
    counts = np.arange(1, n_steps)
    tails = np.append(betainc(counts + 1.0, n_steps - counts, rate), 0.0)
    largest = int(np.argmax(tails <= _NEGLIGIBLE)) + 1
    k = np.arange(1, largest + 1)
    log_choose = gammaln(n_steps + 1) - gammaln(k + 1) - gammaln(n_steps - k + 1)
    failures = n_steps - k
    with np.errstate(divide="ignore", invalid="ignore"):
        log_miss = np.where(failures > 0, failures * np.log1p(-rate), 0.0)
    rounding = 8.0 * np.finfo(float).eps * (1.0 + float(gammaln(n_steps + 1)))
    log_probability = log_choose + k * math.log(rate) + log_miss + rounding
    norms = worst_case_norms(strategy, n_steps, largest)
    # A tail that was rounded to zero is not zero.
    tail = 0.0 if largest == n_steps else max(float(tails[largest - 1]), _NEGLIGIBLE)
    gram = _gram(strategy, n_steps)
    return Participation(n_steps, rate, log_probability, tail, norms, gram)


def worst_case_norms(strategy: Strategy, n_steps: int, largest: int) -> Float:
    r"""Return upper bounds of :math:`\max_{|y|_0 = k} \||C| y\|` for k = 1, .., `largest`.

    For a Toeplitz C with :math:`|c_0| \ge |c_1| \ge \dots` the first k steps are the worst
    ones, and the bound is exact: with :math:`X = |C|^T |C|`, :math:`X_{ij}` decreases in
    :math:`j - i` and, at a fixed gap, in i; the a-th of k steps is at least a, and two of them
    are at least as far apart as their ranks.  Then

    .. math:: D_k^2 = \sum_{t} (S_t - S_{t-k})^2, \qquad S_t = |c_0| + \dots + |c_t| .

    The same holds for a dense C whose X has this order (which is checked).  Otherwise:

    * Toeplitz: the smaller of D_k for the smallest nonincreasing sequence above \|c\|, and
      :math:`\sum_{a, a' < k} \max_{g \ge |a - a'|} A(g)` with the autocorrelation A of \|c\|,
      for :math:`X_{ij} \le A(|i - j|)`;
    * dense: the k largest sums of the k largest entries of a row of X.

    Parameters
    ----------
    strategy : Strategy
        C.
    n_steps : int
        T.
    largest : int
        Between 1 and `n_steps`.

    Returns
    -------
    ndarray of shape (largest,)
        Nondecreasing.

    Examples
    --------
    >>> from sklearn_dpop.factorization import Identity
    >>> worst_case_norms(Identity(), 9, 4) ** 2
    array([1., 2., 3., 4.])
    """
    if not isinstance(strategy, ToeplitzStrategy):
        return _dense_norms(np.abs(strategy.matrix(n_steps)), largest)
    c = np.abs(strategy.coef(n_steps))
    majorant = np.maximum.accumulate(c[::-1])[::-1]
    squared = _first_steps_squared(majorant, largest)
    if np.any(majorant != c):
        squared = np.minimum(squared, _lag_bound_squared(c, largest))
    norms: Float = np.sqrt(squared)
    return norms


def _first_steps_squared(c: Float, largest: int) -> Float:
    """Squared norms of the sums of the first 1, .., `largest` columns."""
    sums = np.concatenate((np.zeros(1), np.cumsum(c)))
    n = len(c)
    squared = np.empty(largest)
    for k in range(1, largest + 1):
        head, rest = sums[1 : k + 1], sums[k + 1 :] - sums[1 : n + 1 - k]
        squared[k - 1] = head @ head + rest @ rest
    return squared


def _lag_bound_squared(c: Float, largest: int) -> Float:
    """Return sums over all pairs of k ranks of the largest autocorrelation they allow."""
    lags = _lag_gram(c)[:largest]
    steps = np.cumsum(np.concatenate((lags[:1], 2.0 * lags[1:])))  # from k - 1 to k
    squared: Float = np.cumsum(steps)
    return squared


def _lag_gram(c: Float) -> Float:
    """Upper bounds of X at each lag, nonincreasing: maxima of the autocorrelation from there."""
    n = len(c)
    size = next_fast_len(2 * n, real=True)
    spectrum = rfft(c, size)
    correlation = irfft(spectrum.real**2 + spectrum.imag**2, size)[:n]
    # The rounding error of the transforms is relative to the largest entry.
    correlation += 1e-14 * math.log2(size) * correlation[0]
    maxima: Float = np.maximum.accumulate(correlation[::-1])[::-1]
    return maxima


def _dense_norms(matrix: Float, largest: int) -> Float:
    gram = matrix.T @ matrix
    n = len(gram)
    by_gap = np.zeros((n, n))  # entry (i, g) is X[i, i + g], zero outside
    for i in range(n):
        by_gap[i, : n - i] = gram[i, i:]
    slack = 1e-12 * float(gram.max())
    if np.diff(by_gap, axis=0).max(initial=0.0) <= slack and (
        np.diff(by_gap, axis=1).max(initial=0.0) <= slack
    ):
        # Allowing for the slack: k^2 entries, each of them larger by at most 2 n slack.
        k = np.arange(1, largest + 1)
        first = np.cumsum(np.cumsum(gram, axis=0), axis=1).diagonal()[:largest]
        return np.asarray(np.sqrt(first + k * k * 2 * n * slack))
    rows = np.cumsum(np.sort(gram, axis=1)[:, ::-1], axis=1)[:, :largest]
    best = np.sort(rows, axis=0)[::-1]
    return np.asarray(np.sqrt(np.cumsum(best, axis=0).diagonal()[:largest]))


def _gram(strategy: Strategy, n_steps: int) -> Float:
    if not isinstance(strategy, ToeplitzStrategy):
        matrix = np.abs(strategy.matrix(n_steps))
        return np.asarray(matrix.T @ matrix)
    c = np.abs(strategy.coef(n_steps))
    if n_steps > _TABLE_LIMIT:
        return _lag_gram(c)
    # X_ij = c_0 c_{j-i} + .. with n - j terms: one term less per step along a diagonal.
    gram = np.empty((n_steps, n_steps))
    for gap in range(n_steps):
        sums = np.cumsum(c[: n_steps - gap] * c[gap:])[::-1]
        i = np.arange(n_steps - gap)
        gram[i, i + gap] = gram[i + gap, i] = sums
    return gram


# --- bounds from the number of participations ------------------------------------------------


def convex_mixture_delta(
    participation: Participation,
    noise_multiplier: float,
    epsilons: ArrayLike,
    *,
    sensitivity_factor: float = 1.0,
) -> Float:
    r"""Return :math:`\sum_k \Pr(k)\, H(f D_k / \kappa; \epsilon)`, an upper bound of delta.

    It holds for every sampling whose batches do not depend on the data and in which a record
    takes part k times with these probabilities (proof in the module's docstring).

    Parameters
    ----------
    participation : Participation
        Of the strategy and the rate.
    noise_multiplier : float
        kappa > 0.
    epsilons : array_like of shape (n_epsilons,)
        Real numbers.
    sensitivity_factor : float, default=1.0
        f: 1 for zero-out (or add/remove, for Poisson batches), 2 for replace-one.

    Returns
    -------
    ndarray of shape (n_epsilons,)
        Rounded up.

    Examples
    --------
    >>> from sklearn_dpop.factorization import Identity
    >>> participation = participation_of(Identity(), 400, 0.025)
    >>> f"{convex_mixture_delta(participation, 13.2, [1.0])[0]:.1e}"
    '9.9e-06'
    """
    log_profile = _log_profile(participation.norms, noise_multiplier, epsilons, sensitivity_factor)
    log_delta = logsumexp(participation.log_probability + log_profile, axis=1)
    delta: Float = np.minimum(np.exp(log_delta) * _ROUND_UP + participation.tail, 1.0)
    return delta


def exact_split_noise_multiplier(
    epsilon: float, delta: float, participation: Participation
) -> float:
    r"""Return the multiplier of the split of delta that Theorem E.1 makes, done exactly.

    The smallest :math:`D_k\, \sigma_G(\epsilon, (\delta - p_k) / (1 - p_k))` over k, with the
    probability :math:`p_k` of more than k participations and the analytic Gaussian mechanism's
    :math:`\sigma_G`.  :func:`convex_mixture_delta` is never worse; this is for reference.

    Parameters
    ----------
    epsilon : float
        Positive.
    delta : float
        In (0, 1).
    participation : Participation
        Of the strategy and the rate.

    Examples
    --------
    >>> from sklearn_dpop.factorization import Identity
    >>> participation = participation_of(Identity(), 400, 0.025)
    >>> round(exact_split_noise_multiplier(1.0, 1e-5, participation), 2)
    19.57
    """
    _check_target(epsilon, delta)
    best = math.inf
    for k, norm in enumerate(participation.norms.tolist(), start=1):
        tail = participation_tail(k, participation.rate, participation.n_steps)
        if tail < delta:
            rest = (delta - tail) / (1.0 - tail)
            best = min(best, norm * gaussian_noise_multiplier(epsilon, rest))
            if tail < 1e-3 * delta:  # a larger k only enlarges the norm
                break
    return best


def subset_delta(
    noise_multiplier: float, rate: float, n_steps: int, epsilons: ArrayLike, *, adjacency: str
) -> Float:
    r"""Return a bound of delta for independent noise and secret batches of fixed size.

    In one step let the batch contain the record with probability r, and let :math:`\mu_1`,
    :math:`\mu_1'` be the outputs of the two neighbours if it does and :math:`\mu_0` the common
    output if it does not.  With :math:`e^{\epsilon'} = 1 + (e^\epsilon - 1) / r` and
    :math:`\beta = e^{\epsilon - \epsilon'}`, Theorem 2 of arXiv 1807.01647 (advanced joint
    convexity) says

    .. math:: H(\mu, \mu'; \epsilon) = r\, H(\mu_1, (1 - \beta) \mu_0 + \beta \mu_1'; \epsilon').

    A batch without the record is a batch with it where a random other record took its place.
    Given the rest of the batch and the other record, with gradients g (of the record), g' (of its
    replacement) and h (of the other one), this is the divergence of :math:`N(0, \kappa^2 I)` from
    the mixture of :math:`N(h - g, \kappa^2 I)` and :math:`N(g' - g, \kappa^2 I)`; and H is jointly
    convex.  It is largest for means in one direction and of the largest norms (below).  So the
    profile of a step is at most

    * replace-one: :math:`r H(2 / \kappa; \epsilon')`, for both norms are at most 2;
    * zero-out: :math:`r H(N(0, \kappa^2), (1 - \beta) N(2, \kappa^2) + \beta N(1, \kappa^2);
      \epsilon')`, for :math:`\|g' - g\| = \|g\| \le 1`.  In the other order, g = 0 and both norms
      are at most 1, which gives less.

    Both are attained (by gradients -1 of all other records and 1 of this one).  Steps are
    composed adaptively by :func:`~sklearn_dpop.privacy._composition.compose_profile`.

    *One direction is worst.*  The divergence of :math:`N(0, \kappa^2 I)` from
    :math:`\sum_l w_l N(m_l, \kappa^2 I)` is :math:`\mathbb{E} \varphi(\sum_l w_l \rho_l)` with the
    convex :math:`\varphi(t) = (1 - e^{\epsilon'} t)_+` and likelihood ratios :math:`\rho_l`, which
    are lognormal with mean 1 and log-variance :math:`\|m_l\|^2 / \kappa^2`.  Of all random
    variables with given marginals the comonotone ones have the sum that is largest in convex
    order; means in one direction make them comonotone; and that sum increases in convex order
    with its marginals, hence with the norms.

    For noise correlated by C, pass the multiplier divided by the operator norm of C; see
    :func:`~sklearn_dpop.privacy.accounting._poisson.operator_norm_bound`.

    Parameters
    ----------
    noise_multiplier : float
        kappa > 0, of independent noise.
    rate : float
        r = B / n, in (0, 1].
    n_steps : int
        T.
    epsilons : array_like of shape (n_epsilons,)
        Nonnegative.
    adjacency : {"zero-out", "replace-one"}
        Neighbouring relation.

    Returns
    -------
    ndarray of shape (n_epsilons,)
        Rounded up; not resolved under about 1e-15.

    Examples
    --------
    >>> delta = subset_delta(3.04, 0.025, 400, [1.0], adjacency="zero-out")
    >>> bool(0.9e-5 < delta[0] < 1e-5)
    True
    """
    rate, n_steps = _check(rate, n_steps)
    _check_multiplier(noise_multiplier)
    if adjacency not in ("zero-out", "replace-one"):
        raise ValueError(
            f"adjacency={adjacency!r} must be 'zero-out' or 'replace-one': a record more or less "
            f"changes the batches of the others."
        )

    def log_profile(epsilon: Float) -> Float:
        log_beta = math.log(rate) - np.log1p((rate - 1.0) * np.exp(-epsilon))
        inner = epsilon - log_beta
        if adjacency == "replace-one" or rate == 1.0:
            shift = (2.0 if adjacency == "replace-one" else 1.0) / noise_multiplier
            profile = log_gaussian_delta(shift, inner) + 1e-10
        else:
            profile = _log_mixture_profile(noise_multiplier, inner, log_beta)
        return np.asarray(math.log(rate) + profile)

    composed = compose_profile(log_profile, n_steps, delta=1e-12)
    return np.array([composed.delta(epsilon) for epsilon in _check_epsilons(epsilons).tolist()])


def _log_mixture_profile(kappa: float, epsilon: Float, log_beta: Float) -> Float:
    r"""Return an upper bound of the log of H(N(0), (1 - beta) N(2) + beta N(1); epsilon).

    The first density is larger than :math:`e^\epsilon` times the second where
    :math:`z = e^{x / \kappa^2}` is below the root of
    :math:`(1 - \beta) e^{-2 / \kappa^2} z^2 + \beta e^{-1 / (2 \kappa^2)} z = e^{-\epsilon}`.
    """
    log_rest = np.log(-np.expm1(np.minimum(log_beta, -1e-300)))
    square, linear = log_rest - 2.0 / kappa**2, log_beta - 0.5 / kappa**2
    root = 0.5 * np.logaddexp(2.0 * linear, math.log(4.0) + square - epsilon)
    x = kappa * (math.log(2.0) - epsilon - np.logaddexp(linear, root))
    first = log_ndtr(x)
    second = np.logaddexp(
        log_rest + log_ndtr(x - 2.0 / kappa), log_beta + log_ndtr(x - 1.0 / kappa)
    )
    # The rounding error of the logarithms, which the difference would lose.
    rounding = 1e-15 * (10.0 + epsilon - 2.0 * first)
    lost = -np.expm1(np.minimum(epsilon + second - first, 0.0))
    log_delta: Float = first + np.log(np.minimum(lost + rounding, 1.0))
    return log_delta


# --- Monte Carlo over the places -------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ParticipationSummand:
    r"""Draws of :math:`\mathbb{E}_y H(f \||C| y\| / \kappa; \epsilon)`.

    The number k of participations comes from a proposal q, the places are uniform given k, and
    a draw is :math:`\Pr(k) / q_k` times the profile.  It is at most
    :math:`\max_k \Pr(k) H(f D_k / \kappa; \epsilon) / q_k`.  Numbers outside of the support of
    q are bounded as in :func:`convex_mixture_delta`, by a constant that is added to all draws.

    Attributes
    ----------
    participation : Participation
        Of the strategy and the rate.
    noise_multiplier : float
        kappa.
    sensitivity_factor : float
        f.
    proposal : ndarray of shape (K,)
        q, nonnegative, sums to 1.
    """

    participation: Participation
    noise_multiplier: float
    sensitivity_factor: float
    proposal: Float

    def bound(self, epsilon: float) -> float:
        """Return the supremum of the draws, by the formula above."""
        log_mass, drawn = self._log_mass(epsilon), self.proposal > 0.0
        largest = np.exp(np.max(log_mass[drawn] - np.log(self.proposal[drawn])))
        return float(largest) * _ROUND_UP + self._rest(epsilon)

    def draw(self, rng: np.random.Generator, size: int) -> Callable[[float], Float]:
        """Draw numbers and places of participations."""
        # The multiset of independent draws of k; their order does not matter.
        counts = rng.multinomial(size, self.proposal)
        drawn = np.flatnonzero(counts)
        energies = [
            _energies(self.participation, rng, k + 1, int(counts[k])) for k in drawn.tolist()
        ]
        scale = self.sensitivity_factor / self.noise_multiplier
        shift = scale * np.sqrt(np.concatenate(energies))
        log_weight = self.participation.log_probability[drawn] - np.log(self.proposal[drawn])
        log_weight = np.repeat(log_weight, counts[drawn])

        def values(epsilon: float) -> Float:
            drawn = np.exp(log_weight + log_gaussian_delta(shift, epsilon))
            return np.asarray(drawn + self._rest(epsilon))

        return values

    def _log_mass(self, epsilon: float) -> Float:
        p = self.participation
        profile = _log_profile(p.norms, self.noise_multiplier, [epsilon], self.sensitivity_factor)
        return np.asarray(p.log_probability + profile[0])

    def _rest(self, epsilon: float) -> float:
        left_out = self._log_mass(epsilon)[self.proposal == 0.0]
        return self.participation.tail + float(np.exp(left_out).sum()) * _ROUND_UP


def choose_participation_summand(
    participation: Participation,
    noise_multiplier: float,
    epsilon: float,
    key: int,
    *,
    n_draws: int,
    failure_probability: float,
    sensitivity_factor: float = 1.0,
) -> tuple[ParticipationSummand, Pilot]:
    r"""Return the draws with the proposal that suits `epsilon`, and their pilot.

    Mixtures of two proposals are tried: :math:`\Pr(k) H(f D_k / \kappa; \epsilon)`, for which
    the supremum is smallest, and :math:`\Pr(k) \sqrt{\mathbb{E}[H^2 \mid k]}` with estimated
    moments, for which the variance is.

    Parameters
    ----------
    participation : Participation
        Of the strategy and the rate.
    noise_multiplier : float
        kappa > 0.
    epsilon : float
        Where the bound is to be smallest.
    key : int
        Random stream of the pilots.
    n_draws : int
        Number of draws that the bound will use.
    failure_probability : float
        Its beta.
    sensitivity_factor : float, default=1.0
        f: 1 for zero-out, 2 for replace-one.
    """
    log_profile = _log_profile(
        participation.norms, noise_multiplier, [epsilon], sensitivity_factor
    )
    bounded = _normalized(participation.log_probability + log_profile[0])
    rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence([key, 1])))
    log_moment = np.full(len(bounded), -np.inf)
    for i in np.flatnonzero(bounded).tolist():
        energy = _energies(participation, rng, i + 1, _DRAWS_PER_COUNT)
        shift = sensitivity_factor * np.sqrt(energy) / noise_multiplier
        log_square = 2.0 * log_gaussian_delta(shift, epsilon)
        log_moment[i] = logsumexp(log_square) - math.log(_DRAWS_PER_COUNT)
    typical = _normalized(participation.log_probability + 0.5 * log_moment)
    where = np.array([epsilon])
    best: tuple[float, ParticipationSummand, Pilot] | None = None
    for share in (1.0, 0.5, 0.2, 0.05, 0.01, 0.001):
        proposal = share * bounded + (1.0 - share) * typical
        summand = ParticipationSummand(
            participation, noise_multiplier, sensitivity_factor, proposal / proposal.sum()
        )
        moments = pilot(summand, where, key, _PILOT_DRAWS)
        score = float(moments.predicted(n_draws, failure_probability)[0])
        if best is None or score < best[0]:
            best = score, summand, moments
    assert best is not None
    return best[1], best[2]


def _normalized(log_mass: Float) -> Float:
    mass = np.exp(log_mass - log_mass.max())
    mass /= mass.sum()
    mass[mass < _RARE] = 0.0
    return np.asarray(mass / mass.sum())


def _energies(participation: Participation, rng: np.random.Generator, k: int, size: int) -> Float:
    """Draw squared norms of abs(C) y for `size` uniformly random sets of k steps."""
    gram = participation.gram
    steps = _subsets(rng, participation.n_steps, k, size)
    energy = np.full(size, k * gram[0]) if gram.ndim == 1 else gram[steps, steps].sum(axis=0)
    for gap in range(1, k):
        first, second = steps[gap:], steps[:-gap]
        pairs = gram[np.abs(first - second)] if gram.ndim == 1 else gram[first, second]
        energy += 2.0 * pairs.sum(axis=0)
    # Both are upper bounds.
    return np.asarray(np.minimum(energy, participation.norms[k - 1] ** 2))


def _subsets(rng: np.random.Generator, n: int, k: int, size: int) -> NDArray[np.int64]:
    """Draw uniformly random k-subsets of range(n), by Floyd's algorithm; shape (k, size)."""
    steps = np.empty((k, size), dtype=np.int64)
    for i, last in enumerate(range(n - k, n)):
        new = rng.integers(last + 1, size=size)
        taken = (steps[:i] == new).any(axis=0)
        steps[i] = np.where(taken, last, new)
    return steps


# --- small helpers -----------------------------------------------------------------------------


def _log_profile(
    norms: Float, noise_multiplier: float, epsilons: ArrayLike, sensitivity_factor: float
) -> Float:
    """Log of H(f D_k / kappa; epsilon), shape (n_epsilons, K)."""
    _check_multiplier(noise_multiplier)
    shifts = sensitivity_factor / noise_multiplier * norms
    return log_gaussian_delta(shifts, np.asarray(epsilons, dtype=float)[:, None])


def _check(rate: float, n_steps: int) -> tuple[float, int]:
    if not 0.0 < rate <= 1.0:
        raise ValueError(f"rate={rate!r} must be in (0, 1].")
    if not (isinstance(n_steps, (int, np.integer)) and n_steps >= 1):
        raise ValueError(f"n_steps={n_steps!r} must be an integer of at least 1.")
    return float(rate), int(n_steps)


def _check_multiplier(noise_multiplier: float) -> None:
    if not 0.0 < noise_multiplier < math.inf:
        raise ValueError(f"noise_multiplier={noise_multiplier!r} must be positive and finite.")


def _check_target(epsilon: float, delta: float) -> None:
    if not 0.0 < epsilon < math.inf:
        raise ValueError(f"epsilon={epsilon!r} must be positive and finite.")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta={delta!r} must be in (0, 1).")


def _check_epsilons(epsilons: ArrayLike) -> Float:
    values = np.asarray(epsilons, dtype=float)
    if values.ndim != 1 or not np.all(values >= 0.0):
        raise ValueError(f"epsilons={epsilons!r} must be nonnegative numbers in one dimension.")
    return values
