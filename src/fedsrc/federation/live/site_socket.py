"""The Unix socket of a site's process, through which its relay asks.

Each connection has a thread of its own, with size limits and deadlines, so that a slow or silent one holds up nobody.
Questions are answered one after the other, by the thread that owns the ledger.
"""

from __future__ import annotations

import os
import queue
import socket
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fedsrc.errors import BusyError, FedsrcError
from fedsrc.federation.flower.app.fedsrc_relay.wire import MAX_QUESTION, QUESTIONS, Frame, WireError, receive, send

SECONDS = 10.0  # to read a question, and to write its answer
CONNECTIONS = 16  # at once
MODE = 0o660  # owner and group: put the SuperNode's user into the group
LONGEST_PATH = 100  # bytes; the system's limit for the address of a Unix socket is a little higher
BUSY = "the site is busy; ask again"


@dataclass
class _Knock:
    question: Frame
    answer: queue.Queue[Frame] = field(default_factory=lambda: queue.Queue(1))


class Door:
    """A listening socket; `serve` answers until `close` is called from another thread or a signal handler."""

    def __init__(
        self,
        path: Path,
        answer: Callable[[Frame], Frame],
        *,
        tell: Callable[[str], None] = lambda _: None,
        seconds: float = SECONDS,
        connections: int = CONNECTIONS,
    ) -> None:
        self.path, self._answer, self._tell, self._seconds = path, answer, tell, seconds
        self._free = threading.Semaphore(connections)
        self._knocks: queue.SimpleQueue[_Knock | None] = queue.SimpleQueue()
        self._closed = False
        self._listener = _listen(path)

    def serve(self) -> None:
        """Answer questions, in this thread, until the door is closed."""
        threading.Thread(target=self._accept, daemon=True).start()
        while (knock := self._knocks.get()) is not None:
            knock.answer.put(self._answer(knock.question))

    def close(self) -> None:
        """Stop listening, after the question that is being answered."""
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        self.path.unlink(missing_ok=True)
        self._knocks.put(None)

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError as error:
                if self._closed:
                    return
                self._tell(f"a connection could not be taken: {error}")
                time.sleep(1.0)  # too many open files, say
                continue
            if self._free.acquire(blocking=False):
                threading.Thread(target=self._talk, args=(link,), daemon=True).start()
            else:
                self._tell(f"refused: {BUSY}")
                link.close()

    def _talk(self, link: socket.socket) -> None:
        try:
            with link:
                knock = _Knock(receive(link, QUESTIONS, MAX_QUESTION, self._seconds))
                self._knocks.put(knock)
                send(link, knock.answer.get(), self._seconds)
        except WireError as error:
            self._tell(f"refused: a connection: {error}")
        finally:
            self._free.release()


def socket_of(records: Path) -> Path:
    """Return where a site listens by default: beside its table."""
    return records.with_name(records.name + ".socket")


def too_long(path: Path) -> bool:
    """Return whether a path is too long for a socket."""
    return len(os.fsencode(path)) > LONGEST_PATH


def _listen(path: Path) -> socket.socket:
    if too_long(path):
        hint = f"a socket's path may have {LONGEST_PATH} bytes; choose a shorter one with `socket=`"
        raise FedsrcError("the path is too long for a socket", where=str(path), hint=hint)
    _clear(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mask = os.umask(0o777 & ~MODE)
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        listener.listen()
    except OSError as error:
        listener.close()
        raise FedsrcError(f"cannot listen: {error.strerror or error}", where=str(path)) from error
    return listener


def _clear(path: Path) -> None:
    """Remove the socket that a killed process left behind; refuse a socket that answers, or another kind of file."""
    if not path.exists():
        return
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise FedsrcError("is not a socket", where=str(path), hint="choose another `socket=`")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise FedsrcError(f"cannot be tried: {error.strerror or error}", where=str(path)) from error
    raise BusyError("another process listens here already", where=str(path), hint="is the site running twice?")
