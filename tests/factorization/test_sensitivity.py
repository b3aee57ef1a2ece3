"""Sensitivity against enumeration of all participation patterns, n <= 12."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategy_oracles import brute_force_sensitivity, toeplitz

from sklearn_dpop.factorization import (
    BFR,
    BIFR,
    BISR,
    BSR,
    BandInvMF,
    BandMF,
    Dense,
    Identity,
    InverseLinear,
    LambdaCGD,
    Sensitivity,
    sensitivity,
    sensitivity_bounds,
)
from sklearn_dpop.factorization._sensitivity import coefficient_sensitivity
from sklearn_dpop.factorization._toeplitz import reciprocal

ROUNDING = 1e-9
EXACT = {"single participation", "column sum", "banded", "chain", "dominated pairs"}
BOUNDS = {"majorant", "two-stage"}


def check_against_enumeration(found, matrix, k, b):
    lower, upper = brute_force_sensitivity(matrix, k, b)
    if found.exact:
        assert found.theorem not in BOUNDS
        assert float(found) == pytest.approx(lower, rel=ROUNDING)
        assert float(found) == pytest.approx(upper, rel=ROUNDING)
    else:
        assert found.theorem not in EXACT
        assert float(found) >= upper * (1 - ROUNDING)


tasks = st.tuples(st.integers(1, 10), st.integers(1, 10), st.integers(1, 5)).filter(
    lambda t: (t[1] - 1) * t[2] < t[0]
)
numbers = st.floats(-2.0, 2.0).map(lambda x: round(x, 3))


class TestToeplitz:
    @given(tasks, st.data())
    @settings(deadline=None, max_examples=300)
    def test_any_coefficients(self, task, data):
        n, k, b = task
        p = data.draw(st.integers(1, n))
        c = np.zeros(n)
        c[:p] = data.draw(st.lists(numbers, min_size=p, max_size=p))
        c[0] = c[0] or 1.0
        check_against_enumeration(coefficient_sensitivity(c, k, b), toeplitz(c, n), k, b)

    @given(tasks, st.lists(st.floats(0.0, 2.0), min_size=10, max_size=10), st.booleans())
    @settings(deadline=None, max_examples=100)
    def test_monotone_coefficients_are_exact(self, task, values, rising):
        n, k, b = task
        c = np.sort(np.array(values)[:n] + 0.01)
        c = c if rising else c[::-1].copy()
        for candidate in (c, -c, c * (-1.0) ** np.arange(n)):
            found = coefficient_sensitivity(candidate, k, b)
            assert found.exact
            check_against_enumeration(found, toeplitz(candidate, n), k, b)

    @given(tasks, st.lists(numbers, min_size=0, max_size=3))
    @settings(deadline=None, max_examples=200)
    def test_banded_inverses(self, task, tail):
        n, k, b = task
        c = reciprocal([1.0, *tail], n)
        check_against_enumeration(coefficient_sensitivity(c, k, b), toeplitz(c, n), k, b)

    @pytest.mark.parametrize("p", [2, 3, 4])
    @pytest.mark.parametrize("gamma", [0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99])
    def test_momentum_versions(self, gamma, p):
        """For gamma > 1/2 the coefficients are not nonincreasing; some explode."""
        n, k, b = 12, 4, 3
        strategy = BIFR(gamma, p, momentum=0.9)
        found = sensitivity(strategy, k, b, n)
        check_against_enumeration(found, strategy.matrix(n), k, b)
        c = strategy.coef(n)
        if gamma >= 0.7:
            assert np.any(np.diff(c) > 0.0)

    def test_momentum_versions_that_explode(self):
        """Section 1.4 of the design note: the largest coefficient is 2e46 at n = 200."""
        strategy = BIFR(0.9, 2, momentum=0.9)
        assert strategy.coef(200).max() == pytest.approx(2.3e46, rel=0.05)
        assert sensitivity(strategy, 4, 50).exact
        with pytest.raises(ValueError, match="overflow within n=2000"):
            sensitivity(strategy, 20, 100)

    def test_families_of_the_papers_use_the_column_sum(self):
        strategies = [
            Identity(),
            LambdaCGD(0.9),
            LambdaCGD(1.0),
            *(BIFR(g, p) for g in (0.0, 0.05, 0.5, 0.99, 1.0) for p in (1, 2, 3, 8)),
            *(BFR(g, p) for g in (0.0, 0.5, 1.0) for p in (1, 3, 8)),
            BISR(4),
            BSR(8),
            InverseLinear(0.1, 5),
        ]
        for strategy in strategies:
            for n, k, b in ((12, 3, 4), (11, 4, 3), (8, 8, 1), (9, 2, 4)):
                found = sensitivity(strategy, k, b, n)
                assert (found.exact, found.theorem) == (True, "column sum")
                check_against_enumeration(found, strategy.matrix(n), k, b)

    @given(st.floats(0.0, 0.99), st.integers(1, 5), st.integers(1, 6))
    @settings(deadline=None)
    def test_lambda_cgd_closed_form(self, lam, k, b):
        """arXiv 2601.22334, Theorem 1, equation 15, for n = k b."""
        squared = sum((1 - lam ** (b * (j + 1))) ** 2 for j in range(k))
        squared *= (1 - lam ** (2 * b)) / ((1 - lam**2) * (1 - lam**b) ** 2)
        found = sensitivity(LambdaCGD(lam), k, b)
        assert float(found) == pytest.approx(math.sqrt(squared), rel=1e-9)


class TestWhereTheColumnSumIsWrong:
    """The four cases of section 1.4 of the design note."""

    def test_alternating(self):
        """The sum of columns gives 2.0367, the all-plus patterns 2.0613; the truth is 2.4468."""
        found = sensitivity(BandInvMF(2, coefficients=(1.0, 0.5)), 4, 3, 10)
        assert float(found) == pytest.approx(2.4468, abs=5e-5)
        assert found.exact

    def test_not_monotone(self):
        """The sum of columns gives 2.9086, the truth is 3.4511."""
        found = sensitivity(BandMF(4, coefficients=(1.0, 0.1, 0.1, 0.9)), 4, 2, 12)
        assert float(found) == pytest.approx(3.4511, abs=5e-5)
        assert found.exact

    def test_growing(self):
        """The sum of columns is right, but the nonincreasing majorant gives 39.26."""
        found = sensitivity(BandInvMF(3, coefficients=(1.0, -0.9, -0.3)), 4, 3)
        assert float(found) == pytest.approx(17.49, abs=5e-3)
        assert found.exact

    def test_neither(self):
        """Mixed signs and a wide band: only a bound, and the enumeration is below it."""
        c = np.array([1.0, -0.9, 0.7, 0.8, -0.6, 0.9, 0.5, -0.8, 0.3])
        found = coefficient_sensitivity(c, 5, 2)
        assert not found.exact
        lower, upper = brute_force_sensitivity(toeplitz(c, 9), 5, 2)
        assert lower < upper <= float(found) * (1 + ROUNDING)

    def test_vectors_do_not_beat_an_exact_value(self):
        """Alternating ascent over unit vectors g_i in three dimensions, all patterns."""
        rng = np.random.default_rng(0)
        c = reciprocal([1.0, 0.5], 10)
        x = toeplitz(c, 10).T @ toeplitz(c, 10)
        best = 0.0
        for steps in ([0, 3, 6, 9], [0, 4, 7], [1, 4, 9]):
            block = x[np.ix_(steps, steps)]
            for _ in range(20):
                g = rng.standard_normal((len(steps), 3))
                for _ in range(200):
                    g = block @ g
                    g /= np.linalg.norm(g, axis=1, keepdims=True)
                best = max(best, np.sum(block * (g @ g.T)))
        assert math.sqrt(best) <= float(coefficient_sensitivity(c, 4, 3)) * (1 + ROUNDING)


class TestDense:
    @given(tasks, st.data())
    @settings(deadline=None, max_examples=200)
    def test_any_matrix(self, task, data):
        n, k, b = task
        p = data.draw(st.integers(1, n))
        seed = data.draw(st.integers(0, 2**32 - 1))
        positive = data.draw(st.booleans())
        c = np.random.default_rng(seed).standard_normal((n, n))
        c = np.abs(c) if positive else c
        c = np.tril(c) - np.tril(c, -p)
        found = sensitivity(Dense(c), k, b)
        check_against_enumeration(found, c, k, b)

    @pytest.mark.parametrize(
        ("strategy", "k", "b"), [(BIFR(0.9, 4), 3, 4), (BSR(3), 4, 3), (LambdaCGD(0.5), 12, 1)]
    )
    def test_same_as_toeplitz(self, strategy, k, b):
        found = sensitivity(Dense(strategy.matrix(12)), k, b)
        assert found.exact
        assert float(found) == pytest.approx(float(sensitivity(strategy, k, b, 12)), rel=1e-12)

    def test_other_number_of_steps(self):
        with pytest.raises(ValueError, match="n must be 3"):
            sensitivity(Dense(np.eye(3)), 1, 3, n=4)


class TestLemma1:
    @given(
        st.floats(0.0, 1.0), st.integers(1, 12), st.integers(1, 8), st.integers(1, 8), st.data()
    )
    @settings(deadline=None, max_examples=200)
    def test_bounds_hold(self, gamma, p, k, b, data):
        n = data.draw(st.integers((k - 1) * b + 1, k * b + 5))
        strategy = BIFR(gamma, min(p, n))
        lower, upper = sensitivity_bounds(strategy, k, b, n)
        found = float(sensitivity(strategy, k, b, n))
        assert lower <= found * (1 + ROUNDING)
        assert found <= upper * (1 + ROUNDING)

    def test_lower_bound_needs_n_equal_to_k_b(self):
        """With the norms of all n entries the paper's lower bound fails for n != k b."""
        for n, k, b in ((100, 1, 1), (11, 2, 10)):
            c = np.ones(n)
            printed = math.sqrt(k / 2 * c @ c + k / (3 * b) * c.sum() ** 2)
            found = float(coefficient_sensitivity(c, k, b))
            assert printed > found
            assert sensitivity_bounds(LambdaCGD(1.0), k, b, n)[0] <= found

    def test_needs_monotone_coefficients(self):
        with pytest.raises(ValueError, match="nonnegative, nonincreasing"):
            sensitivity_bounds(BIFR(0.9, 2, momentum=0.9), 4, 3)


class TestProperties:
    @given(st.floats(0.0, 1.0), st.integers(1, 8), st.integers(1, 4), st.integers(2, 6))
    @settings(deadline=None)
    def test_monotone_in_participations_and_separation(self, gamma, p, k, b):
        strategy, n = BIFR(gamma, p), (k + 1) * b + p
        more = float(sensitivity(strategy, k + 1, b, n)) * (1 + ROUNDING)
        closer = float(sensitivity(strategy, k, b - 1, n)) * (1 + ROUNDING)
        assert float(sensitivity(strategy, k, b, n)) <= min(more, closer)

    @given(st.floats(0.1, 10.0))
    @settings(deadline=None, max_examples=20)
    def test_scales_with_the_matrix(self, scale):
        c = np.array([1.0, -0.5, 0.7, 0.2, 0.0, 0.1])
        one = coefficient_sensitivity(c, 3, 2)
        scaled = coefficient_sensitivity(scale * c, 3, 2)
        assert float(scaled) == pytest.approx(scale * float(one), rel=1e-12)


class TestResult:
    def test_is_a_float_that_survives_pickling(self):
        found = sensitivity(BIFR(0.9, 4), 5, 20)
        copy = pickle.loads(pickle.dumps(found))
        assert copy == found
        assert isinstance(copy, Sensitivity)
        assert (copy.exact, copy.theorem) == (found.exact, found.theorem)

    def test_default_number_of_steps(self):
        assert sensitivity(BIFR(0.9, 4), 5, 20) == sensitivity(BIFR(0.9, 4), 5, 20, n=100)
        assert sensitivity(BIFR(0.9, 4), 5, 20) < sensitivity(BIFR(0.9, 4), 5, 20, n=130)
        fitted = BandMF(2, coefficients=(1.0, 0.5), n_steps=130)
        assert sensitivity(fitted, 5, 20) == sensitivity(fitted, 5, 20, n=130)

    @pytest.mark.parametrize(
        ("k", "b", "n", "message"),
        [
            (0, 1, 10, "participations must be an integer >= 1, got 0"),
            (1, 0, 10, "separation must be an integer >= 1, got 0"),
            (5, 3, 10, "participations=5 does not fit"),
            (1.5, 3, 10, "participations must be an integer"),
            (1, 1, 3, "bandwidth must be at most n, got bandwidth=4 with n=3"),
        ],
    )
    def test_bad_input(self, k, b, n, message):
        with pytest.raises(ValueError, match=message):
            sensitivity(BIFR(0.9, 4), k, b, n)

    def test_not_a_strategy(self):
        with pytest.raises(ValueError, match="strategy must be a Strategy"):
            sensitivity([1.0, 0.5], 1, 2)


class TestLarge:
    def test_linear_memory_at_a_million_steps(self):
        """Orders of growth: within the size of a few vectors, exact, no dense matrix."""
        n = 10**6
        found = sensitivity(BIFR(0.9, 64), n // 100, 100, n)
        assert found.exact
        odd = sensitivity(BIFR(0.9, 64, momentum=0.5), n // 100, 100, n)
        assert float(odd) > float(found)

    def test_long_chain_agrees_with_a_dense_one(self):
        rng = np.random.default_rng(1)
        c = rng.standard_normal(30)
        long = coefficient_sensitivity(np.concatenate((c, np.zeros(270))), 12, 20)
        dense = sensitivity(Dense(toeplitz(c, 300)), 12, 20)
        assert (long.theorem, dense.theorem) == ("chain", "chain")
        assert float(long) == pytest.approx(float(dense), rel=1e-12)
