"""The figure of `planet-bayes calibrate`: coverage and width of the bands by steps ahead."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from planet_bayes.data import files
from planet_bayes.diagnostics.coverage import Judgement


def draw(judgement: Judgement, title: str, path: Path) -> None:
    """Write the figure as PNG.

    Args:
        judgement: The figures.
        title: What stands above.
        path: Where to.
    """
    from matplotlib.figure import Figure  # late: nothing else needs it

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.axhspan(0.88, 0.92, color="0.9")
    left.axhline(judgement.calibration.level, color="0.5", linewidth=0.8)
    for marker, (name, held) in zip("osv^D*Px", judgement.held.items(), strict=False):
        ahead = range(1, len(held.calibrated) + 1)
        left.plot(ahead, held.calibrated, marker=marker, markersize=4, label=name)
        right.plot(ahead, held.width / held.width[-1], marker=marker, markersize=4, label=name)
    lowest = min(float(held.calibrated.min()) for held in judgement.held.values())
    left.set_ylim(min(0.7, lowest - 0.02), 1.0)
    left.set_ylabel("coverage on later episodes")
    right.set_ylabel("width, relative to the last step")
    for axes in (left, right):
        axes.set_xlabel("steps ahead")
    left.legend(fontsize=8)
    figure.suptitle(title)
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    files.write(path, buffer.getvalue())
