"""What confidence costs: a control step with and without a monitor, in processor time.

Pairs of steps are interleaved in one process, so that a busy machine slows both. The weights are
random and the calibration is made up: neither changes what is computed. With --curiosity, what the
bonus of curiosity costs instead.

Run:  python benchmarks/confidence_cost.py [--pairs 60] [--curiosity] [--json FILE]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from planet_bayes.agent import Agent, Carry
from planet_bayes.confidence.calibration import Calibration, Surprise
from planet_bayes.confidence.conformal import Bands
from planet_bayes.config import PRESETS
from planet_bayes.models import Image, Modality, Vector
from planet_bayes.models.curiosity import CuriousImagination
from planet_bayes.spaces import Box, Signature
from planet_bayes.training.build import build_agent, build_model

OBSERVATIONS: dict[str, Modality] = {"quick": Vector(5), "laptop": Image(32)}
"""By preset: five sensors, or one camera."""


def made_up(agent: Agent) -> Calibration:
    """Return a calibration of the right shape."""
    entries = {"reward": 1, "return": 1, **agent.signature.vector_sizes()}
    one = np.ones((agent.planner.horizon, sum(entries.values())))
    bands = Bands(one, one, 0 * one, one, one)
    surprise = Surprise(0.0, 1.0, 1e9, 0.001)
    still = (1000,) * (one.shape[1] - 2)
    return Calibration(0.9, entries, bands, surprise, still, 1, 1, "")


def agents(preset: str) -> tuple[Agent, Agent]:
    """Return an agent of a preset without and with a monitor."""
    config = PRESETS[preset]
    observed = OBSERVATIONS[preset]
    name = "sensors" if isinstance(observed, Vector) else "camera"
    signature = Signature({name: observed}, Box((-1.0,), (1.0,)))
    env = dataclasses.replace(config.env, observation=(name,))
    plain = build_agent(
        dataclasses.replace(config, env=env),
        build_model(config, signature, "cpu").eval(),
        signature,
    )
    return plain, plain.watched(made_up(plain))


def step(
    agent: Agent,
    carry: Carry,
    observation: Any,
    seed: int,
    imagination: CuriousImagination | None = None,
) -> tuple[float, Carry]:
    """Return the processor time of one action, in seconds."""
    generator = torch.Generator().manual_seed(seed)
    began = time.process_time()
    prepared = [agent.signature.prepare(observation)]
    _, carry, _ = agent.act_on_prepared(
        carry, prepared, generator, rewards=[0.5], imagination=imagination
    )
    return time.process_time() - began, carry


def measure(preset: str, pairs: int, curious: bool = False) -> dict[str, Any]:
    """Return times without and with a monitor, or curiosity, and the share that it adds."""
    plain_agent, watched_agent = agents(preset)
    both = (plain_agent, plain_agent if curious else watched_agent)
    bonus = CuriousImagination(plain_agent.model, 1.0) if curious else None
    rng = np.random.default_rng(0)
    (name, modality), *_ = both[0].signature.observation.items()
    carries = [agent.initial() for agent in both]
    times: list[list[float]] = [[], []]
    for number in range(pairs + both[0].planner.horizon):
        raw = (255 * rng.random(modality.shape)).astype(modality.dtype)
        for index in (0, 1) if number % 2 else (1, 0):
            imagination = bonus if index else None
            spent, carries[index] = step(
                both[index], carries[index], {name: raw}, number, imagination
            )
            if number >= both[0].planner.horizon:  # the monitor's memory is full
                times[index].append(spent)
    plain, watched = (np.array(one) for one in times)
    extra = {
        "median": float(np.median(watched - plain)),
        "fastest": float(watched.min() - plain.min()),
    }
    return {
        "preset": preset,
        "pairs": pairs,
        "seconds": {"median": float(np.median(plain)), "fastest": float(plain.min())},
        "extra_seconds": extra,
        "share": {
            "median": extra["median"] / float(np.median(plain)),
            "fastest": extra["fastest"] / float(plain.min()),
        },
    }


def main() -> None:
    """Measure both presets and print a table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pairs", type=int, default=60)
    options.add_argument("--curiosity", action="store_true")
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    torch.set_num_threads(1)
    rows = [measure(preset, given.pairs, given.curiosity) for preset in OBSERVATIONS]
    added = "curiosity" if given.curiosity else "monitor"
    print(f"| preset | step, ms (median, fastest) | {added}, ms | share |\n|---|---|---|---|")
    for row in rows:
        cells = (
            f"{1000 * row[key]['median']:.2f}, {1000 * row[key]['fastest']:.2f}"
            for key in ("seconds", "extra_seconds")
        )
        share = row["share"]
        shares = f"{share['median']:.1%}, {share['fastest']:.1%}"
        print(f"| `{row['preset']}` | {' | '.join(cells)} | {shares} |")
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
