"""Every score side by side: how well it ranks, what both certificates make of it, and what it costs.

Writes docs/results/scores-compared.md from the published studies scores-ragtruth and scores-halueval, RAGTruth's tables
that research/tables/scores.py makes, and HaluEval's that come with the package. What was chosen on development answers
is kept in research/results/scores_chosen.json: HaluEval's stays as it is where those answers' tables are not in the
folder. Run: python -m research.benchmarks.scores_compared TABLES_FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fedsrc.data.embedded import SCORED, TASKS, score_table
from research.benchmarks.scores import Area, Rows, areas
from research.chosen_scores import KEPT, NAMES, Chosen, chosen
from research.pages import FIGURES, markdown, publish
from research.tables.scores import COUNTS, passes, scores_of

GENERATORS = {
    "mistral": "mistral-7B-instruct", "llama 7b": "llama-2-7b-chat", "llama 13b": "llama-2-13b-chat",
    "llama 70b": "llama-2-70b-chat",
}  # fmt: skip
RULES = {"fed-src-c": "paper", "betting-ladder": "default"}  # each certificate on its own release
READ_TWICE = ("lift", "window", "franq", "franq-faithfulness")
READ_ONCE = ("probability", "entropy", "probe", "detector")
TEXT = ("lexical", "familiarity", "shortness")


@dataclass(frozen=True)
class Ranked:
    """A set of unseen answers with every score: its table, AUCs with intervals, and the score chosen on development."""

    name: str
    frame: pl.DataFrame
    found: dict[str, Area]
    chosen: Chosen


def ranked(name: str, file: str, frame: pl.DataFrame, kept: dict[str, Any]) -> Ranked:
    return Ranked(name, frame, areas(Rows(name, frame), scores_of(frame)), Chosen(**kept[file]["chosen"]))


@dataclass(frozen=True)
class Study:
    """A published study's table, one row for each population, release and rule."""

    rows: pl.DataFrame
    cells: tuple[str, ...]

    def at(self, cell: str, score: str, rule: str) -> dict[str, Any]:
        here = (pl.col("population") == f"{cell}: {score}") & (pl.col("method") == rule)
        return self.rows.filter(here & (pl.col("release") == RULES[rule])).row(0, named=True)

    def fired(self, score: str, rule: str) -> list[int]:
        return [self.at(cell, score, rule)["fired"] for cell in self.cells]

    def zero(self, score: str, rule: str) -> int:
        """Cells without a certificate in any trial."""
        return self.fired(score, rule).count(0)

    def columns(self, score: str, rule: str) -> list[str]:
        """Trials that fired in each cell, acceptance where any did, and cells without a certificate."""
        rows = [self.at(cell, score, rule) for cell in self.cells]
        accepted = ["–" if not row["fired"] else f"{row['acceptance']:.2f}" for row in rows]
        return [" / ".join(str(row["fired"]) for row in rows), " / ".join(accepted), str(self.zero(score, rule))]

    def floors(self, score: str) -> str:
        """The lowest risk of any threshold that accepts enough, in each cell."""
        return " / ".join(f"{self.at(cell, score, 'betting-ladder')['oracle_floor']:.2f}" for cell in self.cells)

    def shown(self) -> pl.DataFrame:
        """Rows of the tables here: each rule on its own release."""
        return self.rows.filter(pl.struct("method", "release").is_in([
            {"method": rule, "release": release} for rule, release in RULES.items()
        ]))  # fmt: skip


def published(name: str, cells: Iterable[str]) -> Study:
    return Study(pl.read_csv(FIGURES / "studies" / f"{name}.csv"), tuple(cells))


def seconds(times: dict[str, Any], file: str, score: str) -> float | None:
    """Seconds a response on the GPU, of what was timed; None for scores of the text alone."""
    own = times["h200"]["seconds"][file]
    per_answer = {kind: each["seconds"] / each["answers"] for kind, each in own.items() if kind != "samples"}
    known = {
        **dict.fromkeys((*READ_TWICE, *READ_ONCE), per_answer["tokens"]),
        "judge": per_answer["verdicts"],
        "judge-verbal": per_answer["replies"],
        "mechanistic": per_answer["signals"],
    }
    if score in TEXT:
        return None
    if score in known:
        return float(known[score])
    return float(int(score.rsplit("-", 1)[1]) * own["samples"]["seconds"] / own["samples"]["responses"])


def told(values: Sequence[float | None], score: str) -> str:
    if None in values:
        return "text alone"
    shown = " / ".join(f"{value:.2g}" for value in values if value is not None)
    return f"< {shown}" if score in READ_ONCE else shown


RULE_HEADS = [
    head
    for rule in ("paper's", "old default")
    for head in (f"{rule}: fired of 200", "acceptance", f"{rule}: zero-certificate cells")
]


def certified_table(names: Sequence[str], study: Study) -> str:
    rows = [[f"`{name}`", *study.columns(name, "fed-src-c"), *study.columns(name, "betting-ladder")] for name in names]
    return markdown(["score", *RULE_HEADS], rows)


def ranking_table(
    frame: pl.DataFrame, found: dict[str, dict[str, Area]], files: Sequence[str], study: Study, times: dict[str, Any]
) -> str:
    """AUCs on the sets of answers by name, the lowest risk in each cell, and what a response costs in each file."""
    names = scores_of(frame)
    extra = passes(names, COUNTS["ragtruth" if "ragtruth" in files else "halueval"])
    head = ["score", *(f"AUC, {answers}" for answers in found), "lowest risk", "extra passes", "seconds"]
    rows = [
        [
            f"`{score}`", *(str(areas_of[score]) for areas_of in found.values()), study.floors(score),
            str(extra[score]), told([seconds(times, file, score) for file in files], score),
        ]
        for score in names
    ]  # fmt: skip
    return markdown(head, rows)


def chosen_table(rank: Ranked, ranks: Sequence[Ranked], ragtruth: Study, halueval: Study) -> str:
    head = ["answers", "chosen", "AUC, development", "AUC, unseen", "next best on development", "paper's: fired of 200",
            "old default: fired of 200"]  # fmt: skip
    rows = []
    for each, study, cells in ((rank, ragtruth, ragtruth.cells), *((r, halueval, (r.name,)) for r in ranks)):
        best, at, after, after_at = each.chosen
        fired = (" / ".join(str(study.at(cell, best, rule)["fired"]) for cell in cells) for rule in RULES)
        other = f"`{after}` {after_at:.3f}"
        rows.append([each.name, f"`{best}`", f"{at:.3f}", str(each.found[best]), other, *fired])
    return markdown(head, rows)


def cost_table(times: dict[str, Any]) -> str:
    """Seconds on one core."""
    own = times["one core"]
    words = {
        "lift": "`lift`, both readings", "judge": "`judge`", "judge-verbal": "`judge-verbal`",
        "mechanistic": "`mechanistic`", "samples": "one drawn response of at most 256 tokens",
        "embedding": "embedding a response, its sentences and those of two drawn ones",
    }  # fmt: skip
    counts = {name: own["responses"] if name == "samples" else own["answers"] for name in words}
    rows = [[word, f"{own['seconds'][name] / counts[name]:.2g}"] for name, word in words.items()]
    return markdown(["kind", "seconds"], rows)


PAPER = (  # score, the paper's row, its AUC and what fired (Tables scores and halueval); then here
    ("lift", "Information lift", "0.631 (C1, development)", "abstains on all four"),
    ("probability", "Mean token probability", "0.49 to 0.62", "abstains on all four"),
    ("semantic-entropy", "Semantic entropy", "0.49 to 0.62", "abstains on all four"),
    ("selfcheck-ngram", "SelfCheckGPT", "0.49 to 0.62", "abstains on all four"),
    ("conu", "SConU/ConU", "0.49 to 0.62", "abstains on all four"),
    ("mechanistic", "ReDeEP-style (Mistral)", "0.779 (C1, development)", "C1 200/200, acceptance 0.343"),
    ("franq", "FRANQ", "0.49 to 0.62", "abstains on all four"),
)
PAPER_HALUEVAL = (
    ("lift", "QA", "0.669", "200/200, acceptance 0.134"),
    ("franq", "QA", "0.712", "0/200"),
    ("lift", "summarization", "0.605", "0/200"),
    ("franq", "summarization", "0.732", "3/200, acceptance 0.231"),
    ("lift", "dialogue", "0.561", "0/200"),
    ("franq", "dialogue", "0.656", "0/200"),
)


def most_drawn(names: Sequence[str], score: str) -> str:
    """The column of a score with the most responses drawn."""
    found = [name for name in names if name == score or name.rpartition("-")[::2] == (score, name.rsplit("-", 1)[-1])]
    numbered = [name for name in found if name.rsplit("-", 1)[-1].isdecimal()]
    return max(numbered, key=lambda name: int(name.rsplit("-", 1)[1])) if numbered else found[0]


def paper_tables(mistral: dict[str, Area], ranks: Sequence[Ranked], ragtruth: Study, halueval: Study) -> list[str]:
    head = ["the paper's row", "its AUC", "its certificate", "our column", "AUC, mistral", "paper's: fired, mistral",
            "old default: fired, mistral"]  # fmt: skip
    rows = []
    for score, called, auc, fired in PAPER:
        column = most_drawn(list(mistral), score)
        own = (str(ragtruth.at("mistral", column, rule)["fired"]) for rule in RULES)
        rows.append([called, auc, fired, f"`{column}`", str(mistral[column]), *own])
    second = ["HaluEval task and score", "its AUC", "its certificate", "AUC here", "paper's: fired",
              "old default: fired"]  # fmt: skip
    more = []
    for score, task, auc, fired in PAPER_HALUEVAL:
        rank = next(each for each in ranks if each.name == task)
        own = (str(halueval.at(task, score, rule)["fired"]) for rule in RULES)
        more.append([f"{task}, `{score}`", auc, fired, str(rank.found[score]), *own])
    return [markdown(head, rows), markdown(second, more)]


def cells_fired(study: Study, names: Sequence[str], rule: str) -> int:
    """Cells with a certificate in most trials, over all scores."""
    return sum(fired > 100 for name in names for fired in study.fired(name, rule))


def more_often(study: Study, names: Sequence[str]) -> int:
    """Cells in which the paper's rule fired more often than the old default."""
    pairs = [zip(study.fired(name, "fed-src-c"), study.fired(name, "betting-ladder"), strict=True) for name in names]
    return sum(paper > old for pair in pairs for paper, old in pair)


def headline(rank: Ranked, ranks: Sequence[Ranked], ragtruth: Study, halueval: Study) -> str:
    rag, hal = scores_of(rank.frame), scores_of(ranks[0].frame)
    counts = [cells_fired(s, n, r) for s, n in ((ragtruth, rag), (halueval, hal)) for r in RULES]
    zero = {rule: [name for name in rag if ragtruth.zero(name, rule) == 4] for rule in RULES}
    shown = pl.concat([ragtruth.shown(), halueval.shown()])
    false: list[int] = shown["failures"].to_list()
    return f"""\
# Every score, compared

{len(rag)} scores on RAGTruth question answering (four generators, {rank.frame["source"].n_unique()} sources) and
{len(hal)} on HaluEval (three tasks), at epsilon 4 and target 0.30: the same answers, splits, events, seeds and
certificates for all.

**Which one to take.** Without labels to fit on `familiarity`, which needs no model: over all generators and on every
task of HaluEval it ranks better than `window` and `lift`. With a few hundred labelled sources to spare a fitted
`probe`. Responses drawn from a small model are not worth their price. Hold any of them against `shortness`, and let
`fedsrc choose` decide on development answers of your own. What the default, which is planned, makes of the same scores
is [on another page](studies/as-planned.md); it certifies some of them less often than the old default does here.

On RAGTruth the paper's certificate fires in most trials in {counts[0]} of {4 * len(rag)} cells,
the old default in {counts[1]}; {len(zero["fed-src-c"])} of the scores have four zero-certificate cells under the
paper's rule, {len(zero["betting-ladder"])} under the old default. On HaluEval it is {counts[2]} and {counts[3]} of
{3 * len(hal)}. Of all
{sum(shown["fired"].to_list()):,} certificates {sum(false)} were false, at most {max(false)} of 200 in any cell (10 are
allowed; `sconu-1` and `self-consistency-1` give the same certificates, and count twice). The paper's rule fired more
often than the old default in
{more_often(ragtruth, rag) + more_often(halueval, hal)} cells. The score chosen on development answers of RAGTruth is
`{rank.chosen.name}`."""


DRAWN = ("semantic-entropy", "selfcheck", "conu", "sconu", "self-consistency")


def ragtruth_reading(rank: Ranked, study: Study) -> str:
    """What the RAGTruth tables say, with figures taken from them."""
    names = [name for name in scores_of(rank.frame) if name.startswith(DRAWN)]
    drawn = [rank.found[name].value for name in names]
    own = {name: found.value for name, found in rank.found.items()}
    losses = [rank.frame.filter(pl.col("generator") == name)["loss"].to_numpy() for name in GENERATORS.values()]
    judge = study.at("mistral", "judge", "betting-ladder")
    fired = [study.fired(name, "betting-ladder") for name in names]
    on_last, in_all = sum(each[-1] for each in fired), sum(map(sum, fired))
    return f"""\
Without a gate, the share of unsupported answers is {" / ".join(f"{loss.mean():.2f}" for loss in losses)}.

**Responses drawn from a model this small say little about answers of others.** The AUCs of the {len(names)} scores that
draw lie between {min(drawn):.2f} and {max(drawn):.2f}, close to a coin, and more responses do not raise them; what is
certified goes either way. Of {in_all:,} certificates with them {on_last:,} are on llama 70b, where the share to begin
with is near the target. The paper, which drew from the generators themselves, found scores between 0.49 and 0.62 and
certified nothing with these.

**Reading the evidence ranks better.** Over the four generators lift has {own["lift"]:.2f}, FRANQ's faithfulness
{own["franq-faithfulness"]:.2f}; the token probe, fitted on 235 sources, {own["probe"]:.2f}. Counting words that the
evidence lacks (`familiarity`, {own["familiarity"]:.2f}) needs no model, and only probe and detector beat it there. The
mechanistic score ({own["mechanistic"]:.2f}) finds little here, where the paper's adaptation to the 7B generator was its
best; on HaluEval, fitted for each task, it does better.

**A certificate needs good answers at the top, not a good AUC.** `judge` ranks no better than a coin, yet on mistral one
of its thresholds has a risk of {judge["oracle_floor"]:.2f}, and the old default certifies it, at an acceptance of
{judge["acceptance"]:.2f}.

What was looked at: the probe's stretch of tokens and the window's width were not chosen blind ([scores](scores.md) says
how), so expect a little less of these two elsewhere."""


def chosen_reading(rank: Ranked, ranks: Sequence[Ranked]) -> str:
    """Development AUC beside unseen AUC of what was chosen."""
    falls = [each.chosen.auc - each.found[each.chosen.name].value for each in (rank, *ranks)]
    return f"""\
The criterion is fixed in the code: the highest AUC on development answers, of equals the fewest extra passes, then the
first by name. From development to unseen answers the AUC of the chosen score fell by
{max(falls):.3f} at most. `shortness` was no candidate: it is a control. Probe, mechanistic and FRANQ columns of
development answers are out of fold: each source is scored by a fit that did not see it. The fine-tuned detector had
seen all of them, so it was no candidate ([out of fold](scores.md) it does a little better than the probe). On a
table that `fedsrc score` wrote:

    fedsrc choose dev.parquet --score lift --score window --score familiarity -o choice.json"""


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m research.benchmarks.scores_compared TABLES_FOLDER")
    folder = Path(sys.argv[1])
    times = json.loads((FIGURES / "scores_seconds.json").read_text(encoding="utf-8"))
    frames = {"ragtruth": pl.read_parquet(folder / "ragtruth-scores.parquet")}
    frames |= {f"halueval-{task}": score_table(scored) for task, scored in zip(TASKS, SCORED, strict=True)}
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    for name, frame in frames.items():
        if (path := folder / f"{name}-scores-development.parquet").is_file() or name == "ragtruth":
            kept[name] = chosen(path, frame, COUNTS[name.split("-")[0]])
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    rank, *ranks = (ranked(NAMES[name], name, frame, kept) for name, frame in frames.items())
    own = rank.frame.filter(pl.col("generator") == GENERATORS["mistral"])
    mistral = areas(Rows("mistral", own), scores_of(own))
    ragtruth, halueval = (
        published("scores-ragtruth", GENERATORS),
        published("scores-halueval", [each.name for each in ranks]),
    )
    beside = paper_tables(mistral, ranks, ragtruth, halueval)
    publish("scores-compared.md", [
        headline(rank, ranks, ragtruth, halueval), HEAD,
        RAGTRUTH, certified_table(scores_of(rank.frame), ragtruth), ragtruth_reading(rank, ragtruth), RANKING,
        ranking_table(rank.frame, {"four generators": rank.found, "mistral": mistral}, ["ragtruth"], ragtruth, times),
        HALUEVAL, certified_table(scores_of(ranks[0].frame), halueval), HALUEVAL_READING, RANKING,
        ranking_table(ranks[0].frame, {each.name: each.found for each in ranks}, TASKS, halueval, times),
        CHOSEN, chosen_table(rank, ranks, ragtruth, halueval), chosen_reading(rank, ranks),
        BESIDE, *beside, BESIDE_READING, COST, cost_table(times), NOT_HAD,
    ])  # fmt: skip


HEAD = """\
Made by

    python -m research.tables.scores DATA RECORDINGS FITTED EMBEDDING TABLES
    python -m research scores-ragtruth scores-halueval --tables TABLES
    python -m research.benchmarks.scores_compared TABLES

DATA holds the original files in `ragtruth/` and `halueval/`, EMBEDDING is all-MiniLM-L6-v2, FITTED has the token probe
and the detector ([how they were made](scores.md)). RECORDINGS has what the model gave, one set of files each for
`ragtruth`, `qa`, `dialogue` and `summarization`; where the model is at hand they are made by

    fedsrc fit development.jsonl --kind mechanistic --model MODEL --recording RECORDINGS/qa.jsonl -o mech/
    fedsrc score all.jsonl --score lift --score judge --score judge-verbal --score selfcheck-ngram \\
      --samples 10 --sample-tokens 64 --model MODEL --recording RECORDINGS/qa.jsonl \\
      --sample-recording RECORDINGS/qa.samples.jsonl -o basic.parquet
    fedsrc score unseen.jsonl --score mech/ --model MODEL --recording RECORDINGS/qa.jsonl -o mech.parquet

and for these figures the same functions ran on one H200. The HaluEval study needs no table (its scores come with the
package), so `python -m research scores-halueval` repeats it anywhere. RAGTruth is not passed on, so that one does. What
every trial gave is beside the two studies ([RAGTruth](studies/scores-ragtruth.md),
[HaluEval](studies/scores-halueval.md)), which also have each rule on the other's release. Events are drawn with
replacement from a finite set of answers, as in the paper, so these cells say how rules and scores compare, not what can
be certified from that many labels: with every source used once, see [scores](scores.md).

The scoring model is SmolLM2-135M-Instruct (Q4_1, multiplied in float32). It wrote none of the answers. Responses were
drawn from it at temperature 1, top-p 0.9: 20 a prompt with at most 256 tokens for RAGTruth, 10 with at most 64 (128 for
summarization) for HaluEval. A number after a score's name is how many of them it takes: what its authors recommend, as
far as so many were drawn, and the fewest possible (*compute-matched*). There was no entailment model: what means the
same is decided by all-MiniLM-L6-v2 embeddings with a cosine of at least 0.7. [How each score is made](../scores.md).

*Fired* counts trials with a certificate, of 200, in each cell; *acceptance* is that of the certified threshold, where
any fired; a *zero-certificate cell* has none in any trial. *Paper's* is Fed-SRC-C on the paper's release, *old default*
the open certificate without a plan on its own release."""

RANKING = """\
*Lowest risk* is that of the best threshold with an acceptance of at least 0.05, all labels known: above 0.30 a
certificate is false. AUCs have 95% intervals from resampling whole sources. *Extra
passes* are those of the language model beyond the one that wrote the response. *Seconds* are per response on an H200,
see [below](#what-a-response-costs)."""

RAGTRUTH = """\
## RAGTruth question answering

Cells in the order mistral / llama 7b / llama 13b / llama 70b, one answer a source each."""

HALUEVAL = """\
## HaluEval

Cells in the order QA / dialogue / summarization, 400 pairs each (two pairs of dialogue left out, whose evidence is in
development). `mechanistic` and FRANQ were fitted on 200 other pairs of the task."""

HALUEVAL_READING = """\
Half of the answers are unsupported. The two answers of a pair share a prompt, so semantic entropy, a property of the
prompt, cannot tell them apart: 0.500 by construction. On question answering, right answers are a few words and wrong
ones whole sentences, as drawn responses are: agreement with these (`conu`, `self-consistency`, `selfcheck-embedding`)
ranks wrong answers first, and length alone (`shortness`) ranks best of all. A high figure there shows little about a
score: [what the data's audit says](../scores.md#public-collections)."""

CHOSEN = """\
## The score that would have been chosen

Choices are kept [in one file](../../research/results/scores_chosen.json). HaluEval's are of the run that made its
tables: those of its development answers were not made again."""

BESIDE = """\
## Beside the paper's tables

The paper's Table scores has three cells of 300 answers each, one a task, and their pool (C3), scored by their own
generator; C1 is question answering by mistral, of which ours is a larger part, scored by another model. Its other cells
are other tasks of RAGTruth and all of them together, whose answers were not at hand. Its Table halueval is scored by
Qwen2.5-7B-Instruct. The protocol is the same, the scores are not."""

BESIDE_READING = """\
The paper concludes that no score dominates, and that which one certifies is not known in advance. Here, on RAGTruth,
the fitted probe and detector lead; elsewhere no score does, and `familiarity`, which needs no model, is hard to
beat."""

COST = """\
## What a response costs

The column *seconds* divides the time of each kind of reading on one H200 by the answers read, in batches, without
loading the model ([the measured times](../../research/results/scores_seconds.json); `<` marks what reads less than was
timed). They are of earlier runs: of whole collections, whose batches are better filled than those of
[throughput](throughput.md), and of drawing before responses shared their prompts' keys and values. A score of drawn
responses is charged for all it takes, as if no other answer shared its prompt.
Embedding is extra: the H200 embedded 197,172 responses and sentences in 15.1 s. `mechanistic` costs no extra pass where
the reading with the evidence is made anyway, but that reading keeps attention and projects every layer onto the
vocabulary.

Without a GPU: eight answers of RAGTruth (mistral), one core, by

    OMP_NUM_THREADS=1 fedsrc score eight.jsonl --score SCORE --samples 2 --sample-tokens 256 --model MODEL"""

NOT_HAD = """\
## What could not be had here, and the commands that run it

* **The generators themselves, and any model of 7B.** Matched scores are what the paper compares. With a GPU and a
  network:

      fedsrc answers ragtruth --task QA --generator mistral-7B-instruct --split train --part development \\
        --shares 0.3,0.5,0.2 -o dev.jsonl
      fedsrc answers ragtruth --task QA --generator mistral-7B-instruct --split train --part calibration \\
        --shares 0.3,0.5,0.2 -o c1.jsonl
      fedsrc fit dev.jsonl --kind mechanistic --model mistralai/Mistral-7B-Instruct-v0.1 -o mech/
      fedsrc fit dev.jsonl --kind franq --model mistralai/Mistral-7B-Instruct-v0.1 -o franq/
      fedsrc score c1.jsonl --score lift --score probability --score semantic-entropy --score selfcheck-ngram \\
        --score selfcheck-nli --score conu --score sconu --score self-consistency --score judge --score mech/ \\
        --score franq/ --samples recommended --sample-tokens 256 --model mistralai/Mistral-7B-Instruct-v0.1 \\
        --entailment microsoft/deberta-large-mnli -o c1.parquet

  and for HaluEval `fedsrc answers halueval/qa -o qa.jsonl` with `--model Qwen/Qwen2.5-7B-Instruct`.
* **An entailment model.** Semantic entropy and self-consistency were compared by embedding, and `selfcheck-nli` was not
  run. `--entailment microsoft/deberta-large-mnli`, as above, runs all three; its code is tested on a tiny classifier
  with random weights.
* **AlignScore**, which FRANQ's authors take for faithfulness. `fedsrc fit --kind franq --support window` takes a score
  of this project in its place; there is no command for theirs."""

if __name__ == "__main__":
    main()
