"""Time one step of the solver against the two matrix products that it replaces.

Claim: on 400 000 rows and 100 columns a step, which reads the records once, takes at most
0.6 of the time of numpy's ``X @ w`` and ``X.T @ r`` for float64 in C order, and at most
0.45 of it where the same matrix is stored in float32.

Run ``python benchmarks/solver_pass.py``; it prints a table and writes
``benchmarks/results/solver_pass.json``.  Every repetition times all cases one after the
other, so that a busy machine slows them alike.  A ratio is that of the fastest repetitions;
"paired" is the median of the ratios within a repetition.  All run with the default number
of BLAS threads unless marked "1 thread".
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import scipy
import scipy.sparse as sp
from threadpoolctl import threadpool_info, threadpool_limits

from sklearn_dpop.release import _rows
from sklearn_dpop.release._losses import LogisticLoss
from sklearn_dpop.release._solver import perturbed_gradient_descent

RESULTS = Path(__file__).parent / "results" / "solver_pass.json"
STEPS = 4  # steps per timing; what is done once per fit is subtracted


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def step_seconds(X, n_problems: int = 1, steps: int = STEPS) -> float:
    """Seconds per step: the difference of two runs, of 1 and of 1 + `steps` steps."""
    n, d = X.shape
    codes = np.arange(n, dtype=np.int8) % max(n_problems, 2)

    def run(n_iter: int) -> None:
        perturbed_gradient_descent(
            X,
            codes,
            LogisticLoss(),
            positive=range(1, n_problems + 1),
            noise=np.zeros((d, n_problems)),
            mu=0.1,
            eta=0.1,
            n_iter=n_iter,
        )

    once = seconds(lambda: run(1))
    return (seconds(lambda: run(1 + steps)) - once) / steps


def products_seconds(X, n_problems: int = 1) -> float:
    """Seconds of the forward and of the transposed product, on whole matrices."""
    rng = np.random.default_rng(1)
    tail = () if n_problems == 1 else (n_problems,)
    w = rng.standard_normal((X.shape[1], *tail))
    r = rng.standard_normal((X.shape[0], *tail))
    return seconds(lambda: (X @ w, X.T @ r))


def one_thread(run: Callable[[], float]) -> float:
    with threadpool_limits(1, user_api="blas"):
        return run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--block-mib", type=float, help="another block size, to compare")
    arguments = parser.parse_args()
    if arguments.block_mib is not None:
        _rows.BLOCK_BYTES = int(arguments.block_mib * 2**20)

    n, d = 400_000, 100
    X = np.random.default_rng(0).standard_normal((n, d))
    single, fortran = X.astype(np.float32), np.asfortranarray(X)
    mask = np.random.default_rng(2).random((n, d)) < 0.05
    sparse = sp.csr_array(X * mask)
    del mask
    small = np.ascontiguousarray(X[:400, :30])

    products = {
        "products, C": lambda: products_seconds(X),
        "products, F": lambda: products_seconds(fortran),
        "products, C, K=10": lambda: products_seconds(X, 10),
        "products, CSR": lambda: products_seconds(sparse),
        "products, CSR, K=10": lambda: products_seconds(sparse, 10),
    }
    steps: dict[str, tuple[str, Callable[[], float]]] = {
        "float64, C": ("products, C", lambda: step_seconds(X)),
        "float64, C, 1 thread": ("products, C", lambda: one_thread(lambda: step_seconds(X))),
        "float32, C": ("products, C", lambda: step_seconds(single)),
        "float32, C, 1 thread": ("products, C", lambda: one_thread(lambda: step_seconds(single))),
        "float64, F": ("products, F", lambda: step_seconds(fortran)),
        "float64, C, K=10": ("products, C, K=10", lambda: step_seconds(X, 10)),
        "CSR 5%": ("products, CSR", lambda: step_seconds(sparse)),
        "CSR 5%, 1 thread": ("products, CSR", lambda: one_thread(lambda: step_seconds(sparse))),
        "CSR 5%, K=10": ("products, CSR, K=10", lambda: step_seconds(sparse, 10)),
        "400 x 30, C": ("", lambda: step_seconds(small, steps=1000)),
    }
    times: dict[str, list[float]] = {name: [] for name in (*products, *steps)}
    for _ in range(arguments.repeats):
        for name, run in products.items():
            times[name].append(run())
        for name, (_, run) in steps.items():
            times[name].append(run())

    table = []
    for name, values in times.items():
        row = {"case": name, "min_ms": 1e3 * min(values), "median_ms": 1e3 * median(values)}
        reference = steps[name][0] if name in steps else ""
        if reference:
            pairs = zip(values, times[reference], strict=True)
            row |= {
                "of": reference,
                "ratio": min(values) / min(times[reference]),
                "paired": median(value / other for value, other in pairs),
            }
        table.append(row)

    print(f"n = {n}, d = {d}, {arguments.repeats} repetitions\n")
    print(f"{'case':<24}{'min ms':>10}{'median ms':>11}{'ratio':>8}{'paired':>8}  of")
    for row in table:
        line = f"{row['case']:<24}{row['min_ms']:>10.3f}{row['median_ms']:>11.3f}"
        if "of" in row:
            line += f"{row['ratio']:>8.2f}{row['paired']:>8.2f}  {row['of']}"
        print(line)

    RESULTS.parent.mkdir(exist_ok=True)
    blas = [lib for lib in threadpool_info() if lib["user_api"] == "blas"]
    result = {
        "rows": n,
        "columns": d,
        "repeats": arguments.repeats,
        "block_bytes": _rows.BLOCK_BYTES,
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "blas": [
            {
                key: lib.get(key)
                for key in ("internal_api", "version", "architecture", "num_threads")
            }
            for lib in blas
        ],
        "table": table,
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
