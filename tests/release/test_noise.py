"""Noise: the cipher against RFC 8439, the law against its formula, independence throughout.

Statistical tests reject the truth with probability ALPHA each; with fixed seeds they are
deterministic.  The same tests are run on wrong noise, which they must reject.
"""

import copy
import hashlib
import itertools
import multiprocessing
import os
import secrets
import struct

import joblib
import numpy as np
import pytest
from randomgen import ChaCha
from scipy import stats

from sklearn_dpop.release import _noise
from sklearn_dpop.release._noise import (
    OPERATING_SYSTEM_SOURCE,
    SEEDED_SOURCE,
    gaussian_noise,
    noise_generator,
)

ALPHA = 1e-6
N = 1_000_000
SIGMA = 2.5
Z = stats.norm.isf(ALPHA / 2)


# --- the cipher ---------------------------------------------------------------------------


def chacha20_block(key, counter_and_nonce):
    """Return the 64 bytes of section 2.3 of RFC 8439, from 32 and 16 bytes."""
    mask = 0xFFFFFFFF
    start = [*struct.unpack("<4I", b"expand 32-byte k")]
    start += [*struct.unpack("<8I", key), *struct.unpack("<4I", counter_and_nonce)]
    s = list(start)

    def quarter_round(a, b, c, d):
        for x, y, z, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[x] = (s[x] + s[y]) & mask
            s[z] ^= s[x]
            s[z] = (s[z] << bits | s[z] >> (32 - bits)) & mask

    for _ in range(10):
        for i in range(4):
            quarter_round(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter_round(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<16I", *((x + y) & mask for x, y in zip(s, start, strict=True)))


def keystream(key, n_blocks, first=0):
    """Return blocks `first`, `first` + 1, ... with nonce zero."""
    return b"".join(
        chacha20_block(key, i.to_bytes(16, "little")) for i in range(first, first + n_blocks)
    )


def raw_bytes(bit_generator, n_blocks):
    return bit_generator.random_raw(8 * n_blocks).astype("<u8").tobytes()


COUNTING_KEY = bytes(range(32))
RFC_8439 = [  # key, counter, nonce, key stream: section 2.3.2 and appendix A.1, vectors 1 to 4
    (
        COUNTING_KEY.hex(),
        1,
        "000000090000004a00000000",
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
    ),
    (
        "00" * 32,
        0,
        "00" * 12,
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    ),
    (
        "00" * 32,
        1,
        "00" * 12,
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
    ),
    (
        "00" * 31 + "01",
        1,
        "00" * 12,
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
    ),
    (
        "00ff" + "00" * 30,
        2,
        "00" * 12,
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
    ),
]


@pytest.mark.parametrize(("key", "counter", "nonce", "expected"), RFC_8439)
def test_the_reference_and_the_library_are_chacha20(key, counter, nonce, expected):
    key, tail = bytes.fromhex(key), struct.pack("<I", counter) + bytes.fromhex(nonce)
    assert chacha20_block(key, tail).hex() == expected
    # randomgen counts 32 bit words, 16 to a block, and has no nonce: RFC 8439's nonce are the
    # upper 96 bits of the number of the block
    words = 16 * int.from_bytes(tail, "little")
    library = ChaCha(key=int.from_bytes(key, "little"), counter=words, rounds=20)
    assert raw_bytes(library, 1).hex() == expected


def test_an_unseeded_generator_is_the_key_stream_of_the_operating_systems_key(monkeypatch):
    monkeypatch.setattr(secrets, "token_bytes", lambda n: COUNTING_KEY[:n])
    generator, description = noise_generator(None, context={"epsilon": 1.0})
    assert raw_bytes(generator.bit_generator, 300) == keystream(COUNTING_KEY, 300)
    assert description == OPERATING_SYSTEM_SOURCE == "ChaCha20, key from the operating system"


def test_a_seeded_generator_is_the_key_stream_of_the_hashed_seed_and_context():
    context = {"shape": (2, 3), "epsilon": 1.0, "loss": {"name": "logistic", "margin": 0.5}}
    text = b'{"epsilon":1,"loss":{"margin":0.5,"name":"logistic"},"shape":[2,3]}'
    digest = hashlib.sha256(text).digest()
    drawn = np.random.default_rng(5).bytes(32)
    for random_state, entropy in ((42, b"seed 42"), (np.random.default_rng(5), b"drawn " + drawn)):
        key = hashlib.sha256(b"sklearn_dpop noise key 1\n" + digest + entropy).digest()
        generator, description = noise_generator(random_state, context=context)
        assert raw_bytes(generator.bit_generator, 20) == keystream(key, 20)
        assert description == SEEDED_SOURCE
        assert "seeded: reproducible, therefore not private" in description


# --- the law ------------------------------------------------------------------------------


def p_values(noise, sigma):
    """Return two-sided p-values of the hypothesis: independent entries of N(0, sigma^2)."""
    x = noise.ravel() / sigma
    n = x.size
    energy = float(x @ x)
    p = {
        "mean": 2 * stats.norm.sf(abs(x.mean()) * np.sqrt(n)),
        "variance": 2 * min(stats.chi2.cdf(energy, n), stats.chi2.sf(energy, n)),
        "shape": stats.kstest(x, "norm").pvalue,
        # neighbours: the mean of the products has variance 1/(n - 1)
        "correlation": 2 * stats.norm.sf(abs(x[1:] @ x[:-1]) / np.sqrt(n - 1)),
    }
    for t in (3.6541528853610088, 4.5):  # the first is where the ziggurat's tail begins
        for side, count in (("left", np.sum(x < -t)), ("right", np.sum(x > t))):
            tail = stats.binom(n, stats.norm.sf(t))
            p[f"{side} of {t:.2f}"] = 2 * min(tail.cdf(count), tail.sf(count - 1))
    return p


@pytest.mark.parametrize("random_state", [None, 0, 1, np.random.RandomState(0)], ids=str)
def test_noise_has_its_law(random_state):
    generator, _ = noise_generator(random_state, context={"test": "law"})
    noise = gaussian_noise(generator, SIGMA, (1000, N // 1000))
    assert noise.shape == (1000, N // 1000)
    assert noise.dtype == np.float64
    assert np.unique(noise).size == N
    p = p_values(noise, SIGMA)
    assert min(p.values()) > ALPHA, p


def test_the_tests_of_the_law_have_power():
    # a chance of at most ALPHA to miss a standard deviation that is off by 2 %, either way ...
    low, high = stats.chi2(N).ppf([ALPHA / 2, 1 - ALPHA / 2])
    assert stats.chi2.cdf(high / 1.02**2, N) < ALPHA
    assert stats.chi2.sf(low * 1.02**2, N) < ALPHA
    # ... and these are caught
    noise = gaussian_noise(noise_generator(2, context={})[0], SIGMA, N)
    for factor in (1.02, 1 / 1.02):
        p = p_values(noise * factor, SIGMA)
        assert p["variance"] < ALPHA
        assert p["shape"] < ALPHA
    assert p_values(noise + 0.02 * SIGMA, SIGMA)["mean"] < ALPHA
    assert p_values(np.sqrt([0.99, 0.01]) @ [noise[:-1], noise[1:]], SIGMA)["correlation"] < ALPHA
    assert p_values(np.clip(noise, -3.6 * SIGMA, np.inf), SIGMA)["left of 3.65"] < ALPHA


@pytest.mark.parametrize("shape", [0, 5, (0, 3), (2, 3), (1, 2, 3), ()])
def test_shapes(shape):
    noise = gaussian_noise(np.random.default_rng(0), 1, shape)
    assert noise.shape == (shape if isinstance(shape, tuple) else (shape,))
    assert noise.dtype == np.float64


@pytest.mark.parametrize("sigma", [1e-300, 0.5, np.float32(3), 1e300])
def test_sigma_only_scales(sigma):
    unit = np.random.default_rng(0).standard_normal(50)
    noise = gaussian_noise(np.random.default_rng(0), sigma, 50)
    np.testing.assert_allclose(noise / float(sigma), unit, rtol=1e-15)


# --- independence -------------------------------------------------------------------------


def draw(random_state, context, size=20_000):
    return gaussian_noise(noise_generator(random_state, context=context)[0], 1.0, size)


def unrelated(arrays):
    """Whether no two arrays share a value or are correlated (false alarm: ALPHA per pair)."""
    arrays = [np.ravel(a) for a in arrays]
    distinct = np.unique(np.concatenate(arrays)).size == sum(a.size for a in arrays)
    scores = [abs(x @ y) / np.sqrt(x.size) for x, y in itertools.combinations(arrays, 2)]
    return distinct and max(scores) < Z


def test_unrelated_has_power():
    x, y = draw(0, {"a": 0}), draw(0, {"a": 1})
    assert unrelated([x, y])
    assert not unrelated([x, np.append(y[1:], x[7])])  # one value in common
    assert not unrelated([x, 0.1 * x + np.sqrt(0.99) * y])
    assert not unrelated([x, x])


CONTEXTS = [
    {},
    {"epsilon": 1},
    {"epsilon": 1 + 2**-52},
    {"epsilon": "1"},
    {"epsilon": True},
    {"epsilon": None},
    {"epsilon": np.inf},
    {"epsilon": [1]},
    {"epsilon": [[1]]},
    {"epsilon": {"1": 1}},
    {"delta": 1},
    {"epsilon": 1, "shape": (2, 3)},
    {"epsilon": 1, "shape": (3, 2)},
    {"epsilon": 1, "shape": (23,)},
    {"loss": {"name": "logistic", "margin": 0.0}},
    {"loss": {"name": "logistic", "margin": 0.5}},
    {"loss": "logistic", "margin": 0.5},
    {"loss": '{"name": "logistic"}'},
]


def test_one_seed_gives_unrelated_noise_under_different_configurations():
    assert unrelated([draw(3, context) for context in CONTEXTS])


def test_one_context_gives_unrelated_noise_under_different_seeds():
    seeds = [0, 1, 2, 10, 2**32 - 1, 2**64, 2**300]
    states = [np.random.RandomState(0), np.random.default_rng(0), np.random.default_rng(1)]
    assert unrelated([draw(seed, {"epsilon": 1}) for seed in [*seeds, *states]])


def test_unseeded_noise_is_new_every_time():
    np.random.seed(0)  # noqa: NPY002 - the global seed must not matter
    first = [draw(None, {"epsilon": 1}) for _ in range(4)]
    np.random.seed(0)  # noqa: NPY002
    assert unrelated([*first, *(draw(None, {"epsilon": 1}) for _ in range(4))])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"epsilon": 1, "delta": 1e-5}, {"delta": 1e-5, "epsilon": 1}),
        ({"epsilon": 1}, {"epsilon": 1.0}),
        ({"n": 7}, {"n": np.int64(7)}),
        ({"x": 0.1}, {"x": np.float64(0.1)}),
        ({"x": 0.0}, {"x": -0.0}),
        ({"x": True}, {"x": np.True_}),
        ({"x": "a"}, {"x": np.str_("a")}),
        ({"shape": (2, 3)}, {"shape": [2, 3]}),
        ({"bounds": np.array([[0, 1], [2, 3]])}, {"bounds": [[0, 1.0], [2, 3]]}),
    ],
)
def test_the_same_seed_and_configuration_give_the_same_noise(one, other):
    np.testing.assert_array_equal(draw(11, one), draw(11, other))
    np.testing.assert_array_equal(draw(np.int64(11), one), draw(11, other))


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_a_generator_as_random_state_is_advanced_and_a_copy_repeats_it(make):
    random_state = make(0)
    twin = copy.deepcopy(random_state)
    first, second = draw(random_state, {"a": 1}), draw(random_state, {"a": 1})
    assert unrelated([first, second])
    # what clone and worker processes do to it: hence the description
    np.testing.assert_array_equal(draw(twin, {"a": 1}), first)
    np.testing.assert_array_equal(draw(twin, {"a": 1}), second)


def send_noise(connection, generator):
    noise = draw(None, {}) if generator is None else generator.standard_normal(20_000)
    connection.send((os.getpid(), noise))
    connection.close()


def forked_noise(generator, n_processes=2):
    """Return one noise array per forked process, drawn from `generator` or unseeded."""
    fork = multiprocessing.get_context("fork")
    results = []
    for _ in range(n_processes):
        receiver, sender = fork.Pipe(duplex=False)
        process = fork.Process(target=send_noise, args=(sender, generator))
        process.start()
        results.append(receiver.recv())
        process.join()
    assert len({os.getpid(), *(pid for pid, _ in results)}) == n_processes + 1
    return [noise for _, noise in results]


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="the platform cannot fork"
)
def test_forked_processes_draw_unrelated_noise():
    before = draw(None, {})
    children = forked_noise(None)
    assert unrelated([before, *children, draw(None, {})])
    # the contrast: a generator made before the fork repeats itself in both
    assert not unrelated(forked_noise(noise_generator(None, context={})[0]))


def test_joblib_workers_draw_unrelated_noise():
    noise = joblib.Parallel(n_jobs=2, backend="loky")(
        joblib.delayed(draw)(None, {}) for _ in range(4)
    )
    assert unrelated([draw(None, {}), *noise])


def test_nothing_is_kept_between_calls():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    one, other = (noise_generator(None, context={})[0] for _ in range(2))
    assert one is not other
    assert one.bit_generator is not other.bit_generator
    noise_generator(0, context={})
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    sources = np.random.Generator | np.random.RandomState | np.random.BitGenerator
    assert not [name for name, value in vars(_noise).items() if isinstance(value, sources)]
    assert not [name for name, value in vars(_noise).items() if hasattr(value, "cache_info")]


# --- refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sigma", "error"),
    [
        (np.nan, ValueError),
        (np.inf, ValueError),
        (-np.inf, ValueError),
        (-1.0, ValueError),
        (0, ValueError),
        (0.0, ValueError),
        ("1", TypeError),
        (None, TypeError),
        (1j, TypeError),
        (True, TypeError),
        (np.array([1.0, 2.0]), TypeError),
    ],
)
def test_a_bad_sigma_is_refused_before_anything_is_drawn(sigma, error):
    generator = np.random.default_rng(0)
    before = generator.bit_generator.state
    with pytest.raises(error, match=r"sigma must be a positive finite number\. Got"):
        gaussian_noise(generator, sigma, 3)
    assert generator.bit_generator.state == before


def test_a_bad_shape_is_refused_before_anything_is_drawn():
    generator = np.random.default_rng(0)
    before = generator.bit_generator.state
    with pytest.raises(ValueError, match="negative dimensions"):
        gaussian_noise(generator, 1.0, (2, -1))
    with pytest.raises(TypeError):
        gaussian_noise(generator, 1.0, 2.5)
    assert generator.bit_generator.state == before


@pytest.mark.parametrize(
    "generator",
    [None, 0, np.random, np.random.RandomState(0)],
    ids=lambda value: type(value).__name__,
)
def test_noise_needs_a_generator(generator):
    with pytest.raises(TypeError, match=r"generator must be a numpy\.random\.Generator"):
        gaussian_noise(generator, 1.0, 3)


@pytest.mark.parametrize(
    ("random_state", "error"),
    [
        (-1, ValueError),
        (0.5, TypeError),
        (1.0, TypeError),
        ("0", TypeError),
        (True, TypeError),
        (np.True_, TypeError),
        (np.array([1]), TypeError),
        (np.random, TypeError),
        (np.random.PCG64(0), TypeError),
        (np.random.SeedSequence(0), TypeError),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_a_bad_random_state_is_refused(random_state, error):
    with pytest.raises(error, match=r"random_state must be .*non-negative.* Got"):
        noise_generator(random_state, context={})


@pytest.mark.parametrize("kind", ["unseeded", "RandomState", "Generator"])
@pytest.mark.parametrize(
    ("context", "message"),
    [
        (None, "context must be a mapping .* Got a NoneType"),
        ([("epsilon", 1)], "context must be a mapping .* Got a list"),
        ({1: 2}, "context must be .* str-keyed"),
        ({"loss": {"weights": {0: 1.0}}}, r"context\['loss'\]\['weights'\] must be .* Got a dict"),
        ({"labels": {"a", "b"}}, r"context\['labels'\] must be .* Got a set"),
        ({"x": [1, b"secret"]}, r"context\['x'\]\[1\] must be .* Got a bytes\.$"),
        ({"x": 1j}, r"context\['x'\] must be .* Got a complex"),
    ],
)
def test_a_bad_context_is_refused_before_anything_is_drawn(kind, context, message, monkeypatch):
    monkeypatch.setattr(secrets, "token_bytes", lambda n: pytest.fail("drawn"))
    random_state = {
        "unseeded": None,
        "RandomState": np.random.RandomState(0),
        "Generator": np.random.default_rng(0),
    }[kind]
    twin = copy.deepcopy(random_state)
    with pytest.raises(TypeError, match=message) as refusal:
        noise_generator(random_state, context=context)
    assert "secret" not in str(refusal.value)
    if random_state is not None:
        assert random_state.bytes(32) == twin.bytes(32)
