"""The private choice of a winner.

Oracle: the law of permute-and-flip, by enumeration of all orders in exact arithmetic.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare

from sklearn_dpop.model_selection import choose_privately
from sklearn_dpop.model_selection._choice import _coin

DRAWS = 40_000
FALSE_ALARM = 1e-7  # of every statistical test here


def law(scores, sensitivity, epsilon):
    """Return the probability of every candidate, by definition."""
    best = max(scores)
    heads = [math.exp(-epsilon * (best - s) / (2 * sensitivity)) for s in scores]
    found = np.zeros(len(scores))
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        reached = 1.0
        for i in order:
            found[i] += reached * heads[i] / len(orders)
            reached *= 1 - heads[i]
    return found


@pytest.mark.parametrize("x", ["0", "1/10", "7/10", "1", "5/4", "3"])
def test_the_coin_falls_as_often_as_it_should(x):
    x = Fraction(x)
    heads = sum(_coin(x) for _ in range(DRAWS))
    assert binomtest(heads, DRAWS, math.exp(-x)).pvalue > FALSE_ALARM


@pytest.mark.parametrize(
    ("scores", "sensitivity", "epsilon"),
    [
        ([10, 9, 7], 1, 1.0),
        ([0.8, 0.81, 0.7, 0.81], 0.0125, 0.7),
        ([3, 3], 1, 5.0),
        ([0, -4], 2, 0.5),
    ],
)
def test_law_of_the_choice(scores, sensitivity, epsilon):
    # A budget off by 8% is refused with a probability of more than 0.99 (first case).
    expected = law(scores, sensitivity, epsilon)
    assert expected.sum() == pytest.approx(1.0)
    found = [
        choose_privately(scores, sensitivity=sensitivity, epsilon=epsilon) for _ in range(DRAWS)
    ]
    counts = np.bincount(found, minlength=len(scores))
    assert chisquare(counts, DRAWS * expected).pvalue > FALSE_ALARM


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_law_is_private(epsilon):
    # All neighbours of integer scores whose entries change by at most 1.
    for scores in itertools.product(range(4), repeat=3):
        p = law(scores, 1, epsilon)
        for change in itertools.product((-1, 0, 1), repeat=3):
            q = law([s + c for s, c in zip(scores, change, strict=True)], 1, epsilon)
            assert (p <= math.exp(epsilon) * q * (1 + 1e-9)).all()


def test_a_large_budget_takes_the_best():
    assert choose_privately([1, 5, 3], sensitivity=1, epsilon=1e6) == 1
    assert choose_privately(np.array([0.25]), sensitivity=1e-3, epsilon=1e-9) == 0


@pytest.mark.parametrize(
    ("scores", "changes", "message"),
    [
        ([1, 2], {"epsilon": 0.0}, "epsilon=0.0"),
        ([1, 2], {"epsilon": math.inf}, "epsilon=inf"),
        ([1, 2], {"sensitivity": -1}, "sensitivity=-1"),
        ([1, 2], {"sensitivity": math.nan}, "sensitivity=nan"),
        ([1, math.nan], {}, "scores: must"),
        ([], {}, "scores: must"),
        ([[1, 2]], {}, "scores: must"),
    ],
)
def test_refuses(scores, changes, message):
    with pytest.raises(ValueError, match=message):
        choose_privately(scores, **({"sensitivity": 1, "epsilon": 1.0} | changes))


def test_no_score_is_printed():
    with pytest.raises(ValueError, match="scores") as caught:
        choose_privately([0.731, math.nan], sensitivity=0.1, epsilon=1.0)
    assert "0.731" not in str(caught.value)
