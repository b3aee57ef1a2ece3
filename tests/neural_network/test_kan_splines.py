"""Uniform B-splines against scipy's, the partition of unity and autograd."""

import numpy as np
import pytest
from scipy.interpolate import BSpline

torch = pytest.importorskip("torch")

from sklearn_dpop.neural_network._splines import (  # noqa: E402
    MAX_DEGREE,
    SplineBasis,
    scatter_index,
    scatter_local_,
)

GRIDS = [
    SplineBasis(degree, degree + cells, low, high)
    for degree in range(MAX_DEGREE + 1)
    for cells, low, high in ((1, -1.0, 1.0), (5, -1.0, 1.0), (4, 0.25, 7.0))
]


def scipy_basis(basis, k, derivative=0):
    """Basis k: the B-spline on the knots low + (k - degree + j) h."""
    h = (basis.high - basis.low) / (basis.n_basis - basis.degree)
    knots = basis.low + h * (k - basis.degree + np.arange(basis.degree + 2))
    spline = BSpline.basis_element(knots, extrapolate=False)
    return spline if derivative == 0 else spline.derivative(derivative)


def scipy_values(basis, x, derivative=0):
    columns = [scipy_basis(basis, k, derivative)(x) for k in range(basis.n_basis)]
    return np.nan_to_num(np.stack(columns, -1))


def interior(basis, n=400):
    """Points inside the cells; at knots scipy's pieces are one-sided."""
    x = np.random.default_rng(0).uniform(basis.low, basis.high, n)
    h = (basis.high - basis.low) / (basis.n_basis - basis.degree)
    u = (x - basis.low) / h % 1
    return x[(u > 1e-6) & (u < 1 - 1e-6)]


@pytest.mark.parametrize("basis", GRIDS, ids=str)
def test_dense_values_are_those_of_scipy(basis):
    x = interior(basis)
    ours = basis.dense(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(ours, scipy_values(basis, x), rtol=0, atol=3e-15)
    # In float32 the place in the cell is known to about eps * (|low| + |high|) / h.
    single = basis.dense(torch.from_numpy(x).float()).numpy()
    np.testing.assert_allclose(single, scipy_values(basis, np.float32(x)), rtol=0, atol=4e-6)


@pytest.mark.parametrize("basis", [b for b in GRIDS if b.degree > 0], ids=str)
def test_knots_and_ends_are_continuous(basis):
    knots = np.linspace(basis.low, basis.high, basis.n_cells + 1)
    h = basis.cell_width
    ours = basis.dense(torch.from_numpy(knots)).numpy()
    # Just inside the nearest cell, extrapolated by the first order: N' is at most 1 / h.
    inner = np.clip(knots, basis.low + 1e-9 * h, basis.high - 1e-9 * h)
    np.testing.assert_allclose(ours, scipy_values(basis, inner), rtol=0, atol=3e-9)


@pytest.mark.parametrize("basis", GRIDS, ids=str)
def test_partition_of_unity_and_bounds(basis):
    x = torch.linspace(basis.low - 1, basis.high + 1, 1001, dtype=torch.float64)
    values = basis.dense(x)
    assert torch.allclose(values.sum(-1), torch.ones(1001, dtype=torch.float64), atol=1e-14)
    assert values.min() >= 0
    assert (values > 0).sum(-1).max() <= basis.degree + 1


@pytest.mark.parametrize("basis", GRIDS, ids=str)
def test_local_form_is_the_nonzero_part_of_the_dense_one(basis):
    x = torch.from_numpy(interior(basis))
    cell, values = basis.local(x)
    assert cell.dtype == torch.int64
    assert len(values) == basis.degree + 1
    dense = torch.zeros(len(x), basis.n_basis, dtype=torch.float64)
    for r, value in enumerate(values):
        dense[torch.arange(len(x)), cell + r] = value
    assert torch.equal(dense, basis.dense(x))


@pytest.mark.parametrize("basis", [b for b in GRIDS if b.degree > 0], ids=str)
def test_slopes_are_the_derivatives_of_scipy(basis):
    x = interior(basis)
    cell, values, slopes = basis.local_slopes(torch.from_numpy(x)[None])
    dense = torch.zeros(1, basis.n_basis, len(x), dtype=torch.float64)
    scatter_local_(dense, scatter_index(cell, basis.n_basis), slopes)
    expected = scipy_values(basis, x, 1)
    np.testing.assert_allclose(dense[0].T, expected, rtol=0, atol=2e-13)
    assert all(
        torch.equal(a, b)
        for a, b in zip(values, basis.local(torch.from_numpy(x)[None])[1], strict=True)
    )


@pytest.mark.parametrize("basis", [b for b in GRIDS if b.degree > 1], ids=str)
def test_slopes_are_the_derivatives_of_autograd(basis):
    # Also outside the grid, where the clamped basis is constant.
    x = torch.linspace(basis.low - 1, basis.high + 1, 203, dtype=torch.float64)
    weights = torch.arange(1.0, basis.n_basis + 1, dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    (basis.dense(leaf) @ weights).sum().backward()
    cell, _, slopes = basis.local_slopes(x)
    ours = sum(weights[cell + r] * slope for r, slope in enumerate(slopes))
    assert torch.allclose(ours, leaf.grad, rtol=0, atol=1e-12)
    assert torch.equal(ours[x < basis.low], torch.zeros(int((x < basis.low).sum())).double())


def test_steps_have_no_slope():
    _, values, slopes = SplineBasis(0, 4).local_slopes(torch.tensor([0.3]))
    assert torch.equal(values[0], torch.ones(1))
    assert torch.equal(slopes[0], torch.zeros(1))


def test_outside_is_clamped_and_nan_is_low():
    basis = SplineBasis(3, 8)
    far = torch.tensor([-torch.inf, -3e38, -1.5, torch.nan, 1.5, 3e38, torch.inf])
    near = torch.tensor([-1.0, -1.0, -1.0, -1.0, 1.0, 1.0, 1.0])
    assert torch.equal(basis.dense(far), basis.dense(near))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_upper_end_is_not_passed_by_rounding(dtype):
    # (high - low) / h rounds to above the number of cells for some of these.
    for cells in range(1, 200):
        basis = SplineBasis(3, cells + 3, 0.1, 0.7)
        cell, values = basis.local(torch.tensor([0.7], dtype=dtype))
        assert cell.item() == cells - 1
        # Zero, or as small as one ulp below the end makes it.
        assert 0 <= values[0].item() <= 1e-15


def test_value_at_the_centre():
    # Cubic, five cells: the centre is the middle of cell 2, where the cardinal spline is
    # 1/48 and 23/48.
    expected = np.array([0, 0, 1, 23, 23, 1, 0, 0]) / 48
    np.testing.assert_allclose(SplineBasis(3, 8).at(0.0), expected, rtol=1e-15)


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_same_bits_in_any_batch(rows):
    # Clipping takes norms at one time and features at another (see _clipped._margin).
    x = torch.rand(200, 13) * 2 - 1
    basis = SplineBasis(3, 8)
    whole = basis.dense(x)
    parts = torch.cat([basis.dense(part) for part in x.split(rows)])
    assert torch.equal(whole, parts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"degree": 6}, "degree must be an integer between 0 and 5, got 6"),
        ({"degree": 1.5}, "degree must be an integer"),
        ({"degree": True}, "degree must be an integer"),
        ({"n_basis": 3}, "n_basis must be an integer of at least degree [+] 1 = 4, got 3"),
        ({"low": 1.0}, "low < high, got low=1.0 and high=1.0"),
        ({"high": np.inf}, "must be finite"),
        ({"low": np.nan}, "must be finite"),
    ],
)
def test_bad_parameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        SplineBasis(**arguments)
