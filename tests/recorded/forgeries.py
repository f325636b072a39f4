"""All forgeries by name, made of recorded runs on the fly, and those of them that do no harm, each with its reason.

`fedsrc verify` must refuse all others, whoever made them: somebody without any key, somebody with a key of their own,
or the server with its own key, which signs what does not follow from the transcript.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.recorded.forged_certificates import CERTIFICATES, FIELDS
from tests.recorded.forged_notices import NOTICES
from tests.recorded.forged_registrations import CHANGES, REGISTRATIONS
from tests.recorded.forged_registrations import TEXTS as REGISTRATION_TEXTS
from tests.recorded.forged_texts import ALL_TEXTS
from tests.recorded.forged_transcripts import REWRITES, TRANSCRIPTS
from tests.recorded.forger import Files, Forge, Original, original
from tests.support.recordings import recorded

FORGERIES: dict[str, Forge] = {**CERTIFICATES, **TRANSCRIPTS, **ALL_TEXTS, **REGISTRATIONS, **NOTICES}
LARGE = 60_000  # bytes of a run: one that is larger is forged in fewer ways
SOME, FEW = 8, 12  # one of so many runs is forged in the ways that differ little from run to run
RARE = (  # what few runs have
    "announced", "check", "groups", "guarantee", "hello", "labels", "missed", "panel", "refused", "request-parts",
    "sum",
)  # fmt: skip
SPREAD = {
    **dict.fromkeys([*REWRITES, *(f"{name}-changed-signed" for name in FIELDS)], SOME),
    **dict.fromkeys([f"registration-{name}" for name in CHANGES], SOME),
    **dict.fromkeys([*ALL_TEXTS, *(f"registration-text-{name}" for name in REGISTRATION_TEXTS)], FEW),
}


class Harmless(NamedTuple):
    """Why a forgery may verify, and of which runs."""

    why: str
    where: Callable[[Original], bool]


def anywhere(_: Original) -> bool:
    return True


def unsigned(run: Original) -> bool:
    """Whether nothing in the transcript is signed by a site or holder."""
    return not any(b'"signature":"' in line for line in run.lines)


def unchecked(run: Original) -> bool:
    """Whether no release is refused for its numbers."""
    return run.registration.judgement.refusal_budget == 0


def no_server_key(run: Original) -> bool:
    return run.registration.server_key is None


def _signs_all(run: Original) -> bool:
    return run.keys


def _may_drop(run: Original) -> bool:
    """Whether a round may go on without an answer: not where whoever labels has seen what it would say."""
    return not run.registration.must_answer


def _says_what_it_has(run: Original) -> bool:
    return run.keys and run.registration.sites[0].capacity is None


def _not_sealed(run: Original) -> bool:
    return run.registration.judgement.method != "sealed"


def _watches(run: Original) -> bool:
    return run.registration.monitor is not None


NEVER = ("site-keys-gone", "dropout", "server-key", "capacity", "weights")  # of these, no run made anew verifies
OWN = "sites without keys sign nothing, so what they sent is the server's word: the card says who holds the keys"
ANOTHER = "a whole run under another registration, whose digest is another: nothing in it is signed by a site"
SAME = "the same values in another TOML text: the digest is of the values"
NOBODY = "no server key is registered, and nobody said whom to trust: then whoever signs is taken, and named"
DROPPED = "a release that is recorded as lost is dropout, which is assumed to be independent or is charged"
EARLIER = "the state of the run at an earlier time, signed: its status is OPEN or that of a monitor by then"
AGAIN = "sites of a monitor say whenever they like what they have; the same word again changes nothing"
WORDS = "the server's own words on why a release is missing; nothing is computed from them"

HARMLESS: dict[str, Harmless] = {
    "same-words-signed-by-other": Harmless(NOBODY, no_server_key),
    "key-neutral": Harmless(f"{NOBODY}. That key is nobody's, and everybody can sign with it", no_server_key),
    "last-digit-of-bound-signed": Harmless("another machine may round a diagnostic the other way", anywhere),
    "torn-after-the-end": Harmless("what a crash leaves behind the last line is cut off, with a warning", anywhere),
    "notice-genuine": Harmless("it verifies, and is shown to be revoked", anywhere),
    "notice-gone": Harmless("nobody can tell that a notice is kept back: ask the issuer", anywhere),
    "number-signed-by-its-site-issued": Harmless("a site that signs is believed in what it releases", _signs_all),
    "number-huge-issued": Harmless(
        f"{OWN}; no budget is registered for refusing what is implausible", lambda run: unsigned(run) and unchecked(run)
    ),
    "arrived-exchanged-issued": Harmless("answers of one round may arrive in any order", anywhere),
    "end-gone-issued": Harmless(EARLIER, anywhere),
    "opened-only-issued": Harmless(EARLIER, anywhere),
    "release-absent-issued": Harmless(DROPPED, _may_drop),
    "release-refused-issued": Harmless(DROPPED, _may_drop),
    "first-release-absent-issued": Harmless(DROPPED, _may_drop),
    "refused-forgotten-issued": Harmless(DROPPED, anywhere),
    "refused-called-absent-issued": Harmless(WORDS, anywhere),
    "reason-in-other-words-issued": Harmless(WORDS, anywhere),
    "announced-twice-issued": Harmless(AGAIN, _watches),
    "announced-by-itself-issued": Harmless("a site that signs is believed in what it has", _says_what_it_has),
    "announced-after-all-issued": Harmless("a site may come between any two rounds", _not_sealed),
    "announced-late-issued": Harmless(AGAIN, _watches),
    "registration-site-keys-gone-rehashed": Harmless(ANOTHER, anywhere),
    **{
        f"{name}-issued": Harmless(OWN, unsigned)
        for name in (
            "number", "number-of-second", "numbers-of-keyless-sites", "order", "time", "tries", "others",
            "announced-more", "announced-less", "labels-changed",
        )
    },
    **{f"registration-{name}-rehashed": Harmless(ANOTHER, unsigned) for name in CHANGES if name not in NEVER},
    **{
        f"registration-text-{name}": Harmless(SAME, anywhere)
        for name in (
            "comment", "head-of-another", "carriage-returns", "order", "default-left-out", "whole-number", "exponent",
            "underscore", "hexadecimal", "escaped", "literal-text", "dotted", "format-in-decimals",
        )
    },
}  # fmt: skip

FAULTS: dict[str, Harmless] = {}  # that verify, and should not


def harmless(forgery: str, run: Original) -> bool:
    """Whether a forgery of a run may verify."""
    return any(forgery in each and each[forgery].where(run) for each in (HARMLESS, FAULTS))


def sample() -> Iterator[tuple[str, str, Files]]:
    """One run for every forgery, not always the same, and one that must be refused if there is any: its name, the
    forgery's, and the forged files."""
    runs = [name for name in recorded() if sum(map(len, original(name).files.values())) <= LARGE]
    for number, forgery in enumerate(FORGERIES):
        turned = [original(name) for name in (*runs[7 * number % len(runs) :], *runs[: 7 * number % len(runs)])]
        for run in sorted(turned, key=lambda run: harmless(forgery, run)):
            made = FORGERIES[forgery](run)
            if made is not None and made != run.files:
                yield run.name, forgery, made
                break


def names_of(name: str) -> Iterator[str]:
    """The forgeries that are tried on a recorded run: ways that differ little from run to run, on some runs only."""
    size = sum(map(len, original(name).files.values()))
    for forgery in FORGERIES:
        one_of = (1 if forgery.startswith(RARE) else SPREAD.get(forgery, 1)) * (FEW if size > LARGE else 1)
        if hashlib.sha256(f"{name} {forgery}".encode()).digest()[0] % one_of == 0:
            yield forgery


def forgeries_of(name: str) -> Iterator[tuple[str, Files]]:
    """Every forgery that is tried on a recorded run and makes sense of it."""
    run = original(name)
    for forgery in names_of(name):
        made = FORGERIES[forgery](run)
        if made is not None and made != run.files:
            yield forgery, made
