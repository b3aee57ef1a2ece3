"""Choose the best of several candidates by scores on private records.

Permute-and-flip (McKenna and Sheldon, NeurIPS 2020): never worse than the exponential mechanism.
All probabilities are compared in exact arithmetic on integers from the operating system's
generator, so that no rounding leaks: the coin with probability e^-x is that of Canonne, Kamath
and Steinke (NeurIPS 2020, Algorithm 1).
"""

from __future__ import annotations

import math
import secrets
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["choose_privately"]


def choose_privately(scores: ArrayLike, *, sensitivity: float, epsilon: float) -> int:
    r"""Choose a candidate with a high score, with epsilon-differential privacy.

    Candidates are visited in random order; one whose score is g below the best is taken with
    the probability :math:`e^{-\varepsilon g / (2\Delta)}`, else the next one is visited.

    Parameters
    ----------
    scores : array-like of shape (n_candidates,)
        Higher is better.  They are not protected: do not publish them.
    sensitivity : float
        :math:`\Delta`, positive: most that one score can change when one record changes.  For
        the accuracy on n records it is 1/n; for the mean accuracy of K folds, 1/(K n) with the
        number n of records in the smallest fold.  (Not where a record may be added or removed,
        which changes n and moves others from fold to fold.)
    epsilon : float
        Privacy budget of this choice, positive.  It adds to that of the fits for a record that
        both were computed from: name it in `others` of
        :func:`sklearn_dpop.privacy.compose_reports`.

    Returns
    -------
    int
        Index of the chosen candidate.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a score is not a number (a failed fit): its
        absence would tell something, too.

    Notes
    -----
    The expected score is at most :math:`(2\Delta/\varepsilon) \log K` below the best of K.
    The guarantee is exact for the scores as given; if they are rounded, as means are, the
    sensitivity is larger by that much.  For an exact one give counts, with sensitivity 1.

    Examples
    --------
    The numbers of right predictions of three candidates on 500 held-out records:

    >>> from sklearn_dpop.model_selection import choose_privately
    >>> choose_privately([420, 465, 300], sensitivity=1, epsilon=2.0)
    1

    As `GridSearchCV(refit=...)`, for five equal folds of 80 records:

    >>> def winner(results):
    ...     return choose_privately(
    ...         results["mean_test_score"], sensitivity=1 / 400, epsilon=0.5)
    """
    for name, value in (("sensitivity", sensitivity), ("epsilon", epsilon)):
        if not 0.0 < value < math.inf:
            raise ValueError(f"{name}={value!r}: must be a positive number")
    values = np.asarray(scores, dtype=float)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        # Which ones is private.
        raise ValueError("scores: must be a list of finite numbers, at least one")
    exact = [Fraction(score) for score in values.tolist()]
    best = max(exact)
    factor = Fraction(float(epsilon)) / (2 * Fraction(float(sensitivity)))
    left = list(range(len(exact)))
    while True:
        i = left.pop(secrets.randbelow(len(left)))
        if _coin(factor * (best - exact[i])):
            return i


def _coin(x: Fraction) -> bool:
    """Return True with the probability e^-x, exactly."""
    while x > 1:
        if not _coin(Fraction(1)):
            return False
        x -= 1
    # e^-x is the probability that the first k with a tail of probability 1 - x/k is odd.
    k = 1
    while secrets.randbelow(k * x.denominator) < x.numerator:
        k += 1
    return k % 2 == 1
