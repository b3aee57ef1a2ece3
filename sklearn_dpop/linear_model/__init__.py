"""Private linear classifiers."""

from sklearn_dpop.linear_model._objective_perturbation import ObjPertGDLogisticRegression

__all__ = ["ObjPertGDLogisticRegression"]
