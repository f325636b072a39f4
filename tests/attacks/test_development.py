"""The units that choose thresholds are protected like the others: what leaves of them is one noised release.

The attack: thresholds were exact quantiles of the development units, and a registration published them. Whoever knew
all units but one could read that one off: two tables that differed in it had different registrations.

Mutants killed, and run here: exact quantiles, a cap on answers and a grid of losses read off the records, answers kept
by row number, an eighth of the noise, noise drawn again after a crash. Chance of a false alarm: none where cases are
numbered; where noise is real, at most 1e-6, as said there.
"""

from __future__ import annotations

import math
import shutil
import sqlite3
import tomllib
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from scipy.special import ndtr

from fedsrc.common import durable
from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import certify_table, register_table
from fedsrc.maths.arrays import Ints
from fedsrc.planning.register import Choices, development_part, register, register_grid
from fedsrc.protocol.mechanism import Mechanism
from fedsrc.protocol.registration import Registration
from fedsrc.records import units
from fedsrc.records.development import development_rows
from fedsrc.records.units import Records, unit_codes
from fedsrc.server.verify import verify
from fedsrc.site import develop as site_development
from fedsrc.site import release as site_release
from fedsrc.site.develop import development_masses, over_grid
from fedsrc.site.noise import add_discrete_gaussian
from research.attacks.neighbours import development_change
from research.attacks.old_rules import by_row_number
from tests.support.helpers import table

PAIRS, MANY, FEW = 250, 3000, 60
KEY = Key.from_private_bytes(bytes(32))
RECORDS = table(1000, sites=("north", "south"), ids=True)


def changes(first: int, pairs: int, folder: Path) -> list[float]:
    found = [development_change(number, folder) for number in range(first, first + pairs)]
    return [each for each in found if each is not None]


def test_one_unit_moves_the_release_by_the_sensitivity_at_most(tmp_path: Path) -> None:
    """All caps, weights, grids and relations; by all of it in some pair, and by nothing if the unit calibrates."""
    found = changes(0, PAIRS, tmp_path)
    assert max(found) == pytest.approx(1.0)
    assert max(found) <= 1 + 1e-12
    assert sum(each > 0 for each in found) > 30
    assert sum(each == 0 for each in found) > 30


@pytest.mark.thorough
def test_one_unit_moves_the_release_by_the_sensitivity_at_most_in_many_pairs(tmp_path: Path) -> None:
    assert max(changes(PAIRS, MANY, tmp_path)) <= 1 + 1e-12


def test_answers_kept_by_row_number_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "_by_source", by_row_number)
    assert max(changes(0, FEW, tmp_path)) > 1.5


# What leaves: a function of the released integers.


def sources(**victim: Any) -> Records:
    """A hundred sources of three answers; of one that develops, as said."""
    base = table(300, seed=3)
    records = replace(base, source=np.arange(300) // 3, source_names=tuple(f"q{i}" for i in range(100)))
    part = development_part(records, "source", 0.2)
    own = np.flatnonzero(development_rows(records, part, "source"))[0]
    rows = np.flatnonzero(unit_codes(records, "source") == records.source[own]) if records.source is not None else own
    score, loss, source = records.score.copy(), records.loss.copy(), np.asarray(records.source).copy()
    score[rows], loss[rows] = victim.get("score", 0.5), victim.get("loss", 0.0)
    if victim.get("answers"):  # the same source with more rows
        more = victim["answers"] - 3
        score, loss = np.append(score, [0.5] * more), np.append(loss, [0.0] * more)
        source = np.append(source, [source[own]] * more)
    return replace(records, score=score, loss=loss, source=source, site=np.zeros(score.size, dtype=np.int64))


VICTIMS: dict[str, dict[str, Any]] = {
    "another score": {"score": 0.97},
    "more answers": {"answers": 9},
    "a graded loss": {"loss": 0.5},
}


def leaves(records: Records, folder: Path, released: Ints | None, **choices: Any) -> str:
    """A registration from the table's development part, whose noised integers come out as given."""
    picked = Choices(0.2, 4.0, unit="source", **choices)
    part = development_part(records, "source", 0.2)
    with pytest.MonkeyPatch.context() as patch:
        if released is not None:
            patch.setattr(site_development, "noised", lambda _rule, _counts: released)
        return register_table(picked, records, part, folder / "ledger").to_toml()


@pytest.mark.parametrize("name", VICTIMS)
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_what_leaves_follows_from_the_noised_integers(tmp_path: Path, name: str, preset: str) -> None:
    """The same integers: the same registration, byte by byte, whatever the unit holds."""
    released = np.random.default_rng(1).integers(-500, 20_000, (2, 111))
    one, other = (
        leaves(records, tmp_path / str(i), released, preset=preset, loss_grid=100)
        for i, records in enumerate((sources(), sources(**VICTIMS[name])))
    )
    assert one == other


@pytest.mark.parametrize("name", VICTIMS)
def test_exact_quantiles_caps_and_grids_are_caught(tmp_path: Path, name: str) -> None:
    """What was registered before, and still is of public records: an exact function of them."""
    one, other = (
        leaves(records, tmp_path / str(i), None, public_development=True)
        for i, records in enumerate((sources(), sources(**VICTIMS[name])))
    )
    assert one != other


def test_a_graded_loss_is_not_told_by_the_grid(tmp_path: Path) -> None:
    with pytest.raises(FedsrcError, match="`loss_grid=100`"):
        leaves(sources(loss=0.5), tmp_path, None)


@pytest.mark.parametrize("public", [False, True])
def test_beside_a_grid_nothing_is_read_off_the_records(tmp_path: Path, public: bool) -> None:
    """Whatever is said of them there: no ledger hears of it, and the next registration, at a finite epsilon, called
    records protected whose largest number of answers and grid of losses this one had published."""
    how: dict[str, Any] = {"unit": "source", "grid": True, "public_development": public}
    part, epsilon = development_part(sources(), "source", 0.2), 4.0 if public else math.inf
    one, other = (
        register_table(Choices(0.2, epsilon, **how), records, part, tmp_path / "ledger")
        for records in (sources(), sources(answers=9))
    )
    assert one == other
    with pytest.raises(FedsrcError, match="nothing is taken from the table"):
        register_table(Choices(0.2, epsilon, **how), sources(loss=0.5), part, tmp_path / "ledger")


def guesses(rule: Mechanism, worlds: list[Ints], noise: Mechanism, count: int) -> float:
    """How often an attacker who knows both tables tells from real releases which it is: by the likelier one."""
    rng, right = np.random.default_rng(4), 0
    images = [rule.basis.encode(each).astype(np.float64) for each in worlds]
    for truth in rng.integers(2, size=count):
        exact = rule.basis.encode(worlds[truth])
        seen = add_discrete_gaussian(exact, noise.scale, sensitivity=noise.sensitivity, rho=noise.rho).astype(
            np.float64
        )
        right += int(np.argmin([np.sum((seen - image) ** 2) for image in images]) == truth)
    return right / count


def test_the_best_guess_is_as_good_as_the_privacy_allows() -> None:
    """Real noise at epsilon 1. The best guess is right with probability Phi(sqrt(rho / 2)), about 0.54.

    Limits are 4.9 standard deviations away (1e-6, both sides). With an eighth of the noise it would be 0.81.
    """
    part, records = development_part(RECORDS, "record", 0.2), RECORDS
    grid = over_grid(register(Choices(0.2, 1.0, grid=True), records, part))
    rule, count = grid.mechanism, 500
    own = np.flatnonzero(development_rows(records, part, "record"))[0]
    worlds = []
    for value in (1.0, 0.0):
        score, loss = records.score.copy(), records.loss.copy()
        score[own], loss[own] = value, 0.0
        worlds.append(development_masses(grid, replace(records, score=score, loss=loss), part))
    expected, off = float(ndtr(math.sqrt(rule.rho / 2))), 4.9 * 0.5 / math.sqrt(count)
    assert abs(guesses(rule, worlds, rule, count) - expected) < off
    weak = replace(rule, scale=rule.scale / 8, rho=64 * rule.rho)
    assert guesses(rule, worlds, weak, count) > expected + off


# Once in a unit's life.


@pytest.mark.parametrize("seed", range(4))
def test_no_unit_is_in_two_releases_whatever_is_registered(tmp_path: Path, seed: int) -> None:
    """Runs at many targets, epsilons, presets and parts on one table, some refused: one release of the development
    part, the same in every registration, and of each other unit one at most."""
    rng, seen, ledger = np.random.default_rng(seed), set[bytes](), tmp_path / "ledger"
    for step in range(6):
        choices: dict[str, Any] = {
            "target_risk": float(rng.choice([0.05, 0.2, 0.3])), "epsilon": float(rng.choice([1.0, 4.0, math.inf])),
            "preset": str(rng.choice(["default", "paper"])), "batch": 60, "rounds": 1,
            "thresholds": int(rng.integers(3, 20)), "public_development": bool(rng.random() < 0.2),
        }  # fmt: skip
        try:
            part = development_part(RECORDS, "record", float(rng.choice([0.2, 0.2, 0.3, 1.0])))
            reg = register_table(Choices(**choices), RECORDS, part, ledger)
            certify_table(reg, RECORDS, tmp_path / f"run{step}", ledger, KEY)
        except FedsrcError:
            continue
        if reg.development is not None and reg.development.release is not None:
            seen.add(reg.development.release.to_bytes())
    with closing(sqlite3.connect(ledger)) as sql:
        stored = [row[0] for row in sql.execute("SELECT release FROM development")]
        spends = sql.execute("SELECT intake, first, slots, units FROM spend JOIN intake ON intake = number").fetchall()
        cuts = {row[0] for row in sql.execute("SELECT cut FROM intake")}
    assert len(stored) == 1
    assert seen in (set(), set(stored))
    assert len(cuts) == 1  # one part developed, the others calibrated, from the first intake to the last
    for intake in {row[0] for row in spends}:
        ends = sorted((first, first + slots, every) for number, first, slots, every in spends if number == intake)
        assert all(a[1] <= b[0] for a, b in pairwise(ends))
        assert ends[-1][1] <= ends[-1][2]


@pytest.mark.parametrize("epsilon", [4.0, math.inf])
def test_units_of_another_table_are_not_published_without_a_question(tmp_path: Path, epsilon: float) -> None:
    """The rows of a table that calibrated, saved in another order and without ids: noised they were asked about, and
    published as they are they were not."""
    base = table(600, seed=8)
    turned = replace(base, digest="0" * 64, score=base.score[::-1].copy(), loss=base.loss[::-1].copy())
    certify_table(register_grid(Choices(0.2, 4.0, grid=True), ["local"]), base, tmp_path / "run", tmp_path / "l", KEY)
    choices = Choices(0.2, epsilon, public_development=not math.isinf(epsilon))
    with pytest.raises(FedsrcError, match="rows are also in an earlier table"):
        register_table(choices, turned, development_part(turned, "record", 1.0), tmp_path / "l")


class Crash(BaseException):
    """The process dies."""


@pytest.mark.parametrize("stored", [False, True])
def test_a_crash_between_release_and_registration(
    tmp_path: Path, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the ledger has it, nothing was published; after, the very bytes are used, and no noise is drawn again."""
    part, drawn, commit = development_part(RECORDS, "record", 0.2), list[Ints](), durable.commit

    def die(sql: sqlite3.Connection) -> None:
        if drawn:
            if stored:
                commit(sql)
            raise Crash
        commit(sql)

    def noise(values: Ints, scale: float, **how: Any) -> Ints:
        drawn.append(add_discrete_gaussian(values, scale, **how))
        return drawn[-1]

    monkeypatch.setattr(site_release, "add_discrete_gaussian", noise)
    with monkeypatch.context() as dying:
        dying.setattr(durable, "commit", die)
        with pytest.raises(Crash):
            register_table(Choices(0.2, 4.0), RECORDS, part, tmp_path / "ledger")
    again = [register_table(Choices(0.2, 4.0), RECORDS, part, tmp_path / "ledger") for _ in range(2)]
    assert again[0] == again[1]
    assert len(drawn) == (1 if stored else 2)
    assert again[0].development is not None
    assert again[0].development.release is not None
    assert again[0].development.release.first == tuple(drawn[-1][0].tolist())


# Whoever has the registration computes the thresholds again.


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from a table, with its registration."""
    folder = tmp_path_factory.mktemp("honest")
    part = development_part(RECORDS, "record", 0.2)
    reg = register_table(Choices(0.2, 4.0), RECORDS, part, folder / "ledger")
    certify_table(reg, RECORDS, folder / "run", folder / "ledger", KEY)
    verify(folder / "run")
    return folder / "run"


def forged(fields: dict[str, Any], what: str) -> dict[str, Any]:
    thresholds, release = fields["thresholds"], fields["development"]["release"]
    if what == "a threshold":
        thresholds["values"][-1] = (thresholds["values"][-1] + 1.0) / 2 + 1e-7  # of no grid, and still the largest
    elif what == "a released integer":
        release["first"][-1] += 10**6
    elif what == "fewer units":
        release["units"] //= 2
    elif what == "fewer asked for":
        thresholds["asked"] -= 1
    if what in ("called declared", "called exact"):
        thresholds["origin"] = "declared" if what == "called declared" else "development"
        del thresholds["asked"]
    if what in ("the release taken out", "called exact"):
        del fields["development"]["release"]
    return fields


FORGERIES = (
    "a threshold", "a released integer", "fewer units", "fewer asked for", "called declared", "the release taken out",
    "called exact",
)  # fmt: skip


@pytest.mark.parametrize("what", FORGERIES)
def test_forged_thresholds_are_refused(tmp_path: Path, honest: Path, what: str) -> None:
    """By whoever reads the registration, and so by `verify`."""
    run = shutil.copytree(honest, tmp_path / "run")
    fields = tomllib.loads((run / "registration.toml").read_text())
    (run / "registration.toml").write_text(tomli_w.dumps(forged(fields, what)))
    with pytest.raises(FedsrcError, match=r"thresholds (do not follow|of origin)"):
        Registration.read(run / "registration.toml")
    with pytest.raises(FedsrcError, match=r"thresholds (do not follow|of origin)"):
        verify(run)


ABSURD: dict[str, Any] = {
    "asked": 10**8, "units": 10**400, "scale": 1e200, "first": 10**400, "second": -(1 << 61),
}  # fmt: skip


@pytest.mark.parametrize("name", ABSURD)
def test_absurd_numbers_of_a_stranger_are_refused(honest: Path, name: str) -> None:
    """Thresholds are computed again by whoever reads a registration: 10^8 of them took 83 GiB, and a number beyond all
    floats ended `verify` with a fault."""
    fields = tomllib.loads((honest / "registration.toml").read_text())
    release, value = fields["development"]["release"], ABSURD[name]
    if name == "asked":
        fields["thresholds"][name] = value
    elif name in ("first", "second"):
        release[name][0] = value
    else:
        release[name] = value
    with pytest.raises(FedsrcError, match=r"less than or equal|absurdly large"):
        Registration.from_toml(tomli_w.dumps(fields))


def test_noise_that_cannot_be_written_down_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    """A scale beyond 2^53 was written as text and could not be read again: units were spent on an unreadable run."""
    choices = Choices(0.2, 1e-9, grid=True, unit="source", max_answers=10, loss_grid=100, delta=1e-300)
    with pytest.raises(FedsrcError, match="cannot be written down exactly"):
        certify_table(register_grid(choices, ["local"]), sources(), tmp_path / "run", tmp_path / "ledger", KEY)
    assert not (tmp_path / "run").exists()


def test_less_noise_than_the_privacy_asks_for_is_refused(tmp_path: Path) -> None:
    """Thresholds that do follow from a release with a tenth of the noise."""
    part = development_part(RECORDS, "record", 0.2)
    reg = register_table(Choices(0.2, 4.0), RECORDS, part, tmp_path / "ledger")
    assert reg.development is not None
    assert reg.development.release is not None
    weak = reg.development.release.model_copy(update={"scale": reg.development.release.scale / 10})
    fields = reg.model_dump()
    values = weak.thresholds(20)
    fields["thresholds"] |= {"values": values, "weights": (1 / len(values),) * len(values)}
    fields["development"]["release"] = weak.model_dump()
    bad = Registration.model_validate(fields)
    with pytest.raises(FedsrcError, match="another noise scale"):
        certify_table(bad, RECORDS, tmp_path / "run", tmp_path / "ledger", KEY)
    assert not (tmp_path / "run").exists()
