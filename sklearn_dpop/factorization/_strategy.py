"""What all strategy matrices have in common."""

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ._checks import check_integer
from ._noise import FiniteStream, NoiseStream, RecursiveStream
from ._toeplitz import Array, multiply, solve, toeplitz_matrix

if TYPE_CHECKING:
    from ._workload import Workload

# Above this size nothing of size n x n is made, unless the user brought it.
DENSE_LIMIT = 5000


class Strategy(ABC):
    """A lower-triangular, invertible strategy matrix ``C``.

    The mechanism releases ``G + C^-1 Z``: the rows of ``G`` are the summed clipped gradients,
    those of ``C^-1 Z`` the correlated noise.  Strategies are immutable.

    Attributes
    ----------
    n_steps : int or None
        Number of steps that the strategy was made for; ``None`` for one that fits any number.
    """

    n_steps: int | None = None

    @abstractmethod
    def matrix(self, n: int) -> Array:
        """``C`` as an array.

        Parameters
        ----------
        n : int
            Number of steps, at most 5000 unless the strategy is dense.

        Returns
        -------
        ndarray of shape (n, n)
        """

    @abstractmethod
    def noise_stream(
        self, shape: Any, rng: Any = None, *, dtype: DTypeLike = np.float64, buffered: bool = True
    ) -> NoiseStream:
        """Rows of ``C^-1 Z`` one after the other.

        Parameters
        ----------
        shape : int or tuple of int
            Shape of one row: the parameters of the model.
        rng : None, int, SeedSequence, Generator, RandomState or NoiseState, default=None
            Source of randomness; ``None`` asks the operating system for a key, which a private
            release needs.  The ``state`` of an earlier stream resumes it.
        dtype : {float64, float32}, default=float64
            Type of the rows.
        buffered : bool, default=True
            ``False`` regenerates earlier random vectors instead of storing them.  Only
            strategies with a banded inverse can.

        Returns
        -------
        NoiseStream
            An iterator with ``draw(out)``, ``seek(step)`` and ``state``.
        """

    def optimize(
        self, workload: "Workload", *, participations: int = 1, separation: int | None = None
    ) -> "Strategy":
        """Best matrix of the family for a task; a strategy without free parameters is itself.

        Parameters
        ----------
        workload : Workload
            What is to be estimated well.
        participations : int, default=1
            ``k``.
        separation : int, default=None
            ``b``; ``None`` means the number of steps.

        Returns
        -------
        Strategy
        """
        return self

    def plot(self, n: int = 64, *, ax: Any = None) -> Any:
        """Plot the first columns of ``C`` and ``C^-1`` (needs matplotlib).

        Parameters
        ----------
        n : int, default=64
            Number of steps shown.
        ax : matplotlib Axes, default=None
            Where to draw; ``None`` makes a new figure.

        Returns
        -------
        matplotlib Axes
        """
        from ._plot import plot_strategy

        return plot_strategy(self, n, ax=ax)


class ToeplitzStrategy(Strategy):
    """A strategy matrix that is Toeplitz, known by its first column.

    Subclasses compute the first columns (``_column``) and ``apply_inverse``.
    """

    def coef(self, n: int) -> Array:
        """First column of ``C``, computed when first asked for.

        Parameters
        ----------
        n : int
            Number of steps, at least the bandwidth.

        Returns
        -------
        ndarray of shape (n,), read-only
        """
        return _cached_column(self, check_integer("n", n), False)

    def inverse_coef(self, n: int) -> Array:
        """First column of ``C^-1``, computed when first asked for.

        Parameters
        ----------
        n : int
            Number of steps, at least the bandwidth.

        Returns
        -------
        ndarray of shape (n,), read-only
        """
        return _cached_column(self, check_integer("n", n), True)

    @abstractmethod
    def apply_inverse(self, v: ArrayLike) -> Array:
        """Compute ``C^-1 v``, in O(n p).

        Parameters
        ----------
        v : array-like of shape (n,)
            A vector, or the first column of a Toeplitz matrix.

        Returns
        -------
        ndarray of shape (n,)
        """

    @abstractmethod
    def _column(self, n: int, inverse: bool) -> Array:
        """First column of ``C`` or of ``C^-1``."""

    def matrix(self, n: int) -> Array:
        """``C`` as an array; see :meth:`Strategy.matrix`."""
        if check_integer("n", n) > DENSE_LIMIT:
            raise ValueError(
                f"n must be at most {DENSE_LIMIT} for a dense matrix, got {n}; use coef(n)."
            )
        return toeplitz_matrix(self.coef(n), n)


class BandedStrategy(ToeplitzStrategy):
    """A Toeplitz strategy with a banded ``C`` or a banded ``C^-1``.

    Subclasses give the band (``_band``) and say whose it is (``_inverse_is_banded``); the rest
    follows from it.
    """

    _inverse_is_banded: bool

    @abstractmethod
    def _band(self, n: int | None) -> Array:
        """Coefficients of the banded one of ``C`` and ``C^-1``; ``n=None``: for any length."""

    def apply_inverse(self, v: ArrayLike) -> Array:
        """``C^-1 v``; see :meth:`ToeplitzStrategy.apply_inverse`."""
        v = np.asarray(v, dtype=float)
        band = self._checked_band(len(v))
        return multiply(band, v, len(v)) if self._inverse_is_banded else solve(band, v)

    def noise_stream(
        self, shape: Any, rng: Any = None, *, dtype: DTypeLike = np.float64, buffered: bool = True
    ) -> NoiseStream:
        """Rows of ``C^-1 Z``; see :meth:`Strategy.noise_stream`."""
        band = self._band(None)
        if self._inverse_is_banded:
            return FiniteStream(band, shape, rng, dtype, buffered)
        refuse_unbuffered(self, buffered)
        return RecursiveStream(band, shape, rng, dtype)

    def _column(self, n: int, inverse: bool) -> Array:
        band = self._checked_band(n)
        if inverse == self._inverse_is_banded:
            return np.concatenate((band, np.zeros(n - len(band))))
        return solve(band, [1.0], n)

    def _checked_band(self, n: int) -> Array:
        band = self._band(n)
        if len(band) > n:
            raise ValueError(
                f"bandwidth must be at most n, got bandwidth={len(band)} with n={n}: {self!r}."
            )
        return band


def refuse_unbuffered(strategy: Strategy, buffered: bool) -> None:
    """Raise a ValueError where earlier random vectors cannot replace the buffer."""
    if not buffered:
        raise ValueError(
            f"buffered must be True for {strategy!r}: its C^-1 is not banded, so a row depends on "
            "all earlier random vectors."
        )


@lru_cache(maxsize=16)
def _cached_column(strategy: ToeplitzStrategy, n: int, inverse: bool) -> Array:
    column = strategy._column(n, inverse)
    column.flags.writeable = False
    return column
