"""Whether a site answers: the one check of every question, whether it comes in this process, in a file or live."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.protocol.handshake import Challenge
from fedsrc.protocol.messages import Refusal, Request, SignedRequest
from fedsrc.protocol.registration import Registration
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import check_limit
from fedsrc.site.rounds import NotYetError


class RefusedError(FedsrcError):
    """A question that the site does not answer: `why` for the other end, everything else for the site itself."""

    def __init__(self, why: Refusal, what: str, **details: Any) -> None:
        self.why = why
        super().__init__(what, **details)


@contextmanager
def refusing(why: Refusal) -> Iterator[None]:
    """Turn any error into a refusal for this reason; a round that waits says so, and no more."""
    try:
        yield
    except NotYetError as error:
        raise RefusedError(Refusal.NOT_YET, error.what, hint=error.hint) from error
    except FedsrcError as error:
        raise RefusedError(why, error.what, where=error.where, hint=error.hint, private=error.private) from error


def admit(
    question: Challenge | SignedRequest | Request,
    site: str,
    ledger: Ledger,
    key: Key | None,
    *,
    serves: Registration | None = None,
    where: str | None = None,
) -> Registration:
    """Return the registration under which a site may answer a question, or raise `RefusedError`.

    A site that `serves` one registration answers under no other. A bare `Request` was made in this process, so it has
    no signature to check. The signature is checked before the permission, where that is possible: a stranger does not
    learn what a site allows.
    """
    asked = question.request if isinstance(question, SignedRequest) else question
    if serves is not None and asked.registration != serves.digest:
        raise RefusedError(
            Refusal.NOT_OURS, f"site {site!r} refuses a question of another registration, {asked.registration}"
        )
    if isinstance(asked, Request) and asked.parts is None and asked.site != site:
        raise RefusedError(Refusal.NOT_OURS, f"site {site!r} refuses a request addressed to {asked.site!r}")
    allowed = ledger.permitted(site, asked.registration)
    registration = serves or allowed
    if registration is not None and not isinstance(question, Request):
        _check_signature(question, registration, where)
    found = _able(allowed, asked.registration, site, ledger, key)
    if found.held and asked is not question:
        raise RefusedError(Refusal.NOT_AS_REGISTERED, "one holder answers for all sites, in one process")
    if isinstance(asked, Request):
        _check_request(asked, site, found)
        with refusing(Refusal.CANNOT):
            ledger.check_member(site, asked.registration)
    return found


def _check_request(asked: Request, site: str, found: Registration) -> None:
    """Refuse a request to others, or for other noise, than the registration fixes."""
    whom, parts = found.asked_for(site)
    if (asked.site, len(asked.parts or ())) != (whom, parts):
        who = "one holder answers for all sites, in one process" if found.held else f"site {site!r} answers for itself"
        who = who if found.cohorts is None else f"site {site!r} answers in cohort {whom!r}"
        raise RefusedError(Refusal.NOT_AS_REGISTERED, who)
    if found.cohorts is not None and asked.round > found.schedule.rounds:  # it would be the last one to be answered
        raise RefusedError(Refusal.NOT_AS_REGISTERED, f"site {site!r} refuses round {asked.round:,}: there is none")
    if asked.scale != found.share_of(whom):
        raise RefusedError(
            Refusal.NOT_AS_REGISTERED,
            f"site {site!r} refuses noise scale {asked.scale:g}; the registration fixes {found.share_of(whom):g}",
        )


def check_ready(registration: Registration, site: str, ledger: Ledger, key: Key | None) -> None:
    """Refuse to serve a registration that the site has not allowed or cannot sign for."""
    _able(ledger.permitted(site, registration.digest), registration.digest, site, ledger, key)


def check_key(registration: Registration, site: str, key: Key | None) -> None:
    """Refuse any key but the one that is registered for the site, if one is."""
    registered = registration.key_of(site)
    if registered is not None and (key is None or public_hex(key) != registered):
        raise RefusedError(
            Refusal.CANNOT,
            f"site {site!r} needs the private key of its registered public key {registered}",
            hint="pass the site's key file; nothing was released",
        )


def check_mask_key(registration: Registration, site: str, mask: Key | None) -> None:
    """Refuse to answer in a cohort without the private part of the site's registered mask key."""
    registered = registration.mask_keys.get(site)
    if (None if registered is None else registered.mask) != (None if mask is None else public_hex(mask)):
        raise RefusedError(
            Refusal.CANNOT,
            f"site {site!r} has no mask key under this registration"
            if registered is None
            else f"site {site!r} needs the private key of its registered mask key {registered.mask}",
            hint="pass the site's mask key in a cohort, and only there; nothing was released",
        )


def _check_signature(question: Challenge | SignedRequest, registration: Registration, where: str | None) -> None:
    if registration.server_key is None or not question.signed_by(registration.server_key):
        kind = "challenge" if isinstance(question, Challenge) else "request"
        raise RefusedError(Refusal.NOT_SIGNED, f"the {kind} is not signed by the registered server", where=where)


def _able(allowed: Registration | None, digest: str, site: str, ledger: Ledger, key: Key | None) -> Registration:
    """Return what the site has allowed and can sign for: without the key, units would be spent in vain."""
    if allowed is None:
        raise RefusedError(
            Refusal.NOT_ALLOWED,
            f"site {site!r} has not allowed registration {digest}",
            where=str(ledger.path),
            hint="read the registration, then `fedsrc allow registration.toml` if the site agrees",
        )
    with refusing(Refusal.NOT_ALLOWED):
        check_limit(ledger, site, allowed)
    check_key(allowed, site, key)
    return allowed
