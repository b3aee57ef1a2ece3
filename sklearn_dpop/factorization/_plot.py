"""Plots of strategies; matplotlib is imported only when one is drawn."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ._error import best_gamma, rmse
from ._explicit import BIFR
from ._strategy import Strategy, ToeplitzStrategy
from ._workload import Workload


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib, which is not installed: pip install matplotlib"
        ) from error
    return plt.subplots()[1]


def plot_strategy(strategy: Strategy, n: int = 64, *, ax: Any = None) -> Any:
    """Plot the first columns of ``C`` and ``C^-1``; of a dense ``C`` the matrix as an image.

    Parameters
    ----------
    strategy : Strategy
        What to show.
    n : int, default=64
        Number of steps shown (ignored if dense).
    ax : matplotlib Axes, default=None
        Where to draw; ``None`` makes a new figure.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from sklearn_dpop.factorization import BISR
    >>> ax = BISR(4).plot(32)
    >>> ax.get_xlabel()
    'lag'
    """
    ax = _axes(ax)
    if not isinstance(strategy, ToeplitzStrategy):
        assert strategy.n_steps is not None
        ax.imshow(strategy.matrix(strategy.n_steps))
        ax.set(title=repr(strategy), xlabel="step", ylabel="step")
        return ax
    for column, label in ((strategy.coef(n), "$C$"), (strategy.inverse_coef(n), "$C^{-1}$")):
        ax.plot(np.arange(n), column, ".-", label=label)
    ax.axhline(0.0, color="0.7", lw=0.8, zorder=0)
    ax.set(title=repr(strategy), xlabel="lag", ylabel="coefficient")
    ax.legend()
    return ax


def plot_error_against_gamma(
    workload: Workload,
    bandwidths: Iterable[int],
    participations: int = 1,
    separation: int | None = None,
    *,
    n_points: int = 41,
    ax: Any = None,
) -> Any:
    """Plot the RMSE of BIFR against gamma, one curve for each bandwidth, its minimum marked.

    Parameters
    ----------
    workload : Workload
        ``A``.
    bandwidths : iterable of int
        Each at least 2.
    participations : int, default=1
        ``k``.
    separation : int, default=None
        ``b``; ``None`` means the number of steps.
    n_points : int, default=41
        Points of a curve.
    ax : matplotlib Axes, default=None
        Where to draw; ``None`` makes a new figure.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from sklearn_dpop.factorization import PrefixSum
    >>> len(plot_error_against_gamma(PrefixSum(64), [2, 8], n_points=5).lines)
    4
    """
    ax = _axes(ax)
    gammas = np.linspace(0.0, 1.0, n_points)
    for p in bandwidths:
        errors = [rmse(workload, BIFR(g, p), participations, separation) for g in gammas]
        (line,) = ax.plot(gammas, errors, label=f"p = {p}")
        best = best_gamma(workload.n, p, participations, separation, workload)
        error = rmse(workload, BIFR(best, p), participations, separation)
        ax.plot([best], [error], "o", color=line.get_color())
    ax.set(xlabel=r"$\gamma$", ylabel="RMSE", yscale="log")
    ax.legend()
    return ax


def plot_error_against_bandwidth(
    workload: Workload,
    families: Mapping[str, Any],
    bandwidths: Iterable[int],
    participations: int = 1,
    separation: int | None = None,
    *,
    ax: Any = None,
) -> Any:
    """Plot the RMSE of families of strategies against the bandwidth, and BIFR at its best gamma.

    Parameters
    ----------
    workload : Workload
        ``A``.
    families : mapping of str to callable
        Label and a function of the bandwidth that returns a strategy, for example
        ``{"BISR": BISR, "BandMF": BandMF}``.
    bandwidths : iterable of int
        Each at least 2.
    participations : int, default=1
        ``k``.
    separation : int, default=None
        ``b``; ``None`` means the number of steps.
    ax : matplotlib Axes, default=None
        Where to draw; ``None`` makes a new figure.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from sklearn_dpop.factorization import BISR, PrefixSum
    >>> len(plot_error_against_bandwidth(PrefixSum(64), {"BISR": BISR}, [2, 4]).lines)
    2
    """
    ax = _axes(ax)
    bandwidths = list(bandwidths)

    def bifr(p: int) -> BIFR:
        return BIFR(best_gamma(workload.n, p, participations, separation, workload), p)

    for label, family in {"BIFR, best gamma": bifr, **families}.items():
        errors = [rmse(workload, family(p), participations, separation) for p in bandwidths]
        ax.plot(bandwidths, errors, "o-", label=label)
    ax.set(xlabel="bandwidth", ylabel="RMSE", xscale="log", yscale="log")
    ax.legend()
    return ax
