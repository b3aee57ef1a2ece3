"""Uniform B-splines on a fixed public grid, by their local closed form.

The grid never adapts to data: a knot placed by looking at records would be a release of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral

import torch
from torch import Tensor

__all__ = ["MAX_DEGREE", "SplineBasis"]

MAX_DEGREE = 5


@dataclass(frozen=True)
class SplineBasis:
    """The ``n_basis`` uniform B-splines of one degree that cover ``[low, high]``.

    The interval is cut into ``n_basis - degree`` cells of equal width ``h``.  With ``N_g`` the
    cardinal B-spline of degree ``g`` (support ``[0, g + 1]``), basis ``k`` is
    ``b_k(x) = N_g((x - low) / h + g - k)``.  On ``[low, high]`` the bases are nonnegative and
    sum to one, and in each cell ``degree + 1`` of them are not zero.

    Values outside the interval are clamped to it first, so every basis is constant there; NaN
    counts as ``low``.  Hence the features of any record are finite and bounded.

    Parameters
    ----------
    degree : int, default=3
        From 0 (steps) to 5.
    n_basis : int, default=8
        Number of bases, at least ``degree + 1``.
    low, high : float, default=-1.0, 1.0
        The grid, public; ``low < high``.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    Examples
    --------
    >>> import torch
    >>> basis = SplineBasis(degree=1, n_basis=3)
    >>> basis.dense(torch.tensor([-1.0, 0.5]))
    tensor([[1.0000, 0.0000, 0.0000],
            [0.0000, 0.5000, 0.5000]])
    """

    degree: int = 3
    n_basis: int = 8
    low: float = -1.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not _is_integer(self.degree) or not 0 <= self.degree <= MAX_DEGREE:
            raise ValueError(
                f"degree must be an integer between 0 and {MAX_DEGREE}, got {self.degree!r}."
            )
        if not _is_integer(self.n_basis) or self.n_basis <= self.degree:
            raise ValueError(
                f"n_basis must be an integer of at least degree + 1 = {self.degree + 1}, "
                f"got {self.n_basis!r}."
            )
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(
                "low and high must be finite numbers with low < high, "
                f"got low={self.low!r} and high={self.high!r}."
            )

    @property
    def n_cells(self) -> int:
        """Number of cells of the grid."""
        return self.n_basis - self.degree

    @property
    def cell_width(self) -> float:
        """Width of a cell."""
        return (self.high - self.low) / self.n_cells

    def local(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Cell of every point and the values of the bases that are not zero there.

        Parameters
        ----------
        x : Tensor, float32 or float64
            Points.

        Returns
        -------
        cell : Tensor of int64, shape of `x`
            From 0 to ``n_cells - 1``.
        values : list of ``degree + 1`` Tensors, shape of `x`
            ``values[r]`` belongs to basis ``cell + r``.

        Examples
        --------
        >>> import torch
        >>> cell, values = SplineBasis(degree=1, n_basis=3).local(torch.tensor([0.25]))
        >>> cell, values
        (tensor([1]), [tensor([0.7500]), tensor([0.2500])])
        """
        cell, u = self._cell(x)
        return cell.long(), _cell_values(u, self.degree)[0]

    def local_slopes(self, x: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Like `local`, with the derivatives of the values.

        Parameters
        ----------
        x : Tensor, float32 or float64
            Points.

        Returns
        -------
        cell : Tensor of int64, shape of `x`
        values, slopes : lists of ``degree + 1`` Tensors, shape of `x`
            ``slopes[r]`` is the derivative of ``values[r]`` with respect to `x`: zero outside
            the grid, and at a knot that of the cell to its right.

        Examples
        --------
        >>> import torch
        >>> SplineBasis(degree=1, n_basis=3).local_slopes(torch.tensor([0.25]))[2]
        [tensor([-1.]), tensor([1.])]
        """
        cell, u = self._cell(x)
        values, lower = _cell_values(u, self.degree)
        inside = ((x >= self.low) & (x <= self.high)).to(x.dtype)
        if self.degree == 0:
            return cell.long(), values, [torch.zeros_like(inside)]
        # N_g'(t) = N_{g-1}(t) - N_{g-1}(t - 1); `lower` holds N_{g-1} / g.
        inside = inside * (self.degree / self.cell_width)
        slopes = [-lower[0] * inside]
        slopes += [(left - right) * inside for left, right in pairwise(lower)]
        slopes.append(lower[-1] * inside)
        return cell.long(), values, slopes

    def dense(self, x: Tensor) -> Tensor:
        """Values of all bases.

        Parameters
        ----------
        x : Tensor, float32 or float64
            Points.

        Returns
        -------
        values : Tensor of shape (*x.shape, n_basis)

        Examples
        --------
        >>> import torch
        >>> SplineBasis(degree=2, n_basis=4).dense(torch.tensor([[0.0], [2.0]]))
        tensor([[[0.0000, 0.5000, 0.5000, 0.0000]],
        <BLANKLINE>
                [[0.0000, 0.0000, 0.5000, 0.5000]]])
        """
        columns = x.new_zeros(1, self.n_basis, x.numel())
        cell, values = self.local(x.reshape(1, -1))
        scatter_local_(columns, scatter_index(cell, self.n_basis), values)
        return columns[0].T.reshape(*x.shape, self.n_basis)

    def at(self, point: float) -> list[float]:
        """Values of all bases at one public point, in double precision.

        Parameters
        ----------
        point : float

        Returns
        -------
        values : list of ``n_basis`` floats

        Examples
        --------
        >>> SplineBasis(degree=1, n_basis=3).at(0.0)
        [0.0, 1.0, 0.0]
        """
        values: list[float] = self.dense(torch.tensor([point], dtype=torch.float64))[0].tolist()
        return values

    def _cell(self, x: Tensor) -> tuple[Tensor, Tensor]:
        # Clamped twice: before, because far away the cubic of the last cell is anything but
        # bounded, and after, because the product may round to just above n_cells.
        inside = torch.nan_to_num(x, nan=self.low).clamp(self.low, self.high)
        position = ((inside - self.low) * (1 / self.cell_width)).clamp(0, self.n_cells)
        cell = position.detach().floor().clamp(max=self.n_cells - 1)
        return cell, position - cell


def scatter_index(cell: Tensor, columns: int) -> Tensor:
    """Where basis ``cell`` of every value lies in columns laid out in a row per record.

    Parameters
    ----------
    cell : Tensor of int64, shape (rows, d)
    columns : int
        Number of columns of the target.

    Returns
    -------
    index : Tensor of int64, shape (rows * d,)
        Position in the flat target of shape (rows, columns, d).

    Examples
    --------
    >>> import torch
    >>> scatter_index(torch.tensor([[0, 1], [2, 0]]), 3)
    tensor([ 0,  3, 10,  7])
    """
    rows, d = cell.shape
    first = torch.arange(rows, device=cell.device).mul_(columns * d).unsqueeze(1)
    return (first + torch.arange(d, device=cell.device)).add_(cell, alpha=d).view(-1)


def scatter_local_(out: Tensor, index: Tensor, values: list[Tensor]) -> None:
    """Write local values into zeroed columns.

    Parameters
    ----------
    out : Tensor of shape (rows, columns, d), contiguous, zero
        Column ``k`` of row ``n`` holds basis ``k`` at ``x[n]``.
    index : Tensor of int64, shape (rows * d,)
        From `scatter_index`, of cells with ``cell + len(values) <= columns``.
    values : list of Tensors of shape (rows, d)
        As from `SplineBasis.local`.

    Examples
    --------
    >>> import torch
    >>> out = torch.zeros(1, 3, 2)
    >>> index = scatter_index(torch.tensor([[0, 1]]), 3)
    >>> scatter_local_(out, index, [torch.full((1, 2), 5.0), torch.full((1, 2), 6.0)])
    >>> out
    tensor([[[5., 0.],
             [6., 5.],
             [0., 6.]]])
    """
    flat = out.view(-1)
    for r, value in enumerate(values):
        # One index for all: basis cell + r lies r * d further on.
        flat[r * out.shape[2] :].scatter_(0, index, value.reshape(-1))


def _cell_values(u: Tensor, degree: int) -> tuple[list[Tensor], list[Tensor]]:
    """Values of the bases in a cell at ``u`` in [0, 1], and those of one degree less over degree.

    The recursion of Cox and de Boor on a uniform grid,
    ``j N_j(t) = t N_{j-1}(t) + (j + 1 - t) N_{j-1}(t - 1)``, at ``t = u + j - r``: only sums of
    nonnegative terms.  The factors ``1 / j`` are applied once, at the start.
    """
    if degree == 0:
        return [torch.ones_like(u)], []
    up = [u + k if k else u for k in range(degree)]
    down = [k - u for k in range(1, degree + 1)]
    factor = 1 / math.factorial(degree)
    lower: list[Tensor] = [torch.full_like(u, factor)]
    values = [down[0] * factor, u * factor]
    for j in range(2, degree + 1):
        lower = values
        # Not addcmul, which may round once or twice: features computed again, in another
        # batch, have the same bits.
        middle = [up[j - r] * lower[r - 1] + down[r] * lower[r] for r in range(1, j)]
        values = [down[0] * lower[0], *middle, up[0] * lower[-1]]
    return values, lower


def _is_integer(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
