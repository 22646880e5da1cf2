"""PlaNet-Bayes: uncertainty-aware latent model-predictive control.

The names in ``__all__`` are the public API. They are imported when first used, so that
``planet_bayes.planner`` alone costs no more than PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planet_bayes.agent import Agent, Carry
    from planet_bayes.config import PRESETS, Config, TrainConfig
    from planet_bayes.envs import EnvConfig, make_env
    from planet_bayes.models import LossConfig, ModelConfig, WorldModel
    from planet_bayes.planner import PlannerConfig
    from planet_bayes.runs import Run, evaluate, load_run, train
    from planet_bayes.training import Trainer

__all__ = [
    "PRESETS",
    "Agent",
    "Carry",
    "Config",
    "EnvConfig",
    "LossConfig",
    "ModelConfig",
    "PlannerConfig",
    "Run",
    "TrainConfig",
    "Trainer",
    "WorldModel",
    "evaluate",
    "load_run",
    "make_env",
    "train",
]
__version__ = "0.1.0"

_WHERE = {
    "agent": ("Agent", "Carry"),
    "config": ("PRESETS", "Config", "TrainConfig"),
    "envs": ("EnvConfig", "make_env"),
    "models": ("LossConfig", "ModelConfig", "WorldModel"),
    "planner": ("PlannerConfig",),
    "runs": ("Run", "evaluate", "load_run", "train"),
    "training": ("Trainer",),
}


def __getattr__(name: str) -> Any:
    for module, names in _WHERE.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
