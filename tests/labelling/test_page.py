"""The page over HTTP: for those who know its address, on this machine, from the page itself.

Mutants killed: a wrong or missing secret let in, another host's name (DNS rebinding), another site's page that posts,
an oversized or broken question that ends the server, a header or a policy lost, text that becomes markup.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fedsrc.common.local_page import HEADERS
from fedsrc.labelling.desk import Desk
from fedsrc.labelling.page import Server, kept_secret, serving
from fedsrc.site.label_file import read_labels
from tests.support.rounds import open_round, texts

NAMES = ["row 1", "row 2"]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Server]:
    rounds = [open_round(NAMES)]
    desk = Desk(tmp_path / "labels.jsonl", lambda: rounds, texts, lambda: "Done.")
    with serving(desk, "se-cret", 0) as server:
        yield server
    desk.close()


def requested(
    server: Server, path: str = "", body: Any = None, method: str = "POST", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    place = urlsplit(server.url)
    sent = {"Origin": f"http://{place.netloc}", "Host": place.netloc, **headers}
    connection = http.client.HTTPConnection(place.netloc, timeout=30)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path if path.startswith("/") else place.path + path, data, sent)
    found = connection.getresponse()
    result = found.status, dict(found.headers), found.read()
    connection.close()
    return result


def posted(server: Server, path: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    status, _, data = requested(server, path, fields)
    return status, json.loads(data)


def test_the_page_and_its_headers(served: Server) -> None:
    status, headers, data = requested(served, method="GET")
    assert status == 200
    assert {name: headers[name] for name in HEADERS} == HEADERS
    assert "script-src 'sha256-" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert "'self'" not in headers["Content-Security-Policy"].replace("connect-src 'self'", "")
    assert b"http://" not in data
    assert b"https://" not in data
    assert b"row 1" not in data


def test_people_label_through_it(served: Server, tmp_path: Path) -> None:
    assert posted(served, "ask") == (200, {"kind": "name"})
    assert posted(served, "ask", by="x" * 101)[0] == 400
    assert posted(served, "ask", by="a\u202eb")[0] == 400
    status, screen = posted(served, "ask", by=" ada ")
    assert (status, screen["kind"]) == (200, "answer")
    said = {"by": "ada", "answer": screen["answer"], "shown": screen["shown"], "head": screen["head"]}
    assert posted(served, "label", **said, word="fine")[0] == 400
    assert posted(served, "label", **{**said, "head": "?"}, word="unsure")[0] == 409
    assert posted(served, "label", **said, word="unsure")[1]["answer"] != screen["answer"]
    assert posted(served, "label", **said, word="unsure")[0] == 200
    assert [(each.answer, each.by, each.loss) for each in read_labels(tmp_path / "labels.jsonl")] == [
        (screen["answer"], "ada", None)
    ]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/se-cret/ask", {}, 200),
        ("/", {}, 404),
        ("/se-cre/ask", {}, 404),
        ("/se-cret/x", {}, 404),
        ("/se-cret", {}, 404),
        ("/%C3%A9/ask", {}, 404),
        ("/se-cret/ask", {"Host": "evil.example:80", "Origin": "http://evil.example:80"}, 421),
        ("/se-cret/ask", {"Origin": "http://evil.example"}, 403),
        ("/se-cret/ask", {"Origin": "null"}, 403),
        ("/se-cret/ask", {"Origin": ""}, 403),
    ],
)
def test_who_may_ask(served: Server, path: str, headers: dict[str, str], status: int) -> None:
    assert requested(served, path, {"by": "ada"}, **headers)[0] == status


@pytest.mark.parametrize("path", ["/", "/se-cre/", "/se-cret", "/se-cret/x", "/se-cret//"])
def test_who_may_look(served: Server, path: str) -> None:
    assert requested(served, path, method="GET")[0] == 404


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"7", b"[" * 100_000, b'{"by":7}', b'{"by":"a","back":7}', b'{"by":"a","x":1}', b"\xff",
     b'"' + b"x" * 300_000 + b'"'],
)  # fmt: skip
@pytest.mark.parametrize("path", ["ask", "label"])
def test_broken_questions_are_refused(served: Server, path: str, body: bytes) -> None:
    assert requested(served, path, body)[0] == 400
    assert posted(served, "ask", by="ada")[0] == 200


def test_other_methods_are_refused(served: Server) -> None:
    status, headers, _ = requested(served, method="PUT")
    assert (status, headers["Allow"]) == (405, "GET, HEAD, POST")
    assert requested(served, method="HEAD")[0] == 200


def test_one_person_need_not_give_a_name(tmp_path: Path) -> None:
    rounds = [open_round(NAMES)]
    desk = Desk(tmp_path / "labels.jsonl", lambda: rounds, texts, lambda: "Done.")
    with serving(desk, "s", 0, by="ada") as server:
        status, screen = posted(server, "ask", by="somebody else")
        said = {name: screen[name] for name in ("answer", "shown", "head")}
        assert posted(server, "label", by="", **said, word="supported")[0] == 200
    desk.close()
    assert [each.by for each in read_labels(tmp_path / "labels.jsonl")] == ["ada"]
    assert status == 200


def test_the_secret_survives_a_restart(tmp_path: Path) -> None:
    secret = kept_secret(tmp_path / "secret")
    assert kept_secret(tmp_path / "secret") == secret
    assert len(secret) == 32
    assert kept_secret(tmp_path / "other") != secret
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    (tmp_path / "secret").write_text("")
    assert len(kept_secret(tmp_path / "secret")) > 20  # never a page without one
