"""The page of compared scores says what the published studies say.

Mutants killed: a count of certificates or an acceptance edited in the page, a score left out of it or of a study, a
zero-certificate cell not counted, the rules or the releases exchanged, the lead's totals edited; a control among the
candidates, passes not charged, what was chosen not named first, a choice on answers that it is used on, a chosen score
edited in the page.
Chance of a false alarm: none, nothing is drawn.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fedsrc.common.canonical import file_digest
from fedsrc.errors import FedsrcError
from research.chosen_scores import KEPT, NAMES, Chosen, chosen
from research.pages import FIGURES, RESULTS
from research.studies.catalogue import study_of

STUDIES = FIGURES / "studies"
PAGE = (RESULTS / "scores-compared.md").read_text(encoding="utf-8")
CELLS = {
    "scores-ragtruth": ("## RAGTruth question answering", ("mistral", "llama 7b", "llama 13b", "llama 70b")),
    "scores-halueval": ("## HaluEval", ("QA", "dialogue", "summarization")),
}
RULES = (("paper's", "fed-src-c", "paper"), ("old default", "betting-ladder", "default"))


def rows_under(heading: str) -> list[dict[str, str]]:
    """The first table under a heading; a column that is there twice has the column before it in its name."""
    lines = PAGE.split(f"{heading}\n")[1].splitlines()
    table = [line.strip("| ").split(" | ") for line in lines[next(i for i, x in enumerate(lines) if x[:1] == "|") :]]
    names = [f"{table[0][i - 1]}: acceptance" if name == "acceptance" else name for i, name in enumerate(table[0])]
    body = table[2 : next((i for i, row in enumerate(table) if len(row) != len(names)), len(table))]
    return [dict(zip(names, row, strict=True)) for row in body]


def published(name: str, cell: str, score: str, rule: str, release: str) -> dict[str, Any]:
    table = pl.read_csv(STUDIES / f"{name}.csv")
    here = (pl.col("population") == f"{cell}: {score}") & (pl.col("method") == rule) & (pl.col("release") == release)
    return table.filter(here).row(0, named=True)


@pytest.mark.parametrize("name", CELLS)
def test_certificates_are_those_of_the_study(name: str) -> None:
    heading, cells = CELLS[name]
    rows = rows_under(heading)
    scores = [row["score"].strip("`") for row in rows]
    assert {f"{cell}: {score}" for cell in cells for score in scores} == set(study_of(name).by_name)
    for row, score in zip(rows, scores, strict=True):
        for called, rule, release in RULES:
            found = [published(name, cell, score, rule, release) for cell in cells]
            fired = [each["fired"] for each in found]
            assert row[f"{called}: fired of 200"] == " / ".join(map(str, fired))
            accepted = [f"{each['acceptance']:.2f}" if each["fired"] else "–" for each in found]
            assert row[f"{called}: fired of 200: acceptance"] == " / ".join(accepted)
            assert row[f"{called}: zero-certificate cells"] == str(fired.count(0))


def test_the_lead_counts_the_certificates() -> None:
    fired = false = more = 0
    for name, (_, cells) in CELLS.items():
        table = pl.read_csv(STUDIES / f"{name}.csv")
        both = [table.filter((pl.col("method") == rule) & (pl.col("release") == release)) for _, rule, release in RULES]
        fired += sum(sum(each["fired"].to_list()) for each in both)
        false += sum(sum(each["failures"].to_list()) for each in both)
        more += sum(a > b for a, b in zip(*(each["fired"].to_list() for each in both), strict=True))
        said = re.search(
            rf"(\d+)( scores)? on {'RAGTruth question answering' if cells[0] == 'mistral' else 'HaluEval'}", PAGE
        )
        assert said is not None
        assert int(said[1]) * len(cells) == both[0].height
    flat = " ".join(PAGE.split())
    assert f"Of all {fired:,} certificates {false} were false" in flat
    assert f"The paper's rule fired more often than the old default in {more} cells." in flat


def test_the_lead_counts_the_tables() -> None:
    said = [int(number) for number in re.findall(r"\d+", PAGE.split("On RAGTruth the paper's")[1].split("Of all")[0])]
    counts = []
    for heading, _ in CELLS.values():
        rows = rows_under(heading)
        fired = [
            [int(x) for row in rows for x in row[f"{called}: fired of 200"].split(" / ")] for called, _, _ in RULES
        ]
        counts.append((*(sum(count > 100 for count in each) for each in fired), len(fired[0])))
    none = [sum(row[f"{called}: zero-certificate cells"] == "4" for row in rows_under("## RAGTruth question answering"))
            for called, _, _ in RULES]  # fmt: skip
    (paper, ours, cells), (paper_two, ours_two, cells_two) = counts
    assert said == [paper, cells, ours, *none, paper_two, ours_two, cells_two]


def test_the_chosen_scores_are_those_kept() -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    rows = {row["answers"]: row for row in rows_under("## The score that would have been chosen")}
    assert {NAMES[name] for name in kept} == set(rows)
    for name, each in kept.items():
        row, found = rows[NAMES[name]], Chosen(**each["chosen"])
        assert row["chosen"] == f"`{found.name}`"
        assert row["AUC, development"] == f"{found.auc:.3f}"
        assert row["next best on development"] == f"`{found.next}` {found.next_auc:.3f}"
        assert found.auc >= found.next_auc


def test_a_score_is_chosen_by_the_fixed_criterion(tmp_path: Path) -> None:
    about = {"source": [f"s{i}" for i in range(8)], "generator": ["g"] * 8, "loss": [0.0, 1.0] * 4}
    best, second, coin = [0.9, 0.1] * 4, [0.8, 0.2] * 3 + [0.2, 0.8], [0.5] * 8
    path, unseen = tmp_path / "development.parquet", pl.DataFrame({"source": ["t1"]})

    def kept(**columns: list[float]) -> dict[str, Any]:
        pl.DataFrame({"id": about["source"], **about, **columns}).write_parquet(path)
        return chosen(path, unseen, (1, 1))

    # A control as good as the best, which would cost less, is no candidate.
    found = kept(window=best, shortness=best, lexical=second, familiarity=coin)
    assert found["chosen"] == {"name": "window", "auc": 1.0, "next": "lexical", "next_auc": 0.75}
    assert found["development_sha256"] == file_digest(path)
    # Of equals the one that costs fewer passes, wherever it stands.
    found = kept(judge=best, lexical=best, familiarity=coin)
    assert found["chosen"] == {"name": "lexical", "auc": 1.0, "next": "judge", "next_auc": 1.0}
    with pytest.raises(FedsrcError, match="chosen on 1 of these sources"):
        chosen(path, pl.DataFrame({"source": ["t1", "s3"]}), (1, 1))
