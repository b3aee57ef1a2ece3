r"""Min-separated sampling with banded noise correlation: draws for a certified delta.

A record that took part in none of the last b - 1 steps takes part with probability p,
independently of all others (arXiv 2602.09338); it starts in the stationary law, in which it
may take part at once with probability :math:`1/(1 + (b-1)p)` and has to rest for another
1, ..., b - 1 steps with probability :math:`p/(1 + (b-1)p)` each.  It takes part in one of
:math:`b - 1 + 1/p` steps on average.  b = 1 is Poisson sampling; p = 1 is one fixed step of
every b, balls in bins.

C is lower triangular, Toeplitz, nonnegative and banded, with first column :math:`c_0, \dots,
c_{k-1}` and :math:`k \le b`, so that the columns :math:`c^{(i)}` (cut off at the last step T)
of two participations of one record never overlap.  Since records are independent of each
other, leaving one out changes nothing for the others, and by Lemma 4.5 of arXiv 2310.15526

.. math:: P = \mathbb{E}_y\, N(C y, \sigma^2 I_T), \qquad Q = N(0, \sigma^2 I_T)

dominate one direction of zero-out (or add/remove) adjacency, and (Q, P) the other.

**Likelihood ratio.**  Let :math:`\ell_i(x)` be dP/dQ of the outputs of steps i, ..., T - 1 if the
record may take part in step i and no earlier participation reaches them.  In step i it does not
take part, or it does, contributes :math:`e^{w_i}` with :math:`w_i = (2 \langle c^{(i)}, x \rangle
- |c^{(i)}|^2) / (2\sigma^2)` and may take part again in step i + b, where its column has ended:

.. math:: \ell_i = (1 - p)\, \ell_{i+1} + p\, e^{w_i} \ell_{i+b}, \qquad \ell_i = 1 \; (i \ge T),
          \qquad \frac{dP}{dQ} = \frac{\ell_0 + p \sum_{j=1}^{b-1} \ell_j}{1 + (b-1) p} .
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from sklearn_dpop.privacy.accounting._automaton import Automaton, Float
from sklearn_dpop.privacy.accounting._chain_summands import (
    AddSummand,
    RemoveSummand,
    check_summand,
    choose_summand,
)

__all__ = [
    "MinSeparatedChain",
    "backward_log_ratio",
    "min_separated_chain",
    "min_separated_summand",
]

# From this probability on the times of participation vary little.
_PERIODIC = 0.25
# Exponents above this are left to the bound of the draws.
_FAR = 600.0


@dataclass(frozen=True, eq=False)
class MinSeparatedChain(Automaton):
    """Chain of one record under min-separated sampling.

    Attributes
    ----------
    coef : ndarray of shape (k,)
        First column of C up to its last nonzero entry.
    rest_law : ndarray of shape (b,)
        Probabilities that the record has to rest for 0, ..., b - 1 steps at the start.
    probability : float
        Probability p that a rested record takes part.
    """

    coef: Float
    rest_law: Float
    probability: float

    def scaled(self, factor: float) -> Self:
        """Return the chain with means times `factor`."""
        return replace(super().scaled(factor), coef=factor * self.coef)


def min_separated_chain(coef: ArrayLike, separation: int, probability: float) -> MinSeparatedChain:
    """Return the chain of one record, in its stationary law before the first step.

    Its states are the numbers of steps since the last participation, and those of a record
    that rests at the start and whose output is zero where after a participation it is not.

    Parameters
    ----------
    coef : array_like of shape (n,)
        First column of C, nonnegative and zero from entry `separation` on.
    separation : int
        Smallest distance b of two participations, at least 1.
    probability : float
        Probability p in (0, 1] that a rested record takes part.

    Raises
    ------
    ValueError
        For parameters outside these ranges.

    Examples
    --------
    >>> chain = min_separated_chain([1.0, 0.5], separation=3, probability=0.25)
    >>> chain.rest_law
    array([0.66666667, 0.16666667, 0.16666667])
    >>> chain.emission
    array([1. , 0.5, 0. , 0. , 0. ])
    """
    c = np.array(coef, dtype=float).ravel()
    if not (isinstance(separation, int | np.integer) and separation >= 1):
        raise ValueError(f"separation={separation!r} must be a positive integer")
    if not 0.0 < probability <= 1.0:
        raise ValueError(f"probability={probability!r} must be above 0 and at most 1")
    if not (np.all(np.isfinite(c)) and np.all(c >= 0.0) and np.any(c > 0.0)):
        raise ValueError("coef must be finite, nonnegative and not all zero")
    c = c[: int(np.flatnonzero(c)[-1]) + 1]
    b, k, p = int(separation), len(c), float(probability)
    if k > b:
        raise ValueError(
            f"coef has {k} entries up to its last nonzero one and separation={b}: the bandwidth "
            "must be at most the separation"
        )
    oldest = max(b - 1, k)  # rested, and its column has ended
    longest = max(1, b - k)  # from this rest on, a record of that age has output
    ages, rests = np.arange(oldest + 1), np.arange(longest, b)

    def resting(steps: int) -> int:
        """Return the state, with output zero, of a record that still has to rest."""
        if steps >= longest:
            return oldest + 1 + steps - longest
        return b - 1 - steps if steps > 0 else oldest

    n = oldest + 1 + len(rests)
    emission, initial, joins = np.zeros(n), np.zeros(n), np.zeros(n)
    emission[:k] = c
    joins[b - 1 : oldest + 1] = p
    rest_law = np.full(b, p / (1.0 + (b - 1) * p))
    rest_law[0] = 1.0 / (1.0 + (b - 1) * p)
    for steps, share in enumerate(rest_law.tolist()):
        initial[resting(steps)] += share
    return MinSeparatedChain(
        emission=emission,
        next_idle=np.concatenate(
            [np.minimum(ages + 1, oldest), [resting(int(j) - 1) for j in rests]]
        ).astype(np.int64),
        next_join=np.where(joins > 0.0, 0, -1),
        join_probability=joins,
        initial=initial,
        coef=c,
        rest_law=rest_law,
        probability=p,
    )


def backward_log_ratio(chain: Automaton, points: Float, sigma: float) -> Float:
    """Return log dP/dQ by the backward recursion of the module.

    Parameters
    ----------
    chain : MinSeparatedChain
        Defines P.
    points : ndarray of shape (n_steps, n)
        x, one point per column.
    sigma : float
        Noise multiplier.

    Returns
    -------
    ndarray of shape (n,)
        nan for points so far out that an exponent exceeds 600.
    """
    assert isinstance(chain, MinSeparatedChain)
    (n_steps, n), b, p = points.shape, len(chain.rest_law), chain.probability
    exponent = np.zeros_like(points)
    for j, c in enumerate(chain.coef[:n_steps].tolist()):
        exponent[: n_steps - j] += (c / sigma**2) * (points[j:] - 0.5 * c)
    far = np.abs(exponent).max(axis=0) > _FAR
    np.minimum(exponent, _FAR, out=exponent)
    joined = np.exp(exponent, out=exponent)
    joined *= p
    ratio = np.ones((n_steps + b, n))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        for i in range(n_steps - 1, -1, -1):
            np.multiply(joined[i], ratio[i + b], out=ratio[i])
            ratio[i] += (1.0 - p) * ratio[i + 1]
        losses = np.log(chain.rest_law @ ratio[:b])
    return np.where(far, math.nan, losses)


def min_separated_summand(
    coef: ArrayLike,
    separation: int,
    probability: float,
    n_steps: int,
    sigma: float,
    *,
    direction: str,
    target_epsilon: float,
) -> RemoveSummand | AddSummand:
    """Return draws that bound delta for min-separated sampling and a banded C.

    Parameters
    ----------
    coef : array_like of shape (n,)
        First column of C, nonnegative and zero from entry `separation` on.
    separation : int
        Smallest distance b of two participations, at least 1.
    probability : float
        Probability p in (0, 1] that a rested record takes part; ``1 / (n / B - b + 1)`` gives
        batches of B records on average.
    n_steps : int
        T.
    sigma : float
        Noise multiplier: standard deviation of the noise per unit clip norm, with C as given.
    direction : {"remove", "add"}
        With the record against without it, or the reverse; delta is the larger of both.
    target_epsilon : float
        Epsilon that the proposal is chosen for; every epsilon may be evaluated.

    Raises
    ------
    ValueError
        For parameters outside these ranges.

    Examples
    --------
    >>> summand = min_separated_summand(
    ...     [1.0, 0.5], 4, 0.05, 50, 2.0, direction="remove", target_epsilon=2.0
    ... )
    >>> draws = summand.draw(np.random.default_rng(0), 4000)(2.0)
    >>> bool(0.0 < draws.mean() < draws.max() <= summand.bound(2.0) < 0.02)
    True
    """
    check_summand(n_steps, sigma, direction, target_epsilon)
    return choose_summand(
        min_separated_chain(coef, separation, probability),
        n_steps,
        sigma,
        partial(backward_log_ratio, sigma=sigma),
        direction=direction,
        target_epsilon=target_epsilon,
        periodic=probability > _PERIODIC,
    )
