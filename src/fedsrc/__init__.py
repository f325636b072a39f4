"""fedsrc: from labelled records at several sites to a signed certificate on the risk of accepted answers.

    run = fedsrc.certify("table.csv", target=0.2, epsilon=4)   # a file, a frame, or two arrays
    run.certificate.status, run.certificate.threshold, run.certificate.risk_at_most

records -> release -> transcript -> bounds -> certificate -> gate

Names are imported when they are first used, so that `from fedsrc import Gate` loads what a gate needs and no more. What
is not here is imported from its room: `from fedsrc import protocol, site, server, federation, scores, data, audit`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedsrc.errors import BusyError, DamagedError, FedsrcError, MissingExtraError
    from fedsrc.face import certify, forecast, register, verify
    from fedsrc.gate.decision import Decision
    from fedsrc.gate.gate import Gate
    from fedsrc.planning.forecast import Forecast
    from fedsrc.planning.register import Choices
    from fedsrc.protocol.certificate import Certificate
    from fedsrc.protocol.registration import Registration
    from fedsrc.records.columns import Columns
    from fedsrc.run import Run
    from fedsrc.server.verify import Verified

__version__ = "0.1.0"

_HOMES = {
    "errors": (
        "BusyError",
        "DamagedError",
        "FedsrcError",
        "MissingExtraError",
    ),
    "face": (
        "certify",
        "forecast",
        "register",
        "verify",
    ),
    "gate.decision": ("Decision",),
    "gate.gate": ("Gate",),
    "planning.forecast": ("Forecast",),
    "planning.register": ("Choices",),
    "protocol.certificate": ("Certificate",),
    "protocol.registration": ("Registration",),
    "records.columns": ("Columns",),
    "run": ("Run",),
    "server.verify": ("Verified",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BusyError",
    "Certificate",
    "Choices",
    "Columns",
    "DamagedError",
    "Decision",
    "FedsrcError",
    "Forecast",
    "Gate",
    "MissingExtraError",
    "Registration",
    "Run",
    "Verified",
    "__version__",
    "certify",
    "forecast",
    "register",
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
