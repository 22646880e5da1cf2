"""The settings of an environment."""

from dataclasses import dataclass
from typing import Literal, get_args

from planet_bayes.errors import ConfigError, nearest

Observation = Literal["pixels", "sensors", "state"]
"""What the agent sees: an image, everything but velocities (a runner sees its speed), or all."""

IMAGE_SIZES = (32, 64)


@dataclass(frozen=True)
class EnvConfig:
    """How an environment is presented to the agent."""

    observation: Observation = "pixels"
    """What the agent sees: an RGB image, sensors (no velocities, but for the forward speed where
    the task is to run or walk), or the whole state."""

    original: bool = False
    """Use the suite's own version of the paper's four tasks (control range ±1, capped reward)."""

    action_repeat: int = 0
    """Simulator steps per action; 0 takes the task's own (1 for Gymnasium and your own)."""

    image_size: int = 64
    """Height and width of the image in pixels: 64 or 32."""

    oversampling: int = 1
    """Render that many times as large on a side and average: what is thinner than a pixel is then
    seen as paler, not as broken. For the tasks of the suite; others render at their own size."""

    blur: int = 1
    """Side of the square around a pixel of which it is the mean: an odd number of pixels, 1 for
    none. What is small is then seen, and drawn by the model, as something wide and smooth, of
    which a shift by a fraction of a pixel is easier to learn."""

    sensors: tuple[int, ...] = ()
    """Mode `sensors`: entries of the whole flattened observation to see; empty: the task's own
    choice, as above, and of other environments all of it, which may include velocities."""

    max_steps: int = 0
    """Cut episodes after this many agent steps; 0 keeps the environment's own limit."""

    timeout: float = 600.0
    """Seconds that reset, step or render may take before the environment counts as hanging and
    the run stops, with a checkpoint; 0: for ever."""

    def __post_init__(self) -> None:
        modes = get_args(Observation)
        if self.observation not in modes:
            raise ConfigError(
                f"env.observation is {self.observation!r}, expected one of {', '.join(modes)}"
                f"{nearest(str(self.observation), modes)}"
            )
        if self.image_size not in IMAGE_SIZES:
            raise ConfigError(f"env.image_size is {self.image_size}, expected 64 or 32")
        if not 1 <= self.oversampling <= 8:
            raise ConfigError(f"env.oversampling is {self.oversampling}, expected 1 to 8")
        if not (1 <= self.blur <= self.image_size and self.blur % 2):
            raise ConfigError(
                f"env.blur is {self.blur}, expected an odd number of pixels, 1 to "
                f"{self.image_size - 1}"
            )
        for name in ("action_repeat", "max_steps"):
            value = getattr(self, name)
            if value < 0:
                raise ConfigError(f"env.{name} is {value}, expected 0 (the task's own) or more")
        if not 0 <= self.timeout < 1e6:
            raise ConfigError(
                f"env.timeout is {self.timeout}, expected 0 (none) to a million seconds"
            )
        if self.sensors and self.observation != "sensors":
            # Left silent, the selection would look as if it had acted.
            raise ConfigError(
                f"env.sensors selects entries, but env.observation is {self.observation!r}; "
                "set that to 'sensors' or leave the selection empty"
            )
