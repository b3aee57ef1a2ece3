"""
Privacy profiles
================

A pair (epsilon, delta) is one point of a curve: for every epsilon there is a smallest delta.
The whole curve is what a mechanism guarantees.  This example draws the curves of several
releases and reads three things off them.
"""

# %%
# One pair, different curves
# --------------------------
# Two releases of the same model class on the same number of records, both with epsilon = 1 and
# delta = 1e-6.  The corollary adds five times as much noise as the tight calibration, so
# its curve is far below at small epsilon: it guarantees more than it says.  The tight curve
# meets that of the Gaussian mechanism at the stated pair and is a looser bound far from it.

import numpy as np

from sklearn_dpop.privacy import (
    calibrate_objective_perturbation,
    compose_profile,
    gaussian_delta,
    gaussian_noise_multiplier,
)

plans = {
    calibration: calibrate_objective_perturbation(
        5000, 21, epsilon=1.0, delta=1e-6, calibration=calibration
    )
    for calibration in ("corollary", "tight")
}
epsilons = np.linspace(0, 1.6, 33)
curves = {
    "corollary": [plans["corollary"].delta_at(e) for e in epsilons],
    "tight": [plans["tight"].delta_at(e) for e in epsilons],
    "Gaussian mechanism": [
        gaussian_delta(e, noise_multiplier=gaussian_noise_multiplier(1.0, 1e-6)) for e in epsilons
    ],
}
for name, curve in curves.items():
    print(f"{name:20} delta(0) = {curve[0]:.4f}")

# %%
# Delta at epsilon = 0 has a meaning of its own.  Somebody who knows everything but which of two
# records was used guesses right with probability at most (1 + delta(0)) / 2.

import matplotlib.pyplot as plt

styles = {"corollary": "-", "tight": "-", "Gaussian mechanism": "--"}
colors = {"corollary": "#b3541e", "tight": "#1f5f99", "Gaussian mechanism": "0.35"}


def draw(ax, x, lines, title):
    for name, y in lines.items():
        ax.plot(x, y, styles.get(name, "-"), color=colors.get(name), label=name)
    ax.set(yscale="log", ylim=(1e-9, 1), xlim=(0, x[-1]), xlabel="epsilon", title=title)
    ax.set_ylabel("smallest certified delta")
    ax.legend(frameon=False, fontsize=8)


fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
draw(ax, epsilons, curves, "One release")
ax.plot([1.0], [1e-6], "o", color="#b3261e")
ax.annotate("stated", (1.0, 1e-6), (6, 6), textcoords="offset points", color="#b3261e")
plt.show()

# %%
# Several releases
# ----------------
# Curves compose better than pairs.  Five fits with epsilon = 1 are far from epsilon = 5.  The
# curve of one fit is read at a few points; between them the chord in ``exp(epsilon)`` is
# a bound.

points = np.append(np.linspace(0, 2.0, 17), 4.0)
deltas = [plans["tight"].delta_at(e) for e in points]


def log_delta(e):
    return np.log(np.interp(np.exp(e.clip(max=points[-1])), np.exp(points), deltas))


wide = np.linspace(0, 6, 61)
composed = {}
for fits in (1, 2, 5):
    total = compose_profile(log_delta, fits, delta=1e-8)
    composed[f"{fits} fits" if fits > 1 else "1 fit"] = [total.delta(e) for e in wide]
    print(f"{fits} fits: epsilon = {total.epsilon(5e-6):.2f} at delta = 5e-6")

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
draw(ax, wide, composed, "Several releases on the same records")
plt.show()

# %%
# What secret batches are worth
# -----------------------------
# The same noise, the same number of steps: only who knows the batches differs.  Independent
# noise, 40 steps an epoch, 10 epochs, noise multiplier 4.

from sklearn_dpop.factorization import Identity
from sklearn_dpop.privacy import Schedule, account

samplings = {}
for sampling in ("cyclic", "balls_in_bins", "poisson"):
    schedule = Schedule(n_samples=5000, batch_size=125, epochs=10, sampling=sampling)
    certificate = account(Identity(), schedule, 4.0)
    samplings[sampling] = [certificate.delta_at(float(e)) for e in epsilons]
    print(f"{sampling:14} epsilon = {certificate.epsilon_at(1e-5):.2f} at delta = 1e-5")

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
draw(ax, epsilons, samplings, "Ten epochs with noise multiplier 4")
plt.show()

# %%
# The curve of a fitted model is ``model.privacy_report_.plot_profile()``.
