"""Checks of arguments, with one wording for all of the package."""

import math
import numbers
from typing import Any


def check_integer(name: str, value: Any, low: int = 1) -> int:
    """Return ``value`` as an int, or raise a ValueError that names it.

    Parameters
    ----------
    name : str
        Name of the parameter in the message.
    value : object
        What the caller passed.
    low : int, default=1
        Smallest allowed value.

    Returns
    -------
    int

    Examples
    --------
    >>> check_integer("bandwidth", 0)
    Traceback (most recent call last):
        ...
    ValueError: bandwidth must be an integer >= 1, got 0.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < low:
        raise ValueError(f"{name} must be an integer >= {low}, got {value!r}.")
    return int(value)


def check_real(
    name: str,
    value: Any,
    low: float,
    high: float,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return ``value`` as a float inside an interval, or raise a ValueError that names it.

    Parameters
    ----------
    name : str
        Name of the parameter in the message.
    value : object
        What the caller passed.
    low, high : float
        Ends of the interval.
    open_low, open_high : bool, default=False
        Whether the end is excluded.

    Returns
    -------
    float

    Examples
    --------
    >>> check_real("gamma", 1.5, 0.0, 1.0)
    Traceback (most recent call last):
        ...
    ValueError: gamma must be a number in [0, 1], got 1.5.
    """
    ok = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if ok:
        x = float(value)
        ok = (
            not math.isnan(x)
            and (x > low if open_low else x >= low)
            and (x < high if open_high else x <= high)
        )
    if not ok:
        left, right = "(" if open_low else "[", ")" if open_high else "]"
        raise ValueError(
            f"{name} must be a number in {left}{low:g}, {high:g}{right}, got {value!r}."
        )
    return x
