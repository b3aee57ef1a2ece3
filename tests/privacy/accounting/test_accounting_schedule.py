"""Schedules: what is drawn is what is accounted for."""

import numpy as np
import pytest
from scipy.stats import binom, chi2

from sklearn_dpop.factorization import Identity, LambdaCGD, sensitivity
from sklearn_dpop.privacy import Schedule, account

# A false alarm in 1e7 for each statistic below.
ALPHA = 1e-7

SCHEDULES = [
    Schedule(60, 10, 3, "cyclic"),
    Schedule(61, 10, 3, "cyclic"),
    Schedule(60, 10, 3, "balls_in_bins"),
    Schedule(61, 10, 3, "balls_in_bins"),
    Schedule(60, 10, 3, "without_replacement"),
    Schedule(60, 10, 3, "poisson"),
    Schedule(60, 10, 3, "cyclic_poisson", separation=3),
    Schedule(60, 10, 3, "min_separated", separation=4),
    Schedule(60, 10, 3, "min_separated", separation=1),
]


def participation(schedule, seed):
    """Return the 0/1 matrix of steps and records."""
    y = np.zeros((schedule.n_steps, schedule.n_samples), dtype=int)
    for step, batch in enumerate(schedule.batches(np.random.default_rng(seed))):
        assert len(set(batch.tolist())) == len(batch)
        y[step, batch] = 1
    return y


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: f"{s.sampling}-{s.n_samples}")
def test_participations_are_as_far_apart_and_as_few_as_stated(schedule):
    """What the sensitivity is computed for holds for every record in every draw."""
    closest, most = schedule.n_steps, 0
    for seed in range(100):
        y = participation(schedule, seed)
        for record in y.T:
            steps = np.flatnonzero(record)
            most = max(most, len(steps))
            closest = min(closest, np.diff(steps).min(initial=schedule.n_steps))
    assert closest >= schedule.min_separation
    assert most <= schedule.max_participations
    assert closest == schedule.min_separation  # and no farther: the statement is sharp


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: f"{s.sampling}-{s.n_samples}")
def test_mean_batch_sizes_are_the_public_divisor(schedule):
    """Average over steps and 300 draws; 5.3 standard errors (ALPHA)."""
    sizes = np.array([participation(schedule, seed).sum(axis=1) for seed in range(300)])
    means = sizes.mean(axis=0)
    error = sizes.std(axis=0) / np.sqrt(len(sizes)) + 1e-12
    expected = np.full(schedule.n_steps, schedule.expected_batch_size)
    if schedule.sampling == "cyclic" and schedule.n_samples % schedule.batch_size:
        expected[schedule.steps_per_epoch - 1 :: schedule.steps_per_epoch] = (
            schedule.n_samples % schedule.batch_size
        )
    assert np.all(np.abs(means - expected) <= 5.6 * error)


def test_every_record_is_in_every_epoch_of_cyclic_batches_once():
    y = participation(Schedule(61, 10, 3, "cyclic"), 0).reshape(3, 7, 61)
    assert np.all(y.sum(axis=1) == 1)
    assert np.all(y == y[0])


def test_balls_in_bins_draws_each_bin_alike_and_keeps_it():
    schedule = Schedule(1000, 100, 4, "balls_in_bins")
    counts = np.zeros(10)
    for seed in range(50):
        y = participation(schedule, seed).reshape(4, 10, 1000)
        assert np.all(y == y[0])
        assert np.all(y[0].sum(axis=0) == 1)
        counts += y[0].sum(axis=1)
    expected = 50 * 1000 / 10
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(ALPHA, 9)


def test_batches_without_replacement_have_one_size_and_independent_steps():
    schedule = Schedule(40, 10, 5, "without_replacement")
    y = np.stack([participation(schedule, seed) for seed in range(200)])
    assert np.all(y.sum(axis=2) == 10)
    both = int((y[:, :-1] & y[:, 1:]).sum())
    n = 200 * (schedule.n_steps - 1) * 40
    # Pairs are not independent within a step (fixed size), which makes the sum less variable.
    assert binom.ppf(ALPHA, n, 1 / 16) < both < binom.ppf(1 - ALPHA, n, 1 / 16)


@pytest.mark.parametrize(
    ("schedule", "rate"),
    [
        (Schedule(100, 5, 2, "poisson"), 0.05),
        (Schedule(100, 5, 2, "cyclic_poisson", separation=4), 0.05),
    ],
)
def test_poisson_batches_take_records_independently(schedule, rate):
    y = np.stack([participation(schedule, seed) for seed in range(400)])
    assert schedule.rate == rate
    n, total = y.size, int(y.sum())
    assert binom.ppf(ALPHA, n, rate) < total < binom.ppf(1 - ALPHA, n, rate)
    pairs = int((y[:, :, :50] & y[:, :, 50:]).sum())
    if schedule.sampling == "poisson":
        n = y[:, :, :50].size
        assert binom.ppf(ALPHA, n, rate**2) < pairs < binom.ppf(1 - ALPHA, n, rate**2)
    else:
        step = schedule.participation_probability
        assert step == 4 * 0.05
        for record in y.transpose(2, 0, 1):  # one group only, whatever the draw
            for one in record:
                assert len(set(np.flatnonzero(one) % 4)) <= 1


def test_min_separated_batches_start_in_the_stationary_law():
    """The rate of the first step is that of the last; without the warm start it is p."""
    schedule = Schedule(100, 10, 3, "min_separated", separation=5)
    assert schedule.participation_probability == pytest.approx(1 / (10 - 5 + 1))
    y = np.stack([participation(schedule, seed) for seed in range(400)])
    n = y.shape[0] * y.shape[2]
    for step in (0, 1, 4, 17, -1):
        total = int(y[:, step].sum())
        assert binom.ppf(ALPHA, n, 0.1) < total < binom.ppf(1 - ALPHA, n, 0.1)


def test_separated_by_all_records_is_cyclic_with_a_random_phase():
    schedule = Schedule(60, 10, 3, "min_separated", separation=6)
    assert schedule.participation_probability == 1.0
    y = participation(schedule, 0)
    for record in y.T:
        assert np.all(np.diff(np.flatnonzero(record)) == 6)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: f"{s.sampling}-{s.n_samples}")
def test_a_later_start_continues_the_same_batches(schedule):
    whole = list(schedule.batches(np.random.default_rng(5)))
    rest = list(schedule.batches(np.random.default_rng(5), start=7))
    assert len(rest) == schedule.n_steps - 7
    for a, b in zip(whole[7:], rest, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="start=1000 must be between"):
        next(schedule.batches(np.random.default_rng(5), start=1000))


def test_shuffling_every_epoch_is_no_scheme_and_would_need_separation_one():
    """Accounting a per-epoch reshuffle as min-separation b promises too much."""
    n, batch, epochs = 60, 10, 3
    closest = n
    rng = np.random.default_rng(0)
    for _ in range(20):
        last = None
        for _ in range(epochs):
            step = rng.permutation(n) // batch
            if last is not None:
                closest = min(closest, int((step + 6 - last).min()))
            last = step
    assert closest == 1
    for name in ("shuffle", "shuffled", "reshuffled"):
        with pytest.raises(ValueError, match=f"sampling='{name}' must be one of 'cyclic'"):
            Schedule(n, batch, epochs, name)
    cyclic = account(LambdaCGD(0.9), Schedule(n, batch, epochs, "cyclic"), 10.0)
    reshuffled = float(sensitivity(LambdaCGD(0.9), 3, 1, 18))
    assert reshuffled > 1.2 * cyclic.accountant.largest_shift


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1, 1), "n_samples=0 must be an integer of at least 1"),
        ((10.0, 1, 1), "n_samples=10.0 must be an integer"),
        ((float("nan"), 1, 1), "n_samples=nan must be an integer"),
        ((True, 1, 1), "n_samples=True must be an integer"),
        ((10, -3, 1), "batch_size=-3 must be an integer of at least 1"),
        ((10, 11, 1), "batch_size=11 must be at most n_samples=10"),
        ((10, 5, 0), "epochs=0 must be an integer of at least 1"),
        ((10, 5, 1, "Poisson"), "sampling='Poisson' must be one of"),
        ((10, 5, 1, "poisson", 3), "separation=3 must be None for sampling='poisson'"),
        ((10, 5, 1, "min_separated"), "separation must be given for sampling='min_separated'"),
        ((10, 5, 1, "min_separated", 0), "separation=0 must be an integer of at least 1"),
        ((10, 5, 1, "cyclic_poisson", 3), "separation=3 must be at most .* = 2"),
    ],
)
def test_errors_name_the_parameter(arguments, message):
    with pytest.raises(ValueError, match=message):
        Schedule(*arguments)


def test_numpy_integers_become_plain_ones():
    schedule = Schedule(np.int64(10), np.int32(5), np.int64(2))
    assert type(schedule.n_samples) is type(schedule.batch_size) is int
    assert schedule == Schedule(10, 5, 2)
    assert account(Identity(), schedule, 50.0, delta=0.01).schedule == schedule
