"""What the certificate makes of model-based scores on RAGTruth question answering: the second half of scores.py's page.

Run by: python -m research.benchmarks.scores TABLES_FOLDER [DATA_FOLDER]
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from fedsrc.common.canonical import digest
from fedsrc.maths.arrays import Floats
from fedsrc.planning.register import Choices, Preset
from fedsrc.planning.thresholds import quantile_thresholds
from fedsrc.server.tally import masses
from fedsrc.simulate.population import Truth
from fedsrc.simulate.trials import simulate
from research.benchmarks.population_l import limits
from research.benchmarks.ragtruth import (
    EPSILONS,
    SEEDS,
    SITES,
    WHOLE,
    Cell,
    Outcome,
    Split,
    Table,
    outcome,
    registration_of,
    sites_of,
    split,
)
from research.pages import markdown, words

TARGETS = (0.10, 0.20, 0.30)
RUNS = len(TARGETS) * len(EPSILONS) * SEEDS
SCORES = {"probe": "probe", "window": "window lift", "lift": "lift"}
CALLED: dict[Preset, str] = {"default": "old default", "paper": "paper"}
COLUMNS: tuple[tuple[str, Preset], ...] = (
    ("probe", "default"), ("window", "default"), ("lift", "default"), ("probe", "paper"),
)  # fmt: skip


@dataclass(frozen=True)
class Answers:
    """One answer per source, with each score's table and its splits by seed."""

    tables: dict[str, Table]
    splits: dict[str, list[Split]]

    @property
    def count(self) -> int:
        return int(self.tables["probe"].loss.size)

    @property
    def base(self) -> float:
        return float(self.tables["probe"].loss.mean())


@dataclass(frozen=True)
class Passed(Outcome):
    """One pass, and the answers that its threshold accepts in the threshold fifth: how many, how many unsupported."""

    held_out: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Results:
    """A Markdown table, and its cells by column."""

    text: str
    cells: dict[tuple[str, Preset], list[Cell]]

    def certified(self, score: str, preset: Preset = "default") -> int:
        return sum(len(cell.found) for cell in self.cells[score, preset])

    @property
    def above(self) -> int:
        return sum(cell.above for cells in self.cells.values() for cell in cells)

    @property
    def total(self) -> int:
        return sum(self.certified(*column) for column in self.cells)


def answers_of(frame: pl.DataFrame) -> Answers:
    source = np.unique(frame["source"].to_numpy(), return_inverse=True)[1].astype(np.int64)
    loss, none = frame["loss"].to_numpy(), np.zeros(frame.height, dtype=np.int64)
    tables = {name: Table(frame[name].to_numpy(), loss, source, none) for name in SCORES}
    splits = {name: [split(table, seed, "record") for seed in range(SEEDS)] for name, table in tables.items()}
    return Answers(tables, splits)


def one_per_source(frame: pl.DataFrame) -> pl.DataFrame:
    """One generator's answer per source, by the same hash as fedsrc.data.split.one_per_source with seed 0."""
    pairs = zip(frame["source"], frame["id"], strict=True)
    ranks = [digest(["one per source", 0, source, name]) for source, name in pairs]
    return frame.with_columns(pl.Series("rank", ranks)).filter(pl.col("rank") == pl.col("rank").min().over("source"))


def used_once(data: Split, whole: Table, choices: Choices, seed: int) -> Passed:
    """One pass over the calibration answers; acceptance and risk of the certified threshold over all answers."""
    registration = registration_of(data, choices)
    run = simulate(registration, sites_of(data, registration), trials=1, seed=seed, draw="once")
    if not run.certified[0]:
        return Passed(int(run.records[0]), None)
    value = registration.thresholds.values[int(run.threshold[0])]
    accepted, apart = whole.score >= value, data.development.score >= value
    found = float(accepted.mean()), float(whole.loss[accepted].mean())
    return Passed(int(run.records[0]), found, (int(apart.sum()), int(data.development.loss[apart].sum())))


def drawn(answers: Answers, score: str, preset: Preset, target: float, epsilon: float) -> Cell:
    """Regime (a): events with replacement, truth by enumeration."""
    choices = Choices(target, epsilon, preset=preset, adjacency="zero-out")
    splits = enumerate(answers.splits[score])
    return Cell(target, [outcome(data, choices, seed, "with replacement") for seed, data in splits])


def passed(answers: Answers, score: str, preset: Preset, target: float, epsilon: float) -> Cell:
    """Regime (b): every answer once, one release per site, decided once."""
    choices = Choices(target, epsilon, preset=preset, adjacency="zero-out", batch=WHOLE, rounds=1, policy="final")
    splits = enumerate(answers.splits[score])
    return Cell(target, [used_once(data, answers.tables[score], choices, seed) for seed, data in splits])


def results(answers: Answers, *, once: bool) -> Results:
    """Every column of one regime."""
    cells: dict[tuple[str, Preset], list[Cell]] = {column: [] for column in COLUMNS}
    run = passed if once else drawn

    def rows() -> Iterator[list[str]]:
        for target in TARGETS:
            for epsilon in EPSILONS:
                for column in COLUMNS:
                    cells[column].append(run(answers, *column, target, epsilon))
                yield [f"{target:.2f}", words(epsilon), *(short(cells[column][-1], once) for column in COLUMNS)]

    names = (f"{CALLED[preset]}: {SCORES[score]}" for score, preset in COLUMNS)
    return Results(markdown(("target risk", "epsilon", *names), rows()), cells)


def short(cell: Cell, once: bool) -> str:
    """Certified / records / acceptance / risk / above target; just 0 where nothing was certified."""
    if not cell.found:
        return "0"
    kept = [cell.count(), *([] if once else [cell.records()]), *cell.means(), f"{cell.above}"]
    return " / ".join(kept)


def thresholds_of(table: Table) -> Truth:
    """Acceptance and risk at the 20 quantile thresholds of all these answers."""
    values = quantile_thresholds(table.score, 20)
    accepted = [table.score >= value for value in values]
    return Truth(np.asarray([a.mean() for a in accepted]), np.asarray([table.loss[a].mean() for a in accepted]))


def limit_rows(answers: Answers) -> Iterator[list[str]]:
    """Per score and target: the best threshold's acceptance and risk, and the fewest records without privacy."""
    for score, name in SCORES.items():
        exact = thresholds_of(answers.tables[score])
        for target in TARGETS:
            any_certificate, known, union = (figure(x) for x in limits(exact, target))
            yield [name, f"{target:.2f}", widest(exact, target), any_certificate, known, union]


def widest(exact: Truth, target: float) -> str:
    """The largest acceptance with risk at most the target."""
    fits: Floats = exact.acceptance[exact.risk <= target]
    return f"{fits.max():.2f}" if fits.size else "none"


def figure(records: float) -> str:
    return "never" if math.isinf(records) else f"{records:,.0f}"


def noise(answers: Answers, epsilon: float) -> float:
    """Standard deviation of the noise in a sum over accepted answers, five releases, averaged over thresholds."""
    registration = registration_of(answers.splits["probe"][0], Choices(0.3, epsilon, adjacency="zero-out"))
    size = registration.mechanism.basis.p
    seen = masses(registration, np.zeros((2, size), dtype=np.int64), SITES)
    return float(np.sqrt(seen.noise.uu).mean())


@dataclass(frozen=True)
class Certificates:
    """All regimes: mistral's answers with replacement and once, then one of four generators' likewise."""

    mistral: Answers
    mixed: Answers
    drawn: Results
    passed: Results
    mixed_drawn: Results
    mixed_passed: Results

    def headline(self) -> str:
        return f"""\
With the probe's scores the old default certifies in {self.drawn.certified("probe")} of {RUNS} runs of the paper's
regime, the paper's rule in {self.drawn.certified("probe", "paper")}. On mistral's answers alone, each used once, with
epsilon for zero-out and five releases, it certifies at epsilon {", ".join(words(epsilon) for epsilon in EPSILONS)}
of {SEEDS} seeds:
{"; ".join(f"{seeds(self.passed, target)} at target {target:.2f}" for target in reversed(TARGETS))}."""

    def parts(self) -> list[str]:
        """The page's second half."""
        return [
            head(self.mistral), self.drawn.text, drawn_reading(self.drawn), PASS_HEAD, self.passed.text,
            passed_reading(self.passed), mixed_head(self.mixed), self.mixed_drawn.text, drawn_reading(self.mixed_drawn),
            MIXED_PASS, self.mixed_passed.text, passed_reading(self.mixed_passed), LIMIT_HEAD,
            markdown(LIMIT_HEADER, limit_rows(self.mistral)), limit_reading(self.mistral),
        ]  # fmt: skip


def run(mistral: pl.DataFrame, four: pl.DataFrame) -> Certificates:
    """Every regime, for mistral's answers and for one of four generators' per source."""
    one, mixed = answers_of(mistral), answers_of(one_per_source(four))
    return Certificates(one, mixed, *(results(each, once=once) for each in (one, mixed) for once in (False, True)))


def seeds(found: Results, target: float) -> str:
    """Certified seeds with the probe at one target, by epsilon."""
    return ", ".join(cell.count() for cell in found.cells["probe", "default"] if cell.target == target)


def counts(found: Results) -> str:
    each = ", ".join(f"{found.certified(score)} with {name}" for score, name in SCORES.items())
    return f"""\
Of {RUNS} runs the old default certifies {each};
the paper's rule with the probe {found.certified("probe", "paper")}."""


def drawn_reading(found: Results) -> str:
    return f"{counts(found)} Violations: {found.above} of {found.total} certificates."


def passed_reading(found: Results) -> str:
    """What a one-pass table shows, with the risk on answers whose labels took no part."""
    apart = []
    for target in TARGETS:
        cells = [cell for column in found.cells.values() for cell in column if cell.target == target]
        runs = [each.held_out for cell in cells for each in cell.outcomes if isinstance(each, Passed)]
        accepted, bad = np.sum(runs, axis=0).tolist()
        apart += [f"{bad:,} of {accepted:,} ({bad / accepted:.3f}) at target {target:.2f}"] if accepted else []
    return f"""\
{counts(found)} Risk above target: {found.above} of {found.total}.
Held out: in the fifth that gave the thresholds, whose labels took no part, unsupported among accepted over all
certificates of a target, with the same answers in several seeds:
{", ".join(apart)}."""


def head(answers: Answers) -> str:
    calibrating = len(answers.splits["probe"][0].calibration)
    return f"""\
## What the certificate makes of them

On mistral's answers to the {answers.count} train sources that the probe never saw, one answer a source,
{answers.base:.3f} of them unsupported. Per seed a fifth of the sources gives 20 thresholds, quantiles of their scores,
and the other {calibrating} calibrate, dealt at random to {SITES} sites. {SEEDS} seeds per cell, failure probability
0.05, delta 1e-6; an epsilon of `none` means no noise.

### (a) The paper's regime: events with replacement

200 events per site and round, 30 rounds, 30,000 events at most; a run stops at its first certificate. A cell reads
*certified seeds of {SEEDS} / median events / mean acceptance / mean true risk / violations*, or 0. The {calibrating}
calibration answers are the population, so the true risk is exact, and a violation is a certified threshold whose true
risk is above target. An epsilon protects one event; {calibrating} answers in up to 30,000 events are used many times
over, so that an answer is protected less than the epsilon says. The regime is kept for comparison with the paper. The
*old default* is an open certificate without a plan; what the default, which is planned, certifies of RAGTruth is on
the page of [what can be certified today](studies/certified-today.md). Epsilon is for zero-out."""


PASS_HEAD = f"""\
### (b) Every answer once

The honest regime: independent answers, one of each source, each used once, whole sources protected. Every release
carries noise of its own whatever its size, so the registered batch is {WHOLE}, more than a site has: each site answers
with one release, and the certificate is decided once at the end (`final`). [The RAGTruth page](ragtruth.md) compares
batches: none does better. A cell reads *certified seeds of {SEEDS} / mean acceptance / mean risk / risk above target*,
or 0. There is no exact truth: the certificate speaks of the law that sources are drawn from. *Risk* is the observed one
over all the unseen sources' answers, the calibration part and the fifth whose labels were not used; it is dominated
by answers that calibrated and so describes the thresholds rather than tests them; what the held-out fifth says stands
below the table. Noise is drawn by seed and scaled by epsilon, so that a lucky draw shows at several epsilons."""

MIXED_PASS = "Every answer once, as in (b):"


def mixed_head(answers: Answers) -> str:
    return f"""\
### (c) One of four generators per source

The same {answers.count} sources, each with one of its four answers, chosen by a hash of source and id whatever the
label; {answers.base:.3f} are unsupported. Events with replacement, as in (a):"""


LIMIT_HEADER = (
    "score", "target risk", "largest acceptance with risk at most target", "limit, any certificate",
    "limit, known threshold", "limit, union over thresholds",
)  # fmt: skip

LIMIT_HEAD = """\
### What limits it

Fewest records on average that a certificate could take without privacy (`fedsrc.maths.limits`), from acceptance and
risk at the 20 quantiles of mistral's unseen answers, taken as if they were the truth: *any certificate* may choose the
threshold by the evidence, *known threshold* tests the best one alone, *union* pays for 20."""


def limit_reading(answers: Answers) -> str:
    calibrating = len(answers.splits["probe"][0].calibration)
    each = ", ".join(f"{noise(answers, epsilon):.0f} at epsilon {words(epsilon)}" for epsilon in EPSILONS[1:])
    exact = thresholds_of(answers.tables["probe"])
    best = int(np.argmax(exact.acceptance * (0.2 - exact.risk)))
    margin = calibrating * float(exact.acceptance[best] * (0.2 - exact.risk[best]))
    return f"""\
Three things limit table (b). *The base rate*: {answers.base:.2f} are unsupported, so that a target of 0.10 asks for a
fourth of that among the accepted, and 0.30 for three fourths. *The score*: with an AUC of 0.84 a third could be
accepted at target 0.10 if everything were known; with lift, next to nothing. *The number of sources*: {calibrating}.
At 0.10 the probe's limit for a union over 20 thresholds is above that, so a rule that pays for them is not expected to
get there even without noise; one that knew the threshold beforehand could. At 0.20 the limit is below, but it is a mean
at first order: a run that has little more than that still fails often, and a mixture of bets costs some evidence too.

Privacy adds noise to every sum over accepted answers. Over {SITES} releases its standard deviation, in answers, is
{each}. Beside it, the probe's best margin at
target 0.20, by how many unsupported answers {calibrating} stay under target, is {margin:.0f}. Table (a) says what
independent answers of this law would take. There are not that many: RAGTruth's question answering has 839 sources in
train."""
