"""Whether what a card says still stands: its statuses in words, the worst first."""

from __future__ import annotations

from typing import Any, NamedTuple

from fedsrc.common.words import moment

RUNG = "Its monitor has raised the alarm. What it said no longer stands."


class Status(NamedTuple):
    """One word and what it means; `said` is in somebody else's words, each under its name."""

    word: str
    words: str
    said: tuple[tuple[str, str], ...] = ()


def statuses(view: dict[str, Any]) -> list[Status]:
    """List what is true of a certificate now: taken back, contradicted, too old, or as it was issued."""
    found = list[Status]()
    if (notice := view["check"]["revoked"]) is not None:
        instead = notice["superseded_by"]
        why = (("Reason", notice["reason"]), *([("Superseded by certificate", instead)] if instead else []))
        found.append(Status("REVOKED", revoked_sentence(notice), why))
    if view["monitor"] is not None and view["monitor"]["state"] == "alarm":
        found.append(Status("ALARM", RUNG, (("The monitor", view["monitor"]["words"]),)))
    if view["check"]["expired"]:
        end = f"It expired on {moment(view['certificate'].expires_on)}. What it said no longer stands."
        found.append(Status("EXPIRED", end))
    if not found or view["certificate"].status != "CERTIFIED":
        found.append(Status(view["certificate"].status, f"{view['meaning']}."))
    return found


def stands(view: dict[str, Any]) -> bool:
    """Whether nothing has taken the sentence back since it was signed."""
    return bool(statuses(view)[0].word == view["certificate"].status)


def revoked_sentence(notice: dict[str, Any]) -> str:
    """Return what stands in the place of a certificate's sentence once it is revoked."""
    return f"This certificate was revoked on {moment(notice['time'])}. What it said no longer stands."
