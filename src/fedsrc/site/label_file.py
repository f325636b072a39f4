"""The labels that people gave, one line each: append-only, never changed, kept at the site.

A label says who gave it, when, and by digest what they were shown. Whoever changes their mind adds a line; what counts
is decided elsewhere (`label_rule`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field, ValidationError

from fedsrc.common import durable
from fedsrc.common.canonical import canonical_bytes
from fedsrc.common.clock import Time
from fedsrc.common.held import HeldFile, whole_lines
from fedsrc.common.values import Frozen, Hex, Name, describe
from fedsrc.errors import DamagedError

MAX_BYTES = 1_000_000_000
LONGEST = 100_000  # bytes of a line


class Label(Frozen):
    """One person's word on one answer: its loss (0 supported, 1 unsupported), or None: unsure."""

    answer: str = Field(min_length=1, max_length=10_000)
    loss: float | None = Field(ge=0, le=1)
    by: Name
    at: Time
    shown: Hex
    round: Hex

    def line(self) -> bytes:
        """Return its line in the file."""
        return canonical_bytes(self.model_dump()) + b"\n"


class LabelFile:
    """A file of labels, held by one process. `add` returns once they are on disk."""

    def __init__(self, path: Path) -> None:
        self._file = HeldFile(path, "another process is adding labels; is a page of `fedsrc label` open?", 0o600)
        try:
            self.labels = read_labels(path)
            self._file.cut(sum(len(label.line()) for label in self.labels))
        except BaseException:
            self._file.close()
            raise

    def add(self, *labels: Label) -> None:
        """Write labels in one go and wait for the disk."""
        self._file.append(b"".join(label.line() for label in labels))
        self.labels.extend(labels)

    def close(self) -> None:
        self._file.close()


def read_labels(path: Path) -> list[Label]:
    """Read labels without changing or holding their file; none where there is none yet."""
    if not path.exists():
        return []
    lines = whole_lines(durable.read_lines(path, MAX_BYTES, longest=LONGEST), str(path))
    return [_label(line, f"{path} line {number:,}") for number, line in enumerate(lines, start=1)]


def by_answer(labels: Iterable[Label]) -> defaultdict[tuple[str, str], list[Label]]:
    """Sort labels by round and answer, in the order they were given."""
    found = defaultdict(list)
    for label in labels:
        found[label.round, label.answer].append(label)
    return found


def _label(line: bytes, where: str) -> Label:
    hint = "restore a copy of the file as it was; labels are added, never edited"
    try:
        found = Label.model_validate(json.loads(line))
    except ValidationError as error:
        raise DamagedError(f"is not a label ({describe(error)})", where=where, hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise DamagedError("is not a label", where=where, hint=hint) from error
    if found.line() != line + b"\n":  # its length says where the next line starts
        raise DamagedError("is not a label as it is written", where=where, hint=hint)
    return found
