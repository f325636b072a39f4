"""Attacks on the page's verifier: runs that it could pass and `fedsrc verify` refuses, each by the name of the attack.

The forger is the server: it writes any registration and transcript, lets the verifier itself compute the certificate,
and signs that. Whatever then verifies in the page must verify in `fedsrc verify`.

Mutants killed: text that is not printable; numbers as text; times that are none; bounds clipped or charged otherwise;
TOML that is read otherwise; limits of a registration that are left out; a notice that is none.
"""

from __future__ import annotations

import base64
import copy
import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedsrc.common.canonical import canonical_bytes, digest, digest_bytes
from fedsrc.common.signing import public_hex, sign
from tests.recorded.export import NOW
from tests.recorded.forger import chained, original
from tests.report.verifier_node import NODE, encoded, files_of, verdicts
from tests.support.recordings import RUNS, key, public, verdict, write_files

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed: it runs the page's verifier")

Plain = dict[str, Any]
Files = dict[str, bytes]
MODULES = Path(__file__).parents[2] / "src/fedsrc/report/verifier"
ISSUE = """
import { readFileSync } from "node:fs";
const [folder, jwk] = [new URL(process.argv[1]), JSON.parse(process.argv[2])];
const all = ["verify", "replay", "transcript", "certificate", "json", "printing", "bytes", "schema", "registration"];
const names = Object.assign({}, ...await Promise.all(all.map((name) => import(new URL(`${name}.js`, folder)))));
const read = (name) => JSON.parse(readFileSync(new URL(`${name}.json`, folder), "utf8"));
const data = { schema: read("schema"), words: read("words") };
const key = await crypto.subtle.importKey("jwk", jwk, { name: "Ed25519" }, false, ["sign"]);
const answers = [];
for (const each of JSON.parse(readFileSync(0, "utf8"))) {
  const files = new Map(Object.entries(each).map(([n, text]) => [n, new Uint8Array(Buffer.from(text, "base64"))]));
  try {
    const found = files.get("registration.json");
    const registration = names.parseJson(names.textOf(found, ""), "");
    names.conforms(registration, data.schema.registration, data.schema.registration, "registration");
    names.withinReach(registration);
    names.validRegistration(registration);
    const lines = await names.readTranscript(files.get("transcript.jsonl"), data.schema.entry, async () => {});
    const replay = new names.Replay(registration, await names.sha256(found));
    for (const entry of lines.entries) await replay.take(entry, "line");
    replay.begin(null);
    const plain = { ...names.certificateOf(data.words, replay, lines.head, lines.entries.length), key: jwk.hex };
    const seal = await crypto.subtle.sign("Ed25519", key, names.canonicalBytes(plain));
    const text = `${names.pretty({ ...plain, signature: Buffer.from(seal).toString("hex") })}\\n`;
    files.set("certificate.json", names.utf8(text));
    const { verdict, why } = await names.verifyRun(files, data, { now: Number(process.argv[3]) });
    answers.push({ verdict, why, text });
  } catch (error) {
    const verdict = error.name === "Beyond" ? "CANNOT CHECK" : "DOES NOT VERIFY";
    answers.push({ verdict, why: error.message, text: "" });
  }
}
process.stdout.write(JSON.stringify(answers));
"""  # the verifier's own modules issue what they would accept


def issued(runs: list[Files]) -> list[Plain]:
    """Let the verifier compute the certificates of runs, signed by their server, and say what it thinks of them."""
    assert NODE is not None
    signer = key("server")
    d, x = (
        base64.urlsafe_b64encode(each).rstrip(b"=").decode()
        for each in (signer.private_bytes_raw(), signer.public_key().public_bytes_raw())
    )
    jwk = json.dumps({"kty": "OKP", "crv": "Ed25519", "d": d, "x": x, "hex": public_hex(signer)})
    asked = json.dumps([{name: encoded(data) for name, data in files.items()} for files in runs]).encode()
    command = [NODE, "--no-warnings", "--input-type=module", "-e", ISSUE, f"{MODULES.as_uri()}/", jwk]
    done = subprocess.run(
        [*command, str(int(NOW.timestamp() * 1000))], input=asked, capture_output=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    answers: list[Plain] = json.loads(done.stdout)
    return answers


def registered(name: str) -> Plain:
    """The fields of a recorded registration, to be changed."""
    found: Plain = json.loads(json.dumps(original(name).registration.model_dump()))
    return found


def written(value: Any) -> Any:
    """What TOML can say: nothing in place of null."""
    if isinstance(value, dict):
        return {name: written(each) for name, each in value.items() if each is not None}
    return [written(each) for each in value] if isinstance(value, list) else value


def run_of(fields: Plain, entries: list[Plain], toml: bytes | None = None) -> Files:
    """A run without its certificate."""
    return {
        "registration.toml": tomli_w.dumps(written(fields)).encode() if toml is None else toml,
        "registration.json": canonical_bytes(fields),
        "transcript.jsonl": b"".join(line + b"\n" for line in chained(entries)),
    }


def opened(fields: Plain, toml: bytes | None = None) -> Files:
    """A run that was opened, and nothing more: its certificate is OPEN."""
    return run_of(fields, [{"kind": "opened", "format": 2, "registration": digest(fields)}], toml)


def linked(name: str, change: Callable[[list[Plain]], None], fields: Plain | None = None) -> Files:
    """A recorded run whose sites have no keys, changed and chained anew: requests, releases and lines."""
    fields, entries = fields or registered(name), original(name).entries
    requests = [digest(each["request"]) for each in entries if each["kind"] == "asked"]
    releases = [digest(each["release"]) for each in entries if each["kind"] == "arrived"]
    change(entries)
    fresh, after = dict[str, str](), dict[str, str]()
    for each in entries:
        if each["kind"] == "opened":
            each["registration"] = digest(fields)
        elif each["kind"] == "asked":
            each["request"]["registration"] = digest(fields)
            fresh[requests[len(fresh)]] = digest(each["request"])
        elif each["kind"] == "absent":
            each["request"] = fresh[each["request"]]
        elif each["kind"] == "arrived":
            release = each["release"]
            release["request"] = fresh[release["request"]]
            release["before"] = after.get(release["before"], release["before"])
            after[releases[len(after)]] = digest(release)
    return run_of(fields, entries)


def of_releases(**values: Any) -> Callable[[list[Plain]], None]:
    """Say something else in every release."""

    def change(entries: list[Plain]) -> None:
        for each in entries:
            if each["kind"] == "arrived":
                each["release"].update(values)

    return change


def announcing(units: int) -> Callable[[list[Plain]], None]:
    def change(entries: list[Plain]) -> None:
        for each in entries:
            if each["kind"] == "announced":
                each["units"] = units

    return change


def less_noise(entries: list[Plain]) -> None:
    """Ask for a little less noise, between the multiples that scales have."""
    for each in entries:
        for message in (each.get("request"), each.get("release")):
            if isinstance(message, dict):
                message["scale"] *= 1 - 9e-10


def times(factor: float) -> Callable[[list[Plain]], None]:
    """Multiply the first part of every release."""

    def change(entries: list[Plain]) -> None:
        for each in entries:
            if each["kind"] == "arrived":
                each["release"]["first"] = [int(value * factor) for value in each["release"]["first"]]

    return change


def with_field(name: str, *path: Any, value: Any) -> Plain:
    """A registration with one field changed or added."""
    fields = registered(name)
    inner = fields
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return fields


def forged_values() -> dict[str, Files]:
    """Runs with one value that `fedsrc` refuses."""
    return {
        **{
            f"text U+{ord(letter):04X} {place[0]}": opened(
                with_field("plain", *place, value=f"a{letter}b")
            )
            for letter in "\u202e\u200b\u00ad\u00a0\u3000\ufeff\ue000\u2066\u0378\x85"
            for place in (("claim", "system"), ("sites", 0, "name"))
        },
        "scale without a way": opened(with_field("plain", "claim", "scale", value={"worst": 5.0, "best": 5.0})),
        "scale without an end": opened(
            with_field("plain", "claim", "scale", value={"worst": 0.0, "best": float("inf")})
        ),
        "masses too fine in bins": opened(
            {**with_field("plain", "privacy", "loss_grid", value=1000),
             "encoding": {"kind": "complementary", "basis": "bins", "basis_bits": 20}}
        ),
        "masses too fine in moments": opened(
            {**with_field("moments", "privacy", "loss_grid", value=200),
             "encoding": {"kind": "moments", "basis": "suffix", "basis_bits": 20},
             "schedule": {**registered("moments")["schedule"], "rounds": 1, "batch": 10}}
        ),
        "labels of a development release": opened(with_field("demo", "development", "labels", value="judge")),
        "target between decimals": opened(
            {**(fields := with_field("sealed-counts", "claim", "target_risk", value=0.2 + 1e-14)),
             "certificate": {**fields["certificate"], "targets": [
                 {**each, "risk": 0.2 + 1e-14} for each in fields["certificate"]["targets"]]}}
        ),
        **{
            f"time {time}": linked("plain", of_releases(time=time))
            for time in ("0000-01-01T00:00:00Z", "0999-01-01T00:00:00Z", "2024-02-30T00:00:00Z", "2024-01-01T24:00:00Z")
        },
        **{f"tries {n}": linked("plain", of_releases(tries=n)) for n in (0, 1.5, 2**53, 2**60)},
        **{f"others {x}": linked("plain", of_releases(others=x)) for x in (float("inf"), 1e300, -1.0)},
        **{f"units {n}": linked("plain", announcing(n)) for n in (2**53, 2**60, -1)},
        "noise between multiples": linked("plain", less_noise),
    }  # fmt: skip


def agreed(files: Files, answer: Plain, folder: Path) -> str:
    """What the page says; if it passes the run, so must `fedsrc verify`."""
    if answer["verdict"] == "VERIFIED":
        run = {name: data for name, data in files.items() if name != "registration.json"}
        said = verdict(write_files(folder, {**run, "certificate.json": answer["text"].encode()}), NOW)
        assert said.word == "verified", (folder.name, said.why)
    return str(answer["verdict"])


def test_forged_values_are_refused(tmp_path: Path) -> None:
    assert {answer["verdict"] for answer in issued([opened(registered("plain")), linked("plain", lambda _: None)])} == {
        "VERIFIED"
    }
    runs = forged_values()
    for (name, files), answer in zip(runs.items(), issued(list(runs.values())), strict=True):
        assert agreed(files, answer, tmp_path / name.replace("/", " ")) != "VERIFIED", name


def test_a_certificate_that_expires_after_all_years_is_refused() -> None:
    (answer,) = issued([linked("plain", of_releases(time="9999-12-31T23:59:59Z"))])
    assert answer["verdict"] == "DOES NOT VERIFY"


def test_bounds_at_their_ends(tmp_path: Path) -> None:
    """Masses below zero, drift above what is accepted, exact counts that certify nothing: both compute the same."""
    runs = {
        f"{name} {factor} {drift}": linked(name, times(factor), with_field(name, "sites", 0, "drift", value=drift))
        for name in ("paper-ratio", "paper-contrast", "paper-variance", "sealed-counts")
        for factor in (-1, 0.2, 1, 3)
        for drift in ((0.0,) if name == "sealed-counts" else (0.0, 0.3, 0.6))
    }
    for name, files in list(runs.items()):  # cut after the first round as well: what is OPEN has bounds, too
        lines = files["transcript.jsonl"].splitlines(keepends=True)
        first = next(i for i, line in enumerate(lines) if b'"kind":"closed"' in line)
        runs[f"{name} open"] = {**files, "transcript.jsonl": b"".join(lines[: first + 1])}
    found = [
        agreed(files, answer, tmp_path / name)
        for (name, files), answer in zip(runs.items(), issued(list(runs.values())), strict=True)
    ]
    assert found.count("VERIFIED") >= 40


@pytest.mark.parametrize("name", ["files-charged", "files-refused-charged"])
def test_charges_count_at_once_in_an_open_certificate(name: str, tmp_path: Path) -> None:
    lines = original(name).lines
    files = files_of(RUNS / name)
    runs = [{**files, "transcript.jsonl": b"".join(each + b"\n" for each in lines[:n])} for n in range(1, len(lines))]
    for n, (run, answer) in enumerate(zip(runs, issued(runs), strict=True)):
        assert agreed(run, answer, tmp_path / str(n)) == "VERIFIED", answer["why"]


def texts() -> dict[str, str]:
    """Texts that a TOML reader refuses, or reads as values of other kinds, and a lax one takes for the registration."""
    toml = tomli_w.dumps(written(registered("plain")))
    body = toml.split("[schedule]\n")[1].split("\n\n")[0].splitlines()
    rest = toml.replace("[schedule]\n" + "\n".join(body) + "\n", "")
    inline = f"schedule = {{{', '.join(body[:-1])}}}\n"
    return {
        "decimals for an integer": toml.replace("rounds = 30", "rounds = 30.0"),
        "exponent for an integer": toml.replace("batch = 100", "batch = 1e2"),
        "underscore last": toml.replace("rounds = 30", "rounds = 30_"),
        "underscores": toml.replace("rounds = 30", "rounds = 3__0"),
        "underscore before the point": toml.replace("target_risk = 0.2", "target_risk = 0_.2"),
        "underscore after the point": toml.replace("target_risk = 0.2", "target_risk = 0._2"),
        "control in a comment": "# \x00\n" + toml,
        "carriage return in a comment": "# a\rb\n" + toml,
        "delete in a comment": "# \x7f\n" + toml,
        "carriage return at the end": toml + "\r",
        "inline table extended": f"{inline}{rest}\n[schedule]\n{body[-1]}\n",
        "inline table extended by a dotted key": f"{inline}schedule.{body[-1]}\n{rest}",
        "dotted key and table": f"schedule.{body[0]}\n{rest}\n[schedule]\n" + "\n".join(body[1:]) + "\n",
        "byte order mark": "\ufeff" + toml,
        "key twice": toml.replace("rounds = 30", "rounds = 30\nrounds = 30"),
        "table twice": f"{toml}\n[schedule]\n",
        "inline comma last": f"schedule = {{{', '.join(body)},}}\n{rest}",
        "large": f"{toml}#{'x' * 4_000_000}\n",
    }


def test_toml_that_is_not_read_as_fedsrc_reads_it() -> None:
    fields = registered("plain")
    runs = {name: opened(fields, text.encode()) for name, text in texts().items()}
    named = with_field("plain", "sites", 0, "name", value="inf")
    runs["a number for a name"] = opened(named, tomli_w.dumps(written(named)).replace('"inf"', "inf").encode())
    large = with_field("plain", "sites", 0, "capacity", value=2**60)
    text = tomli_w.dumps(written(large))
    runs["text for a number"] = opened(large, text.replace(str(2**60), f'"{2**60}"').encode())
    answers = dict(zip(runs, issued(list(runs.values())), strict=True))
    assert [name for name, answer in answers.items() if answer["verdict"] == "VERIFIED"] == []
    assert [each["verdict"] for each in issued([opened(large, text.encode())])] == ["VERIFIED"]


def test_notices_that_are_none() -> None:
    files = files_of(RUNS / "plain")
    own = digest_bytes(files["certificate.json"])
    honest = {
        "format": 1, "kind": "revocation", "certificate": own, "reason": "r", "time": "2026-01-01T00:00:00Z",
        "superseded_by": None, "key": public("server"),
    }  # fmt: skip
    changes: list[Plain] = [
        {}, {"time": "never"}, {"time": "0000-01-01T00:00:00Z"}, {"superseded_by": own}, {"reason": "a\u202eb"},
        {"certificate": "a" * 64, "superseded_by": own, "time": ""}, {"__proto__": 1}, {"kind": "succession"},
    ]  # fmt: skip
    plain = [{**copy.deepcopy(honest), **change} for change in changes]
    lines = [
        canonical_bytes({**each, "signature": sign(key("server"), canonical_bytes(each))}) + b"\n" for each in plain
    ]
    said = verdicts([{**files, "certificate.json.revoked": line} for line in lines])
    assert [each["verdict"] for each in said] == ["VERIFIED", *["DOES NOT VERIFY"] * (len(changes) - 1)]


def test_what_verifies_names_what_it_is_of() -> None:
    """The page's words may be of another system: the check says what was certified, and by which file."""
    files = files_of(RUNS / "certify-private")
    (said,) = verdicts([files])
    claim = original("certify-private").registration.claim
    assert all(f"{each}" in said["about"] for each in (claim.score, claim.loss, claim.population))
    assert said["about"].endswith(f"certificate {digest_bytes(files['certificate.json'])}")


def test_random_changes_of_transcripts(tmp_path: Path) -> None:
    """Numbers of releases changed at random, chained anew: what the page passes, `fedsrc verify` passes."""
    rng = random.Random(20261118)

    def change(entries: list[Plain]) -> None:
        for each in entries:
            if each["kind"] == "arrived" and rng.random() < 0.5:
                for part in ("first", "second"):
                    factor = rng.choice([0.8, 0.95, 1.0, 1.05])
                    each["release"][part] = [int(value * factor) for value in each["release"][part]]
        if rng.random() < 0.7:
            del entries[rng.randrange(1, len(entries)) :]

    names = ["plain", "paper-ratio", "paper-contrast", "paper-variance", "moments", "levels", "zero-out", "abstain"]
    runs = [linked(name, change) for name in names for _ in range(12)]
    found = [
        agreed(run, answer, tmp_path / str(i)) for i, (run, answer) in enumerate(zip(runs, issued(runs), strict=True))
    ]
    assert found.count("VERIFIED") > 30
