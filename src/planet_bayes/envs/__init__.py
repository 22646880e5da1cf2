"""Environments: the paper's tasks, a toy without MuJoCo, Gymnasium's, and the user's own.

`make_env` returns a Gymnasium environment of one fixed shape whatever is underneath: actions
in [-1, 1], float32 vectors or uint8 images as observations, a float as reward, an episode that
its seed determines. Importing this package loads neither dm_control nor MuJoCo.
"""

from planet_bayes.envs.baselines import Policy, random_return
from planet_bayes.envs.config import EnvConfig, Observation
from planet_bayes.envs.make import TaskInfo, describe_tasks, make_env
from planet_bayes.envs.tasks import TASKS, TaskSpec
from planet_bayes.envs.toy import ToyReach
from planet_bayes.envs.wrappers import ActionRepeat, Guard

__all__ = [
    "TASKS",
    "ActionRepeat",
    "EnvConfig",
    "Guard",
    "Observation",
    "Policy",
    "TaskInfo",
    "TaskSpec",
    "ToyReach",
    "describe_tasks",
    "make_env",
    "random_return",
]
