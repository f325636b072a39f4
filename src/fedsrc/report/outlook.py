"""What a run would still take, in all and by group: a group is estimated as if its claim were the only one."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

from fedsrc.planning.alone import alone
from fedsrc.planning.forecast import Forecast, after_abstention
from fedsrc.protocol.panels import Groups, One
from fedsrc.protocol.registration import Claim
from fedsrc.server.panel import several
from fedsrc.server.sealed import Seen
from fedsrc.server.state import Replay
from fedsrc.server.tally import masses

ESTIMATED = 100  # rounds of a schedule, at most, for which estimates of several claims are made
LEAST = 1e-3  # of the traffic: a group of which noise leaves less is taken to have so much
Outlook = Forecast | dict[str, Forecast]


def outlook(replay: Replay) -> Outlook | None:
    """Estimate what the target should take in all at the rates seen; where every group has a claim of its own, of those
    that have no threshold yet. None where nothing came, or an estimate would take minutes.

    One threshold for all groups takes at least what its slowest group does. Of several scores the fastest counts.
    """
    registration = replay.registration
    claims, names = registration.claims, registration.block_names
    if isinstance(claims, One):
        return after_abstention(replay)
    if registration.schedule.rounds > ESTIMATED or replay.look is None:
        return None
    waiting = [i for i in range(len(names)) if not several(claims) or replay.choices[i] is None]
    every = {names[i]: after_abstention(_alone(replay, i)) for i in waiting}
    epsilon = registration.privacy.epsilon  # and not that of a single claim with as much noise
    found = {name: replace(each, epsilon=epsilon) for name, each in every.items() if each is not None}
    if several(claims):
        return found
    return (max if isinstance(claims, Groups) else min)(found.values(), key=_takes, default=None)


def _takes(forecast: Forecast) -> tuple[int, float]:
    """Order estimates by what they say it takes: a number, more than was looked at, not known, out of reach."""
    if forecast.too_few or math.isinf(forecast.limit):
        return (2 if forecast.too_few else 3), 0.0
    return (1, 0.0) if forecast.records is None else (0, forecast.records)


def _alone(replay: Replay, block: int) -> Replay:
    """Return a run as one group or score of its panel saw it, as if that were the only claim."""
    m, found = len(replay.registration.thresholds.values), copy.copy(replay)
    rows, one = slice(block * m, (block + 1) * m), alone(replay.registration, block)
    found.registration = one.model_copy(update={"claim": _claim(replay, one.claim, rows.start)})
    found.tally = replace(replay.tally, sums=replay.tally.sums[block])
    found.sealed = None if replay.sealed is None else [_rows_of(each, rows) for each in replay.sealed]
    return found


def _rows_of(look: Seen, rows: slice) -> Seen:
    parts = {name: getattr(look, name)[rows] for name in ("L", "contrast", "second", "accepted", "abar")}
    return replace(look, **parts)


def _claim(replay: Replay, claim: Claim, first: int) -> Claim:
    """Return the claim of one block, whose floor is a share of all traffic: of the group's own, so much as is seen."""
    groups = replay.registration.groups
    if groups is None or groups.floor == "traffic":
        return claim
    if replay.sealed is not None:
        accepted, units = replay.sealed[-1].accepted, replay.sealed[-1].N
    else:
        seen, units = masses(replay.registration, replay.tally.sums, replay.tally.noises), replay.tally.arrived
        accepted = seen.accepted
    share = min(1.0, max(LEAST, float(accepted[first]) / units))
    return claim.model_copy(update={"min_acceptance": share * replay.registration.claim.min_acceptance})


def outlook_words(forecast: Forecast, missing: int | None, unit: str) -> str:
    """Say what is still missing, and what it takes in all."""
    if forecast.too_few:
        return f"the {unit}s so far are too few to tell how many it takes, or whether the target can be reached"
    if math.isinf(forecast.limit):
        return "at the rates seen the target is out of reach: no threshold with enough acceptance is below it"
    if missing is None:
        return f"at the rates seen it takes more than {forecast.horizon:,} {unit}s in all"
    nine = f", at most {forecast.records_90:,} in 9 of 10 simulated runs" if forecast.records_90 else ""
    head = f"about {missing:,} {unit}s are still missing" if missing else "about as many as needed are there"
    return f"{head} (at the rates seen: about {forecast.records:,} in all{nine})"


def in_short(forecast: Forecast, used: int, unit: str) -> str:
    """Say in a cell of a table what a group would take."""
    if forecast.too_few:
        return f"too few {unit}s to tell"
    if math.isinf(forecast.limit):
        return "out of reach"
    if forecast.records is None:
        return f"more than {forecast.horizon:,} {unit}s in all"
    missing = max(0, forecast.records - used)
    return f"about {missing:,} more {unit}s, {forecast.records:,} in all" if missing else "about as many as are there"
