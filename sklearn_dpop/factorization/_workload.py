"""Workloads ``A``: what the training computes from the noisy gradients.

Step ``i`` of the training is at ``theta_0 - (A G)_i``, so the error of a mechanism is that of
``A G``, and ``B = A C^-1`` carries the noise into it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from ._checks import check_integer, check_real
from ._dense import Dense
from ._strategy import DENSE_LIMIT, Strategy, ToeplitzStrategy
from ._toeplitz import Array, multiply, toeplitz_matrix


class Workload(ABC):
    """A lower-triangular ``n x n`` matrix.

    Attributes
    ----------
    n : int
        Number of steps.
    """

    n: int

    @abstractmethod
    def matrix(self) -> Array:
        """Return ``A`` as an array, for ``n`` up to 5000.

        Returns
        -------
        ndarray of shape (n, n)
        """

    def row_energies(self, strategy: Strategy) -> Array:
        """Squared norms of the rows of ``B = A C^-1``: variance of each step for unit noise.

        Parameters
        ----------
        strategy : Strategy
            ``C``.

        Returns
        -------
        ndarray of shape (n,)
        """
        if isinstance(strategy, ToeplitzStrategy):
            return self._toeplitz_energies(strategy)
        # Rows of A C^-1 solve C^T b = a.
        b = solve_triangular(strategy.matrix(self.n), self._dense().T, trans="T", lower=True)
        return np.asarray(np.einsum("ij,ij->j", b, b))

    @abstractmethod
    def _toeplitz_energies(self, strategy: ToeplitzStrategy) -> Array:
        """Compute the row energies without dense matrices."""

    @abstractmethod
    def _dense(self) -> Array:
        """Return ``A`` of any size."""


class ToeplitzWorkload(Workload):
    """A workload that is Toeplitz, known by its first column ``coef``."""

    @property
    @abstractmethod
    def coef(self) -> Array:
        """First column of ``A``, shape (n,)."""

    def matrix(self) -> Array:
        """Return ``A`` as an array; see :meth:`Workload.matrix`."""
        _check_dense(self.n)
        return self._dense()

    def _dense(self) -> Array:
        return toeplitz_matrix(self.coef, self.n)

    def _toeplitz_energies(self, strategy: ToeplitzStrategy) -> Array:
        return np.cumsum(strategy.apply_inverse(self.coef) ** 2)


@dataclass(frozen=True)
class PrefixSum(ToeplitzWorkload):
    """Plain SGD with a constant learning rate: the matrix ``E`` of ones.

    Parameters
    ----------
    n : int
        Number of steps.

    Examples
    --------
    >>> PrefixSum(3).coef
    array([1., 1., 1.])
    """

    n: int

    def __post_init__(self) -> None:
        check_integer("n", self.n)

    @property
    def coef(self) -> Array:
        """First column of ``A``, shape (n,)."""
        return np.ones(self.n)


@dataclass(frozen=True)
class Momentum(ToeplitzWorkload):
    """SGD with momentum and weight decay: ``w_j = sum_{i<=j} alpha^(j-i) beta^i``.

    Parameters
    ----------
    n : int
        Number of steps.
    beta : float
        Momentum in [0, 1).
    weight_decay : float, default=1.0
        ``alpha`` in (0, 1]: the factor by which a step shrinks the parameters
        (1 - learning rate x weight decay coefficient).

    Examples
    --------
    >>> Momentum(3, 0.5).coef
    array([1.  , 1.5 , 1.75])
    """

    n: int
    beta: float
    weight_decay: float = 1.0

    def __post_init__(self) -> None:
        check_integer("n", self.n)
        _check_momentum(self.beta, self.weight_decay)

    @property
    def coef(self) -> Array:
        """First column of ``A``, shape (n,)."""
        j = np.arange(self.n)
        alpha, beta = float(self.weight_decay), float(self.beta)
        return multiply(alpha**j, beta**j, self.n)


@dataclass(frozen=True)
class LearningRates(Workload):
    """SGD with a learning-rate schedule: ``A = T_alpha diag(eta) M_beta``.

    ``m_t = beta m_{t-1} + g_t`` and ``theta_t = alpha theta_{t-1} - eta_t m_t``.  Not Toeplitz
    unless the schedule is constant.

    Parameters
    ----------
    rates : sequence of float
        ``eta_t > 0`` for each of the ``n`` steps.  Only ratios matter in comparisons.
    beta : float, default=0.0
        Momentum in [0, 1).
    weight_decay : float, default=1.0
        ``alpha`` in (0, 1].

    Examples
    --------
    >>> LearningRates([1.0, 0.5, 0.25]).matrix()
    array([[1.  , 0.  , 0.  ],
           [1.  , 0.5 , 0.  ],
           [1.  , 0.5 , 0.25]])
    """

    rates: Sequence[float]
    beta: float = 0.0
    weight_decay: float = 1.0

    def __post_init__(self) -> None:
        rates = tuple(
            check_real(f"rates[{t}]", rate, 0.0, np.inf, open_low=True, open_high=True)
            for t, rate in enumerate(np.asarray(self.rates, dtype=float).tolist())
        )
        if not rates:
            raise ValueError("rates must not be empty.")
        object.__setattr__(self, "rates", rates)
        _check_momentum(self.beta, self.weight_decay)

    @property
    def n(self) -> int:  # type: ignore[override]
        """Number of steps."""
        return len(self.rates)

    def matrix(self) -> Array:
        """Return ``A`` as an array; see :meth:`Workload.matrix`."""
        _check_dense(self.n)
        return self._dense()

    def _dense(self) -> Array:
        n, j = self.n, np.arange(self.n)
        outer = toeplitz_matrix(float(self.weight_decay) ** j, n)
        inner = toeplitz_matrix(float(self.beta) ** j, n)
        return np.asarray((outer * np.asarray(self.rates)) @ inner)

    def _toeplitz_energies(self, strategy: ToeplitzStrategy) -> Array:
        n, eta = self.n, np.asarray(self.rates)
        inner = strategy.apply_inverse(float(self.beta) ** np.arange(n))
        lags = np.flatnonzero(inner)[-1] + 1
        if self.weight_decay == 1.0 and lags <= n // 4:
            return _banded_schedule_energies(eta, inner[:lags])
        # Row i of B is alpha times row i-1 plus eta_i times the reversed inner coefficients:
        # O(n) memory and O(n^2) time.
        reverse = inner[::-1].copy()
        row = np.zeros(n)
        energies = np.empty(n)
        for i in range(n):
            head = row[: i + 1]
            head *= float(self.weight_decay)
            head += eta[i] * reverse[n - 1 - i :]
            energies[i] = head @ head
        return energies


def _banded_schedule_energies(eta: Array, inner: Array) -> Array:
    """Row energies of ``E diag(eta) M`` for banded Toeplitz ``M``, in O(n p).

    Column ``j`` of the product is ``S_d = sum_{l<=d} eta_{j+l} m_l`` at row ``j + d``, and stays
    the same from ``d = p - 1`` on.
    """
    n, p = len(eta), len(inner)
    energies = np.zeros(n)
    partial = np.zeros(n)
    for d in range(p - 1):
        partial[: n - d] += inner[d] * eta[d:]
        energies[d:] += partial[: n - d] ** 2
    settled = partial[: n - p + 1] + inner[p - 1] * eta[p - 1 :]
    energies[p - 1 :] += np.cumsum(settled**2)
    return energies


def _check_momentum(beta: float, weight_decay: float) -> None:
    check_real("beta", beta, 0.0, 1.0, open_high=True)
    check_real("weight_decay", weight_decay, 0.0, 1.0, open_low=True)


def _check_dense(n: int) -> None:
    if n > DENSE_LIMIT:
        raise ValueError(f"n must be at most {DENSE_LIMIT} for a dense matrix, got {n}.")


def check_same_length(workload: Workload, strategy: Strategy) -> None:
    """Raise a ValueError if a dense strategy has another number of steps than the workload."""
    if isinstance(strategy, Dense) and strategy.n_steps != workload.n:
        raise ValueError(
            f"strategy and workload must have the same number of steps, got n={strategy.n_steps} "
            f"and n={workload.n}."
        )
