"""Figure 2 of arXiv 2605.12648, and what it looks like at equal privacy.

A KAN (m = 32, p = 8, output layer fixed) is trained by Algorithm 1 with the noise
``kappa (Z_t - lambda Z_{t-1})``: n = 5000, B = 125, 400 steps, C_clip = 0.5, eta = 1.  Synthetic
data (unit sphere of R^20, P(y = 1) = sigmoid(<w, x>), |w| = 10), MNIST 3 against 8 with rows of
unit norm, and with pixels in [0, 1].  Mean training loss along the trajectory, every tenth step,
and at its end; five seeds, and for each of them the same data, weights, batches and Z for every
lambda.

* ``fixed``: kappa is 6.3 or 11.8 for every lambda, as in the paper.  The guarantee of each point
  is computed and written beside it.
* ``equal``: kappa is calibrated for every lambda to the epsilon that 6.3 or 11.8 give at
  lambda = 0, which are 2 and 1 (delta = 1e-5).  Batches in the same order in every epoch.
* ``equal, secret batches``: the same epsilons with balls-in-bins batches.

The noise is ``C_clip kappa / B``, as in Algorithm 1; epsilon is for zero-out adjacency.  For
replace-one everything is repeated with twice the noise, which has the same epsilon.

    python benchmarks/kan_figure2.py --mnist mnist.npz    # arrays X, y, split (0: training)
    python benchmarks/kan_figure2.py                      # downloads MNIST from OpenML
    python benchmarks/kan_figure2.py --picture            # only draws the results

Goes on where it was; 45 minutes on one core.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from sklearn_dpop.factorization import LambdaCGD, NoiseState
from sklearn_dpop.neural_network._clipped import FeatureStore, per_record
from sklearn_dpop.neural_network._kan import KAN
from sklearn_dpop.neural_network._noise import WeightNoise
from sklearn_dpop.neural_network._step import PrivateStep
from sklearn_dpop.privacy import Schedule, account, calibrate_noise_multiplier

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "kan_figure2.json"
PICTURE = ROOT / "docs" / "images" / "kan_figure2.png"
SIZE = {"n_samples": 5000, "batch_size": 125, "epochs": 10}
DELTA, CLIP, LR, EVERY = 1e-5, 0.5, 1.0, 10
LAMBDAS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.99)
KAPPAS = {6.3: 2.0, 11.8: 1.0}  # and epsilon at lambda = 0
SEEDS = 5
LOSSES = ("average_loss", "final_loss")
# Means over 2 or 3 seeds of (average loss, final loss), from a program that shares no code with
# this one (plain torch, noise kappa / B: replace-one), and standard deviations over the seeds.
INDEPENDENT = {
    ("synthetic", "none"): [(0.6607, 0.5897)],
    ("synthetic", 6.3): [
        (0.6851, 0.6454),
        (0.6683, 0.6098),
        (0.6618, 0.5947),
        (0.6610, 0.5920),
        (0.6609, 0.5912),
        (0.6610, 0.5907),
    ],
    ("synthetic", 11.8): [
        (0.7126, 0.6919),
        (0.6838, 0.6432),
        (0.6665, 0.6040),
        (0.6631, 0.5965),
        (0.6624, 0.5943),
        (0.6625, 0.5934),
    ],
    ("synthetic", "equal 6.3"): [
        (0.6851, 0.6454),
        (0.6705, 0.6153),
        (0.6653, 0.6021),
        (0.6648, 0.5999),
        (0.6686, 0.6041),
        (0.7224, 0.6655),
    ],
    ("mnist", "none"): [(0.6528, 0.6164)],
    ("mnist", 6.3): [
        (0.6580, 0.6221),
        (0.6568, 0.6179),
        (0.6549, 0.6191),
        (0.6541, 0.6181),
        (0.6537, 0.6175),
        (0.6534, 0.6167),
    ],
    ("mnist", 11.8): [
        (0.6728, 0.6551),
        (0.6590, 0.6221),
        (0.6591, 0.6245),
        (0.6561, 0.6218),
        (0.6552, 0.6209),
        (0.6545, 0.6199),
    ],
    ("mnist", "equal 6.3"): [
        (0.6580, 0.6221),
        (0.6571, 0.6171),
        (0.6583, 0.6237),
        (0.6581, 0.6255),
        (0.6636, 0.6394),
        (0.7171, 0.6780),
    ],
}
INDEPENDENT_SD = {"synthetic": (0.023, 0.019), "mnist": (0.007, 0.011)}


def synthetic(seed):
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(20)
    w *= 10 / np.linalg.norm(w)
    X = rng.standard_normal((SIZE["n_samples"], 20))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, rng.random(len(X)) < 1 / (1 + np.exp(-X @ w))


def mnist(path, unit_norm):
    """Return a function that draws training images of 3 and 8."""
    if path is None:
        from sklearn.datasets import fetch_openml

        X, y = fetch_openml("mnist_784", version=1, return_X_y=True, as_frame=False)
        X, y = X[:60_000], y[:60_000].astype(int)
    else:
        with np.load(path) as file:
            X, y, split = file["X"], file["y"].astype(int), file["split"]
        X, y = X[split == 0], y[split == 0]
    candidates = np.isin(y, (3, 8)).nonzero()[0]

    def draw(seed):
        rows = np.random.default_rng(seed).permutation(candidates)[: SIZE["n_samples"]]
        drawn = X[rows] / 255
        if unit_norm:
            drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        return drawn, y[rows] == 8

    return draw


def settings():
    """All trainings of a seed: the noise, its guarantee, and what is added."""
    yield {"noise": "none", "sampling": "cyclic", "multiplier": 0.0}
    for kappa, target in KAPPAS.items():
        for noise, sampling, adjacency in (
            ("fixed", "cyclic", "zero-out"),
            ("equal", "cyclic", "zero-out"),
            ("equal, secret batches", "balls_in_bins", "zero-out"),
            ("fixed", "cyclic", "replace-one"),
            ("equal", "cyclic", "replace-one"),
        ):
            schedule = Schedule(**SIZE, sampling=sampling)
            for lambda_ in LAMBDAS:
                strategy, epsilon = LambdaCGD(lambda_), target
                if noise == "fixed":
                    multiplier = kappa * (2.0 if adjacency == "replace-one" else 1.0)
                    epsilon = account(
                        strategy, schedule, multiplier, delta=DELTA, adjacency=adjacency
                    ).epsilon
                else:
                    multiplier = calibrate_noise_multiplier(
                        epsilon, DELTA, strategy, schedule, adjacency=adjacency
                    )
                yield {
                    "noise": noise,
                    "sampling": sampling,
                    "adjacency": adjacency,
                    "kappa": kappa,
                    "lambda": lambda_,
                    "multiplier": round(float(multiplier), 4),
                    "epsilon": round(float(epsilon), 4),
                }


def network(d, seed):
    return KAN(d, generator=torch.Generator().manual_seed(seed))


def train(store, labels, d, seed, setting):
    """Average and final loss, and final accuracy, on the training records."""
    net = network(d, seed)
    weights = [p.detach() for p in net.parameters()]
    noise = None
    if setting["multiplier"]:
        noise = WeightNoise(
            LambdaCGD(setting["lambda"]), weights, NoiseState(key=seed), source="fast"
        )
    step = PrivateStep(
        net,
        store,
        labels,
        torch.optim.SGD(net.parameters(), lr=LR),
        max_grad_norm=CLIP,
        batch_size=SIZE["batch_size"],
        noise=noise,
        noise_multiplier=setting["multiplier"],
    )
    schedule = Schedule(**SIZE, sampling=setting["sampling"])

    def loss_now():
        return float(per_record(net, store.take(slice(None)), labels).losses.double().mean())

    losses = []
    for t, batch in enumerate(schedule.batches(np.random.default_rng(seed))):
        if t % EVERY == 0:
            losses.append(loss_now())
        step(torch.from_numpy(batch))
    # The store's features are those of the first layer.
    first, second = net.spline_layers
    with torch.no_grad():
        h = torch.tanh(store.take(slice(None)).features @ first.matrix.T * first.scale)
        right = (second(h)[:, 0] > 0) == (labels > 0)
    return float(np.mean(losses)), loss_now(), float(right.double().mean())


def measure(path):
    rows = json.loads(RESULT.read_text())["rows"] if RESULT.exists() else []
    done = {row["data"] for row in rows}
    planned = [*settings()]
    for name, make in (
        ("synthetic", lambda: synthetic),
        ("mnist", lambda: mnist(path, unit_norm=True)),
        ("mnist pixels", lambda: mnist(path, unit_norm=False)),
    ):
        if name in done:
            continue
        draw, found = make(), [[] for _ in planned]
        for seed in range(SEEDS):
            X, y = draw(seed)
            labels = torch.from_numpy(y.astype(np.float32))
            store = FeatureStore(network(X.shape[1], seed), X, memory_budget=2**28)
            for setting, outcomes in zip(planned, found, strict=True):
                outcomes.append(train(store, labels, X.shape[1], seed, setting))
            print(name, "seed", seed, flush=True)
        for setting, outcomes in zip(planned, found, strict=True):
            columns = (
                [round(float(v), 5) for v in column] for column in zip(*outcomes, strict=True)
            )
            measured = dict(zip((*LOSSES, "accuracy"), columns, strict=True))
            rows.append({"data": name, **setting, **measured})
        write(rows)


def write(rows):
    size = {**SIZE, "delta": DELTA, "max_grad_norm": CLIP, "lr": LR, "seeds": SEEDS}
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    RESULT.write_text(
        f'{{\n "size": {json.dumps(size)},\n'
        f' "distance from independent numbers, in standard deviations over seeds": '
        f'{json.dumps(agreement(rows))},\n "rows": [\n  {lines}\n ]\n}}\n'
    )


def agreement(rows):
    """Compare with the independent numbers: other seeds, so other data, weights and batches."""
    found = {}
    for row in rows:
        if row["noise"] == "none":
            found.setdefault((row["data"], "none"), []).append(row)
        elif row["adjacency"] == "replace-one":
            which = row["kappa"] if row["noise"] == "fixed" else f"equal {row['kappa']}"
            found.setdefault((row["data"], which), []).append(row)
    largest = {}
    for key, expected in INDEPENDENT.items():
        if key not in found:
            continue
        for row, pair in zip(found[key], expected, strict=True):
            for loss, value, sd in zip(LOSSES, pair, INDEPENDENT_SD[key[0]], strict=True):
                spread = np.hypot(sd, np.std(row[loss], ddof=1))
                distance = float(abs(np.mean(row[loss]) - value) / spread)
                name = f"{key[0]}, {loss}"
                largest[name] = round(max(largest.get(name, 0.0), distance), 2)
    return largest


def draw(rows):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    names = {
        "synthetic": "synthetic data",
        "mnist": "MNIST 3 against 8, unit norm",
        "mnist pixels": "MNIST 3 against 8, pixels",
    }
    kinds = {
        "fixed": "fixed kappa,\nas in the paper",
        "equal": "fixed epsilon,\npublic batches",
        "equal, secret batches": "fixed epsilon,\nsecret batches",
    }
    colors = {6.3: "#1f5f99", 11.8: "#b3541e"}
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    fig, axes = plt.subplots(
        len(kinds), len(names), figsize=(10.5, 9.2), sharey="col", layout="constrained"
    )
    x = np.arange(len(LAMBDAS))
    for panels, (noise, label) in zip(axes, kinds.items(), strict=True):
        for ax, (data, title) in zip(panels, names.items(), strict=True):
            of_data = [row for row in rows if row["data"] == data]
            (none,) = (row for row in of_data if row["noise"] == "none")
            for loss, style in zip(LOSSES, ("-", "--"), strict=True):
                ax.axhline(np.mean(none[loss]), color="0.75", linestyle=style, linewidth=1)
            below = {}
            for kappa, color in colors.items():
                curve = [
                    row
                    for row in of_data
                    if row["noise"] == noise
                    and row["adjacency"] == "zero-out"
                    and row["kappa"] == kappa
                ]
                for loss, style in zip(LOSSES, ("o-", "s--"), strict=True):
                    ax.plot(
                        x, [np.mean(row[loss]) for row in curve], style, color=color, markersize=4
                    )
                below[kappa] = [
                    row["epsilon" if noise == "fixed" else "multiplier"] for row in curve
                ]
            ax.set_xticks(x, [f"{v:g}" for v in LAMBDAS])
            for line, (kappa, values) in enumerate(below.items()):
                for position, value in zip(x, values, strict=True):
                    ax.annotate(
                        f"{value:.3g}" if value < 100 else f"{value:.0f}",
                        (position, 0),
                        (0, -27 - 11 * line),
                        xycoords=ax.get_xaxis_transform(),
                        textcoords="offset points",
                        ha="center",
                        fontsize=7.5,
                        color=colors[kappa],
                    )
            which = "epsilon" if noise == "fixed" else "kappa"
            for text, down, size in ((which, -32.5, 7.5), ("lambda", -10, 9)):
                ax.annotate(
                    text,
                    (0, 0),
                    (-6, down),
                    xycoords="axes fraction",
                    textcoords="offset points",
                    ha="right",
                    va="center",
                    fontsize=size,
                )
            # Room for the lines of numbers.
            ax.set_xlabel("\n", fontsize=11)
            if noise == "fixed":
                ax.set_title(title, fontsize=10)
        panels[0].set_ylabel(f"{label}\n\ntraining loss")
    handles = [
        Line2D([], [], color="0.3", marker="o", markersize=4, label="average over the training"),
        Line2D([], [], color="0.3", marker="s", markersize=4, ls="--", label="at its end"),
        *(
            Line2D([], [], color=color, lw=3, label=f"kappa = {k:g} or epsilon = {KAPPAS[k]:g}")
            for k, color in colors.items()
        ),
        Line2D([], [], color="0.75", label="without noise"),
    ]
    fig.legend(handles=handles, loc="outside upper center", ncols=5, frameon=False)
    fig.savefig(PICTURE, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mnist", metavar="FILE", help="npz file with X, y and split")
    parser.add_argument("--picture", action="store_true", help="only draw the results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not arguments.picture:
        measure(arguments.mnist)
    draw(json.loads(RESULT.read_text())["rows"])


if __name__ == "__main__":
    main()
