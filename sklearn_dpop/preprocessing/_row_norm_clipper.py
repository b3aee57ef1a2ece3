"""Clipping of rows to a public Euclidean norm."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils._param_validation import Interval

from sklearn_dpop.preprocessing._base import PublicTransformer

__all__ = ["RowNormClipper"]


class RowNormClipper(PublicTransformer):
    r"""Scale down the rows whose Euclidean norm exceeds a public bound.

    .. math:: x \mapsto x \, \min(1, R / \lVert x \rVert_2), \qquad R = \texttt{norm}.

    Rows within the bound keep their values, unlike with
    :class:`~sklearn.preprocessing.Normalizer`, which scales every row to the same norm.
    The bound is declared: the largest norm *of the records* would be a function of one
    record, and is not covered by the guarantee of a model trained behind it.  A fitted
    :class:`~sklearn.preprocessing.StandardScaler` or
    :class:`~sklearn.preprocessing.MinMaxScaler` in front would void that guarantee too;
    see :class:`BoundedScaler`.

    Parameters
    ----------
    norm : float, default=1.0
        Public bound :math:`R` on the Euclidean norm of a row, from 1e-30 to 1e30 (where
        rounding is relative in single precision too).

    Attributes
    ----------
    n_features_in_ : int
        Number of columns seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns seen in `fit`, if all are strings.

    See Also
    --------
    BoundedScaler : Maps public bounds of the columns to one range.

    Notes
    -----
    The transformer is stateless: `transform` works without `fit`.

    The norm of an output row is at most `norm` exactly, not only up to rounding, and so is
    its value computed in double precision in whatever order.  For this, rows within a
    relative distance of ``2.2e-16 * (n_features + 8)`` of the bound count as exceeding it,
    and the target is below the bound by twice that (plus 1.2e-7 for data in single
    precision).  Clipping twice is clipping once.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_dpop.preprocessing import RowNormClipper
    >>> RowNormClipper(norm=1.0).transform(np.array([[3.0, 4.0], [0.3, 0.4]])).round(12)
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "norm": [Interval(Real, 1e-30, 1e30, closed="both")]
    }
    _accept_sparse = True

    def __init__(self, norm: float = 1.0) -> None:
        self.norm = norm

    def fit(self, X: Any, y: object = None) -> RowNormClipper:
        """Check the parameter and `X`; learn nothing from its values.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Records.
        y : None
            Ignored.

        Returns
        -------
        self : RowNormClipper
            The same object.

        Raises
        ------
        ValueError
            If `norm` is invalid or `X` contains NaN or infinity.
        """
        self._check_parameters()
        self._check_records(X, reset=True)
        return self

    def transform(self, X: Any) -> NDArray[np.floating] | sparse.csr_array | sparse.csr_matrix:
        """Clip the rows of `X`.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Records.

        Returns
        -------
        X_new : ndarray, CSR matrix or data frame of shape (n_samples, n_features)
            Clipped records, sparse if `X` is, in single precision if `X` is, else in
            double.  `X` itself is not changed.

        Raises
        ------
        ValueError
            As in `fit`.
        """
        self._check_parameters()
        records = self._check_records(X, reset=False)
        clip = _clip_csr if sparse.issparse(records) else _clip_dense
        return clip(records, float(self.norm))


def _clip_dense(X: NDArray[np.floating], norm: float) -> NDArray[np.floating]:
    # Rows divided by their largest entry: squares neither overflow nor underflow.
    peak = np.abs(X).max(axis=1).astype(np.float64)
    unit = X / np.where(peak > 0, peak, 1.0)[:, np.newaxis]
    length = np.sqrt(np.einsum("ij,ij->i", unit, unit))
    exceeds, factor = _factors(peak, length, norm, X.shape[1], X.dtype)
    unit *= factor[:, np.newaxis]
    return np.where(exceeds[:, np.newaxis], unit, X).astype(X.dtype, copy=False)


def _clip_csr(X: Any, norm: float) -> Any:
    n_rows, n_columns = X.shape
    row = np.repeat(np.arange(n_rows), np.diff(X.indptr))
    peak = np.zeros(n_rows)
    np.maximum.at(peak, row, np.abs(X.data))
    unit = X.data / np.where(peak > 0, peak, 1.0)[row]
    length = np.sqrt(np.bincount(row, weights=unit * unit, minlength=n_rows))
    exceeds, factor = _factors(peak, length, norm, n_columns, X.dtype)
    unit *= factor[row]
    clipped = X.copy()
    clipped.data[:] = np.where(exceeds[row], unit, X.data)
    return clipped


def _factors(
    peak: NDArray[np.float64],
    length: NDArray[np.float64],
    norm: float,
    n_columns: int,
    dtype: np.dtype[Any],
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return which rows exceed `norm`, and the factor for a row divided by its `peak`.

    The norm of a row is ``peak * length``.  With d columns and the unit roundoff u = eps/2, a
    norm computed in double precision, in any order, has a relative error of at most
    (d/2 + 4) u, and the norm of a scaled row misses the target by at most (d/2 + 6) u, plus
    half of ``rounding`` where entries are rounded to `dtype`.  Both stay below
    ``slack = (2 d + 16) u``: an untouched row is within `norm`, and a scaled row is an
    untouched one the next time.
    """
    eps = float(np.finfo(np.float64).eps)
    slack = (n_columns + 8) * eps
    rounding = 0.0 if dtype == np.float64 else float(np.finfo(dtype).eps)
    with np.errstate(over="ignore"):  # an infinite norm does exceed
        exceeds = peak * length > norm * (1.0 - slack)
    target = norm * (1.0 - 2.0 * slack - rounding)
    return exceeds, target / np.where(length > 0, length, 1.0)
