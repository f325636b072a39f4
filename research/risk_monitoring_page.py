"""fedsrc's monitor beside MAPIE's and GLIDE's on the same streams: false alarms, and how soon a change shows.

Writes docs/results/risk-monitoring.md, and every stream's outcome to research/results/risk_monitoring.csv.gz. Run:
python -m research.benchmarks.risk_monitoring PYTHON  (an interpreter, 3.12 or later, that has glide-py 0.11.0)
Without PYTHON the page is written again, from the outcomes that are there.
"""

from __future__ import annotations

import gzip
import io
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.binomial import clopper_pearson
from fedsrc.planning.register import Choices, register_grid
from fedsrc.server.bounds import Sample, look
from fedsrc.server.tally import masses
from research.pages import FIGURES, ROOT, markdown, publish
from research.risk_monitoring import (
    LEVEL,
    LINE,
    NEVER,
    SCENES,
    SITES,
    Scene,
    Stream,
    all_rows,
    draw,
    first_answers,
    monitors,
    rung_by_mapie,
    scaled,
    thinned,
)  # fmt: skip

OUTCOMES = FIGURES / "risk_monitoring.csv.gz"
PAGE = "risk-monitoring.md"
STILL, CHANGED, BLOCK, CHECKED = 5_000, 1_000, 500, 2
CLAIMS, JUDGED = 5_000, 2_000
FINDS, MISTAKES = 0.8, 0.1  # of the judge: of unsupported answers, and of supported ones
RECORDS = ((0.2, 300), (0.1, 300), (0.05, 300), (0.05, 100))  # target, labelled answers
Row = tuple[str, str, str, int]  # part, setting, monitor, outcome
NONE = "fedsrc"
SPELL = "0.15, but 0.4 for 500 answers after 2,000"
PLAIN = ("MAPIE 0.05", "MAPIE 0.2", "GLIDE 0.05")


# ---------------------------------------------------------------- what was measured


def peer(python: str, **given: Any) -> Floats:
    """What GLIDE says, in its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        into, out = Path(folder, "in.npz"), Path(folder, "out.npy")
        np.savez(into, **given)
        subprocess.run([python, str(ROOT / "research" / "peers" / "glide_side.py"), str(into), str(out)], check=True)
        return np.asarray(np.load(out), dtype=np.float64)


def by_glide(python: str, rows: Bools, batch: int) -> Ints:
    """Answers until GLIDE's monitor rings, per stream."""
    first = peer(python, rows=rows.astype(np.int8), batch=batch, line=LINE, level=LEVEL)
    return np.where(first < 0, NEVER, (first + 1) * batch).astype(np.int64)


def glide_monitors(python: str, scene: Scene, stream: Stream) -> Iterator[tuple[str, Ints]]:
    """GLIDE's monitor, on all rows and on those that its assumptions allow."""
    yield "GLIDE 0.05", by_glide(python, all_rows(stream), scene.per_round)
    units = sum(scene.slots)
    if scene.answers > 1:
        found = by_glide(python, first_answers(stream), units)
        yield "GLIDE 0.05, one answer per source", scaled(found, scene.answers)
    if scene.weights:
        least = min(scene.slots) * SITES
        yield "GLIDE 0.05, thinned", scaled(by_glide(python, thinned(scene, stream), least), units / least)


def watched(scene: Scene, place: int, python: str) -> Iterator[Row]:
    """Every stream of a scene through every monitor; MAPIE's own class confirms some of them."""
    trials = STILL if scene.change is None else CHANGED
    for block in range(trials // BLOCK):
        rng = np.random.default_rng([50, place, block])
        stream = draw(scene, BLOCK, rng)
        found = [*monitors(scene, stream, rng), *glide_monitors(python, scene, stream)]
        for name, level in (("MAPIE 0.05", 0.05), ("MAPIE 0.2", 0.2)):
            for i, row in enumerate(all_rows(stream)[: CHECKED if block == 0 else 0]):
                assert rung_by_mapie(row, level) == dict(found)[name][i], "MAPIE's class rings elsewhere"
        for name, first in found:
            for answers in first:
                yield scene.part, scene.name, name, int(answers)


def claims(python: str) -> Iterator[Row]:
    """On labelled and judged answers at one threshold: 1 where the risk is claimed to be at most the target, -1 where
    no interval is given. The risk is the target, or half of it."""
    for place, (target, labelled) in enumerate(RECORDS):
        reg = register_grid(Choices(target, math.inf, grid=True, thresholds=1), ("a",))
        for risk in (target, target / 2):
            rng = np.random.default_rng([60, place, int(risk < target)])
            bad = rng.random((CLAIMS, JUDGED)) < risk
            judge = rng.random(bad.shape) < np.where(bad, FINDS, MISTAKES)
            labels = np.where(np.arange(JUDGED) < labelled, bad, np.nan)
            upper = peer(python, labels=labels, judge=judge.astype(np.int8), level=LEVEL)
            n = bad[:, :labelled].sum(axis=1)
            bins = np.stack([0 * n, labelled - n, 0 * n, n], axis=-1).reshape(-1, 2, 2)
            ours = look(reg, Sample(masses(reg, reg.mechanism.basis.encode(bins), 0.0), labelled, 0.0)).certified[:, 0]
            said = np.where(np.isnan(upper), -1, (upper <= target).astype(np.int64))
            for name, found in (("GLIDE", said), (NONE, ours.astype(np.int64))):
                for each in found:
                    yield "claims", f"{target:g}, {labelled}, {risk:g}", name, int(each)


def outcomes(python: str) -> pl.DataFrame:
    rows: list[Row] = []
    for place, scene in enumerate(SCENES):
        rows.extend(watched(scene, place, python))
        print(scene.part, scene.name, file=sys.stderr, flush=True)
    rows.extend(claims(python))
    return pl.DataFrame(rows, schema=["part", "setting", "monitor", "outcome"], orient="row")


def write(frame: pl.DataFrame) -> None:
    """One line for a monitor in a setting, outcomes in the order of trials; the same bytes for the same outcomes."""
    line = pl.col("outcome").cast(pl.String).str.join(" ")
    text = io.BytesIO()
    frame.group_by("part", "setting", "monitor", maintain_order=True).agg(line).write_csv(text)
    OUTCOMES.write_bytes(gzip.compress(text.getvalue(), mtime=0))


def read() -> pl.DataFrame:
    frame = pl.read_csv(gzip.decompress(OUTCOMES.read_bytes()))
    return frame.with_columns(pl.col("outcome").str.split(" ").cast(pl.List(pl.Int64))).explode("outcome")


# ---------------------------------------------------------------- the page


class Found:
    """Outcomes by part, setting and monitor."""

    def __init__(self, frame: pl.DataFrame) -> None:
        groups = frame.partition_by(["part", "setting", "monitor"], as_dict=True, maintain_order=True)
        self.of = {tuple(map(str, key)): part["outcome"].to_numpy() for key, part in groups.items()}

    def settings(self, part: str) -> list[str]:
        return list(dict.fromkeys(key[1] for key in self.of if key[0] == part))

    def monitors(self, part: str) -> list[str]:
        """MAPIE's first, then GLIDE's, then ours."""
        names = dict.fromkeys(key[2] for key in self.of if key[0] == part)
        return sorted(names, key=lambda name: ("MAPIE", "GLIDE", "fedsr").index(name[:5]))

    def rang(self, part: str, setting: str, monitor: str) -> tuple[int, int]:
        found = self.of[part, setting, monitor]
        return int((found != NEVER).sum()), found.size

    def delays(self, part: str, setting: str, monitor: str) -> tuple[Floats, int]:
        """Answers from the change to the alarm, infinite without one, and how many had rung before."""
        scene = next(each for each in SCENES if (each.part, each.name) == (part, setting))
        found, at = self.of[part, setting, monitor], (scene.change or 0) * scene.per_round
        early = (found != NEVER) & (found <= at)
        return np.where(found == NEVER, np.inf, found - at)[~early], int(early.sum())

    def median(self, setting: str, monitor: str, part: str = "delay") -> float:
        return quartiles(self.delays(part, setting, monitor)[0])[1]


def quartiles(delays: Floats) -> list[float]:
    return [float(each) for each in np.quantile(delays, [0.25, 0.5, 0.75], method="inverted_cdf")]


def told(number: float) -> str:
    return "never" if math.isinf(number) else f"{number:,.0f}"


def still_rows(found: Found, part: str) -> list[list[str]]:
    rows = []
    for setting in found.settings(part):
        for monitor in found.monitors(part):
            rang, runs = found.rang(part, setting, monitor)
            low, high = clopper_pearson(rang, runs, 0.05)
            rows.append([setting, monitor, f"{rang:,}", f"[{low:.4f}, {high:.4f}]"])
    return rows


def delay_table(found: Found, part: str) -> str:
    names, rows = found.monitors(part), []
    for setting in found.settings(part):
        cells = []
        for name in names:
            delays, early = found.delays(part, setting, name)
            low, middle, high = quartiles(delays) if delays.size else [math.inf] * 3
            before = f"; {early:,} before" if early else ""
            cells.append(
                f"{told(middle)} [{told(low)}, {told(high)}]{before}" if delays.size else f"all {early:,} before"
            )
        rows.append([setting, *cells])
    return markdown(["risk", *names], rows)


def transposed(found: Found, part: str) -> str:
    """One setting with many monitors: a row for each."""
    rows = []
    for setting in found.settings(part):
        for name in found.monitors(part):
            delays, early = found.delays(part, setting, name)
            low, middle, high = (told(each) for each in quartiles(delays)) if delays.size else ("none left",) * 3
            rows.append([setting, name, middle, f"{low} to {high}", f"{early:,}"])
    return markdown(["risk", "monitor", "median", "quartiles", "rang before"], rows)


def claim_rows(found: Found) -> list[list[str]]:
    rows = []
    for target, labelled in RECORDS:
        for risk in (target, target / 2):
            setting = f"{target:g}, {labelled}, {risk:g}"
            glide, ours = (found.of["claims", setting, name] for name in ("GLIDE", NONE))
            low, high = clopper_pearson(int((glide == 1).sum()), glide.size, 0.05)
            rows.append([
                f"{target:g}", str(labelled), f"{risk:g}", f"{(glide == 1).sum():,}", f"[{low:.4f}, {high:.4f}]",
                f"{(glide == -1).sum():,}", f"{(ours == 1).sum():,}",
            ])  # fmt: skip
    return rows


ASSUMES = (
    ["what must hold for an alarm to be false", "in every round the risk, by the sites' weights, is at most the line",
     "after every answer the mean risk *of all answers so far* is at most the threshold",
     "after every batch the mean of all batch means so far is at most the threshold"],
    ["what it needs", "units independent given the past; a source with all its answers can be the unit; sites may"
     " differ, and laws may change", "losses that occur or not; each answer's risk given all answers before it, so not"
     " several answers of one source. Sites have no place in it. (The class names no assumption; this is what the"
     " theorem behind its bound needs.)", "batches of tens of independent answers, so that their means are nearly"
     " normal"],
    ["what is guaranteed", "probability of any alarm at most 0.05, at any sample size; or a mean run length",
     "the same probability, at any sample size. Of `test_level` a quarter is used: half goes to a reference set, even"
     " where a threshold is given, and half of the rest to the other side. We ran 0.05, its default, and 0.2, which"
     " spends the 0.05 that ours does", "the probability `1 - confidence_level`, asymptotically; 0.2 by default, 0.05"
     " here"],
    ["the evidence", "bets on a risk above the line, begun anew in every round",
     "an empirical Bernstein confidence sequence of the mean (conjugate mixture, tuned to intrinsic time 1), begun"
     " once",
     "a normal-mixture asymptotic confidence sequence of the mean, tuned to batch 10, begun once"],
    ["when it looks", "after every round", "after every answer", "after every batch"],
    ["its line", "the certified target", "given by us: the certified target. By itself it takes a Hoeffding bound on a"
     " reference set, plus a tolerance of 0.05", "given"],
    ["privacy", "each unit, by noise at its site", "none", "none"],
)  # fmt: skip


def lead(found: Found) -> str:
    line, first = found.settings("null")[0], "0.8 from the first answer"
    alike, pooled = found.settings("sources")[0], found.settings("sites")[0]
    counts = {name: found.rang("null", line, name)[0] for name in found.monitors("null")}
    changes = [each for each in found.settings("delay") if each != SPELL]
    medians = {name: [found.median(each, name) for each in changes] for name in found.monitors("delay")}
    others = [min(each) for each in zip(*(medians[name] for name in PLAIN), strict=True)]
    later = {
        name: sum(ours > other for ours, other in zip(medians[name], others, strict=True))
        for name in (NONE, "fedsrc, epsilon 4", "fedsrc, epsilon 1")
    }
    few = "0.05, from 300 labels"
    right = [int((found.of["claims", "0.05, 300, 0.025", name] == 1).sum()) for name in ("GLIDE", NONE)]
    late, many = "0.15 for 10,000 answers, then 0.3", len(changes)
    return (
        f"The monitors of fedsrc, MAPIE 1.6.0 (`RiskMonitoring`) and GLIDE 0.11.0 (`AsymptoticClassicalRM`) watched the"
        f" same streams of accepted, labelled answers, against a line of {LINE}.\n\n"
        f"**Where fedsrc loses.** Exactly at the line it rang falsely in {counts[NONE]:,} of {STILL:,} streams, MAPIE"
        f" in {counts[PLAIN[0]]:,} (in {counts[PLAIN[1]]:,} where it spends the same level); GLIDE in"
        f" {counts['GLIDE 0.05']:,}. {0.05 * STILL:,.0f} are allowed. It looks after whole rounds: at a risk of"
        f" {first}, in rounds of 100, it needs {told(found.median(first, NONE))} answers, MAPIE"
        f" {told(found.median(first, PLAIN[0]))} or {told(found.median(first, PLAIN[1]))}. Privacy costs: by the"
        f" median, fedsrc was later than the soonest of the others, which have none, in {later[NONE]} of {many}"
        f" changes without noise, in {later['fedsrc, epsilon 4']} at epsilon 4 and in {later['fedsrc, epsilon 1']} at"
        f" epsilon 1. Told that answers of one source are independent when they are all alike, it is the worst of all:"
        f" {found.rang('sources', alike, 'fedsrc, answers as units')[0]:,} false alarms, MAPIE"
        f" {found.rang('sources', alike, PLAIN[0])[0]:,}. And it rings for good at a bad spell that the mean so far"
        f" forgives. As for claims, GLIDE's interval, helped by a judge, showed a risk of half the target ({few}) in"
        f" {right[0]:,} of {CLAIMS:,} tables, a certificate in {right[1]:,}.\n\n"
        f"**Where it wins.** MAPIE and GLIDE watch the mean since deployment, and good answers outweigh bad ones for"
        f" long: {late}, took MAPIE {told(found.median(late, PLAIN[0]))} answers, GLIDE"
        f" {told(found.median(late, 'GLIDE 0.05'))} and fedsrc {told(found.median(late, NONE))}"
        f" ({told(found.median(late, 'fedsrc, epsilon 4'))} at epsilon 4). With sources as units, and with sites that"
        f" differ, fedsrc keeps its guarantee. MAPIE, given the rows as they come, rang falsely in"
        f" {found.rang('sources', alike, PLAIN[0])[0]:,} and {found.rang('sites', pooled, PLAIN[0])[0]:,} of {STILL:,}"
        f" streams; given rows that fit its assumptions, it keeps its guarantee too, and is later than"
        f" fedsrc without noise or at epsilon 4. GLIDE's claims are false more often than it allows."
    )


def page(frame: pl.DataFrame) -> list[str]:
    found = Found(frame)
    names = ["", "fedsrc", "MAPIE `RiskMonitoring`", "GLIDE `AsymptoticClassicalRM`"]
    still = ["risk", "monitor", f"false alarms of {STILL:,}", "95% interval"]
    return [
        "# Risk monitors side by side",
        lead(found),
        "## What each asks and assumes",
        "From their source. The first row makes the difference: where a change comes late, or passes, they are not"
        " asked the same.",
        markdown(names, ASSUMES).replace("---:", "---"),
        "Two more of MAPIE's are another question. `OnlineMartingaleTest` bets on conformal p-values against"
        " exchangeability of features and labels: it may ring at any change, for better or worse, and names no risk."
        " Adaptive risk control (`ConditionalExpectedRiskController`) fits a parameter that depends on the input, so"
        " that a monotone risk meets its target on average: it sets a threshold, and watches nothing.",
        "Privacy is fedsrc's alone: MAPIE and GLIDE take answers, and noised sums are outside what they are made for,"
        " so they were not fed with any. GLIDE's `AsymptoticPPRM`, which adds a judge's verdicts on answers without"
        " labels, was not run either: fedsrc has nothing like it.",
        "## False alarms",
        f"{STILL:,} streams of 10,000 answers; 5 sites alike send 20 answers each in a round of 100 (GLIDE: a batch)."
        f" The number after a name is `test_level`, or one less `confidence_level`; fedsrc may ring with probability"
        f" {LEVEL}. Epsilon is for a unit being this one or any other, with delta 1e-6 and noise at every site;"
        " without it there is none.",
        markdown(still, still_rows(found, "null")),
        "## From a change to its alarm",
        f"Answers from the first one above the line: median and [quartiles] of {CHANGED:,} streams that end 10,000"
        " answers after a change (7,500 after the slow one). 'Before': streams that had rung by then, left out. In"
        " rounds of 100 no delay is shorter than 100.",
        delay_table(found, "delay"),
        "## Sources with several answers",
        f"{STILL:,} streams of 20,000 answers, five of every source, 500 a round. fedsrc with sources as units, as it"
        " asks for; and, wrongly, with answers as units. A remedy for the others is one answer of every source."
        " At the lower correlation the quarter of its level that MAPIE spends all but makes up for it.",
        markdown(still, still_rows(found, "sources")),
        f"And after a change, in {CHANGED:,} streams that end 18,000 answers later:",
        transposed(found, "sources delay"),
        "## Sites that differ",
        f"Risks 0.05 to 0.40 at five sites of equal weight that send 10, 40, 10, 30 and 10 answers a round: {STILL:,}"
        " streams of 10,000 answers. The others see one stream; a remedy is to thin it to 10 answers of each site.",
        markdown(still, still_rows(found, "sites")),
        f"And after a change at every site, in {CHANGED:,} streams that end 10,000 answers later. Medians of monitors"
        " that rang before in many streams are of those left:",
        transposed(found, "sites delay"),
        "## GLIDE's interval, and a certificate",
        f"GLIDE's main offer is another: an interval for a mean from few labels and many judged records"
        f" (prediction-powered, asymptotic). {CLAIMS:,} tables of {JUDGED:,} accepted answers, of which the first are"
        f" labelled; a judge flags {FINDS:.0%} of the unsupported and {MISTAKES:.0%} of the supported ones. GLIDE"
        f" claims the target where the upper end of its 90% interval (5% above) is at most the target; fedsrc where"
        f" its open certificate without noise does, from the labelled answers alone, of which it could be asked again"
        f" at any time. Where the risk is the target every claim is false, and 5% are allowed ({0.05 * CLAIMS:,.0f});"
        f" where it is half the target, claims are right. **GLIDE makes many more right claims, and in every setting"
        f" more false ones than it allows: the more, the smaller the risk and the fewer the labels.**",
        markdown(["target", "labelled", "risk", f"GLIDE: claims of {CLAIMS:,}", "95% interval", "GLIDE: no interval",
                  f"fedsrc: claims of {CLAIMS:,}"], claim_rows(found)),
        "Made by `python -m research.benchmarks.risk_monitoring PYTHON`, where PYTHON is an interpreter (3.12 or later)"
        " with the package `glide-py` 0.11.0; MAPIE is among the test requirements. Seeds are fixed. Every stream's"
        " outcome (answers until the alarm, -1 without one; a claim 1, none 0) is in"
        " `research/results/risk_monitoring.csv.gz`. Decisions of fedsrc are those of `fedsrc.server.alarm`,"
        f" registered as `fedsrc monitor --sample accepted` does; those of MAPIE come from its own bound, and its"
        f" class itself rang at the same answer in the first {CHECKED} streams of every setting. Intervals of shares"
        " are exact (Clopper-Pearson).",
    ]  # fmt: skip


def main() -> None:
    if len(sys.argv) > 1:
        write(outcomes(sys.argv[1]))
    publish(PAGE, page(read()))


if __name__ == "__main__":
    main()
