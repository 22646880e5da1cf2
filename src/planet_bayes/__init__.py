"""PlaNet-Bayes: uncertainty-aware latent model-predictive control.

The names below are the public API. They are imported when first used, so that
``planet_bayes.planner`` alone costs no more than PyTorch.
"""

from importlib import import_module
from typing import Any

_WHERE = {
    "Agent": "agent",
    "Carry": "agent",
    "Config": "config",
    "PRESETS": "config",
    "TrainConfig": "config",
    "EnvConfig": "envs",
    "make_env": "envs",
    "LossConfig": "models",
    "ModelConfig": "models",
    "WorldModel": "models",
    "PlannerConfig": "planner",
    "Trainer": "training",
    "Run": "runs",
    "evaluate": "runs",
    "load_run": "runs",
    "train": "runs",
}

__all__ = sorted(_WHERE)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
