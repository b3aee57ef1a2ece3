"""Private classifiers that drop into scikit-learn, each with a checkable privacy report."""

from importlib.metadata import PackageNotFoundError, version

from sklearn_dpop.exceptions import PrivacyLeakWarning
from sklearn_dpop.linear_model import ObjPertGDLogisticRegression
from sklearn_dpop.privacy import PrivacyReport

try:
    __version__ = version("sklearn-dpop")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "unknown"

__all__ = ["ObjPertGDLogisticRegression", "PrivacyLeakWarning", "PrivacyReport", "__version__"]
