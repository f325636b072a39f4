"""The registered certificate, sealed or open, planned or plain: the server's own looks, on simulated releases.

Trials in which the same sites answer and withhold share a tally, and are looked at together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedsrc.audit.cell import Cell
from fedsrc.audit.events import Events
from fedsrc.audit.evidence import exact, noise_of, noises
from fedsrc.audit.methods.setting import Evidence, Verdict
from fedsrc.maths.arrays import Ints
from fedsrc.protocol.judgements import Sealed
from fedsrc.server import sealed
from fedsrc.server.bounds import Look, for_target_only, look, sample
from fedsrc.server.tally import Tally, empty, lose


def played(cell: Cell, events: Events, *, seed: tuple[int, ...]) -> Evidence:
    """Return exact sums with what the server decides at every look; nothing at thresholds that are not registered."""
    seen = exact(cell, events, seed=seed)
    assert events.released is not None  # what was asked for
    sums = events.released + noise_of(cell, events, seed)
    none = np.full(seen.accepted.shape, np.nan)
    found = Verdict(np.zeros(none.shape, dtype=np.bool_), none.copy(), none.copy(), none.copy())
    for trials in alike(events):
        for t, now in decisions(cell, events, trials, sums):
            at = np.ix_(trials, np.array([t]), cell.kept)
            shown = (now.certified, now.risk_upper, now.contrast_upper, now.acceptance_lower)
            for whole, part in zip(vars(found).values(), shown, strict=True):
                if part is not None:
                    whole[at] = part[:, None]
    return replace(seen, server=found)


def alike(events: Events) -> Iterator[Ints]:
    """Yield trials whose public course is the same."""
    course = (events.slots, events.missing, events.answered, events.withheld, events.dropped)
    lines = np.concatenate([each.reshape(len(each), -1) for each in course], axis=1)
    which = np.unique(lines, axis=0, return_inverse=True)[1].ravel()
    yield from (np.flatnonzero(which == number) for number in range(int(which.max()) + 1))


def decisions(cell: Cell, events: Events, trials: Ints, sums: Ints) -> Iterator[tuple[int, Look]]:
    """Yield what those trials show after each round with a look."""
    registration, now, seen, before = cell.played, None, list[sealed.Seen](), 0.0
    last = int(np.flatnonzero((events.answered | events.dropped)[trials[0]].any(axis=-1)).max(initial=-1))
    for t, tally in enumerate(tallies(cell, events, trials, sums)):
        if tally.total == 0:
            continue
        if not isinstance(registration.judgement, Sealed):
            now = look(registration, sample(registration, tally), now)
            yield t, now if registration.fixed_mixture else for_target_only(registration, now)
        elif t > last and now is not None:  # no unit is left
            yield t, now
        elif (share := sealed.due(registration, t + 1, over=t == last)) is not None:
            seen.append(sealed.see(registration, tally, before, share))
            now = sealed.decide(registration, seen)
            yield t, now
        before = tally.noises


def tallies(cell: Cell, events: Events, trials: Ints, sums: Ints) -> Iterator[Tally]:
    """Yield the tally of those trials after each round, with the charge for what was withheld."""
    tally, number, one = empty(cell.played), 0, int(trials[0])
    arrived = np.cumsum(noises(cell, events.answered)[one].sum(axis=-1))
    slots = np.diff(events.missing[one], axis=0, prepend=0)
    for t, withheld in enumerate(events.withheld[one]):
        for k in np.flatnonzero(withheld | events.answered[one, t]).tolist():
            number += 1
            if withheld[k] and cell.setting.charged:
                tally = lose(cell.played, tally, [(k, int(slots[t, k]))], number)
        came, releases = tuple(events.slots[one, t].tolist()), int(arrived[t]) + len(tally.lost)
        tally = replace(tally, slots=came, noises=releases, sums=sums[trials, t])
        yield tally
