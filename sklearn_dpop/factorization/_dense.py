"""A strategy matrix that the user brings."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ._noise import DenseStream, NoiseStream
from ._strategy import Strategy, refuse_unbuffered
from ._toeplitz import Array


class Dense(Strategy):
    """Any lower-triangular, invertible matrix.

    Parameters
    ----------
    matrix : array-like of shape (n, n)
        Lower triangular, finite, without a zero on the diagonal.

    Attributes
    ----------
    n_steps : int
        Number of steps.

    Raises
    ------
    ValueError
        If the matrix is not square, not lower triangular, not finite, or singular.

    Examples
    --------
    >>> Dense([[1.0, 0.0], [0.5, 1.0]]).n_steps
    2
    >>> Dense([[1.0, 0.5], [0.0, 1.0]])
    Traceback (most recent call last):
        ...
    ValueError: matrix must be lower triangular, got 0.5 in row 0, column 1.
    """

    def __init__(self, matrix: ArrayLike) -> None:
        try:
            c = np.array(matrix, dtype=float)
        except (TypeError, ValueError) as error:
            raise ValueError(f"matrix must be an array of numbers: {error}") from None
        if c.ndim != 2 or c.shape[0] != c.shape[1] or not len(c):
            raise ValueError(f"matrix must be square and not empty, got shape {c.shape}.")
        if not np.isfinite(c).all():
            raise ValueError("matrix must be finite, got nan or infinity.")
        above = np.argwhere(np.triu(c, 1))
        if len(above):
            row, column = above[0]
            raise ValueError(
                f"matrix must be lower triangular, got {c[row, column]:g} in row {row}, "
                f"column {column}."
            )
        zero = np.flatnonzero(np.diagonal(c) == 0.0)
        if len(zero):
            raise ValueError(f"matrix must be invertible, got 0 on the diagonal in row {zero[0]}.")
        c.flags.writeable = False
        self._matrix = c

    @property
    def n_steps(self) -> int:  # type: ignore[override]
        """Number of steps."""
        return len(self._matrix)

    def matrix(self, n: int | None = None) -> Array:
        """``C`` itself, read-only; ``n`` must be its size."""
        if n is not None and n != self.n_steps:
            raise ValueError(f"n must be {self.n_steps}, the size of the matrix, got {n}.")
        return self._matrix

    def noise_stream(
        self, shape: Any, rng: Any = None, *, dtype: DTypeLike = np.float64, buffered: bool = True
    ) -> NoiseStream:
        """Rows of ``C^-1 Z``; see :meth:`Strategy.noise_stream`.  All rows are stored."""
        refuse_unbuffered(self, buffered)
        return DenseStream(self._matrix, shape, rng, dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dense) and np.array_equal(self._matrix, other._matrix)

    def __hash__(self) -> int:
        return hash(self._matrix.tobytes())

    def __repr__(self) -> str:
        return f"Dense(n_steps={self.n_steps})"
