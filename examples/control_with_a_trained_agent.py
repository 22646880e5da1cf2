"""A control loop: swing up a pole with the agent that comes with the repository.

Run:  python examples/control_with_a_trained_agent.py [runs/NAME]
"""

import sys
import time
from pathlib import Path

import torch

import planet_bayes as pb

AGENT = Path(__file__).parent.parent / "agents" / "cartpole_swingup"


def main(path: Path = AGENT) -> float:
    """Control one episode; print every tenth action and the return that the agent foresees."""
    torch.set_num_threads(1)
    run = pb.load_run(path, device="cpu")
    env, agent = run.make_env(), run.agent
    observation, _ = env.reset(seed=0)
    carry, generator = agent.initial(), torch.Generator().manual_seed(0)
    total, step, ended, began = 0.0, 0, False, time.monotonic()
    print("step  return so far  action  return foreseen (its spread over the members)")
    while not ended:
        # One observation in, one action out. On a robot, pass time_budget=its control period, and
        # send agent.signature.action.to_native(action[0]) to the actuators.
        action, carry, diagnostics = agent.act(carry, [observation], generator)
        observation, reward, terminated, truncated, _ = env.step(action[0])
        total += float(reward)
        if step % 10 == 0:
            best = diagnostics.returns.nanmean(-1)[0].argmax()
            foreseen = diagnostics.returns[0, best]  # one value for each member
            print(
                f"{step:4d}  {total:13.1f}  {float(action[0, 0]):+6.2f}  "
                f"{float(foreseen.mean()):6.1f} ± {float(foreseen.std()):.1f}"
            )
        step, ended = step + 1, terminated or truncated
    env.close()
    each = (time.monotonic() - began) / step
    print(f"return {total:.1f} after {step} actions, {1000 * each:.0f} ms for each action")
    return total


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
