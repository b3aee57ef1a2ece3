"""The privacy profile as a matplotlib figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sklearn_dpop.privacy._report_html import LIGHT
from sklearn_dpop.privacy._report_text import profile_floor, reference_profile

if TYPE_CHECKING:
    from sklearn_dpop.privacy._report import PrivacyReport

__all__ = ["plot_profile"]


def plot_profile(report: PrivacyReport, ax: Any = None) -> Any:
    """Plot the certified profile of `report` on `ax`: see :meth:`PrivacyReport.plot_profile`."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "plot_profile needs matplotlib, which is not installed: pip install matplotlib"
        ) from error
    if ax is None:
        _, ax = plt.subplots(figsize=(6.0, 4.0), layout="constrained")
    epsilon, delta = float(report.epsilon), float(report.delta)
    points = np.array(report._profile_points)
    if points.size == 0:
        raise ValueError("the report does not verify: report.verify() says why")
    ax.plot(
        points[:, 0], points[:, 1], color=LIGHT["accent"], linewidth=2, label="certified", zorder=2
    )
    reference = reference_profile(report)
    if reference is not None:
        grid = np.linspace(0.0, points[-1, 0], 101)
        ax.plot(
            grid,
            [reference.profile(float(x)) for x in grid],
            "--",
            color=LIGHT["muted"],
            label=f"Gaussian mechanism {reference.name}",
            zorder=1,
        )
    ax.plot(
        [epsilon],
        [delta],
        "o",
        color=LIGHT["mark"],
        label=f"stated: ε = {epsilon:.4g}, δ = {delta:.4g}",
        zorder=3,
    )
    ax.set_yscale("log")
    ax.set_xlim(0.0, points[-1, 0])
    ax.set_ylim(profile_floor(report), 1.5)
    ax.set_xlabel("ε")
    ax.set_ylabel("δ(ε)")
    ax.set_title(f"Privacy profile of {report.estimator}\n({report.adjacency} adjacency)")
    ax.grid(color=LIGHT["line"], linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return ax
