"""The one-sided refinement against exact divergences of small problems.

For the exact minimizer the output density is known in closed form: w* = w*(z) satisfies
z = -grad F(w*), so its density is N(-grad F(w); 0, sigma^2 I) |det Hessian F(w)|.  For a
finite N in one dimension, z -> w_N is computed on a grid with its derivative (5).  Both
need no theorem of the package; the hockey-stick divergence follows by summation.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.special import expit

from sklearn_dpop.privacy._bounds import BOUNDS, best_radius, limit_log_delta
from sklearn_dpop.privacy._calibration import calibrate_objective_perturbation
from sklearn_dpop.privacy._gaussian import gaussian_delta, log_gaussian_delta
from sklearn_dpop.privacy._loss_constants import softplus_constants
from sklearn_dpop.privacy._objective_perturbation import (
    PerturbedGradientDescent,
    log_divergence_through_null_record,
)

LOGISTIC = softplus_constants("logistic", 0.0, 1.0)


def divergence(p, q, epsilon, cell):
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * cell)


def slopes(X, y, w, margin=0.0):
    """Return l'(<x, w>) and l'' of log(1 + exp(m - y t)) for every record and every w."""
    s = expit(margin - y[:, None] * (X @ w))
    return -y[:, None] * s, s * (1.0 - s)


def density_of_minimizer(X, y, mu, sigma, w, n):
    """Density of the exact perturbed minimizer at the columns of w, dimension 1 or 2."""
    first, second = slopes(X, y, w)
    gradient = X.T @ first / n + mu * w
    hessian = np.einsum("ik,ij,il->jlk", second, X, X) / n
    hessian += mu * np.eye(X.shape[1])[:, :, None]
    determinant = np.linalg.det(np.moveaxis(hessian, 2, 0))
    d = X.shape[1]
    log_normal = -0.5 * (gradient**2).sum(0) / sigma**2 - d * math.log(
        sigma * math.sqrt(2 * math.pi)
    )
    return np.exp(log_normal) * determinant


def limit_bound(epsilon, n, mu, sigma, adjacency, bound):
    g = (2.0 if adjacency == "replace-one" else 1.0) / n
    return math.exp(
        float(
            limit_log_delta(
                epsilon,
                noise_multiplier=sigma / g,
                curvature=1.0 / (n * mu),
                adjacency=adjacency,
                bound=bound,
            )
        )
    )


def grid_1d(X, y, mu, sigma, n):
    # z = -grad F(w) lies within 12 sigma for all but 1e-32 of the mass.
    radius = (1.0 + 12.0 * sigma) / mu
    w = np.linspace(-radius, radius, 100_001)
    return w[None, :], w[1] - w[0]


EPSILONS = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0, 4.0)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("sigma", [0.1, 0.4, 1.5])
@pytest.mark.parametrize("mu", [0.02, 0.2, 2.0])
def test_zero_out_never_exceeds_the_bound_in_one_dimension(bound, mu, sigma):
    n = 4
    worst = 0.0
    for others in itertools.product((-1.0, 1.0), repeat=n - 1):
        X = np.array([*others, 1.0])[:, None]
        y = np.ones(n)
        w, cell = grid_1d(X, y, mu, sigma, n)
        p = density_of_minimizer(X, y, mu, sigma, w, n)
        q = density_of_minimizer(X[:-1], y[:-1], mu, sigma, w, n)
        assert p.sum() * cell == pytest.approx(1.0, abs=1e-6)
        assert q.sum() * cell == pytest.approx(1.0, abs=1e-6)
        for a, b in ((p, q), (q, p)):
            for epsilon in EPSILONS:
                bound_here = limit_bound(epsilon, n, mu, sigma, "zero-out", bound)
                exact = divergence(a, b, epsilon, cell)
                assert exact <= bound_here * (1 + 1e-6) + 1e-12
                worst = max(worst, exact / bound_here)
    assert worst > 0.0


def test_zero_out_bound_is_nearly_attained():
    # All slopes saturate when the noise drives w far to the wrong side: the exact
    # divergence reaches the Gaussian one, so a sensitivity or a sigma that is 3% too
    # favourable would be exceeded.
    n, mu, sigma, epsilon = 4, 0.005, 0.3, 6.0
    X, y = np.ones((n, 1)), np.ones(n)
    w, cell = grid_1d(X, y, mu, sigma, n)
    p = density_of_minimizer(X, y, mu, sigma, w, n)
    q = density_of_minimizer(X[:-1], y[:-1], mu, sigma, w, n)
    exact = max(divergence(p, q, epsilon, cell), divergence(q, p, epsilon, cell))
    gaussian = gaussian_delta(epsilon, noise_multiplier=sigma * n)
    assert exact <= gaussian * (1 + 1e-6)
    assert exact > gaussian_delta(epsilon, noise_multiplier=1.03 * sigma * n)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("angle", [0.0, 0.3, 1.2, math.pi / 2, 2.5, math.pi])
@pytest.mark.parametrize(("mu", "sigma"), [(0.05, 0.4), (0.3, 0.25), (0.3, 1.0), (2.0, 0.5)])
def test_replace_one_never_exceeds_the_bound_in_two_dimensions(bound, mu, sigma, angle):
    n = 3
    shared = np.array([[1.0, 0.0], [0.6, 0.8]])
    x, x_new = np.array([1.0, 0.0]), np.array([math.cos(angle), math.sin(angle)])
    radius = (1.0 + 8.0 * sigma) / mu
    axis = np.linspace(-radius, radius, 601)
    cell = (axis[1] - axis[0]) ** 2
    w = np.stack(np.meshgrid(axis, axis), 0).reshape(2, -1)
    for signs in ((1, 1, 1, 1), (1, 1, 1, -1), (-1, 1, 1, -1)):
        y = np.array(signs[:3], float)
        y_new = np.array([*signs[:2], signs[3]], float)
        p = density_of_minimizer(np.vstack([shared, x]), y, mu, sigma, w, n)
        q = density_of_minimizer(np.vstack([shared, x_new]), y_new, mu, sigma, w, n)
        assert p.sum() * cell == pytest.approx(1.0, abs=1e-3)
        for a, b in ((p, q), (q, p)):
            for epsilon in EPSILONS:
                bound_here = limit_bound(epsilon, n, mu, sigma, "replace-one", bound)
                assert divergence(a, b, epsilon, cell) <= bound_here * (1 + 1e-3) + 1e-9


def release_map(X, y, mu, eta, n_iter, z, n):
    """Return w_N and its derivative in z, for one feature and a grid of z."""
    w, derivative = np.zeros_like(z), np.zeros_like(z)
    for _ in range(n_iter):
        first, second = slopes(X, y, w[None, :])
        gradient = X[:, 0] @ first / n + mu * w
        curvature = X[:, 0] ** 2 @ second / n + mu
        derivative = (1.0 - eta * curvature) * derivative - eta
        w = w - eta * (gradient + z)
    return w, derivative


def finite_density(X, y, mu, eta, n_iter, sigma, points, n):
    """Density of w_N at `points`, from the map on a fine grid of z (monotone: checked)."""
    z = np.linspace(-14.0 * sigma, 14.0 * sigma, 60_001)
    w, derivative = release_map(X, y, mu, eta, n_iter, z, n)
    assert (np.diff(w) < 0).all()
    density = np.exp(-0.5 * (z / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi)) / -derivative
    return np.interp(points, w[::-1], density[::-1], left=0.0, right=0.0), (w[-1], w[0])


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_calibrated_release_of_finitely_many_steps_is_private(adjacency, epsilon):
    # n = 4, d = 1: every neighbouring pair with features and labels in {-1, 1} (and 0).
    n, delta = 4, 1e-3
    certificate = calibrate_objective_perturbation(
        n, 1, epsilon, delta, calibration="tight", adjacency=adjacency, comparator_norm=1.0
    )
    c = certificate
    points = None
    densities = {}
    values = (-1.0, 1.0) if adjacency == "replace-one" else (-1.0, 0.0, 1.0)
    for last in values:
        for others in itertools.combinations_with_replacement((-1.0, 1.0), n - 1):
            X, y = np.array([*others, last])[:, None], np.ones(n)
            if points is None:
                z = np.array([-14.0, 14.0]) * c.sigma
                ends, _ = release_map(X, y, c.mu, c.eta, c.n_iter, z, n)
                radius = 1.3 * np.abs(ends).max() + 1.0 / c.mu
                points = np.linspace(-radius, radius, 60_001)
            densities[others, last], _ = finite_density(
                X, y, c.mu, c.eta, c.n_iter, c.sigma, points, n
            )
    cell = points[1] - points[0]
    checked = 0
    for (others, last), p in densities.items():
        for (others_2, last_2), q in densities.items():
            if others != others_2 or last == last_2:
                continue
            if adjacency == "zero-out" and 0.0 not in (last, last_2):
                continue
            for level in (0.2, 0.5 * epsilon, epsilon, 1.5 * epsilon):
                checked += 1
                exact = divergence(p, q, level, cell)
                assert exact <= certificate.delta_at(level) * (1 + 1e-3) + 1e-9
    assert checked > 0


@pytest.mark.parametrize("shift", [0.05, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
def test_the_way_by_the_null_record_is_exact_for_gaussian_mechanisms(shift, epsilon):
    # With curvature 0 both steps are Gaussian mechanisms of shift lambda / 2, and groups of
    # two under a mu-GDP mechanism are exactly 2 mu-GDP (Dong, Roth, Su 2022).
    if 0.5 * epsilon < 0.125 * shift**2:
        pytest.skip("the first step would need a negative epsilon")
    bound, first = log_divergence_through_null_record(shift, epsilon, curvature=0.0, tau_0=0.0)
    exact = float(log_gaussian_delta(shift, epsilon))
    assert float(bound) == pytest.approx(exact, rel=1e-12, abs=1e-10)
    assert float(first) == 0.5 * epsilon - 0.125 * shift**2


def test_finite_detour_pays_truncation_and_corrections_twice():
    from sklearn_dpop.privacy._gaussian import chi_radius, log_chi_sf
    from sklearn_dpop.privacy._objective_perturbation import (
        finite_iteration,
        log_delta_one_sided_detour,
    )

    release = PerturbedGradientDescent(
        1000, 20, 1.0, LOGISTIC, "replace-one", 0.05, 0.0077, 72, 1 / 0.3
    )
    finite = finite_iteration(release, release.sigma * chi_radius(-20.0, 20))
    lam, kappa, epsilon = release.G / release.sigma, finite.correction, 1.0
    tail = math.exp(float(log_chi_sf(finite.r / release.sigma, 20)))
    e_1 = (epsilon - 2 * kappa) / 2 - lam**2 / 8
    e_2 = (epsilon - 2 * kappa) / 2 + lam**2 / 8
    assert kappa > 1e-3
    assert e_1 > release.curvature
    half = 2 / lam  # noise multiplier of one zero-out step
    by_hand = gaussian_delta(e_1, noise_multiplier=half) + tail
    by_hand += math.exp(e_1 + kappa) * (gaussian_delta(e_2, noise_multiplier=half) + tail)
    got = math.exp(float(log_delta_one_sided_detour(release, finite, epsilon)))
    assert by_hand * (1 - 1e-12) <= got <= by_hand * math.exp(kappa) * (1 + 1e-12)


def test_search_over_radii_loses_nothing_to_a_fine_scan():
    from sklearn_dpop.privacy._bounds import log_delta_at_radius
    from sklearn_dpop.privacy._gaussian import chi_radius

    release = PerturbedGradientDescent(
        1000, 20, 1.0, LOGISTIC, "replace-one", 0.01, 0.0077, 430, 1 / 0.26
    )
    scan = min(
        log_delta_at_radius(release, release.sigma * chi_radius(x, 20), 1.0, "one-sided")[0]
        for x in -np.linspace(1.0, 60.0, 2000)
    )
    assert best_radius(release, 1.0, "one-sided")[0] <= scan + 1e-3


def test_one_sided_needs_a_one_sided_loss():
    from dataclasses import replace

    release = PerturbedGradientDescent(
        100, 2, 1.0, replace(LOGISTIC, one_sided=False), "replace-one", 0.1, 0.1, 100, 1.0
    )
    with pytest.raises(ValueError, match="one-sided"):
        best_radius(release, 1.0, "one-sided")
