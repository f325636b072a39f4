"""What a forger has to hand: a recorded run in plain values, its private keys, and ways to write it anew.

No check is in the way: whatever is changed is chained, digested and signed as if it were genuine.
"""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import tomli_w

from fedsrc.common.canonical import canonical_bytes, digest_bytes
from fedsrc.common.signing import Key, sign
from fedsrc.errors import FedsrcError
from fedsrc.protocol.messages import START
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import ENTRIES, Chain
from fedsrc.server.issue import conclude
from fedsrc.server.state import Replay
from tests.support.forged import forged
from tests.support.recordings import RUNS, key, read_files, signer_of

Plain = dict[str, Any]
Files = dict[str, bytes]
Forge = Callable[["Original"], Files | None]  # the files of a forged run, or None where it makes no sense
EVIL = key("evil")


@dataclass(frozen=True, eq=False)
class Original:
    """A recorded run."""

    name: str
    files: Mapping[str, bytes]

    @cached_property
    def registration(self) -> Registration:
        return Registration.from_toml(self.files[REGISTRATION].decode())

    @property
    def registered(self) -> Plain:
        """The registration's fields, as its file has them."""
        return tomllib.loads(self.files[REGISTRATION].decode())

    @cached_property
    def _entries(self) -> list[Plain]:
        found = [json.loads(line) for line in self.lines]
        return [{name: value for name, value in each.items() if name not in ("n", "prev")} for each in found]

    @property
    def entries(self) -> list[Plain]:
        """The transcript's entries, without their chain: a copy."""
        return copy.deepcopy(self._entries)

    @property
    def lines(self) -> list[bytes]:
        """The transcript's lines, without their ends."""
        return self.files[TRANSCRIPT].splitlines()

    @property
    def ended(self) -> bool:
        return bool(self._entries[-1]["kind"] == "ended")

    @property
    def certificate(self) -> Plain | None:
        """What the certificate says, key and signature apart."""
        if CERTIFICATE not in self.files:
            return None
        found = json.loads(self.files[CERTIFICATE])
        return {name: value for name, value in found.items() if name not in ("key", "signature")}

    @cached_property
    def signer(self) -> Key:
        """The private key that signed."""
        return signer_of(json.loads(self.files[CERTIFICATE])["key"])

    @cached_property
    def keys(self) -> bool:
        """Whether whoever releases signs for it."""
        return all(self.registration.key_of(site.name) is not None for site in self.registration.sites)

    def places(self, kind: str) -> list[int]:
        """Where the entries of a kind are."""
        return [i for i, each in enumerate(self._entries) if each["kind"] == kind]

    def put(self, **files: bytes | None) -> Files:
        """The run's files with some others in their place, or gone: registration, transcript, certificate."""
        names = {"registration": REGISTRATION, "transcript": TRANSCRIPT, "certificate": CERTIFICATE}
        changed = {names[name]: data for name, data in files.items()}
        return {name: data for name, data in {**self.files, **changed}.items() if data is not None}

    def said(self, plain: Plain, by: Key | None) -> Files:
        """The run with another certificate, signed by a key or by none."""
        return self.put(certificate=forged(plain, by).encode())

    def told(self, lines: Sequence[bytes], *, signed: bool) -> Files:
        """The run with another transcript; where the server helps, its certificate names that one."""
        data = b"".join(line + b"\n" for line in lines)
        if not signed or self.certificate is None:
            return self.put(transcript=data)
        head = digest_bytes(lines[-1]) if lines else START
        named = {**self.certificate, "transcript": head, "transcript_lines": len(lines)}
        return self.put(transcript=data, certificate=forged(named, self.signer).encode())


@lru_cache(maxsize=200)
def original(name: str) -> Original:
    """A recorded run by its name."""
    return Original(name, read_files(RUNS / name))


def chained(entries: Sequence[Plain], raw: Mapping[int, bytes] | None = None) -> list[bytes]:
    """Lines for entries, each with the hash of the one before it; some stand as they are, and are hashed so."""
    head, lines = START, list[bytes]()
    for i, entry in enumerate(entries):
        line = (raw or {}).get(i) or canonical_bytes({"n": i + 1, "prev": head, **entry})
        lines.append(line.replace(b"PREV", head.encode()) if i in (raw or {}) else line)
        head = digest_bytes(lines[-1])
    return lines


def issued(run: Original, entries: Sequence[Plain], registered: Registration | None = None) -> Files:
    """The run with other entries, chained, and the certificate that its server would issue for them if the protocol
    allows them; if not, the old one with the new head."""
    registration, lines = registered or run.registration, chained(entries)
    toml = {} if registered is None else {REGISTRATION: registered.to_toml().encode()}
    try:
        replay, chain = Replay(registration), Chain()
        for each in entries:
            entry = ENTRIES.validate_python(copy.deepcopy(each))
            _, chain = chain.line(entry)
            replay.step(entry)
        text = conclude(registration, replay, chain).signed(run.signer).text
    except (FedsrcError, ValueError):
        return {**run.told(lines, signed=True), **toml}
    return {**run.told(lines, signed=False), **toml, CERTIFICATE: text.encode()}


def resigned(release: Plain, by: Key) -> Plain:
    """A release with another signature, or with one where there was none."""
    plain = {name: value for name, value in release.items() if name != "signature"}
    return {**plain, "signature": sign(by, canonical_bytes(plain))}


def to_toml(fields: Plain) -> bytes:
    """Fields of a registration as a file, whatever they are."""
    return tomli_w.dumps(fields).encode()


def changed(value: Any, path: Sequence[str | int], new: Any) -> Any:
    """A deep copy of plain values with one of them replaced, or made from the old one by a function."""
    found = copy.deepcopy(value)
    inner = found
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = new(inner[path[-1]]) if callable(new) else new
    return found
