"""How well each score ranks supported above unsupported answers, and what the certificate makes of the best ones.

Writes docs/results/scores.md. Run: python -m research.benchmarks.scores TABLES_FOLDER [DATA_FOLDER]
(or set FEDSRC_TABLES and FEDSRC_DATA). The tables are those of `fedsrc score`; see the page for their names.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from fedsrc.data.ragtruth import read_noted
from fedsrc.maths.arrays import Floats
from fedsrc.records.order import Positions
from research.benchmarks import scores_certificate, scores_once
from research.pages import markdown, publish

MODEL_SCORES = ("lift", "window", "probability", "entropy")
PLAIN_SCORES = ("lexical", "familiarity", "shortness")
FITTED = ("probe", "detector")
MISTRAL = "mistral-7B-instruct"
LLAMAS = ("llama-2-7b-chat", "llama-2-13b-chat", "llama-2-70b-chat")
TASKS = ("qa", "dialogue", "summarization")
UNSEEN = ("calibration", "evaluation")
RESAMPLES, SEED = 1000, 0
WORDS = {
    "probe": "**token probe**", "detector": "fine-tuned detector",
    "lift": "lift (the paper's)", "window": "window lift, width 20", "probability": "mean token probability",
    "entropy": "mean token entropy", "lexical": "wording in the evidence", "familiarity": "novelty alone",
    "shortness": "length alone", "probe - familiarity": "*probe minus novelty*",
    "detector - familiarity": "*detector minus novelty*", "window - familiarity": "*window lift minus novelty*",
}  # fmt: skip
COMPARED = ("probe", "detector", "window")
SELECTION = {  # candidates in ragtruth-fitted.json: out-of-fold AUC on the development sources, all generators
    "narrower probe": "token probe, stretch of 3 tokens",
    "combination": "logistic of lexical and language-model features",
    "detector": "fine-tuned detector, stretch of 5 tokens",
}


@dataclass(frozen=True)
class Rows:
    """Some answers of a table, under a name for the page."""

    name: str
    frame: pl.DataFrame

    @property
    def answering(self) -> Rows:
        """Without refusals."""
        return Rows(self.name, self.frame.filter(~pl.col("refusal")))


@dataclass(frozen=True)
class Area:
    """An AUC and its bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return self.shown(3)

    def shown(self, digits: int) -> str:
        return f"{self.value:.{digits}f} [{self.low:.3f}, {self.high:.3f}]"


def auc(codes: Positions, loss: Floats, weight: Floats) -> float:
    """Chance that a supported answer scores above an unsupported one, ties counted half; `codes` rank the scores."""
    bad, good = (np.bincount(codes, weight * part) for part in (loss, 1.0 - loss))
    pairs = bad.sum() * good.sum()
    return float(good @ (np.cumsum(bad) - bad / 2) / pairs) if pairs else float("nan")


def areas(rows: Rows, names: Sequence[str]) -> dict[str, Area]:
    """AUC of every score, with 95% intervals from resampling whole sources; every score sees the same resamples.

    Under `NAME - familiarity`, how far the AUC of a score that reads the evidence is above that of novelty alone.
    """
    loss = rows.frame["loss"].to_numpy()
    source = np.unique(rows.frame["source"].to_numpy(), return_inverse=True)[1]
    codes = {name: np.unique(rows.frame[name].to_numpy(), return_inverse=True)[1] for name in names}
    rng, count = np.random.default_rng(SEED), int(source.max()) + 1
    drawn: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(RESAMPLES):
        weight = np.bincount(rng.integers(count, size=count), minlength=count)[source].astype(np.float64)
        for name in names:
            drawn[name].append(auc(codes[name], loss, weight))
    values = {name: auc(codes[name], loss, np.ones(loss.size)) for name in names}
    found = {name: area(values[name], np.asarray(drawn[name])) for name in names}
    beside = "familiarity"
    for name in set(names) & set(COMPARED):
        gap = np.asarray(drawn[name]) - np.asarray(drawn[beside])
        found[f"{name} - {beside}"] = area(values[name] - values[beside], gap)
    return found


def area(value: float, drawn: Floats) -> Area:
    low, high = np.nanquantile(drawn, (0.025, 0.975))
    return Area(value, float(low), float(high))


@dataclass(frozen=True)
class Compared:
    """Every score on several sets of answers."""

    sets: Sequence[Rows]
    found: list[dict[str, Area]]

    def table(self) -> str:
        header = ["score", *(f"{rows.name} ({rows.frame.height:,})" for rows in self.sets)]
        names = [name for name in WORDS if name in self.found[0]]
        return markdown(header, ([WORDS[name], *(str(each[name]) for each in self.found)] for name in names))


def compared(sets: Sequence[Rows], names: Sequence[str]) -> Compared:
    return Compared(sets, [areas(rows, names) for rows in sets])


def count_rows(sets: Sequence[Rows], implicit: set[str] | None) -> Iterator[list[str]]:
    """Answers, refusals and positives of every set."""
    for rows in sets:
        frame, refused = rows.frame, rows.frame.filter(pl.col("refusal"))
        bad = frame.filter(pl.col("loss") == 1)
        only = "not counted" if implicit is None else f"{bad['id'].is_in(list(implicit)).sum():,}"
        yield [
            rows.name, f"{frame.height:,}", f"{frame['source'].n_unique():,}", f"{bad.height:,} ({share(frame)})",
            f"{refused.height:,}", share(refused), only if frame["group"][0] == "QA" else "–",
        ]  # fmt: skip


def share(frame: pl.DataFrame) -> str:
    """Share of unsupported answers."""
    return f"{frame['loss'].to_numpy().mean():.3f}" if frame.height else "–"


def implicit_only(folder: str | None) -> set[str] | None:
    """Answers whose every marked span is true but not in the passages; None without the original data."""
    if not folder:
        return None
    noted = [each for each in read_noted(Path(folder) / "ragtruth") if each.answer.group == "QA"]
    return {n.answer.id for n in noted if n.notes.spans and all(span.implicit_true for span in n.notes.spans)}


def table(folder: Path, name: str) -> pl.DataFrame:
    path = folder / f"{name}.parquet"
    if not path.is_file():
        sys.exit(f"error: there is no {name}.parquet\nhint: give the folder of the score tables, or set FEDSRC_TABLES")
    return pl.read_parquet(path)


def ragtruth_sets(frame: pl.DataFrame) -> list[Rows]:
    train, test = (frame.filter(pl.col("split") == split) for split in ("train", "test"))
    by_model = [Rows(f"{name}, train", train.filter(pl.col("generator") == name)) for name in (MISTRAL, *LLAMAS)]
    return [*by_model, Rows("six generators, test", test)]


def unseen_sets(frame: pl.DataFrame) -> list[Rows]:
    """Sources that no fitted score has seen."""
    train = frame.filter(pl.col("part").is_in(UNSEEN))
    return [
        Rows("mistral, train", train.filter(pl.col("generator") == MISTRAL)),
        Rows("four generators, train", train),
        Rows("six generators, test", frame.filter(pl.col("part") == "test")),
    ]


def selection(frame: pl.DataFrame, fitted: dict[str, float]) -> str:
    """The out-of-fold AUCs that decided, that of the probe computed here."""
    development = Rows("", frame.filter(pl.col("part") == "development"))
    found = areas(development, ("probe", "window", "familiarity"))
    rows = [["token probe, stretch of 5 tokens (the tables' column)", found["probe"].shown(4), "this script"]]
    rows += [[words, f"{fitted[name]:.4f}", "recorded"] for name, words in SELECTION.items()]
    rows += [[WORDS[name], found[name].shown(4), "this script"] for name in ("window", "familiarity")]
    return markdown(("candidate", "AUC, development sources", "computed by"), rows)


def headline(fitted: Compared, whole: Compared) -> str:
    """What the page shows, first."""
    probe, mistral, llamas = fitted.found[0], whole.found[0], whole.found[1:4]
    behind = [-each["window - familiarity"].value for each in llamas]
    return f"""\
# Scores: how well they rank, and what the certificate makes of them

A linear *token probe* on the hidden states of a 135M model ranks answers of sources it never saw with AUC
{probe["probe"]} (RAGTruth question answering, mistral), {probe["probe - familiarity"]} above counting the words
that the evidence lacks. Fine-tuning the model gives little more: {probe["detector"]}. *Window lift* needs no training,
yet is not told apart from that count on mistral ({mistral["window - familiarity"]}), on which its width was chosen,
and is behind it by {min(behind):.2f} to {max(behind):.2f} on the three Llama generators: it does not carry over."""


def main() -> None:
    given = [*sys.argv[1:3], None, None]
    tables, data = given[0] or os.environ.get("FEDSRC_TABLES"), given[1] or os.environ.get("FEDSRC_DATA")
    if not tables:
        sys.exit(
            "error: no folder of score tables\n"
            "hint: python -m research.benchmarks.scores TABLES_FOLDER, or FEDSRC_TABLES"
        )
    folder, plain = Path(tables), (*MODEL_SCORES, *PLAIN_SCORES)
    rag = table(folder, "ragtruth").join(table(folder, "ragtruth-fitted"), on="id", how="inner", validate="1:1")
    sets, unseen = ragtruth_sets(rag), unseen_sets(rag)
    halueval = [Rows(task, table(folder, f"halueval-{task}")) for task in TASKS]
    fitted = compared(unseen, (*FITTED, *plain))
    calm = compared([rows.answering for rows in unseen], (*FITTED, *plain))
    whole, answering = compared(sets, plain), compared([rows.answering for rows in sets], plain)
    counts = markdown(COUNT_HEADER, count_rows([*sets, *halueval], implicit_only(data)))
    certificates, once = scores_certificate.run(unseen[0].frame, unseen[1].frame), scores_once.run(unseen[1].frame)
    chosen = selection(rag, json.loads((folder / "ragtruth-fitted.json").read_bytes()))
    parts = [headline(fitted, whole), scores_once.headline(once), certificates.headline(), HEAD, fitted.table()]
    parts += [FITTED_READING, calm.table(), SELECTED, chosen, SELECTED_READING, PLAIN_HEAD, whole.table()]
    parts += [REFUSAL_HEAD, answering.table(), HALUEVAL_HEAD, compared(halueval, plain).table(), COUNT_HEAD, counts]
    parts += [*certificates.parts(), *scores_once.page(once)]
    publish("scores.md", parts)


COUNT_HEADER = (
    "answers", "count", "sources", "unsupported (share)", "refusals", "unsupported share of refusals",
    "unsupported only by `implicit_true` spans",
)  # fmt: skip

HEAD = f"""\
Made by

    python -m research.benchmarks.scores TABLES_FOLDER DATA_FOLDER

TABLES_FOLDER holds the tables that `fedsrc score` writes: `ragtruth.parquet` (RAGTruth question answering),
`halueval-qa.parquet`, `halueval-dialogue.parquet` and `halueval-summarization.parquet`, and beside them
`ragtruth-fitted.parquet` (id, part, probe, detector) and `ragtruth-fitted.json`. DATA_FOLDER, with
`ragtruth/response.jsonl.gz` and `source_info.jsonl.gz`, is needed only to count `implicit_true` spans. The scoring
model is SmolLM2-135M-Instruct (Q4_1), which wrote none of the answers. The tables are made, where it is at hand, by

    python -m research.tables.recorded DATA_FOLDER SmolLM2-135M-Instruct.Q4_1.gguf TABLES_FOLDER ragtruth scores fitted
    python -m research.tables.recorded DATA_FOLDER SmolLM2-135M-Instruct.Q4_1.gguf TABLES_FOLDER qa scores

and so on for `dialogue` and `summarization`; here on one H200, all in eleven minutes. What an answer costs, both sides
of the lift in float32: on one CPU core 1.8 s for RAGTruth, 0.4 to 0.5 s for qa and dialogue of HaluEval
([throughput](throughput.md)); on an H200, whole collections at once, 0.005 s, and 0.0012 s for qa, 0.0016 s for
dialogue and 0.0061 s for summarization ([times of an earlier run](../../research/results/scores_seconds.json)). The
probe reads one side. The scores of the text alone take 0.2 ms.

Every figure is an AUC: the chance that a supported answer scores above an unsupported one, ties counted half; 0.5 is
no better than a coin. In brackets a 95% interval from {RESAMPLES:,} bootstrap resamples of whole sources. Length
(shorter is higher) and novelty (fewer content words that neither question nor evidence holds is higher) need no model
and stand beside every score: a score that does not beat them has not shown that it reads the evidence. The last rows
are differences on the same resamples.

## Fitted scores, on sources they never saw

The *token probe* is a logistic model on the hidden states of layer 18, the *fine-tuned detector* the same model with
LoRA; both learned from marked spans of the development sources (three tenths of the train split's, by a hash of the
source). Here: the other train sources, and the test split. The other scores stand beside them on the same rows."""

FITTED_READING = """\
What was looked at: the probe's layer and penalty were chosen on development sources. Its stretch of 5 tokens was not
the best there (3 was, see below), and the run that made it also printed six widths on the unseen sources, so that this
one choice cannot be called blind. Window width 20 was chosen by people who had looked at these data: expect a
little less elsewhere. `implicit_true` positives count as unsupported. RAGTruth's train and test splits are not
exchangeable.

The same without refusals, on which the probe, window lift, novelty and length are all a little worse: refusals are
short, almost always supported, and easy to rank."""

SELECTED = """\
### How the score was selected

By AUC on the development sources alone, all four generators, each source scored by a fit that did not see it (five
folds by source)."""

SELECTED_READING = """\
`recorded` marks figures that the run which made the tables gave (`ragtruth-fitted.json`). The detector is within the
probe's interval: the probe is taken, being the cheaper. The detector's scores of development sources are in-sample in
the table, not used."""

PLAIN_HEAD = """\
## RAGTruth question answering, all answers

What was looked at: window width 20 was chosen by people who had looked at these data, mistral's train answers above
all. Nothing else was fitted. Unsupported means that annotators marked any span, also one that is true but not in the
passages (`implicit_true`; counted below)."""

REFUSAL_HEAD = """\
### Without refusals

A refusal claims nothing and is almost always supported. The evidence lifts it little, so mean lift rejects refusals
and improves without them; window lift, novelty and length rank them high and lose a little. Only mistral refuses often
enough to matter. What counts as a refusal is a list of phrases in answers of at most 40 words. What was looked at:
window width 20, as above; `implicit_true` positives count as unsupported."""

HALUEVAL_HEAD = """\
## HaluEval

**In HaluEval, length alone separates right from hallucinated answers**: the row `length alone` says how well. Right
answers are references, hallucinated ones were generated to be longer and more specific, so every score that moves with
length inherits the artefact, lift and window lift among them. These figures are no evidence of detection, and no score
is to be chosen by them: none of the model's beats length. What was looked at: nothing was fitted on HaluEval; window
width 20 was chosen by people who had also seen it. Both answers of a pair share a source and are resampled
together. Of summarization, the first 2,000 pairs."""

COUNT_HEAD = """\
## Counts

Refusals are reported apart (the HaluEval rows: labels come from how the pairs were made, and length alone tells them
apart). Positives that rest on `implicit_true` spans alone are correct statements that the passages
do not hold: they count as unsupported everywhere on this page, and a score that looks right about the world may look
wrong here."""


if __name__ == "__main__":
    main()
