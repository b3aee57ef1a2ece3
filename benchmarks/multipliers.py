"""Certified noise multipliers of all sampling schemes, side by side.

n = 5000, B = 125, 400 steps, delta = 1e-5, zero-out adjacency.  Without amplification there is
the sensitivity; the others are the smallest certified multiplier of each scheme, by Monte Carlo
where that is quick and better.  Writes ``results/multipliers.json`` and goes on where it was;
half an hour on 2 cores.

    python benchmarks/multipliers.py
"""

import json
import time
from pathlib import Path

from sklearn_dpop.factorization import BIFR, BSR, Identity, LambdaCGD
from sklearn_dpop.privacy import Schedule, calibrate_noise_multiplier

OUTPUT = Path(__file__).parent / "results" / "multipliers.json"
SIZE = {"n_samples": 5000, "batch_size": 125, "epochs": 10}
DELTA = 1e-5
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
STRATEGIES = (Identity(), LambdaCGD(0.5), LambdaCGD(0.9), BIFR(0.8, 4))
CELLS = [
    *((strategy, Schedule(**SIZE, sampling="cyclic")) for strategy in STRATEGIES),
    *((strategy, Schedule(**SIZE, sampling="balls_in_bins")) for strategy in STRATEGIES),
    *((strategy, Schedule(**SIZE, sampling="without_replacement")) for strategy in STRATEGIES),
    (BSR(4), Schedule(**SIZE, sampling="cyclic")),
    (BSR(4), Schedule(**SIZE, sampling="balls_in_bins")),
    (BSR(4), Schedule(**SIZE, sampling="cyclic_poisson", separation=4)),
    (BSR(4), Schedule(**SIZE, sampling="min_separated", separation=20)),
    *((strategy, Schedule(**SIZE, sampling="poisson")) for strategy in STRATEGIES),
]


def main():
    rows = json.loads(OUTPUT.read_text())["rows"] if OUTPUT.exists() else []
    done = {(r["sampling"], r["separation"], r["strategy"], r["epsilon"]) for r in rows}
    for strategy, schedule in CELLS:
        for epsilon in EPSILONS:
            if (schedule.sampling, schedule.separation, repr(strategy), epsilon) in done:
                continue
            start = time.perf_counter()
            # Poisson states and drawn places take minutes each: see the page on sampling.
            slow = schedule.sampling in ("poisson", "without_replacement")
            made = calibrate_noise_multiplier(
                epsilon, DELTA, strategy, schedule, method="deterministic" if slow else "auto"
            )
            certificate = made.certificate
            rows.append(
                {
                    "sampling": schedule.sampling,
                    "separation": schedule.separation,
                    "strategy": repr(strategy),
                    "epsilon": epsilon,
                    "multiplier": float(made),
                    "rmse": certificate.utility["rmse"],
                    "method": certificate.method,
                    "theorem": certificate.theorem,
                    "n_draws": certificate.n_draws,
                    "seconds": round(time.perf_counter() - start, 1),
                }
            )
            print(rows[-1], flush=True)
            OUTPUT.write_text(json.dumps({"size": SIZE, "delta": DELTA, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
