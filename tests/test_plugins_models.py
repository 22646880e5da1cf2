"""Modalities, heads and posteriors from outside the package: used, trained, saved and loaded."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from model_building import ACTIONS, VECTOR, Modalities, fresh, make_batch, seeded
from planet_bayes import runs
from planet_bayes.agent import Agent
from planet_bayes.config import Config
from planet_bayes.data.replay import Replay
from planet_bayes.data.rows import read_metrics
from planet_bayes.envs import EnvConfig
from planet_bayes.errors import ConfigError, EnvError, ObservationError
from planet_bayes.models import HEADS, MODALITIES, POSTERIORS, LossConfig, Vector
from planet_bayes.spaces import Box, Signature
from planet_bayes.training import checkpoint, weights
from planet_bayes.training.build import build_model
from planet_bayes.training.collect import collect_episode, collect_random, play
from planet_bayes.training.learner import Learner
from planet_bayes.training.progress import Progress
from plugins.head import ContinuationHead
from plugins.modality import Category
from plugins.posterior import KEEP, DropoutMasks
from tiny_run import TINY, filled_replay, replaced

REGISTRIES: dict[str, tuple[dict[str, Any], Any]] = {
    "category": (MODALITIES, Category),
    "continuation": (HEADS, ContinuationHead),
    "dropout_masks": (POSTERIORS, DropoutMasks),
}
WITH_HEAD = replaced(TINY, model={"heads": ("reward", "continuation")})
WITH_POSTERIOR = replaced(TINY, model={"posterior": "dropout_masks", "num_members": 3})
LABELS = ("open", "closed", "holding")
ARM: Modalities = {"gripper": Category(LABELS), "joints": Vector(2)}
ARM_SIGNATURE = Signature(dict(ARM), Box((-1.0, -1.0), (1.0, 1.0)))


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (registry, part) in REGISTRIES.items():
        monkeypatch.setitem(registry, name, part)


class Arm(gymnasium.Env[Any, Any]):
    """Two joints and a gripper, whose state follows from the first joint."""

    render_mode = None
    observation_space = gymnasium.spaces.Dict(
        {
            "gripper": gymnasium.spaces.Text(10),
            "joints": gymnasium.spaces.Box(-1, 1, (2,), np.float64),
        }
    )
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    modalities: ClassVar[dict[str, Any]] = {"gripper": Category(LABELS)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._joints, self._steps = self.np_random.uniform(-1, 1, 2), 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._joints = np.clip(self._joints + 0.3 * np.asarray(action), -1, 1)
        self._steps += 1
        return self._observe(), float(self._joints[0]), False, self._steps == 10, {}

    def _observe(self) -> dict[str, Any]:
        label = LABELS[int(np.digitize(self._joints[0], [-0.3, 0.3]))]
        return {"gripper": label, "joints": self._joints.copy()}


# The parts alone.


def test_the_modality_prepares_and_says_what_is_wrong() -> None:
    raw = {"gripper": "closed", "joints": [0.5, -0.5]}
    assert ARM_SIGNATURE.prepare(raw)["gripper"].tolist() == [0, 1, 0]
    with pytest.raises(ObservationError, match=r"'gripper': expected one of open, .* got 'ajar'"):
        ARM_SIGNATURE.prepare(raw | {"gripper": "ajar"})


@pytest.mark.parametrize("groups", [1, 2])
def test_the_modalitys_error_is_the_cross_entropy(groups: int) -> None:
    network = Category(LABELS).network(TINY.model, 9, seeded(0))
    features = torch.randn(2, 4, 9, generator=seeded(1))
    label = torch.randint(3, (groups, 6), generator=seeded(2))
    index = torch.tensor([[0, 2, 4, 5], [5, 1, 0, 3]])
    weight = torch.rand(2, 4, generator=seeded(3))
    one_hot = torch.nn.functional.one_hot(label, 3).float()
    got = network.error(features, one_hot, index, weight)
    for particle in range(2):
        target = label[particle if groups > 1 else 0, index[particle]]
        log_prob = network.decode(features[particle]).log_softmax(-1)
        expected = -(log_prob[torch.arange(4), target] * weight[particle]).sum()
        torch.testing.assert_close(got[particle], expected)


@pytest.mark.usefixtures("registered")
def test_a_head_adds_its_term_to_the_objective() -> None:
    plain, model = fresh(2), fresh(2, heads=("reward", "continuation"))
    batch = make_batch(2, 3, 4)
    batch.terminal[:, 0, 2:] = 1
    terms = model.loss(batch, LossConfig(), seeded(1))
    assert list(terms) == ["total", "observation", "reward", "continuation", "kl", "kl_nats"]
    parts = terms["observation"] + (terms["reward"] + terms["continuation"]) + terms["kl"]
    torch.testing.assert_close(terms["total"], parts)
    assert list(plain.loss(batch, LossConfig(), seeded(1))) == [
        name for name in terms if name != "continuation"
    ]


@pytest.mark.usefixtures("registered")
def test_the_head_learns_when_episodes_end() -> None:
    """Where the first sensor is positive the state is terminal."""
    model = fresh(2, heads=("reward", "continuation"))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    batch = make_batch(1, 16, 6)
    batch.terminal.copy_((batch.observation["sensors"][..., 0] > 0).float())
    for number in range(200):
        terms = model.loss(batch, LossConfig(), seeded(number))
        optimiser.zero_grad()
        terms["total"].sum().backward()
        optimiser.step()
    with torch.no_grad():
        seen = {"sensors": batch.observation["sensors"][0, :, 0]}
        belief = model.filter(model.initial(16), torch.zeros(16, ACTIONS), seen, seeded(0))[0]
        predicted = model.head("continuation").predict(belief.features).mean(0)
    ended = batch.terminal[0, :, 0] > 0
    assert predicted[~ended].mean() - predicted[ended].mean() > 0.3


@pytest.mark.usefixtures("registered")
def test_the_posteriors_particles_share_parameters_and_differ_by_masks() -> None:
    one, four = (fresh(members, posterior="dropout_masks") for members in (1, 4))
    parameters = [sum(p.numel() for p in model.posterior.parameters()) for model in (one, four)]
    assert parameters[0] == parameters[1]
    assert four.num_particles == 4
    weights_ = four.weights()
    assert weights_.gates.weight.shape == (4, 5 + 6, 2 * 6)
    kept = (weights_.gates.weight != 0).all(-1)
    dropped = (weights_.gates.weight == 0).all(-1)
    assert (kept | dropped).all()
    assert kept.any()
    assert dropped.any()
    assert len(kept.unique(dim=0)) > 1
    shared = next(iter(four.posterior.parameters()))
    assert shared.shape[0] == 1
    mask = dict(four.posterior.named_buffers())["layers.gates.mask"]
    assert mask.unique().tolist() == pytest.approx([0, 1 / KEEP])
    rewards = four.imagine(four.initial(1), torch.ones(1, 3, 4, ACTIONS), seeded(0))
    assert rewards.shape == (1, 3, 4, 4)


# Training, saving, loading.


@pytest.mark.parametrize("config", [WITH_HEAD, WITH_POSTERIOR], ids=["head", "posterior"])
@pytest.mark.usefixtures("registered")
def test_a_run_with_a_plugin_trains_resumes_and_acts(config: Config, tmp_path: Path) -> None:
    path, ended = runs.train(replaced(config, collect={"episodes": 1}), tmp_path / "run")
    assert ended
    path, ended = runs.train(config, path, resume=True)
    assert ended
    rows = read_metrics(path / "metrics.jsonl")
    assert len(rows) == config.collect.episodes + 1
    for name in config.model.heads:
        assert all(np.isfinite(row[f"loss_{name}"]) for row in rows)
    run = runs.load_run(path, device="cpu")
    assert run.config.model == config.model
    stored = load_file(checkpoint.latest(path) / "model.safetensors")
    loaded = weights.model_tensors(run.agent.model)
    assert stored.keys() == loaded.keys()
    assert all(torch.equal(stored[name], loaded[name]) for name in stored)
    exported = runs.load_run(runs.export(path, tmp_path / "agent"), device="cpu")
    assert runs.evaluate(run, 2) == runs.evaluate(exported, 2)


def learned(config: Config, signature: Signature, replay: Replay) -> Learner:
    learner = Learner(build_model(config, signature, "cpu"), config)
    learner.rescale(replay)
    for number in range(3):
        learner.update(replay, number)
    return learner


def arm_replay(folder: Path) -> Replay:
    replay = Replay(folder)
    for number in range(4):
        replay.add(collect_random(TINY, Arm(), ARM_SIGNATURE, number))
    return replay


@pytest.mark.usefixtures("registered")
def test_a_modality_of_ones_own_is_collected_learned_and_acted_on(tmp_path: Path) -> None:
    replay = arm_replay(tmp_path)
    config = replaced(TINY, learn={"learning_rate": 1e-2})
    learner = Learner(build_model(config, ARM_SIGNATURE, "cpu"), config)
    learner.rescale(replay)
    rows = [learner.update(replay, number) for number in range(80)]
    for name in ("total", "observation_gripper", "observation_joints"):
        first, last = (np.mean([row[name] for row in part]) for part in (rows[:5], rows[-5:]))
        assert last < 0.8 * first, name
    agent = Agent(learner.acting_model, ARM_SIGNATURE, config.planner)
    collected = collect_episode(config, Arm(), agent, 4)
    assert collected.episode.observation["gripper"].shape == (11, 3)
    replay.add(collected.episode)
    assert replay.episode(4).observation["gripper"].sum(-1).tolist() == [1.0] * 11
    shown: list[Any] = []

    def on_step(observations: Any, carry: Any, _: Any) -> None:
        decoded = agent.model.reconstruct(carry.belief.features)["gripper"]
        assert decoded.sum(-1).detach().allclose(torch.ones(2, 1))
        seen = [observations[0]["gripper"]]
        shown.extend(ARM["gripper"].panels(seen, [decoded.mean(0)[0].detach().numpy()]))

    assert len(play([Arm()], agent, [0], seeded(0), on_step=on_step)) == 1
    assert {panel.shape for panel in shown} == {(192, 192, 3)}


ARM_RUN = replaced(
    TINY, task=f"{__name__}:Arm", env=EnvConfig(observation=("hand=gripper", "joints"))
)


@pytest.mark.usefixtures("registered")
def test_an_environment_names_a_modality_of_its_own(tmp_path: Path) -> None:
    path, ended = runs.train(ARM_RUN, tmp_path / "run")
    assert ended
    rows = read_metrics(path / "metrics.jsonl")
    assert all(np.isfinite(row["loss_observation_hand"]) for row in rows)
    run = runs.load_run(path, device="cpu")
    assert run.agent.signature.observation["hand"] == Category(LABELS)
    assert len(runs.evaluate(run, 2)) == 2


def test_an_environments_modality_must_be_registered(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match=r"gripper.*not registered in planet_bayes\.models"):
        runs.train(ARM_RUN, tmp_path / "run")


def saved_run(part: str, folder: Path) -> tuple[Path, Agent, dict[str, Any]]:
    """Save a little training with a plugin; return the folder, the agent and an observation."""
    if part == "category":
        config, signature, replay = TINY, ARM_SIGNATURE, arm_replay(folder / "episodes")
        raw: dict[str, Any] = {"gripper": "holding", "joints": [0.1, -0.2]}
    else:
        config = {"continuation": WITH_HEAD, "dropout_masks": WITH_POSTERIOR}[part]
        signature = Signature(dict(VECTOR), ARM_SIGNATURE.action)
        replay = filled_replay(folder / "episodes", ACTIONS)
        raw = {"sensors": [0.1, 0.2, 0.3, 0.4]}
    learner = learned(config, signature, replay)
    checkpoint.save(folder / "run", config, signature, learner, Progress())
    return folder / "run", Agent(learner.acting_model, signature, config.planner), raw


@pytest.mark.parametrize("part", REGISTRIES)
def test_a_loaded_agent_acts_as_the_saved_one(
    part: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And without the registration, loading says what to do."""
    registry, plugin = REGISTRIES[part]
    with monkeypatch.context() as registration:
        registration.setitem(registry, part, plugin)
        path, agent, raw = saved_run(part, tmp_path)
        loaded = runs.load_run(path, device="cpu").agent
        assert loaded.signature == agent.signature
        left, right = (one.act(one.initial(), [raw], seeded(0))[0] for one in (agent, loaded))
        assert np.array_equal(left, right)
    with pytest.raises(ConfigError, match=f"{part!r}") as caught:
        runs.load_run(path, device="cpu")
    assert "Import the module that registers it" in str(caught.value)
    assert ", ".join(registry) in str(caught.value)


def test_a_run_without_the_registration_does_not_begin(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no head 'continuation'.* Import the module"):
        runs.train(WITH_HEAD, tmp_path / "run")
    assert not (tmp_path / "run").exists()


SCRIPT = """
import sys

from planet_bayes import runs
from planet_bayes.models import HEADS
from plugins.head import ContinuationHead
from test_plugins_models import WITH_HEAD
from tiny_run import replaced

if __name__ == "__main__":  # not in the collecting process
    HEADS["continuation"] = ContinuationHead
    runs.train(replaced(WITH_HEAD, collect={"overlap": True}), sys.argv[1])
"""


def test_the_collecting_process_needs_the_registration_too(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    result = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "run")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert "no head 'continuation'" in result.stderr
    assert "leave collect.overlap off" in result.stderr
