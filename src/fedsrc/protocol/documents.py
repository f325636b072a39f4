"""Small signed files that lie beside certificates or travel alone: read as fedsrc writes them, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from fedsrc.common.canonical import canonical_bytes
from fedsrc.common.durable import read_bytes
from fedsrc.common.values import Frozen, describe
from fedsrc.errors import FedsrcError

D = TypeVar("D", bound="Document")


class Document(Frozen):
    """A value that is a file of its own: one line of canonical JSON."""

    def to_bytes(self) -> bytes:
        return canonical_bytes(self.model_dump()) + b"\n"


def read_document(kind: type[D], path: Path, what: str, most: int) -> D:
    """Read a document of at most so many bytes, or refuse it. `what` is its kind in words, for whoever reads why."""
    data, where = read_bytes(path, most), str(path)
    try:
        found = kind.model_validate_json(data)
    except ValidationError as error:
        raise FedsrcError(f"is not {what}: {describe(error)}", where=where) from error
    if found.to_bytes() != data:
        raise FedsrcError(f"is not {what} as fedsrc writes it", where=where)
    return found
