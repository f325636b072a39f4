"""Times as releases and certificates write them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator

TIME = "%Y-%m-%dT%H:%M:%SZ"


def real_time(value: str) -> str:
    """Refuse text that is not a time in this spelling."""
    if datetime.strptime(value, TIME).strftime(TIME) != value:
        raise ValueError("not a time")
    return value


Time = Annotated[str, AfterValidator(real_time)]


def instant(time: str) -> datetime:
    """Return the moment that a time of this spelling names."""
    return datetime.strptime(time, TIME).replace(tzinfo=UTC)


def utc_now() -> str:
    """Return the current time as releases write it."""
    return datetime.now(UTC).strftime(TIME)
