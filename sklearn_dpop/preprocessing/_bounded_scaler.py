"""Scaling by public bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from sklearn_dpop._inputs import bounds_of_columns, declared_bounds
from sklearn_dpop.preprocessing._base import PublicTransformer

__all__ = ["BoundedScaler"]


class BoundedScaler(PublicTransformer):
    r"""Map public bounds of every column to one range, and clip what lies outside.

    With bounds :math:`[l_j, u_j]` of column :math:`j` and the range :math:`[a, b]`,

    .. math:: x_j \mapsto a + (b - a) \, \frac{\min(\max(x_j, l_j), u_j) - l_j}{u_j - l_j} .

    This is the private counterpart of :class:`~sklearn.preprocessing.MinMaxScaler` and
    :class:`~sklearn.preprocessing.StandardScaler`.  Those learn minima, maxima, means and
    standard deviations from the records, without noise.  A model trained behind them is
    not private, whatever its own guarantee: replacing one record moves *every* transformed
    record, while the guarantee allows for one; and the fitted scaler is published with
    the pipeline, so that its ``data_max_`` hands out one record's value exactly.  Here the
    constants are declared, and a row is transformed without looking at any other.

    Parameters
    ----------
    bounds : tuple (lower, upper) or mapping
        Public bounds of the columns, finite, with ``lower < upper``, in the units of `X`.
        They come from what a column means (a percentage, an age, a sensor's range) or
        from public data, never from the records.  Either a pair ``(lower, upper)``, each
        a number for all columns or an array of shape (n_features,); or, for data frames,
        a mapping from column name to ``(lower, upper)`` that names every column of `X`
        (it may name others too).
    feature_range : tuple (a, b), default=(-1, 1)
        Range of the output, finite, with ``a < b``.
    clip : bool, default=True
        Whether values outside their bounds are moved to the nearest bound.  If False they
        are mapped outside `feature_range`, which then bounds nothing.  How many values were
        clipped is not reported, since that would tell about the records.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns seen in `fit`, if all are strings.

    See Also
    --------
    RowNormClipper : Bounds the Euclidean norm of every row.

    Notes
    -----
    The transformer is stateless: `transform` works without `fit`.  With ``clip=True`` no
    output leaves `feature_range`, in floating-point arithmetic and in single precision
    too.  The declared bounds may be wrong without harm to privacy: records outside them
    are distorted, records well inside waste range.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpop.preprocessing import BoundedScaler
    >>> X = np.array([[25.0, 1200.0], [70.0, 99000.0]])  # age in years, income per year
    >>> scaler = BoundedScaler(bounds=([0, 0], [100, 50000]))
    >>> scaler.fit_transform(X)
    array([[-0.5  , -0.952],
           [ 0.4  ,  1.   ]])

    By column name, for data frames:

    >>> import pandas as pd
    >>> frame = pd.DataFrame(X, columns=["age", "income"])
    >>> public = {"age": (0, 100), "income": (0, 50000)}
    >>> scaler = BoundedScaler(public, feature_range=(0, 1)).set_output(transform="pandas")
    >>> scaler.fit_transform(frame)
        age  income
    0  0.25   0.024
    1  0.70   1.000
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "bounds": "no_validation",  # by declared_bounds, which says more
        "feature_range": "no_validation",
        "clip": ["boolean"],
    }

    def __init__(
        self,
        bounds: tuple[ArrayLike, ArrayLike] | Mapping[str, tuple[float, float]],
        *,
        feature_range: tuple[float, float] = (-1, 1),
        clip: bool = True,
    ) -> None:
        self.bounds = bounds
        self.feature_range = feature_range
        self.clip = clip

    def fit(self, X: Any, y: object = None) -> BoundedScaler:
        """Check the parameters against the columns of `X`; learn nothing from its values.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Records.
        y : None
            Ignored.

        Returns
        -------
        self : BoundedScaler
            The same object.

        Raises
        ------
        ValueError
            If a parameter is invalid, does not fit the columns of `X`, or `X` contains NaN
            or infinity.
        """
        self._check_parameters()
        records = self._check_records(X, reset=True)
        bounds_of_columns("bounds", self.bounds, records.shape[1], self._column_names(X))
        declared_bounds("feature_range", self.feature_range, 1)
        return self

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Scale `X`.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Records.

        Returns
        -------
        X_new : ndarray or data frame of shape (n_samples, n_features)
            Scaled records, in single precision if `X` is, else in double.

        Raises
        ------
        ValueError
            As in `fit`.
        """
        self._check_parameters()
        records = self._check_records(X, reset=False)
        bounds = bounds_of_columns("bounds", self.bounds, records.shape[1], self._column_names(X))
        # Of one dimension at least: NumPy 1 would round scalars to the precision of X.
        lower, upper = map(np.atleast_1d, bounds)
        a, b = (end.item() for end in declared_bounds("feature_range", self.feature_range, 1))
        with np.errstate(over="ignore"):  # a warning would tell about the records
            scaled: NDArray[np.floating] = a + (records - lower) / (upper - lower) * (b - a)
            scaled = scaled.astype(records.dtype, copy=False)
        if self.clip:  # here rather than in X: rounding may step over the ends, too
            np.clip(scaled, *_inner_range(a, b, records.dtype), out=scaled)
        return scaled

    def _column_names(self, X: Any) -> Sequence[str] | None:
        fitted = self
        if not hasattr(self, "n_features_in_"):  # transform without fit: read them from X
            fitted = BaseEstimator()
            validate_data(fitted, X, skip_check_array=True)
        names: Sequence[str] | None = getattr(fitted, "feature_names_in_", None)
        return names


def _inner_range(a: float, b: float, dtype: np.dtype[Any]) -> tuple[np.floating, np.floating]:
    """Return the smallest `dtype` number not below `a` and the largest not above `b`."""
    low, high = dtype.type(a), dtype.type(b)
    # float(): NumPy 2 would otherwise round a and b to `dtype` before comparing.
    if float(low) < a:
        low = np.nextafter(low, dtype.type(np.inf))
    if float(high) > b:
        high = np.nextafter(high, dtype.type(-np.inf))
    if low > high:
        raise ValueError(f"feature_range must contain a {dtype} number. Got ({a!r}, {b!r}).")
    return low, high
