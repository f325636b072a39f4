"""The run that a page carries: its files as one zip, in a link that saves them without a script; `verify` reads it.

The page's own words are nobody's proof: whoever doubts them recomputes the run. Beside registration.toml lies its
canonical JSON, whose digest it is named by, so that a program without its defaults can recompute too.
"""

from __future__ import annotations

import base64
import io
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from fedsrc.common.canonical import canonical_bytes
from fedsrc.common.durable import read_bytes
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, STATUS, TRANSCRIPT
from fedsrc.protocol.notices import Revocation, beside
from fedsrc.protocol.registration import Registration
from fedsrc.report.view import View

MOST = 8_000_000  # bytes of a run's files that a page carries
LONGEST = 20_000_000  # bytes of a page that is read
MONITOR = "monitor"
FILES = (REGISTRATION, TRANSCRIPT, CERTIFICATE)
CANONICAL = "registration.json"
NOTICE = beside(Path(CERTIFICATE)).name
KNOWN = {*FILES, CANONICAL, NOTICE, *(f"{MONITOR}/{name}" for name in (*FILES, STATUS))}
LINK = "data:application/zip;base64,"
DAY = (1980, 1, 1, 0, 0, 0)  # the same run makes the same page


class Carried(NamedTuple):
    """A link that saves the run, or "" with the reason why there is none."""

    link: Markup
    words: str


def carry(view: View, monitor: Path | None = None) -> Carried | None:
    """Pack a run that has its certificate, the notice that revokes it, and its monitor; None while it is open."""
    if not view["check"]["certificate"]:
        return None
    folder = Path(view["folder"])
    places = {name: folder / name for name in FILES}
    if monitor is not None:
        names = [name for name in (*FILES, STATUS) if (monitor / name).exists()]
        places |= {f"{MONITOR}/{name}": monitor / name for name in names}
    size = sum(path.stat().st_size for path in places.values())
    if size > MOST:
        return Carried(Markup(), f"Its files have {size:,} bytes, more than a page carries: ask for the run's folder.")
    files = {name: read_bytes(path, MOST) for name, path in places.items()} | {CANONICAL: _canonical(folder)}
    if (notice := view["check"]["revoked"]) is not None:
        files[NOTICE] = Revocation.model_validate(notice).to_bytes()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, DAY), data, zipfile.ZIP_DEFLATED)
    size = sum(map(len, files.values()))
    link = LINK + base64.b64encode(packed.getvalue()).decode()
    return Carried(Markup(link), f"{len(files)} files, {size:,} bytes")  # noqa: S704 (base64)


@contextmanager
def opened(place: Path) -> Iterator[Path]:
    """Yield the folder of a run: the one named, or while the block lasts one with the run that a page, or the archive
    saved from it, carries."""
    if not place.is_file():
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="fedsrc-") as made:
        stated = _unpack(place, Path(made))
        try:
            if stated is not None and stated != _canonical(Path(made)):
                raise DamagedError(f"its {CANONICAL} does not say what its {REGISTRATION} says", where=str(place))
            yield Path(made)
        except FedsrcError as error:
            error.where = None if error.where is None else error.where.replace(made, str(place))
            raise


def _canonical(folder: Path) -> bytes:
    """Return the canonical JSON of a run's registration."""
    return canonical_bytes(Registration.read(folder / REGISTRATION).model_dump())


def _unpack(page: Path, folder: Path) -> bytes | None:
    """Write the files that a page or an archive carries into a folder; refuse all but those of a run, each once and
    not too large. Return the canonical JSON of its registration, which is no file of a run."""
    where, data = str(page), read_bytes(page, LONGEST)
    links = re.findall(f'href="{LINK}([A-Za-z0-9+/=]*)"'.encode(), data)
    saved = data.startswith(b"PK")
    if not saved and len(links) != 1:
        hint = "name a run folder, or a page that `fedsrc view run/ -o card.html` wrote"
        raise FedsrcError("carries more than one run" if links else "carries no run", where=where, hint=hint)
    try:
        with zipfile.ZipFile(io.BytesIO(data if saved else base64.b64decode(links[0], validate=True))) as archive:
            found = archive.infolist()
            names = [each.filename for each in found]
            packed = {each.compress_type for each in found} <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
            small = sum(each.file_size for each in found) <= MOST
            if not (KNOWN.issuperset(names) and len(set(names)) == len(names) and packed and small):
                raise DamagedError("carries something else than a run", where=where)
            (folder / MONITOR).mkdir()
            for each in found:
                (folder / each.filename).write_bytes(archive.read(each))
            return (folder / CANONICAL).read_bytes() if CANONICAL in names else None
    except (ValueError, zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError) as error:
        raise DamagedError("the run that it carries is damaged", where=where) from error
