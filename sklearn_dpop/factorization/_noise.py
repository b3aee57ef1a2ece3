"""Correlated noise ``C^-1 Z``, one step at a time.

``Z_t`` is a pure function of a key and of the step ``t`` (see `_normals`), so every stream can be
resumed from two numbers, and a stream whose ``C^-1`` is banded can regenerate the earlier ``Z_t``
instead of storing them.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg.blas import daxpy, saxpy

from ._checks import check_integer
from ._normals import PIECE, CipherNormals, Normals
from ._toeplitz import Array

# Values added at once: below 10,000 BLAS does not start threads, which cost more than they gain.
_ADDED = 1 << 13


@dataclass(frozen=True)
class NoiseState:
    """Where a noise stream stands; all that is needed to resume it.

    Attributes
    ----------
    key : int
        256-bit key of the generator.  It determines all noise, past and future: keep it secret.
    step : int
        Index of the next row, from 0.

    Examples
    --------
    >>> NoiseState(key=5, step=3).step
    3
    """

    key: int
    step: int = 0

    def __post_init__(self) -> None:
        check_integer("step", self.step, 0)
        if check_integer("key", self.key, 0) >= 1 << 256:
            raise ValueError("key must be below 2**256.")

    def __repr__(self) -> str:
        return f"NoiseState(key=<secret>, step={self.step})"

    def normals(self, dtype: DTypeLike) -> Normals:
        """Return the generator of the vectors ``Z_t``; a subclass may have another.

        Parameters
        ----------
        dtype : {float64, float32}

        Returns
        -------
        Normals
        """
        return CipherNormals(self.key, dtype)


def noise_state(rng: Any) -> NoiseState:
    """Turn what a caller passes as source of randomness into a key and a step.

    Parameters
    ----------
    rng : None, int, SeedSequence, Generator, RandomState or NoiseState
        ``None`` draws the key from the operating system, which is what a private release needs.
        An int or a SeedSequence gives reproducible noise.  A Generator or RandomState is asked
        for 32 bytes.  A NoiseState resumes a stream.

    Returns
    -------
    NoiseState

    Raises
    ------
    ValueError
        For anything else.

    Examples
    --------
    >>> noise_state(NoiseState(key=1, step=7)).step
    7
    """
    if isinstance(rng, NoiseState):
        return rng
    if rng is None:
        return NoiseState(secrets.randbits(256))
    if isinstance(rng, (np.random.Generator, np.random.RandomState)):
        return NoiseState(int.from_bytes(rng.bytes(32), "little"))
    if not isinstance(rng, np.random.SeedSequence):
        try:
            rng = np.random.SeedSequence(check_integer("rng", rng, 0))
        except ValueError:
            raise ValueError(
                "rng must be None, an integer >= 0, a SeedSequence, a Generator, a RandomState "
                f"or a NoiseState, got {rng!r}."
            ) from None
    words = rng.generate_state(4, np.uint64)
    return NoiseState(int.from_bytes(words.tobytes(), "little"))


class NoiseStream(ABC, Iterator[NDArray[Any]]):
    """Rows of ``C^-1 Z`` in order; ``Z`` has independent standard normal entries.

    Made by ``strategy.noise_stream(shape, rng)``.  Multiply the rows by the noise multiplier,
    the sensitivity and the clip norm.

    Parameters
    ----------
    shape : int or tuple of int
        Shape of one row.
    rng : None, int, SeedSequence, Generator, RandomState or NoiseState
        See :func:`noise_state`.
    dtype : {float64, float32}
        Type of the rows.
    """

    def __init__(self, shape: Any, rng: Any, dtype: DTypeLike) -> None:
        self.shape = (shape,) if np.ndim(shape) == 0 else tuple(shape)
        for length in self.shape:
            check_integer("every entry of shape", length)
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        if self.dtype not in (np.float64, np.float32):
            raise ValueError(f"dtype must be float64 or float32, got {dtype!r}.")
        self._size = int(np.prod(self.shape, dtype=np.int64))
        start = noise_state(rng)
        self._start = start
        self._normals = start.normals(self.dtype)
        self._scratch = np.empty(min(PIECE, self._size), self.dtype)
        self._axpy = daxpy if self.dtype == np.float64 else saxpy
        self._step = 0
        self.seek(start.step)

    @property
    def state(self) -> NoiseState:
        """Key and step; pass it as ``rng`` to resume with the next row."""
        return replace(self._start, step=self._step)

    def seek(self, step: int) -> "NoiseStream":
        """Move to a step, so that the next row drawn is row ``step``.

        Parameters
        ----------
        step : int
            From 0.

        Returns
        -------
        NoiseStream
            The stream itself.
        """
        step = check_integer("step", step, 0)
        self._reset(step)
        self._step = step
        return self

    def draw(self, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the next row.

        Parameters
        ----------
        out : ndarray of shape ``shape``, default=None
            C-contiguous array of the stream's dtype to write to; ``None`` makes a new one.

        Returns
        -------
        ndarray of shape ``shape``
        """
        if out is None:
            out = np.empty(self.shape, self.dtype)
        elif out.shape != self.shape or out.dtype != self.dtype or not out.flags.c_contiguous:
            raise ValueError(
                f"out must be a C-contiguous {self.dtype} array of shape {self.shape}, got "
                f"{out.dtype} of shape {out.shape}."
            )
        flat = out.reshape(-1)
        for piece, start in enumerate(range(0, self._size, PIECE)):
            part = slice(start, min(start + PIECE, self._size))
            self._write(piece, part, flat[part])
        self._step += 1
        return out

    def __next__(self) -> NDArray[Any]:
        return self.draw()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, step={self._step})"

    def _replay(self, step: int) -> None:
        """Reach ``step`` by drawing all rows before it."""
        self._step = 0
        row = np.empty(self.shape, self.dtype)
        while self._step < step:
            self.draw(row)

    def _add(self, a: float, x: NDArray[Any], out: NDArray[Any]) -> None:
        """``out += a x`` for one piece."""
        for start in range(0, len(out), _ADDED):
            part = slice(start, start + _ADDED)
            self._axpy(x[part], out[part], a=a)

    def _add_lagged(self, a: Array, lags: range, ring: NDArray[Any], out: NDArray[Any]) -> None:
        """``out += a_lag x_{t - lag}`` for all lags in order; row ``s % len(ring)`` is ``x_s``."""
        for lag in lags:
            self._add(a[lag], ring[(self._step - lag) % len(ring)], out)

    @abstractmethod
    def _reset(self, step: int) -> None:
        """Prepare the memory of the stream for ``step``."""

    @abstractmethod
    def _write(self, piece: int, part: slice, out: NDArray[Any]) -> None:
        """Compute one piece of the current row."""


class FiniteStream(NoiseStream):
    """Stream of a banded ``C^-1``: ``y_t = a_0 Z_t + a_1 Z_{t-1} + ..``.

    With ``buffered=True`` the last ``p - 1`` vectors ``Z_t`` are stored in a ring; with
    ``buffered=False`` they are generated anew at every step and nothing is stored.  The rows are
    the same.

    Parameters
    ----------
    inverse : ndarray of shape (p,)
        Coefficients of ``C^-1``.
    shape, rng, dtype
        See :class:`NoiseStream`.
    buffered : bool
        Whether to store the earlier vectors.

    Examples
    --------
    >>> stored = FiniteStream(np.array([1.0, -0.5]), 3, 0)
    >>> regenerated = FiniteStream(np.array([1.0, -0.5]), 3, 0, buffered=False)
    >>> all(np.array_equal(next(stored), next(regenerated)) for _ in range(5))
    True
    """

    def __init__(
        self,
        inverse: Array,
        shape: Any,
        rng: Any,
        dtype: DTypeLike = np.float64,
        buffered: bool = True,
    ) -> None:
        self.inverse = inverse
        self._ring: NDArray[Any] | None = None
        self._buffered = buffered and len(inverse) > 1
        super().__init__(shape, rng, dtype)

    def _reset(self, step: int) -> None:
        if not self._buffered:
            return
        slots = len(self.inverse) - 1
        if self._ring is None:
            self._ring = np.empty((slots, self._size), self.dtype)
        for earlier in range(max(0, step - slots), step):
            for piece, start in enumerate(range(0, self._size, PIECE)):
                row = self._ring[earlier % slots, start : start + PIECE]
                self._normals.fill(earlier, piece, row)

    def _write(self, piece: int, part: slice, out: NDArray[Any]) -> None:
        a, t = self.inverse, self._step
        scratch = self._scratch[: len(out)]
        self._normals.fill(t, piece, out)
        if self._ring is not None:
            scratch[:] = out  # stored below, when the oldest vector is no longer needed
        if a[0] != 1.0:
            out *= self.dtype.type(a[0])
        lags = range(1, min(len(a) - 1, t) + 1)
        if self._ring is None:
            for lag in lags:
                self._normals.fill(t - lag, piece, scratch)
                self._add(a[lag], scratch, out)
        else:
            ring = self._ring[:, part]
            self._add_lagged(a, lags, ring, out)
            ring[t % len(ring)] = scratch


class RecursiveStream(NoiseStream):
    """Stream of a banded ``C``: ``y_t = (Z_t - c_1 y_{t-1} - ..) / c_0``.

    The last ``p - 1`` rows are stored in a ring.  A row depends on all earlier ``Z``, so moving
    to a step replays the stream up to it.

    Parameters
    ----------
    coef : ndarray of shape (p,)
        Coefficients of ``C``.
    shape, rng, dtype
        See :class:`NoiseStream`.

    Examples
    --------
    >>> rows = RecursiveStream(np.array([2.0, 1.0]), 3, 0)
    >>> y0, y1 = next(rows), next(rows)
    >>> z = FiniteStream(np.array([1.0]), 3, 0)
    >>> np.allclose(2.0 * y0, next(z)), np.allclose(2.0 * y1 + y0, next(z))
    (True, True)
    """

    def __init__(self, coef: Array, shape: Any, rng: Any, dtype: DTypeLike = np.float64) -> None:
        self._coef = coef
        self._ring: NDArray[Any] | None = None
        super().__init__(shape, rng, dtype)

    def _reset(self, step: int) -> None:
        if self._ring is None:
            self._ring = np.empty((len(self._coef) - 1, self._size), self.dtype)
        self._replay(step)

    def _write(self, piece: int, part: slice, out: NDArray[Any]) -> None:
        c, t, ring = self._coef, self._step, self._ring
        assert ring is not None
        ring = ring[:, part]
        self._normals.fill(t, piece, out)
        self._add_lagged(-c, range(1, min(len(ring), t) + 1), ring, out)
        if c[0] != 1.0:
            out /= self.dtype.type(c[0])
        if len(ring):
            ring[t % len(ring)] = out


class BufferedLinearStream(NoiseStream):
    """Stream of a buffered linear Toeplitz ``C``: ``c_0 = 1``, ``c_t = sum_j w_j theta_j^(t-1)``.

    ``y_t = Z_t - sum_j w_j s_j`` with buffers ``s_j <- theta_j s_j + y_t``: as many stored
    vectors as buffers, whatever the number of steps.

    Parameters
    ----------
    theta, omega : ndarray of shape (buffers,)
        Decays and weights.
    shape, rng, dtype
        See :class:`NoiseStream`.

    Examples
    --------
    >>> rows = BufferedLinearStream(np.array([0.5]), np.array([0.3]), 2, 0)
    >>> z = FiniteStream(np.array([1.0]), 2, 0)
    >>> y0, y1, y2 = next(rows), next(rows), next(rows)
    >>> z0, z1, z2 = next(z), next(z), next(z)
    >>> np.allclose(y2 + 0.3 * y1 + 0.15 * y0, z2)
    True
    """

    def __init__(
        self, theta: Array, omega: Array, shape: Any, rng: Any, dtype: DTypeLike = np.float64
    ) -> None:
        self._theta = theta
        self._omega = omega
        self._buffers: NDArray[Any] | None = None
        super().__init__(shape, rng, dtype)

    def _reset(self, step: int) -> None:
        if self._buffers is None:
            self._buffers = np.empty((len(self._theta), self._size), self.dtype)
        self._buffers[:] = 0.0
        self._replay(step)

    def _write(self, piece: int, part: slice, out: NDArray[Any]) -> None:
        buffers = self._buffers
        assert buffers is not None
        self._normals.fill(self._step, piece, out)
        for buffer, omega in zip(buffers, self._omega, strict=True):
            self._add(-omega, buffer[part], out)
        for buffer, theta in zip(buffers, self._theta, strict=True):
            buffer[part] *= self.dtype.type(theta)
            buffer[part] += out


class DenseStream(NoiseStream):
    """Stream of any lower-triangular ``C`` with ``n`` rows; stops after ``n`` of them.

    ``y_t = (Z_t - C_t0 y_0 - ..) / C_tt``; all earlier rows are stored.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        ``C``.
    shape, rng, dtype
        See :class:`NoiseStream`.

    Examples
    --------
    >>> len(list(DenseStream(np.eye(4), 3, 0)))
    4
    """

    def __init__(self, matrix: Array, shape: Any, rng: Any, dtype: DTypeLike = np.float64) -> None:
        self._matrix = matrix
        self._rows: NDArray[Any] | None = None
        super().__init__(shape, rng, dtype)

    def _reset(self, step: int) -> None:
        n = len(self._matrix)
        if step > n:
            raise ValueError(f"step must be at most n={n}, got {step}.")
        if self._rows is None:
            self._rows = np.empty((n, self._size), self.dtype)
        self._replay(step)

    def draw(self, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the next row; raise StopIteration after the last."""
        if self._step == len(self._matrix):
            raise StopIteration
        return super().draw(out)

    def _write(self, piece: int, part: slice, out: NDArray[Any]) -> None:
        row, t, rows = self._matrix[self._step], self._step, self._rows
        assert rows is not None
        self._normals.fill(t, piece, out)
        for earlier in np.flatnonzero(row[:t]):
            self._add(-row[earlier], rows[earlier, part], out)
        out /= self.dtype.type(row[t])
        rows[t, part] = out
