r"""Poisson batches: every step takes every record of a group independently.

A record more or less changes the batches of no other record, so the guarantees are for
add/remove adjacency and for zero-out alike.  Sums over a batch must be divided by a public number.
The bounds here are deterministic:

* :func:`poisson_delta`: independent noise, by privacy-loss distributions;
* :func:`correlated_poisson_delta`: any C, through the independent noise that its noise contains;
* :func:`cyclic_poisson_delta`: banded C where the groups take turns.

The privacy-loss distributions are those of the package dp-accounting.
"""

from __future__ import annotations

import math
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from sklearn_dpop.factorization import Strategy
from sklearn_dpop.factorization._strategy import ToeplitzStrategy
from sklearn_dpop.privacy._gaussian import log_gaussian_delta

__all__ = [
    "correlated_poisson_delta",
    "cyclic_poisson_delta",
    "operator_norm_bound",
    "poisson_delta",
]

Float = NDArray[np.float64]

# Up to this number of steps the operator norm is a singular value.
_DENSE_LIMIT = 1024
# Covers the rounding of the masses of one step, T times.
_ROUND_UP = 1.0 + 1e-6
# Loss grid: points per standard deviation of the loss of one step, and its finest spacing.
_POINTS = 32
_FINEST = 1e-7
# Below this multiplier the losses of a step reach hundreds.
_SMALLEST_MULTIPLIER = 0.1


def poisson_delta(
    noise_multiplier: float, rate: float, n_steps: int, epsilons: ArrayLike
) -> Float:
    r"""Return delta of DP-SGD with independent noise and Poisson batches.

    One step is dominated by :math:`P = (1 - r) N(0, \kappa^2) + r N(1, \kappa^2)` and
    :math:`Q = N(0, \kappa^2)`, in the order (P, Q) if the first neighbour has the record and
    (Q, P) if the second has it (Theorem 11 of arXiv 2106.08567); T steps by the product of T
    such pairs.  The larger of the two orders is returned.  The losses are put on a grid by
    connecting the dots of the profile (arXiv 2207.04380), which raises it.

    Parameters
    ----------
    noise_multiplier : float
        kappa > 0.
    rate : float
        Probability r of a record in a step, in (0, 1].
    n_steps : int
        T.
    epsilons : array_like of shape (n_epsilons,)
        Nonnegative.

    Returns
    -------
    ndarray of shape (n_epsilons,)
        Rounded up; not resolved under about 1e-15 T.

    Raises
    ------
    ImportError
        If dp-accounting is not installed.
    ValueError
        If a parameter is out of range.

    Examples
    --------
    >>> f"{poisson_delta(2.071, 0.025, 400, [1.0])[0]:.2e}"
    '9.97e-06'
    """
    _check(noise_multiplier, n_steps)
    _check_rate(rate)
    values = np.asarray(epsilons, dtype=float)
    if values.ndim != 1 or not np.all(values >= 0.0):
        raise ValueError(f"epsilons={epsilons!r} must be nonnegative numbers in one dimension.")
    if noise_multiplier < _SMALLEST_MULTIPLIER:
        # Losses this large need no grid: with any participation at all, as if with T of them.
        shift = math.sqrt(n_steps) / noise_multiplier
        any_step = -math.expm1(n_steps * math.log1p(-rate)) if rate < 1.0 else 1.0
        largest = any_step * np.exp(log_gaussian_delta(shift, values)) * _ROUND_UP
        return np.minimum(np.asarray(largest), 1.0)
    pld = _privacy_loss().from_gaussian_mechanism(
        noise_multiplier,
        value_discretization_interval=_spacing(noise_multiplier, rate),
        sampling_prob=rate,
    )
    composed = pld.self_compose(n_steps) if n_steps > 1 else pld
    # The error of the Fourier transforms is relative to 1.
    unresolved = 4.0 * n_steps * np.finfo(float).eps
    deltas = [float(composed.get_delta_for_epsilon(epsilon)) for epsilon in values.tolist()]
    return np.minimum(np.array(deltas) * _ROUND_UP + unresolved, 1.0)


def correlated_poisson_delta(
    strategy: Strategy,
    noise_multiplier: float,
    rate: float,
    n_steps: int,
    epsilons: ArrayLike,
) -> Float:
    r"""Return a bound of delta for noise correlated by any C and Poisson batches.

    .. math:: \delta_C(\kappa) \le \delta_I(\kappa / \|C\|_2) .

    *Proof.*  As :math:`C C^T \preceq \|C\|_2^2 I`, the covariance of the noise
    :math:`C^{-1} Z` is

    .. math:: \kappa^2 C^{-1} C^{-T} = \kappa^2 (C^T C)^{-1} \succeq \sigma^2 I, \qquad
              \sigma = \kappa / \|C\|_2,

    (the same in each coordinate of the gradient), so it has the law of :math:`W + V` with
    independent Gaussian W and V, where W has independent entries of scale
    :math:`\sigma`.  Draw V before anything else.  Given :math:`V = v`, step t releases
    :math:`x_t + w_t + v_t`, where :math:`x_t` depends on the batches and on the releases before.
    Those are known functions of :math:`x_u + w_u`, u < t, and v is fixed: this is adaptive DP-SGD
    with independent noise of scale :math:`\sigma`, the known constants :math:`v_t` being added
    to its releases afterwards.  So the release has the profile :math:`\delta_I(\sigma)` given
    each v, hence together with V, hence by itself.

    The proof uses nothing of the sampling: it also serves fixed-size batches
    (:func:`~sklearn_dpop.privacy.accounting._without_replacement.subset_delta`).

    Parameters
    ----------
    strategy : Strategy
        C, lower triangular and invertible, as it is.
    noise_multiplier : float
        kappa > 0.
    rate, n_steps, epsilons
        See :func:`poisson_delta`.

    Returns
    -------
    ndarray of shape (n_epsilons,)
        Rounded up.
    """
    _check(noise_multiplier, n_steps)
    independent = noise_multiplier / operator_norm_bound(strategy, n_steps)
    return poisson_delta(independent, rate, n_steps, epsilons)


def cyclic_poisson_delta(
    strategy: Strategy,
    noise_multiplier: float,
    separation: int,
    rate: float,
    n_steps: int,
    epsilons: ArrayLike,
) -> Float:
    r"""Return a bound of delta for groups that take turns (arXiv 2306.08153, Theorem 4).

    The records are split into b groups beforehand, whatever their values; step t takes each
    record of group t mod b with probability r, independently.  For an average batch of B out of
    n records, r = b B / n.  C must be banded: ``C[i, j] = 0`` for ``i - j >= b``.  The release
    is then as private as :math:`\lceil T / b \rceil` steps of DP-SGD at rate r with independent
    noise of multiplier :math:`\kappa / \max_j \|C_{\cdot, j}\|`.

    *Proof.*  Let the record be in group j, and cut the release :math:`C G + Z` into blocks of b
    rows that begin with the steps j, j + b, ... (rows before j do not depend on the record).  As C
    is banded, the record enters a block only by its gradient g in the first step of it,
    multiplied by a part of one column of C.  Fix all draws of the other records.  What they add
    to a row is a known function of earlier rows, and is subtracted; so is any dependence of g
    on earlier blocks, since g is fixed when its block begins.  What is left of the block is
    :math:`N(y\, c \otimes g, \kappa^2 I)` with :math:`\|c \otimes g\| \le \max_j \|C_{\cdot,
    j}\|` and y Bernoulli(r), independent of all before: a step of DP-SGD.  Steps compose
    adaptively.

    Zero-out adjacency; add/remove too if each record is put into a group by itself (by a draw of
    its own), but not if the groups are cut out of one list, where a record moves the others.

    Parameters
    ----------
    strategy : Strategy
        C.
    noise_multiplier : float
        kappa > 0.
    separation : int
        Number of groups b >= 1.
    rate : float
        Probability r of a record in a step of its group, in (0, 1].
    n_steps : int
        Number of steps T of all groups.
    epsilons : array_like of shape (n_epsilons,)
        Nonnegative.

    Returns
    -------
    ndarray of shape (n_epsilons,)
        Rounded up.

    Raises
    ------
    ImportError
        If dp-accounting is not installed.
    ValueError
        If C is not banded, or a parameter is out of range.
    """
    _check(noise_multiplier, n_steps)
    if not (isinstance(separation, (int, np.integer)) and separation >= 1):
        raise ValueError(f"separation={separation!r} must be an integer of at least 1.")
    largest = check_bandwidth(strategy, separation, n_steps)
    rounds = -(-n_steps // int(separation))
    return poisson_delta(noise_multiplier / largest, rate, rounds, epsilons)


def check_bandwidth(strategy: Strategy, separation: int, n_steps: int) -> float:
    """Refuse a C whose columns are longer than the separation; return its largest column norm.

    Parameters
    ----------
    strategy : Strategy
        C.
    separation : int
        Smallest distance of two participations.
    n_steps : int
        T.

    Raises
    ------
    ValueError
        If C is not banded.
    """
    bandwidth, largest = _bandwidth_and_largest_column(strategy, n_steps)
    if bandwidth > separation:
        raise ValueError(
            f"strategy={strategy!r} has bandwidth {bandwidth} with n_steps={n_steps}; cyclic "
            f"Poisson sampling needs at most separation={separation}."
        )
    return largest


@lru_cache(maxsize=16)
def operator_norm_bound(strategy: Strategy, n_steps: int) -> float:
    r"""Return an upper bound of the largest singular value of C.

    Up to 1024 steps it is that value.  Above, it is the smallest of

    * :math:`\sqrt{\|C\|_1 \|C\|_\infty}`;
    * for a Toeplitz C, the maximum on the unit circle of :math:`p(z) = \sum_k c_k z^k`, of which
      C is a section.  :math:`|p|^2` is a trigonometric polynomial of degree below T, so its
      maximum is at most that on N equidistant points over :math:`\cos(\pi T / N)`: at a distance
      h from the maximum it is still at least :math:`\cos(T h)` times as large (M. Riesz 1914);
    * for a Toeplitz C, :math:`\max_i (X v)_i / v_i` with :math:`X = |C|^T |C|` and a positive
      vector v (Collatz), close to the leading eigenvector.

    Parameters
    ----------
    strategy : Strategy
        C.
    n_steps : int
        T.

    Returns
    -------
    float
        Rounded up.

    Examples
    --------
    The limit of many steps is 1 / (1 - 0.5).

    >>> from sklearn_dpop.factorization import LambdaCGD
    >>> round(operator_norm_bound(LambdaCGD(0.5), 400), 4)
    1.9999
    """
    if n_steps <= _DENSE_LIMIT:
        matrix = strategy.matrix(n_steps)
        return float(np.linalg.norm(matrix, 2)) * (1.0 + 1e-11)
    if not isinstance(strategy, ToeplitzStrategy):
        magnitude = np.abs(strategy.matrix(n_steps))
        product = float(magnitude.sum(axis=0).max()) * float(magnitude.sum(axis=1).max())
        return math.sqrt(product) * (1.0 + 1e-11)
    c = strategy.coef(n_steps)
    total = float(np.abs(c).sum()) * (1.0 + 1e-11)
    return min(total, _circle_bound(c), _collatz_bound(np.abs(c)))


def _circle_bound(c: Float) -> float:
    size = next_fast_len(32 * len(c), real=True)
    values = np.abs(rfft(c, size))
    # The rounding error of a transform is relative to the norm of its values.
    rounding = 1e-15 * math.log2(size) * math.sqrt(size) * float(np.linalg.norm(c))
    return (float(values.max()) + rounding) / math.sqrt(math.cos(math.pi * len(c) / size))


def _collatz_bound(c: Float) -> float:
    """Bound of the norm of the Toeplitz matrix with nonnegative first column c."""
    n = len(c)
    size = next_fast_len(2 * n, real=True)
    spectrum = rfft(c, size)

    def gram(v: Float) -> Float:
        forward = irfft(spectrum * rfft(v.ravel(), size), size)[:n]
        backward = irfft(spectrum * rfft(forward[::-1], size), size)[:n]
        return np.asarray(backward[::-1])

    operator = LinearOperator((n, n), matvec=gram, dtype=float)
    try:
        _, vectors = eigsh(operator, 1, v0=np.ones(n), tol=1e-4, maxiter=100)
    except ArpackError:
        return math.inf
    v = np.abs(vectors[:, 0])
    v = np.maximum(v / v.max(), 1e-3)
    # Two transforms, each with an error relative to the norms of its factors.
    unit = 1e-15 * math.log2(size) * float(np.linalg.norm(c)) * float(np.linalg.norm(v))
    rounding = 2.0 * unit * float(c.sum())
    return math.sqrt(float(np.max((gram(v) + rounding) / v)))


def _bandwidth_and_largest_column(strategy: Strategy, n_steps: int) -> tuple[int, float]:
    if isinstance(strategy, ToeplitzStrategy):
        c = strategy.coef(n_steps)
        return int(np.flatnonzero(c).max()) + 1, float(np.linalg.norm(c)) * (1.0 + 1e-12)
    matrix = strategy.matrix(n_steps)
    rows, columns = np.nonzero(matrix)
    largest = float(np.linalg.norm(matrix, axis=0).max())
    return int((rows - columns).max()) + 1, largest * (1.0 + 1e-12)


def _privacy_loss() -> Any:
    try:
        return import_module("dp_accounting.pld.privacy_loss_distribution")
    except ImportError as error:
        raise ImportError(
            "Accounting for Poisson batches needs the package dp-accounting, which is not "
            "installed: pip install dp-accounting"
        ) from error


def _spacing(noise_multiplier: float, rate: float) -> float:
    """Return a loss grid that is fine against the standard deviation of one step's loss.

    Connecting dots adds a variance of at most a quarter of the squared spacing to the loss.
    """
    exponent = min(noise_multiplier**-2, 50.0)
    deviation = math.sqrt(math.log1p(rate**2 * math.expm1(exponent)))
    return max(deviation / _POINTS, _FINEST)


def _check(noise_multiplier: float, n_steps: int) -> None:
    if not 0.0 < noise_multiplier < math.inf:
        raise ValueError(f"noise_multiplier={noise_multiplier!r} must be positive and finite.")
    if not (isinstance(n_steps, (int, np.integer)) and n_steps >= 1):
        raise ValueError(f"n_steps={n_steps!r} must be an integer of at least 1.")


def _check_rate(rate: float) -> None:
    if not 0.0 < rate <= 1.0:
        raise ValueError(f"rate={rate!r} must be in (0, 1].")
