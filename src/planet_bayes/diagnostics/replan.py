"""Evaluate a trained agent with other settings of its planner: same weights, same starts.

It shows within minutes what a change of the planner does to an agent that has learned. It does not
show what the change would do to the learning.
"""

from __future__ import annotations

from pathlib import Path

from planet_bayes.config import Config, differences
from planet_bayes.errors import ConfigError
from planet_bayes.runs import evaluate, load_run
from planet_bayes.training import checkpoint

REPLANNABLE = (
    *("run.threads", "run.single_environment"),
    *("env.max_steps", "env.timeout"),
    *("model.belief", "model.latent_noise"),
)
"""Settings besides the groups ``planner`` and ``agent`` that may differ from the run's: no weights
depend on them."""


def is_replannable(name: str) -> bool:
    """Return whether a setting, by its dotted name, may change in an agent that has learned."""
    return name in REPLANNABLE or name.startswith(("planner.", "agent."))


def check_replannable(saved: Config, changed: Config) -> None:
    """Refuse changes of settings that the weights depend on.

    Args:
        saved: The run's own settings.
        changed: The settings to act with.
    """
    for name in sorted(differences(saved, changed)):
        if not is_replannable(name):
            raise ConfigError(
                f"{name} cannot be changed in an agent that has learned. What can: planner.*, "
                f"agent.*, {', '.join(REPLANNABLE)}."
            )


def replan(run: Path, changed: Config, episodes: int = 6, starts: int = 0) -> list[float]:
    """Return the returns of a run's agent with other settings of its planner.

    Args:
        run: The run's folder.
        changed: The settings to act with (see `check_replannable`).
        episodes: Noise-free episodes.
        starts: Number of the set of starts; 0 is the one of `planet-bayes evaluate`.
    """
    check_replannable(checkpoint.load_config(checkpoint.latest(run)), changed)
    return evaluate(load_run(run, device="cpu", changed=changed), episodes, starts)
