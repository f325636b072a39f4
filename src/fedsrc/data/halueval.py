"""HaluEval in its original format: one JSON object a line, each a pair of a right and a hallucinated response.

Both members of a pair share their source, so they stay together in every split. Labels come from the pipeline that
made the pairs, not from annotators, and length alone tells the two apart to a large degree: look at it beside a score.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

from fedsrc.data.answers import Answer, json_lines, text_of
from fedsrc.errors import FedsrcError

Task = Literal["qa", "dialogue", "summarization"]
TASKS: tuple[Task, ...] = get_args(Task)
FIELDS: dict[str, tuple[str, str, str, str]] = {  # question, evidence, right, hallucinated
    "qa": ("question", "knowledge", "right_answer", "hallucinated_answer"),
    "dialogue": ("dialogue_history", "knowledge", "right_response", "hallucinated_response"),
    "summarization": ("", "document", "right_summary", "hallucinated_summary"),
}


def read_halueval(path: Path, task: Task, *, pairs: int | None = None) -> list[Answer]:
    """Read both responses of each pair (of the first `pairs`), as answers that share a source."""
    file = find(path, task)
    rows = enumerate(islice(json_lines(file), pairs))
    answers = [answer for number, (where, row) in rows for answer in _pair(row, task, number, where)]
    if not answers:
        raise FedsrcError("there are no pairs in it", where=str(file))
    return answers


def find(path: Path, task: Task) -> Path:
    """Find the task's file: the path itself, or in a folder under HaluEval's name or ours."""
    if path.is_file():
        return path
    for stem in (f"{task}_data", task):
        for suffix in (".json", ".jsonl", ".jsonl.gz", ".json.gz"):
            if (path / f"{stem}{suffix}").is_file():
                return path / f"{stem}{suffix}"
    raise FedsrcError(
        f"there is no {task}_data.json", where=str(path), hint="fetch HaluEval (RUCAIBox/HaluEval), folder data/"
    )


def task_of(row: dict[str, Any]) -> Task | None:
    """Return the task whose file a row is of, by its fields; None if of none."""
    return next((task for task in TASKS if all(name in row for name in FIELDS[task][2:])), None)


def _pair(row: dict[str, Any], task: Task, number: int, where: str) -> list[Answer]:
    question, evidence, right, wrong = FIELDS[task]
    values = {name: _field(row, name, task, where) for name in (question, evidence, right, wrong) if name}
    return [
        Answer(
            id=f"{task}-{number}-{'hallucinated' if loss else 'right'}",
            source=f"{task}-{number}",
            question=values.get(question, ""),
            evidence=values[evidence],
            response=values[name],
            loss=loss,
            span_fraction=loss,
            spans=((0, len(values[name])),) if loss and values[name] else (),
            generator="chatgpt" if loss else "reference",
            group=task,
        )
        for loss, name in ((0.0, right), (1.0, wrong))
    ]


def _field(row: dict[str, Any], name: str, task: Task, where: str) -> str:
    if name not in row:
        raise FedsrcError(f"{name} is missing", where=where, hint=f"is this HaluEval's {task} file?")
    if not isinstance(row[name], str):
        raise FedsrcError(f"{name} is not text", where=where, hint="the line is damaged; fetch the file again")
    return text_of(row[name], name, where)
