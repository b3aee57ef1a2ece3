"""
Checking a report that came by mail
===================================

A privacy reviewer gets a model and a JSON file.  The file says what is guaranteed and
from which numbers it follows.  This example checks it, then alters it in several ways
and looks at what the check says.  It ends with what no check of a report can find.
"""

# %%
# The sender
# ----------
# Somewhere else, somebody trained a model and saved its report.  (Here: random records.)

import numpy as np

from sklearn_dpop import ObjPertGDLogisticRegression

rng = np.random.default_rng(0)
X = rng.uniform(-0.3, 0.3, size=(2000, 10))
y = (X[:, 0] + 0.1 * rng.normal(size=2000) > 0).astype(int)
classifier = ObjPertGDLogisticRegression(
    epsilon=1.0, delta=1e-6, data_norm=1.0, classes=[0, 1], calibration="tight"
).fit(X, y)
mail = classifier.privacy_report_.to_json()
print(mail[:420], "...", sep="\n")

# %%
# The reviewer
# ------------
# The reviewer needs the file and this package, but neither the records nor the model.

from sklearn_dpop import PrivacyReport

report = PrivacyReport.from_json(mail)
print(report.verify())

# %%
# The same from a shell.  The exit code is 0 if everything holds, 1 if some condition does
# not, 2 if the file is no report.

import subprocess
import sys
import tempfile
from pathlib import Path


def verify_in_shell(text):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        path.write_text(text)
        command = [sys.executable, "-m", "sklearn_dpop", "verify", "--quiet", str(path)]
        return subprocess.run(command, check=False).returncode


print("exit code:", verify_in_shell(mail))

# %%
# Altered copies
# --------------
# Somebody wants the guarantee to look better than it is.  We print the conditions that
# fail.

import json
import textwrap


def failures_of(altered):
    verification = PrivacyReport.from_json(json.dumps(altered)).verify()
    assert not verification
    for check in verification.failures[:3]:
        text = f"[FAIL] {check.name}: {check.detail}"
        print(textwrap.fill(text, 84, subsequent_indent=" " * 7, break_on_hyphens=False))
    if len(verification.failures) > 3:
        print(f"       and {len(verification.failures) - 3} more")


# %%
# A smaller epsilon in the headline:

altered = json.loads(mail)
altered["guarantee"]["epsilon"] = 0.5
failures_of(altered)

# %%
# The same epsilon in every place where it is stated.  Now the theorem itself is the
# witness: these parameters do not give this guarantee.

altered["certificate"]["public_inputs"]["epsilon"] = 0.5
failures_of(altered)

# %%
# More noise than was added:

altered = json.loads(mail)
altered["certificate"]["public_inputs"]["sigma"] *= 1.5
failures_of(altered)

# %%
# Labels that were read off the records, with the warning removed.  First the honest report
# of such a fit, then the altered one.

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # fit warns, too
    careless = ObjPertGDLogisticRegression(delta=1e-6, calibration="tight").fit(X, y)
honest = json.loads(careless.privacy_report_.to_json())
print("stated:", *honest["warnings"])
honest["warnings"] = []
failures_of(honest)

# %%
# And in the shell:

print("exit code:", verify_in_shell(json.dumps(honest)))

# %%
# What no check can find
# ----------------------
# A report is a statement about how a model was made.  The check shows that the guarantee
# follows from the statement.  It cannot show that the statement is true.  Here somebody
# trained on 2,000 records and sends the report of a training on 200,000.  It is consistent,
# so it passes.

from sklearn_dpop.privacy import calibrate_objective_perturbation

certificate = calibrate_objective_perturbation(
    200_000, 11, epsilon=1.0, delta=1e-6, data_norm=1.04, calibration="tight"
)
invented = PrivacyReport(
    mechanism=report.mechanism,
    estimator=report.estimator,
    certificate=certificate,
    public_inputs=dict(report.public_inputs),
    assumptions=report.assumptions,
    noise_source=report.noise_source,
    seeded=False,
    warnings=(),
    versions=report.versions,
)
verification = invented.verify()
print("passes:", bool(verification))

# %%
# The verification says so itself.  These points have to be settled in another way: by
# reading the code that was run, by asking, or by running the training oneself.

for text in verification.not_checked:
    print("-", text)
