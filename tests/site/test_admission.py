"""What a site admits: every question passes the same checks, each of them once, before a table is looked at.

Mutants killed: any check left out or done twice, in one process, by file or live; an unsigned question that learns
whether its registration is allowed; a site that serves one registration and answers under another that it allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedsrc.common.signing import Key, public_hex
from fedsrc.federation.airgap import answer_file
from fedsrc.federation.flower.app.fedsrc_relay.wire import GIVEN, HELLO, RELEASE, Frame
from fedsrc.federation.live.guard import Guard
from fedsrc.protocol import documents, messages
from fedsrc.protocol.handshake import Challenge
from fedsrc.protocol.messages import Refusal, Request, SignedRequest
from fedsrc.protocol.registration import Registration
from fedsrc.site import admission
from fedsrc.site.admission import RefusedError, admit
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from fedsrc.site.site import open_sites
from tests.support.helpers import changed, registration, table

SERVER, SITE = Key.generate(), Key.generate()
TABLE = table(200, ids=True)


def registered() -> Registration:
    fields = registration(grid=True, epsilon=4.0, batch=60).model_dump()
    fields |= {"server_key": public_hex(SERVER), "sites": [{"name": "a", "key": public_hex(SITE), "capacity": 200}]}
    return Registration.model_validate(fields)


REG = registered()
OTHER = changed(REG, claim={"population": "other traffic"})
Question = Challenge | SignedRequest | Request


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger(tmp_path / "ledger")) as book:
        for each in (REG, OTHER):
            allow(book, "a", each, max_epsilon=10.0)
        yield book


def asked(reg: Registration = REG, **changes: Any) -> Request:
    plain = Request(registration=reg.digest, number=1, round=1, site="a", slots=60, scale=reg.mechanism.scale)
    return plain.model_copy(update=changes)


def order(signer: Key = SERVER, **changes: Any) -> SignedRequest:
    return SignedRequest.by(asked(**changes), signer)


def test_what_is_in_order_is_admitted(ledger: Ledger) -> None:
    for question in (Challenge.by(SERVER, REG.digest, 7), order(), asked()):
        assert admit(question, "a", ledger, SITE, serves=REG) == REG
    assert admit(order(reg=OTHER), "a", ledger, SITE) == OTHER  # by file a site serves all that it allows


REFUSED: dict[str, tuple[Callable[[], Question], Refusal]] = {
    "another registration": (lambda: order(reg=OTHER), Refusal.NOT_OURS),
    "another registration, in this process": (lambda: asked(reg=OTHER), Refusal.NOT_OURS),
    "a challenge of another registration": (lambda: Challenge.by(SERVER, OTHER.digest, 7), Refusal.NOT_OURS),
    "another site": (lambda: order(site="b"), Refusal.NOT_OURS),
    "unsigned": (lambda: SignedRequest(request=asked()), Refusal.NOT_SIGNED),
    "signed by a stranger": (lambda: order(Key.generate()), Refusal.NOT_SIGNED),
    "a stranger's challenge": (lambda: Challenge.by(Key.generate(), REG.digest, 7), Refusal.NOT_SIGNED),
    "less noise": (lambda: order(scale=0.5), Refusal.NOT_AS_REGISTERED),
    "less noise, in this process": (lambda: asked(scale=0.5), Refusal.NOT_AS_REGISTERED),
}


@pytest.mark.parametrize("name", REFUSED)
def test_everything_else_is_refused_with_its_reason(ledger: Ledger, name: str) -> None:
    make, why = REFUSED[name]
    with pytest.raises(RefusedError) as refused:
        admit(make(), "a", ledger, SITE, serves=REG)
    assert refused.value.why is why


@pytest.mark.parametrize("make", [order, asked, lambda: Challenge.by(SERVER, REG.digest, 7)])
def test_permission_limit_and_key_are_needed_in_every_mode(ledger: Ledger, make: Callable[[], Question]) -> None:
    def why(key: Key | None = SITE) -> Refusal:
        with pytest.raises(RefusedError) as refused:
            admit(make(), "a", ledger, key, serves=REG)
        return refused.value.why

    assert (why(None), why(Key.generate())) == (Refusal.CANNOT, Refusal.CANNOT)
    ledger.limit(1.0)
    assert why() is Refusal.NOT_ALLOWED
    ledger.limit(10.0)
    ledger.forbid("a", REG.digest)
    assert why() is Refusal.NOT_ALLOWED


def test_a_stranger_does_not_learn_what_is_allowed(ledger: Ledger) -> None:
    ledger.forbid("a", REG.digest)
    with pytest.raises(RefusedError) as refused:
        admit(order(Key.generate()), "a", ledger, SITE, serves=REG)
    assert refused.value.why is Refusal.NOT_SIGNED


def test_a_registration_without_a_server_key_admits_nothing_from_outside(ledger: Ledger) -> None:
    local = REG.model_copy(update={"server_key": None})
    allow(ledger, "a", local)
    assert admit(asked(reg=local), "a", ledger, SITE) == local
    with pytest.raises(RefusedError, match="not signed by the registered server"):
        admit(order(reg=local), "a", ledger, SITE)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each check is made; the checks are the real ones."""
    calls: Counter[str] = Counter()

    def count(owner: Any, name: str, what: str) -> None:
        real = getattr(owner, name)

        def counting(*args: Any, **options: Any) -> Any:
            calls[what] += 1
            return real(*args, **options)

        monkeypatch.setattr(owner, name, counting)

    count(messages, "signed_by", "signature")
    count(documents, "signed_by", "signature")
    count(Ledger, "permitted", "permission")
    count(admission, "check_limit", "limit")
    count(admission, "public_hex", "key")
    return calls


def test_each_check_is_made_once_per_question(ledger: Ledger, tmp_path: Path, counted: Counter[str]) -> None:
    """By file, live (a hello and a release) and in one process."""
    once = {"signature": 1, "permission": 1, "limit": 1, "key": 1}
    path = tmp_path / "request.json"
    path.write_bytes(order().to_bytes())
    data = answer_file(path, lambda: TABLE, ledger, SITE)
    assert counted == once
    guard = Guard(REG, "a", ledger, lambda: TABLE, SITE)
    for question in (Frame(HELLO, Challenge.by(SERVER, REG.digest, 7).to_bytes()), Frame(RELEASE, order().to_bytes())):
        counted.clear()
        assert guard.answer(question).kind == GIVEN
        assert counted == once
    (site,) = open_sites(REG, TABLE.at("a"), ledger, keys={"a": SITE})
    counted.clear()
    assert site.answer(asked()) == data
    assert counted == {name: 1 for name in once if name != "signature"}
