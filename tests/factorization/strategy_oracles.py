"""Slow, obvious versions of what the package computes fast."""

from itertools import combinations, pairwise, product

import numpy as np


def toeplitz(coef, n):
    """Dense lower-triangular Toeplitz matrix, entry by entry."""
    c = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            if i - j < len(coef):
                c[i, j] = coef[i - j]
    return c


def patterns(n, k, b):
    """All sets of 1 to k steps of range(n), any two at least b apart."""
    for size in range(1, k + 1):
        for steps in combinations(range(n), size):
            if all(j - i >= b for i, j in pairwise(steps)):
                yield list(steps)


def brute_force_sensitivity(matrix, k, b):
    """Enumerate patterns: best choice of signs (a lower bound), best sum of |X| (an upper one).

    The sensitivity lies between the two, and they agree when all signs can be made positive.
    """
    x = matrix.T @ matrix
    lower = upper = 0.0
    for steps in patterns(len(matrix), k, b):
        block = x[np.ix_(steps, steps)]
        upper = max(upper, np.abs(block).sum())
        for signs in product((1.0, -1.0), repeat=len(steps) - 1):
            s = np.array((1.0, *signs))
            lower = max(lower, s @ block @ s)
    return np.sqrt(lower), np.sqrt(upper)
