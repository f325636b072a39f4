"""Read and check the folder of a run: its registration, transcript and certificate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.protocol.certificate import Signed, read_signed
from fedsrc.protocol.damage import AGAIN
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Chain, Entry, Opened, read_entries
from fedsrc.server.state import Replay

LOG = "live.log"  # what happened in a live run, in words; only the transcript counts


def replay_run(folder: Path) -> tuple[Replay, Chain]:
    """Replay the transcript of a run folder line by line."""
    registration = read_registration(folder)
    check_transcript(folder, needed=True)
    replay, chain, lines = Replay(registration), Chain(), read_entries(folder / TRANSCRIPT)
    for entry, chain in lines:
        fold(replay, entry, chain, lines, folder)
    return replay, chain


def fold(replay: Replay, entry: Entry, chain: Chain, rest: Iterator[tuple[Entry, Chain]], folder: Path) -> None:
    """Replay one entry of a run folder. If it is refused, first report a changed registration or transcript; that a
    line was changed shows in the chain after the rest of them."""
    try:
        replay.step(entry)
    except FedsrcError as error:
        for _, after in rest:
            chain = after
        _check_opened(entry, replay.registration, folder)
        _check_head(chain, folder, error)
        raise


def read_registration(folder: Path) -> Registration:
    """Read the registration of a run folder."""
    if not folder.is_dir():
        raise FedsrcError("there is no such run folder", where=str(folder))
    path = folder / REGISTRATION
    if not path.exists():
        raise missing_file(path)
    try:
        return Registration.read(path)
    except FedsrcError as error:
        if not (folder / TRANSCRIPT).exists():
            raise
        what = f"is not the registration that was signed: it was changed or damaged since ({error.what})"
        hint = "put back the file that was registered; one of another version of fedsrc is read by that version"
        raise FedsrcError(what, where=str(path), hint=hint) from error


def check_transcript(folder: Path, *, needed: bool = False) -> None:
    """Refuse a folder without a transcript if it should have one: for its certificate, or because the run is below."""
    place = folder / TRANSCRIPT
    if not place.exists() and (needed or (folder / CERTIFICATE).exists() or runs_below(folder)):
        raise missing_file(place)


def _check_opened(entry: Entry, registration: Registration, folder: Path) -> None:
    """Refuse a registration other than the one that the transcript was opened under."""
    if isinstance(entry, Opened) and entry.registration != registration.digest:
        found = _signed_certificate(folder)
        if found is not None and found.registration == registration.digest:
            what = f"is the transcript of another run, of registration {entry.registration}"
            raise FedsrcError(what, where=str(folder / TRANSCRIPT), hint=AGAIN)
        raise FedsrcError(
            f"is not the registration that was signed: its digest is {registration.digest}, and the transcript is of"
            f" another registration, {entry.registration}",
            where=str(folder / REGISTRATION),
            hint="it was changed since, or belongs to another run; put back the file that was registered",
        )


def _check_head(chain: Chain, folder: Path, error: FedsrcError) -> None:
    """Refuse a transcript other than the one that the folder's certificate was signed over."""
    found = _signed_certificate(folder)
    if found is not None and found.transcript != chain.head:
        what = f"the transcript was changed after it was signed ({error.what})"
        raise FedsrcError(what, where=str(folder / TRANSCRIPT), hint=AGAIN) from error


def _signed_certificate(folder: Path) -> Signed | None:
    """Return the folder's certificate, if there is one and its signature fits."""
    path = folder / CERTIFICATE
    if not path.exists():
        return None
    found = read_signed(path)
    return found if found.as_signed() else None


def runs_below(folder: Path) -> list[Path]:
    """Return the folders one level below that hold a run."""
    return sorted(path.parent for path in folder.glob(f"*/{TRANSCRIPT}"))


def missing_file(path: Path) -> FedsrcError:
    """Return the error for a run folder that lacks a file."""
    below = [str(each) for each in runs_below(path.parent)]
    if below:
        what = f"there is no run in this folder; there is one below it, in {below[0]}"
        more = f" (and {len(below) - 1} more)" if len(below) > 1 else ""
        return FedsrcError(f"{what}{more}", where=str(path.parent), hint=f"name that folder: {below[0]}")
    files = f"{REGISTRATION}, {TRANSCRIPT} and, once it has ended, {CERTIFICATE}"
    return FedsrcError("is missing", where=str(path), hint=f"the folder of a run holds {files}")


def check_server_key(registration: Registration, key: Key) -> None:
    """Refuse a key other than the one that the registration names for its server."""
    if registration.server_key is not None and registration.server_key != public_hex(key):
        raise FedsrcError(
            f"this registration is run by the server with key {registration.server_key}",
            hint="pass that key's file with `key=`",
        )


def is_new(folder: Path, registration: Registration) -> bool:
    """Return whether a folder holds no run yet; refuse one that holds a run of another registration."""
    existing = folder / REGISTRATION
    if not existing.exists():
        if any((folder / name).exists() for name in (TRANSCRIPT, CERTIFICATE)):
            raise FedsrcError("holds a run without its registration", where=str(folder))
        return True
    if Registration.read(existing).digest != registration.digest:
        hint = "choose another folder with `output=`"
        raise FedsrcError("holds a run of another registration", where=str(folder), hint=hint)
    return False
