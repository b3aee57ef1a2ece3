"""
A training that is interrupted, or done step by step
====================================================

A private training must not simply be started again after a crash: the second start would be a
second release, with a budget of its own.  With a checkpoint it goes on instead, with the very
same noise.
"""

# %%
# A script that is killed
# -----------------------
# The training is saved after every epoch, and every 30 seconds, if a file is named.  The seed is
# here for the comparison below only; a release has none.

import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

program = """
from sklearn.datasets import make_gaussian_quantiles
from sklearn_dpop import KANClassifierDP

X, y = make_gaussian_quantiles(n_samples=5_000, n_features=4, n_classes=2, random_state=0)
clf = KANClassifierDP(
    epsilon=2.0, delta=1e-5, classes=[0, 1], feature_bounds=(-3, 3),
    sampling="cyclic", epochs=40, random_state=0, device="cpu",
    checkpoint={checkpoint!r},
).fit(X, y)
"""

folder = Path(tempfile.mkdtemp())
checkpoint, script = folder / "training.pt", folder / "train.py"
script.write_text(program.format(checkpoint=str(checkpoint)))

process = subprocess.Popen([sys.executable, script])
while not checkpoint.exists():
    time.sleep(0.01)
process.kill()
process.wait()
print("killed; the checkpoint is there:", checkpoint.exists())

# %%
# The file holds the key of the noise.  Whoever has it can take the noise out of the model: it is
# as secret as the records, and only its owner can read it.

print("permissions:", oct(checkpoint.stat().st_mode & 0o777))

# %%
# The same script again
# ---------------------
# ``fit`` finds the checkpoint, sees that parameters and records are the same, and goes on.  At the
# end the file is removed.  A training that was never interrupted gives the same bits.

import numpy as np

resumed = runpy.run_path(str(script))["clf"]
print("the checkpoint is there:", checkpoint.exists())

script.write_text(program.format(checkpoint=None))
found = runpy.run_path(str(script))
whole, X, y = found["clf"], found["X"], found["y"]
same = np.array_equal(resumed.decision_function(X), whole.decision_function(X))
print("the same network to the last bit:", same)

# %%
# Other records, or other parameters, would meet the same noise, and the difference of the two
# models would show the records without any.  So they are refused.

script.write_text(program.format(checkpoint=str(checkpoint)))
process = subprocess.Popen([sys.executable, script])
while not checkpoint.exists():
    time.sleep(0.01)
process.kill()
process.wait()
try:
    whole.set_params(checkpoint=checkpoint).fit(X[::-1], y[::-1])
except ValueError as error:
    print("refused:", str(error).split(": ")[-1])
shutil.rmtree(folder)

# %%
# Step by step
# ------------
# ``partial_fit`` trains for one of the planned epochs.  The plan, and its budget, are fixed by the
# first call: more epochs than planned are refused, and stopping early gives nothing back.

from sklearn_dpop import KANClassifierDP

clf = KANClassifierDP(
    epsilon=2.0,
    delta=1e-5,
    classes=[0, 1],
    feature_bounds=(-3, 3),
    sampling="cyclic",
    epochs=3,
)
for epoch in range(3):
    clf.partial_fit(X, y)
    spent = clf.history_[-1]["epsilon"]
    print(f"epoch {epoch + 1}: {clf.n_steps_} steps planned, epsilon {spent:g}")
try:
    clf.partial_fit(X, y)
except ValueError as error:
    print("refused:", error)

# %%
# Watching public records
# -----------------------
# No loss of a private record is ever computed.  Public records may be watched, and may end the
# training.  The guarantee stays that of the whole plan.

from skorch.callbacks import EarlyStopping

X_public, y_public = X[4_000:], y[4_000:]  # let these be public
clf = KANClassifierDP(
    epsilon=2.0,
    delta=1e-5,
    classes=[0, 1],
    feature_bounds=(-3, 3),
    sampling="cyclic",
    epochs=20,
    callbacks=[EarlyStopping(monitor="valid_loss", patience=3, sink=lambda message: None)],
).fit(X[:4_000], y[:4_000], validation_data=(X_public, y_public))
for row in clf.history_[::4]:
    print(f"epoch {row['epoch']:2d}: accuracy on public records {row['valid_acc']:.3f}")
print(f"stopped after {len(clf.history_)} of 20 epochs")
