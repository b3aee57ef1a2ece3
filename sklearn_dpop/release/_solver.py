r"""Gradient descent on a perturbed objective, for a public number of steps.

With margins :math:`u_{ik} = y_{ik}\langle x_i, w_k\rangle` and one problem per column
:math:`w_k`, the objective is

.. math:: F_k(w) = \frac1n\sum_{i=1}^n c_i\,\psi(y_{ik}\langle x_i, w\rangle)
          + \frac\mu2|w|^2,

and the release is :math:`w_N` of :math:`w_0 = 0`,
:math:`w_{j+1} = w_j - \eta(\nabla F_k(w_j) + z_k)`, where :math:`z_k` is the noise.  N, eta
and mu are public.  Nothing else that depends on the records leaves this module: there is
no stopping rule, no convergence check, no warning, and floating point errors raise nothing.

**Order of summation.**  A step reads the records once.  They are cut into blocks of B
consecutive rows, and the M blocks into ``L = min(M, 16)`` lanes of consecutive blocks.
Sums over the rows of a block are taken by one thread (of the BLAS, or of scipy for sparse
matrices) in an order of its own; a lane adds its blocks in order, and the lanes are added
in order.  B and the lanes depend on the shape and the storage of the matrix and on K, never
on the number of threads: the same input gives the same bits on one core and on many of the
same machine.

**Length of the sums**, for bounds of rounding errors, all in float64: an entry of the
forward product is a sum of at most d products (stored entries only, for a sparse matrix)
plus the intercept; an entry of the gradient of the data part goes through at most
``B + ceil(M/L) + L`` additions.  ``B <= 8192``, but for a sparse matrix
``B <= max(8192, 4 d n / nnz)``.  A step adds the terms of the gradient in the order
``((mu w + z) + sum/n)``, multiplies by eta and subtracts from w.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from sklearn_dpop.release._losses import MarginLoss
from sklearn_dpop.release._rows import Block, Matrix, clip_scales, load, partition, row_norms

__all__ = ["clip_scales", "perturbed_gradient_descent", "row_norms"]

# Enough for the cores that memory bandwidth can feed; each costs a gradient's memory.
LANES = 16


def perturbed_gradient_descent(
    X: Matrix,
    codes: NDArray[np.integer],
    loss: MarginLoss,
    *,
    positive: Sequence[int],
    noise: NDArray[np.float64],
    mu: float,
    eta: float,
    n_iter: int,
    scales: NDArray[np.float64] | None = None,
    intercept_scaling: float | None = None,
    class_weight: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    r"""Last iterate of gradient descent on K perturbed objectives that share the records.

    Parameters
    ----------
    X : ndarray (or memmap) or CSR matrix of shape (n, d)
        Records, float32 or float64, finite, in any memory order; neither copied nor
        changed.  A CSR matrix has sorted indices without duplicates.
    codes : ndarray of shape (n,)
        Integer class codes 0..C-1.
    loss : MarginLoss
        Called with margins of shape (m,) if K is 1, else (m, K); from several threads.
    positive : sequence of K int
        Problem k has label 1 where ``codes == positive[k]`` and -1 elsewhere.
    noise : ndarray of shape (D, K)
        Column k is the linear term z of problem k, in the units of the gradient; D is d,
        or d + 1 with an intercept.
    mu, eta : float
        Public strength of the regularization and step size, positive.
    n_iter : int
        Public number N >= 1 of steps, all of them taken.
    scales : ndarray of shape (n,), optional
        Row i is used as ``scales[i] * X[i]``; see `clip_scales`.
    intercept_scaling : float, optional
        Public constant appended to every scaled row as its last coordinate; its weight is
        regularized and perturbed like the others.
    class_weight : ndarray of shape (C,), optional
        Public positive weights, :math:`c_i` = ``class_weight[codes[i]]``; 1 by default.

    Returns
    -------
    coef : ndarray of shape (D, K)
        :math:`w_N` of each problem.

    Raises
    ------
    ValueError
        If a shape does not fit, `n_iter` is less than 1, or a CSR matrix has unsorted or
        duplicate indices.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpop.release._losses import LogisticLoss
    >>> X, codes = np.array([[1.0], [-1.0]]), np.array([1, 0])
    >>> coef = perturbed_gradient_descent(
    ...     X, codes, LogisticLoss(), positive=[1], noise=np.zeros((1, 1)),
    ...     mu=0.5, eta=1.0, n_iter=100)
    >>> bool(abs(1 / (1 + np.exp(coef[0, 0])) - 0.5 * coef[0, 0]) < 1e-12)  # -psi'(w) = mu w
    True
    """
    (n, d), n_problems = X.shape, len(positive)
    shape = (d + (intercept_scaling is not None), n_problems)
    if noise.shape != shape:
        raise ValueError(f"noise must have shape {shape}, got {noise.shape}.")
    for name, array in (("codes", codes), ("scales", scales)):
        if array is not None and array.shape != (n,):
            raise ValueError(f"{name} must have shape {(n,)}, got {array.shape}.")
    if n_iter < 1:
        raise ValueError(f"n_iter must be at least 1, got {n_iter!r}.")
    gradient = _DataGradient(X, codes, loss, positive, scales, intercept_scaling, class_weight)
    z = np.ascontiguousarray(noise, dtype=np.float64).reshape(gradient.shape)
    w, step = np.zeros_like(z), np.empty_like(z)
    # Floating point warnings and errors would speak of the records.
    with _one_blas_thread as n_threads, np.errstate(all="ignore"), ExitStack() as stack:
        data_sum = gradient.start(w, n_threads, stack)
        for _ in range(n_iter):
            total = data_sum()
            np.multiply(w, mu, out=step)  # not (1 - eta mu) w, which would round eta mu
            step += z
            total /= n
            step += total
            step *= eta
            w -= step
    return w.reshape(shape)


class _Workspace(NamedTuple):
    """What one thread overwrites while it works on a block."""

    u: NDArray[np.float64]  # (B,) or (B, K): margins, then derivatives
    partial: NDArray[np.float64]  # (D,) or (D, K): the sum over the block
    values: NDArray[np.float64]  # (B d,) or (entries,): the block in float64


class _DataGradient:
    r"""Sums over the records of :math:`c_i y_i \psi'(y_i \langle x_i, w\rangle) x_i`.

    Arrays have no axis over problems if K is 1, so that products are vector products.
    """

    def __init__(
        self,
        X: Matrix,
        codes: NDArray[np.integer],
        loss: MarginLoss,
        positive: Sequence[int],
        scales: NDArray[np.float64] | None,
        intercept_scaling: float | None,
        class_weight: NDArray[np.float64] | None,
    ) -> None:
        (n, self.d), K = X.shape, len(positive)
        problems, per_row = ((), (n,)) if K == 1 else ((K,), (n, 1))
        self.shape = (self.d + (intercept_scaling is not None), *problems)
        self.loss = loss
        signs = np.full((n, K), -1, dtype=np.int8)
        for k, code in enumerate(positive):
            signs[codes == code, k] = 1
        self.signs = signs.reshape(n, *problems)
        self.scales = None if scales is None else scales.reshape(per_row)
        self.weights = None if class_weight is None else class_weight[codes].reshape(per_row)

        blocks = partition(X, K, scales)
        n_lanes = min(len(blocks), LANES)
        cuts = [len(blocks) * i // n_lanes for i in range(n_lanes + 1)]
        self.lanes = [blocks[a:b] for a, b in pairwise(cuts)]
        self.block_shape = (blocks[0].rows.stop, *problems)
        self.block_values = max(block.values.size for block in blocks)
        self.intercepts = None
        if intercept_scaling is not None:
            self.intercepts = np.full(self.block_shape[0], float(intercept_scaling))

    def start(
        self, w: NDArray[np.float64], n_threads: int, stack: ExitStack
    ) -> Callable[[], NDArray[np.float64]]:
        """Return a function that sums over all records at the current value of `w`.

        Its threads end with `stack`; its result lasts until the next call.
        """
        if len(self.lanes) == len(self.lanes[0]) == 1:
            return self._start_single_block(w)

        n_threads = min(n_threads, len(self.lanes))
        works = [self._workspace() for _ in range(n_threads)]
        sums = np.empty((len(self.lanes), *self.shape))
        total = np.empty(self.shape)
        # Some BLAS keep one limit for each calling thread.
        pool = ThreadPoolExecutor(n_threads, initializer=partial(_blas().limit, limits=1))
        stack.enter_context(pool)

        def run_share(t: int) -> None:
            with np.errstate(all="ignore"):  # each thread has its own setting
                for lane, out in zip(self.lanes[t::n_threads], sums[t::n_threads], strict=True):
                    self._sum_lane(lane, w, out, works[t])

        def sum_lanes() -> NDArray[np.float64]:
            shares = [pool.submit(run_share, t) for t in range(1, n_threads)]
            run_share(0)
            for share in shares:
                share.result()
            return np.add.reduce(sums, axis=0, out=total)

        return sum_lanes

    def _start_single_block(self, w: NDArray[np.float64]) -> Callable[[], NDArray[np.float64]]:
        """Like `start`, without threads and loading the block once."""
        (block,) = self.lanes[0]
        total, work = np.empty(self.shape), self._workspace()
        A, AT = load(block, work.values)

        def sum_block() -> NDArray[np.float64]:
            self._sum_block(block, A, AT, w, total, work)
            return total

        return sum_block

    def _workspace(self) -> _Workspace:
        return _Workspace(
            np.empty(self.block_shape), np.empty(self.shape), np.empty(self.block_values)
        )

    def _sum_lane(
        self,
        lane: list[Block],
        w: NDArray[np.float64],
        out: NDArray[np.float64],
        work: _Workspace,
    ) -> None:
        for i, block in enumerate(lane):
            A, AT = load(block, work.values)
            self._sum_block(block, A, AT, w, work.partial if i else out, work)
            if i:
                out += work.partial

    def _sum_block(
        self,
        block: Block,
        A: Matrix,
        AT: Matrix,
        w: NDArray[np.float64],
        out: NDArray[np.float64],
        work: _Workspace,
    ) -> None:
        rows, d = block.rows, self.d
        u = work.u[: A.shape[0]]
        signs = self.signs[rows]
        scales = self.scales[rows] if self.scales is not None and block.deferred else None

        _product(A, w[:d], out=u)
        if scales is not None:
            u *= scales
        if self.intercepts is not None:
            u += self.intercepts[0] * w[d]
        u *= signs
        self.loss.derivative(u, out=u)
        u *= signs
        if self.weights is not None:
            u *= self.weights[rows]
        if self.intercepts is not None:
            out[d] = self.intercepts[: A.shape[0]] @ u
        if scales is not None:
            u *= scales
        _product(AT, u, out=out[:d])


def _product(A: Matrix, b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    if isinstance(A, np.ndarray):
        np.matmul(A, b, out=out)
    else:
        out[...] = A @ b


@cache
def _blas() -> ThreadpoolController:
    """Return control over the threads of the BLAS that numpy has loaded."""
    return ThreadpoolController().select(user_api="blas")


class _OneBlasThread:
    """While any solver runs, every BLAS product is taken by one thread.

    The number of threads of a BLAS belongs to the process: the first solver to start saves
    it and the last to end restores it, or solvers running at the same time would undo each
    other's limit.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._n_threads = 1
        self._limit = ExitStack()

    def __enter__(self) -> int:
        """Return how many threads the BLAS was allowed: as many may share the lanes."""
        with self._lock:
            if self._running == 0:
                self._n_threads = max((lib["num_threads"] for lib in _blas().info()), default=1)
                self._limit.enter_context(_blas().limit(limits=1))
            self._running += 1
            return self._n_threads

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._running -= 1
            if self._running == 0:
                self._limit.close()


_one_blas_thread = _OneBlasThread()
