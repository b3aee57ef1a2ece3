"""The public constants of a loss: all that a certificate may know about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

__all__ = ["LossConstants", "softplus_constants"]


@dataclass(frozen=True)
class LossConstants:
    r"""Bounds on the derivatives of a loss ``l(t, y) = psi(y t)`` (Assumptions 2 and 3).

    Attributes
    ----------
    name : str
        Name under which reports state the loss.
    L1, L2, L3 : float
        Bounds :math:`|l'| \le L_1`, :math:`0 \le l'' \le L_2` and a Lipschitz constant
        :math:`L_3` of :math:`l''`.
    one_sided : bool
        True when, besides, ``-L1 <= psi' <= 0`` everywhere and
        :math:`\psi'' \le 4 L_2 s(1-s)` with :math:`s = -\psi'/L_1`.  The sharper
        certificate needs both; every softplus loss has them with equality.
    margin, temperature : float
        Parameters of the softplus family; 0 and 1 for other losses.
    weight : float
        Largest class weight; L1, L2 and L3 already contain it.
    """

    name: str
    L1: float
    L2: float
    L3: float
    one_sided: bool = False
    margin: float = 0.0
    temperature: float = 1.0
    weight: float = 1.0

    def scaled(self, weight: float) -> LossConstants:
        """Return the constants of the loss multiplied by at most `weight`."""
        return replace(
            self,
            L1=self.L1 * weight,
            L2=self.L2 * weight,
            L3=self.L3 * weight,
            weight=self.weight * weight,
        )


def softplus_constants(name: str, margin: float, temperature: float) -> LossConstants:
    r"""Return the constants of :math:`\psi(u) = \tau\log(1 + e^{(m-u)/\tau})`.

    With :math:`s = -\psi'(u) \in (0, 1)`: :math:`\psi'' = s(1-s)/\tau \le 1/(4\tau)` and
    :math:`|\psi'''| = s(1-s)|1-2s|/\tau^2 \le 1/(6\sqrt3\,\tau^2)`, for every margin m.
    """
    return LossConstants(
        name=name,
        L1=1.0,
        L2=1.0 / (4.0 * temperature),
        L3=1.0 / (6.0 * math.sqrt(3.0) * temperature**2),
        one_sided=True,
        margin=float(margin),
        temperature=float(temperature),
    )
