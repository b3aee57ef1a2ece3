"""Plots show the numbers that the other functions compute."""

import sys

import numpy as np
import pytest

from sklearn_dpop.factorization import (
    BIFR,
    BISR,
    Dense,
    PrefixSum,
    best_gamma,
    plot_error_against_bandwidth,
    plot_error_against_gamma,
    rmse,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    matplotlib.pyplot.close("all")


def test_strategy():
    ax = BISR(4).plot(20)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), BISR(4).coef(20))
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), BISR(4).inverse_coef(20))
    assert BISR(3).plot(20, ax=ax) is ax


def test_dense_strategy():
    ax = Dense(np.eye(3)).plot()
    np.testing.assert_array_equal(ax.images[0].get_array(), np.eye(3))


def test_error_against_gamma():
    ax = plot_error_against_gamma(PrefixSum(64), [2, 8], 4, 16, n_points=3)
    expected = [rmse(PrefixSum(64), BIFR(g, 8), 4, 16) for g in (0.0, 0.5, 1.0)]
    np.testing.assert_array_equal(ax.lines[2].get_ydata(), expected)
    assert ax.lines[3].get_xdata()[0] == best_gamma(64, 8, 4, 16)


def test_error_against_bandwidth():
    ax = plot_error_against_bandwidth(PrefixSum(64), {"BISR": BISR}, [2, 8], 4, 16)
    best, bisr = (line.get_ydata() for line in ax.lines)
    np.testing.assert_array_equal(bisr, [rmse(PrefixSum(64), BISR(p), 4, 16) for p in (2, 8)])
    assert np.all(np.asarray(best) <= bisr)


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install matplotlib$"):
        BISR(4).plot(20)
