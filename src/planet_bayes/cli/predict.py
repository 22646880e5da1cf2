"""``planet-bayes predict``."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import tyro
from rich.console import Console
from rich.table import Table

from planet_bayes.diagnostics.prediction import PredictionOptions
from planet_bayes.errors import ConfigError

if TYPE_CHECKING:
    from planet_bayes.diagnostics.prediction import RunPrediction
    from planet_bayes.runs import Run
    from planet_bayes.types import Episode

EPISODES = 3
RATE = 10.0
"""Frames per second of the film."""
SHOWN_STEPS = (1, 2, 3, 5, 10, 15, 20, 30, 45)


class Targets(NamedTuple):
    """Files that are written; None: not wanted."""

    figure: Path
    film: Path | None
    traversal: Path | None


@dataclass(frozen=True)
class Predict:
    """Draw what a run's members predict open loop, beside what happened.

    A few observations are filtered; then the members imagine the actions that were really taken.
    The figure has the truth on top and a row for each member, or fans for sensors. The table shows
    how error and disagreement of the members grow with the steps ahead. Writes prediction.png and
    prediction.mp4 to the folder of the first run.
    """

    folders: tyro.conf.Positional[Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN")]]
    """Folders of runs or of exported agents, from top to bottom. They must sense and act alike."""
    options: Annotated[PredictionOptions, tyro.conf.arg(name="")] = field(
        default_factory=PredictionOptions
    )
    episodes: int | None = None
    """Fresh episodes of the first run's agent, with the noise of training, for the table. Without:
    3. The first is that of the figure."""
    episode: int | None = None
    """Predict this stored episode of the first run and make none."""
    log: Path | None = None
    """Predict the episode in this file and make none."""
    to: Path | None = None
    """The figure to write (PNG). The film gets the same name. Without: in the first run's
    folder."""
    video: bool = True
    """Write the film too."""
    traversal: bool = False
    """Also draw what each dimension of the stochastic state means to the decoder of the first run,
    from the belief of one member after as many observations as the context has."""
    member: int = 1
    """The member of the traversal, from 1."""
    json: Path | None = None
    """Write the figures at all steps to this file."""

    def run(self, console: Console) -> int:
        """Predict, print the tables and write the files."""
        import torch

        from planet_bayes import runs
        from planet_bayes.data import files
        from planet_bayes.data.folder import labels
        from planet_bayes.diagnostics.prediction import check_alike, predict_run

        self._check()
        loaded = [runs.load_run(path, device="cpu") for path in self.folders]
        check_alike(loaded)
        members = loaded[0].agent.model.num_particles
        if self.traversal and not 1 <= self.member <= members:
            raise ConfigError(f"member must be from 1 to {members}, got {self.member}.")
        targets = self._targets(loaded[0])
        for target in filter(None, (*targets, self.json)):
            files.check_target(target)
        torch.set_num_threads(loaded[0].config.run.threads or 1)
        with console.status("episodes"):
            episodes = self._episodes(loaded[0])
        names = labels([run.path for run in loaded])
        found = [
            predict_run(run, episodes, self.options, name)
            for run, name in zip(loaded, names, strict=True)
        ]
        for one in found:
            _print_table(console, one, len(episodes), self.options)
        self._write(console, found, loaded[0], targets)
        if targets.traversal is not None:
            self._traverse(console, loaded[0], episodes[0], targets.traversal)
        return 0

    def _check(self) -> None:
        """Refuse options that contradict each other, before minutes are spent."""
        if not self.folders:
            raise ConfigError("name at least one run to predict with.")
        sources = {"--episodes": self.episodes, "--episode": self.episode, "--log": self.log}
        given = [name for name, value in sources.items() if value is not None]
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(given)} exclude each other; choose one.")
        if self.to is not None and self.to.suffix != ".png":
            raise ConfigError(f"the figure is a PNG; {self.to} does not end in .png.")

    def _targets(self, first: Run) -> Targets:
        """Return the images and films to write."""
        from planet_bayes.data.folder import RunFolder

        folder, to = RunFolder(first.path), self.to
        film = to.with_suffix(".mp4") if to else folder.prediction_video
        traversal = to.with_stem(f"{to.stem}-traversal") if to else folder.traversal_figure
        return Targets(
            to or folder.prediction_figure,
            film if self.video else None,
            traversal if self.traversal else None,
        )

    def _episodes(self, run: Run) -> list[Episode]:
        from planet_bayes.diagnostics import prediction

        if self.log is not None:
            return prediction.logged_episodes(run, self.log, self.options)
        if self.episode is not None:
            return prediction.stored_episode(run, self.episode, self.options)
        count = EPISODES if self.episodes is None else self.episodes
        return prediction.fresh_episodes(run, count, self.options)

    def _write(
        self, console: Console, found: Sequence[RunPrediction], first: Run, targets: Targets
    ) -> None:
        from planet_bayes.data import files
        from planet_bayes.diagnostics.prediction_figure import draw

        if self.json is not None:
            facts = {
                "task": first.config.task,
                **vars(self.options),
                "runs": [one.to_json() for one in found],
            }
            files.write(self.json, json.dumps(facts, indent=2) + "\n")
        draw(found, f"{first.config.task}: open-loop prediction", targets.figure)
        written = [targets.figure]
        if targets.film is not None:
            from planet_bayes.diagnostics.prediction_film import film
            from planet_bayes.training.video import write_video

            write_video(film(found), targets.film, RATE)
            written.append(targets.film)
        console.print(f"wrote {' and '.join(map(str, written))}", soft_wrap=True)

    def _traverse(self, console: Console, run: Run, episode: Episode, target: Path) -> None:
        from planet_bayes.diagnostics.traversal import draw, traverse
        from planet_bayes.rng import torch_stream

        stream = torch_stream(run.config.seed, "predict-traversal")
        entry = self.options.start + self.options.context - 1
        found = traverse(run.agent.model, episode, entry, self.member - 1, stream)
        console.print(
            f"Total correlation of the stochastic state of member {self.member}: "
            f"{found.total_correlation:.2f} nats over {len(episode)} beliefs. Root mean square "
            "change of the decoded observations, by dimension: "
            + ", ".join(f"{number + 1}: {found.effect[number]:.3f}" for number in found.order)
            + ".",
            soft_wrap=True,
        )
        draw(found, f"{run.config.task}: dimensions of s of member {self.member}", target)
        console.print(f"wrote {target}", soft_wrap=True)


def _print_table(
    console: Console, found: RunPrediction, episodes: int, options: PredictionOptions
) -> None:
    """Print error, disagreement and their rank correlation for some steps ahead."""
    points, steps = len(found.foresight.real), options.steps
    console.print(
        f"{found.label}: {_counted(points, 'starting point')} in {_counted(episodes, 'episode')}, "
        f"{_counted(options.context, 'observation')} of context each. RMSE: error of the members' "
        "mean. std: their disagreement. rank: Spearman's correlation of both over starting points. "
        "Reward and return are in their own units, observations in those of training.",
        soft_wrap=True,
    )
    figures = found.figures()
    names = list(figures)
    for some in (names[first : first + 3] for first in range(0, len(names), 3)):  # 80 columns
        titles = [title for name in some for title in (f"{name}\nRMSE", "\nstd", "\nrank")]
        table = Table("steps\nahead", *titles, box=None, pad_edge=False)
        for step in sorted({*(one for one in SHOWN_STEPS if one < steps), steps}):
            cells = [
                _cell(values[step - 1], digits)
                for one in (figures[name] for name in some)
                for values, digits in ((one.rmse, 3), (one.std, 3), (one.rank_correlation, 2))
            ]
            table.add_row(str(step), *cells)
        console.print(table)
    if found.shown.members == 1:
        console.print("The model has one member: there is no disagreement to compare.")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _cell(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "–"
