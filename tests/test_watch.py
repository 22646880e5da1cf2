"""What a person sees of a training run."""

import io
import signal
from pathlib import Path

import pytest
from rich.console import Console

from planet_bayes.cli.watch import StopRequest, Watcher
from planet_bayes.config import PRESETS
from planet_bayes.training.events import (
    Evaluating,
    Event,
    IterationDone,
    Problem,
    SeedEpisode,
    Updated,
    VideoWritten,
)
from tiny_run import replaced


def test_the_time_left_leaves_out_the_first_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has many more updates than the others, so its pace says nothing about theirs."""
    now = 0.0
    monkeypatch.setattr("planet_bayes.cli.watch.time.monotonic", lambda: now)
    config = replaced(PRESETS["quick"], collect={"episodes": 10})
    watcher = Watcher(Console(file=io.StringIO()), config)
    shown = []
    for episode in range(3):
        for done in (50, 100):
            now += 1000.0 if episode == 0 else 30.0
            watcher(Updated(episode, done, 100, {}))
            shown.append(watcher.bar.tasks[0].fields["left"])
        watcher(IterationDone({"episode": episode}))
        shown.append(watcher.bar.tasks[0].fields["left"])
    # Eleven iterations, of a minute each except the first.
    assert shown[:3] == ["", "", ""]
    assert shown[5] == "about 9 min left"
    assert shown[8] == "about 8 min left"


def test_the_bar_counts_the_updates_of_the_first_iteration() -> None:
    """With 20 episodes of quick, that iteration takes a fifth of the time."""
    watcher = Watcher(Console(file=io.StringIO()), PRESETS["quick"])
    config, shown = PRESETS["quick"], []
    assert (config.learn.first_updates, config.learn.updates_per_episode) == (1000, 100)

    def show(event: Event) -> None:
        watcher(event)
        shown.append(round(watcher.bar.tasks[0].percentage))

    show(Updated(0, 500, 1000, {}))
    show(Updated(0, 1000, 1000, {}))
    show(IterationDone({"episode": 0}))
    show(Updated(1, 50, 100, {}))
    show(IterationDone({"episode": 1}))
    show(IterationDone({"episode": 20}))
    # An iteration is half learning, half acting: 5 + 0.5, then 1 each, of 25.5.
    assert shown == [10, 20, 22, 23, 25, 100]


@pytest.mark.parametrize("updates", [(0, 100), (50, 100), (1000, 0)])
def test_without_more_updates_the_first_iteration_is_like_others(updates: tuple[int, int]) -> None:
    first, others = updates
    learn = {"first_updates": first, "updates_per_episode": others}
    config = replaced(PRESETS["quick"], collect={"episodes": 9}, learn=learn)
    watcher = Watcher(Console(file=io.StringIO()), config)
    watcher(IterationDone({"episode": 0}))
    assert watcher.bar.tasks[0].percentage == 10


@pytest.mark.parametrize("terminal", [False, True])
def test_without_a_bar_the_beginning_is_told(terminal: bool) -> None:
    text = io.StringIO()
    watcher = Watcher(Console(file=text, width=120, force_terminal=terminal), PRESETS["quick"])
    for done in (1, 2):
        watcher(SeedEpisode(done, 2))
    for done in (1, 2, 3):
        watcher(Updated(0, done, 3, {}))
    told = ["2 seed episodes are collected", "episode 0: learning, 3 updates"]
    assert text.getvalue().splitlines() == ([] if terminal else told)


def test_every_event_is_shown() -> None:
    text = io.StringIO()
    watcher = Watcher(Console(file=text, width=120), PRESETS["quick"])

    def bar() -> str:
        return watcher.bar.tasks[0].description

    watcher(SeedEpisode(3, 100))
    assert bar() == "seed episode 3/100"
    watcher(Updated(2, 5, 10, {"total": 1.0}))
    assert bar() == "episode 2: learning 5/10"
    watcher(Evaluating(4))
    assert bar() == "episode 2: 4 evaluations"
    watcher(IterationDone({"episode": 2, "steps": 250, "train_return": 12.34}))
    watcher(VideoWritten(Path("film.mp4"), 56.78))
    watcher(Problem("[a] strange thing"))
    told, *lines = text.getvalue().splitlines()
    assert told == "episode 2: learning, 10 updates"
    assert lines[0].split()[:3] == ["episode", "steps", "return"]
    assert lines[1].split() == ["2", "250", "12.3"]
    assert lines[2:] == ["video (return 56.8): film.mp4", "[a] strange thing"]
    assert watcher.rows == 1


def test_the_first_signal_is_a_request_and_the_second_an_exit() -> None:
    text = io.StringIO()
    before = signal.getsignal(signal.SIGINT)
    with StopRequest(Console(file=text)) as stop:
        assert not stop.requested()
        assert stop.exit_code == 0
        signal.raise_signal(signal.SIGINT)
        assert stop.requested()
        assert stop.requested()
        assert stop.exit_code == 130
        signal.raise_signal(signal.SIGTERM)  # schedulers may send more than one
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert text.getvalue().count("writing a checkpoint") == 1
    assert signal.getsignal(signal.SIGINT) is before
