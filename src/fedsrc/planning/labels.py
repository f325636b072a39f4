"""What development labels show before anything is spent, above all scores that point the wrong way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from fedsrc.maths.arrays import Floats
from fedsrc.protocol.protection import Development
from fedsrc.records.development import development_rows
from fedsrc.records.units import Records, Unit, unit_codes

WRONG_WAY = 4.0  # standard errors: scores that say nothing get there in fewer than one table of 30,000


@dataclass(frozen=True)
class Labels:
    """What the development part shows of its labels, to whoever has the table: exact shares of unsupported answers."""

    unsupported: float
    upper: float
    lower: float
    wrong_way: bool

    @property
    def warning(self) -> str | None:
        """What to ask whoever has the table, if scores seem to be the wrong way round."""
        if not self.wrong_way:
            return None
        return (
            f"more answers with high scores are unsupported ({self.upper:.0%} above the middle score) than with low"
            f" ones ({self.lower:.0%}): is the loss the right way round (1 = unsupported), and the score (higher ="
            " better supported)?"
        )


def development_labels(records: Records, development: Development, unit: Unit) -> Labels:
    """Report how many development answers are unsupported, and whether those plainly have the higher scores.

    The rank correlation of score and loss over units, each with its means, because answers of one source may depend on
    each other. Rows without a score have no rank.
    """
    rows = development_rows(records, development, unit)
    seen = rows & (records.score >= 0)
    _, units = np.unique(unit_codes(records, unit)[seen], return_inverse=True)
    sizes = np.bincount(units)
    score, loss = (np.bincount(units, weights=each[seen]) / sizes for each in (records.score, records.loss))
    varied = score.size > 1 and np.ptp(score) > 0 and np.ptp(loss) > 0
    if not varied:
        return Labels(float(records.loss[rows].mean()), 0.0, 0.0, False)
    above = score > np.median(score)
    above = above if above.any() else score >= np.median(score)
    rising = float(np.corrcoef(_ranks(score), _ranks(loss))[0, 1])
    wrong_way = rising * np.sqrt(score.size - 1) > WRONG_WAY
    upper, lower = float(loss[above].mean()), float(loss[~above].mean())
    return Labels(float(records.loss[rows].mean()), upper, lower, bool(wrong_way))


def _ranks(values: Floats) -> Floats:
    return pl.Series(values).rank("average").to_numpy()
