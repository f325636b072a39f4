"""fedsrc: from labelled records at several sites to a signed certificate on the risk of accepted answers.

records -> release -> transcript -> bounds -> certificate -> gate
"""

from __future__ import annotations

from fedsrc.common.signing import load_or_make
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import certify_table
from fedsrc.gate.gate import Decision, Gate
from fedsrc.planning.forecast import Forecast, forecast
from fedsrc.planning.register import Choices, development_part, register
from fedsrc.protocol.messages import Release, Request
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Transcript, read_transcript
from fedsrc.records.table import Columns, read_records
from fedsrc.records.units import Records, Units
from fedsrc.report.card import card_text
from fedsrc.server.bounds import Bounds, Look, look, report
from fedsrc.server.issue import issue
from fedsrc.server.loop import run
from fedsrc.server.state import Replay
from fedsrc.server.tally import Tally
from fedsrc.server.verify import Verified, verify
from fedsrc.site.ledger import Ledger
from fedsrc.site.release import make_release

__version__ = "0.1.0"

__all__ = [
    "Bounds",
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
    "report",
    "run",
    "verify",
]
