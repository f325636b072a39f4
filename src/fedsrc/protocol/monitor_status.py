"""A monitor's signed word to gates: where it stands with one certificate, in a small file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator

from fedsrc.common.clock import Time, real_time, utc_now
from fedsrc.common.durable import is_folder, write_whole
from fedsrc.common.signing import Key, public_hex
from fedsrc.common.values import Grown, Hex
from fedsrc.errors import FedsrcError
from fedsrc.protocol.certificate import Count, Many, MonitorAccount, Share
from fedsrc.protocol.documents import SignedMessage, read_document
from fedsrc.protocol.names import STATUS

MAX_BYTES = 300_000  # of which groups may take most
Word = Literal["certified", "still supported", "alarm"]
WORDS: dict[str, Word] = {
    "NOT MONITORED YET": "certified",
    "STILL SUPPORTED": "still supported",
    "ALARM": "alarm",
}


class MonitorStatus(Grown, SignedMessage):
    """Where a monitor stands: which certificate it watches, by the SHA-256 of its file, at which threshold and for
    which promised risk, and what its fresh labels have shown. `latest` is the time of its last release, "" before the
    first; `time` is that of writing. `groups` are those it rang for, `watched` those it watches, each at its threshold;
    `threshold` is None where each has its own."""

    LATER: ClassVar[tuple[str, ...]] = ("groups", "watched")
    END: ClassVar = b"\n"
    format: Literal[1] = 1
    kind: Literal["monitor status"] = "monitor status"
    certificate: Hex
    monitor: Hex  # the digest of its registration
    threshold: Share | None
    target_risk: Share
    state: Word
    rounds: Count
    records: Count
    latest: Annotated[str, AfterValidator(lambda time: time and real_time(time))]
    time: Time
    key: Hex
    groups: Many[str] | None = None
    watched: dict[str, float] | None = None

    @classmethod
    def of(cls, account: MonitorAccount, key: Key) -> Self:
        """Say where an account stands, now, signed."""
        return cls(
            certificate=account.certificate, monitor=account.registration, threshold=account.threshold,
            target_risk=account.target_risk, state=WORDS[account.status], rounds=account.rounds,
            records=account.records, latest=account.calibrated, time=utc_now(), key=public_hex(key),
            groups=None if account.alarm is None else account.alarm.groups,
            watched=None if account.groups is None else {each.name: each.threshold for each in account.groups},
        ).signed(key)  # fmt: skip

    def save(self, folder: Path) -> None:
        """Write it into the monitor's folder atomically."""
        write_whole(folder / STATUS, self.to_bytes())


def read_status(path: Path) -> MonitorStatus:
    """Read a status, from its file or from the folder of its monitor; refuse it unless its signature fits."""
    place = path / STATUS if is_folder(path) else path
    found = read_document(MonitorStatus, place, "the status of a monitor", MAX_BYTES)
    if not found.signed_by(found.key):
        raise FedsrcError("the signature does not fit the status of the monitor", where=str(place))
    return found
