"""Noise by Philox: known answers, the law, the rows, and one kernel that makes them."""

import math
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch")
pytest.importorskip("skorch")

from sklearn_dpop.factorization import BIFR, BLT, NoiseState  # noqa: E402
from sklearn_dpop.neural_network import _device_noise as device_noise  # noqa: E402
from sklearn_dpop.neural_network._device_noise import (  # noqa: E402
    DeviceNoise,
    make_weight_noise,
    write_row,
)
from sklearn_dpop.neural_network._noise import WeightNoise  # noqa: E402
from sklearn_dpop.neural_network._philox import normals, philox, philox_key  # noqa: E402

KEY = 0xC0FFEE1234567890
INVERSE = [1.0, -0.5, -0.25, 0.125]
CUDA = torch.cuda.is_available()
DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not CUDA, reason="needs a CUDA device")]
    ),
]

# Known answers that come with Random123 (Salmon et al. 2011): counter, key, words.
KNOWN = [
    ("0 0 0 0", "0 0", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    (" ".join(["ffffffff"] * 4), "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def numbers(text):
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(counter, key, words, device):
    k0, k1 = numbers(key)
    found = philox(
        k0 | k1 << 32, tuple(torch.tensor([c], device=device) for c in numbers(counter))
    )
    assert [int(w) for w in found] == numbers(words)
    assert list(philox(k0 | k1 << 32, tuple(numbers(counter)))) == numbers(words)


def exact_normals(step, n):
    """Box-Muller in Python's floats, from the words of integers."""
    pairs, z = -(-n // 2), np.empty(2 * -(-n // 2))
    for i in range(pairs):
        w0, w1, w2, w3 = philox(KEY, (i, 0, step & 0xFFFFFFFF, step >> 32))
        r = math.sqrt(-2 * math.log(((w0 << 32) + (w1 | 1)) / 2**64))
        t = 2 * math.pi * (w2 * 2**32 + w3) / 2**64
        z[i], z[pairs + i] = r * math.cos(t), r * math.sin(t)
    return z[:n]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-13), (torch.float32, 5e-6)])
@pytest.mark.parametrize("step", [0, 2**33 + 5])
@pytest.mark.parametrize("n", [1, 7, 1000])
def test_normals_are_box_muller_of_the_words(n, step, dtype, atol, device):
    out = torch.empty(n, dtype=dtype, device=device)
    normals(KEY, step, out)
    np.testing.assert_allclose(out.cpu(), exact_normals(step, n), rtol=0, atol=atol)


def test_chunks_do_not_change_the_numbers(monkeypatch):
    whole, parts = torch.empty(999), torch.empty(999)
    normals(KEY, 3, whole)
    monkeypatch.setattr("sklearn_dpop.neural_network._philox._CHUNK", 64)
    normals(KEY, 3, parts)
    assert torch.equal(whole, parts)


@pytest.fixture(scope="module", params=DEVICES)
def values(request):
    """Four steps of 2^18 values."""
    out = torch.empty(4, 2**18, device=request.param)
    for step in range(4):
        normals(KEY, step, out[step])
    return out.cpu().double().numpy()


def test_law(values):
    """Kolmogorov-Smirnov and variance, false alarm 1e-6 each; a scale wrong by 2% fails both."""
    z = values.ravel()
    for scale, right in ((1.0, True), (1.02, False), (0.98, False)):
        assert (stats.kstest(scale * z, "norm").pvalue > 1e-6) == right
        p = stats.chi2.cdf(scale**2 * (z @ z), len(z))
        assert (min(p, 1 - p) > 5e-7) == right


def test_tails(values):
    """Counts beyond 3, 4 and 4.5 are binomial, false alarm 1e-6 each."""
    z = values.ravel()
    for bound in (3.0, 4.0, 4.5):
        for count in (np.sum(z > bound), np.sum(z < -bound)):
            assert stats.binomtest(int(count), len(z), stats.norm.sf(bound)).pvalue > 1e-6


def test_neighbours_are_independent(values):
    """Correlations of values and squares over lags and steps, five standard errors."""
    z = values.ravel()
    squares = z**2 - 1
    for lag in (1, 2, 2**17, 2**18):
        n = len(z) - lag
        assert abs(z[lag:] @ z[:-lag]) < 5 * math.sqrt(n)
        assert abs(squares[lag:] @ squares[:-lag]) < 5 * math.sqrt(4 * n)


def test_the_key_is_a_hash_of_all_of_the_secret():
    keys = {philox_key(1 << i) for i in range(256)}
    assert len(keys) == 256
    assert max(keys) < 2**64


# --- rows ----------------------------------------------------------------------------------------


def rows(noise, n):
    return torch.stack([torch.cat([v.flatten() for v in noise.draw()]) for _ in range(n)])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("buffered", [True, False])
def test_rows_are_the_filtered_vectors(buffered, device):
    """y_t = sum_j a_j Z_{t-j}, in double precision."""
    weights = [torch.zeros(5, 3, device=device), torch.zeros(8, device=device)]
    y = rows(DeviceNoise(INVERSE, weights, NoiseState(9), buffered=buffered), 7).cpu().double()
    z = torch.empty(7, 23, dtype=torch.float32, device=device)
    for step in range(7):
        normals(philox_key(9), step, z[step])
    z = z.cpu().double()
    for t in range(7):
        expected = sum(a * z[t - j] for j, a in enumerate(INVERSE) if j <= t)
        torch.testing.assert_close(y[t], expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("inverse", [[1.0], [2.0, -1.0], INVERSE])
def test_buffer_and_regeneration_and_resuming_give_the_same_bits(inverse, device):
    weights = [torch.zeros(101, device=device)]
    expected = rows(DeviceNoise(inverse, weights, NoiseState(9)), 9)
    assert torch.equal(
        rows(DeviceNoise(inverse, weights, NoiseState(9), buffered=False), 9), expected
    )
    for start in (1, 2, 5):
        for buffered in (True, False):
            resumed = DeviceNoise(inverse, weights, NoiseState(9, start), buffered=buffered)
            assert torch.equal(rows(resumed, 9 - start), expected[start:])


@pytest.mark.parametrize("device", DEVICES)
def test_covariance_over_steps(device):
    """kappa = 1: Cov(y) = C^-1 C^-T; six standard errors of a sample covariance; 3% off fails."""
    n, d = 5, 200_000
    strategy = BIFR(0.9, 3)
    inverse = strategy.inverse_coef(3)
    noise = DeviceNoise(inverse.tolist(), [torch.zeros(d, device=device)], NoiseState(5))
    y = rows(noise, n).cpu().double().numpy()
    filter_matrix = np.linalg.inv(strategy.matrix(n))
    expected = filter_matrix @ filter_matrix.T
    variances = np.diag(expected)
    error = np.sqrt((np.outer(variances, variances) + expected**2) / d)
    assert np.all(np.abs(y @ y.T / d - expected) < 6 * error)
    assert np.any(np.abs(1.03**2 * y @ y.T / d - expected) > 6 * error)


def test_noise_cannot_be_pickled():
    noise = DeviceNoise([1.0], [torch.zeros(2)], NoiseState(key=3))
    with pytest.raises(TypeError, match="secret"):
        pickle.dumps(noise)


class OnDevice(torch.Tensor):
    """Says that it is on CUDA."""

    device = torch.device("cuda")


class Made(DeviceNoise):
    def __init__(self, inverse, weights, state, *, buffered):
        pass  # there may be no such device


def test_where_noise_is_made(monkeypatch):
    monkeypatch.setattr(device_noise, "DeviceNoise", Made)
    there = [torch.zeros(2).as_subclass(OnDevice)]
    other = [torch.zeros(2, device="meta")]  # as MPS or XPU would be
    made = {
        (source, type(strategy).__name__, where): type(
            make_weight_noise(strategy, weights, NoiseState(1), source=source)
        )
        for source in ("secure", "fast")
        for strategy in (BIFR(0.5, 4), BLT(1, theta=(0.5,), omega=(0.1,)))
        for where, weights in (("cpu", [torch.zeros(2)]), ("cuda", there), ("other", other))
        # On the CPU, in memory that cannot be pinned without CUDA.
        if (source, where) != ("secure", "cuda")
        if (type(strategy), where) != (BLT, "cuda")
    }
    assert made == {
        ("secure", "BIFR", "cpu"): WeightNoise,
        ("secure", "BLT", "cpu"): WeightNoise,
        ("fast", "BIFR", "cpu"): WeightNoise,
        ("fast", "BLT", "cpu"): WeightNoise,
        ("fast", "BIFR", "cuda"): Made,
        ("secure", "BIFR", "other"): WeightNoise,
        ("secure", "BLT", "other"): WeightNoise,
        ("fast", "BIFR", "other"): WeightNoise,
        ("fast", "BLT", "other"): WeightNoise,
    }


# --- Triton --------------------------------------------------------------------------------------


def version(package):
    return tuple(map(int, package.__version__.split(".")[:2]))


@pytest.fixture(scope="module")
def fused():
    """The kernel: compiled where there is CUDA, else interpreted."""
    triton = pytest.importorskip("triton")
    if not CUDA and version(triton) < (3, 7) and version(np) >= (2, 4):
        pytest.skip("the interpreter of this Triton fails with this numpy")
    from sklearn_dpop.neural_network._triton import write_row as kernel

    return kernel


def on_device(values):
    return torch.as_tensor(values, device="cuda" if CUDA else "cpu")


@pytest.mark.parametrize("n", [1, 2, 1023, 3000])
@pytest.mark.parametrize("step", [0, 2, 40, 2**33 + 5])
@pytest.mark.parametrize("key", [KEY, 5])
def test_the_kernel_writes_the_same_rows(fused, n, step, key):
    """Those of torch operations, to the rounding of four terms."""
    coef = on_device(torch.tensor(INVERSE))
    lags = min(4, step + 1)
    expected, found = on_device(torch.empty(n)), on_device(torch.empty(n))
    write_row(key, step, coef, None, expected, lags)
    fused(key, step, coef, None, found, lags)
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-6)


@pytest.mark.parametrize("inverse", [[1.0], INVERSE])
def test_the_kernel_with_a_ring_gives_the_same_bits(fused, inverse):
    weights = [on_device(torch.zeros(1501))]
    expected = rows(DeviceNoise(inverse, weights, NoiseState(9), buffered=False, write=fused), 8)
    found = rows(DeviceNoise(inverse, weights, NoiseState(9), write=fused), 8)
    assert torch.equal(found, expected)
    resumed = DeviceNoise(inverse, weights, NoiseState(9, 5), write=fused)
    assert torch.equal(rows(resumed, 3), expected[5:])


def test_a_kernel_is_used_only_if_it_works(fused):
    like = on_device(torch.zeros(1))
    assert device_noise._checked(fused, like) is fused

    def cannot_be_built(*args):
        raise RuntimeError("no compiler")

    with pytest.warns(RuntimeWarning, match="failed .RuntimeError: no compiler"):
        assert device_noise._checked(cannot_be_built, like) is write_row

    def of_another_key(key, *args):
        fused(key + 1, *args)

    def without_ring(key, step, coef, ring, out, lags):
        fused(key, step, coef, None, out, lags)
        if ring is not None:
            ring.zero_()
            out.zero_()

    for wrong in (of_another_key, without_ring):
        with pytest.warns(RuntimeWarning, match="failed .other numbers"):
            assert device_noise._checked(wrong, like) is write_row


def test_the_kernel_is_used_on_cuda_only():
    assert device_noise._writer(torch.zeros(1)) is write_row
    assert device_noise._writer(torch.zeros(1, dtype=torch.float64)) is write_row


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from sklearn_dpop.neural_network._triton import _row

types = {"out": "*fp32", "ring": "*fp32", "coef": "*fp32", "key": "u64", "step": "i32"}
types |= {name: "i32" for name in ("lags", "slots", "n")} | {"RING": "constexpr"}
types |= {"BLOCK": "constexpr"}
for ring in (False, True):
    source = ASTSource(fn=_row, signature=types, constexprs={"RING": ring, "BLOCK": 512})
    for capability in (70, 90):
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32))
        print(ring, capability, len(made.asm["cubin"]) > 0, "fma.rn.f32" in made.asm["ptx"])
"""


def test_the_kernel_compiles_for_devices_that_are_not_there(tmp_path):
    triton = pytest.importorskip("triton")
    if version(triton) < (3, 6):
        pytest.skip("the compiler is called differently")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    expected = [f"{ring} {cc} True True" for ring in (False, True) for cc in (70, 90)]
    assert done.stdout.splitlines() == expected, done.stderr
