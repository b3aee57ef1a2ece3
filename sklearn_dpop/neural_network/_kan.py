"""Kolmogorov-Arnold networks that are linear in spline features, layer by layer.

Every layer computes ``z = W phi(h) / sqrt(d)`` from the features ``phi`` of its ``d`` inputs, so
the gradient that one record has in a layer is an outer product.  `_clipped` rests on that;
anything that breaks it (scales per edge, batch statistics, grids fitted to data) has no place
here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from sklearn_dpop._inputs import declared_bounds

from ._splines import SplineBasis, _is_integer, scatter_index, scatter_local_

__all__ = ["ACTIVATIONS", "KAN", "SplineLayer"]

# Features written at once on the CPU: a block stays in cache while it is filled (twice as fast
# as a whole batch of 512 rows of 784 inputs).
_BLOCK = 1 << 19

# Function, and its derivative in terms of its value.
ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "tanh": (torch.tanh, lambda h: 1 - h * h),
    "sigmoid": (torch.sigmoid, lambda h: h * (1 - h)),
}


class SplineLayer(nn.Module):
    """One layer: ``z_j = d^(-1/2) sum_i sum_k weight[j, k, i] phi_k(h_i)``.

    The columns ``phi_k`` are the B-splines of `basis` and, with `base_branch`, one more column
    ``silu(h)``.  With `center`, the constant ``phi_k(center)`` is subtracted from each.

    Parameters
    ----------
    in_features, out_features : int
        Number of inputs ``d`` and of outputs.
    basis : SplineBasis
        The splines, on a public grid.
    base_branch : bool, default=False
        Whether to add the column ``silu(h)``.
    center : float or None, default=None
        Public point of the grid at which all columns are made to vanish.  The layer computes
        what it would compute without, less ``z(center, ..., center)``: the same weights, and
        every output moved by a constant of its weights.
    trained : bool, default=True
        Whether `weight` is a parameter or a fixed buffer.
    dtype, device : optional
        Of the weights.

    Attributes
    ----------
    weight : Tensor of shape (out_features, n_columns, in_features)
        Zero until drawn by `KAN.reset_parameters`.
    scale : float
        ``in_features ** -0.5``.

    Examples
    --------
    >>> import torch
    >>> layer = SplineLayer(2, 1, SplineBasis())
    >>> _ = torch.nn.init.ones_(layer.weight)
    >>> round(layer(torch.zeros(1, 2)).item() ** 2, 5)  # two inputs, splines sum to one
    2.0
    """

    weight: Tensor
    offset: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        basis: SplineBasis,
        *,
        base_branch: bool = False,
        center: float | None = None,
        trained: bool = True,
        dtype: torch.dtype = torch.float32,
        device: Any = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.basis = basis
        self.base_branch = base_branch
        self.trained = trained
        self.n_columns = basis.n_basis + base_branch
        self.scale = in_features**-0.5
        weight = torch.zeros(out_features, self.n_columns, in_features, dtype=dtype, device=device)
        if trained:
            self.weight = nn.Parameter(weight)
        else:
            self.register_buffer("weight", weight)
        offset = None
        if center is not None:
            at_center = basis.at(center) + [center / (1 + math.exp(-center))] * base_branch
            offset = torch.tensor(at_center, dtype=dtype, device=device).unsqueeze(1)
        # Made from public constants only; kept out of the saved state, where it has no use.
        self.register_buffer("offset", offset, persistent=False)

    @property
    def n_features(self) -> int:
        """Number of features of a record, ``n_columns * in_features``."""
        return self.n_columns * self.in_features

    @property
    def matrix(self) -> Tensor:
        """The weights as a matrix of shape (out_features, n_features), on the same memory."""
        return self.weight.view(self.out_features, -1)

    def features(self, h: Tensor) -> Tensor:
        """Features of a batch, differentiable in `h`.

        Parameters
        ----------
        h : Tensor of shape (batch, in_features)
            Inputs on the grid; others are clamped to it.

        Returns
        -------
        phi : Tensor of shape (batch, n_columns, in_features)
        """
        cell, values = self.basis.local(h)
        return self._place(h, scatter_index(cell, self.n_columns), values)

    def features_and_slopes(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Features of a batch and their derivatives, each in its own input.

        Parameters
        ----------
        h : Tensor of shape (batch, in_features)

        Returns
        -------
        phi, slopes : Tensors of shape (batch, n_columns, in_features)
        """
        cell, values, slopes = self.basis.local_slopes(h)
        index = scatter_index(cell, self.n_columns)
        derivative = h.new_zeros(len(h), self.n_columns, self.in_features)
        scatter_local_(derivative, index, slopes)
        if self.base_branch:
            gate = torch.sigmoid(h)
            derivative[:, -1] = gate * (1 + h * (1 - gate))
        return self._place(h, index, values), derivative

    def write_features(self, h: Tensor, out: Tensor) -> None:
        """Like `features`, without gradient, into given memory.

        Parameters
        ----------
        h : Tensor of shape (batch, in_features)
        out : Tensor of shape (batch, n_features), contiguous
        """
        rows = max(1, _BLOCK // self.n_features) if h.device.type == "cpu" else max(1, len(h))
        with torch.no_grad():
            for block, into in zip(h.split(rows), out.split(rows), strict=True):
                cell, values = self.basis.local(block)
                self._place(block, scatter_index(cell, self.n_columns), values, into.zero_())

    def forward(self, h: Tensor) -> Tensor:
        """Compute the outputs, of shape (batch, out_features)."""
        z: Tensor = self.features(h).flatten(1) @ self.matrix.T * self.scale
        return z

    def extra_repr(self) -> str:
        """One line for ``repr``."""
        fixed = "" if self.trained else ", fixed"
        return f"{self.in_features}, {self.out_features}, {self.basis}{fixed}"

    def _place(
        self, h: Tensor, index: Tensor, values: list[Tensor], out: Tensor | None = None
    ) -> Tensor:
        shape = len(h), self.n_columns, self.in_features
        out = h.new_zeros(shape) if out is None else out.view(shape)
        scatter_local_(out, index, values)
        if self.base_branch:
            out[:, -1] = nn.functional.silu(h)
        return out if self.offset is None else out.sub_(self.offset)


class KAN(nn.Module):
    """Kolmogorov-Arnold network of arXiv 2605.12648, section 3.1, and its deeper relatives.

    With one hidden layer of width ``m`` and splines ``b_k``:

    ``f(x) = m^(-1/2) sum_j sum_k c_jk b_k(h_j)``,
    ``h_j = act(d^(-1/2) sum_i sum_k w_ijk b_k(x_i))``.

    The inputs are clipped to `feature_bounds` and mapped to the grid ``[-1, 1]``, which also
    holds the range of the activation; NaN counts as the lower bound.  No constant of the
    network depends on data.

    Parameters
    ----------
    in_features : int
        Number of inputs ``d``.
    n_outputs : int, default=1
        1: the logit of the positive class; ``K >= 2``: one logit per class, for softmax.
    hidden_width : int or sequence of int, default=32
        Widths of the hidden layers.
    n_basis : int, default=8
        Number ``p`` of B-splines.
    degree : int, default=3
        Their degree, 0 to 5.
    activation : {"tanh", "sigmoid"}, default="tanh"
        After every hidden layer.
    train_output_layer : bool, default=False
        If False, the output layer stays as drawn, as in the paper.
    base_branch : bool, default=False
        Add ``silu(h)`` as one more column of features to every input.
    center_basis : bool, default=False
        Subtract from all features their value at the centre of the bounds and, in the layers
        after, at ``act(0)``: public constants.  For given weights this moves the outputs of
        each layer by constants, so that a record at the centre of the bounds has logit 0; what
        it gains is gradients without the large part that all records share.
    feature_bounds : pair of floats or of sequences of length d, default=(-1.0, 1.0)
        Public lower and upper bound of the inputs, for all or for each.
    generator : torch.Generator or None, default=None
        Source of the initial weights, which are standard normal; on the CPU.  None takes
        torch's default generator.
    dtype : torch.dtype, default=torch.float32
        float32 or float64.
    device : optional
        Where the weights live.

    Attributes
    ----------
    layers : ModuleList of SplineLayer
        From the inputs to the logits.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    Examples
    --------
    >>> import torch
    >>> net = KAN(4, hidden_width=3, generator=torch.Generator().manual_seed(0))
    >>> net(torch.zeros(2, 4)).shape
    torch.Size([2, 1])
    >>> [tuple(p.shape) for p in net.parameters()]  # the output layer is fixed
    [(3, 8, 4)]
    """

    middle: Tensor
    inverse_radius: Tensor

    def __init__(
        self,
        in_features: int,
        n_outputs: int = 1,
        *,
        hidden_width: int | Sequence[int] = 32,
        n_basis: int = 8,
        degree: int = 3,
        activation: str = "tanh",
        train_output_layer: bool = False,
        base_branch: bool = False,
        center_basis: bool = False,
        feature_bounds: tuple[ArrayLike, ArrayLike] = (-1.0, 1.0),
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float32,
        device: Any = None,
    ) -> None:
        super().__init__()
        widths = _widths(in_features, hidden_width, n_outputs)
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"activation must be one of {sorted(ACTIVATIONS)}, got {activation!r}."
            )
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype!r}.")
        self.in_features, self.n_outputs, self.activation = in_features, n_outputs, activation
        middle, inverse_radius = _affine(feature_bounds, in_features, dtype)
        self.register_buffer("middle", middle.to(device))
        self.register_buffer("inverse_radius", inverse_radius.to(device))
        basis = SplineBasis(degree, n_basis)
        neutral = ACTIVATIONS[activation][0](torch.zeros((), dtype=torch.float64)).item()
        self.layers = nn.ModuleList(
            SplineLayer(
                d,
                m,
                basis,
                base_branch=base_branch,
                center=None if not center_basis else 0.0 if level == 0 else neutral,
                trained=train_output_layer or level < len(widths) - 2,
                dtype=dtype,
                device=device,
            )
            for level, (d, m) in enumerate(pairwise(widths))
        )
        self.reset_parameters(generator)

    @property
    def spline_layers(self) -> list[SplineLayer]:
        """`layers` as a list with its type."""
        return [layer for layer in self.layers if isinstance(layer, SplineLayer)]

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw all weights again, those of a fixed output layer included.

        Parameters
        ----------
        generator : torch.Generator or None, default=None
            On the CPU; None takes torch's default generator.
        """
        with torch.no_grad():
            for layer in self.spline_layers:
                # Drawn on the CPU in double precision: one seed gives one network, up to
                # rounding, whatever the dtype and the device.
                drawn = torch.randn(layer.weight.shape, generator=generator, dtype=torch.float64)
                layer.weight.copy_(drawn)

    def to_grid(self, x: Tensor) -> Tensor:
        """Clip to the bounds and map to the grid.

        Parameters
        ----------
        x : Tensor of shape (batch, in_features)

        Returns
        -------
        t : Tensor of shape (batch, in_features)
            Between -1 and 1, never NaN.

        Examples
        --------
        >>> import torch
        >>> net = KAN(1, feature_bounds=(0, 10))
        >>> net.to_grid(torch.tensor([[-3.0], [0.0], [5.0], [float("inf")]])).T
        tensor([[-1., -1.,  0.,  1.]])
        """
        t = (x - self.middle) * self.inverse_radius
        return torch.nan_to_num(t, nan=-1.0).clamp(-1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits, (batch, n_outputs), of inputs of shape (batch, in_features)."""
        h = self.to_grid(x)
        act = ACTIVATIONS[self.activation][0]
        for layer in self.spline_layers[:-1]:
            h = act(layer(h))
        logits: Tensor = self.spline_layers[-1](h)
        return logits


def _widths(in_features: int, hidden_width: int | Sequence[int], n_outputs: int) -> list[int]:
    hidden = list(hidden_width) if isinstance(hidden_width, Sequence) else [hidden_width]
    if not hidden or not all(_is_integer(width) and width >= 1 for width in hidden):
        raise ValueError(
            "hidden_width must be an integer >= 1 or a non-empty sequence of them, "
            f"got {hidden_width!r}."
        )
    for name, value in (("in_features", in_features), ("n_outputs", n_outputs)):
        if not _is_integer(value) or value < 1:
            raise ValueError(f"{name} must be an integer >= 1, got {value!r}.")
    return [int(width) for width in (in_features, *hidden, n_outputs)]


def _affine(
    feature_bounds: tuple[ArrayLike, ArrayLike], in_features: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Centre and inverse half width of the bounds, of shape (1,) or (in_features,)."""
    lower, upper = map(
        np.atleast_1d, declared_bounds("feature_bounds", feature_bounds, in_features)
    )
    with np.errstate(divide="ignore", over="ignore"):  # refused below
        middle = torch.from_numpy(lower / 2 + upper / 2).to(dtype)
        inverse_radius = torch.from_numpy(1 / (upper / 2 - lower / 2)).to(dtype)
    usable = torch.isfinite(middle) & torch.isfinite(inverse_radius) & (inverse_radius > 0)
    if not bool(usable.all()):
        raise ValueError(
            f"feature_bounds={feature_bounds!r}: too large or too close to each other for {dtype}."
        )
    return middle, inverse_radius
