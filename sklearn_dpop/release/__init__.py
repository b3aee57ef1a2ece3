"""What touches records for linear models: losses, noise and the solver."""

from sklearn_dpop.release._losses import LogisticLoss, MarginLoss, SmoothedHingeLoss

__all__ = ["LogisticLoss", "MarginLoss", "SmoothedHingeLoss"]
