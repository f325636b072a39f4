"""Labels on demand, in one process, by files and live: what a round opens, waits for and counts.

Mutants killed: units that are drawn again after a round was given up, units that count as spent only when they are
released, labels of another round that count, a missing label that counts as supported or drops its unit, an answer
below the lowest threshold whose label is asked for or counts, a round that goes on without an answer, a table that is
another one once labels are in it, a site that says how many labels it waits for, an answer before its registered time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedsrc.common.places import labels_beside, ledger_beside
from fedsrc.common.signing import public_hex
from fedsrc.errors import FedsrcError
from fedsrc.federation import airgap
from fedsrc.federation.flower.app.fedsrc_relay.wire import GIVEN, REFUSED, RELEASE, Frame
from fedsrc.federation.live.guard import Guard
from fedsrc.federation.local import certify_table
from fedsrc.maths.arrays import Ints
from fedsrc.maths.basis import Basis
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.messages import Refusal, Release, SignedRequest, parse_release, read_request
from fedsrc.protocol.names import TRANSCRIPT
from fedsrc.protocol.registration import OnDemand, Registration
from fedsrc.protocol.transcript import Absent, Arrived, read_transcript
from fedsrc.records.masses import counted
from fedsrc.records.stream import Table
from fedsrc.records.table import read_records
from fedsrc.records.units import Records
from fedsrc.server.recruiter import make_requests
from fedsrc.server.verify import verify
from fedsrc.site import rounds
from fedsrc.site.label_file import Label, LabelFile
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from fedsrc.site.rounds import NotYetError, Round, open_rounds
from fedsrc.site.site import open_sites
from research.attacks.struck import NAMES, key
from tests.support.helpers import registration, sealed_registration, table
from tests.support.live_scenarios import SERVER, OwnClock, OwnPost, live

SHOWN, TIME = "0" * 64, "2026-01-02T03:04:05Z"
KEY = SERVER
LOWEST = 0.45


def write_log(path: Path, count: int = 600, *, seed: int = 1, labels: bool = False, answers: int = 1) -> np.ndarray:
    """A log of answers, with or without labels; return the truth."""
    found = table(count, seed=seed)
    names = [f"{path.stem}-{i}" for i in range(count)]
    columns: dict[str, Any] = {"id": names, "score": found.score.round(4)}
    if answers > 1:
        columns["source"] = [f"{path.stem}-s{i // answers}" for i in range(count)]
    columns |= {"loss": found.loss} if labels else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(columns).write_csv(path)
    return found.loss


def on_demand(base: Registration, **how: Any) -> Registration:
    """The registration with labels on demand, and thresholds that no table chose."""
    fields = base.model_dump()
    fields |= {"development": None, "labelling": {"kind": "on demand", **how}}
    fields["thresholds"] |= {"origin": "declared", "asked": None}
    return Registration.model_validate(fields)


def sealed(**how: Any) -> Registration:
    """Two looks at one site, without noise unless it is said."""
    given = {"epsilon": 8.0, "batch": 200, "looks": ((1, 0.5), (2, 0.5)), "policy": "final"}
    return on_demand(sealed_registration(**{**given, **how.pop("choices", {})}), **how)


def read(path: Path) -> Records:
    return read_records(path, labels="on demand")


def certify(path: Path, reg: Registration) -> Certificate:
    return certify_table(reg, read(path), path.parent / "run", ledger_beside(path), KEY, labels=labels_beside(path))


def waiting(path: Path) -> Round:
    """The one round that waits for labels."""
    with closing(Ledger(ledger_beside(path))) as ledger:
        (found,) = open_rounds(ledger, read(path))
    return found


def label(path: Path, truth: Callable[[str], float | None], *, skip: int = 0, by: str = "ann") -> int:
    """Label the open round of a table from the truth, but for some."""
    found = waiting(path)
    give(path, found, truth, skip=skip, by=by)
    return len(found.needed) - skip


def give(
    path: Path, round: Round, truth: Callable[[str], float | None], *, skip: int = 0, by: str = "ann",
    only: Callable[[str], bool] = lambda _: True,
) -> None:  # fmt: skip
    with closing(LabelFile(labels_beside(path))) as file:
        for name in filter(only, round.needed[skip:]):
            file.add(Label(answer=name, loss=truth(name), by=by, at=TIME, shown=SHOWN, round=round.request.digest))


def releases(run: Path) -> list[Release]:
    entries = read_transcript(run / TRANSCRIPT)[0]
    return [entry.release for entry in entries if isinstance(entry, Arrived)]


def of(truth: np.ndarray) -> Callable[[str], float]:
    return lambda name: float(truth[int(name.rpartition("-")[2])])


def test_from_a_log_without_labels_to_a_certificate(tmp_path: Path) -> None:
    """Two rounds of 200 answers, of which those at or above the lowest threshold are labelled."""
    path, reg = tmp_path / "log.csv", sealed()
    truth, labels = write_log(path), 0
    for number in (1, 2):
        with pytest.raises(NotYetError, match=f"round {number} waits") as wait:
            certify(path, reg)
        assert wait.value.missing == len(waiting(path).needed)
        labels += label(path, of(truth))
        assert all(read(path).score[int(name.rpartition("-")[2])] >= LOWEST for name in waiting(path).needed)
    found = certify(path, reg)
    assert (found.status, found.records, found.releases) == ("CERTIFIED", 400, 2)
    assert verify(tmp_path / "run").certificate == found == certify(path, reg)
    assert 100 < labels < 300


def test_a_release_counts_what_all_labels_would(tmp_path: Path) -> None:
    """Without noise: the round's units as the labelled table has them, at and above the lowest threshold. Labels of
    answers below it, and of other rounds, change nothing."""
    path = tmp_path / "log.csv"
    reg = on_demand(registration(epsilon=float("inf"), batch=300, rounds=1, policy="final", thresholds=3, grid=True))
    truth = write_log(path, 400)
    with pytest.raises(NotYetError):
        certify(path, reg)
    with closing(LabelFile(labels_beside(path))) as file:
        for i in range(400):
            file.add(Label(answer=f"log-{i}", loss=0.0, by="bob", at=TIME, shown=SHOWN, round="1" * 64))
    label(path, of(truth))
    certify(path, reg)
    (release,) = releases(tmp_path / "run")
    with closing(Ledger(ledger_beside(path))) as ledger:
        (site,) = open_sites(reg, read(path), ledger, labels=labels_beside(path))
    rows = site.intake.order()[: release.slots]
    units = site.demand.units.take(rows)  # type: ignore[union-attr]
    low = units.score < reg.thresholds.values[0]
    whole = type(units)(units.start, units.score, np.where(low, 1.0, truth[rows]), None)
    code = reg.mechanism.code
    assert isinstance(code, Basis)
    exact = code.encode(counted(reg, whole)).ravel().tolist()
    assert [*release.first, *release.second] == exact
    assert low.any()


def test_what_is_not_labelled_when_a_round_is_closed_counts_as_unsupported(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    reg = on_demand(registration(epsilon=float("inf"), batch=100, rounds=1, policy="final", thresholds=3, grid=True))
    write_log(path, 200)
    with pytest.raises(NotYetError):
        certify(path, reg)
    label(path, lambda _: None, skip=10)  # ten are missing, the others are not sure
    with pytest.raises(NotYetError) as wait:
        certify(path, reg)
    assert wait.value.missing == 10
    with closing(Ledger(ledger_beside(path))) as ledger:
        ledger.close_round(waiting(path).request)
    assert certify(path, reg).status == "ABSTAIN"
    (release,) = releases(tmp_path / "run")
    assert not any(release.first)  # nothing is supported
    assert len(release.labels or "") == 64


def test_units_are_spent_when_their_round_opens(tmp_path: Path) -> None:
    """A run that is given up after its labels were seen keeps its units, and counts as a try."""
    path, first = tmp_path / "log.csv", sealed()
    truth = write_log(path)
    with pytest.raises(NotYetError):
        certify(path, first)
    seen = set(waiting(path).needed)
    other = sealed(choices={"batch": 150})
    again = tmp_path / "again"

    def run() -> Certificate:
        return certify_table(other, read(path), again, ledger_beside(path), KEY, labels=labels_beside(path))

    for _ in range(2):
        with pytest.raises(NotYetError):
            run()
        with closing(Ledger(ledger_beside(path))) as ledger:
            given_up, mine = open_rounds(ledger, read(path))
        assert set(given_up.needed) == seen
        assert not seen & set(mine.needed)
        give(path, mine, of(truth))
    found = run()
    assert found.tries == 2
    with closing(Ledger(ledger_beside(path))) as ledger:
        (account,) = ledger.accounts("local")
    assert (account.spent, account.releases) == (200 + 300, 2)


def test_a_table_is_the_same_with_labels_in_it(tmp_path: Path) -> None:
    """Labels that a table holds itself count without anybody being asked; the others are asked for."""
    path, reg = tmp_path / "log.csv", sealed()
    truth = write_log(path)
    with pytest.raises(NotYetError) as wait:
        certify(path, reg)
    before = waiting(path)
    frame = pl.read_csv(path)
    known = [str(loss) if i % 2 else "" for i, loss in enumerate(truth)]
    frame.with_columns(loss=pl.Series(known)).write_csv(path)
    after = waiting(path)
    assert after.request == before.request
    assert set(after.needed) == {name for name in before.needed if not int(name.rpartition("-")[2]) % 2}
    with pytest.raises(NotYetError) as less:
        certify(path, reg)
    assert less.value.missing == len(after.needed) < wait.value.missing
    label(path, of(truth))
    with pytest.raises(NotYetError, match="round 2"):
        certify(path, reg)


def test_a_round_stays_with_the_table_that_it_was_opened_on(tmp_path: Path) -> None:
    path, reg = tmp_path / "log.csv", sealed()
    write_log(path)
    with pytest.raises(NotYetError):
        certify(path, reg)
    frame = pl.read_csv(path)
    frame.with_columns(score=1 - pl.col("score"), id="new " + pl.col("id")).write_csv(path)
    with pytest.raises(FedsrcError, match="on another table"):
        certify_table(
            reg, read(path), tmp_path / "run", ledger_beside(path), KEY, labels=labels_beside(path), fresh=True
        )


def test_every_answer_of_a_source_is_asked_for_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    base = registration(epsilon=float("inf"), batch=50, rounds=1, policy="final", thresholds=3, grid=True)
    fields = on_demand(base).model_dump()
    fields["privacy"] |= {"unit": "source", "max_answers": 2}
    reg = Registration.model_validate(fields)
    write_log(path, 300, answers=3)
    with pytest.raises(NotYetError):
        certify(path, reg)
    names = waiting(path).needed
    sources = [int(name.rpartition("-")[2]) // 3 for name in names]
    assert len(set(sources)) <= 50
    assert max(map(sources.count, sources)) == 2
    assert all(read(path).score[int(name.rpartition("-")[2])] >= reg.thresholds.values[0] for name in names)


def test_rounds_end_at_their_registered_time_and_not_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is labelled: so the time of a release says nothing of its labels."""
    path, reg = tmp_path / "log.csv", sealed(hours=2.0)
    truth = write_log(path)
    with pytest.raises(NotYetError, match="and not before"):
        certify(path, reg)
    label(path, of(truth))
    with pytest.raises(NotYetError, match="and not before"):
        certify(path, reg)
    monkeypatch.setattr(rounds, "utc_now", lambda: "2100-01-01T00:00:00Z")
    found = certify(path, reg)  # the second round opened, by a clock that is past its end: all of it is missing
    assert (found.status, found.releases) in {("CERTIFIED", 2), ("ABSTAIN", 2)}


@pytest.mark.parametrize(("dropout", "hours"), [("independent", None), ("independent", 1.0), ("adversarial", None)])
def test_no_round_goes_on_without_an_answer_unless_that_is_charged_or_timed(
    tmp_path: Path, dropout: str, hours: float | None
) -> None:
    reg = by_files(tmp_path, dropout=dropout, hours=hours)
    done = airgap.start(reg, tmp_path / "run", KEY)
    if dropout == "independent" and hours is None:
        with pytest.raises(FedsrcError, match="its labels may have been seen"):
            airgap.collect(tmp_path / "run", [], KEY, without_missing=True)
        return
    done = airgap.collect(tmp_path / "run", [], KEY, without_missing=True)
    entries = read_transcript(tmp_path / "run" / TRANSCRIPT)[0]
    assert sum(isinstance(each, Absent) for each in entries) == len(NAMES)
    assert (done.replay.tally.total > 0) == (dropout == "adversarial")


def by_files(folder: Path, **how: Any) -> Registration:
    """A registration of three sites with their tables, ledgers and keys."""
    dropout = how.pop("dropout", "independent")
    fields = sealed(choices={"batch": 100}, **how).model_dump()
    fields |= {"server_key": public_hex(KEY)}
    fields["schedule"]["dropout"] = dropout
    fields["sites"] = [{"name": name, "key": public_hex(key(i)), "capacity": 300} for i, name in enumerate(NAMES)]
    reg = Registration.model_validate(fields)
    for i, name in enumerate(NAMES):
        write_log(folder / name / "log.csv", 300, seed=i + 5)
        with closing(Ledger(ledger_beside(folder / name / "log.csv"))) as ledger:
            allow(ledger, name, reg)
    return reg


def test_by_files_a_site_says_not_yet_until_its_labels_are_there(tmp_path: Path) -> None:
    reg = by_files(tmp_path)
    done = airgap.start(reg, tmp_path / "run", KEY)
    while done.certificate is None:
        files = []
        for path in done.waiting:
            site = read_request(path).request.site
            files.append(tmp_path / site / path.name.replace("request", "release"))
            files[-1].write_bytes(answered(tmp_path / site / "log.csv", path, NAMES.index(site)))
        done = airgap.collect(tmp_path / "run", files, KEY)
    assert done.certificate.status == "CERTIFIED"
    assert verify(tmp_path / "run").certificate == done.certificate


def answered(log: Path, request: Path, number: int) -> bytes:
    """Carry a request to a site, whose people label before it answers."""
    with closing(Ledger(ledger_beside(log))) as ledger:

        def answer() -> bytes:
            return airgap.answer_file(request, lambda: Table(log), ledger, key(number))

        with pytest.raises(NotYetError):
            answer()
        label(log, of(table(300, seed=number + 5).loss))
        found = answer()
        assert found == answer()
        return found


@pytest.mark.parametrize("hours", [None, 1.0])
def test_at_the_socket_a_waiting_site_says_not_yet_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: float | None
) -> None:
    """Every answer has one size. Where a time is registered, what is answered when does not depend on labels at all."""
    reg = by_files(tmp_path, hours=hours)
    heard = {}
    for name, done in (("a", 0), ("b", 1)):
        i, log = NAMES.index(name), tmp_path / name / "log.csv"
        with closing(Ledger(ledger_beside(log))) as ledger:
            guard = Guard(reg, name, ledger, partial(Table, log), key(i))
            guard.open()
            session = airgap.start(reg, tmp_path / f"run-{name}", KEY)
            (request,) = (r for r in map(read_request, session.waiting) if r.request.site == name)
            question = Frame(RELEASE, SignedRequest.by(request.request, KEY).to_bytes())
            answers = [guard.letter(question)]
            label(log, of(table(300, seed=i + 5).loss), skip=0 if done else 5)
            answers.append(guard.letter(question))
            with monkeypatch.context() as later:
                later.setattr(rounds, "utc_now", lambda: "2100-01-01T00:00:00Z")
                answers.append(guard.letter(question))
        heard[name] = [(each.kind, len(each.data)) for each in answers]
        assert all(each.data.strip() == Refusal.NOT_YET.encode() for each in answers if each.kind == REFUSED)
        if answers[-1].kind == GIVEN:
            assert parse_release(answers[-1].data.rstrip()).site == name
    kinds = {name: [kind for kind, _ in each] for name, each in heard.items()}
    if hours is None:
        assert kinds == {"a": [REFUSED] * 3, "b": [REFUSED, GIVEN, GIVEN]}
    else:
        assert kinds == {"a": [REFUSED, REFUSED, GIVEN], "b": [REFUSED, REFUSED, GIVEN]}
    assert len({size for each in heard.values() for _, size in each}) == 1


def test_a_label_digest_is_keyed_with_what_stays_at_the_site(tmp_path: Path) -> None:
    """The same labels of the same answers have another digest in another ledger."""
    found = set()
    for name in ("one", "two"):
        path, reg = tmp_path / name / "log.csv", sealed(choices={"looks": ((1, 1.0),)})
        truth = write_log(path, 200)  # one round takes all of them
        with pytest.raises(NotYetError):
            certify(path, reg)
        label(path, of(truth))
        certify(path, reg)
        found |= {release.labels for release in releases(path.parent / "run")}
    assert len(found) == 2


def test_the_registration_says_how_labels_come() -> None:
    reg = sealed(hours=3.0, twice=0.25, disagreement="third")
    assert Registration.from_toml(reg.to_toml()) == reg
    assert isinstance(reg.labelling, OnDemand)
    assert json.loads(json.dumps(reg.model_dump()))["labelling"] == {
        "kind": "on demand", "hours": 3.0, "twice": 0.25, "disagreement": "third"}  # fmt: skip


@pytest.mark.parametrize("sources", [False, True])
def test_one_unit_replaced_moves_a_release_by_the_sensitivity_at_most(tmp_path: Path, sources: bool) -> None:
    """From two tables that differ in one unit, its scores, its labels and which of these are there, to what is counted
    before the noise; labels are missing here and there in both."""
    answers, rng, largest = 3 if sources else 1, np.random.default_rng(4), 0.0
    base = replace(table(), source=np.arange(400), source_names=tuple(f"s{i}" for i in range(400)))
    kind = {"records": base, "unit": "source", "max_answers": answers} if sources else {}
    reg = sealed(choices={"looks": ((1, 1.0),), "batch": 12, "epsilon": 2.0, **kind})
    for pair in range(40):
        rows = [drawn(rng, answers) for _ in range(12)]
        place = int(rng.integers(12))
        other = [*rows[:place], drawn(rng, answers), *rows[place + 1 :]]
        counts = [exact(reg, each, tmp_path / f"{pair}{i}" / "log.csv") for i, each in enumerate((rows, other))]
        largest = max(largest, math.sqrt(int(((counts[0] - counts[1]).astype(object) ** 2).sum())))
    assert 0.5 * reg.mechanism.sensitivity < largest <= reg.mechanism.sensitivity * (1 + 1e-12)


def drawn(rng: np.random.Generator, answers: int) -> list[tuple[float, float | None]]:
    """A unit's answers, each with a score and a label or none."""
    losses = [None, 0.0, 1.0]
    return [(float(rng.choice([0.1, 0.5, 0.6, 0.9])), losses[int(rng.integers(3))]) for _ in range(answers)]


def exact(reg: Registration, units: list[list[tuple[float, float | None]]], path: Path) -> Ints:
    """What a site would release for all of its units, before the noise, with the labels that people have given."""
    rows = [(f"u{i}-{j}", f"s{i}", score) for i, each in enumerate(units) for j, (score, _) in enumerate(each)]
    path.parent.mkdir()
    pl.DataFrame(rows, schema=["id", "source", "score"], orient="row").write_csv(path)
    with closing(Ledger(ledger_beside(path))) as ledger:
        (site,) = open_sites(reg, read(path), ledger, labels=labels_beside(path))
        allow(ledger, "local", reg)
        (request,) = make_requests(reg, [len(units)], number=0, round=1)
        with suppress(NotYetError):
            site.answer(request)
        (opened,) = ledger.waiting()
        give(path, waiting(path), lambda name: units[int(name[1:].split("-")[0])][int(name.split("-")[1])][1],
             only=lambda name: units[int(name[1:].split("-")[0])][int(name.split("-")[1])][1] is not None)  # fmt: skip
        assert site.demand is not None
        settled, _ = rounds.settle(reg, opened._replace(closed=True), [site.demand])
        return counted(reg, settled[0])


def test_live_a_round_lasts_as_long_as_people_label(tmp_path: Path) -> None:
    """Far longer than the server waits for answers otherwise; meanwhile the site is asked again and says not yet."""
    reg, clock = by_files(tmp_path), OwnClock()
    post = OwnPost(clock)
    for time in (100.0, 300.0):
        for i, name in enumerate(NAMES):
            log, truth = tmp_path / name / "log.csv", of(table(300, seed=i + 5).loss)
            clock.at(time + 10 * i, partial(label, log, truth))
    for name in NAMES:
        (tmp_path / f"{name}.ledger").symlink_to(tmp_path / name / "log.csv.ledger")
    body = live(tmp_path, post=post, reg=reg, find=lambda i: Table(tmp_path / NAMES[i] / "log.csv"))
    assert (body.status, body.absent, body.refused) == ("CERTIFIED", 0, 0)
    assert clock.monotonic() > 300
    asked = [letter for letter in post.letters if letter.kind == "release"]
    assert 2 * 2 * len(NAMES) < len(asked) < 200
