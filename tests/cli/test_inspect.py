"""`fedsrc inspect` and `fedsrc.toml`: what a table is, the command that certifies it, and what commands remember.

Mutants killed: a command that does not run as printed, a question left out of it, a file that sets a target, a file
that beats a flag or the environment, a table taken in twice over without a word.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fedsrc.cli.main import cli
from fedsrc.cli.streams import in_flags

AIMS = ["--target", "0.2", "--epsilon", "4"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*args: str, **env: str) -> Result:
    done = CliRunner().invoke(cli, args, env=env)
    assert done.exit_code == 0, (done.output, done.exception)
    return done


def refusal(*args: str) -> str:
    return in_flags(str(CliRunner().invoke(cli, args).exception))


def rows(head: str, *columns: Any, separator: str = ",", encoding: str = "utf-8") -> Path:
    lines = [head, *(separator.join(map(str, row)) for row in zip(*columns, strict=True))]
    Path("t.csv").write_bytes("\n".join(lines).encode(encoding))
    return Path("t.csv")


def drawn(count: int = 600) -> tuple[list[float], list[int]]:
    rng = np.random.default_rng(1)
    bad = rng.random(count) < 0.4
    score = np.clip(np.where(bad, 0.25, 0.75) + 0.15 * rng.standard_normal(count), 0, 1)
    return score.round(6).tolist(), bad.astype(int).tolist()


def test_an_untidy_export_in_one_command_as_printed() -> None:
    score, bad = drawn()
    words = ["halluziniert" if each else "belegt" for each in bad]
    percent = [f"{100 * each:.4f}".replace(".", ",") for each in score]
    rows("Frage;Grounding;Label", [f"für {i}" for i in range(600)], percent, words, separator=";", encoding="cp1252")
    asked = json.loads(run("inspect", "t.csv", "--format", "json").output)
    assert {"belegt", "halluziniert"} == asked["labels"].keys()
    assert (asked["commands"], asked["columns"]) == ([], {"score": "Grounding", "loss": "Label"})
    assert "say what each means, --unsupported" in refusal("certify", "t.csv", *AIMS)
    own = ["--unsupported", "halluziniert", "--supported", "belegt"]
    found = json.loads(run("inspect", "t.csv", *own, "--save", "--format", "json").output)
    assert found["written"] == "Windows-1252 text, separated by semicolons"
    assert (found["columns"], found["scale"]) == ({"score": "Grounding", "loss": "Label"}, "0:100")
    assert found["labels"] == {"halluziniert": sum(bad), "belegt": 600 - sum(bad)}
    (line,) = found["commands"]
    first, second, *args = shlex.split(line)
    assert (first, second) == ("fedsrc", "certify")
    run("certify", *args, "--check")
    done = run("certify", "t.csv", *AIMS, "--check")  # the file remembers
    assert "loss=Label (from fedsrc.toml, unsupported: halluziniert, supported: belegt)" in done.output
    assert {each.name for each in Path().iterdir()} == {"t.csv", "fedsrc.toml"}


def test_what_only_the_owner_knows_is_asked_and_never_guessed() -> None:
    score, bad = drawn()
    rows("hallucination_score,label,question_id", [1 - each for each in score], bad, [i // 2 for i in range(600)])
    found = json.loads(run("inspect", "t.csv", "--format", "json").output)
    assert [each["argument"] for each in found["open"]] == ["unsupported", "score_scale", "unit"]
    assert len(found["commands"]) == 8
    for line in found["commands"]:
        told = run(*shlex.split(line)[1:], "--check").output
        right = "--unsupported 1 --score-scale 1:0" in line or "--unsupported 0 --score-scale 0:1" in line
        assert ("right way round" in told) is not right


def test_scores_that_speak_against_their_labels() -> None:
    score, bad = drawn()
    rows("score,loss", [1 - each for each in score], bad)
    (asked,) = json.loads(run("inspect", "t.csv", "--format", "json").output)["open"]
    assert "are score and labels the right way round?" in asked["what"]
    assert "right way round" in refusal("certify", "t.csv", *AIMS, "--check")


def test_what_is_saved_answers_no_question() -> None:
    """Neither a scale that its labels speak against, nor a neutral column's sense; what was said is kept."""
    score, bad = drawn()
    rows("score,label", [f"{100 * (1 - each):.4f}%" for each in score], bad)
    for own, question in ((["--unsupported", "1"], "right way round"), ([], "does not say whether 1")):
        run("inspect", "t.csv", *own, "--save")
        assert question in refusal("certify", "t.csv", *AIMS, "--check")
        Path("fedsrc.toml").unlink()
    run("inspect", "t.csv", "--unsupported", "1", "--score-scale", "100:0", "--save")
    run("certify", "t.csv", *AIMS, "--check")


@pytest.mark.parametrize("name", ["-t.csv", "--fresh.csv", 'a b\'s "$x".csv', "für*.csv"])
def test_odd_names_run_as_printed(name: str) -> None:
    score, bad = drawn()
    for column in ("-score", "my 'own' score", "score=x score", "ü*^.$ score", "a\\score"):
        with Path(name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([(column, "--label"), *zip(score, bad, strict=True)])
        own = ["--score-column", column, "--unsupported", "1", "--loss-column", "--label"]
        (line,) = json.loads(run("inspect", f"./{name}", *own, "--format", "json").output)["commands"]
        run(*shlex.split(line)[1:], "--check")


def test_a_scale_is_printed_exactly() -> None:
    score, bad = drawn()
    rows("risk,loss", [1234567 * (1 - each) for each in score], bad)
    (line,) = json.loads(run("inspect", "t.csv", "--score-scale", "1234567:0", "--format", "json").output)["commands"]
    assert "--score-scale 1234567:0 " in line
    run(*shlex.split(line)[1:], "--check")


def test_rows_that_stand_twice() -> None:
    score, bad = drawn(200)
    rows("score,loss", score * 2, bad * 2)
    assert "every row stands in the table 2 times" in run("inspect", "t.csv").output
    assert "every row stands in it twice" in refusal("certify", "t.csv", *AIMS, "--check")
    told = run("certify", "t.csv", *AIMS, "--check", "--unit", "record").output
    assert "warning: every row stands in the table 2 times" in told
    rows("score,loss,note", [*score, score[0]], [*bad, bad[0]], ["x"] * 201)
    assert "7 rows repeat" in run("certify", "t.csv", *AIMS, "--check").output
    notes = [f"note {i}" for i in range(200)]
    rows("score,loss,note", [*score * 2, 0.5], [*bad * 2, 0], [*notes * 2, "new"])
    assert "200 rows repeat others" in run("certify", "t.csv", *AIMS, "--check").output
    rows("score,loss", [0.5, 0.25] * 40, [0, 1] * 40)  # too few kinds to tell
    assert "every row" not in run("certify", "t.csv", *AIMS, "--check").output


def test_what_is_odd_is_said() -> None:
    rows("score,loss", [0.5] * 40, [1] * 40)
    told = run("inspect", "t.csv").output
    assert "Odd: all scores are equal" in told
    assert "Odd: all labels are the same" in told


@pytest.mark.parametrize(
    ("text", "said"),
    [("target = 0.2", "'target' does not belong here"), ("key = 'k'", "'key' does not"), ("epsilon = 4", "'epsilon'"),
     ("unit = 'source'", "'unit'"), ("score_scale = 1", "score_scale is not a text"), ("[", "cannot be read"),
     ("supported = 'yes'", "supported is not a list of texts")],
)  # fmt: skip
def test_the_file_holds_nothing_but_how_tables_are_read(text: str, said: str) -> None:
    Path("fedsrc.toml").write_text(text)
    told = refusal("certify", "t.csv")
    assert said in told
    assert told.startswith("fedsrc.toml: ")


def test_a_flag_beats_the_environment_and_that_the_file() -> None:
    score, bad = drawn()
    rows("a,b,c,loss", score, score, score, bad)
    Path("fedsrc.toml").write_text("score_column = 'a'")
    check = ("certify", "t.csv", *AIMS, "--check")
    assert "Uses score=a (from fedsrc.toml)" in run(*check).output
    assert "Uses score=b (from the environment)" in run(*check, FEDSRC_CERTIFY_SCORE_COLUMN="b").output
    assert "Uses score=c, loss;" in run(*check, "--score-column", "c", FEDSRC_CERTIFY_SCORE_COLUMN="b").output


def test_the_file_is_for_commands_that_read_tables() -> None:
    Path("fedsrc.toml").write_text("damaged")
    assert run("keys", "mine.key").output
    assert "fedsrc.toml: cannot be read" in refusal("certify", "t.csv", *AIMS)


def test_words_of_the_environment_may_hold_spaces() -> None:
    score, bad = drawn()
    rows("score,label", score, ["not y" if each else "y" for each in bad])
    said = {"FEDSRC_CERTIFY_UNSUPPORTED": "not y,made up", "FEDSRC_CERTIFY_SUPPORTED": "y"}
    assert "unsupported: not y, supported: y" in run("certify", "t.csv", *AIMS, "--check", **said).output


def test_what_is_used_what_is_left_and_why_it_stopped_is_said() -> None:
    """The whole table certifies this target with room to spare; a check says beforehand what it may come to."""
    score, bad = drawn(4000)
    rows("score,loss", score, bad)
    told = run("certify", "t.csv", *AIMS, "--check").output
    assert "By its development part, without noise, for its owner's eyes:\nSealed" in told
    assert {each.name for each in Path().iterdir()} == {"t.csv"}
    told = run("certify", "t.csv", *AIMS, "--policy", "first", "--batch", "200", "--key", "key").stderr
    number = r"([\d,]+)"
    found = re.search(f"{number} of {number} records unused: it stopped because it is certified.*\n{number} rec", told)
    assert found
    left, units, spent = (int(each.replace(",", "")) for each in found.groups())
    assert 0 < left == units - spent


def test_refusals_that_name_the_one_thing_to_mend() -> None:
    grid = ["register", "--grid", "--sites", "a,b,c", *AIMS, "--weights"]
    assert "in these proportions: a=0.5,b=0.3,c=0.2" in refusal(*grid, "a=50,b=30,c=20")
    assert "--weights says nothing of site 'c'" in refusal(*grid, "a=0.5,b=0.5")
    rows("a,b", [1], [2])
    assert "without a registration: fedsrc certify t.csv --check" in refusal("forecast", "t.csv")
    assert "--score-column and --score-scale say that" in refusal(*grid[:-1], "--claim", "scale=0:100")
