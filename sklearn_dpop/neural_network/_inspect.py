"""What a released network has learned about single features: free of privacy cost.

Everything here is computed from released weights and public bounds, never from records.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ._kan import ACTIVATIONS, KAN

__all__ = ["chance", "edge_functions", "effects", "feature_importances", "plot_edges"]

_POINTS = 201


def edge_functions(
    net: KAN, feature: int, n_points: int = _POINTS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Evaluate the functions that lead from a feature to the units of the first layer.

    Parameters
    ----------
    net : KAN
    feature : int
        Index of the feature.
    n_points : int, default=201
        Number of equidistant points between the bounds.

    Returns
    -------
    x : ndarray of shape (n_points,)
        Values of the feature.
    edges : ndarray of shape (hidden_width, n_points)
        Of each unit, before the activation.

    Examples
    --------
    >>> net = KAN(3, hidden_width=2, feature_bounds=(0, 10))
    >>> x, edges = edge_functions(net, 1, n_points=5)
    >>> x, edges.shape
    (array([ 0. ,  2.5,  5. ,  7.5, 10. ]), (2, 5))
    """
    layer = net.spline_layers[0]
    with torch.no_grad():
        phi, grid = _features(net, n_points)
        edges = layer.scale * layer.weight[:, :, feature] @ phi[:, :, feature].T
    return _values(net, feature, grid), edges.double().cpu().numpy()


def effects(net: KAN, n_points: int = _POINTS) -> Tensor:
    r"""First-order effect of every feature on the logits, as a function of its value.

    The layers after the first are linearized where all features are at the centre of their
    bounds: ``sum_j s_j f_ji(x)`` with the edges ``f_ji`` and the slopes ``s_j`` of the logits in
    the first layer's outputs.  The random initial weights mostly cancel in this sum, what was
    learned adds up.

    Parameters
    ----------
    net : KAN
    n_points : int, default=201
        Number of equidistant points between the bounds.

    Returns
    -------
    Tensor of shape (n_outputs, n_points, in_features)
        Relative to the mean over the points and, with several classes, over these.
    """
    first = net.spline_layers[0]
    slopes = _slopes(net)
    with torch.no_grad():
        phi, _ = _features(net, n_points)
        weight = first.scale * torch.einsum("kj,jci->kci", slopes, first.weight)
        found = torch.einsum("gci,kci->kgi", phi, weight)
        return found - found.mean(1, keepdim=True)


def chance(net: KAN, weight_noise: float, n_points: int = _POINTS) -> Tensor:
    """Return the standard deviation of the `effects` of a feature that nothing was learned of.

    The first layer's weights are then their initial values, standard normal, plus noise.  With
    the slopes ``s_j`` as they are, the effect is normal with standard deviation
    ``sqrt(1 + weight_noise^2) d^(-1/2) |s| |phi(x) - mean phi|``: the same for all features.

    Parameters
    ----------
    net : KAN
    weight_noise : float
        Standard deviation of the noise in a weight.
    n_points : int, default=201
        Number of equidistant points between the bounds.

    Returns
    -------
    Tensor of shape (n_outputs, n_points)
    """
    with torch.no_grad():
        phi = _features(net, n_points)[0][:, :, 0]
        spread = torch.linalg.vector_norm(phi - phi.mean(0), dim=1)
        size = torch.linalg.vector_norm(_slopes(net), dim=1)
        scale = net.spline_layers[0].scale * (1 + weight_noise**2) ** 0.5
        deviation: Tensor = scale * size[:, None] * spread
        return deviation


def feature_importances(net: KAN) -> NDArray[np.float64]:
    """Root mean square of `effects` over the bounds, scaled to sum 1.

    Parameters
    ----------
    net : KAN

    Returns
    -------
    ndarray of shape (in_features,)

    Examples
    --------
    >>> importances = feature_importances(KAN(3, hidden_width=2))
    >>> importances.shape, round(float(importances.sum()), 6)
    ((3,), 1.0)
    """
    size = effects(net).double().square().mean(1).sum(0).sqrt()
    importances: NDArray[np.float64] = (size / size.sum()).cpu().numpy()
    return importances


def plot_edges(
    net: KAN,
    feature: int,
    name: str,
    classes: list[str],
    ax: Any = None,
    weight_noise: float | None = None,
) -> Any:
    """Draw the edges of a feature, and its effect on the logits.

    Parameters
    ----------
    net : KAN
    feature : int
        Index of the feature.
    name : str
        Of the feature.
    classes : list of str
        Labels of the logits.
    ax : matplotlib Axes, optional
        Where to draw; None makes a new figure.
    weight_noise : float, optional
        Standard deviation of the noise in a weight, for a band of twice `chance`.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as error:
        raise ImportError(
            "plot_edges needs matplotlib, which is not installed: pip install matplotlib"
        ) from error
    if ax is None:
        _, ax = plt.subplots()
    x, edges = edge_functions(net, feature)
    edges = edges - edges.mean(axis=1, keepdims=True)
    lines = ax.plot(x, edges.T, color="0.8", linewidth=0.8)
    lines[0].set_label("edges to the hidden units")
    curves = [
        ax.plot(x, effect, linewidth=2, label=f"effect on the logit of {label}")[0]
        for effect, label in zip(effects(net)[:, :, feature].cpu().numpy(), classes, strict=True)
    ]
    if weight_noise is not None:
        bands = 2 * chance(net, weight_noise).cpu().numpy()
        shapes = [
            ax.fill_between(x, -band, band, color=curve.get_color(), alpha=0.15)
            for curve, band in zip(curves, bands, strict=True)
        ]
        shapes[0].set_label("95% of effects where nothing was learned")
    ax.set(xlabel=name, ylabel="deviation from the mean")
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.1 * (len(classes) + 2) * (high - low))  # room for the legend
    ax.legend(loc="upper center", fontsize="small")
    return ax


def _slopes(net: KAN) -> Tensor:
    """Slopes of the logits in the first layer's outputs, at the centre of the bounds.

    With several classes, relative to the mean over these; of shape (n_outputs, hidden_width).
    """
    first, *others = net.spline_layers
    act = ACTIVATIONS[net.activation][0]

    def logits(z: Tensor) -> Tensor:
        for layer in others:
            z = layer(act(z))
        return z[0]

    with torch.no_grad():
        center = first(first.weight.new_zeros(1, net.in_features))
    slopes: Tensor = torch.autograd.functional.jacobian(logits, center)[:, 0]
    return slopes - slopes.mean(0) if net.n_outputs > 1 else slopes


def _features(net: KAN, n_points: int) -> tuple[Tensor, Tensor]:
    """First-layer features where all inputs go through the grid together."""
    layer = net.spline_layers[0]
    grid = torch.linspace(-1, 1, n_points, dtype=layer.weight.dtype, device=layer.weight.device)
    return layer.features(grid[:, None].expand(-1, net.in_features).contiguous()), grid


def _values(net: KAN, feature: int, grid: Tensor) -> NDArray[np.float64]:
    middle, radius = (
        b.double().expand(net.in_features)[feature] for b in (net.middle, 1 / net.inverse_radius)
    )
    values: NDArray[np.float64] = (middle + radius * grid.double()).cpu().numpy()
    return values
