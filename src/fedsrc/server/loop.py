"""The run loop: plan, write the requests down, ask, write the answers down, look, stop.

Whoever carries requests to sites and releases back (one process, files, Flower) is a `Carrier`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from fedsrc.errors import FedsrcError
from fedsrc.protocol.messages import Answer, Release, Request, from_the_future, parse_release
from fedsrc.protocol.transcript import Absent, Arrived, Asked, Closed, Ended, Entry, Opened, Summed, Transcript
from fedsrc.server.opening import open_sum
from fedsrc.server.state import Replay

Came = Answer | Release


class Carrier(Protocol):
    """Takes requests to their sites and brings back, in the same order, release bytes or a reason; of a cohort, those
    of every member by its name."""

    def __call__(self, requests: Sequence[Request], /) -> Sequence[Answer | Mapping[str, Answer]]: ...


def run(
    replay: Replay,
    transcript: Transcript,
    carry: Carrier,
    *,
    watch: Callable[[Replay], None] = lambda _: None,
) -> None:
    """Play rounds until the schedule ends, or a monitor has nobody to ask. Started again, it resumes where the
    transcript stops."""
    while replay.ended is None:
        reason = replay.why_over()
        if reason is not None:
            record(replay, transcript, Ended(reason=reason))
        elif replay.resting:
            return
        else:
            play_round(replay, transcript, carry)
        watch(replay)


def play_round(replay: Replay, transcript: Transcript, carry: Carrier) -> None:
    """Play one round: requests are on disk before they are asked, answers before they are acted on."""
    waiting = ask(replay, transcript)
    close(replay, transcript, dict(zip(replay.asked, carry(waiting), strict=True)))


def ask(replay: Replay, transcript: Transcript) -> list[Request]:
    """Write the round's requests down; return those that still wait for an answer."""
    record(replay, transcript, *(Asked(request=request) for request in replay.plan()))
    return list(replay.asked.values())


def close(replay: Replay, transcript: Transcript, answers: Mapping[str, Came | Mapping[str, Came]]) -> None:
    """Write the answers to all open requests down, in registered order, and close the round; it stays open where every
    one of them must be answered and one is not."""
    entries = [_entry(replay, digest, answers[digest]) for digest in replay.asked]
    for each in entries:
        if isinstance(each, Absent) and replay.registration.must_answer:
            raise FedsrcError(
                f"round {replay.rounds + 1} stays open: {replay.asked[each.request].asked} has not answered"
                f" ({each.reason}), and its labels may have been seen",
                hint="ask again later; only a registration that charges dropout, or in which rounds end after so many"
                " hours, can go on without",
            )
    record(replay, transcript, *entries, Closed(round=replay.rounds + 1))


def begin(replay: Replay, transcript: Transcript) -> None:
    """Open a new transcript; an existing one must be of the same registration, which the replay has checked."""
    if not replay.opened:
        record(replay, transcript, Opened(registration=replay.registration.digest))


def record(replay: Replay, transcript: Transcript, *entries: Entry) -> None:
    """Write entries to disk, then fold them."""
    transcript.append(*entries)
    for entry in entries:
        replay.step(entry)


def _entry(replay: Replay, digest: str, came: Came | Mapping[str, Came]) -> Entry:
    request = replay.asked[digest]
    if not isinstance(came, Mapping):
        return _arrived(replay, request, came)
    members = list[Release]()
    for name in replay.registration.answering(request):
        found = _arrived(replay, request, came[name])
        if isinstance(found, Absent):  # the round of the whole cohort is void
            return found.model_copy(update={"reason": f"site {name!r}: {found.reason}"[:500]})
        members.append(found.release)
    problem = replay.check_sum(request, members)
    if problem is not None:
        return Absent(request=digest, refused=True, reason=problem, members=tuple(members))
    first, second, _ = open_sum(members)
    return Summed(request=digest, members=tuple(members), first=first, second=second)


def _arrived(replay: Replay, request: Request, answer: Came) -> Arrived | Absent:
    if isinstance(answer, str):
        words = "".join(letter if letter.isprintable() else "?" for letter in answer[:500])
        return Absent(request=request.digest, refused=False, reason=words)
    try:
        release = answer if isinstance(answer, Release) else parse_release(answer)
    except FedsrcError as error:
        return Absent(request=request.digest, refused=True, reason=error.what)
    ahead = from_the_future(release)
    if ahead is not None:  # by this clock and now, which nobody who replays could check: absent, not refused
        return Absent(request=request.digest, refused=False, reason=ahead)
    if release.request != request.digest:
        return Absent(request=request.digest, refused=True, reason="it answers another request")
    problem = replay.check(release)
    if problem is not None:
        return Absent(request=request.digest, refused=True, reason=problem, release=release)
    return Arrived(release=release)
