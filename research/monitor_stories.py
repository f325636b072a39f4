"""The monitor on RAGTruth's answers: certified on some sources, deployed where others come.

The last table of docs/results/monitor.md; `research.benchmarks.monitor` runs it and keeps its runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import polars as pl

from fedsrc.maths import detector
from fedsrc.planning.register import Choices, development_part, register
from fedsrc.protocol.registration import Registration
from fedsrc.records.units import Records, units_of
from fedsrc.server.alarm import evidence, fold, log_line, plan_of, round_sample
from fedsrc.server.recruiter import whole
from fedsrc.simulate.population import Support, truth, uniform
from fedsrc.simulate.trials import discrete_gaussian, simulate
from research.pages import FIGURES, markdown, records_of, words

TITLE, RECORDS = "## RAGTruth, question answering", FIGURES / "monitor_ragtruth.parquet"
SEEDS, FALSE_ALARM = 200, 0.05


@dataclass(frozen=True)
class Story:
    """Certify on some sources, then deploy where others come."""

    certified_on: str
    deployed_on: str
    target_risk: float
    epsilon: float


STORIES = tuple(
    Story(*words, epsilon)
    for words in (
        ("train", "test", 0.3),
        ("test", "train", 0.2),
        ("test, GPT models", "train, llama-2-7b-chat", 0.15),
    )
    for epsilon in (8.0, 4.0)
)
STORY_BATCH = 50
STORY = {
    "certified_on": pl.String(), "deployed_on": pl.String(), "target": pl.Float64(), "epsilon": pl.Float64(),
}  # fmt: skip
SCHEMA = {
    **STORY, "run": pl.Int32(), "threshold": pl.Int16(), "risk": pl.Float64(), "risk_deployed": pl.Float64(),
    "sources": pl.Int32(), "unsupported_train": pl.Float64(), "unsupported_test": pl.Float64(),
}  # fmt: skip  # of the certified threshold, if one was; sources until the alarm, if it rang; shares of the splits
ABSTAINED = (None,) * 4


def ragtruth(folder: Path) -> dict[str, Records]:
    """Question answering: sources as units, the fitted detector's score. Its development sources give thresholds."""
    fitted = pl.read_parquet(folder / "ragtruth-fitted.parquet")
    table = pl.read_parquet(folder / "ragtruth.parquet").join(fitted, on="id").filter(pl.col("group") == "QA")
    train = table.filter((pl.col("split") == "train") & (pl.col("part") != "development"))
    test = table.filter(pl.col("split") == "test")
    parts = {
        "development": table.filter(pl.col("part") == "development"),
        "train": train,
        "test": test,
        "test, GPT models": test.filter(pl.col("generator").str.starts_with("gpt")),
        "train, llama-2-7b-chat": train.filter(pl.col("generator") == "llama-2-7b-chat"),
    }
    return {name: _records(part) for name, part in parts.items()}


def _records(part: pl.DataFrame) -> Records:
    codes = part["source"].cast(pl.Int64).to_numpy()
    nowhere = np.zeros(part.height, dtype=np.int64)
    return records_of(part["detector"].to_numpy(), part["loss"].to_numpy(), nowhere, ["QA"], codes)


def registered(story: Story, development: Records) -> Registration:
    """The registration of the certificate; development sources give its thresholds."""
    picked = Choices(
        target_risk=story.target_risk,
        epsilon=story.epsilon,
        unit="source",
        max_answers=6,
        batch=STORY_BATCH,
        thresholds=10,
        exact_thresholds=True,
        public_development=True,
        adjacency="zero-out",
    )
    return register(picked, development, development_part(development, "source", 1.0))


def told(story: Story, tables: dict[str, Records], seed: int) -> pl.DataFrame:
    """SEEDS orders and noises, a row each: what was certified, its risks, and when the monitor then rang."""
    reg = registered(story, tables["development"])
    certified_on, deployed = (
        uniform(reg, [units_of(tables[name], "QA", "source", max_answers=6)])
        for name in (story.certified_on, story.deployed_on)
    )
    trials = simulate(reg, certified_on, trials=SEEDS, seed=seed, draw="once")
    here, there = (truth(reg, sites, [1.0]).risk.tolist() for sites in (certified_on, deployed))
    shares = [float(tables[name].loss.mean()) for name in ("train", "test")]
    rng = np.random.default_rng([40, seed])
    rows = list[tuple[object, ...]]()
    for run, (sure, j) in enumerate(zip(trials.certified.tolist(), trials.threshold.tolist(), strict=True)):
        found = (j, here[j], there[j], watched(reg, story, deployed[0], j, rng)) if sure else ABSTAINED
        rows.append((*astuple(story), run, *found, *shares))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def watched(reg: Registration, story: Story, site: Support, j: int, rng: np.random.Generator) -> int | None:
    """Units until the alarm of a monitor at threshold j, each deployed source once in a fresh order; None: no alarm."""
    fields = reg.model_dump()
    watch = Registration.model_validate({
        **fields,
        "thresholds": {"values": (reg.thresholds.values[j],), "weights": (1.0,)},
        "certificate": {
            "method": "monitor", "certificate": "0" * 64, "risk": story.target_risk, "false_alarm": FALSE_ALARM,
            "refusal_budget": 0.0001,
        },
        "development": None,
    })  # fmt: skip
    rule, order = watch.mechanism, rng.permutation(site.law.size)
    log_M, used, t = detector.nothing(plan_of(watch).bets.count), 0, 0
    while used < order.size:
        size, t = whole(STORY_BATCH, order.size - used), t + 1
        sums = site.masses[order[used : used + size]].sum(axis=0)
        two = np.stack([sums[:, : j + 1].sum(axis=-1), sums[:, j + 1 :].sum(axis=-1)], axis=-1)
        exact = rule.basis.encode(two)
        noisy = exact + discrete_gaussian(rng, rule.scale, exact.shape)
        log_M, _ = fold(watch, log_M, round_sample(watch, [size], noisy[None]), t)
        used += size
        if float(evidence(watch, log_M, t)) >= log_line(plan_of(watch)):
            return used
    return None


def stories(folder: Path) -> pl.DataFrame:
    """Run all stories of the last table."""
    tables = ragtruth(folder)
    return pl.concat(told(story, tables, i) for i, story in enumerate(STORIES))


def story_rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    """How many runs were certified, the risks of the threshold certified most often, and how many monitors rang."""
    for (certified_on, deployed_on, target, epsilon), part in frame.group_by(*STORY, maintain_order=True):
        certified = part.drop_nulls("threshold")
        often = certified.filter(pl.col("threshold") == pl.col("threshold").mode().min())
        risks = [f"{often[name][0]:.3f}" if often.height else "" for name in ("risk", "risk_deployed")]
        rang = certified["sources"].drop_nulls().to_numpy()
        yield [
            str(certified_on), str(deployed_on), f"{target:g}", words(float(str(epsilon))),
            f"{certified.height} of {part.height}", *risks,
            f"{rang.size} of {certified.height}", f"{np.median(rang):,.0f}" if rang.size else "never",
        ]  # fmt: skip


def page(frame: pl.DataFrame) -> list[str]:
    """Return the last part of the page, from all its runs."""
    shares = [float(frame[f"unsupported_{name}"].unique().item()) for name in ("train", "test")]
    return [
        TITLE,
        f"{shares[0]:.1%} of the answers of the train split without its development sources are unsupported,"
        f" {shares[1]:.1%} of the test split. Sources"
        f" are units, each used once in a random order, {STORY_BATCH} a round; the score is the fine-tuned detector of"
        " [scores](scores.md), thresholds are 10 quantiles of its development sources, which take no other part."
        f" {SEEDS} orders and noises; monitors ring with probability {FALSE_ALARM} at most. Risks are those of the"
        " threshold certified most often, over all these sources of a split. Made with the first three by"
        " `python -m research.benchmarks.monitor TABLES_FOLDER`, where TABLES_FOLDER has those of [scores](scores.md);"
        " every run is in `research/results/monitor_ragtruth.parquet`.",
        markdown(["certified on", "deployed on", "target", "epsilon", "certified", "risk where certified",
                  "risk where deployed", "alarms", "sources until the alarm, median"], story_rows(frame)),
    ]  # fmt: skip
