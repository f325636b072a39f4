"""Real sums of a cohort, and what they leave to its server and t members together who know all but one unit.

A fair coin per sum decides which of two units that are furthest apart is among the victim's. `research.membership`
attacks what `chunk` returns.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from fedsrc.common.canonical import digest
from fedsrc.common.signing import Key
from fedsrc.maths.arrays import Bools, Floats, Ints
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.mask_key import MaskKey
from fedsrc.protocol.messages import Link, Release
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import counted
from fedsrc.records.units import Units
from fedsrc.server.opening import Sum, open_sum
from fedsrc.server.recruiter import make_requests
from fedsrc.site.masks import mask_release
from fedsrc.site.release import make_release
from research import membership
from research.membership import Worlds

MEMBERS, COLLUDING = ("victim", "honest", "first colluder", "second colluder"), 2
HONEST = len(MEMBERS) - COLLUDING
SLOTS, THRESHOLDS, EPSILON, DELTA = 25, 2, 1.0, 1e-6


@cache
def key(*words: str) -> Key:
    return Key.from_private_bytes(bytes.fromhex(digest(list(words))))


@cache
def registration(colluding: int = COLLUDING) -> Registration:
    """Four sites in one cohort, of which so many may collude; two thresholds, so that a sum takes few draws."""
    words = [MaskKey.by(name, key("site", name), key("mask", name)) for name in MEMBERS]
    choices = Choices(
        0.2, EPSILON, delta=DELTA, thresholds=THRESHOLDS, grid=True, aggregation="cohorts", colluding=colluding,
        mask_keys=words, capacities=dict.fromkeys(MEMBERS, SLOTS), batch=SLOTS,
    )  # fmt: skip
    return register_grid(choices, MEMBERS)


@cache
def held(name: str) -> Ints:
    """What a member counts: scores spread out, a third of the answers unsupported; the victim lacks one unit."""
    count = SLOTS - (name == MEMBERS[0])
    score, loss = (np.arange(count) + 0.5) / count, (np.arange(count) % 3 == 0).astype(np.float64)
    return counted(registration(), Units(np.arange(count + 1, dtype=np.int64), score, loss, None))


@cache
def worlds() -> Worlds:
    """The victim's counts with one worst unit, and with its worst replacement."""
    return membership.worlds(registration(), held(MEMBERS[0]))


def numbers(release: Release | Sum) -> Ints:
    return np.asarray([*release.first, *release.second], dtype=np.int64)


def opened(reg: Registration, number: int, counts: Ints) -> Ints:
    """What is left to the attacker of one opened sum: less what colluders sent, and what others than the unit count."""
    asked = make_requests(reg, [SLOTS] * len(MEMBERS), number=number, round=number + 1)[0]
    plain = [
        make_release(reg, asked, each, Link(), order="shuffled", time=membership.TIME)
        for each in (counts, *(held(name) for name in MEMBERS[1:]))
    ]
    found = open_sum([
        mask_release(reg, asked, each, name, SLOTS, key("mask", name))
        for name, each in zip(MEMBERS, plain, strict=True)
    ])  # fmt: skip
    if found.check != asked.slots:
        raise AssertionError("the masks of a whole cohort cancel")
    left = numbers(found) - sum(numbers(each) for each in plain[-COLLUDING:])
    return left.reshape(worlds().baseline.shape) - membership.exact(reg, held(MEMBERS[1]))


def chunk(colluding: int, first: int, count: int) -> tuple[Floats, Bools]:
    """The attacker's evidence from some sums, with noise shared as if so many might collude, and the coins that decided
    about the unit in each."""
    coins, pair, reg = membership.fair_coins(count), worlds(), registration(colluding)
    seen = [opened(reg, first + i, pair.present if coin else pair.absent) for i, coin in enumerate(coins)]
    return membership.evidence(pair, np.asarray(seen)), coins


def variance(seen: Floats, coins: Bools) -> tuple[float, float]:
    """Return the variance of the attacker's statistic, which is 1 under the registered noise, and how many standard
    errors it is off."""
    found = float(np.mean((seen - np.where(coins, 0.5, -0.5) * worlds().mu) ** 2))
    return found, (found - 1) * math.sqrt(seen.size / 2)
