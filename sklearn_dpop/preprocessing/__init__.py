"""sklearn_dpop.preprocessing."""
