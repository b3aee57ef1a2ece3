"""Correlated noise made on the device of the weights."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Sequence
from typing import NoReturn

import torch
from torch import Tensor

from sklearn_dpop.factorization import NoiseState, Strategy
from sklearn_dpop.factorization._noise import FiniteStream

from ._noise import WeightNoise, shaped
from ._philox import normals, philox_key

__all__ = ["DeviceNoise", "make_weight_noise"]

RowWriter = Callable[[int, int, Tensor, Tensor | None, Tensor, int], None]


def write_row(
    key: int, step: int, coef: Tensor, ring: Tensor | None, out: Tensor, lags: int
) -> None:
    """Write ``sum_j coef_j Z_{step - j}`` in torch operations; see `_triton.write_row`.

    Parameters
    ----------
    key, step : int
    coef : Tensor of shape (p,)
    ring : Tensor of shape (slots, n), or None
    out : Tensor of shape (n,)
    lags : int

    Examples
    --------
    >>> import torch
    >>> row, z = torch.empty(3), torch.empty(3)
    >>> write_row(7, 5, torch.tensor([2.0, 1.0]), None, row, 1)
    >>> normals(7, 5, z)
    >>> bool((row == 2 * z).all())
    True
    """
    a = coef.tolist()
    z = torch.empty_like(out)
    normals(key, step, z)
    torch.mul(z, a[0], out=out)
    earlier = z if ring is not None else torch.empty_like(out)
    for lag in range(1, lags):
        if ring is None:
            normals(key, step - lag, earlier)
            out.add_(earlier, alpha=a[lag])
        else:
            out.add_(ring[(step - lag) % len(ring)], alpha=a[lag])
    if ring is not None:
        ring[step % len(ring)] = z


class DeviceNoise:
    """Rows of ``C^-1 Z`` with Z from Philox, for a banded ``C^-1``, on the device of the weights.

    Not cryptographic: see `_philox`.

    Parameters
    ----------
    inverse : sequence of floats
        Coefficients of ``C^-1``.
    weights : sequence of Tensors
        Their shapes, device and dtype (all the same); one row fills them all.
    state : NoiseState
        Secret key, and the step to begin with.
    buffered : bool, default=True
        Keep the earlier random vectors, or make them again at every step; the rows are the same.
    write : callable, optional
        `write_row`, by default by Triton where it is installed and works, and the weights are
        float32 on CUDA.

    Examples
    --------
    >>> import torch
    >>> noise = DeviceNoise([1.0, -0.5], [torch.zeros(3, 2), torch.zeros(5)], NoiseState(key=1))
    >>> [tuple(row.shape) for row in noise.draw()]
    [(3, 2), (5,)]
    """

    generator = "Philox4x32-10, not cryptographic"

    def __init__(
        self,
        inverse: Sequence[float],
        weights: Sequence[Tensor],
        state: NoiseState,
        *,
        buffered: bool = True,
        write: RowWriter | None = None,
    ) -> None:
        like = weights[0]
        self._key, self._step = philox_key(state.key), state.step
        self._coef = torch.tensor(inverse, dtype=like.dtype, device=like.device)
        self._flat = like.new_empty(sum(w.numel() for w in weights))
        self._views = shaped(self._flat, weights)
        self._write = _writer(like) if write is None else write
        self._ring: Tensor | None = None
        slots = len(self._coef) - 1
        if buffered and slots:
            self._ring = like.new_empty(slots, len(self._flat))
            for step in range(max(0, state.step - slots), state.step):
                self._write(self._key, step, self._coef, self._ring, self._flat, 1)

    def draw(self) -> list[Tensor]:
        """Return the next row; the memory is used again by the next call.

        Returns
        -------
        list of Tensors
            With the shapes of the weights.
        """
        lags = min(len(self._coef), self._step + 1)
        self._write(self._key, self._step, self._coef, self._ring, self._flat, lags)
        self._step += 1
        return self._views

    def __getstate__(self) -> NoReturn:
        raise TypeError("The state of the noise is secret: it cannot be pickled or copied.")


def make_weight_noise(
    strategy: Strategy,
    weights: Sequence[Tensor],
    state: NoiseState,
    *,
    source: str = "secure",
    buffered: bool = True,
) -> WeightNoise | DeviceNoise:
    """Choose where the noise of some weights is made.

    On the device only if the source is ``"fast"``, the device is CUDA, and ``C^-1`` is banded.
    Otherwise on the CPU, from where it is copied: others do not have the float64 that Philox's
    normals need (MPS), or were never tried.

    Parameters
    ----------
    strategy : Strategy
    weights : sequence of Tensors
    state : NoiseState
    source : {"secure", "fast"}, default="secure"
    buffered : bool, default=True

    Returns
    -------
    WeightNoise or DeviceNoise

    Examples
    --------
    >>> import torch
    >>> from sklearn_dpop.factorization import BIFR
    >>> make_weight_noise(BIFR(0.5, 4), [torch.zeros(2)], NoiseState(key=1)).generator
    'AES-128 in counter mode'
    """
    if source == "fast" and weights[0].device.type == "cuda":
        stream = strategy.noise_stream(1, 0)
        if isinstance(stream, FiniteStream):
            return DeviceNoise(stream.inverse.tolist(), weights, state, buffered=buffered)
    return WeightNoise(strategy, weights, state, source=source, buffered=buffered)


def _writer(like: Tensor) -> RowWriter:
    suits = like.device.type == "cuda" and like.dtype == torch.float32
    if suits and importlib.util.find_spec("triton") is not None:
        from ._triton import write_row as fused

        return _checked(fused, like)
    return write_row


def _checked(fused: RowWriter, like: Tensor) -> RowWriter:
    """Return the kernel if it can be built here and gives the right numbers, else `write_row`.

    Triton needs a C compiler and a driver that fits, which shows only when a kernel is started.
    """
    coef, rows = like.new_tensor([1.0, -0.5]), []
    try:
        for write in (write_row, fused):
            ring, row = like.new_empty(2, 65), like.new_empty(65)
            write(1, 4, coef, ring, row, 1)
            write(1, 5, coef, ring, row, 2)
            regenerated = torch.empty_like(row)
            write(1, 5, coef, None, regenerated, 2)
            rows.append(torch.cat([row, regenerated]))
        if torch.allclose(rows[0], rows[1], rtol=0, atol=1e-5):
            return fused
        reason = "other numbers"
    except Exception as error:  # whatever a compiler or a driver may raise
        reason = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"the noise is made by torch operations, more slowly: Triton's kernel failed ({reason})",
        RuntimeWarning,
        stacklevel=2,
    )
    return write_row
