"""What nobody said about a table, found out where it is certain: its score and label columns, and the score's scale.

A guess needs one column of a fixed list of names whose cells fit. Two are asked about. Whether a high score is good is
never guessed: a name that speaks against it is asked about.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import polars as pl

from fedsrc.common.label_words import NEUTRAL_NAME, ONE, ZERO, end_of_name, plain_name, plain_word
from fedsrc.errors import FedsrcError, UndecidedError
from fedsrc.protocol.scale import Scale
from fedsrc.records.cells import numbers, percents, stripped
from fedsrc.records.columns import UNIT, Columns

NONE = pl.Series(dtype=pl.Boolean)
PERCENT = Scale(worst=0.0, best=100.0)
KIND = "annotator_kind"  # of Phoenix: who wrote a row
MOST_WORDS = 8  # of a column of labels
PLAINLY_PERCENT = 10.0  # below it, 0 to 5 or 0 to 10 may be meant
SCORE_NAME = re.compile(
    r".*score|(feedback|evals?|metrics?|scores?|nv|answer|response)*(grounding|groundedness|faithfulness)(eval|api|value)?"
    r"|support|confidence|certainty|prob(ability)?|p(supported|grounded|correct|true)"
    r"|likelihood|similarity|entailment|risk|entropy|perplexity|distance|uncertainty"
)
LOW_IS_GOOD = re.compile(  # what such a name speaks of, less of it is better
    r"hallucinat|risk|entropy|perplex|distance|uncertain|surpris|contradict|diverg|nll|unsupported|ungrounded"
    r"|unfaithful|error|wrong|incorrect|unreliab|inaccura|inconsist|disagree|mismatch|anomal|outlier|toxic|fabricat|fake"
    r"|penalt|varian|selfcheck|loss|doubt|invalid|not(supported|grounded|faithful|correct)|(non|un)fact|^p?bad"
)


def settle(asked: Columns, frame: pl.DataFrame, where: str, *, labelled: bool = True, whole: bool = True) -> Columns:
    """Return how a table is read. `labelled`: its labels are wanted. `whole`: the frame is all of it, and not the
    beginning of a table whose scale is registered."""
    found = asked
    if labelled and asked.loss is None and KIND in frame.columns and (frame[KIND] != "HUMAN").any():
        hint = "`fedsrc answers` makes one row of an answer's labels and scores; or name a column with `loss_column=`"
        raise FedsrcError(f"not every row is by HUMAN in column {KIND!r}: some are no labels", where=where, hint=hint)
    if labelled and asked.loss is None and "loss" not in frame.columns:
        found = replace(found, loss=_loss_column(found, frame, where))
    if labelled and found.name("loss") in frame.columns:
        _check_sense(found, frame[found.name("loss")], where)
    if asked.score is None and "score" not in frame.columns:
        named = [name for name in found.unused(frame.columns) if SCORE_NAME.fullmatch(plain_name(name))]
        found = replace(found, score=_only("score", {name: _score_cells(frame[name]) for name in named}, where))
    if whole and found.scale is None and found.name("score") in frame.columns:
        found = replace(found, scale=_scale(found.name("score"), frame[found.name("score")], where))
    return found


def _only(what: str, cells: dict[str, pl.Series], where: str) -> str | None:
    """Return the column whose cells all fit. Where some cells of another fit too, ask: a bad cell in one of two columns
    must not choose the other, for then a single record would."""
    partly = [name for name, fit in cells.items() if fit.any()]
    if len(partly) > 1:
        named = " and ".join(map(repr, partly))
        answers = {f"column {name!r}": name for name in partly}
        raise UndecidedError(f"{named} may each be the {what}", f"{what}_column", answers, where=where)
    return next((name for name in partly if cells[name].all()), None)


def _loss_column(asked: Columns, frame: pl.DataFrame, where: str) -> str | None:
    named = [name for name in asked.unused(frame.columns) if _named_label(name)]
    found = _only("loss", {name: _label_cells(asked, frame[name]) for name in named}, where)
    if found is None:  # words of one's own, which the check asks about
        own = [name for name in named if frame[name].dtype == pl.String and frame[name].n_unique() <= MOST_WORDS]
        found = _only("loss", {name: pl.Series([True]) for name in own}, where)
    return found


def _check_sense(found: Columns, column: pl.Series, where: str) -> None:
    """Ask what a 1 means where neither the column's name nor anybody says so, even if the column was named."""
    if found.one_is is None and not _says_itself(found, column):
        answers = {"1 is unsupported, 0 is supported": "1", "0 is unsupported, 1 is supported": "0"}
        raise UndecidedError(unclear(column.name), "unsupported", answers, where=where)


def unclear(name: str) -> str:
    """Say that a column's labels could mean either."""
    return f"the name of column {name!r} does not say whether 1 (or true, or yes) is good or bad"


def _words(column: pl.Series) -> list[str]:
    """Return the distinct cells of a column of text that are no numbers."""
    text = stripped(column)
    return text.filter(text.is_not_null() & numbers(column).is_null()).unique().to_list()


def _named_label(name: str) -> bool:
    return end_of_name(name) is not None or NEUTRAL_NAME.fullmatch(plain_name(name)) is not None


def _label_cells(asked: Columns, column: pl.Series) -> pl.Series:
    """Return which cells are labels, of those that are not empty: 0, 1, or a known word. Graded losses are named."""
    if not (column.dtype == pl.String or column.dtype.is_numeric() or column.dtype == pl.Boolean):
        return NONE
    fit = numbers(column).is_in([0.0, 1.0])
    if column.dtype == pl.String:
        named, text = replace(asked, loss=column.name), stripped(column)
        known = [word for word in _words(column) if named.meaning(word) is not None or plain_word(word) in ONE | ZERO]
        fit = (fit.fill_null(value=False) & ~percents(column)) | text.is_in(known)
        fit = fit.filter(text.is_not_null())
    return fit.drop_nulls()


def _says_itself(asked: Columns, column: pl.Series) -> bool:
    """Whether no cell is a number, a yes or a no, but those of which somebody said what they mean."""
    if column.dtype == pl.String and any(plain_word(word) in ONE | ZERO for word in _words(column)):
        return False
    if column.dtype != pl.String and not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
        return True  # neither, which the check refuses
    found = numbers(column).drop_nulls().drop_nans()
    return bool(np.isin(found.to_numpy(), [*asked.said_numbers]).all())


def _score_cells(column: pl.Series) -> pl.Series:
    """Return which cells are numbers, of those that are not empty."""
    if column.dtype == pl.String:
        return numbers(column).is_not_null().filter(stripped(column).is_not_null())
    return column.is_not_null().filter(column.is_not_null()) if column.dtype.is_numeric() else NONE


def _scale(name: str, column: pl.Series, where: str) -> Scale:
    """Return the scale of a score by its cells; bad cells are left to the check. A name that speaks of what is bad is
    asked about."""
    if column.dtype != pl.String and not column.dtype.is_numeric():
        return UNIT
    scale = PERCENT if _percent(column) else UNIT
    if LOW_IS_GOOD.search(plain_name(name)):
        raise wrong_way(f"column {name!r} by its name is a score of which less is better", scale, where)
    return scale


def _percent(column: pl.Series) -> bool:
    """Whether scores are plainly of a hundred: by their percent signs, or by their values, most of them above 1."""
    signs = percents(column).drop_nulls()
    if signs.any():
        return bool(signs.all())
    found = numbers(column).drop_nulls().drop_nans().to_numpy()
    inside = found.size > 0 and found.min() >= 0 and PLAINLY_PERCENT < found.max() <= PERCENT.best
    return bool(inside and np.median(found) > 1)


def wrong_way(what: str, scale: Scale, where: str | None = None) -> UndecidedError:
    """Return the question whether high or low scores are good."""
    turned = Scale(worst=scale.best, best=scale.worst)
    answers = {"low scores are good": str(turned), "high scores are good all the same": str(scale)}
    return UndecidedError(what, "score_scale", answers, where=where)
