"""A trained agent under other settings of its planner: the same weights and the same starts."""

import dataclasses
from pathlib import Path

import pytest

import planet_bayes as pb
from planet_bayes.config import Config
from planet_bayes.errors import ConfigError
from planet_bayes.experiments.replan import Options, main, replan
from planet_bayes.experiments.settings import call


@pytest.fixture(scope="module")
def run(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    train = dataclasses.replace(tiny.train, episodes=0)
    folder = tmp_path_factory.mktemp("replan") / "run"
    return pb.train(dataclasses.replace(tiny, train=train), folder)[0]


def test_with_the_run_s_own_settings_it_is_what_evaluate_returns(run: Path) -> None:
    loaded = pb.load_run(run)
    own = Options(run, loaded.config, episodes=2)
    assert replan(own) == pb.evaluate(loaded, 2)
    assert replan(dataclasses.replace(own, starts=1)) != replan(own)


@pytest.mark.parametrize(
    "words",
    [
        ["--planner.num-iterations", "1"],
        ["--planner.num-components", "1"],
        ["--num-trajectories", "8"],
        ["--model.belief", "mean"],
        ["--model.latent-noise", "mean"],
        ["--env.max-steps", "3"],
    ],
)
def test_settings_of_planning_count(
    run: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def returns(*settings: str) -> str:
        main([str(run), "--episodes", "2", *settings])
        printed = capsys.readouterr().out
        assert printed.startswith("mean ")
        return printed.split("; ")[1]

    assert returns() == returns() != returns(*words)


def test_settings_of_learning_are_refused(run: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.learning_rate cannot be changed in an agent"):
        main([str(run), "--train.learning-rate", "0.1"])
    with pytest.raises(ConfigError, match=r"model\.deter cannot be changed"):
        main([str(run), "--model.deter", "9"])
    with pytest.raises(SystemExit, match="name the run's folder first"):
        main(["--episodes", "2"])


def test_a_mistake_is_told_in_one_sentence(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["replan", str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit, match=r"^error: .*nowhere is not a folder; runs are made by"):
        call(main)
    monkeypatch.setattr("sys.argv", ["replan", str(run), "--planner.horizon", "0"])
    with pytest.raises(SystemExit, match=r"^error: horizon must be at least 1"):
        call(main)
