"""Public facts about public data sets, for examples and benchmarks."""

from sklearn_dpop.datasets._bounds import breast_cancer_bounds

__all__ = ["breast_cancer_bounds"]
