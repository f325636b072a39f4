"""The time as releases and certificates hold it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator

TIME = "%Y-%m-%dT%H:%M:%SZ"


def real_time(value: str) -> str:
    """Refuse text that is no time, or spells one otherwise."""
    if datetime.strptime(value, TIME).strftime(TIME) != value:
        raise ValueError("not a time")
    return value


Time = Annotated[str, AfterValidator(real_time)]


def utc_now() -> str:
    """The time as releases hold it."""
    return datetime.now(UTC).strftime(TIME)
