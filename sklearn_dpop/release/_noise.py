"""Gaussian noise from a cryptographic generator.

Every release asks for a generator of its own and drops it afterwards.  No generator and no
key is kept in this module or on an estimator: what is kept can be pickled, cloned, forked
or copied into a worker, and the same noise in two releases cancels in their difference.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from randomgen import ChaCha

__all__ = [
    "OPERATING_SYSTEM_SOURCE",
    "SEEDED_SOURCE",
    "RandomStateLike",
    "gaussian_noise",
    "noise_generator",
]

RandomStateLike: TypeAlias = int | np.random.RandomState | np.random.Generator | None

OPERATING_SYSTEM_SOURCE = "ChaCha20, key from the operating system"
SEEDED_SOURCE = (
    "ChaCha20, key derived from random_state (seeded: reproducible, therefore not private)"
)

_KEY_BYTES = 32
_DOMAIN = b"sklearn_dpop noise key 1\n"


def noise_generator(
    random_state: RandomStateLike, *, context: Mapping[str, object]
) -> tuple[np.random.Generator, str]:
    r"""Return a fresh ChaCha20 generator for one release, and a description of its source.

    Parameters
    ----------
    random_state : None, int, RandomState or Generator
        Source of the 256 bit key.

        * None: the operating system, a new key at every call.
        * int (not negative): the key is a hash of the seed and of `context`.
        * :class:`numpy.random.RandomState` or :class:`numpy.random.Generator`: 256 bits
          are drawn from it, which advances it, and hashed with `context`.
    context : mapping from str to public constants
        Public configuration of the release: everything that its noise is calibrated to,
        its shape, and a counter if one fit draws several generators from one seed.  Values
        are None, bools, numbers, strings, NumPy scalars and arrays of these, and lists,
        tuples and str-keyed mappings of these.  Equal numbers count as equal, whatever
        their type.  With None it is checked but not needed.

    Returns
    -------
    generator : numpy.random.Generator
        To be used for this release and not stored.
    description : str
        `OPERATING_SYSTEM_SOURCE` or `SEEDED_SOURCE`, for the privacy report.

    Raises
    ------
    TypeError
        If `random_state` or a part of `context` is of another type.
    ValueError
        If an int `random_state` is negative.  In all cases nothing was drawn.

    Notes
    -----
    A seed makes the noise known to whoever knows or guesses the seed, and the same for two
    data sets of one shape under one configuration: subtracting such releases removes it.
    A `RandomState` that was copied (:func:`sklearn.base.clone`, a worker process) is the
    same seed again.  The context only ensures that releases which differ in *public*
    configuration do not share noise, so that a seeded grid over epsilon is not one noise
    vector in several sizes.

    The stream is that of ChaCha20 [1]_ with 64 bit counter and zero nonce, from block 0.
    A key is never used twice unless the caller repeats a seed, so no nonce is needed.

    References
    ----------
    .. [1] Y. Nir, A. Langley, "ChaCha20 and Poly1305 for IETF Protocols", RFC 8439, 2018.

    Examples
    --------
    >>> generator, description = noise_generator(None, context={})
    >>> description
    'ChaCha20, key from the operating system'
    >>> first, _ = noise_generator(7, context={"epsilon": 1, "shape": (2, 3)})
    >>> again, _ = noise_generator(7, context={"shape": (2, 3), "epsilon": 1.0})
    >>> other, _ = noise_generator(7, context={"epsilon": 2.0, "shape": (2, 3)})
    >>> x, y, z = (g.integers(2**62) for g in (first, again, other))
    >>> bool(x == y), bool(x == z)
    (True, False)
    """
    digest = _context_digest(context)
    if random_state is None:
        key, description = secrets.token_bytes(_KEY_BYTES), OPERATING_SYSTEM_SOURCE
    else:
        entropy = _entropy(random_state)
        key = hashlib.sha256(_DOMAIN + digest + entropy).digest()
        description = SEEDED_SOURCE
    bit_generator = ChaCha(key=int.from_bytes(key, "little"), counter=0, rounds=20)
    return np.random.Generator(bit_generator), description


def gaussian_noise(
    generator: np.random.Generator, sigma: float, shape: int | tuple[int, ...]
) -> NDArray[np.float64]:
    r"""Draw independent entries of :math:`N(0, \sigma^2)`.

    Parameters
    ----------
    generator : numpy.random.Generator
        As returned by `noise_generator`.
    sigma : float
        Standard deviation, positive and finite.
    shape : int or tuple of int
        Shape of the noise.

    Returns
    -------
    noise : ndarray of float64
        Array of the given shape.

    Raises
    ------
    TypeError
        If `generator` is not a :class:`numpy.random.Generator` or `sigma` not a number.
    ValueError
        If `sigma` is NaN, infinite, zero or negative, or `shape` is negative.  Nothing
        was drawn then.

    Notes
    -----
    NumPy's ziggurat samples the exact law up to the resolution of 52 bit uniforms: entries
    lie on a grid, and none exceeds 13.7 sigma, an event of probability 1e-42.  Guarantees
    are stated for real arithmetic; sums of floating-point noise and values are not
    protected against attacks on their last bits.

    Examples
    --------
    >>> generator, _ = noise_generator(None, context={})
    >>> gaussian_noise(generator, 2.5, (2, 3)).shape
    (2, 3)
    """
    if not isinstance(generator, np.random.Generator):
        raise TypeError(
            "generator must be a numpy.random.Generator, as noise_generator returns. "
            f"Got {generator!r}."
        )
    if not isinstance(sigma, Real) or isinstance(sigma, bool):
        raise TypeError(f"sigma must be a positive finite number. Got {sigma!r}.")
    if not 0 < sigma < np.inf:
        raise ValueError(f"sigma must be a positive finite number. Got {sigma!r}.")
    noise = generator.standard_normal(shape)
    noise *= float(sigma)
    return noise


def _entropy(random_state: Any) -> bytes:
    """Return the seed, or 256 bits drawn from a generator, as unambiguous bytes."""
    if isinstance(random_state, np.random.RandomState | np.random.Generator):
        return b"drawn " + random_state.bytes(_KEY_BYTES)
    if not isinstance(random_state, Integral) or isinstance(random_state, bool):
        raise TypeError(
            "random_state must be None, a non-negative int, a numpy.random.RandomState or a "
            f"numpy.random.Generator. Got {random_state!r}."
        )
    if random_state < 0:
        raise ValueError(f"random_state must be non-negative if it is an int. Got {random_state}.")
    return b"seed %d" % int(random_state)


def _context_digest(context: Mapping[str, object]) -> bytes:
    """Return SHA-256 of `context` as JSON with sorted keys."""
    if not isinstance(context, Mapping):
        raise TypeError(
            f"context must be a mapping of public constants. Got a {type(context).__name__}."
        )
    text = json.dumps(_plain("context", context), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()


def _plain(name: str, value: Any) -> Any:
    """Return `value` in JSON's types, such that equal values are written equally."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return int(number) if number.is_integer() else number
    if isinstance(value, list | tuple):
        return [_plain(f"{name}[{i}]", item) for i, item in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(f"{name}[{key!r}]", item) for key, item in value.items()}
    raise TypeError(  # the type only: a value that is no public constant may be a record
        f"{name} must be None, a bool, a number, a string, or a list, array or str-keyed mapping "
        f"of these. Got a {type(value).__name__}."
    )
