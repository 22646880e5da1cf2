"""The root configuration: methods, presets, and strict loading from JSON."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from planet_bayes import files
from planet_bayes.envs import EnvConfig
from planet_bayes.errors import ConfigError, RunError, nearest
from planet_bayes.models import LossConfig, ModelConfig
from planet_bayes.planner import OPTIMALITIES, PROPOSALS, PlannerConfig, PlannerError

MethodName = Literal["planet", "e_only", "m_only", "planet_bayes"]
MOST = 10**9  # of anything that is counted
METHODS: dict[str, tuple[bool, bool]] = {
    "planet": (False, False),
    "e_only": (True, False),
    "m_only": (False, True),
    "planet_bayes": (True, True),
}
"""The ablation's four methods: whether the model is an ensemble, the proposal a mixture."""


@dataclass(frozen=True)
class TrainConfig:
    """The training loop. Where a preset says nothing else, it is PlaNet's."""

    episodes: int = 1000
    """Episodes to collect with the agent, after the seed episodes."""
    seed_episodes: int = 5
    """Episodes of uniformly random actions to begin with."""
    updates_per_episode: int = 100
    """Gradient updates before each collected episode."""
    first_updates: int = 0
    """Updates before the first of them, if more: what many seed episodes have to teach. With
    `overlap` that first episode is collected while they run, by an agent without them."""
    batch_size: int = 50
    """Sequences in a batch (B)."""
    sequence_length: int = 50
    """Steps in a sequence (T)."""
    batch_sharing: Literal["own", "shared", "split"] = "own"
    """How members share a batch: `own`, each draws B sequences (independent training, the
    paper's); `shared`, all see the same B; `split`, each draws B / E of its own, rounded down."""
    agent_weight: float = 1.0
    """How many times as often the replay draws from an episode of the agent as from a seed
    episode: above 1, many seed episodes do not drown what the agent meets."""
    onset_share: float = 0.0
    """Share of the sequences that hold the coming of a reward, a step with one after four
    without, if fewer do by chance; at most 20 times as many as do. Where rewards are rare, this
    is what a plan must foresee, and what sequences at random hardly ever show."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    adam_epsilon: float = 1e-4
    """Adam's epsilon."""
    gradient_clip: float = 1000.0
    """Largest norm of the gradient, over the weights of all members and the shared networks."""
    averaging: float = 0.0
    """How much of the past stays, at each update, in the running average of the weights that the
    agent acts with: 0.99 averages some hundred updates, whose steps are too large to end
    anywhere. 0: it acts with the newest weights."""
    exploration: float = 0.3
    """Std of the noise added to actions while collecting, in units of half the range."""
    absorbing_steps: int = 15
    """Steps of zero reward, with the last observation held and actions at random, that follow
    an episode which ended in a terminal state: how the model learns that nothing comes after."""
    evaluate_every: int = 10
    """Episodes between evaluations; 0: only after the last."""
    evaluate_last: int = 0
    """Evaluate after each of this many last episodes too: how steady the end of learning is."""
    evaluation_episodes: int = 5
    """Episodes without exploration noise in an evaluation."""
    video_every: int = 50
    """Episodes between videos; 0: only after the last."""
    checkpoint_every: int = 1
    """Episodes between checkpoints."""
    keep_checkpoints: int = 3
    """Checkpoints that are kept, the newest ones: to fall back on, should files be damaged."""
    max_skipped_updates: int = 10
    """Updates in a row whose loss or gradient may be not finite; each is left out, and after so
    many the run stops."""
    mixed_precision: bool = False
    """Learn with matrix products and convolutions in bfloat16. For GPUs; not yet tried on one."""
    compile: bool = False
    """Fuse the steps of the recurrence with torch.compile. For GPUs; not yet tried on one."""
    replay_ram: float = 2.0
    """Gigabytes of episodes held in memory; the rest is read from disk."""
    overlap: bool = False
    """Collect each episode in a second process, of one thread, while the updates before it run:
    for a core that would be idle, left out of `threads`. The agent that collects has the
    weights from before those updates. With one seed, results are as repeatable as without."""

    def __post_init__(self) -> None:
        at_least(self, "train", 1, "seed_episodes", "batch_size", "sequence_length")
        at_least(self, "train", 1, "checkpoint_every", "keep_checkpoints", "evaluation_episodes")
        at_least(self, "train", 0, "episodes", "updates_per_episode", "first_updates")
        at_least(self, "train", 1, "max_skipped_updates")
        at_least(self, "train", 0, "absorbing_steps")
        at_least(self, "train", 0, "evaluate_every", "evaluate_last", "video_every", "exploration")
        if not 0 <= self.onset_share <= 1:
            raise ConfigError(f"train.onset_share must be in [0, 1], got {self.onset_share}.")
        if not 0 <= self.averaging < 1:
            raise ConfigError(f"train.averaging must be in [0, 1), got {self.averaging}.")
        if self.batch_sharing not in ("own", "shared", "split"):
            raise ConfigError(
                f"train.batch_sharing must be own, shared or split, got {self.batch_sharing!r}."
            )
        positive = ("learning_rate", "adam_epsilon", "gradient_clip", "replay_ram", "agent_weight")
        for name in positive:
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"train.{name} must be positive, got {getattr(self, name)}.")


@dataclass(frozen=True)
class Config:
    """Everything that defines a run."""

    task: str = "cup_catch"
    """A task of `planet-bayes tasks`, a Gymnasium id, or your own `package.module:function`."""
    method: MethodName = "planet_bayes"
    """planet (E = M = 1), e_only (M = 1), m_only (E = 1) or planet_bayes. They differ in E and M
    only; num_members and planner.num_components count where there is an ensemble or a mixture, so
    that one set of settings serves all four. The number of imagined trajectories is the same,
    unless planner.candidate_decay reaches its least number of candidates."""
    seed: int = 0
    """Root of every random stream."""
    threads: int = 0
    """CPU threads; 0: all cores, or all but one with train.overlap."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    num_members: int = 5
    """Members of the ensemble (E) in the methods that have one."""
    num_trajectories: int = 1000
    """Trajectories imagined per iteration, split evenly among members: each of K = this / E
    candidates is imagined by all of them. 0: K is planner.num_candidates, whatever E is."""
    env: EnvConfig = field(default_factory=EnvConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ConfigError(
                f"unknown method {self.method!r}{nearest(self.method, METHODS)} "
                f"There are {', '.join(METHODS)}."
            )
        for name, known in (("proposal", PROPOSALS), ("optimality", OPTIMALITIES)):
            value = getattr(self.planner, name)
            if value not in known:
                raise ConfigError(
                    f"planner.{name}: there is no {value!r}{nearest(value, known)} "
                    f"There are {', '.join(known)}."
                )
        _at_most(self, MOST)
        at_least(self, "", 1, "num_members")
        at_least(self, "", 0, "seed", "threads", "num_trajectories")
        if self.threads > 1024:
            raise ConfigError(f"threads must be at most 1024, got {self.threads}.")
        particles = self.members * self.model.latent_samples
        if 0 < self.num_trajectories < particles:
            raise ConfigError(
                f"num_trajectories is {self.num_trajectories}, less than one candidate for "
                f"{particles} particles (members × latent samples)."
            )
        if self.num_trajectories and self.planner.num_candidates != PlannerConfig.num_candidates:
            raise ConfigError(
                "planner.num_candidates and num_trajectories both say how many candidates there "
                "are; set num_trajectories to 0 for the former to count."
            )
        if self.train.overlap and not isinstance(self.task, str):
            raise ConfigError(
                "train.overlap makes the environment again in another process, so task must be "
                f"a name or package.module:function, got a {type(self.task).__name__}."
            )
        if self.train.batch_sharing == "split" and self.train.batch_size < self.members:
            raise ConfigError(
                f"train.batch_size {self.train.batch_size} cannot be split among "
                f"{self.members} members; raise it or use --train.batch-sharing shared."
            )

    @property
    def members(self) -> int:
        """E of the chosen method."""
        return self.num_members if METHODS[self.method][0] else 1

    @property
    def resolved_planner(self) -> PlannerConfig:
        """The planner's settings with M and K of the chosen method."""
        planner = self.planner
        if self.num_trajectories:
            particles = self.members * self.model.latent_samples
            candidates = self.num_trajectories // particles
            planner = dataclasses.replace(planner, num_candidates=candidates)
        if not METHODS[self.method][1]:
            planner = dataclasses.replace(planner, num_components=1)
        return planner


def at_least(config: Any, group: str, least: float, *names: str) -> None:
    """Refuse settings of a group that are less than they may be."""
    for name in names:
        value = getattr(config, name)
        if not value >= least:
            label = f"{group}.{name}" if group else name
            raise ConfigError(f"{label} must be at least {least}, got {value}.")


def _at_most(config: Any, most: int, where: str = "") -> None:
    """Refuse counts and sizes that no machine could hold."""
    for entry in dataclasses.fields(config):
        value, name = getattr(config, entry.name), where + entry.name
        if dataclasses.is_dataclass(value):
            _at_most(value, most, f"{name}.")
        elif isinstance(value, int) and name != "seed" and value > most:
            raise ConfigError(f"{name} is {value}, more than any machine's memory holds.")


def _paper() -> Config:
    return Config(planner=PlannerConfig(min_std=1e-3))


def _laptop() -> Config:
    return Config(
        task="cartpole_swingup",
        num_trajectories=300,
        env=EnvConfig(image_size=32, oversampling=4, blur=5),
        model=ModelConfig(
            deter=100,
            stoch=20,
            hidden=100,
            activation="elu",
            image_bits=8,
            image_depth=8,
            decoder_depth=24,
            image_layers=2,
            vector_units=200,
            reward_units=100,
            reward_layers=2,
            latent_noise="mean",
            belief="mean",
            normalise=True,
        ),
        loss=LossConfig(free_nats=0.0, kl_balance=0.8, decode_fraction=0.06),
        planner=PlannerConfig(
            horizon=15,
            num_iterations=5,
            initial_std=1.0,
            execute="mean",
            candidate_decay=0.7,
            keep_elites=3,
        ),
        train=TrainConfig(
            episodes=100,
            seed_episodes=100,  # of a hundredth of the cost of one that is planned
            first_updates=3000,
            updates_per_episode=300,
            agent_weight=10.0,
            onset_share=0.3,
            learning_rate=2e-3,
            averaging=0.99,
            batch_size=10,
            sequence_length=32,
            batch_sharing="shared",
            video_every=20,
        ),
    )


def _quick() -> Config:
    laptop = _laptop()
    return dataclasses.replace(
        laptop,
        threads=1,  # its products are small: a second thread gains a tenth, and waits if disturbed
        env=EnvConfig(observation="sensors"),
        model=dataclasses.replace(laptop.model, vector_units=100),
        loss=dataclasses.replace(laptop.loss, decode_fraction=1.0),
        train=dataclasses.replace(
            laptop.train,
            episodes=20,
            first_updates=1000,
            updates_per_episode=100,
            onset_share=0.0,
            learning_rate=1e-3,
            batch_size=20,
            evaluate_every=10,
            video_every=0,
        ),
    )


PRESETS: dict[str, Config] = {"quick": _quick(), "laptop": _laptop(), "paper": _paper()}
"""quick: sensors, minutes. laptop: pixels on 2 CPU cores. paper: the paper's sizes, for a GPU."""


def differences(left: Any, right: Any, where: str = "") -> set[str]:
    """Return the dotted names of the settings in which two configurations differ."""
    found: set[str] = set()
    for entry in dataclasses.fields(left):
        a, b = getattr(left, entry.name), getattr(right, entry.name)
        if dataclasses.is_dataclass(a):
            found |= differences(a, b, f"{where}{entry.name}.")
        elif a != b:
            found.add(where + entry.name)
    return found


def to_json(config: Config) -> str:
    """Return the configuration as JSON text."""
    return json.dumps(dataclasses.asdict(config), indent=2) + "\n"


def save(config: Config, path: Path) -> None:
    """Write the configuration beside the results, whole or not at all."""
    files.write(path, to_json(config))


def load(path: Path) -> Config:
    """Read a configuration; an unknown key is refused with the nearest valid one."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is not a readable configuration: {error}.") from error
    try:
        return from_dict(Config, data)
    except (ConfigError, PlannerError) as error:
        raise ConfigError(f"{path}: {error}") from error


def from_dict(kind: type[Any], data: Any, where: str = "") -> Any:
    """Build the dataclass ``kind`` from plain data, strictly."""
    if not isinstance(data, dict):
        raise ConfigError(f"{where or 'configuration'}: expected a table of keys, got {data!r}.")
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in hints:
            raise ConfigError(f"unknown key {where + key!r}{nearest(key, hints)}")
        values[key] = _convert(hints[key], value, where + key)
    return kind(**values)


def _convert(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type[Any], hint), value, where + ".")
    origin = typing.get_origin(hint)
    if origin is types.UnionType or origin is typing.Union:
        if value is None and type(None) in typing.get_args(hint):
            return None
        return _convert(
            next(arg for arg in typing.get_args(hint) if arg is not type(None)), value, where
        )
    if origin is dict:
        item = typing.get_args(hint)[1]
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: expected a table, got {value!r}.")
        return {str(key): _convert(item, entry, f"{where}.{key}") for key, entry in value.items()}
    if origin is tuple:
        item = typing.get_args(hint)[0]
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where}: expected a list, got {value!r}.")
        return tuple(_convert(item, entry, where) for entry in value)
    if origin is Literal:
        if value not in typing.get_args(hint):
            words = [str(arg) for arg in typing.get_args(hint)]
            raise ConfigError(
                f"{where}: {value!r} is not one of {', '.join(words)}{nearest(str(value), words)}"
            )
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(f"{where}: expected {hint.__name__}, got {value!r}.")
    return value
