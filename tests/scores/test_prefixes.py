"""Prefix scores are what a gate on a stream computes, and a policy's column decides as that gate does.

Mutants killed: a cut that is off by one, the most instead of the least, the end left out, a checkpoint that is not
reached counted as 0, evidence cut on one side only, the entropy not cut.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.data.answers import Answer
from fedsrc.errors import FedsrcError
from fedsrc.scores.catalogue import SCORES, Policy, Seen, Settings
from fedsrc.scores.models.model import TokenScores
from fedsrc.scores.prefixes import PREFIXED, policy_column, prefix_columns

ANSWER = Answer(id="a", source="a", evidence="", response="")
policies = st.sets(st.integers(1, 12), min_size=1, max_size=4).map(lambda found: tuple(sorted(found)))
tokens = st.lists(st.tuples(st.floats(-9, 0), st.floats(-9, 0), st.floats(0, 5)), min_size=1, max_size=10)


def side(logprobs: list[float], entropy: list[float]) -> TokenScores:
    n = len(logprobs)
    spans = np.stack([np.arange(n), np.arange(n) + 1], axis=1)
    return TokenScores(tuple("abcdefghij"[:n]), np.array(logprobs), np.array(entropy), spans)


def seen(rows: list[tuple[float, float, float]], *prefixes: Policy) -> Seen:
    present, removed, entropy = map(list, zip(*rows, strict=True))
    return Seen(ANSWER, Settings(window=3, prefixes=prefixes), side(present, entropy), side(removed, entropy))


def columns(name: str, one: Seen) -> dict[str, float]:
    return {column: values[0] for column, values in prefix_columns(name, [one], [SCORES[name].of(one)]).items()}


def stopped(name: str, rows: list[tuple[float, float, float]], policy: Policy, threshold: float) -> int | None:
    """After how many tokens a gate stops a stream that it reads token by token; None if it lets all of it pass."""
    for n in range(1, len(rows) + 1):
        if (n in policy or n == len(rows)) and SCORES[name].of(seen(rows[:n])) < threshold:
            return n
    return None


@given(st.sampled_from(PREFIXED), tokens, policies, st.floats(0, 1))
def test_a_policy_decides_as_a_gate_on_the_stream(
    name: str, rows: list[tuple[float, float, float]], policy: Policy, share: float
) -> None:
    found = columns(name, seen(rows, policy))
    ends = [SCORES[name].of(seen(rows[:n])) for n in range(1, len(rows) + 1)]
    threshold = min(ends) + share * (max(ends) - min(ends))
    stop = stopped(name, rows, policy, threshold)
    assert (found[policy_column(name, policy)] >= threshold) == (stop is None)
    below = [n for n in policy if found[f"{name}_prefix_{n}"] < threshold]  # how a study counts the tokens read
    assert min([*below[:1], found["tokens"]]) == (stop or len(rows))


@given(st.sampled_from(PREFIXED), tokens, policies, st.integers(1, 12))
def test_a_checkpoint_more_never_raises_a_policy(
    name: str, rows: list[tuple[float, float, float]], policy: Policy, more: int
) -> None:
    larger = tuple(sorted({*policy, more}))
    found = columns(name, seen(rows, policy, larger) if larger != policy else seen(rows, policy))
    whole = SCORES[name].of(seen(rows))
    assert found[policy_column(name, larger)] <= found[policy_column(name, policy)] <= whole
    for n in larger:
        assert found[f"{name}_prefix_{n}"] == SCORES[name].of(seen(rows[:n]))
        assert n < len(rows) or found[f"{name}_prefix_{n}"] == whole


def test_a_window_that_a_prefix_holds_is_in_the_whole() -> None:
    """The least window of a prefix is not below that of the answer, so checkpoints from there on cost no acceptance."""
    rows = [(-1.0, -1.0 - lift, 0.0) for lift in (0, 3, 6, 5, 1, 2, 3, 5, 5, 5)]
    found = columns("window", seen(rows, (3, 5, 8), (2, 5)))
    assert found["window_at_3_5_8"] == pytest.approx(6 / 15)  # 1, 2, 3 of at most 5 each
    assert found["window_prefix_5"] == pytest.approx(8 / 15)
    assert found["window_at_2_5"] == found["window_prefix_2"] == pytest.approx(3 / 10)


@pytest.mark.parametrize("bad", [(), (0,), (-1, 3), (4, 3), (3, 3)])
def test_checkpoints_increase_from_one(bad: Policy) -> None:
    with pytest.raises(FedsrcError, match="increasing numbers of tokens"):
        Settings(prefixes=(bad,))
