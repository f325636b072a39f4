"""Bytes between a relay and a site's process, over a Unix socket: a kind, a length, and that many bytes.

Standard library only: this file travels in the Flower app and runs where nothing of fedsrc is installed.
One question per connection, one answer back. Every read has a size limit and a time by which it must be whole.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import NamedTuple

HEAD = struct.Struct(">4s1sI")
MAGIC = b"FSR1"
HELLO, RELEASE = b"H", b"R"  # questions
GIVEN, REFUSED = b"G", b"N"  # answers of a site: bytes, or that it will not and a few words why
UNREACHED = b"U"  # a relay's own word: the site's process could not be asked
QUESTIONS, ANSWERS = (HELLO, RELEASE), (GIVEN, REFUSED)
MAX_QUESTION = 1 << 16
MAX_ANSWER = 20_000_000
PART = 1 << 16


class Frame(NamedTuple):
    """A kind and its bytes."""

    kind: bytes
    data: bytes


class WireError(Exception):
    """The other end is silent, gone, or does not speak this language."""


def send(link: socket.socket, frame: Frame, seconds: float) -> None:
    """Send a frame whole, or fail in time."""
    link.settimeout(seconds)
    try:
        link.sendall(HEAD.pack(MAGIC, frame.kind, len(frame.data)) + frame.data)
    except OSError as error:
        raise WireError(f"could not send: {error}") from error


def receive(link: socket.socket, kinds: tuple[bytes, ...], limit: int, seconds: float) -> Frame:
    """Read a frame of one of those kinds and at most so many bytes, all of it before the time is over."""
    end = time.monotonic() + seconds
    magic, kind, length = HEAD.unpack(_exactly(link, HEAD.size, end))
    if magic != MAGIC or kind not in kinds:
        raise WireError("these bytes are not of this protocol")
    if length > limit:
        raise WireError(f"{length:,} bytes were announced; {limit:,} is the limit")
    return Frame(kind, _exactly(link, length, end))


def ask(path: str, question: Frame, seconds: float) -> Frame:
    """Put a question to the site's process that listens at a path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(seconds)
        try:
            link.connect(path)
        except OSError as error:
            raise WireError(f"no site process listens: {error}") from error
        send(link, question, seconds)
        return receive(link, ANSWERS, MAX_ANSWER, seconds)


def _exactly(link: socket.socket, count: int, end: float) -> bytes:
    parts, missing = [], count
    while missing:
        link.settimeout(max(1e-3, end - time.monotonic()))
        try:
            part = link.recv(min(missing, PART))
        except OSError as error:
            raise WireError(f"{count - missing:,} of {count:,} bytes came: {error}") from error
        if not part:
            raise WireError(f"{count - missing:,} of {count:,} bytes came, then the end")
        parts.append(part)
        missing -= len(part)
        if missing and time.monotonic() >= end:
            raise WireError(f"{count - missing:,} of {count:,} bytes came in time")
    return b"".join(parts)
