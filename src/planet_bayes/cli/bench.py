"""``planet-bayes bench``."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated

import tyro
from rich.console import Console

from planet_bayes.cli._settings import PresetName, Settings, early_options, preset_config
from planet_bayes.config import PRESETS, MethodName


@dataclass(frozen=True)
class Bench:
    """Measure planning, learning, sampling and simulating against the CPU's own rate.

    Best on an otherwise idle machine. The preset gives the sizes that are not named.
    """

    preset: PresetName = "quick"
    """Sizes to start from; paper takes some minutes."""
    method: MethodName | None = None
    """A method of the paper's ablation, as in train."""
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False
    """Print one JSON object and nothing else."""
    repeats: int = 5
    """How often a plan is timed after the warm-up; an update about half as often."""
    actions: int = 6
    """Dimensions of the action."""
    episodes: int = 1000
    """Episodes in the replay that is sampled from: a temporary file each, of 3 MB at 64×64."""
    single: bool = True
    """Also measure one member, at equal numbers of trajectories and decoded frames."""
    config: Settings = field(default_factory=lambda: PRESETS["quick"])

    @classmethod
    def defaults(cls, words: list[str]) -> Bench:
        """Return the settings of the preset and method."""
        return cls(config=preset_config(early_options(words)))

    def run(self, console: Console) -> int:
        """Measure and print."""
        import torch

        from planet_bayes.bench import bench, tables

        if self.config.run.threads:
            torch.set_num_threads(self.config.run.threads)
        with Console(stderr=True, highlight=False).status("measuring") as status:
            report = bench(
                self.config,
                self.preset,
                num_actions=self.actions,
                repeats=self.repeats,
                episodes=self.episodes,
                single=self.single,
                progress=lambda part: status.update(f"measuring: {part}"),
            )
        if self.as_json:
            print(json.dumps(report.flat(), indent=2))
            return 0
        for part in tables(report):
            console.print(part)
        return 0
