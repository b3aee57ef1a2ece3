"""Test accuracy of linear classifiers against epsilon: diffprivlib, Opacus and this package.

Same data, split and public scaling as ``accuracy.py``, median over noise draws.  Ours comes from
its results, with fixed parameters (margin 1).  The peers get an advantage: their
parameter is the one with the best *test* accuracy at every epsilon, which is not private.

* diffprivlib 0.6.6 ``LogisticRegression``: pure epsilon (delta = 0), replace-one; C from 0.001 to
  100, ``fit_intercept=False`` (its intercept is not regularized, which its theorem needs).
  It cannot be constructed with scikit-learn 1.8 or later.
* Opacus 1.6.0: a linear layer trained by DP-SGD, Poisson batches of 128 for 40 epochs, PRV
  accountant, add/remove, delta = 1e-5; rows clipped to data_norm, gradients to norm 1, learning
  rate from 0.1 to 8.

Needs ``pip install "scikit-learn==1.7.2" diffprivlib opacus`` in an environment of its own.
Writes ``benchmarks/results/accuracy_vs_peers.md`` and ``.json``.
"""

import json
import warnings
from pathlib import Path

import numpy as np
from accuracy import EPSILONS, data_sets
from sklearn.model_selection import train_test_split

RESULTS = Path(__file__).parent / "results"
OURS = {
    "ours, replace-one": "tight, replace-one, margin 1",
    "ours, zero-out": "tight, zero-out, margin 1",
}
SEEDS, TUNING_SEEDS = 20, 5
EPOCHS, BATCH = 40, 128


def diffprivlib_accuracy(split, data_norm, epsilon):
    from diffprivlib.models import LogisticRegression

    X_train, X_test, y_train, y_test = split

    def score(C):
        model = LogisticRegression(
            epsilon=epsilon, data_norm=data_norm, C=C, fit_intercept=False, max_iter=1000
        )
        return model.fit(X_train, y_train).score(X_test, y_test)

    return max(float(np.median([score(C) for _ in range(SEEDS)])) for C in np.logspace(-3, 2, 6))


def opacus_accuracy(split, data_norm, epsilon):
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    X_train, X_test, y_train, y_test = split
    labels, targets = np.unique(y_train, return_inverse=True)

    def clipped(X):
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        return torch.tensor(X / np.maximum(norms / data_norm, 1.0), dtype=torch.float32)

    records = TensorDataset(clipped(X_train), torch.tensor(targets))
    X_test = clipped(X_test)
    noise = None

    def score(lr):
        nonlocal noise
        model = torch.nn.Linear(X_test.shape[1], len(labels))
        torch.nn.init.zeros_(model.weight)
        torch.nn.init.zeros_(model.bias)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        settings = {
            "module": model,
            "optimizer": optimizer,
            "data_loader": DataLoader(records, batch_size=BATCH),
            "max_grad_norm": 1.0,
        }
        if noise is None:
            model, optimizer, loader = PrivacyEngine(accountant="prv").make_private_with_epsilon(
                target_epsilon=epsilon, target_delta=1e-5, epochs=EPOCHS, **settings
            )
            noise = optimizer.noise_multiplier
        else:
            model, optimizer, loader = PrivacyEngine(accountant="prv").make_private(
                noise_multiplier=noise, **settings
            )
        for _ in range(EPOCHS):
            for X, y in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(X), y).backward()
                optimizer.step()
        predicted = labels[model(X_test).argmax(1).numpy()]
        return float(np.mean(predicted == y_test))

    rates = (0.1, 0.3, 1.0, 3.0, 8.0)
    best = max(rates, key=lambda lr: np.median([score(lr) for _ in range(TUNING_SEEDS)]))
    return float(np.median([score(best) for _ in range(SEEDS)]))


def main():
    warnings.simplefilter("ignore")
    ours = json.loads((RESULTS / "accuracy.json").read_text(encoding="utf-8"))
    peers = {
        "diffprivlib, pure epsilon, replace-one": diffprivlib_accuracy,
        "Opacus, linear DP-SGD, add/remove": opacus_accuracy,
    }
    results, lines = {}, []
    for name, X, y, data_norm in data_sets():
        split = train_test_split(X, y, test_size=0.3, random_state=0)
        rows = {
            label: {epsilon: ours[name][variant][str(epsilon)] for epsilon in EPSILONS}
            for label, variant in OURS.items()
        }
        for label, accuracy in peers.items():
            rows[label] = {e: accuracy(split, data_norm, e) for e in EPSILONS}
            print(name, label, rows[label], flush=True)
        results[name] = rows
        lines += [f"**{name}**: n = {len(split[0])}, not private {ours[name]['non-private']:.3f}"]
        lines += ["", "| | " + " | ".join(f"ε = {e:g}" for e in EPSILONS) + " |"]
        lines += ["|" + "---|" * (len(EPSILONS) + 1)]
        for label, row in rows.items():
            lines += [f"| {label} | " + " | ".join(f"{row[e]:.3f}" for e in EPSILONS) + " |"]
        lines += [""]
    (RESULTS / "accuracy_vs_peers.md").write_text("\n".join(lines), encoding="utf-8")
    (RESULTS / "accuracy_vs_peers.json").write_text(
        json.dumps(results, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
