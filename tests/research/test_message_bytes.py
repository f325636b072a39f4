"""The page of bytes is what its trial gives, and its messages are real ones.

Mutants killed: a figure edited on the page, a release left out or counted twice, another payload than the study's table
has, a message that nobody could read, a request without its signature.

Chance of a false alarm: none, counts and noise are seeded.
"""

from __future__ import annotations

import polars as pl
import pytest

from fedsrc.protocol.documents import parse_message
from fedsrc.protocol.messages import SignedRequest, parse_release
from research.pages import FIGURES, RESULTS
from research.studies import message_bytes
from research.studies.catalogue import study_of
from research.studies.message_bytes import KEY, POPULATION, TARGET, cells, measured, messages


def test_the_page_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {}
    monkeypatch.setattr(message_bytes, "publish", lambda name, parts: made.update({name: "\n\n".join(parts) + "\n"}))
    message_bytes.main()
    assert made == {"message-bytes.md": (RESULTS / "message-bytes.md").read_text(encoding="utf-8")}


def test_payload_is_that_of_the_study() -> None:
    table = pl.read_parquet(FIGURES / "studies" / "registered.parquet")
    for release, cell in cells():
        if release == "paper":
            here = study_of("registered").settings.index(cell.setting)
            kept = table.filter(setting=here, method="fed-src-c", trial=0)["payload_bytes"].item()
            assert (cell.setting.population, cell.setting.target_risk) == (POPULATION, TARGET)
            assert measured(cell, 2026).payload == kept


def test_messages_are_signed_and_can_be_read() -> None:
    _, cell = next(cells())
    both = list(messages(cell, 1))
    assert len(both) == cell.setting.rounds * cell.setting.sites
    for asked, given in both[:10]:
        request, release = parse_message(SignedRequest, asked, "a request"), parse_release(given)
        assert request.signature is not None
        assert release.signature is not None
        assert release.request == request.request.digest
        assert release.slots == cell.setting.batch
        assert len(release.first) + len(release.second) == sum(cell.registration.mechanism.lengths)
    assert len({given for _, given in both}) == len(both)
    assert KEY.private_bytes_raw() == bytes(32)
