"""
A table with numbers and categories
===================================

Real tables have columns of several kinds, missing values and labels that are words.  This
example prepares such a table with public knowledge only, trains a private classifier in
one pipeline, and hands the report on as JSON.
"""

# %%
# The table
# ---------
# We generate 8,000 hospital stays.  The task is to predict whether a patient comes back
# within 30 days.

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

rng = np.random.default_rng(0)
n = 8000
stays = pd.DataFrame(
    {
        "age": rng.normal(62, 16, n).clip(18, 104).round(),
        "systolic": rng.normal(131, 19, n).round(),
        "days": rng.geometric(0.18, n).astype(float),
        "earlier_stays": rng.poisson(0.9, n).astype(float),
        "ward": rng.choice(["cardiology", "surgery", "medicine"], n, p=[0.25, 0.35, 0.4]),
        "admission": rng.choice(["planned", "emergency"], n, p=[0.55, 0.45]),
    }
)
risk = (
    0.04 * (stays["age"] - 62)
    + 0.9 * (stays["earlier_stays"] - 1)
    + 0.12 * (stays["days"] - 5)
    + 1.2 * (stays["admission"] == "emergency")
    + 0.8 * (stays["ward"] == "cardiology")
    - 0.8
)
came_back = rng.random(n) < 1 / (1 + np.exp(-risk))
outcome = pd.Series(np.where(came_back, "came back", "stayed home"), name="outcome")
# Now and then the blood pressure was not taken.
stays.loc[rng.random(n) < 0.03, "systolic"] = np.nan
print(stays.head())

X_train, X_test, y_train, y_test = train_test_split(stays, outcome, test_size=0.25, random_state=0)

# %%
# Public knowledge
# ----------------
# All constants below come from outside the table.  Bounds: what a value of the column can
# sensibly be.  A value outside is moved to the nearest bound.  Categories: the hospital's
# list of wards and kinds of admission.  A category that is not on the list becomes a row
# of zeros.  Missing values: a textbook value for blood pressure, not the mean of the column.

from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from sklearn_dpop.preprocessing import BoundedScaler

bounds = {"age": (18, 100), "days": (0, 30), "earlier_stays": (0, 6)}
wards = ["cardiology", "medicine", "surgery"]
admissions = ["emergency", "planned"]

prepare = make_column_transformer(
    (BoundedScaler(bounds), ["age", "days", "earlier_stays"]),
    (
        make_pipeline(
            SimpleImputer(strategy="constant", fill_value=120.0, keep_empty_features=True),
            BoundedScaler((80, 200)),
        ),
        ["systolic"],
    ),
    (
        OneHotEncoder(categories=[wards, admissions], handle_unknown="ignore"),
        ["ward", "admission"],
    ),
    sparse_threshold=0,
)

# %%
# The longest row possible has four numbers of size 1 and two categories set to 1.  Its
# length is the square root of 6, so with ``data_norm`` at this value no row is ever
# clipped.  A smaller bound would clip some rows and need less noise.
#
# ``classes`` lists the two outcomes.  Labels may be words.

from sklearn_dpop import ObjPertGDLogisticRegression

model = make_pipeline(
    prepare,
    ObjPertGDLogisticRegression(
        epsilon=1.0,
        delta=1e-6,
        data_norm=6**0.5,
        classes=["came back", "stayed home"],
        calibration="tight",
    ),
)
model.fit(X_train, y_train)
print("predictions:", model.predict(X_test.head(4)))
print(f"private, epsilon = 1: test accuracy {model.score(X_test, y_test):.3f}")

# %%
# For comparison: the same preparation without privacy, and the accuracy of always giving the
# more frequent answer.

from sklearn.linear_model import LogisticRegression

baseline = make_pipeline(prepare, LogisticRegression()).fit(X_train, y_train)
print(f"not private:          test accuracy {baseline.score(X_test, y_test):.3f}")
print(f"more frequent answer: test accuracy {y_test.value_counts(normalize=True).max():.3f}")

# %%
# What was released
# -----------------
# The coefficients are private: they may be shown.  Every one of them contains noise.

import matplotlib.pyplot as plt

classifier = model[-1]
names = [name.split("__")[-1] for name in prepare.get_feature_names_out()]
fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.barh(names, classifier.coef_[0])
ax.axvline(0, color="0.5", linewidth=0.8)
ax.invert_yaxis()
ax.set_xlabel(f"coefficient (positive: {classifier.classes_[1]})")
plt.show()

# %%
# The report travels as JSON
# --------------------------
# The file contains public numbers only and can be sent along with the model.  Whoever gets
# it can check it, without the data.

import tempfile
from pathlib import Path

from sklearn_dpop import PrivacyReport

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "report.json"
    path.write_text(classifier.privacy_report_.to_json())
    received = PrivacyReport.from_json(path.read_text())

print(received)

# %%

verification = received.verify()
assert verification
print(verification)
