"""When two runs are the same: to the bit, but for the clock."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from planet_bayes.data.rows import read_metrics
from planet_bayes.training import checkpoint


def newest_weights(run: Path) -> dict[str, torch.Tensor]:
    """Return the weights and Adam's moments in the newest checkpoint."""
    found = checkpoint.latest(run)
    model = load_file(found / "model.safetensors")
    return model | {f"adam.{k}": v for k, v in load_file(found / "optimiser.safetensors").items()}


def assert_same_run(left: Path, right: Path) -> None:
    """Weights, moments, replay and metrics are equal to the bit; wall-clock is left out."""
    a, b = newest_weights(left), newest_weights(right)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    rows = [read_metrics(run / "metrics.jsonl") for run in (left, right)]
    for row in (*rows[0], *rows[1]):
        del row["minutes"], row["cpu_minutes"]
    assert rows[0] == rows[1]
    episodes = [
        {path.name: path.read_bytes() for path in (run / "episodes").iterdir()}
        for run in (left, right)
    ]
    assert episodes[0] == episodes[1]
    assert "SHA256SUMS" in episodes[0]
