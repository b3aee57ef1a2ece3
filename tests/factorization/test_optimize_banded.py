"""BandMF and BandInvMF: derivatives, optima known otherwise, and JAX-Privacy's losses."""

import time

import mpmath as mp
import numpy as np
import pytest
from optimize_oracles import (
    autocorrelation_bound,
    brute_force_bound,
    column_norm,
    error_norm,
    momentum,
    mp_divide,
    mp_gradient,
    mp_squared_columns,
    mp_squared_error,
    reference_rows,
    row_name,
    toeplitz,
)
from scipy.optimize import minimize, minimize_scalar

from sklearn_dpop.factorization._autocorrelation import autocorrelation_bound_squared
from sklearn_dpop.factorization._optimize_banded import (
    banded_inverse_loss,
    banded_loss,
    optimize_banded,
    optimize_banded_inverse,
    workload_gram,
)
from sklearn_dpop.factorization._optimize_objective import error_weights
from sklearn_dpop.factorization._toeplitz import reciprocal, solve

# Losses of the reference are known to at least this many digits where both sides converged.
CONVERGED = 1e-8


def banded_error(c, w, error="mean"):
    """Root of squared error times |c|, sensitivity for one participation."""
    return np.sqrt(error_weights(len(w), error) @ solve(c, w) ** 2) * np.linalg.norm(c)


def inverse_error(inverse, w, k, b, error="mean"):
    """Upper bound on the error, with the oracle's sensitivity bound."""
    n = len(w)
    beta = toeplitz(w, n)[:, : len(inverse)] @ inverse
    squared = error_weights(n, error) @ beta**2
    return np.sqrt(squared) * autocorrelation_bound(reciprocal(inverse, n), k, b)


class TestBandMF:
    @pytest.mark.parametrize("row", reference_rows("bandmf"), ids=row_name)
    def test_losses_of_jax_privacy(self, row):
        """Sensitivity sqrt(k) |c| since the separation is at least the bandwidth."""
        w = np.ones(row["n"])
        c = optimize_banded(row["n"], row["size"], w, error=row["error"])
        loss = np.sqrt(row["participations"]) * banded_error(c, w, row["error"])
        assert loss <= row["loss"] * (1 + CONVERGED)
        assert loss == pytest.approx(row["loss"], rel=1e-3)

    @pytest.mark.parametrize("error", ["mean", "max"])
    @pytest.mark.parametrize("workload", [np.ones(9), momentum(9)], ids=["prefix", "momentum"])
    def test_gradient_in_high_precision(self, workload, error):
        """Central differences with 60 digits of the loss by naive division of series."""
        x = np.array([0.6, -0.2, 0.3])
        with mp.workdps(60):
            w = [mp.mpf(float(v)) for v in workload]

            def loss(point):
                c = [mp.mpf(1), *point] + [mp.mpf(0)] * (len(w) - 1 - len(point))
                return mp.log(mp_squared_error(w, c, error) * mp.fsum(v**2 for v in c))

            expected_value = float(loss([mp.mpf(float(v)) for v in x]))
            expected = mp_gradient(loss, x)
        value, gradient = banded_loss(workload, error_weights(9, error))(x)
        assert value == pytest.approx(expected_value, rel=1e-13)
        assert gradient == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize("error", ["mean", "max"])
    def test_two_bands_by_scalar_search(self, error):
        n, w = 30, momentum(30)

        def loss(x):
            return error_norm(w, toeplitz([1.0, x], n), error) * np.hypot(1.0, x)

        best = minimize_scalar(loss, bounds=(-0.99, 0.999), method="bounded")
        c = optimize_banded(n, 2, w, error=error)
        assert loss(c[1]) <= best.fun * (1 + 1e-12)
        assert c[1] == pytest.approx(best.x, abs=1e-4)

    def test_square_root_is_optimal_for_the_last_step(self):
        """Full bandwidth, prefix sums, max error: E^(1/2) (Fichtenberger et al., 2022)."""
        c = optimize_banded(40, 40, np.ones(40), error="max")
        expected = [float(mp.binomial(2 * j, j) / 4**j) for j in range(40)]
        assert c == pytest.approx(expected, abs=1e-6)

    @pytest.mark.parametrize("error", ["mean", "max"])
    @pytest.mark.parametrize("workload", ["prefix", "momentum", "decay"])
    def test_stationary_and_a_minimum(self, workload, error):
        n, p = 200, 12
        w = {"prefix": np.ones(n), "momentum": momentum(n), "decay": 0.98 ** np.arange(n)}
        c = optimize_banded(n, p, w[workload], error=error)
        loss = banded_loss(w[workload], error_weights(n, error))
        value, gradient = loss(c[1:])
        assert np.abs(gradient).max() < 1e-6
        rng = np.random.default_rng(0)
        for _ in range(20):
            step = 1e-3 * rng.standard_normal(p - 1)
            assert loss(c[1:] + step)[0] > value

    def test_scale_of_the_workload_does_not_matter(self):
        w = momentum(64)
        assert optimize_banded(64, 8, w) == pytest.approx(optimize_banded(64, 8, 5.0 * w))

    def test_more_bands_never_hurt(self):
        w = momentum(128)
        losses = [banded_error(optimize_banded(128, p, w), w) for p in (1, 2, 4, 8, 16, 64, 128)]
        assert np.all(np.diff(losses) < 0)

    def test_one_band_and_one_step(self):
        assert optimize_banded(10, 1, np.ones(10)).tolist() == [1.0]
        assert optimize_banded(1, 1, [3.0]).tolist() == [1.0]

    def test_fast_enough(self):
        """JAX-Privacy needs 22 s of CPU for n=2048, p=64; the bound here is 3 s."""
        start = time.process_time()
        optimize_banded(2048, 64, np.ones(2048))
        assert time.process_time() - start < 3.0

    def test_ten_thousand_steps(self):
        w = np.ones(10_000)
        c = optimize_banded(10_000, 64, w)
        gradient = banded_loss(w, error_weights(10_000, "mean"))(c[1:])[1]
        assert np.abs(gradient).max() < 1e-5
        assert banded_error(c, w) < 0.9 * banded_error(optimize_banded(10_000, 32, w), w)


class TestBandInvMF:
    @pytest.mark.parametrize("row", reference_rows("bandinvmf", 256), ids=row_name)
    def test_losses_of_jax_privacy(self, row):
        """At most the reference, by the oracle's bound; at least what one pattern attains."""
        n, k, b = row["n"], row["participations"], row["separation"]
        inverse = optimize_banded_inverse(
            n, row["size"], np.ones(n), participations=k, separation=b, error=row["error"]
        )
        assert inverse_error(inverse, np.ones(n), k, b, row["error"]) <= row["loss"] * (
            1 + CONVERGED
        )

    @pytest.mark.slow
    @pytest.mark.parametrize("row", reference_rows("bandinvmf"), ids=row_name)
    def test_losses_of_jax_privacy_all(self, row):
        self.test_losses_of_jax_privacy(row)

    @pytest.mark.parametrize(("k", "b"), [(1, 9), (3, 3), (2, 4)])
    @pytest.mark.parametrize("error", ["mean", "max"])
    @pytest.mark.parametrize("workload", [np.ones(9), momentum(9)], ids=["prefix", "momentum"])
    def test_gradient_in_high_precision(self, workload, error, k, b):
        """Central differences with 60 digits; series and column sums the naive way."""
        x = np.array([-0.6, -0.2, 0.1])
        with mp.workdps(60):
            w = [mp.mpf(float(v)) for v in workload]
            one = [mp.mpf(1)] + [mp.mpf(0)] * (len(w) - 1)

            def loss(point):
                m = [mp.mpf(1), *point] + [mp.mpf(0)] * (len(w) - 1 - len(point))
                c = mp_divide(one, m)
                return mp.log(mp_squared_error(w, c, error) * mp_squared_columns(c, k, b))

            expected_value = float(loss([mp.mpf(float(v)) for v in x]))
            expected = mp_gradient(loss, x)
        gram = workload_gram(workload, error_weights(9, error), 4)
        value, gradient = banded_inverse_loss(gram, 9, k, b, exact=False)(x)
        assert value == pytest.approx(expected_value, rel=1e-12)
        assert gradient == pytest.approx(expected, rel=1e-11, abs=1e-12)

    @pytest.mark.parametrize(("k", "b"), [(1, 40), (4, 10), (10, 4)])
    def test_gradient_of_the_bound_by_differences(self, k, b):
        gram = workload_gram(np.ones(40), error_weights(40, "mean"), 4)
        loss = banded_inverse_loss(gram, 40, k, b, exact=True)
        x, direction, h = np.array([-0.9, 0.3, -0.35]), np.array([0.3, -1.0, 0.7]), 1e-6
        difference = (loss(x + h * direction)[0] - loss(x - h * direction)[0]) / (2 * h)
        assert loss(x)[1] @ direction == pytest.approx(difference, rel=1e-6)

    @pytest.mark.parametrize(("k", "b"), [(1, 200), (5, 40), (20, 10)])
    def test_two_bands_against_the_closed_form(self, k, b):
        """Sensitivity of lambda^(i-j): arXiv 2601.22334, Theorem 1, for n = k b."""
        n = k * b

        def loss(x):
            sums = ((1 - x ** (b * np.arange(1, k + 1))) ** 2).sum()
            sensitivity = (1 - x ** (2 * b)) / ((1 - x**2) * (1 - x**b) ** 2) * sums
            return np.sqrt(sensitivity * (1 + (1 - x) ** 2 * (n - 1) / 2))

        best = minimize_scalar(loss, bounds=(0.0, 0.9999), method="bounded")
        inverse = optimize_banded_inverse(n, 2, np.ones(n), participations=k, separation=b)
        assert inverse[1] == pytest.approx(-best.x, abs=1e-4)
        assert inverse_error(inverse, np.ones(n), k, b) == pytest.approx(best.fun, rel=1e-9)

    @pytest.mark.parametrize("error", ["mean", "max"])
    def test_full_bandwidth_agrees_with_band_mf(self, error):
        """Every Toeplitz matrix has both forms; one participation, two codes, one optimum."""
        n, w = 32, momentum(32)
        inverse = optimize_banded_inverse(n, n, w, participations=1, separation=n, error=error)
        expected = banded_error(optimize_banded(n, n, w, error=error), w, error)
        assert inverse_error(inverse, w, 1, n, error) == pytest.approx(expected, rel=1e-9)

    @pytest.mark.parametrize(("n", "p", "k", "b"), [(9, 3, 3, 3), (9, 3, 4, 2), (8, 4, 2, 4)])
    def test_near_the_best_by_brute_force(self, n, p, k, b):
        """Simplex search on the error with the brute-force bound over all patterns.

        The optimizer's bound is at most a few percent looser where coefficients change sign.
        """

        def loss(x):
            inverse = np.concatenate(([1.0], x))
            c = toeplitz(reciprocal(inverse, n), n)
            return error_norm(np.ones(n), c, "mean") * brute_force_bound(c, k, b)

        starts = ([-0.5, -0.1], [-0.3, 0.0], [-0.8, -0.2])
        best = min(
            minimize(loss, s + [0.0] * (p - 3), method="Nelder-Mead", tol=1e-8).fun for s in starts
        )
        inverse = optimize_banded_inverse(n, p, np.ones(n), participations=k, separation=b)
        assert best * (1 - 1e-6) <= loss(inverse[1:]) <= 1.01 * best

    @pytest.mark.parametrize(
        ("n", "p", "k", "b"), [(256, 4, 4, 64), (256, 16, 1, 256), (300, 8, 6, 50)]
    )
    def test_exact_sensitivity_of_rising_coefficients(self, n, p, k, b):
        """The column sum is the sensitivity though Theorem 2 of arXiv 2405.13763 is silent."""
        inverse = optimize_banded_inverse(n, p, np.ones(n), participations=k, separation=b)
        c = reciprocal(inverse, n)
        assert np.diff(c).max() > 1e-3
        assert autocorrelation_bound(c, k, b) == pytest.approx(
            column_norm(toeplitz(c, n), k, b), rel=1e-8
        )
        gram = workload_gram(np.ones(n), error_weights(n, "mean"), p)
        gradient = banded_inverse_loss(gram, n, k, b, exact=True)(inverse[1:])[1]
        assert np.abs(gradient).max() < 1e-5

    def test_participation_at_every_step(self):
        """Every pattern allowed: no strategy beats the identity, whose error is known."""
        n = 12
        inverse = optimize_banded_inverse(n, 3, np.ones(n), participations=n, separation=1)
        identity = np.sqrt((n + 1) / 2) * np.sqrt(n)
        assert inverse_error(inverse, np.ones(n), n, 1) <= identity * (1 + 1e-9)

    def test_scale_of_the_workload_does_not_matter(self):
        w = momentum(64)
        first, second = (
            optimize_banded_inverse(64, 4, s * w, participations=4, separation=16)
            for s in (1.0, 7.0)
        )
        assert inverse_error(first, w, 4, 16) == pytest.approx(
            inverse_error(second, w, 4, 16), rel=1e-9
        )

    def test_one_band_and_one_step(self):
        options = {"participations": 1, "separation": 1}
        assert optimize_banded_inverse(10, 1, np.ones(10), **options).tolist() == [1.0]
        assert optimize_banded_inverse(1, 1, [3.0], **options).tolist() == [1.0]

    @pytest.mark.slow
    @pytest.mark.parametrize(("k", "b"), [(1, 10_000), (10, 1000), (100, 100)])
    def test_ten_thousand_steps(self, k, b):
        """Never worse than the banded inverse square root it starts near (BISR)."""
        n, p = 10_000, 64
        w = np.ones(n)
        j = np.arange(1, p)
        root = np.concatenate(([1.0], np.cumprod((j - 1.5) / j)))
        start = time.process_time()
        inverse = optimize_banded_inverse(n, p, w, participations=k, separation=b)
        assert time.process_time() - start < 60.0
        c, d = reciprocal(inverse, n), reciprocal(root, n)
        gram = workload_gram(w, error_weights(n, "mean"), p)
        loss = (inverse @ gram @ inverse) * autocorrelation_bound_squared(c, k, b)
        assert loss < (root @ gram @ root) * autocorrelation_bound_squared(d, k, b)


@pytest.mark.parametrize(
    "workload",
    [
        1.5 ** np.arange(60),
        np.concatenate(([1.0], np.full(59, 1e6))),
        np.eye(60)[0],
        -(0.9 ** np.arange(60)) + 2,
    ],
    ids=["growing", "jump", "identity", "rising"],
)
@pytest.mark.parametrize("size", [8, 60])
@pytest.mark.filterwarnings("error")
def test_unusual_workloads_beat_the_identity(workload, size):
    """The identity is among the candidates; no warning of overflow reaches the caller."""
    identity = error_norm(workload, np.eye(60), "mean")
    c = optimize_banded(60, size, workload)
    assert banded_error(c, workload) <= identity * (1 + 1e-12)
    inverse = optimize_banded_inverse(60, size, workload, participations=4, separation=15)
    assert inverse_error(inverse, workload, 4, 15) <= 2.0 * identity * (1 + 1e-9)


BAD_BANDED = [
    ({"n": 0}, "n must be an integer >= 1, got 0"),
    ({"n": 8.5}, "n must be an integer >= 1, got 8.5"),
    ({"bandwidth": 0}, "bandwidth must be an integer between 1 and n=8, got 0"),
    ({"bandwidth": 9}, "bandwidth must be an integer between 1 and n=8, got 9"),
    ({"workload_coef": np.ones(7)}, r"workload_coef must have shape \(n,\) = \(8,\), got \(7,\)"),
    ({"workload_coef": np.full(8, np.nan)}, "workload_coef must be finite"),
    ({"workload_coef": np.arange(8.0)}, r"workload_coef\[0\] must be positive, got .*0\.0"),
    ({"error": "median"}, r"error must be one of \('mean', 'max'\), got 'median'"),
]
BAD_PARTICIPATION = [
    ({"participations": 5}, "participations=5 does not fit"),
    ({"participations": 0}, "participations must be an integer >= 1, got 0"),
    ({"separation": 0}, "separation must be an integer >= 1, got 0"),
]


@pytest.mark.parametrize(("change", "message"), BAD_BANDED)
def test_bad_input_band_mf(change, message):
    good = {"n": 8, "bandwidth": 3, "workload_coef": np.ones(8), "error": "mean"}
    with pytest.raises(ValueError, match=message):
        optimize_banded(**{**good, **change})


@pytest.mark.parametrize(("change", "message"), BAD_BANDED + BAD_PARTICIPATION)
def test_bad_input_band_inv_mf(change, message):
    good = {
        "n": 8,
        "bandwidth": 3,
        "workload_coef": np.ones(8),
        "participations": 4,
        "separation": 2,
        "error": "mean",
    }
    with pytest.raises(ValueError, match=message):
        optimize_banded_inverse(**{**good, **change})
