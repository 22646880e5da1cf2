"""Evaluate a trained run with other settings of its planner: the same weights, the same starts.

``python -m planet_bayes.experiments.replan runs/NAME --planner.keep-elites 0`` tells in minutes
what a change of the planner does to an agent that has learned, though not what it would do to its
learning. What is not named is as the run has it. ``--env.max-steps`` makes episodes shorter.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from rich.console import Console

from planet_bayes import config as configuration
from planet_bayes import runs
from planet_bayes.errors import ConfigError
from planet_bayes.experiments.settings import OnRun, call, own_settings, parse

PLANNING = (
    "threads",
    "num_trajectories",
    "env.max_steps",
    "env.timeout",
    "model.belief",
    "model.latent_noise",
    "model.latent_samples",
)
"""Settings besides the planner's own that may differ from the run's: learning is over."""


@dataclass(frozen=True)
class Options(OnRun):
    """What is evaluated."""

    episodes: int = 6
    """Noise-free episodes, planned as one batch."""
    starts: int = 0
    """Number of the set of starts; 0 is the one of `planet-bayes evaluate`."""


def replan(options: Options) -> list[float]:
    """Return the returns of the run's agent under the settings of ``options``."""
    saved = own_settings(options.run)
    for name in sorted(configuration.differences(saved, options.config)):
        if name not in PLANNING and not name.startswith("planner."):
            raise ConfigError(
                f"{name} cannot be changed in an agent that has learned. What can: all settings "
                f"of the planner, {', '.join(PLANNING)}."
            )
    torch.set_num_threads(options.config.threads or 1)
    run = runs.load_run(options.run, device="cpu", changed=options.config)
    return runs.evaluate(run, options.episodes, options.starts)


def main(words: list[str]) -> None:
    """Print the mean, the lowest and the highest return, and all of them."""
    options = parse(Options, words)
    began = time.monotonic()
    returns = replan(options)
    Console(soft_wrap=True, highlight=False).print(
        f"mean {np.mean(returns):.1f}, lowest {min(returns):.1f}, highest {max(returns):.1f}; "
        f"{', '.join(f'{value:.1f}' for value in returns)}; {time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    call(main)
