"""The settings of a run: frozen dataclasses, checked when they are made.

Each group is owned by the package that uses it. The defaults are the paper's, or PlaNet's where
the paper is silent; `planet_bayes.config.presets` has the others.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from planet_bayes.checks import at_least, between, one_of, positive
from planet_bayes.envs import EnvConfig
from planet_bayes.errors import ConfigError, PlannerError, nearest
from planet_bayes.models import LossConfig, ModelConfig
from planet_bayes.planner import PlannerConfig

MAX_COUNT = 10**9
"""Largest value of any count or size."""

RESUMABLE = ("collect.episodes", "learn.learning_rate", "learn.ema_decay", "env.timeout")
"""Settings besides the group ``run`` that may change when a run is resumed."""

MethodName = Literal["planet", "e_only", "m_only", "planet_bayes"]
ABLATION: dict[str, tuple[bool, bool]] = {
    "planet": (False, False),
    "e_only": (True, False),
    "m_only": (False, True),
    "planet_bayes": (True, True),
}
"""The four methods of the paper's ablation: whether E > 1 and whether M > 1."""


@dataclass(frozen=True)
class AgentConfig:
    """How the agent weighs the particles that it plans with."""

    belief: Literal["inference", "importance", "particle_filter"] = "inference"
    """Particles of the expectation W over latents and members. `inference`: the inference model
    draws them and all count the same (the paper, Eq. 16). `importance`: they have importance
    weights (Eq. 13). `particle_filter`: sequential Monte Carlo without the inference model
    (Eq. 12). The last two need ``model.belief`` `sample`."""
    latent_particles: int = 64
    """Latent states of each member in the particle filter. The planner imagines from one of
    them."""

    def __post_init__(self) -> None:
        one_of(self, "agent", "belief", ("inference", "importance", "particle_filter"))
        at_least(self, "agent", 1, "latent_particles")


@dataclass(frozen=True)
class CollectConfig:
    """How episodes are collected."""

    episodes: int = 1000
    """Episodes to collect with the agent, after the seed episodes."""
    seed_episodes: int = 5
    """Episodes of uniformly random actions at the start."""
    exploration: float = 0.3
    """Std of the Gaussian noise added to actions while collecting, in units of half the action
    range."""
    absorbing_steps: int = 15
    """Steps of zero reward appended to an episode that ends in a terminal state. The last
    observation is held and actions are random. The model learns from them that no reward follows
    a terminal state."""
    overlap: bool = False
    """Collect each episode in a second process while the updates run. It uses one thread and the
    weights from before these updates. Results are as repeatable as without."""
    curiosity: float = 0.0
    """Weight of the members' disagreement in the imagined rewards while collecting, never in
    evaluation. With ``model.normalise``, 1 makes a disagreement of one std of the decoded
    observations worth one std of the reward; without, units are those of the environment. 0: none.
    It needs several members."""
    curiosity_decay: float = 1.0
    """Factor of ``curiosity`` from each collected episode to the next. 1: it stays."""

    def __post_init__(self) -> None:
        at_least(self, "collect", 1, "seed_episodes")
        at_least(self, "collect", 0, "episodes", "exploration", "absorbing_steps")
        at_least(self, "collect", 0, "curiosity")
        between(self, "collect", 0, 1, "curiosity_decay")
        if self.curiosity == float("inf"):
            raise ConfigError("collect.curiosity must be finite.")

    def curiosity_at(self, iteration: int) -> float:
        """Return the weight of curiosity after ``iteration`` episodes of the agent."""
        return self.curiosity * self.curiosity_decay**iteration


@dataclass(frozen=True)
class LearnConfig:
    """How the model is fitted to the collected episodes."""

    updates_per_episode: int = 100
    """Gradient updates before each collected episode."""
    first_updates: int = 0
    """Updates before the first collected episode, if more than ``updates_per_episode``. An offline
    run has no others."""
    batch_size: int = 50
    """Sequences in a batch (B)."""
    sequence_length: int = 50
    """Steps in a sequence (T)."""
    batch_sharing: Literal["own", "bootstrap", "shared", "split"] = "own"
    """How members share a batch. `own`: each member draws B sequences (the paper). `bootstrap`: it
    draws them from its own bootstrap sample of the episodes. `shared`: all members use the same B
    sequences. `split`: each member draws B / E sequences."""
    agent_weight: float = 1.0
    """How many times as often the replay draws an episode of the agent as a seed episode."""
    onset_share: float = 0.0
    """Minimum fraction of training sequences that contain a reward onset (a non-zero reward after
    four zero ones). Onsets are oversampled at most 20 times."""
    learning_rate: float = 1e-3
    """Adam's step size, and the largest one of the posterior `sgmcmc`."""
    ema_decay: float = 0.0
    """Decay of the exponential moving average (EMA) of the weights that the agent acts with.
    0: no averaging."""
    cycle_updates: int = 100
    """Updates in a cycle of the posterior `sgmcmc`: its step size falls from the learning rate to
    zero, and a snapshot is taken at the end."""
    posterior_temperature: float = 1.0
    """Temperature of the posterior `sgmcmc`, proportional to the variance of its noise. 1: the
    posterior. Below 1: a narrower distribution. 0: no noise."""

    def __post_init__(self) -> None:
        at_least(self, "learn", 1, "batch_size", "sequence_length")
        at_least(self, "learn", 0, "updates_per_episode", "first_updates")
        one_of(self, "learn", "batch_sharing", ("own", "bootstrap", "shared", "split"))
        between(self, "learn", 0, 1, "onset_share")
        positive(self, "learn", "learning_rate", "agent_weight")
        at_least(self, "learn", 2, "cycle_updates")
        if not 0 <= self.posterior_temperature < float("inf"):
            raise ConfigError(
                "learn.posterior_temperature must be finite and at least 0, got "
                f"{self.posterior_temperature}."
            )
        if not 0 <= self.ema_decay < 1:
            raise ConfigError(f"learn.ema_decay must be in [0, 1), got {self.ema_decay}.")


@dataclass(frozen=True)
class RunConfig:
    """How a run is executed and watched. All of it may change when a run is resumed."""

    threads: int = 0
    """CPU threads of a process. 0: all cores, or all but one with ``collect.overlap``; processes of
    torchrun share the cores."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    single_environment: bool = False
    """Evaluate in the training environment, one episode after the other, and never open a second
    environment. For a robot of which there is one."""
    evaluate_every: int = 10
    """Episodes between evaluations. 0: only after the last episode."""
    evaluate_last: int = 0
    """Also evaluate after each of this many last episodes."""
    evaluation_episodes: int = 5
    """Episodes without exploration noise in an evaluation."""
    video_every: int = 50
    """Episodes between videos. 0: only after the last episode."""
    checkpoint_every: int = 1
    """Episodes between checkpoints."""
    keep_checkpoints: int = 3
    """Number of checkpoints to keep. Older ones are a fallback if files are damaged."""
    replay_ram: float = 2.0
    """Gigabytes of episodes held in memory. The rest is read from disk."""

    def __post_init__(self) -> None:
        at_least(self, "run", 1, "checkpoint_every", "keep_checkpoints", "evaluation_episodes")
        at_least(self, "run", 0, "evaluate_every", "evaluate_last", "video_every")
        between(self, "run", 0, 1024, "threads")
        positive(self, "run", "replay_ram")


@dataclass(frozen=True)
class Config:
    """Everything that defines a run."""

    task: str = "cup_catch"
    """A task of `planet-bayes tasks`, a Gymnasium id, or your own `package.module:function`."""
    seed: int = 0
    """Root of every random stream."""
    offline: str = ""
    """Folder of logged episodes, or a run, to learn from alone: nothing is collected. The run has
    one iteration, of ``learn.first_updates`` updates. Empty: collect episodes."""
    env: EnvConfig = field(default_factory=EnvConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    collect: CollectConfig = field(default_factory=CollectConfig)
    learn: LearnConfig = field(default_factory=LearnConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        _check_planner(self.planner)
        _check_sizes(self)
        at_least(self, "", 0, "seed")
        if self.offline and (self.collect.episodes or self.collect.overlap):
            raise ConfigError(
                "an offline run collects nothing: collect.episodes must be 0 and collect.overlap "
                f"off, got {self.collect.episodes} and {'on' if self.collect.overlap else 'off'}."
            )
        if self.planner.num_trajectories < self.model.num_members:
            raise ConfigError(
                f"planner.num_trajectories is {self.planner.num_trajectories}, less than one "
                f"candidate for {self.model.num_members} members."
            )
        if self.agent.belief != "inference" and self.model.belief == "mean":
            raise ConfigError(
                f"agent.belief {self.agent.belief} weighs sampled latents, and model.belief is "
                "mean: set --model.belief sample."
            )
        if self.collect.curiosity > 0 and self.model.num_members == 1:
            raise ConfigError(
                "collect.curiosity needs several members, and model.num_members is 1: one has "
                "nobody to disagree with."
            )
        cautious = (self.planner.caution, self.planner.tail) != (0, 1)
        if cautious and self.model.num_members == 1:
            raise ConfigError(
                "planner.caution and planner.tail need several members, and model.num_members is "
                "1: what one member expects has no spread."
            )
        if self.learn.batch_sharing == "split" and self.learn.batch_size < self.model.num_members:
            raise ConfigError(
                f"learn.batch_size {self.learn.batch_size} cannot be split among "
                f"{self.model.num_members} members; raise it or use --learn.batch-sharing shared."
            )

    @property
    def method(self) -> str:
        """Name of the method in the paper's ablation, from E and M."""
        kind = (self.model.num_members > 1, self.planner.num_components > 1)
        return next(name for name, parts in ABLATION.items() if parts == kind)

    def with_method(self, name: str) -> Config:
        """Return these settings as method ``name``: E and M become 1 where it has only one.

        The number of imagined trajectories stays the same.
        """
        if name not in ABLATION:
            raise ConfigError(
                f"unknown method {name!r}{nearest(name, ABLATION)} There are {', '.join(ABLATION)}."
            )
        ensemble, mixture = ABLATION[name]
        if (ensemble and self.model.num_members == 1) or (
            mixture and self.planner.num_components == 1
        ):
            raise ConfigError(
                f"method {name} needs more members or components than these settings have: "
                f"model.num_members is {self.model.num_members} and planner.num_components is "
                f"{self.planner.num_components}."
            )
        model = self.model if ensemble else dataclasses.replace(self.model, num_members=1)
        planner = self.planner if mixture else dataclasses.replace(self.planner, num_components=1)
        return dataclasses.replace(self, model=model, planner=planner)


def _check_planner(config: PlannerConfig) -> None:
    """Refuse parts that are unknown or do not fit."""
    if (config.proposal, config.optimality) == (PlannerConfig.proposal, PlannerConfig.optimality):
        return  # they fit all settings, and looking them up would load PyTorch, in seconds
    from planet_bayes.planner import check_config

    try:
        check_config(config)
    except PlannerError as error:
        raise ConfigError(f"planner.{error}") from error


def _check_sizes(config: Any, where: str = "") -> None:
    """Refuse counts and sizes that no machine can hold."""
    for entry in dataclasses.fields(config):
        value, name = getattr(config, entry.name), where + entry.name
        if dataclasses.is_dataclass(value):
            _check_sizes(value, f"{name}.")
        elif isinstance(value, int) and name != "seed" and value > MAX_COUNT:
            raise ConfigError(f"{name} is {value}, more than any machine's memory holds.")


def is_resumable(name: str) -> bool:
    """Return whether a setting, by its dotted name, may change when a run is resumed."""
    return name in RESUMABLE or name.startswith("run.")
