"""A fallback controller takes over when the agent is surprised: gravity and motor fail mid-episode.

Run:  python examples/fall_back_on_alarm.py [agent]

In the middle of the episode the motor becomes three times as strong. The agent was not trained for
that. On the alarm a controller takes over that needs no model: it brakes the cart, gently enough
for the motor as it is now, and leaves the pole alone.
"""

import sys
from pathlib import Path

import numpy as np
import torch

import planet_bayes as pb
from planet_bayes.diagnostics.conditions import scale_motors
from planet_bayes.guard import Takeover

AGENT = Path(__file__).parent.parent / "agents" / "cartpole_swingup"
CHANGE_AT = 60
"""The step at which the motor changes."""
