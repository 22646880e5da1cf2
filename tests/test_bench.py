"""The benchmark: what it counts is right, and what it prints is complete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from planet_bayes import bench
from planet_bayes.cli import main
from planet_bayes.config import PRESETS
from planet_bayes.memory import PeakMemory
from planet_bayes.models import LossConfig, ModelConfig, WorldModel, arithmetic, ensemble
from planet_bayes.models.losses import squared_error
from planet_bayes.models.networks import Deconv
from planet_bayes.types import Belief, SequenceBatch

SMALL = ModelConfig(
    deter=12,
    stoch=5,
    hidden=10,
    image_depth=8,
    vector_units=9,
    reward_units=11,
    reward_layers=2,
    activation="silu",  # has no gradient by hand: autograd does what is counted
)
ACTIONS = 3


def build(shape: tuple[int, ...], members: int = 2) -> WorldModel:
    model = WorldModel(shape, ACTIONS, members, SMALL, torch.Generator().manual_seed(0))
    for name, layer in list(model.decoder.named_children()):
        if isinstance(layer, Deconv):  # PyTorch's own layer: the counter sees the plain arithmetic
            plain = nn.ConvTranspose2d(
                layer.in_channels, layer.out_channels, layer.kernel_size[0], stride=2
            )
            setattr(model.decoder, name, plain)
    return model


def plain_decoding_error(
    decoder: nn.Module, features: Tensor, frames: Tensor, index: Tensor, weight: Tensor, size: int
) -> Tensor:
    """What the counter can follow: it cannot look into gradients taken on the way forward."""
    decoded = decoder(features.flatten(0, 1)).unflatten(0, index.shape)
    return (squared_error(frames[0][index], decoded, 3) * weight).sum(-1)


def counted(work: object) -> float:
    with FlopCounterMode(display=False) as counter:
        work()  # type: ignore[operator]
    return counter.get_total_flops()


def test_the_arithmetic_of_imagining_is_what_pytorch_counts() -> None:
    model = build((4,))
    belief = Belief(torch.zeros(2, 1, 12), torch.zeros(2, 1, 5))
    actions = torch.zeros(1, 7, 6, ACTIONS)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        found = counted(lambda: model.imagine(belief, actions, generator))
    assert found == arithmetic.imagining(model, 2 * 7, 6)


@pytest.mark.parametrize("shape", [(4,), (32, 32, 3), (64, 64, 3)])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_the_arithmetic_of_updating_is_what_pytorch_counts(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], fraction: float
) -> None:
    monkeypatch.setattr(ensemble, "decoding_error", plain_decoding_error)
    monkeypatch.setattr(ensemble, "encode_frames", lambda encoder, frames, _: encoder(frames))
    model = build(shape)
    batch, steps = 3, 4
    observation = torch.zeros(1, batch, steps, *shape)
    batch_of = SequenceBatch(
        observation=observation.to(torch.uint8) if len(shape) == 3 else observation,
        action=torch.zeros(1, batch, steps, ACTIONS),
        reward=torch.zeros(1, batch, steps),
        mask=torch.ones(1, batch, steps),
    )
    generator = torch.Generator().manual_seed(0)
    config = LossConfig(decode_fraction=fraction)

    def update() -> None:
        model.loss(batch_of, config, generator)["total"].sum().backward()

    frames = batch * steps
    expected = arithmetic.updating(model, frames, 2 * frames, int(2 * frames * fraction))
    # Autograd leaves out one product that is counted: the zero belief needs no gradient.
    first = 2.0 * (SMALL.stoch + ACTIONS) * SMALL.hidden * 2 * batch
    assert counted(update) == expected - first


@pytest.mark.parametrize(
    ("preset", "members", "expected"),
    [("paper", 5, 1.0), ("paper", 1, 1.0), ("laptop", 5, 0.3), ("laptop", 1, 0.3)],
)
def test_as_many_frames_are_decoded_as_the_settings_say(
    preset: str, members: int, expected: float
) -> None:
    """At the most one batch in all, whatever the number of members that is measured."""
    loss = bench._resized(PRESETS[preset], members).loss
    assert members * loss.decode_fraction == pytest.approx(expected)


def test_peak_memory_sees_what_was_freed() -> None:
    with PeakMemory() as before:
        pass
    with PeakMemory() as during:
        torch.ones(100_000_000 // 4)
    assert during.megabytes > before.megabytes + 80


TINY = [
    *("bench", "--preset", "laptop", "--threads", "1", "--repeats", "1", "--episodes", "3"),
    *("--model.deter", "8", "--model.hidden", "8", "--model.stoch", "4", "--actions", "2"),
    *("--model.image-depth", "2", "--num-trajectories", "20", "--train.batch-size", "2"),
    *("--train.sequence-length", "5", "--task", "toy_reach"),
]
KEYS = {
    *("gemm_gflops", "plan_s", "plan_floor_s", "plan_ratio", "update_s", "update_floor_s"),
    *("update_ratio", "update_peak_mb", "render_ms", "env_step_ms", "sample_s", "threads"),
    *("preset", "ensemble"),
}


def test_bench_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    kept = torch.get_num_threads()
    try:
        assert main([*TINY, "--json"]) == 0
    finally:
        torch.set_num_threads(kept)
    found = json.loads(capsys.readouterr().out)
    assert found.keys() >= KEYS
    assert found["preset"] == "laptop"
    assert (found["threads"], found["ensemble"], found["replay_episodes"]) == (1, 5, 3)
    numbers = {key: value for key, value in found.items() if isinstance(value, float)}
    assert all(value > 0 for key, value in numbers.items() if key != "render_ms")
    rate = 1e9 * found["gemm_gflops"]
    for name in ("plan", "update"):
        floor = 1e9 * found[f"{name}_gflop"] / rate
        assert found[f"{name}_floor_s"] == pytest.approx(floor)
        assert found[f"{name}_ratio"] == pytest.approx(found[f"{name}_s"] / floor)
        over = found[f"{name}_s"] / found[f"{name}_s_single"]
        assert found[f"{name}_over_single"] == pytest.approx(over)


def test_bench_prints_a_table_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = torch.get_num_threads()
    try:
        assert main([*TINY, "--num-members", "1"]) == 0
    finally:
        torch.set_num_threads(kept)
    out = capsys.readouterr().out
    for word in ("GFLOP/s", "one plan", "one update", "ratio", "threads: 1"):
        assert word in out
    assert list(tmp_path.iterdir()) == []


def test_bench_refuses_nothing_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--repeats", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
    assert main([*TINY, "--device", "cuda"]) == 2
    assert "measures the CPU" in capsys.readouterr().err
