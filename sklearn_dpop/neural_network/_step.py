"""One private step: clip, sum, add noise, descend, project."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ._clipped import FeatureStore, add_clipped_sum_, clipped_sum
from ._device_noise import DeviceNoise
from ._kan import KAN
from ._noise import WeightNoise

__all__ = ["PrivateStep", "is_plain_sgd", "project_"]


def is_plain_sgd(kind: Any, settings: Mapping[str, Any]) -> bool:
    """Whether a step of an optimizer is ``w -= lr * grad`` and nothing else.

    Parameters
    ----------
    kind : type
        Of the optimizer.
    settings : mapping
        Its keyword arguments.

    Examples
    --------
    >>> import torch
    >>> is_plain_sgd(torch.optim.SGD, {"lr": 0.1}), is_plain_sgd(torch.optim.Adam, {})
    (True, False)
    >>> is_plain_sgd(torch.optim.SGD, {"momentum": 0.9})
    False
    """
    changes = ("momentum", "weight_decay", "maximize")
    return kind is torch.optim.SGD and not any(settings.get(name) for name in changes)


def project_(weights: Sequence[Tensor], center: Sequence[Tensor], radius: float) -> None:
    """Project weights, taken together as one vector, on a ball, in place.

    Parameters
    ----------
    weights, center : sequences of Tensors
    radius : float

    Examples
    --------
    >>> w = [torch.tensor([3.0]), torch.tensor([4.0])]
    >>> project_(w, [torch.zeros(1), torch.zeros(1)], 1.0)
    >>> [round(x.item(), 5) for x in w]
    [0.6, 0.8]
    """
    moved = [w - c for w, c in zip(weights, center, strict=True)]
    norms = torch.stack([torch.linalg.vector_norm(m, dtype=torch.float64) for m in moved])
    norm = torch.linalg.vector_norm(norms).item()  # the one time that CUDA is waited for
    if norm > radius:
        # Lowered a little, so that rounding does not leave the result outside.
        factor = radius / norm * (1 - 4 * torch.finfo(weights[0].dtype).eps)
        for w, c, m in zip(weights, center, moved, strict=True):
            w.copy_(c).add_(m, alpha=factor)


class PrivateStep:
    r"""Steps of Algorithm 1 of arXiv 2605.12648.

    ``w <- P(w - lr / B (sum of the clipped gradients + C_clip * kappa * (C^-1 Z)_t))``, with
    the public B whatever the size of the batch, and with noise also where the batch is empty.
    Any other optimizer gets what is in the brackets, divided by B, as its gradient.

    Parameters
    ----------
    model : KAN
    store : FeatureStore
        All records.
    y : Tensor of shape (n,)
        Their labels.
    optimizer : torch.optim.Optimizer
        Of ``model.parameters()``.
    max_grad_norm : float
        ``C_clip``.
    batch_size : float
        ``B``, expected and public.
    noise : WeightNoise, DeviceNoise or None
        None for no noise.
    noise_multiplier : float
        ``kappa``.
    physical_batch_size : int, default=1024
        Records handled at once.
    radius : float or None, default=None
        Of the ball around the weights as they are now.
    center : sequence of Tensors, optional
        Of the ball; by default the present weights.
    on_grad : callable, optional
        Called when the noisy gradients are in place, before the optimizer uses them.
    """

    def __init__(
        self,
        model: KAN,
        store: FeatureStore,
        y: Tensor,
        optimizer: torch.optim.Optimizer,
        *,
        max_grad_norm: float,
        batch_size: float,
        noise: WeightNoise | DeviceNoise | None,
        noise_multiplier: float,
        physical_batch_size: int = 1024,
        radius: float | None = None,
        center: Sequence[Tensor] | None = None,
        on_grad: Callable[[], None] | None = None,
    ) -> None:
        self._model, self._store, self._y, self._optimizer = model, store, y, optimizer
        self._clip, self._batch_size = max_grad_norm, batch_size
        self._noise = noise
        # Standard deviation of an independent Z in the averaged gradient.
        self._scale = 0.0 if noise is None else max_grad_norm * noise_multiplier / batch_size
        self._physical = physical_batch_size
        self._radius, self._on_grad = radius, on_grad
        self._parameters = list(model.parameters())
        self._weights = [p.detach() for p in self._parameters]
        self.center = center
        if radius is not None and center is None:
            self.center = [w.clone() for w in self._weights]
        groups = optimizer.param_groups
        plain = len(groups) == 1 and is_plain_sgd(type(optimizer), groups[0])
        self._fused = plain and on_grad is None

    @torch.no_grad()
    def __call__(self, index: Tensor) -> None:
        """Take the step of a batch.

        Parameters
        ----------
        index : Tensor of int64
            Records of the batch; possibly none.
        """
        if self._fused and len(index) <= self._physical:
            self._descend(index)
        else:
            self._optimize(index)
        if self._radius is not None:
            assert self.center is not None
            project_(self._weights, self.center, self._radius)

    def _descend(self, index: Tensor) -> None:
        """Take a step of plain SGD without memory for a gradient."""
        lr = float(self._optimizer.param_groups[0]["lr"])
        add_clipped_sum_(
            self._model,
            self._store.take(index),
            self._y[index],
            self._clip,
            self._weights,
            alpha=-lr / self._batch_size,
        )
        if self._noise is not None:
            for w, z in zip(self._weights, self._noise.draw(), strict=True):
                w.add_(z, alpha=-lr * self._scale)

    def _optimize(self, index: Tensor) -> None:
        for p in self._parameters:
            if p.grad is None:
                p.grad = torch.empty_like(p)
        grads = [p.grad for p in self._parameters if p.grad is not None]
        clipped_sum(
            self._model,
            self._store,
            index,
            self._y[index],
            self._clip,
            physical_batch_size=self._physical,
            out=grads,
        )
        for grad in grads:
            grad.div_(self._batch_size)
        if self._noise is not None:
            for grad, z in zip(grads, self._noise.draw(), strict=True):
                grad.add_(z, alpha=self._scale)
        if self._on_grad is not None:
            self._on_grad()
        self._optimizer.step()
