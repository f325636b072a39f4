"""Policy `enough`: a certified run goes on until twice the units have gained little, and loses nothing meanwhile.

Mutants killed: a stop at the first certificate, rounds counted instead of units, the gain since the first certificate,
a rule that stops before anything is certified, a run that `verify` lets end early or go on, a mixture that moves.

Chance of a false alarm: none; the runs are on fixed tables, without privacy.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import fedsrc
from fedsrc.common.signing import Key
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import certify_table
from fedsrc.planning.register import Choices, for_table
from fedsrc.protocol.names import TRANSCRIPT
from fedsrc.protocol.transcript import Ended, read_entries
from fedsrc.records.units import units_of
from fedsrc.server.folder import replay_run
from fedsrc.server.state import Replay
from fedsrc.server.stopping import GAIN, gains_little
from fedsrc.server.verify import verify
from fedsrc.simulate.population import uniform
from fedsrc.simulate.trials import simulate
from tests.support.helpers import changed, registration, table

KEY = Key.generate()
RECORDS = table(4000)


@pytest.mark.parametrize(
    ("records", "accepted", "stops"),
    [
        ((100,), (0.3,), False),  # never at the first look
        ((100, 200), (0.3, 0.33), True),
        ((100, 199), (0.3, 0.33), False),  # the units have not doubled
        ((100, 200), (0.3, 0.301 + GAIN), False),
        ((100, 200), (0.0, 0.3), False),  # certified only now
        ((100, 200), (0.0, 0.0), False),
        ((100, 200, 300, 400), (0.1, 0.2, 0.2, 0.2), True),  # since the half, not since the first certificate
        ((100, 200, 300, 399), (0.1, 0.2, 0.2, 0.2), False),
    ],
)
def test_enough_is_a_doubling_that_gains_little(
    records: tuple[int, ...], accepted: tuple[float, ...], stops: bool
) -> None:
    assert bool(gains_little(records, accepted)) is stops


def played(folder: Path, policy: str, **choices: Any) -> Replay:
    reg = registration(RECORDS, **{"epsilon": math.inf, "batch": 100, "policy": policy, **choices})
    certify_table(reg, RECORDS, folder / policy / "run", folder / policy / "ledger", KEY)
    return replay_run(folder / policy / "run")[0]


def test_it_uses_more_than_the_first_and_no_more_than_all(tmp_path: Path) -> None:
    for policy in ("first", "enough", "final"):
        (tmp_path / policy).mkdir()
    first, enough, final = (played(tmp_path, policy) for policy in ("first", "enough", "final"))
    assert [each.ended for each in (first, enough, final)] == ["certified", "certified", "rounds used"]
    assert 2 * first.tally.arrived <= enough.tally.arrived < final.tally.arrived
    assert first.accepted[-1] < enough.accepted[-1] <= final.accepted[-1]
    assert enough.accepted == sorted(enough.accepted)  # what is shown stays shown
    assert [bool(gains_little([row.records for row in enough.trace[:n]], enough.accepted[:n]))
            for n in range(1, enough.rounds + 1)] == [False] * (enough.rounds - 1) + [True]  # fmt: skip
    assert verify(tmp_path / "enough" / "run").signed.status == "CERTIFIED"


def test_a_transcript_that_ends_early_or_goes_on_is_refused(tmp_path: Path) -> None:
    (tmp_path / "enough").mkdir()
    replay = played(tmp_path, "enough")
    entries = [entry for entry, _ in read_entries(tmp_path / "enough" / "run" / TRANSCRIPT)]
    whole = Replay(replay.registration, entries[:-1])
    assert whole.why_over() == "certified"
    first = next(n for n in range(len(entries)) if Replay(replay.registration, entries[:n]).choice is not None)
    at_first = Replay(replay.registration, entries[:first])
    with pytest.raises(FedsrcError, match="cannot end here"):
        at_first.step(Ended(reason="certified"))


def test_simulated_runs_follow_the_same_rule() -> None:
    reg = registration(RECORDS, epsilon=math.inf, batch=100, rounds=40, policy="enough")
    sites = uniform(reg, [units_of(RECORDS, "local", "record")])
    enough = simulate(reg, sites, trials=20, seed=1)
    first = simulate(changed(reg, schedule={"policy": "first"}), sites, trials=20, seed=1)
    assert (enough.records >= 2 * first.records).all()
    assert (enough.acceptance_lower >= first.acceptance_lower).all()
    assert enough.certified.all()


def test_where_the_mixture_moves_it_is_refused_and_is_not_the_default() -> None:
    pair = table(400, sites=("a", "b"))
    for records, preset in ((pair, "default"), (table(400), "paper")):
        with pytest.raises(FedsrcError, match="may be lost in the next"):
            registration(records, preset=preset, policy="enough")
    base = Choices(0.2, 4.0)
    assert for_table(base, table(400), {}).policy == "enough"
    assert for_table(base, pair, {}).policy == "first"
    assert for_table(Choices(0.2, 4.0, weights={"a": 0.5, "b": 0.5}), pair, {}).policy == "enough"
    assert for_table(Choices(0.2, 4.0, preset="paper"), table(400), {}).policy == "first"
    assert for_table(base, table(400), {"policy": "first"}).policy == "first"


def test_rounds_follow_the_table() -> None:
    """Of every site, a batch a round; with weights, in step; recruited, one after the other."""
    pair = table(20_000, sites=("a", "b"))
    small = Choices(0.2, 4.0, batch=100)
    assert for_table(small, table(400), {}).rounds == 30
    assert for_table(small, pair, {}).rounds == 100
    assert for_table(Choices(0.2, 4.0, batch=100, policy="recruit"), pair, {"policy": "recruit"}).rounds == 200
    assert for_table(small, pair, {"rounds": 30}).rounds == 30
    for weights in ({"a": 0.5, "b": 0.5}, {"a": 0.9, "b": 0.1}):
        choices = for_table(Choices(0.2, math.inf, batch=100, weights=weights), pair, {})
        fields = {"batch": 100, "rounds": choices.rounds, "policy": "final", "weights": weights}
        reg = registration(pair, epsilon=math.inf, thresholds=2, **fields)
        sites = uniform(reg, [units_of(pair, name, "record") for name in ("a", "b")])
        assert simulate(reg, sites, trials=1, seed=0, draw="once").rounds[0] < choices.rounds


def test_a_table_is_used_until_more_would_gain_little(tmp_path: Path) -> None:
    run = fedsrc.certify(RECORDS.score, RECORDS.loss, target=0.2, epsilon=math.inf, batch=100, output=tmp_path / "run")
    assert run.registration.schedule.policy == "enough"
    assert 200 <= run.certificate.records < 3000
