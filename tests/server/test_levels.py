"""Open certificates on levels of a graded loss: a whole run, what is refused and charged, and validity.

Simulated runs have fixed seeds, so there is no chance of a false alarm. Mutants killed: noise ignored (the control), a
plausibility check left out for some level, a missing release charged at another level than the worst, margins left out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import certify_table, register_table
from fedsrc.maths.arrays import Floats, Ints
from fedsrc.maths.betting import Covariance
from fedsrc.planning.register import Choices, development_part, register_grid
from fedsrc.protocol.disclosure import epsilon_against, noise_words
from fedsrc.protocol.registration import Registration
from fedsrc.records.masses import counted
from fedsrc.server import bounds
from fedsrc.server.recruiter import make_requests
from fedsrc.server.tally import Masses, empty, implausible, lose, masses, plausible_margins, suffix_variance
from fedsrc.server.verify import verify
from fedsrc.simulate.population import Support
from fedsrc.simulate.trials import simulate
from fedsrc.site.release import make_release
from tests.support.helpers import FIRST, gives, single_units, table

GRID, TIME = 4, "2026-01-02T03:04:05Z"


def plan(**choices: Any) -> Registration:
    given = {
        "target_risk": 0.2, "epsilon": 4.0, "loss_grid": GRID, "encoding": "levels", "grid": True, "thresholds": 1,
        **choices,
    }  # fmt: skip
    return register_grid(Choices(**given), ["a"])


def test_a_run_on_levels_certifies_and_verifies(tmp_path: Path) -> None:
    base, rng = table(2000, base=0.2), np.random.default_rng(1)
    records = replace(base, loss=np.where(base.loss == 1, rng.integers(1, GRID + 1, 2000) / GRID, 0.0))
    choices = Choices(0.2, 8.0, loss_grid=GRID, encoding="levels", thresholds=4, batch=300)
    reg = register_table(choices, records, development_part(records, "record", 0.2), tmp_path / "ledger")
    certificate = certify_table(reg, records, tmp_path / "run", tmp_path / "ledger", Key.generate())
    assert (certificate.status, certificate.privacy.encoding) == ("CERTIFIED", "levels")
    assert verify(tmp_path / "run").certificate == certificate
    assert Registration.from_toml(reg.to_toml()) == reg
    assert epsilon_against(reg, "zero-out") < 8.0
    assert "record" in noise_words(reg)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "one binary answer": ({"loss_grid": 1}, "no levels to release"),
    "too many levels": ({"loss_grid": 100}, "take moments"),
    "several answers": ({"unit": "source", "max_answers": 3}, "take moments"),
    "the paper's": ({"preset": "paper"}, "belong to the betting certificate"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_levels_do_not_fit_they_are_refused(name: str) -> None:
    choices, message = REFUSED[name]
    with pytest.raises(FedsrcError, match=message):
        plan(**choices)


def test_units_are_counted_by_level() -> None:
    reg = plan(epsilon=math.inf)
    units = single_units([0.9, 0.9, 0.9, 0.1], [0.25, 1.0, 0.3, 0.5])  # 0.3 counts as 0.5
    request = make_requests(reg, [4], number=0, round=1)[0]
    release = make_release(reg, request, counted(reg, units), FIRST, order="shuffled", time=TIME)
    assert (len(release.first), len(release.second)) == reg.mechanism.lengths == (1, GRID)
    seen = masses(reg, np.asarray([*release.first, *release.second]).reshape(GRID + 1, 1), 1)
    assert seen.levels is not None
    assert seen.levels[:, 0].tolist() == [0, 1, 1, 0, 1]
    assert (seen.unsupported[0], seen.supported[0], seen.accepted[0]) == (1.75, 1.25, 3)


@pytest.mark.parametrize("which", range(GRID + 2))
def test_every_level_and_their_sum_are_checked(which: int) -> None:
    """A release just inside its margin is accepted, and one just outside refused."""
    reg, n = plan(epsilon=1.0), 1000
    margin, base = plausible_margins(reg, 3), np.full(GRID + 1, 100.0)
    request = make_requests(reg, [n], number=2, round=1)[0]
    made = make_release(reg, request, np.zeros((GRID + 1, 2), dtype=np.int64), FIRST, order="shuffled", time=TIME)
    for share, refused in ((0.999, False), (1.001, True)):
        seen = base.copy()
        if which <= GRID:
            seen[which] = -share * margin.low_supported[0]
        else:
            seen[0] = n - seen[1:].sum() + share * margin.high[0]
        numbers = [round(each * reg.mechanism.basis.unit) for each in seen]
        release = made.model_copy(update={"first": tuple(numbers[:1]), "second": tuple(numbers[1:])})
        assert (implausible(reg, gives(release), 3) is not None) is refused
    v = suffix_variance(reg.mechanism)
    log_term = math.log((GRID + 2) * math.pi**2 * 9 / (6 * 0.0001))
    assert margin.low_supported == pytest.approx(np.sqrt(2 * v * log_term), abs=1e-6)
    assert margin.high == pytest.approx(np.sqrt(2 * (GRID + 1) * v * log_term), abs=1e-6)


def test_a_missing_release_is_charged_with_the_worst_that_passes() -> None:
    """The charge is the corner of all plausible releases at which every bet at every rung loses most."""
    reg = plan(epsilon=1.0, dropout="adversarial", capacities={"a": 100})
    tally, margin = lose(reg, empty(reg), [(0, 20)], 1), plausible_margins(reg, 1)
    seen = bounds.sample(reg, tally)
    low, charged = float(margin.low_supported[0]), seen.masses.levels
    assert charged is not None
    assert seen.masses.accepted[0] == pytest.approx(-(GRID + 1) * low)
    corners = [np.full(GRID + 1, -low) for _ in range(GRID + 2)]
    for level in range(GRID + 1):
        corners[level][level] += 20 + margin.high[0] + (GRID + 1) * low
    for r in (0.05, 0.2, 0.5, 0.9):
        for share in (0.1, 0.95):
            x = np.log1p(share / (1 - r) * (r - np.arange(GRID + 1) / GRID))
            assert x @ charged[:, 0] == pytest.approx(min(x @ corner for corner in corners))


def false_share(epsilon: float) -> float:
    """Share of runs that certify although the risk at every threshold is the target."""
    reg = plan(epsilon=epsilon, thresholds=3, batch=40, rounds=40)
    masses = np.zeros((5, 2, 4), dtype=np.int64)
    masses[:, 1, 3], masses[:, 0, 3] = range(5), [4 - level for level in range(5)]
    law = np.array([0.6, 0.2, 0.08, 0.04, 0.08])
    assert law @ np.arange(5) / 4 == pytest.approx(0.2)
    return float(simulate(reg, [Support(masses, law)], trials=400, seed=5).certified.mean())


@pytest.mark.parametrize("epsilon", [math.inf, 4.0, 1.0, 0.1])
def test_false_certificates_stay_within_the_failure_probability(epsilon: float) -> None:
    assert false_share(epsilon) <= 0.05


def test_noise_that_is_ignored_gives_false_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(reg: Registration, sums: Ints | Floats, releases: float | Floats) -> Masses:
        return replace(masses(reg, sums, releases), noise=Covariance(*(np.zeros(3) for _ in range(3))))

    monkeypatch.setattr("fedsrc.simulate.trials.masses", silent)
    assert false_share(1.0) > 0.3


def test_levels_need_fewer_records_without_noise() -> None:
    law, found = np.array([0.6, 0.3, 0.06, 0.03, 0.01]), {}
    for kind in ("histograms", "moments", "levels"):
        reg = plan(epsilon=math.inf, encoding=kind, batch=20, rounds=100)
        masses = np.zeros((5, 2, 2), dtype=np.int64)
        masses[:, 1, 1], masses[:, 0, 1] = range(5), [4 - level for level in range(5)]
        found[kind] = simulate(reg, [Support(masses, law)], trials=30, seed=1).records.mean()
    assert found["levels"] < 0.9 * found["moments"] < 0.7 * found["histograms"]
