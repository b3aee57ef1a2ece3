"""
Choose a strategy for a memory limit and make its noise
=======================================================

Ten epochs of 50 steps with momentum; at most four extra copies of the model fit into memory.
"""

import numpy as np

from sklearn_dpop.factorization import (
    BIFR,
    BISR,
    BLT,
    BandInvMF,
    Identity,
    Momentum,
    best_gamma,
    rmse,
    sensitivity,
)

epochs, steps = 10, 50
workload = Momentum(epochs * steps, 0.9)
task = {"participations": epochs, "separation": steps}

# %%
# Candidates that store at most four vectors.  Families are optimized for the task.
gamma = best_gamma(workload.n, 5, epochs, steps, workload)
candidates = [Identity(), BISR(5), BIFR(gamma, 5), BandInvMF(5), BLT(4)]
candidates = [strategy.optimize(workload, **task) for strategy in candidates]
for strategy in candidates:
    print(f"{type(strategy).__name__:10} RMSE {rmse(workload, strategy, **task):8.2f}")
best = min(candidates, key=lambda strategy: rmse(workload, strategy, **task))

# %%
# The sensitivity says by which theorem it is known, and whether it is exact.
print(repr(sensitivity(best, **task)))

# %%
# Noise for a model of 1000 parameters.  A real training leaves ``rng`` out: the key then comes
# from the operating system.  The state is all that a checkpoint has to keep.
noise = best.noise_stream(1000, rng=0)
for _ in range(3):
    row = next(noise)
resumed = best.noise_stream(1000, noise.state)
print("resumed:", np.array_equal(next(noise), next(resumed)))

# %%
# The noise left in the model after all steps, against the independent noise of DP-SGD.
for strategy in (Identity(), best):
    stream = strategy.noise_stream(1000, rng=0)
    velocity, model = np.zeros(1000), np.zeros(1000)
    for row, _ in zip(stream, range(workload.n), strict=False):
        velocity = 0.9 * velocity + row
        model += velocity
    scale = sensitivity(strategy, **task)
    print(f"{type(strategy).__name__:10} noise in the final model {scale * model.std():8.2f}")
