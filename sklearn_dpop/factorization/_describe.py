"""Strategies as plain data, for reports and caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from ._dense import Dense
from ._explicit import BFR, BIFR, BISR, BSR, Identity, InverseLinear, LambdaCGD
from ._optimized import BLT, BandInvMF, BandMF
from ._strategy import Strategy

FAMILIES: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        Identity,
        LambdaCGD,
        BIFR,
        BISR,
        BFR,
        BSR,
        InverseLinear,
        BandMF,
        BandInvMF,
        BLT,
        Dense,
    )
}


def strategy_to_dict(strategy: Strategy) -> dict[str, Any]:
    """Return a strategy as JSON-able data.

    Parameters
    ----------
    strategy : Strategy
        One of this package's.

    Returns
    -------
    dict
        ``family``, the name of the class, and its parameters.

    Raises
    ------
    ValueError
        If the strategy is of a class of the user's own.

    Examples
    --------
    >>> from sklearn_dpop.factorization import LambdaCGD
    >>> strategy_to_dict(LambdaCGD(0.5))
    {'family': 'LambdaCGD', 'lambda_': 0.5}
    """
    name = type(strategy).__name__
    if FAMILIES.get(name) is not type(strategy):
        raise ValueError(
            f"strategy={strategy!r} must be one of {', '.join(FAMILIES)}; for a matrix of your "
            f"own use Dense."
        )
    if isinstance(strategy, Dense):
        return {"family": name, "matrix": strategy.matrix().tolist()}
    values = {field.name: getattr(strategy, field.name) for field in fields(strategy)}  # type: ignore[arg-type]
    return {"family": name, **{key: _plain(value) for key, value in values.items()}}


def _plain(value: Any) -> Any:
    """Return a parameter in JSON's types: numbers may be numpy's."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def strategy_from_dict(data: Mapping[str, Any]) -> Strategy:
    """Return the strategy that :func:`strategy_to_dict` described.

    Parameters
    ----------
    data : mapping
        ``family`` and the parameters of the class.

    Returns
    -------
    Strategy

    Raises
    ------
    ValueError
        If the family or a parameter is unknown, missing or out of range.

    Examples
    --------
    >>> strategy_from_dict({"family": "LambdaCGD", "lambda_": 0.5})
    LambdaCGD(lambda_=0.5)
    """
    parameters = dict(data)
    name = parameters.pop("family", None)
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(f"family={name!r} must be one of {', '.join(FAMILIES)}.")
    cls = FAMILIES[name]
    try:
        made: Strategy = cls(**parameters)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
    return made
