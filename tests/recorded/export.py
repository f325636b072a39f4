"""Write every recorded run and every forgery as a folder, with the verdict of `fedsrc verify`, for other verifiers.

    python -m tests.recorded.export FOLDER [--sample] [RUN...]

FOLDER/index.json lists them: folder, run, forgery (null of a recording itself), verdict ("verified" or "refused"),
status of what was signed if it verifies, and why it does not in fedsrc's own words; whether it was revoked, and whether
it has expired by the day that `now` says. Another verifier must come to the same verdict and status; its reasons are
its own. No key is named as trusted. With --sample, every forgery is of one run only.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.recorded.forger import Files, original
from tests.recorded.forgeries import forgeries_of, sample
from tests.support.recordings import recorded, verdict, write_files

INDEX = "index.json"
NOW = datetime(2026, 6, 1, tzinfo=UTC)  # when they are verified: only `expired` depends on it
Case = tuple[str, str | None, Files]  # a run, a forgery, and the files


def cases(names: Iterable[str], *, sampled: bool = False) -> Iterator[Case]:
    """Yield recordings and their forgeries."""
    for name in names:
        yield name, None, dict(original(name).files)
        if not sampled:
            for forgery, files in forgeries_of(name):
                yield name, forgery, files
    if sampled:
        wanted = {*names}
        yield from (each for each in sample() if each[0] in wanted)


def exported(folder: Path, found: Iterable[Case]) -> list[dict[str, Any]]:
    """Write folders, and return their index."""
    index = list[dict[str, Any]]()
    for run, forgery, files in found:
        place = folder / (run if forgery is None else f"{run}--{forgery}")
        said = verdict(write_files(place, files), NOW)
        index.append({
            "folder": place.name, "run": run, "forgery": forgery, "verdict": said.word, "status": said.status,
            "why": said.why, "revoked": said.revoked, "expired": said.expired, "now": NOW.isoformat(),
        })  # fmt: skip
    return index


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Export recorded runs, forgeries and verdicts.")
    parser.add_argument("folder", type=Path, help="a folder that is empty or new")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="recorded runs; without any, all")
    parser.add_argument("--sample", action="store_true", help="every forgery of one run only")
    given = parser.parse_intermixed_args(words)
    unknown = {*given.runs} - {*recorded()}
    if unknown or (given.folder.exists() and any(given.folder.iterdir())):
        parser.error(f"no recorded run: {min(unknown)}" if unknown else f"{given.folder} is not empty")
    index = exported(given.folder, cases(given.runs or recorded(), sampled=given.sample))
    given.folder.mkdir(parents=True, exist_ok=True)
    (given.folder / INDEX).write_text(json.dumps(index, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(index):,} folders, of which {sum(each['verdict'] == 'verified' for each in index):,} verify")


if __name__ == "__main__":
    main()
