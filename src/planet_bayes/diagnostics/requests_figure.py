"""The figure of `planet-bayes suggest`: stored steps, imagined ends and the requests in a plane."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from planet_bayes.data import files
from planet_bayes.diagnostics.requests import Requests


def draw(found: Requests, title: str, path: Path) -> None:
    """Write the figure as PNG.

    Args:
        found: The requests.
        title: What stands above.
        path: Where to.
    """
    from matplotlib.figure import Figure  # late: nothing else needs it

    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.subplots()
    axes.scatter(found.stored[:, 0], found.stored[:, 1], s=3, color="0.75", label="stored steps")
    order = found.gains.argsort()  # the largest gains on top
    ends, gains = found.ends[order], found.gains[order]
    shown = axes.scatter(
        ends[:, 0], ends[:, 1], s=8, c=gains, cmap="viridis", label="imagined ends"
    )
    figure.colorbar(shown, label="gain: variance that an episode there removes")
    for rank, (across, up) in enumerate(found.asked, 1):
        axes.scatter(across, up, s=120, facecolors="none", edgecolors="red", linewidths=1.5)
        axes.annotate(str(rank), (across, up), xytext=(7, 5), textcoords="offset points")
    axes.set_xlabel("first component of observation and action")
    axes.set_ylabel("second component")
    axes.legend(fontsize=8, loc="best")
    figure.suptitle(title)
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    files.write(path, buffer.getvalue())
