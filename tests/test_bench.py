"""The benchmark: its counts are right, and its output is complete."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from planet_bayes.bench import flops
from planet_bayes.bench.measure import planning, resized
from planet_bayes.bench.memory import PeakMemory
from planet_bayes.cli import main
from planet_bayes.config import PRESETS
from planet_bayes.models import Image, LossConfig, Modality, ModelConfig, Vector, WorldModel
from planet_bayes.models.imagination import Imagination
from planet_bayes.models.kernels import frames as kernel
from planet_bayes.models.kernels import native
from planet_bayes.models.layers import Deconv
from planet_bayes.models.losses import squared_error
from planet_bayes.types import Belief, SequenceBatch
from tiny_run import TINY as TINY_RUN

SMALL = ModelConfig(
    num_members=2,
    deter=12,
    stoch=5,
    hidden=10,
    image_depth=8,
    dense_units=9,
    reward_units=11,
    reward_layers=2,
    activation="silu",  # has no gradient by hand: autograd does what is counted
)
ACTIONS = 3


def build(modalities: dict[str, Modality]) -> WorldModel:
    model = WorldModel(modalities, ACTIONS, SMALL, torch.Generator().manual_seed(0))
    for sense in model.senses.values():
        decoder = sense.get_submodule("decoder")
        for name, layer in list(decoder.named_children()):
            if isinstance(layer, Deconv):  # with PyTorch's own layer the counter sees it all
                plain = nn.ConvTranspose2d(
                    layer.in_channels, layer.out_channels, layer.kernel_size[0], stride=2
                )
                setattr(decoder, name, plain)
    return model


def plain_decoding_error(
    decoder: nn.Module, features: Tensor, frames: Tensor, index: Tensor, weight: Tensor, size: int
) -> Tensor:
    """The plain form: the counter does not see gradients taken in the forward pass."""
    decoded = decoder(features.flatten(0, 1)).unflatten(0, index.shape)
    return (squared_error(frames[0][index], decoded, 3) * weight).sum(-1)


def counted(work: object) -> float:
    with FlopCounterMode(display=False) as counter:
        work()  # type: ignore[operator]
    return counter.get_total_flops()


def test_the_arithmetic_of_imagining_is_what_pytorch_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(native.VARIABLE, "torch")
    model = build({"sensors": Vector(4)})
    belief = Belief(torch.zeros(2, 1, 12), torch.zeros(2, 1, 5))
    actions = torch.zeros(1, 7, 6, ACTIONS)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        found = counted(lambda: model.imagine(belief, actions, generator))
    assert found == flops.imagining(model, 2 * 7, 6)


MODALITIES: list[dict[str, Modality]] = [
    {"sensors": Vector(4)},
    {"camera": Image(32)},
    {"camera": Image(64)},
    {"camera": Image(32), "joints": Vector(4)},
]


@pytest.mark.parametrize("modalities", MODALITIES, ids=["vector", "32", "64", "both"])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_the_arithmetic_of_updating_is_what_pytorch_counts(
    monkeypatch: pytest.MonkeyPatch, modalities: dict[str, Modality], fraction: float
) -> None:
    monkeypatch.setattr(kernel, "decoding_error", plain_decoding_error)
    monkeypatch.setattr(kernel, "encode_frames", lambda encoder, frames, _: encoder(frames))
    model = build(modalities)
    batch, steps = 3, 4
    batch_of = SequenceBatch(
        observation={
            name: torch.zeros(1, batch, steps, *modality.shape).to(
                torch.uint8 if len(modality.shape) == 3 else torch.float32
            )
            for name, modality in modalities.items()
        },
        action=torch.zeros(1, batch, steps, ACTIONS),
        reward=torch.zeros(1, batch, steps),
        terminal=torch.zeros(1, batch, steps),
        mask=torch.ones(1, batch, steps),
    )
    generator = torch.Generator().manual_seed(0)
    config = LossConfig(decode_fraction=fraction)

    def update() -> None:
        model.loss(batch_of, config, generator)["total"].sum().backward()

    frames = batch * steps
    expected = flops.updating(model, modalities, frames, 2 * frames, int(2 * frames * fraction))
    # Autograd leaves out one product that is counted: the zero belief needs no gradient.
    first = 2.0 * (SMALL.stoch + ACTIONS) * SMALL.hidden * 2 * batch
    assert counted(update) == expected - first


@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_the_arithmetic_of_a_plan_counts_every_candidate(
    monkeypatch: pytest.MonkeyPatch, decay: float
) -> None:
    """Also where the number of candidates decays from one iteration to the next."""
    planner = dataclasses.replace(TINY_RUN.planner, num_trajectories=200, candidate_decay=decay)
    config = dataclasses.replace(TINY_RUN, planner=planner)
    imagined: list[int] = []
    imagine = Imagination.imagine

    def watch(model: Imagination, state: Belief, actions: Tensor, generator: Any) -> Tensor:
        imagined.append(actions.shape[1])
        return imagine(model, state, actions, generator)

    monkeypatch.setattr(Imagination, "imagine", watch)
    work, operations = planning(config, 2, ACTIONS)
    assert imagined == []
    work()
    assert len(imagined) == planner.num_iterations
    assert imagined[0] == 100
    assert (imagined[1] == 100) == (decay == 1)
    model = WorldModel({"sensors": Vector(8)}, ACTIONS, config.model, torch.Generator())
    assert operations == flops.imagining(model, 2 * sum(imagined), planner.horizon)


@pytest.mark.parametrize(
    ("preset", "members", "expected"),
    [("paper", 5, 1.0), ("paper", 1, 1.0), ("laptop", 5, 0.3), ("laptop", 1, 0.3)],
)
def test_as_many_frames_are_decoded_as_the_settings_say(
    preset: str, members: int, expected: float
) -> None:
    """At most one batch in all, whatever the number of members that is measured."""
    loss = resized(PRESETS[preset], members).loss
    assert members * loss.decode_fraction == pytest.approx(expected)


def test_peak_memory_sees_what_was_freed() -> None:
    with PeakMemory() as before:
        pass
    with PeakMemory() as during:
        torch.ones(100_000_000 // 4)
    assert during.megabytes > before.megabytes + 80


TINY = [
    *("bench", "--preset", "laptop", "--run.threads", "1", "--repeats", "1", "--episodes", "3"),
    *("--model.deter", "8", "--model.hidden", "8", "--model.stoch", "4", "--actions", "2"),
    *("--model.image-depth", "2", "--planner.num-trajectories", "20", "--learn.batch-size", "2"),
    *("--learn.sequence-length", "5", "--task", "toy_reach"),
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
        assert main([*TINY, "--model.num-members", "1"]) == 0
    finally:
        torch.set_num_threads(kept)
    out = capsys.readouterr().out
    for word in ("GFLOP/s", "one plan", "one update", "ratio", "threads: 1"):
        assert word in out
    assert list(tmp_path.iterdir()) == []


def test_bench_refuses_nothing_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--repeats", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
    assert main([*TINY, "--run.device", "cuda"]) == 2
    assert "measures the CPU" in capsys.readouterr().err
