"""Standard normals from AES-128 in counter mode: the bits, the arithmetic, the law."""

import hashlib
import math
import struct

import mpmath
import numpy as np
import pytest
from randomgen import AESCounter
from scipy import stats

from sklearn_dpop.factorization import Identity, NoiseState
from sklearn_dpop.factorization._normals import PIECE, BoxMuller, CipherNormals

KEY = 0x1234567890ABCDEF << 190


# --- AES-128 as FIPS 197 writes it: slow and obvious ---------------------------------------------


def _times(a, b):
    """Product in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1."""
    product = 0
    while b:
        if b & 1:
            product ^= a
        a = (a << 1) ^ (0x11B if a & 0x80 else 0)
        b >>= 1
    return product


def _s_box(a):
    inverse = next((b for b in range(256) if _times(a, b) == 1), 0)
    result = 0x63
    for shift in range(5):
        result ^= (inverse << shift | inverse >> (8 - shift)) & 0xFF
    return result


S_BOX = [_s_box(a) for a in range(256)]


def _round_keys(key):
    words = [list(key[4 * i : 4 * i + 4]) for i in range(4)]
    factor = 1
    for i in range(4, 44):
        word = list(words[-1])
        if i % 4 == 0:
            word = [S_BOX[b] for b in word[1:] + word[:1]]
            word[0] ^= factor
            factor = _times(factor, 2)
        words.append([a ^ b for a, b in zip(words[i - 4], word, strict=True)])
    return [[b for word in words[4 * r : 4 * r + 4] for b in word] for r in range(11)]


def aes128(key, block):
    keys = _round_keys(key)
    state = [a ^ b for a, b in zip(block, keys[0], strict=True)]
    for r in range(1, 11):
        state = [S_BOX[state[(i + 4 * (i % 4)) % 16]] for i in range(16)]  # and ShiftRows
        if r < 10:
            mixed = []
            for c in range(0, 16, 4):
                column = state[c : c + 4]
                for i in range(4):
                    factors = [2, 3, 1, 1]
                    value = 0
                    for j in range(4):
                        value ^= _times(column[j], factors[(j - i) % 4])
                    mixed.append(value)
            state = mixed
        state = [a ^ b for a, b in zip(state, keys[r], strict=True)]
    return bytes(state)


def words_of(step, piece, count):
    """64-bit words of the key stream of a piece."""
    key = hashlib.blake2b(KEY.to_bytes(32, "little"), digest_size=16, person=b"dpop noise AES")
    stream = b""
    for block in range(-(-count // 2)):
        counter = struct.pack("<QQ", (piece << 32) + block, step)
        stream += aes128(key.digest(), counter)
    return struct.unpack(f"<{len(stream) // 8}Q", stream)[:count]


def test_the_oracle_is_aes():
    """Example of FIPS 197, appendix C.1."""
    found = aes128(bytes(range(16)), bytes(0x11 * i for i in range(16)))
    assert found.hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"


@pytest.mark.parametrize(("step", "piece", "size"), [(0, 0, 8), (3, 0, 7), (2**40 + 1, 5, 13)])
def test_single_precision_values_are_box_muller_of_the_key_stream(step, piece, size):
    """The same in 30 digits, from the slow cipher; float32 holds 7."""
    out = np.empty(size, np.float32)
    CipherNormals(KEY, np.float32).fill(step, piece, out)
    m = -(-size // 2)
    words = words_of(step, piece, m + -(-m // 2))
    halves = struct.unpack(
        f"<{2 * (len(words) - m)}i", struct.pack(f"<{len(words) - m}Q", *words[m:])
    )
    expected = np.empty(2 * m)
    with mpmath.workdps(30):
        for i in range(m):
            u = mpmath.mpf((words[i] >> 1) | 1) / mpmath.mpf(2) ** 63
            r = mpmath.sqrt(-2 * mpmath.log(u))
            t = mpmath.pi * halves[i] / 2**31
            expected[i], expected[m + i] = r * mpmath.cos(t), r * mpmath.sin(t)
    np.testing.assert_allclose(out, expected[:size], rtol=0, atol=2e-6)


@pytest.mark.parametrize(("step", "piece"), [(0, 0), (2**40 + 1, 5)])
def test_double_precision_values_are_numpys_of_the_key_stream(step, piece):
    """The bits are those of the slow cipher; NumPy's ziggurat makes values of them."""
    out = np.empty(9)
    CipherNormals(KEY, np.float64).fill(step, piece, out)
    key = hashlib.blake2b(KEY.to_bytes(32, "little"), digest_size=16, person=b"dpop noise AES")
    number, counter = int.from_bytes(key.digest(), "little"), (step << 64) | (piece << 32)
    bits = AESCounter(key=number, counter=counter).random_raw(9)
    assert tuple(bits) == words_of(step, piece, 9)
    again = np.random.Generator(AESCounter(key=number, counter=counter))
    np.testing.assert_array_equal(out, again.standard_normal(9))


def test_extreme_bits_are_finite():
    """The largest radius is sqrt(2 log 2^63), the least 0."""
    radius = np.array([0, 1, 2**64 - 1], np.uint64)
    out = np.empty(6, np.float32)
    BoxMuller(6)(radius, np.array([0, -(2**31), 2**31 - 1], np.int32), out)
    largest = math.sqrt(2 * 63 * math.log(2))
    np.testing.assert_allclose(out[:3], [largest, -largest, 0], atol=1e-6)
    np.testing.assert_allclose(out[3:], 0, atol=1e-6)


@pytest.fixture(scope="module", params=[np.float32, np.float64], ids=["single", "double"])
def values(request):
    """Two million values of four steps."""
    stream = Identity().noise_stream(2**19, NoiseState(KEY), dtype=request.param)
    return np.concatenate([stream.draw() for _ in range(4)]).astype(float)


def test_law(values):
    """Kolmogorov-Smirnov, false alarm 1e-6; a scale wrong by 2% fails."""
    assert stats.kstest(values, "norm").pvalue > 1e-6
    assert stats.kstest(1.02 * values, "norm").pvalue < 1e-6


def test_moments(values):
    """Up to the fourth, five standard errors each (false alarm 2e-6 altogether)."""
    n = len(values)
    for power, variance in ((1, 1), (2, 2), (3, 15), (4, 96)):
        mean = (1, 0, 1, 0, 3)[power] if power != 1 else 0
        assert abs(np.mean(values**power) - mean) < 5 * math.sqrt(variance / n)


def test_tails(values):
    """Counts beyond 3, 4 and 4.5 are binomial, false alarm 1e-6 each."""
    n = len(values)
    for z in (3.0, 4.0, 4.5):
        for count in (np.sum(values > z), np.sum(values < -z)):
            assert stats.binomtest(int(count), n, stats.norm.sf(z)).pvalue > 1e-6


def test_neighbours_are_independent(values):
    """Correlations of values and squares, at lags within and across halves and pieces; 5 s.e."""
    squares = values**2 - 1
    for lag in (1, 2, PIECE // 2, PIECE, 2**19):
        n = len(values) - lag
        assert abs(values[lag:] @ values[:-lag]) < 5 * math.sqrt(n)
        assert abs(squares[lag:] @ squares[:-lag]) < 5 * math.sqrt(4 * n)


def test_pieces_and_steps_and_keys_differ():
    """No two of them share a value."""
    found = np.empty((8, 64), np.float32)
    for row, (key, step, piece) in zip(
        found, [(k, s, p) for k in (1, 2) for s in (0, 1) for p in (0, 1)], strict=True
    ):
        CipherNormals(key, np.float32).fill(step, piece, row)
    assert len(np.unique(found)) == found.size
