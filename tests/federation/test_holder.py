"""One holder: a round is one release over all its sites, with one noise, one chain and one transaction.

Mutants killed: a noise for every site, or none, or that of zero-out; the units of one site left out of the release or
of the ledger; slots that count for the wrong site; a chain for every site; parts that nobody checks; a release that a
site makes by itself under a holder's registration; one that charges its missing slots once for every site.
Chance of a false alarm: 1e-6 in `test_a_release_carries_one_noise`, from the exact distribution of the squares; none
in the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from click.testing import CliRunner
from pydantic import ValidationError
from scipy.stats import chi2

import fedsrc
from fedsrc.cli.main import cli
from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.federation.airgap import start
from fedsrc.federation.live.play import live_session
from fedsrc.federation.local import LocalCarrier, certify_table
from fedsrc.maths.arrays import Ints
from fedsrc.monitor.monitor import MonitorChoices, register_monitor
from fedsrc.planning.register import Choices, held_together, register_grid
from fedsrc.planning.renew import renew
from fedsrc.protocol.messages import Answer, Request, SignedRequest, parse_release
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.protocol.registration import Holder, Registration
from fedsrc.protocol.transcript import Absent, Announced, Arrived, Asked, Chain, Closed, Entry, Opened, read_transcript
from fedsrc.records.table import read_records
from fedsrc.records.units import Records
from fedsrc.report.card import card_text
from fedsrc.report.view import view_run
from fedsrc.server.recruiter import make_requests, noises
from fedsrc.server.session import Session
from fedsrc.server.state import Replay
from fedsrc.server.status import run_state
from fedsrc.server.tally import masses, plausible_margins, suffix_variance
from fedsrc.server.verify import verify
from fedsrc.site.admission import RefusedError, admit
from fedsrc.site.holder import Holder as HolderSite
from fedsrc.site.ledger import Ledger, Take
from fedsrc.site.policy import allow, describe_registration
from fedsrc.site.site import Site, open_sites
from tests.support.helpers import registration, release_of, single_units, table

SITES = ("a", "b", "c")
RECORDS = table(3000, sites=SITES, ids=True)
KEY, HOLDERS = Key.generate(), Key.generate()


def held(records: Records = RECORDS, **choices: Any) -> Registration:
    return registration(records, **{"aggregation": "holder", "batch": 100, **choices})


def run_of(folder: Path, reg: Registration, records: Records = RECORDS, **how: Any) -> Path:
    certify_table(reg, records, folder / "run", folder / "ledger", KEY, **how)
    return folder / "run"


def entries_of(run: Path) -> list[Entry]:
    return read_transcript(run / TRANSCRIPT)[0]


def exact_of(reg: Registration, sites: Sequence[Site], run: Path) -> list[tuple[Ints, Ints]]:
    """Every release of a run, and the integers that it had before the noise, counted again from the sites' units."""
    place, found, asked = dict.fromkeys(reg.by_name, 0), list[tuple[Ints, Ints]](), dict[str, Request]()
    for entry in entries_of(run):
        if isinstance(entry, Asked):
            asked[entry.request.digest] = entry.request
        if isinstance(entry, Arrived):
            parts = reg.parts(asked[entry.release.request])
            counts = [site.count(place[site.name], parts[site.name]) for site in sites if site.name in parts]
            place = {name: first + parts.get(name, 0) for name, first in place.items()}
            sums = np.asarray(np.sum(counts, axis=0), dtype=np.int64)
            seen = np.asarray([entry.release.first, entry.release.second], dtype=np.int64)
            found.append((seen, reg.mechanism.basis.encode(sums)))
    return found


# --- one noise ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregation", ["own", "holder"])
def test_the_tally_counts_noise_by_release_and_slots_by_site(tmp_path: Path, aggregation: str) -> None:
    reg = held(aggregation=aggregation, policy="final", rounds=3)
    run = run_of(tmp_path, reg)
    replay = Replay(reg, entries_of(run))
    per_round = 1 if aggregation == "holder" else len(SITES)
    assert replay.tally.noises == 3 * per_round == 3 * noises(reg, [100, 100, 100])
    assert replay.tally.slots == (300, 300, 300)
    noise = masses(reg, replay.tally.sums, replay.tally.noises).noise
    np.testing.assert_array_equal(noise.uu, suffix_variance(reg.mechanism) * (3 * per_round))
    body = verify(run).certificate
    assert (body.releases, body.records) == (3 * per_round, 900)
    assert [site.records for site in body.sites] == [300, 300, 300]


def test_a_release_carries_one_noise(tmp_path: Path) -> None:
    """Squares of 480 discrete Gaussians of the registered scale: chi-square, to far better than 1e-6 at such scales.

    Three noises would triple the sum, that of zero-out halve it; a site left out would move it beyond all bounds.
    """
    reg = held(policy="final", rounds=4, thresholds=60, grid=True, epsilon=1.0)
    run = run_of(tmp_path, reg)
    with closing(Ledger(tmp_path / "ledger")) as ledger:
        found = exact_of(reg, open_sites(reg, RECORDS, ledger), run)
    noise = np.concatenate([(seen - exact).ravel() for seen, exact in found]) / reg.mechanism.scale
    assert noise.size == 480
    low, high = chi2.ppf([5e-7, 1 - 5e-7], noise.size)
    assert low < float(noise @ noise) < high
    assert not low < 3 * noise.size < high
    assert not low < noise.size / 2 < high


@pytest.mark.parametrize("unit", ["record", "source"])
@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("aggregation", ["own", "holder"])
def test_neighbouring_tables_move_what_leaves_by_the_sensitivity(
    tmp_path: Path, unit: Any, preset: Any, aggregation: Any
) -> None:
    """From two files that differ in one unit of one site, in any way, to the integers that leave before the noise: one
    release moves, by the sensitivity under replacement at most, and by all of it for some pair."""
    lines = [f"{i},{'ab'[i % 2]},s{i},{(i * 37 % 100) / 100},{int(i % 3 == 0)}" for i in range(40)]
    choices = Choices(
        0.2, 1.0, preset=preset, adjacency="replacement", aggregation=aggregation, unit=unit, independent=True,
        max_answers=2 if unit == "source" else None, grid=True, thresholds=4, batch=5, rounds=9, policy="final",
    )  # fmt: skip
    reg = register_grid(choices, ["a", "b"])
    corners = [(score, loss) for score in (0.05, 0.3, 0.99) for loss in (0, 1)]
    exact = []
    for number, rows in enumerate([[corner] for corner in corners] + [[corners[0], corners[5]]]):
        changed = [f"x{k},a,s38,{score},{loss}" for k, (score, loss) in enumerate(rows)]
        if unit == "record" and len(changed) > 1:
            continue
        changed[0] = changed[0].replace("x0", "38")
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / "table.csv"
        path.write_text("\n".join(["id,site,source,score,loss", *lines[:38], *changed, lines[39]]) + "\n")
        with (
            patch("fedsrc.site.release.add_discrete_gaussian", lambda values, *_, **__: values),
            patch("secrets.randbits", lambda _: 5),
        ):
            run = run_of(folder, reg, read_records(path))
        seen = [e.release for e in entries_of(run) if isinstance(e, Arrived)]
        exact.append(np.asarray([[r.first, r.second] for r in seen], dtype=np.int64))
    most = 0.0
    for one in exact:
        for other in exact:
            moved = np.sqrt(((one - other).astype(np.float64) ** 2).sum(axis=(1, 2)))
            assert (moved > 0).sum() <= 1
            most = max(most, float(moved.max()))
    assert most == pytest.approx(reg.mechanism.sensitivity, rel=1e-12)


# --- one transaction ----------------------------------------------------------------------------------------------


def test_units_of_all_sites_are_spent_together_or_none(tmp_path: Path) -> None:
    """One site has too few: nothing is spent at the others, and nothing is kept. Asked again: the same bytes."""
    reg = held()
    with closing(Ledger(tmp_path / "ledger")) as ledger:
        sites = {site.name: site for site in open_sites(reg, RECORDS, ledger)}
        for name in sites:
            allow(ledger, name, reg)
        holder, room = HolderSite(reg, sites), sites["c"].room()
        request = make_requests(reg, [100, 50, room + 1], number=0, round=1)[0]
        with pytest.raises(FedsrcError, match="'c' has"):
            holder.answer(request)
        assert [ledger.spent(site.intake) for site in sites.values()] == [0, 0, 0]
        assert ledger.stored(request) is None
        good = make_requests(reg, [100, 0, 30], number=0, round=1)[0]
        data = holder.answer(good)
        assert [ledger.spent(site.intake) for site in sites.values()] == [100, 0, 30]
        assert holder.answer(good) == data
        assert [ledger.spent(site.intake) for site in sites.values()] == [100, 0, 30]
        assert [ledger.given(name, reg.digest) for name in SITES] == [100, 0, 30]
        after = parse_release(holder.answer(make_requests(reg, [0, 20, 0], number=1, round=2)[0]))
        assert (after.place, after.before) == (2, parse_release(data).digest)  # one chain, whichever sites take part


def test_a_failure_while_it_is_made_spends_nothing(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "ledger")) as ledger:
        reg = held()
        sites = open_sites(reg, RECORDS, ledger)
        request = make_requests(reg, [5, 5, 5], number=0, round=1)[0]

        def fails(*_: object) -> bytes:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            ledger.answer([Take(site.intake, 5) for site in sites], request, 0.1, fails)
        assert [ledger.spent(site.intake) for site in sites] == [0, 0, 0]


@pytest.mark.parametrize("after", ["asked", "released"])
def test_an_interrupted_round_goes_on_with_the_same_table(tmp_path: Path, after: str) -> None:
    reg = held(policy="final", rounds=3)

    class Stops(LocalCarrier):
        def __call__(self, requests: Sequence[Request], /) -> list[Answer]:
            if after == "released":
                super().__call__(requests)
            raise KeyboardInterrupt

    with patch("fedsrc.federation.local.LocalCarrier", Stops), pytest.raises(KeyboardInterrupt):
        run_of(tmp_path, reg)
    with pytest.raises(FedsrcError, match=r"run on another table|other records|still asks"):
        run_of(tmp_path, reg, table(900, seed=5, sites=("a", "b")), fresh=True)
    run = run_of(tmp_path, reg)
    assert verify(run).certificate.releases == 3
    certify_table(reg, RECORDS, tmp_path / "other", tmp_path / "ledger", KEY)  # the same releases, in another folder
    for name in (TRANSCRIPT, CERTIFICATE):
        assert (tmp_path / "other" / name).read_bytes() == (run / name).read_bytes()


def test_a_folder_with_releases_of_another_ledger_is_refused(tmp_path: Path) -> None:
    reg = held(policy="final", rounds=2)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        run_of(tmp_path / name, reg)
    with pytest.raises(DamagedError, match="the release that the holder made for request 1"):
        certify_table(reg, RECORDS, tmp_path / "one" / "run", tmp_path / "two" / "ledger", KEY)


# --- the transcript -----------------------------------------------------------------------------------------------


def rewritten(run: Path, change: Any) -> list[Entry]:
    return [change(entry) if isinstance(entry, Asked) else entry for entry in entries_of(run)]


def with_parts(entry: Asked, parts: tuple[int, ...] | None) -> Asked:
    return Asked(request=Request.model_validate({**entry.request.model_dump(), "parts": parts}))


def test_parts_that_were_changed_do_not_replay(tmp_path: Path) -> None:
    reg = held(policy="final", rounds=2)
    run = run_of(tmp_path, reg)
    for parts in ((99, 101, 100), (300, 0, 0), (100, 100, 100, 0), None):
        with pytest.raises(FedsrcError, match="not what the registered rule asks for"):
            Replay(reg, rewritten(run, lambda entry, parts=parts: with_parts(entry, parts)))
    with pytest.raises(ValidationError, match="site by site"):
        with_parts(next(e for e in entries_of(run) if isinstance(e, Asked)), (100, 100, 99))
    with pytest.raises(ValidationError, match="site by site"):
        with_parts(next(e for e in entries_of(run) if isinstance(e, Asked)), (400, -50, -50))


def test_a_changed_file_does_not_verify(tmp_path: Path) -> None:
    run = run_of(tmp_path, held(policy="final", rounds=2))
    path = run / TRANSCRIPT
    path.write_bytes(path.read_bytes().replace(b'"parts":[100,100,100]', b'"parts":[100,101,99]', 1))
    with pytest.raises(DamagedError):
        verify(run)


def test_sites_by_themselves_are_not_what_was_registered(tmp_path: Path) -> None:
    """A run of own releases passed off as the holder's: chained anew, and still refused."""
    own, reg = held(aggregation="own", policy="final", rounds=2), held(policy="final", rounds=2)
    run = run_of(tmp_path, own)
    entries = [Opened(registration=reg.digest) if isinstance(e, Opened) else e for e in entries_of(run)]
    with pytest.raises(FedsrcError, match="not what the registered rule asks for"):
        Replay(reg, entries)


def test_a_release_left_out_breaks_the_one_chain(tmp_path: Path) -> None:
    reg = held(policy="final", rounds=3)
    entries = entries_of(run_of(tmp_path, reg))
    first = next(e for e in entries if isinstance(e, Arrived))
    rest = [e for e in entries if e is not first]
    with pytest.raises(FedsrcError, match="cannot be closed here"):
        Replay(reg, rest)
    request = first.release.request
    gone = [Absent(request=request, refused=False, reason="lost") if e is first else e for e in entries]
    replay = Replay(reg)
    for entry in gone[:-1]:
        replay.step(entry)  # an absence is recorded: the chain allows the gap
    assert (replay.tally.slots, replay.absent) == ((200, 200, 200), 1)


def test_a_missing_release_is_charged_once_for_the_slots_of_every_site() -> None:
    capacities = dict.fromkeys(SITES, 300)
    reg = held(dropout="adversarial", capacities=capacities, grid=True, thresholds=3)
    replay = Replay(reg, [Opened(registration=reg.digest)])
    request = replay.plan()[0]
    assert request.parts == (100, 100, 100)
    for entry in (
        Asked(request=request),
        Absent(request=request.digest, refused=False, reason="lost"),
        Closed(round=1),
    ):
        replay.step(entry)
    assert (replay.tally.missing, replay.tally.noises, replay.left) == ((100, 100, 100), 1, [200, 200, 200])
    margin = plausible_margins(reg, 1)
    np.testing.assert_allclose(replay.tally.charge.unsupported, 300 + margin.high + margin.low_supported)


def test_a_holders_request_is_signed_for_by_its_own_key(tmp_path: Path) -> None:
    reg = held(site_keys={"holder": public_hex(HOLDERS)}, policy="final", rounds=2)
    assert reg.aggregation == Holder(key=public_hex(HOLDERS))
    with pytest.raises(FedsrcError, match="needs the private key"):
        run_of(tmp_path, reg)
    with pytest.raises(FedsrcError, match="needs the private key"):
        run_of(tmp_path, reg, site_keys={"holder": KEY})
    run = run_of(tmp_path, reg, site_keys={"holder": HOLDERS})
    body = verify(run).certificate
    assert any("signed by the holder's registered key" in each.what for each in body.assumptions)
    entries = entries_of(run)
    assert all(e.hello is not None for e in entries if isinstance(e, Announced))
    unsigned = [Announced(site=e.site, units=e.units) if isinstance(e, Announced) else e for e in entries]
    with pytest.raises(FedsrcError, match="not said by the site itself"):
        Replay(reg, unsigned)
    forged = [Arrived(release=e.release.signed(KEY)) if isinstance(e, Arrived) else e for e in entries]
    with pytest.raises(FedsrcError, match="not signed by the holder"):
        Replay(reg, forged)


# --- who answers --------------------------------------------------------------------------------------------------


def test_a_site_alone_refuses_a_holders_registration(tmp_path: Path) -> None:
    reg, own = held(server_key=public_hex(KEY)), held(aggregation="own")
    with closing(Ledger(tmp_path / "ledger")) as ledger:
        sites = {site.name: site for site in open_sites(reg, RECORDS, ledger)}
        for name in sites:
            allow(ledger, name, reg)
            allow(ledger, name, own)
        alone = make_requests(own, [5, 0, 0], number=0, round=1)[0].model_copy(update={"registration": reg.digest})
        with pytest.raises(RefusedError, match="one holder answers for all sites"):
            sites["a"].answer(alone)
        together = make_requests(reg, [5, 5, 0], number=0, round=1)[0]
        with pytest.raises(RefusedError, match="one holder answers for all sites"):
            admit(SignedRequest.by(together, KEY), "a", ledger, None, serves=None)
        wrong = together.model_copy(update={"registration": own.digest})
        with pytest.raises(RefusedError, match="answers for itself"):
            admit(wrong, "a", ledger, None, serves=own)
        for bad in ({"parts": (5, 5)}, {"scale": 1.0}, {"registration": "0" * 64}):
            with pytest.raises(RefusedError):
                HolderSite(reg, sites).answer(together.model_copy(update=bad))
        ledger.forbid("b", reg.digest)
        with pytest.raises(RefusedError, match="'b' has not allowed"):
            HolderSite(reg, sites).answer(together)
        assert all(ledger.spent(site.intake) == 0 for site in sites.values())


def test_modes_with_sites_apart_refuse_it(tmp_path: Path) -> None:
    reg = held(server_key=public_hex(KEY))
    for opened in (start, live_session):
        with pytest.raises(FedsrcError, match="no site to send a request to"):
            opened(reg, tmp_path / "run", KEY)
    assert not (tmp_path / "run").exists()
    with pytest.raises(FedsrcError, match="the holder signs"):
        held(site_keys={"a": public_hex(KEY)}, aggregation="holder", grid=True, claim=None)


def test_a_monitor_of_its_certificate_hears_every_site_by_itself(tmp_path: Path) -> None:
    run = run_of(tmp_path, held(target_risk=0.4, epsilon=8.0))
    reg = register_monitor(run, MonitorChoices())
    assert (reg.aggregation.kind, reg.privacy.adjacency) == ("own", "replacement")
    with pytest.raises(ValidationError, match="hears every site by itself"):
        Registration.model_validate({**reg.model_dump(), "aggregation": {"kind": "holder"}})
    again = renew(run, site_keys={"holder": public_hex(HOLDERS)})
    assert again.aggregation == Holder(key=public_hex(HOLDERS))
    assert renew(run).aggregation == Holder()
    assert again.privacy == held(target_risk=0.4, epsilon=8.0).privacy


def test_who_holds_all_sites_makes_one_release_unless_told_otherwise() -> None:
    base = Choices(0.2, 4.0)
    assert held_together(base, RECORDS).aggregation == "holder"
    assert held_together(base, table(100)).aggregation is None
    for other in ({"aggregation": "own"}, {"preset": "paper"}, {"site_keys": {"a": "0" * 64}}):
        assert held_together(Choices(0.2, 4.0, **other), RECORDS).aggregation in (None, "own")
    assert held_together(Choices(0.2, 4.0, site_keys={"holder": "0" * 64}), RECORDS).aggregation == "holder"


def test_recruitment_fits_it(tmp_path: Path) -> None:
    run = run_of(tmp_path, held(policy="recruit", rounds=6))
    asked = [e.request.parts for e in entries_of(run) if isinstance(e, Asked)]
    assert all(parts is not None and sum(n > 0 for n in parts) == 1 for parts in asked)
    verify(run)


# --- what people read ---------------------------------------------------------------------------------------------


def test_the_card_and_the_status_say_it(tmp_path: Path) -> None:
    reg = held(policy="final", rounds=2)
    run = run_of(tmp_path, reg)
    body = verify(run).certificate
    said = "one holder has the records of all sites; each round is one release"
    assert said in card_text(body)
    assert said not in card_text(verify(run_of(tmp_path / "own", held(aggregation="own", rounds=1))).certificate)
    assert "one holder answers for all sites" in "\n".join(describe_registration(reg, "a"))
    state = run_state(run)
    assert (state.releases, [site.arrived for site in state.sites]) == (2, [2, 2, 2])
    assert [site.left for site in state.sites] == Replay(reg, entries_of(run)).left
    assert [row["asked"] for row in view_run(run)["sites"]] == [200, 200, 200]


def test_an_open_round_is_asked_of_its_sites(tmp_path: Path) -> None:
    reg = held()
    with Session(tmp_path / "run", reg, KEY) as session:
        session.record(*(Announced(site=name, units=500) for name in ("a", "b")))
        session.record(*(Asked(request=each) for each in session.replay.plan()))
        session.record(Absent(request=next(iter(session.replay.asked)), refused=False, reason="lost"))
        assert "the holder: lost" in session.news()
        session.record(Closed(round=1))
        session.record(*(Asked(request=each) for each in session.replay.plan()))
    state = run_state(tmp_path / "run")
    assert [(s.name, s.waiting, s.absent) for s in state.sites] == [("a", True, 1), ("b", True, 1), ("c", False, 0)]


def test_the_face_and_the_command_line_choose(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    rows = [f"{i},{'ab'[i % 2]},{0.2 + 0.6 * (i % 3 > 0):.1f},{int(i % 3 == 0)}" for i in range(600)]
    path.write_text("\n".join(["id,site,score,loss", *rows]) + "\n")
    picked = {"target": 0.2, "epsilon": 8.0, "thresholds": 3, "batch": 60}
    run = fedsrc.certify(path, output=tmp_path / "one", key=tmp_path / "key", **picked)  # type: ignore[arg-type]
    assert (run.registration.aggregation.kind, run.certificate.releases) == ("holder", run.certificate.rounds)
    outcome = CliRunner().invoke(
        cli,
        ["certify", str(path), "--target", "0.3", "--epsilon", "2", "--adjacency", "zero-out", "--aggregation", "own",
         "-o", str(tmp_path / "two"), "--key", str(tmp_path / "key"), "--format", "json"],
    )  # fmt: skip
    assert outcome.exit_code in (0, 1), outcome.output
    made = Registration.read(tmp_path / "two" / "registration.toml")
    assert (made.aggregation.kind, made.privacy.adjacency) == ("own", "zero-out")
    assert '"adjacency": "zero-out"' in outcome.stdout


def test_requests_to_sites_keep_their_bytes() -> None:
    """What has no parts says nothing of them."""
    own = make_requests(held(aggregation="own"), [5, 0, 0], number=0, round=1)[0]
    assert b"parts" not in own.to_bytes()
    chain, _ = Chain().line(Asked(request=own))
    assert b"parts" not in chain
    units = single_units([0.9] * 5, [0.0] * 5)
    assert release_of(held(aggregation="own"), own, units).slots == 5
