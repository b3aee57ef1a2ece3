"""The solver and its access to rows, against slow dense evaluations and exact arithmetic."""

import _thread
import signal
import threading
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_info, threadpool_limits

from sklearn_dpop.release import _rows, _solver
from sklearn_dpop.release._losses import LogisticLoss, SmoothedHingeLoss
from sklearn_dpop.release._solver import clip_scales, perturbed_gradient_descent, row_norms


class LinearLoss:
    """psi(u) = -u: the iterates have a closed form."""

    def derivative(self, u, out=None):
        out = np.empty_like(u) if out is None else out
        out[...] = -1.0
        return out


def dense(X):
    return X.toarray() if sp.issparse(X) else np.asarray(X)


def softplus_derivative(margin, temperature):
    return lambda u: -1 / (1 + np.exp((u - margin) / temperature))


def slow_descent(
    X,
    codes,
    derivative,
    *,
    positive,
    noise,
    mu,
    eta,
    n_iter,
    scales=None,
    intercept_scaling=None,
    class_weight=None,
):
    """The definition, in extended precision, one problem at a time, on a copy of X."""
    X = dense(X).astype(np.longdouble)
    n = len(X)
    if scales is not None:
        X = X * scales[:, None]
    if intercept_scaling is not None:
        X = np.hstack([X, np.full((n, 1), intercept_scaling, dtype=X.dtype)])
    c = np.ones(n) if class_weight is None else np.array([class_weight[code] for code in codes])
    solutions = []
    for k, code in enumerate(positive):
        y = np.where(codes == code, 1, -1)
        w = np.zeros(X.shape[1], dtype=X.dtype)
        for _ in range(n_iter):
            gradient = X.T @ (c * y * derivative(y * (X @ w))) / n + mu * w
            w = w - eta * (gradient + noise[:, k])
        solutions.append(w)
    return np.stack(solutions, axis=1).astype(np.float64)


def problem(n=200, d=6, n_classes=3, n_problems=None, intercept=False, dtype=np.float64, seed=0):
    """Random records with zeros (so that every storage has something to skip), and noise."""
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.6)).astype(dtype)
    n_problems = n_classes if n_problems is None else n_problems
    return X, {
        "codes": rng.integers(0, n_classes, n),
        "positive": [(k + 1) % n_classes for k in range(n_problems)],
        "noise": 0.1 * rng.standard_normal((d + intercept, n_problems)),
        "mu": 0.05,
        "eta": 0.7,
        "n_iter": 25,
    }


def random_csr(n, d, entries):
    """About `entries` ones in each row."""
    rng = np.random.default_rng(0)
    rows, columns = np.repeat(np.arange(n), entries), rng.integers(0, d, n * entries)
    X = sp.csr_array((np.ones(n * entries), (rows, columns)), shape=(n, d))
    X.data[:] = 1.0
    return X


def csr_with_int64(X, cls):
    S = cls(X)
    S.indices, S.indptr = S.indices.astype(np.int64), S.indptr.astype(np.int64)
    return S


STORAGES = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "every_other_row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "reversed_columns": lambda X: np.ascontiguousarray(X[:, ::-1])[:, ::-1],
    "every_other_entry": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "big_endian": lambda X: X.astype(X.dtype.newbyteorder(">")),
    "csr_array": sp.csr_array,
    "csr_matrix": sp.csr_matrix,
    "csr_array_int64": lambda X: csr_with_int64(X, sp.csr_array),
    "csr_matrix_int64": lambda X: csr_with_int64(X, sp.csr_matrix),
}


@pytest.fixture(params=["one_block", "many_blocks"])
def blocks(request, monkeypatch):
    if request.param == "many_blocks":
        monkeypatch.setattr(_rows, "BLOCK_BYTES", 1)  # blocks of 16 rows, the least
        monkeypatch.setattr(_rows, "ENTRIES_PER_COLUMN", 0)


@pytest.fixture
def submitted(monkeypatch):
    """Count the shares of work that were given to other threads."""
    count = []

    class Pool(_solver.ThreadPoolExecutor):
        def submit(self, *args):
            count.append(1)
            return super().submit(*args)

    monkeypatch.setattr(_solver, "ThreadPoolExecutor", Pool)
    return count


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_problems", [1, 3])
@pytest.mark.parametrize("storage", STORAGES)
def test_every_storage_against_the_definition(storage, n_problems, dtype):
    X, arguments = problem(n=333, n_problems=n_problems, intercept=True, dtype=dtype)
    stored = STORAGES[storage](X)
    arguments |= {
        "scales": clip_scales(X, 1.5),
        "intercept_scaling": 2.0,
        "class_weight": np.array([0.5, 1.0, 3.0]),
    }
    expected = slow_descent(X, derivative=softplus_derivative(0.5, 1.0), **arguments)
    assert np.abs(expected).min() > 1e-3  # so that the comparison means something
    actual = perturbed_gradient_descent(stored, loss=LogisticLoss(margin=0.5), **arguments)
    assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("with_scales", [False, True])
@pytest.mark.parametrize("with_weights", [False, True])
@pytest.mark.parametrize("intercept_scaling", [None, 0.5])
@pytest.mark.parametrize("n_problems", [1, 3])
def test_every_combination_of_options(n_problems, intercept_scaling, with_weights, with_scales):
    X, arguments = problem(n_problems=n_problems, intercept=intercept_scaling is not None)
    if with_scales:
        arguments["scales"] = np.random.default_rng(1).random(len(X))
    if with_weights:
        arguments["class_weight"] = np.array([2.0, 0.25, 1.0])
    arguments["intercept_scaling"] = intercept_scaling
    expected = slow_descent(X, derivative=softplus_derivative(1.0, 0.25), **arguments)
    actual = perturbed_gradient_descent(X, loss=SmoothedHingeLoss(), **arguments)
    assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("storage", ["C", "F", "csr_array"])
@pytest.mark.parametrize(
    ("n", "d", "n_problems"),
    [(1, 1, 1), (1, 5, 2), (7, 1, 1), (16, 3, 1), (17, 1, 30), (100, 2, 2), (256, 4, 1)],
)
def test_shapes(n, d, n_problems, storage):
    X, arguments = problem(n=n, d=d, n_classes=max(n_problems, 2), n_problems=n_problems)
    expected = slow_descent(X, derivative=softplus_derivative(0.0, 1.0), **arguments)
    actual = perturbed_gradient_descent(STORAGES[storage](X), loss=LogisticLoss(), **arguments)
    assert actual.shape == (d, n_problems)
    assert actual.dtype == np.float64
    assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("storage", ["C", "F", "csr_array"])
def test_empty_rows_and_columns_of_a_sparse_matrix(storage):
    X, arguments = problem(n=90)
    X[20:50] = 0  # a whole block, if blocks have 16 rows
    X[:, 2] = 0
    expected = slow_descent(X, derivative=softplus_derivative(0.0, 1.0), **arguments)
    actual = perturbed_gradient_descent(STORAGES[storage](X), loss=LogisticLoss(), **arguments)
    assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("n_problems", [2, 10, 30])
def test_problems_together_equal_problems_alone(n_problems):
    X, arguments = problem(n_classes=n_problems + 1, n_problems=n_problems)
    positive, noise = arguments.pop("positive"), arguments.pop("noise")
    together = perturbed_gradient_descent(
        X, loss=LogisticLoss(), positive=positive, noise=noise, **arguments
    )
    for k in range(n_problems):
        alone = perturbed_gradient_descent(
            X, loss=LogisticLoss(), positive=[positive[k]], noise=noise[:, [k]], **arguments
        )
        assert_allclose(together[:, [k]], alone, rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(
    ("n", "d", "mu", "eta", "n_iter"),
    [
        (40, 3, 0.1, 1.0, 1),
        (40, 3, 0.1, 1.0, 2),
        (40, 3, 0.1, 1.0, 300),
        (40, 3, 1e-9, 1e-9, 300),
        (40, 3, 1e-3, 1e-15, 300),
        (5, 1, 1e-3, 0.02, 50_000),
        (1, 1, 1.0, 0.9, 10),
    ],
)
def test_closed_form_of_the_linear_loss(n, d, mu, eta, n_iter):
    # The recursion w <- rho w - eta (b + z), rho = 1 - eta mu, from w = 0.
    X, arguments = problem(n=n, d=d, n_classes=2, n_problems=1)
    arguments |= {"mu": mu, "eta": eta, "n_iter": n_iter}
    y = np.where(arguments["codes"] == 1, 1.0, -1.0)
    b = -(y @ X) / n
    one_minus_power = -np.expm1(n_iter * np.log1p(-np.longdouble(eta) * mu))
    expected = -one_minus_power / mu * (b[:, None] + arguments["noise"])
    actual = perturbed_gradient_descent(X, loss=LinearLoss(), **arguments)
    assert_allclose(actual, expected.astype(np.float64), rtol=1e-12)


@pytest.mark.slow
def test_a_million_steps():
    # Closed form of the linear loss, as above.
    mu, eta, n_iter = 1e-3, 1e-3, 10**6
    X, z = np.array([[0.25], [-0.5]]), np.array([[0.125]])
    expected = np.expm1(n_iter * np.log1p(-eta * mu)) / mu * (0.125 - 0.375)
    actual = perturbed_gradient_descent(
        X, np.array([1, 0]), LinearLoss(), positive=[1], noise=z, mu=mu, eta=eta, n_iter=n_iter
    )
    assert_allclose(actual, [[expected]], rtol=1e-11)


@pytest.mark.usefixtures("blocks")
def test_many_steps_reach_the_stationary_point():
    # grad F(w) + z = 0, evaluated here in extended precision.
    X, arguments = problem(n_problems=1, n_classes=2)
    arguments |= {"n_iter": 3000, "mu": 0.1, "eta": 1.0}
    w = perturbed_gradient_descent(X, loss=LogisticLoss(), **arguments).astype(np.longdouble)
    y = np.where(arguments["codes"] == 1, 1, -1)
    u = y * (X @ w[:, 0])
    gradient = X.T @ (-y / (1 + np.exp(u))) / len(X) + 0.1 * w[:, 0] + arguments["noise"][:, 0]
    assert np.abs(w).max() > 0.1
    assert np.abs(gradient).max() < 1e-15


def test_memmap(tmp_path):
    X, arguments = problem(n=500)
    X.tofile(tmp_path / "X")
    mapped = np.memmap(tmp_path / "X", dtype=X.dtype, mode="r", shape=X.shape)
    expected = perturbed_gradient_descent(X, loss=LogisticLoss(), **arguments)
    actual = perturbed_gradient_descent(mapped, loss=LogisticLoss(), **arguments)
    assert type(actual) is np.ndarray
    assert_array_equal(actual, expected)
    assert_array_equal(row_norms(mapped), row_norms(X))


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("storage", STORAGES)
def test_records_and_arguments_are_left_unchanged(storage):
    X, arguments = problem()
    stored = STORAGES[storage](X)
    arguments["scales"] = clip_scales(stored, 1.0)
    before = {name: np.copy(value) for name, value in arguments.items()}
    arrays = (stored.data, stored.indices, stored.indptr) if sp.issparse(stored) else (stored,)
    copies = [np.copy(array) for array in arrays]
    for array in (*arrays, arguments["noise"], arguments["codes"], arguments["scales"]):
        array.flags.writeable = False
    perturbed_gradient_descent(stored, loss=LogisticLoss(), **arguments)
    for array, copy in zip(arrays, copies, strict=True):
        assert_array_equal(array, copy)
    for name, value in before.items():
        assert_array_equal(arguments[name], value)


@pytest.mark.parametrize("n_problems", [1, 3])
@pytest.mark.parametrize("storage", ["float32", "F", "csr", "csr_int64"])
def test_memory_stays_far_below_a_copy_of_the_records(storage, n_problems):
    n, d = 200_000, 50
    X = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    if storage == "F":
        X = np.asfortranarray(X, dtype=np.float64)
    elif storage != "float32":
        X = sp.csr_array(X)
        if storage == "csr_int64":
            X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    size = X.data.nbytes + X.indices.nbytes if sp.issparse(X) else X.nbytes
    codes = np.random.default_rng(1).integers(0, 3, n, dtype=np.int8)
    tracemalloc.start()
    try:
        scales = clip_scales(X, 7.0)
        clip_peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        with threadpool_limits(2, user_api="blas"):
            perturbed_gradient_descent(
                X,
                codes,
                LogisticLoss(),
                positive=range(n_problems),
                noise=np.zeros((d, n_problems)),
                mu=0.1,
                eta=0.1,
                n_iter=2,
                scales=scales,
            )
        solve_peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert clip_peak < size / 3
    assert solve_peak < size / 3


@pytest.mark.parametrize(("d", "n_problems"), [(28, 1), (28, 3), (101, 10)])
@pytest.mark.parametrize("storage", ["C", "F", "csr_array", "every_other_entry"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_same_bits_on_one_thread_and_on_many(
    storage, dtype, d, n_problems, monkeypatch, submitted
):
    # Blocks of about 1000 rows for d = 101: a BLAS left alone splits them among its threads,
    # and the sums of 10 problems then depend on the number of threads.
    monkeypatch.setattr(_rows, "BLOCK_BYTES", 2**20)
    X, arguments = problem(n=30_011, d=d, n_classes=11, n_problems=n_problems, dtype=dtype)
    X, arguments["n_iter"] = STORAGES[storage](X), 3
    results = []
    for limit in (1, 2, 3):
        submitted.clear()
        with threadpool_limits(limit, user_api="blas"):
            results.append(perturbed_gradient_descent(X, loss=LogisticLoss(), **arguments))
        assert len(submitted) == (limit - 1) * arguments["n_iter"]
    assert_array_equal(results[1], results[0])
    assert_array_equal(results[2], results[0])


def blas_threads():
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}


def test_overlapping_solvers_restore_the_limit_of_the_blas():
    limit = _solver._OneBlasThread()
    with threadpool_limits(2, user_api="blas"):
        assert limit.__enter__() == 2
        assert limit.__enter__() == 2
        limit.__exit__(None, None, None)
        assert blas_threads() == {1}
        limit.__exit__(None, None, None)
        assert blas_threads() == {2}


@pytest.mark.parametrize("thread", ["main", "other"])
def test_an_error_of_the_loss_is_raised_and_ends_the_threads(thread, monkeypatch):
    class FailingLoss(LogisticLoss):
        def derivative(self, u, out=None):
            in_main = threading.current_thread() is threading.main_thread()
            if in_main == (thread == "main"):
                raise ArithmeticError("from the loss")
            return super().derivative(u, out)

    monkeypatch.setattr(_rows, "BLOCK_BYTES", 1)
    X, arguments = problem()
    before = threading.active_count()
    with threadpool_limits(2, user_api="blas"):
        with pytest.raises(ArithmeticError, match="from the loss"):
            perturbed_gradient_descent(X, loss=FailingLoss(), **arguments)
        assert blas_threads() == {2}
    assert threading.active_count() == before


@pytest.mark.usefixtures("blocks")
def test_keyboard_interrupt_stops_the_solver_and_its_threads():
    X, arguments = problem()
    arguments["n_iter"] = 10**9
    before = threading.active_count()
    # A process started in the background of a shell ignores the signal unless told not to.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer = threading.Timer(0.2, _thread.interrupt_main)
        timer.start()
        with threadpool_limits(2, user_api="blas"), pytest.raises(KeyboardInterrupt):
            perturbed_gradient_descent(X, loss=LogisticLoss(), **arguments)
        timer.join()
    finally:
        signal.signal(signal.SIGINT, previous)
    assert threading.active_count() == before


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("storage", ["C", "F", "csr_array"])
def test_huge_and_tiny_rows_raise_nothing_and_stay_within_the_bound(storage, recwarn):
    # A record must not be able to announce itself, or to reach beyond the clipping bound.
    X, arguments = problem(n=100, d=4)
    X[3] = [1e200, -1e200, 0.0, 1e190]
    X[40] = [1.5e308, 0.0, -1.0, 0.0]
    X[41] = 1.7e308  # its norm exceeds the largest float: used as a row of zeros
    X[70] = 1e-200
    X[71] = 5e-324
    stored = STORAGES[storage](X)
    with np.errstate(all="raise"):
        arguments["scales"] = scales = clip_scales(stored, 1.0)
        actual = perturbed_gradient_descent(stored, loss=LogisticLoss(), **arguments)
    assert len(recwarn) == 0
    assert scales[41] == 0.0
    assert_allclose(np.linalg.norm(scales[[3, 40], None] * X[[3, 40]], axis=1), 1.0, rtol=1e-13)
    expected = slow_descent(X, derivative=softplus_derivative(0.0, 1.0), **arguments)
    assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)


def test_overflow_in_the_loss_raises_nothing_in_any_thread(recwarn, monkeypatch):
    class UnguardedLoss:
        def derivative(self, u, out=None):
            return np.divide(-1.0, 1.0 + np.exp(u), out=out)

    monkeypatch.setattr(_rows, "BLOCK_BYTES", 1)
    X, arguments = problem()
    arguments["noise"] *= 1e5  # margins whose exponentials overflow
    with threadpool_limits(2, user_api="blas"), np.errstate(all="raise"):
        actual = perturbed_gradient_descent(X, loss=UnguardedLoss(), **arguments)
    assert len(recwarn) == 0
    assert_allclose(actual, perturbed_gradient_descent(X, loss=LogisticLoss(), **arguments))


@pytest.mark.parametrize("reverse", [False, True])
def test_sparse_matrix_with_duplicate_or_unsorted_indices_is_refused(reverse):
    indices = [1, 0] if reverse else [0, 0]
    X = sp.csr_array((np.array([0.6, 0.6]), indices, [0, 2]), shape=(1, 2))
    with pytest.raises(ValueError, match=r"X must be in canonical CSR format.*sum_duplicates"):
        row_norms(X)
    with pytest.raises(ValueError, match=r"X must be in canonical CSR format.*sum_duplicates"):
        perturbed_gradient_descent(
            X,
            np.array([1]),
            LogisticLoss(),
            positive=[1],
            noise=np.zeros((2, 1)),
            mu=1.0,
            eta=1.0,
            n_iter=1,
        )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("noise", np.zeros((5, 3)), r"noise must have shape \(6, 3\), got \(5, 3\)"),
        ("noise", np.zeros((6, 2)), r"noise must have shape \(6, 3\), got \(6, 2\)"),
        ("intercept_scaling", 1.0, r"noise must have shape \(7, 3\), got \(6, 3\)"),
        ("codes", np.zeros(3, dtype=int), r"codes must have shape \(200,\), got \(3,\)"),
        ("scales", np.ones((200, 1)), r"scales must have shape \(200,\), got \(200, 1\)"),
        ("n_iter", 0, "n_iter must be at least 1, got 0"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(name, value, message):
    X, arguments = problem()
    with pytest.raises(ValueError, match=message):
        perturbed_gradient_descent(X, loss=LogisticLoss(), **(arguments | {name: value}))


@pytest.mark.parametrize("data_norm", [0.0, -1.0, np.inf, np.nan, 1e-305])
def test_clip_scales_refuses_bounds_out_of_range(data_norm):
    with pytest.raises(ValueError, match="data_norm must be finite and at least"):
        clip_scales(np.ones((2, 2)), data_norm)


@pytest.mark.parametrize(
    ("X", "n_problems", "most"),
    [
        (np.zeros((100_000, 1)), 1, 8192),
        (np.zeros((20_000, 30)), 1, 8192),
        (np.zeros((40, 100_000), dtype=np.float32), 1, 16),
        (random_csr(20_000, 100, 5), 1, 8192),
        (random_csr(50_000, 20_000, 2), 1, 40_000),
    ],
)
def test_blocks_cover_the_rows_and_keep_the_documented_length(X, n_problems, most):
    blocks = _rows.partition(X, n_problems)
    assert max(block.rows.stop - block.rows.start for block in blocks) <= most
    covered = [np.arange(X.shape[0])[block.rows] for block in blocks]
    assert_array_equal(np.concatenate(covered), np.arange(X.shape[0]))
    for block in blocks[:: max(1, len(blocks) // 3)]:
        assert abs(block.A - X[block.rows]).max() == 0
        assert abs(block.AT.T - X[block.rows]).max() == 0
        values = block.values
        assert np.shares_memory(values, X.data if sp.issparse(X) else X)


def exact_square(row):
    return sum((Fraction(float(x)) ** 2 for x in row), Fraction(0))


finite = st.floats(allow_nan=False, allow_infinity=False)
near_one = st.floats(0.25, 4.0) | st.just(0.0)
rows_of = st.one_of(
    st.lists(finite, min_size=1, max_size=5),
    st.lists(near_one, min_size=1, max_size=40),
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=5),
)


@settings(max_examples=400, deadline=None)
@given(row=rows_of, sparse=st.booleans())
def test_row_norms_are_accurate(row, sparse):
    X = np.array([row, np.zeros(len(row))])
    norm, zero = row_norms(sp.csr_array(X) if sparse else X)
    assert zero == 0.0
    square = exact_square(row)
    if np.isinf(norm):
        assert square > Fraction(np.finfo(float).max) ** 2 * (1 - Fraction(1, 2**40))
        return
    relative = Fraction(len(row), 2) + 4
    slack = relative / 2**53
    tiniest = Fraction(5e-324)
    assert square <= (Fraction(norm) * (1 + slack) + tiniest) ** 2
    assert square >= max(0, Fraction(norm) * (1 - slack) - tiniest) ** 2


@settings(max_examples=400, deadline=None)
@given(
    row=rows_of,
    sparse=st.booleans(),
    single=st.booleans(),
    data_norm=st.floats(0.125, 8.0) | st.floats(1e-300, 1e300),
    at_bound=st.booleans(),
)
def test_scaled_rows_never_exceed_the_bound(row, sparse, single, data_norm, at_bound):
    with np.errstate(over="ignore"):
        X = np.array([row]).astype(np.float32 if single else np.float64)
    if not np.isfinite(X).all():
        return
    stored = sp.csr_array(X) if sparse else X
    if at_bound and 1e-300 < row_norms(stored)[0] < np.inf:
        data_norm = row_norms(stored)[0]  # where rounding decides
    bound = Fraction(data_norm)
    scales = clip_scales(stored, data_norm)
    square = exact_square(X[0])
    if scales is None:
        assert square <= bound**2
        return
    (scale,) = scales
    assert 0.0 <= scale < 1.0
    assert Fraction(scale) ** 2 * square <= bound**2
    assert exact_square(scale * X[0].astype(np.float64)) <= bound**2
    assert square >= bound**2 * (1 - Fraction(1, 10**12)) ** 2  # needed it
    if scale > 1e-300:  # and lost no more than a few ulps
        assert Fraction(scale) ** 2 * square >= bound**2 * (1 - Fraction(1, 10**12)) ** 2


def test_clip_scales_of_many_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 20)) * rng.exponential(size=(3000, 1))
    norms = np.linalg.norm(X, axis=1)
    assert_allclose(row_norms(X), norms, rtol=1e-14)
    assert_allclose(clip_scales(X, 2.0), np.minimum(1.0, 2.0 / norms), rtol=1e-13)
    assert_array_equal(clip_scales(X, 2.0) == 1.0, norms < 2.0)
    assert clip_scales(X, norms.max() * 1.001) is None
