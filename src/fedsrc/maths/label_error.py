"""Label errors: between the risk that labels show and the risk of the answers, in exact decimals.

beta   of the unsupported accepted mass, at most this share is labelled supported, by declaration
r      a risk of the answers; on their labels it is r (1 - beta)

No import of numpy: a registration needs this.
"""

from __future__ import annotations

import math
from fractions import Fraction

DECIMALS = 10**9


def on_labels(r: float, beta: float) -> float:
    """Return r (1 - beta), rounded down to 9 decimals: whoever shows it on labels has shown r.

    Theory: (xvi) Label errors.
    """
    return r if beta == 0 else math.floor(_exact(r) * (1 - _exact(beta)) * DECIMALS) / DECIMALS


def of_answers(r: float, beta: float) -> float:
    """Return r / (1 - beta), rounded up to 9 decimals, at most one: what labels that show r show of the answers.

    Theory: (xvi) Label errors.
    """
    return r if beta == 0 else min(1.0, math.ceil(_exact(r) / (1 - _exact(beta)) * DECIMALS) / DECIMALS)


def _exact(number: float) -> Fraction:
    """Return a number as the decimal that it is written as."""
    return Fraction(repr(float(number)))
