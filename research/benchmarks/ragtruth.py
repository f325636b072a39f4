"""RAGTruth with a published detector's scores: (a) the paper's regime, (b) sources as units, one pass.

Writes docs/results/ragtruth.md and, run by run, research/results/ragtruth.parquet.
Run: python -m research.benchmarks.ragtruth DATA_FOLDER (or set FEDSRC_DATA)
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from fedsrc.maths.arrays import Floats
from fedsrc.planning.register import Choices, Preset, development_part, register
from fedsrc.protocol.registration import Registration
from fedsrc.records.order import Positions
from fedsrc.records.units import Records, Unit, units_of
from fedsrc.server.recruiter import whole
from fedsrc.simulate.population import Support, truth, uniform
from fedsrc.simulate.trials import Draw, simulate, streams
from research.pages import FIGURES, markdown, publish, records_of, words

FILE, DETECTOR = Path("ragtruth", "detector_scores.csv.gz"), "track_b_modernbert"
SEEDS, SITES, SHARE = 20, 5, 0.2
TARGETS, EPSILONS = (0.10, 0.15, 0.20, 0.30), (math.inf, 8.0, 4.0, 2.0, 1.0)
PRESETS: tuple[Preset, Preset] = ("default", "paper")
TASKS = ("Data2txt", "QA", "Summary")
WHOLE = 200  # the default batch: more than any task has sources, so a site answers once
BATCHES, BATCH_TARGET, POLICIES = (WHOLE, 75, 60, 50, 25), 0.30, ("final", "first")
RECORDS = FIGURES / "ragtruth.parquet"
SCHEMA = {
    "draw": pl.String, "preset": pl.String, "target": pl.Float64, "epsilon": pl.Float64, "batch": pl.Int64,
    "policy": pl.String, "seed": pl.Int64, "records": pl.Int64, "acceptance": pl.Float64, "risk": pl.Float64,
    "same_events": pl.Boolean, "releases": pl.Int64,
}  # fmt: skip  # acceptance and risk are those of the certified threshold, none where it abstained


@dataclass(frozen=True)
class Table:
    """The test split: score, loss, source and task of every response."""

    score: Floats
    loss: Floats
    source: Positions
    task: Positions


@dataclass(frozen=True)
class Split:
    """Development records, which give the thresholds, and calibration records at their sites."""

    development: Records
    calibration: Records
    unit: Unit


@dataclass(frozen=True)
class Outcome:
    """One seed of one cell: records used, and the certified threshold's acceptance and risk (None: it abstained)."""

    records: int
    certified: tuple[float, float] | None


@dataclass(frozen=True)
class Cell:
    """All seeds at one target and epsilon."""

    target: float
    outcomes: list[Outcome]

    @property
    def found(self) -> list[tuple[float, float]]:
        return [each.certified for each in self.outcomes if each.certified is not None]

    @property
    def above(self) -> int:
        """Certified thresholds whose risk is above target."""
        return sum(risk > self.target for _, risk in self.found)

    def count(self) -> str:
        return f"{len(self.found)}"

    def records(self) -> str:
        taken = [each.records for each in self.outcomes if each.certified is not None]
        return f"{np.median(taken):,.0f}" if taken else "–"

    def means(self) -> list[str]:
        """Mean acceptance and mean risk of the certified thresholds."""
        return [f"{x:.3f}" for x in np.mean(self.found, axis=0)] if self.found else ["–", "–"]


def read(folder: Path) -> Table:
    path = folder / FILE
    if not path.is_file():
        sys.exit(f"error: there is no {path}\nhint: give the folder that holds {FILE} as argument or in FEDSRC_DATA")
    frame = pl.read_csv(path).filter((pl.col("system") == DETECTOR) & (pl.col("split") == "test"))
    score = 1.0 - frame["hallucination_score"].to_numpy().astype(np.float64)
    loss = frame["unsupported"].to_numpy().astype(np.float64)
    task = np.asarray([TASKS.index(name) for name in frame["task_type"]], dtype=np.int64)
    return Table(score, loss, frame["source_id"].to_numpy().astype(np.int64), task)


def split(table: Table, seed: int, unit: Unit) -> Split:
    """A fifth of the sources gives the thresholds; the rest goes to five IID sites, or to the site of its task."""
    rng = np.random.default_rng(seed)
    sources = rng.permutation(np.unique(table.source))
    chosen = np.isin(table.source, sources[: round(SHARE * sources.size)])
    dealt = np.zeros(chosen.size, dtype=np.int64)
    dealt[~chosen] = rng.permutation(np.arange(int((~chosen).sum())) % SITES)
    site, names = (table.task, TASKS) if unit == "source" else (dealt, tuple(f"site {i + 1}" for i in range(SITES)))
    parts = [
        records_of(table.score[rows], table.loss[rows], site[rows], names, table.source[rows])
        for rows in (chosen, ~chosen)
    ]
    return Split(parts[0], parts[1], unit)


def registration_of(data: Split, choices: Choices) -> Registration:
    exact = replace(choices, exact_thresholds=True, public_development=True)
    return register(exact, data.development, development_part(data.development, data.unit, 1.0))


def sites_of(data: Split, registration: Registration) -> list[Support]:
    answers = registration.privacy.max_answers
    names = data.calibration.site_names
    return uniform(registration, [units_of(data.calibration, name, data.unit, max_answers=answers) for name in names])


def outcome(data: Split, choices: Choices, seed: int, draw: Draw) -> Outcome:
    """One run; the truth is that of the mixture as calibrated, enumerated over the calibration units."""
    registration = registration_of(data, choices)
    sites = sites_of(data, registration)
    run = simulate(registration, sites, trials=1, seed=seed, draw=draw)
    records, threshold = int(run.records[0]), int(run.threshold[0])
    if not run.certified[0]:
        return Outcome(records, None)
    exact = truth(registration, sites, (run.slots[0] / records).tolist())
    return Outcome(records, (float(exact.acceptance[threshold]), float(exact.risk[threshold])))


def same_events(data: Split, seed: int) -> bool:
    """Whether both presets see the same number of answers and of unsupported ones in every bin after every round."""
    seen = []
    for preset in PRESETS:
        registration = registration_of(data, Choices(0.2, math.inf, preset=preset))
        rounds = [total[0] for _, total in streams(registration, sites_of(data, registration), trials=1, seed=seed)]
        first, second = np.moveaxis(np.asarray(rounds), 1, 0)
        seen.append(np.stack([first if preset == "paper" else first + second, second]))
    return bool(np.array_equal(seen[0], seen[1]))


class Setting(NamedTuple):
    """How one cell is run; with replacement, batch and policy are the defaults."""

    draw: Draw
    preset: Preset
    target: float
    epsilon: float
    batch: int = WHOLE
    policy: str = "first"

    @property
    def choices(self) -> Choices:
        choices = Choices(self.target, self.epsilon, preset=self.preset, adjacency="zero-out")
        if self.draw == "with replacement":
            return choices
        rounds = math.ceil(150 / self.batch)
        return replace(choices, unit="source", batch=self.batch, rounds=rounds, policy=self.policy)


def settings() -> list[Setting]:
    """Which cells are shown, each once."""
    every = [(preset, target, epsilon) for preset in PRESETS for target in TARGETS for epsilon in EPSILONS]
    drawn = [Setting("with replacement", *each) for each in every]
    once = [Setting("once", *each, policy="final") for each in every]
    smaller = [
        Setting("once", "default", BATCH_TARGET, epsilon, batch, policy)
        for policy in POLICIES
        for batch in BATCHES
        for epsilon in EPSILONS[:4]
    ]
    return list(dict.fromkeys([*drawn, *once, *smaller]))


def trials(splits: dict[Draw, list[Split]]) -> pl.DataFrame:
    """Run every seed of every cell, a row each."""
    same = [same_events(data, seed) for seed, data in enumerate(splits["with replacement"])]
    sources = [sources_per_site(data) for data in splits["once"]]
    rows = []
    for setting in settings():
        once = setting.draw == "once"
        for seed, data in enumerate(splits[setting.draw]):
            found = outcome(data, setting.choices, seed, setting.draw)
            releases = sum(requests_for(n, setting.batch) for n in sources[seed]) if once else None
            shown = found.certified or (None, None)
            rows.append((*setting, seed, found.records, *shown, None if once else same[seed], releases))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def part(frame: pl.DataFrame, setting: Setting) -> pl.DataFrame:
    """Return the rows of one cell."""
    return frame.filter(pl.all_horizontal(pl.col(name) == value for name, value in setting._asdict().items()))


def cell_of(frame: pl.DataFrame, setting: Setting) -> Cell:
    shown = part(frame, setting).select("records", "acceptance", "risk").iter_rows()
    return Cell(setting.target, [Outcome(n, None if risk is None else (a, risk)) for n, a, risk in shown])


def cells_of(frame: pl.DataFrame, draw: Draw, preset: Preset, policy: str) -> list[Cell]:
    """Return the cells of every target and epsilon."""
    return [
        cell_of(frame, Setting(draw, preset, target, epsilon, WHOLE, policy))
        for target in TARGETS
        for epsilon in EPSILONS
    ]


def regime_rows(cells: dict[Preset, list[Cell]]) -> Iterator[list[str]]:
    """Table (a)."""
    places = [(target, epsilon) for target in TARGETS for epsilon in EPSILONS]
    for (target, epsilon), *both in zip(places, *(cells[preset] for preset in PRESETS), strict=True):
        shown = [each for cell in both for each in (cell.count(), cell.records(), *cell.means())]
        yield [f"{target:.2f}", words(epsilon), *shown]


def pass_rows(cells: list[Cell]) -> Iterator[list[str]]:
    """Table (b)."""
    places = [(target, epsilon) for target in TARGETS for epsilon in EPSILONS]
    for (target, epsilon), cell in zip(places, cells, strict=True):
        yield [f"{target:.2f}", words(epsilon), cell.count(), *cell.means(), f"{cell.above}"]


def sources_per_site(data: Split) -> list[int]:
    names = data.calibration.site_names
    return [len(units_of(data.calibration, name, "source", max_answers=6)) for name in names]


def requests_for(units: int, batch: int) -> int:
    """How many requests the recruiter needs to use a site up."""
    count = 0
    while units:
        units -= whole(batch, units)
        count += 1
    return count


def batch_rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    """Certified seeds at target 0.30 by batch, decided at the end or at the first certificate."""
    for policy in POLICIES:
        for batch in BATCHES:
            here = [Setting("once", "default", BATCH_TARGET, epsilon, batch, policy) for epsilon in EPSILONS[:4]]
            releases = part(frame, here[0])["releases"].to_numpy().mean()
            yield [policy, f"{batch}", f"{releases:.1f}", *(cell_of(frame, each).count() for each in here)]


def regime_reading(cells: dict[Preset, list[Cell]], same: int) -> str:
    """What table (a) shows, in sentences."""
    runs = len(TARGETS) * len(EPSILONS) * SEEDS
    certified = {preset: sum(len(cell.found) for cell in cells[preset]) for preset in PRESETS}
    above = {preset: sum(cell.above for cell in cells[preset]) for preset in PRESETS}
    at_20 = [run.records for cell in cells["default"] if cell.target == 0.20 for run in cell.outcomes]
    strict = {preset: sum(len(cell.found) for cell in cells[preset] if cell.target == 0.10) for preset in PRESETS}
    return f"""\
The old default certifies in {certified["default"]} of {runs} runs, the paper's rule in {certified["paper"]}.
At target 0.10 the old default certifies in {strict["default"]} of {runs // len(TARGETS)} runs, the paper's rule in
{strict["paper"]}. At target 0.20 the old default took {np.mean(at_20[:-SEEDS]):,.0f} events on average at epsilon 2 and
above (at most {max(at_20[:-SEEDS]):,}) and {np.mean(at_20[-SEEDS:]):,.0f} at epsilon 1 (at most {max(at_20):,}).
Violations, certified thresholds whose true risk is above target: {above["default"]} of {certified["default"]} for the
old default, {above["paper"]} of {certified["paper"]} for the paper's rule.

*The same events.* Events are drawn by seed before anything is encoded or noised, so they do not depend on
preset, epsilon or target. The script checks it: after every round, both presets' exact histograms held the same
number of answers and of unsupported answers in every bin, in {same} of {SEEDS} seeds. Only the noise differs.

*What these epsilons protect.* One event. 30,000 events from 2,160 responses use a response about 14 times, so the
protection of a response, let alone of a source with its six responses, is weaker than the epsilon shown. The
regime is the paper's, kept for comparison; table (b) is the one that protects whole sources."""


def pass_reading(cells: list[Cell], paper: int) -> str:
    """What table (b) shows, in sentences."""
    certified, above = sum(len(cell.found) for cell in cells), sum(cell.above for cell in cells)
    runs = len(cells) * SEEDS
    return f"""\
The old default certifies in {certified} of {runs} runs; in {above} of those is the risk over the calibration sources
above target. The paper's rule, on the same sources in one release per site, certifies in {paper} of {runs}.

There is no exact truth here: the certificate speaks of the law that sources are drawn from, in the mixture of
tasks as calibrated, and *risk* is the observed one over all calibration sources, the same that were used. It
describes the certified thresholds; it does not test them.

### Fewer, larger releases

Every release carries its own noise, whatever its size, so the same sources in more releases give noisier sums.
Certified seeds of {SEEDS} at target 0.30, by batch (sources per site and round) and by when it is decided: `final`
once, after all sources; `first` after every round, stopping at the first certificate."""


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("FEDSRC_DATA")
    if not folder:
        sys.exit("error: no data folder\nhint: python -m research.benchmarks.ragtruth DATA_FOLDER, or set FEDSRC_DATA")
    table = read(Path(folder))
    units: dict[Draw, Unit] = {"with replacement": "record", "once": "source"}
    frame = trials({draw: [split(table, seed, unit) for seed in range(SEEDS)] for draw, unit in units.items()})
    frame.write_parquet(RECORDS, compression="zstd", compression_level=19)
    publish("ragtruth.md", page(frame))


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page's parts, from the outcomes of all runs."""
    regime = {preset: cells_of(frame, "with replacement", preset, "first") for preset in PRESETS}
    once, paper = (cells_of(frame, "once", preset, "final") for preset in PRESETS)
    same = frame.filter(pl.col("same_events"))["seed"].n_unique()
    readings = regime_reading(regime, same), pass_reading(once, sum(len(cell.found) for cell in paper))
    return [
        HEAD, markdown(REGIME_HEADER, regime_rows(regime)), readings[0],
        PASS_HEAD, markdown(PASS_HEADER, pass_rows(once)), readings[1],
        markdown(BATCH_HEADER, batch_rows(frame)), BATCH_READING,
    ]  # fmt: skip


REGIME_HEADER = (
    "target risk", "epsilon",
    *(
        f"{called}: {what}"
        for called in ("old default", "paper")
        for what in ("certified", "events", "acceptance", "true risk")
    ),
)  # fmt: skip
PASS_HEADER = ("target risk", "epsilon", "certified", "acceptance", "risk", "risk above target")
BATCH_HEADER = ("decided", "batch", "releases, mean", *(f"epsilon {words(epsilon)}" for epsilon in EPSILONS[:4]))

HEAD = f"""\
# RAGTruth with a published detector's scores

Made by

    python -m research.benchmarks.ragtruth DATA_FOLDER

where DATA_FOLDER holds `{FILE.as_posix()}`, the scores of published detectors on RAGTruth responses
with their human labels. Used here: the test split, 2,700 responses to 450 sources (150 each of question
answering, summaries and data-to-text; six models answer each source). Score: 1 - hallucination score of
`{DETECTOR}`. Loss: 1 for a response that the annotators marked as unsupported (34.9% are). What every run
gave is in `research/results/ragtruth.parquet`.

Per seed, a fifth of the sources gives 20 thresholds (quantiles of their scores) and the other 360 sources, 2,160
responses, calibrate. {SEEDS} seeds per cell, failure probability 0.05, delta 1e-6. An epsilon of `none` means no noise.

What to keep in mind: the detector was fine-tuned on RAGTruth train, so its scores are honest on test only, which is
what is used. RAGTruth's train and test splits are not exchangeable: nothing here speaks of train, nor of other
traffic. The paper's own tables use other scores: compare certificates on equal events only, as table (a) does.

## (a) The paper's regime: events with replacement

Responses as units, dealt at random to {SITES} sites; events drawn with replacement, 200 per site and round, 30 rounds,
30,000 events at most. A run stops at its first certificate. *Certified*: seeds of {SEEDS}. *Events*: median among
certified. *Acceptance* and *true risk*: mean over the certified thresholds, by enumeration of the 2,160 calibration
responses, which are the population here. The *old default* is an open certificate without a plan (`--certificate
plain`); the default, which is planned, is [beside both](studies/certified-today.md#the-papers-regime). Epsilon is for
zero-out."""

PASS_HEAD = f"""\
## (b) Sources as units: every source once

One slot is one source, its mass shared equally among its six answers; independence is assumed of sources, and the
release protects a whole source. Three sites, one per task, about 120 sources each. One pass: every source is used
exactly once, all of them, and decided once at the end (policy `final`). The registered batch is {WHOLE}:
more than a site has, so each site answers with one release. *Certified*: seeds of {SEEDS}. The old default again: what
the default makes of each source once is [on its own page](sources-once.md)."""

BATCH_READING = """\
No batch does better than one release per site, which is why table (b) registers that. (A remainder of less than half
a batch joins the last request, since a release of 3 sources would carry as much noise as one of 60.) Deciding after
every round finds some certificates that more noise would have hidden by the end; it does not make up for the
extra releases."""


if __name__ == "__main__":
    main()
