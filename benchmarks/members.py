"""How to make particles differ: seven ways to fit a model to the same episodes.

For each run that is named, and each way, a new model is fitted to the run's episodes with equally
many updates. It is judged on episodes that none was fitted to, in and off distribution (see
`planet-bayes diagnose RUN --save FOLDER`, which records them), and by the return of the agent that
plans in it. The table has, for each way and condition, at the horizon:

- RMSE/std, coverage and error correlation of the predicted return (see `planet-bayes diagnose`);
- AUROC of the members' std, for telling the condition from clean episodes;
- the mean return of noise-free episodes, and the processor time of an update, as a multiple of that
  with a shared batch on the same machine.

The ways:

- shared: all members learn from the same batch.
- own: each member draws batches of its own (the paper).
- bootstrap: own batches from a bootstrap sample of the episodes.
- heads: own batches, and a reward head for each member.
- prior: own batches, and a fixed random network added to each member's prior (randomised prior
  functions): a share of the hidden units of its transition keeps its initial weights.
- dropout, sgmcmc: the other posteriors of the package, with shared batches.

Run:  python benchmarks/members.py --runs RUN... --conditions FOLDER...
      python benchmarks/members.py --read members.jsonl           # the table again
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import tyro
from rich.console import Console
from rich.table import Table
from torch import Generator, Tensor, nn

from planet_bayes.config import Config
from planet_bayes.data.episode import read_episode
from planet_bayes.data.folder import RunFolder
from planet_bayes.data.replay import Replay
from planet_bayes.diagnostics import recorded
from planet_bayes.diagnostics.conditions import CONDITIONS
from planet_bayes.diagnostics.report import judge
from planet_bayes.models import LossConfig, WorldModel
from planet_bayes.models.heads import RewardHead
from planet_bayes.models.imagination import Imagination
from planet_bayes.models.posterior.base import MemberLinear
from planet_bayes.models.rssm import Dense, Weights
from planet_bayes.rng import torch_stream
from planet_bayes.runs import Run, load_run
from planet_bayes.training.build import build_agent
from planet_bayes.training.evaluation import evaluate_agent
from planet_bayes.training.learner import Learner
from planet_bayes.types import Belief, Moments, SequenceBatch

POSTERIORS = ("dropout", "sgmcmc")
SHARING = {"bootstrap": "bootstrap", **dict.fromkeys(("shared", *POSTERIORS), "shared")}
"""`learn.batch_sharing` of the ways that do not draw own batches."""
WAYS = ("shared", "own", "bootstrap", "heads", "prior", *POSTERIORS)
FIXED_SHARE = 0.3
"""Share of the prior's hidden units that keep their initial weights, in the way `prior`."""
INSIDE, OUTSIDE = "noise", ("random", "square", "gravity", "motor", "sensors")
"""Conditions of training and others."""
TITLES = {
    "rmse": "RMSE",
    "ratio": "RMSE/std",
    "coverage": "in ±2 std",
    "error_correlation": "error corr.",
    "auroc": "AUROC",
}
STARTS = 77
"""Number of the set of starts of the return: not one of training or of `evaluate`."""


@dataclass(frozen=True)
class Options:
    """What is measured."""

    runs: tuple[Path, ...] = ()
    """Folders of runs. Their episodes and settings are used; their weights are not."""
    conditions: tuple[Path, ...] = ()
    """For each run, the folder of its recorded episodes."""
    ways: tuple[str, ...] = WAYS
    """Ways to fit."""
    updates: int = 1500
    """Updates of each fit."""
    episodes: int = 4
    """Episodes of the return."""
    horizon: int = 15
    """Steps imagined ahead."""
    every: int = 5
    """Steps between the points that are imagined from."""
    write: Path = Path("members.jsonl")
    """Where each finished fit is added. A fit that is there already is not repeated."""
    read: Path | None = None
    """Only make the table of this file."""


class MemberRewardHead(nn.Module):
    """A reward head for each member."""

    def __init__(self, heads: Iterable[RewardHead]) -> None:
        super().__init__()
        self.members = nn.ModuleList(heads)

    def predict(self, features: Tensor) -> Tensor:
        """Return the expected reward ``[..., P, N]`` of features ``[..., P, N, F]``."""
        return torch.stack([head.predict(one) for head, one in self._each(features, -3)], -2)

    def loss(self, features: Tensor, batch: SequenceBatch, config: LossConfig) -> Tensor:
        """Return each member's loss ``[P]``; its batch is its own."""
        found = []
        for index, (head, one) in enumerate(self._each(features, 0)):
            part = dataclasses.replace(
                batch, reward=batch.reward[index : index + 1], mask=batch.mask[index : index + 1]
            )
            found.append(head.loss(one.unsqueeze(0), part, config))
        return torch.cat(found)

    def rescale(self, moments: Mapping[str, Moments]) -> None:
        """Take the std of the reward."""
        for head in self.members:
            cast(RewardHead, head).rescale(moments)

    def _each(self, features: Tensor, axis: int) -> list[tuple[RewardHead, Tensor]]:
        heads = cast(list[RewardHead], list(self.members))
        return list(zip(heads, features.unbind(axis), strict=True))


class OneByOne:
    """The planner's model with a reward head for each member: one imagination for each."""

    def __init__(self, model: WorldModel, head: MemberRewardHead) -> None:
        self.num_particles = model.num_particles
        self.members = [
            Imagination(model.rssm, _member(model.weights(), index), one, "mean")
            for index, one in enumerate(cast(list[RewardHead], list(head.members)))
        ]

    def imagine(self, state: Belief, actions: Tensor, generator: Generator) -> Tensor:
        """Return rewards ``[B, N, P, H]`` of actions ``[B, N, H, A]``."""
        parts = [
            member.imagine(
                Belief(state.deter[index : index + 1], state.stoch[index : index + 1]),
                actions,
                generator,
            )
            for index, member in enumerate(self.members)
        ]
        return torch.cat(parts, 2)


def _member(weights: Weights, index: int) -> Weights:
    layers = {field.name: getattr(weights, field.name) for field in dataclasses.fields(Weights)}
    one = slice(index, index + 1)
    return Weights(
        **{name: Dense(layer.weight[one], layer.bias[one]) for name, layer in layers.items()}
    )


class HeadsModel(WorldModel):
    """A world model with a reward head for each member."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        config, generator = self.config, args[3]
        assert config.latent_noise == "mean"
        features = config.deter + config.stoch
        heads = [RewardHead(features, config, generator) for _ in range(config.num_members)]
        self.heads["reward"] = MemberRewardHead(heads)

    def imagination(self) -> Any:
        """Return the planner's model."""
        return OneByOne(self, cast(MemberRewardHead, self.heads["reward"]))


def fix_share(model: WorldModel, share: float) -> None:
    """Keep the initial weights of a share of the hidden units of each member's prior."""
    hidden = cast(MemberLinear, model.posterior.get_submodule("prior_hidden"))
    out = cast(MemberLinear, model.posterior.get_submodule("prior_out"))
    first = hidden.weight.shape[-1] - round(share * hidden.weight.shape[-1])

    def without_units(gradient: Tensor) -> Tensor:
        return torch.cat([gradient[..., :first], torch.zeros_like(gradient[..., first:])], -1)

    def without_rows(gradient: Tensor) -> Tensor:
        return torch.cat([gradient[:, :first], torch.zeros_like(gradient[:, first:])], 1)

    hidden.weight.register_hook(without_units)
    hidden.bias.register_hook(without_units)
    out.weight.register_hook(without_rows)


def fit(way: str, run: Run, options: Options) -> tuple[Learner, float]:
    """Return a learner that was fitted in one way, and the processor time of an update."""
    episodes = [read_episode(path) for path in sorted(RunFolder(run.path).episodes.glob("*.npz"))]
    sharing = cast(Any, SHARING.get(way, "own"))
    posterior = way if way in POSTERIORS else "ensemble"
    config = dataclasses.replace(
        run.config,
        learn=dataclasses.replace(run.config.learn, batch_sharing=sharing),
        model=dataclasses.replace(run.config.model, posterior=posterior),
    )
    signature = run.agent.signature
    made = HeadsModel if way == "heads" else WorldModel
    model = made(
        signature.observation,
        signature.action.size,
        config.model,
        torch_stream(config.seed, "initialise"),
    )
    learner = Learner(model, config)
    if way == "prior":
        fix_share(learner.model, FIXED_SHARE)
    with tempfile.TemporaryDirectory() as folder:
        replay = Replay(Path(folder))
        for episode in episodes:
            replay.add(episode)
        learner.rescale(replay)
        start = time.process_time()
        for number in range(options.updates):
            learner.update(replay, number)
        return learner, (time.process_time() - start) / options.updates


def measure(way: str, run: Run, conditions: Path, options: Options) -> dict[str, Any]:
    """Return the figures of one way and run."""
    learner, seconds = fit(way, run, options)
    config: Config = learner.config
    agent = build_agent(config, learner.acting_model.eval(), run.agent.signature)
    fitted = dataclasses.replace(run, config=config, agent=agent)
    report = judge(fitted, recorded.load(conditions, fitted), options.horizon, options.every)
    found = {}
    for name, quantities in report.figures().items():
        one = quantities["return"]
        keys = ("rmse", "std", "ratio", "coverage", "rank_correlation", "error_correlation")
        found[name] = {key: float(getattr(one, key)[-1]) for key in keys}
        found[name]["auroc"] = float("nan") if one.auroc is None else float(one.auroc[-1])
    returns = evaluate_agent(config, agent, options.episodes, STARTS)
    return {
        "way": way,
        "task": config.task,
        "seed": config.seed,
        "updates": options.updates,
        "update_ms": seconds * 1e3,
        "returns": returns,
        "conditions": found,
    }


def main() -> None:
    """Measure what is missing and print the table."""
    options = tyro.cli(Options, description=__doc__)
    torch.set_num_threads(1)
    path = options.read or options.write
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    known = {(row["way"], row["task"], row["seed"]) for row in rows}
    for folder, conditions in zip(options.runs, options.conditions, strict=True):
        run = load_run(folder, device="cpu")
        for way in options.ways:
            if (way, run.config.task, run.config.seed) in known:
                continue
            rows.append(measure(way, run, conditions, options))
            with path.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    show(rows)


def show(rows: list[dict[str, Any]]) -> None:
    """Print two tables for each task: a summary in Markdown, and all conditions."""
    console = Console(width=110)
    for task in dict.fromkeys(row["task"] for row in rows):
        of_task = [row for row in rows if row["task"] == task]
        ways = {
            way: [row for row in of_task if row["way"] == way]
            for way in dict.fromkeys(row["way"] for row in of_task)
        }
        print(
            f"\n{task}: mean (lowest, highest) over seeds; return of each seed\n\n{summary(ways)}\n"
        )
        print(f"shared → own, means over seeds\n\n{before_after(ways)}\n")
        console.print("means over seeds:", all_conditions(ways))


def summary(ways: dict[str, list[dict[str, Any]]]) -> str:
    """Return one row for each way: in distribution, off distribution (means), return, time."""
    inside = ("rmse", "ratio", "coverage", "error_correlation")
    titles = ["way", "seeds", *(TITLES[key] for key in inside)]
    titles += ["off: in ±2 std", "off: AUROC", "returns", "time / shared"]
    lines = [titles, ["---"] * len(titles)]
    shared = {row["seed"]: row["update_ms"] for row in ways["shared"]}
    for way, rows in ways.items():
        figures = [[mean_over([row], [INSIDE], key) for row in rows] for key in inside]
        figures += [
            [mean_over([row], OUTSIDE, key) for row in rows] for key in ("coverage", "auroc")
        ]
        lines.append(
            [
                way,
                ", ".join(str(row["seed"]) for row in rows),
                *(
                    f"{statistics.mean(one):.2f} ({min(one):.2f}, {max(one):.2f})"
                    for one in figures
                ),
                ", ".join(f"{statistics.mean(row['returns']):.0f}" for row in rows),
                f"{statistics.mean(row['update_ms'] / shared[row['seed']] for row in rows):.2f}",
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def before_after(ways: dict[str, list[dict[str, Any]]]) -> str:
    """Return one row for each condition: its figures with a shared batch and with own ones."""
    keys = ("ratio", "coverage", "error_correlation", "auroc")
    lines = [["condition", *(TITLES[key] for key in keys)], ["---"] * (1 + len(keys))]
    seeds = {row["seed"] for row in ways["own"]}
    shared = [row for row in ways["shared"] if row["seed"] in seeds]
    for name, condition in CONDITIONS.items():
        cells = [
            " → ".join(f"{mean_over(rows, [name], key):.2f}" for rows in (shared, ways["own"]))
            for key in keys
        ]
        lines.append([condition.title, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def all_conditions(ways: dict[str, list[dict[str, Any]]]) -> Table:
    """Return one row for each way and condition."""
    table = Table("way", "condition", *TITLES.values())
    for way, rows in ways.items():
        for name in rows[0]["conditions"]:
            table.add_row(way, name, *(f"{mean_over(rows, [name], key):.2f}" for key in TITLES))
    return table


def mean_over(rows: list[dict[str, Any]], conditions: Iterable[str], key: str) -> float:
    """Return the mean of a figure over seeds and conditions."""
    return statistics.mean(row["conditions"][name][key] for row in rows for name in conditions)


if __name__ == "__main__":
    main()
