"""Terms of the optimization risk bound of arXiv 2605.12648, Theorem 4.1."""

from __future__ import annotations

import math
from typing import Any

import torch

from sklearn_dpop.factorization import BIFR, Identity, LambdaCGD, Strategy

from ._kan import ACTIVATIONS
from ._splines import SplineBasis

__all__ = ["correlation", "gradient_bound", "risk_terms"]

_FINE = 20_001


def correlation(strategy: Strategy) -> float:
    """Return lambda of a strategy whose noise is ``Z_t - lambda Z_{t-1}``.

    Parameters
    ----------
    strategy : Strategy

    Raises
    ------
    ValueError
        If its noise is another.

    Examples
    --------
    >>> correlation(BIFR(0.7, 2)), correlation(Identity())
    (0.7, 0.0)
    """
    if isinstance(strategy, Identity):
        return 0.0
    if isinstance(strategy, LambdaCGD):
        return float(strategy.lambda_)
    if isinstance(strategy, BIFR) and strategy.bandwidth <= 2:
        plain = strategy.momentum == 0.0 and strategy.weight_decay == 1.0
        if plain or strategy.bandwidth == 1:
            return float(strategy.gamma) * (strategy.bandwidth - 1)
    raise ValueError(
        f"the theorem is for noise of bandwidth 2 (LambdaCGD, BIFR(gamma, 2), Identity), not for "
        f"{strategy!r}"
    )


def gradient_bound(
    basis: SplineBasis, activation: str, hidden_width: int, failure_probability: float
) -> float:
    r"""Bound on the gradient of any record at any first-layer weights.

    :math:`G_\delta = B'_\sigma B_b B'_b\, p\,(4\sqrt p + 2\sqrt{\log(2/\delta)/m})`, which holds
    with probability :math:`1-\delta` over the output layer.

    Parameters
    ----------
    basis : SplineBasis
    activation : {"tanh", "sigmoid"}
    hidden_width : int
        ``m``.
    failure_probability : float
        :math:`\delta`, in (0, 1).

    Returns
    -------
    float

    Examples
    --------
    >>> round(gradient_bound(SplineBasis(3, 8), "tanh", 32, 0.01), 1)
    107.8
    """
    grid = torch.linspace(-1, 1, _FINE, dtype=torch.float64)[:, None]
    _, values, slopes = basis.local_slopes(grid)
    act, act_slope = ACTIVATIONS[activation]
    largest = [max(float(v.abs().max()) for v in part) for part in (values, slopes)]
    steepest = float(act_slope(act(torch.zeros((), dtype=torch.float64))))
    p = basis.n_basis
    spread = 4 * math.sqrt(p) + 2 * math.sqrt(math.log(2 / failure_probability) / hidden_width)
    return steepest * largest[0] * largest[1] * p * spread


def risk_terms(
    *,
    gradient_bound: float,
    max_grad_norm: float,
    noise_multiplier: float,
    correlation: float,
    batch_size: float,
    n_steps: int,
    lr: float,
    n_features: int,
    hidden_width: int,
    margin: float,
) -> dict[str, Any]:
    """Evaluate the effective quantities and the terms of A_corr, without its constants.

    Parameters
    ----------
    gradient_bound : float
        ``G_delta``.
    max_grad_norm, noise_multiplier, correlation, batch_size, n_steps, lr
        ``C_clip``, ``kappa``, ``lambda``, ``B``, ``T`` and ``eta``.
    n_features, hidden_width : int
        ``d`` and ``m``.
    margin : float
        ``gamma`` of the theorem's separability, in (0, 1].

    Returns
    -------
    dict
    """
    rho = min(1.0, max_grad_norm / gradient_bound)
    eta = rho * lr
    c = max_grad_norm * noise_multiplier / (batch_size * rho)
    quadratic = (1 - correlation) ** 2 + correlation**2 * eta
    terms = {
        "optimization": 1 / (margin**2 * eta * n_steps),
        "sampling": 1 / (margin * math.sqrt(batch_size * n_steps)),
        "step_size": eta * (1 / batch_size + 1 / n_steps),
        "linear_noise": (1 - correlation) * c / (margin * math.sqrt(n_steps)),
        "quadratic_noise": quadratic * eta * c**2 * hidden_width * n_features,
    }
    return {
        "G_delta": gradient_bound,
        "rho_clip": rho,
        "eta_eff": eta,
        "c_eff": c,
        "lambda": correlation,
        "linear_noise_factor": 1 - correlation,
        "quadratic_noise_factor": quadratic,
        "lambda_of_least_quadratic_noise": 1 / (1 + eta),
        "terms": terms,
        "A_corr": sum(terms.values()),
    }
