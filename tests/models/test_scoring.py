"""`fedsrc score` with real weights: the embedded tables again, the lift's properties, controls, and a whole command.

Tolerance: a score of the embedded tables was computed on a GPU in float32 and rounded to three decimals; here it comes
from a CPU, so it may differ by the rounding (5e-4) and by float32 sums in another order (well below it).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from fedsrc.cli import score as cli_score
from fedsrc.data.answers import Answer
from fedsrc.data.embedded import TASKS, Task, score_table
from fedsrc.data.halueval import read_halueval
from fedsrc.scores import opening
from fedsrc.scores.catalogue import BASIC, Settings
from fedsrc.scores.models.model import Prompted
from fedsrc.scores.models.transformers_model import TransformersModel
from fedsrc.scores.prompts import controlled
from fedsrc.scores.scoring import Means, score_answers
from research.tables.embedded import compact
from tests.support.answers import write_answers

FACTS = {
    "tower": "The Eiffel Tower in Paris is 330 metres tall and was finished in 1889.",
    "river": "The Loire is the longest river in France; it is 1,006 kilometres long.",
    "cheese": "Roquefort is a blue cheese made of sheep's milk and ripened in caves.",
}
ANSWERS = [
    Answer(
        id=f"{name}-{kind}", source=name, question=f"What about the {name}?", evidence=fact, loss=float(kind == "bad"),
        response=fact if kind == "good" else "It was built by Martians, who sold it to a travelling circus in 1963.",
    )
    for name, fact in FACTS.items()
    for kind in ("good", "bad")
]  # fmt: skip


def test_lift_of_supported_answers_is_higher_and_zero_without_evidence(model: TransformersModel) -> None:
    found = score_answers(ANSWERS, list(BASIC), Settings(), Means(tokens=model, local=model))
    for values in found.values():
        assert all(0.0 <= value <= 1.0 for value in values)
    for name in ("lift", "window"):
        assert min(found[name][::2]) > max(found[name][1::2])
    bare = [Answer(id=a.id, source=a.source, question=a.question, evidence="", response=a.response) for a in ANSWERS]
    assert score_answers(bare, ["lift"], Settings(), Means(tokens=model))["lift"] == [0.0] * len(ANSWERS)


def test_one_by_one_gives_the_same_scores(model: TransformersModel) -> None:
    together = score_answers(ANSWERS, ["lift", "window", "entropy"], Settings(), Means(tokens=model))
    alone = [score_answers([each], ["lift", "window", "entropy"], Settings(), Means(tokens=model)) for each in ANSWERS]
    for name, values in together.items():
        np.testing.assert_allclose(values, [each[name][0] for each in alone], atol=1e-4)


def test_a_prefix_scores_as_a_response_that_ends_there(model: TransformersModel) -> None:
    """Mutants killed: a cut that is off by one, a model that looks ahead, tokens counted with the prompt's."""
    n, names = 9, ["lift", "window", "probability", "entropy"]
    means, asked = Means(tokens=model), ANSWERS[:4]
    ends = [int(model.score([Prompted("x", each.response)])[0].offsets[n - 1, 1]) for each in asked]
    cut = [replace(each, response=each.response[:end]) for each, end in zip(asked, ends, strict=True)]
    alone = score_answers(cut, names, Settings(prefixes=((n,),)), means)
    assert alone["tokens"] == [n] * len(asked)
    found = score_answers(asked, names, Settings(prefixes=((n,),)), means)
    for name in names:
        np.testing.assert_allclose(found[f"{name}_prefix_{n}"], alone[name], atol=1e-4)
        least = np.minimum(found[f"{name}_prefix_{n}"], found[name])
        np.testing.assert_array_equal(found[f"{name}_at_{n}"], least)
    assert not np.allclose(found["lift"], alone["lift"], atol=1e-2)


def test_controls_match_lengths_in_the_models_tokens(model: TransformersModel) -> None:
    for control in ("neutral", "irrelevant"):
        for answer, other in zip(ANSWERS, controlled(ANSWERS, control, model.tokens), strict=True):  # type: ignore[arg-type]
            assert abs(model.tokens(other) - model.tokens(answer.evidence)) <= 1  # a cut may fall inside a token
            assert other != answer.evidence


def test_the_whole_command(model: TransformersModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(opening, "open_model", lambda *_, **__: model)  # loaded once for all tests
    write_answers(Path("answers.jsonl"), ANSWERS)
    done = CliRunner().invoke(cli_score.score_command, ["answers.jsonl", "--score", "window", "--model", "smollm2"])
    assert done.exit_code == 0, done.output
    table = pl.read_parquet("records.parquet")
    assert table["score"].to_numpy()[::2].min() > table["score"].to_numpy()[1::2].max()
    replayed = [
        "answers.jsonl",
        "--score",
        "window",
        "-o",
        "b.parquet",
        "--recording",
        "records.parquet.recording.jsonl",
    ]
    assert CliRunner().invoke(cli_score.score_command, replayed).exit_code == 0
    assert pl.read_parquet("b.parquet").equals(table)


@pytest.mark.parametrize("task", TASKS)
def test_the_embedded_tables_are_made_again(model: TransformersModel, task: Task) -> None:
    folder = os.environ.get("FEDSRC_DATA")
    if not folder or not (Path(folder) / "halueval").exists():
        pytest.skip("set FEDSRC_DATA to a folder with HaluEval's files to rebuild a part of the tables")
    pairs = 2 if task == "summarization" else 8
    made = compact(read_halueval(Path(folder) / "halueval", task, pairs=pairs), model)
    kept = score_table(task).head(2 * pairs)
    assert made.select("id", "source", "loss").equals(kept.select("id", "source", "loss"))
    for name in BASIC:
        np.testing.assert_allclose(made[name].to_numpy(), kept[name].to_numpy(), atol=2.1e-3)
