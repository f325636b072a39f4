"""From an unlabelled log: labels until a certificate when people label on demand, beside labelling every record.

Run: python -m research.studies.labels_needed DATA_FOLDER TABLES_FOLDER [TRIALS [JOBS]]
DATA_FOLDER has ragtruth/detector_scores.csv.gz; TABLES_FOLDER has ragtruth.parquet, question answering scored by
familiarity. Writes docs/results/labels.md and, trial by trial, research/results/labels.parquet.

A trial splits a log as `sources_once` does: a fifth of the sources plans, three fifths calibrate, a fifth is held out.
HaluEval's log has one of the two answers of 2,000 sources, by chance; RAGTruth's has all answers of a source, which
is the unit. Labels needed are all answers at or above the lowest threshold in every round that was opened.
"""

from __future__ import annotations

import math
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from fedsrc.data.embedded import Task, score_table
from fedsrc.maths import betting, moments
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.planning.aim import Aim, Objective, reaches_floor
from fedsrc.planning.open_plan import OpenPlan, plan_open
from fedsrc.planning.plan import MANY
from fedsrc.planning.sealed_plan import plan_sealed, totals
from fedsrc.simulate.posterior import Populations, either, from_answers, from_scores, from_units
from research.pages import FIGURES, markdown, publish, words
from research.studies import sources_once
from research.studies.sources_once import EPSILONS, GRID, Split, Table, noise

TRIALS, SOURCES = 100, 2_000
RECORDS = FIGURES / "labels.parquet"
HALUEVAL: dict[Task, str] = {"qa": "0.2", "dialogue": "0.35", "summarization": "0.35"}
DETECTORS = ("track_b_modernbert", "approach_1_modernbert", "track_a_deberta")
JUDGES = dict(zip(DETECTORS, (*DETECTORS[1:], DETECTORS[0]), strict=True))  # whose verdicts stand in for a judge's


@dataclass(frozen=True, eq=False)
class Log:
    """A log's answers with their true losses, how a trial draws from it, and the target; what a judge says of them."""

    name: str
    target: str
    table: Table
    one_each: bool = False
    judged: Floats | None = None

    def split(self, trial: int) -> Split:
        """Return a trial's parts, at the quantiles of its development part."""
        table = self.table
        if self.one_each:
            rng = np.random.default_rng([21, trial])
            ends = np.append(table.starts[1:], table.score.size)
            first = rng.permutation(table.starts.size)[:SOURCES]
            pick = np.sort(rng.integers(table.starts[first], ends[first]))
            table = Table(table.score[pick], table.loss[pick], np.arange(pick.size))
        return sources_once.split(table, trial)


class Way(NamedTuple):
    """A way to a certificate: what its plan is for, in how many looks, whether every record is labelled, and what the
    plan knows of development units."""

    objective: Objective
    looks: int
    all_labelled: bool = False
    knows: str = "labels"


WAYS = {
    "default": Way("acceptance", 1, all_labelled=True),
    "fewest records": Way("records", MANY, all_labelled=True),
    "on demand": Way("labels", MANY),
    "on demand, a judge's plan": Way("labels", MANY, knows="judge"),
    "on demand, a plan from scores": Way("labels", MANY, knows="scores"),
}


class Outcome(NamedTuple):
    """One trial: whether it certified, the labels it took (all, if it did not), those of development units that people
    gave, acceptance, and held-out masses."""

    certified: bool
    labels: int
    development: int
    acceptance: float
    held_out: float
    held_out_unsupported: float


def evidence(log: Log, trial: int, knows: str, rng: np.random.Generator) -> Populations:
    """What a plan knows of the development part: its labels, its scores alone, or these beside a judge's labels."""
    made, (unsupported, supported) = from_answers if log.one_each else from_units, log.split(trial)[0]
    if knows == "labels":
        return made(unsupported, supported, rng)
    scores = from_scores((unsupported + supported).sum(axis=0), len(supported), rng)
    if knows == "scores":
        return scores
    assert log.judged is not None
    judged = replace(log, table=log.table._replace(loss=log.judged))
    return either(made(*judged.split(trial)[0], rng), scores)


def play(log: Log, way: Way, epsilon: float, trial: int) -> Outcome:
    """Plan on the development part and go on, round by round, to the first certificate."""
    rng = np.random.default_rng([trial, 21])
    known = evidence(log, trial, way.knows, rng)
    return played(log.split(trial), known, way, Fraction(log.target), epsilon, rng, binary=log.one_each)


def played(
    data: Split,
    known: Populations,
    way: Way,
    target: Fraction,
    epsilon: float,
    rng: np.random.Generator,
    *,
    binary: bool = False,
) -> Outcome:
    """Plan on what is known, and go on with the calibration part up to the first certificate."""
    units, grid = len(data.parts[1]), 1 if binary else GRID
    aim = Aim(target, units, noise(epsilon), looks=way.looks, objective=way.objective, mass_grid=grid)
    if math.isinf(epsilon):
        plan, _ = plan_open(known, aim, rng)
        kept, ends = plan.kept, np.unique(np.minimum(np.cumsum(plan.sizes), units))
        done = opened(plan, data, ends, binary=binary)
    else:
        tight, _ = plan_sealed(known, aim, rng)
        kept, ends = tight.kept, np.cumsum(tight.units)
        normals = rng.standard_normal((len(ends), sum(tight.encoding.lengths)))
        seen = totals(*data[1], in_rounds(ends, units), aim.target_risk).at(kept)
        done = tight.decide(seen.plus(tight.noise(normals)))
    shown = done.any(axis=-1)
    last = int(shown.argmax()) if shown.any() else len(ends) - 1
    return outcome(data, way, kept, done[last], int(ends[last]))


def in_rounds(ends: Ints, units: int) -> Ints:
    """Which unit is in which round: (rounds, units)."""
    found = np.zeros((len(ends), units), dtype=np.int64)
    sizes = np.diff(ends, prepend=0)
    found[np.repeat(np.arange(len(ends)), sizes), np.arange(sizes.sum())] = 1
    return found


def opened(plan: OpenPlan, data: Split, ends: Ints, *, binary: bool) -> Bools:
    """Which thresholds an open plan certifies after each round, without noise: on totals, or on second moments."""
    u, s = (each[:, list(plan.kept)] for each in data[1])
    seen = in_rounds(ends, len(u)).cumsum(axis=0)
    U, S, v, N = seen @ u, seen @ s, np.zeros((len(ends), len(plan.kept))), ends[:, None]
    rungs = betting.ladder([float(plan.aim.target_risk)], priors=plan.priors)
    if binary:
        bets, slopes = betting.data(U, S, betting.Covariance(v, v, v), N, 0.0), betting.weights(rungs)
    else:
        seconds = moments.Seconds(seen @ (u * u), seen @ (u * s), seen @ (s * s), v, v, v)
        bets, slopes = moments.data(U, S, seconds, v, N, 0.0), moments.weights(rungs)
    w = np.array(plan.weights)
    rejected = betting.log_mixture(bets, slopes, rungs.p)[..., 0] >= -np.log(plan.aim.risk_budget * w)
    return np.logical_or.accumulate(rejected & reaches_floor(plan.aim, U + S, N, v, w), axis=0)


def outcome(data: Split, way: Way, kept: tuple[int, ...], certified: Bools, used: int) -> Outcome:
    """Count what was labelled in the units used."""
    sizes = np.diff(data.table.starts, append=data.table.score.size)
    (u, s), (U, S) = data[1], data[2]
    calibrating, developing = sizes[data.parts[1]][:used], sizes[data.parts[0]]
    needed = calibrating if way.all_labelled else (u + s)[:used, kept[0]] * calibrating
    human = int(developing.sum()) if way.knows == "labels" else 0
    labels = int(np.rint(needed.sum()))
    if not certified.any():
        return Outcome(False, labels, human, 0.0, 0.0, 0.0)
    lowest = kept[int(certified.argmax())]
    accepted, held = float((u + s)[:, lowest].mean()), (U + S)[:, lowest].sum()
    return Outcome(True, labels, human, accepted, float(held), float(U[:, lowest].sum()))


def logs(data: Path, tables: Path) -> list[Log]:
    """HaluEval by lift, RAGTruth's test split by detectors, and its question answering by familiarity."""
    found = [Log(f"HaluEval {task}, lift", target, sorted_table(score_table(task), "lift"), one_each=True)
             for task, target in HALUEVAL.items()]  # fmt: skip
    read = sources_once.read(data)
    for name in DETECTORS:
        judged = (read[JUDGES[name]].score < 0.5).astype(np.float64)
        found.append(Log(f"RAGTruth test, {name}", "0.2", read[name], judged=judged))
    qa = pl.read_parquet(tables / "ragtruth.parquet")
    return [*found, Log("RAGTruth QA, familiarity", "0.2", sorted_table(qa, "familiarity"))]


def sorted_table(frame: pl.DataFrame, score: str) -> Table:
    """A table's answers in the order of their sources."""
    frame = frame.sort("source", maintain_order=True)
    starts = np.unique(frame["source"].to_numpy(), return_index=True)[1]
    values, loss = (frame[each].to_numpy().astype(np.float64) for each in (score, "loss"))
    return Table(values, loss, starts)


@cache
def all_logs(data: Path, tables: Path) -> dict[str, Log]:
    return {log.name: log for log in logs(data, tables)}


def trials(data: Path, tables: Path, count: int, task: tuple[str, str, float]) -> pl.DataFrame:
    """Play one log, way and epsilon, trial by trial."""
    log, way, epsilon = all_logs(data, tables)[task[0]], WAYS[task[1]], task[2]
    found = pl.DataFrame([play(log, way, epsilon, trial)._asdict() for trial in range(count)])
    keys = {"log": log.name, "target": log.target, "way": task[1], "epsilon": epsilon}
    print(
        f"{task}: {found['labels'].to_numpy().mean():.0f} labels, {found['certified'].to_numpy().mean():.2f}",
        file=sys.stderr,
        flush=True,
    )
    return found.with_row_index("trial").select(*(pl.lit(value).alias(name) for name, value in keys.items()), pl.all())


class Summary(NamedTuple):
    """Means over trials of one log, way and epsilon."""

    certified: float
    labels: float
    development: float
    acceptance: float
    risk: float | None


def summary(part: pl.DataFrame) -> Summary:
    """Certified share, labels of all trials, acceptance (none counts as zero) and the held-out risk of certificates."""
    certified, labels, development, acceptance, held, bad = (
        float(part[name].to_numpy().mean()) for name in Outcome._fields
    )
    return Summary(certified, labels, development, acceptance, bad / held if held else None)


def rows(table: pl.DataFrame) -> list[list[str]]:
    """One row for each log and epsilon: each way, and how many times fewer labels are needed on demand."""
    made = []
    for (name, epsilon), part in table.group_by("log", "epsilon", maintain_order=True):
        found = {way: summary(mine) for (way,), mine in part.group_by("way", maintain_order=True)}
        cells = [f"{100 * each.certified:.0f} / {each.acceptance:.2f} / {each.labels:,.0f}" if each else ""
                 for each in (found.get(way) for way in WAYS)]  # fmt: skip
        mine, *others = (found.get(way) for way in list(WAYS)[2:])
        assert mine is not None
        times = [f"{found[way].labels / mine.labels:.1f}" for way in ("default", "fewest records")]
        whole = [f"{(each.labels + each.development) / (one.labels + one.development):.1f}" if one else ""
                 for each in (found["default"],) for one in (mine, *others)]  # fmt: skip
        risk = "–" if mine.risk is None else f"{mine.risk:.3f}"
        made.append([name, words(epsilon), *cells, *times, f"{mine.development:,.0f}", *whole, risk])
    return made


HEAD = [
    "log", "epsilon", *WAYS, "default over on demand", "fewest records over on demand", "development",
    "with development", "with a judge's plan", "with a plan from scores", "held-out risk",
]  # fmt: skip


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit("error: two folders are needed\nhint: that of RAGTruth's scores, and that of ragtruth.parquet")
    data, tables = Path(sys.argv[1]), Path(sys.argv[2])
    count, jobs = (int(sys.argv[i]) if len(sys.argv) > i else usual for i, usual in ((3, TRIALS), (4, 1)))
    tasks = [
        (log.name, name, epsilon)
        for log in all_logs(data, tables).values()
        for epsilon in EPSILONS
        for name, way in WAYS.items()
        if way.knows != "judge" or log.judged is not None
    ]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:  # polars has threads, which no fork survives
        table = pl.concat(pool.map(partial(trials, data, tables, count), tasks))
    table.write_parquet(RECORDS)
    publish("labels.md", page(table))


def page(table: pl.DataFrame) -> list[str]:
    """Return the page that the trials make."""
    return [
        "# Labels until a certificate",
        "Logs without labels, every source once, one holder. A fifth of the sources plans (with its labels, which are"
        " public, a judge's, or its scores alone), three fifths calibrate, a fifth is held out. *Default*: every record"
        " is labelled, the plan is for most acceptance, sealed with one look under privacy and open without. *Fewest"
        f" records*: every record is labelled, the plan is for few of them, with up to {MANY} looks under privacy and"
        " one after every round without. *On demand*: the plan is for few labels, and people label the answers at or"
        " above the lowest threshold of every round that is opened. Epsilon is for replacing a unit: an answer"
        " (HaluEval), or a source with all its answers (RAGTruth).",
        f"{table['trial'].n_unique()} trials each: percent certified / mean acceptance / mean labels; a run without a"
        " certificate counts as none accepted and all its labels. Then how many times the labels on demand the other"
        " two take, the labels of development units, the first of these figures with them, the same where the plan is"
        " made by a judge (another detector) or from scores alone, so that development takes no human label, and the"
        " held-out risk of what was certified on demand. Targets: 0.2, and 0.35 on HaluEval's dialogue and"
        " summarization.",
        markdown(HEAD, rows(table)),
        "A plan for few labels accepts less than one for most acceptance: `min_acceptance` says how little is of use"
        " (0.05 here). The laws of risk that a plan from scores draws, and what a likelier certificate is worth in"
        " labels, were chosen with these logs in sight.",
        "On HaluEval the length of an answer alone tells right from wrong ([scores](studies/scores-halueval.md)).",
        "Made by `python -m research.studies.labels_needed FOLDER TABLES`; trial by trial in"
        " `research/results/labels.parquet`.",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
