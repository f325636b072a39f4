"""Sealed certificates at the boundary: what may fail, how close it comes, and rules that do fail.

Thresholds have a risk of exactly the target (under the limits that the registration allows), so whatever is rejected is
a false claim. Only the risk budget of 0.045 counts. Lattice, noise scales, lines and charges are those of the product.

Writes docs/results/sealed-validity.md and its counts, research/results/sealed_validity.parquet.
Run: python -m research.benchmarks.sealed_validity
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import binom

from fedsrc.maths.arrays import Bools, Floats
from fedsrc.planning.plan import Wish, plan
from fedsrc.planning.register import Choices, register_grid
from fedsrc.planning.sealing import Seal, seal
from fedsrc.protocol.protection import Noised
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import contrasts
from fedsrc.server import sealed
from fedsrc.server.tally import empty, transfer
from fedsrc.simulate.population import Support, from_cells
from fedsrc.simulate.posterior import from_answers
from fedsrc.simulate.trials import discrete_gaussian
from fedsrc.site.develop import over_grid
from research import counted
from research.counted import Count
from research.pages import FIGURES, publish

TRIALS, ALPHA, BLOCK = 100_000, 0.045, 20_000
RECORDS = FIGURES / "sealed_validity.parquet"
NEAR = 1.0  # nats before its line, where a steered run with a hybrid line asks for one more round
THRESHOLDS, WEIGHTS = (0.4, 0.6, 0.8), (0.2, 0.3, 0.5)
UNLABELLED, RELEASES = 2_000, 20  # units of every site, and how many releases of them share the trials of a setting
PLANS, DRAWN, DEVELOPMENT = 50, 40, 200  # plans of a setting; each on the luckiest of so many draws of so many units


@dataclass(frozen=True)
class Setting:
    """A sealed registration, the laws of its sites, and how many slots each gives per round.

    less        the noise that is really added, as a share of what is stated
    steered     whoever sees the releases ends the rounds: as soon as a row is beyond its line, or, with a hybrid line,
                one round after it came near
    withheld    a release that looks worse than its charge is withheld; `margins` says whether the charge has them
    """

    name: str
    registration: Registration
    sites: Sequence[Support]
    slots: Sequence[Sequence[int]]
    less: float = 1.0
    steered: bool = False
    withheld: bool = False
    margins: bool = True
    null: tuple[int, ...] = (0, 1, 2, 3, 4)  # the thresholds whose rejection is false
    moving: bool = False  # only at the last look is the mixture at its target
    carried: bool = False  # what an earlier look rejected stays rejected, whatever the mixture


def registered(
    target: float = 0.2, epsilon: float = 1.0, *, bet: float = 0.28, looks: tuple[tuple[int, float], ...] = ((1, 1.0),),
    line: str = "exact", sites: tuple[str, ...] = ("a",), single: bool = False, **more: Any,
) -> Registration:  # fmt: skip
    """A sealed registration of three thresholds (or a single one) and one bet, a share of the largest."""
    settings: dict[str, Any] = {"batch": 400, "rounds": looks[-1][0], **more}
    base = register_grid(Choices(target_risk=target, epsilon=epsilon, grid=True, **settings), sites)
    fields = base.model_dump()
    fields["privacy"]["adjacency"] = "replacement"
    values, weights = ((0.8,), (1.0,)) if single else (THRESHOLDS, WEIGHTS)
    bets = (bet / (1 - target),) * len(values)
    made = Seal(values, weights, ((target, 1.0, bets),), looks, line)
    return seal(Registration.model_validate(fields), made)


def answers(reg: Registration, risk: float, *, all_accepted: bool = False) -> Support:
    """Single answers whose risk is the same at every threshold."""
    accepted = np.array([0.0, 0.0, 0.0, 1.0] if all_accepted else [0.2, 0.2, 0.2, 0.4])
    accepted = accepted[-len(reg.thresholds.values) - 1 :]
    return from_cells(reg, accepted * (1 - risk), accepted * risk)


def sources(reg: Registration, law: Floats) -> Support:
    """Sources of so many answers, all accepted everywhere; law[k] is the chance that k of them are unsupported."""
    g, k = reg.privacy.mass_grid, np.arange(law.size)
    masses = np.zeros((law.size, 2, 4), dtype=np.int64)
    masses[:, 1, 3] = g * k // (law.size - 1)
    masses[:, 0, 3] = g - masses[:, 1, 3]
    return Support(masses, law)


def rejected(setting: Setting, trials: int, rng: np.random.Generator) -> Bools:
    """Whether each trial rejects anything."""
    reg = setting.registration
    tests, rule = sealed.rows(reg), reg.mechanism
    atoms = [contrasts(rule.contrasts, site.masses).astype(np.float64) @ tests.slope.T for site in setting.sites]
    free, codes = sealed.method_of(reg).free, [contrasts(rule.contrasts, site.masses) for site in setting.sites]
    L, tally, taken = np.zeros((trials, tests.theta.size)), empty(reg), []
    sums = np.zeros((trials, sum(rule.lengths)), dtype=np.int64)
    done, last, over = (np.zeros(trials, dtype=np.bool_) for _ in range(3))
    hybrid = sealed.method_of(reg).line == "hybrid"
    for number, slots in enumerate(setting.slots, start=1):
        before = tally.noises
        for site, n in enumerate(slots):
            if not n:
                continue
            counts = rng.multinomial(n, setting.sites[site].law, trials)
            noise = discrete_gaussian(rng, rule.scale * setting.less, (trials, sum(rule.lengths)))
            added = counts @ atoms[site] + noise @ tests.slope.T
            if setting.withheld:
                margin = sealed.margins(reg, round(tally.noises) + 1, n).L if setting.margins else 0.0
                added = np.maximum(added, n * tests.least - margin)
            L, sums = L + added, sums + counts @ codes[site] + noise if free else sums
            grown = list(tally.slots)
            grown[site] += n
            tally = replace(tally, slots=tuple(grown), noises=tally.noises + 1)
        share = 1.0 if setting.steered else sealed.due(reg, number, over=False)
        if share is None:
            continue
        eta = transfer(reg, tally)
        look = sealed.Seen(
            share, tally.total, eta, L - tests.theta * tally.total * eta - tests.shift * tally.noises, L, L, L,
            before, tally.noises - before, *[np.ones((trials, len(reg.thresholds.values)))] * 2,
        )  # fmt: skip
        if free:
            look = sealed.see(reg, replace(tally, sums=sums), before, share)
        taken.append(look)
        if setting.steered:
            done = done | (sealed.reject(reg, [look]).any(axis=-1) & (last if hybrid else True))
            over = over | last
            near = sealed.lines(reg, look, tests.weight) - NEAR <= look.L
            last = near.any(axis=-1) & ~over
    if setting.steered:
        return done
    if reg.fixed_mixture or setting.carried:
        return np.asarray(sealed.reject(reg, taken)[:, setting.null[: len(reg.thresholds.values)]].any(axis=-1))
    null = taken[-1:] if setting.moving else taken
    return np.asarray(np.any([sealed.reject(reg, [look]).any(axis=-1) for look in null], axis=0))


def settings() -> list[Setting]:
    """What a sealed certificate covers, at its limits."""
    found = []
    for epsilon in (math.inf, 4.0, 1.0):
        reg = registered(epsilon=epsilon)
        found.append(Setting(f"single answers, epsilon {epsilon:g}", reg, [answers(reg, 0.2)], [[400]]))
    for target, bet in ((0.1, 0.38), (0.3, 0.19), (0.6, 0.1)):
        reg = registered(target, bet=bet)
        found.append(Setting(f"target {target}, epsilon 1", reg, [answers(reg, target, all_accepted=True)], [[400]]))
    kinds = {
        "sources of four answers alike": (binom.pmf(np.arange(5), 4, 0.2), 0.5),
        "sources unlike: all or nothing": (np.array([0.8, 0, 0, 0, 0.2]), 0.25),
        "graded losses in quarters": (np.array([0.5, 0.3, 0.1, 0.1, 0.0]), 0.4),
    }
    for name, (law, bet) in kinds.items():
        more = {"unit": "source", "max_answers": 4} if "sources" in name else {"loss_grid": 4}
        reg = registered(bet=bet, **more)
        found.append(Setting(f"{name}, epsilon 1", reg, [sources(reg, law)], [[400]]))
    three = registered(sites=("a", "b", "c"), looks=((1, 0.5), (2, 0.5)))
    laws = [answers(three, risk) for risk in (0.0, 0.2, 0.4)]
    found.append(Setting("three unlike sites, own noise, two looks", three, laws, [[130] * 3] * 2))
    moving = registered(sites=("a", "b"), looks=((1, 0.5), (2, 0.5)))
    found.append(Setting("a mixture that moves", moving, [answers(moving, r) for r in (0.0, 0.4)], [[400, 0], [0, 400]],
                         moving=True))  # fmt: skip
    hybrid = registered(sites=("a", "b"), policy="recruit", line="hybrid", looks=((20, 1.0),))
    found.append(Setting("recruitment and arrivals steered, hybrid line", hybrid, [answers(hybrid, 0.2)] * 2,
                         [[40, 0], [0, 40]] * 10, steered=True))  # fmt: skip
    drift = registered(0.5, drift={"a": 0.1}, bet=0.12)
    found.append(Setting("drift at its limit", drift, [answers(drift, 0.4, all_accepted=True)], [[400]]))
    shift = registered(0.5, sites=("a", "b"), weights={"a": 0.5, "b": 0.5}, bet=0.15)
    laws = [answers(shift, risk, all_accepted=True) for risk in (0.1, 0.9)]
    found.append(Setting("transfer at its limit", shift, laws, [[240, 160]]))
    lost = registered(dropout="adversarial", capacities={"a": 400}, looks=((100, 1.0),), bet=0.1)
    found.append(Setting("releases withheld after they were seen, charged", lost, [answers(lost, 0.2)], [[4]] * 100,
                         withheld=True))  # fmt: skip
    looks = registered(looks=((1, 0.2), (2, 0.2), (4, 0.3), (8, 0.3)))
    found.append(Setting("four looks, recycling", looks, [answers(looks, 0.2)], [[100]] * 8))
    some = from_cells(looks, np.array([0.2, 0.06, 0.2, 0.38]), np.array([0.0, 0.09, 0.05, 0.02]))
    found.append(Setting("recycling: the lowest threshold alone is null", looks, [some], [[100]] * 8, null=(0,)))
    within = registered(0.02, 20.0, bet=0.9, single=True, line="within")
    rare = answers(within, 0.02, all_accepted=True)
    found.append(Setting("less noise than stated, line within", within, [rare], [[142]], less=0.01, null=(0,)))
    stated = registered(0.02, 20.0, bet=0.9, single=True)
    found.append(Setting("rare losses, noise as stated", stated, [rare], [[142]], null=(0,)))
    return found


def planned(name: str, epsilon: float, looks: int, *, lucky: bool) -> list[Setting]:
    """One setting for each of some plans, made on development units that look better, or worse, than they are: of many
    draws of them, the one with the lowest risk, or the highest. Scores are uniform, and every one has a risk of 0.2."""
    base, rng, found = register_grid(Choices(0.2, epsilon, grid=True), ("a",)), np.random.default_rng(4), []
    for _ in range(PLANS):
        above = rng.random((DRAWN, DEVELOPMENT, 1)) >= np.array(base.thresholds.values)
        bad = rng.random((DRAWN, DEVELOPMENT, 1)) < 0.2
        risk = (above & bad).sum(axis=(1, 2)) / above.sum(axis=(1, 2))
        chosen = risk.argmin() if lucky else risk.argmax()
        evidence = from_answers((above & bad)[chosen], (above & ~bad)[chosen], rng)
        reg = plan(base, [evidence], {"a": 400}, Wish("sealed", looks)).registration
        cells = np.diff([0.0, *reg.thresholds.values, 1.0])
        law = from_cells(reg, 0.8 * cells, 0.2 * cells)
        found.append(Setting(name, reg, [law], [[400 // looks]] * looks))
    return found


def without_bets(
    name: str, epsilon: float, sites: Sequence[float] = (0.2,), *, looks: tuple[tuple[int, float], ...] = ((1, 1.0),),
    slots: int = 400, share: float = 1.0, **more: Any,
) -> list[Setting]:  # fmt: skip
    """Settings without bets, for sites of these risks: each with another release of unlabelled units, of which `share`
    times as many are accepted as of those that calibrate; without privacy, one with exact counts."""
    names, rng = tuple("abc"[: len(sites)]), np.random.default_rng(5)
    base = register_grid(Choices(0.2, epsilon, grid=True, batch=slots, rounds=looks[-1][0], **more), names)
    found = []
    for _ in range(RELEASES if base.privacy.private else 1):
        more_units = tuple(scores(base, share, rng) for _ in sites) if base.privacy.private else None
        reg = seal(base, Seal(THRESHOLDS, WEIGHTS, ((0.2, 1.0, ()),), looks, unlabelled=more_units))
        each = [slots // len(sites)] * len(sites)
        found.append(Setting(name, reg, [answers(reg, risk) for risk in sites], [each] * looks[-1][0]))
    return found


def scores(base: Registration, share: float, rng: np.random.Generator) -> Noised:
    """One release of unlabelled units, as a site makes it."""
    grid = over_grid(base)
    rule, points = grid.mechanism, grid.thresholds.values
    chances = np.array([1.0 - 0.8 * share, 0.2 * share, 0.2 * share, 0.4 * share])
    drawn = np.repeat((0.2, 0.5, 0.7, 0.9), rng.multinomial(UNLABELLED, chances))
    counts = np.zeros((2, len(points) + 1), dtype=np.int64)
    counts[1] = np.bincount(np.searchsorted(points, drawn, side="right"), minlength=len(points) + 1)
    seen = rule.basis.encode(counts[None])[0] + discrete_gaussian(rng, rule.scale, (2, rule.basis.p))
    first, second = seen.tolist()
    return Noised(privacy=base.privacy, units=UNLABELLED, grid=points, scale=rule.scale, first=first, second=second)


@cache
def groups() -> list[list[Setting]]:
    """Settings as the page counts them: those of one row share its trials."""
    return [
        *([each] for each in settings()),
        planned("planned on lucky development units, epsilon 1", 1.0, 1, lucky=True),
        planned("planned on unlucky development units, epsilon 1", 1.0, 1, lucky=False),
        planned("planned on lucky development units, epsilon 4, two looks", 4.0, 2, lucky=True),
        without_bets("unlabelled records, no bets, epsilon 4", 4.0),
        without_bets("unlabelled records, no bets, epsilon 1", 1.0),
        without_bets(
            "unlabelled records, three unlike sites, two looks", 1.0, (0.0, 0.2, 0.4), looks=((1, 0.5), (2, 0.5))
        ),
        without_bets("exact counts", math.inf),
        without_bets(
            "exact counts, four looks, recycling", math.inf, looks=((1, 0.2), (2, 0.2), (4, 0.3), (8, 0.3)), slots=100
        ),
    ]


@cache
def controls() -> list[list[Setting]]:
    """Rules that leave a condition out, on laws where that shows."""
    exact = {each.name: each for each in settings()}
    steered = exact["recruitment and arrivals steered, hybrid line"]
    fields = steered.registration.model_dump()
    fields["certificate"]["line"], fields["schedule"]["policy"] = "exact", "first"
    line = Registration.model_validate(fields)
    rare = registered(0.02, 20.0, bet=0.9, single=True)
    alone = [
        Setting("noise smaller than stated, exact line", rare, [answers(rare, 0.02, all_accepted=True)], [[142]],
                less=0.01, null=(0,)),
        replace(steered, name="arrivals steered or looks unregistered, exact line", registration=line),
        replace(exact["a mixture that moves"], name="rejections carried under a moving mixture", carried=True),
        replace(
            exact["releases withheld after they were seen, charged"], name="charge without its margin", margins=False
        ),
    ]  # fmt: skip
    other = without_bets("unlabelled records of which far fewer are accepted", 4.0, share=0.1)
    return [*([each] for each in alone), other]


PARTS = {"covered": groups, "left out": controls}


def count(part: str, index: int) -> Count:
    """Count false certificates of one row, in blocks."""
    group = PARTS[part]()[index]
    rng, false, each = np.random.default_rng([index, 19]), 0, TRIALS // len(group)
    for setting in group:
        for size in [BLOCK] * (each // BLOCK) + [each % BLOCK] * (each % BLOCK > 0):
            false += int(rejected(setting, size, rng).sum())
    return Count(part, group[0].name, false, each * len(group))


def page(frame: pl.DataFrame) -> list[str]:
    """Return the page's parts, from the counts of all settings."""
    return [HEAD, counted.table(frame, "covered"), PLANNED, BROKEN, counted.table(frame, "left out")]


def main() -> None:
    cells = [(part, index) for part, made in PARTS.items() for index in range(len(made()))]
    with ProcessPoolExecutor() as pool:
        frame = counted.frame(pool.map(count, *zip(*cells, strict=True)))
    frame.write_parquet(RECORDS, compression="zstd", compression_level=19)
    publish("sealed-validity.md", page(frame))


HEAD = f"""\
# Sealed certificates at the boundary

Made by

    python -m research.benchmarks.sealed_validity

The counts are in `research/results/sealed_validity.parquet`.

Thresholds are exactly at their target, under the limits that the registration allows. At most {ALPHA} of the trials may
reject one of them. Epsilon is for replacement."""

PLANNED = f"""\
Each of the planned rows is {PLANS} plans for 400 units, as `fedsrc plan` makes them: each on the draw of {DEVELOPMENT}
development units, of {DRAWN} draws, that has the lowest risk (lucky) or the highest."""

BROKEN = "## Rules that leave a condition out"


if __name__ == "__main__":
    main()
