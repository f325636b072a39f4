"""Open rounds to label, and the texts of their answers."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any

from fedsrc.labelling.texts import Text
from fedsrc.protocol.messages import Request
from fedsrc.protocol.registration import OnDemand, Registration
from fedsrc.site.rounds import Round
from tests.support.helpers import registration


@lru_cache(maxsize=1)
def _base() -> Registration:
    return registration(grid=True, thresholds=3)


def open_round(names: Collection[str], number: int = 1, **labelling: Any) -> Round:
    """A round in which these answers are to be labelled."""
    fields = {**_base().model_dump(), "labelling": OnDemand(**labelling).model_dump()}
    registered = Registration.model_validate(fields)
    request = Request(
        registration=registered.digest, number=number, round=number, site="local", slots=len(names), scale=1.0
    )  # fmt: skip
    return Round(request, registered, "2026-01-02T03:04:05Z", closed=False, needed=tuple(names))


def text(name: str) -> Text:
    """What is shown of an answer."""
    evidence = f"All that is known\nof {name}. The rest is silence." + "\n" * 60 + "There it ends."
    return Text(f"What of {name}?", evidence, f"<b>{name}</b> is known.")


def texts(names: Collection[str]) -> dict[str, Text]:
    return {name: text(name) for name in names}
