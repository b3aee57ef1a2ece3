"""Transformers that use public constants only, so that they cost no privacy.

A guarantee speaks of one record at a time.  A transformer that is fitted on the private
records (:class:`~sklearn.preprocessing.StandardScaler`,
:class:`~sklearn.preprocessing.MinMaxScaler`, an imputer with means, an encoder that
collects the categories) makes every transformed record a function of all the others, and
publishes what it learned with the pipeline: the guarantee of the model behind it no longer
holds.  :class:`BoundedScaler` and :class:`RowNormClipper` take their constants from the
caller instead.

Categories can be declared in the same way, with scikit-learn's own encoder.  Given
``categories``, it learns nothing from the records, and with ``handle_unknown="ignore"`` an
undeclared category becomes a row of zeros instead of an error that reveals it (leave its
``min_frequency`` and ``max_categories`` unset: they count records).

>>> import pandas as pd
>>> from sklearn.compose import make_column_transformer
>>> from sklearn.preprocessing import OneHotEncoder
>>> from sklearn_dpop.preprocessing import BoundedScaler
>>> encoder = make_column_transformer(
...     (BoundedScaler({"age": (0, 100)}), ["age"]),
...     (OneHotEncoder(categories=[["no", "yes"]], handle_unknown="ignore"), ["smoker"]),
...     sparse_threshold=0,
... )
>>> frame = pd.DataFrame({"age": [25, 70, 40], "smoker": ["yes", "no", "unknown"]})
>>> encoder.fit_transform(frame)
array([[-0.5,  0. ,  1. ],
       [ 0.4,  1. ,  0. ],
       [-0.2,  0. ,  0. ]])
"""

from sklearn_dpop.preprocessing._bounded_scaler import BoundedScaler
from sklearn_dpop.preprocessing._row_norm_clipper import RowNormClipper

__all__ = ["BoundedScaler", "RowNormClipper"]
