"""SIGUSR1 halts the gate, however many of them come.

The handler is a method of C, put(number, frame): no bytecode of ours runs in it, so no further signal can interrupt it,
call it once more inside itself, or find a lock taken. A thread of its own does the halting.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from fedsrc.gate.gate import Gate

END = 0  # no signal has this number
LAST_SECONDS = 10.0  # for a halt that is being written when the service ends

log = logging.getLogger("fedsrc.gate")


@contextmanager
def halted_by_signal(gate: Gate) -> Iterator[None]:
    """Halt the gate on SIGUSR1 within the block. A halt that was asked for before its end is made before its end."""
    if not hasattr(signal, "SIGUSR1"):  # on Windows a halt is asked for by its file
        yield
        return
    told: SimpleQueue[int] = SimpleQueue()
    signal.signal(signal.SIGUSR1, told.put)  # type: ignore[arg-type]  # the frame stands for `block`, which is not used
    worker = threading.Thread(target=_halt_when_told, args=(gate, told), daemon=True, name="fedsrc-halt")
    worker.start()
    try:
        yield
    finally:
        told.put(END)
        worker.join(LAST_SECONDS)


def _halt_when_told(gate: Gate, told: SimpleQueue[int]) -> None:
    """Halt once for all signals that have come."""
    heard: set[int] = set()
    while END not in heard:
        heard = {told.get()}
        while not told.empty():
            heard.add(told.get())
        if signal.SIGUSR1 in heard:
            _halt(gate)


def _halt(gate: Gate) -> None:
    try:
        gate.halt()
    except Exception:
        log.exception("halted, in memory alone")
