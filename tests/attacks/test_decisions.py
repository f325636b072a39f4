"""Attacks on decisions: valid certificates thrown away, units spent that can only lose, another order than was said.

Chance of a false alarm: none. Seeds are fixed, and what hypothesis draws must hold exactly, whatever it is.
Mutants killed: earlier rounds kept for declared weights alone, or for several sites without weights; a level that goes
on where it can only lose, or stops before; a remainder of its own; sources in alphabetical order.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.errors import FedsrcError
from fedsrc.maths.basis import covariance
from fedsrc.protocol.registration import Registration
from fedsrc.server.bounds import Look, Sample, look
from fedsrc.server.recruiter import next_slots
from fedsrc.server.tally import Masses, empty, transfer
from fedsrc.site.ledger import Ledger
from fedsrc.site.site import open_sites
from tests.support.helpers import registration, table

FIELDS = registration(thresholds=1, grid=True, epsilon=4.0).model_dump()
TARGET = 0.2


def plan(
    weights: list[float | None], *, batch: int = 200, policy: str = "first", target: float = TARGET
) -> Registration:
    """A registration of so many sites, with these weights."""
    sites: list[dict[str, Any]] = [{"name": f"s{k}", "weight": weight} for k, weight in enumerate(weights)]
    schedule = {**FIELDS["schedule"], "batch": batch, "policy": policy, "rounds": 1000}
    claim = {**FIELDS["claim"], "target_risk": target}
    return Registration.model_validate({**FIELDS, "sites": sites, "schedule": schedule, "claim": claim})


# ---------------------------------------------------------------- V2: one site, and what an earlier round showed


def seen(unsupported: float, slots: int) -> Sample:
    """A look at so many slots, all accepted, so many of them unsupported."""
    bad, good = np.asarray([unsupported]), np.asarray([slots - unsupported])
    return Sample(Masses(bad, good, bad + good, covariance("complementary", np.zeros(1))), slots, 0.0)


def two_looks(reg: Registration) -> tuple[Look, Look]:
    """A good first round, then a bad one: 10% unsupported of 400, 17% of 600."""
    first = look(reg, seen(40, 400))
    return first, look(reg, seen(102, 600), first)


@pytest.mark.parametrize("weights", [[None], [1.0], [0.5, 0.5]])
def test_where_the_mixture_is_fixed_a_certificate_stays(weights: list[float | None]) -> None:
    first, second = two_looks(plan(weights))
    alone = look(plan(weights), seen(102, 600))
    assert first.certified.all()
    assert not alone.certified.any()
    assert second.certified.all()
    assert (second.risk_upper <= first.risk_upper).all()


def test_where_the_mixture_changes_each_round_stands_alone() -> None:
    first, second = two_looks(plan([None, None]))
    assert first.certified.all()
    assert not second.certified.any()


# ---------------------------------------------------------------- V7: in proportion, and nothing that can only lose


def requests(reg: Registration, left: list[int]) -> tuple[list[list[int]], list[float]]:
    """What a run asks of every site in every round when everybody answers, and eta after each."""
    tally, rounds, etas = empty(reg), [], []
    while any(slots := next_slots(reg, tally, left)):
        left = [have - n for have, n in zip(left, slots, strict=True)]
        assert min(left) >= 0
        tally = replace(tally, slots=tuple(a + b for a, b in zip(tally.slots, slots, strict=True)))
        rounds.append(slots)
        etas.append(transfer(reg, tally))
    return rounds, etas


def test_requests_do_not_shrink_to_one() -> None:
    """The attack: 1,000 and 5,000 units, each site with half the weight. Requests became 100, 50, 25, ..., 1, 1, 1."""
    rounds, etas = requests(plan([0.5, 0.5]), [1000, 5000])
    assert rounds == [[200, 200]] * 5
    assert etas == [0.0] * 5


def test_a_remainder_joins_the_request_before_it() -> None:
    """The attack: 388 units more at one site than its weight has room for, which took wealth from 68 to 0.6."""
    rounds, etas = requests(plan([0.5, 0.5]), [460, 848])
    assert rounds == [[200, 200], [260, 260]]
    assert etas == [0.0, 0.0]
    assert requests(plan([1.0]), [290])[0] == [[290]]
    assert requests(plan([1.0]), [310])[0] == [[200], [110]]


def test_a_small_site_holds_up_the_others_only_where_they_could_not_win_without_it() -> None:
    light = requests(plan([0.95, 0.05]), [2000, 28])  # 28 are a twentieth of 560: then the others go on
    assert light[0][0] == [532, 28]
    assert sum(row[0] for row in light[0]) == 2000
    heavy = requests(plan([0.75, 0.25]), [2000, 30])
    assert heavy[0] == [[90, 30]]
    gone = requests(plan([0.75, 0.25]), [2000, 0])  # one that was never there may yet come: the others are asked
    assert sum(row[0] for row in gone[0]) == 2000


def test_recruiting_stops_where_units_can_only_lose() -> None:
    rounds, _ = requests(plan([0.5, 0.5], policy="recruit"), [1000, 5000])
    assert np.sum(rounds, axis=0).tolist() == [1000, 1000]
    rounds, _ = requests(plan([0.9, 0.1], policy="recruit"), [5000, 200])
    assert np.sum(rounds, axis=0).tolist() == [5000, 200]  # a tenth of the weight is gone, less than the target


@st.composite
def runs(draw: st.DrawFn) -> tuple[Registration, list[int]]:
    """Weights in few parts, small batches, and units of all sizes: every site has some."""
    parts = draw(st.lists(st.integers(1, 9), min_size=1, max_size=8))
    reg = plan(
        [part / sum(parts) for part in parts],
        batch=draw(st.integers(1, 60)),
        target=draw(st.sampled_from([0.05, 0.2, 0.5])),
    )
    return reg, draw(st.lists(st.integers(1, 900), min_size=len(parts), max_size=len(parts)))


@given(runs())
def test_no_request_is_small_unless_it_is_the_sites_last(run: tuple[Registration, list[int]]) -> None:
    reg, left = run
    rounds, _ = requests(reg, left)
    step = reg.schedule.batch * len(reg.sites)
    for site, weight in enumerate(reg.weights or ()):
        asked = [row[site] for row in rounds if row[site]]
        assert all(n >= weight * step / 2 - 2 for n in asked[:-1])
        assert all(n <= 1.5 * weight * step + 2 for n in asked)


@given(runs())
def test_eta_stays_within_rounding_until_a_site_is_used_up(run: tuple[Registration, list[int]]) -> None:
    """In proportion each site is within a half of its share, so N eta <= sites / 2. Where a site is used up the others
    go on only if it, with those before it, holds less weight than the target risk."""
    reg, left = run
    weights, rest, used = np.asarray(reg.weights), np.asarray(left), 0
    rounds, etas = requests(reg, left)
    half = weights * reg.schedule.batch * len(left) / 2
    for row, eta in zip(rounds, etas, strict=True):
        used += sum(row)
        if (rest >= half).all() or weights.min() >= reg.claim.target_risk:
            assert used * eta <= len(left) / 2 + 1e-6
        rest = rest - row
    assert weights[(rest < half) | (rest == 0)].sum() >= reg.claim.target_risk - 1e-9


# ---------------------------------------------------------------- V9: in the table's own order


def test_sources_in_order_are_refused(tmp_path: Path) -> None:
    """They went in alphabetical order, and the card said the table's own. By first rows they would have an order, but
    then a row more or fewer of one source would move others."""
    names = tuple(f"s{i:02}" for i in range(60))
    records = replace(table(120), source=np.arange(120) % 60, source_names=names)
    reg = registration(records, unit="source", max_answers=2, thresholds=2)
    with closing(Ledger(tmp_path / "ledger")) as ledger:
        with pytest.raises(FedsrcError, match="sources have no order in a table") as caught:
            open_sites(reg, records, ledger, in_order=True)
        assert "`in_order=`" in str(caught.value.hint)
        assert not ledger.accounts("local")
        assert len(open_sites(reg, records, ledger)) == 1
