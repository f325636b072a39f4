"""Attack V1: a server that chooses among answers, with every key registered, and publishes what it likes best.

Before, announcements were the server's own word and releases stood alone: it left a bad site out, or announced 400, 401
and 402 to have three first requests answered on fresh units, and `verify` accepted what it picked: 11 of 60 runs
certified falsely where 5% are promised. Now what a site has is registered or signed by it, and its releases are a
chain.

Mutants killed: a chain that is not checked, checked by place alone or by digest alone; absences that excuse more
releases than were recorded; announcements believed unsigned, of another registration, or while dropout is charged; a
plan that depends on who answered; a ledger that counts places over all registrations.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsrc.common.durable import write_whole
from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import certify_table, register_table
from fedsrc.planning.register import Choices, register_grid
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.handshake import Hello
from fedsrc.protocol.messages import Release, Request, parse_release
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.protection import Development
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Absent, Announced, Arrived, Asked, Closed, Entry, Opened, Transcript
from fedsrc.report.card import card_text
from fedsrc.server.issue import issue
from fedsrc.server.loop import record, run
from fedsrc.server.state import Replay
from fedsrc.server.verify import verify
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from fedsrc.site.site import Site, open_sites
from tests.support.helpers import table

NAMES = ("good", "bad")
SERVER, KEYS = Key.generate(), {name: Key.generate() for name in NAMES}
UNITS = 400
TABLES = {name: table(UNITS, seed=i + 70, ids=True, sites=(name,)) for i, name in enumerate(NAMES)}


def registered(dropout: str, *, capacity: bool = True, **choices: Any) -> Registration:
    chosen: dict[str, Any] = {"batch": 200, "rounds": 2, "policy": "final", **choices}
    capacities = dict.fromkeys(NAMES, UNITS) if capacity else None
    keys = {name: public_hex(key) for name, key in KEYS.items()}
    fixed = Choices(
        0.2, 4.0, grid=True, thresholds=5, dropout=dropout, server_key=public_hex(SERVER), site_keys=keys,
        capacities=capacities, **chosen,
    )  # fmt: skip
    return register_grid(fixed, NAMES)


class Sites:
    """The two honest sites, each with a ledger of its own, answering whatever a server asks."""

    def __init__(self, folder: Path, reg: Registration) -> None:
        self.folder, self.reg = folder, reg

    def at(self, name: str, act: Callable[[Site], Any]) -> Any:
        with closing(Ledger(self.folder / f"{name}.ledger")) as ledger:
            allow(ledger, name, self.reg)
            (site,) = open_sites(self.reg, TABLES[name], ledger, keys=KEYS)
            return act(site)

    def answer(self, request: Request) -> Release:
        return parse_release(self.at(request.site, lambda site: site.answer(request)))

    def hello(self, name: str) -> Hello:
        found: Hello = self.at(name, lambda site: site.hello(site.room()))
        return found


def published(folder: Path, reg: Registration, entries: list[Entry]) -> str:
    """What `verify` says of a folder with these lines, which nobody checked when they were written."""
    folder.mkdir()
    write_whole(folder / REGISTRATION, reg.to_toml().encode())
    with closing(Transcript(folder / TRANSCRIPT)) as transcript:
        transcript.append(Opened(registration=reg.digest), *entries)
    with pytest.raises(FedsrcError) as caught:
        verify(folder)
    return caught.value.what


def plan(reg: Registration, *entries: Entry) -> list[Request]:
    return Replay(reg, [Opened(registration=reg.digest), *entries]).plan()


def asked(requests: list[Request]) -> list[Entry]:
    return [Asked(request=each) for each in requests]


def absent(request: Request) -> Absent:
    return Absent(request=request.digest, refused=False, reason="no answer")


ONE, OTHER = (table(3000, seed=seed, ids=True) for seed in (3, 4))
CAPACITIES = [Announced(site=name, units=UNITS) for name in NAMES]


def test_with_dropout_charged_a_bad_site_cannot_be_left_out(tmp_path: Path) -> None:
    reg = registered("adversarial")
    sites, (good, bad) = Sites(tmp_path, reg), plan(reg)
    answer = Arrived(release=sites.answer(good))
    said = published(tmp_path / "0", reg, [Announced(site="bad", units=0), Asked(request=good), answer])
    assert "what a site has is registered and not announced" in said
    said = published(tmp_path / "1", reg, [Asked(request=good), answer, Closed(round=1)])
    assert "round 1 cannot be closed here" in said
    replay = Replay(reg, [Opened(registration=reg.digest), *asked([good, bad]), answer, absent(bad), Closed(round=1)])
    assert replay.tally.missing == (0, 200)  # charged: it has not come, and counts as unsupported


def test_without_the_charge_a_registered_site_cannot_be_silenced(tmp_path: Path) -> None:
    reg = registered("independent")
    said = published(tmp_path / "0", reg, [CAPACITIES[0], Announced(site="bad", units=0)])
    assert "what site 'bad' has is not said by the site itself" in said


@pytest.mark.parametrize("units", [UNITS - 1, UNITS + 1])
def test_what_a_site_has_is_its_own_word(tmp_path: Path, units: int) -> None:
    """Announcing 400, 401 and 402 gave three first requests, each answered on fresh units."""
    reg = registered("independent", capacity=False)
    own = Sites(tmp_path, reg).hello("good")
    assert own.units == UNITS
    assert plan(reg, Announced.by(own, None))
    more = own.model_copy(update={"units": units})
    other = Hello(registration="f" * 64, site="good", units=units)
    words: list[Hello | None] = [
        None,
        own,
        more,
        more.signed(SERVER),
        more.signed(KEYS["bad"]),
        other.signed(KEYS["good"]),
    ]
    for i, hello in enumerate(words):
        said = published(tmp_path / str(i), reg, [Announced(site="good", units=units, hello=hello)])
        assert "what site 'good' has is not said by the site itself" in said


@pytest.mark.parametrize("dropout", ["adversarial", "independent"])
def test_an_answer_off_the_record_breaks_the_chain(tmp_path: Path, dropout: str) -> None:
    """It asks twice in the first round and wants to publish the better, or to leave a look out."""
    reg = registered(dropout, batch=100, rounds=3)
    known = [] if dropout == "adversarial" else CAPACITIES
    sites, (good, bad) = Sites(tmp_path, reg), plan(reg, *known)
    first = sites.answer(good)
    again = sites.answer(good.model_copy(update={"slots": 1}))
    assert sites.answer(good) == first  # the same question has one answer for ever
    other = good.model_copy(update={"slots": 1})
    said = published(tmp_path / "0", reg, [*known, Asked(request=other), Arrived(release=again)])
    assert "is not what the registered rule asks for" in said
    start: list[Entry] = [*known, *asked([good, bad]), Arrived(release=first), absent(bad), Closed(round=1)]
    second = plan(reg, *start)[0]
    late = sites.answer(second)
    said = published(tmp_path / "1", reg, [*start, Asked(request=second), Arrived(release=late)])
    assert "it is release 3 of its site, and 1 came before it and 0 did not" in said
    hidden: list[Entry] = [*known, *asked([good, bad]), absent(good), absent(bad), Closed(round=1)]
    said = published(tmp_path / "2", reg, [*hidden, Asked(request=second), Arrived(release=late)])
    assert "it is release 3 of its site, and 0 came before it and 1 did not" in said


@pytest.mark.parametrize("dropout", ["adversarial", "independent"])
def test_a_release_that_is_left_out_is_charged_or_shown(tmp_path: Path, dropout: str) -> None:
    reg = registered(dropout)
    known = [] if dropout == "adversarial" else CAPACITIES
    sites, (good, bad) = Sites(tmp_path, reg), plan(reg, *known)
    sites.answer(good)
    start: list[Entry] = [*known, *asked([good, bad]), absent(good), absent(bad), Closed(round=1)]
    second = plan(reg, *start)[0]
    replay = Replay(reg, [Opened(registration=reg.digest), *start, Asked(request=second)])
    assert replay.check(sites.answer(second)) is None
    assert replay.absent == 2
    assert replay.tally.missing == ((200, 200) if dropout == "adversarial" else (0, 0))


def test_a_ledger_that_was_set_back_shows(tmp_path: Path) -> None:
    reg = registered("independent", rounds=4, batch=100)
    sites, (good, bad) = Sites(tmp_path, reg), plan(reg, *CAPACITIES)
    entries: list[Entry] = [
        *CAPACITIES,
        *asked([good, bad]),
        Arrived(release=sites.answer(good)),
        absent(bad),
        Closed(round=1),
    ]
    shutil.copy(tmp_path / "good.ledger", tmp_path / "backup")
    good, bad = plan(reg, *entries)
    entries += [*asked([good, bad]), Arrived(release=sites.answer(good)), absent(bad), Closed(round=2)]
    shutil.copy(tmp_path / "backup", tmp_path / "good.ledger")
    third = plan(reg, *entries)[0]
    said = published(tmp_path / "run", reg, [*entries, Asked(request=third), Arrived(release=sites.answer(third))])
    assert "it is release 2 of its site, and 2 came before it and 0 did not" in said


def test_a_release_made_after_another_names_it(tmp_path: Path) -> None:
    """A site whose ledger was set back and then asked anew has the right place, and the wrong one before it."""
    reg = registered("independent", rounds=4, batch=100)
    sites, (good, bad) = Sites(tmp_path, reg), plan(reg, *CAPACITIES)
    first = sites.answer(good)
    (tmp_path / "good.ledger").unlink()
    assert sites.answer(good) != first
    entries: list[Entry] = [*CAPACITIES, *asked([good, bad]), Arrived(release=first), absent(bad), Closed(round=1)]
    second = plan(reg, *entries)[0]
    said = published(tmp_path / "run", reg, [*entries, Asked(request=second), Arrived(release=sites.answer(second))])
    assert "it does not name the release before it" in said


@given(
    policy=st.sampled_from(["first", "final", "recruit"]),
    weights=st.sampled_from([None, {"good": 0.5, "bad": 0.5}, {"good": 0.85, "bad": 0.15}]),
    capacity=st.tuples(st.integers(0, 900), st.integers(0, 900)),
    arrives=st.lists(st.booleans(), min_size=12, max_size=12),
)
@settings(deadline=None)
def test_with_dropout_charged_the_plan_is_the_registrations_alone(
    policy: str, weights: dict[str, float] | None, capacity: tuple[int, int], arrives: list[bool]
) -> None:
    """docs/theory.md, (iv) Chain: whoever answers, the same requests are asked, so a server has none to choose from."""
    capacities = dict(zip(NAMES, capacity, strict=True))
    fixed = Choices(
        0.2, 4.0, grid=True, thresholds=1, dropout="adversarial", capacities=capacities, batch=100, rounds=6,
        policy=policy, weights=weights,
    )  # fmt: skip
    reg = register_grid(fixed, NAMES)
    everyone = requests_of(reg, [True] * 12)
    assert requests_of(reg, arrives) == everyone


def requests_of(reg: Registration, arrives: list[bool]) -> list[Request]:
    """All requests of a run in which these answers arrive, none of which shows anything accepted."""
    replay, pattern = Replay(reg, [Opened(registration=reg.digest)]), iter(arrives)
    heads = dict.fromkeys(NAMES, (0, "0" * 64))
    found: list[Request] = []
    nothing = (0,) * reg.mechanism.basis.p
    while replay.why_over() is None:
        for request in replay.plan():
            found.append(request)
            replay.step(Asked(request=request))
            place, before = heads[request.site]
            release = Release(
                request=request.digest, site=request.site, slots=request.slots, scale=request.scale, order="shuffled",
                time="2026-01-02T03:04:05Z", place=place + 1, before=before, tries=1, first=nothing, second=nothing,
            )  # fmt: skip
            heads[request.site] = (place + 1, release.digest)
            replay.step(Arrived(release=release) if next(pattern) else absent(request))
        replay.step(Closed(round=replay.rounds + 1))
    return found


def test_tries_on_the_same_records_are_counted_and_add_up(tmp_path: Path) -> None:
    """V8: abstain, run again until it is certified; the second card showed nothing.

    Mutants killed: tries counted per request, over tables that have nothing in common, or left out of the statement;
    this registration's own failure probability for that of the others.
    """
    key, found = Key.generate(), list[Certificate]()
    for records, target, fails in ((ONE, 0.02, 0.2), (ONE, 0.2, 0.05), (OTHER, 0.2, 0.05)):
        choices = Choices(target, 4.0, batch=300, rounds=2, failure_probability=fails)
        ledger, folder = tmp_path / records.digest, tmp_path / str(len(found))
        reg = register_table(choices, records, Development(share=0.2, seed=7), ledger)
        found.append(certify_table(reg, records, folder, ledger, key))
    assert [(body.status, body.tries) for body in found] == [("ABSTAIN", 1), ("CERTIFIED", 2), ("CERTIFIED", 1)]
    assert [body.failure_probability_of_all_tries for body in found] == [0.2, 0.25, 0.05]
    said = "It is registration 2 on the same records; at least one of their statements fails with probability"
    assert found[1].statement.endswith(
        f"taken alone, this statement fails with probability at most 5%. {said} at most 25%."
    )
    assert found[2].statement.endswith("this statement fails with probability at most 5%.")
    noted = "this is registration 2 on the same records, and the failure probabilities of all of them add up"
    assert [noted in " ".join(card_text(body).split()) for body in found] == [False, True, False]


@pytest.mark.parametrize("name", ["threshold", "target_risk", "failure_probability"])
def test_a_server_signs_no_threshold_a_little_lower(tmp_path: Path, name: str) -> None:
    """Scores such as 0.1 + 0.2 lie a bit beside the round number. `verify` allowed for another machine's last digit in
    every number, also in those that are registered: a server could have a gate accept the scores just below.

    Mutant killed: a threshold, target or failure probability compared with a tolerance.
    """
    reg = register_grid(Choices(0.3, 4.0, grid=True, thresholds=5, batch=1000), ["local"])
    honest = certify_table(reg, ONE, tmp_path / "run", tmp_path / "ledger", SERVER)
    assert honest.status == "CERTIFIED"
    verify(tmp_path / "run")
    lower = honest.model_copy(update={name: math.nextafter(getattr(honest, name), 0)})
    lower.signed(SERVER).save(tmp_path / "run" / CERTIFICATE)
    with pytest.raises(FedsrcError, match=f"though its signature fits: {name} differ"):
        verify(tmp_path / "run")


@pytest.mark.parametrize("came", [NAMES, NAMES[:1]])
def test_without_the_charge_a_site_that_is_not_mentioned_shows(tmp_path: Path, came: tuple[str, ...]) -> None:
    """Neither key nor capacity makes a server mention a site. The card then does not call arrivals checked.

    Mutant killed: a note on absences that counts those of the sites that were asked, and no others.
    """
    reg = registered("independent")
    sites, replay = Sites(tmp_path, reg), Replay(reg)
    with closing(Transcript(tmp_path / TRANSCRIPT)) as transcript:
        record(replay, transcript, Opened(registration=reg.digest), *(each for each in CAPACITIES if each.site in came))
        run(replay, transcript, lambda requests: [sites.answer(each).to_bytes() for each in requests])
        body = issue(reg, replay, transcript.chain)
    assert (body.absent, body.refused) == (0, 0)
    notes = {each.what: each.how for each in body.assumptions}
    assert notes.get("every requested release arrived") == ("checked" if came == NAMES else None)
    unsaid = "whether a site takes part, and whether a release arrives, does not depend on what it contains"
    assert notes.get(unsaid) == (None if came == NAMES else "declared")
