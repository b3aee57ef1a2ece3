"""Edges, importances and risk terms: functions of released weights and public numbers."""

# ruff: noqa: E402
import math
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("skorch")
from skorch.callbacks import Callback

from sklearn_dpop import KANClassifierDP
from sklearn_dpop.factorization import BIFR, BISR, Identity, LambdaCGD
from sklearn_dpop.neural_network._clipped import FeatureStore, per_record
from sklearn_dpop.neural_network._inspect import (
    chance,
    edge_functions,
    effects,
    feature_importances,
)
from sklearn_dpop.neural_network._kan import KAN
from sklearn_dpop.neural_network._risk import correlation, gradient_bound, risk_terms
from sklearn_dpop.neural_network._splines import SplineBasis


def network(n_outputs=1, **params):
    generator = torch.Generator().manual_seed(0)
    bounds = ([0.0, -1.0, 2.0], [1.0, 3.0, 4.0])
    return KAN(
        3, n_outputs, hidden_width=(6, 4), feature_bounds=bounds, generator=generator,
        dtype=torch.float64, **params,
    )  # fmt: skip


@pytest.mark.parametrize("params", [{}, {"base_branch": True}, {"center_basis": True}])
def test_edges_add_up_to_the_outputs_of_the_first_layer(params):
    net = network(**params)
    tables = [edge_functions(net, i, n_points=5) for i in range(3)]
    x = torch.tensor(np.stack([t[0][[0, 3, 4]] for t in tables], axis=1))
    with torch.no_grad():
        z = net.spline_layers[0](net.to_grid(x)).numpy()
    np.testing.assert_allclose(sum(t[1][:, [0, 3, 4]] for t in tables).T, z, atol=1e-12)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_effects_are_those_of_a_network_that_is_nearly_linear(n_outputs):
    # With tiny first-layer weights the linearization is exact up to their square; the effect
    # is then the change of the logits when one feature moves and the others stay at the centre.
    net = network(n_outputs)
    with torch.no_grad():
        net.spline_layers[0].weight.mul_(1e-5)
    found = effects(net, n_points=9).numpy()
    center = np.array([0.5, 1.0, 3.0])
    for i, (low, high) in enumerate([(0, 1), (-1, 3), (2, 4)]):
        x = np.tile(center, (9, 1))
        x[:, i] = np.linspace(low, high, 9)
        with torch.no_grad():
            f = net(torch.tensor(x)).numpy()
        if n_outputs > 1:
            f = f - f.mean(axis=1, keepdims=True)
        wanted = (f - f.mean(axis=0)).T
        assert np.abs(wanted).max() > 1e-7
        np.testing.assert_allclose(found[:, :, i], wanted, atol=1e-4 * np.abs(wanted).max())


def test_a_constant_edge_has_no_importance():
    # Splines sum to one: equal coefficients make a constant.
    net = network()
    assert feature_importances(net).min() > 0.05
    with torch.no_grad():
        net.spline_layers[0].weight[:, :, 1] = 0.7
    importances = feature_importances(net)
    assert importances[1] == pytest.approx(0.0, abs=1e-12)
    assert importances.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_chance_is_the_spread_of_effects_of_random_weights(n_outputs):
    # With a centred basis the centre of the bounds stays where it is, and so do the slopes.
    net = network(n_outputs, center_basis=True, base_branch=True)
    expected = chance(net, weight_noise=0.75, n_points=5)
    generator = torch.Generator().manual_seed(1)
    drawn = []
    with torch.no_grad():
        for _ in range(2000):
            net.spline_layers[0].weight.normal_(std=1.25, generator=generator)
            drawn.append(effects(net, n_points=5))
    found = torch.stack(drawn).square().mean((0, 3)).sqrt()
    # 6000 values each: a standard error of 0.9%; false alarm below 1e-4 for all points.
    assert ((found / expected - 1).abs() < 0.045).all()


@pytest.mark.parametrize("strategy", [BIFR(0.5, 3), Identity()], ids=repr)
@pytest.mark.parametrize("done", [2, 4])
def test_noise_in_the_weights_of_a_band(data, strategy, done):
    clf = quick(
        epsilon=0.05, strategy=strategy, epochs=4, hidden_width=64, lr=0.5, max_grad_norm=0.5,
        sampling="cyclic",
    )  # fmt: skip
    for _ in range(done):
        clf.partial_fit(*data)
    steps, n = clf.history_[-1]["step"], clf.n_steps_
    assert steps == done * n // 4
    row = np.tril(np.ones((n, n)))[steps - 1] @ np.linalg.inv(strategy.matrix(n))
    per_step = 0.5 * 0.5 / clf.schedule_.expected_batch_size * clf.noise_multiplier_
    assert clf._weight_noise() == pytest.approx(per_step * np.linalg.norm(row), rel=1e-9)
    # So little privacy budget that the weights are initial ones and noise: 3072 of them, a
    # standard error of 1.3%; false alarm 1e-5.
    spread = clf.module_.spline_layers[0].weight.std().item()
    assert spread == pytest.approx((1 + clf._weight_noise() ** 2) ** 0.5, rel=0.057)


def test_no_band_where_the_length_of_steps_is_not_known(data):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    short = {"epsilon": 1.0, "epochs": 1, "sampling": "cyclic", "gamma": 0.5}
    plain = quick(**short).fit(*data)
    assert len(plain.plot_edges(0).collections) == 1
    momentum = quick(**short, optimizer__momentum=0.5).fit(*data)
    with_callback = quick(**short, callbacks=[Callback()]).fit(*data)
    for clf in (momentum, with_callback):
        assert clf._weight_noise() is None
        assert len(clf.plot_edges(0).collections) == 0


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 6))
    return X, (X[:, 4] + 0.5 * np.sin(3 * X[:, 1]) > 0).astype(int)


def quick(**params):
    defaults = {
        "epsilon": math.inf, "classes": [0, 1], "feature_bounds": (-1, 1), "batch_size": 50,
        "epochs": 40, "max_grad_norm": 5.0, "lr": 2.0, "random_state": 0, "device": "cpu",
    }  # fmt: skip
    return KANClassifierDP(**{**defaults, **params})


@pytest.mark.filterwarnings("ignore:epsilon=inf")
def test_importances_find_the_features_that_matter(data):
    clf = quick().fit(*data)
    importances = clf.feature_importances_
    assert importances.shape == (6,)
    assert importances.sum() == pytest.approx(1)
    assert set(np.argsort(importances)[-2:]) == {1, 4}
    assert not hasattr(quick(), "feature_importances_")


@pytest.mark.filterwarnings("ignore:epsilon=inf")
def test_plot_edges_draws_units_and_effects(data, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(data[0], columns=list("abcdef"))
    clf = quick(epochs=1, hidden_width=7).fit(X, data[1])
    ax = clf.plot_edges("e")
    assert len(ax.lines) == 8
    assert ax.get_xlabel() == "e"
    np.testing.assert_allclose(ax.lines[0].get_xdata()[[0, -1]], [-1, 1])
    assert clf.plot_edges(4, ax=ax) is ax
    for bad in ("z", 6, -1, 1.5):
        with pytest.raises(ValueError, match=r"from 0 to 5, or one of the names \['a', "):
            clf.plot_edges(bad)
    unnamed = quick(epochs=1, hidden_width=7).fit(*data)
    for bad in ("a", 6):
        with pytest.raises(ValueError, match=r"index from 0 to 5, the columns of X had no names"):
            unnamed.plot_edges(bad)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install matplotlib$"):
        clf.plot_edges(4)


# --- Theorem 4.1 -------------------------------------------------------------------------------


def test_gradient_bound_of_cubic_splines_by_hand():
    # Cubic: largest value 2/3, steepest slope 2/3 per cell of width 2/5; tanh has slope 1.
    wanted = 2 / 3 * (2 / 3) / (2 / 5) * 8 * (4 * math.sqrt(8) + 2 * math.sqrt(math.log(40) / 16))
    found = gradient_bound(SplineBasis(3, 8), "tanh", 16, 0.05)
    assert found == pytest.approx(wanted, rel=1e-6)
    assert gradient_bound(SplineBasis(3, 8), "sigmoid", 16, 0.05) == pytest.approx(wanted / 4)


def test_gradient_bound_holds():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        net = KAN(5, hidden_width=16, generator=generator, dtype=torch.float64)
        X = torch.rand(50, 5, generator=generator, dtype=torch.float64) * 2 - 1
        y = torch.randint(0, 2, (50,), generator=generator)
        norms = per_record(net, FeatureStore(net, X).take(slice(0, 50)), y).norms
        assert norms.max() <= gradient_bound(SplineBasis(3, 8), "tanh", 16, 0.05)


def test_terms_by_hand():
    found = risk_terms(
        gradient_bound=2.0, max_grad_norm=0.5, noise_multiplier=6.0, correlation=0.9,
        batch_size=100, n_steps=400, lr=1.0, n_features=20, hidden_width=32, margin=0.5,
    )  # fmt: skip
    assert found["rho_clip"] == 0.25
    assert found["eta_eff"] == 0.25
    assert found["c_eff"] == pytest.approx(0.12)
    assert found["quadratic_noise_factor"] == pytest.approx(0.01 + 0.81 * 0.25)
    assert found["terms"] == pytest.approx(
        {
            "optimization": 1 / (0.25 * 0.25 * 400),
            "sampling": 1 / (0.5 * 200),
            "step_size": 0.25 * 0.0125,
            "linear_noise": 0.1 * 0.12 / (0.5 * 20),
            "quadratic_noise": 0.2125 * 0.25 * 0.0144 * 640,
        }
    )
    # Minimizing (1 - x)^2 + x^2 eta in x.
    x = np.linspace(0, 1, 100_001)
    best = x[np.argmin((1 - x) ** 2 + x**2 * 0.25)]
    assert found["lambda_of_least_quadratic_noise"] == pytest.approx(best, abs=1e-5)


def test_correlation_of_strategies():
    strategies = [LambdaCGD(0.8), BIFR(0.8, 2), BIFR(0.8, 1), Identity()]
    assert [correlation(s) for s in strategies] == [0.8, 0.8, 0.0, 0.0]
    with pytest.raises(ValueError, match="bandwidth 2"):
        correlation(BISR(3))


def test_estimator_states_its_terms(data, tmp_path, monkeypatch):
    monkeypatch.setenv("SKLEARN_DPOP_CACHE", str(tmp_path))
    paper = {"epsilon": 2.0, "sampling": "cyclic", "gamma": 0.7, "train_output_layer": False}
    clf = quick(**paper, bandwidth=2, epochs=2).fit(*data)
    found = clf.optimization_risk_terms()
    assert found["lambda"] == 0.7
    assert found["c_eff"] == pytest.approx(5.0 * clf.noise_multiplier_ / (50 * found["rho_clip"]))
    for params in ({"bandwidth": 3}, {"train_output_layer": True}, {"hidden_width": (3, 2)}):
        other = quick(**{**paper, "epochs": 1, **params})
        with pytest.raises(ValueError, match="the theorem is for"):
            other.fit(*data).optimization_risk_terms()
    with pytest.raises(ValueError, match="margin=0"):
        clf.optimization_risk_terms(margin=0)
