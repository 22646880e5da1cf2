"""Configurations of older formats, brought to today's.

A key that an old file lacks gets the value that it had when the file was written, never today's
default. A removed setting is accepted only with the value that the code has now.
"""

from __future__ import annotations

import copy
from typing import Any

from planet_bayes.envs import TASKS
from planet_bayes.errors import ConfigError

FORMAT = 7
"""Number of today's format. Files of version 0.1 have no number, those of 0.2 have 3."""

_OLDEST = 3
"""Number of the oldest format that has one."""

Table = dict[str, Any]

_DEFAULTS_0_1: Table = {
    "task": "cup_catch",
    "method": "planet_bayes",
    "seed": 0,
    "threads": 0,
    "device": "auto",
    "num_members": 5,
    "num_trajectories": 1000,
    "env": {
        "observation": "pixels",
        "original": False,
        "action_repeat": 0,
        "image_size": 64,
        "oversampling": 1,
        "blur": 1,
        "sensors": [],
        "max_steps": 0,
        "timeout": 600.0,
    },
    "model": {
        "deter": 200,
        "stoch": 30,
        "hidden": 200,
        "min_std": 0.1,
        "activation": "relu",
        "image_depth": 32,
        "image_bits": 5,
        "decoder_depth": 0,
        "image_layers": 0,
        "vector_units": 200,
        "vector_layers": 2,
        "reward_units": 300,
        "reward_layers": 3,
        "latent_noise": "independent",
        "belief": "sample",
        "normalise": False,
        "latent_samples": 1,
    },
    "loss": {
        "free_nats": 3.0,
        "kl_balance": None,
        "kl_scale": 1.0,
        "reward_scale": 10.0,
        "observation_scale": 1.0,
        "decode_fraction": 1.0,
    },
    "planner": {
        "proposal": "mixture",
        "optimality": "threshold",
        "horizon": 12,
        "num_candidates": 200,
        "num_iterations": 10,
        "num_components": 5,
        "temperature": 1.0,
        "entropy_weight": 0.0,
        "elite_fraction": 0.1,
        "expectation": "before",
        "initial_std": 0.5,
        "min_std": 0.05,
        "spread": 0.25,
        "respread": 0.0,
        "min_component_weight": 0.0,
        "warm_start": True,
        "execute": "sample",
        "noise_colour": 0.0,
        "keep_elites": 0,
        "candidate_decay": 1.0,
        "converged_std": 0.0,
    },
    "train": {
        "episodes": 1000,
        "seed_episodes": 5,
        "updates_per_episode": 100,
        "first_updates": 0,
        "batch_size": 50,
        "sequence_length": 50,
        "batch_sharing": "own",
        "agent_weight": 1.0,
        "onset_share": 0.0,
        "learning_rate": 1e-3,
        "adam_epsilon": 1e-4,
        "gradient_clip": 1000.0,
        "averaging": 0.0,
        "exploration": 0.3,
        "absorbing_steps": 15,
        "evaluate_every": 10,
        "evaluate_last": 0,
        "evaluation_episodes": 5,
        "video_every": 50,
        "checkpoint_every": 1,
        "keep_checkpoints": 3,
        "max_skipped_updates": 10,
        "mixed_precision": False,
        "compile": False,
        "replay_ram": 2.0,
        "overlap": False,
    },
}

_REMOVED_0_1 = (
    *("model.min_std", "model.vector_layers", "model.latent_samples", "loss.kl_scale"),
    *("planner.respread", "planner.min_component_weight", "planner.noise_colour"),
    *("planner.converged_std", "train.adam_epsilon", "train.gradient_clip"),
    *("train.mixed_precision", "train.compile", "train.max_skipped_updates"),
)
"""Settings that became constants, with the value that was their default."""

_ABLATION_0_1 = {
    "planet": (False, False),
    "e_only": (True, False),
    "m_only": (False, True),
    "planet_bayes": (True, True),
}
"""Whether a method has an ensemble (E > 1) and a mixture (M > 1)."""

_ADDED_IN_4: Table = {
    "agent": {"belief": "inference", "latent_particles": 64},
    "model": {"dropout_rate": 0.05},
    "learn": {"cycle_updates": 100, "posterior_temperature": 1.0},
}
"""Settings that files of format 3 lack, with values that change nothing in their runs."""

_ADDED_IN_5: Table = {"planner": {"caution": 0.0, "tail": 1.0}}
"""Settings that files of format 4 lack, with values that change nothing in their runs."""

_ADDED_IN_6: Table = {"collect": {"curiosity": 0.0, "curiosity_decay": 1.0}}
"""The same for files of format 5. They also lack ``offline``."""

_ADDED_IN_7: Table = {"loss": {"total_correlation": 0.0}}
"""The same for files of format 6."""

_COLLECT = ("episodes", "seed_episodes", "exploration", "absorbing_steps", "overlap")
_LEARN = (
    *("updates_per_episode", "first_updates", "batch_size", "sequence_length", "batch_sharing"),
    *("agent_weight", "onset_share", "learning_rate"),
)
_RUN = (
    *("evaluate_every", "evaluate_last", "evaluation_episodes", "video_every"),
    *("checkpoint_every", "keep_checkpoints", "replay_ram"),
)


def migrated(data: Any) -> Any:
    """Return the plain data of a configuration in today's format, without its number."""
    if not isinstance(data, dict):
        return data
    version = data.get("format")
    plain = {key: value for key, value in data.items() if key != "format"}
    if version is None:
        version, plain = _OLDEST, _from_0_1(data)
    known = [*range(FORMAT, _OLDEST - 1, -1)]
    if not isinstance(version, int) or version not in known:
        listed = ", ".join(map(str, known))
        raise ConfigError(f"format {version!r}; this version reads the formats {listed} and 0.1.")
    for step in (_from_3, _from_4, _from_5, _from_6)[version - _OLDEST :]:
        plain = step(plain)
    return plain


def _from_6(data: Table) -> Table:
    """Add the settings of format 7."""
    return _with_added(data, _ADDED_IN_7, 6)


def _from_5(data: Table) -> Table:
    """Add the settings of format 6."""
    if "offline" in data:
        raise ConfigError("unknown key 'offline' before format 6.")
    return {**_with_added(data, _ADDED_IN_6, 5), "offline": ""}


def _from_4(data: Table) -> Table:
    """Add the settings of format 5."""
    return _with_added(data, _ADDED_IN_5, 4)


def _with_added(data: Table, added: Table, version: int) -> Table:
    """Return the data of an older format with the settings that it lacks."""
    result = dict(data)
    for group, settings in added.items():
        found = result.get(group)
        if isinstance(found, dict):
            for key in settings:
                if key in found:
                    raise ConfigError(f"unknown key '{group}.{key}' in format {version}.")
            result[group] = {**found, **settings}
    return result


def _from_3(data: Table) -> Table:
    """Add the settings of format 4.

    In format 3 ``keep_elites`` put in each component's mean once (today ``warm_candidates``).
    """
    if "agent" in data:
        raise ConfigError("unknown key 'agent' in a configuration of format 3.")
    result = _with_added({**data, "agent": {}}, _ADDED_IN_4, 3)
    planner = data.get("planner")
    if isinstance(planner, dict):
        warm = planner.get("num_components", 0) if planner.get("keep_elites") else 0
        result["planner"] = {**planner, "warm_candidates": warm}
    return result


def _from_0_1(data: Table) -> Table:
    old = _completed(data, _DEFAULTS_0_1)
    if old["method"] not in _ABLATION_0_1:
        known = ", ".join(_ABLATION_0_1)
        raise ConfigError(f"method: {old['method']!r} is not one of {known}.")
    for name in _REMOVED_0_1:
        group, key = name.split(".")
        if old[group].pop(key) != _DEFAULTS_0_1[group][key]:
            raise ConfigError(f"{name} was set in this file; this version has it fixed.")
    train, env, model, planner = old["train"], old["env"], old["model"], old["planner"]
    ensemble, mixture = _ABLATION_0_1[old["method"]]
    model["num_members"] = old["num_members"] if ensemble else 1
    model["decoder_layers"] = model.pop("image_layers")
    model["dense_units"] = model.pop("vector_units")
    candidates = planner.pop("num_candidates")
    planner["num_trajectories"] = old["num_trajectories"] or candidates * model["num_members"]
    planner["num_components"] = planner["num_components"] if mixture else 1
    _check_oversampling(old["task"], env)
    env["observation"] = [env["observation"]]
    return {
        "task": old["task"],
        "seed": old["seed"],
        "env": env,
        "model": {**model, "posterior": "ensemble", "heads": ["reward"]},
        "loss": old["loss"],
        "planner": planner,
        "collect": {key: train[key] for key in _COLLECT},
        "learn": {**{key: train[key] for key in _LEARN}, "ema_decay": train["averaging"]},
        "run": {
            **{key: train[key] for key in _RUN},
            "threads": old["threads"],
            "device": old["device"],
            "single_environment": False,
        },
    }


def _completed(data: Table, defaults: Table, where: str = "") -> Table:
    """Return ``defaults`` with the values of ``data``, which may have no other keys."""
    result = copy.deepcopy(defaults)
    for key, value in data.items():
        if key not in defaults:
            raise ConfigError(f"unknown key {where + key!r} in a configuration of version 0.1.")
        default: Any = defaults[key]
        if not isinstance(value, _json_types(default)):
            expected = "a table" if isinstance(default, dict) else f"a value like {default!r}"
            raise ConfigError(f"{where + key}: expected {expected}, got {value!r}.")
        inner: Any = value
        if isinstance(default, dict):
            inner = _completed(inner, default, f"{where}{key}.")
        result[key] = inner
    return result


def _json_types(default: Any) -> tuple[type, ...]:
    """Return the types that a value may have where the default is this one."""
    if default is None:  # loss.kl_balance, the only optional setting
        return (int, float, type(None))
    return (int, float) if isinstance(default, float) else (type(default),)


def _check_oversampling(task: str, env: Table) -> None:
    """Refuse images of the suite that were averaged in another way than they are now."""
    oversampling = env.pop("oversampling")
    suite = task in TASKS and TASKS[task].domain != "toy"
    if suite and env["observation"] == "pixels":
        expected = 4 if env["image_size"] == 32 else 1
        if oversampling != expected:
            raise ConfigError(
                f"env.oversampling is {oversampling} in this file; this version has {expected} "
                f"for images of {env['image_size']}×{env['image_size']}."
            )
