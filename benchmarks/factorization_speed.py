"""Speed of coefficients, sensitivities, errors and noise; writes a table.

JAX-Privacy's numbers are CPU seconds of its development head of August 2026 on another machine
(two cores), so ratios are rough; `factorization_vs_jax_privacy.py` compares on one machine.

Run: python benchmarks/factorization_speed.py
"""

import platform
import time
from pathlib import Path

import numpy as np

from sklearn_dpop.factorization import BIFR, BLT, BSR, PrefixSum, rmse, sensitivity

RESULT = Path(__file__).parent / "results" / "factorization_speed.md"


def cpu_seconds(function, repeats=5):
    function()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return float(np.median(times))


def rows():
    n, strategy = 10_000, BIFR(0.9, 64)
    odd = BIFR(0.9, 64, momentum=0.9)
    # The column is cached; ask for the computation itself.
    yield f"coef of C, n={n}, p=64", lambda: strategy._column(n, False), 0.363
    yield f"sensitivity, n={n}, p=64, k=16", _uncached(strategy, 16, n // 16, n), 0.394
    yield f"sensitivity, momentum version, n={n}, p=64, k=16", _uncached(odd, 16, n // 16, n), None
    yield f"rmse, n={n}, p=64, k=16", lambda: rmse(PrefixSum(n), strategy, 16, n // 16), None
    n = 10**6
    yield f"coef of C, n={n}, p=64", lambda: strategy._column(n, False), None
    yield f"sensitivity, n={n}, p=64, k=100", _uncached(strategy, 100, n // 100, n), None
    yield f"rmse, n={n}, p=64, k=100", lambda: rmse(PrefixSum(n), strategy, 100, n // 100), None
    for name, stream, theirs in (
        ("noise, banded inverse p=64, ring buffer", _stream(strategy), 0.524),
        ("noise, banded inverse p=4, ring buffer", _stream(BIFR(0.9, 4)), 0.049),
        ("noise, banded inverse p=4, no buffer", _stream(BIFR(0.9, 4), buffered=False), 0.166),
        ("noise, banded inverse p=64, no buffer", _stream(strategy, buffered=False), 2.451),
        ("noise, banded C p=64", _stream(BSR(64)), 0.524),
        (
            "noise, BLT with 4 buffers",
            _stream(BLT(4, theta=(0.99, 0.9, 0.6, 0.2), omega=(0.1, 0.1, 0.1, 0.1))),
            0.119,
        ),
    ):
        out = np.empty(10**6, dtype=np.float32)
        for _ in range(64):  # fill the buffer
            stream.draw(out)
        yield f"{name}, 10^6 values, float32", lambda s=stream, o=out: s.draw(o), theirs


def _uncached(strategy, k, b, n):
    from sklearn_dpop.factorization._sensitivity import coefficient_sensitivity

    return lambda: coefficient_sensitivity(strategy._column(n, False), k, b)


def _stream(strategy, **options):
    assert sensitivity(strategy, 1, 64, 64) > 0.0
    return strategy.noise_stream(10**6, 0, dtype=np.float32, **options)


def main():
    lines = [
        "# Speed of the strategies",
        "",
        f"CPU milliseconds, median of 5; Python {platform.python_version()}, numpy "
        f"{np.__version__}, {platform.machine()}.",
        "JAX-Privacy: development head of August 2026, another machine, noise without buffer as a "
        "dense matrix.",
        "Regenerate: `python benchmarks/factorization_speed.py`.",
        "",
        "| what | ms | JAX-Privacy ms | ratio |",
        "|---|---|---|---|",
    ]
    for name, function, theirs in rows():
        ours = cpu_seconds(function)
        other = "- | -" if theirs is None else f"{1e3 * theirs:.0f} | {theirs / ours:.0f}"
        lines.append(f"| {name} | {1e3 * ours:.2f} | {other} |")
        print(lines[-1], flush=True)
    RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
