"""Held-out answers by threshold, counted again from the split itself.

Chance of a false alarm: none, everything is enumerated.
Mutants killed: calibration answers counted as held out, scores above and not at a threshold, an interval of another
level or of the calibration's counts, an exact interval of graded losses, one of whole sources, sides exchanged, the
same split given twice.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom, binomtest

from fedsrc.audit.cell import SPLIT, build, split
from fedsrc.audit.heldout import bounded_mean, by_threshold
from fedsrc.audit.study import Study
from fedsrc.audit.study_records import records_of
from fedsrc.cli.main import main
from fedsrc.errors import FedsrcError

TEXT = """
name = "held out"
seed = 3
trials = 2
methods = ["fed-src-c"]
[[populations]]
name = "P"
records = 400
unsupported = 0.3
auc = 0.8
about = "x"
[setting]
heldout_share = 0.4
thresholds = 6
rounds = 2
"""
SWEPT = TEXT + '[sweep]\nepsilon = [inf, 4.0]\ntarget_risk = [0.2, 0.3]\nthresholds_from = ["development", "support"]\n'


def parts_of(text: str, index: int = 0) -> tuple[Study, pl.DataFrame]:
    """The study, and its held-out answers."""
    study = Study.from_toml(text)
    (population,) = study.populations
    records = records_of(population, Path())  # type: ignore[arg-type]
    parts = split(records, study.settings[index], np.random.default_rng([study.seed, SPLIT]))
    return study, pl.DataFrame({"score": parts.heldout.score, "loss": parts.heldout.loss})


def test_every_threshold_has_its_counts_and_its_exact_interval() -> None:
    study, held = parts_of(TEXT)
    found = by_threshold(study, Path())
    assert held.height == 160
    assert found.height == 6
    for row in found.iter_rows(named=True):
        accepted = held.filter(pl.col("score") >= row["threshold"])
        wrong = int(accepted["loss"].sum())
        assert (row["heldout_accepted"], row["heldout_unsupported"]) == (accepted.height, wrong)
        exact = binomtest(wrong, accepted.height).proportion_ci(0.95, method="exact")
        assert (row["heldout_risk_low"], row["heldout_risk_high"]) == pytest.approx((exact.low, exact.high), abs=1e-9)
        assert row["heldout_risk"] == pytest.approx(wrong / accepted.height)
    assert found["acceptance"].is_sorted(descending=True)
    assert (found["heldout_risk"] - found["risk"]).abs().max() > 0.005  # type: ignore[operator]


def test_a_split_is_given_once() -> None:
    found = by_threshold(Study.from_toml(SWEPT), Path())
    assert found["setting"].unique().to_list() == [0, 1]  # thresholds of development, and of the support
    assert found.height == 12


def test_graded_losses_have_a_wider_interval_and_sources_none(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    score = rng.random(200)
    frame = pl.DataFrame({"score": score, "loss": rng.choice([0.0, 0.25, 1.0], 200), "source": np.arange(200) // 2})
    frame.write_parquet(tmp_path / "t.parquet")
    table = TEXT.replace('records = 400\nunsupported = 0.3\nauc = 0.8\nabout = "x"', 'table = "t.parquet"')
    for row in by_threshold(Study.from_toml(table), tmp_path).iter_rows(named=True):
        found = bounded_mean(row["heldout_unsupported"], row["heldout_accepted"])
        assert (row["heldout_risk_low"], row["heldout_risk_high"]) == found
        assert found[0] < row["heldout_risk"] < found[1]
    frame.with_columns(loss=pl.col("loss").round()).write_parquet(tmp_path / "t.parquet")
    by_source = table.replace("[setting]", '[setting]\nunit = "source"\nrelease = "default"')
    assert by_threshold(Study.from_toml(by_source), tmp_path)["heldout_risk_low"].null_count() == 6
    assert by_threshold(Study.from_toml(table), tmp_path)["heldout_risk_low"].null_count() == 0


def test_losses_are_graded_wherever_they_are(tmp_path: Path) -> None:
    """Six answers calibrate, and happen to have losses of 0 and 1; what is held out decides too. Mutant killed: losses
    of calibration alone."""
    rng = np.random.default_rng(0)
    loss = rng.choice([0.0, 0.5, 1.0], 200, p=[0.6, 0.25, 0.15])
    pl.DataFrame({"score": rng.random(200), "loss": loss}).write_parquet(tmp_path / "t.parquet")
    text = TEXT.replace('records = 400\nunsupported = 0.3\nauc = 0.8\nabout = "x"', 'table = "t.parquet"')
    study = Study.from_toml(text.replace("[setting]", "[setting]\nsize = 6"))
    setting, (population,) = study.settings[0], study.populations
    records = records_of(population, tmp_path)  # type: ignore[arg-type]
    plain = (seed for seed in range(50) if set(split(records, setting, draws(seed)).calibration.loss) <= {0.0, 1.0})
    again = study.model_copy(update={"seed": next(plain)})
    for row in by_threshold(again, tmp_path).iter_rows(named=True):
        found = bounded_mean(row["heldout_unsupported"], row["heldout_accepted"])
        assert (row["heldout_risk_low"], row["heldout_risk_high"]) == found


def test_label_errors_need_losses_of_0_and_1(tmp_path: Path) -> None:
    """Though all that calibrates or is held out has such losses: a missed loss of 0.25 would be 0.75. Mutants killed:
    development losses left out of what is graded, or looked at after labels were changed."""
    rng = np.random.default_rng(0)
    loss = np.append(rng.choice([0.0, 1.0], 198), [0.25, 0.5])
    pl.DataFrame({"score": rng.random(200), "loss": loss}).write_parquet(tmp_path / "t.parquet")
    text = TEXT.replace('records = 400\nunsupported = 0.3\nauc = 0.8\nabout = "x"', 'table = "t.parquet"')
    study = Study.from_toml(text.replace("[setting]", "[setting]\nsize = 6"))
    (population,) = study.populations
    records = records_of(population, tmp_path)  # type: ignore[arg-type]

    def graded(seed: int) -> list[bool]:
        parts = split(records, study.settings[0], draws(seed))
        return [not set(each.loss) <= {0.0, 1.0} for each in (parts.development, parts.calibration, parts.heldout)]

    seed = next(each for each in range(200) if graded(each) == [True, False, False])
    for wrong in ({"label_missed": 0.9}, {"label_invented": 0.9}):
        with pytest.raises(FedsrcError, match="has graded losses"):
            build(study.settings[0].model_copy(update=wrong), population, seed=seed, folder=tmp_path)
    made = build(study.settings[0], population, seed=seed, folder=tmp_path)
    assert made.registration.privacy.loss_grid > 1
    assert made.development is not None


def draws(seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, SPLIT])


@pytest.mark.parametrize("count", [1, 5, 40, 300])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.45, 1.0])
@pytest.mark.parametrize("part", [0.0, 0.5])
def test_a_graded_interval_is_where_the_test_turns(count: int, share: float, part: float) -> None:
    """Its ends are the means at which Hoeffding-Bentkus has a p-value of 0.025; it holds the exact one of as many. A
    sum that is no whole number is taken as it is."""
    total = min(float(np.floor(count * share)) + part, float(count))
    low, high = bounded_mean(total, count)
    for end, hit in ((high, total), (1.0 - low, count - total)):
        if hit == count:
            assert end == 1.0
        else:
            rate, kl = hit / count, lambda a, b: a * np.log(a / b) if a else 0.0
            hoeffding = np.exp(-count * (kl(rate, end) + kl(1.0 - rate, 1.0 - end)))
            assert min(hoeffding, np.e * binom.cdf(np.ceil(hit), count, end)) == pytest.approx(0.025, rel=1e-6)
    if not total.is_integer():
        return
    exact = binomtest(int(total), count).proportion_ci(0.95, method="exact")
    assert low <= exact.low + 1e-12
    assert exact.high - 1e-12 <= high


def test_a_graded_interval_misses_rarely() -> None:
    """Enumerated for 30 losses of 0 and 1, which have the most variance: each side misses with probability at most half
    of what may fail, and at a lower confidence with more than that."""
    law, totals = binom.pmf(np.arange(31), 30, 0.15), range(31)

    def missed(confidence: float) -> tuple[float, float]:
        ends = np.array([bounded_mean(float(total), 30, confidence) for total in totals])
        return float(law[ends[:, 0] > 0.15].sum()), float(law[ends[:, 1] < 0.15].sum())

    assert max(missed(0.95)) <= 0.025
    assert min(missed(0.7)) > 0.025


def test_nothing_is_said_where_nothing_is_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert by_threshold(Study.from_toml(TEXT.replace("0.4", "0.0")), Path()).height == 0
    for name, text, there in (("with", TEXT, True), ("without", TEXT.replace("0.4", "0.0"), False)):
        (tmp_path / f"{name}.toml").write_text(text)
        monkeypatch.setattr(
            sys, "argv", ["fedsrc", "audit", str(tmp_path / f"{name}.toml"), "-o", str(tmp_path / name), "--jobs", "1"]
        )
        with pytest.raises(SystemExit) as stopped:
            main()
        assert not stopped.value.code
        assert (tmp_path / name / "heldout.csv").is_file() == there
