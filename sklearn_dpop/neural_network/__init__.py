"""Private neural networks; the only part of the package that needs torch (extra ``kan``)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sklearn_dpop.neural_network._classifier import KANClassifierDP

__all__ = ["KANClassifierDP"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from sklearn_dpop.neural_network import _classifier
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "skorch"):
            raise
        raise ImportError(
            f"{name} needs torch and skorch, and {error.name} is not installed: "
            "pip install torch skorch"
        ) from error
    return getattr(_classifier, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
