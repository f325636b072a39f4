"""The face: one call from a file, a frame or arrays to a run, and what a person does with it.

The table separates supported from unsupported answers by a wide margin, so that every run with noise here certifies:
log-wealth passes its line with fewer than half of the records in each of 1,000 simulated runs.

Mutants killed: a frame that is released twice, a ledger that knows a frame by its object, a run in a folder that goes
away, the run of one table given out for another, releases of another table under the same registration, an option of
the command line that the face lacks, a submodule that hides a function, a card whose styles leak, a chart that needs
its page.
"""

from __future__ import annotations

import doctest
import html
import inspect
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_type_hints

import click
import numpy as np
import polars as pl
import pytest

import fedsrc
from fedsrc import face
from fedsrc.cli.certify import certify_command
from fedsrc.cli.main import cli
from fedsrc.cli.register import register_command
from fedsrc.cli.streams import flag
from fedsrc.common.signing import load_or_make, public_hex
from fedsrc.planning.plan import Wish
from fedsrc.protocol.messages import START
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.protocol.transcript import Arrived, Chain, Ended, read_transcript
from fedsrc.records.memory import as_frame
from fedsrc.report import charts
from fedsrc.server.state import Replay
from fedsrc.site.ledger import Ledger
from tests.support import ROOT, palette

NO_PRIVACY = float("inf")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user whose state and keys are here."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def frame(seed: int = 0, rows: int = 2_000) -> pl.DataFrame:
    draw = np.random.default_rng(seed)
    loss = (draw.random(rows) < 0.3).astype(np.int64)
    return pl.DataFrame({"score": np.clip(draw.normal(0.75 - 0.4 * loss, 0.1), 0, 1), "loss": loss})


def spent(ledger: Path) -> int:
    book = Ledger(ledger, must_exist=True)
    try:
        return sum(account.spent for account in book.accounts("local"))
    finally:
        book.close()


def test_one_call_from_a_frame(home: Path) -> None:
    run = fedsrc.certify(frame(), target=0.2, epsilon=4)
    found = run.certificate
    assert found.status == "CERTIFIED"
    assert found.threshold is not None
    assert found.risk_at_most is not None
    assert found.acceptance_at_least is not None
    assert found.risk_at_most <= 0.2
    assert found.acceptance_at_least >= 0.05
    assert (found.privacy.epsilon, run.registration.privacy.epsilon) == (4, 4)
    assert run.folder.is_relative_to(home / "fedsrc" / "runs")
    assert fedsrc.verify(run.folder).certificate == found
    assert spent(home / "fedsrc" / "ledger.db") == found.records
    assert (home / "fedsrc").stat().st_mode & 0o077 == 0


def test_again_is_the_same_run_and_releases_nothing(home: Path, tmp_path: Path) -> None:
    table = frame()
    run = fedsrc.certify(table, target=0.2, epsilon=4)
    before = spent(home / "fedsrc" / "ledger.db")
    assert fedsrc.certify(table.clone(), target=0.2, epsilon=4) == run
    elsewhere = fedsrc.certify(table.lazy(), target=0.2, epsilon=4, output=tmp_path / "elsewhere")
    assert elsewhere.certificate == run.certificate
    assert spent(home / "fedsrc" / "ledger.db") == before


def test_what_is_left_goes_to_another_target_and_then_nothing_is(home: Path) -> None:
    table = frame()
    first = fedsrc.certify(table, target=0.2, epsilon=4, policy="final").certificate
    with pytest.raises(fedsrc.FedsrcError, match="every unit of this table has been released before"):
        fedsrc.certify(table, target=0.1, epsilon=4)
    assert spent(home / "fedsrc" / "ledger.db") == first.records


SAME: dict[str, Callable[[pl.DataFrame], tuple[Any, ...]]] = {
    "lazy": lambda table: (table.lazy(),),
    "mapping": lambda table: (table.to_dict(as_series=False),),
    "arrays": lambda table: (table["score"].to_numpy(), table["loss"].to_numpy()),
    "lists": lambda table: (table["score"].to_list(), table["loss"].to_list()),
    "series": lambda table: (table["score"], table["loss"]),
    "booleans": lambda table: (table["score"], table["loss"] == 1),
    "columns in another order": lambda table: (table.select("loss", "score"),),
    "a view": lambda table: (np.repeat(table["score"].to_numpy(), 2)[::2], table["loss"].to_numpy()[::-1][::-1]),
    "text": lambda table: (table.with_columns(pl.col("score").map_elements(repr, return_dtype=pl.String)),),
}


@pytest.mark.parametrize("kind", SAME)
def test_a_table_is_known_by_its_content(kind: str) -> None:
    table = frame()
    run = fedsrc.certify(table, target=0.2, epsilon=4)
    assert fedsrc.certify(*SAME[kind](table), target=0.2, epsilon=4) == run


def test_frames_of_other_libraries() -> None:
    """Through the Arrow interface, and, where pandas is installed, through pandas itself."""
    table = frame()
    run = fedsrc.certify(table, target=0.2, epsilon=4)
    wrapped = pytest.importorskip("narwhals").from_native(table)
    assert fedsrc.certify(wrapped, target=0.2, epsilon=4) == run
    pandas = pytest.importorskip("pandas")
    again = pandas.DataFrame({"score": table["score"].to_numpy(), "loss": table["loss"].to_numpy()})
    assert fedsrc.certify(again, target=0.2, epsilon=4) == run
    assert fedsrc.certify(again["score"], again["loss"], target=0.2, epsilon=4) == run
    text = pandas.DataFrame(
        {"score": [0.5, None], "loss": [1, 0], "note": ["a", None], "n": [2**60, None]}, dtype=object
    )
    assert as_frame(text).to_dict(as_series=False) == {
        "score": [0.5, None], "loss": [1, 0], "note": ["a", None], "n": [2**60, None],
    }  # fmt: skip
    with pytest.raises(fedsrc.FedsrcError, match="row 2: score is missing or NaN"):
        fedsrc.certify(text, target=0.2, epsilon=4)


@pytest.mark.parametrize(
    "other",
    [
        lambda table: table[::2],
        lambda table: table.sample(fraction=1.0, shuffle=True, seed=1),
        lambda table: table.with_columns(pl.lit("x").alias("note")),
        lambda table: table.vstack(frame(9)),
    ],
    ids=["part", "shuffled", "one more column", "grown"],
)
def test_rows_that_were_released_are_known_in_another_table(other: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    table = frame()
    fedsrc.certify(table, target=0.2, epsilon=4)
    with pytest.raises(fedsrc.FedsrcError, match=r"`fresh=True`"):
        fedsrc.certify(other(table), target=0.2, epsilon=4)


@pytest.mark.parametrize(
    ("column", "first", "second", "unit"),
    [
        ("site", "{:d}", "{:d} ", None),
        ("site", "{:d}", "0{:d}", None),
        ("site", "é{:d}", "e\u0301{:d}", None),
        ("source", "{:d}", "{:05d}", "source"),
        ("id", "{:d}", "{:d}.0", None),
    ],
)
def test_a_table_whose_names_are_spelled_otherwise_is_not_the_same_table(
    column: str, first: str, second: str, unit: Any
) -> None:
    """Cells count by value, but units and sites are told apart by their names: the same cells, other units."""
    table, many = frame(), 2 if column == "site" else 2_000
    one, two = (
        table.with_columns(pl.Series(column, [words.format(i % many) for i in range(table.height)]))
        for words in (first, second)
    )
    options: dict[str, Any] = {} if unit is None else {"unit": unit}
    fedsrc.certify(one, target=0.2, epsilon=4, **options)
    with pytest.raises(fedsrc.FedsrcError, match=r"rows are also in an earlier table|is in another table too"):
        fedsrc.certify(two, target=0.2, epsilon=4, **options)


def test_without_privacy_a_table_has_a_ledger_of_its_own(home: Path) -> None:
    table = frame()
    run = fedsrc.certify(table, target=0.2, epsilon=NO_PRIVACY, certificate="plain", policy="first")
    assert run.certificate.status == "CERTIFIED"
    assert fedsrc.certify(table, target=0.2, epsilon=NO_PRIVACY, certificate="plain", policy="first") == run
    (ledger,) = (home / "fedsrc" / "without-privacy").iterdir()
    assert spent(ledger) == run.certificate.records
    assert not (home / "fedsrc" / "ledger.db").exists()
    second = fedsrc.certify(table, target=0.15, epsilon=NO_PRIVACY)
    assert second.certificate.tries == 2
    assert fedsrc.certify(table, target=0.2, epsilon=4).certificate.status == "CERTIFIED"


def test_a_named_ledger_and_folder(home: Path) -> None:
    run = fedsrc.certify(frame(), target=0.2, epsilon=4, ledger="mine.ledger", output="run", key="mine.key")
    assert run.folder == Path("run")
    assert spent(Path("mine.ledger")) == run.certificate.records
    assert run.certificate.key == public_hex(load_or_make(Path("mine.key")))
    assert not home.exists()


def test_nowhere_to_keep_a_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("file").absolute()))
    with pytest.raises(fedsrc.FedsrcError, match="name both with `ledger=` and `output=`"):
        fedsrc.certify(frame(), target=0.2, epsilon=4)
    assert fedsrc.certify(frame(), target=0.2, epsilon=4, ledger="l", output="run").certificate.status == "CERTIFIED"


def test_sources_and_sites_of_a_frame() -> None:
    table = frame().with_columns(question=pl.int_range(pl.len()) // 2, site=pl.lit("north"))
    with pytest.raises(fedsrc.FedsrcError, match=r"`source_column='question'` `unit='source'` makes it the unit"):
        fedsrc.certify(table, target=0.2, epsilon=4)
    run = fedsrc.certify(table, target=0.2, epsilon=4, unit="source", source_column="question", weights={"north": 1})
    assert run.certificate.privacy.unit == "source"
    assert [site.name for site in run.certificate.sites] == ["north"]


def test_a_file_is_certified_as_on_the_command_line(home: Path) -> None:
    frame().write_csv("table.csv")
    run = fedsrc.certify("table.csv", target=0.2, epsilon=4, output="run")
    assert spent(Path("table.csv.ledger")) == run.certificate.records
    assert not (home / "fedsrc" / "ledger.db").exists()
    with pytest.raises(SystemExit) as left:
        cli(["certify", "table.csv", "--target", "0.2", "--epsilon", "4", "-o", "run"], standalone_mode=False)
    assert left.value.code == 0
    assert fedsrc.Run.open("run") == run
    assert spent(Path("table.csv.ledger")) == run.certificate.records


def test_the_run_of_one_table_is_not_given_out_for_another() -> None:
    """On a public grid two tables have one registration: neither folder nor ledger may mix them up."""
    first = fedsrc.certify(frame(1), target=0.2, epsilon=4, grid=True, output="run")
    with pytest.raises(fedsrc.FedsrcError, match="holds a run of this registration on other records"):
        fedsrc.certify(frame(2), target=0.2, epsilon=4, grid=True, output="run")
    with pytest.raises(fedsrc.FedsrcError, match="same registration was run on another table"):
        fedsrc.certify(frame(2), target=0.2, epsilon=4, grid=True)
    other = fedsrc.certify(frame(2), target=0.2, epsilon=4, grid=True, claim={"population": "the second table"})
    assert other.certificate.transcript != first.certificate.transcript
    assert fedsrc.certify(frame(1), target=0.2, epsilon=4, grid=True).certificate == first.certificate


def test_a_forged_transcript_is_not_signed() -> None:
    """Whoever can write to the folder, but has no key: the ledger knows what was released."""
    hopeless = frame().with_columns(loss=pl.lit(1).cast(pl.Int64))
    run = fedsrc.certify(hopeless, target=0.2, epsilon=4, grid=True)
    assert run.certificate.status == "ABSTAIN"
    path = run.folder / TRANSCRIPT
    entries, _ = read_transcript(path)
    replay, chain, text, before = Replay(run.registration), Chain(), b"", START
    for written in entries:
        entry = written
        if isinstance(written, Arrived):
            said = written.release
            best = tuple(a + b for a, b in zip(said.first, said.second, strict=True))
            lie = said.model_copy(update={"first": best, "second": (0,) * len(best), "before": before})
            entry, before = Arrived(release=lie), lie.digest
        replay.step(entry)
        line, chain = chain.line(entry)
        text += line
        if replay.why_over() == "certified":
            break
    path.write_bytes(text + chain.line(Ended(reason="certified"))[0])
    (run.folder / CERTIFICATE).unlink()
    with pytest.raises(fedsrc.FedsrcError, match="does not hold the release that site 'local' made for request 1"):
        fedsrc.certify(hopeless, target=0.2, epsilon=4, grid=True)
    assert not (run.folder / CERTIFICATE).exists()
    again = fedsrc.certify(hopeless, target=0.2, epsilon=4, grid=True, output="elsewhere")
    assert again.certificate == run.certificate


def test_without_the_key_of_a_site_nothing_is_begun() -> None:
    """Its unsigned word, once it is in the transcript, would keep the run from ever being played."""
    public = public_hex(load_or_make(Path("site.key")))
    registered = fedsrc.register(target=0.2, epsilon=4, grid=True, sites=["local"], site_keys={"local": public})
    load_or_make(Path("other.key"))
    for wrong in ({}, {"local": "other.key"}):
        with pytest.raises(fedsrc.FedsrcError, match="needs the private key of its registered public key"):
            fedsrc.certify(frame(), registration=registered, output="run", sign_with=wrong)
        assert not Path("run").exists()
    run = fedsrc.certify(frame(), registration=registered, output="run", sign_with={"local": "site.key"})
    assert run.certificate.status == "CERTIFIED"


def test_an_interrupted_run_is_resumed(home: Path) -> None:
    run = fedsrc.certify(frame(), target=0.1, epsilon=4, batch=50)
    place = run.folder / TRANSCRIPT
    lines = place.read_bytes().splitlines(keepends=True)
    place.write_bytes(b"".join(lines[: len(lines) // 2]))
    before = spent(home / "fedsrc" / "ledger.db")
    assert fedsrc.certify(frame(), target=0.1, epsilon=4, batch=50) == run
    assert spent(home / "fedsrc" / "ledger.db") == before


GOOD = {"target": 0.2, "epsilon": 4}
REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "NaN": ((frame().with_columns(pl.lit(float("nan")).alias("score")),), GOOD, "row 1: score is missing or NaN"),
    "outside": (([0.5, 2], [0, 1]), GOOD, r"row 2: score 2 is outside \[0, 1\]"),
    "words": ((["high", "low"], [0, 1]), GOOD, "row 1: score 'high' is not a number"),
    "lengths": (([0.5, 0.2], [0]), GOOD, "there are 2 scores and 1 losses"),
    "empty": (([], []), GOOD, "the table has no rows"),
    "two dimensions": ((np.ones((2, 2)), [0, 1]), GOOD, r"shape \(2, 2\)"),
    "ragged": (([[1], [1, 2]], [0, 1]), GOOD, "is not an array"),
    "one number": ((0.5, [1]), GOOD, "the score is a float, not an array"),
    "generator": (((x for x in [0.5]), [1]), GOOD, "the score is a generator, not an array"),
    "scores alone": ((np.ones(3),), GOOD, "a ndarray alone is no table"),
    "table and losses": ((frame(), [0, 1]), GOOD, "a table holds its own losses"),
    "a frame for losses": (([0.5], frame()), GOOD, "the loss is a DataFrame, not an array"),
    "lazy": ((frame().lazy().select("nowhere"),), GOOD, "a LazyFrame cannot be read as a table"),
    "no file": (("nowhere.csv",), GOOD, "nowhere.csv: there is no such file"),
    "no column": ((frame().rename({"loss": "Losss"}),), GOOD, r"is it 'Losss'\? `loss_column='Losss'`"),
    "no scale": ((frame(),), {**GOOD, "score_scale": "100"}, "'100' is not WORST:BEST"),
    "no target": ((frame(),), {"epsilon": 4}, "`target=` is needed"),
    "no epsilon": ((frame(),), {"target": 0.2}, "`epsilon=` is needed"),
    "target in percent": ((frame(),), {**GOOD, "target": 20}, "`target=` 20 is not between 0 and 1"),
    "target NaN": ((frame(),), {**GOOD, "target": float("nan")}, "`target=` nan is not between"),
    "epsilon zero": ((frame(),), {**GOOD, "epsilon": 0}, "`epsilon=` 0 is not positive"),
    "a word": ((frame(),), {**GOOD, "epsilon": "some"}, "epsilon: Input should be a valid number"),
    "no thresholds": ((frame(),), {**GOOD, "thresholds": 0}, "`thresholds=` 0 is not at least 1"),
    "policy": ((frame(),), {**GOOD, "policy": "best"}, "policy"),
    "method": ((frame(),), {**GOOD, "method": "ratio"}, "`method=` belongs to `preset='paper'`"),
    "site": ((frame(),), {**GOOD, "weights": {"north": 1}}, "'north' is not a site"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_spends_nothing(kind: str, home: Path) -> None:
    given, named, words = REFUSED[kind]
    with pytest.raises(fedsrc.FedsrcError, match=words):
        fedsrc.certify(*given, **named)
    assert not (home / "fedsrc" / "ledger.db").exists() or not spent(home / "fedsrc" / "ledger.db")


def test_an_argument_that_is_none() -> None:
    calls: list[Callable[..., object]] = [fedsrc.certify, fedsrc.register, fedsrc.forecast]
    for call in calls:
        with pytest.raises(TypeError, match="unexpected keyword argument 'threshold'"):
            call(frame(), target=0.2, epsilon=4, threshold=3)


def test_columns_by_name() -> None:
    table = frame().rename({"score": "s", "loss": "l"})
    run = fedsrc.certify(table, target=0.2, epsilon=4, score_column="s", loss_column="l", unsupported="1")
    columns = fedsrc.Columns(score="s", loss="l", unsupported=("1",))
    assert fedsrc.certify(table, target=0.2, epsilon=4, columns=columns) == run
    with pytest.raises(fedsrc.FedsrcError, match="'l' does not say whether 1"):
        fedsrc.certify(table, target=0.2, epsilon=4, score_column="s", loss_column="l")


def test_scores_that_are_the_wrong_way_round() -> None:
    """Nothing is spent before the one who knows has said which are good."""
    turned = frame().with_columns((1 - pl.col("score")).alias("score"))
    with pytest.raises(fedsrc.FedsrcError, match="are score and labels the right way round"):
        fedsrc.certify(turned, target=0.2, epsilon=4)
    with pytest.warns(UserWarning, match="are score and labels the right way round"):
        fedsrc.certify(turned, target=0.2, epsilon=4, score_scale="0:1", output="as-said")
    percent = turned.with_columns(pl.col("score") * 100)
    run = fedsrc.certify(percent, target=0.2, epsilon=4, score_scale="100:0", ledger="own.ledger", output="turned")
    assert str(run.registration.claim.scale) == "100:0"
    assert run.certificate.status == "CERTIFIED"


def test_a_table_under_names_of_its_own_is_read_where_that_is_certain() -> None:
    words = pl.when(pl.col("loss") == 1).then(pl.lit("Hallucinated")).otherwise(pl.lit("supported"))
    table = frame().select((pl.col("score") * 100).alias("Grounding"), words.alias("label"))
    run = fedsrc.certify(table, target=0.2, epsilon=4)
    claim = run.registration.claim
    assert (claim.column, claim.score, str(claim.scale)) == ("Grounding", "Grounding", "0:100")
    with pytest.raises(fedsrc.FedsrcError, match="the registered score is 'Grounding', not 'other'"):
        fedsrc.certify(table.rename({"Grounding": "other"}), registration=run.registration, score_column="other")


def test_register_and_then_certify_and_renew() -> None:
    registered = fedsrc.register(frame(1), target=0.2, epsilon=4, output="registration.toml")
    assert fedsrc.Registration.read(Path("registration.toml")) == registered
    with pytest.raises(fedsrc.FedsrcError, match="exists already"):
        fedsrc.register(frame(2), target=0.2, epsilon=4, output="registration.toml")
    run = fedsrc.certify(frame(2), registration="registration.toml", output="run")
    assert fedsrc.certify(frame(2), registration=registered) == fedsrc.Run(
        fedsrc.certify(frame(2), registration=registered).folder, registered, run.certificate
    )
    with pytest.raises(fedsrc.FedsrcError, match="`target=` is fixed by the registration"):
        fedsrc.certify(frame(2), registration=registered, target=0.2)
    with pytest.raises(fedsrc.FedsrcError, match="cannot calibrate"):
        fedsrc.certify(frame(1), registration=registered)
    again = fedsrc.register(renew="run", validity_days=30)
    assert again.renews == run.certificate.digest
    with pytest.raises(fedsrc.FedsrcError, match="`epsilon=` is fixed by the certificate"):
        fedsrc.register(renew="run", epsilon=2)


def test_a_forecast_spends_nothing(home: Path) -> None:
    found = fedsrc.forecast(frame(), target=0.2, epsilon=4)
    assert found.records is not None
    assert (found.target_risk, found.epsilon) == (0.2, 4)
    registered = fedsrc.register(target=0.2, epsilon=4, grid=True, sites=["local"])
    assert fedsrc.forecast(frame(), registration=registered).epsilon == 4
    assert fedsrc.forecast(acceptance=0.4, risk=0.1, registration=registered, epsilon=2).epsilon == 2
    with pytest.raises(fedsrc.FedsrcError, match="give either a table, or both"):
        fedsrc.forecast(frame(), acceptance=0.4, risk=0.1, target=0.2, epsilon=4)
    assert not home.exists()


class Shown(HTMLParser):
    """The elements of a page, as a browser sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_a_run_in_a_notebook() -> None:
    run = fedsrc.certify(frame(), target=0.2, epsilon=4, output="run")
    assert repr(run).startswith("Run(CERTIFIED: score >= ")
    assert "\n" not in repr(run)
    assert str(run).startswith(run.certificate.statement)
    shown = Shown()
    shown.feed(run._repr_html_())
    ((tag, attributes),) = shown.tags  # one frame: whatever stands in it stays in it
    assert tag == "iframe"
    assert attributes.keys() == {"title", "sandbox", "srcdoc", "style"}
    inside = attributes["srcdoc"] or ""
    assert html.escape(run.certificate.statement) in inside
    assert palette.STYLE.read_text() in inside
    assert "<script" not in inside
    assert "http" not in inside.replace("http-equiv", "")


def test_a_chart_stands_alone() -> None:
    run = fedsrc.certify(frame(), target=0.2, epsilon=4, output="run")
    for chart in (run.plot(), run.plot("evidence")):
        root = ET.fromstring(chart._repr_svg_())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in chart.svg
        chart.save("chart.svg")
        assert Path("chart.svg").read_text(encoding="utf-8") == chart.svg
    by_day = palette.STYLE.read_text().splitlines()[0]
    for name, colour in charts.ON_PAPER.items():
        assert f"--{name}: {colour};" in by_day


def test_an_abstention_is_a_run_too() -> None:
    run = fedsrc.certify(frame(rows=150), target=0.01, epsilon=1)
    assert run.certificate.status == "ABSTAIN"
    assert run.certificate.threshold is None
    assert repr(run).startswith("Run(ABSTAIN: nothing is certified for target risk 0.01; ")
    with pytest.raises(fedsrc.FedsrcError, match="certifies nothing"):
        run.gate(trusted=[str(run.certificate.key)])


def test_verify_and_gate_by_strings() -> None:
    run = fedsrc.certify(frame(), target=0.2, epsilon=4, output="run")
    key = str(run.certificate.key)
    for trusted in ([key], (key,), key):
        assert fedsrc.verify("run/", trusted=trusted).trusted
        assert run.verify(trusted=trusted).trusted
        assert run.gate(trusted=trusted, claim={"target_risk": 0.2}).accept(1.0)
    with pytest.raises(fedsrc.FedsrcError, match="not trusted"):
        fedsrc.verify("run/", trusted=["0" * 64])
    (run.folder / "certificate.json").write_text(run.certificate.text.replace("0.2", "0.1", 1))
    with pytest.raises(fedsrc.FedsrcError):
        fedsrc.Run.open("run")


def test_arguments_are_the_options_of_the_command_line() -> None:
    """Every long option of `certify` and `register`, but for those that only a terminal needs."""
    for call, command in ((fedsrc.certify, certify_command), (fedsrc.register, register_command)):
        parameters = [each for each in command.params if isinstance(each, click.Option)]
        options = {name for each in parameters for name in each.opts if name[:2] == "--"}
        known = {flag(name) for name in (*inspect.signature(call).parameters, *face.Options.__annotations__)}
        assert options - known == ({"--use-all", "--check", "--format"} if call is fedsrc.certify else {"--format"})


def test_options_are_the_choices() -> None:
    """Under the same names and of the same types, but for words that only some of may be said, and mask keys, which
    are named by their files."""
    hints, choices = get_type_hints(face.Options), get_type_hints(fedsrc.Choices) | get_type_hints(Wish)
    columns = face.READING
    names = hints.keys() - columns
    assert columns <= hints.keys()
    assert choices.keys() - names == {
        "target_risk", "epsilon", "independent", "exact_thresholds", "column", "scale", "group_column",
    }  # fmt: skip
    lists = {"mask_keys", "groups", "also_scores"}  # read into something else
    for name in names - {"method", "policy", "dropout", "answer_weight", "certificate"} - lists:
        assert choices[name] in (hints[name], hints[name] | None), name


def test_functions_are_not_hidden_by_modules() -> None:
    """Whatever was imported before."""
    code = """
import importlib, pkgutil, types, fedsrc
for each in pkgutil.walk_packages(fedsrc.__path__, "fedsrc."):
    try:
        importlib.import_module(each.name)
    except (ImportError, fedsrc.FedsrcError):
        pass  # an extra that is not there
    except SystemExit:
        pass
for name in fedsrc.__all__:
    assert not isinstance(getattr(fedsrc, name), types.ModuleType), name
for name in ("certify", "forecast", "register", "verify"):
    assert isinstance(getattr(fedsrc, name), types.FunctionType), name
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_reference_names_the_surface() -> None:
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^### `(\w+)`$", page, flags=re.MULTILINE)) == [x for x in fedsrc.__all__ if x[0] != "_"]


def test_examples_of_the_surface() -> None:
    """Every example in a docstring of the surface, and of its methods, on a table that is there."""
    frame().write_csv("table.csv")
    fedsrc.certify("table.csv", target=0.2, epsilon=4, output="run")
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    known = {"fedsrc": fedsrc, **{name: getattr(fedsrc, name) for name in fedsrc.__all__}}
    tests = [test for name in fedsrc.__all__ for test in finder.find(known[name], name, globs=known) if test.examples]
    assert {test.name for test in tests} >= {"certify", "register", "forecast", "verify", "Gate", "Run", "Run.gate"}
    for test in tests:
        assert runner.run(test).failed == 0, test.name


@pytest.mark.parametrize("name", ["certify", "register", "forecast", "verify"])
def test_functions_of_the_surface_are_documented_whole(name: str) -> None:
    call = getattr(fedsrc, name)
    text = inspect.getdoc(call) or ""
    for part in ("Args:", "Returns:", "Raises:", "Example:"):
        assert f"\n{part}\n" in text
    for parameter in inspect.signature(call).parameters:
        assert f"    {'**' if parameter == 'options' else ''}{parameter}: " in text, parameter
