"""The tables of confidence, by hand."""

import json
from pathlib import Path

from planet_bayes.results.confidence import tables


def test_tables_by_hand(tmp_path: Path) -> None:
    held = {"calibrated": [0.9, 0.88], "adapted": [0.91, 0.95], "rank_correlation": [None, 0.5]}
    noticed = {
        "total": 12.4,
        "auroc": 1.0,
        "alarms": None,
        "calibrated": {"reward": 0.5, "return": 0.25, "joints": 0.75},
        "adapted": {"reward": 0.9, "return": 0.85, "joints": None},
    }
    facts = {
        "held": {"reward": held},
        "total": 99.6,
        "steps": 2000,
        "false_alarms": 0.0015,
        "noticed": {"motor": noticed},
    }
    (tmp_path / "cup.json").write_text(json.dumps(facts))
    bands, alarms, changes = tables(tmp_path).split("\n\n")
    assert bands.splitlines()[-1] == "| cup | reward | 0.88 to 0.90 | 0.91 to 0.95 | 0.50 to 0.50 |"
    assert alarms.splitlines()[-1] == "| cup | 100 | 2000 | 1.5 |"
    assert changes.splitlines()[-1] == (
        "| cup | motor | 12 | 1.00 | – | 0.50 / 0.90 | 0.25 / 0.85 | 0.75 / – |"
    )
    for table in (bands, alarms, changes):
        assert len({line.count("|") for line in table.splitlines()}) == 1
