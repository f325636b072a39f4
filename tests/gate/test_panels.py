"""A gate on a panel: the group's own threshold decides, and of several scores the one that was picked.

Mutants killed: the threshold of another group, of the first or of the largest one used; a group that is not listed, not
given, has no threshold or is no text and is accepted, or raises; groups shifted against their scores in a batch; a
group that changes a decision where the claim is about all traffic; one threshold for all without the group being
listed; the scale or column of the first score used for the picked one; a renewal about other groups, another claim on
them, another column of them, or another picked score, scale or checkpoints; a target that a panel does not speak of; a
status, service, metric, command or chain without groups; an alarm that names a group and does not halt.

Chance of a false alarm: none; the runs are on fixed tables, without privacy.
"""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

import fedsrc
from fedsrc import Gate
from fedsrc.common.clock import utc_now
from fedsrc.errors import FedsrcError
from fedsrc.gate.decision import ACCEPTED, BELOW, HALTED, NO_GROUP, NOT_SHOWN, UNLISTED, UNUSABLE, UNWATCHED
from fedsrc.gate.integrations.langchain import gated
from fedsrc.gate.service.metrics import Metrics
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.monitor_status import MonitorStatus
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.scale import Scale
from tests.support.gate_certificates import CLAIM, KEY, TRUSTED, Terminal, body, certificate, original, renewed
from tests.support.gate_panels import by_group, by_score, claim_on
from tests.support.gate_server import Client, serving

WARDS = {"a": 0.5, "b": 0.75, "c": None}
DOWN = Scale(worst=100.0, best=0.0)
SCORES: dict[str, Any] = {"score": (Scale(), None, ()), "doubt": (DOWN, 0.75, ()), "lift": (Scale(), 0.25, ())}


def gate_of(folder: Path, text: str, **how: Any) -> Gate:
    (folder / CERTIFICATE).write_text(text, encoding="utf-8")
    return Gate(folder, **{"trusted": TRUSTED, **how})


@pytest.fixture
def wards(tmp_path: Path) -> Gate:
    return gate_of(tmp_path, by_group(WARDS))


# ---------------------------------------------------------------- groups


def test_the_own_threshold_of_a_group_decides(wards: Gate) -> None:
    for score, accepted in ((0.5, "a"), (0.75, "ab"), (math.nextafter(0.75, 0), "a"), (math.nextafter(0.5, 0), "")):
        assert [name for name in WARDS if wards.accept(score, group=name)] == list(accepted)
    assert wards.decide(0.6, group="b")[:3] == (False, BELOW, 0.75)
    assert wards.decide(0.6, group="a")[:3] == (True, ACCEPTED, 0.5)
    assert wards.decide(None, group="a")[:3] == (False, UNUSABLE, 0.5)
    assert wards.decide(1.0, group=np.str_("a")).accepted


class Odd:
    """Something that cannot be looked up."""

    __hash__ = None  # type: ignore[assignment]


OTHER_GROUPS = [
    (None, NO_GROUP), ("c", NOT_SHOWN), ("d", UNLISTED), ("", UNLISTED), ("A", UNLISTED), (" a", UNLISTED),
    ("a\u0301", UNLISTED), (0, UNLISTED), (True, UNLISTED), (b"a", UNLISTED), (["a"], UNLISTED), (Odd(), UNLISTED),
    (("a",), UNLISTED), (math.nan, UNLISTED),
]  # fmt: skip


@pytest.mark.parametrize("i", range(len(OTHER_GROUPS)))
def test_without_a_threshold_of_its_group_nothing_is_accepted(wards: Gate, i: int) -> None:
    group, reason = OTHER_GROUPS[i]
    assert wards.decide(1.0, group=group)[:3] == (False, reason, None)
    assert not wards.accept(1.0, group=group)
    assert wards.answer("Paris", 1.0, lambda decision: decision.reason, group=group) == reason
    assert wards.stream(group=group).end(1.0, tokens=1).reason == reason
    assert not wards.stream(group=group).check(1.0, tokens=1)


def test_a_batch_has_as_many_groups_as_scores_or_none(wards: Gate) -> None:
    scores, groups = [0.6, 0.6, 1.0, 0.8], ["a", "b", "c", "b"]
    found = wards.decide_all(iter(scores), groups=iter(groups))
    assert found == [wards.decide(score, group=group) for score, group in zip(scores, groups, strict=True)]
    assert [each.accepted for each in found] == [True, False, False, True]
    for wrong in (None, [], ["a"] * 3, ["a"] * 5):
        assert {each.reason for each in wards.decide_all(scores, groups=wrong)} == {NO_GROUP}
    for scores_, groups_ in ((scores, 5), (5, None)):
        with pytest.raises(FedsrcError, match="one for each answer"):
            wards.decide_all(scores_, groups=groups_)  # type: ignore[arg-type]


def test_where_the_claim_is_about_all_traffic_a_group_changes_nothing(tmp_path: Path) -> None:
    gate = gate_of(tmp_path, original())
    for score in (0.0, 1.0, None):
        assert gate.decide(score, group="anything") == gate.decide(score) == gate.decide(score, group=Odd())
    assert gate.decide_all([1.0, 0.0], groups=["a"]) == gate.decide_all([1.0, 0.0])
    assert gate.status().groups is None


def test_one_threshold_for_all_is_for_the_listed_groups(tmp_path: Path) -> None:
    gate = gate_of(tmp_path, by_group({"a": 0.625, "b": 0.625}, claim="all"))
    assert [gate.accept(0.625, group=name) for name in ("a", "b", "c", None)] == [True, True, False, False]
    assert not gate.accept(math.nextafter(0.625, 0), group="a")
    assert [gate.decide(1.0, group=name).reason for name in ("c", None)] == [UNLISTED, NO_GROUP]
    status = gate.status()
    assert (status.threshold, status.raw_threshold, status.groups) == (0.625, 0.625, {"a": 0.625, "b": 0.625})


NAMES = st.text(min_size=1, max_size=8).filter(lambda name: name.isprintable())
UNIT = st.integers(0, 64).map(lambda k: k / 64)


@given(
    listed=st.dictionaries(NAMES, st.none() | UNIT, min_size=1, max_size=6).filter(lambda d: {*d.values()} != {None}),
    scale=st.sampled_from([Scale(), DOWN, Scale(worst=-3.7, best=11.3)]),
    asked=st.lists(st.tuples(st.none() | NAMES, UNIT), max_size=8),
)
def test_accepted_is_what_reaches_the_threshold_of_its_group(
    tmp_path_factory: pytest.TempPathFactory,
    listed: dict[str, float | None],
    scale: Scale,
    asked: list[tuple[str | None, float]],
) -> None:
    """For any panel, any scale, and any groups and scores: exactly what a calibration counts as accepted there."""
    text = by_group(listed, fields={"claim": claim_on(scale)})
    gate = gate_of(tmp_path_factory.mktemp("any"), text)
    for group, score in [*asked, *((name, score) for name in listed for _, score in asked)]:
        raw, threshold = scale.value(score), listed.get(group) if group is not None else None
        counted = float(scale.unit(np.array([raw]))[0])
        assert gate.accept(raw, group=group) == (threshold is not None and threshold <= counted <= 1)
    assert gate.status().groups == listed
    assert gate.status().accepting


# ---------------------------------------------------------------- several scores


def test_the_picked_score_is_read_on_its_own_scale(tmp_path: Path) -> None:
    gate = gate_of(tmp_path, by_score(SCORES, "doubt"), claim={"column": "doubt"})
    assert [gate.accept(raw) for raw in (0.0, 25.0, 25.5, 100.0, -1.0)] == [True, True, False, False, False]
    assert gate.decide(0.9).accepted, "little doubt, whatever it would be as the first score"
    status = gate.status()
    assert (status.score, status.scale, status.raw_threshold, status.accepting) == ("doubt", "100:0", 25.0, True)
    with pytest.raises(FedsrcError, match="its column is 'doubt', not 'score'"):
        gate_of(tmp_path, by_score(SCORES, "doubt"), claim={"column": "score"})


def test_a_claim_on_the_score_is_on_the_picked_one(tmp_path: Path) -> None:
    assert gate_of(tmp_path, by_score(SCORES, "doubt"), claim={"score": "doubt"}).accept(0.0)
    for wrong in ("score", "lift", body()["claim"]["score"]):
        with pytest.raises(FedsrcError, match=f"foreign: its score is 'doubt', not {wrong!r}"):
            gate_of(tmp_path, by_score(SCORES, "doubt"), claim={"score": wrong})
    first = {**SCORES, "score": SCORES["lift"]}
    assert gate_of(tmp_path, by_score(first, "score"), claim={"score": body()["claim"]["score"]}).accept(1.0)


def test_the_command_names_the_picked_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / CERTIFICATE).write_text(by_score(SCORES, "doubt"))
    run, check = Terminal(monkeypatch, capsys), ("gate", "check", str(tmp_path), "--trust", TRUSTED[0], "--score", "9")
    assert "(score 'doubt', threshold 0.75, which is 25 on the scale 100:0, risk" in run(*check).out
    assert json.loads(run(*check, "--format", "json").out)["score"] == "doubt"
    (tmp_path / CERTIFICATE).write_text(original())
    assert "score '" not in run(*check).out
    assert "score" not in json.loads(run(*check, "--format", "json").out)


@pytest.mark.parametrize("picked", [None, "nobody", "score"])
def test_a_certificate_that_picks_no_score_opens_nothing(tmp_path: Path, picked: str | None) -> None:
    with pytest.raises(FedsrcError, match=r"picked is a certified member|has the threshold of its certificate"):
        gate_of(tmp_path, by_score(SCORES, picked))


def test_a_group_is_not_asked_for_where_scores_are_several(tmp_path: Path) -> None:
    gate = gate_of(tmp_path, by_score(SCORES, "lift"))
    assert gate.decide(0.25, group="anything") == gate.decide(0.25)
    assert gate.accept(0.25)


# ---------------------------------------------------------------- targets, claims, renewals


def test_a_panel_speaks_of_its_registered_target_alone(tmp_path: Path) -> None:
    for text in (by_group(WARDS), by_group({"a": 0.5}, claim="all"), by_score(SCORES, "lift")):
        named, plain = (gate_of(tmp_path, text, target=target) for target in (0.2, None))
        assert named.decide(1.0, group="a") == plain.decide(1.0, group="a")
        assert named.accept(1.0, group="a")
        for target in (0.1, 0.3):
            with pytest.raises(FedsrcError, match=r"registered target 0\.2 alone, as a panel"):
                gate_of(tmp_path, text, target=target)
    abstained = by_group(dict.fromkeys("ab"), fields={"status": "ABSTAIN"})
    for named_target in (None, 0.2):
        with pytest.raises(FedsrcError, match="certifies nothing: its status is 'ABSTAIN'"):
            gate_of(tmp_path, abstained, target=named_target)
    with pytest.raises(FedsrcError, match="as a panel"):
        gate_of(tmp_path, abstained, target=0.3)


def test_a_claim_may_name_the_groups(tmp_path: Path) -> None:
    assert gate_of(tmp_path, by_group(WARDS), claim={"groups": ["a", "b", "c"], **CLAIM}).accept(1.0, group="a")
    for text, asked in ((by_group(WARDS), ("a", "b")), (original(), ("a", "b", "c")), (by_group(WARDS), None)):
        with pytest.raises(FedsrcError, match="foreign: its groups is"):
            gate_of(tmp_path, text, claim={"groups": asked})


OTHER_PANELS: dict[str, tuple[str, str]] = {
    "a group less": (by_group({"a": 0.5, "b": 0.75}, seconds=60), "groups"),
    "a group more": (by_group({**WARDS, "d": 0.5}, seconds=60), "groups"),
    "a group renamed": (by_group({"a": 0.5, "b": 0.75, "C": None}, seconds=60), "groups"),
    "one threshold for all": (by_group(dict.fromkeys("abc", 0.5), claim="all", seconds=60), "group_claim"),
    "told by another column": (by_group(WARDS, changes={"column": "team"}, seconds=60), "group_column"),
    "another base of acceptance": (by_group(WARDS, changes={"floor": "group"}, seconds=60), "group_floor"),
    "sources count otherwise": (by_group(WARDS, changes={"span": "whole"}, seconds=60), "group_span"),
    "all traffic": (renewed(60), "groups"),
    "several scores": (by_score({**SCORES, "score": SCORES["lift"]}, "score", seconds=60), "groups"),
}


@pytest.mark.parametrize("name", OTHER_PANELS)
def test_a_renewal_is_about_the_same_groups(wards: Gate, tmp_path: Path, name: str) -> None:
    text, what = OTHER_PANELS[name]
    before = wards.decide(0.6, group="a")
    (tmp_path / CERTIFICATE).write_text(text)
    with pytest.raises(FedsrcError, match=f"foreign: its {what} is not that of the one in force"):
        wards.reload()
    assert wards.decide(0.6, group="a") == before
    gate = gate_of(tmp_path, certificate())
    (tmp_path / CERTIFICATE).write_text(by_group(WARDS, seconds=60))
    with pytest.raises(FedsrcError, match="foreign: its groups"):
        gate.reload()


def test_a_renewal_may_show_other_thresholds_and_lose_a_group(wards: Gate, tmp_path: Path) -> None:
    (tmp_path / CERTIFICATE).write_text(by_group({"a": None, "b": 0.25, "c": 0.5}, seconds=60))
    assert wards.reload()
    assert [wards.decide(0.4, group=name).reason for name in "abc"] == [NOT_SHOWN, ACCEPTED, BELOW]


OTHER_SCORES: dict[str, tuple[dict[str, Any], str, str]] = {
    "another one is picked": (SCORES, "lift", "score"),
    "another scale": ({**SCORES, "doubt": (Scale(worst=1.0, best=0.0), 0.75, ())}, "doubt", "scale"),
    "checkpoints": ({**SCORES, "doubt": (DOWN, 0.75, (20,))}, "doubt", "checkpoints"),
}


@pytest.mark.parametrize("name", OTHER_SCORES)
def test_a_renewal_takes_the_same_score(tmp_path: Path, name: str) -> None:
    scores, picked, what = OTHER_SCORES[name]
    gate = gate_of(tmp_path, by_score(SCORES, "doubt"))
    (tmp_path / CERTIFICATE).write_text(by_score(scores, picked, seconds=60))
    with pytest.raises(FedsrcError, match=f"foreign: its {what} is not that of the one in force"):
        gate.reload()
    (tmp_path / CERTIFICATE).write_text(by_score({**SCORES, "doubt": (DOWN, 0.5, ())}, "doubt", seconds=60))
    assert gate.reload()
    assert (gate.accept(50.0), gate.accept(50.5)) == (True, False)


# ---------------------------------------------------------------- halts and monitors


def said_of(gate: Gate, **fields: Any) -> bytes:
    now = utc_now()
    plain = {
        "certificate": gate.status().certificate, "monitor": "ab" * 32, "threshold": None, "target_risk": 0.2,
        "state": "still supported", "rounds": 1, "records": 9, "latest": now, "time": now, "key": TRUSTED[0],
        "watched": {name: at for name, at in WARDS.items() if at is not None},
    }  # fmt: skip
    return MonitorStatus.model_validate({**plain, **fields}).signed(KEY).to_bytes()


def test_an_alarm_in_a_group_halts_them_all(wards: Gate, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    status = tmp_path / "status.json"
    status.write_bytes(said_of(wards, threshold=0.5))
    gate = Gate(tmp_path, trusted=TRUSTED, monitor=status)
    assert gate.decide(1.0, group="a").reason == gate.status().reason == UNWATCHED
    told = "the monitor watches threshold 0.5, and a threshold for each group is in force"
    assert gate.status().monitor_problem == told
    status.write_bytes(said_of(wards, watched={"a": 0.1}))
    gate.reload()
    assert gate.status().monitor_problem == "the monitor does not watch every certified group at its threshold"
    status.write_bytes(said_of(wards))
    gate.reload()
    assert gate.accept(1.0, group="a")
    status.write_bytes(said_of(wards, state="alarm", groups=("b",)))
    gate.reload()
    assert [gate.decide(1.0, group=name)[:2] for name in ("a", "b", "z", None)] == [(False, HALTED)] * 4
    assert "alarm, after 9 records, in group 'b'" in caplog.text
    assert not gate_of(tmp_path, by_group(WARDS)).accept(1.0, group="a"), "and after a restart"


# ---------------------------------------------------------------- status, service, command, chain


def test_the_status_names_groups_and_thresholds(tmp_path: Path) -> None:
    gate = gate_of(tmp_path, by_group({"c": None, "b": 0.75}))
    status = gate.status()
    assert (status.accepting, status.reason) == (True, "accepting"), "though the first group has no threshold"
    assert (status.threshold, status.raw_threshold, status.groups) == (None, None, {"c": None, "b": 0.75})
    gate.halt()
    assert (gate.status().accepting, gate.status().reason) == (False, HALTED)


def test_the_service_takes_groups(tmp_path: Path) -> None:
    odd = 'the "new"\\\nward'
    gate = gate_of(tmp_path, by_group({**WARDS, odd: 0.25}))
    with serving(gate) as port, contextlib.closing(Client(port)) as client:
        asked = [(0.6, "a"), (0.6, "b"), (1.0, "c"), (1.0, "d"), (1.0, None), (None, "a"), (0.3, odd)]
        for score, group in asked:
            reply = client.ask("POST", "/v1/decide", {"score": score, "group": group})
            assert (reply.status, reply.json) == (200, gate.decide(score, group=group)._asdict())
        assert client.decide(1.0).json["reason"] == NO_GROUP
        assert client.ask("POST", "/v1/decide?group=a", {"score": 1.0}).json["reason"] == NO_GROUP
        scores, groups = map(list, zip(*asked, strict=True))
        many = client.ask("POST", "/v1/decide/batch", {"scores": scores, "groups": groups})
        assert many.json == {"decisions": [each._asdict() for each in gate.decide_all(scores, groups=groups)]}
        without = client.ask("POST", "/v1/decide/batch", {"scores": scores}).json["decisions"]
        assert {each["reason"] for each in without} == {NO_GROUP}
        bad: list[tuple[str, Any]] = [
            ("", {"score": 1.0, "group": 31415}), ("", {"score": 1.0, "group": ["31415"]}),
            ("/batch", {"scores": [1.0], "groups": ["31415", "a"]}), ("/batch", {"scores": [1.0], "groups": []}),
        ]  # fmt: skip
        for path, body in bad:
            reply = client.ask("POST", f"/v1/decide{path}", body)
            assert (reply.status, b"31415" in reply.body) == (422, False)
        health = client.ask("GET", "/healthz").json
        assert (health["groups"], health["threshold"]) == ({**WARDS, odd: 0.25}, None)
        metrics = client.ask("GET", "/metrics").body.decode()
    families = {family.name: family.samples for family in text_string_to_metric_families(metrics)}
    shown = {sample.labels["group"]: sample.value for sample in families["fedsrc_gate_threshold"]}
    assert shown == {"a": 0.5, "b": 0.75, odd: 0.25}
    assert "group" not in Metrics().text(gate_of(tmp_path, original()).status()).partition("fedsrc_gate_threshold{")[2]


def test_the_command_takes_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / CERTIFICATE).write_text(by_group(WARDS, fields={"claim": claim_on(DOWN)}))
    run = Terminal(monkeypatch, capsys)
    check = ("gate", "check", str(tmp_path), "--trust", TRUSTED[0], "--claim", "groups=a,b,c", "--score", "40")
    where = "(threshold {}, which is {} on the scale 100:0, risk at most 0.2)\n"
    assert run(*check, "--group", "a")[:2] == (0, f"accepted: {ACCEPTED} {where.format(0.5, 50)}")
    assert run(*check, "--group", "b")[:2] == (1, f"abstained: {BELOW} {where.format(0.75, 25)}")
    assert run(*check)[:2] == (1, f"abstained: {NO_GROUP} (risk at most 0.2)\n")
    assert run(*check, "--group", "c")[:2] == (1, f"abstained: {NOT_SHOWN} (risk at most 0.2)\n")
    said = json.loads(run(*check, "--group", "a", "--format", "json").out)
    assert (said["threshold"], said["raw_threshold"], said["scale"]) == (0.5, 50.0, "100:0")
    assert json.loads(run(*check, "--format", "json").out)["raw_threshold"] is None
    assert run(*check, "--claim", "groups=a,b").status == 2
    refused = run(*check, "--target", "0.3")
    assert (refused.status, "registered target 0.2 alone, as a panel" in refused.err) == (2, True)


def test_a_chain_takes_a_group(wards: Gate) -> None:
    chain = gated(wards, "ask a person", group="ward")
    given = [{"answer": "Paris", "score": 0.6, **more} for more in ({"ward": "a"}, {"ward": "b"}, {}, {"group": "a"})]
    assert chain.batch(given) == ["Paris", "ask a person", "ask a person", "ask a person"]
    assert gated(wards, "ask a person").invoke(given[3]) == "Paris"


# ---------------------------------------------------------------- real runs


def frame(count: int = 3000) -> pl.DataFrame:
    """Answers of three groups, one of them bad throughout; a weak score, and a good one that runs downwards."""
    rng = np.random.default_rng(7)
    ward = rng.choice(["a", "b", "c"], count, p=[0.5, 0.3, 0.2])
    loss = (rng.random(count) < np.where(ward == "a", 0.2, np.where(ward == "b", 0.4, 0.97))).astype(float)
    score = 1 / (1 + np.exp(-(rng.normal(size=count) + 1 - 2 * loss)))
    doubt = 100 / (1 + np.exp(-(rng.normal(size=count) - 2 + 4 * loss)))
    return pl.DataFrame({"score": score, "doubt": doubt, "loss": loss, "ward": ward})


def certified(folder: Path, **options: Any) -> fedsrc.Run:
    return fedsrc.certify(
        frame(), target=0.2, epsilon=math.inf, output=folder / "run", ledger=folder / "ledger", key=folder / "key",
        certificate="plain", **options,
    )  # fmt: skip


def test_a_run_by_group_opens_a_gate(tmp_path: Path) -> None:
    run = certified(tmp_path, groups=["a", "b", "c"], group_column="ward")
    gate = run.gate(trusted=[str(run.certificate.key)], target=0.2)
    panel = Certificate.read(run.folder / CERTIFICATE).by_group
    assert panel is not None
    own = {each.name: each.threshold for each in panel.members}
    assert gate.status().groups == own
    assert (own["a"], own["b"], own["c"]) == (own["a"] or -1, own["b"] or -1, None)
    assert own["a"] != own["b"]
    for name in ("a", "b"):
        assert gate.accept(own[name], group=name)
        assert not gate.accept(math.nextafter(own[name] or 0, 0), group=name)
    assert gate.decide(1.0, group="c").reason == NOT_SHOWN


def test_a_run_with_several_scores_opens_a_gate_on_the_best(tmp_path: Path) -> None:
    run = certified(tmp_path, also_scores=["doubt=100:0"], checkpoints={"doubt": (20, 40)})
    gate = run.gate(trusted=[str(run.certificate.key)])
    status = gate.status()
    assert (status.score, status.scale, status.checkpoints) == ("doubt", "100:0", (20, 40))
    assert status.threshold == run.certificate.threshold
    assert (gate.accept(1.0), gate.accept(99.0)) == (True, False)
