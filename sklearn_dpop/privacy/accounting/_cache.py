"""Results of long public computations, kept on disk by their public inputs."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Cache", "default_cache"]

# A change of the streams or of the statistics makes old entries useless.
_VERSION = 1


class Cache:
    """A folder of small JSON files, one per set of inputs.

    Nothing in it depends on records.  A file that cannot be read, or that belongs to other
    inputs, counts as absent; a folder that cannot be written to keeps nothing.

    Parameters
    ----------
    folder : path-like
        Created when first needed.

    Examples
    --------
    >>> import tempfile
    >>> cache = Cache(tempfile.mkdtemp())
    >>> cache.load({"sigma": 1.0}) is None
    True
    >>> cache.save({"sigma": 1.0}, {"delta": 0.5})
    >>> cache.load({"sigma": 1.0})
    {'delta': 0.5}
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def load(self, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what was saved for `inputs`, or None.

        Parameters
        ----------
        inputs : mapping
            JSON-able.
        """
        text = _canonical(inputs)
        try:
            entry = json.loads(self._path(text).read_text())
            if entry["inputs"] != text:
                return None
            result: dict[str, Any] = entry["result"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return result

    def save(self, inputs: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Keep `result`; a reader sees the old entry or the whole new one.

        Parameters
        ----------
        inputs, result : mapping
            JSON-able.
        """
        text = _canonical(inputs)
        path = self._path(text)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self.folder, delete=False) as file:
                json.dump({"inputs": text, "result": result}, file)
            os.replace(file.name, path)
        except OSError:
            return

    def _path(self, text: str) -> Path:
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def default_cache() -> Cache | None:
    """Return the cache of this user.

    The environment variable ``SKLEARN_DPOP_CACHE`` names the folder; empty, it turns the
    cache off.  By default it is ``sklearn_dpop`` in the user's cache folder.
    """
    named = os.environ.get("SKLEARN_DPOP_CACHE")
    if named is not None:
        return Cache(named) if named else None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Cache(os.path.join(base, "sklearn_dpop"))


def _canonical(inputs: Mapping[str, Any]) -> str:
    return json.dumps([_VERSION, inputs], sort_keys=True, separators=(",", ":"), allow_nan=False)
