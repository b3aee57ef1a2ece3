"""Checks of input that all estimators share."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "FILL_GAPS",
    "Bounds",
    "bounds_of_columns",
    "declared_bounds",
    "declared_classes",
    "planned_classes",
    "planned_shape",
    "speechless",
]


# Lower and upper ends, each of shape () or (n_columns,).
Bounds: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]

# The usual advice, an imputer, would be fitted on the private records.
FILL_GAPS = (
    "Replace missing values by a public constant, e.g. SimpleImputer(strategy='constant', "
    "fill_value=..., keep_empty_features=True); an imputer that learns the value from the records "
    "is not covered by a privacy guarantee."
)


@contextmanager
def speechless() -> Iterator[None]:
    """Keep cell values, and advice that breaks the guarantee, out of the errors about cells."""
    try:
        yield
    except ValueError as error:
        text = str(error)
        if "could not convert" in text:
            raise ValueError("X contains values that are not numbers") from None
        if text.startswith("Input X contains NaN"):
            raise ValueError(f"Input X contains NaN.  {FILL_GAPS}") from None
        if text.startswith("Complex data not supported"):
            raise ValueError("Complex data not supported") from None
        raise


def declared_bounds(name: str, value: Any, n_columns: int) -> Bounds:
    """Return the finite ends of a pair (lower, upper)."""
    allowed = f"{name} must be a pair (lower, upper) of numbers"
    if n_columns > 1:
        allowed += f", or of arrays of shape ({n_columns},), one number per column"
    shape = getattr(value, "shape", None)
    got = reprlib.repr(value) if shape is None else f"an array of shape {shape}"
    given = f"{allowed}. Got {got}"
    if isinstance(value, Mapping) or hasattr(value, "columns"):
        raise ValueError(f"{given}. Names are not used here: keep to the order of the columns.")
    try:
        if isinstance(value, str):  # of two digits?
            raise TypeError
        lower, upper = (np.asarray(end, dtype=np.float64) for end in value)
    except (TypeError, ValueError):
        raise ValueError(f"{given}.{_of_pairs(name, value, n_columns)}") from None
    for end in (lower, upper):
        if end.shape not in ((), (n_columns,)):
            raise ValueError(f"{allowed}. Got shapes {lower.shape} and {upper.shape}.")
    with np.errstate(over="ignore", invalid="ignore"):
        valid = np.atleast_1d(np.isfinite(upper - lower) & (lower < upper))
    if not valid.all():
        j = int(np.argmin(valid))
        low, high = (float(np.broadcast_to(end, valid.shape)[j]) for end in (lower, upper))
        where = f" for column {j}" if len(valid) > 1 else ""
        raise ValueError(
            f"{name} must be finite with lower < upper. "
            f"Got lower={low} and upper={high}{where}.{_of_pairs(name, value, n_columns)}"
        )
    return lower, upper


def bounds_of_columns(
    name: str, value: Any, n_columns: int, names: Sequence[str] | None
) -> Bounds:
    """Return the ends of a pair, as `declared_bounds`, or of a mapping from column to pair."""
    if not isinstance(value, Mapping):
        return declared_bounds(name, value, n_columns)
    if names is None:
        raise ValueError(
            f"{name} is a mapping, which needs X to be a data frame whose column names are "
            f"strings. Otherwise pass a pair (lower, upper) of numbers or arrays."
        )
    missing = [str(column) for column in names if column not in value]
    if missing:
        raise ValueError(
            f"{name} must name every column of X, and there is no default. Missing: {missing}."
        )
    pairs = [declared_bounds(f"{name}[{str(column)!r}]", value[column], 1) for column in names]
    lower, upper = (np.array([end.item() for end in ends]) for ends in zip(*pairs, strict=True))
    return lower, upper


def _of_pairs(name: str, value: Any, n_columns: int) -> str:
    """Say what to do if `value` may be one pair per column instead of a pair of arrays."""
    try:
        shape = np.shape(value)
    except ValueError:  # ragged
        return ""
    if n_columns == 1 or shape != (n_columns, 2):
        return ""
    return f" If these are pairs, one per column, give np.transpose({name})."


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


def planned_classes(classes: ArrayLike | None) -> NDArray[Any]:
    """Return the declared labels of a plan, which has no records to infer them from."""
    if classes is None:
        raise ValueError("classes=None: a plan needs the labels, declared")
    return declared_classes(classes)


def planned_shape(n_samples: Any, n_features: Any) -> tuple[int, int]:
    """Return the shape of the table of a plan, after checking it."""
    for name, value in (("n_samples", n_samples), ("n_features", n_features)):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name}={value!r}: must be a positive integer")
    return int(n_samples), int(n_features)
