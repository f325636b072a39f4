"""`fedsrc score`: from answers to a records table and its manifest."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, cast, get_args

import click
import polars as pl

from fedsrc.cli.options import FORMAT, MODEL, Option, options, output_file
from fedsrc.cli.progress import progress
from fedsrc.cli.streams import say
from fedsrc.cli.types import FilePath, Parsed
from fedsrc.scores.catalogue import SCORES, Count, Policy, Settings
from fedsrc.scores.models.backends import BACKENDS
from fedsrc.scores.models.embedding import DEFAULT as EMBEDDING
from fedsrc.scores.models.model import Sampling
from fedsrc.scores.opening import ModelChoices
from fedsrc.scores.prompts import Control
from fedsrc.scores.score_answers import Loss, Refusals, Scored, score_file

CONTROLS = [each for each in get_args(Control) if each != "present"]
ABOUT_SCORE = "A score's name, or a fitted score's folder; repeatable, the first becomes the table's score."
ABOUT_PREFIX = "Score prefixes too: the least score of so many first tokens (20,40,80) and of all; repeatable."
ABOUT_SERVER = "Address of an OpenAI-compatible server that returns prompt log-probabilities (vLLM); name its --model."
ABOUT_SAMPLES = "Responses to draw for scores that need them: a number, or each score's `recommended` or `matched`."
ABOUT_DRAWN = "Where drawn responses are kept and found again; without --model they are replayed."
HOW = {"temperature": "temperature", "top_p": "top_p", "sample_tokens": "max_tokens", "sample_seed": "seed"}
KEY_VARIABLE = "FEDSRC_SCORE_API_KEY"


def _count(text: str) -> Count:
    if text in get_args(get_args(Count)[1]):
        return cast("Count", text)
    if not text.isdecimal() or not int(text):
        raise ValueError("give a number above zero, recommended or matched")
    return int(text)


def _policy(text: str) -> Policy:
    if not all(part.strip().isdecimal() for part in text.split(",")):
        raise ValueError(f"{text!r} is not of the form 20,40,80: numbers of tokens")
    return tuple(int(part) for part in text.split(","))


COUNT = Parsed("count", _count)


def _chosen(flag: str, kind: Any, about: str) -> Option[Any]:
    """Declare an option whose choices are those of a Literal, the first of them by default."""
    names = get_args(kind)
    return click.option(flag, type=click.Choice(names), default=names[0], help=about)


SAMPLING = [
    click.option("--samples", "count", type=COUNT, default="5", help=ABOUT_SAMPLES),
    click.option("--sample-recording", type=FilePath, help=f"{ABOUT_DRAWN}  [default: beside -o]"),
    click.option("--temperature", type=float, help=f"Of drawn responses.  [default: {Sampling.temperature:g}]"),
    click.option("--top-p", type=float, help=f"Of drawn responses.  [default: {Sampling.top_p:g}]"),
    click.option("--sample-tokens", type=int, help=f"Most tokens of one.  [default: {Sampling.max_tokens}]"),
    click.option("--sample-seed", type=int, help=f"What decides the draws.  [default: {Sampling.seed}]"),
    click.option("--embedding", default=EMBEDDING, help="Model that embeds texts: hub name or folder."),
    click.option(
        "--entailment", help="Model that judges entailment: hub name or folder.  [default: none, embeddings stand in]"
    ),
    click.option(
        "--similar",
        type=float,
        default=Settings.similar,
        help="Cosine from which two embedded texts are taken to mean the same.",
    ),
]


@click.command("score", epilog="Scores: " + "; ".join(f"{name}: {each.about}" for name, each in SCORES.items()))
@click.argument("answers", type=FilePath)
@output_file("records.parquet")
@click.option("--score", "names", multiple=True, default=("lift",), help=ABOUT_SCORE)
@options(MODEL)
@click.option("--server", help=ABOUT_SERVER)
@click.option(
    "--backend",
    type=click.Choice(BACKENDS),
    default=BACKENDS[0],
    help="What runs a local model; llama.cpp reads .gguf files.",
)
@click.option("-B", "--clip", type=float, default=Settings.B, help="Clipping of the lift.")
@click.option("--window", type=int, default=Settings.window, help="Tokens of a window.")
@click.option("--prefix", "prefixes", type=Parsed("tokens,...", _policy), multiple=True, help=ABOUT_PREFIX)
@click.option(
    "--control",
    type=click.Choice(CONTROLS),
    default=Settings.control,
    help="What stands in for the evidence in the comparison.",
)
@_chosen("--loss", Loss, "Any unsupported part counts 1, or the share of unsupported characters.")
@_chosen("--refusals", Refusals, "Keep refusals in the table, marked, or write them to a table of their own.")
@options(SAMPLING)
@FORMAT
def score_command(answers: Path, target: Path, names: tuple[str, ...], output: str, **given: Any) -> None:
    """Score ANSWERS (JSON lines or Parquet: evidence, response; question, loss, source, site) into a records table.

    Token scores and drawn responses are kept as they come, beside -o unless told otherwise, so a command that was
    stopped resumes. The key of a server is read from FEDSRC_SCORE_API_KEY.
    """
    sampling = {field: given[name] for name, field in HOW.items() if given[name] is not None}
    named = {field.name: given[field.name] for field in fields(ModelChoices) if field.name in given}
    choices = ModelChoices(**named, api_key=os.environ.get(KEY_VARIABLE), sampling=sampling)
    settings = Settings(given["clip"], given["window"], given["control"], given["similar"], given["prefixes"])
    how = {"samples": given["count"], "loss": given["loss"], "refusals": given["refusals"]}
    with progress(counted=True) as step:
        found = score_file(
            answers, target, names, choices=choices, settings=settings, **how,
            done=lambda done, total: step("scoring", done, total),
        )  # fmt: skip
    for line in lines(found, target):
        say(line)
    if output == "json":
        click.echo(json.dumps(found.manifest))


def lines(found: Scored, target: Path) -> Iterator[str]:
    """Say the result in plain words, and what to do next."""
    table, told, refusals = found.table, found.manifest, found.manifest["refusals"]
    count = table.height
    yield f"Scored {count:,} answers in {told['seconds']:,.1f} s; wrote {target} and its manifest."
    if any(kind != "arithmetic" for kind in told["seconds_by"]):
        spent = (f"{kind} {seconds / count:.3g}" for kind, seconds in told["seconds_by"].items())
        yield f"Seconds per answer: {', '.join(spent)}."
    for kind in ("embedding", "entailment"):
        names = [name for name, by in told.get("compared_by", {}).items() if by == kind]
        if names:
            yield f"Compared by {kind} ({told[kind]['model']}): {', '.join(names)}."
    if told.get("judge", {}).get("unparsable"):
        yield f"{told['judge']['unparsable']:,} replies of the judge were no number, and count as 0."
    if refusals["count"]:
        where = "in a table of their own" if refusals["kept"] == "apart" else "marked in the column refusal"
        wrong = int((table.filter(pl.col("refusal"))["loss"] > 0).sum())
        yield f"{refusals['count']:,} answers read like refusals ({wrong:,} labelled unsupported): {where}."
    if told["provenance"].get("cross-model"):
        yield f"{told['provenance']['cross-model']:,} answers were not written by the scoring model (cross-model)."
    if told["labelled"] < count:
        yield f"{count - told['labelled']:,} answers have no label; certify with --labels on-demand asks for few."
    elif told["written"][0]["rows"]:
        unit = "" if table["source"].n_unique() == count else " --unit source"
        yield f"Next: fedsrc certify {target} --target 0.2 --epsilon 4{unit} -o run/"
