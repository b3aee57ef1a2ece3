"""Noise streams against the dense C^-1 Z, and resuming them."""

import pickle

import numpy as np
import pytest
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
    NoiseState,
)
from sklearn_dpop.factorization import _noise as noise_module

FINITE = [Identity(), LambdaCGD(0.7), BIFR(0.9, 4), BandInvMF(2, coefficients=(2.0, 0.5))]
RECURSIVE = [
    BSR(4),
    InverseLinear(0.1, 3),
    BandMF(1, coefficients=(2.0,)),
    BLT(2, theta=(0.9, 0.3), omega=(0.2, 0.1)),
    Dense(np.tril(np.random.default_rng(0).random((12, 12))) + np.eye(12)),
]
ALL = FINITE + RECURSIVE


def rows(stream, n):
    return np.array([next(stream) for _ in range(n)])


@pytest.mark.parametrize("strategy", ALL, ids=repr)
class TestRows:
    def test_are_those_of_the_dense_product(self, strategy):
        n = 12
        z = rows(Identity().noise_stream((2, 3), 7), n)
        y = rows(strategy.noise_stream((2, 3), 7), n)
        c = strategy.matrix(n)
        np.testing.assert_allclose(np.einsum("ij,jkl->ikl", c, y), z, atol=1e-12)

    def test_single_precision(self, strategy):
        y = strategy.noise_stream(5, 7, dtype=np.float32)
        z = rows(Identity().noise_stream(5, 7, dtype=np.float32), 12)
        found = rows(y, 12)
        assert found.dtype == np.float32
        np.testing.assert_allclose(strategy.matrix(12) @ found, z, atol=1e-5)

    def test_seek_and_resume(self, strategy):
        expected = rows(strategy.noise_stream(4, 3), 10)
        stream = strategy.noise_stream(4, 3)
        for step in (6, 2, 9, 0, 5):
            np.testing.assert_array_equal(stream.seek(step).draw(), expected[step])
        state = pickle.loads(pickle.dumps(stream.state))
        assert state.step == 6
        resumed = strategy.noise_stream(4, state)
        np.testing.assert_array_equal(rows(resumed, 4), expected[6:])

    def test_in_place(self, strategy):
        out = np.empty(4)
        stream = strategy.noise_stream(4, 3)
        for expected in rows(strategy.noise_stream(4, 3), 5):
            assert stream.draw(out) is out
            np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("strategy", FINITE, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_regenerated_is_the_same_as_buffered(strategy, dtype, monkeypatch):
    """Bit for bit, also when the vector is longer than a piece."""
    monkeypatch.setattr(noise_module, "PIECE", 7)
    options = {"rng": 3, "dtype": dtype}
    stored = strategy.noise_stream(20, buffered=True, **options)
    regenerated = strategy.noise_stream(20, buffered=False, **options)
    np.testing.assert_array_equal(rows(stored, 9), rows(regenerated, 9))
    np.testing.assert_array_equal(stored.seek(5).draw(), regenerated.seek(5).draw())


@pytest.mark.parametrize("strategy", RECURSIVE, ids=repr)
def test_only_banded_inverses_regenerate(strategy):
    with pytest.raises(ValueError, match="buffered must be True"):
        strategy.noise_stream(4, buffered=False)


@pytest.mark.parametrize("strategy", ALL, ids=repr)
def test_pieces_do_not_change_the_filter(strategy, monkeypatch):
    """C y = Z in every piece of a long vector."""
    monkeypatch.setattr(noise_module, "PIECE", 7)
    y = rows(strategy.noise_stream(20, 3), 12)
    z = rows(Identity().noise_stream(20, 3), 12)
    np.testing.assert_allclose(strategy.matrix(12) @ y, z, atol=1e-12)


class TestGenerator:
    def test_moments_and_independence_of_rows(self):
        """Means, variances and lag-one products of 2e5 standard normals, five standard errors."""
        z = rows(Identity().noise_stream(100_000, 1), 3)
        assert np.all(np.abs(z.mean(axis=1)) < 5 / np.sqrt(1e5))
        assert np.all(np.abs(z.var(axis=1) - 1) < 5 * np.sqrt(2 / 1e5))
        products = [z[0] @ z[1], z[1] @ z[2], z[0, :-1] @ z[0, 1:]]
        assert np.all(np.abs(products) < 5 * np.sqrt(1e5))

    def test_covariance_over_steps(self):
        """Cov(y) = (C^T C)^-1, six standard errors of a sample covariance."""
        n, d = 5, 50_000
        y = rows(BIFR(0.9, 3).noise_stream(d, 5), n)
        c = toeplitz(BIFR(0.9, 3).coef(n), n)
        expected = np.linalg.inv(c.T @ c)
        spread = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / d)
        assert np.all(np.abs(y @ y.T / d - expected) < 6 * spread)

    def test_sources_of_randomness(self):
        def first(rng):
            return BISR(3).noise_stream(4, rng).draw()

        np.testing.assert_array_equal(first(5), first(np.random.SeedSequence(5)))
        np.testing.assert_array_equal(
            first(np.random.default_rng(5)), first(np.random.default_rng(5))
        )
        np.testing.assert_array_equal(
            first(np.random.RandomState(5)), first(np.random.RandomState(5))
        )
        assert not np.array_equal(first(5), first(6))
        assert not np.array_equal(first(None), first(None))

    def test_the_key_is_not_shown(self):
        state = BISR(3).noise_stream(4).state
        assert str(state.key) not in repr(state)
        assert str(state.key) not in repr(BISR(3).noise_stream(4, state))

    @pytest.mark.parametrize("rng", [-1, "seed", 1.5])
    def test_bad_sources(self, rng):
        with pytest.raises(ValueError, match="rng must be"):
            BISR(3).noise_stream(4, rng)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BISR(3).noise_stream((2, 0)), "every entry of shape"),
        (lambda: BISR(3).noise_stream(4, dtype=np.float16), "dtype must be"),
        (lambda: BISR(3).noise_stream(4).seek(-1), "step must be an integer >= 0"),
        (lambda: BISR(3).noise_stream(4).draw(np.empty(5)), "out must be"),
        (lambda: BISR(3).noise_stream(4).draw(np.empty((4, 2)).T[0]), "out must be"),
        (lambda: Dense(np.eye(3)).noise_stream(4).seek(4), "step must be at most n=3"),
        (lambda: NoiseState(key=1 << 256), "key must be below"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_dense_stream_ends():
    assert len(list(Dense(np.eye(3)).noise_stream(4, 0))) == 3
