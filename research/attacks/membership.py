"""A membership attack on real releases of two neighbouring tables, the whole path: file, cap, split, ledger, noise.

A fair coin per release decides which of two files a site answers from, each time with a ledger of its own. The
attacker knows both files and the registration, and says by the likelihood ratio, the best attack there is
(`research.membership`), which file it was.
"""

from __future__ import annotations

import math
from contextlib import closing, nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.maths.binomial import clopper_pearson
from fedsrc.planning.register import Choices, development_part, register
from fedsrc.protocol.messages import Request, parse_release
from fedsrc.protocol.registration import Registration
from fedsrc.records import units
from fedsrc.records.development import calibrating
from fedsrc.records.masses import histogram
from fedsrc.records.table import read_records
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from fedsrc.site.site import Site, open_sites
from research import membership
from research.attacks.old_rules import by_row_number, instead
from research.attacks.sections import Record, Row, Section, control, in_blocks, recorded, some
from research.membership import Worlds
from research.pages import markdown

RELEASES, FEW, BLOCK, FAILURE = 8_000, 400, 50, 1e-6
EPSILON, DELTA = 1.0, 1e-6
SMALL, LARGE = 100, 4_000  # sources
VICTIM = "bb"  # calibrates under the seed of these tables
ALIKE = (["0.9,0"], ["0.9,0", "0.9,0"])  # one answer, or two alike
WORST = (["0,0"] * 3, ["0.999,1"] * 3)  # three answers below every threshold, or as bad as can be
Change = tuple[list[str], list[str]]


class Played(NamedTuple):
    """The attacker's evidence from each release, the coin, and how far the files' exact integers are apart."""

    evidence: Floats
    coins: Bools
    apart: float


def tables(folder: Path, change: Change, sources: int) -> tuple[Path, Path]:
    """Two files that differ in the rows of one source."""
    rng, others = np.random.default_rng(4), []
    for source in range(sources):
        for loss in (rng.random(10) < 0.5).astype(int):
            others.append(f"s{source:04d},{rng.uniform(0, 0.3) if loss else rng.uniform(0.7, 1):.4f},{loss}")
    paths = folder / "absent.csv", folder / "present.csv"
    for path, own in zip(paths, change, strict=True):
        lines = ["source,score,loss", *(f"{VICTIM},{each}" for each in own), *others]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


def registered(path: Path) -> Registration:
    """Sources of up to three answers at epsilon 1; a fifth of the sources is set apart."""
    records = read_records(path)
    choices = Choices(0.2, EPSILON, delta=DELTA, adjacency="zero-out", grid=True, unit="source", max_answers=3)
    return register(choices, records, development_part(records, "source", 0.2))


def worlds(reg: Registration, paths: tuple[Path, Path]) -> Worlds:
    """What the attacker knows: the exact integers of both files."""
    absent, present = (histogram(reg, calibrating(reg, read_records(path))["local"]) for path in paths)
    rule = reg.mechanism
    baseline = rule.basis.encode(absent)
    return Worlds(absent, present, baseline, rule.basis.encode(present) - baseline, rule.scale)


def released(reg: Registration, path: Path, ledger: Path) -> Ints:
    """The site's one release of all units of a file."""
    with closing(Ledger(ledger)) as book:
        (site,) = open_sites(reg, read_records(path), book)
        allow(book, site.name, reg)
        found = parse_release(site.answer(_request(reg, site)))
    return np.asarray([found.first, found.second])


def _request(reg: Registration, site: Site) -> Request:
    scale = reg.mechanism.scale
    return Request(registration=reg.digest, number=1, round=1, site="local", slots=site.intake.units, scale=scale)


def play(change: Change, sources: int, count: int, folder: Path, *, old: bool = False) -> Played:
    """So many releases of one or the other file, and what the attacker makes of them."""
    with instead(units, "_by_source", by_row_number) if old else nullcontext():
        paths = tables(folder, change, sources)
        reg = registered(paths[0])
        pair, coins = worlds(reg, paths), membership.fair_coins(count)
        seen = [released(reg, paths[int(coin)], folder / f"{i}.ledger") for i, coin in enumerate(coins)]
    apart = pair.distance / reg.mechanism.sensitivity
    evidence = membership.evidence(pair, np.asarray(seen)) if apart else np.zeros(count)
    return Played(evidence, coins, apart)


def _alike(_: int, count: int, folder: Path) -> Played:
    return play(ALIKE, LARGE, count, folder)


def _alike_old(_: int, count: int, folder: Path) -> Played:
    return play(ALIKE, LARGE, count, folder, old=True)


def _worst(_: int, count: int, folder: Path) -> Played:
    return play(WORST, SMALL, count, folder)


GAMES = {"alike": (_alike, FEW), "alike_old": (_alike_old, FEW), "worst": (_worst, RELEASES)}


def run(scale: float = 1.0) -> Record:
    """The three games: the old attack by the rule of now and of then, and the worst that one source can change."""
    return {name: _found(in_blocks(game, some(count, scale), BLOCK)) for name, (game, count) in GAMES.items()}


def _found(parts: list[Played]) -> Record:
    evidence, coins = (np.concatenate([getattr(part, name) for part in parts]) for name in ("evidence", "coins"))
    says_in = evidence >= 0
    audit = membership.audit(evidence, coins, DELTA, FAILURE)
    return {
        "releases": int(coins.size),
        "apart": parts[0].apart,
        "right": int((says_in == coins).sum()),
        "true_positives": int(says_in[coins].sum()),
        "present": int(coins.sum()),
        "false_positives": int(says_in[~coins].sum()),
        "rates": _rates(evidence, coins),
        "epsilon_at_least": min(audit.bounds.epsilon, 1e9),
        "rho_at_least": min(audit.bounds.rho, 1e9),
        "epsilon": EPSILON,
        "delta": DELTA,
    }


def _rates(evidence: Floats, coins: Bools) -> list[Record]:
    """True and false positive rates at thresholds fixed beforehand, with exact 99% intervals."""
    rows = []
    for at in (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0):
        says_in = evidence >= at
        hit, false = int(says_in[coins].sum()), int(says_in[~coins].sum())
        true, wrong = clopper_pearson(hit, int(coins.sum()), 0.01), clopper_pearson(false, int((~coins).sum()), 0.01)
        rows.append({"at": at, "true": list(true), "false": list(wrong)})
    return rows


def within(row: Record, epsilon: float, delta: float) -> bool:
    """Whether the intervals leave room for what (epsilon, delta) allows, of saying "in" and of saying "out"."""
    (true, _), (_, false) = row["true"], row["false"]
    more = math.exp(epsilon)
    return bool(true <= more * false + delta and 1 - false <= more * (1 - true) + delta)


def rows(record: Record) -> list[Row]:
    """The section's rows."""
    alike, old, worst = record["alike"], record["alike_old"], record["worst"]
    inside = sum(within(row, worst["epsilon"], worst["delta"]) for row in worst["rates"])
    return [
        Row(
            f"P1: which of two files was released; one of {LARGE:,} sources has an answer more; epsilon 1",
            control(f"right in {old['right']} of {old['releases']}") + "; " + recorded("398 of 400"),
            f"right in {alike['right']} of {alike['releases']}",
            "Half is a guess, and now nothing else is left. The exact integers are"
            f" {alike['apart']:.1f} sensitivities apart, before {old['apart']:.1f}.",
        ),
        Row(
            "P1: the same, with the worst that one source can change",
            "not tried",
            f"right in {worst['right']:,} of {worst['releases']:,}, at {inside} of {len(worst['rates'])} thresholds"
            " within the claim",
            f"The files are {worst['apart']:.2f} sensitivities apart. Epsilon 1 allows an attacker who always speaks"
            f" {math.exp(1) / (1 + math.exp(1)):.1%}.",
        ),
        Row(
            "The lower confidence bound on epsilon from those releases",
            control(f"{old['epsilon_at_least']:.2f} from {old['releases']} releases"),
            f"{worst['epsilon_at_least']:.2f} from {worst['releases']:,} releases, where 1 is claimed",
            f"Above 1 it would refute the claim; it holds with probability 1 - {FAILURE:g}.",
        ),
    ]


def more(record: Record) -> list[str]:
    """Rates by threshold."""
    worst = record["worst"]
    shown = [
        (
            f"{row['at']:g}",
            " to ".join(f"{each:.1%}" for each in row["true"]),
            " to ".join(f"{each:.1%}" for each in row["false"]),
            "yes" if within(row, worst["epsilon"], worst["delta"]) else "NO",
        )
        for row in worst["rates"]
    ]
    header = ('says "present" from evidence', "if present", "if absent", "allowed by (1, 1e-6)")
    return [f"How often the attacker said \"present\" in those {worst['releases']:,} releases, 99% Clopper-Pearson"
            " intervals:", markdown(header, shown)]  # fmt: skip


SECTION = Section("membership", "Membership, from two neighbouring files", run, rows, more)
