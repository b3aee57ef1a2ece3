"""What noise costs a private training step of a KAN, and what single normals cost.

Three steps of the same code on the same batches: not private; clipped; clipped with correlated
noise (BIFR 0.5, several bandwidths and sources).  They take turns; the ratio of two is the median
of the ratios of their turns, so that other load on the machine hits both alike.  CPU time on one
thread, and wall time with torch's threads as they are.

Run: python benchmarks/kan_noise.py
"""

import math
import os
import platform
import time
from pathlib import Path

import numpy as np
import torch
from randomgen import ChaCha

from sklearn_dpop.factorization import BIFR, NoiseState
from sklearn_dpop.factorization._normals import PIECE, CipherNormals
from sklearn_dpop.neural_network._clipped import FeatureStore
from sklearn_dpop.neural_network._device_noise import make_weight_noise
from sklearn_dpop.neural_network._kan import KAN
from sklearn_dpop.neural_network._noise import _TorchNormals
from sklearn_dpop.neural_network._step import PrivateStep

RESULT = Path(__file__).parent / "results" / "kan_noise.md"
SHAPES = {
    "784-32-1, batch 125": (784, (32,), 1, 125),
    "784-64-1, batch 512": (784, (64,), 1, 512),
    "54-64-10, batch 125": (54, (64,), 10, 125),
    "784-32-10, batch 1500": (784, (32,), 10, 1500),
}
KINDS = {
    "not private": None,
    "clipped": 0,
    "p = 1, secure": (1, "secure", True),
    "p = 4, secure": (4, "secure", True),
    "p = 4, fast": (4, "fast", True),
    "p = 4, secure, regenerated": (4, "secure", False),
    "p = 16, secure": (16, "secure", True),
    "p = 64, secure": (64, "secure", True),
}
TURNS = 60


def records(n, d, outputs, device="cpu"):
    """Random features and labels."""
    X = torch.rand(n, d, device=device) * 2 - 1
    y = torch.randint(0, max(2, outputs), (n,), device=device)
    return X, y.float() if outputs == 1 else y


def step_of(kind, X, y, hidden, outputs, batch):
    """Return a step of a new network: of None without privacy, of 0 clipped, else with noise."""
    generator = torch.Generator().manual_seed(0)
    net = KAN(X.shape[1], outputs, hidden_width=hidden, generator=generator).to(X.device)
    noise = None
    if kind:
        p, source, buffered = kind
        noise = make_weight_noise(
            BIFR(0.5, p), [w.detach() for w in net.parameters()], NoiseState(1, 100),
            source=source, buffered=buffered,
        )  # fmt: skip
    return PrivateStep(
        net, FeatureStore(net, X, 2**33), y, torch.optim.SGD(net.parameters(), lr=0.1),
        max_grad_norm=math.inf if kind is None else 0.5, batch_size=batch,
        noise=noise, noise_multiplier=1.0, physical_batch_size=batch,
    )  # fmt: skip


def steps_of(d, hidden, outputs, batch):
    """Return a step for every kind: networks of their own, the same records."""
    X, y = records(4096, d, outputs)
    batches = torch.randint(0, 4096, (TURNS, batch))
    return {
        name: step_of(kind, X, y, hidden, outputs, batch) for name, kind in KINDS.items()
    }, batches


def times(steps, batches, clock):
    """Seconds of every step in every turn."""
    found = {name: [] for name in steps}
    for index in batches:
        for name, step in steps.items():
            start = clock()
            step(index)
            found[name].append(clock() - start)
    return {name: np.array(t) for name, t in found.items()}


def normals():
    """Nanoseconds of one float32 value."""
    out = np.empty(PIECE, np.float32)
    chacha = np.random.Generator(ChaCha(key=1))
    cipher, twister = CipherNormals(1, np.float32), _TorchNormals(1)
    step = iter(range(10**6))
    kinds = {
        "AES-128 and Box-Muller (ours)": lambda: cipher.fill(next(step), 0, out),
        "torch's normal_, state set for every piece (`fast`)": lambda: twister.fill(
            next(step), 0, out
        ),
        "torch's normal_, one stream": lambda: torch.from_numpy(out).normal_(),
        "ChaCha20 and NumPy's ziggurat": lambda: chacha.standard_normal(out=out, dtype=np.float32),
    }
    found = {name: [] for name in kinds}
    for _ in range(200):
        for name, fill in kinds.items():
            start = time.process_time()
            fill()
            found[name].append(time.process_time() - start)
    return {name: np.median(t) / PIECE * 1e9 for name, t in found.items()}


def main():
    threads = torch.get_num_threads()
    lines = [
        "# What noise costs",
        "",
        "Ratios are to the step of the same code that is not private, in the same turns: median",
        f"of {TURNS}.  Cubic splines, p = 8, float32.  CPU: one thread; wall: {threads} thread(s)",
        f"of {os.cpu_count()} cores.  Python {platform.python_version()}, torch",
        f"{torch.__version__}, numpy {np.__version__}.",
        "Regenerate: `python benchmarks/kan_noise.py`.",
        "",
        "| normals | ns |",
        "|---|---|",
    ]
    torch.set_num_threads(1)
    lines += [f"| {name} | {ns:.1f} |" for name, ns in normals().items()]
    for title, shape in SHAPES.items():
        steps, batches = steps_of(*shape)
        times(steps, batches[:3], time.process_time)
        cpu = times(steps, batches, time.process_time)
        torch.set_num_threads(threads)
        wall = times(steps, batches, time.perf_counter)
        torch.set_num_threads(1)
        lines += [
            "",
            f"## {title}",
            "",
            "| step | CPU ms | CPU ratio | wall ratio |",
            "|---|---|---|---|",
        ]
        for name in KINDS:
            ratios = [np.median(t[name] / t["not private"]) for t in (cpu, wall)]
            ms = 1e3 * np.median(cpu[name])
            lines.append(f"| {name} | {ms:.2f} | {ratios[0]:.2f} | {ratios[1]:.2f} |")
        print("\n".join(lines[-len(KINDS) - 4 :]), flush=True)
    RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
