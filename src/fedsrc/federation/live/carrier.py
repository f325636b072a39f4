"""The live mode's carrier: requests go out to nodes; releases come back, late, twice, wrong or never.

Only a signed hello says which node speaks for which site. A reply is matched to its question by the number of the
letter that it answers. An answer is taken once, and the run loop decides what becomes of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.federation.live.transport import Clock, Letter, Node, Patience, Post, Reply, Tell
from fedsrc.protocol.handshake import Challenge, Hello, parse_hello
from fedsrc.protocol.messages import Answer, Refusal, Request, SignedRequest
from fedsrc.protocol.registration import OnDemand, Registration

LONGEST_PAUSE = 60.0  # seconds between two hellos to a node that does not give a good one


@dataclass
class _Open:
    """A request on its way to a site: the one that it asks, or one of its cohort."""

    request: Request
    site: str
    data: bytes
    end: float  # when it is waited for no longer
    node: int | None = None  # that has it now
    trouble_since: float | None = None
    again: float = 0.0  # when to retry
    lost: float = 0.0  # when a request that nobody has answered counts as lost on the way
    problem: str = "no node speaks for the site"
    answer: Answer | None = None
    numbers: list[str] = field(default_factory=list)


@dataclass
class _Meeting:
    """A node that has not said who it is."""

    again: float = 0.0  # when to greet it
    pause: float = 0.0
    problem: str = ""


class LiveCarrier:
    """Carries requests to the nodes that speak for their sites.

    `node_keys` names the key of each site's node; a site that is named there must come through it. `tell` logs.
    """

    def __init__(
        self,
        registration: Registration,
        key: Key,
        post: Post,
        *,
        patience: Patience | None = None,
        node_keys: Mapping[str, str] | None = None,
        clock: Clock = time,
        tell: Tell = lambda _: None,
    ) -> None:
        self._registration, self._key, self._post = registration, key, post
        self._patience, self._node_keys = patience or Patience(), node_keys or {}
        self._clock, self._tell = clock, tell
        self._live: dict[int, Node] = {}
        self._meetings: dict[int, _Meeting] = {}
        self._hellos: dict[int, Hello] = {}  # by node, in order of arrival
        self._expected: dict[str, Callable[[Reply], None]] = {}  # by letter number

    def node_of(self, site: str) -> int | None:
        """Return the node that speaks for a site: the first that said so and is still connected."""
        return next((node for node, hello in self._hellos.items() if hello.site == site), None)

    def hello_of(self, site: str) -> Hello | None:
        """Return a site's signed word on what it has."""
        return next((hello for hello in self._hellos.values() if hello.site == site), None)

    def gather(self, names: Iterable[str], seconds: float) -> list[str]:
        """Wait at most so long for these sites; return those that are connected."""
        wanted, end = list(names), self._clock.monotonic() + seconds
        while True:
            self.step()
            here = [name for name in wanted if self.node_of(name) is not None]
            if len(here) == len(wanted) or self._clock.monotonic() >= end:
                return here
            self._clock.sleep(self._patience.poll)

    def step(self) -> None:
        """Look who is connected, greet newcomers, and take replies in."""
        self._live = {node.id: node for node in self._post.nodes()}
        for gone in [node for node in (*self._hellos, *self._meetings) if node not in self._live]:
            self._leave(gone)
        self._greet()
        self._fetch()

    def __call__(self, requests: Sequence[Request], /) -> list[Answer | Mapping[str, Answer]]:
        end = self._clock.monotonic() + self._round_seconds()
        asked = list[list[_Open]]()
        for each in requests:
            data = SignedRequest.by(each, self._key).to_bytes()
            asked.append([_Open(each, name, data, end) for name in self._registration.answering(each)])
        while waiting := [each for several in asked for each in _waited_for(several)]:
            self.step()
            self._send(waiting)
            self._fetch()
            self._end(waiting)
            if any(_waited_for(several) for several in asked):
                self._clock.sleep(self._patience.poll)
        return [self._close(several) for several in asked]

    def _round_seconds(self) -> float:
        """How long to wait for a round: until it is answered where it must be; past the time at which sites answer."""
        if self._registration.must_answer:
            return float("inf")
        return 3600.0 * (self._hours or 0.0) + self._patience.round

    @property
    def _hours(self) -> float | None:
        """After how many hours sites answer, whatever is labelled."""
        labelling = self._registration.labelling
        return labelling.hours if isinstance(labelling, OnDemand) else None

    def _leave(self, node: int) -> None:
        self._meetings.pop(node, None)
        hello = self._hellos.pop(node, None)
        if hello is not None:
            self._tell(f"site {hello.site!r}: node {node} is gone")

    def _greet(self) -> None:
        """Challenge nodes that have not said who they are."""
        now, due = self._clock.monotonic(), list[tuple[Node, Challenge]]()
        for node in self._live.values():
            meeting = self._meetings.setdefault(node.id, _Meeting())
            if node.id not in self._hellos and now >= meeting.again:
                due.append((node, Challenge.by(self._key, self._registration.digest, node.id)))
        letters = [Letter(node.id, "hello", challenge.to_bytes()) for node, challenge in due]
        for (node, challenge), number in zip(due, self._push(letters, self._patience.round), strict=True):
            if number is None:
                self._postpone(node.id, "a hello could not be sent")
            else:
                self._meetings[node.id].again = now + self._patience.round  # a challenge may be lost
                self._expected[number] = partial(self._met, node, challenge)

    def _met(self, node: Node, challenge: Challenge, reply: Reply) -> None:
        if node.id not in self._meetings or node.id in self._hellos:
            return  # it has left, or said who it is
        problem = reply.problem or "an empty reply"
        if reply.data is not None:
            try:
                hello = parse_hello(reply.data)
                problem = self._impostor(node, challenge, hello)
            except FedsrcError as error:
                problem = error.what
        if problem:
            self._postpone(node.id, problem)
        else:
            self._welcome(node, hello)

    def _impostor(self, node: Node, challenge: Challenge, hello: Hello) -> str:
        """Return why a hello is not believed, or ""."""
        site = self._registration.by_name.get(hello.site)
        if hello.challenge != challenge.digest:
            return "it answers another challenge"
        if hello.registration != self._registration.digest:
            return "it is of another registration"
        if site is None or site.key is None:
            return f"site {hello.site!r} is not registered"
        if not hello.signed_by(site.key):
            return f"it is not signed by site {site.name!r}"
        if site.capacity is not None and hello.units > site.capacity:
            return f"site {site.name!r} announces more than its registered capacity"
        return self._wrong_node(node, hello)

    def _wrong_node(self, node: Node, hello: Hello) -> str:
        """Return why a node may not carry a hello: site, server and engine must name the same node key."""
        if hello.node_key is not None and hello.node_key != node.key:
            return f"site {hello.site!r} names another node key than the one that carries its word"
        if self._node_keys and self._node_keys.get(hello.site) != hello.node_key:
            return f"site {hello.site!r} is not known to the server by this node key"
        return ""

    def _welcome(self, node: Node, hello: Hello) -> None:
        first = self.node_of(hello.site)
        self._hellos[node.id] = hello
        if first is None:
            self._tell(f"site {hello.site!r} is there through node {node.id}: {hello.units:,} units")
        else:
            self._tell(f"refused: node {node.id} doubles site {hello.site!r}, which node {first} speaks for")

    def _postpone(self, node: int, problem: str) -> None:
        """Retry a node later; log each new reason once."""
        meeting = self._meetings[node]
        meeting.pause = min(max(self._patience.retry, 2 * meeting.pause), LONGEST_PAUSE)
        meeting.again = self._clock.monotonic() + meeting.pause
        if meeting.problem != problem:
            self._tell(f"refused: node {node}: {_plain(problem)}")
        meeting.problem = problem

    def _send(self, waiting: Sequence[_Open]) -> None:
        """Send requests to the nodes of their sites, again where the node is gone; give up on sites that stay away. A
        cohort is asked once all of it is there: its round would be void, and units spent for it."""
        now, ready, here = self._clock.monotonic(), [], {hello.site for hello in self._hellos.values()}
        for each in waiting:
            node = self.node_of(each.site)
            if each.node is not None and each.node == node and now < each.lost:
                continue
            if node is None:
                self._lose(each, now)
            elif now >= each.again and (each.numbers or here.issuperset(self._registration.answering(each.request))):
                each.node = node
                ready.append(each)
        letters = [Letter(each.node or 0, "release", each.data, str(each.request.round)) for each in ready]
        seconds = min(max(1.0, *(each.end - now for each in ready)) if ready else 1.0, self._patience.round)
        for each, number in zip(ready, self._push(letters, seconds), strict=True):
            each.lost = now + seconds
            if number is None:
                self._stumble(each, "the request could not be sent")
                continue
            each.numbers.append(number)
            self._expected[number] = partial(self._take, each)

    def _lose(self, each: _Open, now: float) -> None:
        """Wait for a node that speaks for the site, but not for ever."""
        if each.node is not None:
            each.node, each.problem, each.trouble_since = None, "its node is gone", now  # this restarts the wait
        each.trouble_since = now if each.trouble_since is None else each.trouble_since
        self._give_up(each, now)

    def _give_up(self, each: _Open, now: float) -> None:
        lost = each.trouble_since is not None and now - each.trouble_since >= self._patience.missing
        if lost and not self._registration.must_answer:
            each.answer = f"site {each.site!r} is not connected: {each.problem}"

    def _take(self, each: _Open, reply: Reply) -> None:
        if each.answer is not None:
            return
        if reply.data is not None:
            each.answer = reply.data
        elif reply.refused and reply.problem == Refusal.NOT_YET:
            pause = min(LONGEST_PAUSE, 10 * self._patience.retry)
            each.node, each.trouble_since, each.again = None, None, self._clock.monotonic() + pause
            if self._hours is None:
                each.end = max(each.end, each.again + self._patience.round)  # it is there, and people label
        elif reply.refused and self._registration.must_answer:
            self._stumble(each, reply.problem)
        elif reply.refused:
            said = reply.problem if reply.problem in list(Refusal) else "in words that are not a site's"
            each.answer = f"site {each.site!r} refused: {said}"
        else:
            self._stumble(each, reply.problem)

    def _stumble(self, each: _Open, problem: str) -> None:
        """Retry a request that failed on the way, later. The ledger gives the same bytes."""
        now = self._clock.monotonic()
        each.node, each.again, each.problem = None, now + self._patience.retry, _plain(problem)
        each.trouble_since = now if each.trouble_since is None else each.trouble_since
        self._tell(f"site {each.site!r}: request {each.request.number}: {each.problem}")
        self._give_up(each, now)

    def _end(self, waiting: Sequence[_Open]) -> None:
        """Wait no longer for those whose time is over."""
        now = self._clock.monotonic()
        for each in waiting:
            if each.answer is None and now >= each.end:
                trouble = "" if each.node is not None else f" ({each.problem})"
                each.answer = f"no answer of site {each.site!r} before the round was closed{trouble}"

    def _close(self, several: Sequence[_Open]) -> Answer | Mapping[str, Answer]:
        """Return what a request's round closes with, and of a cohort that lacks a member only why; ignore and log what
        comes later."""
        for each in several:
            for number in each.numbers:
                if number in self._expected:
                    self._expected[number] = partial(self._late, each)
        answers = {each.site: each.answer for each in several if each.answer is not None}
        lost = next((each for each in answers.values() if isinstance(each, str)), None)
        return lost or (answers if several[0].request.of_cohort else answers[several[0].site])

    def _late(self, each: _Open, reply: Reply) -> None:
        if reply.data is not None:
            self._tell(f"site {each.site!r}: a late reply to request {each.request.number} is left out")

    def _push(self, letters: Sequence[Letter], seconds: float) -> Sequence[str | None]:
        return self._post.push(letters, seconds) if letters else []

    def _fetch(self) -> None:
        if not self._expected:
            return
        for reply in self._post.pull(list(self._expected)):
            handle = self._expected.pop(reply.to, None)
            if handle is None:
                self._tell("a reply that came before, or answers nothing, is left out")
            else:
                handle(reply)


def _waited_for(several: Sequence[_Open]) -> list[_Open]:
    """Return those of a request that are waited for: nobody in a cohort once a member is lost, since its round is."""
    if any(isinstance(each.answer, str) for each in several):
        return []
    return [each for each in several if each.answer is None]


def _plain(text: str) -> str:
    """Make somebody else's words fit for one line."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:200])
