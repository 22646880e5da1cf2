"""Episodes as files: what is packed comes back, and nothing else is accepted."""

import hashlib
import io
import json
import pickle
import struct
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from planet_bayes.data import files
from planet_bayes.data.episode import pack, read_episode, unpack
from planet_bayes.data.files import DamagedError
from planet_bayes.data.replay import Replay
from planet_bayes.errors import RunError
from planet_bayes.types import Episode

OLD = Path(__file__).parent / "data" / "format-0.1"


def several(length: int = 5, seed: int = 0) -> Episode:
    """Return an episode with two cameras and joints, which ends in a terminal state."""
    rng = np.random.default_rng(seed)
    return Episode(
        {
            "wrist": rng.integers(0, 256, (length, 4, 4, 3), np.uint8),
            "overhead": rng.integers(0, 256, (length, 2, 2, 3), np.uint8),
            "joints": rng.normal(size=(length, 3)).astype(np.float32),
        },
        rng.uniform(-1, 1, (length, 2)).astype(np.float32),
        rng.normal(size=length).astype(np.float32),
        np.arange(length) >= length - 2,
    )


def assert_equal(left: Episode, right: Episode) -> None:
    assert list(left.observation) == list(right.observation)
    pairs = [(left.observation[name], right.observation[name]) for name in left.observation]
    pairs += [(left.action, right.action), (left.reward, right.reward)]
    for one, other in [*pairs, (left.terminal, right.terminal)]:
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def test_what_is_packed_comes_back() -> None:
    episode = several()
    again = unpack(pack(episode))
    assert_equal(again, episode)
    assert again.num_bytes == episode.num_bytes == 5 * (48 + 12 + 12 + 8 + 4 + 1)
    assert again.observation["wrist"].flags.writeable  # PyTorch may share it


@settings(deadline=None, max_examples=50)
@given(
    length=st.integers(1, 6),
    shapes=st.dictionaries(
        st.text("abcXYZ_", min_size=1, max_size=5),
        arrays.array_shapes(min_dims=0, max_dims=3, max_side=4),
        min_size=1,
        max_size=3,
    ),
    pixels=st.booleans(),
)
def test_any_names_and_shapes_come_back(
    length: int, shapes: dict[str, tuple[int, ...]], pixels: bool
) -> None:
    dtype = np.uint8 if pixels else np.float32
    rng = np.random.default_rng(length)
    observation = {
        name: (100 * rng.random((length, *shape))).astype(dtype) for name, shape in shapes.items()
    }
    zeros = np.zeros((length, 1), np.float32)
    episode = Episode(observation, zeros, zeros[:, 0], np.zeros(length, np.bool_))
    assert_equal(unpack(pack(episode)), episode)


def test_the_same_episode_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    first = pack(several())
    noon = time.struct_time((2031, 5, 6, 12, 0, 0, 1, 126, 0))
    monkeypatch.setattr(time, "time", lambda: 2e9)
    monkeypatch.setattr(time, "localtime", lambda *_: noon)
    assert pack(several()) == first
    assert pack(unpack(first)) == first
    assert pack(several(seed=1)) != first


def test_arrays_in_columns_come_back() -> None:
    episode = several()
    columns = Episode(
        {name: np.asfortranarray(value) for name, value in episode.observation.items()},
        np.asfortranarray(episode.action),
        episode.reward,
        episode.terminal,
    )
    assert_equal(unpack(pack(columns)), episode)


# --- files of version 0.1


@pytest.mark.parametrize(("run", "name"), [("sensors", "sensors"), ("pixels", "camera")])
def test_files_of_version_0_1(run: str, name: str) -> None:
    folder = OLD / run / "episodes"
    sums = files.read_sums(folder)
    paths = sorted(folder.glob("*.npz"))
    assert len(paths) >= 2
    for path in paths:
        episode = read_episode(path, sums[path.name], unnamed=name)
        with np.load(path) as old:
            assert set(old) == {"observation", "action", "reward"}
            assert np.array_equal(episode.observation[name], old["observation"])
            assert np.array_equal(episode.action, old["action"])
            assert np.array_equal(episode.reward, old["reward"])
        assert list(episode.observation) == [name]
        assert episode.terminal.dtype == np.bool_
        assert not episode.terminal.any()  # the file does not say
        assert_equal(unpack(pack(episode)), episode)  # written anew, it has a name
        with pytest.raises(DamagedError, match=r"of version 0\.1, whose observation has no name"):
            read_episode(path)


@pytest.mark.parametrize(("run", "name"), [("sensors", "sensors"), ("pixels", "camera")])
def test_a_replay_of_version_0_1(run: str, name: str, tmp_path: Path) -> None:
    for path in (OLD / run / "episodes").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    progress = json.loads(next((OLD / run).glob("checkpoints/*/progress.json")).read_text())
    replay = Replay(tmp_path, ram_bytes=1, unnamed=name)
    assert replay.damaged(progress["episodes"]) == {}
    replay.restore(progress["episodes"])
    replay.add(replay.episode(0))  # a file with names beside those without
    batch = replay.sample(np.random.default_rng(0), 1, 30, 2)
    assert list(batch.observation) == [name]
    assert set(replay.moments()) == {name, "reward"}


# --- what is refused


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    touched = tmp_path / "touched"

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (touched,)

    path = tmp_path / "000000.npz"
    bomb = np.array([Bomb()], object)
    parts: dict[str, Any] = {"observation.a": bomb, "action": 1, "reward": 1, "terminal": 0}
    np.savez(path, **parts)
    for contents in (path.read_bytes(), pickle.dumps(Bomb())):
        path.write_bytes(contents)
        with pytest.raises(RunError, match="is not an episode"):
            read_episode(path)
    assert not touched.exists()


def packed(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return buffer.getvalue()


def array(value: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, value)
    return buffer.getvalue()


ONE, TWO = array(np.zeros(3, np.float32)), array(np.zeros((3, 2), np.float32))
END = array(np.zeros(3, np.bool_))
GOOD = {"observation.a": TWO, "action": TWO, "reward": ONE, "terminal": END}
CLAIMS = ONE.replace(b"(3,)", b"(3000000000000,)".ljust(4))


def header(text: str) -> bytes:
    """Return an array's file with this text as its header."""
    raw = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(raw)) + raw + bytes(12)


def encrypted() -> bytes:
    data = bytearray(packed(GOOD))
    data[data.find(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


WRONG = {
    "compressed": packed(GOOD, zipfile.ZIP_DEFLATED),
    "claims more than it has": packed(GOOD | {"reward": CLAIMS}),
    "has less than it claims": packed(GOOD | {"reward": ONE[:-1]}),
    "a reward of two axes": packed(GOOD | {"reward": TWO}),
    "a terminal of two axes": packed(GOOD | {"terminal": array(np.zeros((3, 1), np.bool_))}),
    "a terminal of floats": packed(GOOD | {"terminal": ONE}),
    "another length": packed(GOOD | {"action": array(np.zeros((4, 2), np.float32))}),
    "another length of the end": packed(GOOD | {"terminal": array(np.zeros(2, np.bool_))}),
    "float64": packed(GOOD | {"action": array(np.zeros((3, 2)))}),
    "an observation of float64": packed(GOOD | {"observation.a": array(np.zeros((3, 2)))}),
    "no entries": packed({name: array(np.zeros((0, 2), np.float32)) for name in GOOD}),
    "an observation without entries": packed(
        GOOD | {"observation.a": array(np.zeros((0, 2), np.float32))}
    ),
    "a number": packed(GOOD | {"reward": array(np.array(1, np.float32))}),
    "no observation": packed({"action": TWO, "reward": ONE, "terminal": END}),
    "no reward": packed({"observation.a": TWO, "action": TWO, "terminal": END}),
    "no terminal": packed({"observation.a": TWO, "action": TWO, "reward": ONE}),
    "another array": packed(GOOD | {"extra": ONE}),
    "both formats": packed(GOOD | {"observation": TWO}),
    "cut short": packed(GOOD)[:-30],
    "empty": b"",
    "encrypted": encrypted(),
    "of another version": packed(GOOD | {"reward": ONE.replace(b"Y\x01\x00", b"Y\x02\x00")}),
    "a header of operators": packed(GOOD | {"reward": header("-" * 9000 + "1")}),
    "a header of sums": packed(GOOD | {"reward": header("1+" * 4000 + "1")}),
    "a header of brackets": packed(GOOD | {"reward": header("(" * 150)}),
    "a header of code": packed(GOOD | {"reward": header("__import__('os')")}),
}


@pytest.mark.parametrize("kind", sorted(WRONG))
def test_damaged_and_foreign_archives_are_refused(kind: str, tmp_path: Path) -> None:
    assert CLAIMS != ONE
    assert len(unpack(packed(GOOD))) == 3
    with pytest.raises(ValueError, match=r"."):
        unpack(WRONG[kind])
    path = tmp_path / "000000.npz"
    path.write_bytes(WRONG[kind])
    with pytest.raises(DamagedError, match=r"000000\.npz is not an episode: "):
        read_episode(path)


def test_archives_of_version_0_1_are_checked_alike() -> None:
    good = {"observation": TWO, "action": TWO, "reward": ONE}
    assert len(unpack(packed(good), "x")) == 3
    for wrong in (
        packed(good, zipfile.ZIP_DEFLATED),
        packed(good | {"reward": CLAIMS}),
        packed(good | {"reward": TWO}),
        packed(good | {"action": array(np.zeros((4, 2), np.float32))}),
        packed(good | {"observation": array(np.zeros((0, 2), np.float32))}),
        packed({"observation": TWO, "action": TWO}),
        packed(good)[:-30],
    ):
        with pytest.raises(ValueError, match=r"."):
            unpack(wrong, "x")


@settings(deadline=None, max_examples=200)
@given(data=st.binary(max_size=400))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack(data)


@settings(deadline=None, max_examples=300)
@given(at=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.integers(0, 10_000))
def test_a_damaged_file_is_an_episode_or_refused(at: int, byte: int, cut: int) -> None:
    data = bytearray(pack(several()))
    data[at % len(data)] = byte
    for damaged in (bytes(data), bytes(data[: cut % len(data)])):
        try:
            episode = unpack(damaged)
        except ValueError:
            continue
        assert len(episode) == 5


def test_a_file_has_the_checksum_that_is_expected(tmp_path: Path) -> None:
    path = tmp_path / "episode.npz"
    data = pack(several())
    path.write_bytes(data)
    assert_equal(read_episode(path, hashlib.sha256(data).hexdigest()), several())
    with pytest.raises(DamagedError, match="checksum is not the one in SHA256SUMS"):
        read_episode(path, "0" * 64)
    path.unlink()
    with pytest.raises(DamagedError, match="cannot be read: No such file"):
        read_episode(path)
