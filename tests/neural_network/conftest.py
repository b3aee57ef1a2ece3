"""What the tests of the estimator share."""

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SKLEARN_DPOP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 5)).astype(np.float32)
    return X, (X[:, 0] + X[:, 1] > 0).astype(int)
