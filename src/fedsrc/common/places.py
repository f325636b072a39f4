"""Where things lie that nobody named a place for: keys, ledgers, and what must outlive the call that made it."""

from __future__ import annotations

import os
from pathlib import Path

from fedsrc.errors import FedsrcError


def server_key() -> Path:
    """The signing key that `fedsrc keys` shows."""
    import click

    return Path(click.get_app_dir("fedsrc")) / "server.key"


def state_folder() -> Path:
    """The user's own folder for state that must survive: XDG_STATE_HOME, or ~/.local/state."""
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        folder = (named if named.is_absolute() else Path.home() / ".local" / "state") / "fedsrc"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # no right to write there, or no home
        what = f"there is no place for a ledger or a run that must outlive this call: {error}"
        raise FedsrcError(what, hint="name both with `ledger=` and `output=`, or a folder in XDG_STATE_HOME") from error
    return folder


def ledger_beside(records: Path) -> Path:
    """The ledger of a file of records: beside the file itself, whatever links lead to it."""
    try:
        linked, names = records.is_symlink(), records.stat().st_nlink
    except OSError:
        linked, names = False, 1  # whoever reads the table says what is wrong with it
    if names > 1:
        raise FedsrcError(
            f"this file has {names} names (hard links), and under each of them it would have a ledger of its own",
            where=str(records),
            hint="name one ledger for all of them with `ledger=`, or keep one name",
        )
    beside = records.with_name(records.name + ".ledger")
    if not linked:
        return beside
    place = records.resolve()
    if beside.exists():
        raise FedsrcError(
            f"there is a ledger beside this link, and records have theirs beside the file itself, {place}",
            where=str(beside),
            hint="name the one that knows what was released with `ledger=`; if both do, pass new records only",
        )
    return place.with_name(place.name + ".ledger")


def mask_beside(key: Path) -> Path:
    """The private mask key of a cohort's site: beside the file of its signing key."""
    return key.with_name(key.name + ".mask")


def sent_beside(mask: Path) -> Path:
    """What was sent under a mask key: beside its file, whatever ledger answers."""
    return mask.with_name(mask.name + ".sent")


def labels_beside(records: Path) -> Path:
    """The labels that people give to a file of records: beside the file itself, whatever links lead to it."""
    place = records.resolve()
    return place.with_name(place.name + ".labels.jsonl")
