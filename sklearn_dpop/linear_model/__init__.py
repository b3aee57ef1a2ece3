"""sklearn_dpop.linear_model."""
