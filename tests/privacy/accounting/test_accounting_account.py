"""account() and calibrate_noise_multiplier(): schemes, adjacencies, certificates, errors."""

import json
import math
import pickle
import warnings

import numpy as np
import pytest

from sklearn_dpop.factorization import (
    BIFR,
    BISR,
    BLT,
    BSR,
    BandInvMF,
    BandMF,
    Dense,
    Identity,
    LambdaCGD,
    PrefixSum,
    sensitivity,
)
from sklearn_dpop.factorization._describe import strategy_from_dict, strategy_to_dict
from sklearn_dpop.privacy import (
    CorrelatedNoiseCertificate,
    NoiseMultiplier,
    Schedule,
    account,
    calibrate_noise_multiplier,
    estimate_noise_multiplier,
    gaussian_delta,
    gaussian_noise_multiplier,
)
from sklearn_dpop.privacy.accounting import _account, _certificate
from sklearn_dpop.privacy.accounting._accountants import BallsInBins

CYCLIC = Schedule(5000, 125, 10, "cyclic")
BINS = Schedule(5000, 125, 10)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("SKLEARN_DPOP_CACHE", "")


# --- cyclic: the Gaussian mechanism ------------------------------------------------------------


@pytest.mark.parametrize("strategy", [Identity(), LambdaCGD(0.5), BIFR(0.8, 4)], ids=str)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
@pytest.mark.parametrize(("adjacency", "factor"), [("zero-out", 1.0), ("replace-one", 2.0)])
def test_cyclic_batches_give_the_analytic_gaussian_mechanism(strategy, epsilon, adjacency, factor):
    """10 digits; a wrong adjacency factor or sensitivity is off by far more."""
    made = calibrate_noise_multiplier(epsilon, 1e-5, strategy, CYCLIC, adjacency=adjacency)
    norm = np.linalg.norm(strategy.matrix(400)[:, ::40].sum(axis=1))
    wanted = factor * norm * gaussian_noise_multiplier(epsilon, 1e-5)
    assert made == pytest.approx(wanted, rel=1e-10)
    assert made.certificate.delta_at(epsilon) <= 1e-5
    assert made.certificate.epsilon_at(1e-5) == pytest.approx(epsilon, rel=1e-9)
    assert made.certificate.epsilon_at(1e-5) <= epsilon
    again = account(strategy, CYCLIC, float(made), adjacency=adjacency)
    assert again.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert again.adjacency == adjacency


def test_unamplified_multipliers_of_the_note():
    """Section 2.6 in brackets: T = 400, b = 40, E = 10, delta = 1e-5."""
    rows = {
        Identity(): (22.24, 11.80, 6.30, 3.42, 1.90),
        LambdaCGD(0.5): (25.68, 13.62, 7.28, 3.95, 2.19),
        LambdaCGD(0.9): (51.70, 27.43, 14.66, 7.95, 4.41),
        BIFR(0.8, 4): (52.85, 28.04, 14.99, 8.13, 4.51),
    }
    for strategy, values in rows.items():
        for epsilon, value in zip((0.5, 1.0, 2.0, 4.0, 8.0), values, strict=True):
            found = calibrate_noise_multiplier(epsilon, 1e-5, strategy, CYCLIC)
            assert found == pytest.approx(value, abs=0.0051)


def test_the_sensitivity_is_that_of_the_checked_theorem():
    """A C whose coefficients are not monotone: the columns formula would be too small (1.4)."""
    matrix = np.eye(12)
    for j, value in ((1, 0.1), (2, 0.1), (3, 0.9)):
        matrix += value * np.eye(12, k=-j)
    schedule = Schedule(2, 1, 6, "cyclic")
    made = account(Dense(matrix), schedule, 10.0, delta=0.1)
    assert made.accountant.largest_shift == float(sensitivity(Dense(matrix), 6, 2, 12))
    naive = np.linalg.norm(matrix[:, ::2].sum(axis=1))
    assert made.accountant.largest_shift > 1.05 * naive
    assert made.delta_at(0.1) == pytest.approx(
        gaussian_delta(0.1, noise_multiplier=10.0 / made.accountant.largest_shift)
    )


@pytest.mark.parametrize(
    "strategy",
    [
        BISR(4),
        BandMF(4).optimize(PrefixSum(400)),
        BandInvMF(4).optimize(PrefixSum(400), participations=10, separation=40),
        BLT(2).optimize(PrefixSum(400), participations=10, separation=40),
    ],
    ids=str,
)
def test_every_strategy_can_be_accounted_for(strategy):
    for schedule in (CYCLIC, Schedule(1000, 500, 200)):
        made = account(strategy, schedule, 60.0, method="deterministic")
        assert 0 < made.epsilon < math.inf
        assert made.delta_at(made.epsilon) <= 1e-5
        read = CorrelatedNoiseCertificate.from_public_inputs(
            json.loads(json.dumps(made.public_inputs()))
        )
        assert read == made
        assert read.delta_at(1.0) == made.delta_at(1.0)


# --- adjacency ---------------------------------------------------------------------------------


def test_replace_one_is_two_zero_outs_where_nothing_sharper_is_proven():
    made = account(Identity(), BINS, 6.0, adjacency="replace-one")
    zero = account(Identity(), BINS, 6.0)
    for epsilon in (0.5, 1.0, 3.0):
        wanted = (1 + math.exp(epsilon / 2)) * zero.delta_at(epsilon / 2)
        assert made.delta_at(epsilon) == pytest.approx(min(1.0, wanted), rel=1e-12)
    assert "group composition" in made.theorem
    assert "group composition" not in zero.theorem
    kappa = calibrate_noise_multiplier(2.0, 1e-5, Identity(), BINS, adjacency="replace-one")
    assert kappa.certificate.delta_at(2.0) <= 1e-5
    half = calibrate_noise_multiplier(1.0, 1e-5 / (1 + math.e), Identity(), BINS)
    assert kappa == pytest.approx(float(half), rel=1e-9)
    assert kappa > calibrate_noise_multiplier(2.0, 1e-5, Identity(), BINS)


def test_group_composition_covers_the_true_replace_one_divergence():
    """One step, b = 2: P = (N(1) + N(0))/2 against (N(-1) + N(0))/2, by quadrature."""
    sigma, schedule = 2.0, Schedule(200, 100, 1)
    made = account(Identity(), schedule, sigma, delta=0.004, adjacency="replace-one")
    grid = np.linspace(-15, 15, 401)
    x, y = np.meshgrid(grid, grid)

    def density(a):
        parts = [
            np.exp(-((x - a) ** 2 + y**2) / (2 * sigma**2)),
            np.exp(-(x**2 + (y - a) ** 2) / (2 * sigma**2)),
        ]
        return sum(parts) / 2 / (2 * np.pi * sigma**2)

    for epsilon in (0.1, 0.5, 1.0):
        cell = (grid[1] - grid[0]) ** 2
        true = np.maximum(density(1.0) - np.exp(epsilon) * density(-1.0), 0).sum() * cell
        assert true <= made.delta_at(epsilon)


@pytest.mark.parametrize("sampling", ["cyclic", "without_replacement"])
def test_add_remove_is_refused_where_it_moves_other_records(sampling):
    schedule = Schedule(5000, 125, 10, sampling)
    with pytest.raises(ValueError, match=r"adjacency='add-remove' does not fit sampling='"):
        account(Identity(), schedule, 10.0, adjacency="add-remove")


def test_add_remove_equals_zero_out_for_independent_batches():
    zero = account(Identity(), BINS, 4.0)
    removed = account(Identity(), BINS, 4.0, adjacency="add-remove")
    assert removed.adjacency == "add-remove"
    assert removed.epsilon == zero.epsilon


# --- Monte Carlo certificates ------------------------------------------------------------------


@pytest.fixture(scope="module")
def certified():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKLEARN_DPOP_CACHE", "")
        schedule = Schedule(800, 100, 4)
        return calibrate_noise_multiplier(2.0, 1e-5, LambdaCGD(0.8), schedule, n_draws=1 << 18)


def test_a_calibrated_multiplier_carries_its_certificate(certified):
    made = certified.certificate
    assert isinstance(certified, NoiseMultiplier)
    assert float(certified) == made.noise_multiplier
    assert made.method == "monte carlo"
    assert 1 - 1e-7 < made.confidence < 1
    assert made.delta_at(2.0) <= 1e-5
    assert made.epsilon == 2.0
    terms = made.contributions["delta"]
    assert sum(terms.values()) == pytest.approx(1e-5, rel=1e-12)
    assert terms["failure of the Monte Carlo bound"] == made.failure_probability > 0
    unamplified = calibrate_noise_multiplier(
        2.0, 1e-5, LambdaCGD(0.8), Schedule(800, 100, 4, "cyclic")
    )
    assert certified < 0.95 * unamplified


def test_the_profile_is_nonincreasing_and_convex_in_exp_epsilon(certified):
    made = certified.certificate
    epsilons = np.linspace(0.0, 6.0, 61)
    deltas = np.array([made.delta_at(e) for e in epsilons])
    assert np.all(np.diff(deltas) <= 0)
    for delta in (1e-4, 1e-5, 1e-6):
        epsilon = made.epsilon_at(delta)
        assert made.delta_at(epsilon) <= delta < made.delta_at(epsilon * (1 - 1e-9))
    with pytest.raises(ValueError, match=r"epsilon=-1\.0 must be a nonnegative"):
        made.delta_at(-1.0)
    with pytest.raises(ValueError, match="epsilon=nan must be a nonnegative"):
        made.delta_at(float("nan"))
    with pytest.raises(ValueError, match=r"delta=0.0 must be in \(0, 1\)"):
        made.epsilon_at(0.0)


def test_the_certificate_can_be_recomputed_from_its_public_inputs(certified):
    made = certified.certificate
    read = CorrelatedNoiseCertificate.from_public_inputs(
        json.loads(json.dumps(made.public_inputs()))
    )
    assert "_profile" not in read.__dict__
    assert read == made
    assert read.delta_at(2.0) == made.delta_at(2.0)
    assert pickle.loads(pickle.dumps(certified)).certificate == made
    assert "_profile" in pickle.loads(pickle.dumps(made)).__dict__


def test_a_larger_claim_fails_with_the_same_draws(certified):
    inputs = certified.certificate.public_inputs()
    less_noise = CorrelatedNoiseCertificate.from_public_inputs(
        inputs | {"noise_multiplier": 0.97 * float(certified)}
    )
    assert less_noise.delta_at(2.0) > 1e-5


def test_every_attempt_has_a_stream_and_a_failure_probability_of_its_own(monkeypatch):
    """The first multiplier is made to fail; all attempts share one failure probability."""
    real, seen = _account.CorrelatedNoiseCertificate.delta_at, []

    def delta_at(self, epsilon):
        seen.append(self)
        return 2e-5 if self.attempt < 2 else real(self, epsilon)

    monkeypatch.setattr(_account.CorrelatedNoiseCertificate, "delta_at", delta_at)
    schedule = Schedule(800, 100, 4)
    made = calibrate_noise_multiplier(2.0, 1e-5, LambdaCGD(0.8), schedule, n_draws=1 << 16)
    assert made.certificate.attempt == 2
    multipliers = {one.attempt: one.noise_multiplier for one in seen}
    assert multipliers[0] < multipliers[1] < multipliers[2] == float(made)
    assert {one.failure_probability for one in seen} == {1e-8}


def test_saved_runs_are_used_again_and_forgotten_when_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("SKLEARN_DPOP_CACHE", str(tmp_path))
    arguments = (2.0, 1e-5, LambdaCGD(0.8), Schedule(800, 100, 4))
    first = calibrate_noise_multiplier(*arguments, n_draws=1 << 16)
    assert list(tmp_path.iterdir())

    def fail(*args, **kwargs):
        raise AssertionError("drawn again")

    with monkeypatch.context() as patch:
        patch.setattr("sklearn_dpop.privacy.accounting._certificate.certify", fail)
        assert calibrate_noise_multiplier(*arguments, n_draws=1 << 16) == first
        # A certificate that was read from a file believes no cache.
        read = CorrelatedNoiseCertificate.from_public_inputs(first.certificate.public_inputs())
        with pytest.raises(AssertionError, match="drawn again"):
            read.delta_at(2.0)


def test_moments_bound_correlated_noise_without_draws():
    """Banded C: the Rényi bound is above the truth, and below every other bound."""
    schedule = Schedule(800, 100, 4)
    made = calibrate_noise_multiplier(4.0, 1e-5, BSR(2), schedule, method="deterministic")
    assert "Rényi moments" in made.certificate.theorem
    assert made.certificate.delta_at(4.0) <= 1e-5
    estimate = estimate_noise_multiplier(4.0, 1e-5, BSR(2), schedule)
    assert estimate < made < 1.12 * estimate


def test_account_inverts_calibrate():
    schedule = Schedule(800, 100, 4)
    made = account(LambdaCGD(0.8), schedule, 5.0, n_draws=1 << 18)
    assert made.method == "monte carlo"
    assert made.delta_at(made.epsilon) <= 1e-5
    plain = account(LambdaCGD(0.8), schedule, 5.0, method="deterministic")
    assert made.epsilon < plain.epsilon
    kappa = calibrate_noise_multiplier(made.epsilon, 1e-5, LambdaCGD(0.8), schedule)
    assert kappa == pytest.approx(5.0, rel=0.02)


def test_account_draws_once_for_each_direction(monkeypatch):
    """Without a cache too: what is stated does not change what was drawn."""
    drawn = []
    module = "sklearn_dpop.privacy.accounting._certificate.certify"
    real = _certificate.certify
    monkeypatch.setattr(module, lambda *a, **k: drawn.append(a) or real(*a, **k))
    made = account(LambdaCGD(0.8), Schedule(800, 100, 4), 5.0, n_draws=1 << 16)
    assert made.method == "monte carlo"
    assert made.delta_at(made.epsilon) <= 1e-5
    assert len(drawn) == 2


def test_estimates_are_close_to_the_certified_multipliers(certified):
    found = estimate_noise_multiplier(2.0, 1e-5, LambdaCGD(0.8), Schedule(800, 100, 4))
    assert 0.95 * certified < found < certified
    assert not isinstance(found, NoiseMultiplier)


# --- what a report shows -----------------------------------------------------------------------


def test_intermediates_and_utility_follow_from_the_public_inputs(certified):
    made = certified.certificate
    numbers = made.intermediates
    assert numbers["n_steps"] == 32
    assert numbers["expected_batch_size"] == 100
    assert numbers["participation_probability"] == 1 / 8
    norm = np.linalg.norm(LambdaCGD(0.8).matrix(32)[:, ::8].sum(axis=1))
    assert numbers["largest_shift"] == pytest.approx(norm)
    assert numbers["noise_of_unamplified"] == pytest.approx(certified / norm)
    inverse = np.linalg.inv(LambdaCGD(0.8).matrix(32))
    spread = np.linalg.norm(np.tril(np.ones((32, 32))) @ inverse) / np.sqrt(32)
    assert made.utility["rmse"] == pytest.approx(float(certified) * spread)


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon=0.0 must be a positive finite number"),
        ({"epsilon": math.inf}, "epsilon=inf must be a positive finite number"),
        ({"epsilon": math.nan}, "epsilon=nan must be a positive finite number"),
        ({"epsilon": "1"}, "epsilon='1' must be a positive finite number"),
        ({"delta": 0.0}, "delta=0.0 must be a positive finite number"),
        ({"delta": 1.0}, r"delta=1.0 must be in \(0, 1\)"),
        ({"delta": math.nan}, "delta=nan must be"),
        ({"strategy": np.eye(3)}, "strategy=array"),
        ({"strategy": Dense(np.eye(3))}, "was made for 3 steps; schedule has 400"),
        ({"strategy": BandMF(4)}, "must be optimized first"),
        ({"schedule": 400}, "schedule=400 must be a Schedule"),
        ({"adjacency": "add"}, "adjacency='add' must be one of 'zero-out', 'add-remove'"),
        ({"method": "exact"}, "method='exact' must be one of 'auto', 'deterministic'"),
        ({"n_draws": 0}, "n_draws=0 must be None or an integer of at least 1"),
        ({"n_draws": 1e6}, "n_draws=1000000.0 must be None or an integer"),
        (
            {"schedule": CYCLIC, "method": "monte_carlo"},
            "method='monte_carlo' does not fit sampling='cyclic'",
        ),
    ],
)
def test_errors_name_the_parameter(change, message):
    arguments = {"epsilon": 1.0, "delta": 1e-5, "strategy": Identity(), "schedule": BINS} | change
    with pytest.raises(ValueError, match=message):
        calibrate_noise_multiplier(**arguments)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, True, "2"])
def test_a_noise_multiplier_must_be_positive(value):
    with pytest.raises(ValueError, match=r"noise_multiplier=.* must be a positive finite number"):
        account(Identity(), BINS, value)


def test_a_multiplier_too_small_for_monte_carlo_is_refused_or_priced_without():
    schedule = Schedule(800, 100, 4)
    made = account(LambdaCGD(0.8), schedule, 0.05)
    assert made.method == "deterministic"
    with pytest.raises(ValueError, match=r"noise_multiplier=0.05 is too small for a Monte Carlo"):
        account(LambdaCGD(0.8), schedule, 0.05, method="monte_carlo")


def test_delta_of_one_over_n_is_warned_of():
    with pytest.warns(UserWarning, match="delta=0.001 is at least 1 / n_samples"):
        account(Identity(), Schedule(1000, 100, 2), 5.0, delta=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        account(Identity(), Schedule(1000, 100, 2), 5.0, delta=0.9e-3)


def test_strategies_of_other_classes_are_refused():
    class Own(LambdaCGD):
        pass

    with pytest.raises(ValueError, match="for a matrix of your own use Dense"):
        account(Own(0.5), BINS, 10.0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"family": "Own"}, "family='Own' must be one of Identity"),
        ({}, "family=None must be one of"),
        ({"family": "LambdaCGD", "lambda_": 2.0}, "lambda_ must be a number in"),
        ({"family": "LambdaCGD", "mu": 2.0}, "LambdaCGD: .*unexpected keyword argument 'mu'"),
        ({"family": "LambdaCGD"}, "LambdaCGD: .*missing"),
    ],
)
def test_strategies_from_bad_data_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        strategy_from_dict(data)


def test_strategies_survive_json():
    dense = Dense([[1.0, 0.0], [0.25, 2.0]])
    for strategy in (dense, BIFR(0.3, 4, momentum=0.5), BandMF(3).optimize(PrefixSum(10))):
        text = json.dumps(strategy_to_dict(strategy))
        assert strategy_from_dict(json.loads(text)) == strategy


def test_the_bins_are_computed_once():
    made = account(LambdaCGD(0.8), Schedule(800, 100, 4), 8.0, method="deterministic")
    assert isinstance(made.accountant, BallsInBins)
    assert made.accountant.bins is made.accountant.bins


# --- the other schemes -------------------------------------------------------------------------

DRAWN = Schedule(5000, 125, 10, "without_replacement")
POISSON = Schedule(5000, 125, 10, "poisson")


@pytest.mark.parametrize(
    ("epsilon", "zero_out", "poisson"),
    # Section 3.5 of the design note: column (b) at lambda = 0, column (d) from privacy-loss
    # distributions.
    [(0.5, 24.61, 3.665), (1.0, 13.19, 2.071), (2.0, 7.13, 1.281), (8.0, 2.22, 0.682)],
)
def test_independent_noise_under_drawn_batches(epsilon, zero_out, poisson):
    pytest.importorskip("dp_accounting")
    found = calibrate_noise_multiplier(epsilon, 1e-5, Identity(), POISSON)
    assert found == pytest.approx(poisson, abs=0.0016)
    fixed = calibrate_noise_multiplier(epsilon, 1e-5, Identity(), DRAWN)
    assert poisson < fixed < zero_out
    replaced = calibrate_noise_multiplier(
        epsilon, 1e-5, Identity(), DRAWN, adjacency="replace-one"
    )
    assert fixed < replaced < 2 * zero_out


def test_gamma_zero_is_dp_sgd_under_every_scheme():
    for schedule in (CYCLIC, BINS, DRAWN, POISSON):
        if schedule is POISSON:
            pytest.importorskip("dp_accounting")
        made = account(BIFR(0.0, 4), schedule, 6.0)
        assert made.delta_at(2.0) == pytest.approx(
            account(Identity(), schedule, 6.0).delta_at(2.0), rel=1e-6
        )


@pytest.mark.parametrize(
    ("strategy", "epsilon", "best"),
    [
        (LambdaCGD(0.9), 8.0, "law of their energy"),
        (LambdaCGD(0.5), 1.0, "advanced joint convexity"),
        (BIFR(0.8, 4), 0.5, "advanced joint convexity"),
    ],
)
def test_the_certificate_names_the_bound_that_is_smallest(strategy, epsilon, best):
    made = calibrate_noise_multiplier(epsilon, 1e-5, strategy, DRAWN, method="deterministic")
    assert best in made.certificate.theorem
    at = np.array([epsilon])
    for bound in made.certificate.accountant.bounds:
        assert made.certificate.delta_at(epsilon) <= bound.deltas(float(made), at)[0]


def test_monte_carlo_of_drawn_places_beats_the_worst_places():
    """BIFR with p = 4 at a large epsilon: where the participations fall matters."""
    schedule = Schedule(500, 25, 3, "without_replacement")
    arguments = (8.0, 1e-4, BIFR(0.8, 4), schedule)
    deterministic = calibrate_noise_multiplier(*arguments, method="deterministic")
    made = calibrate_noise_multiplier(*arguments, n_draws=1 << 17)
    assert made.certificate.method == "monte carlo"
    assert made < 0.85 * deterministic


def test_poisson_with_one_buffer_is_between_the_estimate_and_the_operator_norm():
    """lambda = .9, epsilon = 4: note (d) estimates about 6.2, the operator norm gives 8.97."""
    pytest.importorskip("dp_accounting")
    schedule = Schedule(250, 25, 2, "poisson")
    plain = calibrate_noise_multiplier(4.0, 1e-4, LambdaCGD(0.9), schedule, method="deterministic")
    made = calibrate_noise_multiplier(4.0, 1e-4, LambdaCGD(0.9), schedule, n_draws=1 << 14)
    assert made.certificate.method == "monte carlo"
    assert made < 0.9 * plain
    assert made.certificate.delta_at(4.0) <= 1e-4


def test_wider_bands_under_poisson_get_a_valid_bound():
    pytest.importorskip("dp_accounting")
    made = account(BIFR(0.8, 4), POISSON, 25.0)
    assert made.method == "deterministic"
    assert "operator norm" in made.theorem
    independent = account(Identity(), POISSON, 25.0)
    assert independent.epsilon < made.epsilon


@pytest.mark.parametrize("sampling", ["cyclic_poisson", "min_separated"])
def test_bands_wider_than_the_separation_are_refused(sampling):
    pytest.importorskip("dp_accounting")
    schedule = Schedule(5000, 125, 10, sampling, separation=3)
    with pytest.raises(ValueError, match=r"bandwidth 4 with .*n_steps=400.*separation=3"):
        account(BSR(4), schedule, 5.0)
    with pytest.raises(ValueError, match="bandwidth 400 with"):
        account(LambdaCGD(0.5), schedule, 5.0)
    if sampling == "min_separated":
        with pytest.raises(ValueError, match="must be a Toeplitz one for min-separated"):
            account(Dense(np.eye(400)), schedule, 5.0)


def test_cyclic_poisson_is_dp_sgd_of_its_rounds():
    pytest.importorskip("dp_accounting")
    schedule = Schedule(5000, 125, 10, "cyclic_poisson", separation=4)
    norm = np.linalg.norm(BSR(4).coef(400))
    made = account(BSR(4), schedule, 3.0 * norm)
    rounds = account(Identity(), Schedule(1250, 125, 10, "poisson"), 3.0)  # 100 steps, rate .1
    assert rounds.schedule.n_steps == 100
    assert made.epsilon == pytest.approx(rounds.epsilon, rel=1e-9)


def test_min_separated_beats_the_fixed_order():
    schedule = Schedule(2000, 100, 2, "min_separated", separation=4)
    made = calibrate_noise_multiplier(2.0, 1e-5, BSR(4), schedule, n_draws=1 << 14)
    cyclic = calibrate_noise_multiplier(2.0, 1e-5, BSR(4), Schedule(2000, 100, 2, "cyclic"))
    assert made.certificate.method == "monte carlo"
    assert made < cyclic


def test_every_scheme_survives_json():
    pytest.importorskip("dp_accounting")
    for schedule in (
        DRAWN,
        POISSON,
        Schedule(5000, 125, 10, "cyclic_poisson", separation=4),
        Schedule(5000, 125, 10, "min_separated", separation=4),
    ):
        made = account(BSR(2), schedule, 12.0, method="deterministic")
        data = json.loads(json.dumps(made.public_inputs()))
        read = CorrelatedNoiseCertificate.from_public_inputs(data)
        assert read == made
        assert read.schedule == schedule
        assert read.epsilon_at(1e-5) == made.epsilon


def test_a_missing_package_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.privacy_loss_distribution", None)
    with pytest.raises(ImportError, match="pip install dp-accounting"):
        account(Identity(), POISSON, 2.0)


# --- edges -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kappa", [0.01, 0.1, 0.3])
def test_strong_correlation_does_not_hide_rare_participations(kappa):
    """At tiny noise a participation is visible: delta(0) is the probability of one, 0.6325."""
    schedule = Schedule(500, 1, 1, "without_replacement")
    made = account(LambdaCGD(0.999), schedule, kappa, delta=1e-3, method="deterministic")
    assert made.delta_at(0.0) >= 0.999 * (1 - (1 - 1 / 500) ** 500)


@pytest.mark.parametrize("sampling", ["balls_in_bins", "without_replacement", "poisson"])
def test_extreme_noise_is_accounted_for(sampling):
    if sampling == "poisson":
        pytest.importorskip("dp_accounting")
    schedule = Schedule(60, 10, 2, sampling)
    assert account(LambdaCGD(0.5), schedule, 1e9).epsilon == 0.0
    tiny = account(LambdaCGD(0.5), schedule, 1e-3, method="deterministic")
    assert tiny.epsilon > 100
    assert 0.0 <= tiny.delta_at(math.inf) <= 1.0
    assert not any(math.isnan(x) for x in tiny.contributions["delta"].values())


def test_full_batches_under_poisson_are_the_gaussian_mechanism():
    pytest.importorskip("dp_accounting")
    made = account(LambdaCGD(0.5), Schedule(50, 50, 3, "poisson"), 5.0)
    cyclic = account(LambdaCGD(0.5), Schedule(50, 50, 3, "cyclic"), 5.0)
    assert made.method == "deterministic"
    assert made.epsilon >= cyclic.epsilon * (1 - 1e-6)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
@pytest.mark.parametrize("schedule", [Schedule(200, 10, 2, "cyclic"), Schedule(200, 10, 2)])
def test_the_certified_delta_is_never_above_the_target(schedule, adjacency):
    for epsilon, delta in ((1.0, 1e-12), (0.3, 1e-4), (5.0, 1e-7)):
        made = calibrate_noise_multiplier(
            epsilon, delta, Identity(), schedule, adjacency=adjacency
        )
        assert made.certificate.delta_at(epsilon) <= delta
