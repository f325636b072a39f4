"""The monitor that a gate follows. Its signed status must be there, be of the certificate in force and not go back.

A restart knows only what lies in the files: an earlier status that is put back then is taken, until it is too old. A
status counts for an hour after it was looked at, so that a gate which nobody reloads does not follow a monitor in name
alone.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import NamedTuple

from fedsrc.common.clock import instant
from fedsrc.errors import FedsrcError
from fedsrc.gate.trust import SKEW, Trusted
from fedsrc.protocol.monitor_status import MonitorStatus, read_status
from fedsrc.protocol.succession import Keys

DAY, HOUR = 86_400.0, 3_600.0
FOREIGN = "the monitor watches another certificate than the one in force"
OLDER = "the status of the monitor is older than one that was seen before"
OTHER = "the status is of another monitor than the one that was followed so far"

log = logging.getLogger("fedsrc.gate")


class Word(NamedTuple):
    """The monitor's last valid status, what is wrong with the one that lies there now, from when on its monitor counts
    as silent, and when it was looked at: seconds since 1970."""

    status: MonitorStatus | None
    problem: str | None
    silent: float
    looked: float

    @property
    def until(self) -> float:
        """When it stops to count; minus infinity while something is wrong."""
        return min(self.silent, self.looked + HOUR) if self.problem is None else -math.inf

    def problem_at(self, now: float) -> str | None:
        """Say why the status does not count at a time."""
        if self.problem is not None or self.status is None or now <= self.until:
            return self.problem
        if now <= self.silent:
            return "the status of the monitor was last looked at more than an hour ago: watch it, or reload"
        latest = f"its latest release is of {self.status.latest}" if self.status.latest else "it had no release yet"
        return f"the monitor is silent: {latest}"

    @property
    def alarm(self) -> bool:
        return self.status is not None and self.status.state == "alarm"


NOT_FOLLOWED = Word(None, None, math.inf, math.inf)


class Following:
    """Where a monitor's status lies, whose signature counts, and how old its latest release may be, in days."""

    def __init__(self, path: Path, keys: Keys, days: float | None) -> None:
        self.path, self._keys, self._days = path, keys, days
        self._said = ""

    def look(self, certificate: Trusted, seen: Word, now: float) -> Word:
        """Return the monitor's word on the certificate in force, after what was seen before."""
        try:
            found = self.read(certificate, seen, now)
        except FedsrcError as error:
            found, more = Word(seen.status, error.what, math.inf, now), str(error)
        else:
            more = found.problem_at(now) or ""
        if found.alarm and not seen.alarm and found.status is not None:
            where = "".join(f", in group {name!r}" for name in found.status.groups or ())
            log.warning("the monitor raised its alarm, after %s records%s", f"{found.status.records:,}", where)
        if more and more != self._said:
            log.error("nothing is accepted without a valid status from the monitor: %s", more)
        self._said = more
        return found

    def read(self, certificate: Trusted, seen: Word, now: float) -> Word:
        """Read the status; refuse one that is untrusted, of something else, or older than what was seen. An alarm is
        never too old."""
        found, where = read_status(self.path), str(self.path)
        self._keys.check(found.key, found.time, where, "status of the monitor")
        if found.certificate != certificate.digest:
            hint = f"it watches {found.certificate}; put the status of a monitor of {certificate.digest} there"
            raise FedsrcError(FOREIGN, where=where, hint=hint)
        if found.threshold != certificate.threshold:
            what = f"the monitor watches {_which(found.threshold)}, and {_which(certificate.threshold)} is in force"
            raise FedsrcError(what, where=where, hint="register a monitor of the same target")
        certified = {name: at for name, at in (certificate.groups or {}).items() if at is not None}
        if not certified.items() <= (found.watched or {}).items():
            what = "the monitor does not watch every certified group at its threshold"
            raise FedsrcError(what, where=where, hint="register a monitor of this certificate, by its groups")
        if found.state != "alarm":
            if found.target_risk > certificate.target_risk:
                what = f"the monitor is of target {found.target_risk!r}, and {certificate.target_risk!r} is promised"
                raise FedsrcError(what, where=where, hint="register a monitor of the same target")
            _check_later(found, seen.status, where)
            if instant(found.time).timestamp() > now + SKEW:
                raise FedsrcError(f"the status of the monitor is dated {found.time}, after this clock", where=where)
        silent = math.inf if self._days is None else instant(found.latest or found.time).timestamp() + self._days * DAY
        return Word(found, None, silent, now)


def _which(threshold: float | None) -> str:
    return "a threshold for each group" if threshold is None else f"threshold {threshold!r}"


def _check_later(found: MonitorStatus, seen: MonitorStatus | None, where: str) -> None:
    """Refuse a status of the same certificate that goes back."""
    if seen is None or seen.certificate != found.certificate:
        return
    if seen.monitor != found.monitor:
        raise FedsrcError(OTHER, where=where, hint="start a new gate if this is meant")
    if found.time < seen.time or found.rounds < seen.rounds or found.records < seen.records:
        raise FedsrcError(OLDER, where=where, hint=f"that one was written at {seen.time}, after round {seen.rounds}")
