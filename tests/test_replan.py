"""A trained agent with other settings of its planner: the same weights and the same starts."""

from pathlib import Path

import pytest

import planet_bayes as pb
from planet_bayes import cli
from planet_bayes.config import Config
from planet_bayes.diagnostics.replan import replan
from planet_bayes.errors import ConfigError
from tiny_run import replaced


@pytest.fixture(scope="module")
def run(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replan") / "run"
    return pb.train(replaced(tiny, collect={"episodes": 0}), folder)[0]


def test_with_the_run_s_own_settings_it_is_what_evaluate_returns(run: Path) -> None:
    loaded = pb.load_run(run)
    assert replan(run, loaded.config, 2) == pb.evaluate(loaded, 2)
    assert replan(run, loaded.config, 2, starts=1) != replan(run, loaded.config, 2)


@pytest.mark.parametrize(
    "words",
    [
        ["--planner.num-iterations", "1"],
        ["--planner.num-components", "1"],
        ["--planner.num-trajectories", "8"],
        ["--model.belief", "mean"],
        ["--agent.belief", "importance"],
        ["--model.latent-noise", "mean"],
        ["--env.max-steps", "3"],
    ],
)
def test_settings_of_planning_count(
    run: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def returns(*settings: str) -> str:
        assert cli.main(["replan", str(run), "--episodes", "2", *settings]) == 0
        printed = capsys.readouterr().out
        assert printed.startswith("mean ")
        return printed.split("; ")[1]

    assert returns() == returns() != returns(*words)


def test_settings_of_learning_are_refused(
    run: Path, tiny: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    own = pb.load_run(run).config
    with pytest.raises(ConfigError, match=r"learn\.learning_rate cannot be changed in an agent"):
        replan(run, replaced(own, learn={"learning_rate": 0.1}))
    with pytest.raises(ConfigError, match=r"model\.deter cannot be changed"):
        replan(run, replaced(own, model={"deter": 9}))
    assert cli.main(["replan", str(run), "--learn.learning-rate", "0.1"]) == 2
    assert "learn.learning_rate cannot be changed in an agent" in capsys.readouterr().err
    assert cli.main(["replan", "--episodes", "2"]) == 2
    assert "name the run's folder first" in capsys.readouterr().err


def test_a_mistake_is_told_in_one_sentence(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["replan", str(tmp_path / "nowhere")]) == 2
    assert "nowhere is not a folder; runs are made by" in capsys.readouterr().err
    assert cli.main(["replan", str(run), "--planner.horizon", "0"]) == 2
    assert "horizon must be at least 1" in capsys.readouterr().err
