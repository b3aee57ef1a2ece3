"""sklearn_dpop.release."""
