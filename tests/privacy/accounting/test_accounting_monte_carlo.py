"""The Monte Carlo bound: a guarantee at its edge, reproducible, resumable."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from sklearn_dpop.privacy.accounting import _monte_carlo
from sklearn_dpop.privacy.accounting._cache import Cache, default_cache
from sklearn_dpop.privacy.accounting._monte_carlo import (
    BLOCK,
    Pilot,
    certify,
    pilot,
    stream_key,
)

ONE = np.array([1.0])


@dataclass(frozen=True)
class Coin:
    """Draws of `top` with probability `p`, else of `top` times a uniform to the 8th power."""

    p: float
    top: float = 1.0
    stated: float = 1.0
    spread: float = 0.0

    def bound(self, epsilon):
        return self.stated

    def draw(self, rng, size):
        x = np.where(rng.random(size) < self.p, self.top, 0.0)
        x += (1.0 - x / self.top) * self.spread * self.top * rng.random(size) ** 8
        return lambda epsilon: x * epsilon


def bound_of(summand, tilt, key, n_draws, beta):
    return certify(
        summand,
        ONE,
        np.array([tilt]),
        key,
        n_draws=n_draws,
        failure_probabilities=np.array([beta]),
    ).upper[0]


def kl_chernoff(k, n, beta):
    """Return the p at which KL(k/n || p) = log(1/beta)/n (note, section 2.3)."""

    def excess(p):
        q = k / n
        kl = (q * np.log(q / p) if q else 0.0) + (1 - q) * np.log((1 - q) / (1 - p))
        return kl - np.log(1 / beta) / n

    return brentq(excess, k / n + 1e-15, 1 - 1e-12, xtol=1e-18, rtol=1e-13)


def test_for_coins_the_best_tilt_gives_the_kl_chernoff_bound():
    coin, n, beta = Coin(2e-3), 10 * BLOCK, 1e-6
    found = certify(coin, ONE, ONE * 0.5, 7, n_draws=n, failure_probabilities=np.array([beta]))
    k = round(found.estimate[0] * n)
    wanted = kl_chernoff(k, n, beta)
    # The best t of a coin: (p - q) / (p (1 - q)) with p the bound and q the average.
    q = k / n
    tilt = (wanted - q) / (wanted * (1 - q))
    assert bound_of(coin, tilt, 7, n, beta) == pytest.approx(wanted, rel=1e-8)
    for other in (0.7 * tilt, 1.3 * tilt):
        assert bound_of(coin, other, 7, n, beta) > wanted


def test_spread_draws_get_a_smaller_bound_than_kl_chernoff_gives():
    """The bound adapts to the variance; KL-Chernoff knows the mean and the supremum only."""
    spread, n, beta = Coin(0.0, spread=0.01), 10 * BLOCK, 1e-6
    found = certify(spread, ONE, ONE, 3, n_draws=n, failure_probabilities=np.array([beta]))
    assert found.upper[0] < 0.8 * kl_chernoff(found.estimate[0] * n, n, beta)


@pytest.mark.parametrize("summand", [Coin(1e-3), Coin(2e-4, spread=0.01)])
def test_the_bound_fails_about_as_seldom_as_it_may(summand):
    """3000 bounds with beta = 0.05 (a count over its 1 - 1e-6 quantile is a false alarm).

    A bound that is a few per cent too small fails far more often: power is checked as well.
    """
    mean = summand.p * summand.top + (1 - summand.p) * summand.spread / 9
    beta, runs = 0.05, 3000
    tilt = min(0.7, np.sqrt(2 * np.log(1 / beta) / BLOCK / mean))
    upper = np.array([bound_of(summand, tilt, 1000 + i, BLOCK, beta) for i in range(runs)])
    most = binom.ppf(1 - 1e-6, runs, beta)
    assert np.count_nonzero(upper < mean) <= most
    without_the_failure_term = upper - np.log(1 / beta) / (tilt * BLOCK)
    assert np.count_nonzero(without_the_failure_term < mean) > most


def test_tilts_and_draws_beyond_the_bound_are_refused():
    with pytest.raises(ValueError, match="tilts="):
        bound_of(Coin(0.1), 1.1, 0, BLOCK, 0.1)
    with pytest.raises(ValueError, match="tilts="):
        bound_of(Coin(0.1), 0.0, 0, BLOCK, 0.1)
    with pytest.raises(ValueError, match="more than its bound"):
        bound_of(Coin(0.1, top=1.5), 0.5, 0, BLOCK, 0.1)


def test_the_result_does_not_depend_on_threads(monkeypatch):
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(_monte_carlo, "_n_threads", lambda threads=threads: threads)
        results.append(bound_of(Coin(0.01, spread=0.1), 0.3, 11, 9 * BLOCK, 1e-3))
    assert results[0] == results[1]


def test_an_interrupted_run_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(_monte_carlo, "_ROUND", 4)
    arguments = (np.array([0.5, 1.0]), np.array([0.3, 0.3]), 5)
    settings = {"n_draws": 20 * BLOCK, "failure_probabilities": np.array([1e-3, 1e-3])}
    whole = certify(Coin(0.01, spread=0.1), *arguments, **settings)

    drawn = 0

    @dataclass(frozen=True)
    class Interrupted(Coin):
        def draw(self, rng, size):
            nonlocal drawn
            drawn += 1
            if drawn == 11:
                raise KeyboardInterrupt
            return super().draw(rng, size)

    monkeypatch.setattr(_monte_carlo, "_n_threads", lambda: 1)
    summand = Interrupted(0.01, spread=0.1)
    with pytest.raises(KeyboardInterrupt):
        certify(summand, *arguments, **settings, cache=Cache(tmp_path))
    resumed = certify(summand, *arguments, **settings, cache=Cache(tmp_path))
    assert drawn == 11 + 20 - 8  # two rounds of four had been kept
    np.testing.assert_array_equal(resumed.upper, whole.upper)
    again = certify(summand, *arguments, **settings, cache=Cache(tmp_path))
    assert drawn == 11 + 20 - 8
    np.testing.assert_array_equal(again.upper, whole.upper)


def test_the_cache_belongs_to_its_inputs(tmp_path, monkeypatch):
    cache = Cache(tmp_path / "new")
    assert cache.load({"a": 1}) is None
    cache.save({"a": 1}, {"x": 0.1})
    assert cache.load({"a": 1}) == {"x": 0.1}
    assert cache.load({"a": 2}) is None
    (file,) = (tmp_path / "new").iterdir()
    file.write_text(file.read_text().replace('\\"a\\":1', '\\"a\\":3'))
    assert cache.load({"a": 1}) is None
    file.write_text("{")
    assert cache.load({"a": 1}) is None
    file_in_the_way = Cache(file / "sub")
    file_in_the_way.save({"a": 1}, {"x": 0.1})  # keeps nothing, and does not fail
    assert file_in_the_way.load({"a": 1}) is None
    monkeypatch.setenv("SKLEARN_DPOP_CACHE", "")
    assert default_cache() is None
    monkeypatch.setenv("SKLEARN_DPOP_CACHE", str(tmp_path))
    assert default_cache().folder == tmp_path
    monkeypatch.delenv("SKLEARN_DPOP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache().folder == tmp_path / "sklearn_dpop"


def test_streams_of_different_purposes_are_different():
    keys = {
        stream_key({"sigma": sigma}, purpose)
        for sigma in (1.0, 1.0 + 1e-15, 2.0)
        for purpose in ("pilot", "verify")
    }
    assert len(keys) == 6


def test_the_pilot_predicts_the_bound():
    coin, n, beta = Coin(1e-3, spread=0.05), 64 * BLOCK, 1e-6
    moments = pilot(coin, ONE, 1, 256 * BLOCK)
    assert moments.n_draws == 256 * BLOCK
    mean = 1e-3 + (1 - 1e-3) * 0.05 / 9
    assert moments.mean[0] == pytest.approx(mean, abs=5 * moments.standard_error[0])
    tilt = moments.tilts(n, beta)[0]
    assert 0 < tilt < 1
    found = bound_of(coin, tilt, 2, n, beta)
    assert mean < found < 1.02 * moments.predicted(n, beta)[0] < 1.1 * found


def test_a_pilot_that_saw_nothing_takes_a_large_tilt():
    zero = np.zeros(1)
    assert Pilot(zero, zero, zero, np.array([0.25]), 100).tilts(1000, 0.1)[0] == pytest.approx(3.6)


def test_progress_goes_to_standard_error(capsys, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(_monte_carlo.time, "monotonic", lambda: float(next(clock)))
    certify(
        Coin(0.01),
        ONE,
        ONE,
        0,
        n_draws=3 * BLOCK,
        failure_probabilities=ONE / 2,
        progress="Bound",
    )
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Bound [" in captured.err
    assert "100%" in captured.err
