"""The state of a run, read from its folder without changing it, whatever mode plays it."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedsrc.common import locks
from fedsrc.common.durable import open_regular, read_bytes
from fedsrc.common.words import count, plain, risk_words
from fedsrc.protocol.certificate import PanelMember
from fedsrc.protocol.disclosure import privacy_words
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.protocol.notices import beside
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.scale import Scale
from fedsrc.protocol.transcript import (
    Absent,
    Announced,
    Arrived,
    Asked,
    Chain,
    Entry,
    Summed,
    read_transcript,
)
from fedsrc.server.folder import LOG, check_transcript, read_registration
from fedsrc.server.issue import panel_of
from fedsrc.server.panel_words import on_scale, percent
from fedsrc.server.state import Replay, Status

REFUSED = re.compile(r"^\S+ refused: (.*)$")
SHOWN = 5  # refusals
MAX_LOG = 64_000_000  # bytes; a live run rotates its log before


@dataclass
class SiteState:
    """What the transcript says of one site."""

    name: str
    announced: int | None = None  # units; None before it has connected, unless they are registered
    left: int = 0
    arrived: int = 0
    absent: int = 0
    refused: int = 0
    last: str | None = None  # when its latest release was made, by its own clock
    waiting: bool = False  # a request to it is open
    reason: str = ""  # why its latest request failed
    cohort: str | None = None  # whose sum its releases are read in; `absent` and `refused` then count void rounds


@dataclass
class MemberState:
    """Where one group or score of a panel stands; `shown`: the evidence so far shows the target. Of scores, `scale` is
    how one is written, `raw_threshold` its threshold there, and `picked` whether it is the one that is claimed."""

    name: str
    status: str
    shown: bool
    threshold: float | None
    acceptance_lower: float | None
    risk_upper: float | None
    scale: str | None = None
    raw_threshold: float | None = None
    picked: bool | None = None


@dataclass
class RunState:
    """Where a run stands."""

    registration: str
    status: Status
    target_risk: float
    privacy: str  # in words
    rounds: int
    most_rounds: int
    records: int
    releases: int
    risk_upper: float
    sites: list[SiteState]
    transcript: str  # the hash of its last line
    lines: int
    writing: bool  # a process holds the transcript now
    certificate: bool  # there is one
    notice: bool  # a notice of revocation, or something in its place, lies beside it
    turned_away: int = 0  # hellos and nodes, by the log of a live run
    latest: list[str] = field(default_factory=list)
    shown: str = ""  # what the last look shows, in words; nothing of a monitor
    panel: list[MemberState] | None = None  # groups or scores, where there are several claims


class SiteStates:
    """What the transcript says of each site: a fold over its entries, beside the replay."""

    def __init__(self, registration: Registration, entries: Iterable[Entry] = ()) -> None:
        charged = registration.schedule.dropout == "adversarial"
        cohorts = () if registration.cohorts is None else registration.cohorts.cohorts
        of = {name: each.name for each in cohorts for name in each.members}
        self._sites = {
            site.name: SiteState(site.name, site.capacity if charged else None, cohort=of.get(site.name))
            for site in registration.sites
        }
        self._whose: dict[str, list[str]] = {}  # open requests
        self._registration = registration
        for entry in entries:
            self.step(entry)

    def step(self, entry: Entry) -> None:
        """Fold one entry that the replay has accepted."""
        match entry:
            case Announced():
                self._sites[entry.site].announced = entry.units
            case Asked():
                parts, members = self._registration.parts(entry.request), self._registration.answering(entry.request)
                self._whose[entry.request.digest] = [*(members if entry.request.of_cohort else parts)]
            case Arrived():
                for site in self._asked(entry.release.request):
                    site.arrived, site.last, site.reason = site.arrived + 1, entry.release.time, ""
            case Summed():
                for site, release in zip(self._asked(entry.request), entry.members, strict=True):
                    site.arrived, site.last, site.reason = site.arrived + 1, release.time, ""
            case Absent():
                for site in self._asked(entry.request):
                    site.refused, site.absent = site.refused + entry.refused, site.absent + (not entry.refused)
                    site.reason = entry.reason

    def _asked(self, request: str) -> list[SiteState]:
        """Return the sites that a request asked, which waits no longer."""
        return [self._sites[name] for name in self._whose.pop(request)]

    def now(self, replay: Replay) -> list[SiteState]:
        """Return the sites' state, in registered order."""
        waiting = {name for names in self._whose.values() for name in names}
        return [
            replace(site, left=replay.left[replay.index[name]], waiting=name in waiting)
            for name, site in self._sites.items()
        ]


def run_state(folder: Path) -> RunState:
    """Read a run folder: its registration, its transcript as far as it is written, and the log of a live run."""
    registration = read_registration(folder)
    check_transcript(folder)
    entries, chain = _read(folder / TRANSCRIPT)
    replay = Replay(registration, entries)
    turned_away = list(refusals(folder / LOG))
    return RunState(
        registration=registration.digest,
        status=replay.status,
        target_risk=registration.promised_risk,
        privacy=privacy_words(registration),
        rounds=replay.rounds,
        most_rounds=registration.schedule.rounds,
        records=replay.tally.arrived,
        releases=sum(outcome == "arrived" for outcome in replay.history.values()),
        risk_upper=replay.trace[-1].risk_upper if replay.trace else 1.0,
        sites=SiteStates(registration, entries).now(replay),
        transcript=chain.head,
        lines=chain.lines,
        writing=is_held(folder / TRANSCRIPT),
        certificate=(folder / CERTIFICATE).exists(),
        notice=os.path.lexists(beside(folder / CERTIFICATE)),
        turned_away=len(turned_away),
        latest=list(dict.fromkeys(reversed(turned_away)))[:SHOWN],
        shown="" if replay.watch is not None else shown_words(replay),
        panel=_members(replay),
    )


def _members(replay: Replay) -> list[MemberState] | None:
    """Return where every group or score stands; None where there is one claim."""
    found = None if replay.watch is not None else panel_of(replay.registration, replay, replay.bounds())
    if found is None:
        return None
    every, own = replay.choice is not None, found.claim != "all"
    return [
        MemberState(each.name, each.status, any(row.certified for row in each.thresholds) if own else every,
                    each.threshold, each.acceptance_lower, each.risk_upper, *_written(each, found.picked))
        for each in found.members
    ]  # fmt: skip


def _written(member: PanelMember, picked: str | None) -> tuple[str | None, float | None, bool | None]:
    """Return the scale of a score, its threshold there, and whether it is picked; None of each for a group."""
    if member.scale is None:
        return None, None, None
    raw = None if member.threshold is None else member.scale.value(member.threshold)
    return str(member.scale), raw, member.name == picked


def shown_words(replay: Replay) -> str:
    """Say what the last look shows: a bound on the risk, or for how many groups the target, each by itself."""
    if len(replay.choices) == 1:
        return risk_words(replay.trace[-1].risk_upper if replay.trace else 1.0)
    return f"target shown for {sum(each is not None for each in replay.choices)} of {len(replay.choices)} groups"


def is_held(path: Path) -> bool:
    """Return whether a process holds this transcript."""
    if not path.exists():
        return False
    with open_regular(path) as file:
        return locks.is_held(file)


def _read(path: Path) -> tuple[list[Entry], Chain]:
    if not path.exists():
        return [], Chain()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a last line that is being written
        return read_transcript(path)


def refusals(path: Path) -> Iterable[str]:
    """Yield who was turned away, from the log of a live run."""
    if os.access(path, os.R_OK):  # the log is its owner's alone
        found = (REFUSED.match(line) for line in read_bytes(path, MAX_LOG).decode(errors="replace").splitlines())
        yield from (match[1] for match in found if match)


def words(state: RunState) -> list[str]:
    """Describe a run's state, line by line."""
    together = any(site.cohort for site in state.sites)
    came = count(state.releases, "opened sum") if together else f"{state.releases:,} releases"
    lines = [
        f"Status: {_status(state)}  (target risk {state.target_risk:g})",
        f"Round {state.rounds} of at most {state.most_rounds}: {state.records:,} units in {came}"
        f"{f', {state.shown}' if state.shown else ''}",
        f"Privacy: {state.privacy}",
        *([] if state.panel is None else ["Panel", *(f"  {_member(each)}" for each in state.panel)]),
        "Sites",
        *(f"  {_site(site)}" for site in state.sites[:50]),
    ]
    if len(state.sites) > 50:
        lines.append(f"  and {len(state.sites) - 50} more")
    if state.turned_away:
        lines += [f"Turned away {state.turned_away} times, lately", *(f"  {each}" for each in state.latest)]
    return [*lines, f"Registration {state.registration}", f"Transcript   {state.transcript} ({state.lines} lines)"]


def _status(state: RunState) -> str:
    if state.notice:
        return f"{state.status}, with a notice of revocation beside the certificate; `fedsrc verify` reads it"
    if state.status != "OPEN":
        return state.status if state.certificate else f"{state.status}, certificate not yet written"
    return "OPEN, running" if state.writing else "OPEN, not running; run the same command again to resume"


def _member(member: MemberState) -> str:
    status = member.status
    if member.picked is not None and status == "CERTIFIED":  # a score: one of those that pass is claimed
        status = "PICKED" if member.picked else "passes, not picked"
    parts = [status, *(["target shown so far"] if status == "OPEN" and member.shown else [])]
    if member.threshold is not None and member.risk_upper is not None and member.acceptance_lower is not None:
        parts += [_accepted(member), risk_words(member.risk_upper)]
        parts += [f"acceptance at least {percent(member.acceptance_lower, down=True)}"]
    return f"{plain(member.name)}: {', '.join(parts)}"


def _accepted(member: MemberState) -> str:
    """Say from where on a member accepts: a score by its name, and on its scale."""
    if member.scale is None or member.threshold is None:
        return f"score >= {member.threshold!r}"
    return f"{plain(member.name)} >= {member.threshold!r}{on_scale(Scale.of(member.scale), member.threshold)}"


def _site(site: SiteState) -> str:
    if site.announced is None:
        return f"{site.name}: has not connected yet"
    releases = "1 release" if site.arrived == 1 else f"{site.arrived:,} releases"
    parts = [releases, f"{site.left:,} of {site.announced:,} units left"]
    if site.cohort is not None:
        parts = [f"in cohort {site.cohort}", *parts]
        parts += [f"{site.absent + site.refused:,} void"] if site.absent or site.refused else []
    else:
        parts += [f"{site.absent:,} absent"] if site.absent else []
        parts += [f"{site.refused:,} refused"] if site.refused else []
    parts += ["asked now"] if site.waiting else []
    reason = f" (last: {site.reason})" if site.reason else ""
    return f"{site.name}: {', '.join(parts)}{reason}"
