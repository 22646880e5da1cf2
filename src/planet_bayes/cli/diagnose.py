"""``planet-bayes diagnose``."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from planet_bayes.errors import ConfigError

if TYPE_CHECKING:
    from planet_bayes.diagnostics.foresight import Foresight
    from planet_bayes.diagnostics.report import Figures, Report
    from planet_bayes.runs import Run

EPISODES = 3
EXPLORATION = 0.3
SHOWN_STEPS = (1, 2, 3, 5, 10, 15, 20, 30, 50)
TITLES = ("RMSE", "std", "RMSE\n/std", "in ±2\nstd", "rank\ncorr.", "error\ncorr.")
"""In two lines, so that a table of conditions fits 80 columns."""


@dataclass(frozen=True)
class Diagnose:
    """Show how far ahead a run's model predicts, and whether its members know when it errs.

    On fresh episodes, for each step ahead: the error of the predicted reward, that of a constant
    prediction, and the correlation of the predicted return up to that step with the real one. Then
    for the return and each observation: the error and the members' disagreement.
    """

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """Folder of the run or of an exported agent."""
    episodes: int | None = None
    """Fresh episodes (for each condition). Without: 3."""
    horizon: int = 15
    """Steps imagined ahead."""
    exploration: float | None = None
    """Std of the noise added to the agent's actions. Without: 0.3, as in collection."""
    every: int = 5
    """Steps between the points that are imagined from."""
    conditions: bool = False
    """Also compare conditions: unusual actions, changed physics, noisy sensors."""
    save: Path | None = None
    """Record the episodes of all conditions to this new folder. It implies --conditions."""
    recorded: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Use the episodes in this folder (see --save) and make none. It implies --conditions."""
    json: Path | None = None
    """Write all figures at all steps to this file."""

    def run(self, console: Console) -> int:
        """Print the tables, and write the files that were asked for."""
        import torch

        from planet_bayes import runs
        from planet_bayes.data import files
        from planet_bayes.diagnostics.conditions import CONDITIONS, USUAL

        compares = self.conditions or self.save is not None or self.recorded is not None
        self._check(compares)
        run = runs.load_run(self.folder, device="cpu")
        torch.set_num_threads(run.config.run.threads or 1)
        report = self._compared(run, console) if compares else self._usual(run)
        shown = report.foresight.get(USUAL)
        if shown is not None:
            if compares:
                console.print(f"Step by step: {CONDITIONS[USUAL].title}.")
            _print_foresight(console, shown)
            _print_steps(console, report, self.horizon)
        if compares:
            _print_conditions(console, report, self.horizon)
        if self.json is not None:
            options = {"horizon": self.horizon, "every": self.every}
            facts = {"run": run.path.name, "task": run.config.task, **options, **report.to_json()}
            files.write(self.json, json.dumps(facts, indent=2) + "\n")
        return 0

    def _check(self, compares: bool) -> None:
        """Refuse options that would have no effect."""
        if compares and self.exploration is not None:
            raise ConfigError(
                "--exploration has no effect on conditions, which have noise of their own; leave "
                "it out."
            )
        if self.recorded is None:
            return
        if self.episodes is not None:
            raise ConfigError("--from takes all recorded episodes; leave out --episodes.")
        if self.save is not None:
            raise ConfigError("--from makes no episodes that --save could record; choose one.")

    def _usual(self, run: Run) -> Report:
        from planet_bayes.diagnostics.conditions import USUAL
        from planet_bayes.diagnostics.foresight import diagnose
        from planet_bayes.diagnostics.report import Report

        episodes = EPISODES if self.episodes is None else self.episodes
        exploration = EXPLORATION if self.exploration is None else self.exploration
        return Report({USUAL: diagnose(run, episodes, self.horizon, exploration, self.every)})

    def _compared(self, run: Run, console: Console) -> Report:
        from planet_bayes.diagnostics import recorded
        from planet_bayes.diagnostics.conditions import collect
        from planet_bayes.diagnostics.foresight import check_counts
        from planet_bayes.diagnostics.report import judge

        if self.recorded is not None:
            return judge(run, recorded.load(self.recorded, run), self.horizon, self.every)
        episodes = EPISODES if self.episodes is None else self.episodes
        check_counts(episodes=episodes, horizon=self.horizon, every=self.every)
        if self.save is not None:
            recorded.check_new(self.save)
        with console.status("") as status:
            collection = collect(run, episodes, lambda title: status.update(f"episodes: {title}"))
        if self.save is not None:
            recorded.save(collection, run, self.save)
        return judge(run, collection, self.horizon, self.every)


def _print_foresight(console: Console, foresight: Foresight) -> None:
    titles = ("step ahead", "error of reward", "of a constant", "correlation of returns")
    table = Table(*titles, box=None)
    columns = foresight.error(), foresight.real.std(0), foresight.correlation()
    for step, (error, constant, correlation) in enumerate(zip(*columns, strict=True), 1):
        table.add_row(str(step), f"{error:.3f}", f"{constant:.3f}", f"{correlation:.2f}")
    console.print(table)


def _print_steps(console: Console, report: Report, horizon: int) -> None:
    """Print one table for each quantity, with a row for some steps."""
    from planet_bayes.diagnostics.conditions import USUAL

    if report.members == 1:
        console.print("\nThe model has one member: there is no disagreement to compare.")
        return
    steps = sorted({*(step for step in SHOWN_STEPS if step < horizon), horizon})
    for quantity, found in report.figures()[USUAL].items():
        what = "return up to the step" if quantity == "return" else f"{quantity} at the step"
        console.print(f"\nUncertainty of {report.members} members, {what}:")
        table = Table("step ahead", *TITLES, box=None, pad_edge=False)
        for step in steps:
            table.add_row(str(step), *_cells(found, step))
        table.add_row("calibrated", *_reference(report.members))
        console.print(table)
    share = report.foresight[USUAL].sampling_share()
    if share is not None:
        console.print(
            f"Drawn latent states, not weights, make {share[-1]:.0%} of the members' variance of "
            f"the return over {horizon} steps.",
            soft_wrap=True,
        )


def _print_conditions(console: Console, report: Report, horizon: int) -> None:
    """Print one table for each quantity, with a row for each condition."""
    from planet_bayes.diagnostics.conditions import CONDITIONS

    found = report.figures()
    quantities = list(next(iter(found.values())))
    for quantity in quantities:
        what = f"return over {horizon} steps" if quantity == "return" else quantity
        ahead = "" if quantity == "return" else f" {horizon} steps ahead"
        console.print(f"\nConditions, {what}{ahead}:")
        table = Table("condition", "points", *TITLES, "AUROC", box=None, pad_edge=False)
        for name, by_quantity in found.items():
            figures, points = by_quantity[quantity], len(report.foresight[name].real)
            auroc = math.nan if figures.auroc is None else figures.auroc[horizon - 1]
            cells = (*_cells(figures, horizon), _cell(auroc, 2))
            table.add_row(CONDITIONS[name].title, str(points), *cells)
        if report.members > 1:
            table.add_row("calibrated", "", *_reference(report.members), "")
        console.print(table)
    for name, reason in report.skipped.items():
        console.print(f"skipped {CONDITIONS[name].title}: {reason}", soft_wrap=True)


def _cells(figures: Figures, step: int) -> list[str]:
    columns: list[tuple[Any, int]] = [
        (figures.rmse, 3),
        (figures.std, 3),
        (figures.ratio, 2),
        (figures.coverage, 2),
        (figures.rank_correlation, 2),
        (figures.error_correlation, 2),
    ]
    return [_cell(values[step - 1], digits) for values, digits in columns]


def _cell(value: float, digits: int) -> str:
    if math.isnan(value):
        return "–"
    return "∞" if math.isinf(value) else f"{value:.{digits}f}"


def _reference(members: int) -> list[str]:
    from planet_bayes.diagnostics.calibration import calibrated

    expected = calibrated(members)
    return [
        *("", "", f"{expected.ratio:.2f}", f"{expected.coverage:.2f}"),
        *("", f"{expected.error_correlation:.2f}"),
    ]
