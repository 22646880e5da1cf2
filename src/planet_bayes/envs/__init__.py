"""Environments: the paper's tasks, a toy without MuJoCo, Gymnasium's, and the user's own.

`make_env` returns a Gymnasium environment of one fixed form: actions in [-1, 1], raw observations
as a dict by name, a float as reward, an episode that its seed determines. Importing this package
loads neither Gymnasium nor dm_control nor MuJoCo.
"""

from typing import TYPE_CHECKING

from planet_bayes.lazy import exports

if TYPE_CHECKING:
    from planet_bayes.envs.baselines import Policy, baseline_returns, random_return
    from planet_bayes.envs.config import EnvConfig
    from planet_bayes.envs.make import TaskInfo, describe_tasks, make_env
    from planet_bayes.envs.observations import NamedObservations
    from planet_bayes.envs.tasks import TASKS, TaskSpec
    from planet_bayes.envs.toy import ToyReach
    from planet_bayes.envs.wrappers import ActionRepeat, Guard

__all__ = [
    "TASKS",
    "ActionRepeat",
    "EnvConfig",
    "Guard",
    "NamedObservations",
    "Policy",
    "TaskInfo",
    "TaskSpec",
    "ToyReach",
    "baseline_returns",
    "describe_tasks",
    "make_env",
    "random_return",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "baselines": ("Policy", "baseline_returns", "random_return"),
        "config": ("EnvConfig",),
        "make": ("TaskInfo", "describe_tasks", "make_env"),
        "observations": ("NamedObservations",),
        "tasks": ("TASKS", "TaskSpec"),
        "toy": ("ToyReach",),
        "wrappers": ("ActionRepeat", "Guard"),
    },
)
