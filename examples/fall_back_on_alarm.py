"""Another controller takes over when the agent is surprised: the motor changes in mid-episode.

Run:  python examples/fall_back_on_alarm.py [AGENT]

The motor becomes three times as strong. The agent has not learned that, and swings the pole too
far. Its predictions fail, so the alarm comes within a few steps. From then on a linear controller
balances the pole. It needs no model, but velocities, which the agent does not see, and its gains
were made for the stronger motor. It could not swing the pole up.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import planet_bayes as pb
from planet_bayes.diagnostics.conditions import scale_motors
from planet_bayes.guard import Fallback, Takeover

AGENT = Path(__file__).parent.parent / "agents" / "cartpole_swingup"
CHANGE_STEP = 60
"""When the motor changes. The pole is up by then."""
MOTOR = 3.0
GAINS = np.array([0.38, 2.38, 0.41, 0.61])
"""For position, angle and their velocities: an LQR for the upright pole and the stronger motor."""


def balance(takeover: Takeover) -> NDArray[np.float32]:
    """Push the cart so that the pole stays up."""
    position, cosine, sine, speed, turning = takeover.observation["sensors"]
    state = np.array([position, np.arctan2(sine, cosine), speed, turning])
    return np.clip([GAINS @ state], -1, 1).astype(np.float32)


def episode(path: Path, fallback: Fallback | None) -> tuple[float, int | None]:
    """Return the reward after the change, and the step at which the alarm came."""
    run = pb.load_run(path, device="cpu")
    alarms: list[int] = []
    step = 0
    guard = pb.Guard(run.agent, fallback, log=lambda environment, sure: alarms.append(step))
    env = run.make_env()
    observation, _ = env.reset(seed=0)
    carry, generator = guard.initial(), torch.Generator().manual_seed(0)
    total, reward, ended = 0.0, None, False
    while not ended:
        if step == CHANGE_STEP:
            scale_motors(env, MOTOR)
        rewards = None if reward is None else [reward]
        action, carry, _ = guard.act(carry, [observation], generator, rewards=rewards)
        observation, earned, terminated, truncated, _ = env.step(action[0])
        reward, ended = float(earned), terminated or truncated
        total += reward if step >= CHANGE_STEP else 0.0
        step += 1
    env.close()
    late = [one for one in alarms if one >= CHANGE_STEP]
    return total, late[0] if late else None


def main(path: Path = AGENT) -> dict[str, float]:
    """Play the same episode with and without a fallback; return the rewards after the change."""
    torch.set_num_threads(1)
    found = {}
    for name, fallback in (("agent alone", None), ("with fallback", balance)):
        found[name], alarm = episode(path, fallback)
        when = "no alarm" if alarm is None else f"alarm at step {alarm}"
        print(f"{name}: {when}, reward after the change {found[name]:.0f}")
    return found


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
