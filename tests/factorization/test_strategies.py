"""Coefficients of the strategies against their definitions, and bad input."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategy_oracles import toeplitz

from sklearn_dpop.factorization import (
    BFR,
    BIFR,
    BISR,
    BLT,
    BSR,
    BandInvMF,
    BandMF,
    Dense,
    Identity,
    InverseLinear,
    LambdaCGD,
    Momentum,
    PrefixSum,
)

EXPLICIT = [
    Identity(),
    LambdaCGD(0.7),
    BIFR(0.9, 4),
    BIFR(0.3, 12, momentum=0.5, weight_decay=0.99),
    BISR(5),
    BFR(0.4, 3),
    BSR(12, momentum=0.9),
    InverseLinear(0.2, 4),
    BandMF(3, coefficients=(2.0, 1.0, -0.5)),
    BandInvMF(3, coefficients=(2.0, -1.0, 0.5)),
    BLT(2, theta=(0.9, 0.3), omega=(0.2, 0.1)),
]


def workload_power(exponent, momentum, weight_decay, n):
    """Power series of ((1 - alpha x)(1 - beta x))^exponent in 40 digits."""
    with mp.workdps(40):
        series = mp.taylor(
            lambda x: (
                ((1 - mp.mpf(weight_decay) * x) * (1 - mp.mpf(momentum) * x)) ** mp.mpf(exponent)
            ),
            0,
            n - 1,
        )
        return np.array([float(c) for c in series])


class TestDefinitions:
    @pytest.mark.parametrize("gamma", [0.1, 0.5, 0.9])
    @pytest.mark.parametrize(("momentum", "decay"), [(0.0, 1.0), (0.9, 1.0), (0.9, 0.999)])
    def test_roots_are_truncated_powers_of_the_workload(self, gamma, momentum, decay):
        options = {"momentum": momentum, "weight_decay": decay}
        inverse = workload_power(gamma, momentum, decay, 8)
        np.testing.assert_allclose(
            BIFR(gamma, 8, **options).inverse_coef(8), inverse, rtol=1e-10, atol=1e-13
        )
        direct = workload_power(-gamma, momentum, decay, 8)
        np.testing.assert_allclose(BFR(gamma, 8, **options).coef(8), direct, rtol=1e-10)

    def test_binomial_coefficients(self):
        """(-1)^i binom(gamma, i), Section 3 of the paper."""
        expected = [float((-1) ** i * mp.binomial(mp.mpf("0.9"), i)) for i in range(6)]
        np.testing.assert_allclose(BIFR(0.9, 6).inverse_coef(6), expected, rtol=1e-13)
        assert np.all(BIFR(0.9, 6).inverse_coef(9)[6:] == 0.0)

    def test_square_root_squares_to_the_workload(self):
        root = toeplitz(BSR(20).coef(20), 20)
        np.testing.assert_allclose(root @ root, np.tril(np.ones((20, 20))), rtol=1e-12, atol=1e-12)
        options = {"momentum": 0.9, "weight_decay": 0.99}
        root = toeplitz(BSR(20, **options).coef(20), 20)
        np.testing.assert_allclose(
            root @ root, Momentum(20, 0.9, 0.99).matrix(), rtol=1e-12, atol=1e-12
        )

    def test_momentum_example_of_the_bisr_paper(self):
        """Lemma 1 of the BISR paper: alpha=.9999, beta=.9, p=4 gives 1, -.95, -.0012, -.0012."""
        found = BISR(4, momentum=0.9, weight_decay=0.9999).inverse_coef(4)
        np.testing.assert_allclose(found, [1.0, -0.95, -0.0012, -0.0012], atol=1e-4)

    def test_special_cases(self):
        n = 50
        np.testing.assert_array_equal(BIFR(0.7, 2).coef(n), LambdaCGD(0.7).coef(n))
        np.testing.assert_array_equal(BIFR(0.5, 6).coef(n), BISR(6).coef(n))
        np.testing.assert_array_equal(BFR(0.5, 6).coef(n), BSR(6).coef(n))
        np.testing.assert_array_equal(BIFR(0.0, 6).coef(n), Identity().coef(n))
        np.testing.assert_array_equal(BFR(0.0, 6).coef(n), Identity().coef(n))
        np.testing.assert_array_equal(BIFR(1.0, 6).coef(n), np.ones(n))
        np.testing.assert_allclose(LambdaCGD(0.7).coef(n), 0.7 ** np.arange(n), rtol=1e-12)

    def test_buffered_linear_toeplitz(self):
        c = BLT(2, theta=(0.9, 0.3), omega=(0.2, 0.1)).coef(5)
        expected = [1.0] + [0.2 * 0.9**t + 0.1 * 0.3**t for t in range(4)]
        np.testing.assert_allclose(c, expected, rtol=1e-14)

    @pytest.mark.parametrize("strategy", EXPLICIT, ids=repr)
    def test_inverse_is_the_inverse(self, strategy):
        n = 12
        c, inverse = toeplitz(strategy.coef(n), n), toeplitz(strategy.inverse_coef(n), n)
        np.testing.assert_allclose(c @ inverse, np.eye(n), atol=1e-12)
        np.testing.assert_array_equal(strategy.matrix(n), c)
        v = np.random.default_rng(0).standard_normal(n)
        np.testing.assert_allclose(
            strategy.apply_inverse(v), np.linalg.solve(c, v), rtol=1e-9, atol=1e-11
        )

    @given(st.floats(0.0, 1.0), st.integers(1, 30))
    @settings(deadline=None)
    def test_bifr_is_nonnegative_and_nonincreasing(self, gamma, p):
        """Lemma 6 of the paper."""
        c = BIFR(gamma, p).coef(200)
        assert np.all(c >= 0.0)
        assert np.all(np.diff(c) <= 1e-12 * c[:-1])

    @given(st.floats(0.0, 1.0), st.integers(1, 20), st.floats(0.0, 0.95))
    @settings(deadline=None, max_examples=50)
    def test_product_is_the_workload(self, gamma, p, beta):
        """B C = A, with B computed by the package and C built entry by entry."""
        n = 20
        for workload in (PrefixSum(n), Momentum(n, beta)):
            strategy = BIFR(gamma, p)
            b = toeplitz(strategy.apply_inverse(workload.coef), n)
            np.testing.assert_allclose(
                b @ toeplitz(strategy.coef(n), n), workload.matrix(), rtol=1e-10, atol=1e-10
            )


class TestObjects:
    def test_immutable_comparable_and_hashable(self):
        assert BIFR(0.9, 4) == BIFR(0.9, 4)
        assert BIFR(0.9, 4) != BFR(0.9, 4)
        assert len({BIFR(0.9, 4), BIFR(0.9, 4), BISR(4), BSR(4)}) == 3
        with pytest.raises(AttributeError):
            BIFR(0.9, 4).gamma = 0.5
        with pytest.raises(ValueError, match="read-only"):
            BIFR(0.9, 4).coef(8)[0] = 2.0

    def test_dense(self):
        c = np.array([[1.0, 0.0], [0.5, 2.0]])
        strategy = Dense(c)
        c[0, 0] = 7.0
        assert strategy.matrix()[0, 0] == 1.0
        assert strategy == Dense([[1.0, 0.0], [0.5, 2.0]])
        assert hash(strategy) == hash(Dense([[1.0, 0.0], [0.5, 2.0]]))

    def test_no_dense_matrix_above_5000_steps(self):
        with pytest.raises(ValueError, match="at most 5000"):
            BIFR(0.9, 4).matrix(5001)
        with pytest.raises(ValueError, match="at most 5000"):
            PrefixSum(5001).matrix()


class TestFamilies:
    @pytest.mark.parametrize("family", [BandMF(3), BandInvMF(3), BLT(2)])
    def test_optimize_fixes_the_parameters(self, family):
        task = {"participations": 4, "separation": 8}
        member = family.optimize(PrefixSum(32), **task)
        assert member.is_optimized
        assert not family.is_optimized
        assert member.n_steps == 32
        assert member.optimize(Momentum(16, 0.9), **task) is member
        assert len(member.coef(64)) == 64

    @pytest.mark.parametrize("family", [BandMF(3), BandInvMF(3), BLT(2)])
    def test_coefficients_before_optimization(self, family):
        """Those for prefix sums and a single participation."""
        np.testing.assert_array_equal(
            family.coef(32), family.optimize(PrefixSum(32), participations=1).coef(32)
        )
        with pytest.raises(ValueError, match="must be optimized"):
            family.noise_stream(3)

    def test_only_toeplitz_workloads(self):
        from sklearn_dpop.factorization import LearningRates

        with pytest.raises(ValueError, match="Toeplitz"):
            BandMF(2).optimize(LearningRates([1.0, 0.5, 0.2]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BIFR(-0.1, 4), r"gamma must be a number in \[0, 1\], got -0.1"),
        (lambda: BIFR(1.1, 4), r"gamma must be a number in \[0, 1\], got 1.1"),
        (lambda: BIFR(float("nan"), 4), "gamma must be a number"),
        (lambda: BFR("half", 4), "gamma must be a number"),
        (lambda: BIFR(0.5, 0), "bandwidth must be an integer >= 1, got 0"),
        (lambda: BISR(2.0), "bandwidth must be an integer"),
        (lambda: BISR(3, momentum=1.0), r"momentum must be a number in \[0, 1\)"),
        (lambda: BSR(3, weight_decay=0.0), r"weight_decay must be a number in \(0, 1\]"),
        (lambda: LambdaCGD(2.0), "lambda_ must be a number"),
        (lambda: InverseLinear(-1.0, 3), "c must be a number"),
        (lambda: BIFR(0.5, 9).coef(8), "bandwidth must be at most n, got bandwidth=9 with n=8"),
        (lambda: BSR(9).inverse_coef(8), "bandwidth must be at most n"),
        (lambda: BandMF(9).coef(8), "bandwidth must be at most n"),
        (lambda: BIFR(0.5, 4).coef(0), "n must be an integer >= 1, got 0"),
        (lambda: BandMF(2, coefficients=(1.0,)), "coefficients must have 2 entries, got 1"),
        (lambda: BandMF(1, coefficients=(0.0,)), "must not start with 0"),
        (lambda: BandInvMF(2, coefficients=(1.0, float("nan"))), r"coefficients\[1\] must be"),
        (lambda: BandMF(2, "median"), "error must be 'mean' or 'max'"),
        (lambda: BLT(0), "buffers must be an integer >= 1"),
        (lambda: BLT(1, theta=(0.5,)), "must be given together"),
        (lambda: BLT(1, theta=(1.5,), omega=(0.1,)), r"theta\[0\] must be a number in \[0, 1\]"),
        (lambda: BLT(1, theta=(0.5,), omega=(-0.1,)), r"omega\[0\] must be a number"),
        (lambda: Dense([[1.0, 2.0], [0.0, 1.0]]), "lower triangular, got 2 in row 0, column 1"),
        (lambda: Dense([[1.0, 0.0], [1.0, 0.0]]), "invertible, got 0 on the diagonal in row 1"),
        (lambda: Dense([[1.0, 0.0], [np.nan, 1.0]]), "must be finite"),
        (lambda: Dense(np.ones((2, 3))), "must be square"),
        (lambda: Dense([["a"]]), "array of numbers"),
        (lambda: Dense(np.eye(3)).matrix(4), "n must be 3"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
