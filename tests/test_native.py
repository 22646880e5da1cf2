"""The native kernel equals the plain rollout, and gives NaN where an input is not finite."""

import copy
import ctypes.util
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model_building import seeded
from planet_bayes.errors import ConfigError
from planet_bayes.models import ModelConfig, RewardHead, Vector, Weights, WorldModel
from planet_bayes.models.imagination import Imagination, latent_noise
from planet_bayes.models.kernels import native, native_imagination
from planet_bayes.models.rssm import RSSM
from planet_bayes.types import Belief

needs_library = pytest.mark.skipif(not native.available(), reason="built without a compiler")
pytestmark = needs_library

SMALL = ModelConfig(deter=7, stoch=4, hidden=6, dense_units=5, reward_units=8, reward_layers=2)


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@dataclasses.dataclass
class Problem:
    """A model and what it imagines."""

    model: WorldModel
    belief: Belief
    actions: Tensor

    def native(self) -> Tensor:
        with torch.inference_mode():
            imagination = self.model.imagination()
            assert imagination._native is not None
            return imagination.imagine(self.belief, self.actions, seeded(4))

    def plain(self) -> Tensor:
        """By `RSSM.imagine_steps`, which records gradients."""
        return self.model.imagine(self.belief, self.actions, seeded(4)).detach()

    def noise(self) -> Tensor | None:
        """What the others draw."""
        batch, num, horizon, _ = self.actions.shape
        config = self.model.config
        shape = (horizon, config.num_members, batch, num, config.stoch)
        return latent_noise(config.latent_noise, shape, seeded(4))

    def native_states(self) -> tuple[Tensor, Tensor]:
        """Return rewards and features."""
        with torch.inference_mode():
            return self.model.imagination().roll_out(self.belief, self.actions, self.noise())

    @torch.no_grad()
    def plain_states(self) -> Tensor:
        """Return features ``[H, P, B, N, F]``, by one `RSSM.imagine_step` after another."""
        (batch, num, horizon, _), members = self.actions.shape, self.model.num_particles
        drawn, weights = self.noise(), self.model.weights()
        parts = (self.belief.deter, self.belief.stoch)
        belief = Belief(*(part.repeat_interleave(num, 1) for part in parts))  # [P, B·N, ...]
        features = []
        for step in range(horizon):
            action = self.actions[:, :, step].flatten(0, 1).expand(members, -1, -1)
            noise = None if drawn is None else drawn[step].expand(-1, -1, num, -1).flatten(1, 2)
            belief = self.model.rssm.imagine_step(weights, belief, action, noise)
            features.append(belief.features.unflatten(1, (batch, num)))
        return torch.stack(features)

    def assert_plain(self) -> None:
        """Rewards and states are the plain ones, and writing states changes no bit of rewards."""
        rewards, features = self.native_states()
        found = self.native()
        assert_close(found, self.plain())
        assert_close(features, self.plain_states())
        assert torch.equal(rewards, found)


def problem(
    members: int = 2, num: int = 5, horizon: int = 5, batch: int = 2, actions: int = 3, **sizes: Any
) -> Problem:
    config = dataclasses.replace(SMALL, num_members=members, **sizes)
    model = WorldModel({"sensors": Vector(5)}, actions, config, seeded(0))
    with torch.no_grad():  # biases that are all alike would hide a wrong one
        for name, bias in model.named_parameters():
            if name.endswith("bias"):
                bias.add_(torch.randn(bias.shape, generator=seeded(len(name))), alpha=0.3)
    shapes = (members, batch, config.deter), (members, batch, config.stoch)
    return Problem(
        model,
        Belief(
            deter=torch.randn(shapes[0], generator=seeded(1)).tanh(),
            stoch=torch.randn(shapes[1], generator=seeded(2)),
        ),
        torch.randn(batch, num, horizon, actions, generator=seeded(3)),
    )


@pytest.fixture(params=native.available() or ["none"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each library that this processor can run."""
    monkeypatch.setenv(native.VARIABLE, request.param)
    return str(request.param)


@pytest.mark.parametrize("activation", ["relu", "elu", "silu"])
@pytest.mark.parametrize("noise", ["independent", "shared", "mean"])
@pytest.mark.parametrize("members", [1, 2, 5])
def test_it_is_the_plain_rollout(library: str, activation: str, noise: str, members: int) -> None:
    case = problem(members, activation=activation, latent_noise=noise)
    case.assert_plain()


@pytest.mark.parametrize("num", [1, 2, 5, 6, 7, 95, 96, 97, 300, 1000])
def test_any_number_of_candidates(library: str, num: int) -> None:
    case = problem(num=num)
    case.assert_plain()


@pytest.mark.parametrize(
    "preset", [(100, 20, 100, 100, 2, "elu", 15), (200, 30, 200, 300, 3, "relu", 12)]
)
def test_the_sizes_of_the_presets(library: str, preset: tuple[Any, ...]) -> None:
    deter, stoch, hidden, units, layers, activation, horizon = preset
    case = problem(
        *(5, 40, horizon, 1, 6),
        deter=deter,
        stoch=stoch,
        hidden=hidden,
        reward_units=units,
        reward_layers=layers,
        activation=activation,
    )
    case.assert_plain()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_sizes(data: st.DataObject) -> None:
    def size(most: int) -> int:
        return data.draw(st.integers(1, most))

    case = problem(
        *(size(5), size(40), size(4), size(3), size(9)),
        deter=size(40),
        stoch=size(40),
        hidden=size(40),
        reward_units=size(40),
        reward_layers=size(3),
        activation=data.draw(st.sampled_from(["relu", "elu", "silu"])),
        latent_noise=data.draw(st.sampled_from(["independent", "shared", "mean"])),
        normalise=data.draw(st.booleans()),
    )
    name = data.draw(st.sampled_from(native.available()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(native.VARIABLE, name)
        case.assert_plain()


def test_the_number_of_threads_changes_no_bit(library: str) -> None:
    case = problem(num=61, deter=20, stoch=9, hidden=21)
    kept, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            results.append((case.native(), *case.native_states()))
    finally:
        torch.set_num_threads(kept)
    for other in results[1:]:
        assert all(torch.equal(*pair) for pair in zip(results[0], other, strict=True))


def test_candidates_do_not_depend_on_those_beside_them(library: str) -> None:
    case = problem(num=61, latent_noise="mean")
    whole = case.native()
    part = dataclasses.replace(case, actions=case.actions[:, 17:40]).native()
    assert torch.equal(whole[:, 17:40], part)


def test_large_values_saturate_as_they_do_in_pytorch(library: str) -> None:
    """Of exp, ±88 is the limit of float32."""
    for activation in ("relu", "elu", "silu"):
        for scale in (30.0, 300.0, 3e4):
            case = problem(activation=activation, latent_noise="independent")
            case.actions = case.actions * scale
            native_rewards, plain = case.native(), case.plain()
            assert native_rewards.isfinite().all()
            assert_close(native_rewards, plain, 1e-4)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
class TestNotFinite:
    """NaN in the results that an entry has a part in, and in no others."""

    def test_an_action(self, library: str, bad: float) -> None:
        for activation in ("relu", "elu", "silu"):
            case = problem(num=9, activation=activation)
            sound = case.native()
            case.actions[1, 4, 2, 0] = bad
            found = case.native()
            assert found[1, 4, :, 2:].isnan().all()
            keep = torch.ones_like(found, dtype=torch.bool)
            keep[1, 4, :, 2:] = False
            assert torch.equal(found[keep], sound[keep])
            states = case.native_states()[1]  # [H, P, B, N, F]
            gone = states.isnan()
            assert gone[2:, :, 1, 4].all()
            assert gone.sum() == gone[2:, :, 1, 4].numel()

    @pytest.mark.parametrize("part", ["deter", "stoch"])
    def test_a_belief(self, library: str, bad: float, part: str) -> None:
        case = problem(num=9)
        sound = case.native()
        getattr(case.belief, part)[1, 0, 3] = bad
        found = case.native()
        assert found[0, :, 1].isnan().all()
        assert torch.equal(found[1], sound[1])
        assert torch.equal(found[0, :, 0], sound[0, :, 0])

    def test_noise(self, library: str, bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
        case = problem(num=9, latent_noise="independent")
        draw = torch.randn

        def spoiled(*arguments: Any, **options: Any) -> Tensor:
            noise = draw(*arguments, **options)
            noise[3, 1, 0, 7, 2] = bad
            return noise

        sound = case.native()
        monkeypatch.setattr(torch, "randn", spoiled)
        found = case.native()
        assert found[0, 7, 1, 3:].isnan().all()
        assert found.isnan().sum() == 2
        assert torch.equal(found[1], sound[1])

    def test_a_weight(self, library: str, bad: float) -> None:
        for name in dict(problem().model.named_parameters()):
            if "senses" in name or "posterior_" in name:
                continue  # not imagined with
            case = problem()
            target = dict(case.model.named_parameters())[name]
            with torch.no_grad():
                target.view(len(target), -1)[-1, -1] = bad
            found = case.native()
            if name.startswith("posterior"):
                assert found[:, :, 1].isnan().all(), name
                assert found[:, :, 0].isfinite().all(), name
            else:
                assert found.isnan().all(), name


def test_packed_weights_stay_and_new_ones_are_packed_anew() -> None:
    case = problem()
    with torch.inference_mode():
        kept = case.model.imagination()
        before = kept.imagine(case.belief, case.actions, seeded(4))
    with torch.no_grad():
        for weight in case.model.parameters():
            weight.mul_(1.5)
    with torch.inference_mode():
        assert torch.equal(kept.imagine(case.belief, case.actions, seeded(4)), before)
    assert_close(case.native(), case.plain())
    assert not torch.allclose(case.native(), before)


def test_what_it_cannot_do_goes_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    case = problem()
    assert case.model.imagination()._native is not None
    assert case.model.double().imagination()._native is None
    monkeypatch.setenv(native.VARIABLE, "torch")
    other = problem().model.imagination()
    assert other._native is None
    with torch.inference_mode():
        rewards = other.imagine(case.belief, case.actions, seeded(4))
    assert_close(rewards, problem().plain())
    for recorded in (False, True):  # PyTorch's kernel, and the plain form
        with torch.set_grad_enabled(recorded):
            rewards, features = other.roll_out(case.belief, case.actions, case.noise())
        assert_close(rewards.detach(), problem().plain())
        assert_close(features.detach(), problem().plain_states())


@pytest.mark.parametrize("wrong", ["members", "batch", "actions", "dtype"])
def test_shapes_that_do_not_fit_are_refused(wrong: str) -> None:
    """The library would read beyond their end."""
    case = problem()
    if wrong == "members":
        case.belief = problem(members=1).belief
    elif wrong == "batch":
        case.actions = case.actions[:1].expand(3, -1, -1, -1)
    elif wrong == "actions":
        case.actions = case.actions[..., :2]
    else:
        case.actions = case.actions.double()
    with pytest.raises(ValueError, match="expected float32"):
        case.native()


def test_states_are_written_into_what_fits_only() -> None:
    """The library would write beyond its end."""
    case = problem(batch=2, num=5, horizon=5)
    packed = case.model.imagination()._native
    assert packed is not None
    start = case.belief.deter, case.belief.stoch, case.actions, None
    for shape in ((5, 2, 2, 4, 11), (5, 2, 2, 5, 10), (4, 2, 2, 5, 11)):
        with pytest.raises(ValueError, match="features: expected float32"):
            packed.rewards(*start, torch.empty(shape))
    with pytest.raises(ValueError, match="features: expected a contiguous"):
        packed.rewards(*start, torch.empty(5, 2, 2, 11, 5).transpose(3, 4))


def test_weights_that_do_not_fit_go_another_way() -> None:
    case = problem(3)
    weights, head = case.model.weights(), case.model.head("reward")
    assert native_imagination.supports(case.model.rssm, weights, head)
    narrow = dataclasses.replace(weights.gates, bias=weights.gates.bias[:1])
    odd = dataclasses.replace(weights, gates=narrow)
    assert not native_imagination.supports(case.model.rssm, odd, head)
    assert not native_imagination.supports(
        case.model.rssm, weights, problem().model.double().head("reward")
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_no_candidates_are_no_problem(threads: int) -> None:
    case, kept = problem(), torch.get_num_threads()
    case.actions = case.actions[:, :0]
    try:
        torch.set_num_threads(threads)
        assert case.native().shape == (2, 0, 2, 5)
        assert case.native_states()[1].shape == (5, 2, 2, 0, 11)
    finally:
        torch.set_num_threads(kept)


def test_a_copy_outlives_the_original() -> None:
    case = problem()
    expected = case.native()
    packed = case.model.imagination()._native
    assert packed is not None
    other = copy.copy(packed)
    del packed
    found = other.rewards(case.belief.deter, case.belief.stoch, case.actions, None)
    assert found.shape == expected.shape


@pytest.fixture
def searched_again() -> Iterator[None]:
    """Look for libraries again, in the test and after it."""
    caches = (native._loadable, native.library)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.mark.usefixtures("searched_again")
def test_without_a_library_pytorch_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_path", lambda name: None)
    assert native.available() == []
    assert native.chosen() == "torch"


@pytest.mark.usefixtures("searched_again")
def test_libraries_that_cannot_be_loaded_get_one_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    case, broken = problem(), tmp_path / "broken.so"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(native, "_path", lambda name: broken)
    with pytest.warns(RuntimeWarning, match=r"broken\.so.* torch is used.* Delete") as caught:
        imagination = case.model.imagination()
    assert len(caught) == 1
    assert (native.available(), native.chosen()) == ([], "torch")  # and no second warning
    with torch.inference_mode():
        assert_close(imagination.imagine(case.belief, case.actions, seeded(4)), case.plain())
    monkeypatch.setenv(native.VARIABLE, "portable")
    with pytest.raises(ConfigError, match="must be torch on this machine, got 'portable'"):
        native.chosen()


@pytest.mark.usefixtures("searched_again")
def test_a_library_of_another_version_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no function of ours; the next one is used."""
    best, real = native.available()[0], native._path
    other = Path(ctypes.util.find_library("c") or "")
    native._loadable.cache_clear()
    native.library.cache_clear()
    monkeypatch.setattr(native, "_path", lambda name: other if name == best else real(name))
    with pytest.warns(RuntimeWarning, match="undefined symbol: planet_bayes_pack"):
        assert best not in native.available()


@pytest.mark.usefixtures("searched_again")
def test_who_chooses_pytorch_is_not_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_path", lambda name: Path("nowhere.so"))
    monkeypatch.setenv(native.VARIABLE, "torch")
    assert native.chosen() == "torch"


def test_an_unknown_choice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "mmx")
    with pytest.raises(ConfigError, match=r"PLANET_BAYES_KERNEL must be .*torch.*, got 'mmx'"):
        native.chosen()


def test_a_head_or_dynamics_of_ones_own_are_used() -> None:
    class Hundred(RewardHead):
        def predict(self, features: Tensor) -> Tensor:
            return super().predict(features) * 0 + 100

    case = problem()
    weights, head = case.model.weights(), case.model.head("reward")
    own = Hundred(case.model.rssm.deter + case.model.rssm.stoch, SMALL, seeded(0))

    class Still(RSSM):
        def evolve(self, weights: Weights, belief: Belief, action: Tensor) -> Tensor:
            return belief.deter * 0

    still = Still(**dataclasses.asdict(case.model.rssm))
    with torch.inference_mode():
        found = Imagination(case.model.rssm, weights, own, "mean")
        assert (found.imagine(case.belief, case.actions, seeded(4)) == 100).all()
        rewards = [
            Imagination(rssm, weights, head, "mean").imagine(case.belief, case.actions, seeded(4))
            for rssm in (still, case.model.rssm)
        ]
    assert not torch.allclose(rewards[0], rewards[1])
