r"""Poisson sampling with correlated noise of one buffer: draws for a certified delta.

With :math:`C_{ij} = \lambda^{i-j}` (DP-:math:`\lambda`\ CGD; :math:`\gamma`-BIFR of bandwidth 2)
and batches that take every record with probability r in each of T steps, the mechanism is
dominated, under zero-out (or add/remove) adjacency, by

.. math:: P = \mathbb{E}_y\, N(s(y), \sigma^2 I_T), \quad s_t = \lambda s_{t-1} + y_t, \quad
          y_t \sim \mathrm{Bern}(r), \qquad Q = N(0, \sigma^2 I_T)

in one direction and by (Q, P) in the other (Lemma 4.5 of arXiv 2310.15526).

**Rounding up.**  Let :math:`s'(y) \ge s(y) \ge 0` in every coordinate, for every y.  Then
:math:`H_\epsilon(P' \| Q) \ge H_\epsilon(P \| Q)` and
:math:`H_\epsilon(Q \| P') \ge H_\epsilon(Q \| P)`.
Proof.  :math:`dP/dQ` increases in every coordinate of x, so :math:`A = \{dP/dQ > e^\epsilon\}`
is an upper set, and adding :math:`s'(y) - s(y) \ge 0` to a draw of :math:`N(s(y), \sigma^2 I)`
never leaves it: :math:`P'(A) \ge P(A)`, hence
:math:`H_\epsilon(P'\|Q) \ge P'(A) - e^\epsilon Q(A) \ge H_\epsilon(P\|Q)`.  The other direction
is the same with the lower set :math:`\{dP/dQ < e^{-\epsilon}\}`.
So :math:`s'_t` may be :math:`\lambda s'_{t-1} + y_t` rounded up to a finite set of levels at
*every* step, since by induction it stays above :math:`s_t`, and :math:`dP'/dQ` is a forward
recursion over that set.

**Dropping paths.**  For an event E of y, :math:`P_E = \mathbb{E}_y[1_E N(s(y), \sigma^2 I)]`
satisfies :math:`H_\epsilon(P\|Q) \le H_\epsilon(P_E\|Q) + \Pr(E^c)` and
:math:`H_\epsilon(Q\|P) \le H_\epsilon(Q\|P_E)`; so levels above a height that is hardly ever
reached are left out, and what is dropped is charged.  Underflow is dropping, too, of a
probability below :math:`10^{-290}`.

The chains, the proposals and the draws (:class:`Automaton`, :class:`RemoveSummand`,
:class:`AddSummand`) serve every sampling scheme in which records are taken independently of
each other by a finite chain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

__all__ = [
    "AddSummand",
    "Automaton",
    "Boost",
    "PowerTilt",
    "RemoveSummand",
    "choose_summand",
    "forward_log_ratio",
    "poisson_automaton",
    "poisson_summand",
    "state_levels",
]

Float = NDArray[np.float64]
Index = NDArray[np.integer[Any]]

# Relative slack when a level is compared with a sum: a rounding error must not cost a level.
# It is made up for in the means, once for each step.
_SLACK = 1e-14
# Probability of the paths that may be dropped, charged to delta.
_DROPPED = 1e-12
# Largest number of joint states of the copies of a power tilt, and of copies.
_JOINT_STATES = 600_000
_MAX_ORDER = 6
# Iterations towards an eigenfunction (it is usually found in fewer than 200).
_ITERATIONS = 1000
# Numbers (of 8 bytes) that may be kept to make a power tilt exact at every step.
_TABLE_SIZE = 4_000_000
# Share of the draws that come from the power tilt and bound the weights.
_POWER_SHARE = 0.5
# Points whose likelihood ratios are computed at once: their states should stay in the cache.
_TILE = 512
# Numbers (of 8 bytes) of one batch of points.
_BATCH_SIZE = 1 << 21
# Exponents above this are left to the bound of the draws.
_FAR = 600.0
# Boosts of means: scaled with this power while shifted, or scaled alone.
_SHIFTED_POWER = 0.6
_PILOT_DRAWS = 256
# Levels of the chain that boosts are made of, unless that of one decay is longer.
_COARSE = 24


@dataclass(frozen=True, eq=False)
class Automaton:
    """Finite chain of one record: when it takes part, and the mean of the output at each step.

    In each step the record in state v takes part with probability ``join_probability[v]`` and
    moves to ``next_join[v]``, or else to ``next_idle[v]``; the mean of the output of that step
    is the emission of the *new* state.

    Attributes
    ----------
    emission : ndarray of shape (n_states,)
        Means, nonnegative, for clip norm 1.
    next_idle, next_join : ndarray of shape (n_states,)
        Next states; -1 in `next_join` drops the path.
    join_probability : ndarray of shape (n_states,)
        In [0, 1].
    initial : ndarray of shape (n_states,)
        Probabilities of the states before the first step.
    """

    emission: Float
    next_idle: Index
    next_join: Index
    join_probability: Float
    initial: Float

    def __len__(self) -> int:
        return len(self.emission)

    @property
    def kept_probability(self) -> Float:
        """Probability of taking part without being dropped, by state."""
        return np.where(self.next_join >= 0, self.join_probability, 0.0)

    def step(self, law: Float) -> Float:
        """Return the law of the states after one step, less what is dropped."""
        n = len(self)
        moved = np.zeros(n)
        moved += np.bincount(self.next_idle, (1.0 - self.join_probability) * law, n)
        moved += np.bincount(np.maximum(self.next_join, 0), self.kept_probability * law, n)
        return moved

    def dropped(self, n_steps: int) -> float:
        """Return the probability that a path is dropped within `n_steps` steps."""
        law, total = self.initial, 0.0
        gone = self.join_probability - self.kept_probability
        for _ in range(n_steps):
            total += float(gone @ law)
            law = self.step(law)
        return total

    def thinned(self, odds: float) -> Automaton:
        """Return the chain whose odds of joining are multiplied by `odds`.

        States whose joining drops the path do not join at all in it.
        """
        p = self.kept_probability
        return Automaton(
            self.emission,
            self.next_idle,
            np.maximum(self.next_join, 0),
            odds * p / (1.0 - p + odds * p),
            self.initial,
        )

    def scaled(self, factor: float) -> Self:
        """Return the chain with means times `factor`."""
        return replace(self, emission=factor * self.emission)

    def mean_and_energy(self, n_steps: int) -> tuple[Float, float]:
        """Return the expected means, shape (n_steps,), and the expected sum of their squares."""
        law, mean, energy = self.initial, np.empty(n_steps), 0.0
        for t in range(n_steps):
            law = self.step(law)
            mean[t] = self.emission @ law
            energy += float(self.emission**2 @ law)
        return mean, energy

    def divergence_from(self, other: Automaton, n_steps: int) -> float:
        """Return KL(self || other) of the paths; `other` has other join probabilities only."""
        p, q = other.join_probability, self.join_probability
        with np.errstate(divide="ignore", invalid="ignore"):
            joins = np.where(q > 0.0, q * np.log(q / p), 0.0)
            stays = np.where(q < 1.0, (1.0 - q) * (np.log1p(-q) - np.log1p(-p)), 0.0)
        law, total = self.initial, 0.0
        for _ in range(n_steps):
            total += float((joins + stays) @ law)
            law = self.step(law)
        return total

    def draw(self, rng: np.random.Generator, n_steps: int, size: int) -> Float:
        """Return means of `size` independent paths (no dropping), shape (n_steps, size)."""
        means = np.empty((n_steps, size))
        state = rng.choice(len(self), size=size, p=self.initial / self.initial.sum())
        for t in range(n_steps):
            joins = rng.random(size) < self.join_probability[state]
            state = np.where(joins, self.next_join[state], self.next_idle[state])
            means[t] = self.emission[state]
        return means


# Log dP/dQ, shape (n,), for the P of a chain, of points of shape (n_steps, n).
LogRatio = Callable[[Automaton, Float], Float]


def forward_log_ratio(chain: Automaton, points: Float, sigma: float) -> Float:
    r"""Return :math:`\log dP/dQ` by the forward recursion over the states of a chain.

    .. math:: \alpha_t(v') = e^{(2 e_{v'} x_t - e_{v'}^2)/(2\sigma^2)}
              \sum_v \alpha_{t-1}(v)\, p(v \to v'), \qquad L = \log \sum_v \alpha_T(v) .

    Parameters
    ----------
    chain : Automaton
        States and their means.
    points : ndarray of shape (n_steps, n)
        x, one point per column.
    sigma : float
        Noise multiplier.

    Returns
    -------
    ndarray of shape (n,)
        nan for points so far out that an exponent exceeds 600.
    """
    n = points.shape[1]
    slope = chain.emission / sigma**2
    line = np.stack([slope, -0.5 * slope * chain.emission], axis=1)
    reach = float(slope.max()) * (np.abs(points).max(axis=0) + chain.emission.max())
    near = reach < _FAR
    # Entries shrink and grow by no more than e^150 between two rescalings, if steps allow.
    every = max(1, int(150.0 / (1.0 + reach[near].max(initial=0.0))))
    move = _transitions(chain)
    alpha = np.repeat(chain.initial[:, None], n, axis=1)
    log_scale = np.zeros(n)
    design, weight = np.ones((2, n)), np.empty_like(alpha)
    with np.errstate(divide="ignore", invalid="ignore"):
        for t, row in enumerate(points):
            design[0] = np.where(near, row, 0.0)
            np.matmul(line, design, out=weight)
            np.exp(weight, out=weight)
            alpha = move @ alpha
            alpha *= weight
            if (t + 1) % every == 0:
                scale = alpha.max(axis=0)
                alpha /= scale
                log_scale += np.log(scale)
        losses = log_scale + np.log(alpha.sum(axis=0))
    return np.where(near, losses, np.nan)


def _transitions(chain: Automaton) -> csr_array:
    """Return the sparse matrix that maps laws of states to those after one step."""
    n, states = len(chain), np.arange(len(chain))
    probabilities = np.concatenate([1.0 - chain.join_probability, chain.kept_probability])
    targets = np.concatenate([chain.next_idle, np.maximum(chain.next_join, 0)])
    return csr_array((probabilities, (targets, np.tile(states, 2))), shape=(n, n))


class PowerTilt:
    r"""Draws of the means under :math:`R_a = Q (dP/dQ)^a / Z`.

    For an integer a, with independent copies :math:`y^1, \dots, y^a` of the path and their
    means :math:`m_1, \dots, m_a`,

    .. math:: Q \Bigl(\frac{dP}{dQ}\Bigr)^a = \sum_{y^1, \dots, y^a} w(y)\,
              N\Bigl(\sum_i m_i, \sigma^2 I\Bigr), \qquad
              w(y) = \prod_i p(y^i) \exp\Bigl(\sum_{i<j} \frac{\langle m_i, m_j \rangle}
              {\sigma^2}\Bigr).

    Since the inner products are sums over steps, w is a chain on the joint states of the
    copies: with :math:`(K h)(v) = \sum_{v'} p(v \to v') \exp(\sum_{i<j} e_{v'_i} e_{v'_j} /
    \sigma^2) h(v')`, positive functions :math:`h_T, \dots, h_0` and transition probabilities
    :math:`\tilde q_t(v \to v') \propto p(v \to v') \exp(\cdot) h_{T-t-1}(v')`,

    .. math:: \frac{w(y)}{\tilde q(y)} = \frac{\mathbb{E} h_T(v_0)}{h_0(v_T)}
              \prod_t \frac{(K h_{T-t-1})(v_t)}{h_{T-t}(v_t)} .

    If :math:`h_k = K^k 1` the ratio is the constant Z.  Where those functions are too many to
    be kept, h is an approximate eigenfunction and each factor is replaced by its maximum over
    the states, an upper bound whatever h is.

    Parameters
    ----------
    chain : Automaton
        Chain of one record.
    n_steps : int
        T.
    sigma : float
        Noise multiplier.
    order : int
        Number of copies a, at least 1.

    Attributes
    ----------
    log_supremum : float
        Log of an upper bound of :math:`w/\tilde q`.
    """

    def __init__(self, chain: Automaton, n_steps: int, sigma: float, order: int) -> None:
        self.chain, self.n_steps, self.order = chain, n_steps, order
        n, shape = len(chain), (len(chain),) * order
        emissions = [_along(chain.emission, i, order) for i in range(order)]
        total = sum(emissions, np.zeros(shape))
        with np.errstate(over="ignore"):
            coupling = np.exp(0.5 * (total**2 - sum(e * e for e in emissions)) / sigma**2)
        self._total = total.ravel()
        stays = 1.0 - chain.join_probability
        resting, idle = np.ones(shape), np.zeros(shape, dtype=np.int64)
        for i in range(order):
            resting = resting * _along(stays, i, order)
            idle = idle + _along(chain.next_idle * n ** (order - 1 - i), i, order)
        self._idle, resting = idle.ravel(), resting.ravel()

        self._tables: list[Float] = []
        self._idle_shares: list[Float] = []
        h, growth = np.ones(shape), 0.0
        exact = 2 * (n_steps + 1) * h.size <= _TABLE_SIZE
        # What over- or underflows ends in an infinite supremum.
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            for _ in range(n_steps if exact else _ITERATIONS):
                image = self._apply(coupling * h)
                if exact:
                    self._keep(coupling * h, image, resting)
                elif np.ptp(image / h) < 1e-4 / n_steps * float(np.max(image / h)):
                    break
                scale = float(image.max())
                growth += math.log(scale)
                h = image / scale
            if exact:
                self._final = np.ones(h.size)
            else:
                image = self._apply(coupling * h)
                self._keep(coupling * h, image, resting)
                self._final = h.ravel()
                growth = n_steps * math.log(float(np.max(image / h)))
            start = h
            for i in range(order):
                start = start * _along(chain.initial, i, order)
            self._start = np.cumsum(start.ravel())
            self._log_weight = growth + float(np.log(self._start[-1]))
            self.log_supremum = self._log_weight - float(np.log(self._final.min()))
        if not (math.isfinite(self.log_supremum) and h.min() > 1e-250):
            self.log_supremum = math.inf

    def _apply(self, values: Float) -> Float:
        """Return the expectation of `values` after one step, from each joint state."""
        chain, k = self.chain, self.order
        for i in range(k):
            idle = _along(1.0 - chain.join_probability, i, k)
            join = _along(chain.kept_probability, i, k)
            after_join = np.take(values, np.maximum(chain.next_join, 0), axis=i)
            values = idle * np.take(values, chain.next_idle, axis=i) + join * after_join
        return values

    def _keep(self, table: Float, image: Float, resting: Float) -> None:
        self._tables.append(table.ravel())
        # Where all that follows is dropped, no path arrives.
        share = np.divide(
            resting * self._tables[-1][self._idle],
            image.ravel(),
            out=np.zeros(image.size),
            where=image.ravel() > 0.0,
        )
        self._idle_shares.append(share)

    def draw(self, rng: np.random.Generator, size: int) -> tuple[Float, Float]:
        r"""Return sums of the means, shape (n_steps, size), and :math:`\log w/\tilde q`."""
        sums = np.empty((self.n_steps, size))
        state = np.searchsorted(self._start, rng.random(size) * self._start[-1], side="right")
        for t in range(self.n_steps):
            k = min(self.n_steps - 1 - t, len(self._tables) - 1)
            uniform = rng.random(size)
            moved = np.flatnonzero(uniform >= self._idle_shares[k][state])
            after = self._move(state[moved], self._tables[k], rng.random(len(moved)))
            state = self._idle[state]
            state[moved] = after
            sums[t] = self._total[state]
        return sums, self._log_weight - np.log(self._final[state])

    def _move(self, state: Index, table: Float, uniform: Float) -> Index:
        """Return next joint states, given that at least one copy joins."""
        chain, n = self.chain, len(self.chain)
        next_join, kept = np.maximum(chain.next_join, 0), chain.kept_probability
        index, probability = np.zeros((1, len(state)), dtype=np.int64), np.ones((1, len(state)))
        rest, stride = state, 1
        for _ in range(self.order):
            rest, v = np.divmod(rest, n)
            index = np.concatenate(
                [index + stride * chain.next_idle[v], index + stride * next_join[v]]
            )
            probability = np.concatenate(
                [probability * (1.0 - chain.join_probability[v]), probability * kept[v]]
            )
            stride *= n
        index, probability = index[1:], probability[1:]
        probability *= table[index]
        np.cumsum(probability, axis=0, out=probability)
        chosen = (probability[:-1] <= uniform * probability[-1]).sum(axis=0)
        moved: Index = index[chosen, np.arange(len(state))]
        return moved


class _Draws:
    """What both directions share."""

    def __init__(self, chain: Automaton, n_steps: int, sigma: float, log_ratio: LogRatio) -> None:
        self.chain, self.n_steps, self.sigma = chain, int(n_steps), float(sigma)
        self._log_ratio = log_ratio
        # Of L: at most 3 * 600 roundings of the exponents and 100 of sums and products per step.
        self._error = 1e-12 * self.n_steps

    def _batches(self, size: int) -> list[int]:
        batch = max(_TILE, _BATCH_SIZE // self.n_steps // _TILE * _TILE)
        return [min(batch, size - start) for start in range(0, size, batch)]

    def _losses(self, chain: Automaton, points: Float) -> Float:
        losses = np.empty(points.shape[1])
        for i in range(0, len(losses), _TILE):
            tile = np.ascontiguousarray(points[:, i : i + _TILE])
            losses[i : i + _TILE] = self._log_ratio(chain, tile)
        return losses


@dataclass(frozen=True, eq=False)
class Boost:
    r"""A law R' of outputs like P, with larger means.

    Attributes
    ----------
    chain : Automaton
        Chain that R' is the P of, before the shift; it drops no path.
    shift : ndarray of shape (n_steps,)
        Added to the outputs.
    """

    chain: Automaton
    shift: Float

    def draw(self, rng: np.random.Generator, sigma: float, size: int) -> Float:
        """Return points, shape (n_steps, size)."""
        points = self.chain.draw(rng, len(self.shift), size)
        points += self.shift[:, None]
        points += sigma * rng.standard_normal(points.shape)
        return points


class RemoveSummand(_Draws):
    r"""Draws whose mean is an upper bound of :math:`H_\epsilon(P\|Q)`, P given by a chain.

    With :math:`L = \log dP/dQ` the draws :math:`X = (e^L - e^\epsilon)_+\, dQ/dR` come from

    .. math:: R = w_0 R_a + \sum_k w_k R'_k, \qquad R_a = Q e^{aL} / Z .

    The boosts :math:`R'_k` (:class:`Boost`) make the variance small, and :math:`R_a`
    (:class:`PowerTilt`) makes the supremum small: for every L

    .. math:: X \le \frac{Z}{w_0} (e^L - e^\epsilon)_+ e^{-aL} \le M(\epsilon) =
              \frac{Z}{w_0} \frac{1}{a} \Bigl(\frac{a-1}{a}\Bigr)^{a-1} e^{-(a-1)\epsilon} .

    Where the tilt is not exact, Z stands for the bound :math:`W \ge w/\tilde q` of its weights
    and a draw from :math:`R_a` is multiplied by :math:`w/(\tilde q W) \le 1`, which keeps the
    mean and the supremum.  :math:`w_0 M` is by itself a bound of delta, the one of the Rényi
    divergence of order a (:func:`renyi_bound`).

    Parameters
    ----------
    chain : Automaton
        Chain of one record.
    n_steps : int
        T.
    sigma : float
        Noise multiplier.
    log_ratio : callable
        Returns log dP/dQ of points for a chain, see :func:`forward_log_ratio`.
    tilt : PowerTilt
        Of the same chain, steps and sigma.
    boosts : sequence of Boost
        May be empty; `log_ratio` must accept their chains.
    """

    def __init__(
        self,
        chain: Automaton,
        n_steps: int,
        sigma: float,
        log_ratio: LogRatio,
        *,
        tilt: PowerTilt,
        boosts: Sequence[Boost] = (),
    ) -> None:
        super().__init__(chain, n_steps, sigma, log_ratio)
        self.tilt, self.boosts = tilt, tuple(boosts)
        # A tilt of order 1 is P itself: more of it makes the supremum smaller, next to 1.
        share = _POWER_SHARE if tilt.order > 1 else 0.9
        others = [(1.0 - share) / len(boosts) for _ in boosts]
        self._shares = [1.0 - sum(others), *others]
        self._dropped = chain.dropped(self.n_steps) * (1.0 + 1e-9)

    def bound(self, epsilon: float) -> float:
        """Return the supremum of the draws at `epsilon`, by the formula above."""
        tilted = renyi_bound(self.tilt, epsilon, self._error)
        return tilted / self._shares[0] + self._charge(epsilon)

    def _charge(self, epsilon: float) -> float:
        """Return what is lost: dropped paths, and rounding of transition probabilities."""
        rounding = 2.0**-50 * 2.0**self.tilt.order * self.n_steps
        return self._dropped + rounding * renyi_bound(self.tilt, epsilon, self._error)

    def draw(self, rng: np.random.Generator, size: int) -> Callable[[float], Float]:
        """Draw `size` points; the returned function maps epsilon to all their values."""
        drawn = [self._draw_batch(rng, n) for n in self._batches(size)]
        losses, log_weights = np.concatenate(drawn, axis=1)
        known = np.isfinite(losses) & np.isfinite(log_weights)

        def values(epsilon: float) -> Float:
            x = np.full(size, self.bound(epsilon))
            excess = np.maximum(losses[known] + self._error - epsilon, 0.0)
            scale = np.where(excess > 0.0, losses[known] + log_weights[known], 0.0)
            x[known] = -np.expm1(-excess) * np.exp(scale) + self._charge(epsilon)
            return x

        return values

    def _draw_batch(self, rng: np.random.Generator, size: int) -> tuple[Float, Float]:
        """Return L and the log of dQ/dR, times the weight of a draw of the tilt."""
        n_tilt, *n_boosts = rng.multinomial(size, self._shares).tolist()
        sums, log_weight = self.tilt.draw(rng, n_tilt)
        sums += self.sigma * rng.standard_normal(sums.shape)
        drawn = [b.draw(rng, self.sigma, n) for b, n in zip(self.boosts, n_boosts, strict=True)]
        points = np.concatenate([sums, *drawn], axis=1)
        losses = self._losses(self.chain, points)
        mixed = self.tilt.order * (losses - self._error) - self.tilt.log_supremum
        mixed += math.log(self._shares[0])
        for boost, share in zip(self.boosts, self._shares[1:], strict=True):
            # dR'/dQ of x is that of the unshifted law at x - shift, times dN(shift)/dQ.
            moved = points - boost.shift[:, None]
            ratio = boost.shift @ (points + moved) / (2.0 * self.sigma**2)
            ratio += self._losses(boost.chain, moved) - self._error
            ratio = np.nan_to_num(ratio, nan=-math.inf, neginf=-math.inf)
            with np.errstate(invalid="ignore"):  # nan losses stay nan
                mixed = np.logaddexp(mixed, math.log(share) + ratio)
        log_weights = self._error - mixed
        log_weights[:n_tilt] += log_weight - self.tilt.log_supremum
        return losses, log_weights


def renyi_bound(tilt: PowerTilt, epsilon: float, loss_error: float = 0.0) -> float:
    r"""Return :math:`Z e^{-(a-1)\epsilon} \frac{1}{a} (\frac{a-1}{a})^{a-1} \ge H_\epsilon`."""
    a = tilt.order
    peak = -math.log(a) + (a - 1) * math.log1p(-1.0 / a) if a > 1 else 0.0
    log_bound = tilt.log_supremum - (a - 1) * epsilon + 2.0 * a * loss_error + peak
    return math.exp(min(log_bound, 700.0))


class AddSummand(_Draws):
    r"""Draws whose mean is an upper bound of :math:`H_\epsilon(Q\|P)`, P given by a chain.

    They come from :math:`R = N(-c\mu, \sigma^2 I)`, where :math:`\mu` is the mean of the
    outputs under a law q of the paths with smaller odds of joining.  By Jensen's inequality

    .. math:: L = \log \frac{dP}{dQ} \ge \frac{\langle \mu, x \rangle}{\sigma^2} - A, \qquad
              A = \mathrm{KL}(q\|p) + \frac{\mathbb{E}_q |m|^2}{2\sigma^2},

    so :math:`X = (1 - e^{\epsilon + L})_+\, dQ/dR \le (1 - e^{\epsilon+L})_+
    e^{cL + cA + c^2|\mu|^2/(2\sigma^2)}`, at most

    .. math:: M(\epsilon) = \frac{1}{1+c} \Bigl(\frac{c}{1+c}\Bigr)^c
              e^{c (A - \epsilon) + c^2 |\mu|^2/(2\sigma^2)} .

    Parameters
    ----------
    chain, n_steps, sigma, log_ratio
        As for :class:`RemoveSummand`.
    shift : float
        c >= 0; 0 draws from Q, with M = 1.
    odds : float
        q has the odds of joining of P times `odds`.
    """

    def __init__(
        self,
        chain: Automaton,
        n_steps: int,
        sigma: float,
        log_ratio: LogRatio,
        *,
        shift: float,
        odds: float = 1.0,
    ) -> None:
        super().__init__(chain, n_steps, sigma, log_ratio)
        self.shift, self.odds = shift, odds
        self._mean, self._norm, self._offset = _jensen_terms(chain, n_steps, sigma, odds)

    def bound(self, epsilon: float) -> float:
        """Return the supremum of the draws at `epsilon`, by the formula above."""
        log_bound = _log_shift_bound(self.shift, self._offset - epsilon, self._norm)
        return math.exp(min(log_bound + 2.0 * (1.0 + self.shift) * self._error, 700.0))

    def draw(self, rng: np.random.Generator, size: int) -> Callable[[float], Float]:
        """Draw `size` points; the returned function maps epsilon to all their values."""
        drawn = [self._draw_batch(rng, n) for n in self._batches(size)]
        losses, log_weights = np.concatenate(drawn, axis=1)
        known = np.isfinite(losses)

        def values(epsilon: float) -> Float:
            x = np.full(size, self.bound(epsilon))
            excess = np.maximum(self._error - losses[known] - epsilon, 0.0)
            scale = np.where(excess > 0.0, log_weights[known] + self._error, 0.0)
            x[known] = -np.expm1(-excess) * np.exp(scale)
            return x

        return values

    def _draw_batch(self, rng: np.random.Generator, size: int) -> tuple[Float, Float]:
        """Return L and the log of dQ/dR."""
        points = rng.standard_normal((self.n_steps, size))
        points *= self.sigma
        points -= self.shift * self._mean[:, None]
        projection = self._mean @ points / self.sigma**2
        log_weights = self.shift * projection + 0.5 * self.shift**2 * self._norm
        return self._losses(self.chain, points), log_weights


def choose_summand(
    chain: Automaton,
    n_steps: int,
    sigma: float,
    log_ratio: LogRatio,
    *,
    direction: str,
    target_epsilon: float,
    boosted: Automaton | None = None,
    periodic: bool = False,
) -> RemoveSummand | AddSummand:
    r"""Return the draws of one direction with the proposal that suits `target_epsilon`.

    The supremum decides on the order of the tilt, and on the shift and the odds of the other
    direction.  The boost has means times :math:`\theta^{0.6}`, shifted by :math:`(\theta - 1)
    \mathbb{E}_P x`; one for periodic participation has means times :math:`\theta` and no shift.
    :math:`\theta` is such that about a third of the losses exceed the target (a pilot with a
    fixed seed).  Public numbers alone are used.

    Parameters
    ----------
    chain : Automaton
        Chain of one record.
    n_steps : int
        T.
    sigma : float
        Noise multiplier.
    log_ratio : callable
        See :func:`forward_log_ratio`.
    direction : {"remove", "add"}
        With the record against without it, or the reverse.
    target_epsilon : float
        Where the bound is to be small; every epsilon may be evaluated.
    boosted : Automaton, optional
        Chain that boosts are made of, by default `chain`; a coarser one is faster.
    periodic : bool
        Whether the record takes part almost periodically, which a second boost is for.
    """
    if direction == "add":
        return _choose_shift(chain, n_steps, sigma, log_ratio, target_epsilon)
    tilt = PowerTilt(chain, n_steps, sigma, 1)
    for order in range(2, _MAX_ORDER + 1):
        if len(chain) ** order > _JOINT_STATES:
            break
        higher = PowerTilt(chain, n_steps, sigma, order)
        if renyi_bound(higher, target_epsilon) >= renyi_bound(tilt, target_epsilon):
            break
        tilt = higher
    base, mean = boosted or chain, chain.mean_and_energy(n_steps)[0]

    def shifted(theta: float) -> Boost:
        return Boost(base.scaled(theta**_SHIFTED_POWER), (theta - 1.0) * mean)

    def unshifted(theta: float) -> Boost:
        return Boost(base.scaled(theta), 0.0 * mean)

    def above(boost: Boost) -> bool:
        points = boost.draw(np.random.default_rng(0), sigma, _PILOT_DRAWS)
        # Points too far out for their losses (nan) count as above.
        return bool(np.mean(log_ratio(chain, points) <= target_epsilon) < 2.0 / 3.0)

    families = (shifted, unshifted) if periodic else (shifted,)
    with threadpool_limits(1, user_api="blas"):  # many small products
        boosts = [family(_threshold(above, family)) for family in families]
    return RemoveSummand(chain, n_steps, sigma, log_ratio, tilt=tilt, boosts=boosts)


def _threshold(above: Callable[[Boost], bool], family: Callable[[float], Boost]) -> float:
    """Return about the smallest theta whose boost is above."""
    low, high = 0.0, math.log(300.0)
    for _ in range(7):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if above(family(math.exp(middle))) else (middle, high)
    return math.exp(low)


def _choose_shift(
    chain: Automaton, n_steps: int, sigma: float, log_ratio: LogRatio, target_epsilon: float
) -> AddSummand:
    best, smallest = (0.0, 1.0), math.inf
    for odds in np.linspace(1.0, 0.1, 10).tolist():
        _, norm, offset = _jensen_terms(chain, n_steps, sigma, odds)
        shift = _best_shift(offset - target_epsilon, norm)
        log_bound = _log_shift_bound(shift, offset - target_epsilon, norm)
        if log_bound < smallest:
            best, smallest = (shift, odds), log_bound
    return AddSummand(chain, n_steps, sigma, log_ratio, shift=best[0], odds=best[1])


def _jensen_terms(
    chain: Automaton, n_steps: int, sigma: float, odds: float
) -> tuple[Float, float, float]:
    """Return the mean, its squared length over sigma^2 and A of :class:`AddSummand`."""
    thin = chain.thinned(odds)
    mean, energy = thin.mean_and_energy(n_steps)
    offset = thin.divergence_from(chain, n_steps) + 0.5 * energy / sigma**2
    return mean, float(mean @ mean) / sigma**2, offset


def poisson_summand(
    decay: float,
    rate: float,
    n_steps: int,
    sigma: float,
    *,
    direction: str,
    target_epsilon: float,
    n_levels: int | None = None,
) -> RemoveSummand | AddSummand:
    r"""Return draws that bound delta for Poisson sampling and :math:`C_{ij} = \lambda^{i-j}`.

    Parameters
    ----------
    decay : float
        :math:`0 \le \lambda < 1`.
    rate : float
        Probability r in (0, 1] that a step takes a record.
    n_steps : int
        T.
    sigma : float
        Noise multiplier: standard deviation of the noise per unit clip norm, with
        :math:`C_{00} = 1`.
    direction : {"remove", "add"}
        With the record against without it, or the reverse; delta is the larger of both.
    target_epsilon : float
        Epsilon that the proposal is chosen for; every epsilon may be evaluated.
    n_levels : int, optional
        Number of levels of the mean; the more, the less is lost and the slower is a draw.

    Raises
    ------
    ValueError
        For parameters outside these ranges.

    Examples
    --------
    >>> summand = poisson_summand(0.5, 0.02, 50, 2.0, direction="remove", target_epsilon=2.0)
    >>> draws = summand.draw(np.random.default_rng(0), 4000)(2.0)
    >>> bool(0.0 < draws.mean() < draws.max() <= summand.bound(2.0) < 0.02)
    True
    """
    check_summand(n_steps, sigma, direction, target_epsilon)
    levels = state_levels(decay, rate, n_steps, n_levels)
    chain = poisson_automaton(decay, rate, levels, n_steps)
    coarse = poisson_automaton(
        decay, rate, state_levels(decay, rate, n_steps, min(_COARSE, len(levels))), n_steps
    )
    return choose_summand(
        chain,
        n_steps,
        sigma,
        partial(forward_log_ratio, sigma=sigma),
        direction=direction,
        target_epsilon=target_epsilon,
        boosted=coarse.thinned(1.0),
    )


def check_summand(n_steps: int, sigma: float, direction: str, target_epsilon: float) -> None:
    """Raise a ValueError if a parameter that all schemes share is out of range."""
    if not (isinstance(n_steps, int | np.integer) and n_steps >= 1):
        raise ValueError(f"n_steps={n_steps!r} must be a positive integer")
    if not (math.isfinite(sigma) and sigma > 0.0):
        raise ValueError(f"sigma={sigma!r} must be a positive number")
    if direction not in ("remove", "add"):
        raise ValueError(f"direction={direction!r} must be 'remove' or 'add'")
    if not (math.isfinite(target_epsilon) and target_epsilon >= 0.0):
        raise ValueError(f"target_epsilon={target_epsilon!r} must be a nonnegative number")


def poisson_automaton(decay: float, rate: float, levels: Float, n_steps: int) -> Automaton:
    r"""Return the chain of :math:`s_t = \lambda s_{t-1} + y_t`, rounded up to `levels`.

    It starts at the lowest level.  A participation that would lead above the highest level
    drops the path.

    Parameters
    ----------
    decay : float
        :math:`\lambda`.
    rate : float
        Probability of a participation r.
    levels : ndarray of shape (n_states,)
        Increasing, nonnegative; a decay must not lead above the highest.
    n_steps : int
        T.

    Examples
    --------
    >>> chain = poisson_automaton(0.5, 0.1, np.array([0.25, 0.5, 1.0, 1.5]), 10)
    >>> chain.next_idle, chain.next_join
    (array([0, 0, 1, 2]), array([ 3,  3,  3, -1]))
    """
    n = len(levels)
    join = np.searchsorted(levels, (decay * levels + 1.0) * (1.0 - _SLACK))
    return Automaton(
        emission=levels * (1.0 + 2.0 * _SLACK * (n_steps + 1)),
        next_idle=np.searchsorted(levels, decay * levels * (1.0 - _SLACK)),
        next_join=np.where(join < n, join, -1),
        join_probability=np.full(n, float(rate)),
        initial=np.eye(n)[0],
    )


def state_levels(decay: float, rate: float, n_steps: int, n_levels: int | None = None) -> Float:
    r"""Return levels that the mean :math:`s_t = \lambda s_{t-1} + y_t` may be rounded up to.

    Any levels are valid; these lose little.  One chain :math:`u \lambda^a` closes on itself: it
    starts at :math:`u = 1 + \lambda f`, and its last and lowest level f, at which the mean
    stays, leads back to u.  To it are added the levels after two participations, :math:`1 + u
    \lambda^j`, and a geometric filling, each with its decays.  Then levels are left out, those
    first that raise the mean square least (the expected future cost of the next higher level,
    from the stationary law and the value function of the chain).

    Parameters
    ----------
    decay : float
        :math:`0 \le \lambda < 1`.
    rate : float
        Probability of a participation r, in (0, 1].
    n_steps : int
        T; decides which heights are hardly ever reached (probability below 1e-12) and left out.
    n_levels : int, optional
        Number of levels to aim at; by default 2.5 times the length of the chain, and at least 64
        more than it.

    Returns
    -------
    ndarray of shape (n,)
        Increasing.

    Raises
    ------
    ValueError
        For parameters outside these ranges.

    Examples
    --------
    >>> state_levels(0.0, 0.01, 100)
    array([0., 1.])
    >>> len(state_levels(0.5, 0.025, 400))
    79
    """
    if not 0.0 <= decay < 1.0:
        raise ValueError(f"decay={decay!r} must be at least 0 and below 1")
    if not 0.0 < rate <= 1.0:
        raise ValueError(f"rate={rate!r} must be above 0 and at most 1")
    if n_levels is not None and n_levels < 2:
        raise ValueError(f"n_levels={n_levels!r} must be at least 2")
    return _cached_levels(float(decay), float(rate), int(n_steps), n_levels)


@lru_cache(maxsize=64)
def _cached_levels(decay: float, rate: float, n_steps: int, n_levels: int | None) -> Float:
    if decay == 0.0:
        return np.array([0.0, 1.0])
    candidates, chain_length = _candidate_levels(decay, rate)
    candidates = _capped(candidates, decay, rate, n_steps)
    with threadpool_limits(1, user_api="blas"):  # many small systems
        levels = _pruned(
            candidates, decay, rate, n_levels or chain_length + max(64, 3 * chain_length // 2)
        )
    levels.flags.writeable = False
    return levels


def _candidate_levels(decay: float, rate: float) -> tuple[Float, int]:
    """Return many levels and the number of levels of one chain over the whole range."""
    top = 1.0 / (1.0 - decay)
    # The floor is at most 0.4 % of the stationary mean.
    last = max(1, math.ceil(math.log(min(0.004 * rate * top, 0.5)) / math.log(decay)))
    floor = decay**last / (1.0 - decay ** (last + 1))
    first = 1.0 + decay * floor
    rise = math.ceil(math.log(top) / -math.log(decay))
    fill = int(np.clip(700 // (2 * (last + rise)), 1, 8))
    chain = first * decay ** np.arange(last + 1)
    starts = np.concatenate([[1.0], first * decay ** (-np.arange(fill) / fill)])
    if fill > 1:
        gaps = np.unique(np.round(np.geomspace(1, last, min(last, fill))).astype(int))
        starts = np.concatenate([starts, 1.0 + chain[gaps]])
    levels = (starts[:, None] * decay ** np.arange(-rise, last + 1)).ravel()
    inside = (levels > floor * (1.0 + 1e-9)) & (levels < top * (1.0 - 1e-9))
    levels = np.unique(np.concatenate([levels[inside], chain, [top]]))
    distinct = np.concatenate([np.diff(levels) > 1e-9 * levels[1:], [True]])
    return levels[distinct], last + 1 + rise


def _capped(levels: Float, decay: float, rate: float, n_steps: int) -> Float:
    """Return the levels without the highest ones that are hardly ever reached."""
    low, high = int(np.searchsorted(levels, 1.0 + decay * levels[0])), len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        chain = poisson_automaton(decay, rate, levels[: middle + 1], n_steps)
        if chain.dropped(n_steps) <= _DROPPED:
            high = middle
        else:
            low = middle + 1
    return levels[: high + 1]


def _pruned(levels: Float, decay: float, rate: float, n_levels: int) -> Float:
    """Return at least `n_levels` of the levels, those whose absence would cost most."""
    while len(levels) > n_levels:
        cost = np.zeros(len(levels) - 1)
        # Rare clusters of participations decide small deltas: they count at a higher rate.
        for r, share in ((rate, 1.0), (min(4.0 * rate, 0.5), 0.3)):
            cost += share * _removal_costs(levels, decay, r)
        # A decaying mean must reach the next lower level: no gap wider than one decay.
        cost[1:][decay * levels[2:] > levels[:-2] * (1.0 + 1e-9)] = math.inf
        removed: set[int] = set()
        for i in np.argsort(cost).tolist():
            if math.isinf(cost[i]) or len(removed) > (len(levels) - n_levels - 1) // 12:
                break
            if not {i - 1, i + 1} & removed:
                removed.add(i)
        if not removed:
            break
        levels = np.delete(levels, sorted(removed))
    return levels


def _removal_costs(levels: Float, decay: float, rate: float) -> Float:
    """Return the relative increase of the mean squared level if a level is left out."""
    chain = poisson_automaton(decay, rate, levels, 1)
    n = len(levels)
    states = np.arange(n)
    moves = np.zeros((n, n))
    moves[states, chain.next_idle] += 1.0 - rate
    moves[states, np.where(chain.next_join >= 0, chain.next_join, n - 1)] += rate
    price = levels**2 + 2.0 * levels * rate / (1.0 - decay)
    system = np.eye(n) - moves + 1.0 / n
    law = np.linalg.solve(system.T, np.full(n, 1.0 / n))
    mean = float(law @ price)
    future = np.linalg.solve(system, price - mean)
    cost: Float = np.maximum(law[:-1], 1e-30) * np.maximum(np.diff(future), 0.0) / mean
    return cost


def _along(values: NDArray[Any], axis: int, n_axes: int) -> NDArray[Any]:
    """Return the vector as an array that varies along one of several axes."""
    return values.reshape(tuple(-1 if i == axis else 1 for i in range(n_axes)))


def _log_shift_bound(c: float, exponent: float, norm: float) -> float:
    peak = c * math.log(c / (1.0 + c)) - math.log1p(c) if c > 0.0 else 0.0
    return c * exponent + 0.5 * c * c * norm + peak


def _best_shift(exponent: float, norm: float) -> float:
    """Return the c that minimizes :func:`_log_shift_bound`."""

    def slope(log_c: float) -> float:
        c = math.exp(log_c)
        return exponent + c * norm + math.log(c / (1.0 + c))

    low, high = -20.0, 7.0
    if slope(high) < 0.0:
        return math.exp(high)
    return math.exp(float(brentq(slope, low, high))) if slope(low) < 0.0 else 0.0
