"""What development labels show before anything is spent, above all scores that point the wrong way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import gammaln

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.planning.register import Choices
from fedsrc.protocol.protection import Development
from fedsrc.protocol.scale import Scale
from fedsrc.records.development import development_rows
from fedsrc.records.guess import wrong_way
from fedsrc.records.units import Records, Unit, unit_codes

TOP_WRONG = 3.2e-5  # the chance that goes with it
WRONG_WAY = 4.0  # standard errors: scores that say nothing get there in fewer than one table of 30,000


@dataclass(frozen=True)
class Labels:
    """What the development part shows of its labels, to whoever has the table: exact shares of unsupported answers."""

    unsupported: float
    upper: float
    lower: float
    top: float
    rest: float
    wrong_way: bool

    @property
    def warning(self) -> str | None:
        """What to ask whoever has the table, if scores seem to be the wrong way round, or are so at their top."""
        if not self.wrong_way:
            return None
        where, more, less = "the upper half of the scores", self.upper, self.lower
        if self.top - self.rest > more - less:
            where, more, less = "the top tenth of the scores", self.top, self.rest
        return (
            f"in {where} more answers are unsupported ({more:.0%}) than in the rest ({less:.0%}): are score and labels"
            " the right way round?"
        )

    def check(self, records: Records, where: str, *, said: bool) -> str | None:
        """Ask whether high scores are good where the labels speak against it; only warn if somebody has said so."""
        if self.warning is not None and not said:
            raise wrong_way(self.warning, records.columns.scale or Scale(), where)
        return self.warning


def as_developed(choices: Choices, records: Records, development: Development) -> tuple[Records, Development]:
    """Return a table with the losses that its development part is planned on, and whose they are: a judge's, where a
    column is named; none, where people label on demand; else people's.

    Whether some unit has a label already is its own affair: that must not show in what is registered. Losses of units
    that calibrate are not looked at: where the part has no labels of people, they all count as 1.
    """
    rows = development_rows(records, development, choices.unit)
    if choices.judge_column is not None:
        loss, whose = np.where(rows, _verdicts(choices, records, rows), 1.0), "judge"
    elif records.labelled is not None:
        loss, whose = np.ones(len(records)), "none"
    else:
        return records, development
    return replace(records, loss=loss), development.model_copy(update={"labels": whose})


def _verdicts(choices: Choices, records: Records, rows: NDArray[np.bool_]) -> Floats:
    """Return a judge's verdicts on the development part as losses: where no grid of losses is declared, 0 or 1."""
    name = str(choices.judge_column)
    column = None if records.rows is None else records.rows.column(name)
    if column is None:
        raise FedsrcError(f"the table has no column {name!r} for a judge's verdicts", hint="name it: `judge_column=`")
    values = column.cast(pl.Float64, strict=False).fill_null(float("nan")).to_numpy()
    bad = rows & ~((values >= 0) & (values <= 1))
    if bad.any():
        raise FedsrcError(
            f"in column {name!r}, row {int(np.argmax(bad)) + 1} of the development part has no verdict in [0, 1]",
            hint="1 is unsupported, 0 is supported; the whole development part needs verdicts",
        )
    return values if choices.loss_grid is not None else (values >= 0.5).astype(np.float64)


def development_labels(records: Records, development: Development, unit: Unit) -> Labels:
    """Report how many development answers are unsupported, and whether those plainly have the higher scores.

    The rank correlation of score and loss over units, each with its means, because answers of one source may depend on
    each other; and the top tenth against the rest, for that is what a gate accepts first. Rows without a score have
    no rank.
    """
    rows = development_rows(records, development, unit)
    seen = rows & (records.score >= 0)
    _, units = np.unique(unit_codes(records, unit)[seen], return_inverse=True)
    sizes = np.bincount(units)
    score, loss = (np.bincount(units, weights=each[seen]) / sizes for each in (records.score, records.loss))
    varied = score.size > 1 and np.ptp(score) > 0 and np.ptp(loss) > 0
    if not varied:
        return Labels(float(records.loss[rows].mean()), 0.0, 0.0, 0.0, 0.0, False)
    above = score > np.median(score)
    above = above if above.any() else score >= np.median(score)
    rising = float(np.corrcoef(_ranks(score), _ranks(loss))[0, 1])
    upper, lower = float(loss[above].mean()), float(loss[~above].mean())
    tenth = score >= np.quantile(score, 0.9, method="higher")
    top, rest = (float(loss[each].mean()) if each.any() else 0.0 for each in (tenth, ~tenth))
    wrong = rising * np.sqrt(score.size - 1) > WRONG_WAY or _chance(loss >= 0.5, tenth) < TOP_WRONG
    return Labels(float(records.loss[rows].mean()), upper, lower, top, rest, bool(wrong))


def _chance(bad: NDArray[np.bool_], tenth: NDArray[np.bool_]) -> float:
    """Return how likely a tenth drawn at random has at least as many unsupported units: the hypergeometric tail."""
    units, wrong, drawn = bad.size, int(bad.sum()), int(tenth.sum())
    seen = np.arange(max(int((bad & tenth).sum()), drawn - (units - wrong)), min(wrong, drawn) + 1)

    def log_ways(total: int, some: Any) -> Any:
        return gammaln(total + 1.0) - gammaln(some + 1.0) - gammaln(total - some + 1.0)

    return float(np.exp(log_ways(wrong, seen) + log_ways(units - wrong, drawn - seen) - log_ways(units, drawn)).sum())


def _ranks(values: Floats) -> Floats:
    return pl.Series(values).rank("average").to_numpy()
