"""Calibrate from logged episodes: no environment is needed.

The monitor predicts what follows if the agent carries out its plan. So a log says something about
its bands only if the same agent made the log, without exploration noise. The plans are not in the
log. They are made again: the agent filters the logged observations and actions, and plans at every
step. Planning draws random numbers, so the plans are not the same, but alike. Whether they are is
checked: logged actions must not differ from the agent's by much more than its own do from each
other when it plans again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from planet_bayes.agent import Agent, Prepared
from planet_bayes.data import files
from planet_bayes.data.folder import RunFolder, weights_file
from planet_bayes.diagnostics.watching import Watched, watched
from planet_bayes.errors import ConfigError
from planet_bayes.runs import Run
from planet_bayes.training.collect import Streams, episode_streams
from planet_bayes.training.offline import load_log, logged_episode, logged_paths, logged_sum
from planet_bayes.training.weights import digest
from planet_bayes.types import Episode

MAX_RATIO = 3.0
"""Largest difference of logged actions from the agent's, in differences of its own ones."""
LEAST_DIFFERENCE = 0.02
"""A difference of actions that never matters."""
REPLAN_EVERY = 5
"""Steps between those at which the agent plans twice."""


@dataclass(frozen=True)
class Difference:
    """Squared differences of actions, each a list over steps."""

    logged: list[float]
    """Of logged actions from those of the agent."""
    own: list[float]
    """Of two actions that the agent plans at the same step."""


def watch_log(
    run: Run, agent: Agent, folder: Path, name: str, episodes: Sequence[int]
) -> list[Watched]:
    """Return what an agent with a monitor expects in logged episodes, and what happened.

    Args:
        run: The run, on the CPU.
        agent: Its agent with a monitor.
        folder: The log. `refuse_known` checks it.
        name: Of the streams of randomness.
        episodes: Numbers of the episodes, in the order of their names.
    """
    paths, made = logged_paths(folder), []
    for number in episodes:
        streams = episode_streams(0, f"log-{name}", number, "cpu")
        episode = logged_episode(paths[number], run.agent.signature)
        difference = Difference([], [])
        made.append(watch_logged(agent, episode, streams, difference))
        check(difference, paths[number])
    return made


def refuse_known(run: Run, folder: Path) -> None:
    """Refuse a log that holds what the run has learned from, an episode twice, or damage."""
    own = RunFolder(run.path)
    learned = set(files.read_sums(own.episodes).values())
    if own.log.is_file():
        learned |= {file.sha256 for file in load_log(own.log).files}
    paths, seen = logged_paths(folder), dict[str, Path]()
    written = files.read_sums(paths[0].parent)
    for path in paths:
        found = logged_sum(path, written)
        if found in learned or path.parent.resolve() == own.episodes.resolve():
            raise ConfigError(
                f"{path} holds what the run has learned from, so bands would be too narrow; log "
                "other episodes of this agent."
            )
        if found in seen:
            raise ConfigError(
                f"{path.name} and {seen[found].name} in {folder} are the same episode, and what "
                "calibrates must not judge; leave one out."
            )
        seen[found] = path


def older_weights(run: Run, folder: Path) -> list[str]:
    """Return a warning if other weights than the run's newest played the episodes in a folder."""
    path = weights_file(folder)
    if not path.is_file() or path.read_text().strip() == digest(run.agent.model):
        return []
    return [
        f"{folder} is an evaluation of other weights than the newest of {run.path}, so the bands "
        "are for an agent that acts a little differently. Training that ends, or calibrating with "
        "fresh episodes, mends it."
    ]


def watch_logged(
    agent: Agent, episode: Episode, streams: Streams, difference: Difference
) -> Watched:
    """Return what the agent expects at each step of one logged episode.

    Args:
        agent: The agent with a monitor.
        episode: The logged episode.
        streams: The randomness of its plans.
        difference: Where differences of actions are added.
    """
    carry, made, seen = agent.initial(), [], []
    for step in range(len(episode) - 1):
        observation: Prepared = {key: values[step] for key, values in episode.observation.items()}
        given = [float(episode.reward[step])] if step else None
        before = carry
        action, carry, _ = agent.act_on_prepared(
            before, [observation], streams.agent, rewards=given
        )
        assert carry.memory is not None
        made.append(carry.memory)
        seen.append(observation)
        executed = episode.action[step + 1]
        difference.logged.append(float(np.square(action[0] - executed).mean()))
        if step % REPLAN_EVERY == 0:
            again, _, _ = agent.act_on_prepared(before, [observation], streams.agent)
            difference.own.append(float(np.square(action[0] - again[0]).mean()))
        carry = dataclasses.replace(carry, action=torch.from_numpy(executed)[None])
    rewards = episode.reward.astype(np.float64)
    return watched(agent, made, seen, rewards[:-1], float(rewards.sum()))


def check(difference: Difference, path: Path) -> None:
    """Refuse an episode that another controller made."""
    logged, own = (float(np.sqrt(np.mean(part))) for part in vars(difference).values())
    if logged > max(LEAST_DIFFERENCE, MAX_RATIO * own):
        raise ConfigError(
            f"{path}: the logged actions differ from this agent's by {logged:.2g} (root mean "
            f"square), and its own from each other by {own:.2g} when it plans again. Bands are for "
            "what follows if this agent acts: log episodes of this agent, without exploration."
        )
