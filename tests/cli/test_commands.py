"""The command line as a user meets it: results on stdout, log on stderr, exit status 0, 1 or 2, nothing half-written.

Mutants killed: an error with status 1, a traceback, a partial run folder after a refused table, log lines on stdout, a
check that writes, a next command that fails, a closed pipe that ends as an abstention.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsrc.cli.streams import in_flags

KEYS = {
    "status", "threshold", "target_risk", "contrast_upper", "acceptance_lower", "risk_upper", "records", "rounds",
    "sites", "epsilon", "adjacency", "replacement_epsilon", "zero_out_epsilon", "delta", "registration", "transcript",
    "strongest",
}  # fmt: skip


class Result:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def fedsrc(tmp_path: Path, warmed: Path) -> Any:
    def call(*args: str, **env: str) -> Result:
        variables = {**os.environ, "HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config"), **env}
        command_line = [str(warmed), *args]
        return Result(
            subprocess.run(command_line, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
        )

    return call


def write_table(path: Path, rows: int = 1500, *, seed: int = 0, extra: str = "") -> Path:
    rng = np.random.default_rng(seed)
    loss = (rng.random(rows) < 0.4).astype(int)
    score = np.clip(0.5 + 0.25 * (1 - 2 * loss) + 0.15 * rng.standard_normal(rows), 0, 1)
    lines = [f"{b},{s:.4f},{'north' if i % 3 else 'south'}" for i, (b, s) in enumerate(zip(loss, score, strict=True))]
    path.write_text("\n".join(["loss,score,site", *lines]) + "\n" + extra)
    return path


def test_certify_and_verify(fedsrc: Any, tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv")
    done = fedsrc("certify", "t.csv", "--target", "0.2", "--epsilon", "4", "-o", "run", "--format", "json")
    assert done.code == 0, done.err
    assert set(done.json) == KEYS
    assert done.json["status"] == "CERTIFIED"
    assert "set apart" in done.err
    assert {p.name for p in (tmp_path / "run").iterdir()} == {
        "registration.toml",
        "transcript.jsonl",
        "certificate.json",
    }
    assert (tmp_path / "t.csv.ledger").exists()
    checked = fedsrc("verify", "run", "--format", "json")
    assert (checked.code, checked.json) == (0, done.json)
    key = json.loads((tmp_path / "run" / "certificate.json").read_text())["key"]
    assert fedsrc("verify", "run", "--trust", key).code == 0
    assert fedsrc("verify", "run", "--trust", "0" * 64).code == 1
    assert fedsrc("verify", "elsewhere").code == 2, "there is nothing that could fail to verify"
    again = fedsrc("certify", "t.csv", "--registration", "run/registration.toml", "-o", "run", "--format", "json")
    assert (again.code, again.json) == (0, done.json)


def test_abstention_is_status_1_and_says_what_it_would_have_taken(fedsrc: Any, tmp_path: Path) -> None:
    """Half of the answers at any threshold are unsupported: noise would have to be 20 deviations off to certify."""
    rows: list[list[object]] = [[i % 2, f"{7919 * i % 1000 / 1000}"] for i in range(400)]
    rows_of(tmp_path / "t.csv", ("loss", "score"), rows)
    done = fedsrc("certify", "t.csv", "--target", "0.05", "--epsilon", "1", "-o", "run")
    assert done.code == 1
    assert "Status: ABSTAIN" in done.out
    assert "To certify, at the rates seen: target 0.05 at epsilon 1:" in done.out
    assert ("too few units to tell" in done.out) is ("Development records carry no noise" in done.out)
    assert fedsrc("verify", "run").code == 0  # a sound abstention verifies


def test_few_records_are_not_called_out_of_reach(fedsrc: Any, tmp_path: Path) -> None:
    """Without noise, so that the same records say the same always: eight unsupported of 80 leave target 0.02 open."""
    rows: list[list[object]] = [[int(i % 10 == 9), f"{0.9 - i / 1000}"] for i in range(80)]
    rows_of(tmp_path / "t.csv", ("loss", "score"), rows)
    done = fedsrc("certify", "t.csv", "--target", "0.02", "--epsilon", "inf", "-o", "run")
    assert done.code == 1
    assert "target 0.02 at epsilon inf: too few units to tell" in done.out
    assert "out of reach" not in done.out
    line = next(line for line in done.out.splitlines() if line.startswith("Development records"))
    told = fedsrc(*shlex.split(line.partition(": fedsrc ")[2]), "--epsilons", "inf")
    assert told.code == 0, told.err
    assert "target 0.02 at epsilon inf" in told.out


def test_what_cannot_be_reached_is_called_so(fedsrc: Any, tmp_path: Path) -> None:
    """Half of the answers are unsupported whatever their score."""
    rows: list[list[object]] = [[i % 2, f"{i / 2000:.4f}"] for i in range(2000)]
    rows_of(tmp_path / "t.csv", ("loss", "score"), rows)
    done = fedsrc("certify", "t.csv", "--target", "0.1", "--epsilon", "inf", "-o", "run")
    assert done.code == 1
    assert "target 0.1 at epsilon inf: out of reach" in done.out
    assert "Development records carry" not in done.out
    told = fedsrc("forecast", "run/registration.toml", "--records", "t.csv", "--epsilons", "4")
    assert "target 0.1 at epsilon 4: out of reach" in told.out


def test_register_forecast_certify(fedsrc: Any, tmp_path: Path) -> None:
    write_table(tmp_path / "dev.csv", 300, seed=1)
    write_table(tmp_path / "cal.csv", 1500, seed=2)
    assert not (tmp_path / "dev.csv.ledger").exists()
    made = fedsrc("register", "dev.csv", "--target", "0.2", "--epsilon", "2", "-o", "r.toml")
    assert made.code == 0, made.err
    assert "Next: fedsrc forecast r.toml --records dev.csv\n" in made.out
    again = fedsrc("register", "dev.csv", "--target", "0.2", "--epsilon", "2", "-o", "r.toml")
    assert again.code == 2
    assert "choose another --output, or delete the file if no site was asked under it" in again.err
    told = fedsrc("forecast", "r.toml", "--records", "dev.csv", "--epsilons", "inf,2", "--format", "json")
    assert told.code == 0, told.err
    rows = told.json["forecasts"]
    assert [row["epsilon"] for row in rows] == ["inf", 2.0]
    assert all(row["limit"] <= row["records"] for row in rows)
    declared = fedsrc("forecast", "r.toml", "--acceptance", "0.3", "--risk", "0.05", "--epsilons", "4")
    assert "about" in declared.out
    assert fedsrc("forecast", "r.toml").code == 2
    certified = fedsrc("certify", "cal.csv", "--registration", "r.toml", "-o", "run")
    assert certified.code == 0, certified.err
    same = fedsrc("certify", "dev.csv", "--registration", "r.toml", "-o", "run-2")
    assert same.code == 2
    assert "chose thresholds" in same.err
    for flag, value in (
        ("--target", "0.1"),
        ("--certificate", "sealed"),
        ("--looks", "2"),
        ("--unlabelled", "dev.csv"),
    ):
        mixed = fedsrc("certify", "cal.csv", "--registration", "r.toml", flag, value, "-o", "run-3")
        assert mixed.code == 2
        assert f"{flag} is fixed by the registration" in mixed.err


def rows_of(path: Path, names: tuple[str, ...], rows: list[list[object]]) -> Path:
    path.write_text("\n".join(",".join(map(str, row)) for row in [names, *rows]) + "\n")
    return path


def own_columns(path: Path, sources: int = 600, *, wrong_way: bool = False) -> Path:
    """Answers under names of one's own: two to each question, a question at one of three clinics."""
    rng = np.random.default_rng(5)
    rows: list[list[object]] = []
    for i in range(sources):
        for _ in range(2):
            bad = rng.random() < 0.4
            score = np.clip((0.25 if bad else 0.75) + 0.15 * rng.standard_normal(), 0, 1)
            rows.append([len(rows), f"q{i}", "ABC"[i % 3], f"{score:.4f}", int(bad != wrong_way)])
    return rows_of(path, ("answer_no", "question_id", "clinic", "grounding score", "verdict"), rows)


AIMS = ["--target", "0.2", "--epsilon", "4"]
OWN = ["--score-column", "grounding score", "--loss-column", "verdict", "--unsupported", "1"]
WHOLE = [*OWN, "--source-column", "question_id", "--site-column", "clinic", "--id-column", "answer_no"]


def test_what_is_used_is_said_and_a_source_under_another_name_is_not_passed_over(fedsrc: Any, tmp_path: Path) -> None:
    own_columns(tmp_path / "t.csv")
    message = "--source-column question_id --unit source makes it the unit; --unit record asserts"
    refused(fedsrc, tmp_path, message, "certify", "t.csv", *AIMS, *OWN, "-o", "run")
    misspelt = [*OWN, "--unit", "source", "--source-column", "question"]
    refused(fedsrc, tmp_path, "no column 'question' (--source-column)", "certify", "t.csv", *AIMS, *misspelt)
    done = fedsrc("certify", "t.csv", *AIMS, *WHOLE, "--unit", "source", "-o", "run", "--format", "json")
    assert (done.code, [site["name"] for site in done.json["sites"]]) == (0, ["A", "B", "C"])
    columns = "score=grounding score, loss=verdict, site=clinic, source=question_id, id=answer_no"
    assert f"Uses {columns}; every source is one unit; 3 sites." in done.err
    assert "--weights A=SHARE,B=SHARE,C=SHARE" in done.err
    recut = fedsrc("certify", "t.csv", *AIMS, *OWN, "--unit", "record", "-o", "run-2")
    assert recut.code == 2
    assert "the first cut stands: run again with the same columns" in recut.err


def test_a_check_spends_and_writes_nothing(fedsrc: Any, tmp_path: Path) -> None:
    own_columns(tmp_path / "t.csv")
    done = fedsrc("certify", "t.csv", *AIMS, *OWN, "--unit", "record", "--check", "-o", "run")
    assert done.code == 0, done.err
    assert "one site, 'local'. Not used: answer_no, question_id, clinic" in done.err
    assert "1,200 rows; 939 records could calibrate (local 939)" in done.out  # a fifth, about, is set apart
    told = fedsrc("certify", "t.csv", *AIMS, *WHOLE, "--unit", "source", "--check", "--format", "json").json
    assert told["calibrating"].keys() == {"A", "B", "C"}
    assert sum(told["calibrating"].values()) == 481
    assert (told["rows"], told["unit"], told["unused"]) == (1200, "source", [])
    assert {path.name for path in tmp_path.iterdir()} == {"t.csv"}
    assert fedsrc("certify", "t.csv", *AIMS, *WHOLE, "--unit", "source", "-o", "run").code == 0


def test_a_check_refuses_what_a_run_refuses(fedsrc: Any, tmp_path: Path) -> None:
    write_table(tmp_path / "dev.csv", 300, seed=1)
    assert fedsrc("register", "dev.csv", *AIMS, "--sites", "north", "-o", "r.toml").code == 0
    write_table(tmp_path / "t.csv", 300)
    registered = ["certify", "t.csv", "--registration", "r.toml", "-o", "run"]
    refused(fedsrc, tmp_path, "site 'south' of the table is not in the registration", *registered, "--check")


def test_labels_the_wrong_way_round_are_asked_about_before_anything_is_spent(fedsrc: Any, tmp_path: Path) -> None:
    """Scores and labels are fixed by a seed: this cannot fail by chance."""
    shares = []
    for wrong_way in (False, True):
        own_columns(tmp_path / "t.csv", wrong_way=wrong_way)
        done = fedsrc("certify", "t.csv", *AIMS, *WHOLE, "--unit", "source", "--check")
        shares += re.findall(r"Of the development answers, (\S+)% count as unsupported", done.err)
        assert ("are score and labels the right way round?" in done.err) is wrong_way
        assert done.code == (2 if wrong_way else 0)
    assert "hint: --score-scale 1:0 if low scores are good; --score-scale 0:1 if high" in done.err
    assert fedsrc("certify", "t.csv", *AIMS, *WHOLE, "--unit", "source", "--check", "--score-scale", "0:1").code == 0
    assert sum(map(float, shares)) == pytest.approx(100)
    assert float(shares[0]) == pytest.approx(40, abs=7)


def test_the_next_command_can_be_run_as_printed(fedsrc: Any, tmp_path: Path) -> None:
    path = own_columns(tmp_path / "my dev.csv", 100)
    path.write_text(path.read_text() + "9999,q9999,A,,1\n")
    aims = [*AIMS, "--missing", "keep", "--unit", "source", "-o", "my own.toml"]
    made = fedsrc("register", path.name, *aims, *WHOLE)
    assert made.code == 0, made.err
    line = made.out.splitlines()[-1].removeprefix("Next: fedsrc ")
    done = fedsrc(*shlex.split(line), "--epsilons", "inf")
    assert done.code == 0, done.err
    assert "target 0.2 at epsilon inf" in done.out
    grid = fedsrc("register", "--grid", "--sites", "a,b", *AIMS, "-o", "g.toml")
    told = fedsrc(*shlex.split(grid.out.splitlines()[-1].removeprefix("Next: fedsrc ")), "--epsilons", "inf")
    assert told.code == 0, told.err


def test_a_grid_speaks_of_no_label(fedsrc: Any, tmp_path: Path) -> None:
    """A table that chose no thresholds may calibrate later, so nothing that was seen of it is told."""
    write_table(tmp_path / "dev.csv", 300, seed=1)
    for grid, told in (([], True), (["--grid"], False)):
        made = fedsrc("register", "dev.csv", *AIMS, *grid, "-o", f"{told}.toml")
        assert made.code == 0
        assert ("count as unsupported" in made.err) is told


@pytest.mark.parametrize(("rows", "words"), [(49, "too few for thresholds"), (80, "Thresholds from 14 records are")])
def test_few_development_records(fedsrc: Any, tmp_path: Path, rows: int, words: str) -> None:
    write_table(tmp_path / "t.csv", rows)
    done = fedsrc("certify", "t.csv", *AIMS, "--check")
    assert done.code == (2 if rows < 50 else 0)
    assert words in done.err
    assert fedsrc("certify", "t.csv", *AIMS, "--check", "--grid").code == 0


def test_where_thresholds_come_from_is_said(fedsrc: Any, tmp_path: Path) -> None:
    """In the log, on the card and by `register`; nothing is written by a check."""
    write_table(tmp_path / "t.csv", 120)
    few = "Noise would leave nothing of so few development units"
    assert few in fedsrc("certify", "t.csv", "--target", "0.2", "--epsilon", "1", "--check").err
    assert few not in fedsrc("certify", "t.csv", *AIMS, "--check").err
    assert not (tmp_path / "t.csv.ledger").exists()
    done = fedsrc("certify", "t.csv", *AIMS, "-o", "run")
    noised = "from one noised release of 23 development records, protected like the others"
    assert f"Thresholds: {noised}." in done.err
    assert f"thresholds: {noised}" in done.out
    write_table(tmp_path / "dev.csv", 300, seed=1)
    public = fedsrc("register", "dev.csv", *AIMS, "--public-development", "-o", "r.toml")
    assert "declared public and are not protected" in public.out
    again = fedsrc("register", "dev.csv", *AIMS, "-o", "s.toml")
    assert again.code == 2
    assert "published before, as they are" in again.err


def test_one_record_is_not_some_records(fedsrc: Any, tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", 6)
    done = fedsrc("certify", "t.csv", *AIMS, "--check", "--grid")
    assert "1 record (17%) is set apart, though --grid takes nothing from it; it does not calibrate" in done.err


def test_a_reader_who_leaves_changes_no_exit_status(fedsrc: Any, tmp_path: Path) -> None:
    """Also one who leaves before the first line: the run goes on, and its result counts."""
    write_table(tmp_path / "t.csv")
    command = [sys.executable, "-m", "fedsrc.cli", "certify", "t.csv", *AIMS, "-o", "run"]
    env = {**os.environ, "HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    for streams in ({"stdout": -1}, {"stderr": -1}, {"stdout": -1, "stderr": -2}):
        gone, end = os.pipe()
        os.close(gone)
        given = {name: end if which == -1 else subprocess.STDOUT for name, which in streams.items()}
        done = subprocess.run(command, cwd=tmp_path, env=env, check=False, **given)  # type: ignore[call-overload]
        os.close(end)
        assert done.returncode == 0
    (tmp_path / "run" / "certificate.json").unlink()
    assert fedsrc("certify", "t.csv", *AIMS, "-o", "run").code == 0


def test_keys_shows_the_key_that_is_used_without_a_name(fedsrc: Any, tmp_path: Path) -> None:
    none = fedsrc("keys")
    assert none.code == 2
    assert f"{tmp_path / 'config' / 'fedsrc' / 'server.key'}: there is no key yet" in none.err
    write_table(tmp_path / "t.csv")
    assert fedsrc("certify", "t.csv", *AIMS, "-o", "run").code == 0
    shown = fedsrc("keys")
    assert shown.out.strip() == json.loads((tmp_path / "run" / "certificate.json").read_text())["key"]
    assert str(tmp_path / "config" / "fedsrc" / "server.key") in shown.err
    assert fedsrc("keys", "--format", "json").json["public"] == shown.out.strip()
    assert fedsrc("verify", "run", "--trust", shown.out.strip()).code == 0
    assert fedsrc("keys", "a.key", "--trial", "trial").code == 2


def test_demo_in_one_command(fedsrc: Any, tmp_path: Path) -> None:
    done = fedsrc("demo")
    assert done.code == 0, done.err
    for part in ("Status: CERTIFIED", "Privacy: every record"):
        assert part in done.out
    assert done.out.splitlines()[-1] == "Check it: fedsrc verify fedsrc-demo/run"
    assert "length alone separates" in done.err
    assert fedsrc("verify", "fedsrc-demo/run").code == 0
    assert fedsrc("demo").code == 0  # again: the same certificate


def test_environment_variables_mirror_flags(fedsrc: Any, tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv")
    env = {"FEDSRC_CERTIFY_TARGET_RISK": "0.2", "FEDSRC_CERTIFY_EPSILON": "4", "FEDSRC_CERTIFY_OUTPUT": "json"}
    done = fedsrc("certify", "t.csv", "-o", "run", **env)
    assert done.code == 0, done.err


def test_paper_preset(fedsrc: Any, tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", 6000)
    args = ["certify", "t.csv", "--target", "0.3", "--epsilon", "8", "--preset", "paper", "--format", "json"]
    done = fedsrc(*args, "-o", "run")
    assert done.code in (0, 1), done.err
    text = (tmp_path / "run" / "registration.toml").read_text()
    assert 'method = "contrast"' in text
    assert 'kind = "paired"' in text
    assert 'conversion = "paper"' in text
    assert fedsrc("verify", "run").code == 0


BAD_TABLES = {
    "nan": ("0.5,nan,a\n", "line 4: score is missing or NaN"),
    "out of range": ("0.5,7,a\n", "line 4: score 7 is outside [0, 1]"),
    "word": ("maybe,0.7,a\n", "line 4: loss 'maybe' is neither a number nor a label"),
    "ragged": ("0,0.7,a,b,c\n", "cannot be read as csv"),
    "short": ("0\n", "line 4: score is missing"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_bad_tables(fedsrc: Any, tmp_path: Path, name: str) -> None:
    row, message = BAD_TABLES[name]
    (tmp_path / "t.csv").write_text("loss,score,site\n0,0.9,a\n1,0.1,a\n" + row)
    refused(fedsrc, tmp_path, message, "certify", "t.csv", "--target", "0.2", "--epsilon", "4", "-o", "run")


def refused(fedsrc: Any, tmp_path: Path, message: str, *args: str) -> None:
    before = {p.relative_to(tmp_path) for p in tmp_path.rglob("*") if "config" not in str(p)}
    done = fedsrc(*args)
    after = {p.relative_to(tmp_path) for p in tmp_path.rglob("*") if "config" not in str(p)}
    assert done.code == 2, done.out
    assert message in done.err
    assert "Traceback" not in done.err
    assert done.out == ""
    assert after == before  # nothing half-written


BAD_ARGUMENTS: dict[str, tuple[list[str], str]] = {
    "no target": (["--epsilon", "4"], "--target is needed"),
    "no epsilon": (["--target", "0.2"], "--epsilon is needed"),
    "target above one": (["--target", "20", "--epsilon", "4"], "20 is not between 0 and 1"),
    "target in words": (["--target", "low", "--epsilon", "4"], "'low' is not a number"),
    "target nan": (["--target", "nan", "--epsilon", "4"], "nan is not between 0 and 1"),
    "negative epsilon": (["--target", "0.2", "--epsilon", "-1"], "-1 is not positive"),
    "unknown preset": (["--target", "0.2", "--epsilon", "4", "--preset", "fast"], "'fast' is not one of"),
    "method without paper": (["--target", "0.2", "--epsilon", "4", "--method", "ratio"], "belongs to --preset paper"),
    "unknown site weight": (
        ["--target", "0.2", "--epsilon", "4", "--weights", "mars=1"],
        "'mars' is not a site",
    ),
    "weights not one": (
        ["--target", "0.2", "--epsilon", "4", "--weights", "north=0.5,south=0.6"],
        "sum to 1.1, not to 1",
    ),
    "weights unreadable": (["--target", "0.2", "--epsilon", "4", "--weights", "north"], "is not of the form"),
    "no source column": (["--target", "0.2", "--epsilon", "4", "--unit", "source"], "needs a source column"),
    "no such column": (["--target", "0.2", "--epsilon", "4", "--score-column", "s"], "no column 's'"),
    "no registration": (["--registration", "none.toml"], "No such file"),
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_bad_arguments(fedsrc: Any, tmp_path: Path, name: str) -> None:
    write_table(tmp_path / "t.csv", 80)
    args, message = BAD_ARGUMENTS[name]
    refused(fedsrc, tmp_path, message, "certify", "t.csv", "-o", "run", *args)


def test_other_refusals(fedsrc: Any, tmp_path: Path) -> None:
    aims = ["--target", "0.2", "--epsilon", "4", "-o", "run"]
    refused(fedsrc, tmp_path, "there is no such file", "certify", "none.csv", *aims)
    (tmp_path / "e.csv").write_text("loss,score\n")
    refused(fedsrc, tmp_path, "the table has no rows", "certify", "e.csv", *aims)
    (tmp_path / "f.csv").write_text("loss,score\n0,1\n1,0\n")
    refused(fedsrc, tmp_path, "too few to set", "certify", "f.csv", *aims)
    (tmp_path / "s.csv").write_text("loss,score,source\n" + "0,1,x\n1,0,x\n" * 20)
    refused(fedsrc, tmp_path, "records are not independent", "certify", "s.csv", *aims)
    (tmp_path / "r.toml").write_text("format = 1\n[claim]\ntarget_risk = 2\n")
    write_table(tmp_path / "t.csv", 50)
    refused(fedsrc, tmp_path, "r.toml: ", "certify", "t.csv", "--registration", "r.toml", "-o", "run")
    refused(fedsrc, tmp_path, "no such run folder", "verify", "nowhere")


def test_repeated_sources_can_be_declared_independent(fedsrc: Any, tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv")
    rows = (tmp_path / "t.csv").read_text().splitlines()
    lines = [f"{row},s{i // 2}" for i, row in enumerate(rows[1:])]
    (tmp_path / "t.csv").write_text("\n".join([rows[0] + ",source", *lines]) + "\n")
    done = fedsrc("certify", "t.csv", "--target", "0.2", "--epsilon", "4", "-o", "run", "--unit", "record")
    assert done.code == 0, done.err
    assert "[declared] records that share a source are independent" in done.out


def test_missing_values_can_be_kept(fedsrc: Any, tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", 1500, extra=",0.9,north\n1,,south\n")
    aims = ["certify", "t.csv", "--target", "0.2", "--epsilon", "4", "-o", "run"]
    assert fedsrc(*aims).code == 2
    assert fedsrc(*aims, "--missing", "keep").code == 0


def test_a_read_only_place_is_an_error_not_a_traceback(fedsrc: Any, tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", 50)
    (tmp_path / "run").write_text("in the way")
    done = fedsrc("certify", "t.csv", "--target", "0.2", "--epsilon", "4", "-o", "run")
    assert done.code == 2
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("`unit='source'` makes it the unit", "--unit source makes it the unit"),
        ("is it 'the clinic'? `site_column='the clinic'`", "is it 'the clinic'? --site-column 'the clinic'"),
        ("`loss_grid=100`, `grid=` or `fresh=True`", "--loss-grid 100, --grid or --fresh"),
        ("run `fedsrc allow` first; `x` = 1", "run `fedsrc allow` first; `x` = 1"),
        (f"`source_column={'it`s'!r}`", f"`source_column={'it`s'!r}`"),
        (f"`source_column={chr(39)!r}`", "--source-column ''\"'\"''"),
    ],
)
def test_arguments_of_the_library_are_flags_on_the_command_line(said: str, shown: str) -> None:
    """Mutants killed: underscores kept, values not quoted for a shell, other words in backquotes turned into flags."""
    assert in_flags(said) == shown
