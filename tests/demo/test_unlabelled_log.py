"""The demo from a log without labels: a stand-in labels what rounds need, and nothing else, and a stopped demo resumes.

Mutants killed: a log that holds its labels, labels for answers that no round asks for, a label that is given twice, a
stand-in who says the opposite, a demo that begins anew after it was stopped.

Chance of a false alarm: that a run abstains. At its last look it has drawn 7,986 answers, of which it accepts some
2,000 with 5 to 10% unsupported: the contrast is more than ten standard deviations on its side.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from fedsrc.cli.main import cli
from fedsrc.common.places import labels_beside
from fedsrc.common.signing import Key
from fedsrc.data.embedded import score_table
from fedsrc.demo.answers_table import one_of_each_pair
from fedsrc.demo.unlabelled_log import certify_log
from fedsrc.protocol.registration import OnDemand, Registration
from fedsrc.records.table import read_records
from fedsrc.server.verify import verify
from fedsrc.site.label_file import read_labels


class StoppedError(Exception):
    """Somebody has stopped the demo."""


def test_few_labels_make_a_certificate_and_a_stopped_demo_resumes(tmp_path: Path) -> None:
    log, key = tmp_path / "log.csv", Key.from_private_bytes(b"d" * 32)
    done = CliRunner().invoke(cli, ["demo", "--label", "-o", str(tmp_path), "--key", str(tmp_path / "key")])
    assert done.exit_code == 0, done.output
    assert "loss" not in pl.read_csv(log).columns
    given = read_labels(labels_beside(log))
    truth = dict(one_of_each_pair(score_table("qa")).select("id", "loss").iter_rows())
    assert all(label.loss == truth[label.answer] for label in given)
    assert len({label.answer for label in given}) == len(given)
    found = verify(tmp_path / "log-run").certificate
    assert found.status == "CERTIFIED"
    assert f"{len(given):,} of 10,000 answers were labelled" in done.stderr
    assert done.stderr.count(" given; ") == found.rounds
    registration, score = Registration.read(tmp_path / "log-run" / "registration.toml"), pl.read_csv(log)
    assert registration.labelling == OnDemand()
    high = set(score.filter(pl.col("score") >= registration.thresholds.values[0])["id"])
    assert {label.answer for label in given} <= high
    assert len(given) < found.records < 10_000

    again, records = tmp_path / "again", read_records(log, labels="on demand")
    (again / "log.csv").parent.mkdir()
    (again / "log.csv").write_bytes(log.read_bytes())

    def stop(_: str) -> None:
        raise StoppedError

    with pytest.raises(StoppedError):  # after a round was labelled and answered
        certify_log(registration, records, again / "log.csv", again / "run", key, stop)
    before, said = read_labels(labels_beside(again / "log.csv")), list[str]()
    assert before
    certify_log(registration, records, again / "log.csv", again / "run", key, said.append)
    after = read_labels(labels_beside(again / "log.csv"))
    assert after[: len(before)] == before
    assert said[-1].startswith(f"{len(after):,} of 10,000 answers were labelled")
    assert verify(again / "run").certificate.status == "CERTIFIED"


def test_two_demos_at_once_are_refused() -> None:
    done = CliRunner().invoke(cli, ["demo", "--label", "--live"], standalone_mode=False)
    assert "--live and --label are two demos" in str(done.exception)
