"""Prefix scores: a score of an answer's first tokens, at checkpoints, so that a stream can be stopped early.

The model is causal, so the arrays of a prefix are those of the whole answer, cut. A policy is a tuple of checkpoints,
counted in the scorer's tokens; its score is the least prefix score at the checkpoints that the answer reaches and at
its end. An answer that is no longer than a checkpoint has its whole score there, which is in the least anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedsrc.errors import FedsrcError
from fedsrc.scores.catalogue import BOTH, SCORES, Policy, Seen, Settings, given

TOKENS = "tokens"  # the column of an answer's length
PREFIXED = [name for name, score in SCORES.items() if score.needs and score.needs <= BOTH]


def refuse_no_prefix(names: Iterable[str], settings: Settings) -> None:
    """Refuse, where prefixes are asked for, scores that are no function of token scores alone."""
    for name in names:
        if settings.prefixes and name not in PREFIXED:
            hint = f"score it into a table of its own; prefixes are of {', '.join(PREFIXED)}"
            raise FedsrcError(f"{name} is not made of token scores alone, so it has no prefix scores", hint=hint)


def policy_column(name: str, policy: Policy) -> str:
    """Return the name of a policy's column: lift_at_20_40."""
    return "_".join([name, "at", *map(str, policy)])


def prefix_columns(name: str, seen: Sequence[Seen], whole: Sequence[float]) -> dict[str, list[float]]:
    """Return a score's column for each checkpoint and for each policy, and the answers' numbers of tokens.

    A stream is stopped at the policy's first checkpoint whose column is below the threshold.
    """
    policies = seen[0].settings.prefixes
    if not policies:
        return {}
    checkpoints = sorted({n for policy in policies for n in policy})
    at = {n: [SCORES[name].of(each.first(n)) for each in seen] for n in checkpoints}
    found = {f"{name}_prefix_{n}": values for n, values in at.items()}
    for policy in policies:
        rows = zip(whole, *(at[n] for n in policy), strict=True)
        found[policy_column(name, policy)] = [min(row) for row in rows]
    return {**found, TOKENS: [len(given(each.present).tokens) for each in seen]}
