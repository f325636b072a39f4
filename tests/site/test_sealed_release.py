"""From two neighbouring tables of sources to the integers of a sealed release: the sensitivity is never passed, and it
is reached; and what leaves the site is those integers plus the registered noise.

Mutants killed: a diameter without one of its pairs, the cap on second moments left out, answers of a source that depend
on other sources, noise on one part of the release only, scale and variance confused. Chance of a false alarm: below
1e-9 in the test of the noise (seven standard errors), none elsewhere.
"""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fedsrc.maths.arrays import Ints
from fedsrc.protocol.registration import Registration
from fedsrc.records.units import Records
from fedsrc.server.recruiter import make_requests
from fedsrc.site.ledger import Ledger
from fedsrc.site.release import make_release
from fedsrc.site.site import open_sites
from tests.support.helpers import FIRST, sealed_registration

SOURCES, ANSWERS = 12, 4


def table_of(answers: list[list[tuple[float, float]]]) -> Records:
    """A table in which source i has these answers, each a score and a loss."""
    rows = [(score, loss, i) for i, each in enumerate(answers) for score, loss in each]
    score, loss, source = (np.array(column) for column in zip(*rows, strict=True))
    names = tuple(f"s{i}" for i in range(len(answers)))
    return Records(
        digest=f"{abs(hash(tuple(rows))):064x}"[-64:], score=score.astype(np.float64), loss=loss.astype(np.float64),
        site=np.zeros(len(rows), dtype=np.int64), site_names=("local",), source=source.astype(np.int64),
        source_names=names, ids=None,
    )  # fmt: skip


def drawn(rng: np.random.Generator) -> list[tuple[float, float]]:
    """A source's answers: few or many, alike or not, graded in quarters."""
    count = int(rng.integers(1, ANSWERS + 1))
    scores = rng.choice([0.1, 0.5, 0.6, 0.9], count) if rng.random() < 0.7 else np.full(count, 0.9)
    losses = rng.choice([0.0, 0.25, 0.5, 0.75, 1.0], count) if rng.random() < 0.5 else np.full(count, rng.integers(2))
    return list(zip(scores.tolist(), losses.tolist(), strict=True))


def registered() -> Registration:
    base = table_of([[(0.5, 0.0)]] * 200)
    made = sealed_registration(base, unit="source", max_answers=ANSWERS, loss_grid=4, epsilon=2.0, batch=SOURCES)
    fields = made.model_dump()
    fields["development"], fields["thresholds"]["origin"] = None, "declared"
    return Registration.model_validate(fields)


def exact(reg: Registration, answers: list[list[tuple[float, float]]], folder: Path) -> Ints:
    """What the site counts for all of its sources, behind a ledger of its own."""
    records = table_of(answers)
    with closing(Ledger(folder / f"{records.digest}.ledger")) as ledger:
        site = open_sites(reg, records, ledger)[0]
        return site.count(0, site.intake.units)


def test_one_source_replaced_moves_a_release_by_the_sensitivity_at_most(tmp_path: Path) -> None:
    reg, rng = registered(), np.random.default_rng(0)
    largest = 0.0
    for pair in range(60):
        answers = [drawn(rng) for _ in range(SOURCES)]
        ends = [[(0.9, 1.0)], [(0.6, 0.0), (0.55, 0.0)], [(0.9, 0.0)], [(0.1, 1.0)]]
        place = int(rng.integers(SOURCES))
        other = [*answers[:place], ends[pair % 4] if pair < 20 else drawn(rng), *answers[place + 1 :]]
        apart = exact(reg, answers, tmp_path) - exact(reg, other, tmp_path)
        largest = max(largest, math.sqrt(int((apart.astype(object) ** 2).sum())))
    assert largest <= reg.mechanism.sensitivity * (1 + 1e-12)


def test_some_pair_of_tables_is_as_far_apart_as_the_sensitivity(tmp_path: Path) -> None:
    """Among one-answer sources: below every threshold, or supported or not at one of the four places."""
    reg = registered()
    kinds = [[(score, loss)] for score in (0.1, 0.5, 0.6, 0.9) for loss in (0.0, 1.0)]
    found = [exact(reg, [[(0.5, 0.0)], kind], tmp_path).astype(object) for kind in kinds]
    far = max(int(((a - b) ** 2).sum()) for a in found for b in found)
    assert math.sqrt(far) == pytest.approx(reg.mechanism.sensitivity, rel=1e-12)


@pytest.mark.entropy
def test_what_leaves_the_site_is_what_was_counted_plus_the_registered_noise(tmp_path: Path) -> None:
    reg, draws = registered(), 400
    records = table_of([drawn(np.random.default_rng(5)) for _ in range(SOURCES)])
    site = open_sites(reg, records, Ledger(tmp_path / "ledger"))[0]
    held = site.count(0, SOURCES)
    request = make_requests(reg, [SOURCES], number=0, round=1)[0]
    made = [
        make_release(reg, request, held, FIRST, order="shuffled", time="2026-01-02T03:04:05Z") for _ in range(draws)
    ]
    noise = (np.array([(*each.first, *each.second) for each in made]) - held) / reg.mechanism.scale
    assert noise.shape[1] == sum(reg.mechanism.lengths)
    assert np.abs(noise.mean(axis=0)).max() < 7 / math.sqrt(draws)
    assert np.abs(noise.var(axis=0) - 1).max() < 7 * math.sqrt(2 / draws)
    assert np.abs(np.corrcoef(noise.T) - np.eye(noise.shape[1])).max() < 7 / math.sqrt(draws)
