"""One row per trial and method: what was decided, on what evidence, and whether it is so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedsrc.audit.cell import Cell
from fedsrc.audit.events import Events
from fedsrc.audit.evidence import aim_of, bet_on, exact, facts_of, favoured, noises, payload_bytes, released
from fedsrc.audit.methods import METHODS, NATIVE, local_only
from fedsrc.audit.methods.controls import ignore_noise
from fedsrc.audit.methods.setting import TOLERANCE, Aim, Evidence, Method, Verdict, misses
from fedsrc.audit.randomised import randomised, randomised_as_registered
from fedsrc.audit.registered import played
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.server.stopping import gains_little

READ = {
    "exact sums": exact, "released sums": released, "exact sums and development": favoured,
    "exact units and development": bet_on, "registered releases": played, "randomised records": randomised,
    "randomised records, as registered": randomised_as_registered, "released e-values": exact,
}  # fmt: skip


@dataclass(frozen=True)
class Tuples:
    """The certificate tuple of each trial at its last look: where it fired, or the end.

    threshold         certified, or the one nearest to it (-1: the method has no bound to tell by)
    picked            the same of every claim, of groups with claims of their own: (trials, claims)
    sampling_width    contrast bound without noise, less contrast and eta; privacy_width: what noise adds
    """

    threshold: Ints
    picked: Ints
    contrast_upper: Floats
    risk_upper: Floats
    acceptance_lower: Floats
    sampling_width: Floats
    privacy_width: Floats


class Block:
    """A block of trials of one setting, as methods see it. Policies that ask all sites share it."""

    def __init__(
        self, cell: Cell, events: Events, seed: tuple[int, ...], known: dict[str, Evidence] | None = None
    ) -> None:
        self.cell, self.events, self.seed = cell, events, seed
        self.aim, self.facts = aim_of(cell.registration), facts_of(cell, events)
        self._evidence = dict(known or {})
        self._verdicts: dict[str, Verdict] = {}

    def evidence(self, reads: str) -> Evidence:
        """Return evidence of a kind, made once."""
        if reads not in self._evidence:
            self._evidence[reads] = READ[reads](self.cell, self.events, seed=self.seed)
        return self._evidence[reads]

    def seen(self, method: Method) -> Evidence:
        """Return what that method reads."""
        return self.evidence(method.reads)

    def judged(self, method: Method) -> Verdict:
        """Return its verdict at every look, computed once."""
        if method.name not in self._verdicts:
            self._verdicts[method.name] = method.judge(self.seen(method), self.aim)
        return self._verdicts[method.name]


def rows(block: Block, policy: str, methods: tuple[str, ...], *, first: int) -> pl.DataFrame:
    """Judge one block of trials, numbered from `first`, by all methods: on the same events and the same noise."""
    trial = pl.int_range(first, first + len(block.events.slots)).alias("trial")
    parts = [
        _method(METHODS[name], block, policy).with_columns(pl.lit(name).alias("method"), trial) for name in methods
    ]
    return pl.concat(parts, how="diagonal")


def native_rows(block: Block, names: tuple[str, ...], *, first: int) -> pl.DataFrame:
    """Report native methods at the last look: what they promise, and what is true of the threshold they choose."""
    exact_sums = block.evidence("exact sums")
    end, whole = exact_sums.at((slice(None), slice(-1, None))), exact_sums.accepted.shape
    a, R = (np.broadcast_to(x, whole)[:, -1] for x in (block.facts.acceptance, block.facts.risk))
    accepted, wrong = (np.pad(x, ((0, 0), (0, 1))) for x in (a, a * R))  # threshold m accepts nothing
    parts = []
    for name in names:
        found = NATIVE[name].report(end, block.aim)
        j = found.threshold[:, -1:]
        parts.append(pl.DataFrame({
            "threshold": j[:, 0],
            "coverage_low": found.coverage_low[:, -1], "coverage_high": found.coverage_high[:, -1],
            "coverage": 1.0 - np.take_along_axis(wrong, j, axis=1)[:, 0],
            "size": np.take_along_axis(accepted, j, axis=1)[:, 0],
        }).with_columns(pl.lit(name).alias("method"), pl.int_range(first, first + len(j)).alias("trial")))  # fmt: skip
    return pl.concat(parts)


def _method(method: Method, block: Block, policy: str) -> pl.DataFrame:
    verdict = block.judged(method)
    fires = np.asarray(by_claim(verdict.certified, block.cell).any(axis=-1).all(axis=-1))
    if policy == "enough":
        fires &= _enough(block, verdict)
    fires[:, -1] = verdict.certified[:, -1].any(axis=-1)
    if method.stops == "at the last look" or policy == "final":
        fires[:, :-1] = False
    fired = np.asarray(fires.any(axis=-1))
    look = np.where(fired, fires.argmax(axis=-1), fires.shape[-1] - 1)
    found = tuples(method, block, fired, look)
    counted = slice(-1 if method.stops == "at the last look" else 0, None)
    missed = misses(verdict, block.aim, block.facts, floor=method.floor)[:, counted].any(axis=-1)
    bounds = {name: value for name, value in vars(found).items() if name not in ("threshold", "picked")}
    made = pl.DataFrame({
        "fired": fired, "missed": missed, **_facts(method, block, fired, look, found), **bounds,
        **_schedule(block, block.seen(method), look), **_heldout(block.cell, found.threshold), **_local(method, block),
    })  # fmt: skip
    return made.with_columns(pl.col("slots").arr.to_list())  # settings may differ in their number of sites


def by_claim(rows: NDArray[Any], cell: Cell) -> NDArray[Any]:
    """Return rows (..., m) apart by claims: (..., claims, m)."""
    return rows.reshape(*rows.shape[:-1], cell.claims, -1)


def _enough(block: Block, found: Verdict) -> Bools:
    """Say at which looks twice the records have gained little, in every claim."""
    accepted = by_claim(np.where(found.certified, found.acceptance_lower, 0.0), block.cell).max(axis=-1)
    trials = zip(block.events.records.tolist(), accepted.tolist(), strict=True)
    looks = range(1, accepted.shape[1] + 1)
    return np.array([[bool(gains_little(n[:t], a[:t]).all()) for t in looks] for n, a in trials])


def _facts(method: Method, block: Block, fired: Bools, look: Ints, found: Tuples) -> dict[str, NDArray[Any]]:
    """Return what is true of the threshold at each trial's look; of several, what they accept together (within groups,
    on average), and the worst risk."""
    trial, aim, shape, j = np.arange(look.size), block.aim, block.seen(method).accepted.shape, found.picked
    facts = (np.broadcast_to(x, shape)[trial[:, None], look[:, None], j] for x in vars(block.facts).values())
    a, R = (np.where(j >= 0, x, np.nan) for x in facts)
    low, some = method.floor & (a < aim.min_acceptance - TOLERANCE), (j >= 0).any(axis=-1)
    parts = block.cell.claims if block.cell.setting.group_floor == "group" else 1
    return {
        "threshold": found.threshold,
        "acceptance": np.where(some, np.nansum(a, axis=-1) / parts, np.nan),
        "risk": np.where(some, np.where(j >= 0, R, -np.inf).max(axis=-1), np.nan),
        "failed": fired & ((aim.target_risk + TOLERANCE < R) | low).any(axis=-1),
        "at_boundary": fired & (aim.target_risk - TOLERANCE <= R).any(axis=-1),
        **({"groups_certified": (j >= 0).sum(axis=-1)} if block.cell.claims > 1 else {}),
    }


def _schedule(block: Block, evidence: Evidence, look: Ints) -> dict[str, NDArray[Any]]:
    """Return what it took: looks, records, messages and bytes, sites; units touched where they have an identity."""
    trial, events, cell = np.arange(look.size), block.events, block.cell
    releases = np.cumsum(noises(cell, events.answered).sum(axis=-1), axis=1)[trial, look]
    found = {
        "look": look + 1,
        "records": events.records[trial, look],
        "releases": releases,
        "payload_bytes": releases * payload_bytes(cell.played) * cell.setting.queries,
        "dropped": np.cumsum(events.dropped.sum(axis=-1), axis=1)[trial, look],
        "slots": events.slots[trial, look],
        "eta": evidence.eta[trial, look],
    }
    return found | ({"touched": events.touched[trial, look]} if cell.items else {})


def tuples(method: Method, block: Block, fired: Bools, look: Ints) -> Tuples:
    """Return bounds at each trial's own look; where it fired, with what earlier looks showed."""
    evidence, aim = block.seen(method), block.aim
    whole = [np.full(look.size, np.nan) for _ in range(5)]
    threshold = np.full(look.size, -1, dtype=np.int64)
    picked = np.full((look.size, block.cell.claims), -1, dtype=np.int64)
    for end, stopped in sorted({(int(t), bool(f)) for t, f in zip(look, fired, strict=True)}):
        here = np.flatnonzero((look == end) & (fired == stopped))
        carried = stopped and method.stops == "at any look"
        if carried and method.causal:
            found = block.judged(method).at((here, end))
        else:
            found = method.conclude(evidence.at((here, slice(0 if carried else end, end + 1))), aim)
        j = chosen(found) if stopped else _nearest(found)
        threshold[here] = j
        picked[here] = _picked(found, block.cell) if stopped and block.cell.claims > 1 else j[:, None]
        bounds = (found.contrast_upper, found.risk_upper, found.acceptance_lower)
        widths = _widths(method, evidence.at((here, slice(end, end + 1))), aim, j)
        for place, value in zip(whole, (*(_take(x, j) for x in bounds), *widths), strict=True):
            place[here] = value
    return Tuples(threshold, picked, *whole)


def chosen(found: Verdict) -> Ints:
    """Return the certified threshold with the largest acceptance bound; without such bounds the lowest, which accepts
    most."""
    certified, a = found.certified, found.acceptance_lower
    order = np.where(np.isnan(a), -np.arange(a.shape[-1], dtype=np.float64), a)
    return np.asarray(np.where(certified, order, -np.inf).argmax(axis=-1))


def _picked(found: Verdict, cell: Cell) -> Ints:
    """Return what every claim picks (..., claims), -1 for nothing."""
    each = Verdict(*(by_claim(rows, cell) for rows in vars(found).values()))
    first = np.arange(cell.claims) * each.certified.shape[-1]
    return np.where(each.certified.any(axis=-1), first + chosen(each), -1)


def _nearest(found: Verdict) -> Ints:
    """Return the threshold with the least contrast bound; -1 without one."""
    d = found.contrast_upper
    return np.where(np.isnan(d).all(axis=-1), -1, np.where(np.isnan(d), np.inf, d).argmin(axis=-1))


def _take(x: Floats, j: Ints) -> Floats:
    return np.where(j >= 0, np.take_along_axis(x, j[:, None], axis=-1)[:, 0], np.nan)


def _widths(method: Method, here: Evidence, aim: Aim, j: Ints) -> tuple[Floats, Floats]:
    """Paper: Appendix "Metrics and uncertainty", h_t/N_t and g_{j,t}/N_t."""
    d = _take(method.conclude(here, aim).contrast_upper, j)
    if np.isnan(d).all():  # no contrast bound, no widths
        return d, d
    without = _take(method.conclude(ignore_noise(here), aim).contrast_upper, j)
    mean = _take(here.contrast(aim.target_risk)[:, -1] / here.records, j)
    return without - mean - here.eta[:, -1], d - without


def _local(method: Method, block: Block) -> dict[str, NDArray[Any]]:
    """Sites that calibrate alone choose thresholds of their own: their acceptance at the end.

    Paper: Appendix "Baselines", Local-only.
    """
    if method.name != "local-only":
        return {}
    end = block.seen(method).at((slice(None), slice(-1, None)))
    found = local_only.summary(local_only.judge_sites(end, block.aim), end, block.cell.sizes)
    names = {"local_macro": found.macro, "local_weighted": found.weighted, "local_population": found.population}
    return {name: value[:, -1] for name, value in {**names, "local_sites": found.certified_share}.items()}


def _heldout(cell: Cell, j: Ints) -> dict[str, NDArray[np.float64]]:
    if cell.heldout is None:
        return {}
    accepted, unsupported = (np.where(j >= 0, each[j], np.nan) for each in cell.heldout)
    return {"heldout_accepted": accepted, "heldout_unsupported": unsupported}
