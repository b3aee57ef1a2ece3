"""A planned training, from its keys to its last step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from randomgen import ChaCha
from torch import Tensor

from sklearn_dpop.factorization import NoiseState

from ._checkpoint import data_tag
from ._clipped import FeatureStore, per_record
from ._device_noise import make_weight_noise
from ._kan import KAN
from ._plan import Plan
from ._step import PrivateStep

__all__ = ["KEYS", "Training", "mean_loss_and_accuracy"]

# One 256-bit key each.
KEYS = ("noise", "batches", "weights")


class Training:
    """The steps of one plan on one set of records.

    It holds the records, the keys and the noise.  So it ends with the training, and it can be
    neither pickled nor copied.

    Parameters
    ----------
    model : KAN
        Made and drawn.
    optimizer : torch.optim.Optimizer
        Of its parameters.
    X : ndarray of shape (n_samples, n_features), float32
        Features.
    codes : ndarray of shape (n_samples,), int
        Position of the label among the classes.
    plan : Plan
        Of ``n_samples`` records.
    keys : mapping of str to int
        The secret `KEYS`.
    tag : str or None
        `data_tag` of the records with the key of the noise; None if they need not be recognized.
    max_grad_norm : float
        Clip norm.
    noise_source, noise_memory : str
        As in the estimator.
    projection_radius : float or None
        Of the ball around the weights as drawn.
    physical_batch_size, feature_memory : int
        As in the estimator.
    on_grad : callable or None
        Called when the noisy gradients are in place.
    saved : mapping, optional
        State to continue from: `state` of an earlier training.

    Attributes
    ----------
    generator : str or None
        What the noise is drawn from.

    Raises
    ------
    ValueError
        If the saved training drew its noise from another generator.
    """

    def __init__(
        self,
        model: KAN,
        optimizer: torch.optim.Optimizer,
        X: NDArray[np.float32],
        codes: NDArray[np.intp],
        plan: Plan,
        keys: Mapping[str, int],
        *,
        tag: str | None,
        max_grad_norm: float,
        noise_source: str,
        noise_memory: str,
        projection_radius: float | None,
        physical_batch_size: int,
        feature_memory: int,
        on_grad: Callable[[], None] | None = None,
        saved: Mapping[str, Any] | None = None,
    ) -> None:
        self.schedule = plan.schedule
        self.step = 0 if saved is None else int(saved["step"])
        self._keys, self._model, self._optimizer = dict(keys), model, optimizer
        self._tag = tag
        self._clip, self._physical = max_grad_norm, physical_batch_size
        self._weights = [p.detach() for p in model.parameters()]
        center = None if projection_radius is None else [w.clone() for w in self._weights]
        if saved is not None:
            with torch.no_grad():
                for w, value in zip(self._weights, saved["weights"], strict=True):
                    w.copy_(value)
            optimizer.load_state_dict(saved["optimizer"])
        noise = None
        if plan.noise_multiplier:
            noise = make_weight_noise(
                plan.strategy,
                self._weights,
                NoiseState(keys["noise"], self.step),
                source=noise_source,
                buffered=noise_memory == "buffer",
            )
        self.generator = None if noise is None else noise.generator
        if saved is not None and saved["generator"] != self.generator:
            # The ring would be filled with other numbers, and the same steps get other noise.
            raise ValueError(
                f"device and noise_source must be such that noise is drawn from "
                f"{saved['generator']!r} as before the interruption, got {self.generator!r}."
            )
        self._device = self._weights[0].device
        labels = torch.from_numpy(codes)
        labels = labels.to(torch.float32) if model.n_outputs == 1 else labels
        self._labels = labels.to(self._device)
        # A copy: torch wants memory that may be written to.
        self._store = FeatureStore(model, torch.tensor(X), feature_memory)
        self._take_step = PrivateStep(
            model,
            self._store,
            self._labels,
            optimizer,
            max_grad_norm=max_grad_norm,
            batch_size=self.schedule.expected_batch_size,
            noise=noise,
            noise_multiplier=plan.noise_multiplier,
            physical_batch_size=physical_batch_size,
            radius=projection_radius,
            center=center,
            on_grad=on_grad,
        )
        generator = np.random.Generator(ChaCha(key=keys["batches"], counter=0, rounds=20))
        self._batches = self.schedule.batches(generator, start=self.step)

    @property
    def epoch(self) -> int:
        """Number of whole epochs that are done."""
        return self.step // self.schedule.steps_per_epoch

    @property
    def finished(self) -> bool:
        """Whether all planned steps are done."""
        return self.step >= self.schedule.n_steps

    def is_of(self, X: NDArray[np.float32], codes: NDArray[np.intp]) -> bool:
        """Whether these are the records it was planned for."""
        return data_tag(self._keys["noise"], [X, codes]) == self._tag

    def take_step(self) -> None:
        """Take the next step."""
        batch = torch.from_numpy(next(self._batches))
        if self._device.type == "cuda":
            batch = batch.pin_memory()  # copied while the CPU goes on
        # Events of the noise are on the current device, which need not be that of the weights.
        with torch.cuda.device_of(self._weights[0]):
            self._take_step(batch.to(self._device, non_blocking=True))
        self.step += 1

    def diagnose(self) -> dict[str, float]:
        """Look at the records, outside the guarantee: loss and share of clipped records."""
        loss, clipped = 0.0, 0
        for start in range(0, len(self._store), self._physical):
            part = slice(start, start + self._physical)
            found = per_record(self._model, self._store.take(part), self._labels[part])
            loss += float(found.losses.double().sum())
            clipped += int((found.norms > self._clip).sum())
        n = len(self._store)
        return {"step": self.step, "loss": loss / n, "clipped": clipped / n}

    def state(self) -> dict[str, Any]:
        """Return all that is needed to go on; as secret as the records."""
        return {
            "step": self.step,
            "keys": {name: hex(key) for name, key in self._keys.items()},
            "data": self._tag,
            "generator": self.generator,
            "weights": self._weights,
            "optimizer": self._optimizer.state_dict(),
        }

    def __getstate__(self) -> NoReturn:
        raise TypeError("A training that goes on holds secrets: it cannot be pickled or copied.")


def mean_loss_and_accuracy(logits: Tensor, codes: Tensor) -> tuple[float, float]:
    """Return mean logistic or softmax loss, and share of right predictions.

    Parameters
    ----------
    logits : Tensor of shape (n, n_outputs)
        One column for two classes.
    codes : Tensor of int64, shape (n,)

    Examples
    --------
    >>> import torch
    >>> loss, accuracy = mean_loss_and_accuracy(
    ...     torch.tensor([[0.0], [2.0]]), torch.tensor([1, 1]))
    >>> round(loss, 4), accuracy
    (0.41, 0.5)
    """
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
    logits = logits.double()
    loss = torch.nn.functional.cross_entropy(logits, codes)
    # As predict: a logit of 0 is the first class.
    return loss.item(), (logits.argmax(dim=1) == codes).double().mean().item()
