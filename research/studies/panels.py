"""Is it safe for each group? RAGTruth test by task and by generator, HaluEval by task, each source once.

Run: python -m research.studies.panels DATA_FOLDER [SPLITS]; the folder has ragtruth/detector_scores.csv.gz. Writes
docs/results/panels.md, and every split's outcome to research/results/panels.csv.gz.

A split holds a fifth of the sources out; of the rest a quarter is development, by its name, and the others calibrate.
Registrations are made, planned and decided by the shipped code, with seeded noise. Epsilon is for replacement of a
source with all its answers. Beside the panel stands one certificate for each group: on the same splits, with the
failure probability divided by the number of groups, and the privacy too, or not.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fedsrc.data.embedded import TASKS, score_table
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.contrasts import ContrastCode
from fedsrc.maths.privacy import epsilon_tight, rho_tight
from fedsrc.planning.plan import Wish, evidence, plan
from fedsrc.planning.register import Choices, register
from fedsrc.protocol.protection import Development
from fedsrc.protocol.registration import Registration
from fedsrc.records.development import calibrating
from fedsrc.records.masses import counted
from fedsrc.records.units import Records
from fedsrc.server import sealed
from fedsrc.server.bounds import Look, look, sample
from fedsrc.server.tally import Given, add, empty
from fedsrc.simulate.trials import discrete_gaussian, picked
from research.pages import FIGURES, markdown, publish, records_of, words

FILE = Path("ragtruth", "detector_scores.csv.gz")
EPSILONS, SPLITS, DELTA, FAILURE = (math.inf, 8.0, 4.0, 2.0, 1.0), 40, 1e-6, 0.05
DETECTORS = ("track_b_modernbert", "approach_1_modernbert")
HELD_OUT, DEVELOPMENT = 0.2, 0.25
FAR = 0.05  # beyond the target: far above it
HALUEVAL = 600  # sources of each task
OUTCOMES = FIGURES / "panels.csv.gz"


class Answers(NamedTuple):
    """One row an answer: its source, group, score and loss."""

    source: Ints
    group: Ints
    names: tuple[str, ...]
    score: Floats
    loss: Floats

    def at(self, rows: Bools) -> Answers:
        return Answers(self.source[rows], self.group[rows], self.names, self.score[rows], self.loss[rows])

    def records(self) -> Records:
        found = records_of(self.score, self.loss, np.zeros(self.score.size, np.int64), ("all",), self.source)
        return replace(found, group=self.group, group_names=self.names)


@dataclass(frozen=True)
class Setting:
    """A table of answers, how its groups count, and how many answers a source has."""

    name: str
    answers: Answers
    most: int
    span: str = "shares"
    target: float = 0.2

    @property
    def spanning(self) -> bool:
        """Whether some source has answers in several groups."""
        pairs = np.unique(np.stack([self.answers.source, self.answers.group]), axis=1)
        return len(pairs.T) > len(np.unique(self.answers.source))

    @property
    def share(self) -> float:
        """A group's share of the mass of a source."""
        return 1.0 if self.span == "whole" else 1.0 / len(self.answers.names)


class Outcome(NamedTuple):
    """What one method came to in one split, for one group: its acceptance within the group, where it is certified, and
    what the held-out answers of that group say of its threshold."""

    setting: str
    epsilon: str
    method: str
    split: int
    group: str
    certified: bool
    threshold: float
    acceptance: float
    accepted: int
    unsupported: int
    risk: float  # of what the threshold accepts in the whole table, held out or not; 0 if nothing is certified


def ragtruth(folder: Path, detector: str, column: str) -> Answers:
    """The test split's answers by task or generator."""
    if not (folder / FILE).is_file():
        sys.exit(f"error: there is no {folder / FILE}\nhint: give the folder that holds {FILE.as_posix()}")
    frame = pl.read_csv(folder / FILE).filter((pl.col("split") == "test") & (pl.col("system") == detector))
    return _answers(frame["source_id"], frame[column], 1.0 - frame["hallucination_score"], frame["unsupported"])


def halueval(score: str) -> Answers:
    """So many sources of each task, the first of the embedded tables."""
    parts = []
    for task in TASKS:
        frame = score_table(task)
        kept = frame["source"].unique(maintain_order=True).head(HALUEVAL)
        parts.append(frame.filter(pl.col("source").is_in(kept.implode())).with_columns(task=pl.lit(task)))
    frame = pl.concat(parts)
    return _answers(frame["source"], frame["task"], frame[score].cast(pl.Float64), frame["loss"])


def _answers(source: pl.Series, group: pl.Series, score: pl.Series, loss: pl.Series) -> Answers:
    names = group.unique().sort()
    codes = [column.rank("dense").to_numpy().astype(np.int64) - 1 for column in (source.cast(pl.String), group)]
    return Answers(codes[0], codes[1], tuple(names), score.to_numpy().astype(np.float64), loss.to_numpy().astype(float))


def divided(answers: Answers, split: int) -> tuple[Answers, Answers]:
    """The answers that develop and calibrate, and those of held-out sources."""
    count = int(answers.source.max()) + 1
    held = np.random.default_rng([23, split]).permutation(count)[: round(HELD_OUT * count)]
    out = np.isin(answers.source, held)
    return answers.at(~out), answers.at(out)


def registered(answers: Answers, split: int, target: float, **choices: Any) -> tuple[Registration, Records]:
    """A planned registration on the split's development part, and the table."""
    records, part = answers.records(), Development(share=DEVELOPMENT, seed=split)
    base = register(
        Choices(target, unit="source", public_development=True, delta=DELTA, loss_grid=1, **choices), records, part
    )
    known, units = evidence(base, records, part), calibrating(base, records)
    assert known is not None
    return plan(base, known, {name: len(each) for name, each in units.items()}, Wish("sealed")).registration, records


def decided(reg: Registration, records: Records, rng: np.random.Generator) -> Look:
    """The one look of a planned registration at all units that calibrate, with seeded noise."""
    units, rule = calibrating(reg, records)["all"], reg.mechanism
    counts = counted(reg, units)
    exact = counts if isinstance(rule.code, ContrastCode) else rule.code.encode(counts)
    noisy = exact + discrete_gaussian(rng, rule.scale, exact.shape)
    tally = add(empty(reg), [Given([(0, len(units))], tuple(noisy.ravel().tolist()))])
    if reg.judgement.method == "sealed":
        return sealed.decide(reg, [sealed.see(reg, tally, 0.0, 1.0)])
    return look(reg, sample(reg, tally))


def thresholds(reg: Registration, now: Look) -> list[float | None]:
    """The threshold that is picked for every group, or for all."""
    rows, _ = picked(reg, now)
    return [None if row < 0 else reg.row_values[row] for row in rows.tolist()]


Method = Callable[[Setting, Answers, float, int], list[float | None]]  # thresholds by group


def each_group(adjacency: str) -> Method:
    """The panel: a claim for every group, which is hidden, or public."""

    def method(setting: Setting, mine: Answers, epsilon: float, split: int) -> list[float | None]:
        return _panel(setting, mine, epsilon, split, adjacency=adjacency, min_acceptance=0.05 * setting.share)

    return method


def all_groups(setting: Setting, mine: Answers, epsilon: float, split: int) -> list[float | None]:
    """The panel: one threshold for all groups."""
    floor = {"group_floor": "group"} if setting.span == "whole" else {}
    return _panel(setting, mine, epsilon, split, group_claim="all", **floor) * len(mine.names)


def _panel(setting: Setting, mine: Answers, epsilon: float, split: int, **choices: Any) -> list[float | None]:
    choices |= {"epsilon": epsilon, "groups": mine.names, "max_answers": setting.most, "group_span": setting.span}
    reg, records = registered(mine, split, setting.target, **choices)
    return thresholds(reg, decided(reg, records, np.random.default_rng([29, split])))


def one_each(privacy: bool) -> Method:
    """One certificate for each group, on its own answers: failure probability divided, and privacy too, or not."""

    def method(setting: Setting, mine: Answers, epsilon: float, split: int) -> list[float | None]:
        count, found = len(mine.names), list[float | None]()
        if privacy and not math.isinf(epsilon):
            epsilon = epsilon_tight(rho_tight(epsilon, DELTA) / count, DELTA)
        for group in range(count):
            part = mine.at(mine.group == group)
            reg, records = registered(
                part,
                split,
                setting.target,
                epsilon=epsilon,
                max_answers=_answers_each(part),
                failure_probability=FAILURE / count,
            )
            now = decided(reg, records, np.random.default_rng([29, split, group]))
            found += thresholds(reg, now)
        return found

    return method


def _answers_each(part: Answers) -> int:
    return int(np.bincount(part.source).max())


def overall(setting: Setting, mine: Answers, epsilon: float, split: int) -> list[float | None]:
    """One certificate of all answers; its threshold is everybody's."""
    reg, records = registered(mine, split, setting.target, epsilon=epsilon, max_answers=_answers_each(mine))
    return thresholds(reg, decided(reg, records, np.random.default_rng([29, split]))) * len(mine.names)


METHODS: dict[str, Method] = {
    "panel": each_group("replacement"),
    "panel, groups public": each_group("same-group"),
    "one each, all divided": one_each(True),
    "one each, groups public": one_each(False),
    "all groups": all_groups,
    "overall": overall,
}


def outcomes(setting: Setting, epsilon: float, splits: int) -> Iterator[Outcome]:
    """Every method's outcome for every group in every split."""
    for split in range(splits):
        mine, held = divided(setting.answers, split)
        for name, method in METHODS.items():
            if setting.spanning and name == "one each, groups public":
                continue  # a source is in several of the certificates: its privacy is divided, whatever is public
            try:
                found = method(setting, mine, epsilon, split)
            except FedsrcError:  # a group without development units cannot be planned by itself
                found = [None] * len(mine.names)
            for group, threshold in enumerate(found):
                yield _outcome(setting, epsilon, name, split, mine, held, group, threshold)


def _outcome(
    setting: Setting, epsilon: float, method: str, split: int, mine: Answers, held: Answers, group: int,
    threshold: float | None,
) -> Outcome:  # fmt: skip
    own, out = mine.at(mine.group == group), held.at(held.group == group)
    value = math.inf if threshold is None else threshold
    accepted = out.score >= value
    risk = table_risk(np.append(own.score, out.score), np.append(own.loss, out.loss), value)
    return Outcome(
        setting.name, words(epsilon), method, split, mine.names[group], threshold is not None,
        -1.0 if threshold is None else threshold, float(np.mean(own.score >= value)), int(accepted.sum()),
        int(out.loss[accepted].sum()), risk,
    )  # fmt: skip


def table_risk(score: Floats, loss: Floats, threshold: float) -> float:
    """The share of unsupported answers among those that a threshold accepts; 0 if there are none."""
    accepted = score >= threshold
    return float(loss[accepted].mean()) if accepted.any() else 0.0


@cache
def settings(folder: Path) -> tuple[Setting, ...]:
    """All tables of the study."""
    found = []
    for detector in DETECTORS:
        found.append(Setting(f"RAGTruth by task, {detector}", ragtruth(folder, detector, "task_type"), 6))
    model = ragtruth(folder, DETECTORS[0], "model")
    found.append(Setting(f"RAGTruth by generator, {DETECTORS[0]}, whole", model, 6, "whole"))
    found.append(Setting(f"RAGTruth by generator, {DETECTORS[0]}, shares", model, 6))
    found.append(Setting("HaluEval by task, window", halueval("window"), 2))
    higher = ragtruth(folder, DETECTORS[0], "task_type")
    found.append(Setting(f"RAGTruth by task, {DETECTORS[0]}, target 0.4", higher, 6, target=0.4))
    return tuple(found)


def by_group(frame: pl.DataFrame) -> Iterator[list[str]]:
    """Per setting, group and method: percent certified / mean acceptance in the group, at every epsilon."""
    keys = ["setting", "group", "method"]
    for (setting, group, method), part in frame.group_by(keys, maintain_order=True):
        cells = []
        for epsilon in map(words, EPSILONS):
            some = part.filter(pl.col("epsilon") == epsilon)
            cells.append(_cell(some))
        yield [
            str(setting),
            str(group),
            str(method),
            *cells,
            held_out(part),
            above(part, 0.4 if str(setting).endswith("0.4") else 0.2),
        ]


def _cell(some: pl.DataFrame) -> str:
    if some.is_empty():
        return ""
    return f"{100 * mean(some['certified']):.0f} / {mean(some['acceptance']):.2f}"


def mean(column: pl.Series) -> float:
    """The mean of a column that is not empty."""
    return float(np.mean(column.to_numpy()))


def above(part: pl.DataFrame, target: float) -> str:
    """Of how many certificates the risk in the whole table is above the target."""
    return f"{int((part['risk'] > target).sum())} of {int(part['certified'].sum())}"


def held_out(part: pl.DataFrame) -> str:
    """The share of unsupported answers among all that were accepted in held-out parts."""
    accepted = int(part["accepted"].sum())
    return f"{part['unsupported'].sum() / accepted:.3f}" if accepted else "–"


def paired(frame: pl.DataFrame) -> Iterator[list[str]]:
    """Per setting and epsilon: splits and groups that only the panel certifies, and that only the others do."""
    wide = frame.pivot("method", index=["setting", "epsilon", "split", "group"], values="certified")
    for (setting, epsilon), part in wide.group_by(["setting", "epsilon"], maintain_order=True):
        cells = []
        for mine, other in (("panel", "one each, all divided"), ("panel, groups public", "one each, groups public")):
            if part[other].null_count():
                cells.append("")
                continue
            more = int((part[mine] & ~part[other]).sum())
            less = int((~part[mine] & part[other]).sum())
            cells.append(f"{more} : {less}")
        yield [str(setting), str(epsilon), str(part.height), *cells]


def far_above(frame: pl.DataFrame) -> Iterator[list[str]]:
    """Where the overall certificate is there and a group's held-out risk at its threshold is far above the target."""
    some = frame.filter((pl.col("method") == "overall") & pl.col("certified") & (pl.col("epsilon") == "4"))
    totals = some.group_by(["setting", "group"], maintain_order=True).agg(
        pl.len(), pl.col("accepted").sum(), pl.col("unsupported").sum(), pl.col("acceptance").mean()
    )
    whole = some.group_by("setting", maintain_order=True).agg(
        (pl.col("unsupported").sum() / pl.col("accepted").sum()).alias("whole")
    )
    joined = totals.join(whole, on="setting").with_columns((pl.col("unsupported") / pl.col("accepted")).alias("risk"))
    target = pl.when(pl.col("setting").str.ends_with("0.4")).then(0.4).otherwise(0.2)
    joined = joined.with_columns((pl.col("risk") - target).alias("beyond"))
    worst = joined.filter((pl.col("beyond") > FAR) & (pl.col("accepted") >= 200)).sort("beyond", descending=True)
    for row in worst.iter_rows(named=True):
        yield [
            row["setting"], str(row["len"]), f"{row['whole']:.3f}", row["group"], f"{row['risk']:.3f}",
            f"{row['acceptance']:.2f}", str(row["accepted"]),
        ]  # fmt: skip


def costs(frame: pl.DataFrame) -> Iterator[list[str]]:
    """Per setting and epsilon: how often one threshold for all groups, and an overall one, is certified, and the mean
    acceptance of each beside that of the panel."""
    for (setting, epsilon), part in frame.group_by(["setting", "epsilon"], maintain_order=True):
        cells = [_cell(part.filter(pl.col("method") == method)) for method in ("overall", "all groups", "panel")]
        yield [str(setting), str(epsilon), *cells]


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("error: no data folder\nhint: the first argument is the folder that holds ragtruth/")
    splits = int(sys.argv[2]) if len(sys.argv) > 2 else SPLITS
    rows = list[Outcome]()
    for setting in settings(Path(sys.argv[1])):
        for epsilon in EPSILONS:
            rows += outcomes(setting, epsilon, splits)
            print(setting.name, words(epsilon), file=sys.stderr, flush=True)
    pl.DataFrame(rows, schema=list(Outcome._fields), orient="row").write_csv(OUTCOMES, compression="gzip")
    publish("panels.md", page(pl.read_csv(OUTCOMES, schema_overrides={"epsilon": pl.String})))


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page that the outcomes make."""
    epsilons = [words(each) for each in EPSILONS]
    splits = int(frame["split"].n_unique())
    return [
        "# Is it safe for each group?",
        TEXT.format(splits=splits),
        "## By group",
        "Percent of splits in which the group is certified / mean acceptance within the group (none counts as 0); the"
        " share of unsupported answers among all that were accepted in held-out parts; and of how many certificates"
        " the risk in the whole table is above the target (not for *overall*, which makes no claim of groups).",
        markdown(["table", "group", "method", *(f"epsilon {each}" for each in epsilons), "held-out risk",
                  "above target"], by_group(frame)),
        "## Beside one certificate for each group",
        "Groups in splits that only the panel certifies : that only the other way does, on the same splits.",
        markdown(["table", "epsilon", "groups x splits", "panel : one each, all divided",
                  "both with public groups"], paired(frame)),
        "## What one threshold for all groups costs",
        "Percent certified / mean acceptance over groups and splits. At 0.2 no threshold is good for every task or"
        " generator, and nothing else can be shown; at 0.4 one is.",
        markdown(["table", "epsilon", "overall", "all groups", "panel, each its own"], costs(frame)),
        "## Where the whole hides a group",
        "At epsilon 4: where the overall certificate was issued in some splits, and the held-out risk of one group at"
        f" its threshold is more than {100 * FAR:.0f} points above the target. Nothing is wrong with those"
        " certificates; they do not speak of groups.",
        markdown(["table", "splits certified", "held-out risk, all", "group", "held-out risk, group",
                  "acceptance in it", "held-out answers"], far_above(frame)),
    ]  # fmt: skip


TEXT = """`python -m research.studies.panels FOLDER`, where FOLDER holds `ragtruth/detector_scores.csv.gz`; outcomes of
every split are in `research/results/panels.csv.gz`.

Target 0.2, but where another is named, {splits} splits: a fifth of the sources is held out, about a quarter of the
rest develops (its labels are declared public), the others calibrate, each once, with whole sources protected (epsilon
for replacement). Certificates are sealed, with one look, planned on the development part, and decided by the shipped
code with seeded noise. RAGTruth's test split has 450 sources with six answers each, of one task; its six generators
answer every source, so that a source counts whole in six groups, or by shares. HaluEval: 600 sources of each task with
two answers, by the score `window`; half of the answers are made up, and length alone tells many of them.

The panel hides which group a source is of; *groups public* protects it among sources of the same groups
(`--adjacency same-group`). *One each, all divided*: a certificate for each group, with the failure probability and the
privacy (zCDP) divided by the number of groups, as registrations on the same sources add up. *One each, groups public*,
where each source is in one group: its privacy is not divided. Splits are few: some percent are noise. They share
one table, so that what a good calibration part leaves to be held out is worse than the table."""


if __name__ == "__main__":
    main()
