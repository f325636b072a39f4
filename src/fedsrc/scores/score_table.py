"""The records table that certify reads, from answers and their scores."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from fedsrc.common.canonical import digest_bytes
from fedsrc.common.durable import write_whole
from fedsrc.data.answers import Answer
from fedsrc.data.provenance import provenance
from fedsrc.errors import FedsrcError
from fedsrc.scores.methods.control_scores import is_refusal

RESERVED = frozenset({"id", "source", "site", "group", "loss", "score", "generator", "split", "refusal", "provenance"})


def losses_of(answers: Sequence[Answer], loss: str) -> list[float | None]:
    """Return the loss of each answer: any unsupported part, or the graded share."""
    if loss == "any":
        return [None if answer.loss is None else float(answer.loss > 0) for answer in answers]
    if any(answer.span_fraction is None for answer in answers):
        raise FedsrcError("`loss='graded'` needs a span_fraction for every answer")
    return [answer.span_fraction for answer in answers]


def records_table(
    answers: Sequence[Answer], losses: Sequence[float | None], columns: dict[str, list[float]], model: str
) -> pl.DataFrame:
    """Return the records table: what certify reads first, then every score, then what is known of each answer."""
    first = next(iter(columns.values()))
    frame: dict[str, Any] = {"id": [a.id for a in answers], "source": [a.source for a in answers]}
    if any(answer.site for answer in answers):
        frame["site"] = [a.site for a in answers]
    if any(answer.group for answer in answers):
        frame["group"] = [a.group for a in answers]
    frame |= {"loss": pl.Series(losses, dtype=pl.Float64), "score": first, **columns}
    frame |= {name: [getattr(a, name) for a in answers] for name in ("generator", "split")}
    frame["refusal"] = [is_refusal(a.response) for a in answers]
    frame["provenance"] = [provenance(a.generator, model) for a in answers]
    return pl.DataFrame(frame)


def refusals_file(target: Path) -> Path:
    """Return where refusals go that are kept apart."""
    return target.with_name(f"{target.stem}.refusals{target.suffix}")


def write_table(table: pl.DataFrame, target: Path, apart: Path | None = None) -> list[dict[str, Any]]:
    """Write the table, refusals apart if asked; return name, rows and digest of each file."""
    parts = {target: table}
    if apart is not None:
        parts = {target: table.filter(~pl.col("refusal")), apart: table.filter(pl.col("refusal"))}
    written = []
    for path, part in parts.items():
        data = io.BytesIO()
        if path.suffix == ".csv":
            part.write_csv(data)
        else:
            part.write_parquet(data, compression="zstd")
        write_whole(path, data.getvalue())
        written.append({"name": path.name, "rows": part.height, "sha256": digest_bytes(data.getvalue())})
    return written
