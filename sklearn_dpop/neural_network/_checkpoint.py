"""Save a training that is not finished, and continue it as if it had not stopped.

The file holds the key of the noise and of the batches.  With it the noise can be taken out of
the model: it is as secret as the records.  It is readable by its owner only and removed when the
training ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["data_tag", "load_checkpoint", "remove_checkpoint", "save_checkpoint"]

_PARTS = {
    "configuration", "data", "diagnostics", "format", "generator", "history", "keys", "optimizer",
    "step", "weights",
}  # fmt: skip
_FORMAT = 2  # to be raised when a saved key would give other noise


def data_tag(key: int, arrays: Sequence[NDArray[Any]]) -> str:
    """Return a keyed hash of records, by which a resumed training recognizes them.

    Going on with other records and the same noise would let the noise cancel between the two
    trainings.

    Parameters
    ----------
    key : int
        Secret, below 2**256.
    arrays : sequence of ndarrays

    Examples
    --------
    >>> len(data_tag(5, [np.zeros(3)]))
    64
    """
    digest = hmac.new(key.to_bytes(32, "little"), digestmod=hashlib.sha256)
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def save_checkpoint(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write a state; whatever interrupts it, the file is the old one or the new one.

    Parameters
    ----------
    path : str or path
    state : mapping
        Tensors, numbers, strings, and lists and dicts of them.
    """
    path = Path(path)
    # A file of mkstemp is readable and writable by its owner only.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            torch.save({"format": _FORMAT, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        raise


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Read a state; None if there is no file.

    Parameters
    ----------
    path : str or path

    Raises
    ------
    ValueError
        If the file is not a checkpoint.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        return None
    except Exception as error:
        raise ValueError(
            f"checkpoint={path!r}: not a checkpoint ({type(error).__name__})"
        ) from None
    if not isinstance(state, dict) or state.get("format") != _FORMAT or set(state) != _PARTS:
        raise ValueError(f"checkpoint={path!r}: not a checkpoint of this version")
    return state


def remove_checkpoint(path: str | os.PathLike[str]) -> None:
    """Remove the file, if there is one.

    Parameters
    ----------
    path : str or path
    """
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
