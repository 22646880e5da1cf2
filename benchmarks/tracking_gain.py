"""How fast should the bands' edges move? Coverage and width by the gain of quantile tracking.

The gain may be smaller the more steps h ahead a prediction is. The monitor changes no action, so
episodes are played once and their bands computed again for each gain. Widths are relative to those
without tracking (gain 0).

Run:  python benchmarks/tracking_gain.py RUN [--seed 0] [--changed-episodes 8]
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from planet_bayes import runs
from planet_bayes.confidence import conformal
from planet_bayes.confidence.calibration import Calibration
from planet_bayes.diagnostics.changes import CHANGES
from planet_bayes.diagnostics.conditions import NotApplicable
from planet_bayes.diagnostics.coverage import (
    judge_bands,
    judge_change,
    start_of_changes,
    watch_changed,
)
from planet_bayes.diagnostics.watching import Watched, calibration_of, watch_run
from planet_bayes.results.tables import header, row

GAINS = (
    *((0.0, 1e9), (0.05, 1e9), (0.1, 1e9), (0.2, 1e9), (0.4, 1e9)),
    *((0.1, 1.0), (0.2, 1.0), (0.4, 1.0), (0.2, 1.5), (0.2, 0.5)),
)
"""`GAIN` and `DELAYED_GAIN`. With 1e9 the gain is the same for all steps ahead."""


def replayed(one: Watched, known: Calibration) -> Watched:
    """Return the episode with the bands that today's gain gives."""
    bands = known.bands
    recent = conformal.recent_errors(bands.errors(one.truth, one.mean, one.std), bands.usual)
    scale = bands.scale(one.std, recent)
    scores = bands.scores(one.truth, one.mean, scale)
    steps, horizon, size = scores.shape
    tracked = conformal.untracked((horizon, size))
    low, high = np.empty_like(scores), np.empty_like(scores)
    for step in range(steps):
        known_now = np.full((horizon, size), np.nan)
        ahead = np.arange(min(step, horizon))
        known_now[ahead] = scores[step - 1 - ahead, ahead]
        tracked = tracked.moved(known_now, bands, known.level)
        low[step], high[step] = bands.interval(one.mean[step], scale[step], tracked)
    return dataclasses.replace(one, low=low, high=high)


def main() -> None:
    """Play, compute and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--changed-episodes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    run = runs.load_run(options.run, device="cpu")
    plain = run.agent.watched()
    held_out = watch_run(run, plain, "held-out", options.episodes, seed=options.seed)
    known = calibration_of(held_out, plain, 0.9, 0.001, "")
    agent = run.agent.watched(known)
    clean = watch_run(run, agent, "later", options.episodes, seed=options.seed)
    start = start_of_changes(clean)
    changed: dict[str, list[Watched]] = {}
    for name in CHANGES:
        try:
            changed[name] = watch_changed(
                run, agent, name, options.changed_episodes, held_out, start, options.seed
            )
        except NotApplicable:
            continue
    names = list(known.entries)
    print(f"Coverage of {', '.join(names)}: lowest to highest over steps ahead if nothing changes,")
    print("and means after a change.\n")
    print("\n".join(header(["gain", "width", "unchanged", *changed])))
    widths: dict[str, NDArray[np.float64]] = {}
    for gain, delayed in GAINS:
        conformal.GAIN, conformal.DELAYED_GAIN = gain, delayed
        now = [replayed(one, known) for one in clean]
        held = judge_bands(now, known)
        if not widths:
            widths = {name: held[name].width for name in names}
        width = np.mean([np.mean(held[name].width / widths[name]) for name in names])
        ranges = [f"{min(one.adapted):.2f} to {max(one.adapted):.2f}" for one in held.values()]
        text = f"{gain:g}" if delayed > 1e8 else f"{gain:g}, at most {delayed:g} / h"
        cells = []
        for episodes in changed.values():
            seen = judge_change([replayed(one, known) for one in episodes], now, known, start)
            cells.append(", ".join(f"{seen.adapted[name]:.2f}" for name in names))
        print(row([text, f"{width:.2f}", ", ".join(ranges), *cells]))


if __name__ == "__main__":
    main()
