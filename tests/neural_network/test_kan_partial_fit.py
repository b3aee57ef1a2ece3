"""Trainings in parts: checkpoints at any step, partial_fit, and public validation records."""

# ruff: noqa: E402
import math
import pickle
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("skorch")
from sklearn.base import clone
from sklearn.metrics import log_loss
from skorch.callbacks import Checkpoint, EarlyStopping, LRScheduler
from test_kan_classifier import assert_same_weights, interrupt_at, quick, recording

from sklearn_dpop import KANClassifierDP
from sklearn_dpop.neural_network import _classifier as classifier
from sklearn_dpop.neural_network._checkpoint import load_checkpoint
from sklearn_dpop.neural_network._step import PrivateStep


def test_a_checkpoint_can_be_of_any_step(data, tmp_path, monkeypatch):
    # Saved after every step; stopped in the middle of the second epoch.
    monkeypatch.setattr(classifier, "_SAVE_EVERY", 0.0)
    params = {"random_state": 3, "gamma": 0.6, "optimizer__momentum": 0.5}
    whole = quick(**params).fit(*data)
    clf = quick(**params, checkpoint=tmp_path / "training.pt")
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(7, patch)
        with pytest.raises(KeyboardInterrupt):
            clf.fit(*data)
    assert load_checkpoint(clf.checkpoint)["step"] == 6
    assert [row["step"] for row in load_checkpoint(clf.checkpoint)["history"]] == [4]
    steps, call = [], PrivateStep.__call__
    monkeypatch.setattr(PrivateStep, "__call__", recording(call, steps))
    clf.fit(*data)
    assert len(steps) == 12 - 6
    assert_same_weights(whole, clf)
    assert [row["step"] for row in clf.history_] == [4, 8, 12]


# --- partial_fit ---------------------------------------------------------------------------------


@pytest.mark.parametrize("noise_source", ["secure", "fast"])
def test_partial_fit_goes_through_the_planned_epochs(noise_source, data):
    params = {"random_state": 3, "gamma": 0.6, "noise_source": noise_source}
    whole = quick(**params).fit(*data)
    clf = quick(**params)
    for epoch in (1, 2, 3):
        assert clf.partial_fit(*data) is clf
        assert [row["step"] for row in clf.history_] == [4 * e for e in range(1, epoch + 1)]
        # The guarantee of all epochs is stated from the first on.
        assert clf.privacy_report_.to_json() == whole.privacy_report_.to_json()
        clf.predict(data[0])
    assert_same_weights(whole, clf)
    assert set(vars(clf)) == set(vars(whole))
    before = clf.predict_proba(data[0])
    with pytest.raises(ValueError, match="all of the epochs=3 are done"):
        clf.partial_fit(*data)
    np.testing.assert_array_equal(clf.predict_proba(data[0]), before)
    with pytest.raises(ValueError, match="all of the epochs=3 are done"):
        whole.partial_fit(*data)


def test_partial_fit_is_for_the_same_records_and_parameters_only(data):
    X, y = data
    params = {"random_state": 3, "epochs": 2}
    clf = quick(**params).partial_fit(X, y)
    other = X.copy()
    other[0, 0] += 0.01
    for wrong in (
        {"X": other},
        {"y": 1 - y},
        {"X": X[:-1], "y": y[:-1]},
        {"X": X[::-1].copy(), "y": y[::-1].copy()},
    ):
        with pytest.raises(ValueError, match="other records"):
            clf.partial_fit(**{"X": X, "y": y} | wrong)
    with pytest.raises(ValueError, match="features"):
        clf.partial_fit(X[:, :3], y)
    with pytest.raises(ValueError, match="classes=\\[0, 1, 2\\]"):
        clf.partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(TypeError, match="noise covers"):
        clf.partial_fit(X, y, sample_weight=np.ones(60))
    with pytest.raises(ValueError, match="other parameters"):
        clf.set_params(lr=0.5).partial_fit(X, y)
    # Nothing of that has changed the training.
    clf.set_params(lr=quick().lr).partial_fit(X, y)
    assert_same_weights(clf, quick(**params).fit(X, y))


def test_a_training_that_goes_on_keeps_its_secrets(data, monkeypatch):
    X, y = data
    keys = {"noise": 2**255 + 12345678901234567890, "batches": 2**254 + 3, "weights": 2**253 + 5}
    monkeypatch.setattr(KANClassifierDP, "_draw_keys", lambda self, c: (keys, "test"))
    clf = quick(random_state=None).partial_fit(X, y)
    stored = pickle.dumps(clf)
    assert not any(row[:2].tobytes() in stored for row in X)
    for key in keys.values():
        assert not any(key.to_bytes(32, order) in stored for order in ("little", "big"))
        assert str(key).encode() not in stored
    with pytest.raises(TypeError, match="secrets"):
        pickle.dumps(clf._run.training)
    again = pickle.loads(stored)
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    assert "1 of the epochs=3 are done" in again._why_ended()
    with pytest.raises(ValueError, match="not pickled"):
        again.partial_fit(X, y)
    assert clone(clf)._run is None


def test_partial_fit_can_declare_the_classes(data):
    X, y = data
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf = quick(classes=None).partial_fit(X, y, classes=[1, 0, 2])
    assert list(clf.classes_) == [0, 1, 2]
    assert clf.privacy_report_.public_inputs["classes"] == ("0", "1", "2")
    with pytest.raises(ValueError, match="must be the classes"):
        quick().partial_fit(X, y, classes=[0, 1, 2])


def test_an_interrupted_epoch_leaves_nothing(data):
    clf = quick()
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(2, patch)
        with pytest.raises(KeyboardInterrupt):
            clf.partial_fit(*data)
    assert set(vars(clf)) == set(clf.get_params())
    clf.partial_fit(*data)
    assert len(clf.history_) == 1


def test_after_a_release_an_interrupted_training_does_not_start_anew_unasked(data, tmp_path):
    # The next call would otherwise be the first one of a second training: two budgets.
    clf = quick().partial_fit(*data)
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(2, patch)
        with pytest.raises(KeyboardInterrupt):
            clf.partial_fit(*data)
    assert set(vars(clf)) == {*clf.get_params(), "_spent"}
    for again in (clf, pickle.loads(pickle.dumps(clf))):
        with pytest.raises(ValueError, match="spends its whole budget again"):
            again.partial_fit(*data)
    # Not after a call that failed for another reason, either.
    (tmp_path / "other.pt").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="not a checkpoint"):
        clf.set_params(checkpoint=tmp_path / "other.pt").partial_fit(*data)
    with pytest.raises(ValueError, match="spends its whole budget again"):
        clf.set_params(checkpoint=None).partial_fit(*data)
    assert len(clone(clf).partial_fit(*data).history_) == 1
    assert len(clf.fit(*data).history_) == 3
    assert not clf._spent


def test_after_a_release_an_interrupted_training_goes_on_from_its_checkpoint(data, tmp_path):
    clf = quick(random_state=3, checkpoint=tmp_path / "training.pt").partial_fit(*data)
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(2, patch)
        with pytest.raises(KeyboardInterrupt):
            clf.partial_fit(*data)
    clf.partial_fit(*data).partial_fit(*data)
    assert_same_weights(clf, quick(random_state=3).fit(*data))


def test_partial_fit_goes_on_from_a_checkpoint(data, tmp_path):
    params = {"random_state": 3, "checkpoint": tmp_path / "training.pt"}
    quick(**params).partial_fit(*data)
    clf = quick(**params).partial_fit(*data).partial_fit(*data)
    assert [row["epoch"] for row in clf.history_] == [1, 2, 3]
    assert_same_weights(clf, quick(random_state=3).fit(*data))
    assert not clf.checkpoint.exists()


# --- public validation records -------------------------------------------------------------------


def test_public_records_are_scored_after_every_epoch(data):
    rng = np.random.default_rng(5)
    X, y = rng.uniform(-1, 1, (30, 5)).astype(np.float32), rng.integers(0, 2, 30)
    clf = quick(random_state=1).fit(*data, validation_data=(X, y))
    assert_same_weights(clf, quick(random_state=1).fit(*data))
    last = clf.history_[-1]
    # Loss and accuracy by scikit-learn.
    assert last["valid_loss"] == pytest.approx(log_loss(y, clf.predict_proba(X)), rel=1e-5)
    assert last["valid_acc"] == clf.score(X, y)
    losses = clf.history_[:, "valid_loss"]
    best = [loss < min(losses[:i], default=math.inf) for i, loss in enumerate(losses)]
    assert clf.history_[:, "valid_loss_best"] == best
    report = clf.privacy_report_
    assert report.public_inputs["n_validation"] == 30
    assert any("validation records are public" in text for text in report.assumptions)
    assert report.verify()
    assert quick().fit(*data).privacy_report_.public_inputs["n_validation"] is None


def test_public_records_of_several_classes(data):
    rng = np.random.default_rng(5)
    X, y = data[0], rng.integers(0, 3, 60)
    public = rng.uniform(-1, 1, (20, 5)), np.full(20, 2)  # not all classes occur
    clf = quick(classes=[0, 1, 2]).fit(X, y, validation_data=public)
    proba = clf.predict_proba(public[0])
    assert clf.history_[-1, "valid_loss"] == pytest.approx(-np.log(proba[:, 2]).mean(), rel=1e-5)
    assert clf.history_[-1, "valid_acc"] == clf.score(*public)


def test_callbacks_may_monitor_public_records(data, tmp_path):
    rng = np.random.default_rng(5)
    public = rng.uniform(-1, 1, (30, 5)), rng.integers(0, 2, 30)
    clf = quick(epochs=50, lr=1e-9, callbacks=[EarlyStopping(patience=4, threshold=0.1)])
    clf.set_params(callbacks__EarlyStopping__sink=lambda text: None)
    clf.fit(*data, validation_data=public)
    # The loss does not fall by a tenth after the first epoch: 4 more are waited for.
    assert len(clf.history_) == 5
    assert clf.n_steps_ == 200  # the guarantee is for all
    assert clf.privacy_report_.verify()
    with pytest.raises(ValueError, match="stopped early"):
        clf.set_params(callbacks=None).partial_fit(*data)
    callbacks = [
        Checkpoint(monitor="valid_loss_best", dirname=tmp_path, f_criterion=None),
        LRScheduler("ReduceLROnPlateau", monitor="valid_loss"),
    ]
    quick(callbacks=callbacks).fit(*data, validation_data=public)
    assert (tmp_path / "params.pt").exists()
    with pytest.raises(ValueError, match=r"EarlyStopping refused.*validation_data"):
        quick(callbacks=[EarlyStopping()]).fit(*data)
    with pytest.raises(ValueError, match="Checkpoint refused"):
        quick(callbacks=[Checkpoint(monitor="train_loss_best")]).fit(*data, validation_data=public)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda X, y: (X, y), "these are the private records"),
        (lambda X, y: X, "must be a pair"),
        (lambda X, y: (X[:, :2], y), "features"),
        (lambda X, y: (X[:9] * 0.5, y[:9] + 5), "not in classes"),
    ],
)
def test_refused_validation_data(make, message, data):
    with pytest.raises(ValueError, match=message):
        quick().fit(*data, validation_data=make(*data))


def test_a_batch_of_more_than_all_records_is_announced(data):
    with pytest.warns(UserWarning, match="batch_size=61: every step uses all of the 60 records"):
        clf = quick(batch_size=61).fit(*data)
    assert clf.schedule_.expected_batch_size == 60
