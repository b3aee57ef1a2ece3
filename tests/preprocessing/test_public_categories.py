"""Declared categories make scikit-learn's own OneHotEncoder a function of one row."""

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from sklearn_dpop.preprocessing import BoundedScaler, RowNormClipper

JOBS = ["clerk", "nurse", "pilot"]
FRAME = pd.DataFrame(
    {
        "age": [20, 50, 120, 35],
        "job": ["nurse", "pilot", "nurse", "astronaut"],
        "smoker": ["no", "yes", None, "no"],
    }
)


def public_encoder():
    return make_column_transformer(
        (BoundedScaler({"age": (0, 100)}), ["age"]),
        (
            OneHotEncoder(categories=[JOBS, ["no", "yes"]], handle_unknown="ignore"),
            ["job", "smoker"],
        ),
        sparse_threshold=0,
    )


def test_output_is_what_the_declaration_says():
    expected = [
        [-0.6, 0, 1, 0, 1, 0],
        [0.0, 0, 0, 1, 0, 1],
        [1.0, 0, 1, 0, 0, 0],  # age clipped, smoker not given
        [-0.3, 0, 0, 0, 1, 0],  # undeclared job
    ]
    np.testing.assert_allclose(public_encoder().fit_transform(FRAME), expected, atol=1e-15)


def test_the_records_of_the_fit_have_no_influence():
    encoders = [public_encoder().fit(FRAME.iloc[rows]) for rows in ([0], [3], [0, 1, 2, 3])]
    outputs = [encoder.transform(FRAME) for encoder in encoders]
    for encoder, output in zip(encoders, outputs, strict=True):
        np.testing.assert_array_equal(output, outputs[0])
        categories = encoder.named_transformers_["onehotencoder"].categories_
        assert [c.tolist() for c in categories] == [JOBS, ["no", "yes"]]
        np.testing.assert_array_equal(
            output, np.vstack([encoder.transform(FRAME.iloc[[i]]) for i in range(len(FRAME))])
        )


def test_collected_categories_do_depend_on_the_records():
    # the contrast that the declaration is for: one record decides the width of the output
    collected = OneHotEncoder(handle_unknown="ignore")
    widths = [clone(collected).fit_transform(FRAME[["job"]].iloc[:n]).shape[1] for n in (3, 4)]
    assert widths == [2, 3]


def test_followed_by_a_norm_bound():
    pipeline = make_pipeline(public_encoder(), RowNormClipper(norm=1.0))
    norms = np.linalg.norm(pipeline.fit_transform(FRAME), axis=1)
    assert (norms <= 1).all()
    np.testing.assert_allclose(norms, 1, rtol=1e-13)  # every row above is longer than 1
