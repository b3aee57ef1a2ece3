"""Test accuracy of the private network and its rivals at equal privacy.

Every row has the same guarantee: (epsilon, 1e-5), zero-out neighbours, 10 epochs of 40 batches.
All rows but two use balls-in-bins batches.  The certified multipliers depend on the numbers of
batches and epochs only, so they are the same for all data sets; they are kept in the result.

* Network: all parameters at their defaults (32 hidden units, 8 splines, automatic learning rate),
  with noise of nine strategies.  What a strategy leaves open (gamma) is chosen for each epsilon
  from public numbers; BIFR 2 is LambdaCGD.
* ``softmax``: logistic or softmax regression by clipped gradient descent, with the noise of BIFR
  of bandwidth 4.  ``mlp``: tanh network with as many weights as ours, DP-SGD with Poisson batches
  as Opacus does it (per-example clipping by closed form, dp-accounting's multiplier).  Both get
  the best of several learning rates **by test accuracy**, an advantage that the network does not
  have.  ``opacus``: the same network trained by Opacus (ghost clipping), where it is installed.
* ``objpert``: `ObjPertGDLogisticRegression`, tight calibration, the same neighbours; margin 0 or
  1, the better **by test accuracy**.  10,000 iterations with two classes, 1000 with more: fewer
  iterations need more regularization, which costs accuracy (steps_of_linear.py).

Data (a directory with ``mnist.npz``, ``adult.npz``, ``covertype.npz``; X, y, and split where the
source has one) are scaled by public constants: pixels by 255, numbers of Adult and Covertype by
round bounds, money by its logarithm.  Goes on where it was; hours on one core.

Run: python benchmarks/kan_accuracy.py DIRECTORY [--only DATA ...] [--epsilon E ...] [--seeds N]
"""

import argparse
import fcntl
import itertools
import json
import math
import os
import time
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from sklearn_dpop import KANClassifierDP, ObjPertGDLogisticRegression
from sklearn_dpop.factorization import (
    BIFR,
    BISR,
    BLT,
    BandInvMF,
    Identity,
    NoiseState,
    PrefixSum,
)
from sklearn_dpop.neural_network import _classifier
from sklearn_dpop.neural_network._noise import WeightNoise
from sklearn_dpop.neural_network._plan import Plan, best_gamma_for
from sklearn_dpop.privacy import Schedule, calibrate_noise_multiplier

RESULT = Path(__file__).parent / "results" / "kan_accuracy.json"
TABLE = RESULT.with_suffix(".md")
DELTA, BINS, EPOCHS, CLIP = 1e-5, 40, 10, 0.5
SHAPE = Schedule(5000, 125, EPOCHS, "balls_in_bins")
RATES = (0.5, 2.0, 8.0, 32.0)
STRATEGIES = (
    "DP-SGD", "BIFR 2", "BIFR 4", "BIFR 16", "BISR 2", "BISR 4", "BISR 16", "BLT 2", "BandInvMF 4",
)  # fmt: skip
METHODS = (*STRATEGIES, "softmax", "mlp", "objpert")  # and "opacus"


# --- data ----------------------------------------------------------------------------------------


def scaled(X, low, high):
    return np.clip((X - low) / (np.asarray(high, float) - low) * 2 - 1, -1, 1)


def data_set(name, folder):
    """Training rows, labels, test rows, labels, and a public bound of the norm of the rows."""
    shuffle = np.random.default_rng(0).permutation
    if name.startswith("mnist"):
        found = np.load(folder / "mnist.npz")
        X, y, test = found["X"], found["y"], found["split"] == 1
        keep = np.isin(y, (3, 8)) if name == "mnist 3/8" else np.full(len(y), True)
        train = shuffle(np.flatnonzero(keep & ~test))[: 5000 if name == "mnist 3/8" else None]
        X = (X / np.float32(255)).astype(np.float32)
        return X[train], y[train], X[keep & test], y[keep & test], 10.0
    if name == "adult":
        found = np.load(folder / "adult.npz")
        X, y, test = found["X"].astype(float), found["y"], found["split"] == 1
        X[:, 3:5] = np.log1p(X[:, 3:5])
        high = [90, 500_000, 16, math.log1p(99_999), math.log1p(4356), 99]
        X[:, :6] = scaled(X[:, :6], [17, 0, 1, 0, 0, 1], high)
        X = X.astype(np.float32)
        return X[~test], y[~test], X[test], y[test], math.sqrt(14)
    found = np.load(folder / "covertype.npz")
    X, y = found["X"].astype(float), found["y"]
    low = [1800, 0, 0, 0, -200, 0, 0, 0, 0, 0]
    high = [4000, 360, 60, 1400, 600, 7200, 255, 255, 255, 7200]
    X[:, :10] = scaled(X[:, :10], low, high)
    X = X.astype(np.float32)
    y = (y == 2).astype(int) if name == "covertype 2" else y
    order = shuffle(len(X))
    train, test = order[:100_000], order[-100_000:]
    return X[train], y[train], X[test], y[test], math.sqrt(12)


DATA = ("mnist 3/8", "mnist", "adult", "covertype 2", "covertype 7")


# --- noise ---------------------------------------------------------------------------------------


def strategy_of(name, epsilon):
    kind, _, p = name.partition(" ")
    if kind == "DP-SGD":
        return Identity()
    if kind == "BIFR":
        return BIFR(best_gamma_for(SHAPE, epsilon, DELTA, int(p), "zero-out"), int(p))
    if kind == "BISR":
        return BISR(int(p))
    family = BLT(int(p)) if kind == "BLT" else BandInvMF(int(p))
    return family.optimize(PrefixSum(SHAPE.n_steps), participations=EPOCHS, separation=BINS)


def multiplier(name, epsilon, store):
    """Strategy and certified multiplier; kept, since it may take a minute."""
    strategy = strategy_of(name, epsilon)
    key = f"{name} {epsilon:g}"
    if key not in store.read()["multipliers"]:
        start = time.perf_counter()
        made = calibrate_noise_multiplier(epsilon, DELTA, strategy, SHAPE)
        entry = {
            "strategy": repr(strategy),
            "multiplier": float(made),
            "rmse": made.certificate.utility["rmse"],
            "method": made.certificate.method,
            "seconds": round(time.perf_counter() - start, 1),
        }
        store.add("multipliers", key, entry)
    return strategy, store.read()["multipliers"][key]["multiplier"]


def poisson_multiplier(epsilon, store):
    key = f"poisson {epsilon:g}"
    if key not in store.read()["multipliers"]:
        shape = Schedule(5000, 125, EPOCHS, "poisson")
        made = calibrate_noise_multiplier(epsilon, DELTA, Identity(), shape)
        store.add("multipliers", key, {"strategy": "Identity()", "multiplier": float(made)})
    return store.read()["multipliers"][key]["multiplier"]


class Store:
    """A JSON file that several processes add to."""

    def __init__(self, path):
        self.path = path
        if not path.exists():
            path.write_text('{"multipliers": {}, "scores": {}}\n')

    def read(self):
        """Return all entries."""
        with open(self.path) as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            return json.load(file)

    def add(self, part, key, value):
        """Keep one entry."""
        with open(self.path, "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            found = json.load(file)
            found[part][key] = value
            file.seek(0)
            file.truncate()
            json.dump(found, file, indent=1, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())


# --- methods -------------------------------------------------------------------------------------


def network(data, strategy, kappa, seed):
    """Fit the estimator with a multiplier that is certified already."""
    X, y, X_test, y_test, _ = data
    size = -(-len(X) // BINS)
    schedule = Schedule(len(X), size, EPOCHS, "balls_in_bins")
    plan = Plan(schedule, strategy, kappa, None)
    model = KANClassifierDP(
        batch_size=size, epochs=EPOCHS, feature_bounds=(-1, 1), classes=np.unique(y),
        noise_source="fast", feature_memory=2**31, device="cpu", random_state=seed,
    )  # fmt: skip
    with mock.patch.object(_classifier, "make_plan", return_value=plan):
        model.fit(X, y)
    return model.score(X_test, y_test)


class Dense:
    """Softmax regression, or a tanh network of one hidden layer; gradients clipped exactly.

    A layer's gradient of one record is an outer product, so its norm is a product of norms.
    """

    def __init__(self, n_features, hidden, n_classes, seed):
        generator = torch.Generator().manual_seed(seed)
        widths = [n_features, *([hidden] if hidden else []), n_classes]
        self.weights = []
        for k, (d, m) in enumerate(itertools.pairwise(widths)):
            last = k == len(widths) - 2
            w = torch.zeros(m, d + 1)
            if not last:
                w[:, :d] = torch.randn(m, d, generator=generator) / math.sqrt(d)
            self.weights.append(w)

    @staticmethod
    def _ones(a):
        return torch.cat([a, torch.ones(len(a), 1)], dim=1)

    def logits(self, X):
        """Return the logits, and what every layer gets."""
        inputs = [self._ones(X)]
        for w in self.weights[:-1]:
            inputs.append(self._ones(torch.tanh(inputs[-1] @ w.T)))
        return inputs[-1] @ self.weights[-1].T, inputs

    def clipped_sums(self, X, y):
        """Return the sums of the clipped gradients of the records, one for each layer."""
        z, inputs = self.logits(X)
        deltas = [torch.softmax(z, 1) - torch.nn.functional.one_hot(y, z.shape[1])]
        for a, w in zip(inputs[:0:-1], self.weights[:0:-1], strict=True):
            deltas.insert(0, (deltas[0] @ w)[:, :-1] * (1 - a[:, :-1] ** 2))
        squares = sum((d**2).sum(1) * (a**2).sum(1) for d, a in zip(deltas, inputs, strict=True))
        scale = (CLIP / squares.sqrt()).clamp(max=1.0)[:, None]
        return [(scale * d).T @ a for d, a in zip(deltas, inputs, strict=True)]


def tensors(data):
    """Training rows and codes of their labels, the same for testing, number of classes."""
    X, y, X_test, y_test, _ = data
    classes, codes = np.unique(y, return_inverse=True)
    arrays = (X, codes, X_test, np.searchsorted(classes, y_test))
    return *(torch.from_numpy(np.ascontiguousarray(a)) for a in arrays), len(classes)


def share_right(logits, codes):
    return float((logits.argmax(1) == codes).double().mean())


def dense(data, hidden, strategy, kappa, schedule, seed):
    """Best test accuracy over the learning rates."""
    X, codes, X_test, codes_test, n_classes = tensors(data)
    best = 0.0
    for lr in RATES:
        model = Dense(X.shape[1], hidden, n_classes, seed)
        noise = WeightNoise(strategy, model.weights, NoiseState(seed + 1), source="fast")
        for batch in schedule.batches(np.random.default_rng(seed)):
            sums = model.clipped_sums(X[batch], codes[batch])
            for w, s, z in zip(model.weights, sums, noise.draw(), strict=True):
                w.sub_((s + CLIP * kappa * z) * (lr / schedule.expected_batch_size))
        best = max(best, share_right(model.logits(X_test)[0], codes_test))
    return best


@torch.enable_grad()
def opacus(data, hidden, kappa, schedule, seed):
    """`dense` with one hidden layer, by Opacus (ghost clipping: the hooks take far longer)."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    X, codes, X_test, codes_test, n_classes = tensors(data)
    best = 0.0
    for lr in RATES:
        start = Dense(X.shape[1], hidden, n_classes, seed)
        first, last = torch.nn.Linear(X.shape[1], hidden), torch.nn.Linear(hidden, n_classes)
        with torch.no_grad():
            for layer, w in zip((first, last), start.weights, strict=True):
                layer.weight.copy_(w[:, :-1])
                layer.bias.copy_(w[:, -1])
        model = GradSampleModuleFastGradientClipping(
            torch.nn.Sequential(first, torch.nn.Tanh(), last), max_grad_norm=CLIP
        )
        optimizer = DPOptimizerFastGradientClipping(
            torch.optim.SGD(model.parameters(), lr), noise_multiplier=kappa, max_grad_norm=CLIP,
            expected_batch_size=schedule.expected_batch_size,
            generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip
        loss = DPLossFastGradientClipping(model, optimizer, torch.nn.CrossEntropyLoss())
        for batch in schedule.batches(np.random.default_rng(seed)):
            optimizer.zero_grad()
            loss(model(X[batch]), codes[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            best = max(best, share_right(model(X_test), codes_test))
    return best


def score(method, data, epsilon, seed, store):
    X, y, X_test, y_test, norm = data
    n, n_classes = len(X), len(np.unique(y))
    size = -(-n // BINS)
    if method == "no privacy":
        return network(data, Identity(), 0.0, seed)
    if method in STRATEGIES:
        return network(data, *multiplier(method, epsilon, store), seed)
    if method == "softmax":
        schedule = Schedule(n, size, EPOCHS, "balls_in_bins")
        return dense(data, 0, *multiplier("BIFR 4", epsilon, store), schedule, seed)
    if method in ("mlp", "opacus"):
        d = X.shape[1]
        outputs = 1 if n_classes == 2 else n_classes
        hidden = round(32 * 8 * (d + outputs) / (d + 1 + outputs))
        schedule = Schedule(n, size, EPOCHS, "poisson")
        kappa = poisson_multiplier(epsilon, store)
        if method == "opacus":
            return opacus(data, hidden, kappa, schedule, seed)
        return dense(data, hidden, Identity(), kappa, schedule, seed)
    best = 0.0
    for margin in (0.0, 1.0):
        model = ObjPertGDLogisticRegression(
            epsilon, DELTA, data_norm=norm, classes=np.unique(y), calibration="tight",
            adjacency="zero-out", margin=margin, random_state=seed,
            n_iter=10_000 if n_classes == 2 else 1000,
        )  # fmt: skip
        best = max(best, model.fit(X, y).score(X_test, y_test))
    return best


def table(scores):
    """Return the result as Markdown: mean and standard deviation over seeds, in per cent."""
    lines = []
    for epsilon in sorted({float(key.split(" | ")[2]) for key in scores} - {math.inf}):
        lines += [f"epsilon = {epsilon:g}:", "", "| | " + " | ".join(DATA) + " |"]
        lines.append("|---" * (len(DATA) + 1) + "|")
        for method in (*METHODS, "opacus", "no privacy"):
            cells = []
            for name in DATA:
                level = math.inf if method == "no privacy" else epsilon
                found = scores.get(f"{name} | {method} | {level:g}")
                shown = found and f"{100 * np.mean(found):.1f} ± {100 * np.std(found):.1f}"
                cells.append(shown or "–")
            if set(cells) != {"–"}:
                lines.append(f"| {method} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", nargs="*", default=DATA)
    parser.add_argument("--epsilon", nargs="*", type=float, default=(2.0, 8.0, 0.5, 1.0, 4.0))
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    warnings.simplefilter("ignore")
    store, loaded = Store(RESULT), {}
    jobs = [("no privacy", name, math.inf) for name in args.only]
    jobs += [(m, name, e) for e in args.epsilon for name in args.only for m in args.methods]
    for method, name, epsilon in jobs:
        key = f"{name} | {method} | {epsilon:g}"
        done = store.read()["scores"].get(key, [])
        if len(done) >= args.seeds:
            continue
        if name not in loaded:
            loaded = {name: data_set(name, args.directory)}  # one at a time
        start = time.perf_counter()
        for seed in range(len(done), args.seeds):
            done.append(round(score(method, loaded[name], epsilon, seed, store), 5))
        store.add("scores", key, done)
        TABLE.write_text(table(store.read()["scores"]))
        print(
            key, round(float(np.mean(done)), 4), f"{time.perf_counter() - start:.0f} s", flush=True
        )


if __name__ == "__main__":
    main()
