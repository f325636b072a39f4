"""`fedsrc attest`: what is attested of which run, what is refused, and who is believed.

Mutants killed: a signature over something else than DSSE's bytes; bytes that depend on when they are written; an
abstention, or a panel with a group that abstains, that passes; a threshold of a group lost, or shown where one holds
for all; a run that was changed, revoked, expired, is open or a monitor's, or whose monitor rang, attested; a notice or
a key named and not heeded; a file written over; a subject lost, twice, or not compared; an attestation believed whose
payload, type or signature was changed, that a key signed which was succeeded, or that is of another kind; a certificate
that was revoked or expired since; a tag longer than MLflow keeps; a name that breaks the metadata of a model card.

Chance of a false alarm: none; what runs here decide does not depend on noise.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fedsrc.common.canonical import canonical_bytes, file_digest
from fedsrc.common.signing import Key, load, public_hex
from fedsrc.errors import DamagedError
from fedsrc.monitor.fresh import monitor_table
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.scale import Scale
from fedsrc.report.attestation import LONGEST, outcomes, sealed, tags, verify_attestation
from fedsrc.report.model_card import model_card
from fedsrc.report.view import view_run
from tests.cli.test_life import save
from tests.monitor.test_monitor import GOOD, WORSE, World, fresh
from tests.monitor.test_monitor import KEY as WATCHED
from tests.support.gate_certificates import KEY, TRUSTED, Terminal, copied_run, notice_of, original, original_run
from tests.support.gate_panels import by_group
from tests.support.panel_runs import ODD, played, registered

MINE = Key.from_private_bytes(b"a" * 32)
TYPE = b"application/vnd.in-toto+json"
SIGN = ("--key", "my.key")


@pytest.fixture
def fedsrc(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Terminal:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "my.key", MINE)
    return Terminal(monkeypatch, capsys)


@pytest.fixture(scope="module")
def panels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: played(tmp_path_factory.mktemp(kind), registered(kind)) for kind in ("each", "all", "scores")}


def read(path: Path) -> dict[str, Any]:
    """The statement in an envelope, whose signature is checked by DSSE's own words."""
    envelope = json.loads(path.read_bytes())
    assert set(envelope) == {"payload", "payloadType", "signatures"}
    payload, (seal,) = base64.b64decode(envelope["payload"]), envelope["signatures"]
    assert (envelope["payloadType"].encode(), seal["keyid"]) == (TYPE, public_hex(MINE))
    said = b" ".join([b"DSSEv1", str(len(TYPE)).encode(), TYPE, str(len(payload)).encode(), payload])
    MINE.public_key().verify(base64.b64decode(seal["sig"]), said)
    found = json.loads(payload)
    assert payload == canonical_bytes(found)
    return dict(found)


def test_a_certificate_is_attested(fedsrc: Terminal, tmp_path: Path) -> None:
    run = copied_run(tmp_path)
    (tmp_path / "model.gguf").write_bytes(b"weights")
    of = ("--subject", f"registry.local/app@1=x=sha256:{'0F' * 32}", "--subject-file", "model.gguf")
    done = fedsrc("attest", "run", "-o", "a.json", *SIGN, *of, "--trust", TRUSTED[0], "--format", "json")
    told = json.loads(done.out)
    assert (done.status, told["result"], told["key"]) == (0, "PASSED", public_hex(MINE))
    assert told["sha256"] == file_digest(tmp_path / "a.json")
    certificate, said = Certificate.read(run / CERTIFICATE), read(tmp_path / "a.json")
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    assert said["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert said["predicate"] == {
        "result": "PASSED", "passedTests": ["risk<=0.2"], "failedTests": [],
        "configuration": [{"name": name, "digest": {"sha256": file_digest(run / name)}}
                          for name in (REGISTRATION, TRANSCRIPT)],
    }  # fmt: skip
    own, *others = said["subject"]
    digest = file_digest(run / CERTIFICATE)
    assert own == {"name": CERTIFICATE, "digest": {"sha256": digest}, "annotations": tags(certificate)}
    assert [(each["name"], each["digest"]["sha256"]) for each in others] == [
        ("model.gguf", file_digest(tmp_path / "model.gguf")), ("registry.local/app@1=x", "0f" * 32),
    ]  # fmt: skip
    first = (tmp_path / "a.json").read_bytes()
    assert fedsrc("attest", "run", "-o", "a.json", *SIGN, *of).status == 0, "the same again is fine"
    other = fedsrc("attest", "run", "-o", "a.json", *SIGN)
    assert (other.status, "exists already, and is something else" in other.err) == (2, True)
    assert fedsrc("attest", "run", "-o", "run/certificate.json", *SIGN).status == 2
    assert (tmp_path / "a.json").read_bytes() == first
    assert Certificate.read(run / CERTIFICATE) == certificate


def test_tags_are_what_the_certificate_says(fedsrc: Terminal, tmp_path: Path) -> None:
    run = copied_run(tmp_path)
    done = fedsrc("attest", "run", "--as", "mlflow-tags", "-o", "tags.json")
    assert (done.status, "--trust KEY does" in done.out) == (0, True)
    said, found = json.loads((tmp_path / "tags.json").read_text()), Certificate.read(run / CERTIFICATE)
    assert said == {**said, "fedsrc.status": "CERTIFIED", "fedsrc.statement": found.statement,
                    "fedsrc.threshold": repr(found.threshold), "fedsrc.risk_at_most": repr(found.risk_upper),
                    "fedsrc.acceptance_at_least": repr(found.acceptance_lower), "fedsrc.target_risk": "0.2",
                    "fedsrc.failure_probability": "0.05", "fedsrc.epsilon": "4", "fedsrc.delta": "0.000001",
                    "fedsrc.accepted": f"at least {found.threshold:g}", "fedsrc.expires": found.expires_on,
                    "fedsrc.certificate": found.digest, "fedsrc.key": TRUSTED[0], "fedsrc.score": "lift",
                    "fedsrc.does_not_say": " ".join(found.does_not_say)}  # fmt: skip
    assert not {"fedsrc.system", "fedsrc.picked", "fedsrc.tries"} & said.keys(), "what is not stated has no tag"
    tried = found.model_copy(update={"tries": 2, "failure_probability_of_all_tries": 0.1})
    assert tags(tried) | {"fedsrc.tries": "2", "fedsrc.failure_probability_of_all_tries": "0.1"} == tags(tried)


def test_an_abstention_fails(fedsrc: Terminal, panels: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(panels["all"], tmp_path / "run")
    done = fedsrc("attest", "run", "-o", "a.json", *SIGN)
    assert (done.status, done.out.splitlines()[0]) == (1, "Wrote a.json: FAILED, of a certificate that says ABSTAIN")
    said = read(tmp_path / "a.json")
    failed = ["risk<=0.2 in every group"]
    assert (said["predicate"]["result"], said["predicate"]["failedTests"]) == ("FAILED", failed)
    assert said["predicate"]["passedTests"] == []
    assert not {"fedsrc.threshold", "fedsrc.accepted"} & said["subject"][0]["annotations"].keys()
    assert fedsrc("attest", "run", "--as", "model-card", "-o", "card.md").status == 1
    card = (tmp_path / "card.md").read_text(encoding="utf-8")
    assert card.startswith("## ")
    assert "**ABSTAIN**: No threshold was shown" in card


def test_groups_have_their_own_thresholds(fedsrc: Terminal, panels: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(panels["each"], tmp_path / "run")
    done = fedsrc("attest", "run", "-o", "a.json", *SIGN)
    assert (done.status, f"Not shown by its evidence: risk<=0.2 group={ODD}, " in done.out) == (1, True)
    said, found = read(tmp_path / "a.json"), Certificate.read(tmp_path / "run" / CERTIFICATE)
    assert said["predicate"]["result"] == "FAILED", "one group of three is certified"
    assert said["predicate"]["passedTests"] == ["risk<=0.2 group=day"]
    assert said["predicate"]["failedTests"] == [f"risk<=0.2 group={ODD}", "risk<=0.2 group=rare"]
    tagged = said["subject"][0]["annotations"]
    assert "fedsrc.threshold" not in tagged
    assert (tagged["fedsrc.groups_certified"], tagged["fedsrc.acceptance_of"]) == ("1 of 3 groups", "all traffic")
    rows = [json.loads(tagged[f"fedsrc.group.00{i}"]) for i in (1, 2, 3)]
    assert found.by_group is not None
    day = found.by_group.members[0]
    assert rows[0] == {"name": "day", "status": "CERTIFIED", "threshold": day.threshold, "accepted": "at least 0.25",
                       "risk_at_most": day.risk_upper, "acceptance_at_least": day.acceptance_lower}  # fmt: skip
    assert rows[1:] == [{"name": name, "status": "ABSTAIN"} for name in (ODD, "rare")]
    fedsrc("attest", "run", "--as", "model-card", "-o", "card.md")
    card = (tmp_path / "card.md").read_text(encoding="utf-8")
    head, body = card.split("---\n")[1:]
    assert (head.count("config:"), 'config: "group: day"' in head) == (1, True)
    assert "# 1 of 3 groups are certified, and only these are here" in head
    assert (body.count("| ABSTAIN |"), "| day | CERTIFIED | 0.25 |" in body, "<b>" in body) == (2, True, False)


def test_the_picked_score_is_attested_on_its_scale(fedsrc: Terminal, panels: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(panels["scores"], tmp_path / "run")
    assert fedsrc("attest", "run", "-o", "a.json", *SIGN).status == 0
    said = read(tmp_path / "a.json")
    tagged = said["subject"][0]["annotations"]
    assert said["predicate"]["passedTests"] == ["risk<=0.2"]
    assert [tagged[f"fedsrc.{name}"] for name in ("score", "picked", "accepted", "score_scale", "threshold")] == [
        "grounding", "grounding", "at most 50", "100:0", "0.5",
    ]  # fmt: skip
    row = json.loads(tagged["fedsrc.score.002"])
    assert (row["accepted"], row["score_scale"], row["checkpoints"]) == ("at most 50", "100:0", [20, 40])
    assert json.loads(tagged["fedsrc.score.001"])["status"] == "ABSTAIN"


def test_a_name_with_markup_is_text_in_a_model_card(fedsrc: Terminal, tmp_path: Path) -> None:
    odd = registered("scores", also_scores=((ODD, Scale(worst=100, best=0)),), checkpoints=None)
    played(tmp_path, odd)
    assert fedsrc("attest", "run", "--as", "model-card", "-o", "card.md").status == 0
    card = (tmp_path / "card.md").read_text(encoding="utf-8")
    assert ("<b>" in card, "**CERTIFIED**: Of the answers accepted &#40;&#60;b&#62;night" in card) == (False, True)


def test_one_threshold_for_all_has_no_bounds_by_group() -> None:
    found = Certificate.parse(by_group({"a": 0.5, "b": 0.5}, claim="all"), "here")
    tagged = tags(found)
    assert tagged["fedsrc.threshold"] == "0.5"
    assert json.loads(tagged["fedsrc.group.002"]) == {"name": "b", "status": "CERTIFIED"}
    assert outcomes(found) == {"passedTests": ["risk<=0.2 in every group"], "failedTests": []}
    exact = found.model_copy(update={"target_risk": 0.1234567})
    assert outcomes(exact)["passedTests"] == ["risk<=0.1234567 in every group"]
    head = model_card(view_run(original_run()) | {"certificate": found}).split("---\n")[1]
    assert (head.count("config:"), 'config: "every listed group"\n' in head) == (1, True)


def test_tags_fit_however_many_groups_there_are() -> None:
    names = {f"{i:03}" + "\u00e9" * 197: 0.5 for i in range(100)}
    for claim in ("each", "all"):
        text = by_group(names, claim=claim, fields={"statement": "x" * (LONGEST + 1)} if claim == "all" else {})
        found = tags(Certificate.parse(text, "here"))
        assert sum(name.startswith("fedsrc.group.") for name in found) == 100
        assert max(map(len, found.values())) <= LONGEST
        assert all(re.fullmatch(r"[\w./ -]{1,250}", name) for name in found), "as MLflow has them"
    assert found["fedsrc.statement"].endswith("... (cut; the certificate has it all)")


def test_a_model_card_is_for_strangers(fedsrc: Terminal, tmp_path: Path) -> None:
    copied_run(tmp_path)
    path = tmp_path / "run"
    for more in ((), ("--trust", TRUSTED[0])):
        assert fedsrc("attest", str(path), "--as", "model-card", "-o", "card.md", *more).status == 0
    card, found = (tmp_path / "card.md").read_text(encoding="utf-8"), Certificate.read(path / CERTIFICATE)
    assert str(tmp_path) not in card
    assert "&#47;tmp" not in card
    for words in (found.statement, found.digest, TRUSTED[0], found.registration, "epsilon 4", *found.does_not_say,
                  "not compared with a key you trust: ask the issuer", "at most 5 of 100 such runs"):  # fmt: skip
        assert words in card
    assert card.startswith("---\nmodel-index:\n")
    assert f"value: {found.acceptance_lower!r}\n" in card
    lower = view_run(path) | {"certificate": found.model_copy(update={"risk_upper": 0.11})}
    assert model_card(lower).count("value: 0.2\n") == 1, "what the sentence says, not what the bound was"
    headings = re.findall(r"^(#+) ", card, flags=re.MULTILINE)
    assert (headings[0], set(headings[1:])) == ("##", {"###"})


def refused(fedsrc: Terminal, words: str, *args: str, status: int = 2) -> None:
    done = fedsrc("attest", *args)
    assert (done.status, words in done.err) == (status, True), done.err


def test_what_does_not_stand_is_not_attested(
    fedsrc: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    run = copied_run(tmp_path)
    base = ("run", "-o", "a.json", *SIGN)
    refused(fedsrc, "not trusted", *base, "--trust", "0" * 64)
    refused(fedsrc, "no such run", "nowhere", "-o", "a.json", *SIGN)
    refused(fedsrc, "No such file", "run", "-o", "a.json", "--key", "none.key")
    (tmp_path / "x.revoked").write_bytes(notice_of(original(), "labels were wrong"))
    refused(fedsrc, "was revoked on", *base, "--revocations", "x.revoked")
    shutil.copy(tmp_path / "x.revoked", run / f"{CERTIFICATE}.revoked")
    for form in ("attestation", "model-card", "mlflow-tags"):
        refused(fedsrc, "What it said no longer stands.\nhint: ", *base, "--as", form)
    (run / f"{CERTIFICATE}.revoked").unlink()
    with monkeypatch.context() as later:
        later.setattr("fedsrc.server.verify.datetime", Later)
        refused(fedsrc, "It expired on ", *base)
    (run / CERTIFICATE).write_text(original().replace('"records"', '"record"'))
    refused(fedsrc, "is not a certificate", *base)
    (run / CERTIFICATE).unlink()
    refused(fedsrc, "certificate.json", *base)
    assert not (tmp_path / "a.json").exists()


class Later(datetime):
    """A clock that is ahead."""

    @classmethod
    def now(cls, tz: Any = None) -> Later:
        return cls(2999, 1, 1, tzinfo=tz)


def test_a_monitor_is_heeded_and_not_attested(fedsrc: Terminal, tmp_path: Path) -> None:
    world = World(tmp_path)
    base = ("run", "-o", "a.json", *SIGN, "--monitor", "monitor")
    new = Key.generate()
    foreign = world.registered(server_key=public_hex(new))
    monitor_table(foreign, GOOD, tmp_path / "foreign", world.ledger, new, in_order=True)
    trust = ("--trust", public_hex(WATCHED))
    refused(fedsrc, "not trusted", *base[:-1], "foreign", *trust)
    world.watch(fresh(400, seed=9, bad=0.1))
    assert fedsrc("attest", *base, *trust).status == 0
    refused(fedsrc, "is the account of a monitor", "monitor", "-o", "b.json", *SIGN)
    assert fedsrc("attest", "run", "-o", "c.md", "--as", "model-card", "--monitor", "monitor").status == 0
    assert "A monitor watches fresh answers; it says: " in (tmp_path / "c.md").read_text(encoding="utf-8")
    refused(fedsrc, "not trusted", *base, "--trust", "0" * 64)
    world.watch(WORSE)
    (tmp_path / "a.json").unlink()
    refused(fedsrc, "Its monitor has raised the alarm", *base, "--trust", public_hex(WATCHED))
    assert not (tmp_path / "a.json").exists()


def test_subjects_that_are_none(fedsrc: Terminal, tmp_path: Path) -> None:
    copied_run(tmp_path)
    base, digest = ("run", "-o", "a.json", *SIGN), "ab" * 32
    wrong = ("m", f"m={digest}", f"m=sha256:{digest[1:]}", f"m=sha512:{digest}", f"a\nb=sha256:{digest}")
    for given in wrong:
        refused(fedsrc, "is not NAME=sha256:HEX", *base, "--subject", given)
    same = ("--subject", f"m=sha256:{digest}")
    refused(fedsrc, "two subjects have the same name", *base, *same, *same)
    refused(fedsrc, "or one has none", *base, "--subject", f"=sha256:{digest}")
    refused(fedsrc, "is the certificate's", *base, "--subject", f"{CERTIFICATE}=sha256:{digest}")
    refused(fedsrc, "No such file", *base, "--subject-file", "none.gguf")
    refused(fedsrc, "names no subjects", *base, *same, "--as", "model-card")
    refused(fedsrc, "nothing says where to write", "run", *SIGN)
    assert not (tmp_path / "a.json").exists()


# ---------------------------------------------------------------- who reads one


@pytest.fixture
def attested(fedsrc: Terminal, tmp_path: Path) -> Path:
    copied_run(tmp_path)
    (tmp_path / "model.gguf").write_bytes(b"weights")
    assert fedsrc("attest", "run", "-o", "a.json", *SIGN, "--subject-file", "model.gguf").status == 0
    return tmp_path / "a.json"


def test_an_attestation_is_checked(fedsrc: Terminal, attested: Path) -> None:
    base = ("attest", "a.json", "--verify", "--trust", public_hex(MINE))
    done = fedsrc(*base, "--subject-file", "model.gguf")
    assert (done.status, "PASSED, of" in done.out, "was not recomputed" in done.out) == (0, True, True)
    told = json.loads(fedsrc(*base, "--format", "json").out)
    assert (told["status"], told["result"], told["key"]) == ("VERIFIED", "PASSED", public_hex(MINE))
    assert set(told["subjects"]) == {CERTIFICATE, "model.gguf"}
    (attested.parent / "model.gguf").write_bytes(b"other weights")
    refused(fedsrc, "does not speak of 'model.gguf'", *base[1:], "--subject-file", "model.gguf", status=1)
    refused(fedsrc, "no trusted key signed", "a.json", "--verify", "--trust", TRUSTED[0], status=1)
    refused(fedsrc, "no key is named", "a.json", "--verify")
    told = json.loads(fedsrc("attest", "a.json", "--verify", "--trust", "0" * 64, "--format", "json").out)
    assert told["status"] == "NOT VERIFIED"
    refused(fedsrc, "is not a signed envelope", "my.key", *base[2:], status=1)
    refused(fedsrc, "No such file", "none.json", *base[2:])


def test_what_came_after_it_is_heeded(
    fedsrc: Terminal, attested: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = ("attest", "a.json", "--verify", "--trust", public_hex(MINE))
    (tmp_path / "notices").mkdir()
    (tmp_path / "notices" / "one.revoked").write_bytes(notice_of(original(), "labels were wrong"))
    assert fedsrc(*base).status == 0
    done = fedsrc(*base, "--revocations", "notices")
    assert (done.status, done.out.startswith("REVOKED: the certificate was revoked on ")) == (1, True)
    shutil.copy(tmp_path / "notices" / "one.revoked", tmp_path / "a.json.revoked")
    assert json.loads(fedsrc(*base, "--format", "json").out)["status"] == "REVOKED"
    (tmp_path / "a.json.revoked").write_bytes(notice_of(original(), "x", key=MINE))
    assert fedsrc(*base).status == 2, "not the issuer's notice"
    (tmp_path / "a.json.revoked").unlink()
    monkeypatch.setattr("fedsrc.report.attestation.datetime", Later)
    done = fedsrc(*base)
    assert (done.status, done.out.startswith("EXPIRED: ")) == (1, True)


def test_a_key_that_was_succeeded_is_believed_no_more(fedsrc: Terminal, attested: Path, tmp_path: Path) -> None:
    """An attestation has no date: it may be as late as today."""
    new = load(save(tmp_path / "new.key", Key.generate()))
    fedsrc("keys", "succeed", "my.key", "new.key", "-o", "s.json")
    base = ("--verify", "--trust", public_hex(MINE), "--succession", "s.json")
    refused(fedsrc, "no trusted key signed", "a.json", *base, status=1)
    assert fedsrc("attest", "run", "-o", "b.json", "--key", "new.key").status == 0
    assert fedsrc("attest", "b.json", *base).status == 0
    assert verify_attestation(tmp_path / "b.json", trusted=[public_hex(new)]).key == public_hex(new)


def broken(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def apply(data: bytes) -> bytes:
        envelope = json.loads(data)
        change(envelope)
        return json.dumps(envelope).encode()

    return apply


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e.update(payload=e["payload"].replace("A", "B", 1)),
        lambda e: e.update(payloadType="application/json"),
        lambda e: e["signatures"][0].update(sig=base64.b64encode(bytes(64)).decode()),
        lambda e: e.update(signatures=[]),
        lambda e: e.update(signatures={}),
        lambda e: e.pop("payload"),
        lambda e: e.update(payload=e["payload"] + "!"),
        lambda e: e.update(payload=7),
    ],
)  # fmt: skip
def test_a_changed_attestation_is_not_believed(attested: Path, change: Callable[[dict[str, Any]], object]) -> None:
    attested.write_bytes(broken(change)(attested.read_bytes()))
    with pytest.raises(DamagedError):
        verify_attestation(attested, trusted=[public_hex(MINE)])


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"[" * 100_000, b"null", b"\xff"])
def test_what_is_no_envelope_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(DamagedError, match="not a signed envelope"):
        verify_attestation(tmp_path / "a.json", trusted=[public_hex(MINE)])


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.update(_type="https://in-toto.io/Statement/v0.1"),
        lambda s: s.update(predicateType="https://slsa.dev/provenance/v1"),
        lambda s: s["predicate"].update(result="passed"),
        lambda s: s["subject"].pop(0),
        lambda s: s["subject"][0].pop("annotations"),
        lambda s: s["subject"][1].pop("digest"),
        lambda s: s["subject"][0]["annotations"].update({"fedsrc.expires": "soon"}),
        lambda s: s["subject"][0]["annotations"].pop("fedsrc.key"),
    ],
)
def test_another_statement_by_the_same_key_is_refused(
    attested: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    said = json.loads(base64.b64decode(json.loads(attested.read_bytes())["payload"]))
    attested.write_bytes(sealed(said, MINE))
    assert verify_attestation(attested, trusted=[public_hex(MINE)], now=datetime.now(UTC)).result == "PASSED"
    change(said)
    attested.write_bytes(sealed(said, MINE))
    with pytest.raises(DamagedError, match="is not an attestation of a certificate"):
        verify_attestation(attested, trusted=[public_hex(MINE)], subjects={"x": "0" * 64})


def test_a_second_signature_is_fine(attested: Path) -> None:
    envelope, other = json.loads(attested.read_bytes()), json.loads(sealed({}, KEY))
    envelope["signatures"].insert(0, other["signatures"][0])
    attested.write_bytes(json.dumps(envelope).encode())
    assert verify_attestation(attested, trusted=[TRUSTED[0], public_hex(MINE)]).key == public_hex(MINE)
