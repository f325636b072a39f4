"""Everything that a registration and its mode choose among, as data; and a small registration of any such choice.

A choice has a value on every axis. `refusal` says why one cannot be registered or run, in the words of the code. A pair
of values is refused if no choice holds both; REFUSED has all such pairs, under the sentence that each is refused with.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from functools import lru_cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

from fedsrc.common.canonical import digest
from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.federation.airgap import start
from fedsrc.federation.live.play import live_session
from fedsrc.federation.local import certify_table
from fedsrc.monitor.fresh import monitor_table
from fedsrc.planning.sealing import encoding_of
from fedsrc.protocol.judgements import in_decimals
from fedsrc.protocol.protection import Noised, Privacy
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import histogram
from fedsrc.site.develop import over_grid, released
from tests.support.cohorts import Member, member
from tests.support.helpers import single_units, table

Choice = Mapping[str, str]  # a value for every axis
Pair = frozenset[str]

AXES: dict[str, tuple[str, ...]] = {
    "method": (
        "betting", "sealed exact", "sealed within", "sealed hybrid", "no bets exact",
        "no bets within", "contrast", "variance-adaptive", "ratio", "monitor by probability",
        "monitor by run length",
    ),
    "encoding": (
        "complementary suffix", "complementary bins", "paired suffix", "paired bins", "moments", "levels", "contrasts",
    ),
    "aggregation": ("own", "holder", "cohorts"),
    "claims": ("one claim", "groups each", "groups all", "scores"),
    "labelling": ("labels there", "labels on demand", "labels in hours"),
    "dropout": ("independent dropout", "adversarial dropout"),
    "policy": ("first", "enough", "final", "recruit"),
    "unit": ("records", "sources", "sources of several answers"),
    "losses": ("binary losses", "graded losses"),
    "adjacency": ("replacement", "zero-out", "same-group"),
    "privacy": ("finite epsilon", "infinite epsilon"),
    "conversion": ("tight conversion", "paper's conversion"),
    "mixture": ("one site", "site weights", "sites without weights"),
    "growth": ("even rounds", "growing rounds"),
    "unlabelled": ("no unlabelled records", "unlabelled records"),
    "renewal": ("a new claim", "renewal"),
    "mode": ("local", "files", "live"),
}  # fmt: skip
AXIS = {value: axis for axis, values in AXES.items() for value in values}
BASE: Choice = {axis: values[0] for axis, values in AXES.items()}

UNITS, BATCH, ROUNDS, GROWTH = 1000, 400, 2, 1.25
TRIES, GREEDY = 400, 20
TARGET, CUTS, GROUPS, OTHER = 0.3, (0.25, 0.5), ("day", "night"), "other"
SERVER, STRANGER = Key.from_private_bytes(b"s" * 32), Key.from_private_bytes(b"x" * 32)
HOLDER = Key.from_private_bytes(b"h" * 32)

WORDS: dict[str, tuple[str, ...]] = {  # what several values are called together
    "sealed": AXES["method"][1:4],
    "no bets": AXES["method"][4:6],
    "the paper's methods": AXES["method"][6:9],
    "monitors": AXES["method"][9:],
    "histograms": AXES["encoding"][:4],
    "paired": AXES["encoding"][2:4],
    "panels": AXES["claims"][1:],
    "people's labels": AXES["labelling"][1:],
}
TOGETHER = "a sealed certificate and releases of contrasts go together"
GAINING = "policy = 'enough' needs the betting certificate, and site weights or one site"
RULES: list[tuple[str, str, str]] = [  # these, do not go with those, refused with a sentence that begins so
    ("contrasts", "betting, the paper's methods, monitors", TOGETHER),
    ("sealed, no bets", "histograms, moments, levels", TOGETHER),
    ("moments, levels", "the paper's methods, monitors", "belong to the betting certificate"),
    ("levels", "sources of several answers", "levels are for units of one answer"),
    ("levels", "binary losses", "units of one answer that is supported or not have no levels"),
    ("panels", "the paper's methods", "panels are for betting and sealed certificates"),
    ("panels", "no bets", "a sealed panel has one target, and registers its bets"),
    ("panels", "paired, levels", "a panel releases complementary histograms, second moments or contrasts"),
    ("panels", "unlabelled records", "unlabelled records bound acceptance on all the traffic"),
    ("groups all", "sites without weights", "one threshold for all groups needs site weights, or one site"),
    ("groups all, scores", "monitors", "a monitor watches one score, and every group by itself"),
    ("same-group", "one claim, scores, the paper's methods, no bets, paired, levels, unlabelled records",
     "neighbours of the same group need groups"),
    ("enough", "sealed, no bets, contrasts, unlabelled records, the paper's methods, sites without weights", GAINING),
    ("monitors", "enough, final, recruit", "a monitor asks every site until its alarm"),
    ("monitors", "holder, cohorts", "a monitor hears every site by itself"),
    ("monitors", "people's labels", "a monitor's records have their labels"),
    ("monitors", "growing rounds", "a monitor asks for as many units in every round"),
    ("monitors", "renewal", "a monitor renews no certificate"),
    ("monitors", "live", "a monitor does not run live"),
    ("adversarial dropout", "the paper's methods, monitors", "dropout = 'adversarial' needs the betting certificate"),
    ("unlabelled records", "betting, the paper's methods, monitors, histograms, moments, levels, infinite epsilon",
     "unlabelled records are for sealed certificates with privacy"),
    ("unlabelled records", "renewal", "its unlabelled records show what was accepted then"),
    ("recruit", "sealed exact, sealed within, no bets", "a sealed certificate that recruits has line = 'hybrid'"),
    ("cohorts", "infinite epsilon", "cohorts share noise"),
    ("cohorts", "the paper's methods", "cohorts need a betting or sealed certificate"),
    ("cohorts", "sealed exact, sealed hybrid, no bets exact", "a sealed certificate of cohorts has line = 'within'"),
    ("cohorts", "recruit", "policy = 'recruit' asks one site at a time"),
    ("cohorts", "local", "the sites of a cohort hold their own records"),
    ("holder", "files, live", "one holder has the records of all sites"),
]  # fmt: skip


def values_of(words: str) -> tuple[str, ...]:
    """The values that words stand for, comma-separated."""
    found = [WORDS.get(word, (word,)) for word in words.split(", ")]
    return tuple(value for each in found for value in each)


REFUSED: dict[Pair, str] = {
    frozenset(pair): why for these, those, why in RULES for pair in product(values_of(these), values_of(those))
}
PAIRS: frozenset[Pair] = frozenset(
    frozenset(pair) for several in combinations(AXES.values(), 2) for pair in product(*several)
)


def pairs_in(choice: Choice) -> set[Pair]:
    """All pairs of values that a choice holds."""
    return set(map(frozenset, combinations(choice.values(), 2)))


def sites_of(choice: Choice) -> tuple[str, ...]:
    return ("north",) if choice["mixture"] == "one site" else ("north", "south")


def members_of(choice: Choice, life: str = "") -> list[Member]:
    """The sites as their own people have them; mask keys are of one life of a claim."""
    found = [member(name) for name in sites_of(choice)]
    return [Member(each.name, each.key, member(each.name + "mask" + life).mask) for each in found]


def fields_of(choice: Choice) -> dict[str, Any]:
    """The fields of a small registration that is as the choice says."""
    monitor = choice["method"].startswith("monitor")
    cuts = CUTS[:1] if monitor else CUTS
    weights = (1 / len(cuts),) * len(cuts)
    claims = _claims(choice, cuts, weights)
    blocks = 1 if choice["claims"] == "one claim" else 2
    privacy = _privacy(choice)
    found: dict[str, Any] = {
        "server_key": public_hex(SERVER),
        "renews": digest("before") if choice["renewal"] == "renewal" else None,
        "claim": {"target_risk": TARGET},
        "thresholds": {"values": cuts, "weights": weights, "origin": "declared"},
        "certificate": _method(choice, len(cuts), blocks),
        "privacy": privacy.model_dump(),
        "encoding": _encoding(choice, privacy, weights),
        "aggregation": _aggregation(choice),
        "claims": claims,
        "labelling": _labelling(choice),
        "sites": _sites(choice),
        "schedule": {
            "batch": BATCH, "rounds": ROUNDS, "policy": choice["policy"],
            "dropout": choice["dropout"].removesuffix(" dropout"),
            "growth": GROWTH if choice["growth"] == "growing rounds" else 1.0,
        },
    }  # fmt: skip
    if choice["unlabelled"] == "unlabelled records":
        found["unlabelled"] = [_unlabelled(privacy)] * len(sites_of(choice))
    return found


def _method(choice: Choice, thresholds: int, blocks: int) -> dict[str, Any]:
    name = choice["method"]
    if name == "betting":
        return {"method": "betting", "ladder": (TARGET,) if blocks > 1 else (0.2, TARGET)}
    if name.startswith("monitor"):
        long = {"guarantee": "run length", "run_length": 10_000}
        kind = long if name.endswith("length") else {"guarantee": "probability", "refusal_budget": 0.0001}
        return {"method": "monitor", "certificate": digest("watched"), "risk": TARGET, **kind}
    if not name.startswith(("sealed", "no bets")):
        return {"method": name}
    bets = () if name.startswith("no bets") else (0.6,) * thresholds * blocks
    looks = [{"round": i + 1, "share": 1 / ROUNDS} for i in range(ROUNDS)]
    target = {"risk": TARGET, "bets": bets}
    return {"method": "sealed", "targets": [target], "looks": looks, "line": name.split()[-1]}


def _encoding(choice: Choice, privacy: Privacy, weights: tuple[float, ...]) -> dict[str, Any]:
    name = choice["encoding"]
    if name != "contrasts":
        kind, _, basis = name.partition(" ")
        return {"kind": kind, "basis": basis} if basis else {"kind": kind}
    free, read = choice["method"].startswith("no bets"), choice["unlabelled"] == "unlabelled records"
    code = encoding_of(privacy.mass_grid, weights, ((in_decimals(TARGET), 1.0),), free=free, unlabelled=read)
    return {"kind": "contrasts", "matrix": code.R, "second": code.second, "accepted": code.accepted}


def _claims(choice: Choice, cuts: tuple[float, ...], weights: tuple[float, ...]) -> dict[str, Any]:
    if choice["claims"] == "one claim":
        return {"kind": "one"}
    if choice["claims"] == "scores":
        other = {"column": OTHER, "values": cuts, "weights": weights}
        return {"kind": "scores", "shares": (0.5, 0.5), "others": [other]}
    return {"kind": "groups", "names": GROUPS, "shares": (0.5, 0.5), "claim": choice["claims"].removeprefix("groups ")}


def _privacy(choice: Choice) -> Privacy:
    return Privacy.model_validate({
        "unit": "record" if choice["unit"] == "records" else "source",
        "max_answers": 2 if choice["unit"] == "sources of several answers" else 1,
        "loss_grid": 2 if choice["losses"] == "graded losses" else 1,
        "epsilon": _epsilon(choice),
        "adjacency": choice["adjacency"],
        "conversion": choice["conversion"].removesuffix(" conversion").removesuffix("'s"),
    })  # fmt: skip


def _epsilon(choice: Choice) -> float:
    """Large, so that little data certifies; the plain bins of a cohort's members need noise of some lattice units."""
    if choice["privacy"] == "infinite epsilon":
        return math.inf
    return 1.0 if choice["aggregation"] == "cohorts" and choice["encoding"].endswith("bins") else 8.0


def _aggregation(choice: Choice) -> dict[str, Any]:
    if choice["aggregation"] == "own":
        return {"kind": "own"}
    if choice["aggregation"] == "holder":
        return {"kind": "holder", "key": public_hex(HOLDER)}
    names = sites_of(choice)
    return {
        "kind": "cohorts", "colluding": len(names) - 1, "cohorts": [{"name": "all", "members": names}],
        "keys": [each.word.model_dump() for each in members_of(choice)],
    }  # fmt: skip


def _labelling(choice: Choice) -> dict[str, Any]:
    if choice["labelling"] == "labels there":
        return {"kind": "there"}
    return {"kind": "on demand", "hours": 1.0 if choice["labelling"] == "labels in hours" else None}


def _sites(choice: Choice) -> list[dict[str, Any]]:
    shares = {"north": 0.6, "south": 0.4} if choice["mixture"] == "site weights" else {}
    return [
        {
            "name": each.name, "capacity": UNITS, "weight": shares.get(each.name),
            "key": None if choice["aggregation"] == "holder" else public_hex(each.key),
        }
        for each in members_of(choice)
    ]  # fmt: skip


@lru_cache
def _unlabelled(privacy: Privacy) -> Noised:
    """The release of a site's unlabelled units, under a privacy for which there is one."""
    changes: dict[str, Any] = {"epsilon": min(privacy.epsilon, 8.0)}
    changes |= {"adjacency": "replacement"} if privacy.adjacency == "same-group" else {}
    made = privacy.model_copy(update=changes)
    fields = fields_of(BASE) | {"privacy": made.model_dump()}
    grid, units = over_grid(Registration.of(fields)), table(3000, base=0.1)
    masses = histogram(grid, single_units(units.score.tolist(), [1.0] * len(units)))
    return released(grid, masses, len(units))


def registration_of(choice: Choice) -> Registration:
    """A registration that is as the choice says; refused with a sentence if there is none."""
    return Registration.of(fields_of(choice), "")


def refusal(choice: Choice) -> str | None:
    """Why a choice cannot be registered, or not be run in its mode; None if it can."""
    try:
        registered = registration_of(choice)
    except FedsrcError as error:
        return error.what.removeprefix(": ")
    return _not_run(registered, choice["mode"])


def _not_run(registered: Registration, mode: str) -> str | None:
    """Why a registration is not run in a mode. A server with another's key is refused when all else was looked at."""
    nowhere = Path("no such folder")
    try:
        if mode == "files":
            start(registered, nowhere, STRANGER)
        elif mode == "live":
            live_session(registered, nowhere, STRANGER)
        else:
            run = certify_table if registered.monitor is None else monitor_table
            run(registered, table(10), nowhere, nowhere / "ledger", STRANGER)
    except FedsrcError as error:
        return None if error.what.startswith("this registration is run by the server with key") else error.what
    raise AssertionError("a stranger was taken for the server")


def cover() -> list[Choice]:
    """Choices that can be run, such that every pair that is not refused is in one of them; always the same ones.

    Greedy: a choice begins with a pair that is still to come, and every further value goes with those before it and
    brings most that is still to come. What three or more values refuse is tried again in another order.
    """
    draw, found, left = random.Random("cover"), list[Choice](), set(PAIRS) - REFUSED.keys()
    while left:
        pair = min(left, key=sorted)
        made = next(filter(None, (_completed(pair, left, draw, i) for i in range(TRIES))), None)
        if made is None:
            raise AssertionError(f"{' and '.join(sorted(pair))} do not go together, and are not listed")
        found.append(made)
        left -= pairs_in(made)
    return found


def _completed(pair: Pair, left: set[Pair], draw: random.Random, tried: int) -> Choice | None:
    """A choice with a pair of values that can be run, if this order of axes finds one; not greedy after many tries."""
    chosen = {AXIS[value]: value for value in sorted(pair)}
    for axis in draw.sample(sorted(AXES), len(AXES)):
        if axis in chosen:
            continue
        gains = {
            value: sum(frozenset((value, other)) in left for other in chosen.values())
            for value in AXES[axis]
            if not any(frozenset((value, other)) in REFUSED for other in chosen.values())
        }
        if not gains:
            return None
        best = max(gains.values()) if tried < GREEDY else 0
        chosen[axis] = draw.choice([value for value, gain in gains.items() if gain >= best])
    choice = {axis: chosen[axis] for axis in AXES}
    return choice if refusal(choice) is None else None
