"""Risk monitors on the same streams of accepted, labelled answers: fedsrc's, MAPIE's and GLIDE's.

A stream is rounds of units at sites, a unit an answer or a source with several. fedsrc sees a round's sums, through
`fedsrc.server.alarm`; MAPIE and GLIDE see the answers one after the other, those of a round in random order over sites.
MAPIE's decisions are those of its own bound (`mapie.exchangeability_testing.bounds`) after every answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
from mapie.exchangeability_testing import RiskMonitoring
from mapie.exchangeability_testing.bounds import GammaExponentialMixtureBound
from mapie.risk_control import BinaryRisk

from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.monitor.monitor import REFUSALS
from fedsrc.protocol.registration import Registration
from fedsrc.server.alarm import evidence, fold, log_line, plan_of, round_sample
from fedsrc.simulate.trials import discrete_gaussian

LINE, LEVEL = 0.2, 0.05
SITES = 5
NEVER = -1  # no alarm in the stream
STEP = 0.25  # of the table of MAPIE's bound; between two entries its bound is computed itself


@dataclass(frozen=True)
class Scene:
    """What happens in a stream: the risk of every round, and who sends what.

    risks     of every round, before what a site adds to it
    change    rounds before the risk first passes the line; None: it never does
    slots     units per site and round
    adds      what each site adds to the risk
    weights   the sites' registered weights
    answers   of every unit; more than one: units are sources
    together  the chance that an answer shares its source's fate, instead of having its own
    """

    part: str
    name: str
    risks: tuple[float, ...]
    change: int | None = None
    slots: tuple[int, ...] = (20,) * SITES
    adds: tuple[float, ...] = (0.0,) * SITES
    weights: tuple[float, ...] | None = None
    answers: int = 1
    together: float = 1.0

    @property
    def per_round(self) -> int:
        """Answers of a round."""
        return sum(self.slots) * self.answers


class Stream(NamedTuple):
    """Streams of a scene: per trial, round, unit (in order of sites) and answer, whether it is unsupported; and in
    which order the units of a round come."""

    bad: Bools
    order: Ints


def draw(scene: Scene, trials: int, rng: np.random.Generator) -> Stream:
    """Draw streams."""
    site = np.repeat(np.arange(SITES), scene.slots)
    chance = np.asarray(scene.risks)[:, None] + np.asarray(scene.adds)[site]
    shape = (trials, *chance.shape)
    bad = (rng.random(shape) < chance)[..., None]
    if scene.answers > 1:
        own = rng.random((*shape, scene.answers)) < chance[..., None]
        bad = np.where(rng.random(own.shape) < scene.together, bad, own)
    return Stream(bad, np.argsort(rng.random(shape), axis=-1))


# ---------------------------------------------------------------- fedsrc


def registered(scene: Scene, epsilon: float, *, as_records: bool = False) -> Registration:
    """A monitor as `fedsrc monitor --sample accepted` registers it."""
    weights = scene.weights or (None,) * SITES
    source = scene.answers > 1 and not as_records
    return Registration.model_validate({
        "claim": {"target_risk": LINE},
        "thresholds": {"values": (0.5,), "weights": (1.0,)},
        "certificate": {
            "method": "monitor", "certificate": "0" * 64, "risk": LINE, "sample": "accepted", "false_alarm": LEVEL,
            "refusal_budget": REFUSALS * LEVEL,
        },
        "privacy": {"epsilon": epsilon, **({"unit": "source", "max_answers": scene.answers} if source else {})},
        "sites": [{"name": f"site-{i}", "weight": weights[i]} for i in range(SITES)],
    })  # fmt: skip


def by_fedsrc(
    scene: Scene, stream: Stream, epsilon: float, rng: np.random.Generator, *, as_records: bool = False,
    merged: int = 1, parts: int = 1,
) -> Ints:  # fmt: skip
    """Answers until the alarm, per trial: `merged` rounds of the scene to a round, or `parts` rounds for one."""
    reg = registered(scene, epsilon, as_records=as_records)
    rule, bad = reg.mechanism, stream.bad.sum(axis=-1)
    mass = rule.grid // (1 if as_records else scene.answers)
    ends = np.cumsum(scene.slots)[:-1]
    by_site = [part.reshape(*part.shape[:2], parts, -1).sum(axis=-1) for part in np.split(bad, ends, axis=-1)]
    sums = np.stack(by_site, axis=-1)  # trials, rounds, parts, sites
    sums = sums.reshape(len(bad), -1, merged, SITES).sum(axis=2)
    slots = np.asarray(scene.slots) * merged // parts
    all_answers = slots * scene.answers
    log_M = np.full((len(bad), plan_of(reg).bets.count), -np.inf)
    first = np.full(len(bad), NEVER)
    for t in range(1, sums.shape[1] + 1):
        unsupported = sums[:, t - 1] * mass
        none, supported = np.zeros_like(unsupported), all_answers * mass - unsupported
        bins = np.stack([none, supported, none, unsupported], axis=-1).reshape(len(bad), SITES, 2, 2)
        exact = rule.basis.encode(bins)
        noisy = exact + discrete_gaussian(rng, rule.scale, exact.shape)
        sent = slots * (scene.answers if as_records else 1)
        log_M, _ = fold(reg, log_M, round_sample(reg, [int(n) for n in sent], noisy), t)
        rings = evidence(reg, log_M, t) >= log_line(plan_of(reg))
        first[(first == NEVER) & rings] = t * int(all_answers.sum())
    return first


# ---------------------------------------------------------------- MAPIE


UNSUPPORTED = BinaryRisk(
    risk_occurrence=lambda y_true, y_pred: y_pred != y_true,
    risk_condition=lambda y_true, y_pred: np.repeat(True, len(y_true)),  # noqa: ARG005
    higher_is_better=False,
)  # an answer is accepted (1), and its label is 1 where it is supported


def mapie_monitor(level: float) -> RiskMonitoring:
    """MAPIE's monitor with the certified risk as its threshold."""
    return RiskMonitoring(risk=UNSUPPORTED, test_level=level, threshold=LINE, warn=False)


def rung_by_mapie(rows: Bools, level: float) -> int:
    """Answers until the alarm of one stream, by MAPIE's class itself."""
    watch = mapie_monitor(level).update((~rows).astype(np.int64), np.ones(rows.size, dtype=np.int64))
    above = np.flatnonzero(watch.online_risk_lower_bound_sequence_history > watch.threshold)
    return int(above[0]) + 1 if above.size else NEVER


@cache
def _bound(level: float) -> GammaExponentialMixtureBound:
    return GammaExponentialMixtureBound(v_opt=1, c=1, alpha_opt=mapie_monitor(level).test_level_online / 2)


@cache
def _width(level: float, v: float) -> float:
    """MAPIE's bound on a sum of intrinsic time v."""
    return float(_bound(level)(v=v, alpha=mapie_monitor(level).test_level_online / 2))


@cache
def _widths(level: float, count: int) -> Floats:
    return np.array([_width(level, i * STEP) for i in range(count)])


def by_mapie(rows: Bools, level: float) -> Ints:
    """Answers until the alarm, per stream (trials, answers), as `rung_by_mapie` finds it: the bound grows with v, so a
    table of it decides all but close calls, and those are computed."""
    x, t = rows.astype(np.float64), np.arange(1, rows.shape[1] + 1)
    mean = np.cumsum(x, axis=1) / t
    before = np.hstack([np.full((len(x), 1), 0.5), mean[:, :-1]])
    v = np.cumsum(np.power(x - before, 2), axis=1)
    table = _widths(level, 512 * math.ceil((v.max() / STEP + 2) / 512))
    at = (v / STEP).astype(np.int64)
    surely, perhaps = mean - table[at + 1] / t > LINE, mean - table[at] / t > LINE
    first = np.full(len(x), NEVER)
    for i in range(len(x)):
        for j in np.flatnonzero(perhaps[i]):
            if surely[i, j] or mean[i, j] - _width(level, float(v[i, j])) / t[j] > LINE:
                first[i] = j + 1
                break
    return first


# ---------------------------------------------------------------- streams as rows


def all_rows(stream: Stream) -> Bools:
    """Answers in the order in which they come, (trials, answers); those of one source follow each other."""
    came = np.take_along_axis(stream.bad, stream.order[..., None], axis=2)
    return np.asarray(came.reshape(len(came), -1))


def first_answers(stream: Stream) -> Bools:
    """One answer of every source."""
    return all_rows(Stream(stream.bad[..., :1], stream.order))


def thinned(scene: Scene, stream: Stream) -> Bools:
    """As many units of every site as of the one that sends fewest: rows by equal weights."""
    ends, least = np.cumsum(scene.slots), min(scene.slots)
    kept = np.concatenate([np.arange(end - n, end - n + least) for end, n in zip(ends, scene.slots, strict=True)])
    order = np.argsort(np.take(stream.order, kept, axis=2), axis=-1)
    return all_rows(Stream(stream.bad[:, :, kept], order))


def scaled(first: Ints, times: float) -> Ints:
    """Answers of the whole stream, from rows that are one of so many."""
    return np.where(first == NEVER, NEVER, np.rint(first * times)).astype(np.int64)


def monitors(scene: Scene, stream: Stream, rng: np.random.Generator) -> Iterator[tuple[str, Ints]]:
    """Every monitor that runs in this process, and the answers until it rings, per trial."""
    rows = all_rows(stream)
    for level in (LEVEL, 4 * LEVEL):
        yield f"MAPIE {level:g}", by_mapie(rows, level)
        if scene.answers > 1:
            found = by_mapie(first_answers(stream), level)
            yield f"MAPIE {level:g}, one answer per source", scaled(found, scene.answers)
        if scene.weights:
            times = sum(scene.slots) / (min(scene.slots) * SITES)
            yield f"MAPIE {level:g}, thinned", scaled(by_mapie(thinned(scene, stream), level), times)
    if scene.answers > 1:
        yield "fedsrc, answers as units", by_fedsrc(scene, stream, math.inf, rng, as_records=True)
    if not scene.weights and scene.answers == 1:
        yield "fedsrc, rounds of 10", by_fedsrc(scene, stream, math.inf, rng, parts=10)
    for epsilon in (math.inf, 4.0, 1.0):
        name = "fedsrc" if math.isinf(epsilon) else f"fedsrc, epsilon {epsilon:g}"
        yield name, by_fedsrc(scene, stream, epsilon, rng)
    if len(scene.risks) % 5 == 0:
        yield f"fedsrc, epsilon 1, rounds of {5 * scene.per_round:,}", by_fedsrc(scene, stream, 1.0, rng, merged=5)


# ---------------------------------------------------------------- the scenes


def _steps(scene: Scene, before: float, rounds: int, after: float, total: int) -> Scene:
    """The risk before and after a change."""
    return replace(scene, risks=(before,) * rounds + (after,) * (total - rounds), change=rounds)


def _ramp() -> Scene:
    """0.15 for 20 rounds, then 0.01 more every five rounds up to 0.35."""
    risks = tuple(round(min(0.35, 0.15 + 0.01 * max(0, (t - 15) // 5)), 2) for t in range(120))
    change = next(i for i, risk in enumerate(risks) if risk > LINE)
    return Scene("delay", "0.15, then 0.01 more every 500 answers up to 0.35", risks, change)


DIFFERENT = Scene(
    "sites", "risk 0.2 by the weights, 0.28 of all rows", (LINE,) * 100, slots=(10, 40, 10, 30, 10),
    adds=(-0.15, 0.2, -0.1, 0.1, -0.05), weights=(0.2,) * SITES,
)  # fmt: skip
ALIKE = Scene("sources", "risk 0.2, answers of a source all alike", (LINE,) * 40, answers=5)
STILL_SCENES = (
    Scene("null", "risk 0.2, the line", (LINE,) * 100),
    Scene("null", "risk 0.15", (0.15,) * 100),
    ALIKE,
    replace(ALIKE, name="risk 0.2, correlation 0.49 in a source", together=0.7),
    DIFFERENT,
)
NEW = (0.3, 0.4)
SCENES = (
    *STILL_SCENES,
    *(_steps(Scene("delay", f"{risk:g} from the first answer", ()), LINE, 0, risk, 100) for risk in (*NEW, 0.8)),
    *(_steps(Scene("delay", f"0.2 for 2,000 answers, then {risk:g}", ()), LINE, 20, risk, 120) for risk in NEW),
    *(_steps(Scene("delay", f"0.15 for 2,000 answers, then {risk:g}", ()), 0.15, 20, risk, 120) for risk in NEW),
    _steps(Scene("delay", "0.15 for 10,000 answers, then 0.3", ()), 0.15, 100, 0.3, 200),
    _ramp(),
    Scene("delay", "0.15, but 0.4 for 500 answers after 2,000", (0.15,) * 20 + (0.4,) * 5 + (0.15,) * 95, 20),
    _steps(replace(ALIKE, part="sources delay", name="0.15 for 2,000 answers, then 0.3, all alike"), 0.15, 4, 0.3, 40),
    _steps(
        replace(DIFFERENT, part="sites delay", name="0.15 by the weights for 2,000 answers, then 0.3"),
        0.15,
        20,
        0.3,
        120,
    ),
)
