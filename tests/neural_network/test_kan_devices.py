"""A step on another device, where there is none: torch's device "meta" has shapes, no numbers.

An operation that mixes devices, or waits for a number of the device, fails there.
"""

# ruff: noqa: E402
import itertools

import pytest

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sklearn_dpop.neural_network._clipped import FeatureStore, clipped_sum, per_record
from sklearn_dpop.neural_network._inspect import chance, effects
from sklearn_dpop.neural_network._kan import KAN
from sklearn_dpop.neural_network._step import PrivateStep


class OneDevice(TorchDispatchMode):
    """Refuse operations on tensors of several devices, but for copies and single numbers."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        devices = {t.device.type for t in tensors if t.ndim}
        assert len(devices) < 2 or "copy" in str(func), (func, devices)
        return func(*args, **kwargs)


VARIANTS = list(itertools.product([False, True], [False, True], [1, 3], [0, 2**28]))


@pytest.mark.parametrize(("base_branch", "center_basis", "n_outputs", "memory"), VARIANTS)
@pytest.mark.parametrize("settings", [{}, {"momentum": 0.5}])
def test_a_step_stays_on_its_device_and_never_waits(
    base_branch, center_basis, n_outputs, memory, settings
):
    net = KAN(
        5, n_outputs, hidden_width=(8, 4), train_output_layer=n_outputs > 1,
        base_branch=base_branch, center_basis=center_basis,
    ).to("meta")  # fmt: skip
    y = torch.zeros(30, device="meta", dtype=torch.float32 if n_outputs == 1 else torch.int64)
    index = torch.arange(7, device="meta")
    with OneDevice():
        store = FeatureStore(net, torch.rand(30, 5), memory)  # from the CPU, as in fit
        sums = clipped_sum(net, store, index, y[index], 0.5, physical_batch_size=4)
        assert {s.device.type for s in sums} == {"meta"}
        step = PrivateStep(
            net, store, y, torch.optim.SGD(net.parameters(), lr=0.1, **settings),
            max_grad_norm=0.5, batch_size=7, noise=None, noise_multiplier=0.0,
        )  # fmt: skip
        step(index)
        assert per_record(net, store.take(slice(0, 5)), y[:5]).norms.device.type == "meta"
        assert effects(net, 9).device.type == chance(net, 0.5, 9).device.type == "meta"


def test_the_check_sees_a_tensor_left_on_the_cpu():
    with OneDevice(), pytest.raises(AssertionError, match="add"):
        torch.zeros(3, device="meta") + torch.zeros(3)
    with OneDevice(), pytest.raises(RuntimeError, match="meta"):
        torch.zeros(3, device="meta").sum().item()
