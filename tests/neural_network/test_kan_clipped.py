"""Clipped sums against per-example gradients by ``torch.func``, and the bound C itself.

The oracle is a network written again from the formula of the paper, with the dense recursion
of Cox and de Boor, on which ``vmap(grad)`` forms the gradient of every record.
"""

import copy
import math
import pickle
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from sklearn_dpop.neural_network import _clipped  # noqa: E402
from sklearn_dpop.neural_network._clipped import (  # noqa: E402
    FeatureStore,
    add_clipped_sum_,
    clipped_sum,
    per_record,
)
from sklearn_dpop.neural_network._kan import KAN  # noqa: E402

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
VARIANTS = {
    "paper": {},
    "sigmoid": {"activation": "sigmoid"},
    "trained output": {"train_output_layer": True},
    "base branch": {"base_branch": True, "train_output_layer": True},
    "centred": {"center_basis": True},
    "softmax": {"n_outputs": 4, "train_output_layer": True},
    "softmax, fixed output": {"n_outputs": 3},
    "two outputs": {"n_outputs": 2},
    "deep": {"hidden_width": (6, 5), "train_output_layer": True},
    "deep, fixed output": {"hidden_width": (6, 5)},
    "five layers, everything": {
        "hidden_width": (6, 5, 4, 5),
        "n_outputs": 3,
        "train_output_layer": True,
        "base_branch": True,
        "center_basis": True,
        "activation": "sigmoid",
    },
    "quadratic, bounds": {"degree": 2, "n_basis": 5, "feature_bounds": (-0.5, 2.0)},
    "quintic": {"degree": 5, "n_basis": 9, "train_output_layer": True},
}


def cox_de_boor(x, degree, p):
    """All bases at a vector x, by the recursion over all knots; shape (p, len(x))."""
    h = 2 / (p - degree)
    knots = [-1 + h * (k - degree) for k in range(p + degree + 1)]
    b = [((x >= lo) & (x < hi)).to(x.dtype) for lo, hi in pairwise(knots)]
    for j in range(1, degree + 1):
        b = [
            (x - knots[k]) / (j * h) * b[k] + (knots[k + j + 1] - x) / (j * h) * b[k + 1]
            for k in range(len(b) - 1)
        ]
    return torch.stack(b)


def oracle_loss(trained, fixed, x, y, options):
    """Loss of one record x as a function of the trained weights."""
    degree, p = options.get("degree", 3), options.get("n_basis", 8)
    low, high = options.get("feature_bounds", (-1.0, 1.0))
    act = getattr(torch, options.get("activation", "tanh"))
    h = (x.clamp(low, high) - (low + high) / 2) / ((high - low) / 2)
    for level, w in enumerate([*trained, *fixed]):
        points = [h]
        if options.get("center_basis"):
            zero = torch.zeros(1, dtype=x.dtype)
            points.append(zero if level == 0 else act(zero))
        phi, *at_centre = (
            torch.cat([cox_de_boor(t, degree, p)] + [(t * torch.sigmoid(t))[None]] * base)
            for base in [options.get("base_branch", False)]
            for t in points
        )
        z = torch.einsum("jki,ki->j", w, phi - at_centre[0] if at_centre else phi)
        z = z / math.sqrt(len(h))
        h = act(z)
    if len(z) == 1:
        return torch.nn.functional.softplus(-(2 * y - 1) * z[0])
    return torch.nn.functional.cross_entropy(z[None], y[None])


def split_weights(net):
    trained = [p.detach().double() for p in net.parameters()]
    return trained, [layer.weight.double() for layer in net.layers[len(trained) :]]


def oracle_gradients(net, x, y, options):
    """Gradient of every record, in double precision; one (n, ...) tensor per trained layer."""
    trained, fixed = split_weights(net)
    gradient = torch.func.grad(oracle_loss)
    per_example = torch.func.vmap(
        lambda a, b: gradient(trained, fixed, a, b, options), in_dims=(0, 0)
    )
    return per_example(x.double(), y)


def norms_of(gradients):
    return torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()


def clip_and_sum(gradients, clip):
    factors = (clip / norms_of(gradients)).clamp(max=1)
    return [torch.einsum("n,n...->...", factors, g) for g in gradients]


def relative_error(ours, expected):
    difference = sum((a.double() - b).square().sum() for a, b in zip(ours, expected, strict=True))
    return (difference / sum(b.square().sum() for b in expected)).sqrt().item()


def problem(options, dtype, n=30, d=7):
    options = {"hidden_width": 6, **options}
    net = KAN(d, generator=torch.Generator().manual_seed(1), dtype=dtype, **options)
    generator = torch.Generator().manual_seed(2)
    low, high = options.get("feature_bounds", (-1.0, 1.0))
    # Some beyond the bounds.
    x = low + (high - low) * (torch.rand(n, d, generator=generator, dtype=dtype) * 1.1 - 0.05)
    y = torch.randint(max(2, net.n_outputs), (n,), generator=generator)
    return net, x, y, options


def ours_and_expected(options, dtype):
    net, x, y, options = problem(options, dtype)
    gradients = oracle_gradients(net, x, y, options)
    clip = norms_of(gradients).median().item()  # about half of the batch is clipped
    ours = clipped_sum(net, FeatureStore(net, x), torch.arange(len(x)), y, clip)
    return ours, clip_and_sum(gradients, clip), gradients, clip


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_clipped_sum_is_that_of_per_example_gradients(options, dtype):
    ours, expected, gradients, clip = ours_and_expected(options, dtype)
    clipped = (norms_of(gradients) > clip).double().mean()
    assert 0.4 <= clipped <= 0.6
    assert relative_error(ours, expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_the_comparison_sees_a_layer_missing_from_the_norm(left_out, monkeypatch):
    def without(layers, rows, features, deltas):
        deltas = [d if k != left_out else torch.zeros_like(d) for k, d in enumerate(deltas)]
        return honest(layers, rows, features, deltas)

    honest = _clipped._gradient_norms
    monkeypatch.setattr(_clipped, "_gradient_norms", without)
    ours, expected, _, _ = ours_and_expected(VARIANTS["deep"], torch.float32)
    assert relative_error(ours, expected) > 100 * TOLERANCE[torch.float32]


@pytest.mark.parametrize("margin", [0.02, -0.02])
def test_the_comparison_sees_a_factor_off_by_two_per_cent(margin, monkeypatch):
    monkeypatch.setattr(_clipped, "_margin", lambda layers: margin)
    ours, expected, _, _ = ours_and_expected(VARIANTS["paper"], torch.float32)
    assert relative_error(ours, expected) > 100 * TOLERANCE[torch.float32]


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_norms_and_losses_of_single_records(options):
    net, x, y, options = problem(options, torch.float64)
    ours = per_record(net, FeatureStore(net, x).take(slice(None)), y)
    expected = norms_of(oracle_gradients(net, x, y, options))
    assert torch.allclose(ours.norms, expected, rtol=1e-12)
    trained, fixed = split_weights(net)
    losses = torch.stack(
        [oracle_loss(trained, fixed, a, b, options) for a, b in zip(x, y, strict=True)]
    )
    assert torch.allclose(ours.losses, losses, rtol=1e-12)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_without_clipping_it_is_the_gradient_of_the_module(options):
    net, x, y, _ = problem(options, torch.float64)
    logits = net(x)
    if net.n_outputs == 1:
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            logits[:, 0], y.double(), reduction="sum"
        )
    else:
        loss = torch.nn.functional.cross_entropy(logits, y, reduction="sum")
    loss.backward()
    ours = clipped_sum(net, FeatureStore(net, x), torch.arange(len(x)), y, math.inf)
    assert relative_error(ours, [p.grad for p in net.parameters()]) < 1e-12


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("budget", [0, 2**28])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_cuda_gives_the_sums_of_the_cpu(options, budget):
    net, x, y, _ = problem(options, torch.float64)
    batch = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:17]
    expected = clipped_sum(net, FeatureStore(net, x), batch, y[batch], 0.1)
    moved, store_batch = copy.deepcopy(net).cuda(), batch.cuda()
    store = FeatureStore(moved, x, memory_budget=budget)
    ours = clipped_sum(moved, store, store_batch, y.cuda()[store_batch], 0.1)
    assert relative_error([t.cpu() for t in ours], expected) < 1e-12


# What one record can contribute.


def exact_squared_norm(tensors):
    return sum(Fraction(v) ** 2 for t in tensors for v in t.flatten().tolist())


def contribution(net, x, y, clip, **store_options):
    """What `add_clipped_sum_` adds for one record."""
    total = [torch.zeros_like(p) for p in net.parameters()]
    store = FeatureStore(net, x, **store_options)
    add_clipped_sum_(net, store.take(torch.tensor([0])), y, clip, total)
    return total


@settings(max_examples=150, deadline=None)
@given(
    x=st.lists(st.floats(allow_nan=False, width=32), min_size=3, max_size=3),
    label=st.integers(0, 1),
    clip=st.floats(1e-30, 1e10),
    log_scale=st.floats(-20, 36),
    options=st.sampled_from(list(VARIANTS.values())),
    dtype=st.sampled_from(list(TOLERANCE)),
    budget=st.sampled_from([0, 2**20]),
)
@example([0.1, 0.2, 0.3], 1, 1e-6, 36.0, VARIANTS["deep"], torch.float32, 0)
@example([0.1, 0.2, 0.3], 1, 1e-30, 36.0, VARIANTS["paper"], torch.float32, 0)
@example([1e38, -1e38, 1e-38], 0, 0.5, 0.0, VARIANTS["base branch"], torch.float32, 0)
def test_no_record_exceeds_the_clipping_norm(x, label, clip, log_scale, options, dtype, budget):
    net = KAN(
        3,
        generator=torch.Generator().manual_seed(0),
        dtype=dtype,
        **{"hidden_width": 4, **options},
    )
    with torch.no_grad():
        for layer in net.layers:
            layer.weight.mul_(10.0**log_scale)
    record = torch.tensor([x], dtype=dtype)
    total = contribution(net, record, torch.tensor([label]), clip, memory_budget=budget)
    assert all(torch.isfinite(t).all() for t in total)
    # In rational arithmetic: rounding must not lift the record above C, not even by a bit.
    assert exact_squared_norm(total) <= Fraction(clip) ** 2


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_clipped_record_contributes_almost_the_clipping_norm(dtype):
    # The margin against rounding, for each of the hidden features too, costs 1e-5 (float32).
    net, x, y, _ = problem(VARIANTS["five layers, everything"], dtype, n=60)
    allowed = 64 + max(layer.n_features for layer in net.spline_layers[1:])
    norms = per_record(net, FeatureStore(net, x).take(slice(None)), y).norms
    clip = norms.min().item() / 2
    for n in range(len(x)):
        total = contribution(net, x[n : n + 1], y[n : n + 1], clip)
        ratio = exact_squared_norm(total) / Fraction(clip) ** 2
        assert 1 - allowed * torch.finfo(dtype).eps - 1e-12 < ratio <= 1


@pytest.mark.parametrize("size", [1.0, 1e-18, 1e-22, 1e-30, 0.0])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_norms_of_hidden_features_are_not_below_the_exact_ones(dtype, size):
    # Squares of 1e-22 are subnormal numbers of float32, those of 1e-30 are zero there.
    generator = torch.Generator().manual_seed(0)
    rows = (size * torch.rand(50, 700, generator=generator, dtype=torch.float64)).to(dtype)
    found = _clipped._squared_norms_of_hidden(rows)
    smallest = 4 * 700 * torch.finfo(dtype).tiny
    for row, norm in zip(rows, found.tolist(), strict=True):
        exact = exact_squared_norm([row])
        margin = Fraction(703 * torch.finfo(dtype).eps / 2)  # of a square; see `_margin`
        assert exact <= Fraction(norm) * (1 + margin)
        assert Fraction(norm) <= exact * (1 + margin) + Fraction(smallest)


def test_a_record_at_the_boundary_is_not_touched():
    net, x, y, _ = problem({}, torch.float64, n=1)
    free = contribution(net, x, y, math.inf)
    norm = per_record(net, FeatureStore(net, x).take(slice(None)), y).norms.item()
    assert torch.equal(contribution(net, x, y, norm * (1 + 1e-11))[0], free[0])
    assert relative_error(contribution(net, x, y, norm * 0.9), [0.9 * free[0]]) < 1e-11


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_records_that_are_not_finite_stay_bounded(options, value):
    net, x, y, _ = problem(options, torch.float32)
    x[3] = value
    total = contribution(net, x[3:4], y[3:4], 0.1)
    assert exact_squared_norm(total) <= Fraction(0.1) ** 2
    x[4, 0] = value
    whole = clipped_sum(net, FeatureStore(net, x), torch.arange(len(x)), y, 0.1)
    assert all(torch.isfinite(t).all() for t in whole)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 3e38])
@pytest.mark.parametrize("layer", [0, 1])
def test_weights_that_overflow_give_no_record_more(layer, value):
    net, x, y, _ = problem({"train_output_layer": True}, torch.float32)
    with torch.no_grad():
        net.layers[layer].weight[0, :, ::2] = value
        net.layers[layer].weight[0, :, 1::2] = -value
    for n in range(len(x)):
        total = contribution(net, x[n : n + 1], y[n : n + 1], 0.1)
        assert exact_squared_norm(total) <= Fraction(0.1) ** 2


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("column", [0, 3])
def test_features_that_are_not_numbers_give_no_record_more(column, layer, value):
    # Infinity times a feature of zero: the hidden units, and their features, are not numbers.
    options = {"hidden_width": (3, 2), "train_output_layer": True, "base_branch": True}
    net, x, y, _ = problem(options, torch.float32)
    with torch.no_grad():
        net.layers[layer].weight[0, column, 0] = value
    x = torch.stack([torch.zeros(x.shape[1]), torch.full((x.shape[1],), -0.99)])
    for n in range(2):
        total = contribution(net, x[n : n + 1], y[n : n + 1], 0.1)
        assert exact_squared_norm(total) <= Fraction(0.1) ** 2


def test_one_record_more_moves_the_sum_by_at_most_the_clipping_norm():
    net, x, y, _ = problem(VARIANTS["deep"], torch.float64)
    store, index = FeatureStore(net, x), torch.arange(len(x))
    whole = clipped_sum(net, store, index, y, 0.05)
    for n in range(len(x)):
        rest = index[index != n]
        part = clipped_sum(net, store, rest, y[rest], 0.05)
        difference = sum((a - b).square().sum() for a, b in zip(whole, part, strict=True))
        assert difference.sqrt() <= 0.05 * (1 + 1e-12)


def test_saturated_logits_keep_their_digits():
    # d/df softplus(-f) = -1 / (1 + e^f), to all digits also where sigmoid(f) rounds to 1.
    logits = torch.tensor([[30.0], [-30.0], [0.0]])
    slopes = _clipped._loss_slope(logits, torch.tensor([1, 0, 1]))[:, 0].double()
    expected = torch.tensor([-1 / (1 + math.exp(30)), 1 / (1 + math.exp(30)), -0.5]).double()
    assert torch.allclose(slopes, expected, rtol=1e-6, atol=0)
    # Softmax: p - 1 for the label is minus the sum of the others.
    slopes = _clipped._loss_slope(torch.tensor([[30.0, 0.0, 0.0]]), torch.tensor([0])).double()
    q = 1 / (math.exp(30) + 2)
    assert torch.allclose(slopes, torch.tensor([[-2 * q, q, q]]).double(), rtol=1e-6, atol=0)


def test_norms_of_long_rows_have_double_precision():
    rows = torch.rand(2, 20_000, generator=torch.Generator().manual_seed(0))
    exact = [float(exact_squared_norm([row])) for row in rows]
    ours = _clipped._squared_norms(rows)
    assert torch.allclose(ours, torch.tensor(exact, dtype=torch.float64), rtol=1e-12, atol=0)


@pytest.mark.parametrize("clip", [0.5, 1e-6, 1e-30])
def test_factors_below_the_least_normal_number_keep_their_digits(clip):
    # clip / 3e38 is subnormal in float32, where it may round up by any amount.
    delta = torch.tensor([[3e38]])
    factors = clip / delta.double()[:, 0]
    scaled = _clipped._scaled(delta, factors)
    assert abs(scaled.item() / clip - 1) <= torch.finfo(torch.float32).eps / 2


@pytest.mark.parametrize("setting", ["high", "medium", None])
def test_products_of_reduced_precision_are_allowed_for(setting, monkeypatch):
    def mixed():
        raise RuntimeError("mix of the legacy and new APIs")

    net, x, y, _ = problem({}, torch.float32)
    double = problem({}, torch.float64)[0].spline_layers
    exact = _clipped._margin(double)
    getter = mixed if setting is None else lambda: setting
    monkeypatch.setattr(torch, "get_float32_matmul_precision", getter)
    clip = 0.5 * per_record(net, FeatureStore(net, x).take(slice(None)), y).norms.min().item()
    total = contribution(net, x[:1], y[:1], clip)
    # Rounding both factors of a product to 8 bits lifts it by at most (1 + 2^-8)^2.
    assert float(exact_squared_norm(total)) ** 0.5 * (1 + 2.0**-8) ** 2 <= clip
    assert _clipped._margin(double) == exact


# Batches.


@pytest.mark.parametrize("budget", [0, 2**28])
@pytest.mark.parametrize("physical", [1, 4, 7, 100])
def test_physical_batches_change_rounding_only(physical, budget):
    net, x, y, _ = problem(VARIANTS["softmax"], torch.float64)
    store = FeatureStore(net, x, memory_budget=budget)
    batch = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:17]
    whole = clipped_sum(net, store, batch, y[batch], 0.1)
    parts = clipped_sum(net, store, batch, y[batch], 0.1, physical_batch_size=physical)
    assert relative_error(parts, whole) < 1e-14
    memory = [torch.full_like(t, 7.0) for t in whole]
    again = clipped_sum(net, store, batch, y[batch], 0.1, out=memory)
    assert all(torch.equal(a, b) for a, b in zip(again, whole, strict=True))
    assert all(a is b for a, b in zip(again, memory, strict=True))


@pytest.mark.parametrize("clip", [0.1, math.inf])
def test_masked_records_do_not_count(clip):
    net, x, y, _ = problem(VARIANTS["deep"], torch.float64)
    x[5:9] = torch.nan  # padding may hold anything
    mask = torch.ones(len(x), dtype=torch.bool)
    mask[5:9] = False
    store = FeatureStore(net, x)
    kept = torch.nonzero(mask)[:, 0]
    masked = clipped_sum(net, store, torch.arange(len(x)), y, clip, mask=mask)
    assert relative_error(masked, clipped_sum(net, store, kept, y[kept], clip)) < 1e-14
    halves = clipped_sum(
        net, store, torch.arange(len(x)), y, clip, mask=mask, physical_batch_size=6
    )
    assert relative_error(halves, masked) < 1e-14


@pytest.mark.parametrize("budget", [0, 2**28])
@pytest.mark.parametrize("clip", [0.1, math.inf])
def test_empty_batch_sums_to_zero(budget, clip):
    net, x, y, _ = problem(VARIANTS["softmax"], torch.float32)
    store = FeatureStore(net, x, memory_budget=budget)
    none = torch.zeros(0, dtype=torch.int64)
    assert all(t.abs().sum() == 0 for t in clipped_sum(net, store, none, y[:0], clip))
    before = [p.detach().clone() for p in net.parameters()]
    add_clipped_sum_(net, store.take(none), y[:0], clip, list(net.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


def test_fused_update_uses_the_old_weights_in_all_layers():
    net, x, y, _ = problem(VARIANTS["deep"], torch.float64)
    store = FeatureStore(net, x)
    total = clipped_sum(net, store, torch.arange(len(x)), y, 0.1)
    expected = [p.detach() - 0.5 / 30 * t for p, t in zip(net.parameters(), total, strict=True)]
    rows = store.take(slice(None))
    add_clipped_sum_(net, rows, y, 0.1, list(net.parameters()), alpha=-0.5 / 30)
    assert relative_error([p.detach() for p in net.parameters()], expected) < 1e-15
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, 1e-31])
def test_bad_clipping_norm(clip):
    net, x, y, _ = problem({}, torch.float32)
    with pytest.raises(ValueError, match="max_grad_norm must be at least 1e-30, got"):
        contribution(net, x, y, clip)


def test_weights_of_records_are_refused():
    net, x, y, _ = problem({}, torch.float32)
    with pytest.raises(ValueError, match=r"mask must be of dtype torch\.bool, got torch\.float32"):
        clipped_sum(net, FeatureStore(net, x), torch.arange(30), y, 1.0, mask=torch.ones(30))


def test_bad_physical_batch_size():
    net, x, y, _ = problem({}, torch.float32)
    with pytest.raises(ValueError, match="physical_batch_size must be at least 1, got 0"):
        clipped_sum(net, FeatureStore(net, x), torch.arange(3), y, 1.0, physical_batch_size=0)


# The store.


@pytest.mark.parametrize("options", [{}, {"base_branch": True, "center_basis": True}])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_store_gives_the_features_of_the_layer(options, dtype):
    net, x, _, _ = problem(options, dtype, n=600)  # more than are computed at once
    expected = net.layers[0].features(net.to_grid(x)).flatten(1)
    norms = expected.double().square().sum(1)
    size = expected.numel() * expected.element_size()
    for budget, cached in ((size, True), (size - 1, False)):
        store = FeatureStore(net, x, memory_budget=budget)
        assert len(store) == 600
        assert store.cached is cached
        for index in (slice(10, 300), slice(None), torch.tensor([7, 7, 599, 0])):
            rows = store.take(index)
            assert torch.allclose(rows.features, expected[index], rtol=1e-6, atol=1e-7)
            assert torch.allclose(rows.squared_norms, norms[index], rtol=1e-6)
            # The bound rests on the norms of these very numbers: 6 eps are allowed for.
            exact = rows.features.double().square().sum(1)
            slack = 2 * 6 * torch.finfo(dtype).eps
            assert torch.all(exact <= rows.squared_norms * (1 + slack))


def test_taking_a_slice_of_a_cached_store_is_free():
    net, x, _, _ = problem({}, torch.float32)
    store = FeatureStore(net, x)
    assert (
        store.take(slice(3, 9)).features.data_ptr() != store.take(slice(4, 9)).features.data_ptr()
    )
    assert (
        store.take(slice(3, 9)).features.data_ptr() == store.take(slice(3, 5)).features.data_ptr()
    )


@pytest.mark.parametrize("budget", [0, 2**28])
def test_pickles_and_copies_hold_no_records(budget):
    net, x, _, _ = problem({}, torch.float32)
    x[0] = 0.7071
    store = FeatureStore(net, x, memory_budget=budget)
    store.take(torch.arange(5))
    payload = pickle.dumps(store)
    assert x[0, :1].numpy().tobytes() not in payload
    assert len(payload) < 200
    for empty in (pickle.loads(payload), copy.deepcopy(store), copy.copy(store)):
        assert vars(empty) == {}
        with pytest.raises(RuntimeError, match="dropped"):
            empty.take(slice(0, 1))


def test_arrays_are_taken_in_the_dtype_of_the_model():
    net, x, _, _ = problem({}, torch.float64)
    store = FeatureStore(net, x.float().numpy())
    assert store.take(slice(None)).features.dtype == torch.float64


def test_bad_shape_of_records():
    net, x, _, _ = problem({}, torch.float32)
    with pytest.raises(ValueError, match=r"X must have shape \(n, 7\), got \(30, 6\)"):
        FeatureStore(net, x[:, 1:])
