"""Draw the pictures of README.md and docs/logistic.md.

python docs/pictures.py
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np

from sklearn_dpop import _demo
from sklearn_dpop.privacy import calibrate_objective_perturbation, gaussian_noise_multiplier

IMAGES = Path(__file__).parent / "images"
N_SAMPLES, N_FEATURES, DELTA = 10_000, 51, 1e-5


def noise_multiplier(epsilon, calibration):
    """Return sigma / G of a release with automatic regularization."""
    certificate = calibrate_objective_perturbation(
        N_SAMPLES, N_FEATURES, float(epsilon), DELTA, calibration=calibration
    )
    return certificate.noise_multiplier


def draw_accuracy():
    """Draw the picture of README.md: that of the demo, by more fits."""
    _demo._FITS = 101
    with tempfile.TemporaryDirectory() as folder:
        _demo.run_demo(folder)
        shutil.copy(Path(folder, "accuracy.png"), IMAGES)


def draw_noise():
    """Draw the picture of docs/logistic.md: noise of the calibrations, and the Gaussian limit."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    tight = np.geomspace(0.05, 8, 20)
    corollary = np.geomspace(0.05, 1, 8)
    curves = {
        "Corollary 4.13": (corollary, [noise_multiplier(e, "corollary") for e in corollary]),
        "tight": (tight, [noise_multiplier(e, "tight") for e in tight]),
    }
    fig, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    colors = {"Corollary 4.13": "#b3541e", "tight": "#1f5f99"}
    for name, (epsilons, values) in curves.items():
        left.plot(epsilons, values, color=colors[name], label=name, linewidth=2)
        gaussian = [gaussian_noise_multiplier(float(e), DELTA) for e in epsilons]
        right.plot(
            epsilons, np.divide(values, gaussian), color=colors[name], label=name, linewidth=2
        )
    left.plot(
        tight,
        [gaussian_noise_multiplier(float(e), DELTA) for e in tight],
        "--",
        color="0.3",
        label="exact Gaussian mechanism",
    )
    right.axhline(1.0, color="0.3", linestyle="--")
    left.set(ylabel="noise sigma / G", yscale="log", title="Noise")
    right.set(ylabel="times that of the Gaussian mechanism", title="Against the limit")
    right.set_ylim(0, None)
    for ax in (left, right):
        ax.set(xlabel="epsilon", xscale="log")
        ticks = [0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8]
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
    left.legend(frameon=False)
    fig.savefig(IMAGES / "noise_against_gaussian.png", dpi=160)


if __name__ == "__main__":
    draw_accuracy()
    draw_noise()
