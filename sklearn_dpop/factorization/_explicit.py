"""Strategies given by a formula."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ._checks import check_integer, check_real
from ._strategy import BandedStrategy
from ._toeplitz import Array, fractional_power, multiply


@dataclass(frozen=True)
class Identity(BandedStrategy):
    """Independent noise: DP-SGD.

    Examples
    --------
    >>> Identity().coef(3)
    array([1., 0., 0.])
    """

    _inverse_is_banded = True

    def _band(self, n: int | None) -> Array:
        return np.array([1.0])


@dataclass(frozen=True)
class LambdaCGD(BandedStrategy):
    """DP-lambda-CGD: subtract a part of the previous noise; ``C_ij = lambda^(i-j)``.

    Parameters
    ----------
    lambda_ : float
        In [0, 1]; 0 is DP-SGD, 1 cancels the previous noise fully.

    Examples
    --------
    >>> LambdaCGD(0.5).coef(4)
    array([1.   , 0.5  , 0.25 , 0.125])
    """

    lambda_: float
    _inverse_is_banded = True

    def __post_init__(self) -> None:
        check_real("lambda_", self.lambda_, 0.0, 1.0)

    def _band(self, n: int | None) -> Array:
        return np.array([1.0, -float(self.lambda_)])[:n]


class _Root(BandedStrategy):
    """Fractional power of the workload of SGD with momentum and weight decay, truncated."""

    gamma: float
    bandwidth: int
    momentum: float
    weight_decay: float

    def __post_init__(self) -> None:
        check_real("gamma", self.gamma, 0.0, 1.0)
        check_integer("bandwidth", self.bandwidth)
        check_real("momentum", self.momentum, 0.0, 1.0, open_high=True)
        check_real("weight_decay", self.weight_decay, 0.0, 1.0, open_low=True)

    def _band(self, n: int | None) -> Array:
        # 1 / ((1 - alpha x)(1 - beta x)) is the workload; its power is a product of two series.
        p = self.bandwidth
        gamma = float(self.gamma)
        series = fractional_power(gamma if self._inverse_is_banded else -gamma, p)
        j = np.arange(p)
        band = float(self.weight_decay) ** j * series
        if self.momentum:
            band = multiply(band, float(self.momentum) ** j * series, p)
        return band


@dataclass(frozen=True)
class BISR(_Root):
    """Banded inverse square root: ``C^-1`` is the bandwidth-p truncation of ``E^(-1/2)``.

    Parameters
    ----------
    bandwidth : int
        ``p >= 1``; a noise stream stores ``p - 1`` vectors, or none.
    momentum : float, default=0.0
        ``beta`` in [0, 1): take the root of the momentum workload instead of ``E``.
    weight_decay : float, default=1.0
        ``alpha`` in (0, 1]: the factor by which a step shrinks the parameters.

    Examples
    --------
    >>> BISR(3).inverse_coef(5)
    array([ 1.   , -0.5  , -0.125,  0.   ,  0.   ])
    """

    gamma: ClassVar[float] = 0.5  # type: ignore[misc]
    bandwidth: int
    momentum: float = field(default=0.0, kw_only=True)
    weight_decay: float = field(default=1.0, kw_only=True)
    _inverse_is_banded = True


@dataclass(frozen=True)
class BSR(_Root):
    """Banded square root: ``C`` is the bandwidth-p truncation of ``E^(1/2)``.

    With ``bandwidth`` equal to the number of steps it is the square root itself, the Toeplitz
    matrix that is best for the maximal error of prefix sums.

    Parameters
    ----------
    bandwidth : int
        ``p >= 1``; a noise stream stores ``p - 1`` vectors.
    momentum, weight_decay : float
        See :class:`BISR`.

    Examples
    --------
    >>> BSR(3).coef(5)
    array([1.   , 0.5  , 0.375, 0.   , 0.   ])
    """

    gamma: ClassVar[float] = 0.5  # type: ignore[misc]
    bandwidth: int
    momentum: float = field(default=0.0, kw_only=True)
    weight_decay: float = field(default=1.0, kw_only=True)
    _inverse_is_banded = False


@dataclass(frozen=True)
class BIFR(_Root):
    """Banded inverse fractional root (gamma-BIFR, arXiv 2605.18379, Section 3).

    ``C^-1`` is the bandwidth-p truncation of ``E^-gamma``; its coefficients are
    ``(-1)^i binom(gamma, i)``.  ``gamma = 1/2`` is :class:`BISR`, ``p = 2`` is
    :class:`LambdaCGD` with ``lambda = gamma``, ``gamma = 0`` is :class:`Identity`.

    Parameters
    ----------
    gamma : float
        In [0, 1]; the share of earlier noise that is cancelled.  See :func:`best_gamma`.
    bandwidth : int
        ``p >= 1``; a noise stream stores ``p - 1`` vectors, or none.
    momentum, weight_decay : float
        See :class:`BISR`.  With ``momentum > 0`` and ``gamma > 1/2`` the coefficients of ``C``
        may grow without bound.

    Examples
    --------
    >>> BIFR(0.9, 3).inverse_coef(5)
    array([ 1.   , -0.9  , -0.045,  0.   ,  0.   ])
    >>> BIFR(0.9, 3).coef(3)
    array([1.   , 0.9  , 0.855])
    """

    gamma: float
    bandwidth: int
    momentum: float = field(default=0.0, kw_only=True)
    weight_decay: float = field(default=1.0, kw_only=True)
    _inverse_is_banded = True


@dataclass(frozen=True)
class BFR(_Root):
    """Banded fractional root (gamma-BFR): ``C`` is the bandwidth-p truncation of ``E^gamma``.

    Parameters
    ----------
    gamma : float
        In [0, 1]; ``gamma = 1/2`` is :class:`BSR`, ``gamma = 0`` is :class:`Identity`.
    bandwidth : int
        ``p >= 1``; a noise stream stores ``p - 1`` vectors.
    momentum, weight_decay : float
        See :class:`BISR`.

    Examples
    --------
    >>> BFR(0.9, 3).coef(5)
    array([1.   , 0.9  , 0.855, 0.   , 0.   ])
    """

    gamma: float
    bandwidth: int
    momentum: float = field(default=0.0, kw_only=True)
    weight_decay: float = field(default=1.0, kw_only=True)
    _inverse_is_banded = False


@dataclass(frozen=True)
class InverseLinear(BandedStrategy):
    """Banded ``C`` with coefficients ``1/j + c``, ``j = 1, .., p`` (McKenna 2025, Appendix J).

    Parameters
    ----------
    c : float
        Larger than ``-1``; nonnegative coefficients need ``c >= -1/p``.
    bandwidth : int
        ``p >= 1``; a noise stream stores ``p - 1`` vectors.

    Examples
    --------
    >>> InverseLinear(0.1, 2).coef(4)
    array([1.1, 0.6, 0. , 0. ])
    """

    c: float
    bandwidth: int
    _inverse_is_banded = False

    def __post_init__(self) -> None:
        check_real("c", self.c, -1.0, np.inf, open_low=True, open_high=True)
        check_integer("bandwidth", self.bandwidth)

    def _band(self, n: int | None) -> Array:
        return 1.0 / np.arange(1.0, self.bandwidth + 1.0) + float(self.c)
