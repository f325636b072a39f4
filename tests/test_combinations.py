"""Every combination is decided: what goes with what, by docs/format.md, is what the code refuses and what it plays.

Two values that are chosen among (a method and an encoding, a policy and a mode) either are listed on that page, and
then no choice that holds both can be registered or run, for the sentence of tests/support/combinations.py; or some
choice with both is played here, in its mode, from tables to a verified end.

Mutants killed: any check of `Registration._check_panel`, `_check_monitor`, `_check_cohorts`, `_check_sealed`,
`_check_free`, `_check_unlabelled`, `_check_finer`, `_check_schedule` or `_check` that refuses two values, removed (the
pair is then taken), or moved before another (its sentence is another one), or made wider (a pair that is not listed is
refused, and no cover is found); `check_apart`, `not_held` or the refusal of a live monitor left out; a row, or a value
in a row, of the page's table removed or added; an option that is dropped in silence beside another.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from fedsrc.errors import FedsrcError
from fedsrc.protocol.registration import Registration
from tests.support import ROOT
from tests.support.cohorts import member
from tests.support.combination_runs import play
from tests.support.combinations import (
    AXES,
    AXIS,
    BASE,
    PAIRS,
    REFUSED,
    RULES,
    WORDS,
    Choice,
    Pair,
    cover,
    fields_of,
    pairs_in,
    refusal,
    values_of,
)
from tests.support.gate_certificates import Terminal

PLAYED = cover()
TWO = {"values": (0.25, 0.5), "weights": (0.5, 0.5)}
OWN = [TWO, {"values": (0.25,), "weights": (1.0,)}]
COHORTS = {"aggregation": "cohorts", "mixture": "site weights", "mode": "files"}
UNLABELLED = {"method": "sealed exact", "encoding": "contrasts", "unlabelled": "unlabelled records"}
SECTION = "## What goes with what"


def section() -> str:
    """The part of the page that says what goes with what."""
    return (ROOT / "docs" / "format.md").read_text(encoding="utf-8").split(f"{SECTION}\n")[1].split("\n## ")[0]


def rows_of_the_page() -> list[tuple[str, str]]:
    """What does not go with what, row by row."""
    rows = [line.strip("|").split("|") for line in section().splitlines() if line.startswith("|")]
    return [(these.strip(), those.strip()) for these, those, _ in rows[2:]]


def test_the_page_lists_every_pair_that_is_refused_and_no_other() -> None:
    listed = {
        frozenset(pair) for these, those in rows_of_the_page() for pair in product(*map(values_of, (these, those)))
    }
    assert listed - PAIRS == set(), "no value of an axis, or two of one axis"
    assert listed == REFUSED.keys()


def test_the_page_says_what_its_words_stand_for() -> None:
    said = dict(re.findall(r"\*([^*]+)\*: ([^;.]+)[;.]", section().split("\n|")[0]))
    assert {word: values_of(values) for word, values in said.items()} == WORDS


def test_every_value_is_one_of_one_axis() -> None:
    assert len(AXIS) == sum(map(len, AXES.values()))
    assert refusal(BASE) is None


def test_every_other_pair_is_played() -> None:
    played = {pair for choice in PLAYED for pair in pairs_in(choice)}
    assert played == PAIRS - REFUSED.keys()


@pytest.mark.parametrize("choice", PLAYED, ids=range(len(PLAYED)))
def test_a_choice_is_played_to_an_end_that_verifies(choice: Choice, tmp_path: Path) -> None:
    found = play(tmp_path, choice)
    assert found.trusted
    assert found.replay.ended is not None
    assert found.signed.records > 0


BEYOND: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {  # values, fields changed, and what is said
    "moments": ({"encoding": "moments"}, {}, "have no moments to release"),
    "levels": ({"encoding": "levels"}, {"privacy": {"loss_grid": 21}}, "a loss_grid of at most 20"),
    "no bets": ({"method": "no bets exact", "encoding": "contrasts"}, {}, "has unlabelled records, or exact counts"),
    "ladder": ({"claims": "groups each"}, {"certificate": {"ladder": (0.2, 0.3)}}, "the ladder's only rung"),
    "blocks": ({"claims": "groups each"}, {"claims": {"own": OWN}}, "have as many thresholds"),
    "floor": ({"claims": "groups each"}, {"claims": {"floor": "group"}}, "the first threshold of every group is 0"),
    "most": ({"claims": "groups each"}, {"claims": {"span": "whole", "most": 2}}, "only sources count whole"),
    "whole": ({"claims": "groups all", "unit": "sources"}, {"claims": {"span": "whole"}}, "its floor is 'group'"),
    "one threshold": ({"method": "monitor by probability"}, {"thresholds": TWO}, "a monitor watches one threshold"),
    "alarm": ({"method": "monitor by probability"}, {"certificate": {"risk": 0.2}}, "would ring at what was certified"),
    "charge": ({"dropout": "adversarial dropout"}, {"certificate": {"refusal_budget": 0.0}}, "and a refusal budget"),
    "capacity": ({"dropout": "adversarial dropout"}, {"sites": None}, "needs the capacity of every site"),
    "budget": ({**COHORTS}, {"certificate": {"refusal_budget": 0.0}}, "with a refusal budget"),
    "colluding": ({**COHORTS}, {"aggregation": {"colluding": 2}}, "a cohort has more members than may collude"),
    "share": ({**COHORTS, "encoding": "paired bins"}, {"privacy": {"epsilon": 50.0}}, "share of the noise"),
    "grid": ({**UNLABELLED}, {"unlabelled": None}, "are released for every site"),
    "units": ({**UNLABELLED}, {"privacy": {"unit": "source"}}, "unlabelled units are made as those that calibrate"),
}  # fmt: skip


@pytest.mark.parametrize("name", BEYOND)
def test_what_more_than_two_values_need_is_said(name: str) -> None:
    """What the page lists beyond pairs: the registration is valid but for that."""
    values, changes, why = BEYOND[name]
    fields = fields_of({**BASE, **values})
    for section, each in changes.items():
        fields[section] = fields[section][:0] if section == "unlabelled" else _changed(fields[section], each)
    with pytest.raises(FedsrcError, match=re.escape(why)):
        Registration.of(fields)


def _changed(section: Any, each: dict[str, Any] | None) -> Any:
    return [{**site, "capacity": None} for site in section] if each is None else {**section, **each}


@cache
def said(pair: Pair) -> frozenset[str | None]:
    """What is said of two values in choices that are played but for one of them."""
    changed = [
        {**choice, AXIS[other]: other}
        for value in pair
        for (other,) in [pair - {value}]
        for choice in PLAYED
        if choice[AXIS[value]] == value
    ]
    return frozenset(map(refusal, changed))


@pytest.mark.parametrize(("these", "those", "why"), RULES)
def test_a_listed_pair_is_refused_with_its_sentence(these: str, those: str, why: str) -> None:
    """Whatever else is chosen; and of the choices in which all else goes together, some say just that."""
    for pair in map(frozenset, product(values_of(these), values_of(those))):
        assert None not in said(pair), f"{sorted(pair)} go together"
        assert any(why in sentence for sentence in said(pair) if sentence), (sorted(pair), said(pair))


SITES = ("north", "south")
REGISTER = ("register", "--grid", "--sites", ",".join(SITES), "--target", "0.3", "--epsilon", "4")
CHECK = ("certify", "table.csv", "--check", "--target", "0.3", "--epsilon", "8")
OPTIONS = (  # beside a public grid, of two sites
    "--preset paper", "--method ratio", "--encoding moments", "--encoding levels", "--unit source", "--max-answers 2",
    "--loss-grid 4", "--answer-weight answer", "--adjacency same-group", "--epsilon inf", "--aggregation holder",
    "--aggregation cohorts", "--cohort all=north,south", "--colluding 0",
    "--mask-key north.mask.json --mask-key south.mask.json", "--policy enough", "--policy final", "--policy recruit",
    "--dropout adversarial", "--weights north=0.5,south=0.5", "--drift north=0.01", "--capacities north=90,south=90",
    "--groups day,night", "--group-claim all", "--group-floor group", "--group-span whole", "--group-most 2",
    "--group-column ward", "--also-score other", "--checkpoints score=20,40", "--labels on-demand", "--label-hours 2",
    "--label-twice 0.5", "--disagreement third", "--missed 0.1", "--public-development", "--judge-column judge",
)  # fmt: skip


@pytest.fixture
def fedsrc(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Terminal:
    """A terminal in a folder with a table, and the words of two sites on their mask keys."""
    monkeypatch.chdir(tmp_path)
    rows = ["id,site,group,score,other,loss"]
    for i in range(300):
        bad = i % 5 == 0
        rows.append(f"a{i},{SITES[i % 2]},{'day' if i % 3 else 'night'},{0.3 if bad else 0.8},0.5,{int(bad)}")
    Path("table.csv").write_text("\n".join([*rows, ""]))
    for each in map(member, SITES):
        Path(f"{each.name}.mask.json").write_bytes(each.word.to_bytes())
    return Terminal(monkeypatch, capsys)


def registered(fedsrc: Terminal, *said: str) -> str | None:
    """What options register beside a public grid; None if they are refused, in a sentence and without a file."""
    place = Path("registration.toml")
    place.unlink(missing_ok=True)
    found = fedsrc(*REGISTER, *(word for each in said for word in each.split()))
    if found.status == 0:
        return place.read_text(encoding="utf-8")
    assert (found.status, place.exists()) == (2, False), said
    assert found.err.splitlines()[0].startswith("error: "), (said, found.err)
    return None


def test_no_option_is_dropped_in_silence(fedsrc: Terminal) -> None:
    """By itself: it is refused, or changes what is registered."""
    plain = registered(fedsrc)
    assert plain is not None
    assert [each for each in OPTIONS if registered(fedsrc, each) == plain] == []


@pytest.mark.thorough
def test_no_option_is_dropped_beside_another(fedsrc: Terminal) -> None:
    """Both are in what is registered, or it is refused."""
    alone = {each: registered(fedsrc, each) for each in OPTIONS}
    dropped = []
    for pair in combinations(OPTIONS, 2):
        if pair[0].split()[0] != pair[1].split()[0]:
            found = registered(fedsrc, *pair)
            dropped += [pair] if found is not None and found in {alone[each] for each in pair} else []
    assert dropped == []


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("--certificate plain --looks 3", "are for plans"),
        ("--certificate plain --objective labels", "are for plans"),
        ("--certificate open --looks 3", "--looks are those of a sealed certificate"),
        ("--epsilon inf --looks 3", "--looks are those of a sealed certificate"),
        ("--certificate sealed --loss-grid 4 --encoding moments", "a sealed certificate releases contrasts"),
        ("--certificate sealed --preset paper", "a plan decides on batches, rounds, policy and thresholds"),
        ("--certificate sealed --policy final", "a plan decides on batches, rounds, policy and thresholds"),
        ("--certificate sealed --use-all", "a plan decides on batches, rounds, policy and thresholds"),
        ("--grid --looks 3", "a plan decides on batches, rounds, policy and thresholds"),
        ("--grid --public-development", "with --grid none do"),
        ("--grid --judge-column judge", "with --grid none do"),
        ("--answer-weight answer", "a record is one answer"),
        ("--use-all --policy first", "--use-all is --policy final"),
        ("--unlabelled table.csv", "--check does not look at unlabelled records"),
        ("--groups day,night --objective labels", "a panel is planned for acceptance alone"),
        ("--groups day,night --also-score other", "groups and several scores are not registered together"),
        ("--aggregation cohorts", "the sites of a cohort hold their own records"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense_together_are_refused(fedsrc: Terminal, said: str, why: str) -> None:
    found = fedsrc(*CHECK, *said.split())
    assert (found.status, why in found.err) == (2, True), found.err


@pytest.mark.parametrize("said", ["--certificate open", "--loss-grid 4 --encoding moments"])
def test_unlabelled_records_that_nothing_reads_are_not_released(fedsrc: Terminal, said: str) -> None:
    Path("log.csv").write_text("\n".join(["id,site,score", *(f"u{i},{SITES[i % 2]},0.8" for i in range(50)), ""]))
    before = {path.name for path in Path.cwd().iterdir()}
    words = CHECK[:2] + CHECK[3:]
    found = fedsrc(*words, "--unlabelled", "log.csv", *said.split())
    assert (found.status, "unlabelled records are for planned sealed certificates" in found.err) == (2, True)
    assert {path.name for path in Path.cwd().iterdir()} == before
