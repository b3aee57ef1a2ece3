"""
Coefficients of strategies, and the noise that is left
======================================================

A strategy matrix decides which part of the earlier noise is taken back in later steps.  Its
first column says how.  This example draws the columns of several strategies, then the
noise that each leaves in the sums of gradients, step by step, and checks the formula against
noise that was really drawn.
"""

# %%
# The columns
# -----------
# Left: the first column of ``C``.  The slower it falls, the longer a record's gradient is
# remembered, and the larger is what one record can change.  Right: the first column of the
# inverse.  The noise of a step is ``Z_t`` plus these multiples of the earlier ones: negative,
# so that it takes them back.

import matplotlib.pyplot as plt
import numpy as np

from sklearn_dpop.factorization import (
    BIFR,
    BSR,
    BandInvMF,
    Identity,
    LambdaCGD,
    PrefixSum,
    best_gamma,
    rmse,
    sensitivity,
)

epochs, steps = 5, 40
task = {"participations": epochs, "separation": steps}
workload = PrefixSum(epochs * steps)
gamma = round(best_gamma(workload.n, 8, epochs, steps), 2)
strategies = {
    "Identity (DP-SGD)": Identity(),
    "LambdaCGD(0.9)": LambdaCGD(0.9),
    f"BIFR({gamma}, 8)": BIFR(gamma, 8),
    "BandInvMF(8)": BandInvMF(8).optimize(workload, **task),
    "BSR(8)": BSR(8),
}
colors = ["0.45", "#b3541e", "#1f5f99", "#7a3b9a", "#2f7d4f"]

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for (name, strategy), color in zip(strategies.items(), colors, strict=True):
    left.plot(strategy.coef(workload.n)[:24], ".-", color=color, label=name, linewidth=1)
    right.plot(strategy.inverse_coef(workload.n)[:10], ".-", color=color, linewidth=1)
left.set(xlabel="distance of steps", title="C")
right.set(xlabel="distance of steps", title="inverse of C")
for ax in (left, right):
    ax.axhline(0, color="0.7", linewidth=0.8)
left.legend(frameon=False, fontsize=8)
plt.show()

# %%
# The noise in the sums
# ---------------------
# After step t the model contains the sum of the noise of all steps so far.  Its standard deviation
# is the norm of row t of ``B = A C^-1``, times the sensitivity.  The RMSE is the
# root mean square of these numbers.


def noise_by_step(strategy):
    b = np.cumsum(np.linalg.inv(strategy.matrix(workload.n)), axis=0)
    return np.linalg.norm(b, axis=1) * float(sensitivity(strategy, epochs, steps, workload.n))


print("strategy            sensitivity   RMSE")
for name, strategy in strategies.items():
    sens = float(sensitivity(strategy, epochs, steps, workload.n))
    print(f"{name:20} {sens:9.2f} {rmse(workload, strategy, **task):7.2f}")

fig, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
for (name, strategy), color in zip(strategies.items(), colors, strict=True):
    ax.plot(noise_by_step(strategy), color=color, label=name)
ax.set(xlabel="step", ylabel="noise in the sum, clip norms", yscale="log")
ax.set_title("Equal guarantee, different noise")
ax.legend(frameon=False, fontsize=8)
plt.show()

# %%
# Drawn, not computed
# -------------------
# 4,000 coordinates of the noise as a training draws it, summed over the steps.  The root mean
# square agrees with the formula.  A real training leaves ``rng`` out.

for name in ("Identity (DP-SGD)", f"BIFR({gamma}, 8)"):
    strategy = strategies[name]
    stream = strategy.noise_stream(4000, rng=0)
    sums = np.cumsum([next(stream) for _ in range(workload.n)], axis=0)
    drawn = np.sqrt(np.mean(sums**2)) * float(sensitivity(strategy, epochs, steps, workload.n))
    print(f"{name:20} drawn {drawn:6.2f}, by formula {rmse(workload, strategy, **task):6.2f}")
