"""Private classifiers that drop into scikit-learn, each with a checkable privacy report."""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from sklearn_dpop.exceptions import PrivacyLeakWarning
from sklearn_dpop.linear_model import ObjPertGDLogisticRegression
from sklearn_dpop.privacy import PrivacyReport

if TYPE_CHECKING:
    from sklearn_dpop.neural_network import KANClassifierDP as KANClassifierDP

try:
    __version__ = version("sklearn-dpop")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "unknown"

# KANClassifierDP is left out: a star import would need torch.
__all__ = ["ObjPertGDLogisticRegression", "PrivacyLeakWarning", "PrivacyReport", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "KANClassifierDP":
        from sklearn_dpop import neural_network

        return neural_network.KANClassifierDP
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "KANClassifierDP"])
