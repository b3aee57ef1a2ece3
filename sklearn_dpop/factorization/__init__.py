"""Strategy matrices: correlated noise for private learning, its sensitivity and its error."""
