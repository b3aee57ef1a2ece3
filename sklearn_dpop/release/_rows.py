"""Row access for the linear models: norms, clipping factors and cache-sized blocks.

Records are read in blocks of consecutive rows, each small enough to stay in cache between
the two products that use it.  The partition depends on the shape and the storage of the
matrix and on the number of problems, never on the number of threads, so that sums taken
block by block have the same bits on one core and on many.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["Block", "clip_scales", "load", "partition", "row_norms"]

Matrix: TypeAlias = Any  # ndarray (or memmap), csr_matrix or csr_array, float32 or float64

# Large enough that the interpreter lock changes hands rarely (with 1 MiB two threads are no
# faster than one), small enough for a few blocks to share the last-level cache (from 6 MiB
# the second product waits for memory again); measured by benchmarks/solver_pass.py.
BLOCK_BYTES = 3 * 2**20
# Bounds the error of a sum over the rows of a block when rows are very short.
BLOCK_ROWS = 2**13
# A sparse block costs O(d) beside its entries; this many entries per column make it small.
ENTRIES_PER_COLUMN = 4
# Below this factor the product of an unscaled row could overflow: the row is scaled first.
SMALLEST_DEFERRED_SCALE = 2.0**-500
# Sums of squares in this range lost nothing to underflow and did not overflow.
SAFE_SQUARES = (2.0**-900, 2.0**1000)


class Block(NamedTuple):
    """A block of consecutive rows, without a copy of them.

    Attributes
    ----------
    rows : slice
        Which rows.
    A : ndarray of shape (m, d) or csr_array
        View of these rows.
    AT : ndarray of shape (d, m) or csc_array
        Its transpose, on the same memory.
    values : ndarray
        The stored numbers: `A` itself, or the entries of a sparse block.
    deferred : bool
        Whether the factors of the rows are still to be applied, to the results of the
        products; False where the block holds rows that had to be scaled first.
    """

    rows: slice
    A: Matrix
    AT: Matrix
    values: NDArray[Any]
    deferred: bool


def row_norms(X: Matrix) -> NDArray[np.float64]:
    """Euclidean norms of the rows, read block by block.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n, d)
        Records, float32 or float64, finite.  A CSR matrix has no duplicate entries.

    Returns
    -------
    norms : ndarray of shape (n,)
        Each within a relative error of ``(d/2 + 4) 2**-53``, even where squares overflow
        or underflow; infinite where the norm itself exceeds the largest float.

    Raises
    ------
    ValueError
        If a CSR matrix is not canonical (indices sorted, no duplicates): the norm of a row
        with duplicate entries is not the norm of its stored values.

    Examples
    --------
    >>> import numpy as np
    >>> row_norms(np.array([[3.0, 4.0], [2.0**600, 0.0]])).tolist() == [5.0, 2.0**600]
    True
    """
    norms = np.empty(X.shape[0])
    with np.errstate(all="ignore"):  # an overflow warning would speak of the records
        for block in partition(X, 1):
            if isinstance(block.A, np.ndarray):
                _dense_norms(block.A, out=norms[block.rows])
            else:
                _sparse_norms(block.A, out=norms[block.rows])
    return norms


def _dense_norms(A: NDArray[Any], out: NDArray[np.float64]) -> None:
    values = np.asarray(A, dtype=np.float64)
    np.einsum("ij,ij->i", values, values, out=out)
    unsafe = ~((out >= SAFE_SQUARES[0]) & (out <= SAFE_SQUARES[1]))
    np.sqrt(out, out=out)
    if unsafe.any():
        values = values[unsafe]
        exponents = np.frexp(np.abs(values).max(axis=1, initial=0.0))[1]
        values = np.ldexp(values, -exponents[:, None])
        squares = np.einsum("ij,ij->i", values, values)
        out[unsafe] = np.ldexp(np.sqrt(squares), exponents)


def _sparse_norms(A: Matrix, out: NDArray[np.float64]) -> None:
    values = np.asarray(A.data, dtype=np.float64)
    lengths = np.diff(A.indptr)
    rows = np.repeat(np.arange(out.size), lengths)
    out[:] = np.bincount(rows, values * values, minlength=out.size)
    unsafe = ~((out >= SAFE_SQUARES[0]) & (out <= SAFE_SQUARES[1])) & (lengths > 0)
    np.sqrt(out, out=out)
    if unsafe.any():
        largest = np.zeros(out.size)
        np.maximum.at(largest, rows, np.abs(values))
        exponents = np.frexp(largest)[1]
        values = np.ldexp(values, -exponents[rows])
        squares = np.bincount(rows, values * values, minlength=out.size)
        out[unsafe] = np.ldexp(np.sqrt(squares), exponents)[unsafe]


def clip_scales(X: Matrix, data_norm: float) -> NDArray[np.float64] | None:
    r"""Factors that bring every row to a Euclidean norm of at most `data_norm`.

    The factors are :math:`\min(1, \text{data_norm}/|x_i|)`, rounded down by a relative
    :math:`(2d + 16) 2^{-53}` so that neither the exact norm of the scaled row nor that of
    the row of rounded products exceeds `data_norm`.  A row closer to the bound than the
    rounding error of its norm is scaled too.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n, d)
        Records, float32 or float64, finite.  A CSR matrix has no duplicate entries.
    data_norm : float
        Public bound, in the units of the rows; at least 2**-1000 and finite.

    Returns
    -------
    scales : ndarray of shape (n,) or None
        Factors in [0, 1]; None if no row needs scaling.  A factor is 0 only if the norm
        exceeds `data_norm` by more than the range of floating point numbers.

    Raises
    ------
    ValueError
        If `data_norm` is out of range, or a CSR matrix is not canonical.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.3, 0.4], [3.0, 4.0]])
    >>> clip_scales(X, 1.0).round(12).tolist()
    [1.0, 0.2]
    >>> clip_scales(X, 6.0) is None
    True
    """
    if not 2.0**-1000 <= data_norm < np.inf:
        raise ValueError(f"data_norm must be finite and at least 2**-1000, got {data_norm!r}.")
    norms = row_norms(X)
    slack = (X.shape[1] + 8) * 2.0**-53
    too_long = norms > data_norm * (1.0 - slack)
    if not too_long.any():
        return None
    scales = np.ones(norms.size)
    with np.errstate(all="ignore"):
        # nextafter: a quotient in the subnormal range may have been rounded up by more
        # than the slack.
        scales[too_long] = np.nextafter(data_norm * (1.0 - 2.0 * slack) / norms[too_long], 0.0)
    return scales


def partition(
    X: Matrix, n_problems: int, scales: NDArray[np.float64] | None = None
) -> list[Block]:
    """Cut the rows into blocks that stay in cache.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n, d)
        Records, float32 or float64.
    n_problems : int
        How many float64 values per row the caller keeps beside the row itself.
    scales : ndarray of shape (n,), optional
        Factors of the rows.  Blocks with a factor below 2**-500, whose unscaled products
        could overflow, hold a scaled float64 copy of their rows; all others are views.

    Returns
    -------
    blocks : list of Block
        In the order of the rows, all of the same number of rows but the last.

    Raises
    ------
    ValueError
        If a CSR matrix is not canonical (indices sorted, no duplicates).
    """
    n, d = X.shape
    if sp.issparse(X):
        if not X.has_canonical_format:
            raise ValueError(
                "X must be in canonical CSR format, got duplicate or unsorted indices; "
                "call X.sum_duplicates() first."
            )
        entries = max(X.nnz / n, 1.0)
        row_bytes = entries * (8 + X.indices.itemsize) + 16 * n_problems
        limit = max(BLOCK_ROWS, int(ENTRIES_PER_COLUMN * d / entries))
        view = _csr_view
    else:
        X = np.asarray(X)  # a memmap would pay for its subclass at every slice
        row_bytes = 8 * d + 16 * n_problems
        limit = BLOCK_ROWS
        view = _dense_view
    size = max(16, min(int(BLOCK_BYTES / row_bytes), limit))
    blocks = []
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        factors = None if scales is None else scales[rows]
        if factors is not None and factors.min() >= SMALLEST_DEFERRED_SCALE:
            factors = None
        blocks.append(Block(rows, *view(X, rows, factors), deferred=factors is None))
    return blocks


def _dense_view(
    X: NDArray[Any], rows: slice, factors: NDArray[np.float64] | None
) -> tuple[Matrix, Matrix, NDArray[Any]]:
    A = X[rows]
    if factors is not None:
        A = np.multiply(A, factors[:, None], dtype=np.float64)
    return A, A.T, A


def _csr_view(
    X: Matrix, rows: slice, factors: NDArray[np.float64] | None
) -> tuple[Matrix, Matrix, NDArray[Any]]:
    m, d = rows.stop - rows.start, X.shape[1]
    indptr = X.indptr[rows.start : rows.stop + 1]
    entries = slice(int(indptr[0]), int(indptr[-1]))
    data = X.data[entries]
    if factors is not None:
        data = np.multiply(data, np.repeat(factors, np.diff(indptr)), dtype=np.float64)
    A = sp.csr_array((m, d), dtype=data.dtype)
    AT = sp.csc_array((d, m), dtype=data.dtype)
    for view in (A, AT):  # the constructors copy 64 bit indices to 32 bits
        view.data, view.indices, view.indptr = data, X.indices[entries], indptr - indptr[0]
    return A, AT, data


def load(block: Block, buffer: NDArray[np.float64]) -> tuple[Matrix, Matrix]:
    """Bring a block and its transpose into cache in float64, to be used at once.

    Parameters
    ----------
    block : Block
        One of `partition`.
    buffer : ndarray
        One-dimensional, at least as large as ``block.values``.  Overwritten if the block
        is stored in another type than float64, and then part of the result.

    Returns
    -------
    A, AT : ndarray, or CSR and CSC array, of shapes (m, d) and (d, m)
        The same numbers in float64.
    """
    A, AT, values = block.A, block.AT, block.values
    wide = buffer[: values.size]
    if not isinstance(A, np.ndarray):
        if values.dtype != np.float64:
            np.copyto(wide, values)
            A.data = AT.data = wide
    elif values.dtype != np.float64 or values.itemsize not in values.strides:
        order: Any = "F" if values.strides[0] < values.strides[1] else "C"
        A = wide.reshape(values.shape, order=order)
        np.copyto(A, values)
        AT = A.T
    elif values.flags.c_contiguous:
        # Products of row-major blocks read memory at less than half the speed of this
        # sequential scan, and are then fast in cache.
        flat = values.reshape(-1)
        np.dot(flat, flat)
    return A, AT
