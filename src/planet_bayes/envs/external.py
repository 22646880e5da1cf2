"""Environments from outside the package: Gymnasium's registered ones and the user's own."""

import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from planet_bayes import plugins
from planet_bayes.errors import ConfigError, EnvError, nearest


def make_external(task: str, known: list[str]) -> gymnasium.Env[Any, Any]:
    """Return the environment of a Gymnasium id or of a ``package.module:function``.

    ``known`` lists the named tasks, for the suggestion in an error message.
    """
    if task in gymnasium.registry:
        return _make_registered(task, gymnasium.registry[task])
    if ":" in task:
        return _make_own(task)
    guess = nearest(task, [*known, *gymnasium.registry])
    raise ConfigError(
        f"unknown task {task!r}{guess} `planet-bayes tasks` lists the named ones; any registered "
        "Gymnasium id (such as Pendulum-v1) and your own as package.module:function work too."
    )


def _make_registered(task: str, spec: EnvSpec) -> gymnasium.Env[Any, Any]:
    try:
        entry = spec.entry_point
        creator = load_env_creator(entry) if isinstance(entry, str) else entry
        # Environments without this mode warn or fail if they are asked for it.
        if isinstance(creator, type):
            renders = "rgb_array" in getattr(creator, "metadata", {}).get("render_modes", [])
        else:
            renders = creator is not None and _accepts_render_mode(creator)
        kwargs: dict[str, Any] = {"render_mode": "rgb_array"} if renders else {}
        # `Guard` checks the same things as Gymnasium's checker, and refuses instead of warning.
        return gymnasium.make(spec, disable_env_checker=True, **kwargs)
    except Exception as error:
        raise EnvError(
            f"{task}: Gymnasium could not make it ({type(error).__name__}: {error}). "
            "Install the package that it names, or check that gymnasium.make works for it."
        ) from error


def _make_own(task: str) -> gymnasium.Env[Any, Any]:
    module_name, _, name = task.partition(":")
    try:
        module = plugins.load(module_name)
    except ConfigError as error:
        raise EnvError(f"{task}: {error}") from error
    function = getattr(module, name, None)
    if function is None:
        # Gymnasium's form "module:EnvId": the import registered the id.
        if name in gymnasium.registry:
            return _make_registered(task, gymnasium.registry[name])
        names = [key for key in vars(module) if not key.startswith("_")]
        raise EnvError(
            f"{task}: the module {module_name!r} has no {name!r} and registers no Gymnasium id of "
            f"that name{nearest(name, names)} Define a function {name}() in it that returns a "
            "gymnasium.Env."
        )
    if not callable(function):
        raise EnvError(
            f"{task}: {name!r} is a {type(function).__name__}, expected a function "
            "that returns a gymnasium.Env."
        )
    return _call(task, function)


def _call(task: str, function: Callable[..., Any]) -> gymnasium.Env[Any, Any]:
    kwargs = {"render_mode": "rgb_array"} if _accepts_render_mode(function) else {}
    try:
        env = function(**kwargs)
    except Exception as error:
        arguments = "render_mode='rgb_array'" if kwargs else "no arguments"
        raise EnvError(
            f"{task}: calling it with {arguments} raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(env, gymnasium.Env):
        raise EnvError(
            f"{task} returned a {type(env).__module__}.{type(env).__qualname__}, expected a "
            "gymnasium.Env. Subclass gymnasium.Env, or convert it (for example with Shimmy)."
        )
    return env


def _accepts_render_mode(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some callables written in C have no signature
        return False
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return any(
        (parameter.name == "render_mode" and parameter.kind in by_keyword)
        or parameter.kind is inspect.Parameter.VAR_KEYWORD
        for parameter in parameters.values()
    )
