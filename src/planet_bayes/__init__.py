"""PlaNet-Bayes: uncertainty-aware latent model-predictive control.

The names in ``__all__`` are the public API. They are imported when first used, so that
``planet_bayes.planner`` alone needs only PyTorch.
"""

import os
from typing import TYPE_CHECKING

from planet_bayes.lazy import exports

if TYPE_CHECKING:
    from planet_bayes.agent import Agent, Carry
    from planet_bayes.config import (
        PRESETS,
        AgentConfig,
        CollectConfig,
        Config,
        LearnConfig,
        RunConfig,
    )
    from planet_bayes.envs import EnvConfig, make_env
    from planet_bayes.errors import (
        ConfigError,
        EnvError,
        NumericalError,
        ObservationError,
        PlanetBayesError,
        PlannerError,
        RunError,
    )
    from planet_bayes.guard import Guard
    from planet_bayes.models import LossConfig, ModelConfig, WorldModel
    from planet_bayes.planner import PlannerConfig
    from planet_bayes.runs import (
        Run,
        evaluate,
        export,
        load_run,
        offline_config,
        resume_config,
        train,
    )
    from planet_bayes.spaces import Box, Signature
    from planet_bayes.training import Trainer

__all__ = [
    "PRESETS",
    "Agent",
    "AgentConfig",
    "Box",
    "Carry",
    "CollectConfig",
    "Config",
    "ConfigError",
    "EnvConfig",
    "EnvError",
    "Guard",
    "LearnConfig",
    "LossConfig",
    "ModelConfig",
    "NumericalError",
    "ObservationError",
    "PlanetBayesError",
    "PlannerConfig",
    "PlannerError",
    "Run",
    "RunConfig",
    "RunError",
    "Signature",
    "Trainer",
    "WorldModel",
    "evaluate",
    "export",
    "load_run",
    "make_env",
    "offline_config",
    "resume_config",
    "train",
]
__version__ = "0.2.0"

# PyTorch's threads (GNU OpenMP) spin for milliseconds when they have no work, and take the core
# from whoever has some. They read this when PyTorch is imported; 1000 turns are microseconds.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")


__getattr__, __dir__ = exports(
    __name__,
    {
        "agent": ("Agent", "Carry"),
        "config": (
            *("PRESETS", "AgentConfig", "CollectConfig", "Config", "LearnConfig"),
            "RunConfig",
        ),
        "envs": ("EnvConfig", "make_env"),
        "errors": (
            *("ConfigError", "EnvError", "NumericalError", "ObservationError"),
            *("PlanetBayesError", "PlannerError", "RunError"),
        ),
        "guard": ("Guard",),
        "models": ("LossConfig", "ModelConfig", "WorldModel"),
        "planner": ("PlannerConfig",),
        "runs": (
            "Run",
            "evaluate",
            "export",
            "load_run",
            "offline_config",
            "resume_config",
            "train",
        ),
        "spaces": ("Box", "Signature"),
        "training": ("Trainer",),
    },
)
