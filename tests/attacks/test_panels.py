"""Attacks on panels that succeeded once, each shut by a rule.

Mutants killed: one row's bytes that decide how all rows are read, noise scales that no step raises, shares that turn
negative with many groups, answers without a score left out of a group's total, sources thinned out by a cap over all
groups or silently dropped from some, certificates whose panel says something else, groups that nobody has; one row's
number that decides how all names are read, answers without a score that count as accepted, a neighbour that adds
something and is said to add nothing, a scale of a score compared up to a rounding.
"""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import pytest

import fedsrc
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.planning.aim import Expected
from fedsrc.planning.panel_plan import _likely
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.certificate import Certificate, _same_at
from fedsrc.protocol.disclosure import privacy_words
from fedsrc.protocol.messages import parse_release
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.scale import Scale
from fedsrc.records.columns import Columns
from fedsrc.records.development import units_for
from fedsrc.records.masses import unit_masses
from fedsrc.records.scan import scan
from fedsrc.records.stream import Table
from fedsrc.records.table import MISSING_SCORE, frame_records, read_records
from fedsrc.records.units import Units
from fedsrc.site.policy import describe_registration
from tests.support.cohorts import cohort_registration, member, own_table, request_to, site_of
from tests.support.helpers import table


def test_one_rows_bytes_do_not_change_how_others_are_read(tmp_path: Path) -> None:
    """A group with an accent, and one cell somewhere that is not UTF-8: it emptied the group of everybody else."""
    lines = [f"u{i},0.5,{i % 2},Pédiatrie".encode() for i in range(50)]
    head = b"id,score,loss,group"
    for name, last in (("one", "u50,0.5,0,Pédiatrie".encode()), ("other", b"u50,0.5,0,P\xe9diatrie")):
        (tmp_path / f"{name}.csv").write_bytes(b"\n".join([head, *lines, last]) + b"\n")
    one, other = (read_records(tmp_path / f"{name}.csv") for name in ("one", "other"))
    assert one.group_names == other.group_names == ("Pédiatrie",)
    (tmp_path / "third.csv").write_bytes(b"\n".join([head, *lines, b"u50,0.5,0,\xff\xfe"]) + b"\n")
    assert read_records(tmp_path / "third.csv").group_names[0] == "Pédiatrie"


@pytest.mark.parametrize("column", ["group", "source", "id", "site"])
@pytest.mark.parametrize("reader", ["whole", "batches"])
def test_one_rows_number_does_not_change_how_other_names_are_read(tmp_path: Path, column: str, reader: str) -> None:
    """In JSON lines one name 0.5 made floats of everybody's, and names of 18 digits lost the last of them: the release
    moved by 80 times its sensitivity."""
    rows = [{"score": 0.5, "loss": i % 2, column: 123_456_781_000_119_104 + i} for i in range(20)]
    found = []
    for name, odd in (("one", rows[7][column]), ("other", 0.5)):
        lines = [json.dumps(row | ({column: odd} if i == 7 else {})) for i, row in enumerate(rows)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
        path = tmp_path / f"{name}.jsonl"
        frames = [scan(path, Columns().names)[0].collect()] if reader == "whole" else Table(path, batch=3).frames()
        texts = [each for frame in frames for each in frame[column].to_list()]
        found.append(texts[:7] + texts[8:])
    assert found[0] == found[1] == [str(row[column]) for i, row in enumerate(rows) if i != 7]


@pytest.mark.parametrize("claim", ["each", "all"])
@pytest.mark.parametrize("sealed", [False, True])
def test_answers_without_a_score_are_not_accepted_in_their_group(
    tmp_path: Path, claim: Literal["each", "all"], sealed: bool
) -> None:
    """They are in the group's total, whose threshold is 0; a floor of 0.9 was shown where 0.85 of the answers have a
    score."""
    rng, count = np.random.default_rng(1), 6000
    absent = rng.random(count) < 0.15
    frame = pl.DataFrame({
        "id": [f"u{i}" for i in range(count)], "score": np.where(absent, np.nan, np.round(rng.random(count), 3)),
        "loss": absent.astype(np.float64), "group": rng.choice(["a", "b"], count),
    })  # fmt: skip
    run = fedsrc.certify(
        frame, target=0.3, epsilon=4 if sealed else math.inf, groups=["a", "b"], group_claim=claim, group_floor="group",
        missing="keep", output=tmp_path / "run", ledger=tmp_path / "ledger",
    )  # fmt: skip
    assert run.certificate.panel is not None
    rows = [*run.certificate.thresholds, *(row for each in run.certificate.panel.members for row in each.thresholds)]
    assert 0.5 < max(row.acceptance_lower for row in rows) < 0.85


def test_a_total_alone_shows_no_acceptance() -> None:
    choices = Choices(0.2, 4.0, grid=True, thresholds=3, groups=("a", "b"), group_floor="group")
    fields = register_grid(choices, ["a"]).model_dump()
    fields["thresholds"] |= {"values": (0.0,), "weights": (1.0,)}
    with pytest.raises(ValueError, match="of several"):
        Registration.model_validate(fields)


@pytest.mark.parametrize("floor", ["traffic", "group"])
def test_what_adds_nothing_is_called_so(floor: Literal["traffic", "group"]) -> None:
    """With a floor of the group, an answer below every threshold is in its group's total all the same."""
    choices = Choices(0.2, 4.0, grid=True, thresholds=3, groups=("a", "b"), group_floor=floor)
    reg = register_grid(choices, ["a"])
    names = np.array(["a", "b", "x"])
    absent = Units(np.arange(3), np.full(2, MISSING_SCORE), np.ones(2), None, None, np.array([0, 2]), tuple(names))
    adds = [bool(each.any()) for each in unit_masses(reg, absent)[..., 1:]]
    assert adds == [floor == "group", False]
    said = "one of no listed group" if floor == "group" else "one that scores below every threshold"
    assert said in privacy_words(reg)
    assert any(said in line for line in describe_registration(reg, "a"))


def test_the_scale_of_a_member_is_compared_to_the_last_bit() -> None:
    """A gate reads scores by it: on a scale of 1e-8, what is equal up to a rounding is another threshold."""
    assert _same_at("scale", {"worst": 0.0}, {"worst": 0.0})
    assert not _same_at("scale", {"worst": 0.0}, {"worst": -1.9e-9})


@pytest.mark.parametrize("panel", [{"groups": ("g", "h")}, {"also_scores": (("other", Scale()),)}])
def test_a_cohorts_member_that_is_asked_for_nothing_answers(tmp_path: Path, panel: dict[str, Any]) -> None:
    """It refused, for want of a group of no answers, and made every such round void."""
    members = [member(name) for name in "abc"]
    reg = cohort_registration(members, **panel)
    for who, slots in zip(members, (60, 60, 0), strict=True):
        records = own_table(who.name)
        records = replace(
            records, group=np.arange(len(records)) % 2, group_names=("g", "h"), others=records.score[:, None]
        )
        with site_of(tmp_path / who.name, who, reg, records) as site:
            assert parse_release(site.answer(request_to(reg, (60, 60, 0)))).slots == slots


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 8.0])
def test_very_large_noise_scales_are_found(epsilon: float) -> None:
    """Sources of ten answers have masses so fine that a fixed step would not raise the scale: it never ended."""
    choices = Choices(0.2, epsilon, unit="source", max_answers=10, grid=True, thresholds=3, groups=("a", "b"),
                      encoding="moments", loss_grid=20, batch=10, rounds=1)  # fmt: skip
    assert register_grid(choices, ["a"]).mechanism.scale > 1 << 33


@pytest.mark.parametrize("count", [2, 45, 50, 60, 100])
def test_shares_of_many_groups_are_positive(count: int) -> None:
    names = tuple(f"g{i}" for i in range(count))
    reg = register_grid(Choices(0.2, 4.0, grid=True, thresholds=2, groups=names), ["a"])
    rng = np.random.default_rng(count)
    for chances in (rng.random(count), np.ones(count), np.zeros(count), np.eye(count)[0]):
        found = _likely(reg, [Expected(float(p), 0.1, 1.0, 1, 1) for p in chances])
        assert min(found) > 0
        assert sum(found) == pytest.approx(1.0, abs=1e-12)


def test_answers_without_a_score_are_in_their_groups_total() -> None:
    frame = pl.DataFrame({"score": [None, 0.9, None, 0.2], "loss": [0, 0, 0, 1], "group": ["a", "a", "b", "b"]})
    records = frame_records(frame, missing="keep")
    reg = register_grid(Choices(0.2, 4.0, grid=True, thresholds=2, groups=("a", "b"), group_floor="group"), ["local"])
    masses = unit_masses(reg, units_for(reg, records, "local"))
    total = masses[:, :, :, 1:].sum(axis=(0, 3))  # at or above 0
    assert total.tolist() == [[1, 1], [0, 2]]  # what has no score counts as unsupported


def spanning(answers: int) -> Any:
    """One source with many answers in group b and one in group a; another with one of each."""
    sources = ["x"] * (answers + 1) + ["y"] * 2
    groups = ["b"] * answers + ["a", "a", "b"]
    return frame_records(pl.DataFrame({"source": sources, "group": groups, "score": 0.9, "loss": 0}))


def test_a_source_counts_whole_in_each_of_its_groups_however_many_answers_it_has() -> None:
    """A cap over all answers dropped it from its smaller groups: those that are left were other sources."""
    for answers in (3, 60):
        reg = register_grid(
            Choices(0.2, 4.0, grid=True, thresholds=2, groups=("a", "b"), group_span="whole", unit="source",
                    max_answers=2), ["local"],
        )  # fmt: skip
        masses = unit_masses(reg, units_for(reg, spanning(answers), "local"))
        assert masses.sum(axis=(2, 3)).tolist() == [[reg.privacy.mass_grid] * 2] * 2


def test_a_source_in_more_groups_than_registered_is_refused() -> None:
    reg = register_grid(
        Choices(0.2, 4.0, grid=True, thresholds=2, groups=("a", "b"), group_span="whole", group_most=1, unit="source",
                max_answers=2), ["local"],
    )  # fmt: skip
    with pytest.raises(FedsrcError, match="more groups than the 1"):
        units_for(reg, spanning(3), "local")


def frame(count: int = 2000) -> pl.DataFrame:
    made, rng = table(count), np.random.default_rng(1)
    group = np.array(["adults", "children"])[rng.integers(0, 2, count)]
    return pl.DataFrame({"score": made.score, "loss": made.loss, "group": group})


def test_certificates_whose_panel_says_something_else_are_refused(tmp_path: Path) -> None:
    """A gate reads members and the whole: whoever signs such a text, it is none."""
    kinds: dict[str, dict[str, Any]] = {"each": {}, "all": {"group_claim": "all"}}
    for name, more in kinds.items():
        run = fedsrc.certify(frame(), target=0.2, epsilon=8, groups=["adults", "children"], output=tmp_path / name,
                             ledger=tmp_path / f"{name}.ledger", key=tmp_path / "key", **more)  # fmt: skip
        assert run.certificate.status == "CERTIFIED"
        text = (tmp_path / name / CERTIFICATE).read_text()
        for change in ("twice", "threshold", "status", "top", "claim"):
            body = json.loads(text)
            members = body["panel"]["members"]
            if change == "twice":
                members[1]["name"] = members[0]["name"]
            if change == "threshold":
                members[0]["threshold"] = 0.0001
            if change == "status":
                members[0]["status"] = "ABSTAIN"
            if change == "top":
                body["threshold"] = 0.0001
            if change == "claim":
                body["panel"]["claim"] = "best"
            changed = json.dumps(body, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
            with pytest.raises(DamagedError):
                Certificate.parse(changed, "x")
        assert Certificate.parse(text, "x") == run.certificate


def test_groups_that_nobody_has_are_told_before_anything_is_spent(tmp_path: Path) -> None:
    how: dict[str, Any] = {"target": 0.2, "epsilon": 8, "ledger": tmp_path / "l", "key": tmp_path / "k"}
    with pytest.raises(FedsrcError, match="no row has the group 'adult', 'kids' in column 'group'; is 'adults' meant"):
        fedsrc.certify(frame(), groups=["adult", "kids"], output=tmp_path / "run", **how)
    assert not (tmp_path / "l").exists()
    with pytest.warns(UserWarning, match="no row has the group 'childrn'.*'children' meant"):
        fedsrc.certify(frame(), groups=["adults", "childrn"], output=tmp_path / "run", **how)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fedsrc.register(frame(), groups=[" adults", "children "], target=0.2, epsilon=8, ledger=tmp_path / "m")


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"group_claim": "all"}, "none are listed"),
        ({"groups": []}, "list of groups"),
        ({"groups": [1, 2]}, "list of groups"),
        ({"groups": "adults"}, "list of groups"),
    ],
)
def test_choices_about_groups_need_groups(choices: dict[str, Any], words: str) -> None:
    with pytest.raises(FedsrcError, match=words):
        fedsrc.register(target=0.2, epsilon=4, grid=True, sites=["a"], **choices)


def test_declared_label_errors_are_of_every_group(tmp_path: Path) -> None:
    run = fedsrc.certify(frame(1500), target=0.2, epsilon=8, missed=0.1, groups=["adults", "children"],
                         output=tmp_path / "run", ledger=tmp_path / "l", key=tmp_path / "k")  # fmt: skip
    assert any("of every listed group" in each.what for each in run.certificate.assumptions)


def test_forecasts_from_one_acceptance_are_refused() -> None:
    with pytest.raises(FedsrcError, match="say nothing of groups"):
        fedsrc.forecast(acceptance=0.4, risk=0.1, target=0.2, epsilon=4, groups=["a", "b"])


def test_one_listed_group_has_its_own_claim(tmp_path: Path) -> None:
    run = fedsrc.certify(frame(), target=0.2, epsilon=8, groups=["adults"], output=tmp_path / "run",
                         ledger=tmp_path / "l", key=tmp_path / "k")  # fmt: skip
    assert run.certificate.threshold is None
    assert run.certificate.by_group is not None
    assert "in each of these groups: 'adults'" in run.certificate.statement
