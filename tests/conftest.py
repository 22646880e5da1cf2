"""Settings that all tests share."""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from env_parts import Plain
from planet_bayes.config import Config
from planet_bayes.training import loop
from tiny_run import TINY

FILM = loop.film

torch.set_num_threads(1)  # tests run side by side, and results depend on the number


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Tests write thousands of small files, and none but the killed processes can lose one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_films() -> Iterator[None]:
    """The film at the end of a run takes a third of its time; `films` brings it back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "film", lambda run: None)
        yield


@pytest.fixture
def films(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make films as a run does."""
    monkeypatch.setattr(loop, "film", FILM)


@pytest.fixture(scope="session")
def tiny() -> Config:
    """A run of a second or two: the toy task from sensors, a model of a few units."""
    return TINY


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that publishes a `Plain` environment and returns its task's name."""

    def publish(**parts: Any) -> str:
        module = type(sys)("own_env")
        module.env = Plain(**parts)  # type: ignore[attr-defined]
        module.make = lambda: module.env  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "own_env", module)
        return "own_env:make"

    return publish
