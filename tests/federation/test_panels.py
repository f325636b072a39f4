"""Panels in one process, by files, live and in cohorts; with labels on demand; from tables to folders that verify.

Mutants killed: a table of none of the registered groups that is spent, a mode that counts groups or scores otherwise,
a group's threshold or bound that `verify` does not recompute, a development release of other groups taken for these,
labels asked for answers that no group accepts or not asked where only a further score does, a table without the
registered columns that is counted all the same.

What must certify does so by a wide margin: in three runs of each kind the evidence stood at least 12 deviations
of its noise (sealed), or 48 nats (open), above its line.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedsrc
from fedsrc.cli.main import cli
from fedsrc.cli.streams import in_flags
from fedsrc.common.signing import public_hex
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.federation.airgap import answer_file, collect, start
from fedsrc.federation.flower.app.fedsrc_relay.wire import HELLO, REFUSED, Frame
from fedsrc.federation.local import admit_table
from fedsrc.planning.register import Choices, register_grid
from fedsrc.planning.sealing import Seal, seal
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.handshake import Challenge
from fedsrc.protocol.messages import Refusal, Request
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.scale import Scale
from fedsrc.records.masses import accepted_somewhere
from fedsrc.records.stream import Table
from fedsrc.records.units import Records, units_of
from fedsrc.server.status import run_state, words
from fedsrc.server.verify import verify
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow, describe_registration
from fedsrc.site.site import open_sites
from research.attacks.struck import NAMES, key, play_by_files
from tests.support.cohorts import SERVER as COHORT_SERVER
from tests.support.cohorts import cohort_registration, ledger_of, member, own_table
from tests.support.gate_certificates import Terminal
from tests.support.helpers import table
from tests.support.live_scenarios import SERVER, guards, live

GROUPS = ("g", "h")


def grouped(records: Records, seed: int = 0) -> Records:
    """The table with groups, one of which is not listed, and a further score."""
    rng = np.random.default_rng(seed)
    other = np.clip(records.score + 0.1 * rng.standard_normal(len(records)), 0, 1)
    group = rng.choice(3, len(records), p=[0.5, 0.4, 0.1])
    return replace(records, group=group, group_names=(*GROUPS, "else"), others=other[:, None])


def own(number: int) -> Records:
    return grouped(table(900, seed=number + 70, ids=True), number)


PANELS: dict[str, dict[str, Any]] = {
    "each": {"groups": GROUPS},
    "all": {"groups": GROUPS, "group_claim": "all", "weights": dict.fromkeys(NAMES, 1 / 3)},
    "within": {"groups": GROUPS, "group_floor": "group"},
    "scores": {"also_scores": (("other", Scale()),), "checkpoints": {"other": (20, 40)}},
    "prefixes": {"checkpoints": {"score": (20, 40)}},
}


def registered(name: str, *, sealed: bool = False, **more: Any) -> Registration:
    """A panel of three sites with keys, on a public grid."""
    choices = Choices(
        0.2, 8.0, grid=True, thresholds=3, batch=300, rounds=3 if not sealed else 2, policy="final",
        site_keys={site: public_hex(key(i)) for i, site in enumerate(NAMES)}, server_key=public_hex(SERVER),
        capacities=dict.fromkeys(NAMES, 900), **PANELS[name], **more,
    )  # fmt: skip
    base = register_grid(choices, list(NAMES))
    if not sealed:
        return base
    m, blocks = len(base.thresholds.values), len(base.cuts)
    weights, one = (1 / m,) * m, base.panel is not None and base.panel.simultaneous
    others = () if one else ((base.thresholds.values, weights),) * (blocks - 1)
    tests = ((0.2, 1.0, (0.4,) * m * blocks),)
    return seal(base, Seal(base.thresholds.values, weights, tests, ((1, 0.4), (2, 0.6)), others=others))


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("name", PANELS)
def test_live_and_by_files_a_panel_is_the_same(tmp_path: Path, name: str, *, sealed: bool) -> None:
    """Transcript and certificate, byte for byte, on the same ledgers; and all of it verifies."""
    reg = registered(name, sealed=sealed)
    body = live(tmp_path, reg=reg, find=own)
    assert body.panel is not None
    assert [each.name for each in body.panel.members] == [*reg.block_names]
    assert verify(tmp_path / "run").certificate == body
    play_by_files(reg, tmp_path, "files", own)
    for file in (TRANSCRIPT, CERTIFICATE):
        assert (tmp_path / "files" / file).read_bytes() == (tmp_path / "run" / file).read_bytes()
    assert body.status == "CERTIFIED"
    if name == "scores":
        assert body.panel.picked in ("score", "other")
        assert body.panel.members[1].checkpoints == (20, 40)
    if name == "prefixes":
        assert (body.panel.picked, body.panel.members[0].checkpoints) == ("score", (20, 40))
    if sealed:
        assert not any("higher ones" in each for each in body.does_not_say), "a gate refuses any other target"
    if name in ("each", "within"):
        assert body.threshold is None
        assert body.by_group is body.panel
        assert all(each.status == "CERTIFIED" for each in body.panel.members)


def test_groups_in_a_cohort_come_to_a_certificate_that_verifies(tmp_path: Path) -> None:
    """Members mask one vector per group; a member that misses voids the round, charged in every group."""
    five = [member(name) for name in "abcde"]
    reg = cohort_registration(
        five, groups=GROUPS, batch=100, rounds=2, capacities=dict.fromkeys("abcde", 400), epsilon=8.0, policy="final"
    )
    done, round = start(reg, tmp_path / "run", COHORT_SERVER), 0
    while done.certificate is None:
        round += 1
        files = []
        for request in done.waiting:
            asked = reg.answering(Request.model_validate(json.loads(request.read_bytes())["request"]))
            for who in five:
                if who.name in asked and (round, who.name) != (2, "c"):
                    place = tmp_path / f"{request.name}.{who.name}"
                    with closing(ledger_of(tmp_path, who, reg)) as ledger:
                        mine = grouped(own_table(who.name, 400), ord(who.name))
                        place.write_bytes(answer_file(request, partial(replace, mine), ledger, who.key, mask=who.mask))
                    files.append(place)
        done = collect(tmp_path / "run", files, COHORT_SERVER, without_missing=True)
    assert isinstance(done.certificate, Certificate)
    assert done.certificate.absent == 1
    assert done.certificate.panel is not None
    assert verify(tmp_path / "run").certificate == done.certificate


def frame(count: int = 3000, seed: int = 4) -> pl.DataFrame:
    found = grouped(table(count, seed=seed), seed)
    assert found.group is not None
    assert found.others is not None
    names = np.array(found.group_names)[found.group]
    columns = {"score": found.score, "loss": found.loss, "ward": names, "lift": 100 * found.others[:, 0]}
    return pl.DataFrame(columns)


def test_a_table_is_certified_by_group_and_changed_numbers_are_damage(tmp_path: Path) -> None:
    run = fedsrc.certify(
        frame(), target=0.2, epsilon=4, groups=GROUPS, group_column="ward",
        output=tmp_path / "run", ledger=tmp_path / "ledger", key=tmp_path / "key",
    )  # fmt: skip
    assert run.certificate.status == "CERTIFIED"
    panel = run.certificate.panel
    assert panel is not None
    assert (panel.kind, panel.claim, panel.column) == ("groups", "each", "ward")
    assert run.registration.development is not None
    assert run.registration.development.release is not None
    assert run.registration.development.release.blocks == GROUPS
    run.verify()
    text = (tmp_path / "run" / CERTIFICATE).read_text()
    for name, value in (("threshold", 0.01), ("acceptance_lower", 0.9), ("status", "ABSTAIN")):
        body = json.loads(text)
        body["panel"]["members"][0][name] = value
        (tmp_path / "run" / CERTIFICATE).write_text(
            json.dumps(body, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
        )
        with pytest.raises(DamagedError):
            verify(tmp_path / "run")


def test_a_development_release_of_other_groups_is_not_used_again(tmp_path: Path) -> None:
    """Neither for other groups nor for none: its noise was drawn for these."""
    how: dict[str, Any] = {"target": 0.2, "epsilon": 4, "ledger": tmp_path / "ledger"}
    data = frame(1200)
    fedsrc.register(data, groups=GROUPS, group_column="ward", **how)
    others: list[dict[str, Any]] = [{"groups": ("h", "g"), "group_column": "ward"}, {}]
    for other in others:
        with pytest.raises(FedsrcError, match="were released before, for 'g', 'h'"):
            fedsrc.register(data, **how, **other)


def test_further_scores_are_read_on_their_scale(tmp_path: Path) -> None:
    run = fedsrc.certify(
        frame(), target=0.2, epsilon=float("inf"), also_scores=["lift=0:100"], certificate="plain",
        output=tmp_path / "run", ledger=tmp_path / "ledger", key=tmp_path / "key",
    )  # fmt: skip
    assert run.certificate.panel is not None
    lift = run.certificate.panel.member("lift")
    assert lift is not None
    assert lift.scale == Scale.of("0:100")
    assert all(0 <= row.threshold <= 1 for row in lift.thresholds)
    assert run.certificate.panel.picked in ("score", "lift")
    with pytest.raises(FedsrcError, match=r"is outside \[0, 1\], in column 'lift'"):
        fedsrc.certify(frame(), target=0.2, epsilon=4, also_scores=["lift"], ledger=tmp_path / "other")
    with pytest.raises(FedsrcError, match="no column 'depth', which is one of the scores"):
        fedsrc.certify(frame(), target=0.2, epsilon=4, also_scores=["depth"], ledger=tmp_path / "other")


def test_a_table_without_groups_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    with pytest.raises(FedsrcError, match="no column 'group'"):
        fedsrc.certify(frame().drop("ward"), target=0.2, epsilon=4, groups=GROUPS, ledger=tmp_path / "ledger")
    assert not (tmp_path / "ledger").exists()
    with pytest.raises(FedsrcError, match="a list of groups"):
        fedsrc.certify(frame(), target=0.2, epsilon=4, groups="g", ledger=tmp_path / "ledger")


def test_labels_are_needed_where_a_group_or_any_score_may_accept() -> None:
    records = own(0)
    units = units_of(records, "local", "record")
    assert units.group is not None
    assert units.others is not None
    each, scores, within = (registered(name) for name in ("each", "scores", "within"))
    low = each.thresholds.values[0]
    expected = (units.group < 2) & (units.score >= low)
    np.testing.assert_array_equal(accepted_somewhere(each, units), expected)
    np.testing.assert_array_equal(accepted_somewhere(scores, units), (units.score >= low) | (units.others[:, 0] >= low))
    np.testing.assert_array_equal(accepted_somewhere(registered("prefixes"), units), units.score >= low)
    second = within.thresholds.values[1]
    np.testing.assert_array_equal(accepted_somewhere(within, units), (units.group < 2) & (units.score >= second))


def test_labels_on_demand_by_group(tmp_path: Path) -> None:
    """Only answers of listed groups at or above the lowest threshold are asked for."""
    path = tmp_path / "log.csv"
    frame(600).drop("loss").with_row_index("id").write_csv(path)
    with pytest.raises(FedsrcError, match="waits for"):
        fedsrc.certify(
            path, target=0.2, epsilon=8, groups=GROUPS, group_column="ward", labels="on demand", grid=True,
            thresholds=3, batch=100, rounds=2, output=tmp_path / "run", key=tmp_path / "key",
        )  # fmt: skip


def test_a_site_is_told_what_a_panel_reads() -> None:
    each, scores = ("\n".join(describe_registration(registered(name), "a")) for name in ("each", "scores"))
    assert "for each of these groups, by the column 'group': 'g', 'h'" in each
    assert "by the best of the scores 'score', 'other'" in scores
    prefixes = "\n".join(describe_registration(registered("prefixes"), "a"))
    assert "by the score 'score', the least at 20, 40 tokens and the end" in prefixes


@pytest.mark.parametrize("name", ["each", "scores"])
def test_a_site_whose_table_lacks_a_column_spends_nothing(name: str, tmp_path: Path) -> None:
    reg, bare = registered(name), table(900, seed=70, ids=True)
    with closing(Ledger(tmp_path / "ledger")) as ledger, pytest.raises(FedsrcError, match=r"no column|further scores"):
        open_sites(reg, bare.at("a"), ledger, keys={"a": key(0)})
    with closing(Ledger(tmp_path / "ledger")) as ledger:
        assert not any(site.room() < 900 for site in open_sites(reg, own(0).at("a"), ledger, keys={"a": key(0)}))


# ---------------------------------------------------------------- tables without the listed groups


def renamed(number: int, names: tuple[str, ...] = ("ge", "ha", "else")) -> Records:
    return replace(own(number), group_names=names)


def test_a_table_of_other_groups_is_not_spent_under_a_registration(tmp_path: Path) -> None:
    how: dict[str, Any] = {"ledger": tmp_path / "ledger", "output": tmp_path / "run", "key": tmp_path / "key"}
    reg = fedsrc.register(
        target=0.2, epsilon=8, grid=True, thresholds=3, batch=300, rounds=2, sites=["local"], groups=GROUPS,
        group_column="ward",
    )  # fmt: skip
    other = frame().with_columns(pl.col("ward").replace({"g": "G", "h": "H"}))
    with pytest.raises(FedsrcError, match="no row has the group 'g', 'h' in column 'ward'"):
        fedsrc.certify(other, registration=reg, **how)
    assert not (tmp_path / "ledger").exists()
    some = frame().with_columns(pl.col("ward").replace({"h": "hh"}))
    with pytest.warns(UserWarning, match="no row has the group 'h' in column 'ward'; is 'hh' meant"):
        fedsrc.certify(some, registration=reg, **how)
    with closing(Ledger(tmp_path / "own")) as ledger, pytest.raises(FedsrcError, match="no row has the group"):
        admit_table(registered("each"), renamed(0).at("a"), ledger, in_order=False, fresh=False, keys={"a": key(0)})


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_site_whose_table_has_other_groups_answers_nothing(tmp_path: Path, *, on_disk: bool) -> None:
    """What the server hears are the fixed words of any table that cannot be read; what the site logs quotes no row."""
    reg, told = registered("each"), list[str]()
    groups = {"table": ["g"] * 5 + ["h"] * 5 + ["else"] * 890}

    def find(number: int) -> Records | Table:
        if not on_disk:
            return own(number) if "g" in groups["table"] else renamed(number)
        file = tmp_path / f"{number}.csv"
        records = own(number)
        columns = {"id": records.ids, "score": records.score, "loss": records.loss, "group": groups["table"]}
        pl.DataFrame(columns).write_csv(file)
        return Table(file)

    with guards(tmp_path, reg, told, find) as sites:
        groups["table"] = ["ge"] * 900
        with pytest.raises(FedsrcError, match="no row has the group 'g', 'h' in column 'group'"):
            sites["a"].open()
        reply = sites["a"].answer(Frame(HELLO, Challenge.by(SERVER, reg.digest, 1).to_bytes()))
        assert (reply.kind, reply.data) == (REFUSED, Refusal.CANNOT.encode())
        assert "'ge'" not in "".join(told)
        groups["table"] = ["g"] * 5 + ["h"] * 895
        assert sites["a"].open() == 900, "the ledger has taken in no other table"
        if on_disk:
            groups["table"] = ["g"] * 5 + ["ha"] * 895
            with pytest.warns(UserWarning, match="no row has the group 'h' in column 'group'$"):
                sites["b"].open()


def test_a_release_file_is_not_made_of_other_groups(tmp_path: Path) -> None:
    reg = registered("each")
    request = next(path for path in start(reg, tmp_path / "run", SERVER).waiting if "-a." in path.name)
    with closing(Ledger(tmp_path / "ledger")) as ledger:
        allow(ledger, "a", reg, max_epsilon=10.0)
        with pytest.raises(FedsrcError, match="no row has the group 'g', 'h'"):
            answer_file(request, lambda: renamed(0), ledger, key(0))
        assert answer_file(request, lambda: own(0), ledger, key(0))


# ---------------------------------------------------------------- choices that would spend a table for nothing


def test_a_column_of_groups_without_groups_is_refused(tmp_path: Path) -> None:
    how: dict[str, Any] = {"ledger": tmp_path / "ledger", "output": tmp_path / "run", "key": tmp_path / "key"}
    with pytest.raises(FedsrcError, match="`group_column=` is about groups, and none are listed"):
        fedsrc.certify(frame(), target=0.2, epsilon=4, group_column="ward", **how)
    one = fedsrc.register(target=0.2, epsilon=8, grid=True, sites=["local"])
    with pytest.raises(FedsrcError, match="`group_column=` is about groups, and no groups are registered"):
        fedsrc.certify(frame(), registration=one, group_column="ward", **how)
    assert not (tmp_path / "ledger").exists()


REFUSED_PLANS: dict[str, dict[str, Any]] = {
    "groups": {"groups": GROUPS, "group_column": "ward", "unlabelled": True},
    "scores": {"also_scores": ["lift=0:100"], "unlabelled": True},
    "checkpoints": {"checkpoints": {"score": (9,)}, "unlabelled": True},
    "few records": {"groups": GROUPS, "group_column": "ward", "objective": "records"},
}


@pytest.mark.parametrize("name", REFUSED_PLANS)
def test_what_no_panel_is_planned_for_is_refused_before_a_ledger_is_there(tmp_path: Path, name: str) -> None:
    how = dict(REFUSED_PLANS[name])
    if how.pop("unlabelled", False):
        frame(200, seed=9).drop("loss").write_csv(tmp_path / "more.csv")
        how["unlabelled"] = tmp_path / "more.csv"
    frame(900).write_csv(tmp_path / "table.csv")
    with pytest.raises(FedsrcError, match="planned for acceptance alone, and without unlabelled records"):
        fedsrc.certify(tmp_path / "table.csv", target=0.2, epsilon=4, output=tmp_path / "run", **how)
    assert not [*tmp_path.glob("*.ledger*")]


def test_further_scores_are_a_list(tmp_path: Path) -> None:
    with pytest.raises(FedsrcError, match="`also_scores=` is a list of columns") as error:
        fedsrc.certify(frame(), target=0.2, epsilon=4, also_scores="lift", ledger=tmp_path / "ledger")
    assert in_flags(str(error.value.hint)) == "--also-score lift"


def test_a_hint_on_a_further_score_names_it(tmp_path: Path) -> None:
    with pytest.raises(FedsrcError, match=r"in column 'lift'") as error:
        fedsrc.certify(frame(), target=0.2, epsilon=4, also_scores=["lift"], ledger=tmp_path / "ledger")
    assert in_flags(str(error.value.hint)).endswith("it can be: --also-score lift=0:100")


def test_an_empty_group_is_filled_in(tmp_path: Path) -> None:
    data = frame().with_columns(pl.when(pl.col("ward") == "else").then(None).otherwise("ward").alias("ward"))
    with pytest.raises(FedsrcError, match="ward is empty") as error:
        fedsrc.certify(data, target=0.2, epsilon=4, groups=GROUPS, group_column="ward", ledger=tmp_path / "ledger")
    assert "with any word that is not listed" in str(error.value.hint)


# ---------------------------------------------------------------- what is said on the way


def test_a_round_by_files_says_for_how_many_groups_the_target_is_shown(tmp_path: Path) -> None:
    reg = registered("each")
    done = start(reg, tmp_path / "run", SERVER)
    files = []
    for i, name in enumerate(NAMES):
        request = next(path for path in done.waiting if f"-{name}." in path.name)
        records = own(i)
        bad = replace(records, loss=np.where(records.group == 1, 1.0, records.loss))
        with closing(Ledger(tmp_path / f"{name}.ledger")) as ledger:
            allow(ledger, name, reg, max_epsilon=10.0)
            place = tmp_path / f"{name}.release.json"
            place.write_bytes(answer_file(request, partial(replace, bad), ledger, key(i)))
        files.append(place)
    said = collect(tmp_path / "run", files, SERVER).news
    assert said == ["round 1 closed: 900 units so far, target shown for 1 of 2 groups"]


def test_status_names_the_picked_score_on_its_scale(tmp_path: Path) -> None:
    run = fedsrc.certify(
        frame(), target=0.2, epsilon=float("inf"), also_scores=["lift=0:100"], certificate="plain",
        output=tmp_path / "run", ledger=tmp_path / "ledger", key=tmp_path / "key",
    )  # fmt: skip
    panel = run.certificate.panel
    assert panel is not None
    state = run_state(tmp_path / "run")
    assert [each.picked for each in state.panel or ()] == [each.name == panel.picked for each in panel.members]
    lift = panel.member("lift")
    assert lift is not None
    assert lift.threshold is not None
    said = "\n".join(words(state))
    assert f"lift >= {lift.threshold!r}, that is {100 * lift.threshold:.6g} or more on the scale 0:100" in said
    assert said.count(": PICKED, ") == 1
    assert said.count(": passes, not picked, ") == 1


def test_allowing_in_json_names_groups_and_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = {"each": ("groups", ["g", "h"]), "scores": ("scores", ["score", "other"])}
    for name, (what, listed) in expected.items():
        file = tmp_path / f"{name}.toml"
        file.write_text(registered(name).to_toml())
        args = ["allow", str(file), "--site", "a", "--ledger", str(tmp_path / "ledger"), "--show", "--format", "json"]
        cli(args, standalone_mode=False)
        assert json.loads(capsys.readouterr().out)[what] == listed


def test_a_command_says_which_columns_it_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frame().rename({"ward": "group"}).write_csv(tmp_path / "table.csv")
    monkeypatch.chdir(tmp_path)
    run = Terminal(monkeypatch, capsys)
    check = ("certify", "table.csv", "--target", "0.2", "--epsilon", "4", "--check")
    uses = [run(*check, *more).err.partition("\n")[0] for more in ((), ("--also-score", "lift=0:100"))]
    assert uses[0].startswith("Uses score, loss; ")
    assert "Not used: group, lift" in uses[0]
    assert "further score=lift (0:100)" in uses[1]
    assert "Uses score, loss, group; " in run(*check, "--groups", "g,h").err
    refused = run(*check, "--group-column", "group")
    assert (refused.status, "--group-column is about groups, and none are listed" in refused.err) == (2, True)
    (tmp_path / "fedsrc.toml").write_text('group_column = "group"\n')
    assert run(*check).status == 0, "what is kept for all tables asks for no groups"
    fedsrc.register(target=0.2, epsilon=4, grid=True, sites=["local"], groups=["G"], output=tmp_path / "reg.toml")
    for named in ((), ("--group-column", "group")):
        other = run("certify", "table.csv", "--registration", "reg.toml", "--check", *named)
        assert (other.status, "no row has the group 'G'" in other.err) == (2, True)
    fedsrc.register(target=0.2, epsilon=4, grid=True, sites=["local"], output=tmp_path / "one.toml")
    one = ("certify", "table.csv", "--registration", "one.toml", "--check")
    assert run(*one).status == 0
    refused = run(*one, "--group-column", "group")
    assert (refused.status, "and no groups are registered" in refused.err) == (2, True)
