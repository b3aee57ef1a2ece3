"""
A training that is interrupted, or done step by step
====================================================

A private training must not simply be started again after a crash: the second start would be a
second release, with a budget of its own.  With a checkpoint it goes on instead, with the very
same noise.
"""

# %%
# A program that is killed
# ------------------------
# The training is saved after every epoch, and every 30 seconds, if a file is named.  The seed is
# here for the comparison below only; a release has none.  ``sampling="cyclic"`` spares the
# seconds that it takes to find the noise of the default.

import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

program = """
from sklearn.datasets import make_gaussian_quantiles
from sklearn_dpop import KANClassifierDP

X, y = make_gaussian_quantiles(n_samples=5_000, n_features=4, n_classes=2, random_state=0)


def train(X, y, checkpoint):
    return KANClassifierDP(
        epsilon=2.0, delta=1e-5, classes=[0, 1], feature_bounds=(-3, 3),
        sampling="cyclic", epochs=40, device="cpu",
        random_state=0, checkpoint=checkpoint,
    ).fit(X, y)


if __name__ == "__main__":
    train(X, y, "training.pt")
"""

folder = tempfile.TemporaryDirectory()
script, checkpoint = Path(folder.name, "train.py"), Path(folder.name, "training.pt")
script.write_text(program)

process = subprocess.Popen([sys.executable, script], cwd=folder.name)
while not checkpoint.exists() and process.poll() is None:
    time.sleep(0.01)
process.kill()
process.wait()
print("the checkpoint is there:", checkpoint.exists())

# %%
# The file holds the key of the noise.  Whoever has it can take the noise out of the model: it is
# as secret as the records, and only its owner can read it.

print("permissions:", oct(checkpoint.stat().st_mode & 0o777))

# %%
# Other records, or other parameters, would meet the same noise, and the difference of the two
# models would show the records without any.  So they are refused.

found = runpy.run_path(str(script))
X, y, train = found["X"], found["y"], found["train"]
try:
    train(X[::-1], y[::-1], checkpoint)
except ValueError as error:
    print("refused:", str(error).split(": ")[-1])

# %%
# The same again
# --------------
# With the same records and parameters ``fit`` goes on from the checkpoint, and removes it at the
# end.  A training that was never interrupted gives the same bits.

import numpy as np

resumed = train(X, y, checkpoint)
print("the checkpoint is there:", checkpoint.exists())

whole = train(X, y, None)
same = np.array_equal(resumed.decision_function(X), whole.decision_function(X))
print("the same network to the last bit:", same)
folder.cleanup()

# %%
# Step by step
# ------------
# ``partial_fit`` trains for one of the planned epochs.  The plan, and its budget, are fixed by the
# first call: more epochs than planned are refused, and stopping early gives nothing back.

from sklearn_dpop import KANClassifierDP


def network(**parameters):
    return KANClassifierDP(
        epsilon=2.0,
        delta=1e-5,
        classes=[0, 1],
        feature_bounds=(-3, 3),
        sampling="cyclic",
        **parameters,
    )


clf = network(epochs=3)
for epoch in range(3):
    clf.partial_fit(X, y)
    spent = clf.history_[-1]["epsilon"]
    print(f"epoch {epoch + 1} of {clf.epochs}: epsilon {spent:g}")
try:
    clf.partial_fit(X, y)
except ValueError as error:
    print("refused:", str(error).split(";")[0])

# %%
# Watching public records
# -----------------------
# No loss of a private record is ever computed.  Public records may be watched, and may end the
# training.  The guarantee stays that of the whole plan.

from skorch.callbacks import EarlyStopping

X_public, y_public = X[4_000:], y[4_000:]  # let these be public
stop = EarlyStopping(monitor="valid_loss", patience=3, sink=lambda message: None)
clf = network(epochs=40, callbacks=[stop])
clf.fit(X[:4_000], y[:4_000], validation_data=(X_public, y_public))
for row in clf.history_[::4]:
    print(f"epoch {row['epoch']:2d}: accuracy on public records {row['valid_acc']:.3f}")
print(f"ended after {len(clf.history_)} of {clf.epochs} epochs")
print(f"epsilon of the report: {clf.privacy_report_.epsilon:g}")
