"""Standard normals from Philox4x32-10, in torch operations: the same on every device.

Philox is a counter-based generator (Salmon et al., SC 2011): block ``(step, pair)`` of a key is
four 32-bit words, made without those before it.  It is fast, passes all statistical tests, and
is **not cryptographic**.

A block makes two normals by Box-Muller, ``r (cos t, sin t)`` with ``r^2 = -2 log U``.  ``U`` has
64 bits, so the tail is cut at 9.4, an event of probability 2^-63; with the 32 bits that are usual
it would be cut at 6.7, which 10^8 draws meet once in 500 trainings, more often than delta allows.

Nothing else is cut.  What remains is rounding: of ``U`` to 53 bits, and in float32 of the angle, a
multiple of ``2 pi / 2^32``, to 24 bits, which moves a normal by at most 6e-6.  Float64 takes the
angle from all 64 bits of the other two words.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

__all__ = ["normals", "philox", "philox_key"]

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF
_DOMAIN = b"dpop Philox"
# Pairs at once, which bounds the temporary memory.
_CHUNK = 1 << 20


def philox_key(secret: int) -> int:
    """Hash the key of a stream to the 64 bits that Philox takes.

    Parameters
    ----------
    secret : int
        Below 2**256.

    Examples
    --------
    >>> philox_key(1) != philox_key(2), philox_key(1) < 2**64
    (True, True)
    """
    digest = hashlib.blake2b(secret.to_bytes(32, "little"), digest_size=8, person=_DOMAIN)
    return int.from_bytes(digest.digest(), "little")


def philox(key: int, counter: tuple[Tensor | int, ...]) -> tuple[Tensor | int, ...]:
    """Return the four words of blocks.

    Parameters
    ----------
    key : int
        64 bits.
    counter : 4 Tensors of int64 or ints
        Words, from 0 to 2**32 - 1.

    Returns
    -------
    4 Tensors of int64 or ints
        Words, from 0 to 2**32 - 1.

    Examples
    --------
    >>> [f"{word:08x}" for word in philox(0, (0, 0, 0, 0))]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key & _MASK, key >> 32
    for _ in range(10):
        # In int64 the product wraps; its words are right all the same.
        p0, p1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0 = ((p1 >> 32) & _MASK) ^ c1 ^ k0
        c2 = ((p0 >> 32) & _MASK) ^ c3 ^ k1
        c1, c3 = p1 & _MASK, p0 & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def normals(key: int, step: int, out: Tensor) -> None:
    """Write the vector ``Z_step``.

    Parameters
    ----------
    key : int
        64 bits, secret.
    step : int
        From 0.
    out : Tensor of float32 or float64, shape (n,)
        The first half gets the cosines.

    Examples
    --------
    >>> import torch
    >>> z, again = torch.empty(5), torch.empty(5)
    >>> normals(7, 3, z)
    >>> normals(7, 3, again)
    >>> bool((z == again).all())
    True
    """
    pairs = (len(out) + 1) // 2
    for start in range(0, pairs, _CHUNK):
        block = torch.arange(start, min(start + _CHUNK, pairs), device=out.device)
        words = philox(key, (block & _MASK, block >> 32, step & _MASK, step >> 32))
        cosines, sines = _box_muller(words, out.dtype)
        out[start : start + len(block)] = cosines
        rest = out[pairs + start : pairs + start + len(block)]
        rest.copy_(sines[: len(rest)])


def _box_muller(words: tuple[Tensor | int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    w0, w1, w2, w3 = words
    assert isinstance(w0, Tensor)
    assert isinstance(w1, Tensor)
    assert isinstance(w2, Tensor)
    uniform = (w0.double() * 2.0**32 + (w1 | 1).double()) * 2.0**-64  # never 0
    r = (-2.0 * uniform.log()).to(dtype).sqrt()
    if dtype == torch.float32:
        signed = w2 - ((w2 & 0x80000000) << 1)
        t = signed.to(dtype) * (math.pi / 2**31)
    else:
        t = (w2.double() * 2.0**32 + w3) * (math.pi / 2**63)
    return r * t.cos(), r * t.sin()
