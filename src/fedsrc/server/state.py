"""Replay a transcript: fold it entry by entry into the state of the run, and refuse whatever breaks the protocol.

Running and `verify` take the same path, so a third party that replays a transcript gets the same state.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.protocol.certificate import RoundBound
from fedsrc.protocol.judgements import Sealed
from fedsrc.protocol.messages import START, Release, Request
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Absent, Announced, Arrived, Asked, Closed, Ended, Entry, Opened, Summed
from fedsrc.server import sealed
from fedsrc.server.alarm import Watch
from fedsrc.server.bounds import Bounds, Look, for_target_only, look, report, sample
from fedsrc.server.opening import open_sum
from fedsrc.server.panel import several
from fedsrc.server.recruiter import make_requests, next_slots
from fedsrc.server.sealed import Seen
from fedsrc.server.stopping import gains_little
from fedsrc.server.tally import Given, Parts, Tally, add, empty, implausible, lose

Status = Literal["CERTIFIED", "OPEN", "ABSTAIN", "STILL SUPPORTED", "ALARM"]
Reason = Literal["certified", "rounds used", "units used", "alarm"]


class SiteChain:
    """The releases of a site, or of the holder, under one registration, each naming the one before it: a release that
    the transcript lacks must be one that it records as absent or refused.

    Theory: (iv), Chain.
    """

    def __init__(self) -> None:
        self.place, self.head, self.missing = 0, START, 0

    def broken_by(self, release: Release) -> str | None:
        """Return why a release cannot be the next one, or None."""
        gap = release.place - self.place - 1
        if not 0 <= gap <= self.missing:
            before = f"{self.place} came before it and {self.missing} did not"
            return f"it is release {release.place} of its site, and {before}"
        if gap == 0 and release.before != self.head:
            return "it does not name the release before it: one was left out, or the site's ledger was set back"
        return None

    def add(self, release: Release) -> None:
        self.place, self.head, self.missing = release.place, release.digest, 0

    def miss(self) -> None:
        """Count a request without an accepted answer: the site may have made a release for it."""
        self.missing += 1


class Replay:
    """The state of a run: a fold over transcript entries."""

    def __init__(self, registration: Registration, entries: Iterable[Entry] = ()) -> None:
        self.registration = registration
        self.index = {site.name: i for i, site in enumerate(registration.sites)}
        self.tally: Tally = empty(registration)
        self.charging = registration.schedule.dropout == "adversarial"
        self.left = [site.capacity or 0 if self.charging else 0 for site in registration.sites]  # public unspent counts
        self.used = [0] * len(registration.sites)  # slots asked for
        self.announced: set[str] = set(self.index) if self.charging else set()
        self.chains: dict[str, SiteChain] = defaultdict(SiteChain)  # by whom requests name: sites, or the holder
        self.tries = 1  # certificates registered on the same records, this one included, as the sites say
        self.others = 0.0  # sum of the failure probabilities of the others
        self.orders: set[str] = set()
        self.rounds = 0
        self.folded = 0.0  # noise up to the last closed round
        self.number = 0
        self.in_round = False
        self._next: list[Request] | None = None  # the next round's requests, until a site or a round changes them
        self.due: deque[Request] = deque()  # requests of the current round that are still to be asked
        self.asked: dict[str, Request] = {}  # asked in the current round and not yet answered
        self.own: dict[tuple[str, str], Release] = {}  # answers whose signature fits, by open request and site
        self.passed: dict[tuple[str, str], Release] = {}  # those of them that are to arrive
        self.answered: list[tuple[Given, tuple[Release, ...]]] = []
        self.sums = [0] * sum(registration.mechanism.lengths)  # of every integer of every accepted answer, exactly
        self.history: dict[str, Literal["arrived", "absent", "refused"]] = {}  # how every earlier request ended
        self.refused = 0
        self.absent = 0
        self.look: Look | None = None
        self.sealed: list[Seen] | None = [] if isinstance(registration.judgement, Sealed) else None
        self.watch = None if registration.monitor is None else Watch(registration)
        self.trace: list[RoundBound] = []
        self.accepted: list[Floats] = []  # the picked rows' acceptance bounds per round of the trace, or 0
        self.times: list[str] = []  # when the folded releases were made, by their sites' clocks
        self.ended: str | None = None
        self.opened = False
        for entry in entries:
            self.step(entry)

    @property
    def status(self) -> Status:
        if self.ended is None:
            return "OPEN"
        if self.watch is not None:
            return "ALARM" if self.watch.alarm else "STILL SUPPORTED"
        return "CERTIFIED" if any(each is not None for each in self.choices) else "ABSTAIN"

    @property
    def choice(self) -> int | None:
        """The certified row that the rule selects, if any; of groups with claims of their own, none stands for all."""
        return None if several(self.registration.claims) else self.choices[0]

    @property
    def choices(self) -> tuple[int | None, ...]:
        """The certified row that the rule selects, of every group that has a claim of its own."""
        if self.look is None:
            return (None,) * (len(self.registration.cuts) if several(self.registration.claims) else 1)
        return self.look.choices(self.registration)

    def bounds(self) -> Bounds | None:
        """Return everything that is reported of the last look, or None before the first."""
        if self.look is None:
            return None
        if self.sealed is not None:
            return sealed.report(self.registration, self.sealed[-1], self.look)
        return report(self.registration, sample(self.registration, self.tally), self.look)

    @property
    def never_came(self) -> list[str]:
        """Registered sites that have announced nothing, and are asked for nothing."""
        return [name for name in self.index if name not in self.announced]

    def plan(self) -> list[Request]:
        """Return the requests still to be asked in this round; between rounds, those of the next, which follow from
        public numbers alone."""
        if self.in_round:
            return list(self.due)
        if self._next is None:
            round = self.rounds + 1
            slots = next_slots(self.registration, self.tally, self.left, round=round)
            self._next = make_requests(self.registration, slots, number=self.number, round=round)
        return self._next

    def why_over(self) -> Reason | None:
        """Return why the schedule ends between these rounds, or None."""
        if self.in_round:
            return None
        if self.watch is not None and self.watch.alarm:
            return "alarm"
        if all(each is not None for each in self.choices) and self._may_stop():
            return "certified"
        if self.rounds >= self.registration.schedule.rounds:
            return "rounds used"
        if self.watch is not None:
            return None  # fresh units may come
        return None if self.plan() else "units used"

    def _may_stop(self) -> bool:
        """Whether the registered policy stops a run that is certified."""
        policy = self.registration.schedule.policy
        if policy == "enough":
            return bool(gains_little([row.records for row in self.trace], self.accepted).all())
        return policy != "final"

    @property
    def resting(self) -> bool:
        """Whether a monitor waits for fresh units, since no site has any left."""
        return self.watch is not None and not self.in_round and not self.plan()

    def step(self, entry: Entry) -> None:
        """Fold one entry; a protocol violation is an error."""
        if self.ended is not None:
            raise _broken("an entry after the end")
        if isinstance(entry, Opened) == self.opened:
            raise _broken("the transcript must be opened once, by its first line")
        match entry:
            case Opened():
                self._open(entry)
            case Announced():
                self._announce(entry)
            case Asked():
                self._ask(entry.request)
            case Arrived():
                self._arrive(entry.release)
            case Summed():
                self._add_up(entry)
            case Absent():
                self._miss(entry)
            case Closed():
                self._close(entry)
            case Ended():
                self._end(entry)

    def check(self, release: Release) -> str | None:
        """Return why a release is not accepted as the answer to an open request, or None. It is checked once."""
        if self.passed.get((release.request, release.site)) is release:
            return None
        problem = self.foreign(release) or self.misshapen(release)
        if problem is None:
            self.passed[release.request, release.site] = release
        return problem

    def foreign(self, release: Release) -> str | None:
        """Return why a release is not its site's own answer to an open request, or None. Anybody could have made such
        a release, so it decides nothing."""
        if self.own.get((release.request, release.site)) is release:
            return None
        request = self.asked.get(release.request)
        if request is None:
            return "it answers no open request"
        whom = release.site if request.of_cohort else request.site
        if whom not in self.registration.answering(request):
            return f"it is of no member of {request.asked}"
        key = self.registration.key_of(whom)
        if key is not None and not release.signed_by(key):
            return f"it is not signed by {f'site {whom!r}' if request.of_cohort else request.asked}"
        self.own[release.request, release.site] = release
        return None

    def misshapen(self, release: Release) -> str | None:
        """Return why a site's own answer is refused, or None."""
        request = self.asked[release.request]
        numbers, asked = (*release.first, *release.second), (request.site, request.slots, request.scale)
        if request.of_cohort:
            asked = release.site, self.registration.parts(request).get(release.site, 0), request.scale
        least, most = (-(1 << 63), (1 << 63) - 1) if request.of_cohort else (1 - (1 << 61), (1 << 61) - 1)
        wrong = {
            "its site, slots or noise scale differ from the request":
                (release.site, release.slots, release.scale) != asked,
            "masks belong to a cohort's releases, and only there": (release.check is not None) != request.of_cohort,
            "its length differs from the registered one":
                (len(release.first), len(release.second)) != self.registration.mechanism.lengths,
            "its numbers are absurdly large": not all(least <= each <= most for each in (*numbers, release.check or 0)),
            "labels on demand and a keyed digest of them go together":
                (release.labels is not None) != self.registration.on_demand,
        }  # fmt: skip
        problem = next((words for words, found in wrong.items() if found), None)
        problem = problem or self.chains[release.site].broken_by(release)
        return problem if problem is not None or request.of_cohort else self._unreadable(request, numbers)

    def check_sum(self, request: Request, members: Sequence[Release]) -> str | None:
        """Return why the releases of a cohort's members, and their sum, are not accepted as its answer, or None."""
        if tuple(each.site for each in members) != self.registration.answering(request):
            return "it is not one release of every member"
        for each in members:
            problem = self.check(each) if each.request == request.digest else "it answers another request"
            if problem is not None:
                return f"site {each.site!r}: {problem}"
        found = open_sum(members)
        if found.check != request.slots:
            return "its masks do not cancel: its members were not asked alike, or one of them masked otherwise"
        return self._unreadable(request, (*found.first, *found.second))

    def _unreadable(self, request: Request, numbers: tuple[int, ...]) -> str | None:
        """Return why an answer's numbers are refused, or None: beyond 64 bits with those before it, or implausible."""
        if any(abs(before + more) >= 1 << 62 for before, more in zip(self.sums, numbers, strict=True)):
            return "its numbers are absurdly large"
        honest = implausible if self.sealed is None else sealed.implausible
        return honest(self.registration, self._given(request, numbers), request.number)

    def _given(self, request: Request, numbers: tuple[int, ...]) -> Given:
        return Given(self._parts(request), numbers, self.registration.noise_of(request.site))

    def _open(self, entry: Opened) -> None:
        if entry.registration != self.registration.digest:
            raise _broken("the transcript belongs to another registration")
        self.opened = True

    def _announce(self, entry: Announced) -> None:
        if self.charging:
            raise _broken("with dropout charged, what a site has is registered and not announced")
        again = self.watch is not None  # a monitor's site announces whatever changes
        if entry.site not in self.index or (entry.site in self.announced and not again) or self.in_round:
            raise _broken(f"site {entry.site!r} cannot announce units here")
        if self.sealed is not None and self.number > 0:
            raise _broken(f"site {entry.site!r} announces units after the first request of a sealed run")
        if not self._own_word(entry):
            raise _broken(f"what site {entry.site!r} has is not said by the site itself")
        capacity = self.registration.site(entry.site).capacity
        if capacity is not None and entry.units > capacity - self.used[self.index[entry.site]]:
            raise _broken(f"site {entry.site!r} announces more than its registered capacity")
        self.left[self.index[entry.site]] = entry.units
        self.announced.add(entry.site)
        self._next = None

    def _own_word(self, entry: Announced) -> bool:
        """Return whether a site signed for its units, or they are its registered capacity. A site without a key cannot
        sign, and a monitor may go on without a site."""
        capacity, key, hello = (
            self.registration.site(entry.site).capacity,
            self.registration.key_of(entry.site),
            entry.hello,
        )
        if hello is None:
            return key is None or entry.units == capacity or (self.watch is not None and entry.units == 0)
        said = (hello.registration, hello.site, hello.units) == (self.registration.digest, entry.site, entry.units)
        return said and key is not None and hello.signed_by(key)

    def _ask(self, request: Request) -> None:
        if self.why_over() is not None:
            raise _broken("a request after the schedule's end")
        due = self.due if self.in_round else deque(self.plan())
        if not due or request != due[0]:
            raise _broken(f"request {request.number} is not what the registered rule asks for")
        due.popleft()
        self.due, self.in_round = due, True
        self.asked[request.digest] = request
        for site, slots in self._parts(request):
            self.used[site] += slots
        self.number = request.number

    def _arrive(self, release: Release) -> None:
        problem = self.check(release)
        if problem is not None:
            raise _broken(f"a release of site {release.site!r} should have been refused: {problem}")
        if self.asked[release.request].of_cohort:
            raise _broken(f"the release of site {release.site!r} stands alone, outside its cohort")
        self._answer(release.request, (release,), (*release.first, *release.second))

    def _add_up(self, entry: Summed) -> None:
        request = self.asked.get(entry.request)
        if request is None or not request.of_cohort:
            raise _broken("a sum without an open request to a cohort")
        problem = self.check_sum(request, entry.members)
        if problem is not None:
            raise _broken(f"a sum of {request.asked} should have been refused: {problem}")
        if (entry.first, entry.second) != open_sum(entry.members)[:2]:
            raise _broken(f"the sum of {request.asked} is not that of its members' releases")
        self._answer(entry.request, entry.members, (*entry.first, *entry.second))

    def _answer(self, digest: str, releases: tuple[Release, ...], numbers: tuple[int, ...]) -> None:
        """Note the answer to a request: one release, or those of a cohort and their sum."""
        self.answered.append((self._given(self.asked[digest], numbers), releases))
        self.sums = [before + more for before, more in zip(self.sums, numbers, strict=True)]
        self._settle(digest)
        for each in releases:
            self.chains[each.site].add(each)
            self.tries, self.others = max(self.tries, each.tries), max(self.others, each.others)
            self.orders.add(each.order)
        self.history[digest] = "arrived"

    def _miss(self, entry: Absent) -> None:
        if entry.request not in self.asked:
            raise _broken("an absence without an open request")
        if self.registration.must_answer:
            raise _broken("a round whose labels may have been seen goes on without an answer")
        if entry.release is not None and not (entry.refused and self._rightly_refused(entry)):
            raise _broken("a release was refused that should have been accepted")
        request = self.asked[entry.request]
        refused = entry.refused and request.of_cohort
        if entry.members and not (refused and self.check_sum(request, entry.members) is not None):
            raise _broken("a sum was refused that should have been accepted")
        parts = self._settle(entry.request)
        for name in self.registration.answering(request):
            self.chains[name].miss()
        self.history[entry.request] = "refused" if entry.refused else "absent"
        self.absent += not entry.refused
        self.refused += entry.refused
        if self.charging:
            noise = self.registration.noise_of(request.site)
            self.tally = lose(self.registration, self.tally, parts, request.number, noise)

    def _settle(self, request: str) -> Parts:
        """Take a request off the open ones, and its slots off what is left; return them."""
        asked = self.asked.pop(request)
        for name in self.registration.answering(asked):
            self.own.pop((request, name), None)
            self.passed.pop((request, name), None)
        parts = self._parts(asked)
        for site, slots in parts:
            self.left[site] -= slots
        return parts

    def _parts(self, request: Request) -> Parts:
        return [(self.index[name], slots) for name, slots in self.registration.parts(request).items()]

    def _rightly_refused(self, entry: Absent) -> bool:
        release = entry.release
        return release is not None and release.request == entry.request and self.check(release) is not None

    def _close(self, entry: Closed) -> None:
        if not self.in_round or entry.round != self.rounds + 1 or self.due or self.asked:
            raise _broken(f"round {entry.round} cannot be closed here")
        before = self.folded
        releases = [each for _, several in self.answered for each in several]
        self.tally = add(self.tally, [given for given, _ in self.answered])
        self.folded = self.tally.noises
        self.times += [each.time for each in releases]
        if self.watch is not None:
            self.watch.close(entry.round, [(self.index[each.site], each) for each in releases])
        self.answered, self.in_round, self.rounds, self._next = [], False, entry.round, None
        if self.watch is not None or self.tally.total == 0:
            return
        if self.sealed is not None:
            self._look_sealed(self.sealed, before)
            return
        now = look(self.registration, sample(self.registration, self.tally), self.look)
        now = now if self.registration.fixed_mixture else for_target_only(self.registration, now)
        self._trace(now)

    def _look_sealed(self, taken: list[Seen], before: float) -> None:
        """Take the look that is registered after this round, if there is one."""
        share = sealed.due(self.registration, self.rounds, over=not self.plan())
        if share is None:
            return
        taken.append(sealed.see(self.registration, self.tally, before, share))
        self._trace(sealed.decide(self.registration, taken))

    def _trace(self, now: Look) -> None:
        """Note what a look shows."""
        enough = now.acceptance_lower >= self.registration.claim.min_acceptance
        best = self.registration.of_answers(float(now.risk_upper[enough].min(initial=1.0)))
        self.trace.append(RoundBound(round=self.rounds, records=self.tally.arrived, risk_upper=best))
        self.look = now
        picked = [0.0 if each is None else float(now.acceptance_lower[each]) for each in self.choices]
        self.accepted.append(np.asarray(picked))

    def _end(self, entry: Ended) -> None:
        if entry.reason != self.why_over():
            raise _broken(f"the run cannot end here with {entry.reason!r}")
        self.ended = entry.reason


def _broken(what: str) -> FedsrcError:
    hint = "do not rely on it: no run by these rules writes that"
    return FedsrcError(f"the transcript breaks the protocol: {what}", hint=hint)
