"""Column bounds that the sources of public data sets publish."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["breast_cancer_bounds"]

# Table "Summary Statistics" of the data set's description (load_breast_cancer().DESCR):
# (smallest, largest) published value of each of the 30 columns.
# fmt: off
_BREAST_CANCER = (
    (6.981, 28.11), (9.71, 39.28), (43.79, 188.5), (143.5, 2501.0), (0.053, 0.163),
    (0.019, 0.345), (0.0, 0.427), (0.0, 0.201), (0.106, 0.304), (0.05, 0.097),
    (0.112, 2.873), (0.36, 4.885), (0.757, 21.98), (6.802, 542.2), (0.002, 0.031),
    (0.002, 0.135), (0.0, 0.396), (0.0, 0.053), (0.008, 0.079), (0.001, 0.03),
    (7.93, 36.04), (12.02, 49.54), (50.41, 251.2), (185.2, 4254.0), (0.071, 0.223),
    (0.027, 1.058), (0.0, 1.252), (0.0, 0.291), (0.156, 0.664), (0.055, 0.208),
)
# fmt: on


def breast_cancer_bounds() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the published column bounds of :func:`sklearn.datasets.load_breast_cancer`.

    The description of the data set prints the smallest and largest value of every column,
    so for this data set they are public.  For private records, bounds come from the
    measuring range of an instrument, a regulation or a codebook, never from the records.

    Returns
    -------
    lower, upper : ndarray of shape (30,)
        In the order of the columns.

    Examples
    --------
    >>> lower, upper = breast_cancer_bounds()
    >>> lower.shape, bool((lower < upper).all())
    ((30,), True)
    """
    lower, upper = np.array(_BREAST_CANCER).T
    return lower.copy(), upper.copy()
