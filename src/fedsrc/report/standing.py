"""Whether what a card says still stands: its statuses in words, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fedsrc.common.words import moment
from fedsrc.protocol.certificate import Certificate
from fedsrc.server.panel_words import IN_EACH, SHARE


class Status(NamedTuple):
    """One word and what it means; `said` is in somebody else's words, each under its name."""

    word: str
    words: str
    said: tuple[tuple[str, str], ...] = ()


def headline(certificate: Certificate) -> str:
    """Return the certificate's sentence; where it lists groups, with their number, as a table below has them."""
    panel, said = certificate.panel, certificate.statement
    if certificate.status != "CERTIFIED" or panel is None or panel.kind != "groups" or len(panel.members) == 1:
        return said
    if panel.claim == "each":
        what = said.partition(IN_EACH)[0]
        head = (
            f"For {certified_of(certificate)} a threshold is certified: {what[0].lower()}{what[1:]}, in each of these"
        )
        return f"{head}{SHARE}{said.rpartition(SHARE)[2]}"
    listed = ", ".join(repr(each.name) for each in panel.members)
    return said.replace(f"the groups {listed} (", f"the {len(panel.members)} groups listed below (", 1)


def certified_of(certificate: Certificate) -> str:
    """Say for how many of the groups a threshold is certified, where each has a claim of its own; "" otherwise."""
    groups = certificate.by_group
    if groups is None:
        return ""
    return f"{sum(each.status == 'CERTIFIED' for each in groups.members)} of {len(groups.members)} groups"


def statuses(view: dict[str, Any]) -> list[Status]:
    """List what is true of a certificate now: taken back, contradicted, too old, or as it was issued."""
    found = list[Status]()
    if (notice := view["check"]["revoked"]) is not None:
        instead = notice["superseded_by"]
        why = (("Reason", notice["reason"]), *([("Superseded by certificate", instead)] if instead else []))
        found.append(Status("REVOKED", revoked_sentence(notice), why))
    if view["monitor"] is not None and view["monitor"]["state"] == "alarm":
        found.append(
            Status("ALARM", rung_sentence(view["monitor"]["groups"]), (("The monitor", view["monitor"]["words"]),))
        )
    if view["check"]["expired"]:
        end = f"It expired on {moment(view['certificate'].expires_on)}. What it said no longer stands."
        found.append(Status("EXPIRED", end))
    if not found or view["certificate"].status != "CERTIFIED":
        found.append(Status(view["certificate"].status, f"{view['meaning']}."))
    return found


def stands(view: dict[str, Any]) -> bool:
    """Whether nothing has taken the sentence back since it was signed."""
    return bool(statuses(view)[0].word == view["certificate"].status)


def rung_sentence(groups: Sequence[str] = ()) -> str:
    """Return what stands in the place of a certificate's sentence once its monitor rang, for which groups."""
    of = f" for {', '.join(f'group {name!r}' for name in groups)}" if groups else ""
    return f"Its monitor has raised the alarm{of}. What it said no longer stands."


def revoked_sentence(notice: dict[str, Any]) -> str:
    """Return what stands in the place of a certificate's sentence once it is revoked."""
    return f"This certificate was revoked on {moment(notice['time'])}. What it said no longer stands."
