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
    lines = text.getvalue().splitlines()
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
