"""Slow, obvious versions of what the optimizers compute, with dense matrices."""

import itertools
import json
from pathlib import Path

import mpmath as mp
import numpy as np
import scipy.linalg

REFERENCE = json.loads(
    (Path(__file__).parents[1] / "data" / "factorization_optimized.json").read_text()
)["rows"]


def reference_rows(family, largest_n=10**6):
    return [r for r in REFERENCE if r["family"] == family and r["n"] <= largest_n]


def row_name(row):
    return "{size}-n{n}-k{participations}-b{separation}-{error}".format(**row)


def toeplitz(coef, n):
    column = np.zeros(n)
    column[: len(coef)] = coef[:n]
    return scipy.linalg.toeplitz(column, np.zeros(n))


def momentum(n, beta=0.9):
    """First column of the product of prefix sums and an exponential moving sum."""
    return np.cumsum(beta ** np.arange(n))


def error_norm(workload_coef, strategy, error):
    """Root of the mean or largest squared row norm of A C^-1."""
    n = len(strategy)
    factor = toeplitz(workload_coef, n) @ np.linalg.inv(strategy)
    squared = (factor**2).sum(axis=1)
    return np.sqrt(squared.mean() if error == "mean" else squared.max())


def patterns(n, participations, separation):
    for size in range(1, participations + 1):
        for steps in itertools.combinations(range(n), size):
            if all(b - a >= separation for a, b in itertools.pairwise(steps)):
                yield list(steps)


def brute_force_bound(strategy, participations, separation):
    """Largest root of sum |X_ij| over all patterns; the sensitivity when X = C^T C >= 0."""
    x = np.abs(strategy.T @ strategy)
    return np.sqrt(
        max(x[np.ix_(p, p)].sum() for p in patterns(len(x), participations, separation))
    )


def autocorrelation_bound(coef, participations, separation):
    """Direct sums of the definition, no Fourier transform, no shared rows."""
    c, n, b = np.abs(coef), len(coef), separation
    total = 0.0
    for a in range(participations):
        x = c[: n - a * b]
        correlation = np.array([x[: len(x) - g] @ x[g:] for g in range(len(x))])
        total += correlation[0]
        total += 2.0 * sum(correlation[d * b :].max() for d in range(1, participations - a))
    return np.sqrt(total)


def column_norm(strategy, participations, separation):
    columns = strategy[:, : participations * separation : separation]
    return np.linalg.norm(columns[:, :participations].sum(axis=1))


# High precision: power series as lists of mpmath numbers.


def mp_divide(numerator, denominator):
    quotient = []
    for r, value in enumerate(numerator):
        known = mp.fsum(denominator[j] * quotient[r - j] for j in range(1, r + 1))
        quotient.append((value - known) / denominator[0])
    return quotient


def mp_squared_error(workload, strategy, error):
    n = len(workload)
    beta = mp_divide(workload, strategy)
    weights = [mp.mpf(n - r) / n if error == "mean" else mp.mpf(1) for r in range(n)]
    return mp.fsum(q * x**2 for q, x in zip(weights, beta, strict=True))


def mp_squared_columns(strategy, participations, separation):
    n = len(strategy)
    columns = [
        mp.fsum(
            strategy[t - j * separation] for j in range(participations) if t - j * separation >= 0
        )
        for t in range(n)
    ]
    return mp.fsum(v**2 for v in columns)


def mp_gradient(function, point, step="1e-25"):
    """Central differences; with 60 digits their error is about the squared step."""
    h = mp.mpf(step)
    point = [mp.mpf(float(x)) for x in point]
    out = []
    for i in range(len(point)):
        up, down = list(point), list(point)
        up[i] += h
        down[i] -= h
        out.append(float((function(up) - function(down)) / (2 * h)))
    return np.array(out)
