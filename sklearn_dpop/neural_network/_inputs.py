"""What the estimator accepts: checks of parameters, labels and bounds."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from skorch.callbacks import (  # type: ignore[import-untyped, import-not-found, unused-ignore]
    BatchScoring,
    Checkpoint,
    EarlyStopping,
    EpochScoring,
    Freezer,
    InputShapeSetter,
    LoadInitState,
    LRScheduler,
    PassthroughScoring,
    ProgressBar,
    Unfreezer,
)

from sklearn_dpop._inputs import declared_classes

__all__ = [
    "PREFIXES",
    "PUBLIC_SCORES",
    "bounds_of",
    "check_callback",
    "check_extra",
    "device_of",
    "encode_labels",
]

# Parameters that skorch hands on.
PREFIXES = ("optimizer__", "callbacks__")

# What is recorded of public validation records.
PUBLIC_SCORES = ("valid_loss", "valid_acc")


def check_extra(name: str) -> None:
    """Refuse a keyword that is neither a parameter nor one of the optimizer or a callback."""
    if name.startswith(PREFIXES) and name != "optimizer__lr":
        return
    reasons = {
        "optimizer": "use lr",
        "module": "the network's parameters are the estimator's own: hidden_width, n_basis, ...",
        "criterion": "the loss is logistic or softmax cross-entropy; clipping is written for it",
        "iterator_train": "the batches are drawn as sampling says, which the guarantee is for",
        "iterator_valid": "no record is held out",
        "max_epochs": "use epochs",
        "warm_start": "a second fit is a second release; use checkpoint to continue one",
    }
    reason = reasons.get(name.split("__")[0], "no such parameter")
    raise TypeError(f"KANClassifierDP got an unexpected parameter {name!r}: {reason}")


def check_callback(callback: Any, public: bool) -> None:
    """Refuse callbacks of skorch that need private records or their losses, or have no effect.

    Parameters
    ----------
    callback : Callback or type
    public : bool
        Whether losses of public records can be monitored.
    """
    kind = callback if isinstance(callback, type) else type(callback)
    monitor = getattr(callback, "monitor", None)
    if isinstance(callback, type):
        default = inspect.signature(callback).parameters.get("monitor")
        monitor = None if default is None else default.default
    if public and isinstance(monitor, str) and monitor.removesuffix("_best") in PUBLIC_SCORES:
        return
    plateau = "ReduceLROnPlateau" in str(getattr(callback, "policy", ""))
    instead = f"give fit public validation_data, and monitor one of {PUBLIC_SCORES}"
    if issubclass(kind, EarlyStopping):
        reason = (
            f"a private loss would decide when training stops, which the guarantee is not for; "
            f"{instead}"
        )
    elif issubclass(kind, Checkpoint) and monitor is not None:
        reason = (
            f"it selects weights by {monitor!r}, a loss of private records; use monitor=None, or "
            f"{instead}"
        )
    elif issubclass(kind, BatchScoring | EpochScoring | PassthroughScoring):
        reason = "it would record scores of private records"
    elif issubclass(kind, LRScheduler) and plateau:
        reason = f"a private loss would decide the learning rate; {instead}"
    elif issubclass(kind, ProgressBar):
        reason = "it counts batches of records that it does not get; use verbose=1"
    elif issubclass(kind, InputShapeSetter):
        reason = "it needs records; fit makes the network for their number of features"
    elif issubclass(kind, Freezer | Unfreezer):
        reason = "all layers are trained; use train_output_layer=False to keep the last one"
    elif issubclass(kind, LoadInitState):
        reason = "fit draws the first weights; use checkpoint to continue a training"
    else:
        return
    raise ValueError(f"callbacks: {kind.__name__} refused, because {reason}")


def encode_labels(
    y: NDArray[Any], declared: ArrayLike | None
) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the sorted labels, and the code of every record's label."""
    if declared is None:
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                "y contains only one class; a classifier needs at least 2 (declare them with "
                "classes=)"
            )
        return classes, codes.astype(np.intp)
    classes = declared_classes(declared)
    position = {label: code for code, label in enumerate(classes.tolist())}
    try:
        present, inverse = np.unique(y, return_inverse=True)
        known = [position[label] for label in present.tolist()]
    except (KeyError, TypeError):  # TypeError: of several types, that cannot be sorted
        raise ValueError(f"y contains labels that are not in classes={declared!r}") from None
    return classes, np.array(known, dtype=np.intp)[inverse]


def bounds_of(X: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the extremes of the features, made wider where a feature is constant."""
    lower, upper = X.min(axis=0).astype(float), X.max(axis=0).astype(float)
    size = np.maximum(np.abs(lower), np.abs(upper))
    constant = upper - lower <= np.maximum(1e-6 * size, 1e-30)
    margin = np.where(constant, np.where(size > 1e-30, size, 1.0), 0.0)
    return lower - margin, upper + margin


def device_of(name: str | torch.device) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(name)
    except RuntimeError:
        raise ValueError(f"device={name!r}: must be 'auto' or a device of torch") from None
