"""What transformers that use public constants only have in common."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags, check_array
from sklearn.utils._param_validation import validate_parameter_constraints
from sklearn.utils.validation import validate_data

from sklearn_dpop._inputs import FILL_GAPS

__all__ = ["PublicTransformer"]


class PublicTransformer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Base of the row-wise transformers whose every constant is a constructor parameter.

    `transform` works without `fit`; `fit` learns the number and the names of the columns,
    nothing else.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {}
    _accept_sparse = False

    def _check_parameters(self) -> None:
        validate_parameter_constraints(
            self._parameter_constraints, self.get_params(deep=False), type(self).__name__
        )

    def _check_records(self, X: Any, *, reset: bool) -> Any:
        """Return `X` as a finite float array, or as CSR without duplicate entries."""
        conversion = {
            "accept_sparse": "csr" if self._accept_sparse else False,
            "dtype": [np.float64, np.float32],
            "ensure_all_finite": False,
        }
        if reset or hasattr(self, "n_features_in_"):
            X = validate_data(self, X, reset=reset, **conversion)
        else:  # never fitted: there are no column names to compare with
            X = check_array(X, estimator=self, input_name="X", **conversion)
        if sparse.issparse(X) and not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()  # before the check: a sum can overflow
        if not np.isfinite(X.data if sparse.issparse(X) else X).all():
            raise ValueError(
                f"Input X contains NaN or infinity, which {type(self).__name__} does not accept. "
                f"{FILL_GAPS}"
            )
        return X

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.sparse = self._accept_sparse
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
