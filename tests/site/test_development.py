"""The development units of a table are released once, whatever is registered afterwards.

Mutants killed: noise drawn again for a second registration, the release not kept before it is used, exact quantiles
after a noised release or the other way round, other columns or another unit over a stored release, a site's limit
that does not count here, an older ledger whose published quantiles are forgotten.
"""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsrc.errors import FedsrcError
from fedsrc.federation.local import register_table
from fedsrc.planning.register import Choices, development_part, register
from fedsrc.protocol.registration import Registration
from fedsrc.records.units import Records
from fedsrc.site.ledger import Ledger
from fedsrc.site.ledger_schema import FIRST_SCHEMA, SECOND_SCHEMA
from fedsrc.site.policy import status_words
from tests.support.helpers import table

RECORDS = table(1000, sites=("north", "south"))
CHOICES = Choices(0.2, 4.0)


def made(path: Path, records: Records = RECORDS, share: float = 0.2, **choices: Any) -> Registration:
    picked = replace(CHOICES, **choices)
    return register_table(picked, records, development_part(records, picked.unit, share), path / "ledger")


def test_the_release_and_its_thresholds_are_registered(tmp_path: Path) -> None:
    reg = made(tmp_path)
    assert reg.development is not None
    release = reg.development.release
    assert release is not None
    assert (reg.thresholds.origin, reg.thresholds.asked) == ("noised", 20)
    assert reg.thresholds.values == release.thresholds(20)
    assert release.privacy == reg.privacy
    assert Registration.from_toml(reg.to_toml()) == reg
    assert release.units == 221


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_every_later_registration_uses_the_same_release(tmp_path: Path, share: float) -> None:
    """At another target, epsilon, number of thresholds or preset; and at no privacy at all."""
    first = made(tmp_path, share=share)
    others: list[dict[str, Any]] = [
        {"target_risk": 0.1}, {"epsilon": 1.0}, {"epsilon": math.inf}, {"thresholds": 7}, {"preset": "paper"},
    ]  # fmt: skip
    assert made(tmp_path, share=share) == first
    for choices in others:
        reg = made(tmp_path, share=share, **choices)
        assert reg.development == first.development
        assert reg.thresholds.origin == "noised"
    with closing(sqlite3.connect(tmp_path / "ledger")) as sql:
        assert sql.execute("SELECT COUNT(*) FROM development").fetchone() == (1,)


def test_a_public_grid_releases_nothing(tmp_path: Path) -> None:
    reg = made(tmp_path, grid=True)
    assert reg.thresholds.origin == "grid"
    assert not (tmp_path / "ledger").exists()


def test_so_few_that_noise_leaves_nothing_are_not_released(tmp_path: Path) -> None:
    """At epsilon 1 some thirty units are too few, at epsilon 4 they are not."""
    few = table(30, ids=True)
    assert made(tmp_path, few, 1.0, epsilon=1.0).thresholds.origin == "grid"
    assert not (tmp_path / "ledger").exists()
    assert made(tmp_path, few, 1.0, epsilon=4.0).thresholds.origin == "noised"


def test_what_was_first_stands(tmp_path: Path) -> None:
    made(tmp_path / "noised")
    with pytest.raises(FedsrcError, match="released with noise before: they cannot be public"):
        made(tmp_path / "noised", public_development=True)
    for name, choices, origin in (
        ("public", {"public_development": True}, "public"),
        ("open", {"epsilon": math.inf}, "development"),
    ):
        exact = made(tmp_path / name, **choices)
        assert exact.thresholds.origin == origin
        assert made(tmp_path / name, **choices) == exact
        with pytest.raises(FedsrcError, match="published before, as they are"):
            made(tmp_path / name)
        assert made(tmp_path / name, public_development=True).thresholds.values == exact.thresholds.values


def test_a_release_of_records_is_not_one_of_sources(tmp_path: Path) -> None:
    records = replace(table(300), source=np.arange(300) // 2, source_names=tuple(map(str, range(150))))
    made(tmp_path, records, 1.0, independent=True)
    with pytest.raises(FedsrcError, match="released before, as records"):
        made(tmp_path, records, 1.0, unit="source")
    with pytest.raises(FedsrcError, match="cut by other columns"):
        made(tmp_path, replace(records, cut_by="score=other"), 1.0, independent=True)


def test_a_table_that_was_cut_otherwise_is_refused_before_it_is_released(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(FedsrcError, match="taken in before"):
        made(tmp_path, share=1.0)
    with pytest.raises(FedsrcError, match="taken in before"):
        made(tmp_path, share=0.3)
    made(tmp_path / "whole", share=1.0)
    with pytest.raises(FedsrcError, match="chose thresholds or a score"):
        made(tmp_path / "whole")


def test_the_sites_limit_counts(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "ledger")) as ledger:
        ledger.limit(3.0)
    tries: list[dict[str, Any]] = [{}, {"epsilon": math.inf}]
    for choices in tries:
        with pytest.raises(FedsrcError, match="more than epsilon 3, the site's limit"):
            made(tmp_path, **choices)
    assert made(tmp_path, epsilon=2.0).thresholds.origin == "noised"


def test_protected_records_give_no_exact_quantiles() -> None:
    with pytest.raises(FedsrcError, match="need a noised release"):
        register(CHOICES, RECORDS, development_part(RECORDS, "record", 0.2))


def test_nothing_else_of_protected_records_is_registered(tmp_path: Path) -> None:
    """A cap on answers and a grid for losses that follow the records would be exact numbers about them."""
    names = tuple(map(str, range(100)))
    shared = replace(table(300), source=np.arange(300) % 100, source_names=names)
    part: dict[str, Any] = {"unit": "source", "share": 1.0}
    assert made(tmp_path / "a", shared, **part).privacy.max_answers == 10
    with pytest.raises(FedsrcError, match="`max_answers=`"):
        made(tmp_path / "b", shared, answer_weight="answer", **part)
    graded = replace(table(300), loss=np.full(300, 0.5))
    with pytest.raises(FedsrcError, match="`loss_grid=100`"):
        made(tmp_path / "c", graded, 1.0)
    assert not (tmp_path / "c").exists()
    assert made(tmp_path / "c", graded, 1.0, loss_grid=10).privacy.loss_grid == 10


def test_an_older_ledger_knows_that_quantiles_were_published(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "unused")):  # the functions that its schema needs come with a ledger
        pass
    old = FIRST_SCHEMA + SECOND_SCHEMA.partition("INSERT")[0]
    with closing(sqlite3.connect(tmp_path / "ledger")) as sql:
        sql.executescript(old + "; PRAGMA user_version = 2")
        cut = "records, without a share of 0.2 for development by seed 1"
        sql.execute("INSERT INTO intake VALUES (1, 'local', ?, ?, 9, '7', 0, 1, '', 2, 0)", (RECORDS.digest, cut))
        sql.commit()
    with closing(Ledger(tmp_path / "ledger")) as ledger:
        assert ledger.develop(RECORDS.digest, "", 0.1, lambda: b"noised") == b""
        assert "published, and not protected" in " ".join(status_words(ledger, "local"))


def test_the_status_says_what_became_of_them(tmp_path: Path) -> None:
    made(tmp_path)
    with closing(Ledger(tmp_path / "ledger")) as ledger:
        said = " ".join(status_words(ledger, "north"))
    assert (
        "its development units were released once (at most epsilon 4 at delta 1e-06 each, being this one or any other)"
        in said
    )
