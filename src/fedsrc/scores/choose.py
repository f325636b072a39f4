"""Choosing one score among several by a criterion that is fixed before anyone looks at the data.

The criterion: the highest AUC on development answers; of equals the one that costs fewer extra passes of the model,
then the first by name. The choice is written down with the fingerprints of the development sources, and refuses to be
used on them: a certificate after a choice made on its own records would not hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import polars as pl
from pydantic import Field, ValidationError

from fedsrc.common.durable import read_bytes, write_whole
from fedsrc.common.values import Frozen as Value
from fedsrc.common.values import Hex, describe
from fedsrc.errors import FedsrcError
from fedsrc.scores.fitted.development import auc
from fedsrc.scores.fitted.score_file import source_print

CRITERION = "highest AUC on development answers; of equals the fewest extra passes, then the first by name"
MAX_BYTES = 1 << 26


class Candidate(Value):
    """How a score did on development answers, and what it costs."""

    auc: float = Field(ge=0, le=1)
    passes: int = Field(ge=0)


class Choice(Value):
    """A score that was chosen, and all that it was chosen by."""

    format: Literal[1] = 1
    criterion: str = CRITERION
    chosen: str
    candidates: dict[str, Candidate] = Field(min_length=1)
    answers: int = Field(ge=1)
    unsupported: int = Field(ge=1)
    records_sha256: Hex
    source_fingerprints: Annotated[tuple[Hex, ...], Field(strict=False, min_length=1)]

    def check(self, sources: Iterable[str]) -> None:
        """Refuse sources that the choice was made on."""
        known = set(self.source_fingerprints)
        seen = sorted({each for each in sources if source_print(each) in known})
        if seen:
            names = ", ".join(repr(each) for each in seen[:3]) + (", ..." if len(seen) > 3 else "")
            hint = "calibrate and evaluate on other sources than those of development"
            raise FedsrcError(f"the score was chosen on {len(seen):,} of these sources: {names}", hint=hint)


def choose(
    records: pl.DataFrame, candidates: Sequence[str], passes: Mapping[str, int], *, records_sha256: str
) -> Choice:
    """Choose the best of the candidates, which are columns of a records table of development answers."""
    missing = [name for name in (*candidates, "loss", "source") if name not in records.columns]
    if missing or not candidates:
        hint = "score the answers with `fedsrc score`, or bring a table with loss, source and the scores"
        raise FedsrcError(f"the table has no column {', '.join(map(repr, missing))}", hint=hint)
    losses = records["loss"].to_numpy()
    if records["loss"].null_count() or not 0 < np.count_nonzero(losses) < losses.size:
        raise FedsrcError("choosing needs a label for every answer, and both supported and unsupported answers")
    labels = (losses > 0).astype(np.float64)
    found = {
        name: Candidate(auc=auc(records[name].to_numpy().tolist(), labels), passes=passes.get(name, 0))
        for name in candidates
    }
    prints = tuple(sorted({source_print(str(each)) for each in records["source"].to_list()}))
    return Choice(
        chosen=_best(found), candidates=found, answers=records.height, unsupported=int(labels.sum()),
        records_sha256=records_sha256, source_fingerprints=prints,
    )  # fmt: skip


def _best(candidates: Mapping[str, Candidate]) -> str:
    return min(candidates, key=lambda name: (-candidates[name].auc, candidates[name].passes, name))


def write_choice(path: Path, choice: Choice) -> None:
    """Write a choice to a file that is not there yet."""
    if path.exists():
        raise FedsrcError("exists already", where=str(path), hint="a choice is made once: name another file")
    write_whole(path, json.dumps(choice.model_dump(), indent=1).encode() + b"\n", replace=False)


def read_choice(path: Path) -> Choice:
    """Read a choice from its file; refuse one that its own numbers and criterion do not make."""
    try:
        choice = Choice.model_validate_json(read_bytes(path, MAX_BYTES))
    except ValidationError as error:
        raise FedsrcError(f"is not a choice of this version: {describe(error)}", where=str(path)) from error
    if choice.criterion != CRITERION or _best(choice.candidates) != choice.chosen:
        raise FedsrcError("names a score that its own numbers do not choose", where=str(path))
    return choice
