"""The format number, and why format 1 is refused.

Format 2 is frozen: runs that were recorded in it (tests/recorded) verify from now on. Registrations, transcripts and
certificates carry the number.
"""

from __future__ import annotations

FORMAT = 2
FIRST_FORMAT = "format 1, in which a server's unsigned word could decide and releases were not chained"
FIRST_HINT = "it cannot be relied on any more: register and calibrate anew, on units that were not released"
