"""Correlated noise for the weights of a network.

The key of the generator and the earlier random vectors are secrets: whoever has them can take
the noise out of the model again.  What is made here lives as long as a fit and is never an
attribute of an estimator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from randomgen import ChaCha
from torch import Tensor

from sklearn_dpop.factorization import NoiseState, NoiseStream, Strategy
from sklearn_dpop.factorization._normals import Normals

__all__ = ["NOISE_SOURCES", "WeightNoise", "check_regenerates", "shaped"]

# What the report calls them.
NOISE_SOURCES = {
    "secure": "AES-128 in counter mode",
    "fast": "torch's Mersenne Twister, not cryptographic",
}

# Layout of a saved state of torch's CPU generator: 8 bytes seed, 4 bytes words left, 4 bytes
# flag, 8 bytes position, and 624 words of 8 bytes, of which the low 4 count.
_WORDS = slice(24, 24 + 624 * 8)
_LEFT = slice(8, 12)


def check_regenerates(strategy: Strategy) -> None:
    """Refuse a strategy whose earlier random vectors cannot take the place of a buffer.

    Parameters
    ----------
    strategy : Strategy

    Raises
    ------
    ValueError
        If ``C^-1`` is not banded.

    Examples
    --------
    >>> from sklearn_dpop.factorization import BIFR
    >>> check_regenerates(BIFR(0.5, 4))
    """
    try:
        strategy.noise_stream(1, 0, buffered=False)
    except ValueError:
        raise ValueError(
            f"noise_memory='regenerate': must be 'buffer' for {strategy!r}, whose rows depend on "
            f"all earlier random vectors"
        ) from None


class _TorchNormals:
    """Standard normals from torch's Mersenne Twister, addressed like those of the streams.

    A torch seed has 32 effective bits.  The whole state of the generator is set instead, for
    every piece of every vector, from ChaCha20 with the key of the stream.  So a piece can be
    made again, and no two pieces are related; but the outputs of one piece are not those of a
    cryptographic generator.
    """

    def __init__(self, key: int) -> None:
        self._bits = ChaCha(key=key)
        self._state = self._bits.state
        self._generator = torch.Generator()
        template = self._generator.get_state()
        template[_LEFT] = torch.tensor([1, 0, 0, 0], dtype=torch.uint8)  # none: twist first
        self._template = template
        self._words = template.numpy()[_WORDS].view(np.uint64)

    def fill(self, step: int, piece: int, out: NDArray[Any]) -> None:
        """Write one piece of ``Z_step`` to ``out``."""
        self._state["state"]["ctr"][:] = (piece << 32, step)
        self._bits.state = self._state
        self._words[:] = self._bits.random_raw(624) & np.uint64(0xFFFFFFFF)
        self._generator.set_state(self._template)
        torch.from_numpy(out).normal_(generator=self._generator)


class _TorchNoiseState(NoiseState):
    """State of a stream whose vectors come from torch."""

    def normals(self, dtype: DTypeLike) -> Normals:
        """Return the generator; torch goes by the dtype of the memory."""
        return _TorchNormals(self.key)


_STATES = {"secure": NoiseState, "fast": _TorchNoiseState}


def shaped(flat: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Return views of one row in the shapes of some weights.

    Parameters
    ----------
    flat : Tensor of shape (n,)
    weights : sequence of Tensors
        With n entries together.

    Examples
    --------
    >>> import torch
    >>> [tuple(v.shape) for v in shaped(torch.zeros(11), [torch.zeros(3, 2), torch.zeros(5)])]
    [(3, 2), (5,)]
    """
    parts = flat.split([w.numel() for w in weights])
    return [part.view(w.shape) for part, w in zip(parts, weights, strict=True)]


class WeightNoise:
    """Rows of ``C^-1 Z`` in the shapes of some weights.

    Parameters
    ----------
    strategy : Strategy
        ``C``.
    weights : sequence of Tensors
        Their shapes, device and dtype (all the same); one row fills them all.
    state : NoiseState
        Secret key, and the step to begin with.
    source : {"secure", "fast"}, default="secure"
        AES-128 in counter mode, or torch's Mersenne Twister keyed by ChaCha20.
    buffered : bool, default=True
        Keep the earlier random vectors, or make them again at every step; the rows are the same.

    Examples
    --------
    >>> import torch
    >>> from sklearn_dpop.factorization import BIFR, NoiseState
    >>> noise = WeightNoise(BIFR(0.5, 4), [torch.zeros(3, 2), torch.zeros(5)], NoiseState(key=1))
    >>> [tuple(row.shape) for row in noise.draw()]
    [(3, 2), (5,)]
    """

    def __init__(
        self,
        strategy: Strategy,
        weights: Sequence[Tensor],
        state: NoiseState,
        *,
        source: str = "secure",
        buffered: bool = True,
    ) -> None:
        self.generator = NOISE_SOURCES[source]
        device = weights[0].device
        # Pinned memory is copied to CUDA while the CPU goes on.
        self._cpu = torch.empty(
            sum(w.numel() for w in weights),
            dtype=weights[0].dtype,
            pin_memory=device.type == "cuda",
        )
        self._row = self._cpu.numpy()
        self._stream: NoiseStream = strategy.noise_stream(
            self._row.shape,
            _STATES[source](state.key, state.step),
            dtype=self._row.dtype,
            buffered=buffered,
        )
        self._flat = self._cpu if device.type == "cpu" else self._cpu.to(device)
        self._copied = torch.cuda.Event() if device.type == "cuda" else None
        self._views = shaped(self._flat, weights)

    def draw(self) -> list[Tensor]:
        """Return the next row; the memory is used again by the next call.

        Returns
        -------
        list of Tensors
            With the shapes of the weights.
        """
        if self._copied is not None:
            self._copied.synchronize()  # the last row has left the memory
        self._stream.draw(self._row)
        if self._flat is not self._cpu:
            # Without an event nobody would know when the memory may be written again.
            self._flat.copy_(self._cpu, non_blocking=self._copied is not None)
        if self._copied is not None:
            self._copied.record(torch.cuda.current_stream(self._flat.device))
        return self._views

    def __getstate__(self) -> NoReturn:
        raise TypeError("The state of the noise is secret: it cannot be pickled or copied.")
