"""What Gymnasium's own wrappers lack: a guard against unusable values, and action repeat."""

import copy
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from planet_bayes.errors import EnvError

_LARGEST = float(np.finfo(np.float32).max)  # observations become float32 further out


class Hung(BaseException):
    """A call into an environment did not return in time.

    Not an Exception, so that an environment which retries whatever fails does not catch it.
    """


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `Hung` inside the block when it lasts longer than ``seconds``; 0 is no limit.

    The alarm reaches whatever waits: for a camera, a socket, a lock, a sleep. It cannot reach
    compiled code that computes and never comes back, nor threads other than the main one.
    """
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: Any) -> None:
        raise Hung(f"it has not returned in {seconds:g} s")

    began = time.monotonic()
    outer, interval = signal.getitimer(signal.ITIMER_REAL)
    if 0 < outer <= seconds:
        yield  # the limit around this one comes first
        return
    handler = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)  # again, should the first be lost
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if outer:
            left = max(outer - (time.monotonic() - began), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, left, interval)


class Guard(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Turns whatever goes wrong inside an environment into an error that names it.

    It sits right around the environment, so that every other wrapper may trust what it gets:
    finite observations of the declared shape and type, a finite float as reward, RGB frames,
    and all of it within ``timeout`` seconds a call.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        task: str,
        *,
        render_advice: str = "",
        timeout: float = 0.0,
    ) -> None:
        super().__init__(env)
        self._task = task
        self._render_advice = render_advice
        self._timeout = timeout
        self._hung = False
        # As declared when it was made: one that changes later is not to be believed.
        self._space = copy.deepcopy(env.observation_space)
        self._step: int | None = None
        """Steps of this episode so far; None between episodes."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        with self._called("reset()"):
            observation, info = self.env.reset(seed=seed, options=options)
            self._check_observation(observation, self._space, "reset()")
        self._step = 0
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one simulator step."""
        if self._step is None:
            raise EnvError(f"{self._task}: step() outside an episode; call reset() first.")
        self._step += 1
        where = f"step {self._step}"
        with self._called(where):
            observation, reward, terminated, truncated, info = self.env.step(action)
            self._check_observation(observation, self._space, where)
            value = self._check_reward(reward, where)
            terminated, truncated = bool(terminated), bool(truncated)
        if terminated or truncated:
            # dm_control would silently start a new episode at the next step.
            self._step = None
        return observation, value, terminated, truncated, info

    def render(self) -> NDArray[np.uint8]:
        """Return an RGB frame of its own memory."""
        if self.env.render_mode != "rgb_array":
            raise EnvError(
                f"{self._task} cannot render: its render_mode is {self.env.render_mode!r}, and "
                "'rgb_array' is needed. Give the environment that mode (a function of yours "
                "receives it if it takes a render_mode argument); only pixels and videos need it."
            )
        with self._called("render()", self._render_advice):
            frame: Any = self.env.render()
        if not (
            isinstance(frame, np.ndarray)
            and frame.dtype == np.uint8
            and frame.ndim == 3
            and frame.shape[-1] == 3
            and frame.size > 0
        ):
            raise EnvError(
                f"{self._task}: render() returned {_describe(frame)}, expected an RGB image: "
                "a uint8 array of shape (height, width, 3)."
            )
        # MuJoCo's frames are upside-down views with negative strides, which PyTorch refuses, and
        # other environments draw into one buffer again and again: hence always a copy.
        return np.array(frame, order="C")

    def close(self) -> None:
        """Close the environment, unless it hangs already: it would not answer."""
        if self._hung:
            return
        with self._called("close()"):
            super().close()

    @contextmanager
    def _called(self, where: str, advice: str = "") -> Iterator[None]:
        """Name what goes wrong in a call into the environment, or in checking what it returned."""
        try:
            with limited(self._timeout):
                yield
        except EnvError:
            raise
        except Hung as error:
            self._hung = True
            raise EnvError(
                f"{self._task}: {where} hangs: {error}. See what it waits for; --env.timeout "
                "sets how long is too long."
            ) from error
        except (Exception, SystemExit) as error:
            message = f"{self._task}: {where} raised {type(error).__name__}: {error}"
            raise EnvError(f"{message.rstrip('. ')}. {advice}" if advice else message) from error

    def _check_reward(self, reward: Any, where: str) -> float:
        value = np.asarray(reward)
        # Rewards become float32 further out; the repeats of an action add up before.
        if (
            value.shape != ()
            or value.dtype.kind not in "fiub"
            or not abs(float(value)) <= _LARGEST / 1e6
        ):
            raise EnvError(
                f"{self._task}: the reward at {where} is {_describe(reward)}, "
                "expected one finite number."
            )
        return float(value)

    def _check_observation(
        self, value: Any, space: spaces.Space[Any], where: str, key: str = ""
    ) -> None:
        name = f"the observation{key} at {where}"
        if isinstance(space, spaces.Dict):
            if not isinstance(value, Mapping) or set(value) != set(space.spaces):
                raise self._unlike(name, value, f"a dict with the keys {list(space.spaces)}")
            for part, inner in space.spaces.items():
                self._check_observation(value[part], inner, where, f"{key}[{part!r}]")
        elif isinstance(space, spaces.Tuple):
            if not isinstance(value, tuple) or len(value) != len(space.spaces):
                raise self._unlike(name, value, f"a tuple of {len(space.spaces)}")
            for index, inner in enumerate(space.spaces):
                self._check_observation(value[index], inner, where, f"{key}[{index}]")
        elif not isinstance(space, spaces.Box):
            if not space.contains(value):
                raise self._unlike(name, value, f"a member of {space}")
        else:
            array = np.asarray(value)
            # float64 in a float32 space is common and harmless; floats in an image are neither.
            if array.shape != space.shape or not np.can_cast(array.dtype, space.dtype, "same_kind"):
                expected = f"an array of shape {space.shape} and type {space.dtype}"
                raise self._unlike(name, value, expected)
            if array.dtype.kind == "f":
                # NaN compares false, so one comparison finds it, infinities and overflow.
                usable = np.abs(array) <= _LARGEST
                if not usable.all():
                    entry = int(np.flatnonzero(~usable)[0])
                    raise EnvError(
                        f"{self._task}: {name} is not finite: entry {entry} of the flattened "
                        f"array is {array.ravel()[entry]}."
                    )

    def _unlike(self, name: str, value: Any, expected: str) -> EnvError:
        return EnvError(
            f"{self._task}: {name} is {_describe(value)}, but its observation space says "
            f"{expected}. Make observation_space and what reset() and step() return agree."
        )


class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Applies each action for several steps and sums the rewards; stops where the episode does."""

    def __init__(self, env: gymnasium.Env[Any, Any], repeat: int) -> None:
        assert repeat >= 1
        super().__init__(env)
        self._repeat = repeat
        if self.env.metadata.get("render_fps"):
            # One frame is seen per action, so a film at this rate plays in real time.
            rate = self.env.metadata["render_fps"] / repeat
            self.metadata = {**self.env.metadata, "render_fps": rate}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take up to ``repeat`` steps; observation and info are the last step's."""
        total = 0.0
        for _ in range(self._repeat):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and type {value.dtype}"
    if isinstance(value, Mapping):
        return f"a dict with the keys {list(value)}"
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"
