"""Finite chains of one record, and the likelihood ratio of what they do to Gaussian outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

__all__ = ["Automaton", "Float", "Index", "LogRatio", "forward_log_ratio"]

Float = NDArray[np.float64]
Index = NDArray[np.integer[Any]]

# Exponents above this are left to the bound of the draws.
_FAR = 600.0


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
