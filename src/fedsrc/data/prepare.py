"""From a collection to one file of answers: chosen, audited, and written with a manifest beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedsrc.common.canonical import digest_bytes, file_digest
from fedsrc.common.durable import write_whole
from fedsrc.data.answer_audit import audit
from fedsrc.data.answers import answers_bytes
from fedsrc.data.collection import Collection, open_collection
from fedsrc.data.logs import Reading
from fedsrc.data.manifest import Finding
from fedsrc.data.selection import Selection, select_answers
from fedsrc.data.split import PARTS, write_assignments
from fedsrc.errors import FedsrcError


def prepare(
    collection: str,
    target: Path,
    choice: Selection,
    *,
    reading: Reading | None = None,
    parts_file: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[Path, dict[str, Any]]:
    """Write the chosen answers of a collection; return the manifest's file and what it says.

    `reading` is how a log is read; `parts_file` gets the part of every source. If the audit finds an error, nothing is
    written.
    """
    found = open_collection(collection, task=choice.task, pairs=choice.pairs, reading=reading, tell=tell)
    manifest_file = target.with_name(target.name + ".manifest.json")
    _refuse_overlap(Path(collection), found, [path for path in (target, manifest_file, parts_file) if path])
    chosen = select_answers(found.answers, choice)
    audited = audit(
        chosen.answers, name=found.name, annotation=found.annotation, files=found.files, notes=found.notes,
        more=[*(Finding("note", each) for each in found.told), *chosen.findings], logged=found.logged,
    )  # fmt: skip
    for line in audited.lines():
        tell(line)
    if audited.errors:
        raise FedsrcError("the audit found errors; nothing was written", hint="correct those answers or leave them out")
    data = answers_bytes(chosen.answers, logged=found.logged)
    written = {"name": target.name, "bytes": len(data), "sha256": digest_bytes(data)}
    manifest = {**asdict(audited), "chosen": asdict(choice), "written": written}
    if found.logged:
        manifest["read"] = asdict(reading or Reading())
    write_whole(target, data)
    if parts_file is not None:
        write_assignments(parts_file, chosen.parts, choice.seed)
        sources = {part: list(chosen.parts.values()).count(part) for part in PARTS}
        manifest["parts"] = {"name": parts_file.name, "sha256": file_digest(parts_file), "sources": sources}
    write_whole(manifest_file, json.dumps(manifest, indent=1, ensure_ascii=False).encode() + b"\n")
    return manifest_file, manifest


def _refuse_overlap(source: Path, found: Collection, targets: list[Path]) -> None:
    """Refuse to write over what was read, or two files under one name."""
    folder = (source if source.is_dir() else source.parent).resolve()
    places = [folder / file.name for file in found.files]
    for target in targets:
        place = target.resolve()
        if place in places:
            raise FedsrcError(
                "would be overwritten: it is read here, or written twice", where=str(target), hint="choose another name"
            )
        places.append(place)
