"""Attacks on decisions (V2, V7): valid certificates thrown away, and units spent that can only lose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedsrc.maths.arrays import Ints
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.registration import Registration
from fedsrc.server.bounds import Look, Sample, look
from fedsrc.server.recruiter import next_slots
from fedsrc.server.tally import empty, masses, transfer
from research.attacks.sections import Record, Row, Section, control, in_blocks, recorded, some, totals

RUNS, SCHEDULES, BLOCK = 4_000, 2_000, 500
BATCH, ROUNDS, RISK = 200, 5, 0.15


def plan(weights: list[float | None], *, batch: int = BATCH, rounds: int = ROUNDS) -> Registration:
    """A registration of so many sites with these weights, one threshold."""
    reg = register_grid(
        Choices(0.2, 4.0, grid=True, thresholds=1, batch=batch, rounds=rounds, policy="final", adjacency="zero-out"),
        ["x"],
    )
    sites: list[dict[str, Any]] = [{"name": f"s{k}", "weight": weight} for k, weight in enumerate(weights)]
    return Registration.model_validate({**reg.model_dump(), "sites": sites})


def thrown_away(first: int, count: int, _: Path) -> dict[str, int]:
    """Runs of one site, policy final: those certified on the way, and those of them that end without a certificate.

    `old` looks at every round by itself, as it was where no weights are declared.
    """
    reg, rng = plan([None]), np.random.default_rng([20_501, first])
    rule, total = reg.mechanism, np.zeros((count, 2, reg.mechanism.basis.p))
    before: Look | None = None
    ever = np.zeros(count, dtype=bool)
    for number in range(1, ROUNDS + 1):
        bad = rng.binomial(BATCH, RISK, count)
        counts = np.zeros((count, 2, 2), dtype=np.int64)
        counts[:, 0, 1], counts[:, 1, 1] = BATCH - bad, bad
        total += rule.basis.encode(counts * rule.grid) + np.rint(rng.normal(0.0, rule.scale, total.shape))
        seen = Sample(masses(reg, total, number), number * BATCH, 0.0)
        before, alone = look(reg, seen, before), look(reg, seen)
        ever |= alone.certified[:, 0]
    assert before is not None
    now, old = before.certified[:, 0], alone.certified[:, 0]
    return {"runs": count, "ever": int(ever.sum()), "now": int((ever & ~now).sum()), "old": int((ever & ~old).sum())}


def requests(reg: Registration, left: list[int]) -> tuple[Ints, list[float]]:
    """What a run asks of every site in every round when everybody answers, and eta after each."""
    tally, asked, etas = empty(reg), [], []
    while any(slots := next_slots(reg, tally, left)):
        left = [have - n for have, n in zip(left, slots, strict=True)]
        tally = replace(tally, slots=tuple(a + b for a, b in zip(tally.slots, slots, strict=True)))
        asked.append(slots)
        etas.append(transfer(reg, tally))
    return np.asarray(asked), etas


def schedules(first: int, count: int, _: Path) -> dict[str, int]:
    """Random weights and tables: requests of less than half a site's part of a step that are not its last."""
    small = made = 0
    for number in range(first, first + count):
        rng = np.random.default_rng([20_502, number])
        parts = rng.integers(1, 10, int(rng.integers(1, 9)))
        weights = (parts / parts.sum()).tolist()
        reg = plan(weights, batch=int(rng.integers(5, 200)), rounds=1000)
        asked, _etas = requests(reg, rng.integers(1, 3000, len(parts)).tolist())
        for weight, column in zip(weights, asked.T, strict=True):
            mine = column[column > 0]
            made += mine.size
            small += int((mine[:-1] < weight * reg.schedule.batch * len(parts) / 2 - 2).sum())
    return {"schedules": count, "requests": made, "small": small}


def run(scale: float = 1.0) -> Record:
    """Runs at one site, the two schedules of the record, and random ones."""
    shrinking, off = requests(plan([0.5, 0.5], rounds=1000), [1000, 5000]), requests(plan([0.5, 0.5]), [460, 848])
    return {
        "final": totals(in_blocks(thrown_away, some(RUNS, scale), BLOCK)),
        "shrinking": {"asked": shrinking[0].tolist(), "eta": shrinking[1][-1]},
        "off_weight": {"asked": off[0].tolist(), "eta": off[1][-1]},
        "schedules": totals(in_blocks(schedules, some(SCHEDULES, scale), BLOCK)),
    }


def rows(record: Record) -> list[Row]:
    """The section's rows."""
    final, random = record["final"], record["schedules"]
    shrinking, off = record["shrinking"], record["off_weight"]
    return [
        Row(
            "V2: one site, policy `final`: a certificate of an earlier round is lost by the last one",
            control(f"{final['old']:,} of {final['ever']:,} certified runs") + "; " + recorded("3 of 130, 5 of 1,401"),
            f"{final['now']:,} of {final['ever']:,} certified runs ({final['runs']:,} runs)",
            f"Runs of {ROUNDS} rounds of {BATCH} at a true risk of {RISK}, target 0.2. The control looks at every round"
            " by itself.",
        ),
        Row(
            "V7: 1,000 and 5,000 units, each site with half the weight",
            recorded("requests of 100, 50, 25, ..., 1, 1, 1, each with full noise"),
            f"{len(shrinking['asked'])} rounds; the smallest request is {min(map(min, shrinking['asked']))}",
            f"eta at the end is {shrinking['eta']:g}: the mixture asked for is the declared one.",
        ),
        Row(
            "V7: an off-weight remainder of 388 units (460 and 848, half the weight each)",
            recorded("it took wealth from 68 to 0.6"),
            "; ".join(f"{a} and {b}" for a, b in off["asked"]) + f"; eta {off['eta']:g}",
            "A remainder joins the request before it, and units that can only lose are not asked for.",
        ),
        Row(
            "V7: random weights and tables: small requests that are not a site's last",
            "not tried",
            f"{random['small']:,} of {random['requests']:,} requests in {random['schedules']:,} schedules",
            "Small: less than half of the site's part of a step.",
        ),
    ]  # fmt: skip


SECTION = Section("decisions", "Decisions", run, rows)
