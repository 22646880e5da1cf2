"""Suggestions in messages: the word that was meant, or none."""

import pytest

from planet_bayes import cli
from planet_bayes.config import PRESETS
from planet_bayes.envs import TASKS
from planet_bayes.errors import nearest


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        *(("trian", "train"), ("evalute", "evaluate"), ("figure", "figures"), ("bnch", "bench")),
        *(("laptp", "laptop"), ("qiuck", "quick"), ("cartpole_swngp", "cartpole_swingup")),
        *(("cupcatch", "cup_catch"), ("fingr_spin", "finger_spin"), ("toy_rech", "toy_reach")),
    ],
)
def test_a_typo_gets_the_word_that_was_meant(word: str, meant: str) -> None:
    known = [*cli.summaries(), *PRESETS, *TASKS]
    assert nearest(word, known) == f"; did you mean {meant!r}?"


@pytest.mark.parametrize(
    "word",
    [
        *("run", "watch", "plot", "image", "default", "info", "random", "play", "place", "pick"),
        *("hopper_hop", "door_open", "fast", "large", "tiny", "mean"),
    ],
)
def test_another_word_gets_no_suggestion(word: str) -> None:
    assert nearest(word, [*cli.summaries(), *PRESETS, *TASKS]) == "."
