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
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np
from threadpoolctl import threadpool_limits

from sklearn_dpop.privacy.accounting._automaton import Automaton, Float, forward_log_ratio
from sklearn_dpop.privacy.accounting._chain_summands import (
    AddSummand,
    RemoveSummand,
    check_summand,
    choose_summand,
)

__all__ = ["poisson_automaton", "poisson_summand", "state_levels"]

# Relative slack when a level is compared with a sum: a rounding error must not cost a level.
# It is made up for in the means, once for each step.
_SLACK = 1e-14
# Probability of the paths that may be dropped, charged to delta.
_DROPPED = 1e-12
# Levels of the chain that boosts are made of, unless that of one decay is longer.
_COARSE = 24


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
