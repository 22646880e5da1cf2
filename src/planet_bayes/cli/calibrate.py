"""``planet-bayes calibrate``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from planet_bayes.cli.evaluate import warn
from planet_bayes.errors import ConfigError

if TYPE_CHECKING:
    from planet_bayes.diagnostics.coverage import Judgement

CHANGED_EPISODES = 8
SHOWN_STEPS = (1, 2, 3, 5, 10, 15, 20, 30, 50)


@dataclass(frozen=True)
class Calibrate:
    """Calibrate how sure an agent is: bands for what it predicts, and an alarm.

    Plays fresh episodes, which the model has not learned from, and writes confidence.json to the
    run's folder. From then on the agent says at every step how sure it is (``carry.confidence``),
    and `planet-bayes export` copies the file. Other fresh episodes, unchanged and changed, show how
    well bands and alarm hold; a figure is in confidence.png.
    """

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """Folder of the run or of an exported agent."""
    episodes: int = 20
    """Episodes to calibrate with."""
    test_episodes: int = 20
    """Other episodes, to judge the bands."""
    changed_episodes: int | None = None
    """Episodes for each change of physics, sensors or camera. 0: none. None: 8, and 0 for a run
    with run.single_environment, which may be a robot."""
    level: float = 0.9
    """Share of the truths that a band contains, at least 0.5 and less than 1."""
    false_alarms: float = 0.001
    """False alarms a step. An alarm that lasts counts once."""
    seed: int = 0
    """Seed of all episodes."""
    log: Path | None = None
    """Play no episodes: calibrate from those in this folder, which this agent has made without
    exploration, and judge with every second one."""
    json: Path | None = None
    """Write all figures to this file."""

    def run(self, console: Console) -> int:
        """Calibrate, print the tables, and write the files."""
        import torch

        from planet_bayes import runs
        from planet_bayes.data import files
        from planet_bayes.data.folder import RunFolder
        from planet_bayes.diagnostics.coverage import calibrate_log, calibrate_run
        from planet_bayes.diagnostics.coverage_figure import draw
        from planet_bayes.diagnostics.logged import older_weights
        from planet_bayes.training import checkpoint

        self._refuse_unused()
        run = runs.load_run(self.folder, device="cpu")
        warn(console, checkpoint.newest_sound(self.folder).damaged.values())
        if self.log is not None:
            warn(console, older_weights(run, self.log))
        torch.set_num_threads(run.config.run.threads or 1)
        paths = RunFolder(self.folder)
        for path in filter(None, (paths.confidence, paths.confidence_figure, self.json)):
            files.check_target(path)  # before minutes are spent
        changed = 0 if run.config.run.single_environment else CHANGED_EPISODES
        if self.changed_episodes is not None:
            changed = self.changed_episodes
        with console.status("logged episodes") as status:
            if self.log is not None:
                found = calibrate_log(run, self.log, self.level, self.false_alarms)
            else:
                found = calibrate_run(
                    run,
                    self.episodes,
                    self.test_episodes,
                    changed,
                    self.level,
                    self.false_alarms,
                    lambda title: status.update(f"episodes: {title}"),
                    self.seed,
                )
        files.write(paths.confidence, found.calibration.to_json())
        _print_bands(console, found, self.false_alarms)
        _print_changes(console, found)
        draw(
            found,
            f"{run.config.task}: {found.calibration.level:.0%} bands",
            paths.confidence_figure,
        )
        if self.json is not None:
            facts = {
                "task": run.config.task,
                "seed": run.config.seed,
                **self._options(changed),
                **found.to_json(),
            }
            files.write(self.json, json.dumps(facts, indent=1) + "\n")
        console.print(f"wrote {paths.confidence} and {paths.confidence_figure}", soft_wrap=True)
        return 0

    def _refuse_unused(self) -> None:
        """Refuse options about episodes to play beside a log, which is all that there is then."""
        if self.log is None:
            return
        played = ("episodes", "test_episodes", "changed_episodes", "seed")
        given = [name for name in played if getattr(self, name) != getattr(Calibrate, name)]
        if given:
            flag = "--" + given[0].replace("_", "-")
            raise ConfigError(f"{flag} is about episodes to play, and --log plays none: omit one.")

    def _options(self, changed: int) -> dict[str, Any]:
        """Return where the episodes are from."""
        if self.log is not None:
            return {"log": str(self.log)}
        counts = {"episodes": self.episodes, "test_episodes": self.test_episodes}
        return {**counts, "changed_episodes": changed, "episode_seed": self.seed}


def _print_bands(console: Console, found: Judgement, asked: float) -> None:
    known = found.calibration
    console.print(
        f"Bands of {known.level:.0%}, from {known.steps} steps of {known.episodes} episodes, "
        f"judged on later ones (mean return {found.total:.1f}).",
        soft_wrap=True,
    )
    titles = ("quantity", "steps ahead", "coverage", "adapted", "width", "rank corr.")
    table = Table(*titles, box=None, pad_edge=False)
    for name, held in found.held.items():
        for step in sorted({*(one for one in SHOWN_STEPS if one < known.horizon), known.horizon}):
            values = held.calibrated, held.adapted, held.width, held.rank_correlation
            coverage, adapted, width, ranks = (value[step - 1] for value in values)
            table.add_row(
                *(name, str(step), f"{coverage:.3f}", f"{adapted:.3f}"),
                *(f"{width:.3g}", f"{ranks:.2f}"),
            )
    console.print(table)
    rate = known.surprise.rate
    least = f"; so few held-out steps allow {1000 * rate:.1f}" if rate > asked else ""
    console.print(
        f"False alarms: {1000 * found.false_alarms:.1f} in 1000 steps (set: {1000 * asked:.1f}"
        f"{least}), counted on {found.steps} steps.",
        soft_wrap=True,
    )


def _print_changes(console: Console, found: Judgement) -> None:
    if found.noticed:
        console.print(
            f"\nChanges at step {found.start}. AUROC and alarms: within 50 steps. Coverage: from "
            "30 steps after the change on, mean over steps ahead, without / with tracking.",
            soft_wrap=True,
        )
        names = list(found.calibration.entries)
        table = Table("change", "return", "AUROC", "alarms", *names, box=None, pad_edge=False)
        for name, one in found.noticed.items():
            table.add_row(
                *(_title(name), f"{one.total:.0f}", f"{one.auroc:.2f}", f"{one.alarms:.2f}"),
                *(f"{one.calibrated[key]:.2f} / {one.adapted[key]:.2f}" for key in names),
            )
        console.print(table)
    for name, reason in found.skipped.items():
        console.print(f"skipped {_title(name)}: {reason}", soft_wrap=True)


def _title(name: str) -> str:
    from planet_bayes.diagnostics.changes import CHANGES

    return CHANGES[name].title
