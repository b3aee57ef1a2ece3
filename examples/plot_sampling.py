"""
Choose sampling, gamma and bandwidth for a budget, before seeing the data
=========================================================================

How much noise a training needs depends on how records meet steps, on how the noise of different
steps is correlated, and on the budget: all of them public, so all of it can be planned before
anyone opens the data.  Here: 1000 records, batches of 125, 5 epochs, epsilon = 2,
delta = 1e-5.
"""

import matplotlib.pyplot as plt

from sklearn_dpop.factorization import BIFR, Identity, PrefixSum, amplified_rmse, best_gamma
from sklearn_dpop.privacy import (
    Schedule,
    account,
    calibrate_noise_multiplier,
    estimate_noise_multiplier,
)

size = {"n_samples": 1000, "batch_size": 125, "epochs": 5}
epsilon, delta = 2.0, 1e-5

# %%
# **What the order of the batches is worth.**  The noise multiplier of independent noise: without
# any secret in the batches, with secret bins that each record draws once, and with secret fresh
# batches of a fixed size in every step.
for sampling in ("cyclic", "balls_in_bins", "without_replacement"):
    schedule = Schedule(**size, sampling=sampling)
    kappa = calibrate_noise_multiplier(epsilon, delta, Identity(), schedule)
    print(f"{sampling:20} noise multiplier {kappa:6.3f}   {kappa.certificate.theorem[:40]}...")

# %%
# **What correlation is worth.**  What counts in the end is the noise in the sums of gradients,
# the RMSE.  Estimated multipliers are good enough to compare strategies: every gamma has its own.
schedule = Schedule(**size, sampling="balls_in_bins")
workload = PrefixSum(schedule.n_steps)


def multiplier(strategy, n):
    return estimate_noise_multiplier(epsilon, delta, strategy, schedule)


def error(strategy):
    return amplified_rmse(workload, strategy, multiplier)


plans = {}
for bandwidth in (2, 4):
    gamma = best_gamma(
        schedule.n_steps, bandwidth, objective="amplified", noise_multiplier=multiplier
    )
    plans[bandwidth] = BIFR(gamma, bandwidth)
    print(
        f"bandwidth {bandwidth:2}: best gamma {gamma:.2f}, RMSE {error(plans[bandwidth]):6.2f} "
        f"(independent noise: {error(Identity()):.2f})"
    )

# %%
# **The guarantee.**  The plan that is chosen is certified: its multiplier comes from a bound that
# holds, and says how.
chosen = min(plans.values(), key=error)
kappa = calibrate_noise_multiplier(epsilon, delta, chosen, schedule, n_draws=1 << 19)
certificate = kappa.certificate
print(f"{chosen}: noise multiplier {kappa:.4f}")
print(f"certified delta({epsilon}) = {certificate.delta_at(epsilon):.3g}, {certificate.method}")
known = account(chosen, Schedule(**size, sampling="cyclic"), kappa)
print(f"epsilon for someone who knows the batches: {known.epsilon:.2f}")

# %%
# The error over gamma: the stronger the correlation, the more noise the accountant asks for.
gammas = [0.0, 0.2, 0.4, 0.6, 0.8]
fig, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for bandwidth in plans:
    ax.plot(gammas, [error(BIFR(g, bandwidth)) for g in gammas], label=f"bandwidth {bandwidth}")
ax.set(xlabel="gamma", ylabel="RMSE of the gradient sums", ylim=(0, None))
ax.legend()
plt.show()
