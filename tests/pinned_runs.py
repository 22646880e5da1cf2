"""Tiny runs whose results are pinned: ``python pinned_runs.py FOLDER`` prints their hashes.

The hashes cover values and shapes, not names or file formats, so that a change of structure moves
none of them. The environment variables in `PORTABLE` make PyTorch use the same arithmetic on every
x86-64 processor of one maker. Start this script with them: PyTorch reads them when it is imported.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from planet_bayes import runs
from planet_bayes.config import Config
from planet_bayes.data.rows import read_metrics
from planet_bayes.envs import EnvConfig
from planet_bayes.training import checkpoint
from tiny_run import TINY, replaced

OLD = Path(__file__).parent / "data" / "format-0.1"
"""Runs that version 0.1 began and did not end, and an agent that it exported."""

PORTABLE = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OMP_NUM_THREADS": "1",
    "PLANET_BAYES_KERNEL": "torch",
}


def configurations() -> dict[str, Config]:
    """Return the pinned runs by name."""
    pixels = EnvConfig(observation=("pixels",), image_size=32, blur=5, max_steps=6)
    laptop = replaced(
        TINY,
        env=pixels,
        model={
            "image_depth": 2,
            "decoder_depth": 3,
            "decoder_layers": 1,
            "image_bits": 8,
            "activation": "elu",
            "latent_noise": "mean",
            "belief": "mean",
        },
        loss={"decode_fraction": 0.5},
        planner={"execute": "mean", "candidate_decay": 0.7, "warm_candidates": 2, "keep_elites": 3},
        collect={"episodes": 1},
        learn={"onset_share": 0.3, "batch_sharing": "shared"},
    )
    paper = replaced(
        TINY,
        env=dataclasses.replace(pixels, image_size=64, blur=1),
        model={"image_depth": 2, "normalise": False},
        loss={"free_nats": 3.0, "kl_balance": None},
        collect={"episodes": 1},
        learn={"ema_decay": 0.0, "agent_weight": 1.0},
    )
    found = {"sensors": TINY, "pixels": laptop, "pixels-as-in-the-paper": paper}
    for method in ("planet", "e_only", "m_only"):
        found[method] = TINY.with_method(method)
    found["overlap"] = replaced(TINY, collect={"overlap": True})
    return found


def digest(arrays: Iterable[np.ndarray]) -> str:
    """Return one hash of arrays, whatever their order and names."""
    parts = sorted(
        hashlib.sha256(
            f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes()
        ).hexdigest()
        for array in arrays
    )
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def hashes(run: Path) -> dict[str, str]:
    """Return the hashes of weights with Adam's moments, of episodes and of metrics."""
    newest = checkpoint.latest(run)
    weights = [
        tensor.numpy()
        for name in ("model.safetensors", "optimiser.safetensors")
        for tensor in load_file(newest / name).values()
    ]
    episodes = hashlib.sha256()
    for path in sorted((run / "episodes").glob("*.npz")):
        with np.load(path) as arrays:
            kept = [array for name, array in arrays.items() if name != "terminal"]
            episodes.update(digest(kept).encode())
    rows = read_metrics(run / "metrics.jsonl")
    for row in rows:
        del row["minutes"], row["cpu_minutes"]
    return {
        "weights": digest(weights),
        "episodes": episodes.hexdigest(),
        "metrics": hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest(),
    }


def main(folder: Path) -> None:
    """Train every run, go on with those of version 0.1, and print the results as JSON."""
    torch.set_num_threads(1)
    trained, resumed = {}, {}
    for name, config in configurations().items():
        path, ended = runs.train(config, folder / name)
        assert ended
        trained[name] = hashes(path)
    for name in ("sensors", "pixels"):
        path = folder / f"old-{name}"
        shutil.copytree(OLD / name, path)
        runs.train(runs.resume_config(path), path, resume=True)
        resumed[name] = hashes(path)
    shutil.copytree(OLD / "exported-planet", folder / "old-agent")
    evaluated = runs.evaluate(runs.load_run(folder / "old-agent", device="cpu"), 2)
    found = {"trained": trained, "resumed": resumed, "evaluated": evaluated}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
