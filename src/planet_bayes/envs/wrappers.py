"""Wrappers: a guard against unusable values and hanging calls, and action repeat."""

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

MAX_FLOAT32 = float(np.finfo(np.float32).max)
"""Largest observation: observations become float32 when they are prepared."""
MAX_REWARD = MAX_FLOAT32 / 1e6
"""Largest reward of one step: the sum over an action repeat must be a finite float32."""
MIN_ALARM_SECONDS = 1e-3
"""Shortest time for which an outer alarm is set again."""


class Hung(BaseException):
    """A call into an environment did not return in time.

    It is no Exception: an environment that retries failed calls must not catch it.
    """


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `Hung` inside the block when it takes longer than ``seconds``. 0: no limit.

    The limit is a SIGALRM timer. It interrupts code that waits: for a camera, a socket, a lock or a
    sleep. It does not interrupt compiled code that never returns to Python. It works only in the
    main thread.
    """
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: Any) -> None:
        raise Hung(f"it has not returned in {seconds:g} s")

    began = time.monotonic()
    outer, interval = signal.getitimer(signal.ITIMER_REAL)
    if 0 < outer <= seconds:
        yield  # an outer limit ends before this one
        return
    handler = signal.signal(signal.SIGALRM, ring)
    # The timer repeats, in case code inside the block swallows the first alarm.
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if outer:
            left = max(outer - (time.monotonic() - began), MIN_ALARM_SECONDS)
            signal.setitimer(signal.ITIMER_REAL, left, interval)


class Guard(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Turns every fault of an environment into an `EnvError` that names the task and the step.

    It is the innermost wrapper, so all others can rely on its values: finite observations of the
    declared shape and type, a finite float as reward, and RGB frames.

    Args:
        env: The environment.
        task: Its name, for error messages.
        render_advice: What to do if rendering fails, for error messages.
        timeout: Seconds that one call may take. 0: no limit.
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
        # A copy: an environment that changes its space later is refused.
        self._space = copy.deepcopy(env.observation_space)
        self._step: int | None = None
        """Steps of this episode so far. None: between episodes."""

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
            # At the next step dm_control would silently start a new episode.
            self._step = None
        return observation, value, terminated, truncated, info

    def render(self) -> NDArray[np.uint8]:
        """Return an RGB frame, in memory that is not reused."""
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
        # Always a copy: MuJoCo's frames are views with negative strides, which PyTorch refuses, and
        # other environments draw all frames into one buffer.
        return np.array(frame, order="C")

    def close(self) -> None:
        """Close the environment, unless it hangs: then it would not respond."""
        if self._hung:
            return
        with self._called("close()"):
            super().close()

    @contextmanager
    def _called(self, where: str, advice: str = "") -> Iterator[None]:
        """Turn an error in a call to the environment, or in checking its result, into ours."""
        try:
            with limited(self._timeout):
                yield
        except EnvError:
            raise
        except Hung as error:
            self._hung = True
            raise EnvError(
                f"{self._task}: {where} hangs: {error}. Find out what it waits for, or raise the "
                "limit with --env.timeout."
            ) from error
        except (Exception, SystemExit) as error:
            message = f"{self._task}: {where} raised {type(error).__name__}: {error}"
            raise EnvError(f"{message.rstrip('. ')}. {advice}" if advice else message) from error

    def _check_reward(self, reward: Any, where: str) -> float:
        value = np.asarray(reward)
        if (
            value.shape != ()
            or value.dtype.kind not in "fiub"
            or not abs(float(value)) <= MAX_REWARD
        ):
            raise EnvError(
                f"{self._task}: the reward at {where} is {_describe(reward)}, "
                "expected one finite number."
            )
        return float(value)

    def _check_observation(
        self, value: Any, space: spaces.Space[Any], where: str, key: str = ""
    ) -> None:
        if _plainly_fits(value, space):
            return
        name = f"the observation{key} at {where}"
        if isinstance(space, spaces.Dict):
            if not isinstance(value, Mapping) or set(value) != set(space.spaces):
                raise self._mismatch(name, value, f"a dict with the keys {list(space.spaces)}")
            for part, inner in space.spaces.items():
                self._check_observation(value[part], inner, where, f"{key}[{part!r}]")
        elif isinstance(space, spaces.Tuple):
            if not isinstance(value, tuple) or len(value) != len(space.spaces):
                raise self._mismatch(name, value, f"a tuple of {len(space.spaces)}")
            for index, inner in enumerate(space.spaces):
                self._check_observation(value[index], inner, where, f"{key}[{index}]")
        elif not isinstance(space, spaces.Box):
            if not space.contains(value):
                raise self._mismatch(name, value, f"a member of {space}")
        else:
            array = np.asarray(value)
            # float64 in a float32 space is common and harmless. Floats in an image are not.
            if array.shape != space.shape or not np.can_cast(array.dtype, space.dtype, "same_kind"):
                expected = f"an array of shape {space.shape} and type {space.dtype}"
                raise self._mismatch(name, value, expected)
            if array.dtype.kind == "f":
                # False for NaN, infinities, and numbers that overflow float32.
                usable = np.abs(array) <= MAX_FLOAT32
                if not usable.all():
                    entry = int(np.flatnonzero(~usable)[0])
                    raise EnvError(
                        f"{self._task}: {name} is not finite: entry {entry} of the flattened "
                        f"array is {array.ravel()[entry]}."
                    )

    def _mismatch(self, name: str, value: Any, expected: str) -> EnvError:
        return EnvError(
            f"{self._task}: {name} is {_describe(value)}, but its observation space says "
            f"{expected}. Make observation_space and what reset() and step() return agree."
        )


class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats each action for several steps and sums the rewards. Stops at the episode's end."""

    def __init__(self, env: gymnasium.Env[Any, Any], repeat: int) -> None:
        assert repeat >= 1
        super().__init__(env)
        self._repeat = repeat
        if self.env.metadata.get("render_fps"):
            # A film has one frame per action, so at this rate it plays in real time.
            rate = self.env.metadata["render_fps"] / repeat
            self.metadata = {**self.env.metadata, "render_fps": rate}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take up to ``repeat`` steps. Observation and info are those of the last step."""
        total = 0.0
        for _ in range(self._repeat):
            # A copy: an environment may change the action that it is given.
            observation, reward, terminated, truncated, info = self.env.step(np.array(action))
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


def _plainly_fits(value: Any, space: spaces.Space[Any]) -> bool:
    """Return True for an array that fits its box, in a few microseconds; False: look closer."""
    if not (isinstance(value, np.ndarray) and isinstance(space, spaces.Box)):
        return False
    if value.shape != space.shape or value.dtype != space.dtype:
        return False
    # The sum of squares is small only if every entry is finite and far from the limit.
    return value.dtype.kind != "f" or bool(np.vdot(value, value) < MAX_FLOAT32)


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and type {value.dtype}"
    if isinstance(value, Mapping):
        return f"a dict with the keys {list(value)}"
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"
