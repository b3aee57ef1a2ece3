"""Tables of the documentation page on choosing a strategy; writes them as Markdown.

Run: python benchmarks/factorization_tables.py
"""

from pathlib import Path

from sklearn_dpop.factorization import (
    BIFR,
    BISR,
    BLT,
    BSR,
    BandInvMF,
    BandMF,
    Identity,
    LambdaCGD,
    Momentum,
    PrefixSum,
    amplified_rmse,
    best_gamma,
    rmse,
)

RESULT = Path(__file__).parent / "results" / "factorization_tables.md"
N = 2000
EPOCHS = (1, 5, 20)
EPSILONS = (0.5, 1, 2, 4, 8)
# Noise multipliers of balls-in-bins sampling: 400 steps, 40 bins, 10 epochs, delta = 1e-5.  Monte
# Carlo estimates to about 2 %, not certificates.
MULTIPLIERS = (
    (Identity(), (4.31, 3.27, 2.58, 1.97, 1.39)),
    (LambdaCGD(0.5), (7.29, 4.35, 3.11, 2.29, 1.61)),
    (LambdaCGD(0.9), (34.9, 18.6, 9.97, 5.76, 3.51)),
    (BIFR(0.8, 4), (39.4, 20.9, 11.1, 6.23, 3.66)),
)


def best_bifr(workload, k, p):
    return BIFR(best_gamma(workload.n, p, k, workload.n // k, workload), p)


def candidates(workload, k):
    """(name, vectors stored, strategy); 0 vectors where earlier noise can be regenerated."""
    yield "Identity (DP-SGD)", "0", Identity()
    best = best_bifr(workload, k, 2)
    yield "LambdaCGD, best lambda", "1 or 0", LambdaCGD(best.gamma)
    for p in (4, 16, 64):
        yield f"BIFR, p={p}, best gamma", f"{p - 1} or 0", best_bifr(workload, k, p)
        yield f"BISR, p={p}", f"{p - 1} or 0", BISR(p)
        yield f"BandInvMF, p={p}", f"{p - 1} or 0", BandInvMF(p)
        yield f"BandMF, p={p}", f"{p - 1}", BandMF(p)
        yield f"BSR, p={p}", f"{p - 1}", BSR(p)
    yield "BLT, 2 buffers", "2", BLT(2)
    yield "BLT, 4 buffers", "4", BLT(4)


def memory_table(workload):
    yield "| strategy | vectors stored | " + " | ".join(f"k={k}" for k in EPOCHS) + " |"
    yield "|---|---|" + "---|" * len(EPOCHS)
    columns = [list(candidates(workload, k)) for k in EPOCHS]
    for cells in zip(*columns, strict=True):
        errors = [
            rmse(workload, strategy, k, N // k)
            for (_, _, strategy), k in zip(cells, EPOCHS, strict=True)
        ]
        name, vectors, _ = cells[0]
        yield f"| {name} | {vectors} | " + " | ".join(f"{e:.2f}" for e in errors) + " |"


def gamma_table():
    yield "| p | " + " | ".join(f"k={k}" for k in EPOCHS) + " |"
    yield "|---|" + "---|" * len(EPOCHS)
    for p in (2, 4, 8, 16, 32, 64):
        best = [best_gamma(N, p, k, N // k) for k in EPOCHS]
        yield f"| {p} | " + " | ".join(f"{g:.3f}" for g in best) + " |"


def epsilon_table():
    yield "| strategy | " + " | ".join(f"epsilon={e:g}" for e in EPSILONS) + " |"
    yield "|---|" + "---|" * len(EPSILONS)
    for strategy, multipliers in MULTIPLIERS:
        errors = [amplified_rmse(PrefixSum(400), strategy, kappa) for kappa in multipliers]
        name = {
            Identity(): "Identity (DP-SGD)",
            LambdaCGD(0.5): "LambdaCGD(0.5)",
            LambdaCGD(0.9): "LambdaCGD(0.9)",
        }.get(strategy, "BIFR(0.8, 4)")
        yield f"| {name} | " + " | ".join(f"{e:.1f}" for e in errors) + " |"


def main():
    sections = {
        "RMSE, prefix sums": memory_table(PrefixSum(N)),
        "RMSE, momentum 0.9": memory_table(Momentum(N, 0.9)),
        "Best gamma, prefix sums": gamma_table(),
        "Amplified RMSE": epsilon_table(),
    }
    text = "\n".join(
        line for title, rows in sections.items() for line in (f"## {title}", "", *rows, "")
    )
    RESULT.write_text("# Tables of the page on strategies\n\n" + text)
    print(text)


if __name__ == "__main__":
    main()
