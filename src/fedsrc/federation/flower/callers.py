"""Limits on the connections of the node door: how many an address may have, and how long each may stay idle.

A connection beyond a limit evicts the one of the same address that has been idle longest, so that idle connections
block nobody. A connection whose request is complete is never evicted.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import ClassVar, Protocol

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 8_000  # SuperNodes keep theirs open
PER_ADDRESS = 256  # several nodes may share an address
HANDSHAKE_SECONDS = 5.0  # for TLS
HEADER_SECONDS = 5.0  # for a request's header to be complete
WHOLE_SECONDS = 15.0  # and then its body, unless the application has answered before
IDLE_SECONDS = 5  # between requests
HEADER_BYTES = 16_384


class Caller(Protocol):
    """One connection, as `Callers` sees it."""

    since: float

    def waits(self) -> bool:
        """Whether its request is incomplete."""

    def leave(self) -> None:
        """Close it."""


class Callers:
    """The connections of a door, by address."""

    def __init__(self, each: int = PER_ADDRESS, total: int = CONNECTIONS) -> None:
        self._each, self._total = each, total
        self._at: dict[str, dict[Caller, None]] = {}
        self._count = 0

    def come(self, address: str, caller: Caller) -> None:
        """Add a connection, and evict one if that is one too many."""
        here = self._at.setdefault(address, {})
        here[caller] = None
        self._count += 1
        if len(here) > self._each:
            self._make_room(address)
        elif self._count > self._total:
            self._make_room(max(self._at, key=lambda each: len(self._at[each])))

    def go(self, address: str, caller: Caller) -> None:
        """Remove a connection."""
        here = self._at.get(address, {})
        if caller in here:
            del here[caller]
            self._count -= 1
        if not here:
            self._at.pop(address, None)

    def _make_room(self, address: str) -> None:
        """Evict the connection of an address that has been incomplete longest; if all are complete, the newest."""
        here = self._at[address]
        waiting = [each for each in here if each.waits()]
        chosen = min(waiting, key=lambda each: each.since) if waiting else next(reversed(here))
        self.go(address, chosen)
        chosen.leave()


def address_of(host: str) -> str:
    """Return what a connection counts for: its address; of IPv6 the /64, because one machine has all of it."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv4Address):
        return host
    return str(found.ipv4_mapped or ipaddress.ip_network((int(found), 64), strict=False))


class Connection(H11Protocol):
    """Closes a connection whose header or body does not come in time."""

    callers: ClassVar[Callers] = Callers()
    since = 0.0
    _address = ""
    _deadline: asyncio.TimerHandle | None = None
    _in_header = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock for the first header."""
        super().connection_made(transport)
        self._address = address_of(self.client[0] if self.client else "")
        self._begin(HEADER_SECONDS)
        self.callers.come(self._address, self)

    def data_received(self, data: bytes) -> None:
        """Stop the clock of a complete request; give a body its own time."""
        super().data_received(data)
        if not self.waits():
            self._stop()
        elif self._in_header and self.conn.their_state is h11.SEND_BODY:
            self._in_header = False
            self._wait(WHOLE_SECONDS)

    def on_response_complete(self) -> None:
        """Wait for the next request; close a connection that was answered before its body was complete."""
        early = self.conn.their_state is h11.SEND_BODY
        super().on_response_complete()
        if early:
            self.transport.close()
        elif self.waits():
            self._begin(IDLE_SECONDS + HEADER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting it."""
        self._stop()
        self.callers.go(self._address, self)
        super().connection_lost(exc)

    def waits(self) -> bool:
        """Whether its request is incomplete."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def leave(self) -> None:
        """Close it: it was evicted, or its time is up."""
        self.transport.abort()

    def _begin(self, seconds: float) -> None:
        self.since, self._in_header = self.loop.time(), True
        self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        self._stop()
        self._deadline = self.loop.call_later(seconds, self.leave)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
