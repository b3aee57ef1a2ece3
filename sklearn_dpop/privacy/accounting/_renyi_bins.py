r"""Balls-in-bins sampling with correlated noise: a bound without sampling, by moments.

With means :math:`m_1, \dots, m_b` of the bins, :math:`G_{kl} = \langle m_k, m_l \rangle \ge 0`,
a record against no record is :math:`P = \frac{1}{b} \sum_i N(m_i, \sigma^2 I)` against
:math:`Q = N(0, \sigma^2 I)`.  Write :math:`Y = dP/dQ = \frac{1}{b} \sum_i e^{u_i - G_{ii} / (2
\sigma^2)}` with :math:`u_i = \langle m_i, x \rangle / \sigma^2`; under Q the u are normal of
mean 0 and covariance :math:`G / \sigma^2`.

**Remove, H(P||Q)** (Schuchardt & Kalinin 2026, arXiv 2601.21636).  For integer orders a,

.. math:: \mathbb{E}_Q Y^a = b^{-a} \sum_{r \in [b]^a} \mathbb{E}_Q
          e^{\sum_j u_{r_j} - G_{r_j r_j} / (2 \sigma^2)}
          = b^{-a} \sum_{r} e^{\sum_{j \ne l} G_{r_j r_l} / (2 \sigma^2)}
          = b^{-a} \sum_{c} \frac{a!}{\prod_i c_i!}
            e^{(c^T G c - \sum_i c_i G_{ii}) / (2 \sigma^2)},

the last sum over the count vectors c of sum a, and :math:`R_a = \log \mathbb{E}_Q Y^a / (a -
1)`.  The exponent is a sum over pairs of bins, so that with a banded G (on the cycle of bins)
the sum is a walk along the bins that remembers the last counts.  It grows with every entry of
G: with :math:`G_{kl} \le B_{kl} + \tau` it is at most that of B times :math:`e^{\tau a (a-1) /
(2 \sigma^2)}`, because there are a (a - 1) pairs :math:`j \ne l`, that is
:math:`R_a \le R_a^B + a \tau / (2 \sigma^2)`.

**Add, H(Q||P).**  By the inequality of the arithmetic and the geometric mean :math:`Y \ge e^V`,
:math:`V = \frac{1}{b} \sum_i u_i - G_{ii} / (2 \sigma^2)`, which is normal of mean
:math:`-\bar g / 2`, :math:`\bar g = \sum_i G_{ii} / (b \sigma^2)`, and variance
:math:`s^2 = \sum_{kl} G_{kl} / (b \sigma)^2`.  Hence

.. math:: R_a(Q \| P) = \frac{\log \mathbb{E}_Q Y^{-(a-1)}}{a - 1}
          \le \frac{\bar g + (a - 1) s^2}{2},

and without a detour through moments, as :math:`V + (\bar g - s^2) / 2` is the loss of a
Gaussian mechanism of sensitivity over noise s,

.. math:: H_{e^\epsilon}(Q \| P) = \mathbb{E}_Q (1 - e^\epsilon Y)_+
          \le \mathbb{E}_Q (1 - e^{\epsilon + V})_+
          = \delta_G\bigl(s; \epsilon - (\bar g - s^2) / 2\bigr).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from sklearn_dpop.privacy._gaussian import log_gaussian_delta

__all__ = ["renyi_add", "renyi_bins_delta", "renyi_bins_deltas", "renyi_remove"]

Float = NDArray[np.float64]

_BANDWIDTHS = range(1, 7)
# Steps of the walk along all bins: about 0.3 seconds, and a second where the band is exact.
_MAX_STEPS = 10_000_000
_MAX_EXACT_STEPS = 30_000_000
# Relative rounding error of a logarithm of a sum of positive terms, generously.
_SLACK = 1e-10


def renyi_bins_delta(
    gram: ArrayLike, sigma: float, epsilons: ArrayLike, *, max_order: int = 32
) -> Float:
    r"""Return an upper bound of the privacy profile of balls-in-bins sampling.

    The larger of the bounds of `renyi_bins_deltas`.

    Parameters
    ----------
    gram : array_like of shape (b, b)
        Inner products of the means of the bins for clip norm 1, nonnegative and symmetric.
    sigma : float
        Standard deviation of the noise, positive.
    epsilons : array_like
        Finite real numbers.
    max_order : int
        Largest order of the moments, at least 2.

    Returns
    -------
    ndarray of the shape of `epsilons`
        Upper bounds of delta, in [0, 1].

    Raises
    ------
    ValueError
        If `gram` is not a symmetric matrix of finite numbers >= 0, `sigma` not positive and
        finite, `max_order` below 2 or an epsilon not finite.

    Examples
    --------
    Ten bins in a ring, each mean overlapping with those of the two neighbours:

    >>> import numpy as np
    >>> gram = np.eye(10) + 0.5 * (np.roll(np.eye(10), 1, 0) + np.roll(np.eye(10), -1, 0))
    >>> f"{float(renyi_bins_delta(gram, 2.0, 1.0)):.2g}"
    '6.1e-06'
    """
    return np.maximum(*renyi_bins_deltas(gram, sigma, epsilons, max_order=max_order))


def renyi_bins_deltas(
    gram: ArrayLike, sigma: float, epsilons: ArrayLike, *, max_order: int = 32
) -> tuple[Float, Float]:
    r"""Return upper bounds of the profile of each direction, remove H(P||Q) and add H(Q||P).

    Remove goes through the moments of `renyi_remove` by (Canonne, Kamath & Steinke 2020,
    arXiv 2004.00010, Proposition 12)

    .. math:: \delta \le \min_a \frac{e^{(a-1)(R_a - \epsilon)}}{a - 1}
              \Bigl(1 - \frac{1}{a}\Bigr)^a ,

    which is :math:`(y - e^\epsilon)_+ \le y^a \sup_v (v - e^\epsilon)_+ / v^a` in expectation;
    add through the comparison with one Gaussian mechanism in the module's description.

    Parameters
    ----------
    gram, sigma, epsilons, max_order
        As in `renyi_bins_delta`.

    Returns
    -------
    remove, add : ndarrays of the shape of `epsilons`
        Upper bounds of the two divergences.

    Examples
    --------
    >>> import numpy as np
    >>> removed, added = renyi_bins_deltas(4.0 * np.eye(64), 2.0, [1.0, 2.0])
    >>> bool((added < removed).all())
    True
    """
    g, eps = _checked(gram, sigma), np.asarray(epsilons, dtype=float)
    if not np.isfinite(eps).all():
        raise ValueError(f"epsilons must be finite, got {epsilons!r}.")
    # By joint convexity neither direction exceeds the longest mean without amplification.
    longest = float(np.sqrt(np.diagonal(g).max())) / sigma
    if longest == 0.0:
        nothing = np.maximum(-np.expm1(eps), 0.0)
        return nothing, nothing.copy()
    plain = log_gaussian_delta(longest, eps)
    renyi = _cached_remove(g.tobytes(), len(g), float(sigma), max_order)
    a = np.arange(2, max_order + 1)
    log_delta = (a - 1) * (renyi - eps[..., None]) + a * np.log1p(-1.0 / a) - np.log(a - 1.0)
    removed = np.exp(np.minimum(log_delta.min(axis=-1), plain))
    mean, spread = _geometric_mean(g, sigma)
    added = np.exp(np.minimum(log_gaussian_delta(spread, eps - 0.5 * (mean - spread**2)), plain))
    return removed, added


@lru_cache(maxsize=4)  # a search over epsilon asks for the same moments again
def _cached_remove(gram: bytes, n_bins: int, sigma: float, max_order: int) -> Float:
    return renyi_remove(np.frombuffer(gram).reshape(n_bins, n_bins), sigma, max_order=max_order)


def renyi_remove(gram: ArrayLike, sigma: float, *, max_order: int) -> Float:
    r"""Return upper bounds of the Rényi divergences :math:`R_a(P \| Q)`, a = 2, ..., max_order.

    Each is the smallest of the bounds for the bandwidths p = 1, ..., 6 on the cycle of bins, with
    :math:`\tau` the largest entry of G for bins at a distance of p or more and :math:`B = (G -
    \tau)_+` nearer, so that it is exact if G has one of these bandwidths.  As the cost grows as
    :math:`b a^{2p} / (2p)!`, wide bands are used for low orders only: with 40 bins, p = 3 up to
    order 20 (25 if exact) and p = 4 up to 13.

    Parameters
    ----------
    gram, sigma, max_order
        As in `renyi_bins_delta`.

    Returns
    -------
    ndarray of shape (max_order - 1,)
        In nats; infinite for orders that are too costly even with p = 1 (b > 10,000).

    Examples
    --------
    One bin is the Gaussian mechanism, :math:`R_a = a / (2 \sigma^2)`:

    >>> renyi_remove([[1.0]], 1.0, max_order=4).round(6)
    array([1. , 1.5, 2. ])
    """
    g = _checked(gram, sigma) / sigma**2
    if max_order != int(max_order) or max_order < 2:
        raise ValueError(f"max_order must be an integer >= 2, got {max_order!r}.")
    b = len(g)
    distance = np.abs(np.subtract.outer(np.arange(b), np.arange(b)))
    distance = np.minimum(distance, b - distance)
    best, last_tau = np.full(max_order - 1, np.inf), math.inf
    for p in _BANDWIDTHS:
        tau = float(g[distance >= p].max(initial=0.0))
        if tau == last_tau:  # what the wider band adds is at most tau: B stays
            continue
        last_tau = tau
        band = np.where(distance < p, np.maximum(g - tau, 0.0), 0.0)
        steps = (_MAX_STEPS if tau > 0.0 else _MAX_EXACT_STEPS) // b
        order = _affordable_order(steps, p, max_order)
        log_moment = _log_sums(band, p, order) - np.arange(order + 1) * math.log(b)
        a = np.arange(2, order + 1)
        slack = _SLACK * (1.0 + b + np.abs(log_moment[2:]) + a * math.log(b))
        bound = (log_moment[2:] + slack) / (a - 1.0) + 0.5 * a * tau
        best[: order - 1] = np.minimum(best[: order - 1], bound)
        if tau == 0.0:
            break
    return best


def renyi_add(gram: ArrayLike, sigma: float, orders: ArrayLike) -> Float:
    r"""Return upper bounds :math:`(\bar g + (a - 1) s^2) / 2` of :math:`R_a(Q \| P)`.

    Parameters
    ----------
    gram, sigma
        As in `renyi_bins_delta`.
    orders : array_like
        Real numbers a > 1.

    Returns
    -------
    ndarray of the shape of `orders`
        In nats.

    Examples
    --------
    >>> renyi_add([[1.0, 0.0], [0.0, 1.0]], 1.0, [2.0, 3.0])
    array([0.75, 1.  ])
    """
    g, a = _checked(gram, sigma), np.asarray(orders, dtype=float)
    if not (a > 1.0).all():
        raise ValueError(f"orders must be > 1, got {orders!r}.")
    mean, spread = _geometric_mean(g, sigma)
    bounds: Float = 0.5 * (mean + (a - 1.0) * spread**2)
    return bounds


def _geometric_mean(g: Float, sigma: float) -> tuple[float, float]:
    """Return the mean of -2 V and the standard deviation of V."""
    b = len(g)
    return float(np.trace(g)) / (b * sigma**2), math.sqrt(float(g.sum())) / (b * sigma)


def _checked(gram: ArrayLike, sigma: float) -> Float:
    g = np.asarray(gram, dtype=float)
    if g.ndim != 2 or g.shape[0] != g.shape[1] or g.size == 0:
        raise ValueError(f"gram must be a square matrix, got shape {g.shape}.")
    if not (np.isfinite(g).all() and (g >= 0.0).all() and np.allclose(g, g.T, rtol=1e-9)):
        raise ValueError("gram must be symmetric with finite entries >= 0.")
    if not (math.isfinite(sigma) and sigma > 0):
        raise ValueError(f"sigma must be a positive finite number, got {sigma!r}.")
    larger: Float = np.maximum(g, g.T)
    return larger


def _affordable_order(steps: int, bandwidth: int, max_order: int) -> int:
    """Return the largest order whose walk has at most that many steps per bin."""
    order = max_order
    while order > 2 and math.comb(order + 2 * bandwidth, 2 * bandwidth) > steps:
        order -= 1
    return order


@dataclass(frozen=True, eq=False)
class _Walk:
    """Steps of the walk along the bins, from a state and a new count to the next state.

    A state is (first w counts, last w counts, total), w = bandwidth - 1, with a total of at
    most max_order; the first counts are carried to close the cycle.

    Attributes
    ----------
    states : ndarray of shape (n_states, 2 w + 1)
        All states.
    source, count : ndarrays of shape (n_steps,)
        State before the step and count of the new bin, sorted by the state after it.
    begin : ndarray of shape (n_states,)
        First step of each state after the step; every state has one.
    """

    states: NDArray[np.intp]
    source: NDArray[np.intp]
    count: NDArray[np.intp]
    begin: NDArray[np.intp]


@lru_cache(maxsize=8)  # calibration asks for the same orders again
def _walk(width: int, max_order: int) -> _Walk:
    """Return the steps for windows of `width` counts and totals up to `max_order`."""
    base = max_order + 1
    keys = np.zeros((1, 1), dtype=np.intp)
    # Rows (counts..., rest) of sum at most max_order.
    for _ in range(2 * width + 1):
        used = keys.sum(axis=1)
        repeats = max_order - used + 1
        rows = np.repeat(keys, repeats, axis=0)
        start = np.repeat(np.cumsum(repeats) - repeats, repeats)
        keys = np.column_stack((rows, np.arange(len(rows)) - start))
    states = keys[:, 1:].copy()
    states[:, -1] = states.sum(axis=1)
    weights = base ** np.arange(2 * width, -1, -1)
    code = states @ weights
    order = np.argsort(code)
    states, code = states[order], code[order]
    room = max_order - states[:, -1] + 1
    source = np.repeat(np.arange(len(states)), room)
    count = np.arange(len(source)) - np.repeat(np.cumsum(room) - room, room)
    after = states[source]
    if width:
        after[:, width : 2 * width - 1] = after[:, width + 1 : 2 * width]
        after[:, 2 * width - 1] = count
    after[:, -1] += count
    target = np.searchsorted(code, after @ weights)
    order = np.argsort(target, kind="stable")
    source, count, target = source[order], count[order], target[order]
    begin = np.flatnonzero(np.concatenate(([True], target[1:] != target[:-1])))
    return _Walk(states, source, count, begin)


def _log_sums(band: Float, bandwidth: int, max_order: int) -> Float:
    r"""Return the log of :math:`\sum_{r \in [b]^a} e^{\sum_{j \ne l} g_{r_j r_l} / 2}`, all a.

    Parameters
    ----------
    band : ndarray of shape (b, b)
        g, zero for bins at a distance of `bandwidth` or more on the cycle.
    bandwidth, max_order : int
        Width of the band (1 is diagonal) and largest order a.

    Returns
    -------
    ndarray of shape (max_order + 1,)
        Orders 0, 1, ..., max_order.
    """
    b = len(band)
    w = min(bandwidth - 1, b // 2)  # beyond, every bin is a neighbour of every other
    walk = _walk(w, max_order)
    counts = np.arange(max_order + 1.0)
    pairs, log_factorial = 0.5 * counts * (counts - 1.0), gammaln(counts + 1.0)
    total = walk.states[:, -1]
    # The first 2 w bins at once, all pairs among them; no count is forgotten yet.
    seen = walk.states[:, : 2 * w]
    log_sum = np.where(seen.sum(axis=1) == total, 0.0, -np.inf)
    for k in range(2 * w):
        log_sum += pairs[seen[:, k]] * band[k, k] - log_factorial[seen[:, k]]
        log_sum += seen[:, k] * (seen[:, :k] @ band[k, :k])
    for k in range(2 * w, b):
        own = pairs * band[k, k] - log_factorial
        field = walk.states[:, w : 2 * w] @ band[k, k - w : k]
        terms = log_sum[walk.source] + walk.count * field[walk.source] + own[walk.count]
        top = np.maximum(np.maximum.reduceat(terms, walk.begin), -1e300)
        size = np.diff(walk.begin, append=len(terms))
        parts = np.add.reduceat(np.exp(terms - np.repeat(top, size)), walk.begin)
        with np.errstate(divide="ignore"):
            log_sum = top + np.log(parts)
    # Close the cycle: the pairs of a last and a first bin that no step has seen.
    for i in range(w):
        for k in range(max(b - w, 2 * w), b):
            if k - i > w:
                log_sum += band[k, i] * walk.states[:, i] * walk.states[:, w + k - (b - w)]
    top = np.array([log_sum[total == a].max() for a in range(max_order + 1)])
    parts = np.bincount(total, np.exp(log_sum - top[total]), max_order + 1)
    sums: Float = top + np.log(parts) + log_factorial
    return sums
