"""Checks of input that all estimators share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["declared_classes", "speechless"]


@contextmanager
def speechless() -> Iterator[None]:
    """Keep cell values out of the errors about cells that are not numbers."""
    try:
        yield
    except ValueError as error:
        text = str(error)
        if "could not convert" in text:
            raise ValueError("X contains values that are not numbers") from None
        if text.startswith("Complex data not supported"):
            raise ValueError("Complex data not supported") from None
        raise


def declared_classes(classes: ArrayLike) -> NDArray[Any]:
    """Return the declared labels, sorted, after checking them."""
    labels = np.asarray(classes)
    if labels.ndim != 1:
        raise ValueError(f"classes={classes!r}: must be a flat list of labels")
    try:
        unique = np.unique(labels)
    except TypeError:
        raise ValueError(f"classes={classes!r}: must be all text or all numbers") from None
    if len(unique) < 2 or len(unique) != len(labels):
        raise ValueError(f"classes={classes!r}: must list at least 2 labels, each once")
    if any(label != label for label in unique.tolist()):
        raise ValueError(f"classes={classes!r}: must not contain NaN")
    return unique
