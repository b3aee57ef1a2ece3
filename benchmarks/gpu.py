"""Everything that needs a CUDA device, in one run of less than three minutes.

* Correctness: known answers of the generator, normals and rows against the CPU's, the kernel with
  and without a ring bit by bit, clipped sums and a whole training against the CPU's.
* Time of a step: not private, clipped, with noise from the CPU (secure) and from the device
  (fast), kept or made again; peak memory.
* The noise kernel against the memory: time of a row, and of moving the bytes that a ring moves.

A section that fails is reported, and the others still run.  ``--device cpu`` runs the same code,
with small sizes, where there is no CUDA.

Run: python benchmarks/gpu.py [--device cuda] [--output DIRECTORY]
"""

import argparse
import json
import math
import platform
import sys
import time
import traceback
import warnings
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # without installing the package

import numpy as np
import torch
from kan_noise import records, step_of

from sklearn_dpop import KANClassifierDP
from sklearn_dpop.factorization import BIFR, NoiseState
from sklearn_dpop.neural_network import _training
from sklearn_dpop.neural_network._clipped import FeatureStore, clipped_sum
from sklearn_dpop.neural_network._device_noise import (
    DeviceNoise,
    _writer,
    make_weight_noise,
    write_row,
)
from sklearn_dpop.neural_network._kan import KAN
from sklearn_dpop.neural_network._philox import normals, philox

SHAPES = {
    "784-32-1, batch 125": (784, (32,), 1, 125),
    "784-64-10, batch 1500": (784, (64,), 10, 1500),
    "784-256-256-10, batch 4096": (784, (256, 256), 10, 4096),
}
STEPS = {
    "not private": None,
    "clipped": 0,
    "p = 4, secure": (4, "secure", True),
    "p = 4, fast": (4, "fast", True),
    "p = 4, fast, regenerated": (4, "fast", False),
    "p = 16, fast": (16, "fast", True),
    "p = 16, fast, regenerated": (16, "fast", False),
}


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(function, device, repeats):
    """Median of the times of single calls, and the mean of a row of calls without waiting."""
    for _ in range(3):
        function()
    synchronize(device)
    singles = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        synchronize(device)
        singles.append(time.perf_counter() - start)
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    synchronize(device)
    return float(np.median(singles)), (time.perf_counter() - start) / repeats


# --- correctness ---------------------------------------------------------------------------------


def known_answers(device, _):
    """Known answer of Random123, on the device."""
    counter = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    words = philox(
        0xA4093822 | 0x299F31D0 << 32, tuple(torch.tensor([c], device=device) for c in counter)
    )
    found = [f"{int(word):08x}" for word in words]
    assert found == ["d16cfe09", "94fdcceb", "5001e420", "24126ea1"], found
    return {"words": found}


def rows_of_noise(device, n):
    """Rows against the CPU's; with a ring and without, bit by bit."""
    here, there = torch.empty(n), torch.empty(n, device=device)
    normals(7, 11, here)
    normals(7, 11, there)
    result = {"largest difference of a normal": float((there.cpu() - here).abs().max())}
    coef = torch.tensor([1.0, -0.5, -0.25, 0.125])
    write_row(7, 11, coef, None, here, 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        writer = _writer(there)
    # Torch's operations stand in for a kernel that fails; that must not pass unnoticed here.
    assert not caught, caught[0].message
    writer(7, 11, coef.to(device), None, there, 4)
    result["kernel"] = writer.__module__
    result["largest difference of a row"] = float((there.cpu() - here).abs().max())
    weights = [torch.zeros(n, device=device)]
    noises = [
        DeviceNoise(coef.tolist(), weights, NoiseState(3), buffered=buffered)
        for buffered in (True, False)
    ]
    result["ring and regeneration equal"] = all(
        torch.equal(*(noise.draw()[0] for noise in noises)) for _ in range(8)
    )
    z = there.double()
    normals(7, 12, there)
    z = there.double()
    result["mean, variance, fourth moment"] = [
        float(z.mean()),
        float(z.square().mean()),
        float(z.pow(4).mean()),
    ]
    assert result["largest difference of a normal"] < 1e-5
    assert result["largest difference of a row"] < 1e-5
    assert result["ring and regeneration equal"]
    assert abs(result["mean, variance, fourth moment"][1] - 1) < 5 * math.sqrt(2 / n)
    return result


def clipped_sums(device, _):
    """Compare sums of clipped gradients with the CPU's, in float64 and float32."""
    result = {}
    for dtype, bound in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
        sums = []
        for where in ("cpu", device):
            generator = torch.Generator().manual_seed(0)
            net = KAN(20, hidden_width=(16, 8), n_outputs=3, generator=generator, dtype=dtype).to(
                where
            )
            X = torch.rand(300, 20, generator=torch.Generator().manual_seed(1)).to(where, dtype)
            y = torch.arange(300, device=where) % 3
            index = torch.arange(0, 300, 2, device=where)
            store = FeatureStore(net, X)
            sums.append([s.cpu() for s in clipped_sum(net, store, index, y[index], 0.05)])
        error = max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(*sums, strict=True))
        result[f"largest relative difference, {dtype}"] = error
        assert error < bound, error
    return result


def training(device, n):
    """Whole trainings, secure and fast, against the CPU's with the same random numbers."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 10)).astype(np.float32)
    y = (X[:, 0] * X[:, 1] > 0).astype(int)

    def on_cpu(strategy, weights, state, *, source, buffered):
        if source == "secure":
            return make_weight_noise(strategy, weights, state, buffered=buffered)
        inverse = strategy.noise_stream(1, 0).inverse.tolist()
        return DeviceNoise(inverse, weights, state, buffered=buffered)

    result = {}
    for source in ("secure", "fast"):
        fits = []
        for where in ("cpu", device):
            clf = KANClassifierDP(
                4.0, 1e-5, classes=[0, 1], feature_bounds=(-1, 1), sampling="cyclic", gamma=0.5,
                batch_size=100, epochs=5, lr=1.0, noise_source=source, random_state=0,
                device=where,
            )  # fmt: skip
            with (
                warnings.catch_warnings(),
                mock.patch.object(
                    _training, "make_weight_noise", on_cpu if where == "cpu" else make_weight_noise
                ),
            ):
                warnings.simplefilter("ignore")
                start = time.perf_counter()
                fits.append(clf.fit(X, y))
                result[f"{source}, {where}, seconds"] = round(time.perf_counter() - start, 2)
        a, b = (clf.decision_function(X) for clf in fits)
        result[f"{source}: largest difference of a logit"] = float(np.abs(a - b).max())
        result[f"{source}: noise"] = fits[1].privacy_report_.noise_source
        assert np.abs(a - b).max() < 1e-2
        assert fits[1].privacy_report_.verify()
    return result


# --- time ----------------------------------------------------------------------------------------


def step_times(device, n):
    """Milliseconds of a step, alone and in a row, ratio to the step without privacy, memory."""
    result = {}
    rows = 16384 if device == "cuda" else 512
    for title, (d, hidden, outputs, batch) in SHAPES.items():
        if device != "cuda":
            batch, hidden = min(batch, 128), hidden[:1]
        X, y = records(rows, d, outputs, device)
        index = torch.randint(0, rows, (batch,), device=device)
        base = None
        for name, kind in STEPS.items():
            step = step_of(kind, X, y, hidden, outputs, batch)
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            single, mean = seconds(lambda step=step, index=index: step(index), device, n)
            base = mean if base is None else base
            row = {"ms": 1e3 * single, "ms in a row": 1e3 * mean, "ratio": mean / base}
            if device == "cuda":
                row["peak MiB"] = (torch.cuda.max_memory_allocated() - before) / 2**20
            result[f"{title}: {name}"] = {key: round(value, 3) for key, value in row.items()}
    return result


def kernel_times(device, n):
    """Microseconds of a row, and of copying as many bytes as a ring reads and writes."""
    result = {}
    sizes = (200_000, 10**6, 10**7) if device == "cuda" else (20_000,)
    for size in sizes:
        out = torch.empty(size, device=device)
        for p in (1, 4, 16, 64):
            if p * size > 2 * 10**8:
                continue
            moved = torch.empty((p + 1) * size // 2 + 1, device=device)
            target = torch.empty_like(moved)
            copied = seconds(lambda t=target, m=moved: t.copy_(m), device, n)[1]
            row = {"copy": copied}
            for name, buffered in (("ring", True), ("regenerated", False)):
                inverse = BIFR(0.5, p).inverse_coef(p).tolist()
                noise = DeviceNoise(inverse, [out], NoiseState(1, 100), buffered=buffered)
                row[name] = seconds(noise.draw, device, n)[1]
            bits = torch.empty_like(out)
            row["torch normal_"] = seconds(bits.normal_, device, n)[1]
            result[f"n = {size}, p = {p}"] = {k: round(1e6 * v, 1) for k, v in row.items()}
    return result


SECTIONS = {
    "known answers": (known_answers, (0, 0)),
    "rows of noise": (rows_of_noise, (2**20, 4096)),
    "clipped sums": (clipped_sums, (0, 0)),
    "training": (training, (0, 0)),
    "milliseconds of a step": (step_times, (50, 2)),
    "microseconds of a row of noise": (kernel_times, (50, 2)),
}


def markdown(found):
    lines = [f"# On {found['device']}", "", found["versions"], ""]
    for title, section in found["sections"].items():
        lines += [f"## {title}", ""]
        rows = section["result"]
        if "error" in section:
            lines += ["**FAILED**", "", "```", section["error"].rstrip(), "```", ""]
        elif rows and all(isinstance(row, dict) for row in rows.values()):
            columns = list(next(iter(rows.values())))
            lines += ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
            lines += [
                f"| {name} | " + " | ".join(f"{row[c]:g}" for c in columns) + " |"
                for name, row in rows.items()
            ]
        else:
            lines += [f"* {name}: {value}" for name, value in rows.items()]
        lines += ["", f"{section['seconds']:.1f} s", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    name = torch.cuda.get_device_name() if args.device == "cuda" else platform.machine()
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    found = {"device": name, "versions": versions, "sections": {}}
    for title, (section, sizes) in SECTIONS.items():
        start = time.perf_counter()
        entry = {"result": {}}
        try:
            entry["result"] = section(args.device, sizes[args.device == "cpu"])
        except Exception:
            entry["error"] = traceback.format_exc()
        entry["seconds"] = round(time.perf_counter() - start, 1)
        found["sections"][title] = entry
        state = "FAILED" if "error" in entry else "ok"
        print(f"{title}: {state}, {entry['seconds']} s", flush=True)
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "gpu.json").write_text(json.dumps(found, indent=1) + "\n")
        (args.output / "gpu.md").write_text(markdown(found))
    failed = [title for title, entry in found["sections"].items() if "error" in entry]
    for title in failed:
        print(found["sections"][title]["error"])
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
