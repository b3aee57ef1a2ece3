"""The autocorrelation bound against brute force over all participation patterns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optimize_oracles import (
    autocorrelation_bound,
    brute_force_bound,
    column_norm,
    toeplitz,
)

from sklearn_dpop.factorization._autocorrelation import (
    autocorrelation_bound_squared,
    autocorrelation_bound_squared_and_gradient,
)
from sklearn_dpop.factorization._participation import column_sum_squared
from sklearn_dpop.factorization._toeplitz import reciprocal


def bound(coef, k, b):
    return np.sqrt(autocorrelation_bound_squared(np.asarray(coef, dtype=float), k, b))


@st.composite
def problems(draw, elements):
    n = draw(st.integers(1, 10))
    b = draw(st.integers(1, n))
    k = draw(st.integers(1, -(-n // b)))
    return np.array(draw(st.lists(elements, min_size=n, max_size=n))), k, b


@given(problems(st.floats(-1, 1)))
@settings(max_examples=150, deadline=None)
def test_never_below_brute_force_nor_above_majorant(problem):
    """Brute force over patterns of sum |X_ij| bounds the sensitivity from above already."""
    c, k, b = problem
    value = bound(c, k, b)
    assert value >= brute_force_bound(toeplitz(c, len(c)), k, b) - 1e-7
    majorant = np.maximum.accumulate(np.abs(c)[::-1])[::-1]
    assert value <= np.sqrt(column_sum_squared(majorant, k, b)) + 1e-7


@given(problems(st.floats(0, 1)))
@settings(max_examples=150, deadline=None)
def test_exact_when_it_meets_the_column_sum(problem):
    """Nonincreasing coefficients always meet it; others by their autocorrelations."""
    c, k, b = problem
    decreasing = np.sort(c)[::-1].copy()
    exact = brute_force_bound(toeplitz(decreasing, len(c)), k, b)
    assert bound(decreasing, k, b) == pytest.approx(exact, rel=1e-9, abs=1e-7)

    columns = np.sqrt(column_sum_squared(c, k, b))
    if bound(c, k, b) <= columns * (1 + 1e-12):
        assert columns == pytest.approx(brute_force_bound(toeplitz(c, len(c)), k, b), abs=1e-7)


def test_covers_coefficients_that_rise():
    """C^-1 = [1, -1.1, 0.3]: c rises from 1 to 1.1, so the majorant bound is not attained."""
    c = reciprocal(np.array([1.0, -1.1, 0.3]), 12)
    assert c[1] > c[0]
    exact = brute_force_bound(toeplitz(c, 12), 3, 4)
    assert bound(c, 3, 4) == pytest.approx(exact, rel=1e-12)
    assert column_norm(toeplitz(c, 12), 3, 4) == pytest.approx(exact, rel=1e-12)
    majorant = np.maximum.accumulate(c[::-1])[::-1]
    assert np.sqrt(column_sum_squared(majorant, 3, 4)) > 1.02 * exact


@pytest.mark.parametrize(
    ("coef", "k", "b", "sensitivity"),
    [
        (reciprocal(np.array([1.0, 0.5]), 10), 4, 3, 2.4468),
        (np.array([1.0, 0.1, 0.1, 0.9] + 8 * [0.0]), 4, 2, 3.4511),
    ],
)
def test_where_the_column_sum_is_too_small(coef, k, b, sensitivity):
    """Sensitivities found by exhaustive search over patterns and vector-valued adversaries."""
    assert np.sqrt(column_sum_squared(coef, k, b)) < sensitivity - 0.1
    assert bound(coef, k, b) >= sensitivity - 5e-5


@pytest.mark.parametrize(("k", "b"), [(1, 300), (30, 10), (7, 13), (300, 1)])
@pytest.mark.parametrize("decay", [0.5, 0.9, 0.999])
def test_shared_rows_change_nothing(k, b, decay):
    """Rows whose coefficients have decayed are taken as one; oracle: the definition."""
    t = np.arange(300)
    c = decay**t * (1.0 + 0.3 * np.sin(t))
    assert bound(c, k, b) == pytest.approx(autocorrelation_bound(c, k, b), rel=1e-12)
    objective = autocorrelation_bound_squared_and_gradient(c, k, b)[0]
    assert np.sqrt(objective) == pytest.approx(autocorrelation_bound(c, k, b), rel=1e-8)


@pytest.mark.parametrize(("k", "b"), [(1, 40), (4, 10), (3, 5), (40, 1)])
def test_gradient_by_differences(k, b):
    """At a random point no two lags tie, so the bound is smooth there."""
    rng = np.random.default_rng(0)
    c = rng.standard_normal(40) * 0.95 ** np.arange(40)
    direction = rng.standard_normal(40)
    h = 1e-6
    value, gradient = autocorrelation_bound_squared_and_gradient(c, k, b)
    assert value == pytest.approx(bound(c, k, b) ** 2, rel=1e-9)
    up, down = (bound(c + s * h * direction, k, b) ** 2 for s in (1, -1))
    assert gradient @ direction == pytest.approx((up - down) / (2 * h), rel=1e-6)


def test_million_steps_in_linear_memory():
    """A geometric strategy has the closed form of arXiv 2601.22334, Theorem 1."""
    n, k, b, decay = 10**6, 20, 50_000, 0.9999
    c = decay ** np.arange(n)
    j = np.arange(k)
    closed = (1 - decay ** (2 * b)) / ((1 - decay**2) * (1 - decay**b) ** 2)
    closed *= ((1 - decay ** (b * (j + 1))) ** 2).sum()
    assert bound(c, k, b) ** 2 == pytest.approx(closed, rel=1e-9)
