"""Section 3.1 of arXiv 2605.18379: the gamma with the least amplified error.

Balls-in-bins sampling, n = 50,000, B = 512, 20 epochs, delta = 1e-5 (the paper's CIFAR-10
setting).  For every bandwidth and epsilon: the best gamma of BIFR, its amplified RMSE for prefix
sums and that of DP-SGD, with estimated multipliers.  Writes
``results/amplified_gamma.json``; takes half an hour on 2 cores.

    python benchmarks/amplified_gamma.py
"""

import json
import time
from pathlib import Path

from sklearn_dpop.factorization import BFR, BIFR, Identity, PrefixSum, amplified_rmse, best_gamma
from sklearn_dpop.privacy import Schedule, estimate_noise_multiplier

OUTPUT = Path(__file__).parent / "results" / "amplified_gamma.json"
SCHEDULE = Schedule(n_samples=50_000, batch_size=512, epochs=20)
DELTA = 1e-5
EPSILONS = (0.5, 1.0, 2.0, 8.0)
BANDWIDTHS = (2, 4, 64, SCHEDULE.n_steps)
GAMMAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


def main():
    n = SCHEDULE.n_steps
    workload = PrefixSum(n)
    cells, curves = [], []
    for epsilon in EPSILONS:

        def multiplier(strategy, n, epsilon=epsilon):
            return estimate_noise_multiplier(epsilon, DELTA, strategy, SCHEDULE)

        def error(strategy, multiplier=multiplier):
            return amplified_rmse(workload, strategy, multiplier)

        baseline = error(Identity())
        for p in BANDWIDTHS:
            start = time.perf_counter()
            gamma = best_gamma(n, p, objective="amplified", noise_multiplier=multiplier)
            cell = {
                "epsilon": epsilon,
                "bandwidth": p,
                "gamma": round(gamma, 3),
                "rmse": error(BIFR(gamma, p)),
                "dp_sgd": baseline,
                "multiplier": multiplier(BIFR(gamma, p), n),
                "seconds": round(time.perf_counter() - start, 1),
            }
            cells.append(cell)
            print(cell, flush=True)
        if epsilon in (1.0, 8.0):
            for gamma in GAMMAS:
                for name, strategy in (("BIFR", BIFR(gamma, n)), ("BFR", BFR(gamma, n))):
                    curves.append(
                        {
                            "epsilon": epsilon,
                            "family": name,
                            "gamma": gamma,
                            "rmse": error(strategy),
                        }
                    )
        OUTPUT.write_text(
            json.dumps(
                {
                    "schedule": SCHEDULE.to_dict(),
                    "delta": DELTA,
                    "best": cells,
                    "free_bandwidth": curves,
                },
                indent=1,
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
