"""How a panel decides: which rows are rejected as weights are passed on, which are claimed, and how much is accepted.

Rows are thresholds of blocks (groups, or scores), block after block. One claim is a panel of one block.

Theory: (xviii).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedsrc.maths import betting
from fedsrc.maths.arrays import Bools, Floats
from fedsrc.maths.panels import weights_left
from fedsrc.protocol.panels import Groups, One, Scores

Claims = One | Groups | Scores
Reaches = Callable[[Floats], Bools]  # from the weights of all rows to the rows whose evidence reaches its line


def reject(claims: Claims, weights: Floats, blocks: int, reaches: Reaches, *, passes: bool) -> Bools:
    """Return the rows that are rejected. If weights are passed on, rows are tested again until no more follow; that
    needs nulls that do not move. Where one threshold is claimed for all blocks, it is rejected where every block is.

    Theory: (xviii) Passing on, All groups; (xiii) Looks and recycling.
    """
    together = claims.simultaneous
    done: Bools = np.zeros(weights.size // blocks if together else weights.size, dtype=np.bool_)
    for _ in range(done.size if passes else 1):
        found = reaches(left(claims, weights, blocks, done))
        more = done | (found.reshape(*found.shape[:-1], blocks, -1).all(axis=-2) if together else found)
        if more.shape == done.shape and (more == done).all():
            break
        done = more
    return done


def left(claims: Claims, weights: Floats, blocks: int, rejected: Bools) -> Floats:
    """Return the weights of all rows after some rejections: those of a threshold for all groups are in each."""
    rows, together = weights.reshape(blocks, -1), claims.simultaneous
    keep = 1.0 if together or isinstance(claims, One) else claims.keep
    done = rejected.reshape(*rejected.shape[:-1], 1 if together else blocks, -1)
    found = weights_left(rows[: done.shape[-2]], done, keep)
    found = np.broadcast_to(found, (*found.shape[:-2], blocks, found.shape[-1]))
    return found.reshape(*found.shape[:-2], -1)


def acceptance(
    claims: Claims, A: Floats, most: Floats, V_A: Floats, N: float | Floats, *,
    eta: float | Floats, bets: betting.Centres, alpha_a: float, w: Floats, blocks: int,
) -> Floats:  # fmt: skip
    """Return lower bounds on acceptance for every row that is claimed: as a share of all traffic, or of the group's.
    `most` is accepted mass with all that may have been in missing releases, A without.

    Theory: (iv) Acceptance; (xviii) Acceptance.
    """
    if not isinstance(claims, Groups) or (claims.floor == "traffic" and not claims.simultaneous):
        return betting.a_lower(A, V_A, N, eta=eta, bets=bets, alpha_a=alpha_a, w=w)
    V_A = np.broadcast_to(V_A, A.shape)
    if claims.floor == "traffic":
        A, V_A = (_by_block(each, blocks).sum(axis=-2) for each in (A, V_A))
        return betting.a_lower(A, V_A, N, eta=eta, bets=bets, alpha_a=alpha_a, w=w[: A.shape[-1]])
    lower = betting.a_lower(A, V_A, N, eta=eta, bets=bets, alpha_a=alpha_a / 2.0, w=w)
    total, noise = _by_block(most, blocks)[..., 0], _by_block(V_A, blocks)[..., 0]
    shares = np.asarray(claims.shares)
    outside = betting.a_lower(N - total, noise, N, eta=eta, bets=bets, alpha_a=alpha_a / 2.0, w=shares)
    within = np.minimum(1.0, _by_block(lower, blocks) / (1.0 - outside)[..., None])
    within[..., 0] = 0.0  # with answers that have no score, which are never accepted; `nested` has the next row's bound
    if claims.simultaneous:
        return np.asarray(within.min(axis=-2))
    return within.reshape(lower.shape)


def nested(claims: Claims, a: Floats, blocks: int) -> Floats:
    """Let a higher threshold's bound serve below it in its block: acceptance falls with the threshold, and all bounds
    hold at once."""
    rows = a.reshape(*a.shape[:-1], 1 if claims.simultaneous else blocks, -1)
    return np.maximum.accumulate(rows[..., ::-1], axis=-1)[..., ::-1].reshape(a.shape)


def choices(claims: Claims, certified: Bools, acceptance_lower: Floats, blocks: int) -> tuple[int | None, ...]:
    """Return the certified row with the largest acceptance bound: of every group, or of all rows; None where none is.

    Paper: eq. (selection).
    """
    rows = certified.reshape(blocks if several(claims) else 1, -1)
    best = np.where(rows, acceptance_lower.reshape(rows.shape), -1.0).argmax(axis=-1)
    return tuple(
        int(i * rows.shape[-1] + best[i]) if rows[i].any() else None for i in range(len(rows))
    )  # fmt: skip


def several(claims: Claims) -> bool:
    """Return whether every block has a status of its own."""
    return isinstance(claims, Groups) and not claims.simultaneous


def worst(claims: Claims, rows: Floats, blocks: int, *, largest: bool = True) -> Floats:
    """Return a diagnostic of the rows that are claimed: where one threshold is for all groups, of the worst group."""
    if not claims.simultaneous:
        return rows
    each = _by_block(rows, blocks)
    return np.asarray(each.max(axis=-2) if largest else each.min(axis=-2))


def _by_block(rows: Floats, blocks: int) -> Floats:
    return rows.reshape(*rows.shape[:-1], blocks, -1)
