"""The audit engine decides as the product does, and its tables are what its per-trial records say.

Chance of a false alarm: seeds are fixed, so none; where a count is compared with a probability, the limit is named.
Mutants killed: a miss not counted (wrong side of a bound, tolerance dropped, floor ignored), a ladder decided otherwise
than by the product, a verdict that looks ahead, the final policy read at the first certificate, blocks that depend on
how many run at once, a finished block run again, rows averaged over abstentions, an interval of the wrong denominator,
unpaired differences.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from fedsrc.audit import engine, study_folder
from fedsrc.audit.cell import Cell, build
from fedsrc.audit.events import happen
from fedsrc.audit.evidence import aim_of, facts_of, released
from fedsrc.audit.looks import looks
from fedsrc.audit.methods import METHODS
from fedsrc.audit.methods.setting import Aim, Evidence, Facts, Verdict, gather, misses, verdict
from fedsrc.audit.outcomes import Block, rows
from fedsrc.audit.study import Study
from fedsrc.audit.study_folder import Task, held, read_trials, source_digest
from fedsrc.audit.summary import bootstrap_weights, cells, compared, difference, heldout, summarise, summary
from fedsrc.cli.main import main
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.maths.basis import covariance
from fedsrc.protocol.registration import Registration
from fedsrc.server.bounds import Sample, look
from fedsrc.server.tally import Masses

STUDY = """
name = "small"
seed = 3
trials = 30
block = 10
methods = ["fed-src-c", "betting", "naive-yu-liu"]

[[populations]]
name = "L"
records = 586
unsupported = 0.41
auc = 0.8
about = "a surrogate"

[setting]
target_risk = 0.3
rounds = 6

[sweep]
epsilon = [inf, 1.0]
policy = ["final", "first"]
"""
NULL = """
name = "null"
trials = 400
methods = ["betting-ladder"]
populations = [{ name = "null", boundary = true }]
[setting]
release = "default"
epsilon = 4.0
rounds = 5
"""


def evidence_of(seed: int, *, declared: bool, sigma: float, eta: float, trials: int = 4) -> tuple[Evidence, Facts]:
    """Random evidence of 6 thresholds and 8 looks near the boundary, and the law's facts."""
    rng = np.random.default_rng(seed)
    bins = rng.dirichlet(np.full(7, 2.0))
    rate = np.sort(rng.random(7) * 0.8)[::-1]
    counts = rng.multinomial(150, bins, size=(trials, 8))
    wrong = rng.binomial(counts, rate)
    A, Z = (np.cumsum(np.cumsum(x[..., :0:-1], axis=-1)[..., ::-1], axis=1).astype(float) for x in (counts, wrong))
    noise = [np.cumsum(sigma * rng.standard_normal((trials, 8, 6)), axis=1) for _ in range(2)]
    v = np.broadcast_to(np.arange(1.0, 9)[:, None] * sigma**2, A.shape)
    a = np.cumsum(bins[:0:-1])[::-1]
    facts = Facts(a, np.cumsum((bins * rate)[:0:-1])[::-1] / a)
    records = np.broadcast_to(np.arange(1.0, 9) * 150, A.shape[:-1])
    seen = gather(
        A + noise[0], Z + noise[1], records, noise=covariance("paired", v), eta=eta, declared=declared,
        unit=sigma**2 or 1.0,
    )  # fmt: skip
    return seen, facts


def test_misses_are_false_certificates_and_bounds_on_the_wrong_side() -> None:
    """One look each: nothing wrong, then each way to be wrong, and an acceptance that a rule without floor ignores."""
    facts, aim = Facts(np.array([0.4]), np.array([0.25])), Aim(0.3, min_acceptance=0.1)
    right = {"certified": True, "risk_upper": 0.26, "contrast_upper": -0.01, "acceptance_lower": 0.39}
    changes: list[dict[str, float]] = [{}, {"risk_upper": 0.24}, {"contrast_upper": -0.03}, {"acceptance_lower": 0.41}]
    found = Verdict(**{name: np.array([[{**right, **each}[name]] for each in changes]) for name in right})
    assert misses(found, aim, facts).tolist() == [False, True, True, True]
    certified = verdict(np.array([[True], [False]]))
    assert misses(certified, aim, Facts(np.array([0.4]), np.array([0.31]))).tolist() == [True, False]
    rare = Facts(np.array([0.09]), np.array([0.25]))
    assert misses(certified, aim, rare).tolist() == [True, False]
    assert misses(certified, aim, rare, floor=False).tolist() == [False, False]
    assert misses(certified, aim, Facts(np.array([0.4]), np.array([0.3 + 1e-12]))).tolist() == [False, False]


def test_betting_certifies_and_misses_where_it_should() -> None:
    """Some looks certify and some do not; with facts moved beyond the bounds some miss and some do not."""
    found = [(METHODS["betting"].judge(seen, aim), aim, facts) for seen, aim, facts in map(_with_aim, range(12))]
    assert 0 < np.mean([each.certified for each, *_ in found]) < 1
    moved = [misses(each, aim, Facts(f.acceptance, np.clip(f.risk + 0.2, 0, 1))) for each, aim, f in found]
    assert 0 < np.mean(moved) < 1


def _with_aim(seed: int) -> tuple[Evidence, Aim, Facts]:
    seen, facts = evidence_of(seed, declared=True, sigma=1.0, eta=0.0)
    return seen, Aim(0.3), facts


@pytest.mark.parametrize("name", ["betting", "betting-tilted", "betting-ladder", "fed-src-c", "naive-csa-code"])
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([0.0, 3.0]))
def test_a_causal_verdict_needs_no_later_look(name: str, seed: int, declared: bool, sigma: float) -> None:
    """So where a trial stops, its bounds are read from the verdict of all looks."""
    seen, _ = evidence_of(seed, declared=declared, sigma=sigma, eta=0.0)
    whole = METHODS[name].judge(seen, Aim(0.3)).at((slice(None), 4))
    end = METHODS[name].conclude(seen.at((slice(None), slice(0, 5))), Aim(0.3))
    for field in ("certified", "risk_upper", "contrast_upper", "acceptance_lower"):
        np.testing.assert_allclose(getattr(end, field), getattr(whole, field), rtol=1e-9, atol=1e-9)


def test_every_method_but_one_is_causal() -> None:
    assert [name for name, method in METHODS.items() if not method.causal] == ["schedule-stitching"]


# ---------------------------------------------------------------- the product's decision


def product_registration(cell: Cell) -> Registration:
    """The cell's registration with the budgets an aim has: nothing for refusals."""
    fields = cell.registration.model_dump()
    fields["certificate"] |= {"risk_budget": 0.045, "acceptance_budget": 0.005, "refusal_budget": 0.0}
    return Registration.model_validate(fields)


@pytest.mark.parametrize("policy", ["first", "recruit"])
def test_the_ladder_method_is_the_product(policy: str) -> None:
    """Every look of every trial: the same risk bound and the same certificates as `certify.look` on the same sums."""
    text = NULL.replace("rounds = 5", f'rounds = 12\npolicy = "{policy}"').replace(
        '{ name = "null", boundary = true }',
        '{ name = "L", records = 586, unsupported = 0.41, auc = 0.85, about = "" }',
    )
    study = Study.from_toml(text)
    cell = build(study.settings[0], study.populations[0], seed=0, folder=Path())
    events = happen(cell, trials=6, seed=(0, 0))
    seen, registration = released(cell, events, seed=(0, 0)), product_registration(cell)
    found = METHODS["betting-ladder"].judge(seen, aim_of(registration))
    assert found.certified.any()
    assert not found.certified.all()
    for trial in range(6):
        before = None
        for t in range(events.slots.shape[1]):
            before = look(registration, _sample(seen, trial, t), before)
            np.testing.assert_array_equal(before.certified, found.certified[trial, t])
            np.testing.assert_array_equal(before.risk_upper, found.risk_upper[trial, t])
            np.testing.assert_allclose(before.acceptance_lower, found.acceptance_lower[trial, t], atol=2e-9)


def _sample(seen: Evidence, trial: int, t: int) -> Sample:
    one = seen.at((trial, t))
    return Sample(
        Masses(one.unsupported, one.supported, one.accepted, one.noise), int(one.records), float(one.eta)
    )  # fmt: skip


def test_false_certificates_at_the_boundary() -> None:
    """400 trials: more than 44 false certificates have probability below 1e-6 at 0.045; ignored drift gives more."""
    assert binom.sf(44, 400, 0.045) < 1e-6
    study = Study.from_toml(NULL.replace("epsilon = 4.0", "epsilon = 4.0\ndrift = 0.009\nbatch = 2000"))
    cell = build(study.settings[0], study.populations[0], seed=0, folder=Path())
    block = Block(cell, happen(cell, trials=400, seed=(0, 0)), (0, 0))
    found = rows(block, "first", ("betting-ladder", "betting", "betting-shift-ignored"), first=0)
    counts = {
        name: int(found.filter(pl.col("method") == name)["at_boundary"].sum()) for name in found["method"].unique()
    }
    assert counts["betting-ladder"] <= 44
    assert counts["betting"] <= 44
    assert counts["betting-shift-ignored"] > 300


# ---------------------------------------------------------------- running a study


def write(folder: Path, text: str = STUDY) -> Path:
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    engine.run_study(write(folder), folder / "out", jobs=2)
    return folder


def test_records_do_not_depend_on_how_many_run_at_once(ran: Path, tmp_path: Path) -> None:
    engine.run_study(ran / "study.toml", tmp_path / "alone", jobs=1)
    with engine.on("given"):
        engine.run_study(ran / "study.toml", tmp_path / "threads", jobs=2, backend="given")
    frames = [read_trials(folder)[1] for folder in (ran / "out", tmp_path / "alone", tmp_path / "threads")]
    assert frames[0].equals(frames[1])
    assert frames[0].equals(frames[2])


def test_a_stopped_study_goes_on(ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_trials(ran / "out")[1]
    engine.run_study(ran / "study.toml", tmp_path, jobs=1)
    lost = sorted((tmp_path / "blocks").iterdir())[1]
    lost.unlink()
    with pytest.raises(FedsrcError, match="1 blocks are missing"):
        read_trials(tmp_path)
    again: list[str] = []
    real = engine.run_task

    def noted(text: str, folder: str, task: Task, stamp: str) -> engine.Done:
        again.append(task.file)
        return real(text, folder, task, stamp)

    monkeypatch.setattr(engine, "run_task", noted)
    seen: list[engine.Progress] = []
    engine.run_study(ran / "study.toml", tmp_path, jobs=1, backend="given", progress=seen.append)
    assert again == [lost.name]
    assert [(each.done, each.of) for each in seen] == [(3, 3)]
    assert read_trials(tmp_path)[1].equals(whole)
    cost = json.loads((tmp_path / "manifest.json").read_text())["cost"]
    assert cost["blocks"] == 4


def test_other_code_is_another_study(ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_folder, "source_digest", lambda: "other")
    with pytest.raises(FedsrcError, match="another version of fedsrc"):
        engine.run_study(ran / "study.toml", ran / "out", jobs=1)


def test_the_code_is_every_module_and_every_embedded_table(tmp_path: Path) -> None:
    for file in ("a.py", "room/b.py", "data/t.parquet", "room/b.pyc"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("before")
    seen = set[str]()
    for file in ("a.py", "room/b.py", "data/t.parquet", "room/b.pyc"):
        (tmp_path / file).write_text("after")
        seen.add(source_digest.__wrapped__(tmp_path))
    assert len(seen) == 3


def test_one_run_at_a_time(ran: Path) -> None:
    with held(ran / "out"), pytest.raises(FedsrcError, match="another run"):
        engine.run_study(ran / "study.toml", ran / "out", jobs=1)


def test_another_study_in_the_folder_is_refused(ran: Path, tmp_path: Path) -> None:
    other = write(tmp_path, STUDY.replace("seed = 3", "seed = 4"))
    with pytest.raises(FedsrcError, match="another study"):
        engine.run_study(other, ran / "out", jobs=1)
    with pytest.raises(FedsrcError, match="holds no study"):
        read_trials(tmp_path / "nothing")


def test_other_tables_are_another_study(tmp_path: Path) -> None:
    population = '[[populations]]\nname = "T"\ntable = "t.csv"\n'
    text = (
        STUDY[: STUDY.index("[[pop")]
        + population
        + STUDY[STUDY.index("[setting]") :].replace("rounds = 6", "rounds = 1")
    )
    path = write(tmp_path, text)
    with pytest.raises(FedsrcError, match="there is no table"):
        engine.run_study(path, tmp_path / "out", jobs=1)
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"score": rng.random(300), "loss": (rng.random(300) < 0.3).astype(float)})
    frame.write_csv(tmp_path / "t.csv")
    engine.run_study(path, tmp_path / "out", jobs=1)
    frame.with_columns(loss=pl.lit(0.0)).write_csv(tmp_path / "t.csv")
    with pytest.raises(FedsrcError, match="other tables"):
        engine.run_study(path, tmp_path / "out", jobs=1)
    engine.run_study(path, tmp_path / "new", jobs=1, backend="given")  # the table is read again, in this process too
    assert read_trials(tmp_path / "new")[1]["risk"].drop_nans().max() == 0


def test_policies_share_events_and_differ_in_when_they_decide(ran: Path) -> None:
    study, frame = read_trials(ran / "out")
    index = {(each.epsilon, each.policy): i for i, each in enumerate(study.settings)}
    here = frame.filter(pl.col("method") == "betting")
    final, first = (here.filter(pl.col("setting") == index[math.inf, policy]) for policy in ("final", "first"))
    assert (final["look"] == 6).all()
    assert first["look"].min() < 6  # type: ignore[operator]
    assert first["fired"].sum() >= final["fired"].sum() > 0
    assert first["missed"].equals(final["missed"])
    fixed = frame.filter((pl.col("method") == "naive-yu-liu") & (pl.col("setting") == index[math.inf, "first"]))
    assert (fixed["look"] == 6).all()  # a fixed-time rule has one look, whatever the policy


# ---------------------------------------------------------------- the table


def test_the_table_recomputes_from_the_records(ran: Path) -> None:
    study, tables = summarise(ran / "out", ran)
    table = tables.methods
    _, frame = read_trials(ran / "out")
    assert table.height == len(study.settings) * len(study.methods)
    for each in table.iter_rows(named=True):
        part = frame.filter((pl.col("setting") == each["setting"]) & (pl.col("method") == each["method"]))
        fired = [r for r in part.iter_rows(named=True) if r["fired"]]
        assert each["fired"] == len(fired)
        assert each["violations"] == sum(r["missed"] for r in part.iter_rows(named=True))
        assert each["zero_certificate_rate"] == pytest.approx(1 - len(fired) / 30)
        if fired:
            assert each["acceptance"] == pytest.approx(sum(r["acceptance"] for r in fired) / len(fired))
            assert each["records"] == pytest.approx(sum(r["records"] for r in fired) / len(fired))
            assert each["reuse"] == pytest.approx(each["records"] / each["touched"])
            assert each["deployed_acceptance"] == pytest.approx(sum(r["acceptance"] for r in fired) / 30)
            assert each["payload_bytes"] == pytest.approx(sum(r["releases"] for r in fired) / len(fired) * 2 * 21 * 8)
        else:
            assert each["acceptance"] is None
            assert each["deployed_acceptance"] == 0


def test_intervals_have_their_own_denominators() -> None:
    text = STUDY.replace('["fed-src-c", "betting", "naive-yu-liu"]', '["betting"]').replace(
        "epsilon = [inf, 1.0]", "epsilon = [inf]"
    )
    study = Study.from_toml(text.replace('policy = ["final", "first"]', 'policy = ["first"]'))
    n = study.trials
    frame = pl.DataFrame({
        "setting": [0] * n, "method": ["betting"] * n, "trial": list(range(n)), "fired": [True] * 10 + [False] * 20,
        "missed": [True] * 3 + [False] * 27, "failed": [True] * 2 + [False] * 28, "at_boundary": [False] * n,
        "acceptance": [0.5] * n, "records": [100.0] * n,
    })  # fmt: skip
    known = cells(study, Path())
    row = summary(study, frame, known).row(0, named=True)
    assert (row["violations"], row["failures"], row["fired"]) == (3, 2, 10)
    assert binom.sf(2, 30, row["violations_low"]) == pytest.approx(0.025)
    assert binom.cdf(2, 30, row["failures_high"]) == pytest.approx(0.025)
    assert binom.cdf(2, 10, row["failures_given_firing_high"]) == pytest.approx(0.025)
    with pytest.raises(FedsrcError, match="29 records for 30 trials"):
        summary(study, frame.head(29), known)


def test_held_out_risk_at_the_target_is_not_above_it() -> None:
    """One case on each side of the target and at it, in exact arithmetic and where 0.29 * 100 rounds to less than 29.

    Mutants killed: > as >= or <, the tolerance dropped or subtracted, abstentions counted, an interval over all trials.
    """

    def above(target: float, *cases: tuple[float, float], fired: bool = True) -> int:
        accepted, unsupported = zip(*cases, strict=True)
        columns = {"heldout_accepted": accepted, "heldout_unsupported": unsupported, "fired": [fired] * len(cases)}
        found = heldout(pl.DataFrame(columns), target)
        return int(found["heldout_exceeds"])

    assert above(0.2, (10.0, 1.0)) == 0
    assert above(0.2, (10.0, 2.0)) == 0
    assert above(0.2, (10.0, 0.2 * 10.0 + 1e-9)) == 0
    assert above(0.2, (10.0, 3.0), (10.0, 2.0), (0.0, 0.0), (10.0, 2.001)) == 2
    assert 0.29 * 100.0 < 29.0
    assert above(0.29, (100.0, 29.0)) == 0
    assert above(0.2, (10.0, 3.0), fired=False) == 0
    some = pl.DataFrame({
        "heldout_accepted": [10.0] * 8, "heldout_unsupported": [3.0] * 8, "fired": [True] * 5 + [False] * 3,
    })  # fmt: skip
    found = heldout(some, 0.2)
    assert found["heldout_exceeds"] == 5
    assert binom.sf(4, 5, found["heldout_exceeds_low"]) == pytest.approx(0.025)


def gains(accepted: Floats, base: Floats, weights: Floats) -> dict[str, float]:
    """What `compared` says of two methods that fired in every trial."""
    part, first = (
        pl.DataFrame({"fired": [True] * x.size, "acceptance": x, "records": 1000.0 * x}) for x in (accepted, base)
    )
    return compared(part, first, weights)


def test_differences_are_paired() -> None:
    """Values that differ by a constant have a difference of no width, however much they vary.

    Mutants killed: base with weights of its own or in another order, means of both in place of the difference.
    """
    base = np.random.default_rng(0).random(50)
    found = gains(base + 0.2, base, bootstrap_weights(50, 1))
    assert [found[f"acceptance_gain{end}"] for end in ("", "_low", "_high")] == pytest.approx([0.2] * 3)
    assert [found[f"records_gain{end}"] for end in ("", "_low", "_high")] == pytest.approx([200.0] * 3)


def test_an_interval_has_a_fortieth_on_each_side() -> None:
    """Exactly: with resamples that are one trial each, 0 to 1000, the middle 95% are 25 to 975.

    Mutants killed: 90% in place of 95%, one side, the ends swapped, a normal interval, the mean of the resamples.
    """
    assert difference(np.arange(1001.0), np.eye(1001)) == (500.0, 25.0, 975.0)
    assert difference(np.arange(4.0), np.eye(4)[:2])[0] == 1.5


def test_weights_are_those_of_resampled_trials() -> None:
    """Of 20 trials, half with 1 and half with 0, a resample has Binomial(20, 1/2) ones; whole trials, 20 of them.

    A chi-square test of 2,000 resamples that fails once in a million seeds. Mutants killed: half as many trials drawn,
    Poisson or exponential weights, weights of only some trials, no resampling, the same weights for every seed.
    """
    weights = bootstrap_weights(20, 1)
    counts = weights * 20
    assert counts == pytest.approx(np.rint(counts))
    assert counts.sum(axis=1) == pytest.approx(20)
    for ones in (np.arange(20) < 10, np.arange(20) % 2 == 0):
        seen = np.bincount(np.rint(counts[:, ones].sum(axis=1)).astype(int), minlength=21)
        law = len(weights) * binom.pmf(np.arange(21), 20, 0.5)
        pooled = [np.array([x[:6].sum(), *x[6:15], x[15:].sum()]) for x in (seen, law)]
        assert law[:6].sum() > 5
        assert chisquare(*pooled).pvalue > 1e-6 / 2
    assert not np.array_equal(weights, bootstrap_weights(20, 2))


def test_every_look_can_be_recomputed(ran: Path) -> None:
    """The kept looks are those of the records: the first certificate of `betting`, threshold and look."""
    study, frame = read_trials(ran / "out")
    kept = looks(study, ran, trials=2)
    for index, setting in enumerate(study.settings):
        for trial in range(2):
            here = kept.filter(
                (pl.col("setting") == index) & (pl.col("trial") == trial) & (pl.col("method") == "betting")
            )
            record = frame.filter(
                (pl.col("setting") == index) & (pl.col("trial") == trial) & (pl.col("method") == "betting")
            )
            fires = [any(x) for x in here["certified"]]
            at = fires.index(True) if any(fires) and setting.policy == "first" else 5
            assert record["look"][0] == at + 1
            assert record["fired"][0] == fires[at]
            assert record["records"][0] == here["records"][at]
            if fires[at]:
                assert record["acceptance_lower"][0] == pytest.approx(
                    here["acceptance_lower"][at][record["threshold"][0]]
                )


# ---------------------------------------------------------------- the command


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedsrc", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        return int(stopped.value.code or 0), *capsys.readouterr()

    return call


def test_the_command(tmp_path: Path, run: Run) -> None:
    path = write(tmp_path, STUDY.replace("trials = 30", "trials = 6"))
    code, text, log = run("audit", path, "-o", tmp_path / "out", "--jobs", "1", "--looks", "1")
    assert code == 0
    assert "naive-yu-liu (control)" in text
    assert "Surrogate populations, not data: L." in text
    assert str(tmp_path / "out") in log
    assert (tmp_path / "out" / "looks.parquet").is_file()
    code, text, _ = run("audit", path, "-o", tmp_path / "out", "--jobs", "1", "--format", "json")
    assert code == 0
    rows_ = json.loads(text)["methods"]
    assert len(rows_) == 12
    assert {row["trials"] for row in rows_} == {6}
    assert rows_[0]["epsilon"] == "inf"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("fed-src-c", "magic"), "there is no method 'magic'"),
        (("rounds = 6", "rounds = 0"), "rounds"),
        (("rounds = 6", "round = 6"), "round"),
        (("trials = 30", "trials ="), "not a TOML file"),
        (("policy = [", "policies = ["), "policies"),
    ],
)
def test_a_bad_study_is_an_error(tmp_path: Path, run: Run, change: tuple[str, str], message: str) -> None:
    code, _, log = run("audit", write(tmp_path, STUDY.replace(*change)), "-o", tmp_path / "out")
    assert code == 2
    assert message in log
    assert not (tmp_path / "out").exists()


def test_scores_are_listed_once_for_every_population() -> None:
    """[scores] is the same study as the populations written out, to the digest."""
    head = 'name = "compared"\ntrials = 2\nmethods = ["fed-src-c"]\n'
    listed = """
[[populations]]
name = "QA"
demo = "qa"
[[populations]]
name = "mine"
table = "t.parquet"
where = { generator = "a" }
[scores]
lift = "x"
window = "y"
"""
    written = "".join(
        f'[[populations]]\nname = "{name}: {score}"\n{kind}\nscore = "{score}"\nabout = "{about}"\n'
        for name, kind in (("QA", 'demo = "qa"'), ("mine", 'table = "t.parquet"\nwhere = { generator = "a" }'))
        for score, about in (("lift", "x"), ("window", "y"))
    )
    assert Study.from_toml(head + listed).digest == Study.from_toml(head + written).digest


@pytest.mark.parametrize(
    ("population", "scores"),
    [
        ('demo = "qa"\nscore = "lift"', 'lift = "x"'),  # which of the two would it be?
        ("boundary = true", 'lift = "x"'),
        ('demo = "qa"', ""),
        ('demo = "qa"', "lift = 3"),
    ],
)
def test_scores_that_fit_no_population_are_refused(population: str, scores: str) -> None:
    head = 'name = "c"\ntrials = 2\nmethods = ["fed-src-c"]\n'
    text = f'{head}[[populations]]\nname = "p"\n{population}\n[scores]\n{scores}\n'
    with pytest.raises(FedsrcError, match="scores"):
        Study.from_toml(text)


def test_joblib_is_named_when_missing(tmp_path: Path) -> None:
    """`fedsrc audit` without its extra: a hint and status 2, not a traceback."""
    code = "import sys; sys.modules['joblib'] = None\nfrom fedsrc.cli.main import main\nmain()"
    command = [sys.executable, "-c", code, "audit", str(write(tmp_path, NULL)), "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "error: joblib is not installed\nhint: in the checkout of fedsrc: pip install '.[audit]'" in done.stderr
    assert not (tmp_path / "out").exists()


def test_clusters_are_named_when_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: str) -> Any:
        raise ImportError

    monkeypatch.setattr(engine, "import_module", none)
    with pytest.raises(FedsrcError, match="ray is not installed"):
        engine.on("ray")
    with pytest.raises(FedsrcError, match="dask is not installed"):
        engine.on("dask")


def test_a_refused_cell_names_its_setting(tmp_path: Path) -> None:
    text = NULL.replace("rounds = 5", "rounds = 5\ndrift = 0.5")
    with pytest.raises(FedsrcError, match="setting 0"):
        engine.run_study(write(tmp_path, text), tmp_path / "out", jobs=1)


def test_facts_are_those_of_the_mixture_drawn_when_none_is_declared() -> None:
    study = Study.from_toml(NULL.replace("rounds = 5", 'rounds = 5\nweights = "as calibrated"\npolicy = "recruit"'))
    cell = replace(build(study.settings[0], study.populations[0], seed=0, folder=Path()))
    events = happen(cell, trials=3, seed=(0, 0))
    shares: Floats = events.drawn / events.drawn.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(facts_of(cell, events).acceptance, shares @ cell.acceptance)
