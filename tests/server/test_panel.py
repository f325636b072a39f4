"""How a panel decides, against single claims and plain loops.

Mutants killed: blocks decoded in another order, weights of rows not split over groups, nothing passed on, passed on
where the mixture moves, a threshold for all groups that one group fails, acceptance of a group as a share of itself
where it is of the traffic and the other way round, the total of a group with too little room, a look's evidence lost.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedsrc.errors import FedsrcError
from fedsrc.maths import betting
from fedsrc.maths.arrays import Floats
from fedsrc.maths.contrasts import ContrastCode
from fedsrc.maths.panels import weights_left
from fedsrc.planning.register import Choices, register_grid
from fedsrc.planning.sealing import Seal, seal
from fedsrc.protocol.panels import Groups, One, Scores
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.scale import Scale
from fedsrc.records.masses import counted
from fedsrc.records.units import Units
from fedsrc.server import panel, sealed
from fedsrc.server.bounds import Look, look, sample
from fedsrc.server.tally import Given, Tally, add, empty, lose, masses, plausible_margins

GROUPS = ("g", "h", "i")


def registered(sites: tuple[str, ...] = ("a",), **choices: Any) -> Registration:
    """A panel on a public grid."""
    settings: dict[str, Any] = {"target_risk": 0.2, "epsilon": 4.0, "grid": True, "thresholds": 4, **choices}
    if "also_scores" not in settings:
        settings = {"groups": GROUPS, **settings}
    return register_grid(Choices(**settings), list(sites))


def units(count: int, seed: int = 0, risks: tuple[float, ...] = (0.1, 0.3, 0.5)) -> Units:
    """Records of three groups, and some of none; scores order the losses, `others` less well."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 4, count)
    loss = (rng.random(count) < np.array([*risks, 0.9])[group]).astype(np.float64)
    score = np.clip(0.55 - 0.3 * loss + 0.15 * rng.standard_normal(count), 0, 1)
    other = np.clip(0.5 - 0.1 * loss + 0.2 * rng.standard_normal(count), 0, 1)
    return Units(np.arange(count + 1), score, loss, None, None, group, (*GROUPS, "else"), other[:, None])


def given(reg: Registration, some: Units) -> Given:
    """An exact answer, without noise."""
    code, counts = reg.mechanism.code, counted(reg, some)
    exact = counts if isinstance(code, ContrastCode) else code.encode(counts)
    return Given([(0, len(some))], tuple(exact.ravel().tolist()))


def tally_of(reg: Registration, some: Units) -> Tally:
    return add(empty(reg), [given(reg, some)])


def only(some: Units, group: int) -> Units:
    """The same units; those of other groups score below every threshold."""
    there = some.group == group
    return Units(some.start, np.where(there, some.score, -1.0), some.loss, None)


def alone(reg: Registration, share: float) -> Registration:
    """One claim with a share of the budgets, and the noise of the panel's block."""
    fields = reg.model_dump()
    fields["claims"] = {"kind": "one"}
    for name in ("risk_budget", "acceptance_budget", "refusal_budget"):
        fields["certificate"][name] *= share
    return Registration.model_validate(fields)


def test_every_group_is_judged_as_a_claim_of_its_own() -> None:
    """Masses, acceptance and log-wealth of each block are those of a table in which the other groups score nothing."""
    reg, some = registered(), units(1500)
    now = look(reg, sample(reg, tally_of(reg, some)))
    assert now.wealth is not None
    for block in range(3):
        rows, one = slice(4 * block, 4 * block + 4), alone(reg, 1 / 3)
        seen = sample(one, tally_of(one, only(some, block)))
        mine = masses(reg, tally_of(reg, some).sums, 1.0)
        np.testing.assert_allclose(mine.unsupported[rows], seen.masses.unsupported, atol=1e-9)
        np.testing.assert_allclose(mine.accepted[rows], seen.masses.accepted, atol=1e-9)
        np.testing.assert_allclose(now.acceptance_lower[rows], look(one, seen).acceptance_lower, atol=2e-9)
        bets = betting.ladder([0.2])
        m = seen.masses
        log_E = betting.log_wealth(m.unsupported, m.supported, m.noise, seen.N, eta=seen.eta, rungs=bets)[:, 0]
        np.testing.assert_allclose(now.wealth[rows], log_E, atol=1e-7)


def test_answers_of_no_listed_group_count_nowhere() -> None:
    reg, some = registered(), units(800)
    assert some.group is not None
    rest = np.flatnonzero(some.group < 3)
    one, other = masses(reg, tally_of(reg, some).sums, 1.0), masses(reg, tally_of(reg, some.take(rest)).sums, 1.0)
    np.testing.assert_allclose(one.accepted, other.accepted)
    assert tally_of(reg, some).total == 800


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
def test_rejections_follow_the_weights_left(keep: float) -> None:
    """A loop that rejects one row at a time, in any order, comes to the same set."""
    rng = np.random.default_rng(5)
    claims = Groups(names=GROUPS, shares=(0.5, 0.3, 0.2), keep=keep)
    for _ in range(200):
        w = rng.dirichlet(np.ones(12))
        p = rng.choice([1e-4, 3e-3, 1e-2, 0.03, 0.2], 12)
        found = panel.reject(claims, w, 3, lambda left, p=p: p <= 0.05 * left, passes=True)  # type: ignore[misc]
        done = np.zeros(12, dtype=np.bool_)
        while True:
            left = weights_left(w.reshape(3, 4), done.reshape(3, 4), keep).ravel()
            able = np.flatnonzero(~done & (p <= 0.05 * left))
            if not able.size:
                break
            done[rng.choice(able)] = True
        assert found.tolist() == done.tolist()
        first = panel.reject(claims, w, 3, lambda left, p=p: p <= 0.05 * left, passes=False)  # type: ignore[misc]
        assert first.tolist() == (p <= 0.05 * w).tolist()


def test_a_weight_is_passed_on_where_the_mixture_is_fixed_and_nowhere_else() -> None:
    fixed, moving = registered(), registered(("a", "b"))
    declared = registered(("a", "b"), weights={"a": 0.5, "b": 0.5})
    some = units(1140, risks=(0.0, 0.1, 0.3))
    for reg, passes in ((fixed, True), (declared, True), (moving, False)):
        seen = sample(reg, tally_of(reg, some))
        seen = type(seen)(seen.masses, seen.N, 0.0)
        now = look(reg, seen)
        assert now.wealth is not None
        plain = now.wealth >= -np.log(0.045 * np.asarray(reg.row_weights))
        assert bool(np.any(np.asarray(now.rejected) != plain)) is passes


def test_evidence_of_an_earlier_look_counts_where_the_mixture_is_fixed() -> None:
    reg, some = registered(), units(1500)
    first = look(reg, sample(reg, tally_of(reg, some)))
    later = look(reg, sample(reg, tally_of(reg, units(1500, seed=3, risks=(0.9, 0.9, 0.9)))), first)
    assert np.all(np.asarray(later.rejected) >= np.asarray(first.rejected))
    assert np.all(later.acceptance_lower >= first.acceptance_lower)


def test_one_threshold_for_all_groups_is_certified_where_every_group_is() -> None:
    reg, some = registered(group_claim="all"), units(6000, risks=(0.02, 0.05, 0.3))
    now = look(reg, sample(reg, tally_of(reg, some)))
    one = alone(reg, 1.0)
    single = [look(one, sample(one, tally_of(one, only(some, group)))) for group in range(3)]
    by_group = np.array([each.risk_upper <= 0.2 for each in single])
    first = by_group.all(axis=0)  # with the first weights; those passed on can only add to it
    assert np.all(np.asarray(now.rejected) >= first)
    assert first.any()
    assert not first.all()
    assert now.certified.shape == (4,)
    worst = np.asarray(now.wealth).reshape(3, 4).min(axis=0)
    done = np.asarray(now.rejected)
    left = panel.left(reg.claims, np.asarray(reg.row_weights), 3, done)[:4][~done]
    assert np.all(worst[~done] < -np.log(0.045 * left))


def test_acceptance_for_all_groups_is_of_all_traffic() -> None:
    reg, some = registered(group_claim="all"), units(3000)
    seen = sample(reg, tally_of(reg, some))
    now = look(reg, seen)
    assert some.group is not None
    for j, value in enumerate(reg.thresholds.values):
        true = float(np.mean((some.score >= value) & (some.group < 3)))
        assert now.acceptance_lower[j] < true
        assert now.acceptance_lower[j] > true - 0.1 - 0.05


@pytest.mark.parametrize("claim", ["each", "all"])
def test_acceptance_within_a_group_is_a_bound_over_a_bound(claim: str) -> None:
    """By hand: the accepted mass from below over the group's total from above, each with half of the budget."""
    reg, some = registered(group_floor="group", group_claim=claim, thresholds=4), units(4000)
    seen = sample(reg, tally_of(reg, some))
    m, V = len(reg.thresholds.values), seen.masses.noise.of(1.0, 1.0)
    assert reg.thresholds.values[0] == 0.0
    bets, w = betting.centres(0.05), np.asarray(reg.row_weights)
    lower = betting.a_lower(seen.masses.accepted, V, seen.N, eta=0.0, bets=bets, alpha_a=0.0049 / 2, w=w).reshape(3, m)
    shares = np.full(3, 1 / 3)  # split even where one threshold is for all: the worst group may differ by threshold
    total, noise = seen.masses.accepted.reshape(3, m)[:, 0], V.reshape(3, m)[:, 0]
    out = betting.a_lower(seen.N - total, noise, seen.N, eta=0.0, bets=bets, alpha_a=0.0049 / 2, w=shares)
    expected = np.minimum(1.0, lower / (1.0 - out)[:, None])
    expected[:, 0] = 0.0  # the total holds answers without a score: no more is shown than at the next threshold
    expected = np.maximum.accumulate(expected[:, ::-1], axis=1)[:, ::-1]
    expected = expected.min(axis=0) if claim == "all" else expected.ravel()
    np.testing.assert_allclose(look(reg, seen).acceptance_lower, expected, atol=2e-8)
    assert some.group is not None
    true = [np.mean(some.score[some.group == 0] >= value) for value in reg.thresholds.values]
    assert np.all(expected[:m] < np.array(true) + (1e-9 if claim == "each" else 1.0))


def test_the_best_score_is_picked_and_both_are_judged() -> None:
    reg, some = registered(also_scores=(("other", Scale()),)), units(3000, risks=(0.1, 0.2, 0.3))
    some = Units(some.start, some.score, some.loss, None, None, None, (), some.others)
    now = look(reg, sample(reg, tally_of(reg, some)))
    assert now.wealth is not None
    for block, score in enumerate((some.score, np.asarray(some.others)[:, 0])):
        one = alone(reg, 0.5)
        seen = sample(one, tally_of(one, Units(some.start, score, some.loss, None)))
        mine = masses(reg, tally_of(reg, some).sums, 1.0)
        np.testing.assert_allclose(mine.supported[4 * block : 4 * block + 4], seen.masses.supported, atol=1e-9)
    (row,) = now.choices(reg)
    assert row is not None
    assert now.acceptance_lower[row] == now.acceptance_lower[now.certified].max()


def sealed_panel(line: str = "exact", **choices: Any) -> Registration:
    base = registered(thresholds=3, rounds=1, **choices)
    blocks, values, weights = len(base.cuts), base.thresholds.values, (0.2, 0.3, 0.5)
    bets = tuple(0.3 + 0.05 * i for i in range(3 * blocks))
    together = base.panel is not None and base.panel.simultaneous
    others = () if together else ((values, weights),) * (blocks - 1)
    return seal(base, Seal(values, weights, ((0.2, 1.0, bets),), line=line, others=others))


@pytest.mark.parametrize("kind", ["groups", "scores"])
def test_a_sealed_panel_sees_every_block_as_a_claim_of_its_own(kind: str) -> None:
    """L, contrasts and acceptance of each block: those of a table of that block alone, with its own bets."""
    choices: dict[str, Any] = {} if kind == "groups" else {"also_scores": (("other", Scale()),)}
    reg, some = sealed_panel(**choices), units(2000)
    found = sealed.see(reg, tally_of(reg, some), 0.0, 1.0)
    for block in range(len(reg.cuts)):
        fields = reg.model_dump()
        fields["claims"] = {"kind": "one"}
        fields["certificate"]["targets"][0]["bets"] = reg.model_dump()["certificate"]["targets"][0]["bets"][
            3 * block : 3 * block + 3
        ]
        one = Registration.model_validate(fields)
        mine = only(some, block) if kind == "groups" else Units(
            some.start, some.score if block == 0 else np.asarray(some.others)[:, 0], some.loss, None
        )  # fmt: skip
        seen = sealed.see(one, tally_of(one, mine), 0.0, 1.0)
        rows = slice(3 * block, 3 * block + 3)
        shift = sealed.rows(reg).shift[rows] - sealed.rows(one).shift
        assert found.L[rows] == pytest.approx(seen.L - shift, abs=1e-6)
        assert found.contrast[rows] == pytest.approx(seen.contrast, abs=1e-6)
        assert found.second[rows] == pytest.approx(seen.second, abs=1e-6)


def test_a_sealed_panel_of_groups_has_more_noise_than_a_single_claim() -> None:
    """A unit may change its group: the diameter is that of two blocks."""
    reg, one = sealed_panel(), sealed_panel()
    fields = one.model_dump()
    fields["claims"] = {"kind": "one"}
    fields["certificate"]["targets"][0]["bets"] = fields["certificate"]["targets"][0]["bets"][:3]
    single = Registration.model_validate(fields)
    assert 1.1 < reg.mechanism.scale / single.mechanism.scale < 1.5


@pytest.mark.parametrize("encoding", ["histograms", "moments"])
def test_a_missing_release_is_charged_in_every_group(encoding: str) -> None:
    more: dict[str, Any] = {"unit": "source", "max_answers": 2} if encoding == "moments" else {}
    reg = registered(encoding=encoding, dropout="adversarial", capacities={"a": 500}, **more)
    lost = lose(reg, empty(reg), [(0, 200)], 1)
    assert np.all(lost.charge.unsupported >= 200)
    assert lost.charge.unsupported.shape == (12,)
    margin = plausible_margins(reg, 1)
    one = plausible_margins(alone(reg, 1.0), 1)
    events = 7 if encoding == "moments" else 3
    ratio = math.log(events * 12 * math.pi**2 / (6 * 1e-4)) / math.log(events * 4 * math.pi**2 / (6 * 1e-4))
    assert margin.low_unsupported[:4] == pytest.approx(one.low_unsupported * math.sqrt(ratio), rel=1e-6)


def test_a_charged_release_may_be_all_of_one_group() -> None:
    """Its slots are in the group's total, and accepted by nothing: the share of a group falls by both."""
    reg = registered(group_floor="group", dropout="adversarial", capacities={"a": 5000}, thresholds=3)
    there = tally_of(reg, units(3000))
    lost = lose(reg, there, [(0, 600)], 2)
    before, after = (look(reg, sample(reg, each)).acceptance_lower for each in (there, lost))
    some = units(3000)
    assert some.group is not None
    total, margin = int((some.group == 0).sum()), plausible_margins(reg, 2)
    accepted = int(((some.group == 0) & (some.score >= reg.thresholds.values[1])).sum())
    assert after[1] <= (accepted - margin.low_unsupported[1]) / (total + 600)
    assert after[1] < before[1]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "whole sources in all groups": (
        {"group_span": "whole", "group_claim": "all", "unit": "source", "max_answers": 3},
        "its floor is 'group'",
    ),
    "paper": ({"preset": "paper"}, "the paper's speak of all the traffic"),
    "levels": ({"encoding": "levels", "loss_grid": 4}, "complementary histograms, second moments or contrasts"),
    "records in several groups": ({"group_span": "whole"}, "only sources count whole"),
    "one group twice": ({"groups": ("g", "g")}, "listed once"),
    "scores and groups": ({"groups": GROUPS, "also_scores": (("x", Scale()),)}, "not registered together"),
    "a score twice": ({"also_scores": (("score", Scale()),), "groups": None}, "registered once"),
    "checkpoints of nothing": ({"checkpoints": {"y": (3,)}, "groups": None}, "no registered score"),
    "checkpoints of groups": ({"checkpoints": {"score": (3,)}}, "groups and checkpoints are not registered together"),
    "no checkpoint": ({"checkpoints": {"score": ()}, "groups": None}, "not increasing numbers of tokens"),
    "checkpoints that fall": (
        {"also_scores": (("x", Scale()),), "checkpoints": {"x": (5, 5)}, "groups": None},
        "increasing numbers of tokens",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_combine_is_refused_with_a_sentence(name: str) -> None:
    choices, words = REFUSED[name]
    with pytest.raises(FedsrcError, match=words):
        registered(**choices)


CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "a ladder": ({"certificate": {"ladder": [0.2, 0.3]}}, "registered target alone"),
    "shares": ({"claims": {"shares": [0.5, 0.4, 0.3]}}, "sum to one"),
    "a group without thresholds": ({"claims": {"own": [{"values": [0.1], "weights": [1.0]}]}}, "every group has"),
    "uneven thresholds": (
        {"claims": {"own": [{"values": [0.1], "weights": [1.0]}] * 2
                    + [{"values": [0.1, 0.2], "weights": [0.5, 0.5]}]}},
        "as many thresholds",
    ),
    "all groups of a mixture that moves": (
        {"claims": {"claim": "all"}, "sites": [{"name": "a"}, {"name": "b"}]}, "needs site weights, or one site",
    ),
    "a floor without totals": ({"claims": {"floor": "group"}}, "first threshold of every group is 0"),
    "own thresholds for all": (
        {"claims": {"claim": "all", "own": [{"values": [0.1], "weights": [1.0]}] * 3}}, "no group has its own",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_registrations_that_were_changed_are_refused(name: str) -> None:
    sections, words = CHANGED[name]
    fields = registered().model_dump()
    for section, values in sections.items():
        fields[section] = {**fields[section], **values} if isinstance(values, dict) else values
    with pytest.raises(FedsrcError, match=words):
        Registration.of(fields)


def test_a_registration_of_one_claim_keeps_its_bytes() -> None:
    assert '"claims":{"kind":"one"}' not in registered().to_toml()
    plain = register_grid(Choices(0.2, 4.0, grid=True), ["a"])
    assert plain.model_dump()["claims"] == {"kind": "one"}
    again = Registration.from_toml(registered().to_toml())
    assert again == registered()
    assert again.digest == registered().digest


def test_an_empty_look_picks_nothing() -> None:
    reg = registered()
    nothing = Look(np.ones(12), np.zeros(12), np.zeros(12, dtype=np.bool_))
    assert nothing.choices(reg) == (None, None, None)
    three = Look(np.ones(12), np.arange(12.0), np.array([False, True, True, False] + [False] * 4 + [True] * 4))
    assert three.choices(reg) == (2, None, 11)
    assert isinstance(reg.claims, Groups)
    assert isinstance(registered(also_scores=(("x", Scale()),)).claims, Scores)
    assert isinstance(One(), One)


def test_nan_rejects_nothing() -> None:
    reg = registered()
    seen = sample(reg, tally_of(reg, units(500)))
    bad: Floats = np.full(12, np.nan)
    broken = type(seen)(type(seen.masses)(bad, bad, bad, seen.masses.noise), seen.N, 0.0)
    assert not look(reg, broken).certified.any()
