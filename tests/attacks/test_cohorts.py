"""Attacks on cohorts: a copied key, a server that asks its members differently, and one record read off a sum.

Mutants killed, and run here: keys that nobody proves to have with masks that names do not enter (a victim laid open).
Others: masks by a member's own request, a second request for a round, rounds that go back, other parts, noise or
cohorts taken, one ledger for two members, a member without units that sends nothing, no noise, or noise of the whole
scale, a unit's contribution through anything but the sum. Chance of a false alarm: 1e-6 in
`test_a_member_without_units_sends_its_share_of_the_noise`, none elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from fedsrc.common.canonical import canonical_bytes, digest
from fedsrc.common.signing import public_hex
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.planning.sealing import Seal, seal
from fedsrc.protocol.mask_key import MaskKey
from fedsrc.protocol.messages import Refusal, Release, Request, SignedRequest, parse_release
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import counted
from fedsrc.records.stream import Table
from fedsrc.records.units import Records, units_of
from fedsrc.server.opening import open_sum
from fedsrc.site import masks
from fedsrc.site import release as site_release
from fedsrc.site.admission import RefusedError, admit
from fedsrc.site.masks import masked
from fedsrc.site.site import Site
from tests.support import edwards
from tests.support.cohorts import (
    SERVER,
    Member,
    cohort_registration,
    ledger_of,
    member,
    own_table,
    released,
    request_to,
    site_of,
    unmasked,
)

FOUR = [member(name) for name in "abcd"]
REG = cohort_registration(FOUR)


# ---------------------------------------------------------------- a copied key

VICTIM, OTHER, COLLUDER = member("m"), member("z"), member("a")


def copies() -> list[str]:
    """The other honest member's public key, and those close to it."""
    point = edwards.decode(public_hex(OTHER.mask))
    return [edwards.encode(edwards.add(point, low)) for low in edwards.of_low_order()]


def with_a_copy(mask: str) -> Registration:
    """Three sites, of which the colluding one registers another's mask key as its own: it cannot prove that it has
    it. Its name is chosen so that the victim takes off what it adds."""
    fields = cohort_registration([COLLUDER, VICTIM, OTHER]).model_dump()
    word = MaskKey(site="a", key=public_hex(COLLUDER.key), mask=mask, proof=OTHER.word.proof).signed(COLLUDER.key)
    fields["aggregation"]["keys"] = [word.model_dump(), *fields["aggregation"]["keys"][1:]]
    return Registration.of(fields)


@pytest.mark.parametrize("mask", copies())
def test_a_copied_key_is_refused(mask: str) -> None:
    with pytest.raises(FedsrcError, match=r"the same key|not proved to be its own"):
        with_a_copy(mask)


@pytest.mark.parametrize("mask", copies())
def test_where_nothing_is_checked_a_copied_key_lays_the_victim_open(mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the checks, and without names in the derivation, what the victim sends is what it counted: two masks of
    one secret, one added and one taken off. Names alone already prevent it."""
    monkeypatch.setattr(Registration, "_check_mask_keys", lambda *_: None)
    reg, values = with_a_copy(mask), [*range(-5, 6)]
    request = request_to(reg, [1, 1, 1])
    assert masked(reg, request, VICTIM.name, VICTIM.mask, values) != values
    monkeypatch.setattr(masks, "canonical_bytes", lambda info: canonical_bytes(info[:4]))
    assert masked(reg, request, VICTIM.name, VICTIM.mask, values) == values


# ---------------------------------------------------------------- a server that asks differently


def test_members_who_are_asked_differently_cannot_be_opened(tmp_path: Path) -> None:
    """Two halves of a cohort get two requests of one round: neither half opens, nor does all of it."""
    one, other = request_to(REG, [9, 9, 9, 9]), request_to(REG, [9, 9, 9, 8])
    halves = released(tmp_path, REG, one, FOUR[:2]), released(tmp_path, REG, other, FOUR[2:])
    for some in (*halves, [*halves[0], *halves[1]]):
        found = open_sum(some)
        assert found.check not in (18, 17, 35, 36)
        assert np.median(np.abs([*found.first, *found.second])) > 2**57  # of uniform ones: in a case of 10^9


@pytest.mark.parametrize(
    "change",
    [
        {"number": 7},
        {"parts": (8, 9, 9, 10)},
        {"parts": (9, 9, 9, 10), "slots": 37},
        {"round": 1, "number": 3},
    ],
)
def test_another_request_for_a_round_is_refused_and_spends_nothing(change: dict[str, Any], tmp_path: Path) -> None:
    request = request_to(REG, [9, 9, 9, 9], round=2)
    with site_of(tmp_path, FOUR[0], REG) as site:
        first = site.answer(request)
        spent = site.ledger.spent(site.intake)
        other = Request.model_validate({**request.model_dump(), **change})
        with pytest.raises(FedsrcError, match="round 2 of its cohort was answered"):
            site.answer(other)
        assert site.ledger.spent(site.intake) == spent == 9
        assert site.answer(request) == first
        assert parse_release(site.answer(request_to(REG, [9, 9, 9, 9], round=3))).place == 2


def test_a_round_that_is_not_registered_locks_nobody_out(tmp_path: Path) -> None:
    """Rounds only grow, so one that is far ahead would be the last that a member answers."""
    far = request_to(REG, [9, 9, 9, 9], round=REG.schedule.rounds + 1)
    with site_of(tmp_path, FOUR[0], REG) as site:
        with pytest.raises(FedsrcError, match="there is none"):
            site.answer(far)
        assert site.answer(request_to(REG, [9, 9, 9, 9], round=1))


def test_the_same_bytes_again_whatever_happens_between(tmp_path: Path) -> None:
    request = request_to(REG, [5, 0, 5, 5])
    for who, slots in zip(FOUR[:2], (5, 0), strict=True):
        with site_of(tmp_path, who, REG) as site:
            first = site.answer(request)
        with site_of(tmp_path, who, REG) as site:
            site.answer(request_to(REG, [1, 1, 1, 1], round=2))
            assert site.answer(request) == first
            assert site.ledger.spent(site.intake) == slots + 1


@pytest.mark.parametrize(
    ("why", "change"),
    [
        (Refusal.NOT_AS_REGISTERED, {"site": "b"}),  # another member alone
        (Refusal.NOT_AS_REGISTERED, {"site": "a"}),
        (Refusal.NOT_AS_REGISTERED, {"site": "holder"}),
        (Refusal.NOT_AS_REGISTERED, {"site": "other", "parts": (9, 9, 9, 9)}),  # another cohort
        (Refusal.NOT_AS_REGISTERED, {"parts": (9, 9, 18)}),  # other parts
        (Refusal.NOT_AS_REGISTERED, {"parts": (9, 9, 9, 9, 0)}),
        (Refusal.NOT_AS_REGISTERED, {"scale": REG.share_of("all") - 2**-20}),
        (Refusal.NOT_AS_REGISTERED, {"scale": REG.mechanism.scale}),
        (Refusal.NOT_AS_REGISTERED, {"scale": 0.0}),
        (Refusal.NOT_ALLOWED, {"registration": "0" * 64}),
    ],
)
def test_what_the_registration_does_not_fix_is_refused(why: Refusal, change: dict[str, Any], tmp_path: Path) -> None:
    request = Request.model_validate({**request_to(REG, [9, 9, 9, 9]).model_dump(), **change})
    order = SignedRequest.by(request, SERVER)
    with closing(ledger_of(tmp_path, FOUR[0], REG)) as ledger:
        with pytest.raises(RefusedError) as refused:
            admit(order, "a", ledger, FOUR[0].key)
        assert refused.value.why == why


def test_a_request_to_one_site_alone_is_refused(tmp_path: Path) -> None:
    """As if there were no cohort: its release could be opened by itself, at the noise of a share."""
    request = request_to(REG, [9, 9, 9, 9])
    alone = Request(**{**request.model_dump(), "site": "a", "slots": 9, "parts": None})
    with site_of(tmp_path, FOUR[0], REG) as site:
        for scale in (request.scale, REG.mechanism.scale):
            with pytest.raises(RefusedError, match="answers in cohort 'all'"):
                site.answer(alone.model_copy(update={"scale": scale}))
        assert site.ledger.spent(site.intake) == 0


def test_a_member_of_another_cohort_does_not_answer(tmp_path: Path) -> None:
    reg = cohort_registration(FOUR, {"one": "ab", "two": "cd"})
    request = request_to(reg, [9, 9, 9, 9])
    assert (request.site, reg.answering(request)) == ("one", ("a", "b"))
    with site_of(tmp_path, FOUR[2], reg) as site, pytest.raises(RefusedError, match="answers in cohort 'two'"):
        site.answer(request)


def test_one_ledger_does_not_serve_two_members(tmp_path: Path) -> None:
    """Whatever is asked first or next: the other's stored bytes are not given out for its own either."""
    one, two = FOUR[0], replace(FOUR[1], name="b")
    request, later = request_to(REG, [9, 9, 9, 9]), request_to(REG, [9, 9, 9, 9], round=2)
    with site_of(tmp_path, one, REG) as site:
        site.answer(request)
        site.ledger.allow(two.name, REG)
        both = Site(REG, two.name, site.ledger, replace(site.intake, site="b"), site.count, two.key, mask=two.mask)
        for each in (request, later):
            with pytest.raises(FedsrcError, match="answers for site 'a' already"):
                both.answer(each)
        assert site.ledger.spent(site.intake) == 9


@pytest.mark.parametrize("mask", [None, FOUR[1].mask, FOUR[0].key])
def test_without_its_own_mask_key_a_site_does_not_answer(mask: Any, tmp_path: Path) -> None:
    wrong = replace(FOUR[0], mask=mask)
    with (
        pytest.raises(RefusedError, match="needs the private key of its registered mask key"),
        site_of(tmp_path, wrong, REG),
    ):
        pass


# ---------------------------------------------------------------- from tables to what is opened


def neighbouring(rng: np.random.Generator, reg: Registration, who: str, units: int) -> tuple[Records, Records]:
    """Two tables of a member that differ in one unit: corners and thresholds more often than what lies between."""
    source, answers = reg.privacy.unit == "source", reg.privacy.max_answers
    sizes = rng.integers(1, answers + 3, units) if source else np.ones(units, dtype=np.int64)
    codes = np.repeat(np.arange(units), sizes)
    both = list[Records]()
    score, loss = drawn(rng, reg, codes.size), drawn(rng, reg, codes.size, losses=True)
    changed = codes == rng.integers(units)
    for number in range(2):
        mix: list[Floats] = [score, loss]
        if number:
            mix = [np.where(changed, drawn(rng, reg, codes.size, losses=bool(i)), each) for i, each in enumerate(mix)]
        both.append(_table(who, mix, codes if source else None, units))
    return both[0], both[1]


def drawn(rng: np.random.Generator, reg: Registration, size: int, *, losses: bool = False) -> Floats:
    if losses:
        return np.asarray(rng.integers(0, reg.privacy.loss_grid + 1, size) / reg.privacy.loss_grid)
    return np.asarray(rng.choice([0.0, 1.0, *reg.thresholds.values, rng.random()], size))


def _table(who: str, columns: Sequence[Floats], codes: Ints | None, units: int) -> Records:
    names = tuple(f"{who}-s{i}" for i in range(units))
    content = digest([who, *(column.tolist() for column in columns)])
    return Records(
        digest=content, score=columns[0], loss=columns[1], site=np.zeros(columns[0].size, dtype=np.int64),
        site_names=(who,), source=codes, source_names=() if codes is None else names, ids=None,
    )  # fmt: skip


def kind_of(name: str) -> Registration:
    unit, encoding = name.split(", ")
    sources: dict[str, Any] = {"unit": "source", "max_answers": 3} if unit == "sources" else {}
    graded: dict[str, Any] = {"loss_grid": 4} if encoding in ("moments", "levels") else {}
    finer: dict[str, Any] = {"encoding": encoding} if encoding in ("moments", "levels") else {}
    reg = cohort_registration(FOUR, **sources, **graded, **finer, thresholds=3, batch=UNITS, rounds=1)
    if encoding == "contrasts":
        bets = ((0.2, 1.0, (0.5, 0.5, 0.5)),)
        return seal(reg, Seal((0.25, 0.5, 0.75), (0.2, 0.3, 0.5), bets, line="within"))
    return reg


UNITS, PAIRS = 6, 8
KINDS = [
    "records, histograms", "sources, histograms", "records, moments", "sources, moments", "records, levels",
    "records, contrasts", "sources, contrasts",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_one_unit_moves_what_is_opened_by_the_sensitivity_at_most(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From two tables of one member, with its masks and without noise: nothing that leaves it differs but the masked
    integers, nothing that leaves the others differs at all, and the sum moves by the sensitivity at most."""
    monkeypatch.setattr(site_release, "add_discrete_gaussian", lambda values, *_, **__: values)
    reg, rng, moved = kind_of(kind), np.random.default_rng(21), list[float]()
    request = request_to(reg, [UNITS] * 4)
    others = [_released(tmp_path / "others", reg, request, who, _other(reg, who)) for who in FOUR[1:]]
    for number in range(PAIRS):
        two = list[Release]()
        for half, records in enumerate(neighbouring(rng, reg, "a", UNITS)):
            two.append(_released(tmp_path / f"{number}-{half}", reg, request, FOUR[0], records))
        assert public(two[0]) == public(two[1])
        sums = [open_sum([each, *others]) for each in two]
        assert sums[0].check == sums[1].check == request.slots
        apart = np.subtract([*sums[0].first, *sums[0].second], [*sums[1].first, *sums[1].second])
        moved.append(float(np.linalg.norm(apart)) / reg.mechanism.sensitivity)
    assert max(moved) <= 1 + 1e-9
    assert max(moved) > 0.5  # it does reach the sum


def _other(reg: Registration, who: Member) -> Records:
    rng = np.random.default_rng([22, ord(who.name)])
    return neighbouring(rng, reg, who.name, UNITS)[0]


def _released(folder: Path, reg: Registration, request: Request, who: Member, records: Records) -> Release:
    with site_of(folder, who, reg, records) as site:
        return parse_release(site.answer(request))


def public(release: Release) -> dict[str, Any]:
    """Everything but the integers, the signature over them and the time."""
    secret = {"first", "second", "signature", "time"}
    return {name: value for name, value in release.model_dump().items() if name not in secret}


def test_a_member_without_units_sends_its_share_of_the_noise(tmp_path: Path) -> None:
    """Unmasked with its own key: noise of the share, no more and no less, of the registered length."""
    rounds, numbers = 60, list[int]()
    reg = cohort_registration(FOUR, rounds=rounds)
    with site_of(tmp_path, FOUR[0], reg) as site:
        for round in range(1, rounds + 1):
            request = request_to(reg, [0, 1, 0, 0], round)
            release = parse_release(site.answer(request))
            assert (release.slots, release.place, release.scale) == (0, round, reg.share_of("all"))
            *noise, check = unmasked(reg, request, release, FOUR[0])
            assert check == 0
            numbers += noise
        assert site.ledger.spent(site.intake) == 0
    assert len(numbers) == rounds * sum(reg.mechanism.lengths)
    total = sum(each**2 for each in numbers) / reg.share_of("all") ** 2
    low, high = chi2.ppf([5e-7, 1 - 5e-7], len(numbers))
    assert low < total < high
    assert not low < total * (reg.mechanism.scale / reg.share_of("all")) ** 2 < high  # the whole scale is seen
    assert math.isclose(reg.share_of("all"), reg.mechanism.scale / math.sqrt(3), rel_tol=1e-8)


def test_a_whole_cohort_opens_to_what_it_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members with and without units, and the sum of what each sent."""
    monkeypatch.setattr(site_release, "add_discrete_gaussian", lambda values, *_, **__: values)
    request = request_to(REG, [200, 0, 7, 0])
    given = released(tmp_path, REG, request, FOUR)
    plain = [unmasked(REG, request, each, who) for each, who in zip(given, FOUR, strict=True)]
    found = open_sum(given)
    assert [*found.first, *found.second, found.check] == np.sum(plain, axis=0).tolist()
    assert [each[-1] for each in plain] == [200, 0, 7, 0]
    assert plain[1][:-1] == plain[3][:-1] == [0] * sum(REG.mechanism.lengths)
    units = counted(REG, units_of(own_table("a"), "a", "record"))
    assert plain[0][:-1] == REG.mechanism.basis.encode(units).ravel().tolist()


def test_a_table_in_batches_is_masked_and_counted_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same rows, on disk and in memory, with masks and without noise."""
    monkeypatch.setattr(site_release, "add_discrete_gaussian", lambda values, *_, **__: values)
    request, records = request_to(REG, [200, 0, 0, 0]), own_table("a")
    path = tmp_path / "a.csv"
    lines = [f"{score!r},{loss!r}" for score, loss in zip(records.score.tolist(), records.loss.tolist(), strict=True)]
    path.write_text("\n".join(["score,loss", *lines]) + "\n")
    found = list[Release]()
    for folder, table in ((tmp_path / "one", records), (tmp_path / "two", Table(path, batch=7))):
        with site_of(folder, FOUR[0], REG, table) as site:
            found.append(parse_release(site.answer(request)))
    assert (found[0].first, found[0].second, found[0].check) == (found[1].first, found[1].second, found[1].check)
