"""Accountants for noise that is correlated across steps: public numbers only, no records."""
