"""Time and memory of one private training step of a KAN, without noise, against its rivals.

All methods but efficient-kan's train the same network, with the same clipping norm (half of the
batch is clipped), on the same rows; before timing, one step of each from the same weights must
give the same weights.  Rivals:

* the same code without clipping, and the module under plain autograd;
* a network like efficient-kan's (dense recursion of Cox and de Boor, bases innermost, SiLU
  branch, both layers trained) under plain autograd, not private;
* per-example gradients by ``torch.func.vmap(grad)``, which is given the features;
* Opacus, if installed: hooks and ghost clipping, on the network as linear layers over spline
  features, with the recursion's, with this package's, or with precomputed features.

One thread.  The methods take turns, and the least CPU time of each counts, so that other load on
the machine hits all alike.  Memory is the peak of the resident set in a forked child over what
it held before, for two steps.

Run: python benchmarks/kan_step.py
"""

import ctypes
import functools
import math
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

from sklearn_dpop.neural_network._clipped import FeatureStore, add_clipped_sum_, per_record
from sklearn_dpop.neural_network._kan import KAN
from sklearn_dpop.neural_network._splines import SplineBasis, scatter_index, scatter_local_

RESULT = Path(__file__).parent / "results" / "kan_step.md"
SHAPES = {
    "784-32-1, batch 125": (784, (32,), 1, 125),
    "784-64-1, batch 512": (784, (64,), 1, 512),
    "54-64-10, batch 125": (54, (64,), 10, 125),
    "784-64-64-10, batch 512": (784, (64, 64), 10, 512),
}
N_ROWS, BASIS = 2048, SplineBasis(3, 8)
SECONDS_PER_METHOD = 3.0


def cox_de_boor(x, dim):
    """All bases by the recursion over all knots, at a new dimension."""
    g, h = BASIS.degree, BASIS.cell_width
    knots = BASIS.low + h * (torch.arange(BASIS.n_basis + g + 1) - g)
    shape = [1] * (x.ndim + 1)
    shape[dim] = -1
    t, x = knots.view(shape), x.unsqueeze(dim)
    cut = functools.partial(torch.narrow, dim=dim)
    b = (x >= cut(t, start=0, length=len(knots) - 1)) & (
        x < cut(t, start=1, length=len(knots) - 1)
    )
    b = b.to(x.dtype)
    for j in range(1, g + 1):
        n = len(knots) - 1 - j
        left = (x - cut(t, start=0, length=n)) / (j * h) * cut(b, start=0, length=n)
        right = (cut(t, start=j + 1, length=n) - x) / (j * h) * cut(b, start=1, length=n)
        b = left + right
    return b


def local_features(x):
    out = x.new_zeros(len(x), BASIS.n_basis, x.shape[1])
    cell, values = BASIS.local(x)
    scatter_local_(out, scatter_index(cell, BASIS.n_basis), values)
    return out


class LikeEfficientKAN(nn.Module):
    """Spline weights and SiLU branch per edge, bases innermost."""

    def __init__(self, widths):
        super().__init__()
        pairs = list(pairwise(widths))
        self.base = nn.ParameterList(nn.Parameter(torch.randn(m, d) / d) for d, m in pairs)
        self.spline = nn.ParameterList(
            nn.Parameter(torch.randn(m, d * BASIS.n_basis) / d) for d, m in pairs
        )

    def forward(self, h):
        """Logits."""
        for base, spline in zip(self.base, self.spline, strict=True):
            features = cox_de_boor(h, -1).flatten(1)
            h = nn.functional.linear(nn.functional.silu(h), base)
            h = h + nn.functional.linear(features, spline)
        return h


class LinearForm(nn.Module):
    """The same network as linear layers over features, for Opacus."""

    def __init__(self, net, basis):
        super().__init__()
        self.basis, self.scales = basis, [layer.scale for layer in net.spline_layers]
        self.linears = nn.ModuleList()
        for layer in net.spline_layers:
            linear = nn.Linear(layer.n_features, layer.out_features, bias=False)
            linear.weight = nn.Parameter(
                layer.matrix.detach().clone(), requires_grad=layer.trained
            )
            self.linears.append(linear)

    def forward(self, x):
        """Logits; without a basis, of features."""
        hidden_basis = self.basis or local_features
        phi = x if self.basis is None else self.basis(x).flatten(1)
        for linear, scale in zip(self.linears[:-1], self.scales[:-1], strict=True):
            phi = hidden_basis(torch.tanh(linear(phi) * scale)).flatten(1)
        return self.linears[-1](phi) * self.scales[-1]


class Problem:
    """Rows, labels, a batch of them and the loss."""

    def __init__(self, d, hidden, k, batch):
        self.d, self.hidden, self.k, self.batch = d, hidden, k, batch
        self.lr = 1.0
        generator = torch.Generator().manual_seed(0)
        self.x = torch.rand(N_ROWS, d, generator=generator) * 2 - 1
        self.y = torch.randint(max(2, k), (N_ROWS,), generator=generator)
        self.index = torch.randperm(N_ROWS, generator=generator)[:batch]
        net = self.net()
        rows = FeatureStore(net, self.x[self.index]).take(slice(None))
        norms = per_record(net, rows, self.y[self.index]).norms
        self.clip = norms.median().item()
        self.phi = local_features(self.x).flatten(1)

    def net(self):
        """Return the network that all methods start from."""
        return KAN(
            self.d,
            self.k,
            hidden_width=self.hidden,
            train_output_layer=self.k > 1,
            generator=torch.Generator().manual_seed(1),
        )

    def loss(self, logits, y):
        """Sum of the losses."""
        if self.k == 1:
            return nn.functional.binary_cross_entropy_with_logits(
                logits[:, 0], y.to(logits.dtype), reduction="sum"
            )
        return nn.functional.cross_entropy(logits, y, reduction="sum")


# Each method returns its step and the weights that the step changes.


def ours(problem, memory_budget, clip):
    net = problem.net()
    store = FeatureStore(net, problem.x, memory_budget)
    weights = list(net.parameters())

    def step():
        rows, y = store.take(problem.index), problem.y[problem.index]
        add_clipped_sum_(net, rows, y, clip, weights, alpha=-problem.lr / problem.batch)

    return step, weights


def autograd(problem, net):
    optimizer = torch.optim.SGD(net.parameters(), lr=problem.lr / problem.batch)

    def step():
        optimizer.zero_grad()
        problem.loss(net(problem.x[problem.index]), problem.y[problem.index]).backward()
        optimizer.step()

    return step, list(net.parameters())


def vmap_grad(problem):
    net = problem.net()
    weights = list(net.parameters())
    matrices = [layer.matrix.detach() for layer in net.spline_layers]
    fixed = matrices[len(weights) :]
    scales = [layer.scale for layer in net.spline_layers]

    def loss(trained, phi, y):
        *hidden, last = zip([*trained, *fixed], scales, strict=True)
        for w, scale in hidden:
            phi = cox_de_boor(torch.tanh(w @ phi * scale), 0).flatten()
        w, scale = last
        return problem.loss((w @ phi * scale)[None], y[None])

    gradient = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))

    def step():
        trained = tuple(matrices[: len(weights)])
        per_example = gradient(trained, problem.phi[problem.index], problem.y[problem.index])
        squares = [torch.linalg.vector_norm(g.flatten(1), dim=1).square() for g in per_example]
        factors = (problem.clip / sum(squares).sqrt()).clamp(max=1)
        for w, g in zip(trained, per_example, strict=True):
            w.view(-1).addmv_(g.flatten(1).T, factors, alpha=-problem.lr / problem.batch)

    return step, weights


def opacus(problem, basis, ghost):
    from opacus import GradSampleModule
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    net = LinearForm(problem.net(), basis)
    data = problem.phi if basis is None else problem.x
    sgd = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=problem.lr)
    options = {
        "noise_multiplier": 0.0,
        "max_grad_norm": problem.clip,
        "expected_batch_size": problem.batch,
    }
    loss = nn.BCEWithLogitsLoss() if problem.k == 1 else nn.CrossEntropyLoss()
    if ghost:
        module = GradSampleModuleFastGradientClipping(net, max_grad_norm=problem.clip)
        optimizer = DPOptimizerFastGradientClipping(sgd, **options)
        loss = DPLossFastGradientClipping(module, optimizer, loss)
    else:
        module, optimizer = GradSampleModule(net), DPOptimizer(sgd, **options)

    def step():
        optimizer.zero_grad()
        logits, y = module(data[problem.index]), problem.y[problem.index]
        loss(*((logits[:, 0], y.float()) if problem.k == 1 else (logits, y))).backward()
        optimizer.step()

    return step, [p for p in net.parameters() if p.requires_grad]


def methods(problem):
    """Name, group (what it computes) and constructor of every method."""
    recursion = functools.partial(cox_de_boor, dim=1)
    widths = (problem.d, *problem.hidden, problem.k)
    for budget, features in ((2**30, "cached features"), (0, "features per batch")):
        for clip, private in ((problem.clip, ""), (math.inf, "not private, ")):
            yield (
                f"ours, {private}{features}",
                "plain" if private else "private",
                functools.partial(ours, problem, budget, clip),
            )
    yield "module, autograd, not private", "plain", lambda: autograd(problem, problem.net())
    yield (
        "like efficient-kan, autograd, not private",
        "other",
        lambda: autograd(problem, LikeEfficientKAN(widths)),
    )
    yield "vmap(grad), cached features", "private", lambda: vmap_grad(problem)
    if _version("opacus") is None:
        return
    for basis, name in (
        (recursion, "recursion"),
        (local_features, "our basis"),
        (None, "cached features"),
    ):
        for ghost in (False, True):
            yield (
                f"Opacus {'ghost' if ghost else 'hooks'}, {name}",
                "private",
                functools.partial(opacus, problem, basis, ghost),
            )


def check(problem):
    """One step of every method from the same weights; the same result where it must be."""
    problem.lr = 1e3  # so that the change is not lost in the rounding of the weights
    before = torch.cat([p.detach().flatten() for p in problem.net().parameters()])
    reference = {}
    for name, group, make in methods(problem):
        step, weights = make()
        step()
        if group == "other":
            continue
        change = torch.cat([w.detach().flatten() for w in weights]) - before
        expected = reference.setdefault(group, change)
        error = ((change - expected).norm() / expected.norm()).item()
        assert error < 1e-4, (name, error)
    problem.lr = 1.0


def cpu_times(problem):
    """Least CPU seconds of a step, methods in turn."""
    steps = {name: make()[0] for name, _, make in methods(problem)}
    least = dict.fromkeys(steps, math.inf)
    spent = dict.fromkeys(steps, 0.0)
    while any(s < SECONDS_PER_METHOD for s in spent.values()):
        for name, step in steps.items():
            if spent[name] >= SECONDS_PER_METHOD:
                continue
            for _ in range(2):  # the second finds its memory in place
                start = time.process_time()
                step()
                seconds = time.process_time() - start
                least[name] = min(least[name], seconds)
                spent[name] += seconds
    return least


def peak_memory(make):
    """MiB that two steps take over what the process held after the method was built."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        step, _ = make()
        ctypes.CDLL(None).malloc_trim(0)  # or the step would take from what was freed before
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = _status("VmRSS")
        step()
        step()
        os.write(writing, str(_status("VmHWM") - before).encode())
        os._exit(0)
    os.waitpid(child, 0)
    with os.fdopen(reading) as stream:
        os.close(writing)
        return int(stream.read()) / 1024


def _status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1])


def _version(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def table(title, problem):
    times = cpu_times(problem)
    base = times["ours, cached features"]
    lines = [
        f"\n## {title}\n",
        "| method | CPU ms | times ours (cached) | times ours (per batch) | peak MiB |",
        "|---|---|---|---|---|",
    ]
    for name, _, make in methods(problem):
        seconds, memory = times[name], peak_memory(make)
        per_batch = seconds / times["ours, features per batch"]
        lines.append(
            f"| {name} | {seconds * 1e3:.2f} | {seconds / base:.2f} | {per_batch:.2f} "
            f"| {memory:.0f} |"
        )
    return "\n".join(lines)


def main():
    torch.set_num_threads(1)
    sections = []
    for title, shape in SHAPES.items():
        problem = Problem(*shape)
        check(problem)
        sections.append(table(title, problem))
        print(sections[-1], flush=True)
    described = ", ".join(f"{p} {_version(p)}" for p in ("torch", "opacus") if _version(p))
    RESULT.write_text(
        "# One private training step of a KAN, without noise\n\n"
        "Cubic splines, p = 8, float32; the output layer is fixed where there is one output and\n"
        "trained otherwise; half of the batch is clipped.  One thread, CPU milliseconds, least\n"
        "of many interleaved steps; what each row is stands at the top of the script, which also\n"
        f"checks that the methods agree.  Python {platform.python_version()}, {described}, "
        f"{platform.machine()}.\nRegenerate: `python benchmarks/kan_step.py`.\n"
        + "\n".join(sections)
        + "\n"
    )


if __name__ == "__main__":
    main()
