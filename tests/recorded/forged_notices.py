"""Forged notices of revocation beside a certificate. One that does not fit stops whoever relies on the certificate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fedsrc.common.canonical import digest_bytes
from fedsrc.common.signing import Key, public_hex
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.notices import SUFFIX, Revocation
from tests.recorded.forger import EVIL, Files, Forge, Original

NOTICE = CERTIFICATE + SUFFIX
WHEN = "2026-02-03T04:05:06Z"


def notice(certificate: str, by: Key) -> Revocation:
    """A notice that a key signs."""
    plain = Revocation(certificate=certificate, reason="labels were wrong", time=WHEN, key=public_hex(by))
    return plain.signed(by)


def _with(make: Callable[[Original, str], bytes], run: Original) -> Files | None:
    if run.certificate is None:
        return None
    return {**run.files, NOTICE: make(run, digest_bytes(run.files[CERTIFICATE]))}


def _in_its_name(run: Original, certificate: str) -> bytes:
    """A notice that names the server's key, and is signed by another."""
    said = notice(certificate, EVIL).model_copy(update={"key": public_hex(run.signer)})
    return said.signed(EVIL).to_bytes()


NOTICES: dict[str, Forge] = {
    "notice-genuine": partial(_with, lambda run, name: notice(name, run.signer).to_bytes()),
    "notice-by-other": partial(_with, lambda _, name: notice(name, EVIL).to_bytes()),
    "notice-in-its-name": partial(_with, _in_its_name),
    "notice-of-another": partial(_with, lambda run, _: notice("a" * 64, run.signer).to_bytes()),
    "notice-unsigned": partial(
        _with, lambda run, name: notice(name, run.signer).model_copy(update={"signature": None}).to_bytes()
    ),
    "notice-spaced": partial(_with, lambda run, name: notice(name, run.signer).to_bytes().replace(b":", b": ", 1)),
    "notice-without-end": partial(_with, lambda run, name: notice(name, run.signer).to_bytes().rstrip(b"\n")),
    "notice-empty": partial(_with, lambda _, __: b""),
    "notice-changed": partial(
        _with, lambda run, name: notice(name, run.signer).to_bytes().replace(b"wrong", b"right", 1)
    ),
    "notice-gone": lambda run: (
        {name: data for name, data in run.files.items() if name != NOTICE} if NOTICE in run.files else None
    ),
}
