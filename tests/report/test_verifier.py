"""The page's verifier against recorded runs, test vectors and oracles; it is run by Node.

Mutants killed: a bound, a sentence or a line of a transcript that is not compared; a pass where something is out of
reach; a signature that is not checked; arithmetic that is less exact than the margins allow.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtri

from fedsrc.common.local_page import policy
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.report.carried import CANONICAL, MOST
from fedsrc.report.html import VERIFIER, _asset, verifier_page, verifier_script
from tests.report import verifier_schema
from tests.report.verifier_node import NODE, ask, call, calls, encoded, files_of, out_of_reach, verdicts
from tests.support import ROOT
from tests.support.recordings import LIVES, RUNS, recorded

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed: it runs the page's verifier")

FOLDER = ROOT / "src/fedsrc/report/verifier"
VECTORS = json.loads((ROOT / "docs/format/vectors.json").read_bytes())
NOW = 1_780_000_000_000  # milliseconds: within the validity of all recordings but one
NAME = re.compile(r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)


# What it says of recorded runs


@pytest.fixture(scope="module")
def said() -> dict[str, dict[str, Any]]:
    names = recorded()
    return dict(zip(names, verdicts([files_of(RUNS / name) for name in names], now=NOW), strict=True))


@pytest.mark.parametrize("name", recorded())
def test_recorded_runs_verify(said: dict[str, dict[str, Any]], name: str) -> None:
    """But for those out of reach, of which nothing is said."""
    if not (RUNS / name / CERTIFICATE).exists():
        assert said[name]["verdict"] == "DOES NOT VERIFY"
        return
    wanted = "CANNOT CHECK" if out_of_reach(name) else "VERIFIED"
    assert (said[name]["verdict"], said[name]["why"]) == (wanted, said[name]["why"])


def test_notes_stand_beside_the_verdict(said: dict[str, dict[str, Any]]) -> None:
    notes = {name: [part["name"] for part in each["parts"] if part["result"] == "note"] for name, each in said.items()}
    assert notes["revoked"] == ["REVOKED"]
    assert notes["expired"] == ["EXPIRED"]
    assert notes["plain"] == []


def test_every_part_has_its_line(said: dict[str, dict[str, Any]]) -> None:
    names = [part["name"] for part in said["certify-private"]["parts"]]
    assert names == ["files", "signature", "hash chain", "protocol", "bounds", "certificate"]


RECORDED_CARDS = {
    "unopened": (
        "VERIFIED",
        "The certificate follows from the registration and the transcript, and its signature fits.",
    ),
    "rung": ("CANNOT CHECK", "the monitor's files; the certificate itself follows from its run"),
    "succeeded": ("DOES NOT VERIFY", "notice: is of another key than the certificate"),
}  # a card has no statement that one key succeeds another; `fedsrc verify` takes it beside the card


def test_cards_of_yesterday_are_read() -> None:
    cards = [(LIVES / name / "card.html").read_bytes() for name in RECORDED_CARDS]
    assert said_of(*cards) == [*RECORDED_CARDS.values()]


# What it says of changed runs


def forged(name: str, file: str, old: bytes, new: bytes) -> dict[str, Any]:
    files = files_of(RUNS / name)
    assert old in files[file]
    return verdicts([{**files, file: files[file].replace(old, new, 1)}])[0]


@pytest.mark.parametrize(
    ("file", "old", "new", "why"),
    [
        (CERTIFICATE, b'"records": ', b'"records": 1', "signature does not fit"),
        (CERTIFICATE, b'"status": "CERTIFIED"', b'"status":  "CERTIFIED"', "not printed as certificates are"),
        (CERTIFICATE, b'"absent": 0,', b'"absent": 0,\n "absent": 0,', 'names "absent" twice'),
        (TRANSCRIPT, b'"units":', b'"units":1', "chain is broken"),
        (TRANSCRIPT, b'"n":2', b'"n":3', "another number"),
        (TRANSCRIPT, b'{"hello"', b'{ "hello"', "not canonical"),
        (CANONICAL, b'"batch":', b'"batch":1', "registration.toml"),
    ],
)
def test_changed_files_do_not_pass(file: str, old: bytes, new: bytes, why: str) -> None:
    outcome = forged("certify-private", file, old, new)
    assert outcome["verdict"] != "VERIFIED"
    assert why in outcome["why"]


def test_a_missing_file_is_named() -> None:
    files = files_of(RUNS / "plain")
    runs = [{name: data for name, data in files.items() if name != left} for left in files]
    for outcome, left in zip(verdicts(runs), files, strict=True):
        assert outcome["verdict"] == ("CANNOT CHECK" if left == CANONICAL else "DOES NOT VERIFY")
        assert left in outcome["why"]


def test_a_trusted_key_is_compared() -> None:
    files = files_of(RUNS / "plain")
    key = json.loads(files[CERTIFICATE])["key"]
    assert verdicts([files], trusted=f" {key.upper()} ")[0]["verdict"] == "VERIFIED"
    other = verdicts([files], trusted="00" * 32)[0]
    assert (other["verdict"], "not by the key that you trust" in other["why"]) == ("DOES NOT VERIFY", True)
    (line,) = [part["words"] for part in verdicts([files])[0]["parts"] if part["name"] == "signature"]
    assert line == f"signed by {key}; compare it with the key you were given"


# Archives and pages


def zipped(files: list[tuple[str, bytes]], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", how) as archive:
        for name, data in files:
            archive.writestr(name, data)
    return packed.getvalue()


def said_of(*archives: bytes) -> list[tuple[str, str]]:
    return [(each["verdict"], each["why"]) for each in ask(archives=[encoded(data) for data in archives], now=NOW)]


def test_archives_are_unpacked() -> None:
    files = list(files_of(RUNS / "plain").items())
    link = b'<a href="data:application/zip;base64,%s">' % encoded(zipped(files)).encode()
    wanted = [("VERIFIED", "The certificate follows from the registration and the transcript, and its signature fits.")]
    assert said_of(zipped(files), zipped(files, zipfile.ZIP_STORED), link) == 3 * wanted
    assert [why for _, why in said_of(link + link, b"<a>")] == [
        "page: carries more than one run",
        "page: carries no run",
    ]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_anything_but_a_run_is_refused() -> None:
    whole = zipped(list(files_of(RUNS / "plain").items()))
    spoiled = bytearray(whole)
    spoiled[200] ^= 1
    names = ["../evil", "/etc/evil", "monitor/../evil", "readme.txt", "monitor/", "__proto__"]
    other = [zipped([(name, b"x")]) for name in names]
    other += [zipped([(TRANSCRIPT, b"x"), (TRANSCRIPT, b"y")]), zipped([(TRANSCRIPT, bytes(MOST + 1))])]
    other += [zipped([(TRANSCRIPT, b"x")], how) for how in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)]
    assert set(said_of(*other)) == {("DOES NOT VERIFY", "carries something else than a run")}
    broken = [whole[:-40], b"PK", bytes(spoiled), whole + b"x"]
    assert all(verdict == "DOES NOT VERIFY" and "damaged" in why for verdict, why in said_of(*broken))


# The script and its parts


def test_the_schema_is_that_of_the_format() -> None:
    assert verifier_schema.KEPT.read_text(encoding="utf-8") == verifier_schema.text()


def test_modules_share_one_scope() -> None:
    """Every file is in the script, after those that it imports, and no name is declared twice."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.js")}
    assert set(texts) == set(VERIFIER)
    twice = [
        name for name, count in Counter(n for text in texts.values() for n in NAME.findall(text)).items() if count > 1
    ]
    assert twice == []
    for place, name in enumerate(VERIFIER):
        needs = re.findall(r'^import .* from "\./(\w+)\.js";$', texts[name], re.MULTILINE)
        assert set(needs) <= set(VERIFIER[:place])
        assert len(texts[name].splitlines()) < 300
    for text in texts.values():
        assert not re.search(r"\beval\b|innerHTML|outerHTML|insertAdjacent|document\.write|new Function|fetch\(", text)


def test_the_script_is_one_that_parses(tmp_path: Path) -> None:
    script = tmp_path / "script.js"
    script.write_text(verifier_script(), encoding="utf-8")
    assert not re.search(r"^(import|export) ", verifier_script(), re.MULTILINE)
    assert NODE is not None
    assert subprocess.run([NODE, "--check", script], check=False).returncode == 0


def test_the_verifier_page_runs_its_own_script_alone() -> None:
    text = verifier_page()
    (stated,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert stated.replace("&#39;", "'") == policy(_asset("card.css"), verifier_script(), asks=False)
    assert "connect-src" not in stated
    assert text.count("<script>") == text.count("</script>") == 1
    assert "A forged page could carry a forged check" in text


# Bytes


BAD_JSON = (
    '{"a":1,"a":1}',
    "01",
    "1.",
    "+1",
    "NaN",
    "Infinity",
    "1e999",
    '"\\ud800"',
    '"\t"',
    "[1,]",
    "{}x",
    "'a'",
    "[" * 99,
)
BAD_TOML = ('a = """x"""', "a = 01", "a = nan", "a = 1\na = 2", "[a]\n[a]", "a = 2026-01-01", "a = {b = 1", "= 1", "a")


def test_json_is_read_strictly() -> None:
    found = calls(*(("json.js", "parseJson", [text, "here"]) for text in BAD_JSON))
    assert [each.get("error") for each in found] == ["Wrong"] * len(BAD_JSON)
    assert call("json.js", "parseJson", "[9007199254740993, -1.5e3]", "here") == ["9007199254740993n", -1500]


def test_canonical_json() -> None:
    values = {"4.0": 4.0, "-0.0": -0.0, "1e-07": 1e-07, "0.1": 0.1}
    vectors = {vector["value"]: vector["bytes"] for vector in VECTORS["canonical"]}
    found = calls(*(("json.js", "canonical", [value]) for value in values.values()))
    assert found == [vectors[name] for name in values]
    mixed = {"b": [None, True, '€\n"'], "a": {}, "ﬁ": 2, "😀": 1}
    assert call("json.js", "canonical", mixed) == vectors["keys sorted by UTF-16"]


def test_registrations_read_as_toml_say_the_same() -> None:
    files = [files_of(RUNS / name) for name in recorded()]
    found = calls(*(("toml.js", "parseToml", [each[REGISTRATION].decode()]) for each in files))
    for toml in found:
        if isinstance(seed := (toml.get("development") or {}).get("seed"), str):
            toml["development"]["seed"] = seed.removesuffix("n")
    stated = [json.loads(each[CANONICAL]) for each in files]
    pairs = zip(found, stated, strict=True)
    assert calls(*(("toml.js", "difference", list(pair)) for pair in pairs)) == [""] * len(files)


def test_unusual_toml_is_not_read() -> None:
    found = calls(*(("toml.js", "parseToml", [text]) for text in BAD_TOML))
    assert [each.get("error") for each in found] == ["Beyond"] * len(BAD_TOML)


def test_toml_that_says_something_else_is_found() -> None:
    stated = {"a": 1, "b": [{"c": None, "d": "x"}]}
    places = {
        'a = 1\n[[b]]\nd = "x"\n': "", 'a = 2\n[[b]]\nd = "x"\n': "a", "a = 1\nb = []": "b", "b = [{ d = 'x' }]": "a",
        'a = 1\nb = [{ d = "y" }]': "b[1].d", 'a = 1\nb = [{ d = "x", f = 1 }]': "b[1].f",
        'a = true\nb = [{ d = "x" }]': "a",
    }  # fmt: skip
    found = calls(*(("toml.js", "parseToml", [text]) for text in places))
    assert calls(*(("toml.js", "difference", [toml, stated]) for toml in found)) == list(places.values())


# Numbers, by vectors and oracles


def test_tails_of_the_normal_law() -> None:
    points = [*np.linspace(-12, 12, 97), 20.0, 35.0, -20.0]
    found = np.array(ask(calls=[["normal.js", "logTail", [y]] for y in points]), dtype=float)
    np.testing.assert_allclose(found, log_ndtr(-np.array(points)), rtol=2e-14, atol=0)
    levels = [*np.geomspace(1e-14, 0.4, 30), 0.5, 0.9]
    inverse = np.array(ask(calls=[["normal.js", "tailPoint", [a]] for a in levels]), dtype=float)
    np.testing.assert_allclose(inverse, -ndtri(np.array(levels)), rtol=1e-13, atol=1e-15)


def test_matrices() -> None:
    rng = np.random.default_rng(5)
    for size in (1, 2, 7, 12):
        matrix = rng.integers(-1000, 1000, size=(size, size)).astype(float)
        values, inverse = ask(calls=[["matrix.js", name, [matrix.tolist()]] for name in ("singularValues", "inverse")])
        np.testing.assert_allclose(values, np.linalg.svd(matrix, compute_uv=False), rtol=1e-11)
        np.testing.assert_allclose(inverse, np.linalg.inv(matrix), rtol=1e-8)


def test_vectors_of_lines_and_bets() -> None:
    for line in VECTORS["lines"]:
        exact, hybrid = ask(calls=[["normal.js", "exactLine", [line["alpha"], line["nu"]]],
                                   ["normal.js", "hybridLine", [line["alpha"], 2, line["nu"]]]])  # fmt: skip
        assert (exact, hybrid) == pytest.approx((line["exact"], line["hybrid after variance 2"]), abs=1.1e-9)
    for each in VECTORS["bets"]:
        found = call("contrasts.js", "bet", each["theta"], each["r"])
        assert found == pytest.approx({name: each[name] for name in ("a", "b", "least", "most")}, rel=1e-12)


def test_vectors_of_basis_slots_and_quantiles() -> None:
    for each in VECTORS["suffix basis"]:
        rounded = call("basis.js", "roundedBasis", each["m"], each["k"])
        assert rounded == each["f"]
        assert call("basis.js", "inverseBasis", rounded, each["k"]) == pytest.approx(each["g"], rel=1e-14)
    assert all(call("recruit.js", "nextSlots", each) == each["slots"] for each in VECTORS["slots"])
    privacy = {"unit": "record", "answer_weight": "source", "loss_grid": 1, "max_answers": 1}
    release = {**VECTORS["quantiles"], "privacy": privacy}
    assert call("quantiles.js", "quantiles", release, release["asked"]) == VECTORS["quantiles"]["thresholds"]


def test_vectors_of_scales() -> None:
    for each in VECTORS["scale"]:
        privacy = each["privacy"]
        rho = call("privacy.js", "rhoWithin", *(privacy[name] for name in ("epsilon", "delta", "conversion")))
        assert call("privacy.js", "scaleFor", each["sensitivity squared"], rho) == pytest.approx(
            each["scale"], rel=1e-9
        )


def test_vectors_of_printing() -> None:
    for each in VECTORS["percent"]:
        assert call("printing.js", "percent", each["share"]) == each["text"]
        assert call("printing.js", "percentAtLeast", each["share"]) == each["lower"]
    numbers = [each for each in VECTORS["printed"] if abs(each["number"]) < 2**53]
    assert [call("printing.js", "printed", each["number"]) for each in numbers] == [each["text"] for each in numbers]
    for each in VECTORS["rounded"]:
        assert (call("numbers.js", "up9", each["x"]), call("numbers.js", "down9", each["x"])) == (
            each["up"],
            each["down"],
        )


def test_vectors_of_signatures() -> None:
    signed = VECTORS["signed"]
    message, other = ({"base64": encoded(text.encode())} for text in (signed["message"], signed["message"] + "!"))
    hello = {"base64": encoded(signed["hello signs"].encode())}
    given = json.loads(signed["lines"][1])["hello"]["signature"]
    key, signature = signed["public"], signed["signature"]
    checks = [(key, signature, message), (key, signature, other), (key, given, hello), ("00" * 32, given, hello),
              (key, given.upper(), hello)]  # fmt: skip
    found = calls(*(("bytes.js", "signatureFits", list(each)) for each in checks))
    assert found == [True, False, True, False, False]
    lines = {"base64": encoded("".join(signed["lines"]).encode().splitlines()[-1])}
    assert call("bytes.js", "sha256", lines) == signed["head"]


def test_weights_passed_on() -> None:
    """With one block and all of a weight passed on, as sealed certificates do."""
    for each in VECTORS["passed on"]:
        if each["keep"] == 1.0 and not all(each["rejected"][0]):
            left = call("sealed.js", "passedOn", each["weights"][0], each["rejected"][0])
            assert left == pytest.approx(each["left"][0])
