"""Errors against dense matrices, an independent closed form and JAX-Privacy."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from strategy_oracles import toeplitz

from sklearn_dpop.factorization import (
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
    LearningRates,
    Momentum,
    PrefixSum,
    amplified_rmse,
    best_gamma,
    gamma_star,
    max_error,
    rmse,
    sensitivity,
)

DATA = Path(__file__).parents[1] / "data"
BIFR_ROWS = json.loads((DATA / "factorization_bifr.json").read_text())["rows"]
JAX_ROWS = json.loads((DATA / "factorization_jax_privacy.json").read_text())["rows"]
OPTIMIZED_ROWS = json.loads((DATA / "factorization_optimized.json").read_text())["rows"]
NINE_DIGITS, EIGHT_DIGITS = 1e-9, 1e-8


def row_name(row):
    name = row.get("strategy", "") + " {n}-{k}-{b}-{workload}".format(**row)
    return name.strip().replace(" ", "-")


def workload_of(row):
    if row["workload"] == "prefix":
        return PrefixSum(row["n"])
    if row["workload"] == "momentum0.9":
        return Momentum(row["n"], 0.9)
    alpha, beta = map(float, re.fullmatch("alpha=(.*),beta=(.*)", row["workload"]).groups())
    return Momentum(row["n"], beta, alpha)


def strategy_of(row):
    name = row["strategy"]
    p = int(re.search(r"p=(\d+)", name).group(1)) if re.search(r"p=\d", name) else None
    if name == "identity":
        return Identity()
    if name.startswith("sqrt_full"):
        return BSR(row["n"])
    if name.startswith("banded_sqrt"):
        return BSR(p)
    if "BISR,workload" in name:
        workload = workload_of(row)
        return BISR(p, momentum=workload.beta, weight_decay=workload.weight_decay)
    assert name.startswith("banded_inverse_sqrt(BISR)")
    return BISR(p)


@pytest.mark.parametrize("row", BIFR_ROWS, ids=row_name)
def test_closed_forms(row):
    """An evaluation of the formulas independent of the package, to nine digits."""
    workload, n, k, b = workload_of(row), row["n"], row["k"], row["b"]

    def error(strategy):
        return rmse(workload, strategy, participations=k, separation=b)

    found = {"identity": error(Identity()), "sqrt_full": error(BSR(n))}
    for p in (2, 4, 8, 16, 64):
        best = row[f"bifr_p{p}_best"]
        star = gamma_star(n, p)
        found |= {
            f"bisr_p{p}": error(BISR(p)),
            f"bsr_p{p}": error(BSR(p)),
            f"gamma_star_p{p}": star,
            f"bifr_p{p}_at_gamma_star": error(BIFR(star, p)),
            f"bifr_p{p}_gamma0.9": error(BIFR(0.9, p)),
            f"sens_bifr_p{p}_gamma0.9": float(sensitivity(BIFR(0.9, p), k, b, n)),
        }
        assert error(BIFR(best["gamma"], p)) == pytest.approx(best["rmse"], rel=NINE_DIGITS)
        # The reference searched a grid of step 0.001.
        gamma = best_gamma(n, p, k, b, workload)
        assert gamma == pytest.approx(best["gamma"], abs=1.1e-3)
        assert error(BIFR(gamma, p)) <= best["rmse"] * (1 + 1e-12)
    expected = {key: row[key] for key in found}
    assert found == pytest.approx(expected, rel=NINE_DIGITS)


@pytest.mark.parametrize("row", JAX_ROWS, ids=row_name)
def test_jax_privacy(row):
    """JAX-Privacy's own numbers for the same strategies, to eight digits."""
    workload, strategy, k, b = workload_of(row), strategy_of(row), row["k"], row["b"]
    energies = workload.row_energies(strategy)
    found = {
        "sens_single": float(np.linalg.norm(strategy.coef(row["n"]))),
        "sens_minsep_kb": float(sensitivity(strategy, k, b, row["n"])),
        "err_mean_sq": energies.mean(),
        "err_max_sq": energies.max(),
        "rmse_mean": rmse(workload, strategy, k, b),
        "rmse_max": max_error(workload, strategy, k, b),
    }
    assert found == pytest.approx({key: row[key] for key in found}, rel=EIGHT_DIGITS)


@pytest.mark.parametrize(
    "row",
    [r for r in OPTIMIZED_ROWS if r["n"] <= 256],
    ids=lambda r: "{family}-{size}-{n}-{participations}-{error}".format(**r),
)
def test_optimized_families_reach_jax_privacy(row):
    """Through the public names; losses of BandMF are optimal and agree, the others are beaten."""
    family = {"bandmf": BandMF, "bandinvmf": BandInvMF, "blt": BLT}[row["family"]]
    measure = {"mean": rmse, "max": max_error}[row["error"]]
    found = measure(
        PrefixSum(row["n"]),
        family(row["size"], error=row["error"]),
        row["participations"],
        row["separation"],
    )
    assert found <= row["loss"] * (1 + EIGHT_DIGITS)


def test_numbers_of_the_project():
    """n=2000, k=20, b=100, p=4."""
    task = {"participations": 20, "separation": 100}
    gamma = best_gamma(2000, 4, 20, 100)
    assert gamma == pytest.approx(0.899, abs=5e-4)
    assert rmse(PrefixSum(2000), BIFR(gamma, 4), **task) == pytest.approx(25.398, abs=5e-4)
    assert rmse(PrefixSum(2000), BISR(4), **task) == pytest.approx(56.621, abs=5e-4)
    assert rmse(PrefixSum(2000), Identity(), **task) == pytest.approx(141.46, abs=5e-3)


@pytest.mark.parametrize(
    ("n", "k", "b", "c", "expected"),
    [(400, 10, 40, 0.170, 10.701), (2000, 20, 100, 0.146, 20.387)],
)
def test_inverse_linear(n, k, b, c, expected):
    """Section 4.3 of the design note: coefficients 1/j + c, bandwidth b, best c."""
    found = minimize_scalar(
        lambda x: rmse(PrefixSum(n), InverseLinear(x, b), k, b), bounds=(0, 1), method="bounded"
    )
    assert found.x == pytest.approx(c, abs=2e-3)
    assert found.fun == pytest.approx(expected, abs=5e-4)


RATES = np.array([1.0, 0.5, 2.0, 0.1, 0.7, 0.9, 0.3, 1.1, 0.2, 0.4, 0.6, 0.8, 0.15, 0.25])
WORKLOADS = [
    PrefixSum(14),
    Momentum(14, 0.9),
    Momentum(14, 0.5, 0.9),
    Momentum(14, 0.0, 0.9),
    LearningRates(RATES),
    LearningRates(RATES, 0.9),
    LearningRates(RATES, 0.5, 0.9),
]


class TestWorkloads:
    def test_training_runs(self):
        """The workload times G is the (negative) path of SGD, simulated step by step."""
        g = np.random.default_rng(0).standard_normal(14)
        for workload in WORKLOADS:
            rates = getattr(workload, "rates", np.ones(14))
            beta = getattr(workload, "beta", 0.0)
            alpha = getattr(workload, "weight_decay", 1.0)
            theta = m = 0.0
            path = []
            for t in range(14):
                m = beta * m + g[t]
                theta = alpha * theta + rates[t] * m
                path.append(theta)
            np.testing.assert_allclose(workload.matrix() @ g, path, rtol=1e-10, atol=1e-12)

    @pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: type(w).__name__)
    @pytest.mark.parametrize(
        "strategy",
        [Identity(), BIFR(0.8, 3), BIFR(0.8, 6), BSR(4), BLT(1, "mean", (0.9,), (0.3,))],
    )
    def test_row_energies(self, workload, strategy):
        b = workload.matrix() @ np.linalg.inv(toeplitz(strategy.coef(14), 14))
        expected = (b**2).sum(axis=1)
        np.testing.assert_allclose(workload.row_energies(strategy), expected, rtol=1e-9)
        dense = Dense(strategy.matrix(14))
        np.testing.assert_allclose(workload.row_energies(dense), expected, rtol=1e-9)
        k, sep = 3, 5
        value = float(sensitivity(strategy, k, sep, 14))
        assert rmse(workload, strategy, k, sep) == pytest.approx(
            value * np.sqrt(expected.mean()), rel=1e-9
        )
        assert max_error(workload, dense, k, sep) == pytest.approx(
            value * np.sqrt(expected.max()), rel=1e-9
        )

    def test_constant_schedule_is_the_prefix_sum(self):
        for n, p in ((40, 4), (40, 30)):
            np.testing.assert_allclose(
                LearningRates(np.ones(n)).row_energies(BIFR(0.9, p)),
                PrefixSum(n).row_energies(BIFR(0.9, p)),
                rtol=1e-10,
            )

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: PrefixSum(0), "n must be an integer >= 1"),
            (lambda: Momentum(5, 1.0), r"beta must be a number in \[0, 1\)"),
            (lambda: Momentum(5, 0.9, 1.5), "weight_decay must be a number"),
            (lambda: LearningRates([]), "rates must not be empty"),
            (lambda: LearningRates([1.0, 0.0]), r"rates\[1\] must be a number"),
            (lambda: LearningRates([1.0, float("nan")]), r"rates\[1\] must be a number"),
        ],
    )
    def test_bad_input(self, make, message):
        with pytest.raises(ValueError, match=message):
            make()


class TestAmplified:
    def test_table_of_the_design_note(self):
        """Section 2.6: T = 400, rows C = I, lambda = .9 and BIFR .8, p=4 (three digits)."""
        for strategy, kappa, expected in (
            (Identity(), 4.31, 61.0),
            (LambdaCGD(0.9), 34.9, 60.5),
            (BIFR(0.8, 4), 11.1, 17.9),
        ):
            found = amplified_rmse(PrefixSum(400), strategy, kappa)
            assert found == pytest.approx(expected, rel=5e-3)

    def test_callable(self):
        """Without amplification the multiplier is the sensitivity."""
        workload, strategy = PrefixSum(100), BIFR(0.9, 4)
        found = amplified_rmse(workload, strategy, lambda s, n: float(sensitivity(s, 5, 20, n)))
        assert found == pytest.approx(rmse(workload, strategy, 5, 20), rel=1e-14)
        found = amplified_rmse(workload, strategy, 2.0, error="max")
        assert found == pytest.approx(2.0 * np.sqrt(workload.row_energies(strategy)[-1]))

    def test_bad_input(self):
        with pytest.raises(ValueError, match="noise_multiplier"):
            amplified_rmse(PrefixSum(5), Identity(), -1.0)
        with pytest.raises(ValueError, match="error must be"):
            amplified_rmse(PrefixSum(5), Identity(), 1.0, error="median")


class TestBestGamma:
    @given(st.integers(2, 6), st.integers(1, 4), st.integers(8, 30))
    @settings(deadline=None, max_examples=20)
    def test_not_worse_than_a_fine_grid(self, p, k, b):
        n = k * b
        for objective, measure in (("mean", rmse), ("max", max_error)):
            best = measure(
                PrefixSum(n), BIFR(best_gamma(n, p, k, b, objective=objective), p), k, b
            )
            for gamma in np.linspace(0.0, 1.0, 101):
                assert best <= measure(PrefixSum(n), BIFR(gamma, p), k, b) * (1 + 1e-9)

    def test_own_objective(self):
        found = best_gamma(64, 4, objective=lambda s: (s.gamma - 0.3) ** 2)
        assert found == pytest.approx(0.3, abs=1e-5)

    def test_bad_input(self):
        with pytest.raises(ValueError, match="workload must have n=10 steps"):
            best_gamma(10, 4, workload=PrefixSum(11))
        with pytest.raises(ValueError, match="bandwidth must be an integer >= 2"):
            best_gamma(10, 1)
        with pytest.raises(ValueError, match="error must be"):
            best_gamma(10, 4, objective="median")
        with pytest.raises(ValueError, match="noise_multiplier must be a function for objective"):
            best_gamma(10, 4, objective="amplified")
        with pytest.raises(ValueError, match="and None otherwise"):
            best_gamma(10, 4, noise_multiplier=lambda strategy, n: 1.0)

    def test_amplified_uses_the_multiplier_that_it_is_given(self):
        """The sensitivity as multiplier is the objective without amplification."""
        found = best_gamma(
            2000,
            4,
            objective="amplified",
            noise_multiplier=lambda strategy, n: sensitivity(strategy, 20, 100, n),
        )
        assert found == pytest.approx(best_gamma(2000, 4, 20, 100), abs=0.004)


def test_arguments_that_do_not_fit():
    with pytest.raises(ValueError, match="same number of steps, got n=3 and n=4"):
        rmse(PrefixSum(4), Dense(np.eye(3)))
    with pytest.raises(ValueError, match="workload must be a Workload"):
        rmse(4, Identity())
    with pytest.raises(ValueError, match="does not fit"):
        rmse(PrefixSum(10), Identity(), 4, 4)


def test_a_million_steps():
    """Linear memory: the error of the identity has a closed form, and BIFR is below it."""
    n = 10**6
    assert rmse(PrefixSum(n), Identity(), 100, 10**4) == pytest.approx(
        np.sqrt((n + 1) / 2 * 100), rel=1e-12
    )
    assert rmse(PrefixSum(n), BIFR(0.9, 64), 100, 10**4) < 1000.0
