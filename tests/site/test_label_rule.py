"""The rule from words to losses: whose word counts, who is asked, and what stays open.

Mutants killed: a first word that outlives a change of mind, "unsure" as supported, the better of two, a third person
asked only where an answer was called unsupported, a third word that the first two outvote, a share of double looks that
depends on anything but the hash.
"""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from fedsrc.protocol.registration import OnDemand
from fedsrc.site.label_file import Label
from fedsrc.site.label_rule import Standing, looks, standing
from tests.site.test_label_file import label

LOSSES = st.sampled_from([0.0, 0.3, 1.0, None])
LABELS = st.lists(st.builds(label, st.just(1), LOSSES, st.sampled_from("abcd")), max_size=7)
LOOKS = st.sampled_from([1, 2])
WORSE, THIRD = OnDemand(), OnDemand(disagreement="third")
RULES = st.sampled_from([WORSE, THIRD])


def words(*given: tuple[str, float | None]) -> list[Label]:
    return [label(1, loss, by) for by, loss in given]


@given(RULES, LOOKS, LABELS)
def test_only_the_last_word_of_each_person_counts(rule: OnDemand, many: int, labels: list[Label]) -> None:
    last = {each.by: each for each in labels}  # in the order of first words
    assert standing(rule, many, labels) == standing(rule, many, list(last.values()))


@given(LOOKS, LABELS, st.randoms())
def test_the_worse_counts_in_any_order_and_is_below_nobodys_word(
    many: int, labels: list[Label], chance: random.Random
) -> None:
    last = list({each.by: each for each in labels}.values())
    found = standing(WORSE, many, last)
    assert found.third is False
    assert (found.loss is None) == (len(last) < many)
    mixed = list(last)
    chance.shuffle(mixed)
    assert standing(WORSE, many, mixed) == found
    if found.loss is not None:
        assert found.loss == max(1.0 if each.loss is None else each.loss for each in last)


@given(LOOKS, LABELS)
def test_a_third_person_is_asked_by_difference_alone_and_is_final(many: int, labels: list[Label]) -> None:
    last = list({each.by: each for each in labels}.values())
    first, later = last[:many], last[many:]
    found = standing(THIRD, many, last)
    swapped = standing(THIRD, many, [*reversed(first), *later])
    assert found == swapped
    disputed = len(first) == many and (len({each.loss for each in first}) > 1 or first[0].loss is None)
    assert found.third == disputed
    assert (found.loss is None) == (len(first) < many or (disputed and not later))
    if disputed and len(later) == 1:
        assert found.loss == (1.0 if later[0].loss is None else later[0].loss)
    if not disputed:
        assert found == standing(WORSE, many, last)


@given(RULES, LOOKS, LABELS)
def test_supported_and_unsupported_are_treated_alike_in_whom_to_ask(
    rule: OnDemand, many: int, labels: list[Label]
) -> None:
    turned = [each.model_copy(update={"loss": None if each.loss is None else 1.0 - each.loss}) for each in labels]
    one, other = standing(rule, many, labels), standing(rule, many, turned)
    assert (one.loss is None, one.third) == (other.loss is None, other.third)


def test_the_rules_in_examples() -> None:
    assert standing(WORSE, 2, words(("a", 0.0))) == Standing(None, third=False)
    assert standing(WORSE, 2, words(("a", 0.0), ("a", 0.0))) == Standing(None, third=False)
    assert standing(WORSE, 2, words(("a", 0.0), ("b", 0.3))) == Standing(0.3, third=False)
    assert standing(WORSE, 1, words(("a", None))) == Standing(1.0, third=False)
    assert standing(THIRD, 1, words(("a", None))) == Standing(None, third=True)
    assert standing(THIRD, 2, words(("a", 0.0), ("b", 1.0))) == Standing(None, third=True)
    assert standing(THIRD, 2, words(("a", 0.0), ("b", 1.0), ("c", 0.0))) == Standing(0.0, third=True)
    assert standing(THIRD, 2, words(("a", 0.0), ("b", 1.0), ("c", None))) == Standing(1.0, third=True)
    assert standing(THIRD, 1, words(("a", None), ("a", 0.0))) == Standing(0.0, third=False)


def test_who_is_asked_twice_follows_from_the_hash() -> None:
    """Exact counts of fixed hashes: the registered share, another draw in another registration."""
    names = [f"row {n}" for n in range(1, 4001)]
    one, other = "0" * 64, "1" * 64
    assert {looks(OnDemand(), one, name) for name in names} == {1}
    assert {looks(OnDemand(twice=1.0), one, name) for name in names} == {2}
    half = [looks(OnDemand(twice=0.5), one, name) for name in names]
    tenth = [looks(OnDemand(twice=0.1), one, name) for name in names]
    assert abs(half.count(2) - 2000) < 158  # five standard deviations, checked once: the hashes are fixed
    assert abs(tenth.count(2) - 400) < 95
    assert all(a >= b for a, b in zip(half, tenth, strict=True))
    assert half != [looks(OnDemand(twice=0.5), other, name) for name in names]
