r"""The law of \|C y\| for random steps y and :math:`C_{ij} = \lambda^{i-j}`: no sampling error.

For independent :math:`y_t \sim` Bernoulli(r) the bound of :mod:`._without_replacement` is
:math:`\mathbb{E}_y H(f \|C y\| / \kappa; \epsilon)`.  The state :math:`s_t = \lambda s_{t-1} +
y_t` and the energy

.. math:: F_t = \sum_{u \le t} s_u^2 + \sum_{t < u < T} (\lambda^{u - t} s_t)^2,

which counts what comes without further participations, form a Markov chain with
:math:`F_{T-1} = \|C y\|^2`.  F changes by participations only:

.. math:: F_t - F_{t-1} = y_t\, (2 \lambda s_{t-1} + 1)\,
          \frac{1 - \lambda^{2(T - t)}}{1 - \lambda^2} .

The chain is followed on a grid.  A value between two grid points is moved to one of them at
random, such that its mean stays.  This can only raise the expectation of a convex nondecreasing
function g of the final energy: given the present, the final energy is :math:`F + a s + b` with
nonnegative a and b that depend on the future :math:`y` alone, so the expected g is a convex
nondecreasing function of s, and of F, and Jensen's inequality applies to each move.

The profile as a function of the squared shift v, :math:`v \mapsto H(\sqrt{v}; \epsilon)`, is
convex up to :math:`v_0 = 2 (\sqrt{1 + \epsilon^2} - 1)` and concave from there: its derivative is
:math:`\phi(\epsilon / \sqrt{v} - \sqrt{v} / 2) / (2 \sqrt{v})`, whose logarithm has the derivative
:math:`\frac{1}{2} (\epsilon^2 v^{-2} - \frac{1}{4} - v^{-1})`.  So its tangent at any
:math:`v_1 \ge v_0`, and the larger of tangent and profile below :math:`v_0`, is a convex function
above it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from sklearn_dpop.privacy._gaussian import log_gaussian_delta
from sklearn_dpop.privacy.accounting._monte_carlo import Float

__all__ = ["EnergyLaw", "energy_law"]

# Ratio of neighbouring states, and the smallest positive one: their errors are of second order.
_STATE_RATIO = 0.95
_SMALLEST_STATE = 0.1
# Numbers of energies of the grid, and of the one that shows where the mass is.
_ENERGIES, _SKETCH = 1024, 128
# Probability of energies beyond the grid, about.
_BEYOND = 1e-20
# Smaller masses count as beyond: they only cost time.
_TINY = 1e-32
_LARGEST_CORRELATION = 0.999
_ROUND_UP = 1.0 + 1e-9


@dataclass(frozen=True, eq=False)
class EnergyLaw:
    """A law that is above that of the energy for all convex nondecreasing functions.

    Attributes
    ----------
    energies : ndarray of shape (n_energies,)
        Grid, increasing from 0.
    masses : ndarray of shape (n_energies,)
        Probabilities.
    beyond : float
        Probability of the energy `largest`, which is above all that can happen.
    largest : float
        See `beyond`.
    idle : float
        Probability that the record never takes part, part of the mass at energy 0.
    """

    energies: Float
    masses: Float
    beyond: float
    largest: float
    idle: float

    def delta(
        self, noise_multiplier: float, epsilons: ArrayLike, *, sensitivity_factor: float = 1.0
    ) -> Float:
        """Return an upper bound of the expected Gaussian profile.

        Parameters
        ----------
        noise_multiplier : float
            kappa > 0.
        epsilons : array_like of shape (n_epsilons,)
            Nonnegative.
        sensitivity_factor : float, default=1.0
            1 for zero-out (or add/remove, for Poisson batches), 2 for replace-one.

        Returns
        -------
        ndarray of shape (n_epsilons,)
            Rounded up.
        """
        scale = (sensitivity_factor / noise_multiplier) ** 2
        v = scale * np.append(self.energies, self.largest)
        masses = np.append(self.masses, self.beyond)
        # Without participation nothing differs.  The rest of the mass at energy 0 was moved there
        # from above and has to meet the same convex function as all other mass.
        masses[0] = max(masses[0] - self.idle, 0.0)
        mean = float(masses @ v)
        deltas = [_smallest_expectation(v, masses, mean, float(eps)) for eps in np.ravel(epsilons)]
        return np.minimum(np.array(deltas) * _ROUND_UP, 1.0)


def energy_law(correlation: float, rate: float, n_steps: int) -> EnergyLaw:
    r"""Follow state and energy through all steps.

    Parameters
    ----------
    correlation : float
        :math:`\lambda`, in [0, 0.999].
    rate : float
        r, in (0, 1].
    n_steps : int
        T.

    Raises
    ------
    ValueError
        If the correlation is out of range.

    Examples
    --------
    Two steps, each with probability 1/2: energies 0, 1 (second), 1.25 (first), 3.25 (both).

    >>> law = energy_law(0.5, 0.5, 2)
    >>> round(float(law.masses @ law.energies), 6)
    1.375
    """
    if not 0.0 <= correlation <= _LARGEST_CORRELATION:
        raise ValueError(
            f"correlation={correlation!r} must be between 0 and {_LARGEST_CORRELATION}."
        )
    # So many participations, directly one after the other, are about as unlikely as _BEYOND.
    most = min(n_steps, math.ceil(rate * n_steps + 10.0 * math.sqrt(rate * n_steps) + 31.0))
    top = most / (1.0 - correlation) ** 2
    while True:  # shrink the grid to where the mass is
        sketch = _follow(correlation, rate, n_steps, top, _SKETCH)
        above = np.cumsum(sketch.masses[::-1])[::-1] + sketch.beyond
        inside = int(np.count_nonzero(above > _BEYOND))
        if inside > _SKETCH // 2:
            return _follow(correlation, rate, n_steps, top, _ENERGIES)
        top *= (inside + 2) / _SKETCH


def _follow(
    correlation: float, rate: float, n_steps: int, top: float, n_energies: int
) -> EnergyLaw:
    states = _states(correlation)
    decay = (1.0 - rate) * _moves(states, correlation * states)
    joining = rate * _moves(states, correlation * states + 1.0)
    unit = top / (n_energies - 1)
    growth = 2.0 * correlation * states + 1.0
    mass = np.zeros((len(states), n_energies))
    mass[0, 0] = 1.0
    beyond = 0.0
    for step in range(n_steps):
        shifts = growth * (_geometric(correlation, n_steps - step) / unit)
        moved = np.zeros_like(mass)
        for i in np.flatnonzero(mass.any(axis=1)).tolist():
            moved[i], lost = _shifted(mass[i], float(shifts[i]))
            beyond += rate * lost
        mass = decay @ mass + joining @ moved
        tiny = mass < _TINY
        beyond += float(mass[tiny].sum())
        mass[tiny] = 0.0
    # A path leaves the grid from below its top, and then gains at most this.
    gain = n_steps * float(growth.max()) * _geometric(correlation, n_steps)
    idle = math.exp(n_steps * math.log1p(-rate)) if rate < 1.0 else 0.0
    return EnergyLaw(
        energies=np.linspace(0.0, top, n_energies),
        masses=mass.sum(axis=0),
        beyond=beyond,
        largest=top + gain,
        idle=idle * (1.0 - 1e-12 * n_steps),
    )


def _states(correlation: float) -> Float:
    """Return the grid of states, from 0 to the largest, 1 / (1 - lambda).

    It is geometric, and a decay by lambda leads from grid point to grid point where it can.
    """
    largest = 1.0 / (1.0 - correlation)
    ratio = _STATE_RATIO
    if 0.0 < correlation < ratio:
        ratio = correlation ** (1.0 / math.ceil(math.log(correlation) / math.log(ratio)))
    n = math.ceil(math.log(_SMALLEST_STATE / largest) / math.log(ratio)) + 1
    return np.append(0.0, largest * ratio ** np.arange(n)[::-1])


def _moves(states: Float, targets: Float) -> csr_array:
    """Return the matrix of the random moves from targets to neighbouring grid points."""
    n = len(states)
    lower = np.clip(np.searchsorted(states, targets, side="right") - 1, 0, n - 2)
    share = np.clip((targets - states[lower]) / (states[lower + 1] - states[lower]), 0.0, 1.0)
    weights = np.concatenate((1.0 - share, share))
    rows, columns = np.concatenate((lower, lower + 1)), np.tile(np.arange(n), 2)
    return csr_array((weights, (rows, columns)), shape=(n, n))


def _shifted(row: Float, by: float) -> tuple[Float, float]:
    """Masses moved up by a number of grid points, and the mass that leaves the grid."""
    n, whole = len(row), int(by)
    moved = np.zeros(n + 1)
    if whole < n:
        part = by - whole
        moved[whole:n] = (1.0 - part) * row[: n - whole]
        moved[whole + 1 :] += part * row[: n - whole]
    lost = float(row[max(n - whole, 0) :].sum()) + float(moved[n])
    return moved[:n], lost


def _geometric(correlation: float, n: int) -> float:
    """Sum of the first n powers of lambda squared."""
    return (1.0 - correlation ** (2 * n)) / (1.0 - correlation**2)


def _smallest_expectation(v: Float, masses: Float, mean: float, epsilon: float) -> float:
    """Return the expectation of the better one of two convex functions above the profile."""
    positive = np.maximum(v, 1e-300)
    profile = np.where(v > 0.0, np.exp(log_gaussian_delta(np.sqrt(positive), epsilon)), 0.0)
    inflection = 2.0 * (math.sqrt(1.0 + epsilon**2) - 1.0)
    expectations = []
    for touch in {max(inflection, 1e-12), max(inflection, mean, 1e-12)}:
        root = math.sqrt(touch)
        value = math.exp(float(log_gaussian_delta(root, epsilon)))
        distance = epsilon / root - 0.5 * root
        slope = math.exp(-0.5 * distance**2) / (2.0 * root * math.sqrt(2.0 * math.pi))
        tangent = value + slope * (v - touch)
        convex = np.where(v < inflection, np.maximum(profile, tangent), np.maximum(tangent, 0.0))
        expectations.append(float(masses @ convex))
    return min(expectations)
