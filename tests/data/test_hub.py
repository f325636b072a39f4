"""Public collections by name, from a server on this machine: fetched whole and once, or refused with what to do.

Mutants killed: a cut-off, oversized, packed or other file kept, a second request for what is there, a damaged copy
used, plain http or a redirect to it followed, an unknown certificate accepted, a traceback without a network.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedsrc.data import hub
from fedsrc.data.collection import open_collection
from fedsrc.errors import FedsrcError

BODY = b'{"document": "d", "right_summary": "r", "hallucinated_summary": "h"}\n' * 100
NAME = "halueval/summarization"
HOW: dict[str, Any] = {"limit": 10_000, "timeout": 5.0, "plain_http": True}
Answering = Callable[[BaseHTTPRequestHandler], None]


class Server(ThreadingHTTPServer):
    """Answers every request in one way, and writes down what was asked."""

    daemon_threads = True

    def __init__(self, answering: Answering) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                answering(self)

            def log_message(self, *_: Any) -> None: ...

        super().__init__(("127.0.0.1", 0), Handler)

    def address(self, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: Any) -> None: ...  # clients that hang up are part of the tests


@contextmanager
def serving(answering: Answering, certificate: tuple[Path, Path] | None = None) -> Iterator[Server]:
    with Server(answering) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def sends(body: bytes, *, length: int | None = None, status: int = 200, **headers: str) -> Answering:
    def answering(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        if length != -1:
            handler.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answering


def nonsense(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"\x00\xff nonsense\r\n\r\n")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def with_digest(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    [original] = hub.COLLECTIONS[NAME]
    known = hub.Original(original.repository, original.commit, original.path, hashlib.sha256(body).hexdigest())
    monkeypatch.setitem(hub.COLLECTIONS, NAME, (known,))


def test_fetched_once_and_whole(tmp_path: Path) -> None:
    said: list[str] = []
    with serving(sends(BODY)) as server:
        folder = hub.fetch(NAME, cache=tmp_path, server=server.address(), tell=said.append, **HOW)
        again = hub.fetch(NAME, cache=tmp_path, server=server.address(), tell=said.append, **HOW)
    [original] = hub.COLLECTIONS[NAME]
    assert folder == again == tmp_path / "halueval" / original.commit
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"summarization_data.json": BODY}
    assert server.asked == [f"/RUCAIBox/HaluEval/{original.commit}/data/summarization_data.json"]
    assert said == [f"Fetching {original.url(server.address())}"]
    found = open_collection(str(folder), task="summarization")
    assert (len(found.answers), found.files[0].sha256) == (200, hashlib.sha256(BODY).hexdigest())


def test_both_files_of_ragtruth_and_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loose = tuple(hub.Original(o.repository, o.commit, o.path, None) for o in hub.COLLECTIONS["ragtruth"])
    monkeypatch.setitem(hub.COLLECTIONS, "ragtruth", loose)
    with serving(sends(BODY)) as server:
        folder = hub.fetch("ragtruth", cache=tmp_path, server=server.address(), **HOW)
        (folder / "source_info.jsonl").unlink()
        hub.fetch("ragtruth", cache=tmp_path, server=server.address(), **HOW)
    assert [path.rsplit("/", 1)[-1] for path in server.asked] == [
        "response.jsonl",
        "source_info.jsonl",
        "source_info.jsonl",
    ]


def test_a_damaged_copy_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_digest(monkeypatch, BODY)
    target = hub.folder_of(NAME, tmp_path) / "summarization_data.json"
    target.parent.mkdir(parents=True)
    target.write_bytes(BODY[:-1])
    with serving(sends(BODY)) as server:
        hub.fetch(NAME, cache=tmp_path, server=server.address(), **HOW)
        hub.fetch(NAME, cache=tmp_path, server=server.address(), **HOW)
    assert (target.read_bytes(), len(server.asked)) == (BODY, 1)


REFUSED: dict[str, tuple[Answering, str]] = {
    "cut off": (sends(BODY, length=len(BODY) + 1), "the connection ended after 6,900 of 6,901 bytes|cannot be fetched"),
    "cut off chunks": (sends(b"10\r\nabc", length=-1, Transfer_Encoding="chunked"), "cannot be fetched"),
    "not there": (sends(b"", status=404), "the server answered 404"),
    "broken server": (sends(b"", status=500), "the server answered 500"),
    "announced too large": (sends(b"", length=10_001), "larger than 10,000 bytes"),
    "too large": (sends(b"x" * 10_001, length=-1), "larger than 10,000 bytes"),
    "odd length": (sends(b"x" * 10_001, length=int("9" * 30)), "larger than 10,000 bytes"),
    "packed": (sends(gzip.compress(BODY), Content_Encoding="gzip"), "compressed it"),
    "not http": (nonsense, "cannot be fetched"),
    "nothing": (lambda handler: handler.connection.close(), "cannot be fetched"),
    "sent on to a file": (sends(b"", status=302, Location="file:///etc/hostname"), "is not allowed"),
    "sent on to ftp": (sends(b"", status=302, Location="ftp://127.0.0.1/x"), "sends on to an address"),
    "other bytes": (sends(BODY.upper()), "the file fetched has digest"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_anything_else_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    answering, message = REFUSED[name]
    with_digest(monkeypatch, BODY)
    with serving(answering) as server, pytest.raises(FedsrcError, match=message) as caught:
        hub.fetch(NAME, cache=tmp_path, server=server.address(), **HOW)
    assert f"download it by hand into {hub.folder_of(NAME, tmp_path)}" in str(caught.value)
    assert server.address() in str(caught.value)
    assert list(tmp_path.rglob("*")) == []


def test_a_silent_server_is_given_up(tmp_path: Path) -> None:
    with Server(sends(BODY)) as server, pytest.raises(FedsrcError, match="cannot be fetched: timed out"):
        hub.fetch(NAME, cache=tmp_path, server=server.address(), **{**HOW, "timeout": 0.05})


def test_without_a_network_it_says_what_to_do(tmp_path: Path) -> None:
    with Server(sends(BODY)) as server:
        address = server.address()
    with pytest.raises(FedsrcError, match=r"cannot be fetched: .*refused") as caught:
        hub.fetch(NAME, cache=tmp_path, server=address, **HOW)
    assert "hint: download it by hand into" in str(caught.value)


def test_plain_http_and_files_are_never_fetched(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(BODY)
    with serving(sends(BODY)) as server:
        for address in (server.address(), f"file://{tmp_path}", "ftp://127.0.0.1", ""):
            with pytest.raises(FedsrcError, match="only https"):
                hub.download(f"{address}/x", limit=10_000, timeout=1, hint="by hand")
    assert server.asked == []


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that nobody trusts yet, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = tmp_path / "certificate.pem", tmp_path / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


def test_https_with_a_certificate_that_is_trusted_and_with_one_that_is_not(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    how = {**HOW, "plain_http": False}
    with serving(sends(BODY), certificate) as server:
        with pytest.raises(FedsrcError, match=r"cannot be fetched: .*CERTIFICATE_VERIFY_FAILED"):
            hub.fetch(NAME, cache=tmp_path / "a", server=server.address("https"), **how)
        assert server.asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        folder = hub.fetch(NAME, cache=tmp_path / "a", server=server.address("https"), **how)
    assert (folder / "summarization_data.json").read_bytes() == BODY


def test_https_is_not_left_by_a_redirect(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with (
        serving(sends(BODY)) as plain,
        serving(sends(b"", status=302, Location=plain.address() + "/x"), certificate) as server,
        pytest.raises(FedsrcError, match="not https"),
    ):
        hub.fetch(NAME, cache=tmp_path / "a", server=server.address("https"), **{**HOW, "plain_http": False})
    assert plain.asked == []


def test_where_files_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("FEDSRC_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert hub.cache_folder() == tmp_path / ".cache" / "fedsrc"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert hub.cache_folder() == tmp_path / "x" / "fedsrc"
    monkeypatch.setenv("FEDSRC_CACHE", str(tmp_path / "y"))
    assert hub.cache_folder() == tmp_path / "y"


def test_addresses_are_fixed_to_commits() -> None:
    for originals in hub.COLLECTIONS.values():
        for original in originals:
            assert len(original.commit) == 40
            assert original.url().startswith("https://raw.githubusercontent.com/")
            assert original.sha256 is None or len(original.sha256) == 64


@pytest.mark.parametrize("task", ["qa", "dialogue"])
def test_known_digests_are_those_of_the_real_files(task: str) -> None:
    path = Path(os.environ.get("FEDSRC_DATA", "none")) / "halueval" / f"{task}.jsonl.gz"
    if not path.is_file():
        pytest.skip("set FEDSRC_DATA to a folder with HaluEval to check the digests")
    assert (
        hashlib.sha256(gzip.decompress(path.read_bytes())).hexdigest() == hub.COLLECTIONS[f"halueval/{task}"][0].sha256
    )
