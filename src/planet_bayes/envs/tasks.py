"""The named tasks, as a table.

Action repeats are PlaNet's. Every suite task lasts 1000 simulator steps, so an episode is
1000 / action repeat agent steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class TaskSpec:
    """One named task: where it comes from and what the paper changed."""

    name: str
    """The name on the command line."""

    domain: str
    """The suite's domain, or `toy`."""

    suite_task: str
    """The suite's task within the domain."""

    action_repeat: int
    """Simulator steps per action, PlaNet's."""

    description: str
    """One sentence for a listing."""

    control_range: float = 1.0
    """Controls lie in ± this, in the paper's version."""

    uncapped: bool = False
    """Whether the paper removed the reward's upper limit."""

    simulator_steps: int = 1000
    """Length of an episode before action repeat."""

    speed: int | None = None
    """Entry of the suite's `velocity` that is the forward speed, where that is what the reward
    is about: the one velocity among the sensors. Positions are relative to the body, so they
    hardly tell it (docs/lab-notes.md), while an image shows the ground move."""

    winding: int | None = None
    """Entry of the suite's `position` that is an angle without end; the sensors are its cosine
    and sine."""

    @property
    def note(self) -> str:
        """The description followed by the paper's changes, if any."""
        changes = []
        if self.control_range != 1.0:
            changes.append(f"control range ±{self.control_range:g}")
        if self.uncapped:
            changes.append("no upper limit on the reward")
        suffix = f" (paper: {', '.join(changes)})" if changes else ""
        return self.description + suffix


_TABLE = (
    TaskSpec(
        "cup_catch",
        "ball_in_cup",
        "catch",
        4,
        "Swing a ball on a string into a cup; reward only while it is inside",
    ),
    TaskSpec(
        "finger_spin",
        "finger",
        "spin",
        2,
        "Keep a hinged body spinning with a two-joint finger",
        control_range=3.0,
    ),
    TaskSpec(
        "cheetah_run",
        "cheetah",
        "run",
        4,
        "Run forwards on two legs in the plane",
        control_range=3.0,
        uncapped=True,
        speed=0,
        winding=1,
    ),
    TaskSpec(
        "walker_run",
        "walker",
        "run",
        2,
        "Stand up and run upright",
        control_range=3.0,
        uncapped=True,
        speed=1,
    ),
    TaskSpec("cartpole_balance", "cartpole", "balance", 8, "Keep an upright pole from falling"),
    TaskSpec("cartpole_swingup", "cartpole", "swingup", 8, "Swing a hanging pole up, keep it up"),
    TaskSpec("reacher_easy", "reacher", "easy", 4, "Touch a target with a two-joint arm"),
    TaskSpec("walker_walk", "walker", "walk", 2, "Stand up and walk upright", speed=1),
    TaskSpec("pendulum_swingup", "pendulum", "swingup", 2, "Swing a torque-limited pendulum up"),
    TaskSpec(
        "toy_reach",
        "toy",
        "reach",
        1,
        "Push a point mass to a target; needs no MuJoCo, for tests and first trials",
        simulator_steps=50,
    ),
)

TASKS: Mapping[str, TaskSpec] = MappingProxyType({spec.name: spec for spec in _TABLE})
"""Every named task, in the order of a listing."""
