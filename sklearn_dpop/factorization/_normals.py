"""Standard normal vectors as a function of a key, a step and a position.

The bits come from AES-128 in counter mode, which is a cryptographic generator and, on the
processors that have instructions for it, the fastest one.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from randomgen import AESCounter

__all__ = ["PIECE", "BoxMuller", "CipherNormals", "Normals"]

# Values drawn from one counter range: the bits and the temporaries of a piece stay in the
# second-level cache.
PIECE = 1 << 15

_KEY_DOMAIN = b"dpop noise AES"


class Normals(Protocol):
    """Pieces of the vectors ``Z_t``, in any order and as often as asked for."""

    def fill(self, step: int, piece: int, out: NDArray[Any]) -> None:
        """Write a piece, of at most `PIECE` values, of ``Z_step`` to ``out``."""


class BoxMuller:
    r"""Turn uniform bits into standard normals.

    ``r (cos t, sin t)`` with :math:`r^2 = -2 \log U`, ``U`` in multiples of :math:`2^{-63}`, and
    ``t`` uniform in multiples of :math:`2^{-31} \pi`.  The logarithm is of double precision.
    So the law is the normal one up to rounding, and its tail is cut at 9.3, an event of
    probability :math:`2^{-62}`.

    Parameters
    ----------
    size : int
        Largest number of values at once.

    Examples
    --------
    >>> out = np.empty(2, np.float32)
    >>> BoxMuller(2)(np.array([1 << 63], np.uint64), np.array([0], np.int32), out)
    >>> bool(abs(out[0] - (2 * math.log(2)) ** 0.5) < 1e-6), float(out[1])
    (True, 0.0)
    """

    def __init__(self, size: int) -> None:
        pairs = (size + 1) // 2
        # Memory that is new for every call would cost as much as the arithmetic.
        self._log = np.empty(pairs)
        self._r = np.empty(pairs, np.float32)
        self._t = np.empty(pairs, np.float32)

    def __call__(
        self, radius: NDArray[np.uint64], angle: NDArray[np.int32], out: NDArray[np.float32]
    ) -> None:
        """Write the values.

        Parameters
        ----------
        radius : ndarray of uint64, shape (m,)
            Changed.
        angle : ndarray of int32, shape (m,)
        out : ndarray of float32, shape (2m,) or (2m - 1,)
            Cosines first.
        """
        m = len(radius)
        log, r, t = self._log[:m], self._r[:m], self._t[:m]
        radius >>= np.uint64(1)  # signed numbers are converted three times as fast
        radius |= np.uint64(1)  # never the logarithm of 0
        np.copyto(log, radius.view(np.int64), casting="unsafe")
        log *= 2.0**-63
        np.log(log, out=log)
        np.multiply(log, -2.0, out=r, casting="same_kind")
        np.sqrt(r, out=r)
        np.copyto(t, angle, casting="unsafe")
        t *= np.float32(math.pi / 2**31)
        cosines, sines = out[:m], out[m:]
        np.cos(t, out=cosines)
        cosines *= r
        np.sin(t[: len(sines)], out=sines)
        sines *= r[: len(sines)]


class CipherNormals:
    """Normals from AES-128 in counter mode.

    Parameters
    ----------
    key : int
        Secret, below 2**256; hashed to the key of the cipher.
    dtype : {float32, float64}
        float32 values come from `BoxMuller`, float64 ones from NumPy's ziggurat.

    Examples
    --------
    >>> z, again = np.empty(5), np.empty(5)
    >>> CipherNormals(3, np.float64).fill(7, 0, z)
    >>> CipherNormals(3, np.float64).fill(7, 0, again)
    >>> bool((z == again).all())
    True
    """

    def __init__(self, key: int, dtype: Any) -> None:
        digest = hashlib.blake2b(key.to_bytes(32, "little"), digest_size=16, person=_KEY_DOMAIN)
        self._bits = AESCounter(key=int.from_bytes(digest.digest(), "little"), counter=0)
        # The cipher works on four counters at once: the low and high words of each, in turn.
        self._state = self._bits.state
        self._state["s"]["offset"] = 64  # none of the present block is left
        self._counter = self._state["s"]["counter"]
        self._lanes = np.arange(4, dtype=np.uint64)
        self._generator = np.random.Generator(self._bits)
        self._box_muller = BoxMuller(PIECE) if np.dtype(dtype) == np.float32 else None

    def fill(self, step: int, piece: int, out: NDArray[Any]) -> None:
        """Write a piece of ``Z_step`` to ``out``.

        Parameters
        ----------
        step, piece : int
        out : ndarray of shape (values,)
        """
        # A piece uses far fewer than 2^32 blocks, so no two pieces share any.
        self._counter[0::2] = self._lanes + np.uint64(piece << 32)
        self._counter[1::2] = step
        self._bits.state = self._state
        if self._box_muller is None:
            self._generator.standard_normal(out=out)
            return
        m = (len(out) + 1) // 2
        bits = self._bits.random_raw(m + (m + 1) // 2)
        self._box_muller(bits[:m], bits[m:].view(np.int32)[:m], out)
