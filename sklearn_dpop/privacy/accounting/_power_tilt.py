"""Draws from a power of a likelihood ratio, exactly, through interacting copies of a chain."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklearn_dpop.privacy.accounting._automaton import Automaton, Float, Index

__all__ = ["PowerTilt", "renyi_bound"]

# Iterations towards an eigenfunction (it is usually found in fewer than 200).
_ITERATIONS = 1000
# Numbers (of 8 bytes) that may be kept to make a power tilt exact at every step.
_TABLE_SIZE = 4_000_000


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


def renyi_bound(tilt: PowerTilt, epsilon: float, loss_error: float = 0.0) -> float:
    r"""Return :math:`Z e^{-(a-1)\epsilon} \frac{1}{a} (\frac{a-1}{a})^{a-1} \ge H_\epsilon`."""
    a = tilt.order
    peak = -math.log(a) + (a - 1) * math.log1p(-1.0 / a) if a > 1 else 0.0
    log_bound = tilt.log_supremum - (a - 1) * epsilon + 2.0 * a * loss_error + peak
    return math.exp(min(log_bound, 700.0))


def _along(values: NDArray[Any], axis: int, n_axes: int) -> NDArray[Any]:
    """Return the vector as an array that varies along one of several axes."""
    return values.reshape(tuple(-1 if i == axis else 1 for i in range(n_axes)))
