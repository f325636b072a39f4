"""The alarm after deployment: false alarms at the boundary, delay after a change, and RAGTruth's two splits.

Writes docs/results/monitor.md and, run by run, research/results/monitor.parquet and monitor_ragtruth.parquet. Run:
python -m research.benchmarks.monitor [TABLES_FOLDER]  (ragtruth.parquet and ragtruth-fitted.parquet, as for
research/benchmarks/scores.py; without them the part about RAGTruth, and its runs, stay as they are)

Simulated releases are those of a real monitor, with seeded discrete noise; they go through `fedsrc.server.alarm`, the
fold of a real transcript. Wrong rules are tried on the same releases.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtri

from fedsrc.maths import detector
from fedsrc.maths.betting import Covariance
from fedsrc.maths.binomial import clopper_pearson
from fedsrc.protocol.registration import Registration
from fedsrc.server.alarm import RoundSample, bets_of, evidence, fold, log_line, plan_of, round_sample
from fedsrc.simulate.trials import discrete_gaussian
from research import monitor_stories
from research.monitor_stories import FALSE_ALARM
from research.pages import FIGURES, RESULTS, markdown, publish, words

Ints = NDArray[np.int64]
RUNS, RISK, ACCEPTANCE, SLOTS = 10_000, 0.2, 0.5, 40
ROUNDS = 200
RUN_LENGTH, LONG = 20_000, 600
EPSILONS = (math.inf, 4.0, 1.0)
CHANGE, BEFORE, AFTER, DELAY_RUNS, DELAY_ROUNDS = 20, 0.15, (0.25, 0.3, 0.4), 1_000, 800
PAGE, RECORDS = "monitor.md", FIGURES / "monitor.parquet"


@dataclass(frozen=True)
class Scene:
    """Sites of a simulated deployment: how many units each sends a round, its weight and its risk."""

    name: str
    slots: tuple[int, ...]
    weights: tuple[float, ...] | None
    risks: tuple[float, ...]


EQUAL = Scene("equal sites", (SLOTS,) * 5, None, (RISK,) * 5)
DIFFERENT = Scene(
    "sites with risks 0.05 to 0.40, each sending as much as it likes", (20, 80, 20, 60, 20), (0.2,) * 5,
    (0.05, 0.4, 0.1, 0.3, 0.15),
)  # fmt: skip
GOOD_ONE_SILENT = Scene(
    "the best site silent, and charged", (0, 50, 50, 50, 50), (0.2,) * 5, (0.0, 0.25, 0.25, 0.25, 0.25)
)


def monitor(scene: Scene, epsilon: float, guarantee: Literal["probability", "run length"]) -> Registration:
    """The registration of a monitor of that scene; nothing is refused, so the whole probability goes to alarms."""
    count = len(scene.slots)
    weights = scene.weights or (None,) * count
    promise = {"false_alarm": FALSE_ALARM} if guarantee == "probability" else {"run_length": RUN_LENGTH}
    return Registration.model_validate({
        "claim": {"target_risk": RISK},
        "thresholds": {"values": (0.5,), "weights": (1.0,)},
        "certificate": {
            "method": "monitor", "certificate": "0" * 64, "risk": RISK, "guarantee": guarantee, **promise,
        },
        "privacy": {"epsilon": epsilon, "adjacency": "zero-out"},
        "sites": [{"name": f"site-{i}", "weight": weights[i]} for i in range(count)],
    })  # fmt: skip


def releases(
    reg: Registration, scene: Scene, risks: tuple[float, ...], rng: np.random.Generator, runs: int
) -> RoundSample:
    """One round of every run: exact masses of accepted units, encoded and noised as a site does."""
    rule = reg.mechanism
    slots = np.asarray(scene.slots)
    accepted = rng.binomial(slots, ACCEPTANCE, (runs, slots.size))
    bad = rng.binomial(accepted, np.asarray(risks))
    bins = np.stack([np.zeros_like(bad), accepted - bad, np.zeros_like(bad), bad], axis=-1)
    exact = rule.basis.encode(bins.reshape(runs, slots.size, 2, 2))
    noisy = exact + discrete_gaussian(rng, rule.scale, exact.shape) * (slots > 0)[:, None, None]
    return round_sample(reg, scene.slots, noisy)


# ---------------------------------------------------------------- the monitor, and wrong rules on the same releases


def factor(reg: Registration, seen: RoundSample) -> NDArray[np.float64]:
    """A round's factor per bet."""
    m = seen.masses
    return detector.log_factor(m.unsupported, m.supported, m.noise, by=seen.by, bets=bets_of(plan_of(reg)))


def above_single_line(reg: Registration, log_M: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray(detector.log_evidence(log_M, bets_of(plan_of(reg)).p) >= -math.log(FALSE_ALARM))


class Right:
    """The product's own fold."""

    def __init__(self, reg: Registration, runs: int) -> None:
        self.reg, self.line = reg, log_line(plan_of(reg))
        self.log_M = np.full((runs, plan_of(reg).bets.count), -np.inf)

    def rings(self, seen: RoundSample, round: int) -> NDArray[np.bool_]:
        self.log_M, _ = fold(self.reg, self.log_M, seen, round)
        return np.asarray(evidence(self.reg, self.log_M, round) >= self.line)


class NoiseIgnored(Right):
    """The noise is taken for data."""

    def rings(self, seen: RoundSample, round: int) -> NDArray[np.bool_]:
        none = np.zeros(1)
        return super().rings(replace(seen, masses=replace(seen.masses, noise=Covariance(none, none, none))), round)


class WeightsIgnored(Right):
    """Every site counts by what it sends, and a silent one is forgotten."""

    def rings(self, seen: RoundSample, round: int) -> NDArray[np.bool_]:
        return super().rings(replace(seen, by=detector.Shares(np.ones_like(seen.by.q), 0.0)), round)


class NoSpending(Right):
    """Every start is given one, and the line is that of a single start."""

    def rings(self, seen: RoundSample, round: int) -> NDArray[np.bool_]:
        del round  # every start is the same
        self.log_M = detector.step(self.log_M, factor(self.reg, seen), 1.0)
        return above_single_line(self.reg, self.log_M)


class Repeated(Right):
    """A test for one time at the 5% level, of all units so far, repeated after every round."""

    def __init__(self, reg: Registration, runs: int) -> None:
        super().__init__(reg, runs)
        self.excess = np.zeros(runs)
        self.variance = np.zeros(runs)

    def rings(self, seen: RoundSample, round: int) -> NDArray[np.bool_]:
        del round  # as if there had been no other look
        m, q = seen.masses, seen.by.q
        self.excess += (m.unsupported - RISK * m.accepted) @ q
        noise = m.noise.of(1.0 - RISK, -RISK) * np.ones(q.size)
        self.variance += np.maximum(m.accepted @ q**2, 1.0) * RISK * (1 - RISK) + noise @ q**2
        return np.asarray(self.excess >= ndtri(1 - FALSE_ALARM) * np.sqrt(self.variance))


class Single(Right):
    """One start, at deployment: no restart."""

    def rings(self, seen: RoundSample, round: int) -> NDArray[np.bool_]:
        self.log_M = (np.zeros_like(self.log_M) if round == 1 else self.log_M) + factor(self.reg, seen)
        return above_single_line(self.reg, self.log_M)


WRONG: dict[str, type[Right]] = {
    "noise ignored": NoiseIgnored, "weights ignored": WeightsIgnored, "no spending": NoSpending,
    "test repeated": Repeated,
}  # fmt: skip
DELAYED = ("probability", "run length", "one start")
SCHEMA = {
    "table": pl.String(), "setting": pl.String(), "epsilon": pl.Float64(), "after": pl.Float64(), "run": pl.Int32(),
    **dict.fromkeys((*DELAYED, *WRONG), pl.Int16()),
}  # fmt: skip  # a rule's column is the round in which it first rang, one more than there were where it did not


# ---------------------------------------------------------------- (a), (b): nothing has changed


def first_rings(
    reg: Registration, scene: Scene, rules: list[Right], *, runs: int, rounds: int, seed: list[int]
) -> list[Ints]:
    """The round in which each rule first rings in each run, rounds + 1 if it does not; the scene stays as it is."""
    rng = np.random.default_rng(seed)
    first = [np.full(runs, rounds + 1) for _ in rules]
    for t in range(1, rounds + 1):
        seen = releases(reg, scene, scene.risks, rng, runs)
        for rule, found in zip(rules, first, strict=True):
            found[(found > rounds) & rule.rings(seen, t)] = t
    return first


def kept(setting: tuple[str, str, float, float | None], rules: dict[str, Ints]) -> pl.DataFrame:
    """One row per run: its setting, and the round in which each rule first rang."""
    runs = len(next(iter(rules.values())))
    facts = dict(zip(("table", "setting", "epsilon", "after"), setting, strict=True))
    columns = {name: pl.lit(value, SCHEMA[name]) for name, value in facts.items()}
    frame = pl.DataFrame({"run": np.arange(runs), **rules}).with_columns(**columns)
    missing = [pl.lit(None, kind).alias(name) for name, kind in SCHEMA.items() if name not in frame.columns]
    return frame.with_columns(missing).select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())


def boundary(scene: Scene, epsilon: float, place: int) -> pl.DataFrame:
    """Run every rule for ROUNDS rounds; a rule is left out where it is the monitor itself."""
    reg = monitor(scene, epsilon, "probability")
    kinds: dict[str, type[Right]] = {"probability": Right, **WRONG}
    rules = [kind(reg, RUNS) for kind in kinds.values()]
    first = first_rings(reg, scene, rules, runs=RUNS, rounds=ROUNDS, seed=[10, place])
    same = {"noise ignored": math.isinf(epsilon), "weights ignored": not scene.weights}
    found = {name: each for name, each in zip(kinds, first, strict=True) if not same.get(name, False)}
    return kept(("boundary", scene.name, epsilon, None), found)


def run_lengths(epsilon: float, place: int) -> pl.DataFrame:
    """Run until an alarm, each run cut off after LONG rounds."""
    reg = monitor(EQUAL, epsilon, "run length")
    kinds: dict[str, type[Right]] = {"run length": Right, "noise ignored": NoiseIgnored}
    rules = [kind(reg, RUNS) for kind in kinds.values()]
    first = first_rings(reg, EQUAL, rules, runs=RUNS, rounds=LONG, seed=[20, place])
    found = dict(zip(kinds, first, strict=True))
    if math.isinf(epsilon):
        del found["noise ignored"]
    return kept(("run length", EQUAL.name, epsilon, None), found)


# ---------------------------------------------------------------- (c): a change


def delays(epsilon: float, after: float, place: int) -> pl.DataFrame:
    """Run over a change, by both guarantees and by a single start."""
    rng = np.random.default_rng([30, place])
    regs = [monitor(EQUAL, epsilon, "probability"), monitor(EQUAL, epsilon, "run length")]
    rules: list[Right] = [Right(regs[0], DELAY_RUNS), Right(regs[1], DELAY_RUNS), Single(regs[0], DELAY_RUNS)]
    first = [np.full(DELAY_RUNS, DELAY_ROUNDS + 1) for _ in rules]
    for t in range(1, DELAY_ROUNDS + 1):
        risk = BEFORE if t <= CHANGE else after
        seen = releases(regs[0], EQUAL, (risk,) * 5, rng, DELAY_RUNS)
        for rule, found in zip(rules, first, strict=True):
            found[(found > DELAY_ROUNDS) & rule.rings(seen, t)] = t
        if all((found <= DELAY_ROUNDS).all() for found in first):
            break
    return kept(("change", EQUAL.name, epsilon, after), dict(zip(DELAYED, first, strict=True)))


# ---------------------------------------------------------------- tables (a) to (c), from what was kept


def cells(frame: pl.DataFrame, table: str) -> Iterator[tuple[tuple[str, float, float], pl.DataFrame]]:
    """Yield the runs of each setting of a table, with its name, epsilon and risk after the change."""
    here = frame.filter(pl.col("table") == table)
    for (name, epsilon, after), part in here.group_by("setting", "epsilon", "after", maintain_order=True):
        yield (str(name), float(str(epsilon)), math.nan if after is None else float(str(after))), part


def rounds_of(part: pl.DataFrame, rule: str) -> Ints | None:
    """Return the round in which a rule first rang, by run; None where it was not tried."""
    found = part[rule]
    return None if found.null_count() else found.to_numpy().astype(np.int64)


def rang(part: pl.DataFrame, rule: str) -> int | None:
    """Count the runs in which a rule ever rang."""
    found = rounds_of(part, rule)
    return None if found is None else int((found <= ROUNDS).sum())


def boundary_rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    for (name, epsilon, _), part in cells(frame, "boundary"):
        count = rang(part, "probability") or 0
        low, high = clopper_pearson(count, part.height, 0.05)
        wrong = ["" if n is None else f"{n:,}" for n in (rang(part, rule) for rule in WRONG)]
        yield [name, words(epsilon), f"{count:,}", f"[{low:.4f}, {high:.4f}]", *wrong]


def length_rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    size = sum(EQUAL.slots)
    for (_, epsilon, _), part in cells(frame, "run length"):
        first, wrong = (rounds_of(part, rule) for rule in ("run length", "noise ignored"))
        assert first is not None
        units = np.minimum(first, LONG) * size
        mean, error = units.mean(), 1.96 * units.std(ddof=1) / math.sqrt(part.height)
        ignored = "" if wrong is None else f"{(np.minimum(wrong, LONG) * size).mean():,.0f}"
        ever = f"{(first <= LONG).mean():.1%}"
        yield [words(epsilon), f"{mean:,.0f}", f"[{mean - error:,.0f}, {mean + error:,.0f}]", ever, ignored]


def delay_rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    """Units from the change to the alarm, beside the limits."""
    size = sum(EQUAL.slots)
    for (_, epsilon, after), part in cells(frame, "change"):
        first = [part[rule].to_numpy().astype(np.int64) for rule in DELAYED]
        shown = []
        for found in first:
            late = found[found > CHANGE]
            shown.append(f"{(late - CHANGE).mean() * size:,.0f}{'' if (late <= DELAY_ROUNDS).all() else ' or more'}")
        told, least = (
            detector.told_delay(ACCEPTANCE, after, RISK, FALSE_ALARM),
            detector.least_delay(ACCEPTANCE, after, RISK, RUN_LENGTH),
        )
        early = f"{int((first[0] <= CHANGE).sum())}"
        yield [
            f"{after:g}", words(epsilon), shown[0], f"{told:,.0f}", shown[1], f"{least:,.0f}", shown[2], early,
        ]  # fmt: skip


# ---------------------------------------------------------------- the page


def told_so(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def simulated() -> Iterator[pl.DataFrame]:
    """Run all settings of the first three tables."""
    for i, scene in enumerate((EQUAL, DIFFERENT, GOOD_ONE_SILENT)):
        for k, epsilon in enumerate(EPSILONS):
            yield boundary(scene, epsilon, 10 * i + k)
            told_so(f"boundary {i} {epsilon}")
    for i, epsilon in enumerate(EPSILONS):
        yield run_lengths(epsilon, i)
    told_so("run lengths")
    for i, after in enumerate(AFTER):
        for k, epsilon in enumerate(EPSILONS):
            yield delays(epsilon, after, 10 * i + k)


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page's parts but the last, from the rings of all runs."""
    silent, lengths = list(boundary_rows(frame)), list(length_rows(frame))
    worst = max(int(row[2].replace(",", "")) for row in silent)
    shortest = min(int(row[1].replace(",", "")) for row in lengths)
    size = sum(EQUAL.slots)
    return [
        "# The alarm after deployment",
        f"While nothing has changed, a monitor may ring with probability {FALSE_ALARM} at most. In {RUNS:,} runs of"
        f" each setting, at the boundary where the risk is exactly the line, it rang in {worst:,} at most. With a run"
        f" length of {RUN_LENGTH:,} units registered, the mean until a false alarm was at least {shortest:,}.",
        "The first three tables are made by `python -m research.benchmarks.monitor`; the round in which each rule first"
        " rang, in every run, is in `research/results/monitor.parquet`. Releases are those of a real monitor but for"
        " the seed of their noise, and go through the same fold (`fedsrc.server.alarm`). Intervals of shares are exact"
        " (Clopper-Pearson).",
        "## False alarms when nothing has changed",
        f"{ROUNDS} rounds; 5 sites with {size} units a round in all, half of them accepted, line {RISK}. 'False alarms'"
        f" is the monitor, of {RUNS:,} runs; the columns after its interval are rules with a step left out or done"
        " wrong, on the same releases. 'Weights ignored' counts every site by what it sends. 'No spending' gives every"
        " start one and rings at the line of a single one. 'Test repeated' is a 5% test of all units so far, after"
        " every round.",
        markdown(["setting", "epsilon", "false alarms", "95% interval", *WRONG], silent),
        "## Units until a false alarm",
        f"A run length of {RUN_LENGTH:,} units is registered ({RUN_LENGTH // size} rounds of {size}). {RUNS:,} runs at"
        f" the boundary, equal sites, each cut off after {LONG * size:,} units, so that the true means are larger.",
        markdown(["epsilon", "mean units until an alarm, cut off", "95% interval", "runs with an alarm by then",
                  "noise ignored: mean"], lengths),
        "## Units from a change to its alarm",
        f"Risk {BEFORE} for {CHANGE} rounds, then higher. Means of {DELAY_RUNS:,} runs, less those that had rung before"
        f" the change (last column), equal sites, {size} units a round (so no delay is shorter), cut off after"
        f" {(DELAY_ROUNDS - CHANGE) * size:,} units. 'Limit' is the information limit without privacy, told both"
        " risks: of a test of that level which is also told when the change comes, and of any detector with that run"
        " length (worst case, small information per unit). 'One start' is the same bets begun at deployment and never"
        " again.",
        markdown(["risk after", "epsilon", f"probability {FALSE_ALARM}", "limit", f"run length {RUN_LENGTH:,}", "limit",
                  f"one start, probability {FALSE_ALARM}", "rang before"], delay_rows(frame)),
    ]  # fmt: skip


def as_it_was() -> list[str]:
    """Return the last part of the published page."""
    text = (RESULTS / PAGE).read_text(encoding="utf-8")
    return [text[text.index(monitor_stories.TITLE) :].rstrip("\n")]


def keep(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    frame.write_parquet(path, compression="zstd", compression_level=19)
    return frame


def real_answers(folder: Path) -> list[str]:
    """Return the last part of the page, from the tables of answers; its runs are kept."""
    return monitor_stories.page(keep(monitor_stories.stories(folder), monitor_stories.RECORDS))


def main() -> None:
    last = real_answers(Path(sys.argv[1])) if len(sys.argv) > 1 else as_it_was()
    publish(PAGE, [*page(keep(pl.concat(simulated()), RECORDS)), *last])


if __name__ == "__main__":
    main()
