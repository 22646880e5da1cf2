"""Episodes of all conditions in a folder, so that several models are compared on the same ones.

The folder has one file for each episode (see `planet_bayes.data.episode`), called
``CONDITION-NUMBER.npz``, the facts about all of them in ``conditions.json``, and checksums.
"""

from __future__ import annotations

import json
from pathlib import Path

from planet_bayes.data import files
from planet_bayes.data.episode import pack, read_episode
from planet_bayes.diagnostics.conditions import CLEAN, CONDITIONS, Collection
from planet_bayes.errors import RunError
from planet_bayes.runs import Run
from planet_bayes.spaces import Signature

FACTS = "conditions.json"
MADE_BY = "such folders are made by `planet-bayes diagnose RUN --save FOLDER`."


def check_new(folder: Path) -> None:
    """Refuse a folder that exists, before minutes are spent on what it shall hold."""
    if folder.exists():
        raise RunError(f"{folder} exists already; name another folder.")


def save(collection: Collection, run: Run, folder: Path) -> None:
    """Write the episodes of all conditions to a new folder."""
    check_new(folder)
    facts = {
        "task": run.config.task,
        "acted": run.path.name,
        "signature": json.loads(run.agent.signature.to_json()),
        "episodes": {name: len(made) for name, made in collection.episodes.items()},
        "skipped": collection.skipped,
    }
    with files.new_folder(folder) as new:
        files.put(new / FACTS, json.dumps(facts, indent=2) + "\n")
        for name, made in collection.episodes.items():
            for number, episode in enumerate(made):
                files.put(new / _file(name, number), pack(episode))


def load(folder: Path, run: Run) -> Collection:
    """Read the episodes of all conditions, which must be of the run's task and signature."""
    if not (folder / FACTS).is_file():
        raise RunError(f"{folder} has no {FACTS}; {MADE_BY}")
    files.check_folder(folder)
    try:
        facts = json.loads((folder / FACTS).read_text())
        task, signature = facts["task"], Signature.from_json(json.dumps(facts["signature"]))
        counts = {str(name): int(count) for name, count in facts["episodes"].items()}
        skipped = {str(name): str(reason) for name, reason in facts["skipped"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{folder / FACTS} cannot be read ({error!r}); {MADE_BY}") from error
    if task != run.config.task or signature != run.agent.signature:
        raise RunError(
            f"{folder} has episodes of {task} with the observations "
            f"{', '.join(signature.observation)}; {run.path} was trained on {run.config.task} with "
            f"{', '.join(run.agent.signature.observation)}. Both must agree, also in how "
            "observations are prepared: record episodes with such a run."
        )
    if CLEAN not in counts or not {*counts, *skipped} <= set(CONDITIONS):
        raise RunError(
            f"{folder} has the conditions {', '.join(counts)}; there must be {CLEAN!r}, and none "
            f"but {', '.join(CONDITIONS)}. Record the episodes again."
        )
    episodes = {
        name: [read_episode(folder / _file(name, number)) for number in range(count)]
        for name, count in counts.items()
    }
    return Collection(episodes, skipped)


def _file(condition: str, number: int) -> str:
    return f"{condition}-{number:03d}.npz"
