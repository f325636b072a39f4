"""The lexical score, and the embedded score tables, which one command makes again from HaluEval's original files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fedsrc.data.embedded import SCORED, TASKS, Scored, Task, score_table
from fedsrc.data.halueval import read_halueval
from fedsrc.demo.answers_table import SITES, one_of_each_pair
from fedsrc.scores.catalogue import BASIC, JUDGED, SAMPLED, Settings
from fedsrc.scores.methods.lexical import lexical_support
from fedsrc.scores.scoring import Means, score_answers

ROWS = {"qa": 20_000, "dialogue": 20_000, "summarization": 4_000}


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("Paris", 1.0),
        ("It was Paris.", 0.5),  # the only content word is there, neither pair is
        ("The capital is Paris", 1.0),
        ("the capital was London", (1 / 2 + 1 / 3) / 2),
        ("London", 0.0),
        ("", 0.0),
        ("it is", (1 / 2 + 0) / 2),  # stop words only: judged by all its words
    ],
)
def test_lexical_support(answer: str, score: float) -> None:
    assert lexical_support(answer, "The capital is Paris, a city.") == pytest.approx(score)


@pytest.mark.parametrize("task", TASKS)
def test_the_embedded_tables_are_complete(task: Task) -> None:
    table = score_table(task)
    assert table.columns == ["id", "source", "loss", *BASIC]
    assert table.height == ROWS[task]
    assert table["id"].n_unique() == ROWS[task]
    assert table["source"].n_unique() == ROWS[task] // 2
    assert table["loss"].to_list() == [0.0, 1.0] * (ROWS[task] // 2)
    for name in BASIC:
        values = table[name].to_numpy()
        assert np.all((values >= 0) & (values <= 1))
        assert len(np.unique(values)) > 50 or name == "familiarity"


@pytest.mark.parametrize(("task", "scored"), list(zip(TASKS, SCORED, strict=True)))
def test_the_tables_with_every_score(task: Task, scored: Scored) -> None:
    """Pairs of the whole table, with the same basic scores, and every other score beside them."""
    table, whole = score_table(scored), score_table(task)
    assert table.columns[:3] == ["id", "source", "loss"]
    assert table.height == {"dialogue": 796}.get(task, 800)
    assert table["loss"].to_list() == [0.0, 1.0] * (table.height // 2)
    same = whole.filter(whole["id"].is_in(table["id"].to_list()))
    for name in ("id", "source", "loss", *BASIC):
        assert table[name].to_list() == same[name].to_list(), name
    drawn = [name.rpartition("-") for name in table.columns if name.rpartition("-")[2].isdecimal()]
    assert {name for name, _, _ in drawn} == set(SAMPLED) - {"selfcheck-nli"}  # which needs an entailment model
    assert all(int(count) in (10, SAMPLED[name].matched) for name, _, count in drawn)
    rest = set(table.columns[3:]) - set(BASIC) - {"-".join((name, count)) for name, _, count in drawn}
    assert rest == {*JUDGED, "mechanistic", "franq", "franq-faithfulness"}
    for name in table.columns[3:]:
        assert np.all((table[name].to_numpy() >= 0) & (table[name].to_numpy() <= 1)), name


def test_the_demo_takes_one_of_each_pair() -> None:
    records = one_of_each_pair(score_table("qa"))
    assert records.columns == ["id", "site", "loss", "score"]
    assert records.height == 10_000
    assert records["id"].str.extract(r"qa-(\d+)-").n_unique() == 10_000
    assert records["site"].value_counts()["count"].to_list() == [2_000] * len(SITES)
    assert 0.48 < float(records["loss"].sum()) / 10_000 < 0.52


@pytest.mark.parametrize("task", TASKS)
def test_the_embedded_tables_are_made_again(task: Task) -> None:
    """The scores that need no model, for every response; those of the model are made again in tests.models."""
    folder = os.environ.get("FEDSRC_DATA")
    source = Path(folder) / "halueval" if folder else None
    if source is None or not source.exists():
        pytest.skip("set FEDSRC_DATA to a folder with HaluEval's files to rebuild the tables")
    table = score_table(task)
    answers = read_halueval(source, task, pairs=ROWS[task] // 2)
    assert table["id"].to_list() == [answer.id for answer in answers]
    names = [name for name, score in BASIC.items() if not score.needs]
    for name, values in score_answers(answers, names, Settings(), Means()).items():
        np.testing.assert_allclose(table[name].to_numpy(), values, atol=5.1e-4)
