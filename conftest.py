"""Modules that need an optional package are not collected without it."""

from importlib.util import find_spec

collect_ignore = []
if find_spec("torch") is None or find_spec("skorch") is None:
    collect_ignore.append("sklearn_dpop/neural_network")
