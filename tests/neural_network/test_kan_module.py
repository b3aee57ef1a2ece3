"""The network against the formula of the paper, evaluated with scipy's splines."""

import copy
import pickle

import numpy as np
import pytest
from scipy.interpolate import BSpline
from scipy.special import expit

torch = pytest.importorskip("torch")

from sklearn_dpop.neural_network._kan import KAN  # noqa: E402


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def columns_by_scipy(h, degree, p, base):
    """phi(h) of shape (*h.shape, p [+ 1]) on the grid [-1, 1]."""
    h = np.clip(h, -1, 1)
    width = 2 / (p - degree)
    knots = -1 + width * (np.arange(p + degree + 1) - degree)
    phi = BSpline.design_matrix(h.ravel(), knots, degree).toarray().reshape(*h.shape, p)
    return np.concatenate([phi, (h * expit(h))[..., None]], -1) if base else phi


def network_by_formula(net, x, low, high, *, degree, p, act, base=False, center=False):
    """Sums over inputs j and bases k as the paper writes them, layer after layer."""
    h = (np.clip(x, low, high) - (np.asarray(low) + high) / 2) / ((np.asarray(high) - low) / 2)
    for level, layer in enumerate(net.layers):
        w = layer.weight.detach().numpy().astype(float)
        phi = columns_by_scipy(h, degree, p, base)
        if center:
            neutral = 0.0 if level == 0 or act is np.tanh else 0.5
            phi = phi - columns_by_scipy(np.array([neutral]), degree, p, base)[0]
        z = np.zeros((len(x), w.shape[0]))
        for j in range(w.shape[0]):
            for i in range(w.shape[2]):
                z[:, j] += phi[:, i] @ w[j, :, i]
        z /= np.sqrt(w.shape[2])
        h = act(z)
    return z


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activation": "sigmoid"},
        {"train_output_layer": True, "n_outputs": 3},
        {"hidden_width": (4, 3), "base_branch": True},
        {"center_basis": True, "base_branch": True},
        {"center_basis": True, "activation": "sigmoid", "base_branch": True},
        {"degree": 1, "n_basis": 4},
        {"degree": 5, "n_basis": 7},
    ],
    ids=str,
)
def test_forward_is_the_formula(options, dtype):
    d = 5
    options = {"hidden_width": 4, **options}
    low, high = np.linspace(-2, 0, d), np.linspace(1, 3, d)
    net = KAN(
        d,
        generator=generator(),
        feature_bounds=(low, high),
        dtype=getattr(torch, dtype),
        **options,
    )
    x = np.random.default_rng(0).uniform(-3, 4, (20, d))
    expected = network_by_formula(
        net,
        np.asarray(x, dtype),
        low,
        high,
        degree=options.get("degree", 3),
        p=options.get("n_basis", 8),
        act=expit if options.get("activation") == "sigmoid" else np.tanh,
        base=options.get("base_branch", False),
        center=options.get("center_basis", False),
    )
    ours = net(torch.as_tensor(x, dtype=getattr(torch, dtype))).detach().numpy()
    tolerance = 1e-13 if dtype == "float64" else 5e-6
    np.testing.assert_allclose(ours, expected, rtol=0, atol=tolerance)
    assert ours.shape == (20, options.get("n_outputs", 1))


def test_centring_moves_a_layer_by_constants_of_its_weights():
    plain, centred = (
        KAN(6, generator=generator(), center_basis=c, dtype=torch.float64) for c in (False, True)
    )
    x = torch.rand(30, 6, dtype=torch.float64) * 2 - 1
    shift = plain.layers[0](x) - centred.layers[0](x)
    at_zero = plain.layers[0](torch.zeros(1, 6, dtype=torch.float64))
    assert torch.allclose(shift, at_zero.expand_as(shift), atol=1e-13)
    assert shift.abs().min() > 0


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_centred_network_is_zero_at_the_centre_of_the_bounds(activation):
    net = KAN(
        3,
        hidden_width=(4, 5),
        activation=activation,
        center_basis=True,
        base_branch=True,
        feature_bounds=(0, 8),
        generator=generator(),
        dtype=torch.float64,
    )
    assert net(torch.full((1, 3), 4.0, dtype=torch.float64)).abs().item() < 1e-15


@pytest.mark.parametrize(
    ("value", "bound"), [(-1e38, 2.0), (float("inf"), 5.0), (5.1, 5.0), (float("nan"), 2.0)]
)
def test_inputs_are_clipped_to_the_bounds(value, bound):
    net = KAN(2, feature_bounds=([2, 0], [5, 1]), generator=generator())
    x, clipped = torch.tensor([[value, 0.5]]), torch.tensor([[bound, 0.5]])
    assert torch.equal(net(x), net(clipped))


def test_grid_position_of_the_bounds():
    net = KAN(2, feature_bounds=(-3, [5, 1]))
    x = torch.tensor([[-3.0, -3.0], [1.0, -1.0], [5.0, 1.0]])
    assert torch.equal(net.to_grid(x), torch.tensor([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]]))


def test_initial_weights_are_standard_normal_and_follow_the_generator():
    net = KAN(100, hidden_width=50, generator=generator(3))
    w = net.layers[0].weight.detach().numpy()
    n = w.size
    # Each is 5 standard deviations of the estimate wide: false alarm below 2e-6.
    assert abs(w.mean()) < 5 / np.sqrt(n)
    assert abs(w.var() - 1) < 5 * np.sqrt(2 / n)
    again = KAN(100, hidden_width=50, generator=generator(3), dtype=torch.float64)
    for a, b in zip(net.layers, again.layers, strict=True):
        assert torch.equal(a.weight, b.weight.float())
    other = KAN(100, hidden_width=50, generator=generator(4))
    assert not torch.equal(net.layers[0].weight, other.layers[0].weight)
    other.reset_parameters(generator(3))
    assert torch.equal(net.layers[1].weight, other.layers[1].weight)


def test_initialization_leaves_the_default_generator_alone():
    before = torch.random.get_rng_state()
    KAN(3, generator=generator())
    assert torch.equal(before, torch.random.get_rng_state())


def test_parameters_are_the_trained_weights_and_the_state_holds_all():
    fixed = KAN(7, 3, hidden_width=4)
    assert [tuple(p.shape) for p in fixed.parameters()] == [(4, 8, 7)]
    assert {"layers.0.weight", "layers.1.weight"} <= set(fixed.state_dict())
    trained = KAN(7, 3, hidden_width=(4, 5), base_branch=True, train_output_layer=True)
    shapes = [tuple(p.shape) for p in trained.parameters()]
    assert shapes == [(4, 9, 7), (5, 9, 4), (3, 9, 5)]


@pytest.mark.parametrize("copy_of", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_compute_the_same(copy_of):
    net = KAN(3, center_basis=True, generator=generator())
    x = torch.rand(4, 3)
    assert torch.equal(copy_of(net)(x), net(x))
    fresh = KAN(3, center_basis=True, generator=generator(1))
    fresh.load_state_dict(net.state_dict())
    assert torch.equal(fresh(x), net(x))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"in_features": 0}, "in_features must be an integer >= 1, got 0"),
        ({"n_outputs": 0}, "n_outputs must be an integer >= 1, got 0"),
        ({"hidden_width": 0}, "hidden_width .* got 0"),
        ({"hidden_width": ()}, "hidden_width .* got \\(\\)"),
        ({"hidden_width": (3, 2.5)}, "hidden_width .* got \\(3, 2.5\\)"),
        ({"activation": "relu"}, "activation must be one of .*'tanh'.* got 'relu'"),
        ({"dtype": torch.float16}, "dtype must be"),
        ({"degree": 7}, "degree must be"),
        ({"feature_bounds": (1, 1)}, "feature_bounds must be finite"),
        ({"feature_bounds": (-np.inf, 1)}, "feature_bounds must be finite"),
        ({"feature_bounds": ([0, 0], [1, -1])}, "feature_bounds must be finite"),
        ({"feature_bounds": (-1, [1, 1, 1])}, r"shape \(2,\), .* Got shapes \(\) and \(3,\)"),
        ({"feature_bounds": "no"}, "feature_bounds must be a pair"),
        ({"feature_bounds": 3}, "feature_bounds must be a pair"),
        ({"feature_bounds": {0: (0, 1), 1: (0, 5)}}, "a pair .* Names are not used here"),
        ({"feature_bounds": [(0, 9), (1, 5)]}, "for column 1. If these are pairs"),
        ({"feature_bounds": (0, 1e-300)}, "too close to each other for torch.float32"),
    ],
)
def test_bad_parameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        KAN(**{"in_features": 2, **arguments})
