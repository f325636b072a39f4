"""From a file of answers to a records table, with a manifest of everything that decided its numbers."""

from __future__ import annotations

import io
import json
import platform
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import polars as pl

import fedsrc
from fedsrc.common.canonical import digest, digest_bytes, file_digest
from fedsrc.common.durable import write_whole
from fedsrc.data.answers import Answer, read_answers
from fedsrc.data.provenance import provenance
from fedsrc.errors import FedsrcError
from fedsrc.scores.catalogue import JUDGED, SCORES, Count, Settings
from fedsrc.scores.fitted.frozen import FrozenScore, load
from fedsrc.scores.methods.control_scores import is_refusal
from fedsrc.scores.methods.judge import RULES, parsed, question_in_words
from fedsrc.scores.opening import ModelChoices, open_means
from fedsrc.scores.prefixes import TOKENS, policy_column, refuse_no_prefix
from fedsrc.scores.recordings.samples import SampleRecording
from fedsrc.scores.scoring import Means, compares_by, needs, score_answers

Loss = Literal["any", "graded"]
Refusals = Literal["keep", "apart"]
Columns = dict[str, list[float]]
RESERVED = frozenset(
    {"id", "source", "site", "group", "loss", "score", "generator", "split", "refusal", "provenance", TOKENS}
)


class Scored(NamedTuple):
    """A table that was written, and its manifest."""

    table: pl.DataFrame
    manifest: dict[str, Any]


def score_file(
    answers: Path,
    target: Path,
    names: Sequence[str],
    *,
    choices: ModelChoices,
    settings: Settings,
    samples: Count = 5,
    loss: Loss = "any",
    refusals: Refusals = "keep",
    done: Callable[[int, int], None] = lambda _done, _total: None,
) -> Scored:
    """Score a file of answers into a table; names are those of scores, or folders of fitted ones.

    Token scores and drawn responses are kept as they come, so a call that was stopped resumes.
    """
    began = time.monotonic()
    apart = _refusals_file(target) if refusals == "apart" else None
    _refuse_existing(target, apart)
    read, sha256 = read_answers(answers), file_digest(answers)
    known, fitted = _named(names)
    refuse_no_prefix(names, settings)
    losses = _losses(read, loss)
    means = open_means(target, known, fitted, choices, samples)
    kept = {name: each.recorded for name in ("tokens", "samples") if (each := getattr(means, name)) is not None}
    columns = score_answers(read, known, settings, means, lambda n: done(n, len(read)))
    for name, each in fitted.items():
        with means.timed(each.kind):
            columns |= _fitted_columns(name, each.columns(read, means.of(each.kind)), columns)
    if not answers.is_file() or file_digest(answers) != sha256:
        raise FedsrcError("changed while it was scored; nothing was written", where=str(answers))
    with_models = _about_models(means, kept)
    scorer = {**with_models.get("sampler", {}), **means.identity}.get("model", "")
    table = _records_table(read, losses, _in_order(names, columns), scorer)
    manifest = {
        "format": 1,
        "answers": {"name": answers.name, "sha256": sha256, "count": len(read)},
        **_about_scores(known, fitted, means.count, settings),
        "settings": settings.plain() if needs(known) else {},
        **with_models,
        **_about_comparisons(known, means),
        **_about_judge(known, read, means.replies),
        "loss": loss,
        "labelled": sum(each is not None for each in losses),
        "refusals": {"count": int(table["refusal"].sum()), "kept": refusals},
        "provenance": dict(Counter(table["provenance"].to_list())),
        "written": _write_table(table, target, apart),
        "seconds": round(time.monotonic() - began, 3),
        "seconds_by": {name: round(seconds, 3) for name, seconds in means.seconds.items()},
        "peak_memory_bytes": _peak_memory(),
        "versions": _versions(),
    }
    write_whole(_manifest_of(target), json.dumps(manifest, indent=1, ensure_ascii=False).encode() + b"\n")
    return Scored(table, manifest)


def extra_passes(table: Path, names: Sequence[str]) -> dict[str, int]:
    """Return the extra passes of each score: as the table's manifest says, or as the score declares."""
    manifest = _manifest_of(table)
    said: dict[str, Any] = json.loads(manifest.read_bytes()).get("passes", {}) if manifest.is_file() else {}
    return {name: int(said.get(name, SCORES[name].passes if name in SCORES else 0)) for name in names}


def _manifest_of(table: Path) -> Path:
    return table.with_name(f"{table.name}.manifest.json")


def _refuse_existing(target: Path, apart: Path | None) -> None:
    if target.suffix not in (".parquet", ".csv"):
        raise FedsrcError(f"unknown kind of table {target.suffix!r}", where=str(target), hint="use .parquet or .csv")
    for path in (target, _manifest_of(target), *([apart] if apart else [])):
        if path.exists():
            raise FedsrcError("exists already", where=str(path), hint="choose another `output=`")


def _column_names(names: Sequence[str]) -> list[str]:
    return [name if name in SCORES else Path(name).name for name in names]


def _named(names: Sequence[str]) -> tuple[list[str], dict[str, FrozenScore]]:
    """Return scores by name, and fitted ones by folder."""
    columns = _column_names(names)
    if RESERVED & set(columns):
        raise FedsrcError("a fitted score's folder is called like another column", hint="rename the folder")
    if len(set(columns)) < len(columns):
        raise FedsrcError("a score is named twice", hint="name each score once; folders need different names")
    fitted = {}
    for name, column in zip(names, columns, strict=True):
        if name in SCORES:
            continue
        if not Path(name).is_dir():
            hint = f"one of {', '.join(SCORES)}, or a fitted score's folder"
            raise FedsrcError(f"there is no score {name!r}", hint=hint)
        fitted[column] = load(Path(name))
    return [column for column in columns if column not in fitted], fitted


def _fitted_columns(name: str, columns: Columns, others: Mapping[str, object]) -> Columns:
    """Name a fitted score's column, and what stands beside it, after the score."""
    named = {f"{name}_{more}" if more else name: column for more, column in columns.items()}
    twice = named.keys() & (others.keys() | RESERVED)
    if twice:
        raise FedsrcError(f"two columns would be called {min(twice)!r}", hint="rename a folder")
    return named


def _in_order(names: Sequence[str], columns: Columns) -> Columns:
    """Put the scores that were named first, in their order."""
    first = dict.fromkeys(_column_names(names))
    return {name: columns[name] for name in (*first, *(name for name in columns if name not in first))}


def _about_scores(
    known: Sequence[str], fitted: Mapping[str, FrozenScore], count: Count, settings: Settings
) -> dict[str, Any]:
    """Say what each score is, and how many extra passes of a model it took."""
    about = {name: SCORES[name].about for name in known} | {name: each.identity for name, each in fitted.items()}
    passes = {name: SCORES[name].extra_passes(count) for name in known}
    for name, policy in product(known, settings.prefixes):
        column, at = policy_column(name, policy), ", ".join(map(str, policy))
        about[column] = f"least {name} of the first {at} tokens, as far as there are, and of all"
        passes[column] = passes[name]
    return {"scores": about, "passes": passes | {name: each.passes for name, each in fitted.items()}}


def _about_models(means: Means, kept: Mapping[str, int]) -> dict[str, Any]:
    """Say which model scores, and how much of its work was recorded before."""
    device = getattr(means.local, "device", "")
    told = {"model": means.identity, "device": device, "recorded_before": kept.get("tokens", 0)}
    if means.samples is None:
        return told
    return {**told, "sampler": means.samples.identity, "samples_recorded_before": kept["samples"]}


def _about_comparisons(known: Sequence[str], means: Means) -> dict[str, Any]:
    """Say how many responses each score drew, and by which models they were compared."""
    if means.samples is None:
        return {}
    return {
        "samples": {name: count for name in known if (count := SCORES[name].samples(means.count))},
        "compared_by": compares_by(known, means),
        "embedding": {} if means.embeds is None else means.embeds.identity,
        "entailment": {} if means.entails is None else means.entails.identity,
    }


def _about_judge(known: Sequence[str], answers: Sequence[Answer], replies: SampleRecording | None) -> dict[str, Any]:
    """Say what rules a judge was given, and how many of its replies were no number."""
    if not set(known) & set(JUDGED):
        return {}
    told: dict[str, Any] = {"rules": RULES, "digest": digest(RULES)}
    if replies is not None:
        said = replies.sample([question_in_words(answer) for answer in answers])
        told["unparsable"] = sum(parsed(each.text) is None for each in said)
    return {"judge": told}


def _peak_memory() -> dict[str, int]:
    """Return the most memory that was held, in bytes, here and on the GPU."""
    unit = 1 if platform.system() == "Darwin" else 1024
    found = {"process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        found["gpu"] = int(torch.cuda.max_memory_allocated())
    return found


def _versions() -> dict[str, str]:
    loaded = {name: sys.modules.get(name) for name in ("numpy", "polars", "torch", "transformers")}
    found = {name: str(module.__version__) for name, module in loaded.items() if module is not None}
    return {"fedsrc": fedsrc.__version__, "python": platform.python_version(), **found}


def _losses(answers: Sequence[Answer], loss: str) -> list[float | None]:
    """Return the loss of each answer: any unsupported part, or the graded share."""
    if loss == "any":
        return [None if answer.loss is None else float(answer.loss > 0) for answer in answers]
    if any(answer.span_fraction is None for answer in answers):
        raise FedsrcError("`loss='graded'` needs a span_fraction for every answer")
    return [answer.span_fraction for answer in answers]


def _records_table(
    answers: Sequence[Answer], losses: Sequence[float | None], columns: Columns, model: str
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


def _refusals_file(target: Path) -> Path:
    """Return where refusals go that are kept apart."""
    return target.with_name(f"{target.stem}.refusals{target.suffix}")


def _write_table(table: pl.DataFrame, target: Path, apart: Path | None = None) -> list[dict[str, Any]]:
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
