r"""Monte Carlo as a guarantee: an upper confidence bound of a mean of bounded draws.

Let :math:`X_1, \dots, X_N` be independent draws in :math:`[0, M]` with mean :math:`\delta`, and
:math:`0 < t \le 1/M` chosen beforehand.  Then

.. math:: \mathbb{E} \prod_i (1 - t X_i) = (1 - t \delta)^N,

so by Markov's inequality, with probability at least :math:`1 - \beta`,

.. math:: \delta < U = \frac{1}{t}
          \Bigl(1 - \bigl(\beta \textstyle\prod_i (1 - t X_i)\bigr)^{1/N}\Bigr)
          \approx \bar X + \frac{t}{2} \overline{X^2} + \frac{\log(1/\beta)}{t N} .

For draws that are 0 or M, U with the best t is the KL-Chernoff bound; for others it is smaller,
since it adapts to the variance.  Importance sampling enters twice: through a small variance and
through a small M.

The parameter t comes from a pilot stream that is independent of the stream it is used on.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from sklearn_dpop.privacy.accounting._cache import Cache

__all__ = ["MonteCarloBound", "Pilot", "Summand", "certify", "pilot", "stream_key"]

Float = NDArray[np.float64]

# Draws that share one generator; part of what makes a stream reproducible.
BLOCK = 4096
# Blocks between two saved states of a run.
_ROUND = 64
# A draw at the supremum should not use up the whole product.
_LARGEST_TILT = 0.9
# Covers the rounding in a draw and in the sums (measured: below 1e-12 relative).
_ROUND_UP = 1.0 + 1e-9


class Summand(Protocol):
    """Independent nonnegative draws whose mean is an upper bound of a divergence."""

    def bound(self, epsilon: float) -> float:
        """Return a proven supremum M of the draws at `epsilon`."""

    def draw(self, rng: np.random.Generator, size: int) -> Callable[[float], Float]:
        """Draw `size` points.

        The returned function maps epsilon to the values of the draws; zeros may be left out.
        """


@dataclass(frozen=True)
class Pilot:
    """Moments of the draws at each epsilon, from a stream used for nothing that is certified.

    Attributes
    ----------
    mean, square : ndarray of shape (n_epsilons,)
        Averages of the draws and of their squares.
    largest, bound : ndarray of shape (n_epsilons,)
        Largest draw, and supremum of the draws.
    n_draws : int
        Number of draws.
    """

    mean: Float
    square: Float
    largest: Float
    bound: Float
    n_draws: int

    @property
    def standard_error(self) -> Float:
        """Standard errors of the means."""
        variance = np.maximum(self.square - self.mean**2, 0.0)
        return np.sqrt(variance / self.n_draws)

    def tilts(self, n_draws: int, failure_probability: float) -> Float:
        """Return the t that makes the bound from `n_draws` draws about as small as it can be.

        Parameters
        ----------
        n_draws : int
            Number of draws that the bound will use.
        failure_probability : float
            Its beta.
        """
        log_beta = -math.log(failure_probability)
        with np.errstate(divide="ignore"):
            tilts = np.sqrt(2.0 * log_beta / (n_draws * self._safe_square))
        return np.minimum(tilts, _LARGEST_TILT / self.bound)

    def predicted(self, n_draws: int, failure_probability: float) -> Float:
        """Return about what the bound from `n_draws` draws will be, two standard errors up."""
        t = self.tilts(n_draws, failure_probability)
        error = np.sqrt(np.maximum(self.square - self.mean**2, 0.0) / n_draws)
        upper = self.mean + 0.5 * t * self._safe_square
        upper -= math.log(failure_probability) / (t * n_draws)
        return np.asarray(upper + 2.0 * error)

    @property
    def _safe_square(self) -> Float:
        # As if the largest draw had come twice: a pilot may miss some of the rare large draws.
        return np.asarray(self.square + self.largest**2 / self.n_draws)


@dataclass(frozen=True)
class MonteCarloBound:
    """Upper confidence bounds of delta at several epsilons.

    Attributes
    ----------
    epsilons : ndarray of shape (n_epsilons,)
        Where.
    upper : ndarray of shape (n_epsilons,)
        Upper bounds; all of them hold together with probability at least
        ``1 - failure_probability``.
    estimate, standard_error : ndarray of shape (n_epsilons,)
        Average of the draws and its standard error, no guarantee.
    n_draws : int
        Number of draws of each summand.
    failure_probability : float
        Probability that a bound is too small.
    """

    epsilons: Float
    upper: Float
    estimate: Float
    standard_error: Float
    n_draws: int
    failure_probability: float


def stream_key(inputs: Mapping[str, Any], purpose: str) -> int:
    """Return the key of the random stream that belongs to public inputs and a purpose.

    A stream that is fixed by what it is used for cannot be chosen for its outcome, and anyone
    can draw it again.

    Parameters
    ----------
    inputs : mapping
        JSON-able public numbers.
    purpose : str
        Streams of different purposes are independent.

    Returns
    -------
    int
        256 bits of a SHA-256 digest.

    Examples
    --------
    >>> stream_key({"sigma": 1.0}, "search") != stream_key({"sigma": 1.0}, "verify")
    True
    """
    text = json.dumps([purpose, inputs], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


def pilot(summand: Summand, epsilons: Float, key: int, n_draws: int) -> Pilot:
    """Return moments of the draws of one summand.

    Parameters
    ----------
    summand : Summand
        What to draw.
    epsilons : ndarray of shape (n_epsilons,)
        Where to evaluate.
    key : int
        Random stream, see :func:`stream_key`.
    n_draws : int
        Rounded up to whole blocks.
    """
    bounds = _bounds(summand, epsilons)
    n_blocks = -(-n_draws // BLOCK)
    total, largest = np.zeros((len(epsilons), 3)), np.zeros(len(epsilons))
    with threadpool_limits(1, user_api="blas"):
        for sums, top in _block_sums(summand, epsilons, 0.0 * bounds, key, range(n_blocks)):
            total += sums
            np.maximum(largest, top, out=largest)
    n = n_blocks * BLOCK
    return Pilot(total[:, 1] / n, total[:, 2] / n, largest, bounds, n)


def certify(
    summand: Summand,
    epsilons: Float,
    tilts: Float,
    key: int,
    *,
    n_draws: int,
    failure_probabilities: Float,
    cache: Cache | None = None,
    progress: str | None = None,
) -> MonteCarloBound:
    """Return upper confidence bounds of delta at `epsilons`.

    Memory is bounded by one block of draws per thread.  The result depends on the arguments
    alone: neither on the number of threads nor on interruptions, after which a run with a
    `cache` goes on where it was.

    Parameters
    ----------
    summand : Summand
        Draws whose mean bounds delta.
    epsilons : ndarray of shape (n_epsilons,)
        Where to bound.
    tilts : ndarray of shape (n_epsilons,)
        The t of the bound, at most the reciprocals of the summand's bounds.  They must not
        depend on the stream `key`.
    key : int
        Random stream, see :func:`stream_key`.
    n_draws : int
        Rounded up to whole blocks.
    failure_probabilities : ndarray of shape (n_epsilons,)
        Beta of each bound; they add up.
    cache : Cache, optional
        Where finished and unfinished runs are kept.
    progress : str, optional
        Title of a progress bar on standard error; None shows none.

    Raises
    ------
    ValueError
        If a tilt exceeds the reciprocal of the summand's bound, or a draw exceeds that bound.
    """
    bounds = _bounds(summand, epsilons)
    if np.any(tilts * bounds > 1.0 + 1e-12) or np.any(tilts <= 0.0):
        raise ValueError(f"tilts={tilts!r} must be positive and at most {1.0 / bounds!r}")
    tilts = np.minimum(tilts, 1.0 / bounds)
    n_blocks = -(-n_draws // BLOCK)
    run = {
        "key": f"{key:064x}",
        "epsilons": epsilons.tolist(),
        "tilts": tilts.tolist(),
        "n_blocks": n_blocks,
        "numpy": np.__version__,
    }
    saved = cache.load(run) if cache is not None else None
    done, total = 0, np.zeros((len(epsilons), 3))
    if saved is not None:
        done, total = int(saved["done"]), np.array(saved["total"], dtype=float)
    with _progress_bar(progress, n_blocks) as show, threadpool_limits(1, user_api="blas"):
        while done < n_blocks:
            show(done)
            end = min(done + _ROUND, n_blocks)
            for sums, largest in _block_sums(summand, epsilons, tilts, key, range(done, end)):
                if np.any(largest > bounds * _ROUND_UP):
                    raise ValueError(
                        f"{summand!r} drew {largest!r}, more than its bound {bounds!r}"
                    )
                total += sums
            done = end
            if cache is not None:
                cache.save(run, {"done": done, "total": total.tolist()})
        show(n_blocks)
    n = n_blocks * BLOCK
    mean = total[:, 1] / n
    spread = np.sqrt(np.maximum(total[:, 2] / n - mean**2, 0.0) / n)
    log_product = total[:, 0] + np.log(failure_probabilities)
    upper = -np.expm1(log_product / n) / tilts * _ROUND_UP
    return MonteCarloBound(
        epsilons=epsilons,
        upper=np.minimum(upper, 1.0),
        estimate=mean,
        standard_error=spread,
        n_draws=n,
        failure_probability=float(failure_probabilities.sum()),
    )


def _bounds(summand: Summand, epsilons: Float) -> Float:
    """Return the suprema; one that underflows counts as a small number."""
    found = np.array([summand.bound(float(epsilon)) for epsilon in epsilons])
    if not np.isfinite(found).all():
        raise ValueError(f"{summand!r} has no finite bound: {found!r}")
    return np.asarray(np.maximum(found, 1e-280))


def _block_sums(
    summand: Summand, epsilons: Float, tilts: Float, key: int, blocks: range
) -> Iterator[tuple[Float, Float]]:
    """Yield sums of log(1 - t x), x and x^2, and the largest x, of each block, in order."""

    def work(block: int) -> tuple[Float, Float]:
        rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence([key, block])))
        values = summand.draw(rng, BLOCK)
        sums, largest = np.empty((len(epsilons), 3)), np.empty(len(epsilons))
        for i, (epsilon, tilt) in enumerate(zip(epsilons.tolist(), tilts.tolist(), strict=True)):
            x = values(epsilon)
            # A draw at its supremum may be rounded above it.
            scaled = np.minimum(tilt * x, 1.0 - 1e-16)
            with np.errstate(divide="ignore"):
                sums[i] = np.log1p(-scaled).sum(), x.sum(), x @ x
            largest[i] = x.max(initial=0.0)
        return sums, largest

    threads = _n_threads()
    if threads == 1 or len(blocks) == 1:
        yield from map(work, blocks)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, blocks)


def _n_threads() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


@contextmanager
def _progress_bar(title: str | None, total: int) -> Iterator[Callable[[int], None]]:
    """Show progress on standard error, at most twice a second."""
    start = shown = time.monotonic()
    drawn = False

    def show(done: int) -> None:
        nonlocal shown, drawn
        now = time.monotonic()
        if title is None or (now - shown < 0.5 and not (drawn and done == total)):
            return
        shown, drawn = now, True
        left = (now - start) * (total - done) / done if done else math.nan
        bar = "#" * (30 * done // total)
        tail = f"{left:.0f} s left" if done < total else f"{now - start:.0f} s"
        sys.stderr.write(f"\r{title} [{bar:<30}] {100 * done // total:3d}% {tail:<12}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        if drawn:
            sys.stderr.write("\n")
