"""Sums of clipped gradients of a `KAN`, without the gradient of any single record.

In every layer ``z = scale W phi``, so the gradient of a record's loss is
``scale delta phi^T`` with ``delta = dloss / dz``, and its norm over all trained layers is

    ``|g|^2 = sum_l scale_l^2 |delta_l|^2 |phi_l|^2``,

exactly, at any depth.  The sum of clipped gradients of a layer is then one matrix product,
``scale (s delta)^T Phi`` with ``s = min(1, C / |g|)``.

**Rounding cannot lift a record above C.**  Norms are summed in double precision from the
numbers that enter the product, and ``s`` is lowered by a few units of rounding (`_margin`), so
that also the rounded contribution of a record has norm at most ``C``.  A record whose gradient
is not finite contributes zero.  What remains is the rounding of the sum over records.

Nothing here returns a quantity of a single record, except `per_record`, which exists for
diagnostics outside the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ._kan import ACTIVATIONS, KAN, SplineLayer

__all__ = ["FeatureStore", "PerRecord", "Rows", "add_clipped_sum_", "clipped_sum", "per_record"]

# Below, products of a record could be subnormal numbers, whose rounding is not relative.
SMALLEST_CLIP = 1e-30

# Records whose features are computed at once while a store is built; on a device, as many as have
# this number of features, or its time would go into starting kernels.
_PART = 256
_DEVICE_PART = 1 << 24


class Rows(NamedTuple):
    """First-layer features of some records, private.

    Attributes
    ----------
    features : Tensor of shape (rows, n_features)
        Of ``model.spline_layers[0]``.
    squared_norms : Tensor of float64, shape (rows,)
    """

    features: Tensor
    squared_norms: Tensor


class PerRecord(NamedTuple):
    """What single records contribute: private, outside any guarantee.

    Attributes
    ----------
    norms : Tensor of float64, shape (rows,)
        Gradient norms over the trained layers, before clipping.
    losses : Tensor of shape (rows,)
    """

    norms: Tensor
    losses: Tensor


class FeatureStore:
    """Records of a training set, with the first layer's features if they fit in memory.

    The splines of the first layer do not change during training.  If the features of all
    records fit in the budget they are computed once; otherwise those of a batch are computed
    when it is taken.  Their norms are always kept.

    All of it is private.  Pickling and copying drop it: an object that comes back from there
    is empty.

    Parameters
    ----------
    model : KAN
    X : array of shape (n, in_features)
        Records.  If the features are not kept, the records are, as points of the grid: a
        later change of the array or of the model's bounds changes nothing.
    memory_budget : int, default=2**28
        Bytes that the features may take.

    Attributes
    ----------
    cached : bool
        Whether the features are kept.

    Raises
    ------
    ValueError
        If `X` has the wrong shape.

    Examples
    --------
    >>> import torch
    >>> net = KAN(2, hidden_width=3, generator=torch.Generator().manual_seed(0))
    >>> store = FeatureStore(net, torch.zeros(5, 2))
    >>> store.take(slice(0, 3)).features.shape
    torch.Size([3, 16])
    """

    def __init__(self, model: KAN, X: ArrayLike | Tensor, memory_budget: int = 2**28) -> None:
        layer = model.spline_layers[0]
        x = torch.as_tensor(X, dtype=layer.weight.dtype, device=layer.weight.device)
        if x.ndim != 2 or x.shape[1] != model.in_features:
            raise ValueError(f"X must have shape (n, {model.in_features}), got {tuple(x.shape)}.")
        self._model = model
        self._n = len(x)
        self.cached = x.numel() * layer.n_columns * x.element_size() <= memory_budget
        self._features = x.new_empty(self._n if self.cached else 0, layer.n_features)
        self._squared_norms = x.new_empty(self._n, dtype=torch.float64)
        self._grid = x.new_empty(0 if self.cached else self._n, model.in_features)
        self._scratch = x.new_empty(0, layer.n_features)
        size = _PART
        if x.device.type != "cpu":
            size = max(size, _DEVICE_PART // layer.n_features)
        for start in range(0, self._n, size):
            part = slice(start, start + size)
            points = model.to_grid(x[part])
            if not self.cached:
                self._grid[part] = points
            out = self._features[part] if self.cached else self._room(len(points))
            layer.write_features(points, out)
            self._squared_norms[part] = _squared_norms(out)

    def __len__(self) -> int:
        return self._n

    def take(self, index: Tensor | slice) -> Rows:
        """Features of some records.

        Parameters
        ----------
        index : Tensor of int64 or slice
            A slice of a cached store costs no copy.

        Returns
        -------
        rows : Rows
            Valid until the next call, which may use the same memory.

        Raises
        ------
        RuntimeError
            If the store was pickled or copied.
        """
        if not hasattr(self, "_squared_norms"):
            raise RuntimeError("The records of this store were dropped when it was copied.")
        squared_norms = self._squared_norms[index]
        if self.cached:
            if isinstance(index, slice):
                return Rows(self._features[index], squared_norms)
            out = self._room(len(index))
            return Rows(torch.index_select(self._features, 0, index, out=out), squared_norms)
        points = self._grid[index]
        out = self._room(len(points))
        self._model.spline_layers[0].write_features(points, out)
        return Rows(out, squared_norms)

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def _room(self, rows: int) -> Tensor:
        if len(self._scratch) < rows:
            self._scratch = self._scratch.new_empty(rows, self._scratch.shape[1])
        return self._scratch[:rows]


def add_clipped_sum_(
    model: KAN,
    rows: Rows,
    y: Tensor,
    max_grad_norm: float,
    targets: Sequence[Tensor],
    *,
    alpha: float = 1.0,
    mask: Tensor | None = None,
) -> None:
    """Add ``alpha`` times the sum of the records' clipped gradients to the targets, in place.

    The loss is the logistic loss for one output and softmax cross-entropy for more.  Gradients
    are those in the trained layers.  The sum changes by at most ``max_grad_norm`` in Euclidean
    norm, over all targets together, when a record is added or removed, and by twice that when
    one is replaced.

    Parameters
    ----------
    model : KAN
    rows : Rows
        From `FeatureStore.take`.
    y : Tensor of shape (rows,)
        Labels: 0 or 1 for one output, class indices (int64) otherwise.
    max_grad_norm : float
        Clipping norm ``C``, at least 1e-30; ``inf`` does not clip.
    targets : sequence of Tensors
        One for each trained layer, with the shape of its weight, contiguous.  Give
        ``list(model.parameters())`` to update the weights themselves (plain SGD with
        ``alpha = -lr / batch_size``) if no other part of the batch is still to come.
    alpha : float, default=1.0
    mask : Tensor of bool, shape (rows,), optional
        False leaves a record out, as padding of a batch.

    Raises
    ------
    ValueError
        If `max_grad_norm` is too small, or the mask is not boolean (a larger weight would
        lift a record above the clipping norm).

    Examples
    --------
    >>> import torch
    >>> net = KAN(2, hidden_width=3, generator=torch.Generator().manual_seed(0))
    >>> store = FeatureStore(net, torch.tensor([[0.2, -0.3], [0.9, 0.1]]))
    >>> total = torch.zeros(3, 8, 2)
    >>> add_clipped_sum_(net, store.take(slice(0, 2)), torch.tensor([0, 1]), 0.01, [total])
    >>> bool(total.norm() <= 0.02)
    True
    """
    if not max_grad_norm >= SMALLEST_CLIP:
        raise ValueError(f"max_grad_norm must be at least {SMALLEST_CLIP}, got {max_grad_norm!r}.")
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask must be of dtype torch.bool, got {mask.dtype}.")
    with torch.no_grad():
        features, deltas, _ = _backward(model, rows.features, y)
        layers = _trained(model)
        if max_grad_norm < math.inf:
            norms = _gradient_norms(layers, rows, features, deltas)
            factors = norms.reciprocal_().mul_(max_grad_norm / (1 + _margin(layers))).clamp_(max=1)
            if mask is not None:
                factors *= mask
            deltas = [_scaled(delta, factors) for delta in deltas]
            # A delta of zero times a feature that is not a number would not be zero.
            for phi in features[1:]:
                phi.nan_to_num_(0.0, 0.0, 0.0)
        elif mask is not None:
            deltas = [delta * mask.unsqueeze(1) for delta in deltas]
        for layer, phi, delta, target in zip(layers, features, deltas, targets, strict=True):
            target.view(layer.out_features, -1).addmm_(delta.T, phi, alpha=alpha * layer.scale)


def clipped_sum(
    model: KAN,
    store: FeatureStore,
    index: Tensor,
    y: Tensor,
    max_grad_norm: float,
    *,
    physical_batch_size: int = 1024,
    mask: Tensor | None = None,
    out: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """Sum of the clipped gradients of a batch of any size.

    Parameters
    ----------
    model : KAN
    store : FeatureStore
    index : Tensor of int64, shape (batch,)
        Records of the batch; possibly none.
    y : Tensor of shape (batch,)
        Their labels, as for `add_clipped_sum_`.
    max_grad_norm : float
        As for `add_clipped_sum_`.
    physical_batch_size : int, default=1024
        Records handled at once, which bounds the memory; the sum differs by rounding only.
    mask : Tensor of bool, shape (batch,), optional
        False leaves a record out.
    out : sequence of Tensors, optional
        Memory for the result; by default new.

    Returns
    -------
    total : list of Tensors
        One for each trained layer, with the shape of its weight.

    Raises
    ------
    ValueError
        If `max_grad_norm` or `physical_batch_size` is too small.

    Examples
    --------
    >>> import torch
    >>> net = KAN(2, hidden_width=3, generator=torch.Generator().manual_seed(0))
    >>> store = FeatureStore(net, torch.zeros(5, 2))
    >>> batch = torch.tensor([0, 3, 4])
    >>> y = torch.ones(3)
    >>> [tuple(s.shape) for s in clipped_sum(net, store, batch, y, 0.5, physical_batch_size=2)]
    [(3, 8, 2)]
    """
    if physical_batch_size < 1:
        raise ValueError(f"physical_batch_size must be at least 1, got {physical_batch_size!r}.")
    weights = [layer.weight.detach() for layer in _trained(model)]
    total = [torch.zeros_like(w) for w in weights] if out is None else [t.zero_() for t in out]
    for start in range(0, len(index), physical_batch_size):
        part = slice(start, start + physical_batch_size)
        add_clipped_sum_(
            model,
            store.take(index[part]),
            y[part],
            max_grad_norm,
            total,
            mask=None if mask is None else mask[part],
        )
    return total


def per_record(model: KAN, rows: Rows, y: Tensor) -> PerRecord:
    """Gradient norms and losses of single records: **private**, for diagnostics only.

    Parameters
    ----------
    model : KAN
    rows : Rows
    y : Tensor of shape (rows,)
        As for `add_clipped_sum_`.

    Returns
    -------
    PerRecord

    Examples
    --------
    >>> import torch
    >>> net = KAN(2, hidden_width=3, generator=torch.Generator().manual_seed(0))
    >>> rows = FeatureStore(net, torch.zeros(5, 2)).take(slice(0, 5))
    >>> per_record(net, rows, torch.ones(5)).norms.shape
    torch.Size([5])
    """
    with torch.no_grad():
        features, deltas, logits = _backward(model, rows.features, y)
        norms = _gradient_norms(_trained(model), rows, features, deltas)
        if model.n_outputs == 1:
            losses = torch.nn.functional.softplus(-_signs(y, logits) * logits).squeeze(1)
        else:
            losses = torch.nn.functional.cross_entropy(logits, y, reduction="none")
    return PerRecord(norms, losses)


def _trained(model: KAN) -> list[SplineLayer]:
    return [layer for layer in model.spline_layers if layer.trained]


def _backward(model: KAN, phi: Tensor, y: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Features and deltas of the trained layers, and the logits."""
    act, act_slope = ACTIVATIONS[model.activation]
    layers = model.spline_layers
    features, slopes = [phi], []
    for level, layer in enumerate(layers):
        z = torch.mm(features[-1], layer.matrix.T).mul_(layer.scale)
        if level < len(layers) - 1:
            h = act(z)
            values, derivatives = layers[level + 1].features_and_slopes(h)
            features.append(values.flatten(1))
            slopes.append(derivatives.mul_((act_slope(h) * layers[level + 1].scale).unsqueeze(1)))
    delta = _loss_slope(z, y)
    deltas = [delta]
    for layer, slope in zip(reversed(layers[1:]), reversed(slopes), strict=True):
        delta = torch.mm(delta, layer.matrix).view_as(slope).mul_(slope).sum(1)
        deltas.append(delta)
    deltas.reverse()
    trained = [layer.trained for layer in layers]
    return (
        [f for f, keep in zip(features, trained, strict=True) if keep],
        [d for d, keep in zip(deltas, trained, strict=True) if keep],
        z,
    )


def _signs(y: Tensor, logits: Tensor) -> Tensor:
    return (2 * y.to(logits.dtype) - 1).unsqueeze(1)


def _loss_slope(logits: Tensor, y: Tensor) -> Tensor:
    """Differentiate the loss in the logits; no difference of nearly equal numbers."""
    if logits.shape[1] == 1:
        sign = _signs(y, logits)
        return torch.sigmoid(-sign * logits).mul_(-sign)
    slope = torch.softmax(logits, 1)
    label = y.unsqueeze(1)
    slope.scatter_(1, label, 0.0)
    return slope.scatter_(1, label, -slope.sum(1, keepdim=True))


def _scaled(delta: Tensor, factors: Tensor) -> Tensor:
    # The product is in double precision: a factor below the least normal float32 would lose
    # digits, and with them the bound.  Where the norm is not finite, the product is NaN or zero.
    scaled = delta * factors.unsqueeze(1)
    return scaled.nan_to_num_(0.0, 0.0, 0.0).to(delta.dtype)


def _squared_norms(rows: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return norms.square_()


def _squared_norms_of_hidden(rows: Tensor) -> Tensor:
    # Features are at most 1 in size, so squares in their own precision cannot overflow, and what
    # is lost where they underflow is added.  Half the time that double precision takes.
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1).double().square_()
    return norms.add_(2 * rows.shape[1] * torch.finfo(rows.dtype).tiny)


def _gradient_norms(
    layers: Sequence[SplineLayer],
    rows: Rows,
    features: Sequence[Tensor],
    deltas: Sequence[Tensor],
) -> Tensor:
    # The first layer is always trained; the norms of its features are known.
    of_features = [rows.squared_norms, *map(_squared_norms_of_hidden, features[1:])]
    total = torch.zeros_like(rows.squared_norms)
    for layer, of_phi, delta in zip(layers, of_features, deltas, strict=True):
        total.addcmul_(_squared_norms(delta), of_phi, value=layer.scale**2)
    return total.sqrt_()


def _margin(layers: Sequence[SplineLayer]) -> float:
    """Relative margin by which clipping factors are lowered.

    The norm is summed in double precision: its relative error is below
    ``(terms + 8) 2^-53`` with as many terms as a layer has features and outputs.  Only the norms
    of the features after the first layer are summed in the weights' precision, which adds less
    than ``(features + 3) eps / 4``; twice that is allowed for.

    The product of factor and delta, that with phi and that with the scale are each rounded in the
    weights' precision, and so is the scale: relative error ``eps / 2`` each, ``2 eps`` together.
    The other ``6 eps`` are for features that are computed again for each batch: splines have the
    same bits as when their norm was taken, silu may differ in the last places.

    Where torch may round the factors of float32 products, as far as to bfloat16 (unit
    roundoff ``2^-8``), the contribution can grow by ``2^-7``; twice that is allowed for.
    """
    terms = max(layer.n_features + layer.out_features for layer in layers) + len(layers)
    hidden = max((layer.n_features + 3 for layer in layers[1:]), default=0)
    dtype = layers[0].weight.dtype
    margin: float = (8 + hidden / 2) * torch.finfo(dtype).eps + (terms + 8) * 2.0**-53
    return margin + 2.0**-6 if dtype == torch.float32 and _rounds_products() else margin


def _rounds_products() -> bool:
    try:
        return str(torch.get_float32_matmul_precision()) != "highest"
    except RuntimeError:  # set backend by backend
        return True
