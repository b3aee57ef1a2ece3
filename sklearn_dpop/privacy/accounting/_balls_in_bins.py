r"""Balls-in-bins sampling with correlated noise: dominating pair and its Monte Carlo draws.

A record draws one of b bins and takes part in steps i, b + i, 2b + i, ... if it drew bin i.
With :math:`m_i = \sum_j |C|_{\cdot, jb+i}` the mechanism is dominated, under zero-out
adjacency, by

.. math:: P = \frac{1}{b} \sum_i N(m_i, \sigma^2 I), \qquad Q = N(0, \sigma^2 I)

and by (Q, P) in the other direction (Lemma 3.2 of arXiv 2410.06266).  The loss
:math:`L = \log dP/dQ` depends on x through the b numbers :math:`u_k = \langle m_k, x \rangle`
only, which are Gaussian with covariance :math:`\sigma^2 G`, :math:`G_{kl} = \langle m_k, m_l
\rangle`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sklearn_dpop.factorization import Dense, Strategy
from sklearn_dpop.factorization._strategy import ToeplitzStrategy
from sklearn_dpop.privacy.accounting._monte_carlo import Float

__all__ = ["AddSummand", "Bins", "RemoveSummand", "bins_of"]

# Parts of the draws: not tilted (it bounds the weights where no tilt helps), and tilted.
_SHARES = (0.1, 0.45, 0.45)
_ROUND_UP = 1.0 + 1e-10
# Draws that are processed at once: a tile of b numbers each should stay in the cache.
_TILE = 512


@dataclass(frozen=True, eq=False)
class Bins:
    """Means of the dominating mixture, up to rotation.

    Attributes
    ----------
    root : ndarray of shape (b, b)
        Upper triangular R with ``R^T R = G``.
    gram : ndarray of shape (b, b)
        G, nonnegative.
    """

    root: Float
    gram: Float

    @property
    def n_bins(self) -> int:
        """Number of bins b."""
        return len(self.gram)

    @property
    def is_orthogonal(self) -> bool:
        """Whether the means are orthogonal and equally long: C = I."""
        g = np.diagonal(self.gram)
        return bool(np.count_nonzero(self.gram) == len(g) and np.ptp(g) == 0.0)


def bins_of(strategy: Strategy, n_steps: int, n_bins: int) -> Bins:
    """Return the means of the bins of a strategy.

    Parameters
    ----------
    strategy : Strategy
        C, any lower-triangular matrix; signs are dropped, which only raises the divergence.
    n_steps : int
        Number of steps, a multiple of `n_bins`.
    n_bins : int
        Steps per epoch b.

    Examples
    --------
    >>> from sklearn_dpop.factorization import Identity
    >>> bins_of(Identity(), 6, 3).gram.diagonal()
    array([2., 2., 2.])
    """
    means = np.zeros((n_steps, n_bins))
    if isinstance(strategy, ToeplitzStrategy):
        c = np.abs(strategy.coef(n_steps))
        total = c.reshape(-1, n_bins).cumsum(axis=0).reshape(-1)  # bin 0: sum of shifts by b
        for i in range(n_bins):
            means[i:, i] = total[: n_steps - i]
    else:
        assert isinstance(strategy, Dense)
        means = np.abs(strategy.matrix(n_steps)).reshape(n_steps, -1, n_bins).sum(axis=1)
    root = np.asarray(np.linalg.qr(means, mode="r"))
    return Bins(root, means.T @ means)


@dataclass(frozen=True, eq=False)
class RemoveSummand:
    r"""Draws of :math:`\delta(\epsilon) = \mathbb{E}_P (1 - e^{\epsilon - L})_+`.

    They come from :math:`R = w_0 P + w_1 R_{a_1} + w_2 R_{a_2}`, where :math:`R_a` has means a
    times those of P, and are weighted by dP/dR.  With :math:`\rho_k = dN(m_k, \sigma^2 I)/dQ`
    and :math:`S = \max_k |m_k|^2/\sigma^2`, the power mean inequality gives

    .. math:: \frac{dR_a}{dQ} = \frac{1}{b} \sum_k \rho_k^a e^{-a(a-1)|m_k|^2/(2\sigma^2)}
              \ge e^{a L - a (a - 1) S / 2},

    so that with :math:`z = L - \epsilon \ge 0` a draw is, for each of the two tilts, at most

    .. math:: \frac{(1 - e^{-z}) e^{-(a-1) z}}{w} e^{(a-1)(a S/2 - \epsilon)}
              \le \frac{1}{w} \frac{1}{a} \Bigl(\frac{a-1}{a}\Bigr)^{a-1}
              e^{(a-1)(a S/2 - \epsilon)},

    and at most :math:`1/w_0` as well.  The first tilt, :math:`\epsilon/S + 1/2`, makes this
    bound smallest; the second goes half of the way to where one mean alone raises the loss to
    :math:`\epsilon`, which makes the variance small.

    Attributes
    ----------
    bins : Bins
        Means of the mixture.
    sigma : float
        Noise multiplier.
    tilts : tuple of float
        a_1 and a_2, at least 1.
    """

    bins: Bins
    sigma: float
    tilts: tuple[float, float]

    @classmethod
    def aimed_at(cls, bins: Bins, sigma: float, epsilon: float) -> RemoveSummand:
        """Return the draws with the tilts that suit `epsilon`."""
        size = float(bins.gram.diagonal().max()) / sigma**2
        first = min(max(1.0, epsilon / size + 0.5), 1e4)
        lone = min((math.log(bins.n_bins) + epsilon) / size + 0.5, 1e4)
        return cls(bins, sigma, (first, first + 0.5 * max(lone - first, 0.0)))

    def bound(self, epsilon: float) -> float:
        """Return the supremum of the draws, by the formula above."""
        s = float(self.bins.gram.diagonal().max()) / self.sigma**2
        found = 1.0 / _SHARES[0]
        for a, share in zip(self.tilts, _SHARES[1:], strict=True):
            peak = -math.log(a) + ((a - 1.0) * math.log1p(-1.0 / a) if a > 1.0 else 0.0)
            exponent = (a - 1.0) * (0.5 * a * s - epsilon) + peak
            found = min(found, math.exp(min(max(exponent, -600.0), 700.0)) / share)
        return found * _ROUND_UP

    def draw(self, rng: np.random.Generator, size: int) -> Callable[[float], Float]:
        """Draw losses and weights."""
        n_bins, variance = self.bins.n_bins, self.sigma**2
        half = 0.5 * self.bins.gram.diagonal() / variance
        chosen = rng.integers(n_bins, size=size)
        scale = _components(rng, size, (1.0, *self.tilts))
        shift, root = self.bins.gram / variance, self.bins.root / self.sigma
        loss, ratio = np.empty(size), np.empty(size)
        for start in range(0, size, _TILE):
            rows = slice(start, min(start + _TILE, size))
            u = rng.standard_normal((rows.stop - start, n_bins)) @ root
            u += scale[rows, None] * shift[chosen[rows]]
            loss[rows] = _log_mean_exp(u - half)
            logs = [np.zeros(rows.stop - start)]
            for a in self.tilts:
                logs.append(_log_mean_exp(a * u - a * a * half) - loss[rows])
            ratio[rows] = _log_mixture(logs)
        return _weighted(loss, -ratio)


@dataclass(frozen=True, eq=False)
class AddSummand:
    r"""Draws of :math:`\delta(\epsilon) = \mathbb{E}_Q (1 - e^{\epsilon + L})_+`.

    They come from :math:`R = w_0 Q + (1 - w_0) N(-c \bar m, \sigma^2 I)` with the average
    :math:`\bar m` of the means.  The geometric mean is at most the arithmetic one:

    .. math:: \frac{\langle \bar m, x \rangle}{\sigma^2} - \frac{\operatorname{tr} G}
              {2 b \sigma^2} \le L .

    So with :math:`z = -L - \epsilon \ge 0` the weight against the shifted part is

    .. math:: e^{c \langle \bar m, x \rangle / \sigma^2 + c^2 |\bar m|^2 / (2 \sigma^2)}
              \le e^{-c z - c \epsilon + c \operatorname{tr} G / (2 b \sigma^2)
              + c^2 |\bar m|^2 / (2 \sigma^2)},

    and :math:`(1 - e^{-z}) e^{-c z} \le \frac{1}{1+c} (\frac{c}{1+c})^c`.

    Attributes
    ----------
    bins : Bins
        Means of the mixture.
    sigma : float
        Noise multiplier.
    tilt : float
        c > 0.
    """

    bins: Bins
    sigma: float
    tilt: float

    @classmethod
    def aimed_at(cls, bins: Bins, sigma: float, epsilon: float) -> AddSummand:
        """Return the draws with the tilt that makes the bound at `epsilon` smallest."""
        trace, norm = _mean_terms(bins, sigma)
        return cls(bins, sigma, min(max(1e-3, (epsilon - 0.5 * trace) / norm), 1e4))

    def bound(self, epsilon: float) -> float:
        """Return the supremum of the draws, by the formula above."""
        c = self.tilt
        trace, norm = _mean_terms(self.bins, self.sigma)
        peak = c * math.log(c / (1.0 + c)) - math.log1p(c)
        exponent = c * (0.5 * trace - epsilon) + 0.5 * c * c * norm + peak
        tilted = math.exp(min(max(exponent, -600.0), 700.0)) / (1.0 - _SHARES[0])
        return min(1.0 / _SHARES[0], tilted) * _ROUND_UP

    def draw(self, rng: np.random.Generator, size: int) -> Callable[[float], Float]:
        """Draw losses and weights."""
        n_bins, c, variance = self.bins.n_bins, self.tilt, self.sigma**2
        half = 0.5 * self.bins.gram.diagonal() / variance
        _, norm = _mean_terms(self.bins, self.sigma)
        scale = _components(rng, size, (0.0, -c, -c))
        shift, root = self.bins.gram.mean(axis=0) / variance, self.bins.root / self.sigma
        loss, average = np.empty(size), np.empty(size)
        for start in range(0, size, _TILE):
            rows = slice(start, min(start + _TILE, size))
            u = rng.standard_normal((rows.stop - start, n_bins)) @ root
            u += scale[rows, None] * shift
            average[rows] = u.mean(axis=1)
            loss[rows] = -_log_mean_exp(u - half)
        shifted = -c * average - 0.5 * c * c * norm  # log density of the shifted part over Q
        return _weighted(loss, -_log_mixture([np.zeros(size), shifted, shifted]))


def _mean_terms(bins: Bins, sigma: float) -> tuple[float, float]:
    """Return tr G / (b sigma^2) and the squared length of the average mean over sigma^2."""
    return float(bins.gram.diagonal().mean()) / sigma**2, float(bins.gram.mean()) / sigma**2


def _components(rng: np.random.Generator, size: int, scales: tuple[float, float, float]) -> Float:
    """Draw the scale of the mean for each draw, with probabilities `_SHARES`."""
    edges = np.cumsum(_SHARES)[:-1]
    return np.array(scales)[np.searchsorted(edges, rng.random(size), side="right")]


def _log_mixture(logs: list[Float]) -> Float:
    """Return the log of the mixture of densities with weights `_SHARES`."""
    terms = np.stack([log + math.log(w) for log, w in zip(logs, _SHARES, strict=True)])
    value: Float = np.logaddexp.reduce(terms, axis=0)
    return value


def _log_mean_exp(u: NDArray[np.float64]) -> Float:
    """Return log of the mean of exp over the last axis; overwrites u."""
    peak = u.max(axis=1)
    u -= peak[:, None]
    np.exp(u, out=u)
    value: Float = peak + np.log(u.sum(axis=1) / u.shape[1])
    return value


def _weighted(loss: Float, log_weight: Float) -> Callable[[float], Float]:
    def values(epsilon: float) -> Float:
        inside = loss > epsilon
        value: Float = np.exp(log_weight[inside]) * -np.expm1(epsilon - loss[inside])
        return value

    return values
