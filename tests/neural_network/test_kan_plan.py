"""The plan of a network is the report of its fit, and totals take both mechanisms."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("skorch")

from sklearn_dpop import KANClassifierDP, ObjPertGDLogisticRegression
from sklearn_dpop.factorization import Identity
from sklearn_dpop.neural_network import _classifier
from sklearn_dpop.neural_network._no_guarantee import NoGuarantee
from sklearn_dpop.privacy import CompositionReport, compose_reports


def network(**params):
    defaults = {"epsilon": 1.0, "delta": 1e-5, "classes": [0, 1], "feature_bounds": (-1, 1)}
    shape = {"gamma": 0.5, "batch_size": 20, "epochs": 2, "hidden_width": 4, "device": "cpu"}
    return KANClassifierDP(**(defaults | shape | {"sampling": "cyclic"} | params))


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"classes": ["a", "b", "c"], "feature_bounds": ([-1, 0], [1, 2]), "hidden_width": (4, 3)},
        {"sampling": "poisson", "strategy": Identity(), "gamma": 0.0, "lr": 0.5},
        {"epsilon": None, "noise_multiplier": 5.0, "optimizer__momentum": 0.5, "lr": 0.1},
        {"batch_size": 1000},
    ],
)
@pytest.mark.filterwarnings("ignore:batch_size=1000")
def test_a_plan_is_the_report_of_the_fit(params):
    model = network(**params)
    labels = np.array(params.get("classes", [0, 1]))
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (100, 2)), labels[rng.integers(len(labels), size=100)]
    plan = model.plan(100, 2)
    report = model.fit(X, y).privacy_report_
    expected, found = report.to_dict(), plan.to_dict()
    assert found.pop("noise_source") != expected.pop("noise_source")
    assert found == expected
    assert plan.verify()


def test_a_plan_draws_nothing_and_leaves_nothing():
    model = network()
    before = sorted(vars(model))
    with mock.patch.object(_classifier, "noise_generator", side_effect=AssertionError):
        assert "plan" in model.plan(100, 2).noise_source
    assert sorted(vars(model)) == before


def test_without_noise_there_is_nothing_to_add():
    made = network(epsilon=np.inf).plan(100, 2)
    assert isinstance(made, NoGuarantee)
    with pytest.raises(TypeError, match=r"reports\[0\]"):
        compose_reports([made], delta=1e-5)


@pytest.mark.parametrize(
    ("params", "shape", "message"),
    [
        ({"classes": None}, (100, 2), "classes=None"),
        ({}, (100, 0), "n_features=0"),
        ({"feature_bounds": ([0, 0, 0], [1, 1, 1])}, (100, 2), "feature_bounds"),
        ({"epochs": 0}, (100, 2), "epochs"),
        ({"epsilon": None}, (100, 2), "noise_multiplier"),
    ],
)
def test_plan_refuses(params, shape, message):
    with pytest.raises(ValueError, match=message):
        network(**params).plan(*shape)


def test_network_and_linear_model_have_a_total():
    linear = ObjPertGDLogisticRegression(
        0.5, 1e-6, classes=[0, 1], calibration="tight", adjacency="zero-out"
    )
    parts = [network(delta=1e-6).plan(100, 2), linear.plan(100, 2)]
    total = compose_reports(parts, delta=1e-5)
    assert max(0.5, 1.0) < total.epsilon < 1.5
    assert CompositionReport.from_json(total.to_json()).verify()
    # A blank record has a gradient in a network: this change is that of both.
    for made in (total, compose_reports(parts[::-1], delta=1e-5)):
        assert "Replacing the gradients of any one record by zeros" in str(made)
