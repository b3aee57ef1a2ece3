"""Margin losses: the derivative the solver needs, beside the constants a certificate needs."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sklearn_dpop.privacy._loss_constants import LossConstants, softplus_constants

__all__ = ["LogisticLoss", "MarginLoss", "SmoothedHingeLoss"]


@runtime_checkable
class MarginLoss(Protocol):
    """What a loss ``l(t, y) = psi(y t)``, ``y`` in {-1, 1}, has to offer.

    Implement these two members to use another loss; neither the certificate nor the
    solver needs to change.
    """

    @property
    def constants(self) -> LossConstants:
        """Public bounds on the derivatives of the loss."""
        ...

    def derivative(
        self, u: NDArray[np.float64], out: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Return ``psi'(u)`` elementwise, written to `out` if given (`out` may be `u`)."""
        ...


class SmoothedHingeLoss:
    r"""Hinge loss smoothed by a softplus, :math:`\psi(u) = \tau\log(1 + e^{(m-u)/\tau})`.

    Parameters
    ----------
    margin : float, default=1.0
        Public margin :math:`m \ge 0`.
    temperature : float, default=0.25
        Public temperature :math:`\tau > 0`; the loss tends to :math:`\max(0, m-u)` as it
        goes to 0, and :math:`L_2 = 1/(4\tau)` grows.

    Examples
    --------
    >>> import numpy as np
    >>> loss = SmoothedHingeLoss(margin=1.0, temperature=0.25)
    >>> loss.constants.L2
    1.0
    >>> float(loss.derivative(np.array([1.0]))[0])
    -0.5
    """

    name = "smoothed_hinge"

    def __init__(self, margin: float = 1.0, temperature: float = 0.25) -> None:
        self.margin = margin
        self.temperature = temperature

    def __repr__(self) -> str:
        return f"{type(self).__name__}(margin={self.margin}, temperature={self.temperature})"

    @property
    def constants(self) -> LossConstants:
        """Public bounds on the derivatives of the loss."""
        return softplus_constants(self.name, self.margin, self.temperature)

    def value(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ``psi(u)`` elementwise."""
        value: NDArray[np.float64] = self.temperature * np.logaddexp(
            0.0, (self.margin - u) / self.temperature
        )
        return value

    def derivative(
        self, u: NDArray[np.float64], out: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Return ``psi'(u) = -1/(1 + exp((u - m)/tau))`` elementwise."""
        out = np.subtract(u, self.margin, out=out)
        if self.temperature != 1.0:
            out /= self.temperature
        with np.errstate(over="ignore"):  # exp(large) = inf gives the right limit, -0
            np.exp(out, out=out)
        out += 1.0
        return np.divide(-1.0, out, out=out)


class LogisticLoss(SmoothedHingeLoss):
    r"""Logistic loss with a public margin, :math:`\psi(u) = \log(1 + e^{m-u})`.

    Parameters
    ----------
    margin : float, default=0.0
        Public margin :math:`m \ge 0`.  The constants do not depend on it, and a positive
        margin makes the slope at the origin :math:`1/(1+e^{-m})` instead of 1/2: more
        signal for the same noise.

    Examples
    --------
    >>> constants = LogisticLoss().constants
    >>> constants.L1, constants.L2, round(constants.L3, 6)
    (1.0, 0.25, 0.096225)
    """

    name = "logistic"

    def __init__(self, margin: float = 0.0) -> None:
        super().__init__(margin=margin, temperature=1.0)

    def __repr__(self) -> str:
        return f"LogisticLoss(margin={self.margin})"
