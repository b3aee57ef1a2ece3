"""sklearn_dpop.privacy."""
