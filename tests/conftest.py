"""Settings that all tests share."""

import os
from collections.abc import Iterator

import pytest
import torch

from planet_bayes.config import Config
from tiny_run import TINY

torch.set_num_threads(1)  # tests run side by side, and results depend on the number


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Tests write thousands of small files, and none but the killed processes can lose one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session")
def tiny() -> Config:
    """A run of a second or two: the toy task from sensors, a model of a few units."""
    return TINY
