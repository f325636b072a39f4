"""`fedsrc label` as a site's operator meets it: page, files, closing, agreement; refusals say what to do.

Mutants killed: a file that goes to another round's answers, labels that count twice, a page without its secret, a
closed round that still waits, texts of another answer, counts of what is left on the terminal.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from contextlib import closing
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import polars as pl
import pytest
from click.testing import CliRunner

from fedsrc.cli.label import ENDED, NEXT, looking
from fedsrc.cli.main import cli
from fedsrc.common import signing
from fedsrc.common.clock import utc_now
from fedsrc.common.places import labels_beside, ledger_beside
from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import certify_table
from fedsrc.protocol.registration import Registration
from fedsrc.records.columns import ORDER
from fedsrc.records.table import read_records
from fedsrc.site.label_file import Label, LabelFile, read_labels
from fedsrc.site.ledger import Ledger
from fedsrc.site.rounds import NotYetError, Round, open_rounds
from tests.support.helpers import registration, table

UNNAMED = {**{f"{name}_column": None for name in ORDER}, "score_scale": None, "unsupported": (), "supported": ()}
KEY = Key.from_private_bytes(b"l" * 32)


def registered(**how: object) -> Registration:
    fields = registration(epsilon=8.0, batch=40, rounds=2, policy="final", thresholds=3, grid=True).model_dump()
    return Registration.model_validate({**fields, "labelling": {"kind": "on demand", **how}})


def certify(path: Path, reg: Registration) -> None:
    records = read_records(path, labels="on demand")
    certify_table(reg, records, path.parent / "run", ledger_beside(path), KEY, labels=labels_beside(path))


def rounds(path: Path) -> list[Round]:
    with closing(Ledger(ledger_beside(path))) as ledger:
        return open_rounds(ledger, read_records(path, labels="on demand"))


def log(folder: Path, *, texts: bool = True, ids: bool = True, **how: object) -> Path:
    """A log without labels whose first round is open."""
    path, scores = folder / "log.csv", table(120).score.round(4)
    columns = {"id": [f"a{i}" for i in range(120)]} if ids else {}
    columns |= {name: [f"{name} of {i}" for i in range(120)] for name in ("question", "evidence", "response") if texts}
    pl.DataFrame({**columns, "score": scores}).write_csv(path)
    with pytest.raises(NotYetError):
        certify(path, registered(**how))
    return path


def label(path: Path, *more: object) -> str:
    """Run the command in this process; its errors are raised."""
    done = CliRunner().invoke(cli, ["label", str(path), *map(str, more)], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


def filled(path: Path, word: str = "supported", by: str = "ada") -> None:
    rows = pl.read_csv(path, infer_schema=False)
    rows.with_columns(label=pl.lit(word), by=pl.lit(by)).write_csv(path)


def posted(url: str, asked: str, **fields: str) -> dict[str, str]:
    headers = {"Origin": f"http://{urlsplit(url).netloc}"}
    request = urllib.request.Request(url + asked, json.dumps(fields).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as found:
        return json.load(found)  # type: ignore[no-any-return]


def test_by_file_from_round_to_round(tmp_path: Path) -> None:
    path = log(tmp_path)
    (first,) = rounds(path)
    for number in (1, 2):
        tasks = tmp_path / f"tasks-{number}.csv"
        needed = rounds(path)[0].needed
        assert str(len(needed)) not in label(path, "--export", tasks).replace(str(tmp_path), "")
        assert sorted(pl.read_csv(tasks)["id"]) == sorted(needed)
        filled(tasks)
        assert label(path, "--import", tasks) == f"Took {len(needed)} labels from {tasks}.\n"
        assert f"Took 0 labels from {tasks}; {len(needed)} were known" in label(path, "--import", tasks)
        if number == 1:
            with pytest.raises(NotYetError, match="round 2 waits"):
                certify(path, registered())
            filled(tasks)
            with pytest.raises(FedsrcError, match=r"tasks-1.csv line 2: answer '.*' is not in the open round"):
                label(path, "--import", tasks)
    certify(path, registered())
    with pytest.raises(FedsrcError, match="no round of this table waits for labels"):
        label(path)
    shown = {each.answer: each.shown for each in read_labels(labels_beside(path))}
    assert set(first.needed) < set(shown)
    assert len(set(shown.values())) == len(shown)


def test_through_the_page(tmp_path: Path) -> None:
    path = log(tmp_path)
    command = [sys.executable, "-m", "fedsrc.cli", "label", str(path), "--port", "0", "--by", "ada"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().split()[2]
        first = posted(url, "ask")
        screen = posted(url, "label", word="unsure", **{name: first[name] for name in ("answer", "shown", "head")})
    finally:
        process.terminate()
        process.communicate()
    assert process.returncode == 0
    (word,) = read_labels(labels_beside(path))
    assert (word.by, word.loss) == ("ada", None)
    assert screen["evidence"] == f"evidence of {screen['answer'].removeprefix('a')}"
    assert (tmp_path / "log.csv.labels.secret").read_text() in url


@pytest.mark.parametrize("in_order", [False, True])
def test_the_run_looks_whenever_a_round_is_labelled(tmp_path: Path, in_order: bool) -> None:
    """Without -o, or in the folder of another run, nothing is looked at; what a look showed is never said."""
    path, reg, key = tmp_path / "log.csv", registered(), tmp_path / "server.key"
    pl.DataFrame({"id": [f"a{i}" for i in range(120)], "score": [0.9, 0.1, 0.6] * 40}).write_csv(path)
    records, ledger, labels = read_records(path, labels="on demand"), ledger_beside(path), labels_beside(path)
    given: dict[str, object] = {"key": key, "missing": "keep", **UNNAMED}
    signer = signing.load_or_make(key)
    with pytest.raises(NotYetError):
        certify_table(reg, records, tmp_path / "run", ledger, signer, labels=labels, in_order=in_order)
    elsewhere = looking(path, partial(rounds, path), tmp_path / "other", ledger, given)
    look = looking(path, partial(rounds, path), tmp_path / "run", ledger, given)
    said = []
    for _ in range(2):
        (now,) = rounds(path)
        with closing(LabelFile(labels_beside(path))) as file:
            for name in now.needed:
                file.add(Label(answer=name, loss=0.0, by="ada", at=utc_now(), shown="0" * 64, round=now.request.digest))
        assert elsewhere() == f"This round is labelled. {NEXT}"
        assert rounds(path) == [now]
        said.append(look())
    assert said[0] == f"This round is labelled. {NEXT}"
    assert said[1] in ENDED.values()
    assert not rounds(path)


def test_closed_by_its_operator(tmp_path: Path) -> None:
    path = log(tmp_path, texts=False)
    assert label(path, "--close").startswith("Closed: what has no label counts as unsupported.")
    assert rounds(path)[0].closed
    with pytest.raises(NotYetError, match="round 2 waits"):
        certify(path, registered())


def test_agreement_is_shown_at_the_site(tmp_path: Path) -> None:
    path = log(tmp_path, twice=1.0)
    assert label(path, "--agreement") == "No answer was labelled by two people.\n"
    for by in ("ada", "ben"):
        tasks = tmp_path / f"{by}.jsonl"
        label(path, "--export", tasks, "--by", by)
        rows = [json.loads(line) for line in tasks.read_text().splitlines()]
        words = ["unsupported" if by == "ben" and i == 0 else "supported" for i, _ in enumerate(rows)]
        made = [json.dumps({**row, "label": word}) for row, word in zip(rows, words, strict=True)]
        tasks.write_text("\n".join(made))
        label(path, "--import", tasks, "--by", by)
    many = len(rows)
    said = f"Two people labelled {many} answers and agree on {many - 1} ({(many - 1) / many:.1%})."
    assert label(path, "--agreement").splitlines()[0] == said


def test_texts_from_a_file_of_answers(tmp_path: Path) -> None:
    path, answers, tasks = log(tmp_path, texts=False), tmp_path / "answers.jsonl", tmp_path / "tasks.json"
    with pytest.raises(FedsrcError, match="no column 'evidence', so there is nothing to show"):
        label(path, "--export", tasks)
    rows = [{"id": f"a{i}", "evidence": f"e{i}", "response": f"r{i}"} for i in range(120)]
    answers.write_text("\n".join(map(json.dumps, rows)))
    assert "tasks.xml is Label Studio's labelling configuration" in label(path, "--export", tasks, "--answers", answers)
    data = [task["data"] for task in json.loads(tasks.read_text())]
    assert {row["id"]: row["evidence"] for row in data} == {name: f"e{name[1:]}" for name in rounds(path)[0].needed}
    answers.write_text(json.dumps(rows[0]))
    tasks.unlink()
    with pytest.raises(FedsrcError, match=r"answers.jsonl: there is no answer 'a"):
        label(path, "--export", tasks, "--answers", answers)


def test_a_table_without_ids_names_its_rows(tmp_path: Path) -> None:
    path, tasks = log(tmp_path, ids=False), tmp_path / "tasks.csv"
    label(path, "--export", tasks)
    for row in pl.read_csv(tasks).iter_rows(named=True):
        assert row["evidence"] == f"evidence of {int(row['id'].removeprefix('row ')) - 1}"


def test_one_thing_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(FedsrcError, match="one at a time"):
        label(tmp_path / "t.csv", "--close", "--agreement")


def test_site_status_shows_open_rounds(tmp_path: Path) -> None:
    """When a round is answered, by how it ends; and what to do where something is open."""
    path = log(tmp_path)
    said = CliRunner().invoke(cli, ["site-status", str(ledger_beside(path))]).output
    assert "nothing released, 40 spent, 50 units left" in said
    assert re.search(r"round 1 is open since .*: 40 records are spent; it is answered once all", said)
    assert said.endswith(f"Next: fedsrc label {path}, for what is open\n")
    label(path, "--close")
    said = CliRunner().invoke(cli, ["site-status", str(ledger_beside(path))]).output
    assert re.search(r"round 1 is closed, and was opened .*; it is answered when it is asked again", said)
    (tmp_path / "timed").mkdir()
    timed = log(tmp_path / "timed", hours=2.0)
    book = ledger_beside(timed).rename(tmp_path / "own.ledger")
    said = CliRunner().invoke(cli, ["site-status", str(book)]).output
    assert re.search(r"it is answered at [-\d]+ [\d:]+ UTC, with the labels", said)
    with pytest.raises(FedsrcError, match=r"the round is answered at .* UTC, and not before"):
        label(timed, "--close", "--ledger", book)
    assert said.endswith(f"Next: fedsrc label TABLE --ledger {book}, for what is open\n")


def test_what_comes_next_reads_the_table_as_it_was_read(tmp_path: Path) -> None:
    """The commands that are printed name its columns and its ledger, and work."""
    path, book, run = tmp_path / "log.csv", tmp_path / "site.ledger", tmp_path / "run"
    given = ["--score-column", "grounding", "--ledger", book, "--key", tmp_path / "key"]
    columns = {name: [f"{name} of {i}" for i in range(400)] for name in ("evidence", "response")}
    pl.DataFrame({**columns, "grounding": table(400).score.round(4)}).write_csv(path)
    aims = ["certify", path, "--labels", "on-demand", "--target", 0.2, "--epsilon", 8, *given, "-o", run]
    said = CliRunner().invoke(cli, [str(each) for each in aims]).stdout
    asked = f"fedsrc label {path} --ledger {book} --score-column grounding"
    assert f"Next: {asked} -o {run} (or" in said
    assert f"Next: {asked} --import {tmp_path / 't.csv'}, once" in label(
        path, *given[:4], "--export", tmp_path / "t.csv"
    )
