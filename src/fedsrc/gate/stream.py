"""A stream: one answer that is checked while it is written, at the registered checkpoints of its score.

The certified score is the least prefix score at the checkpoints that the answer reaches, and at its end. So the least
decides, a check elsewhere counts for nothing, and an answer that passed a checkpoint unchecked is not accepted.

Theory: (xviii) Prefix policies.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index

from fedsrc.gate.decision import MISSED, Decision, Held, judge

NO_SCORE = -1.0  # less than any score, and none itself


class Stream:
    """The checks of one answer, by whatever is in force when they are made. One thread uses it, for one answer.

    Text that was shown before a stop is not covered by the certificate.
    """

    def __init__(self, held: Callable[[], Held], clock: Callable[[], float], group: object) -> None:
        self._held, self._clock, self._group = held, clock, group
        self._least, self._tokens, self._missed = 1.0, 0, False
        self._checked: set[int] = set()

    def check(self, score: object, tokens: object) -> bool:
        """Return whether to go on, after so many tokens whose text has this score, in the scorer's count of tokens."""
        return self._reach(score, tokens, last=False).accepted

    def end(self, score: object, tokens: object) -> Decision:
        """Decide on the whole answer, which has so many tokens and this score."""
        return self._reach(score, tokens, last=True)

    def _reach(self, score: object, tokens: object, *, last: bool) -> Decision:
        held, now = self._held(), self._clock()
        points, count = held.certificate.score.checkpoints, _count(tokens)
        if points:  # of an answer that ends at a checkpoint, the score there is that of its end
            passed = {point for point in points if point < count}
            self._missed |= count < self._tokens or not passed <= self._checked
        self._tokens = max(self._tokens, count)
        if last or count in points:
            value = held.unit(score)
            self._least = min(self._least, value if 0.0 <= value <= 1.0 else NO_SCORE)
            self._checked.add(count)
        rule = held.rule_of(self._group)
        decision = judge(held, now, self._least, rule)
        return rule.says[MISSED] if self._missed and decision.accepted else decision


def _count(tokens: object) -> int:
    """Return a number of tokens; -1 for anything else, which is fewer than there were before."""
    try:
        return -1 if isinstance(tokens, bool) else max(-1, index(tokens))  # type: ignore[arg-type]
    except TypeError:
        return -1
