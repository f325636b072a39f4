"""What is registered from choices and development records: designed defaults, thresholds, the labels' direction.

Mutants killed: a default changed silently, budgets that overspend, a target off the ladder, a threshold that accepts
other scores than its quantile, answers of one source counted as many, something of a table registered with a grid.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.planning.labels import Labels, development_labels
from fedsrc.planning.register import FEWEST, Choices, development_part, register
from fedsrc.planning.thresholds import grid_thresholds, in_few_digits, quantile_thresholds, round_grid
from fedsrc.protocol.judgements import Betting, Stitched
from fedsrc.protocol.registration import Registration
from fedsrc.records.development import development_count
from fedsrc.records.table import MISSING_SCORE, read_records
from tests.support.helpers import registration, table

REG = registration(thresholds=20, grid=True)
PUBLIC = Choices(0.2, 4.0, public_development=True)  # exact quantiles


def test_default_preset() -> None:
    method = REG.certificate
    assert isinstance(method, Betting)
    assert (method.risk_budget, method.acceptance_budget, method.refusal_budget) == (0.045, 0.0049, 0.0001)
    assert method.ladder == tuple(i / 100 for i in range(1, 51))
    assert (method.bets.count, method.bets.low, method.bets.high) == (12, 0.01, 0.95)
    centres = method.centres
    assert (centres.top, centres.count, centres.low, centres.high) == (0.8, 8, 0.05, 0.5)
    p, e = REG.privacy, REG.histograms
    assert (e.kind, e.basis, p.conversion, p.adjacency) == ("complementary", "suffix", "tight", "replacement")
    assert (p.delta, e.basis_bits, p.mass_grid) == (1e-6, 8, 1)
    assert (REG.claim.min_acceptance, REG.claim.failure_probability) == (0.05, 0.05)
    assert (REG.schedule.batch, REG.schedule.rounds, REG.schedule.policy) == (200, 30, "first")
    assert len(REG.thresholds.values) == 20
    assert set(REG.thresholds.weights) == {1 / 20}


def test_paper_preset() -> None:
    reg = registration(thresholds=20, grid=True, preset="paper")
    method = reg.certificate
    assert isinstance(method, Stitched)
    assert (method.method, method.sampling_budget, method.noise_budget) == ("contrast", 0.025, 0.025)
    assert (reg.histograms.kind, reg.histograms.basis, reg.privacy.conversion) == ("paired", "bins", "paper")
    assert reg.privacy.adjacency == "zero-out"


def test_budgets_follow_the_failure_probability() -> None:
    reg = registration(failure_probability=0.01)
    assert isinstance(reg.certificate, Betting)
    assert reg.certificate.spent == pytest.approx(0.01)
    assert reg.certificate.risk_budget == pytest.approx(0.009)


def test_the_target_is_put_on_the_ladder() -> None:
    reg = registration(target_risk=0.125)
    assert isinstance(reg.certificate, Betting)
    assert 0.125 in reg.certificate.ladder


def test_thresholds() -> None:
    assert grid_thresholds(3) == (0.25, 0.5, 0.75)
    records = table(1000)
    values = quantile_thresholds(records.score, 20)
    shares = [(records.score >= v).mean() for v in values]
    assert shares == pytest.approx([1 - j / 21 for j in range(1, 21)], abs=2e-3)
    assert len(quantile_thresholds(records.score.round(1), 20)) < 20  # ties are merged


SCORES = {
    "fine": np.random.default_rng(0).random(1000),
    "rounded": np.random.default_rng(1).random(1000).round(3),
    "in a corner": 1 - 1e-9 * np.random.default_rng(2).random(500),
    "few": np.random.default_rng(3).random(12),
    "two values": np.repeat([0.125, 0.9], 50),
    "the ends": np.repeat([0.0, 1.0], 50),
    "single precision": np.random.default_rng(4).random(1000).astype(np.float32).astype(np.float64),
}


@pytest.mark.parametrize("name", SCORES)
def test_thresholds_in_few_digits_accept_the_same_scores(name: str) -> None:
    scores = SCORES[name]
    values = quantile_thresholds(scores, 20)
    short = in_few_digits(values, scores)
    assert list(short) == sorted(set(short))
    accepted = [{float((scores >= x).sum()) for x in each} for each in (values, short)]
    assert accepted[0] == accepted[1]
    for x in short:
        decimals = max(0, -Decimal(repr(x)).as_tuple().exponent)  # type: ignore[operator]
        coarser = [k / 10 ** (decimals - 1) for k in range(10 ** (decimals - 1) + 1)] if 1 < decimals < 5 else []
        assert not any((scores >= y).sum() == (scores >= x).sum() and y > scores.min() for y in coarser)
    assert max(len(repr(x)) for x in short) <= {"in a corner": 16, "single precision": 8}.get(name, 6)


def test_a_registered_threshold_is_short_and_the_same_in_the_file() -> None:
    values = registration(table(1000)).thresholds.values
    assert max(len(repr(x)) for x in values) <= 7
    grid = registration(table(1000), grid=True).thresholds.values
    assert grid[9] == 0.4762
    assert round_grid(9_999)[:2] == (0.0001, 0.0002)
    assert len(set(round_grid(10_000))) == 10_000
    made = registration(table(1000))
    assert Registration.from_toml(made.to_toml()).thresholds.values == values


def test_thresholds_to_the_last_digit_if_wanted() -> None:
    records = table(1000)
    whole = development_part(records, "record", 1.0)
    exact = register(Choices(0.2, 4.0, exact_thresholds=True, public_development=True), records, whole)
    assert exact.thresholds.values == quantile_thresholds(records.score, 20)
    assert register(Choices(0.2, 4.0, grid=True, exact_thresholds=True), records, whole).thresholds.values[9] == 10 / 21


def test_rows_without_a_score_choose_no_threshold() -> None:
    records = table(1000)
    half = replace(records, score=np.where(np.arange(1000) % 2 == 0, records.score, MISSING_SCORE))
    scored = records.score[::2]
    values = register(PUBLIC, half, development_part(half, "record", 1.0)).thresholds.values
    assert (scored >= values[0]).mean() == pytest.approx(20 / 21, abs=3e-3)
    nothing = replace(records, score=np.full(1000, MISSING_SCORE))
    with pytest.raises(FedsrcError, match="with 0 scores are too few"):
        register(PUBLIC, nothing, development_part(nothing, "record", 1.0))


def test_too_few_development_units_choose_no_threshold() -> None:
    for count, enough in ((FEWEST - 1, False), (FEWEST, True)):
        records = table(count)
        whole = development_part(records, "record", 1.0)
        if enough:
            assert register(PUBLIC, records, whole)
        else:
            with pytest.raises(FedsrcError, match="too few for thresholds"):
                register(PUBLIC, records, whole)
        assert register(Choices(0.2, 4.0, grid=True), records, whole)


def labels(score: Floats, loss: Floats) -> Labels:
    records = replace(table(score.size), score=score, loss=loss)
    return development_labels(records, development_part(records, "record", 1.0), "record")


def test_labels_that_run_the_wrong_way() -> None:
    """Mutants killed: the sign, ranks of one side only, a limit of 2 standard errors, halves swapped.

    Seeds are fixed. With scores that say nothing, 400 tables alarm never; one would with probability 400 * 3.2e-5, and
    at a limit of 2 about nine of them do.
    """
    records = table(1000)
    good, bad = labels(records.score, records.loss), labels(records.score, 1 - records.loss)
    assert not good.wrong_way
    assert bad.wrong_way
    assert good.unsupported == pytest.approx(records.loss.mean())
    assert bad.upper > 0.8 > 0.4 > bad.lower
    assert good.upper < 0.2 < 0.6 < good.lower
    rng = np.random.default_rng(0)
    for _ in range(400):
        count = int(rng.integers(10, 500))
        score, loss = rng.random(count).round(2), (rng.random(count) < rng.random()).astype(np.float64)
        assert not labels(score, loss).wrong_way
    for same in (np.full(50, 0.5), np.linspace(0, 1, 50)):
        assert not labels(same, np.ones(50)).wrong_way
    graded = np.linspace(0, 1, 50)
    assert labels(graded, graded).wrong_way
    assert not labels(graded, graded[::-1]).wrong_way
    few = np.linspace(0, 1, 15)
    assert not labels(few, few).wrong_way  # too few to tell


def test_rows_without_a_score_have_no_rank() -> None:
    score, loss = np.linspace(0, 1, 200), (np.linspace(0, 1, 200) < 0.5).astype(np.float64)
    gone = np.concatenate([score, np.full(800, MISSING_SCORE)])
    assert not labels(gone, np.concatenate([loss, np.zeros(800)])).wrong_way


def test_answers_of_one_source_are_not_counted_as_many(tmp_path: Path) -> None:
    """Ten answers to each of 16 questions: 160 rows would be plain, 16 questions are not."""
    lines = [f"q{i},{i / 16},{int(i >= 8)}" for i in range(16) for _ in range(10)]
    (tmp_path / "t.csv").write_text("\n".join(["source,score,loss", *lines]) + "\n")
    records = read_records(tmp_path / "t.csv")
    as_records = development_labels(records, development_part(records, "record", 1.0), "record")
    as_sources = development_labels(records, development_part(records, "source", 1.0), "source")
    assert (as_records.wrong_way, as_sources.wrong_way) == (True, False)


def test_development_parts() -> None:
    records = table(1000)
    part = development_part(records, "record", 0.2)
    assert part.share == 0.2
    assert 137 < development_count(records, part, "record") < 263  # five standard deviations; the seed is fixed
    assert development_part(table(1000, seed=5), "record", 0.2) == part  # it does not depend on what the table holds
    assert development_part(records, "record", 0.2) == part
    with pytest.raises(FedsrcError, match="too few"):
        development_part(table(3), "record", 0.2)
    whole = development_part(records, "record", 1.0)
    assert register(Choices(0.2, 4.0, grid=True), records, whole).development is None


def test_nothing_of_the_records_but_thresholds_is_published() -> None:
    """A public digest of the table would let guesses about one record be tested against it."""
    records = table(1000)
    reg = registration(records)
    assert records.digest not in reg.to_toml()
    same_scores = replace(records, digest="f" * 64, loss=1 - records.loss)
    assert registration(same_scores) == reg


def test_graded_losses_get_a_grid() -> None:
    records = table(500)
    graded = replace(records, loss=records.loss * 0.5)
    assert registration(records).privacy.loss_grid == 1
    assert registration(graded).privacy.loss_grid == 100
    assert registration(graded, loss_grid=10).privacy.loss_grid == 10


def test_tied_scores_are_on_one_side_of_the_middle() -> None:
    """Rows of a table sorted by label: how ties are split must not decide which half is worse."""
    loss = np.repeat([0.0, 1.0], 200)
    score = np.concatenate([np.repeat([0.0, 1.0], 100), np.repeat([0.0, 1.0], [20, 180])])
    found = labels(score, loss)
    assert found.wrong_way
    assert (found.upper, found.lower) == (180 / 280, 20 / 120)


def test_sources_of_uneven_size_are_one_each() -> None:
    """Scores that say nothing, but five of 45 sources have sixty answers each, all alike.

    Mutant killed: ranks of answers in place of sources, by which some of these tables alarm.
    Chance of a false alarm: none, the seed is fixed.
    """
    rng = np.random.default_rng(1)
    source = np.repeat(np.arange(45), [1] * 40 + [60] * 5)
    for _ in range(100):
        loss, score = (rng.random(45) < 0.5).astype(np.float64)[source], rng.random(45)[source]
        names = tuple(map(str, range(45)))
        records = replace(table(len(source)), score=score, loss=loss, source=source, source_names=names)
        assert not development_labels(records, development_part(records, "source", 1.0), "source").wrong_way


def test_with_a_grid_nothing_of_a_table_is_registered() -> None:
    """Its records may calibrate later, so what is published must be declared, not read off them."""
    records = replace(table(100), source=np.arange(100) // 2, source_names=tuple(map(str, range(50))))
    whole = development_part(records, "source", 1.0)
    with pytest.raises(FedsrcError, match="nothing is taken from the table"):
        register(Choices(0.2, 4.0, grid=True, unit="source"), records, whole)
    assert register(Choices(0.2, 4.0, grid=True, unit="source", max_answers=4), records, whole).privacy.max_answers == 4
    graded = replace(table(100), loss=np.full(100, 0.5))
    every = development_part(graded, "record", 1.0)
    with pytest.raises(FedsrcError, match="nothing is taken from the table"):
        register(Choices(0.2, 4.0, grid=True), graded, every)
    assert register(Choices(0.2, 4.0, grid=True, loss_grid=10), graded, every).privacy.loss_grid == 10
