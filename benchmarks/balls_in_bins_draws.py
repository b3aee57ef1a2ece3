"""Ten million certified balls-in-bins draws, b = 100 bins, 2000 steps.

Prints seconds, peak memory and the bound.  The requirement is 90 s on 2 cores.

    python benchmarks/balls_in_bins_draws.py [number of draws]
"""

import os
import resource
import sys
import time

os.environ["SKLEARN_DPOP_CACHE"] = ""

from sklearn_dpop.factorization import BIFR
from sklearn_dpop.privacy import CorrelatedNoiseCertificate, Schedule, estimate_noise_multiplier


def main():
    n_draws = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10_000_000
    schedule = Schedule(n_samples=10_000, batch_size=100, epochs=20)
    strategy, epsilon = BIFR(0.7, 4), 2.0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sigma = 1.02 * estimate_noise_multiplier(epsilon, 1e-5, strategy, schedule)
    made = CorrelatedNoiseCertificate(
        strategy, schedule, sigma, epsilon, 1e-5, "zero-out", n_draws, 1e-8, epsilon
    )
    start = time.perf_counter()
    made.run(cache=None, progress="draws")
    seconds = time.perf_counter() - start
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{n_draws:.0e} draws of {schedule.n_steps} steps in {seconds:.1f} s, {peak:.0f} MiB")
    print(
        f"noise multiplier {sigma:.4f}: certified delta({epsilon}) = {made.delta_at(epsilon):.3g}"
    )


if __name__ == "__main__":
    main()
