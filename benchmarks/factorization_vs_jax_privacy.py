"""Optimized strategies against JAX-Privacy: achieved losses and CPU time on one machine.

Needs ``pip install sklearn-dpop jax-privacy`` in one environment (JAX-Privacy is used here only)::

    python benchmarks/factorization_vs_jax_privacy.py

writes ``benchmarks/results/factorization_vs_jax_privacy.md``.  Without JAX-Privacy, and for
optimizers that the installed release lacks, the losses stored in
``tests/data/factorization_optimized.json`` stand in and no time is compared.

Both sides solve the same task with the same number of coefficients or buffers and are scored by
the same code: sensitivity (exact where the column-sum theorem or disjoint columns allow, else an
upper bound) times root mean or largest squared row norm of ``A C^-1``, prefix-sum workload.
Times are CPU seconds of the whole process, the better of two calls, so that one-time costs of
the first call do not count; JAX compiles anew in every call, which does.
"""

import importlib
import importlib.metadata
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from sklearn_dpop.factorization._autocorrelation import autocorrelation_bound_squared
from sklearn_dpop.factorization._optimize_banded import optimize_banded, optimize_banded_inverse
from sklearn_dpop.factorization._optimize_blt import optimize_blt
from sklearn_dpop.factorization._optimize_objective import error_weights
from sklearn_dpop.factorization._toeplitz import reciprocal, solve

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "tests" / "data" / "factorization_optimized.json"
RESULTS = ROOT / "benchmarks" / "results" / "factorization_vs_jax_privacy.md"

Array = NDArray[np.float64]

# family, coefficients or buffers, n, participations, separation, error
CASES = [
    ("bandmf", 16, 256, 4, 64, "mean"),
    ("bandmf", 64, 256, 4, 64, "max"),
    ("bandmf", 16, 1024, 4, 256, "mean"),
    ("bandmf", 64, 1024, 1, 1024, "mean"),
    ("bandmf", 64, 1024, 4, 256, "mean"),
    ("bandmf", 64, 2048, 16, 128, "mean"),
    ("bandmf", 64, 10_000, 10, 1000, "mean"),
    ("blt", 4, 64, 16, 4, "mean"),
    ("blt", 4, 256, 1, 256, "mean"),
    ("blt", 4, 256, 16, 16, "max"),
    ("blt", 4, 1024, 1, 1024, "max"),
    ("blt", 4, 1024, 4, 256, "mean"),
    ("blt", 4, 1024, 4, 256, "max"),
    ("bandinvmf", 4, 256, 1, 256, "mean"),
    ("bandinvmf", 16, 256, 16, 16, "mean"),
    ("bandinvmf", 64, 64, 4, 16, "mean"),
    ("bandinvmf", 64, 64, 16, 4, "mean"),
    ("bandinvmf", 64, 256, 4, 64, "mean"),
    ("bandinvmf", 16, 1024, 1, 1024, "mean"),
    ("bandinvmf", 16, 1024, 4, 256, "mean"),
    ("bandinvmf", 16, 1024, 16, 64, "mean"),
]


def blt_coef(theta: Array, omega: Array, n: int) -> Array:
    return np.concatenate(([1.0], theta ** np.arange(n - 1)[:, None] @ omega))


def ours(family: str, size: int, n: int, k: int, b: int, error: str) -> Array:
    """First column of our strategy."""
    w = np.ones(n)
    if family == "bandmf":
        return np.pad(optimize_banded(n, size, w, error=error), (0, n - size))
    if family == "blt":
        return blt_coef(*optimize_blt(n, size, w, participations=k, separation=b, error=error), n)
    inverse = optimize_banded_inverse(n, size, w, participations=k, separation=b, error=error)
    return reciprocal(inverse, n)


def peer_function(peer: Any, family: str) -> Callable[..., Array] | None:
    """First column of JAX-Privacy's strategy, or None where it has no such optimizer."""
    if peer is None:
        return None
    numbers = importlib.import_module("jax.numpy")
    toeplitz, buffered = peer

    def bandmf(size: int, n: int, k: int, b: int, error: str) -> Array:
        reduction = {"mean": numbers.mean, "max": numbers.max}[error]
        c = toeplitz.optimize_banded_toeplitz(
            n, bands=size, max_optimizer_steps=250, reduction_fn=reduction
        )
        return np.pad(np.asarray(c, dtype=float), (0, n - size))

    def blt(size: int, n: int, k: int, b: int, error: str) -> Array:
        result = buffered.optimize(
            n=n, min_sep=b, max_participations=k, error=error, min_buffers=size, max_buffers=size
        )
        return blt_coef(np.asarray(result.buf_decay), np.asarray(result.output_scale), n)

    def bandinvmf(size: int, n: int, k: int, b: int, error: str) -> Array:
        inverse = toeplitz.optimize_banded_inverse_toeplitz(
            n, min_sep=b, num_bands=size, max_participations=k, max_optimizer_steps=300
        )
        return reciprocal(np.asarray(inverse, dtype=float), n)

    if family == "bandinvmf" and not hasattr(toeplitz, "optimize_banded_inverse_toeplitz"):
        return None
    return {"bandmf": bandmf, "blt": blt, "bandinvmf": bandinvmf}[family]


def load_peer() -> Any:
    try:
        jax = importlib.import_module("jax")
        package = "jax_privacy.matrix_factorization"
        modules = [
            importlib.import_module(f"{package}.{m}") for m in ("toeplitz", "buffered_toeplitz")
        ]
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    return modules


def score(coef: Array, k: int, b: int, error: str) -> float:
    n = len(coef)
    squared = error_weights(n, error) @ solve(coef, np.ones(n)) ** 2
    return float(np.sqrt(squared * autocorrelation_bound_squared(coef, k, b)))


def timed(function: Callable[[], Array]) -> tuple[Array, float]:
    seconds = []
    for _ in range(2):
        start = time.process_time()
        result = function()
        seconds.append(time.process_time() - start)
    return result, min(seconds)


def main() -> None:
    reference = {
        (r["family"], r["size"], r["n"], r["participations"], r["separation"], r["error"]): r[
            "loss"
        ]
        for r in json.loads(REFERENCE.read_text())["rows"]
    }
    peer = load_peer()
    lines = [
        "| strategy | size | n | k | b | error | loss | JAX-Privacy loss | ratio "
        "| CPU s | JAX-Privacy CPU s | times faster |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        family, size, n, k, b, error = case
        coef, seconds = timed(lambda case=case: ours(*case))
        loss = score(coef, k, b, error)
        function = peer_function(peer, family)
        if function is None:
            peer_loss, source, cpu, faster = reference.get(case), " (stored)", "-", "-"
        else:
            peer_coef, peer_seconds = timed(lambda f=function, case=case: f(*case[1:]))
            peer_loss, source = score(peer_coef, k, b, error), ""
            cpu, faster = f"{peer_seconds:.2f}", f"{peer_seconds / seconds:.0f}"
        compared = (
            ("-", "-")
            if peer_loss is None
            else (f"{peer_loss:.6g}{source}", f"{loss / peer_loss:.5f}")
        )
        row = [
            family,
            size,
            n,
            k,
            b,
            error,
            f"{loss:.6g}",
            *compared,
            f"{seconds:.3f}",
            cpu,
            faster,
        ]
        lines.append("| " + " | ".join(map(str, row)) + " |")
        print(lines[-1], flush=True)
    version = importlib.metadata.version("jax-privacy") if peer else "not installed"
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        "# Optimized strategies: this package and JAX-Privacy\n\n"
        "Prefix-sum workload. Size: bandwidth or buffers. A ratio below 1 means a smaller loss "
        "than JAX-Privacy's. Both columns of losses are computed by the same code, except those "
        "marked stored, which JAX-Privacy's development head of August 2026 reported (released "
        "versions up to 2.0.0 have no banded-inverse optimizer).\n\n"
        f"JAX-Privacy {version}, numpy {np.__version__}, scipy {scipy.__version__}, "
        f"Python {platform.python_version()}, {platform.machine()}.\n"
        "Regenerate: `python benchmarks/factorization_vs_jax_privacy.py`.\n\n"
        + "\n".join(lines)
        + "\n"
    )


if __name__ == "__main__":
    main()
