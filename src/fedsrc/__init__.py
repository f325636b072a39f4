"""fedsrc: from labelled records at several sites to a signed certificate on the risk of accepted answers.

records -> release -> transcript -> bounds -> certificate -> gate

Names are imported when they are first used, so that `from fedsrc import Gate` loads what a gate needs and no more.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedsrc.common.signing import load_or_make
    from fedsrc.errors import FedsrcError
    from fedsrc.federation.local import certify_table, register_table
    from fedsrc.gate.gate import Decision, Gate
    from fedsrc.planning.forecast import Forecast, forecast
    from fedsrc.planning.register import Choices, development_part, register
    from fedsrc.protocol.certificate import Certificate
    from fedsrc.protocol.messages import Release, Request
    from fedsrc.protocol.registration import Registration
    from fedsrc.protocol.transcript import Transcript, read_transcript
    from fedsrc.records.table import Columns, read_records
    from fedsrc.records.units import Records, Units
    from fedsrc.report.card import card_text
    from fedsrc.server.bounds import Bounds, Look, look
    from fedsrc.server.issue import issue
    from fedsrc.server.loop import run
    from fedsrc.server.state import Replay
    from fedsrc.server.tally import Tally
    from fedsrc.server.verify import Verified, verify
    from fedsrc.site.ledger import Ledger
    from fedsrc.site.release import make_release

__version__ = "0.1.0"

_HOMES = {
    "common.signing": ("load_or_make",),
    "errors": ("FedsrcError",),
    "federation.local": ("certify_table", "register_table"),
    "gate.gate": ("Decision", "Gate"),
    "planning.forecast": ("Forecast", "forecast"),
    "planning.register": ("Choices", "development_part", "register"),
    "protocol.certificate": ("Certificate",),
    "protocol.messages": ("Release", "Request"),
    "protocol.registration": ("Registration",),
    "protocol.transcript": ("Transcript", "read_transcript"),
    "records.table": ("Columns", "read_records"),
    "records.units": ("Records", "Units"),
    "report.card": ("card_text",),
    "server.bounds": ("Bounds", "Look", "look"),
    "server.issue": ("issue",),
    "server.loop": ("run",),
    "server.state": ("Replay",),
    "server.tally": ("Tally",),
    "server.verify": ("Verified", "verify"),
    "site.ledger": ("Ledger",),
    "site.release": ("make_release",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Bounds",
    "Certificate",
    "Choices",
    "Columns",
    "Decision",
    "FedsrcError",
    "Forecast",
    "Gate",
    "Ledger",
    "Look",
    "Records",
    "Registration",
    "Release",
    "Replay",
    "Request",
    "Tally",
    "Transcript",
    "Units",
    "Verified",
    "__version__",
    "card_text",
    "certify_table",
    "development_part",
    "forecast",
    "issue",
    "load_or_make",
    "look",
    "make_release",
    "read_records",
    "read_transcript",
    "register",
    "register_table",
    "run",
    "verify",
]


def __getattr__(name: str) -> object:
    """Import a name of the surface from its home (PEP 562)."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fedsrc' has no attribute {name!r}")
    found: object = getattr(import_module(f"fedsrc.{_HOME_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
