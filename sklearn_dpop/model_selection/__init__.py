"""Choosing between fitted models with a guarantee."""

from sklearn_dpop.model_selection._choice import choose_privately

__all__ = ["choose_privately"]
