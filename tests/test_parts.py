"""Sequences of episodes that are not in memory: only their blocks are read, and all are checked."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from planet_bayes.data.episode import EpisodeFile, pack, unpack
from planet_bayes.data.parts import BLOCK
from planet_bayes.data.replay import Replay
from planet_bayes.errors import RunError
from planet_bayes.types import Episode


def episode(number: int = 0, length: int = 60) -> Episode:
    """Return an episode of 32×32 images: about 11 blocks."""
    rng = np.random.default_rng(number)
    return Episode(
        {
            "camera": rng.integers(0, 256, (length, 32, 32, 3), np.uint8),
            "joints": rng.standard_normal((length, 5)).astype(np.float32),
        },
        action=rng.standard_normal((length, 2)).astype(np.float32),
        reward=rng.standard_normal(length).astype(np.float32),
        terminal=np.arange(length) > 50,
    )


def written(path: Path, one: Episode) -> EpisodeFile:
    path.write_bytes(pack(one))
    file = EpisodeFile.of(path, pack(one))
    assert file is not None
    return file


def assert_rows(found: Episode, whole: Episode, start: int, stop: int) -> None:
    pairs = [(found.observation[name], whole.observation[name]) for name in whole.observation]
    for name in ("action", "reward", "terminal"):
        pairs.append((getattr(found, name), getattr(whole, name)))
    for part, expected in pairs:
        assert part.dtype == expected.dtype
        assert np.array_equal(part, expected[start:stop])


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (0, 60), (17, 29), (59, 60), (40, 99)])
def test_rows_are_those_of_the_episode(tmp_path: Path, start: int, stop: int) -> None:
    file = written(tmp_path / "one.npz", episode())
    assert_rows(file.rows(start, stop), episode(), start, stop)


def test_a_sequence_reads_only_its_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, total, pread = written(tmp_path / "one.npz", episode(0, 600)), 0, os.pread

    def counted(handle: int, size: int, offset: int) -> bytes:
        nonlocal total
        total += size
        return pread(handle, size, offset)

    monkeypatch.setattr(os, "pread", counted)
    file.rows(100, 110)
    needed = 10 * 32 * 32 * 3
    assert needed < total <= needed + 10 * BLOCK
    assert total < file.blocks.size / 10


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_is_never_used(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "one.npz"
    file = written(path, episode())
    data = bytearray(path.read_bytes())
    place = file.layout[0][1].offset + 20 * 32 * 32 * 3  # in frame 20
    if damage == "flip":
        data[place] ^= 1
    elif damage == "cut":
        del data[place:]
    path.write_bytes(data) if damage != "remove" else path.unlink()
    with pytest.raises(RunError, match=r"one\.npz"):
        file.rows(18, 22)
    if damage == "flip":
        assert_rows(file.rows(40, 44), episode(), 40, 44)  # its blocks are whole


def test_what_is_stored_by_columns_is_read_whole(tmp_path: Path) -> None:
    one = episode()
    turned = dataclasses.replace(one, action=np.asfortranarray(one.action))
    assert EpisodeFile.of(tmp_path / "one.npz", pack(turned)) is None
    assert_rows(unpack(pack(turned)), one, 0, 60)
    small, large = Replay(tmp_path / "a", ram_bytes=1), Replay(tmp_path / "b")
    for replay in (small, large):
        for number in range(3):
            replay.add(turned if number == 1 else episode(number))
    batches = [replay.sample(np.random.default_rng(0), 1, 20, 7) for replay in (small, large)]
    assert torch.equal(batches[0].action, batches[1].action)


def test_an_episode_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    replay = Replay(tmp_path, ram_bytes=1)
    for number in range(3):
        replay.add(episode(number))
    again = Replay(tmp_path, ram_bytes=1)
    assert not again.replace(0, episode(7))
    again.restore(3)
    for index, number in ((0, 7), (1, 1)):
        assert_rows(again.part(index, 5, 10), episode(number), 5, 15)


def test_beyond_the_end_there_are_no_rows(tmp_path: Path) -> None:
    file = written(tmp_path / "one.npz", episode())
    for start in (60, 61, 1000):
        assert len(file.rows(start, start + 3)) == 0


def test_thousands_of_files_share_one_layout(tmp_path: Path) -> None:
    files = [written(tmp_path / f"{number}.npz", episode(number)) for number in range(3)]
    assert len({id(file.layout) for file in files}) == 1
