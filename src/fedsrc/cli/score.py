"""`fedsrc score`: from answers to a records table, with a manifest of everything that decided its numbers."""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import click
import polars as pl
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import fedsrc
from fedsrc.cli.options import BATCH_TOKENS, DEVICE, DTYPE, FORMAT, MODEL_CHOICES, REVISION, FilePath
from fedsrc.common.canonical import digest, file_digest
from fedsrc.common.durable import write_whole
from fedsrc.data.answers import Answer, read_answers
from fedsrc.errors import FedsrcError
from fedsrc.scores.catalogue import JUDGED, SCORES, Count, Settings
from fedsrc.scores.fitted.frozen import Frozen
from fedsrc.scores.fitted.frozen import load as load_frozen
from fedsrc.scores.methods.judge import GREEDY, RULES, parsed, question_in_words
from fedsrc.scores.models.backends import BACKENDS, open_embedding, open_entailment, open_llama_cpp, open_model
from fedsrc.scores.models.embedding import DEFAULT as EMBEDDING
from fedsrc.scores.models.embedding import Embeds
from fedsrc.scores.models.entailment import Entails
from fedsrc.scores.models.model import LanguageModel, Sampling, SamplingModel
from fedsrc.scores.models.server_model import connect
from fedsrc.scores.models.transformers_model import TransformersModel
from fedsrc.scores.recordings.replay import Recording
from fedsrc.scores.recordings.samples import SampleRecording
from fedsrc.scores.recordings.signal_recording import SignalRecording, beside
from fedsrc.scores.scoring import Means, compares_by, needs, needs_model, score_answers
from fedsrc.scores.table import RESERVED, losses_of, records_table, refusals_file, write_table

CONTROLS = ["removed", "neutral", "shuffled", "irrelevant"]
ABOUT_SCORE = "A score's name, or a fitted score's folder; repeatable, the first becomes the table's score."
ABOUT_RECORDING = (
    "Where token scores are kept and found again; without --model they are replayed.  [default: beside -o]"
)
ABOUT_CONTROL = "What stands in for the evidence in the comparison."
ABOUT_LOSS = "Any unsupported part counts 1, or the share of unsupported characters."
ABOUT_REFUSALS = "Keep refusals in the table, marked, or write them to a table of their own."
ABOUT_SAMPLES = "Responses to draw for scores that need them: a number, or each score's `recommended` or `matched`."
ABOUT_DRAWN = "Where drawn responses are kept and found again; without --model they are replayed.  [default: beside -o]"
ABOUT_EMBEDDING = "Model that embeds texts: hub name or folder."
ABOUT_ENTAILMENT = "Model that judges entailment: hub name or folder.  [default: none, embeddings stand in]"
ABOUT_SIMILAR = "Cosine from which two embedded texts are taken to mean the same."
ABOUT_BACKEND = "What runs a local model; llama.cpp reads .gguf files."
HOW = {"temperature": "temperature", "top_p": "top_p", "sample_tokens": "max_tokens", "sample_seed": "seed"}
KEY_VARIABLE = "FEDSRC_SCORE_API_KEY"


def _count(_context: click.Context, _option: click.Parameter, value: str) -> Count:
    if value == "recommended":
        return "recommended"
    if value == "matched":
        return "matched"
    if not value.isdecimal() or not int(value):
        raise click.BadParameter("give a number above zero, recommended or matched")
    return int(value)


SAMPLING = (
    click.option("--samples", "count", default="5", show_default=True, callback=_count, help=ABOUT_SAMPLES),
    click.option("--sample-recording", type=FilePath, help=ABOUT_DRAWN),
    click.option("--temperature", type=float, help=f"Of drawn responses.  [default: {Sampling.temperature:g}]"),
    click.option("--top-p", type=float, help=f"Of drawn responses.  [default: {Sampling.top_p:g}]"),
    click.option("--sample-tokens", type=int, help=f"Most tokens of one.  [default: {Sampling.max_tokens}]"),
    click.option("--sample-seed", type=int, help=f"What decides the draws.  [default: {Sampling.seed}]"),
    click.option("--embedding", default=EMBEDDING, show_default=True, help=ABOUT_EMBEDDING),
    click.option("--entailment", help=ABOUT_ENTAILMENT),
    click.option("--similar", type=float, default=Settings.similar, show_default=True, help=ABOUT_SIMILAR),
)


def _sampling_options(command: Any) -> Any:
    for option in reversed(SAMPLING):
        command = option(command)
    return command


@click.command("score", epilog="Scores: " + "; ".join(f"{name}: {each.about}" for name, each in SCORES.items()))
@click.argument("answers", type=FilePath)
@click.option("-o", "--output", "target", type=FilePath, default="records.parquet", show_default=True)
@click.option("--score", "names", multiple=True, default=("lift",), show_default=True, help=ABOUT_SCORE)
@click.option("--model", help="A local model: hub name, folder or .gguf file; with --server, its name there.")
@REVISION
@click.option("--server", help="Address of an OpenAI-compatible server that returns prompt log-probabilities (vLLM).")
@DEVICE
@DTYPE
@BATCH_TOKENS
@click.option("--backend", type=click.Choice(BACKENDS), default=BACKENDS[0], show_default=True, help=ABOUT_BACKEND)
@click.option("--recording", type=FilePath, help=ABOUT_RECORDING)
@click.option("-B", "--clip", type=float, default=Settings.B, show_default=True, help="Clipping of the lift.")
@click.option("--window", type=int, default=Settings.window, show_default=True, help="Tokens of a window.")
@click.option("--control", type=click.Choice(CONTROLS), default="removed", show_default=True, help=ABOUT_CONTROL)
@click.option("--loss", type=click.Choice(["any", "graded"]), default="any", show_default=True, help=ABOUT_LOSS)
@click.option(
    "--refusals", type=click.Choice(["keep", "apart"]), default="keep", show_default=True, help=ABOUT_REFUSALS
)
@_sampling_options
@FORMAT
def score_command(answers: Path, target: Path, names: tuple[str, ...], output: str, **options: Any) -> None:
    """Score ANSWERS (JSON lines or Parquet: evidence, response; question, loss, source, site) into a records table.

    Token scores and drawn responses are kept as they come, so a stopped command goes on where it was. The key of a
    server is read from FEDSRC_SCORE_API_KEY.
    """
    began = time.monotonic()
    if target.suffix not in (".parquet", ".csv"):
        raise FedsrcError(f"unknown kind of table {target.suffix!r}", where=str(target), hint="use .parquet or .csv")
    manifest_file = target.with_name(f"{target.name}.manifest.json")
    apart = refusals_file(target) if options["refusals"] == "apart" else None
    for path in (target, manifest_file, *([apart] if apart else [])):
        if path.exists():
            raise FedsrcError("exists already", where=str(path), hint="choose another -o")
    read = read_answers(answers)
    sha256 = file_digest(answers)
    settings = Settings(options["clip"], options["window"], options["control"], options["similar"])
    known, fitted = _named(names)
    losses = losses_of(read, options["loss"])
    models = _models(target, known, fitted, options)
    means = Means(models.samples, options["count"], *_comparers(known, options), models.replies)
    kept = [0 if each is None else each.recorded for each in (models.tokens, models.samples)]
    with _progress(len(read)) as done:
        columns = score_answers(read, known, settings, models.tokens, local=models.local, means=means, done=done)
    for name, each in fitted.items():
        with means.timed(each.kind):
            columns |= _fitted_columns(name, each.columns(read, models.of(each)), columns)
    if not answers.is_file() or file_digest(answers) != sha256:
        raise FedsrcError("changed while it was scored; nothing was written", where=str(answers))
    identity = models.identity
    told = _told(known, models.samples, means) if models.samples is not None else {}
    first = dict.fromkeys(_column_names(names))
    chosen = {name: columns[name] for name in (*first, *(name for name in columns if name not in first))}
    table = records_table(read, losses, chosen, {**told.get("sampler", {}), **identity}.get("model", ""))
    manifest = {
        "format": 1,
        "answers": {"name": answers.name, "sha256": sha256, "count": len(read)},
        "scores": {name: SCORES[name].about for name in known} | {name: each.identity for name, each in fitted.items()},
        "passes": {name: SCORES[name].extra_passes(means.count) for name in known}
        | {name: each.passes for name, each in fitted.items()},
        "settings": settings.plain() if needs(known) else {},
        "model": identity,
        "device": getattr(models.local, "device", ""),
        "recorded_before": kept[0],
        **({**told, "samples_recorded_before": kept[1]} if told else {}),
        **_judged(known, read, models.replies),
        "loss": options["loss"],
        "labelled": sum(loss is not None for loss in losses),
        "refusals": {"count": int(table["refusal"].sum()), "kept": options["refusals"]},
        "provenance": dict(Counter(table["provenance"].to_list())),
        "written": write_table(table, target, apart),
        "seconds": round(time.monotonic() - began, 3),
        "seconds_by": {name: round(seconds, 3) for name, seconds in means.seconds.items()},
        "peak_memory_bytes": _peak_memory(),
        "versions": _versions(),
    }
    text = json.dumps(manifest, indent=1, ensure_ascii=False)
    write_whole(manifest_file, text.encode() + b"\n")
    for line in _lines(manifest, target, table):
        click.echo(line, err=True)
    if output == "json":
        click.echo(json.dumps(manifest))


def _column_names(names: Sequence[str]) -> list[str]:
    return [name if name in SCORES else Path(name).name for name in names]


def _named(names: Sequence[str]) -> tuple[list[str], dict[str, Frozen]]:
    """Scores by name, and fitted ones by folder."""
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
            raise FedsrcError(
                f"there is no score {name!r}", hint=f"one of {', '.join(SCORES)}, or a fitted score's folder"
            )
        fitted[column] = load_frozen(Path(name))
    return [column for column in columns if column not in fitted], fitted


class _Models(NamedTuple):
    """What gives token scores, drawn responses, a judge's replies and mechanistic signals, each a recording.

    `local` is the local model behind them, if there is one.
    """

    tokens: Recording | None = None
    samples: SampleRecording | None = None
    replies: SampleRecording | None = None
    signals: SignalRecording | None = None
    local: Any = None

    @property
    def identity(self) -> dict[str, str]:
        """The model that scores, whoever was asked."""
        asked = self.tokens or self.signals or self.replies
        found = {} if asked is None else asked.identity
        return {name: value for name, value in found.items() if name not in ("signals", "sampling")}

    def of(self, each: Frozen) -> Any:
        """What a fitted score reads: recorded token scores or signals, or the local model itself."""
        recorded = {"combination": self.tokens, "franq": self.tokens, "mechanistic": self.signals}
        return recorded.get(each.kind, self.local)


def _models(target: Path, known: Sequence[str], fitted: dict[str, Frozen], options: dict[str, Any]) -> _Models:
    """The models that these scores need."""
    kinds, wanted = {each.kind for each in fitted.values()}, needs(known)
    tokens = needs_model(known) or bool(kinds - {"mechanistic"})
    if not tokens and not kinds and not wanted & {"samples", "reply"}:
        return _Models()
    opened, local = _opened(options, tokens=tokens)
    if opened is None and options["recording"] is None and (tokens or kinds or "reply" in wanted):
        raise FedsrcError("this score needs a language model", hint="give --model, --server or --recording")
    path = options["recording"] or target.with_name(f"{target.name}.recording.jsonl")
    return _Models(
        Recording(path, opened) if tokens else None,
        _sample_recording(target, opened, options) if "samples" in wanted else None,
        _reply_recording(path, opened) if "reply" in wanted else None,
        _signal_recording(path, opened) if "mechanistic" in kinds else None,
        local,
    )


def _opened(options: dict[str, Any], *, tokens: bool) -> tuple[LanguageModel | None, Any]:
    """The model that was named, and once more if it is a local one."""
    if options["server"]:
        if not options["model"]:
            raise FedsrcError("--server needs --model, the model's name there")
        key = os.environ.get(KEY_VARIABLE)
        revision = options["revision"]
        return connect(options["server"], options["model"], api_key=key, revision=revision, echo=tokens), None
    if options["model"]:
        wanted = {name: options[name] for name in MODEL_CHOICES}
        local = (open_llama_cpp if options["backend"] == "llama.cpp" else open_model)(options["model"], **wanted)
        return local, local
    return None, None


def _sample_recording(target: Path, model: LanguageModel | None, options: dict[str, Any]) -> SampleRecording:
    """Drawn responses; a replay takes them as they were drawn."""
    how = {field: options[name] for name, field in HOW.items() if options[name] is not None}
    path = options["sample_recording"]
    if model is None and path is None:
        raise FedsrcError("this score needs drawn responses", hint="give --model, --server or --sample-recording")
    if model is None and how:
        raise FedsrcError("how responses were drawn is in their recording", hint="leave the options of sampling out")
    if model is not None and not isinstance(model, SamplingModel):
        raise FedsrcError("this model draws no responses", hint="use another model, or --sample-recording")
    return SampleRecording(path or target.with_name(f"{target.name}.samples.jsonl"), model, Sampling(**how))


def _signal_recording(path: Path, model: LanguageModel | None) -> SignalRecording:
    """Mechanistic signals, kept beside the token scores."""
    if model is not None and not isinstance(model, TransformersModel):
        raise FedsrcError("mechanistic signals need a local model's attention and states", hint="give --model alone")
    return SignalRecording(beside(path, "signals"), model)


def _reply_recording(path: Path, model: LanguageModel | None) -> SampleRecording:
    """What a judge says in words, kept beside the token scores; a replay must have been decoded the same way."""
    if model is not None and not isinstance(model, SamplingModel):
        raise FedsrcError("this model writes nothing", hint="use another model, or leave judge-verbal out")
    found = SampleRecording(beside(path, "replies"), model, GREEDY)
    if json.loads(found.identity["sampling"]) != json.loads(json.dumps(asdict(GREEDY))):
        raise FedsrcError("was decoded in another way than a judge's replies are", where=str(found.path))
    return found


def _judged(known: Sequence[str], answers: Sequence[Answer], replies: SampleRecording | None) -> dict[str, Any]:
    """What a manifest says of the judge: its rules, and how many replies were no number."""
    if not set(known) & set(JUDGED):
        return {}
    told: dict[str, Any] = {"rules": RULES, "digest": digest(RULES)}
    if replies is not None:
        said = replies.sample([question_in_words(answer) for answer in answers])
        told["unparsable"] = sum(parsed(each.text) is None for each in said)
    return {"judge": told}


def _fitted_columns(
    name: str, columns: dict[str, list[float]], others: dict[str, list[float]]
) -> dict[str, list[float]]:
    """A fitted score's column, and what stands beside it, under names that begin with its own."""
    named = {f"{name}_{more}" if more else name: column for more, column in columns.items()}
    twice = named.keys() & (others.keys() | RESERVED)
    if twice:
        raise FedsrcError(f"two columns would be called {min(twice)!r}", hint="rename a folder")
    return named


def _comparers(known: Sequence[str], options: dict[str, Any]) -> tuple[Embeds | None, Entails | None]:
    """Models that compare texts, where a score needs them."""
    wanted, device = needs(known), options["device"]
    meaning = "meaning" in wanted
    entails = open_entailment(options["entailment"], device) if options["entailment"] else None
    embeds = "embedding" in wanted or (meaning and entails is None)
    return (open_embedding(options["embedding"], device) if embeds else None), entails


def _told(known: Sequence[str], samples: SampleRecording, means: Means) -> dict[str, Any]:
    """What a manifest says of drawn responses and how they were compared."""
    return {
        "sampler": samples.identity,
        "samples": {name: count for name in known if (count := SCORES[name].samples(means.count))},
        "compared_by": compares_by(known, means),
        "embedding": {} if means.embeds is None else means.embeds.identity,
        "entailment": {} if means.entails is None else means.entails.identity,
    }


def _lines(manifest: dict[str, Any], target: Path, table: pl.DataFrame) -> Iterator[str]:
    """The result in plain words."""
    count, refusals = table.height, manifest["refusals"]
    yield f"Scored {count:,} answers in {manifest['seconds']:,.1f} s; wrote {target} and its manifest."
    if any(kind != "arithmetic" for kind in manifest["seconds_by"]):
        spent = (f"{kind} {seconds / count:.3g}" for kind, seconds in manifest["seconds_by"].items())
        yield f"Seconds per answer: {', '.join(spent)}."
    yield from _comparison(manifest)
    if manifest.get("judge", {}).get("unparsable"):
        yield f"{manifest['judge']['unparsable']:,} replies of the judge were no number, and count as 0."
    if refusals["count"]:
        where = "in a table of their own" if refusals["kept"] == "apart" else "marked in the column refusal"
        wrong = int((table.filter(pl.col("refusal"))["loss"] > 0).sum())
        yield f"{refusals['count']:,} answers read like refusals ({wrong:,} labelled unsupported): {where}."
    if manifest["provenance"].get("cross-model"):
        yield f"{manifest['provenance']['cross-model']:,} answers were not written by the scoring model (cross-model)."
    if manifest["labelled"] < count:
        yield f"{count - manifest['labelled']:,} answers have no label; certify needs one for every record."
    elif manifest["written"][0]["rows"]:
        unit = "" if table["source"].n_unique() == count else " --unit source"
        yield f"Next: fedsrc certify {target} --target 0.2 --epsilon 4{unit} -o run/"


def _comparison(manifest: dict[str, Any]) -> Iterator[str]:
    """How scores compared texts, in plain words."""
    for kind in ("embedding", "entailment"):
        names = [name for name, by in manifest.get("compared_by", {}).items() if by == kind]
        if names:
            yield f"Compared by {kind} ({manifest[kind]['model']}): {', '.join(names)}."


def _peak_memory() -> dict[str, int]:
    """The most memory that was held, in bytes, here and on the GPU."""
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


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; nothing in a pipe."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("scoring"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("scoring", total=total)
        yield lambda done: bar.update(task, completed=done)
