"""The settings of a run, the presets, and their JSON."""

from planet_bayes.config.io import differences, from_dict, load, save, to_json
from planet_bayes.config.presets import PRESETS
from planet_bayes.config.schema import (
    ABLATION,
    RESUMABLE,
    AgentConfig,
    CollectConfig,
    Config,
    LearnConfig,
    MethodName,
    RunConfig,
    is_resumable,
)

__all__ = [
    "ABLATION",
    "PRESETS",
    "RESUMABLE",
    "AgentConfig",
    "CollectConfig",
    "Config",
    "LearnConfig",
    "MethodName",
    "RunConfig",
    "differences",
    "from_dict",
    "is_resumable",
    "load",
    "save",
    "to_json",
]
