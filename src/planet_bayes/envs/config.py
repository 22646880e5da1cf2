"""The settings of an environment."""

import re
from dataclasses import dataclass

from planet_bayes.checks import at_least
from planet_bayes.errors import ConfigError

IMAGE_SIZES = (32, 64)
MAX_TIMEOUT_SECONDS = 1e6
DEFAULT_NAMES = {"pixels": "camera", "sensors": "sensors", "state": "state"}
"""Names of observations that are given by their source alone. Others are called like it."""


@dataclass(frozen=True)
class EnvConfig:
    """How an environment is presented to the agent."""

    observation: tuple[str, ...] = ("pixels",)
    """What the agent observes, each as SOURCE or NAME=SOURCE. Sources: `pixels`, an RGB image;
    `sensors`, positions without velocities (a runner also has its forward speed); `state`, the
    whole state; or a key of the environment's own Dict observation. Several make one agent with
    several inputs: `camera=pixels joints=sensors`."""

    original: bool = False
    """Use the suite's own version of the paper's four tasks (control range ±1, capped reward)."""

    action_repeat: int = 0
    """Simulator steps per action. 0: the task's own (1 for Gymnasium and your own)."""

    image_size: int = 64
    """Height and width of images in pixels: 64 or 32."""

    blur: int = 1
    """Width of the box blur of images in pixels, odd. 1: none."""

    sensors: tuple[int, ...] = ()
    """Entries of the whole flattened state that the source `sensors` consists of. Empty: the
    task's own choice, or all entries for other environments."""

    max_steps: int = 0
    """Truncate episodes after this many agent steps. 0: the environment's own limit."""

    timeout: float = 600.0
    """Seconds that reset, step or render may take before the run stops with a checkpoint.
    0: no limit."""

    def __post_init__(self) -> None:
        self._check_observation()
        if self.image_size not in IMAGE_SIZES:
            raise ConfigError(f"env.image_size must be 64 or 32, got {self.image_size}.")
        if not (1 <= self.blur <= self.image_size and self.blur % 2):
            raise ConfigError(
                f"env.blur must be an odd number of pixels from 1 to {self.image_size - 1}, got "
                f"{self.blur}."
            )
        at_least(self, "env", 0, "action_repeat", "max_steps")
        if not 0 <= self.timeout < MAX_TIMEOUT_SECONDS:
            raise ConfigError(
                f"env.timeout must be from 0 (none) to a million seconds, got {self.timeout}."
            )
        object.__setattr__(self, "sensors", tuple(self.sensors))
        if self.sensors and "sensors" not in self.sources.values():
            raise ConfigError(
                "env.sensors selects entries, but env.observation has no source `sensors`; add it "
                "or leave the selection empty."
            )

    def _check_observation(self) -> None:
        if isinstance(self.observation, str) or not self.observation:
            raise ConfigError(
                "env.observation must be a list of at least one SOURCE or NAME=SOURCE, got "
                f"{self.observation!r}."
            )
        # A list in Python code is the same as the tuple that is read from a file.
        object.__setattr__(self, "observation", tuple(self.observation))
        if len(self.sources) < len(self.observation):
            raise ConfigError(f"env.observation has a name twice: {', '.join(self.observation)}.")
        for name, source in self.sources.items():
            if not name.isidentifier() or not source:
                raise ConfigError(
                    f"env.observation: {name}={source} is not NAME=SOURCE; a name consists of "
                    "letters, digits and underscores."
                )
            if name == "reward":
                raise ConfigError(
                    "env.observation: an observation cannot be called reward; name it otherwise, "
                    f"NAME={source}."
                )

    @property
    def sources(self) -> dict[str, str]:
        """The sources of the observations by name."""
        sources = {}
        for entry in self.observation:
            name, equals, source = entry.partition("=")
            if not equals:
                name, source = DEFAULT_NAMES.get(entry, entry), entry
            sources[name] = source
        return sources

    @property
    def label(self) -> str:
        """The sources in one word, for the name of a folder: pixels, or pixels+sensors."""
        return re.sub(r"[^\w.+-]", "_", "+".join(self.sources.values()))
