"""
Error of correlated noise against gamma and bandwidth
=====================================================

How much earlier noise should a step cancel?  Little memory asks for a gamma near 1, much memory
for a gamma near 1/2.
"""

import matplotlib.pyplot as plt

from sklearn_dpop.factorization import (
    BIFR,
    BISR,
    BSR,
    BandMF,
    PrefixSum,
    plot_error_against_bandwidth,
    plot_error_against_gamma,
)

# %%
# What a strategy is: the first columns of ``C`` and of its inverse.
BIFR(0.9, 4).plot(40)

# %%
# The error against gamma, for 20 epochs of 100 steps.  The dot is ``best_gamma``.
workload, epochs, steps = PrefixSum(2000), 20, 100
plot_error_against_gamma(workload, [2, 4, 16, 64], epochs, steps)

# %%
# The error against the bandwidth, which is the number of stored vectors plus one.
plot_error_against_bandwidth(
    workload, {"BISR": BISR, "BSR": BSR, "BandMF": BandMF}, [2, 4, 8, 16, 32, 64], epochs, steps
)
plt.show()
