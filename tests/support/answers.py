"""Files of answers for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedsrc.data.answers import Answer, answers_bytes


def write_answers(path: Path, answers: Iterable[Answer]) -> None:
    """Answers as JSON lines."""
    path.write_bytes(answers_bytes(answers))
