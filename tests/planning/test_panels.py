"""Plans and forecasts of panels: every block on its own evidence, with the noise that all of them share.

Mutants killed: blocks planned on each other's evidence, the noise of a single claim in a panel's plan, shares that do
not sum to one or ignore who can be certified, a plan for all groups with thresholds of one, the threshold of a group's
total left out, a forecast with the whole budget for every group, thresholds of a group from another's release.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsrc.errors import FedsrcError
from fedsrc.federation.local import register_table
from fedsrc.planning.alone import alone
from fedsrc.planning.forecast import _slowness, forecast, from_declared, from_development
from fedsrc.planning.plan import Planned, Wish, evidence, plan
from fedsrc.planning.register import Choices, development_part, even, register, register_grid
from fedsrc.protocol.judgements import Betting, Sealed
from fedsrc.protocol.panels import Groups, Scores
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.scale import Scale
from fedsrc.records.development import calibrating
from fedsrc.records.units import Records
from fedsrc.simulate.population import uniform
from fedsrc.simulate.trials import simulate
from tests.support.helpers import table

GROUPS = ("easy", "hard", "hopeless")


def records(count: int = 4000, seed: int = 0) -> Records:
    """Three groups: one that is safe, one that a threshold makes safe, one that none does; and a poor second score."""
    made, rng = table(count, seed=seed), np.random.default_rng([seed, 5])
    group = rng.integers(0, 3, count)
    loss = (rng.random(count) < np.array([0.05, 0.35, 0.8])[group]).astype(np.float64)
    score = np.clip(0.5 + 0.2 * (1 - 2 * loss) * (group < 2) + 0.15 * rng.standard_normal(count), 0, 1)
    other = np.clip(0.5 + 0.05 * (1 - 2 * loss) + 0.2 * rng.standard_normal(count), 0, 1)
    return replace(made, score=score, loss=loss, group=group, group_names=GROUPS, others=other[:, None])


RECORDS = records()


def registered(**choices: Any) -> Registration:
    settings: dict[str, Any] = {"target_risk": 0.2, "epsilon": 4.0, "public_development": True, **choices}
    settings |= {} if "also_scores" in settings else {"groups": GROUPS}
    return register(Choices(**settings), RECORDS, development_part(RECORDS, "record", 0.2))


def planned(base: Registration, **wish: Any) -> Planned:
    part = base.development
    assert part is not None
    known = evidence(base, RECORDS, part)
    assert known is not None
    return plan(base, known, {name: len(each) for name, each in calibrating(base, RECORDS).items()}, Wish(**wish))


def test_every_group_is_planned_on_its_own_evidence() -> None:
    base = registered()
    part = base.development
    assert part is not None
    known = evidence(base, RECORDS, part)
    assert known is not None
    rows = RECORDS.group
    assert rows is not None
    for block, each in enumerate(known):
        share = float(each.accepted[:, 0].mean())
        assert share == pytest.approx(
            float(np.mean((rows == block) & (RECORDS.score >= base.cuts[block].values[0]))), abs=0.05
        )
        risk = float((each.laws @ each.unsupported)[:, 0].mean()) / share
        assert (risk < 0.1, risk > 0.6) == (block == 0, block == 2)


def test_shares_follow_the_chance_to_be_certified() -> None:
    made = planned(registered())
    claims = made.registration.claims
    assert isinstance(claims, Groups)
    assert isinstance(made.registration.judgement, Sealed)
    assert math.fsum(claims.shares) == pytest.approx(1.0)
    assert claims.shares[2] < 0.15 < min(claims.shares[:2])
    assert [each.certified > 0.9 for _, each in made.blocks] == [True, True, False]
    assert [name for name, _ in made.blocks] == [*GROUPS]
    assert sum("Expected of" in line for line in made.lines()) == 3


def test_the_plan_has_the_noise_of_the_panel() -> None:
    """What is planned with is what is registered: the noise of a unit that may change group."""
    made = planned(registered()).registration
    single = alone(made, 0)
    assert made.mechanism.scale == pytest.approx(single.mechanism.scale, rel=1e-6)
    assert single.privacy.epsilon < 4.0
    public = planned(registered(adjacency="same-group")).registration
    assert public.mechanism.scale < 0.9 * made.mechanism.scale
    assert alone(public, 0).privacy.epsilon == pytest.approx(4.0, abs=1e-3)


@pytest.mark.parametrize("epsilon", [4.0, math.inf])
def test_one_threshold_for_all_groups_is_planned_for_the_worst(epsilon: float) -> None:
    made = planned(registered(group_claim="all", epsilon=epsilon, groups=GROUPS[:2])).registration
    assert len({each.values for each in made.cuts}) == 1
    method = made.judgement
    bets = len(method.targets[0].bets) if isinstance(method, Sealed) else len(method.bets.priors or ())  # type: ignore[union-attr]
    assert bets == len(made.row_weights)


@pytest.mark.parametrize("certificate", ["sealed", "open"])
def test_the_total_of_a_group_is_kept(certificate: str) -> None:
    made = planned(registered(group_floor="group"), certificate=certificate).registration
    assert all(each.values[0] == 0.0 for each in made.cuts)


def test_scores_get_shares_by_what_they_accept() -> None:
    made = planned(registered(also_scores=(("other", Scale()),)))
    claims = made.registration.claims
    assert isinstance(claims, Scores)
    assert claims.shares[0] > 0.6
    assert made.expected[:3] == max((each for _, each in made.blocks), key=lambda each: each.acceptance)[:3]


def test_labels_of_a_panel_are_those_of_all_groups_together() -> None:
    """Answers of two groups are different answers, and each is labelled."""
    made = planned(registered(labels="on demand", label_twice=0.5))
    parts = [each for _, each in made.blocks]
    assert all(each.labels > 0 for each in parts)
    assert made.expected.labels == sum(each.labels for each in parts)  # one look: all are asked as long
    assert made.expected.labels_90 == sum(each.labels_90 for each in parts)
    once = planned(registered(labels="on demand"))
    assert made.expected.labels == pytest.approx(1.5 * once.expected.labels, abs=4)
    said = made.lines()
    whole = [line for line in said if "labels from" in line and "Expected of" not in line and "would be" not in line]
    found, units = made.expected, round(made.expected.units)
    labels = f"about {found.labels:,} labels from {units:,} records, at most {found.labels_90:,} in 9 of 10 runs"
    assert whole == [f"  All of them together take {labels}."]
    assert not any("labels" in line for line in said if "Expected of" in line)


def test_labels_of_several_scores_are_no_more_than_all_answers() -> None:
    made = planned(registered(also_scores=(("other", Scale()),), labels="on demand"))
    assert max(each.labels for _, each in made.blocks) < made.expected.labels <= made.units


def test_a_plan_says_what_acceptance_is_a_share_of() -> None:
    assert all("% of all traffic on average" in line for line in planned(registered(group_floor="group")).lines()[1:3])
    assert not any("traffic" in line for line in planned(registered(also_scores=(("other", Scale()),))).lines())


def test_what_no_panel_is_planned_for_is_refused() -> None:
    with pytest.raises(FedsrcError, match="planned for acceptance alone"):
        planned(registered(), objective="records")


def test_a_forecast_is_made_for_every_group() -> None:
    base = registered()
    laws = from_development(base, RECORDS)
    found = forecast(base, laws, 0.2, 4.0, sampled=True)
    names = [name for name, _ in found.blocks]
    easy, hard, hopeless = (each for _, each in found.blocks)
    assert names == [*GROUPS]
    assert easy.records is not None
    assert hard.records is not None
    assert easy.records < hard.records
    assert hopeless.records is None
    assert found.records is None  # until all are certified
    assert found.sentence().count("target 0.2 at epsilon 4") == 3
    assert replace(found, blocks=()) == hopeless
    one = alone(base, 0)
    assert isinstance(one.judgement, Betting)
    assert one.judgement.risk_budget == pytest.approx(0.045 / 3)


def test_simulated_runs_pick_for_every_group() -> None:
    made = planned(registered()).registration
    units = calibrating(made, RECORDS)["local"]
    runs = simulate(made, uniform(made, [units]), trials=20, seed=1)
    assert runs.rows.shape == (20, 3)
    assert (runs.rows[:, :2] >= 0).all()
    assert (runs.rows[:, 2] == -1).all()
    assert not runs.certified.any()
    m = len(made.thresholds.values)
    assert set((runs.rows[:, 1] // m).tolist()) == {1}


def test_thresholds_of_groups_follow_from_their_own_release(tmp_path: Path) -> None:
    choices = Choices(0.2, 4.0, groups=GROUPS)
    made = register_table(choices, RECORDS, development_part(RECORDS, "record", 0.2), tmp_path / "ledger")
    part = made.development
    assert part is not None
    release = part.release
    assert release is not None
    assert release.blocks == GROUPS
    assert len(release.first) == 3 * len(release.grid)
    for block, cut in enumerate(made.cuts):
        assert set(cut.values) <= set(release.thresholds(20, block))
    fields = made.model_dump()
    fields["claims"]["own"] = [fields["claims"]["own"][i] for i in (0, 2, 1)]
    with pytest.raises(FedsrcError, match="do not follow from the development release"):
        Registration.of(fields)


def test_blocks_have_as_many_thresholds() -> None:
    found = even([(0.1, 0.2, 0.3, 0.4, 0.5), (0.3, 0.6), (0.0, 0.5, 0.9)])
    assert found == [(0.1, 0.5), (0.3, 0.6), (0.0, 0.9)]


def test_a_threshold_of_zero_follows_from_no_release_but_where_it_shows_a_total(tmp_path: Path) -> None:
    made = register_table(Choices(0.2, 4.0), RECORDS, development_part(RECORDS, "record", 0.2), tmp_path / "ledger")
    fields = made.model_dump()
    fields["thresholds"]["values"] = (0.0, *made.thresholds.values[1:])
    with pytest.raises(FedsrcError, match="do not follow from the development release"):
        Registration.of(fields)


def test_of_forecasts_without_a_number_the_slowest_is_the_one_out_of_reach() -> None:
    base = registered(epsilon=8.0)
    easy = forecast(base, from_development(base, RECORDS), 0.2, 8.0, sampled=True).blocks[0][1]
    few = replace(easy, records=None, records_90=None, limit=math.inf, too_few=True)
    never = replace(few, too_few=False)
    long = replace(easy, records_90=None)
    more = replace(few, limit=900.0, too_few=False)
    assert [*sorted([never, few, more, long, easy], key=_slowness)] == [easy, long, few, more, never]


def test_one_score_with_checkpoints_is_forecast_from_a_declared_point() -> None:
    choices = Choices(0.2, 4.0, grid=True, checkpoints={"score": (20, 40)})
    made = register_grid(choices, ["local"])
    found = forecast(made, from_declared(made, 0.5, 0.1), 0.2, 4.0)
    one = register_grid(replace(choices, checkpoints=None), ["local"])
    single = forecast(one, from_declared(one, 0.5, 0.1), 0.2, 4.0)
    assert found.records is not None
    assert single.records is not None
    assert found.records == pytest.approx(single.records, rel=0.2)
    two = register_grid(replace(choices, also_scores=(("other", Scale()),)), ["local"])
    with pytest.raises(FedsrcError, match="say nothing of groups or several scores"):
        from_declared(two, 0.5, 0.1)
