"""What a table means where nobody said: guessed only where it is certain, and never which scores are good.

Mutants killed: a label flipped, a neutral column guessed, one of two candidates taken, a percentage read as a share, a
direction taken from a name, a scale or words that a ledger does not remember.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.errors import FedsrcError, UndecidedError
from fedsrc.protocol.scale import Scale
from fedsrc.records.columns import Columns
from fedsrc.records.stream import Table, examine
from fedsrc.records.table import frame_records
from tests.support.helpers import registration

PAIRS = [("unsupported", "supported"), ("Hallucinated", "Grounded"), ("HALLUCINATION", "faithful"),
         ("wrong", "correct"), ("not_supported", "supported")]  # fmt: skip
NAMES = {"supported": ["supported", "is_grounded", "Correct", "faithful_label"],
         "unsupported": ["loss", "hallucinated", "is_hallucination", "Unsupported", "has_hallucinations"]}  # fmt: skip
LOSSES = st.lists(st.sampled_from([0, 1]), min_size=1, max_size=30)


def read(columns: dict[str, list[Any]], **how: Any) -> Any:
    return frame_records(pl.DataFrame(columns), columns=Columns(**how))


@given(LOSSES, st.sampled_from(PAIRS), st.sampled_from(["loss", "label", "verdict", "supported", "is_hallucinated"]))
def test_words_mean_what_they_say_in_any_column(losses: list[int], pair: tuple[str, str], name: str) -> None:
    said = [pair[0] if loss else pair[1] for loss in losses]
    assert read({"score": [0.5] * len(losses), name: said}).loss.tolist() == losses


@given(LOSSES, st.sampled_from([*NAMES["supported"], *NAMES["unsupported"]]), st.sampled_from("01tybf"))
def test_the_name_says_whether_a_one_is_good(losses: list[int], name: str, how: str) -> None:
    """No spelling of yes and no flips a label that another spelling leaves."""
    good = name in NAMES["supported"]
    ones = [1 - loss if good else loss for loss in losses]
    spell: dict[str, Callable[[int], Any]] = {
        "0": int, "1": str, "b": bool, "t": lambda one: "TRUE" if one else "False",
        "y": lambda one: "Yes" if one else "no", "f": lambda one: f"{one}.0",
    }  # fmt: skip
    spelt = [spell[how](one) for one in ones]
    found = read({"score": [0.5] * len(losses), name: spelt})
    assert found.loss.tolist() == losses
    assert ("one is" in found.cut_by) is good


def test_graded_labels_are_turned_too() -> None:
    graded: dict[str, list[Any]] = {"score": [0.5] * 2, "faithful": [0.25, 1.0]}
    assert read(graded, loss="faithful").loss.tolist() == [0.75, 0.0]
    with pytest.raises(FedsrcError, match="no column 'loss'"):
        read(graded)  # it may as well be a score: whoever means it as the label names it


@pytest.mark.parametrize("values", [[1, 0], [True, False], ["yes", "no"], ["1", "0"]])
def test_a_neutral_name_is_asked_about(values: list[Any]) -> None:
    with pytest.raises(UndecidedError, match="does not say whether 1") as found:
        read({"score": [0.5, 0.4], "label": values})
    assert (found.value.argument, [*found.value.answers.values()]) == ("unsupported", ["1", "0"])
    assert read({"score": [0.5, 0.4], "label": values}, unsupported=("1",)).loss.tolist() == [1, 0]
    assert read({"score": [0.5, 0.4], "label": values}, unsupported=("0",)).loss.tolist() == [0, 1]
    assert read({"score": [0.5, 0.4], "label": values}, supported=("1.0",)).loss.tolist() == [0, 1]


@pytest.mark.parametrize("name", ["label", "not_hallucinated", "y"])
def test_naming_a_column_does_not_say_what_a_1_means(name: str, tmp_path: Path) -> None:
    """Nor does a table whose first rows hold words, if numbers come later: read whole or in parts."""
    registered = registration()
    for number, labels in enumerate((["1", "0", "1", "1"], ["supported", "hallucinated", "1", "0"])):
        frame = pl.DataFrame({"score": [0.5, 0.4, 0.3, 0.2], name: labels})
        frame.write_csv(tmp_path / f"{number}.csv")
        with pytest.raises(UndecidedError, match="does not say whether 1"):
            frame_records(frame, columns=Columns(loss=name))
        table = Table(tmp_path / f"{number}.csv", Columns(loss=name), batch=2).under(registered)
        with pytest.raises(FedsrcError, match="does not say whether 1"):
            examine(table, "local")
        said = frame_records(frame, columns=Columns(loss=name, unsupported=("0",)))
        assert said.loss.tolist()[2:] == [float(label == "0") for label in labels[2:]]
    assert frame_records(frame, columns=Columns(loss=name), labels="none").loss.tolist() == [1.0] * 4
    assert read({"score": [0.5], "my loss": [1]}, loss="my loss").loss.tolist() == [1.0]


def test_words_of_ones_own() -> None:
    said: dict[str, list[Any]] = {"score": [0.5, 0.4, 0.1], "loss": ["prima", "erfunden", "2"]}
    with pytest.raises(FedsrcError, match=r"loss 'prima' is neither a number nor a label(.|\n)*'prima', 'erfunden'"):
        read(said)
    found = read(said, unsupported=("Erfunden", "2"), supported=("prima",))
    assert found.loss.tolist() == [0, 1, 1]
    assert found.cut_by != read({**said, "loss": [0, 1, 1]}).cut_by
    with pytest.raises(FedsrcError, match="both unsupported and supported"):
        Columns(unsupported=("x",), supported=("X ",))


@pytest.mark.parametrize("kind", [int, str, float])
def test_what_was_said_of_0_and_1_holds(kind: Callable[[int], Any]) -> None:
    """Ratings of 0 to 3: a 0 that was said to be unsupported is not the opposite of 1."""
    rated: dict[str, list[Any]] = {"score": [0.1, 0.2, 0.3, 0.4], "rating": [kind(each) for each in range(4)]}
    for bad in ({"0", "1"}, {"2", "3"}, {"0"}, {"1", "2"}, {"0", "1", "2", "3"}):
        good = {"0", "1", "2", "3"} - bad
        found = read(rated, loss="rating", unsupported=tuple(sorted(bad)), supported=tuple(sorted(good)))
        assert found.loss.tolist() == [float(str(each) in bad) for each in range(4)]
    cuts = {read({**rated, "rating": [0, 1, 0, 1]}, loss="rating", unsupported=words).cut_by for words in
            (("0",), ("1",), ("0", "1"))}  # fmt: skip
    assert len(cuts) == 3


def test_two_candidates_are_both_named() -> None:
    with pytest.raises(UndecidedError, match="'grounding' and 'confidence' may each be the score") as found:
        read({"grounding": [0.5], "confidence": [0.4], "loss": [0]})
    assert found.value.argument == "score_column"
    with pytest.raises(UndecidedError, match="'hallucinated' and 'correct' may each be the loss"):
        read({"score": [0.5], "hallucinated": [0], "correct": [1]})
    assert read({"score": [0.5], "hallucinated": [0], "correct": [1]}, loss="correct").loss.tolist() == [0]


def test_a_bad_cell_does_not_choose_the_other_column() -> None:
    """Neighbouring tables would be read by different columns, and the score's is registered."""
    for one, other in ((["0.1", "n/a"], ["0.2", "0.3"]), (["0.1", "0.2"], ["n/a", "0.3"])):
        with pytest.raises(UndecidedError, match="'grounding' and 'confidence' may each be the score"):
            read({"grounding": one, "confidence": other, "loss": [0, 1]})
        with pytest.raises(UndecidedError, match="'correct' and 'hallucinated' may each be the loss"):
            read({"score": [0.1, 0.2], "correct": one, "hallucinated": other})


def test_a_percentage_is_no_loss_and_on_no_other_scale() -> None:
    with pytest.raises(FedsrcError, match="loss is a percentage"):
        read({"score": [0.1, 0.2], "loss": ["1%", "0.5%"]})
    with pytest.raises(FedsrcError, match="score is a percentage, and not on the scale 0:10"):
        read({"score": ["5%", "9%"], "loss": [0, 1]}, scale=Scale.of("0:10"))


def test_cells_must_fit_a_guess() -> None:
    found = read({"grounding": [0.5], "model_score": ["high"], "error": ["timeout"], "hallucinated": [1]})
    assert (found.columns.score, found.columns.loss) == ("grounding", "hallucinated")
    with pytest.raises(FedsrcError, match="no column 'score'"):
        read({"model_score": ["high"], "loss": [0]})


@pytest.mark.parametrize(("values", "scale"), [([66.5, 3, 88], "0:100"), (["66.5%", "3 %", "88%"], "0:100"),
                                           ([0.1, 1.0, 0], "0:1"), (["10%", "0%", "0.5%"], "0:100")])  # fmt: skip
def test_scales_that_are_plain(values: list[Any], scale: str) -> None:
    found = read({"score": values, "loss": [0, 1, 0]})
    assert found.columns.scale == Scale.of(scale)
    assert found.score.tolist() == [found.columns.scale.unit(float(str(v).rstrip(" %"))) for v in values]
    assert ("scale" in found.cut_by) is (scale != "0:1")


@pytest.mark.parametrize("values", [[3.0, 5, 1], [-4, 50, 20], [0.5, 0.4, 55], [101, 50, 60]])
def test_scales_that_are_not(values: list[float]) -> None:
    with pytest.raises(FedsrcError, match=r"is outside \[0, 1\](.|\n)*`score_scale='0:100'`"):
        read({"score": values, "loss": [0, 1, 0]})
    assert read({"score": values, "loss": [0, 1, 0]}, scale=Scale.of("200:-10")).columns.scale == Scale.of("200:-10")


@pytest.mark.parametrize(
    "name",
    [
        "hallucination_score",
        "risk",
        "Semantic Entropy Score",
        "distance",
        "SelfCheck score",
        "inconsistency_score",
        "not_supported_score",
        "non-factual score",
    ],
)
def test_the_direction_is_never_guessed(name: str) -> None:
    for values, scale in (([0.1, 0.9], "0:1"), ([10, 90], "0:100")):
        for how in ({}, {"score": name}):
            with pytest.raises(UndecidedError, match="of which less is better") as found:
                read({name: values, "loss": [0, 1]}, **how)
            worst, best = scale.split(":")
            assert [*found.value.answers.values()] == [f"{best}:{worst}", scale]
    assert read({name: [0.1, 0.75], "loss": [0, 1]}, scale=Scale.of("1:0")).score.tolist() == [0.9, 0.25]


def test_percentages_under_a_registered_scale() -> None:
    for scale, expected in (("0:1", 0.25), ("0:100", 0.25), ("1:0", 0.75), ("100:0", 0.75)):
        assert read({"score": ["25%"], "loss": [0]}, scale=Scale.of(scale)).score.tolist() == [expected]


def test_a_registration_binds_column_and_scale(tmp_path: Path) -> None:
    claim = registration().claim.model_copy(update={"column": "grounding", "scale": Scale.of("0:100")})
    registered = registration().model_copy(update={"claim": claim})
    (tmp_path / "t.csv").write_text("mine,grounding,score,loss\n30,20,0.1,1\n")
    for named, score in ((None, 0.2), ("grounding", 0.2), ("grounding=mine", 0.3)):
        table = Table(tmp_path / "t.csv", Columns(score=named)).under(registered)
        assert table.whole().score.tolist() == [score]
        assert [frame.height for frame in table.frames()] == [1]
    with pytest.raises(FedsrcError, match=r"the registered score is 'grounding', not 'mine'(.|\n)*'grounding=mine'"):
        Table(tmp_path / "t.csv", Columns(score="mine")).under(registered)
    with pytest.raises(FedsrcError, match="registered scale of the score is 0:100, not 0:1"):
        Table(tmp_path / "t.csv", Columns(scale=Scale())).under(registered)


@pytest.mark.parametrize("name", ["loss", "supported"])
def test_a_percentage_is_no_label(name: str) -> None:
    with pytest.raises(FedsrcError, match="loss is a percentage, not a number"):
        read({"score": [0.5, 0.5], name: ["0", "1%"]}, loss=name)
