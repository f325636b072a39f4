"""A live run, whatever carries its letters: meet the sites, play rounds, let latecomers in, issue the certificate.

Killed at any point and started again, it resumes where its transcript stops.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from fedsrc.common.signing import Key
from fedsrc.errors import BusyError, FedsrcError
from fedsrc.federation.live.carrier import LiveCarrier
from fedsrc.federation.live.transport import Clock, Patience, Post, Tell
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Transcript
from fedsrc.server.session import Session, check_apart
from fedsrc.server.state import Replay

HELD_TRIES = 60


def play(
    registration: Registration,
    folder: Path,
    key: Key,
    post: Post,
    *,
    patience: Patience | None = None,
    node_keys: Mapping[str, str] | None = None,
    clock: Clock = time,
    tell: Tell = lambda _: None,
) -> Certificate:
    """Play a live run to its certificate, from the start or from where its transcript stops."""
    patience = patience or Patience()
    with live_session(registration, folder, key, clock) as session:
        carrier = LiveCarrier(
            registration, key, post, patience=patience, node_keys=node_keys, clock=clock, tell=tell
        )  # fmt: skip

        def after_round(replay: Replay) -> None:
            for line in session.news():
                tell(line)
            if replay.ended is None:
                carrier.step()
                _announce(session, carrier)

        if session.replay.ended is None:
            _meet(session, carrier, patience, tell)
            session.run(carrier, watch=after_round)
        return _certificate(session)


def finished(session: Session) -> Certificate | None:
    """Return the certificate of a run that has ended, written again in case it is missing; None of one that is open."""
    if not session.begun:
        return None
    with session:
        return None if session.replay.ended is None else _certificate(session)


def live_session(registration: Registration, folder: Path, key: Key, clock: Clock = time) -> Session:
    """Check a live run before it is played: each party's key must be registered, since nothing else vouches for a
    message."""
    if registration.monitor is not None:
        raise FedsrcError("a monitor does not run live", hint="use tables (fedsrc monitor) or files (fedsrc request)")
    check_apart(registration)
    if registration.server_key is None:
        raise FedsrcError("the registration names no server key", hint="register with `server_key=`")
    for site in registration.sites:
        if site.key is None:
            raise FedsrcError(f"site {site.name!r} has no registered key", hint="register with `site_keys=`")
    return Session(folder, registration, key, hold=partial(hold_transcript, clock=clock))


def hold_transcript(path: Path, clock: Clock) -> Transcript:
    """Open a transcript. What is left of a killed run may hold it a little longer, so this waits."""
    for _ in range(HELD_TRIES):
        try:
            return Transcript(path)
        except BusyError:
            clock.sleep(1.0)
    return Transcript(path)


def _certificate(session: Session) -> Certificate:
    found = session.finish()
    assert isinstance(found, Certificate)  # a monitor does not run live
    return found


def _meet(session: Session, carrier: LiveCarrier, patience: Patience, tell: Tell) -> None:
    """Wait for the sites, then write down what each has."""
    names = [site.name for site in session.registration.sites]
    here = carrier.gather(names, patience.start)
    for name in [each for each in names if each not in here]:
        tell(f"site {name!r} is not there yet; it can join between rounds")
    _announce(session, carrier)
    nobody = not here and (session.replay.charging or not session.replay.announced)  # charged sites count as announced
    cohorts = session.registration.cohorts
    if cohorts is not None and not session.replay.in_round:  # what no cohort can answer is not asked
        nobody = not any({*each.members} <= {*here} for each in cohorts.cohorts)
    if nobody:
        who = "no site" if cohorts is None else "no cohort with all its members"
        raise FedsrcError(
            f"{who} came within {patience.start:g} seconds",
            hint="start the sites, then the same command again; their logs say whether they were asked",
        )


def _announce(session: Session, carrier: LiveCarrier) -> None:
    hellos = [carrier.hello_of(site.name) for site in session.silent]
    session.announce(hello for hello in hellos if hello is not None)
