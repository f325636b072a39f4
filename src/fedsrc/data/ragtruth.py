"""RAGTruth in its original format: `response.jsonl` and `source_info.jsonl` in one folder (plain or gzipped).

Labels are spans of the response that annotators marked. Any span makes the response unsupported (binary loss); the
share of marked characters is the graded loss.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedsrc.data.answers import Answer, json_lines
from fedsrc.errors import FedsrcError


def read_ragtruth(
    folder: Path, *, task: str | None = None, model: str | None = None, split: str | None = None
) -> list[Answer]:
    """Responses with their sources, optionally of one task (QA, Summary, Data2txt), generator or split."""
    sources = {str(row["source_id"]): row for _, row in json_lines(_find(folder, "source_info"))}
    answers = []
    for where, row in json_lines(_find(folder, "response")):
        source = sources.get(str(row.get("source_id")))
        if source is None:
            raise FedsrcError(f"source {row.get('source_id')!r} is not in source_info", where=where)
        wanted = (task, source["task_type"]), (model, row["model"]), (split, row["split"])
        if all(wish in (None, value) for wish, value in wanted):
            answers.append(_answer(row, source))
    if not answers:
        raise FedsrcError("no response fits", where=str(folder), hint="check --task, --model and --split")
    return answers


def marked_fraction(response: str, labels: Iterable[dict[str, Any]]) -> float:
    """Share of the response's characters inside at least one marked span."""
    marked = bytearray(len(response))
    for label in labels:
        start, end = max(0, int(label["start"])), min(len(response), int(label["end"]))
        if start < end:
            marked[start:end] = b"\x01" * (end - start)
    return sum(marked) / len(marked) if marked else 0.0


def evidence_of(source: dict[str, Any]) -> tuple[str, str]:
    """(question, evidence) of a source: passages for QA, the document for Summary, the record for Data2txt."""
    info = source["source_info"]
    if isinstance(info, str):
        return "", info
    if "passages" in info:
        return str(info.get("question", "")), str(info["passages"])
    return "", json.dumps(info, ensure_ascii=False)


def _answer(row: dict[str, Any], source: dict[str, Any]) -> Answer:
    question, evidence = evidence_of(source)
    labels = row["labels"]
    return Answer(
        id=str(row["id"]),
        source=str(row["source_id"]),
        question=question,
        evidence=evidence,
        response=row["response"],
        loss=float(bool(labels)),
        span_fraction=marked_fraction(row["response"], labels),
        generator=row["model"],
        group=source["task_type"],
        split=row["split"],
    )


def _find(folder: Path, name: str) -> Path:
    for suffix in (".jsonl", ".jsonl.gz"):
        if (folder / f"{name}{suffix}").is_file():
            return folder / f"{name}{suffix}"
    raise FedsrcError(
        f"there is no {name}.jsonl",
        where=str(folder),
        hint="fetch RAGTruth (ParticleMedia/RAGTruth) and name its folder",
    )
