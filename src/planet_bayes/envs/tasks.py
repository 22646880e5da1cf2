"""The named tasks, as a table.

A task of the suite is one row: nothing else in the package knows it by name. Action repeats are
PlaNet's. Every suite task lasts 1000 simulator steps, so an episode has 1000 / action repeat
agent steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
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
    """Whether the paper removed the reward's upper limit. `suite.UNCAPPED_TASKS` has the reward
    of each domain."""

    simulator_steps: int = 1000
    """Length of an episode before action repeat."""

    velocities: tuple[str, ...] = ("velocity",)
    """The suite's observations that are velocities. They are not among the sensors."""

    speed_entry: int | None = None
    """Entry of the first velocity observation that is the forward speed, where the reward is about
    speed. It is the only velocity among the sensors. Positions are relative to the body, so they
    say little about it, while an image shows the ground move (see the lab notebook, cheetah)."""

    angle_entry: int | None = None
    """Entry of the suite's `position` that is an angle without bounds. The sensors are its cosine
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
        name="cup_catch",
        domain="ball_in_cup",
        suite_task="catch",
        action_repeat=4,
        description="Swing a ball on a string into a cup; reward only while it is inside",
    ),
    TaskSpec(
        name="finger_spin",
        domain="finger",
        suite_task="spin",
        action_repeat=2,
        description="Keep a hinged body spinning with a two-joint finger",
        control_range=3.0,
    ),
    TaskSpec(
        name="cheetah_run",
        domain="cheetah",
        suite_task="run",
        action_repeat=4,
        description="Run forwards on two legs in the plane",
        control_range=3.0,
        uncapped=True,
        speed_entry=0,
        angle_entry=1,
    ),
    TaskSpec(
        name="walker_run",
        domain="walker",
        suite_task="run",
        action_repeat=2,
        description="Stand up and run upright",
        control_range=3.0,
        uncapped=True,
        speed_entry=1,
    ),
    TaskSpec(
        name="cartpole_balance",
        domain="cartpole",
        suite_task="balance",
        action_repeat=8,
        description="Keep an upright pole from falling",
    ),
    TaskSpec(
        name="cartpole_swingup",
        domain="cartpole",
        suite_task="swingup",
        action_repeat=8,
        description="Swing a hanging pole up, keep it up",
    ),
    TaskSpec(
        name="reacher_easy",
        domain="reacher",
        suite_task="easy",
        action_repeat=4,
        description="Touch a target with a two-joint arm",
    ),
    TaskSpec(
        name="walker_walk",
        domain="walker",
        suite_task="walk",
        action_repeat=2,
        description="Stand up and walk upright",
        speed_entry=1,
    ),
    TaskSpec(
        name="pendulum_swingup",
        domain="pendulum",
        suite_task="swingup",
        action_repeat=2,
        description="Swing a torque-limited pendulum up",
    ),
    TaskSpec(
        name="toy_reach",
        domain="toy",
        suite_task="reach",
        action_repeat=1,
        description="Push a point mass to a target; needs no MuJoCo, for tests and first trials",
        simulator_steps=50,
    ),
)

TASKS: Mapping[str, TaskSpec] = MappingProxyType({spec.name: spec for spec in _TABLE})
"""Every named task, in the order of a listing."""
