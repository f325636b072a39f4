"""HaluEval in its original format: one JSON object a line, each a pair of a right and a hallucinated response.

Both members of a pair share their source, so they stay together in every split. Labels come from the pipeline that
made the pairs, not from annotators, and length alone tells the two apart to a large degree: look at it beside a score.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from fedsrc.data.answers import Answer, json_lines
from fedsrc.errors import FedsrcError

Task = Literal["qa", "dialogue", "summarization"]
FIELDS: dict[str, tuple[str, str, str, str]] = {  # question, evidence, right, hallucinated
    "qa": ("question", "knowledge", "right_answer", "hallucinated_answer"),
    "dialogue": ("dialogue_history", "knowledge", "right_response", "hallucinated_response"),
    "summarization": ("", "document", "right_summary", "hallucinated_summary"),
}
NAMES = {"qa": "qa_data", "dialogue": "dialogue_data", "summarization": "summarization_data"}


def read_halueval(path: Path, task: Task, *, pairs: int | None = None) -> list[Answer]:
    """Both responses of each pair (of the first `pairs`), as answers that share a source."""
    question, evidence, right, wrong = FIELDS[task]
    answers = []
    for number, (where, row) in enumerate(json_lines(find(path, task))):
        if pairs is not None and number >= pairs:
            break
        missing = [name for name in (evidence, right, wrong) if not isinstance(row.get(name), str)]
        if missing:
            raise FedsrcError(f"{missing[0]} is missing", where=where, hint=f"is this HaluEval's {task} file?")
        for loss, name in ((0.0, right), (1.0, wrong)):
            answers.append(
                Answer(
                    id=f"{task}-{number}-{'hallucinated' if loss else 'right'}",
                    source=f"{task}-{number}",
                    question=str(row.get(question, "")) if question else "",
                    evidence=row[evidence],
                    response=row[name],
                    loss=loss,
                    span_fraction=loss,
                    generator="chatgpt" if loss else "reference",
                    group=task,
                )
            )
    return answers


def find(path: Path, task: Task) -> Path:
    """The task's file: the path itself, or in a folder under HaluEval's name or ours."""
    if path.is_file():
        return path
    for stem in (NAMES[task], task):
        for suffix in (".json", ".jsonl", ".jsonl.gz", ".json.gz"):
            if (path / f"{stem}{suffix}").is_file():
                return path / f"{stem}{suffix}"
    raise FedsrcError(
        f"there is no {NAMES[task]}.json", where=str(path), hint="fetch HaluEval (RUCAIBox/HaluEval), folder data/"
    )
