"""All figures of a page, as plain data for its script."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planet_bayes.data.folder import RunFolder
from planet_bayes.data.rows import read_metrics
from planet_bayes.diagnostics.explain.images import data_uri, packed, sheet
from planet_bayes.diagnostics.explain.latent import MIN_PROBE_STEPS, probe, projection
from planet_bayes.diagnostics.explain.outlook import Outlook, View, futures, outlook
from planet_bayes.diagnostics.explain.source import Scene, baselines
from planet_bayes.envs import TASKS
from planet_bayes.models import Modality, Vector
from planet_bayes.runs import Run

Array = NDArray[Any]
Plain = dict[str, Any]

FUTURE_STEPS = 50
"""Steps of the episode whose imagined futures are in memory at once."""
CURVES = ("train_return", "evaluation_return")


def explained(run: Run, scene: Scene, command: str) -> Plain:
    """Return the figures of the page of one episode."""
    ahead = outlook(run.agent, scene.recording)
    return {
        **episode_facts(run, scene, ahead),
        "baselines": baseline_facts(run, scene.recording.acted),
        "latent": _latent(run, scene),
        "probe": _probe(run, scene),
        "probe_steps": MIN_PROBE_STEPS,
        "settings": _settings(run),
        "curve": _curve(run),
        "command": command,
    }


def episode_facts(run: Run, scene: Scene, ahead: Outlook) -> Plain:
    """Return what is known of the run and of the episode, without the latent space."""
    recording = scene.recording
    moments, episode = recording.moments, recording.episode
    _, components, horizon, actions = moments.mean.shape
    spec = TASKS.get(run.config.task)
    return {
        "run": run.path.name or str(run.path),
        "task": run.config.task,
        "description": spec.description if spec is not None else "",
        "trained": run.trained_episodes,
        "title": scene.title,
        "return": float(episode.reward.sum(dtype=np.float64)),
        "acted": recording.acted,
        "complete": recording.complete,
        "steps": len(moments),
        "horizon": horizon,
        "members": moments.deter.shape[1],
        "components": components,
        "actions": actions,
        "execute": run.config.planner.execute,
        "period": scene.period,
        "reward": packed(episode.reward),
        "action": packed(episode.action),
        "vectors": [
            _vector(name, view, run.agent.signature.observation[name], scene.names)
            for name, view in ahead.vectors.items()
        ],
        "images": [_image(name, view, ahead.steps) for name, view in ahead.images.items()],
        "frames": None if recording.frames is None else list(map(data_uri, recording.frames)),
        "plans": _plans(scene),
        "sure": _sure(run, scene, ahead),
    }


def baseline_facts(run: Run, played: bool) -> Plain:
    """Return mean and std of the returns of simple policies."""
    found = baselines(run, played)
    return {name: summary(values) for name, values in found.items()}


def summary(values: list[float]) -> Plain:
    """Return mean and std of some returns."""
    return {"mean": float(np.mean(values)), "std": float(np.std(values)), "episodes": len(values)}


def _vector(name: str, view: View, modality: Modality, names: tuple[str, ...]) -> Plain:
    return {
        "name": name,
        "labels": entry_names(name, modality, names)[: view.real.shape[1]],
        "entries": modality.shape[0],
        "real": packed(view.real),
        "decoded": packed(view.decoded),
        "imagined": packed(view.imagined),
    }


def entry_names(name: str, modality: Modality, native: tuple[str, ...]) -> list[str]:
    """Return names of the entries of a vector that the agent sees.

    Args:
        name: Of the observation.
        modality: Its modality.
        native: Names of the entries of the environment's own observation; empty: not known.
    """
    if not isinstance(modality, Vector) or modality.size != len(native):
        return [f"{name}[{index}]" for index in range(modality.shape[0])]
    found: list[str] = []
    for index in modality.entries or range(modality.size):
        entry = native[index]
        found += [f"cos {entry}", f"sin {entry}"] if index in modality.angles else [entry]
    return found


def _image(name: str, view: View, steps: tuple[int, ...]) -> Plain:
    """Return frames, and for each step one sheet: a row for each member.

    The first column is the reconstruction. Those of the steps ahead follow.
    """
    tiles = np.concatenate([view.decoded[:, :, None], view.imagined], 2)  # [T, P, 1 + n, S, S, 3]
    return {
        "name": name,
        "steps": list(steps),
        "frames": list(map(data_uri, view.real)),
        "sheets": [data_uri(sheet(one)) for one in tiles],
    }


def _plans(scene: Scene) -> Plain:
    moments = scene.recording.moments
    return {
        "weight": packed(moments.weight),
        "mean": packed(moments.mean),
        "std": packed(moments.std),
        "returns": packed(moments.returns),
        "value": packed(moments.value),
        "sequence": packed(moments.sequence),
        "heaviest": moments.heaviest.tolist(),
        "dead": moments.dead.astype(int).tolist(),
        "merged": moments.merged.tolist(),
    }


def _sure(run: Run, scene: Scene, ahead: Outlook) -> Plain:
    moments, returns = scene.recording.moments, ahead.returns
    monitor = run.agent.monitor
    calibration = None if monitor is None else monitor.calibration
    with np.errstate(over="ignore"):
        nats = np.exp(moments.log_kl)
    return {
        "calibrated": returns.calibrated,
        "level": None if calibration is None else calibration.level,
        "members": packed(returns.members),
        "mean": packed(returns.mean),
        "low": packed(returns.low),
        "high": packed(returns.high),
        "real": packed(returns.real),
        "left": np.flatnonzero(returns.left).tolist(),
        "known": int(np.isfinite(returns.real[:, -1]).sum()),
        "disagreement": packed(returns.std[:, -1]),
        "surprise": packed(nats) if np.isfinite(nats).any() else None,
        "alarm": np.flatnonzero(moments.alarm).tolist(),
        "samples": packed(moments.samples),
        "components": packed(moments.components),
        "distinct": packed(moments.distinct),
        "seconds": packed(moments.seconds),
    }


def _latent(run: Run, scene: Scene) -> list[Plain]:
    """Return flat pictures of the beliefs: of all living members as one vector, and of each."""
    moments = scene.recording.moments
    living = np.flatnonzero(np.isfinite(moments.features).all((0, 2)))
    beliefs = moments.features[:, living]  # [T, P, F]
    steps, members, _ = beliefs.shape
    names = [f"member {index + 1}" for index in living]
    maps = [projection(beliefs[:, index]) for index in range(members)]
    whole = projection(beliefs.reshape(steps, -1))
    branches: list[list[Array]] = [[] for _ in range(members + 1)]
    for start in range(0, steps, FUTURE_STEPS):
        some = futures(run.agent, moments.part(slice(start, start + FUTURE_STEPS)))[:, :, living]
        branches[0].append(whole(np.concatenate(list(some.transpose(2, 0, 1, 3, 4)), -1)))
        for index in range(members):
            branches[index + 1].append(maps[index](some[:, :, index]))
    paths = [whole(beliefs.reshape(steps, -1))]
    paths += [maps[index](beliefs[:, index]) for index in range(members)]
    views = [
        {
            "name": name,
            "share": flat.share.tolist(),
            "path": packed(path),
            "futures": packed(np.concatenate(branch)),
        }
        for name, flat, path, branch in zip(
            ["all members", *names], [whole, *maps], paths, branches, strict=True
        )
    ]
    return views if members > 1 else views[1:]


def _probe(run: Run, scene: Scene) -> list[Plain]:
    """Return how well each member's belief tells the state, or the vectors that the agent sees."""
    recording = scene.recording
    beliefs = recording.moments.features
    steps, members, _ = beliefs.shape
    if recording.states is not None:
        names, targets = list(scene.names), recording.states[:steps]
    else:
        signature, seen = run.agent.signature, recording.episode.observation
        vectors = list(signature.vector_sizes())
        if not vectors:
            return []
        names = [
            entry
            for name in vectors
            for entry in entry_names(name, signature.observation[name], scene.names)
        ]
        targets = np.concatenate([seen[name][:steps] for name in vectors], -1)
    read = np.stack([probe(beliefs[:, index], targets) for index in range(members)])  # [P, K]
    return [
        {"name": name, "r2": [None if np.isnan(value) else float(value) for value in column]}
        for name, column in zip(names, read.T, strict=True)
    ]


def _settings(run: Run) -> list[list[str]]:
    rows = []
    for part in dataclasses.fields(run.config):
        value = getattr(run.config, part.name)
        if dataclasses.is_dataclass(value):
            names = [entry.name for entry in dataclasses.fields(value)]
            rows += [[f"{part.name}.{name}", _shown(getattr(value, name))] for name in names]
        else:
            rows.append([part.name, _shown(value)])
    return rows


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _curve(run: Run) -> dict[str, list[list[float]]]:
    """Return the returns by training episode: pairs of an episode and a return."""
    rows = read_metrics(RunFolder(run.path).metrics)
    found: dict[str, list[list[float]]] = {}
    for name in CURVES:
        pairs = [[row["episode"], row[name]] for row in rows if _is_number(row.get(name))]
        if pairs:
            found[name] = pairs
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and bool(np.isfinite(value))
