"""The card of a panel: every group with its status in words and what it would take, one threshold for all groups, or
the score that is picked; in every form, open, sealed, certified or not, and with names from outside.

Mutants killed: a group shown with another's threshold, status or estimate, a count of certified groups that is off by
one, a group that abstains and says nothing, acceptance without what it is a share of, a picked score under the first
one's name or scale, checkpoints left out, a name printed unescaped or into the heading, a card that crashes before the
first look, twenty groups cut off or page after page, a line without what was passed on, a key of the JSON left out.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fedsrc.cli.main import cli
from fedsrc.errors import FedsrcError
from fedsrc.planning.alone import alone
from fedsrc.planning.forecast import Forecast, after_abstention
from fedsrc.protocol.judgements import Betting
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.report import charts, panels, phrases
from fedsrc.report.card import view_text
from fedsrc.report.html import news, page
from fedsrc.report.live_page import LiveView
from fedsrc.report.markdown import card_markdown
from fedsrc.report.outlook import outlook
from fedsrc.report.pieces import Part
from fedsrc.report.view import View, Watched, build_view, view_json, view_run
from fedsrc.run import Run
from fedsrc.server.follow import Follower
from fedsrc.server.status import run_state, words
from tests.report.test_plain import answer, boxes
from tests.report.test_questions import Places
from tests.report.test_view import Parsed, check_inert
from tests.support.hostile import HOSTILE
from tests.support.panel_runs import NAMES, ODD, PANELS, people, played, registered


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One of every kind: with certified groups and others, sealed too; one where nothing is certified."""
    made = {name: registered(name) for name in PANELS}
    made |= {f"sealed {name}": registered(name, sealed=True) for name in PANELS}
    made |= {f"noised {name}": registered(name, epsilon=4.0) for name in PANELS}
    made |= {f"noised and sealed {name}": registered(name, sealed=True, epsilon=4.0) for name in PANELS}
    return {name: played(tmp_path_factory.mktemp("panel"), reg) for name, reg in made.items()}


KINDS = [f"{how}{name}" for how in ("", "sealed ", "noised ", "noised and sealed ") for name in PANELS]


def cut(run: Path, target: Path, lines: int) -> Path:
    """The run as it was after so many lines."""
    shutil.copytree(run, target)
    whole = (run / TRANSCRIPT).read_bytes().splitlines(keepends=True)
    (target / TRANSCRIPT).write_bytes(b"".join(whole[:lines]))
    (target / CERTIFICATE).unlink()
    return target


def part(view: View, name: str) -> Part:
    return next(each for each in panels.parts(view) if each.id == name)


def rows(view: View, name: str = "groups") -> dict[str, list[str]]:
    """The table of groups or scores, by their names."""
    return {row[0]: row[1:] for row in part(view, name).tables[0].rows}


# What is shown


@pytest.mark.parametrize("floor", ["each", "within", "sealed each", "sealed within"])
def test_every_group_has_its_row(runs: dict[str, Path], floor: str) -> None:
    """Most of the day's answers are supported, at night most are not, and the rare group is too small to tell."""
    view = view_run(runs[floor])
    found, said = view["certificate"], rows(view)
    day, night, rare = (found.panel.member(name) for name in NAMES)
    assert [each.status for each in (day, night, rare)] == ["CERTIFIED", "ABSTAIN", "ABSTAIN"]
    assert said["day"] == ["CERTIFIED", f"{day.threshold:.4g}", "0.2", phrases.percent_down(day.acceptance_lower), "-"]
    assert said[ODD] == ["ABSTAIN", "-", "-", "-", "out of reach"]
    assert said["rare"] == ["ABSTAIN", "-", "-", "-", "too few records to tell"]
    assert view["sentence"].startswith("For 1 of 3 groups a threshold is certified: of the accepted answers of a group")
    assert view["sentence"].endswith("; this statement fails with probability at most 5%.")
    assert view["meaning"].startswith("1 of 3 groups; ")
    of = "the group's own traffic" if "within" in floor else "all traffic"
    assert f"acceptance is a share of {of}" in part(view, "groups").lines[0]
    assert f"Share of {'the group' if 'within' in floor else 'traffic'} accepted" in charts.threshold_chart(view, day)
    for text in (view_text(view), card_markdown(view), page(view)):
        for words_ in ("For 1 of 3 groups", "CERTIFIED", "ABSTAIN", "out of reach", "too few records to tell"):
            assert words_ in text


def test_acceptance_says_what_it_is_a_share_of(runs: dict[str, Path]) -> None:
    """Half of the traffic is the day's: its share of all traffic is about half of that of its own."""
    whole, own = (view_run(runs[name])["certificate"].panel.member("day") for name in ("each", "within"))
    at = {row.threshold: row.acceptance_lower for row in own.thresholds}
    assert at[whole.threshold] > 1.5 * whole.acceptance_lower


@pytest.mark.parametrize("kind", ["all", "sealed all"])
def test_one_threshold_for_all_groups(tmp_path: Path, runs: dict[str, Path], kind: str) -> None:
    """A single claim with the list of its groups; where it is not shown, what its slowest group would take."""
    view = view_run(runs[kind])
    assert view["status"] == "ABSTAIN"
    assert answer(view, "to-certify").startswith("its slowest group by itself: the records so far are too few to tell")
    even = people(risks=(0.1, 0.9, 0.1, 0.5), shares=(0.5, 0.1, 0.4, 0.0))
    view = view_run(played(tmp_path, registered("all", sealed="sealed" in kind), even))
    found = view["certificate"]
    assert found.status == "CERTIFIED"
    assert f"in every one of the 2 groups listed below (score >= {found.threshold!r}" in view["sentence"]
    assert rows(view) == {"day": [], "rare": []}
    assert "of a listed group when its score is at least" in answer(view, "use")
    assert [row.threshold for row in phrases.block_of(view).rows] == list(registered("all").thresholds.values)
    assert "share of all traffic, over these groups" in page(view)


@pytest.mark.parametrize("kind", ["scores", "sealed scores"])
def test_the_picked_score_is_named_with_its_own_scale(runs: dict[str, Path], kind: str) -> None:
    """The second is picked: it counts from 100 down to 0, and is read at its checkpoints."""
    view = view_run(runs[kind])
    found = view["certificate"]
    mine = found.panel.member("grounding")
    raw = 100 - 100 * found.threshold
    assert (found.panel.picked, found.threshold) == ("grounding", mine.threshold)
    assert f"(grounding >= {found.threshold!r}, that is {raw:.6g} or less" in view["sentence"]
    assert answer(view, "score").startswith(
        "grounding; 100 (worst) to 0 (best); picked from 2 scores; accepted: at most"
    )
    assert "the picked score is at most" in answer(view, "use")
    assert "at every checkpoint that it reaches" in answer(view, "use")
    assert rows(view, "scores")["grounding"][:2] == ["PICKED", f"at most {raw:.4g}"]
    assert rows(view, "scores")["grounding"][-1] == "20, 40 tokens, and the end"
    assert rows(view, "scores")["score"][-1] == "the whole answer"
    assert f">chosen: {raw:.4g}<" in charts.threshold_chart(view)
    assert view["evidence"]["score"] == "grounding"
    for text in (view_text(view), card_markdown(view), page(view)):
        assert "20, 40 tokens" in text
        assert "does not cover text that was shown before a stop" in text
    run = Run.open(runs[kind])
    assert f"grounding >= {found.threshold!r}" in repr(run)


def test_of_scores_that_show_nothing_the_closest_is_shown(tmp_path: Path) -> None:
    view = view_run(played(tmp_path, registered("scores", min_acceptance=0.9)))
    found, block = view["certificate"], phrases.block_of(view)
    assert (found.status, found.panel.picked) == ("ABSTAIN", None)
    assert answer(view, "score").startswith("score; 0 (worst) to 1 (best); one of 2 scores")
    assert block.rows == found.panel.member(view["evidence"]["score"]).thresholds
    assert "of the score that is closest" in page(view)
    assert {row[0] for row in rows(view, "scores").values()} == {"-"}
    assert "out of reach" in answer(view, "to-certify")


def test_one_group_alone(runs: dict[str, Path], tmp_path: Path) -> None:
    """Certified or not, it is a panel of one: the sentence names it, and its table has one row."""
    assert rows(view_run(runs["none"]))[ODD] == ["ABSTAIN", "-", "-", "-", "out of reach"]
    view = view_run(played(tmp_path, registered("none", groups=("day",))))
    assert rows(view)["day"][0] == "CERTIFIED"
    assert "'day'" in view["sentence"]


# What it would take


@pytest.mark.parametrize("sealed", [False, True])
def test_a_group_is_estimated_as_a_claim_of_its_own(tmp_path: Path, sealed: bool) -> None:
    """By the numbers of a run in which nobody else scores anything, with its share of the budgets."""
    # 80 answers with a risk of 5% are 3.4 standard errors below 20%; of their bets the best win exp(7.5), of a dozen
    # exp(5) < 1,300, and small ones exp(4) < 270
    records = people(300, risks=(0.05, 0.9, 0.05, 0.5), shares=(0.28, 0.4, 0.32, 0.0))
    few = {"batch": 300, "rounds": 1, "thresholds": 4 if sealed else 20}
    reg = registered("each", sealed=sealed, bet=0.2, **few)
    (tmp_path / "panel").mkdir()
    run = Follower(played(tmp_path / "panel", reg, records))
    run.update()
    told = outlook(run.replay)
    assert isinstance(told, dict)
    assert set(told) == {name for name, row in zip(NAMES, run.replay.choices, strict=True) if row is None}
    assert all(each.epsilon == reg.privacy.epsilon for each in told.values())
    for block, name in enumerate(NAMES):
        if name in told:
            hidden = replace(records, score=np.where(records.group == block, records.score, 0.0))
            place = tmp_path / str(block)
            place.mkdir()
            other = Follower(played(place, alone(reg, block), hidden))
            other.update()
            own = after_abstention(other.replay)
            assert own is not None
            assert told[name].limit == pytest.approx(own.limit)
            assert told[name] == replace(own, limit=told[name].limit)
    assert any(each.records for each in told.values()), "a number is compared"
    assert len({each.records or each.too_few for each in told.values()}) > 1


def test_what_the_whole_would_take_is_what_its_slowest_group_would(tmp_path: Path) -> None:
    """At night no threshold is below the target: then there is none for all groups, whatever the rare one shows."""
    view = view_run(played(tmp_path, registered("all", groups=NAMES)))
    assert "out of reach" in answer(view, "to-certify")


@pytest.mark.parametrize("sealed", [False, True])
def test_a_share_of_the_groups_own_traffic_is_asked_of_the_group(tmp_path: Path, sealed: bool) -> None:
    """Half of a group that is a tenth of the traffic is within reach, and half of the traffic would not be."""
    records = people(600, risks=(0.15, 0.15, 0.15, 0.5), shares=(0.1, 0.1, 0.1, 0.7))
    run = played(tmp_path, registered("within", sealed=sealed, batch=600, rounds=1, min_acceptance=0.5), records)
    said = [row[-1] for row in rows(view_run(run)).values()]
    assert len(said) == 3
    assert not {"-", "out of reach", "no estimate"} & set(said)


@pytest.mark.parametrize(
    ("change", "short"),
    [
        ({}, "about 500 more records, 2,900 in all"),
        ({"records": 900}, "about as many as are there"),
        ({"records": None}, "more than 9,000 records in all"),
        ({"records": None, "limit": np.inf}, "out of reach"),
        ({"records": None, "limit": np.inf, "too_few": True}, "too few records to tell"),
    ],
)
def test_what_a_group_would_take_in_a_cell(runs: dict[str, Path], change: dict[str, Any], short: str) -> None:
    run = Follower(runs["each"])
    run.update()
    told = replace(Forecast(0.2, 4.0, 2900, 4000, 3, 2900, 1.0, 0.4, 100.0, 9000), **change)
    view = build_view(run, outlook={"rare": told})
    assert rows(view)["rare"][-1] == short
    assert rows(view)[ODD][-1] == "no estimate"
    assert view["outlooks"]["rare"]["used"] == 2400


# While a run is on


@pytest.mark.parametrize("kind", KINDS)
def test_no_line_of_any_panel_breaks_its_card(runs: dict[str, Path], tmp_path: Path, kind: str) -> None:
    """From an empty transcript to the end, in every form, as the live page sees it."""
    lines = (runs[kind] / TRANSCRIPT).read_bytes().count(b"\n")
    for number in range(lines):
        run = cut(runs[kind], tmp_path / str(number), number)
        view = view_run(run)
        assert view["status"] == "OPEN"
        parsed = Parsed(page(view, live=True))
        ids = parsed.values("id")
        assert not parsed.depth
        assert len(set(ids)) == len(ids)
        assert {name for value in parsed.values("aria-labelledby") for name in value.split()} <= set(ids)
        for text in (view_text(view), card_markdown(view), news(view), *words(run_state(run))):
            assert text
            assert "CERTIFIED" not in text
        json.loads(view_json(view))


def test_groups_that_are_shown_before_the_end(runs: dict[str, Path], tmp_path: Path) -> None:
    """After three rounds of four: nothing is claimed, and each group says how far it is."""
    run = cut(runs["each"], tmp_path / "run", 11)
    view = view_run(run)
    assert (view["progress"]["rounds"], view["progress"]["reached"]) == (3, None)
    assert view["sentence"] == "The evidence so far shows the target for 1 of 3 groups; the others go on."
    assert answer(view, "so-far") == "target shown for 1 of 3 groups; the target is 0.2"
    assert answer(view, "missing").startswith("see the groups; ")
    assert [rows(view)[name][0] for name in NAMES] == ["OPEN, shown so far", "OPEN", "OPEN"]
    assert rows(view)["day"][-1] == "-"
    assert "target shown for 1 of 3 groups" in news(view)
    chart = charts.round_chart(view)
    assert "Groups for which the target is shown" in chart
    assert not _collide(chart)
    state = run_state(run)
    assert state.panel is not None
    assert [each.shown for each in state.panel] == [True, False, False]
    assert "  day: OPEN, target shown so far" in words(state)
    every = view_run(cut(runs["none"], tmp_path / "none", 11))
    assert every["sentence"] == every["certificate"].statement


def test_all_groups_beyond_their_lines(tmp_path: Path) -> None:
    run = played(tmp_path, registered("each", groups=("day",)))
    view = view_run(cut(run, tmp_path / "cut", 11))
    assert re.match(
        r"The evidence has shown the target for all 1 groups since round \d; the registered", view["sentence"]
    )


def test_the_live_page_of_a_panel(runs: dict[str, Path]) -> None:
    watch = LiveView(runs["each"])
    watch.look()
    assert watch._estimate is not None
    watch._estimate.result()
    watch.look()
    watch.close()
    assert "out of reach" in watch.shown.card.decode()
    assert set(json.loads(watch.shown.state)["outlooks"]) == {ODD, "rare"}


# Many groups, names from outside, and what no longer stands


@pytest.mark.parametrize("count", [20, 100])
def test_many_groups_on_one_card(tmp_path: Path, count: int) -> None:
    """Names as long as a registration accepts: the sentence is whole, all groups have a row, and charts are folded."""
    names = tuple(f"{i:03}" + "<" * 197 for i in range(count))
    shares = (*(0.9 / count,) * count, 0.1)
    records = people(6000, names, (0.02,) * count + (0.5,), shares)
    few = 20 if count == 20 else 4
    reg = registered("each", groups=names, thresholds=few, min_acceptance=0.001, batch=1500)
    view = view_run(played(tmp_path, reg, records))
    text = page(view)
    assert len(rows(view)) == count
    assert f" of {count} groups a threshold is certified" in view["sentence"]
    assert "more characters" not in text
    assert len(text.encode()) < 500_000
    assert len(view_text(view).splitlines()) < 300 + count
    assert text.count('<details id="fold-group-') == min(count, panels.CHARTED)
    assert ("80 more groups" in text) == (count == 100)
    assert text.count('class="chart"') == min(count, panels.CHARTED)
    ids = Parsed(text).values("id")
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_names_of_groups_and_scores_are_inert(runs: dict[str, Path], text: str) -> None:
    for kind in ("each", "all", "scores"):
        check_inert(view_run(runs[kind]), text)


def test_a_name_with_markup_is_text_in_every_form(runs: dict[str, Path]) -> None:
    view = view_run(runs["each"])
    assert "<b>" not in page(view)
    assert "&lt;b&gt;night&lt;/b&gt;" in page(view)
    assert "**x**" not in card_markdown(view)
    assert ODD in view_text(view)
    assert ODD in card_text_of(runs["each"])


def card_text_of(run: Path) -> str:
    return str(Run.open(run))


@pytest.mark.parametrize("kind", ["each", "scores"])
def test_after_an_alarm_no_group_and_no_score_is_certified(runs: dict[str, Path], kind: str) -> None:
    view = view_run(runs[kind], monitor=Watched("alarm", "ALARM after 200 fresh records", ("day",)))
    said = rows(view, "groups" if kind == "each" else "scores")
    assert {row[0] for row in said.values()} == ({"no longer stands", "ABSTAIN"} if kind == "each" else {"-"})
    assert all(row[1:4] == ["-", "-", "-"] for row in said.values())
    for text in (view_text(view), card_markdown(view), page(view)):
        assert "CERTIFIED" not in text
        assert "PICKED" not in text


# Evidence, charts, commands


def test_a_line_counts_what_was_passed_on(runs: dict[str, Path]) -> None:
    """Of a certified row, with the weight it has if all other rejections came first; the others of its group count."""
    run = Follower(runs["each"])
    run.update()
    reg, look = run.registration, run.replay.look
    assert look is not None
    assert look.rejected is not None
    assert isinstance(reg.certificate, Betting)
    weights, rejected = np.asarray(reg.row_weights), look.rejected
    assert rejected.sum() > 1
    now = run.weights
    assert (now >= weights - 1e-12).all()
    assert now[~rejected].sum() <= 1 + 1e-9
    assert (now > weights + 1e-6).any(), "something was passed on"
    for each in view_run(runs["each"])["evidence"]["groups"]:
        row = NAMES.index(each["name"]) * 3 + each["row"]
        assert each["line"] == pytest.approx(-np.log(reg.certificate.risk_budget * now[row]), abs=1e-8)
        assert (each["value"] >= each["line"]) == bool(rejected[row])


def _collide(svg: str) -> bool:
    placed = boxes(svg)
    return any(
        left < c and a < right and top < d and b < bottom
        for k, (left, top, right, bottom) in enumerate(placed)
        for a, b, c, d in placed[:k]
    )


def test_charts_of_groups(runs: dict[str, Path]) -> None:
    run = Run.open(runs["each"])
    assert run.plot().svg == run.plot(group="day").svg != run.plot(group="rare").svg
    assert not _collide(run.plot(group="day").svg)
    assert ">chosen: " in run.plot(group="day").svg
    assert ">chosen: " not in run.plot(group="rare").svg
    assert "Groups for which" in run.plot("evidence").svg
    assert repr(run).startswith("Run(CERTIFIED: 1 of 3 groups for target risk 0.2; 2,400 records; ")
    assert "nothing is certified for target risk" in repr(Run.open(runs["none"]))
    with pytest.raises(FedsrcError, match="'dusk' has no claim of its own"):
        run.plot(group="dusk")
    with pytest.raises(FedsrcError, match="no claim of its own"):
        Run.open(runs["all"]).plot(group="day")


@pytest.mark.parametrize("kind", KINDS)
def test_commands_print_a_panel(runs: dict[str, Path], kind: str) -> None:
    """The JSON keeps its keys, and lists the members beside them; the text has their table."""
    body = Run.open(runs[kind]).certificate
    assert body.panel is not None
    done = CliRunner().invoke(cli, ["verify", str(runs[kind]), "--format", "json"])
    told = json.loads(done.stdout)
    assert {"status", "threshold", "acceptance_lower", "risk_upper", "strongest", "panel", "picked"} <= set(told)
    assert (told["status"], told["threshold"], told["picked"]) == (body.status, body.threshold, body.panel.picked)
    keys = ("name", "status", "threshold", "acceptance_lower", "risk_upper")
    assert [[row[key] for key in keys] for row in told["panel"]] == [
        [getattr(each, key) for key in keys] for each in body.panel.members
    ]
    waits = {each.name for each in body.panel.members if each.status == "ABSTAIN"}
    assert {row["name"] for row in told["panel"] if "forecast" in row} == (set() if body.by_group is None else waits)
    assert ("forecast" in told) == (body.by_group is None and body.status == "ABSTAIN")
    for command in (["verify"], ["view"], ["status"]):
        done = CliRunner().invoke(cli, [*command, str(runs[kind])])
        assert done.exit_code == (1 if body.status == "ABSTAIN" and command != ["verify"] else 0), done.output
        for each in body.panel.members:
            assert each.name in done.stdout
    told = json.loads(CliRunner().invoke(cli, ["status", str(runs[kind]), "--format", "json"]).stdout)
    assert [(row["name"], row["status"]) for row in told["panel"]] == [(m.name, m.status) for m in body.panel.members]


def test_a_single_claim_has_no_panel(tmp_path: Path) -> None:
    reg = registered("none", groups=None)
    run = played(tmp_path, reg)
    told = json.loads(CliRunner().invoke(cli, ["verify", str(run), "--format", "json"]).stdout)
    assert not {"panel", "picked"} & set(told)
    assert run_state(run).panel is None
    assert not {"groups", "scores"} & set(Parsed(page(view_run(run))).values("id"))


ASKED = {  # by kind and question: where the answer stands, and what it says
    ("each", "For which groups was it shown?"): ("group-numbers", r"day CERTIFIED .* rare ABSTAIN"),
    ("each", "What would the others take?"): ("group-numbers", r"To certify .* out of reach .* too few .* to tell"),
    ("each", "What is acceptance a share of?"): ("claim", "share of all traffic"),
    ("within", "What is acceptance a share of?"): ("claim", "share of the group's own traffic"),
    ("each", "Of which answers does it not speak?"): ("limits", "answers in no listed group"),
    ("each", "Where does an answer's group stand?"): ("group-column", "column ward"),
    ("each", "How do I use it?"): ("use", "that group's threshold .* gate serve"),
    ("each", "What is known of a group's thresholds?"): ("fold-group-1", r"\( day \) .* Result"),
    ("scores", "Which score was picked?"): ("score-numbers", "grounding PICKED"),
    ("scores", "Where is it read?"): ("score-numbers", "20, 40 tokens, and the end"),
    ("scores", "What do checkpoints not cover?"): ("limits", "generated anew"),
    ("all", "In which groups?"): ("group-numbers", "Group day rare"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "question"), ASKED)
def test_questions_about_a_panel_are_answered(runs: dict[str, Path], kind: str, question: str) -> None:
    found = Places()
    found.feed(page(view_run(runs[kind])))
    place, said = ASKED[kind, question]
    assert re.search(said, " ".join(found.text[place].split())), found.text[place]


def test_at_checkpoints_the_card_says_what_a_stream_and_a_service_take(runs: dict[str, Path], tmp_path: Path) -> None:
    told, command = phrases.use_words(view_run(runs["scores"]))
    assert "at every checkpoint that it reaches" in told
    assert told.endswith("a gate's stream does that, and the service takes one number, the least of these scores.")
    assert command.startswith("fedsrc gate serve ")
    plain, _ = phrases.use_words(view_run(runs["each"]))
    assert plain.endswith("and no other; a gate does that.")
    people_ = people()
    assert people_.others is not None
    records = replace(people_, score=people_.others[:, 0], others=None)
    one = played(tmp_path, registered("scores", also_scores=(), checkpoints={"score": (20, 40)}), records)
    view = view_run(one)
    assert view["certificate"].panel.picked == "score"
    assert phrases.use_words(view)[0].startswith("Accept an answer when its score is ")
    for text in (view_text(view), card_markdown(view), page(view)):
        assert "20, 40 tokens, and the end" in text
        assert "picked from" not in text
        assert "pick from" not in text
    assert "picked" in json.loads(view_json(view))["certificate"]["panel"]
