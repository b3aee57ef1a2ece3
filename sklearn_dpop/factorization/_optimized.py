"""Families of strategies whose free parameters are optimized for a task.

An object starts as a family; ``optimize`` returns the member that is best for a task.  Asked for
coefficients before that, a family answers with its member for prefix sums and a single
participation at the number of steps asked for.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.signal import lfilter

from ._checks import check_integer, check_real
from ._noise import BufferedLinearStream, NoiseStream
from ._optimize_banded import optimize_banded, optimize_banded_inverse
from ._optimize_blt import blt_inverse, optimize_blt
from ._strategy import BandedStrategy, ToeplitzStrategy, refuse_unbuffered
from ._toeplitz import Array
from ._workload import PrefixSum, ToeplitzWorkload, Workload


class _Family(ToeplitzStrategy):
    """A strategy that may still have to be optimized."""

    error: str

    @property
    @abstractmethod
    def is_optimized(self) -> bool:
        """Whether the parameters are fixed."""

    @abstractmethod
    def _best(self, workload: ToeplitzWorkload, k: int, b: int) -> Self:
        """Member with the least error."""

    def optimize(
        self, workload: Workload, *, participations: int = 1, separation: int | None = None
    ) -> Self:
        """Best member of the family for a task; see :meth:`Strategy.optimize`.

        A strategy that is optimized already is returned as it is.
        """
        if self.is_optimized:
            return self
        if not isinstance(workload, ToeplitzWorkload):
            raise ValueError(
                f"workload must be a Toeplitz one for optimization, got {type(workload).__name__}."
            )
        b = workload.n if separation is None else separation
        best: Self = _cached_best(self, workload, participations, b)
        return best

    def _member(self, n: int | None) -> Self:
        if self.is_optimized:
            return self
        if n is None:
            raise ValueError(f"{self!r} must be optimized before it can make noise: optimize().")
        return self.optimize(PrefixSum(n))

    def _check_family(self) -> None:
        if self.error not in ("mean", "max"):
            raise ValueError(f"error must be 'mean' or 'max', got {self.error!r}.")


@lru_cache(maxsize=64)
def _cached_best(family: Any, workload: ToeplitzWorkload, k: int, b: int) -> Any:
    return family._best(workload, k, b)


class _BandedFamily(BandedStrategy, _Family):
    bandwidth: int
    coefficients: tuple[float, ...] | None

    def __post_init__(self) -> None:
        check_integer("bandwidth", self.bandwidth)
        self._check_family()
        if self.coefficients is not None:
            _fix_tuple(self, "coefficients", self.bandwidth)
            if self.coefficients[0] == 0.0:
                raise ValueError("coefficients must not start with 0.")

    @property
    def is_optimized(self) -> bool:
        """Whether the coefficients are fixed."""
        return self.coefficients is not None

    def _band(self, n: int | None) -> Array:
        if n is not None and self.bandwidth > n:
            raise ValueError(
                f"bandwidth must be at most n, got bandwidth={self.bandwidth} with n={n}."
            )
        return np.asarray(self._member(n).coefficients, dtype=float)


@dataclass(frozen=True)
class BandMF(_BandedFamily):
    """Banded matrix factorization: banded Toeplitz ``C`` optimized for the workload.

    The best ``C`` for every number of participations that are at least ``bandwidth`` apart.

    Parameters
    ----------
    bandwidth : int
        ``p >= 1``; a noise stream stores ``p - 1`` vectors.
    error : {"mean", "max"}, default="mean"
        What :meth:`optimize` minimizes.
    coefficients : sequence of float of length ``bandwidth``, default=None
        First coefficients of ``C``; ``None`` until optimized.
    n_steps : int, default=None
        Number of steps it was optimized for.

    Examples
    --------
    >>> from sklearn_dpop.factorization import PrefixSum, rmse
    >>> best = BandMF(64).optimize(PrefixSum(1024), participations=4, separation=256)
    >>> round(rmse(PrefixSum(1024), best, participations=4, separation=256), 3)
    8.132
    """

    bandwidth: int
    error: str = "mean"
    coefficients: tuple[float, ...] | None = None
    n_steps: int | None = None
    _inverse_is_banded = False

    def _best(self, workload: ToeplitzWorkload, k: int, b: int) -> Self:
        c = optimize_banded(workload.n, self.bandwidth, workload.coef, error=self.error)
        return replace(self, coefficients=tuple(c.tolist()), n_steps=workload.n)


@dataclass(frozen=True)
class BandInvMF(_BandedFamily):
    """Banded inverse Toeplitz ``C^-1`` optimized under multi-participation sensitivity.

    Parameters
    ----------
    bandwidth : int
        ``p >= 1``; a noise stream stores ``p - 1`` vectors, or none.
    error : {"mean", "max"}, default="mean"
        What :meth:`optimize` minimizes.
    coefficients : sequence of float of length ``bandwidth``, default=None
        First coefficients of ``C^-1``; ``None`` until optimized.
    n_steps : int, default=None
        Number of steps it was optimized for.

    Examples
    --------
    >>> from sklearn_dpop.factorization import BIFR, PrefixSum, rmse
    >>> best = BandInvMF(4).optimize(PrefixSum(256), participations=4, separation=64)
    >>> rmse(PrefixSum(256), best, 4, 64) < rmse(PrefixSum(256), BIFR(0.77, 4), 4, 64)
    True
    """

    bandwidth: int
    error: str = "mean"
    coefficients: tuple[float, ...] | None = None
    n_steps: int | None = None
    _inverse_is_banded = True

    def _best(self, workload: ToeplitzWorkload, k: int, b: int) -> Self:
        inverse = optimize_banded_inverse(
            workload.n,
            self.bandwidth,
            workload.coef,
            participations=k,
            separation=b,
            error=self.error,
        )
        return replace(self, coefficients=tuple(inverse.tolist()), n_steps=workload.n)


@dataclass(frozen=True)
class BLT(_Family):
    """Buffered linear Toeplitz: ``c_0 = 1``, ``c_t = sum_j omega_j theta_j^(t-1)``.

    The inverse has the same form, so a noise stream stores as many vectors as buffers.

    Parameters
    ----------
    buffers : int
        Number of buffers, at least 1.
    error : {"mean", "max"}, default="mean"
        What :meth:`optimize` minimizes.
    theta, omega : sequence of float of length ``buffers``, default=None
        Decays in [0, 1] and nonnegative weights; ``None`` until optimized.
    n_steps : int, default=None
        Number of steps it was optimized for.

    Examples
    --------
    >>> from sklearn_dpop.factorization import PrefixSum, rmse
    >>> rmse(PrefixSum(1024), BLT(4), participations=4, separation=256) < 6.671
    True
    >>> BLT(1, theta=(0.5,), omega=(0.4,)).coef(4)
    array([1. , 0.4, 0.2, 0.1])
    """

    buffers: int
    error: str = "mean"
    theta: tuple[float, ...] | None = None
    omega: tuple[float, ...] | None = None
    n_steps: int | None = None

    def __post_init__(self) -> None:
        check_integer("buffers", self.buffers)
        self._check_family()
        if (self.theta is None) != (self.omega is None):
            raise ValueError("theta and omega must be given together.")
        if self.theta is not None:
            _fix_tuple(self, "theta", self.buffers, 0.0, 1.0)
            _fix_tuple(self, "omega", self.buffers, 0.0, np.inf)

    @property
    def is_optimized(self) -> bool:
        """Whether the parameters are fixed."""
        return self.theta is not None

    def apply_inverse(self, v: ArrayLike) -> Array:
        """``C^-1 v``; see :meth:`ToeplitzStrategy.apply_inverse`."""
        v = np.asarray(v, dtype=float)
        out = v.copy()
        for decay, weight in zip(*blt_inverse(*self._parameters(len(v))), strict=True):
            out -= weight * lfilter([0.0, 1.0], [1.0, -decay], v)
        return out

    def noise_stream(
        self, shape: Any, rng: Any = None, *, dtype: DTypeLike = np.float64, buffered: bool = True
    ) -> NoiseStream:
        """Rows of ``C^-1 Z``; see :meth:`Strategy.noise_stream`."""
        refuse_unbuffered(self, buffered)
        return BufferedLinearStream(*self._parameters(None), shape, rng, dtype)

    def _best(self, workload: ToeplitzWorkload, k: int, b: int) -> Self:
        theta, omega = optimize_blt(
            workload.n,
            self.buffers,
            workload.coef,
            participations=k,
            separation=b,
            error=self.error,
        )
        return replace(
            self, theta=tuple(theta.tolist()), omega=tuple(omega.tolist()), n_steps=workload.n
        )

    def _parameters(self, n: int | None) -> tuple[Array, Array]:
        member = self._member(n)
        return np.asarray(member.theta, dtype=float), np.asarray(member.omega, dtype=float)

    def _column(self, n: int, inverse: bool) -> Array:
        theta, omega = self._parameters(n)
        if inverse:
            theta, omega = blt_inverse(theta, omega)
            omega = -omega
        powers = np.arange(n - 1)
        column = np.ones(n)
        column[1:] = sum(
            weight * np.power(decay, powers) for decay, weight in zip(theta, omega, strict=True)
        )
        return column


def _fix_tuple(
    strategy: Any, name: str, length: int, low: float = -np.inf, high: float = np.inf
) -> None:
    """Check a sequence of numbers and store it as a tuple, so that the strategy is hashable."""
    values = tuple(
        check_real(
            f"{name}[{j}]", value, low, high, open_low=low == -np.inf, open_high=high == np.inf
        )
        for j, value in enumerate(getattr(strategy, name))
    )
    if len(values) != length:
        raise ValueError(f"{name} must have {length} entries, got {len(values)}.")
    object.__setattr__(strategy, name, values)
