"""KANClassifierDP in careless hands: more must not be released than the report says."""

# ruff: noqa: E402
import math
import pickle
import threading
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("skorch")
from randomgen import ChaCha
from skorch.callbacks import (
    Callback,
    Checkpoint,
    Freezer,
    GradientNormClipping,
    InputShapeSetter,
    LoadInitState,
    LRScheduler,
    Unfreezer,
)
from test_kan_classifier import Trajectory, assert_same_weights, interrupt_at, quick

from sklearn_dpop import KANClassifierDP
from sklearn_dpop.exceptions import PrivacyLeakWarning
from sklearn_dpop.factorization import Dense
from sklearn_dpop.neural_network._checkpoint import data_tag
from sklearn_dpop.neural_network._clipped import FeatureStore, clipped_sum
from sklearn_dpop.neural_network._kan import KAN
from sklearn_dpop.neural_network._step import PrivateStep, project_

# --- the report is that of the training, whatever is set later -----------------------------------


def test_parameters_that_a_callback_sets_do_not_change_the_report(data):
    class Hide(Callback):
        def on_train_begin(self, net, **kwargs):
            net.set_params(random_state=None, noise_source="secure", max_grad_norm=9.0)
            net.set_params(adjacency="replace-one", epsilon=0.1, lr=7.0)

    clf = quick(random_state=0, noise_source="fast", callbacks=[Hide()]).fit(*data)
    plain = quick(random_state=0, noise_source="fast").fit(*data)
    assert clf.privacy_report_.seeded
    assert clf.privacy_report_.to_json() == plain.privacy_report_.to_json()
    torch.testing.assert_close(
        clf.module_.state_dict(), plain.module_.state_dict(), rtol=0, atol=1e-5
    )


def test_a_checkpoint_does_not_say_where_its_key_is_from(data, tmp_path):
    path = tmp_path / "training.pt"
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(6, patch)
        with pytest.raises(KeyboardInterrupt):
            quick(checkpoint=path, random_state=0).fit(*data)
    with pytest.raises(ValueError, match="other parameters"):
        quick(checkpoint=path).fit(*data)
    assert quick(checkpoint=path, random_state=0).fit(*data).privacy_report_.seeded


def test_what_a_fit_needed_is_gone_afterwards(data):
    for clf in (quick(optimizer__momentum=0.5).fit(*data), quick(epochs=1).partial_fit(*data)):
        assert not clf.module_.training
        assert all(p.grad is None for p in clf.module_.parameters())
        assert not hasattr(clf, "optimizer_")
        assert clf._run is None


@pytest.mark.parametrize(("max_grad_norm", "share"), [(1e-6, 1.0), (1e6, 0.0)])
def test_diagnostics_count_the_clipped_records(max_grad_norm, share, data):
    with pytest.warns(PrivacyLeakWarning):
        clf = quick(diagnostics=True, max_grad_norm=max_grad_norm, lr=1e-9).fit(*data)
    assert [row["clipped"] for row in clf.diagnostics_] == [share] * 3


# --- one training at a time ----------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_callback_cannot_train_the_same_object(method, data):
    class Again(Callback):
        def on_batch_end(self, net, **kwargs):
            net.set_params(callbacks=None)
            getattr(net, method)(*data)

    clf = quick(callbacks=[Again()])
    with pytest.raises(RuntimeError, match="is being trained"):
        clf.fit(*data)
    assert set(vars(clf)) == set(clf.get_params())
    clf.fit(*data)


def test_a_second_thread_is_refused_and_changes_nothing(data):
    # The other thread comes in the middle of a step, when its noise has not been added.
    caught, call = [], PrivateStep.__call__

    def other():
        try:
            clf.partial_fit(*data)
        except RuntimeError as error:
            caught.append(str(error))

    def step(self, index):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        call(self, index)

    clf = quick(random_state=0).partial_fit(*data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivateStep, "__call__", step)
        clf.partial_fit(*data)
    assert len(caught) == 4  # once in every step of an epoch
    clf.partial_fit(*data)
    assert_same_weights(clf, quick(random_state=0).fit(*data))


class Keep(Callback):
    """Pickles the estimator in the middle of its training."""

    def on_train_begin(self, net, **kwargs):
        self.stored = pickle.dumps(net)

    def __getstate__(self):
        return {}


def test_what_a_callback_pickles_can_be_trained(data):
    keep = Keep()
    quick(callbacks=[keep]).fit(*data)
    again = pickle.loads(keep.stored)
    again.set_params(callbacks=None).fit(*data)
    assert again.privacy_report_.verify()


# --- the same noise only for the same training ---------------------------------------------------


@pytest.mark.parametrize("kind", ["bounds", "matrix"])
def test_a_checkpoint_is_not_for_parameters_that_only_look_alike(kind, tmp_path):
    # repr shows three values at each end of 1001, and not the entries of a matrix.
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (8, 1001)).astype(np.float32), np.arange(8) % 2
    upper, matrix = np.ones(1001), np.eye(4)
    params = {"hidden_width": 2, "batch_size": 4, "epochs": 2, "epsilon": None}
    params |= {"noise_multiplier": 20.0, "delta": 0.1, "checkpoint": tmp_path / "training.pt"}

    def made():
        return quick(**params, feature_bounds=(-np.ones(1001), upper), strategy=Dense(matrix))

    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(4, patch)
        with pytest.raises(KeyboardInterrupt):
            made().fit(X, y)
    if kind == "bounds":
        upper = upper.copy()
        upper[500] = 2.0
    else:
        matrix = matrix.copy()
        matrix[3, 0] = 0.5
    with pytest.raises(ValueError, match="other parameters"):
        made().fit(X, y)


@pytest.mark.parametrize("change", [lambda s: s.pop("keys"), lambda s: s.update(more=1)])
def test_a_checkpoint_with_other_parts_is_none(change, data, tmp_path):
    path = tmp_path / "training.pt"
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(6, patch)
        with pytest.raises(KeyboardInterrupt):
            quick(checkpoint=path).fit(*data)
    state = torch.load(path, weights_only=True)
    change(state)
    torch.save(state, path)
    with pytest.raises(ValueError, match="not a checkpoint"):
        quick(checkpoint=path).fit(*data)


def test_tags_of_records_depend_on_key_type_shape_and_values():
    x = np.arange(4, dtype=np.float32)
    tags = [
        data_tag(5, [x]),
        data_tag(6, [x]),
        data_tag(5, [x.view(np.int32)]),
        data_tag(5, [x.reshape(2, 2)]),
        data_tag(5, [x[:2], x[2:]]),
        data_tag(5, [x + 1]),
    ]
    assert len(set(tags)) == len(tags)
    assert data_tag(5, [x.reshape(2, 2).T.copy().T]) == data_tag(5, [x.reshape(2, 2)])


# --- clipping ------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [0, 2**28])
def test_bounds_that_change_during_the_training_lift_no_record(budget):
    # load_params and callbacks can set them; norms of features that are not kept were taken with
    # the earlier ones.  At the centre of the bounds the centred splines vanish.
    net = KAN(3, hidden_width=4, center_basis=True, generator=torch.Generator().manual_seed(0))
    X = torch.full((1, 3), 1e-3)
    store = FeatureStore(net, X, budget)
    with torch.no_grad():
        net.middle.fill_(-0.9)
    X.fill_(0.9)
    total = clipped_sum(net, store, torch.tensor([0]), torch.ones(1), 1e-4)
    assert math.sqrt(sum(float(t.double().square().sum()) for t in total)) <= 1e-4


@pytest.mark.parametrize(
    "params", [{"lr": 1e39}, {"max_grad_norm": 1e-31}, {"max_grad_norm": 1e11}, {"lr": math.inf}]
)
def test_steps_that_could_overflow_before_the_noise_are_refused(params, data):
    # -lr * sum would be an infinity with the sign of the sum.
    with pytest.raises(ValueError, match=next(iter(params))):
        quick(**params).fit(*data)


def test_the_largest_step_does_not_overflow(data):
    clf = quick(lr=1e10, max_grad_norm=1e10, train_output_layer=True).fit(*data)
    assert all(torch.isfinite(p).all() for p in clf.module_.parameters())


@pytest.mark.parametrize(("distance", "moved"), [(0.999, False), (1.001, True)])
def test_the_ball_has_the_radius_that_was_asked_for(distance, moved):
    w = [torch.tensor([0.6, 0.0]) * distance, torch.tensor([0.8]) * distance]
    project_(w, [torch.zeros(2), torch.zeros(1)], 1.0)
    length = math.sqrt(sum(float(x.square().sum()) for x in w))
    assert length == pytest.approx(1.0 if moved else distance, rel=1e-6)


def test_groups_of_parameters_have_their_own_rates(data):
    # Plain SGD with two rates: the second layer stays where it was drawn.
    groups = [("layers.1.*", {"lr": 0.0})]
    clf = quick(train_output_layer=True, optimizer__param_groups=groups, random_state=0)
    drawn = []
    with pytest.MonkeyPatch.context() as patch:
        start = KANClassifierDP._start
        patch.setattr(
            KANClassifierDP,
            "_start",
            lambda self, *args, **kwargs: (
                start(self, *args, **kwargs),
                drawn.extend(p.detach().clone() for p in self.module_.parameters()),
            )[0],
        )
        clf.fit(*data)
    first, second = clf.module_.parameters()
    assert torch.equal(second, drawn[1])
    assert not torch.equal(first, drawn[0])


def test_batches_have_a_key_of_their_own(data, monkeypatch):
    # Oracle: the schedule, with ChaCha20 and the second of three different keys.
    keys, used = {"noise": 2**200 + 1, "batches": 2**201 + 1, "weights": 2**202 + 1}, []
    monkeypatch.setattr(KANClassifierDP, "_draw_keys", lambda self, c: (keys, "test"))
    monkeypatch.setattr(PrivateStep, "__call__", lambda self, index: used.append(index.numpy()))
    clf = quick(sampling="poisson", gamma=0.0).fit(*data)
    rng = np.random.Generator(ChaCha(key=keys["batches"], counter=0, rounds=20))
    for batch, index in zip(clf.schedule_.batches(rng), used, strict=True):
        np.testing.assert_array_equal(batch, index)


def test_first_weights_have_a_key_of_their_own(data, monkeypatch):
    # Oracle: torch's generator, with the low bits of the third of three different keys.
    keys = {"noise": 2**200 + 1, "batches": 2**201 + 1, "weights": 2**202 + 2**20 + 1}
    monkeypatch.setattr(KANClassifierDP, "_draw_keys", lambda self, c: (keys, "test"))
    seen = Trajectory()
    quick(callbacks=[seen]).fit(*data)
    drawn = torch.randn(
        160, generator=torch.Generator().manual_seed(2**20 + 1), dtype=torch.float64
    )
    torch.testing.assert_close(seen.seen[0], drawn.float(), rtol=0, atol=0)


# --- callbacks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("callback", "reason"),
    [
        (Freezer("*"), "all layers are trained"),
        (Unfreezer("*"), "all layers are trained"),
        (InputShapeSetter(), "needs records"),
        (LoadInitState(Checkpoint(monitor=None)), "draws the first weights"),
    ],
)
def test_callbacks_that_cannot_work_are_refused(callback, reason, data):
    with pytest.raises(ValueError, match=f"refused, because .*{reason}"):
        quick(callbacks=[callback]).fit(*data)


def test_what_double_underscores_make_of_a_callback_is_checked_too(data):
    stepwise = LRScheduler("StepLR", step_size=1)
    clf = quick(callbacks=[("lr", stepwise)], callbacks__lr__policy="ReduceLROnPlateau")
    with pytest.raises(ValueError, match="LRScheduler refused"):
        clf.fit(*data)


def test_clipping_the_noisy_gradient_is_allowed(data):
    seen = Trajectory()
    quick(callbacks=[GradientNormClipping(1e-3), seen]).fit(*data)
    moves = torch.stack(seen.seen).diff(dim=0).norm(dim=1)
    torch.testing.assert_close(moves, torch.full((12,), 1e-3), rtol=1e-2, atol=0)


def test_an_interruption_between_epochs_is_no_early_stop(data, monkeypatch):
    def interrupt(self, *args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(KANClassifierDP, "on_epoch_end", interrupt)
    clf = quick()
    with pytest.raises(KeyboardInterrupt):
        clf.fit(*data)
    assert set(vars(clf)) == set(clf.get_params())


# --- inputs --------------------------------------------------------------------------------------


def test_no_value_of_a_record_is_in_an_error_or_a_warning(data):
    X, y = data
    secret = 0.8671875  # exact in float32
    bad = X.copy()
    bad[3, 2] = secret
    nan, big = bad.copy(), bad.astype(float)
    nan[5, 1], big[5, 1] = np.nan, 1e300
    text = bad.astype(str)
    text[5, 1] = "0.8671875 mmol"
    labels = np.where(y == 1, "0.8671875", "b").astype(object)
    for A, b, params in (
        (nan, y, {}),
        (big, y, {}),
        (text, y, {}),
        (bad, bad[:, 2], {}),
        (bad, bad[:, 2], {"classes": None}),
        (bad, labels, {}),
        (bad, labels, {"classes": ["a", "b"]}),
        (bad, np.full(60, secret), {"classes": None}),
        (bad, y[:-1], {}),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pytest.raises(ValueError) as error:  # noqa: PT011 (each has its own)
                quick(**params).fit(A, b)
        for message in (str(error.value), *(str(w.message) for w in caught)):
            assert "867" not in message, message


def test_the_memory_of_the_caller_may_change_between_calls_only_back(data):
    X, y = data
    view = np.asfortranarray(np.repeat(X, 2, axis=1))[:, ::2]
    clf = quick(random_state=0).partial_fit(view, y)
    kept = view.copy()
    view += 1.0
    with pytest.raises(ValueError, match="other records"):
        clf.partial_fit(view, y)
    view[:] = kept
    clf.partial_fit(view, y).partial_fit(view, y)
    assert_same_weights(clf, quick(random_state=0).fit(X, y))


def test_a_single_record_can_be_learned_from():
    clf = quick(batch_size=1, epochs=1, delta=0.1).fit([[0.5]], [1])
    assert clf.n_steps_ == 1
    assert clf.privacy_report_.verify()
