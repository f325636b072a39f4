"""The gate: a certificate in production. A score is accepted if it reaches the certified threshold, and only then.

It fails closed: whatever is wrong with a score, the clock or the certificate, the answer is not accepted, and the
decision says why in fixed words. What is in force is one immutable value that a renewal replaces in one step, so any
number of threads may decide meanwhile. A halt holds in memory at once and is then written down, so that a restart does
not end it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from fedsrc.common.durable import is_folder, read_text
from fedsrc.errors import FedsrcError
from fedsrc.gate import trust
from fedsrc.gate.decision import Decision, decide, hold
from fedsrc.gate.following import DAY, NOT_FOLLOWED, Following
from fedsrc.gate.halt import NOT_LATER, Halts, beside
from fedsrc.gate.stream import Stream
from fedsrc.gate.trust import Trusted
from fedsrc.protocol.certificate import MAX_BYTES
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.notices import Notices

T = TypeVar("T")
SAY_HALTED = "halted: nothing is accepted until a certificate comes that rests on later calibration"

log = logging.getLogger("fedsrc.gate")


@dataclass(frozen=True)
class Status:
    """Whether the gate accepts anything now, what it rests on, and what is wrong with the files it looks at.

    `score` is the column of the score that the gate takes, `checkpoints` are the numbers of tokens at which a stream is
    checked, and `raw_threshold` is where the threshold lies on the score's `scale`, worst:best, up to rounding.
    `groups` has the threshold of every listed group, None if none was shown; `threshold` is None if each has its own.
    `problem` says why the file that lies there now was not taken, `halt_problem` why the halt's file could not be
    read (then nothing is accepted) or written (then a restart would forget the halt), or what is wrong with a notice
    (then nothing is accepted either). `revoked` says when and why the issuer revoked the certificate in force.
    `monitor` is where the monitor stood when it was last heard of, if the gate follows one, and `monitor_problem` why
    its status does not count now (then nothing is accepted).
    """

    accepting: bool
    reason: str
    certificate: str
    threshold: float | None
    score: str
    scale: str
    checkpoints: tuple[int, ...]
    raw_threshold: float | None
    groups: dict[str, float | None] | None
    target_risk: float
    registration: str
    calibrated: str
    expires: str
    seconds_left: float
    renew_soon: bool
    renewals: int
    refused: int
    problem: str | None
    halt_problem: str | None
    revoked: str | None
    monitor: str | None
    monitor_problem: str | None


class Gate(AbstractContextManager["Gate"]):
    """Accept a score if a trusted, current certificate does. Any number of threads may share one gate.

    Args:
        certificate: A run folder or a certificate file.
        trusted: Public keys, got out of band, one of which must have signed.
        claim: What the certificate must speak of, now and in every renewal: any of system, issuer, score, column,
            loss, population, target_risk, failure_probability, unit, groups, registration. Every field given must be
            equal, as registered; of several scores, score and column are those of the one picked.
        target: The risk to promise, where it is not the registered target: any that the evidence shows, or more. It may
            be chosen after looking, and after an abstention. The threshold is that of the largest rung at or below it.
        halt_file: Where a halt is kept; without it, beside the certificate.
        successions: Files by which a trusted key names the one that takes its place.
        revocations: Where notices of revocation lie besides the certificate: a file, or a folder of them.
        monitor: The folder of the certificate's monitor, or its status file: an alarm halts the gate, and without a
            valid status of the certificate in force nothing is accepted. `watch` looks at it, or `reload`: one that
            was not looked at for an hour does not count.
        monitor_days: Accept nothing if the monitor's latest release is more than so many days ago.
        renew_days: From how many days before its end `status` says that the certificate should be renewed.
        clock: Seconds since 1970.

    Raises:
        FedsrcError: The certificate is not signed by a trusted key, speaks of something else, has expired, was revoked
            or does not show the target. One that was halted makes a gate that accepts nothing.

    Example:
        >>> key = Certificate.read("run/certificate.json").key
        >>> gate = Gate("run/", trusted=[key], claim={"target_risk": 0.2})
        >>> gate.accept(0.99), gate.decide(0.01).reason
        (True, 'score below the threshold')
    """

    def __init__(
        self,
        certificate: Path | str,
        *,
        trusted: Iterable[str],
        claim: Mapping[str, object] | None = None,
        target: float | None = None,
        halt_file: Path | str | None = None,
        successions: Iterable[Path | str] = (),
        revocations: Path | str | None = None,
        monitor: Path | str | None = None,
        monitor_days: float | None = None,
        renew_days: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path, self.renew_days, self._target = Path(certificate), renew_days, target
        self._keys, self._clock = trust.trusted_keys(trusted, successions), clock
        self._claim = trust.expected_claim(claim or {})
        self._file = self.path / CERTIFICATE if is_folder(self.path) else self.path
        self.halt_file = beside(self._file) if halt_file is None else Path(halt_file)
        self._files = threading.Lock()  # one thread at a time reads and writes files
        self._lock = threading.Lock()  # and this one, for what is in memory, is never held meanwhile
        self._end = threading.Event()
        self._watcher: threading.Thread | None = None
        self._renewals = self._refused = 0
        self._problem: str | None = None
        elsewhere = None if revocations is None else Path(revocations)
        self._halts = Halts(self.halt_file, Notices(self._file, elsewhere, self._keys))
        if monitor is None and monitor_days is not None:
            raise FedsrcError("`monitor_days=` is of a monitor", hint="name the folder of one with `monitor=`")
        self._monitor = None if monitor is None else Following(Path(monitor), self._keys, monitor_days)
        self._held = hold(self._read(None), NOT_FOLLOWED, halted=False)
        self._heed()

    def accept(self, score: object, *, group: object = None) -> bool:
        """Return whether an answer with this score is accepted."""
        return decide(self._held, self._clock(), score, group).accepted

    def decide(self, score: object, *, group: object = None) -> Decision:
        """Decide on a score, on the registered scale ([0, 1] unless one was registered), and say why.

        Anything that is no such score is not accepted. If the certificate lists groups, nor is an answer whose group is
        not given, not listed, or has no threshold; if not, it is about all traffic, and the group changes nothing.
        """
        return decide(self._held, self._clock(), score, group)

    def decide_all(self, scores: Iterable[object], *, groups: Iterable[object] | None = None) -> list[Decision]:
        """Decide on each score, all by the same certificate. Unless groups are as many as scores, none is given."""
        held, now, asked = self._held, self._clock(), _each(scores, "scores")
        told = [] if groups is None else _each(groups, "groups")
        if len(told) != len(asked):
            told = [None] * len(asked)
        return [decide(held, now, score, group) for score, group in zip(asked, told, strict=True)]

    def stream(self, *, group: object = None) -> Stream:
        """Begin an answer that is checked while it is written, at the `checkpoints` of the score: `check` each, then
        `end`. A score without checkpoints is checked at the end alone."""
        return Stream(lambda: self._held, self._clock, group)

    def answer(self, text: T, score: object, fallback: T | Callable[[Decision], T], *, group: object = None) -> T:
        """Return the text if its score is accepted, otherwise the fallback, or what that makes of the decision."""
        decision = self.decide(score, group=group)
        if decision.accepted:
            return text
        instead = fallback(decision) if callable(fallback) else fallback
        if instead is None or instead == "":
            raise FedsrcError("the fallback is empty", hint="an answer is never dropped without a word")
        return instead

    def reload(self) -> bool:
        """Reload the files; return True if another certificate is now in force.

        A refused one raises a FedsrcError, and the one in force stays. Refused is what would be refused at the start,
        and a certificate that is older than the one in force, speaks of something else, rests on no later calibration
        than one that was halted, or has no status of its monitor yet if the gate follows one.
        """
        with self._files:
            self._heed()
            held = self._held.certificate
            try:
                found, word = self._read(held), self._held.word
                if self._monitor is not None and found is not held:
                    word = self._monitor.read(found, word, self._clock())
            except FedsrcError as error:
                self._refused += error.what != self._problem
                self._problem = error.what
                raise
            self._problem = None
            if found is held:
                return False
            with self._lock:
                if word.alarm:
                    self._halts.add(found)
                self._held = hold(found, word, halted=self._halts.cover(found))
            self._renewals += 1
            if word.alarm:
                self._heed()
            return True

    def watch(self, seconds: float = 5.0) -> Self:
        """Reload every so many seconds, in a thread of its own, until `close`. What is refused goes to the log."""
        if self._watcher is None:
            self._end.clear()
            self._watcher = threading.Thread(target=self._keep_watch, args=(seconds,), daemon=True, name="fedsrc-gate")
            self._watcher.start()
        return self

    def close(self) -> None:
        """Stop watching. The gate goes on deciding."""
        self._end.set()
        if self._watcher is not None:
            self._watcher.join()
        self._watcher = None

    def halt(self) -> None:
        """Accept nothing more by the certificate in force, here and in every gate on it, restarted or not.

        Only a renewed one that rests on later calibration ends it. If the halt cannot be written down, this gate halts
        all the same, says so in its log and its status, and tries again whenever it reloads.
        """
        with self._lock:
            before = self._held
            self._halts.add(before.certificate)
            self._held = before._replace(halted=True)
        if not before.halted:
            log.warning(SAY_HALTED)
        with self._files:
            self._heed()

    def status(self) -> Status:
        """Return whether the gate would accept a perfect score now, and what it rests on."""
        held, now = self._held, self._clock()
        certificate, said, score = held.certificate, held.certificate.certificate, held.certificate.score
        threshold, groups = certificate.threshold, certificate.groups
        able = next((name for name, each in (groups or {}).items() if each is not None), None)
        decision = decide(held, now, score.scale.best, able)
        return Status(
            decision.accepted, "accepting" if decision.accepted else decision.reason, certificate.digest,
            threshold, score.column, str(score.scale), score.checkpoints,
            None if threshold is None else score.scale.value(threshold), None if groups is None else {**groups},
            certificate.target_risk, said.registration, said.calibrated, said.expires_on,
            certificate.ends - now, certificate.ends - now < self.renew_days * DAY,
            self._renewals, self._refused, self._problem, self._halts.problem,
            self._halts.revoked_words(certificate), None if held.word.status is None else held.word.status.state,
            held.word.problem_at(now),
        )  # fmt: skip

    @property
    def text(self) -> str:
        """The text of the certificate in force, as it was signed."""
        return self._held.certificate.text

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, held: Trusted | None) -> Trusted:
        """Read the certificate, and check it; return the same value if the file has not changed."""
        where, text = str(self._file), read_text(self._file, MAX_BYTES)
        if held is not None and text == held.text:
            return held
        found = trust.read_trusted(text, self._keys, where, self._target)
        trust.check_claim(found, self._claim, where)
        if held is not None:
            trust.check_renewal(found, held, where, self._target)
            if self._halts.known_to_cover(found):
                raise FedsrcError(NOT_LATER, where=where, hint="certify on fresh units: docs/gate.md")
        trust.check_time(found, self._clock(), where)
        revoked = self._halts.revocation(found)
        if revoked is not None:
            raise FedsrcError(revoked.words(), where=where, hint="renew it on fresh units: docs/gate.md")
        return found

    def _heed(self) -> None:
        """Take up the halt, the notices and the monitor's status on disk, and write the halt in memory there."""
        found, known = self._halts.look(self._held.certificate), self._halts.revoked
        word = self._held.word
        if self._monitor is not None:
            word = self._monitor.look(self._held.certificate, word, self._clock())
        with self._lock:
            before = self._held
            self._halts.learn(found, before.certificate)
            if word.alarm:
                self._halts.add(before.certificate)
            now = self._held = hold(before.certificate, word, halted=self._halts.cover(before.certificate))
        if self._halts.revoked is not None and self._halts.revoked != known:
            log.warning("%s", self._halts.revoked.words())
        if before.halted and not now.halted:
            log.warning("files can be read again, and do not halt the certificate in force")
        elif not before.halted and self._halts.known_to_cover(now.certificate):
            log.warning(SAY_HALTED)
        self._halts.keep(found, now.certificate)

    def _keep_watch(self, seconds: float) -> None:
        said: str | None = None
        while not self._end.wait(seconds):
            try:
                if self.reload():
                    log.warning("renewed: %s", self._held.certificate.digest)
                said = None
            except FedsrcError as error:
                if error.what != said:
                    log.warning("not taken, the certificate in force stays: %s", error)
                said = error.what
            except Exception:
                log.exception("the certificate could not be looked at; the one in force stays")


def _each(values: Iterable[object], name: str) -> list[object]:
    """Return values in a row; refuse what holds none."""
    try:
        return list(values)
    except TypeError as error:
        raise FedsrcError(f"`{name}=` is one for each answer, in a row", hint="`decide` takes a single one") from error
