"""Which registration a monitor's folder goes by: its own, one that was written before, or a new one."""

from __future__ import annotations

from pathlib import Path

from fedsrc.common.canonical import file_digest
from fedsrc.errors import FedsrcError
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION
from fedsrc.protocol.registration import Registration


def existing_registration(folder: Path, given: Path | None, certificate: Path | None) -> Registration | None:
    """Return the registration that was given, or the folder's own; None if there is neither.

    With `certificate`, a run folder, it must watch over that certificate.
    """
    place = given or folder / REGISTRATION
    if given is None and not place.exists():
        return None
    registered = Registration.read(place)
    if registered.monitor is None:
        raise FedsrcError("is not the registration of a monitor", where=str(place), hint="choose another `output=`")
    if certificate is not None and file_digest(certificate / CERTIFICATE) != registered.monitor.certificate:
        raise FedsrcError(f"watches over another certificate than that of {certificate}", where=str(place))
    return registered
