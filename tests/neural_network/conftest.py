"""What the tests of the estimator share."""

import contextlib
import os

import numpy as np
import pytest

with contextlib.suppress(ImportError):
    import torch

    if not torch.cuda.is_available():
        # Triton looks at this when it is imported; kernels are interpreted then.
        os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SKLEARN_DPOP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 5)).astype(np.float32)
    return X, (X[:, 0] + X[:, 1] > 0).astype(int)
