"""Differentially private classifiers for scikit-learn."""
