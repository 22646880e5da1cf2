"""Runs: train one, load one, evaluate it, export it. The command line calls the same functions."""

from typing import TYPE_CHECKING

from planet_bayes.lazy import exports

if TYPE_CHECKING:
    from planet_bayes.runs.loading import Run, export, load_run, resolve_device
    from planet_bayes.runs.training import (
        default_folder,
        evaluate,
        num_cores,
        offline_config,
        resume_config,
        resumed,
        train,
    )

__all__ = [
    "Run",
    "default_folder",
    "evaluate",
    "export",
    "load_run",
    "num_cores",
    "offline_config",
    "resolve_device",
    "resume_config",
    "resumed",
    "train",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "loading": ("Run", "export", "load_run", "resolve_device"),
        "training": (
            *("default_folder", "evaluate", "num_cores"),
            *("offline_config", "resume_config", "resumed", "train"),
        ),
    },
)
