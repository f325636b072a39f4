"""Public collections by name: the original files, fetched once over HTTPS from a fixed commit, and kept in a cache.

Digests of HaluEval's qa and dialogue files were computed from copies of the originals and agree with public records;
those of RAGTruth's files are on public record in many independent projects. The summarization file has none: its commit
fixes it, and the manifest says what came.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from fedsrc.common.canonical import file_digest
from fedsrc.common.durable import write_whole
from fedsrc.errors import FedsrcError

SERVER = "https://raw.githubusercontent.com"
LIMIT = 128 * 2**20  # bytes; the largest original has 47 million
TIMEOUT = 60.0  # seconds without a byte
CHUNK = 2**20


@dataclass(frozen=True)
class Original:
    """One original file: its public repository, commit and path there, and its digest where that is known."""

    repository: str
    commit: str
    path: str
    sha256: str | None

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]

    def url(self, server: str = SERVER) -> str:
        """Return its address."""
        return f"{server}/{self.repository}/{self.commit}/{self.path}"


def _ragtruth(name: str, sha256: str) -> Original:
    commit = "c103204b9ce28d6bbad859304bf30de72b8ed8fe"
    return Original("ParticleMedia/RAGTruth", commit, f"dataset/{name}.jsonl", sha256)


def _halueval(task: str, sha256: str | None) -> Original:
    commit = "b7253db3cdaa0ab2c382f92b26b390109174f77e"
    return Original("RUCAIBox/HaluEval", commit, f"data/{task}_data.json", sha256)


COLLECTIONS: dict[str, tuple[Original, ...]] = {
    "ragtruth": (
        _ragtruth("response", "e4c2e4ac24fff676d8984cc61c35d791612fadc58015335d97dd632375e18073"),
        _ragtruth("source_info", "0dffc26ea9f3c1c3d7c7e8336b56ef1646e3cec876edffcca3c9c624d12d578b"),
    ),
    "halueval/qa": (_halueval("qa", "89ed139ec5e3a3169a0b30e45569ac1283846f76f27f7bb5e908ee6deed57e88"),),
    "halueval/dialogue": (_halueval("dialogue", "9c461df2691e4362837f66fceaaff3bc260453350c3a1cae76a5a52e5e338bfd"),),
    "halueval/summarization": (_halueval("summarization", None),),
}


def cache_folder() -> Path:
    """Return where fetched files are kept: FEDSRC_CACHE, or fedsrc in the user's cache folder."""
    if named := os.environ.get("FEDSRC_CACHE"):
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "fedsrc"


def folder_of(name: str, cache: Path | None = None) -> Path:
    """Return the folder of a collection's files, named after their commit."""
    return (cache or cache_folder()) / name.split("/", maxsplit=1)[0] / COLLECTIONS[name][0].commit


def fetch(
    name: str,
    *,
    cache: Path | None = None,
    server: str = SERVER,
    limit: int = LIMIT,
    timeout: float = TIMEOUT,
    tell: Callable[[str], None] = lambda _: None,
    plain_http: bool = False,
) -> Path:
    """Return the folder with a collection's original files; fetch those that are missing or damaged.

    `plain_http` is for tests with a server of their own.
    """
    folder = folder_of(name, cache)
    for original in COLLECTIONS[name]:
        target, url = folder / original.name, original.url(server)
        if _is_there(target, original.sha256):
            continue
        tell(f"Fetching {url}")
        hint = f"download it by hand into {folder}, or give the folder of your own copy instead of {name}"
        data = download(url, limit=limit, timeout=timeout, hint=hint, plain_http=plain_http)
        found = hashlib.sha256(data).hexdigest()
        if original.sha256 not in (None, found):
            raise FedsrcError(f"the file fetched has digest {found}, not {original.sha256}", where=url, hint=hint)
        write_whole(target, data)
    return folder


def download(url: str, *, limit: int, timeout: float, hint: str, plain_http: bool = False) -> bytes:
    """Fetch the whole body at an https address: never part of it, and never more than `limit` bytes."""
    schemes = {"https", "http"} if plain_http else {"https"}
    if urlsplit(url).scheme not in schemes:
        raise FedsrcError("only https is fetched", where=url, hint=hint)
    opener = urllib.request.build_opener(_Redirects(schemes))
    request = urllib.request.Request(url, headers={"User-Agent": "fedsrc", "Accept-Encoding": "identity"})  # noqa: S310
    try:
        with opener.open(request, timeout=timeout) as response:
            data = _body(response, response.headers, limit)
    except urllib.error.HTTPError as error:
        with error:
            raise FedsrcError(f"the server answered {error.code} {error.reason}", where=url, hint=hint) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise FedsrcError(f"cannot be fetched: {reason}", where=url, hint=hint) from error
    if isinstance(data, str):
        raise FedsrcError(data, where=url, hint=hint)
    return data


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow a redirect only to an allowed scheme."""

    def __init__(self, schemes: set[str]) -> None:
        self.schemes = schemes

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Return the request for the new address, or refuse it with an error that closes the connection."""
        if urlsplit(newurl).scheme not in self.schemes:
            reason = "and sends on to an address that is not https"
            raise urllib.error.HTTPError(req.full_url, code, reason, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _body(response: IO[bytes], headers: Any, limit: int) -> bytes | str:
    """Read a body; what is wrong with it is returned as a sentence."""
    length = headers.get("Content-Length", "")
    announced = int(length) if length.isdecimal() and len(length) < 20 else None
    if announced is not None and announced > limit:
        return f"it is larger than {limit:,} bytes"
    if headers.get("Content-Encoding", "identity") != "identity":
        return "the server compressed it, which was not asked for"
    data = bytearray()
    while chunk := response.read(CHUNK):
        data += chunk
        if len(data) > limit:
            return f"it is larger than {limit:,} bytes"
    if announced not in (None, len(data)):
        return f"the connection ended after {len(data):,} of {announced:,} bytes"
    return bytes(data)


def _is_there(path: Path, sha256: str | None) -> bool:
    try:
        return path.is_file() and (sha256 is None or file_digest(path) == sha256)
    except OSError as error:
        raise FedsrcError(error.strerror or str(error), where=str(path)) from error
