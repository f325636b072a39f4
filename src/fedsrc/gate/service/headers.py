"""A bound on a request's header that holds however the bytes come.

h11 bounds a header that is not complete yet: one that comes whole, in a single piece, it takes at any size.
"""

from __future__ import annotations

import h11

HEADER_BYTES = 16_384
TOO_LARGE = 431


class BoundedHeaders(h11.Connection):
    """A server's side of a connection that refuses a larger header; `refusal` is then the status to answer with."""

    refusal = 400

    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEADER_BYTES)

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return self._next_request() if self.their_state is h11.IDLE else super().next_event()
        except h11.RemoteProtocolError as error:
            self.refusal = TOO_LARGE if error.error_status_hint == TOO_LARGE else 400
            raise

    def _next_request(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        before = self._waiting()
        event = super().next_event()
        if isinstance(event, h11.Request) and before - self._waiting() > HEADER_BYTES:
            raise h11.RemoteProtocolError("the header is too large", error_status_hint=TOO_LARGE)
        return event

    def _waiting(self) -> int:
        return len(self.trailing_data[0])  # bytes that came and were not yet parsed
