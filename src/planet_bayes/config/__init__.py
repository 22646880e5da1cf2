"""The settings of a run, the presets, and their JSON."""

from planet_bayes.config.io import differences, from_dict, load, save, to_json
from planet_bayes.config.presets import METHOD_PLANNERS, PRESETS, preset_config
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
    "METHOD_PLANNERS",
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
    "preset_config",
    "save",
    "to_json",
]
