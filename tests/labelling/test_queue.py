"""Who is asked what: everyone once, doubly drawn answers two people, disputes a third; until nothing waits.

Mutants killed: a person asked twice, one person for both looks, a settled answer asked about again, an order that
follows the table, labels of another round taken for this one's, a walk back that skips or repeats.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from fedsrc.labelling.queue import Agreement, agreement, before, tasks, tidy_name, waiting
from fedsrc.site.label_file import Label
from fedsrc.site.label_rule import looks
from fedsrc.site.rounds import Round
from tests.support.rounds import open_round, text

NAMES = [f"row {n}" for n in range(1, 25)]


def label(round: Round, answer: str, by: str, loss: float | None) -> Label:
    return Label(
        answer=answer, loss=loss, by=by, at="2026-01-02T03:04:05Z", shown=text(answer).digest,
        round=round.request.digest,
    )  # fmt: skip


@settings(max_examples=40)
@given(st.randoms(use_true_random=False), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from(["worse", "third"]))
def test_people_in_any_order_come_to_an_end(chance: random.Random, twice: float, rule: str) -> None:
    """Three people, who come as they please and say what they please, settle everything, none asked twice."""
    round = open_round(NAMES[:8], twice=twice, disagreement=rule)
    labels, asked = list[Label](), set[tuple[str, str]]()
    while waiting(tasks([round], labels)):
        able = [by for by in "abc" if waiting(tasks([round], labels), by)]
        assert able  # three people are enough
        by = chance.choice(able)
        task = waiting(tasks([round], labels), by)[0]
        assert (by, task.answer) not in asked
        asked.add((by, task.answer))
        labels.append(label(round, task.answer, by, chance.choice([0.0, 1.0, None])))
    for task in tasks([round], labels):
        people = {each.by for each in task.labels}
        needed = looks(task.labelling, round.registration.digest, task.answer)
        assert len(people) == needed + (task.standing.third and rule == "third")
        assert task.standing.loss is not None


def test_the_order_is_each_ones_own_and_not_the_tables() -> None:
    found = tasks([open_round(NAMES)], [])
    orders = [[task.answer for task in waiting(found, by)] for by in ("ada", "ben", None)]
    assert all(sorted(order) == sorted(NAMES) for order in orders)
    assert len({tuple(order) for order in [*orders, NAMES]}) == 4


def test_words_of_another_round_do_not_count() -> None:
    one, other = open_round(NAMES[:3], 1), open_round(NAMES[3:6], 2)
    labels = [label(other, NAMES[0], "ada", 0.0), label(one, NAMES[1], "ada", 0.0)]
    assert {task.answer for task in waiting(tasks([one, other], labels))} == {*NAMES[:6]} - {NAMES[1]}


def test_the_way_back_is_the_way_there() -> None:
    round = open_round(NAMES)
    labels = [label(round, name, "ada", 0.0) for name in NAMES[:4]]
    labels.insert(2, label(round, NAMES[9], "ben", 0.0))
    labels.append(label(round, NAMES[1], "ada", 1.0))  # a change of mind does not change the way
    found, place, way = tasks([round], labels), NAMES[7], []
    while (task := before(found, labels, "ada", place)) is not None:
        way.append(place := task.answer)
    assert way == NAMES[3::-1]
    assert before(found, [], "ada", None) is None


def test_agreement_is_of_two_people_on_the_same_answer() -> None:
    round = open_round(NAMES)
    said = [("x", "a", 0.0), ("x", "b", 1.0), ("x", "b", 0.0), ("y", "a", None), ("y", "b", 1.0), ("y", "c", None)]
    labels = [label(round, *each) for each in [*said, ("z", "a", 0.0), ("z", "a", 1.0)]]
    assert agreement(labels) == Agreement(alike=1, both=2)
    assert agreement([]) == Agreement(0, 0)


def test_a_name_is_written_in_one_way() -> None:
    assert tidy_name("  Ada\tE\u0301va ") == "ada éva"
