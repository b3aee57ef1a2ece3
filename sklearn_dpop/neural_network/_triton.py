"""One kernel for a row of correlated noise, by Triton.

It makes the random vectors where they are used: nothing of them goes through memory, except the
ring where there is one.  The numbers are those of `_philox`, up to rounding.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

__all__ = ["write_row"]

_BLOCK = 512


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _pair(key, pair, step):  # type: ignore[no-untyped-def]
    """Two normals for every pair."""
    low = pair.to(tl.uint32)
    high = (pair >> 32).to(tl.uint32)
    zero = low * 0
    w0, w1, w2, _ = tl.philox(
        key, low, high, zero + step.to(tl.uint32), zero + (step >> 32).to(tl.uint32)
    )
    uniform = (w0.to(tl.float64) * 4294967296.0 + (w1 | 1).to(tl.float64)) * 5.421010862427522e-20
    r = tl.sqrt((-2.0 * tl.log(uniform)).to(tl.float32))
    t = w2.to(tl.int32, bitcast=True).to(tl.float32) * 1.4629180792671596e-09  # pi / 2^31
    return r * tl.cos(t), r * tl.sin(t)


@triton.jit(do_not_specialize=["key", "step", "lags"])  # type: ignore[untyped-decorator, unused-ignore]
def _row(  # type: ignore[no-untyped-def]
    out, ring, coef, key, step, lags, slots, n, RING: tl.constexpr, BLOCK: tl.constexpr
):
    """Write half-rows of pairs; ``ring`` holds ``slots`` earlier vectors of length ``n``."""
    pairs = (n + 1) // 2
    pair = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    first = pair < pairs
    second = pairs + pair < n
    step = step.to(tl.int64)
    z0, z1 = _pair(key, pair, step)
    a = tl.load(coef)
    sum0 = a * z0
    sum1 = a * z1
    zeros = tl.zeros([BLOCK], tl.float32)
    for lag in range(1, lags):
        if RING:
            slot = ring + ((step - lag) % slots) * n
            y0 = tl.load(slot + pair, mask=first)
            y1 = tl.load(slot + pairs + pair, mask=second)
        else:
            y0, y1 = _pair(key, pair, step - lag)
        a = tl.load(coef + lag)
        # Explicitly fused: with and without a ring the same rounding.
        sum0 = tl.fma(zeros + a, y0, sum0)
        sum1 = tl.fma(zeros + a, y1, sum1)
    if RING:
        slot = ring + (step % slots) * n
        tl.store(slot + pair, z0, mask=first)
        tl.store(slot + pairs + pair, z1, mask=second)
    tl.store(out + pair, sum0, mask=first)
    tl.store(out + pairs + pair, sum1, mask=second)


def write_row(
    key: int, step: int, coef: Tensor, ring: Tensor | None, out: Tensor, lags: int
) -> None:
    """Write ``sum_j coef_j Z_{step - j}``, and keep ``Z_step`` in the ring if there is one.

    Parameters
    ----------
    key : int
        64 bits.
    step : int
    coef : Tensor of float32, shape (p,)
    ring : Tensor of float32, shape (slots, n), or None
        Vector ``s`` at row ``s % slots``; None makes the earlier vectors again.
    out : Tensor of float32, shape (n,)
    lags : int
        Number of terms, at most ``step + 1`` and, with a ring, ``slots + 1``.
    """
    n = len(out)
    grid = (triton.cdiv((n + 1) // 2, _BLOCK),)
    with torch.cuda.device_of(out):  # kernels are started on the current device
        _row[grid](
            out,
            out if ring is None else ring,
            coef,
            key,
            step,
            lags,
            1 if ring is None else len(ring),
            n,
            RING=ring is not None,
            BLOCK=_BLOCK,
        )
