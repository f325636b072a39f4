"""Certificates: what they hold, that verify recomputes them, and that no forged, edited or foreign one passes.

Mutants killed: a signature over part of it, trust not compared, a certificate of another transcript accepted, an expiry
that is never looked at.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsrc.common.signing import Key, load_or_make, public_hex, sign, signed_by
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.federation.local import certify_table
from fedsrc.protocol.certificate import OtherTarget
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.report.card import card_text
from fedsrc.server.folder import replay_run
from fedsrc.server.issue import issue
from fedsrc.server.verify import verify
from fedsrc.server.wording_2 import claimed
from tests.support.forged import forge, unsigned
from tests.support.helpers import changed, registration, table

KEY = Key.generate()
RECORDS = table(2000, sites=("north", "south"))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    certify_table(
        registration(RECORDS, batch=50, weights={"north": 0.5, "south": 0.5}),
        RECORDS,
        folder / "run",
        folder / "ledger",
        KEY,
    )
    return folder / "run"


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "run")
    return tmp_path / "run"


def test_a_certificate_verifies_and_says_what_was_shown(run: Path) -> None:
    found = verify(run, trusted=(public_hex(KEY),))
    certificate = found.certificate
    assert (certificate.status, found.trusted, found.expired) == ("CERTIFIED", True, False)
    chosen = next(row for row in certificate.thresholds if row.threshold == certificate.threshold)
    assert chosen.certified
    assert (certificate.risk_at_most, certificate.acceptance_at_least) == (chosen.risk_upper, chosen.acceptance_lower)
    assert chosen.risk_upper <= certificate.target_risk == 0.2
    assert chosen.acceptance_lower >= 0.05
    assert chosen.contrast_upper <= 0 or certificate.rounds > 1  # what an earlier round showed stays shown
    assert sum(site.records for site in certificate.sites) == certificate.records
    assert certificate.statement.startswith(f"Of the answers accepted (score >= {certificate.threshold!r}, at least ")
    assert "at most 20% are unsupported; this statement fails with probability at most 5%." in certificate.statement
    assert [row.target_risk for row in certificate.also_certified][-1] == 0.5


@pytest.mark.parametrize(
    ("worst", "best", "said"),
    [(0.0, 1.0, "0.13"), (0.0, 100.0, "0.13, that is 13 or more on the scale 0:100"),
     (1.0, 0.0, "0.13, that is 0.87 or less on the scale 1:0")],
)  # fmt: skip
def test_the_sentence_is_true_of_scores_as_they_are_written(worst: float, best: float, said: str) -> None:
    """Where low is good, "score >= 0.13" alone would be read the wrong way round."""
    asked = registration(RECORDS)
    on_scale = changed(asked, claim={**asked.claim.model_dump(), "scale": {"worst": worst, "best": best}})
    sentence = claimed(on_scale, OtherTarget(target_risk=0.2, threshold=0.13, acceptance_lower=0.85))
    assert sentence.startswith(f"Of the answers accepted (score >= {said}, at least 85% of traffic), at most 20% are")


def sentence_of(tmp_path: Path, sizes: Any, score: Any, loss: Any, **choices: Any) -> tuple[str, str, tuple[str, ...]]:
    """Status, sentence and limits of a run without noise on sources of these sizes."""
    source = np.repeat(np.arange(len(sizes)), sizes)
    names = tuple(f"s{i}" for i in range(len(sizes)))
    records = replace(table(len(source)), score=score, loss=loss, source=source, source_names=names)
    asked = registration(records, epsilon=math.inf, unit="source", **choices)
    certify_table(asked, records, tmp_path / "run", tmp_path / "ledger", KEY)
    certificate = verify(tmp_path / "run").certificate
    return certificate.status, certificate.statement, certificate.does_not_say


ALIKE = "Pick a source at random, then one of its answers at random: if it is accepted (score >= "


@pytest.mark.parametrize(
    ("choices", "certified"),
    [({}, True), ({"max_answers": 1}, True), ({"max_answers": 1, "answer_weight": "answer"}, True),
     ({"answer_weight": "answer"}, False)],
)  # fmt: skip
def test_sources_count_alike_or_answers_do(tmp_path: Path, choices: dict[str, Any], certified: bool) -> None:
    """Half of the sources have one answer, 3% unsupported, half have three, 30%: 16.5% by sources, 23.25% by answers.

    Mutants killed: a sentence about answers where sources were counted, an answer's weight that is not used, one answer
    a source taken for a table of answers.
    Chance of a false alarm: none by chance, seeds are fixed and there is no noise.
    """
    rng = np.random.default_rng(3)
    sizes = np.where(np.arange(6000) % 2, 1, 3)
    loss = (rng.random(sizes.sum()) < np.repeat(np.where(sizes == 1, 0.03, 0.3), sizes)).astype(np.float64)
    status, sentence, limits = sentence_of(tmp_path, sizes, rng.random(sizes.sum()), loss, **choices)
    assert (status == "CERTIFIED") is certified
    assert sentence.startswith(ALIKE) is certified
    assert ("it is unsupported with probability at most 20%" in sentence) is certified
    assert any("gives every source the same weight" in line for line in limits) is certified


def test_a_source_weighs_by_the_share_of_its_answers_that_is_accepted(tmp_path: Path) -> None:
    """Half of the sources have one answer, accepted, 5% unsupported; half have ten, one accepted, always unsupported.

    Of accepted answers, and of sources with one, 52% are unsupported; of a random answer of a random source, given that
    it is accepted, (0.05 + 0.1) / 1.1 = 14%. Only that is claimed.
    """
    rng = np.random.default_rng(5)
    sizes = np.where(np.arange(4000) % 2, 1, 10)
    first = np.repeat(np.cumsum(sizes) - sizes, sizes) == np.arange(sizes.sum())
    alone = np.repeat(sizes == 1, sizes)
    loss = np.where(alone, rng.random(sizes.sum()) < 0.05, first).astype(np.float64)
    score = np.where(alone | first, 0.9, 0.1) + 0.05 * rng.random(sizes.sum())
    assert loss[score > 0.5].mean() > 0.5
    status, sentence, _ = sentence_of(tmp_path, sizes, score, loss, max_answers=10)
    assert (status, sentence.startswith(ALIKE)) == ("CERTIFIED", True)


def test_graded_losses_speak_of_an_average() -> None:
    graded = registration(RECORDS, batch=50, loss_grid=100)
    shown = OtherTarget(target_risk=0.2, threshold=0.5, acceptance_lower=0.05)
    assert claimed(graded, shown).endswith("on average at most 20% is unsupported")
    alike = changed(graded, privacy={"unit": "source", "max_answers": 2})
    assert claimed(alike, shown).endswith("on average at most 20% of it is unsupported")


def test_the_card_holds_its_parts_in_order(run: Path) -> None:
    text = card_text(verify(run).certificate, verify="fedsrc verify run", notes=("A note.",))
    parts = [
        "Of the answers", "Status: CERTIFIED", "A note.", "Evidence by round", "Records:", "Privacy:", "Also shown",
        "Assumptions", "What this does not say", "Last calibration", "Registration", "Transcript", "Check it:",
    ]  # fmt: skip
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def edit(run: Path, change: Callable[[dict[str, Any]], None], key: Key | None = None) -> None:
    text = (run / CERTIFICATE).read_text()
    plain = json.loads(text) if key is None else unsigned(text)
    change(plain)
    forge(run, plain, key)


FORGERIES: dict[str, Callable[[dict[str, Any]], None]] = {
    "threshold": lambda b: b.update(threshold=0.0),
    "acceptance": lambda b: b.update(acceptance_lower=0.9),
    "statement": lambda b: b.update(statement="All answers are fine."),
    "records": lambda b: b.update(records=10**6),
    "expiry": lambda b: b.update(expires="2999-01-01T00:00:00+00:00"),
    "privacy": lambda b: b["privacy"].update(epsilon=0.1),
    "another transcript": lambda b: b.update(transcript="0" * 64),
}


@pytest.mark.parametrize("name", FORGERIES)
@pytest.mark.parametrize("resigned", [False, True])
def test_forged_certificates_are_refused(run: Path, name: str, resigned: bool) -> None:
    edit(run, FORGERIES[name], Key.generate() if resigned else None)
    with pytest.raises(FedsrcError, match="does not follow from the transcript"):
        verify(run)


@pytest.mark.parametrize(
    ("change", "field"),
    [(lambda b: b.update(extra=1), "extra"), (lambda b: b["sites"][0].update(extra=1), r"sites\.0\.extra"),
     (lambda b: b.pop("claim"), "claim"), (lambda b: b["thresholds"][0].pop("certified"), r"thresholds\.0\.certified")],
)  # fmt: skip
@pytest.mark.parametrize("resigned", [False, True])
def test_fields_that_are_unknown_or_missing_are_refused(
    run: Path, change: Callable[[dict[str, Any]], None], field: str, resigned: bool
) -> None:
    edit(run, change, Key.generate() if resigned else None)
    with pytest.raises(DamagedError, match=f"is not a certificate: {field}: "):
        verify(run)


def test_only_one_text_says_a_certificate(run: Path) -> None:
    """A second value under the same key, or other white space, could be read otherwise by another reader."""
    text = (run / CERTIFICATE).read_text()
    for other in (text.replace("{", '{"threshold": 0.01,', 1), text + " ", text.replace("\n", "")):
        (run / CERTIFICATE).write_text(other)
        with pytest.raises(FedsrcError, match="as fedsrc writes it"):
            verify(run)
    (run / CERTIFICATE).write_text(text)
    verify(run)


def test_signatures_are_checked(run: Path) -> None:
    edit(run, lambda b: b.update(signature="0" * 128))
    with pytest.raises(FedsrcError, match="signature does not fit"):
        verify(run)
    edit(run, lambda b: b.pop("signature"))
    with pytest.raises(FedsrcError, match="not signed"):
        verify(run)


def test_foreign_keys_are_not_trusted(run: Path) -> None:
    edit(run, lambda b: None, Key.generate())
    assert not verify(run).trusted
    with pytest.raises(FedsrcError, match="not trusted"):
        verify(run, trusted=(public_hex(KEY),))


def test_another_machines_last_digit_still_verifies(run: Path) -> None:
    before = verify(run).certificate
    edit(run, lambda b: b["thresholds"][0].update(log_wealth=b["thresholds"][0]["log_wealth"] + 1e-9), KEY)
    after = verify(run).certificate
    assert (after.status, after.threshold) == (before.status, before.threshold)
    was, now = (each.thresholds[0].log_wealth for each in (before, after))
    assert was is not None
    assert now is not None
    assert 0 < now - was < 2e-9


def test_edited_transcripts_and_registrations_are_refused(run: Path) -> None:
    path = run / TRANSCRIPT
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(FedsrcError, match=f"cut short: it ends after {len(lines) - 1} of the {len(lines)} lines"):
        verify(run)
    path.write_bytes(b"".join(lines))
    text = (run / REGISTRATION).read_text()
    (run / REGISTRATION).write_text(text.replace("min_acceptance = 0.05", "min_acceptance = 0.06"))
    with pytest.raises(FedsrcError, match=r"is not the registration that was signed: .* another registration"):
        verify(run)


def test_the_transcript_of_another_run_is_named(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    certify_table(registration(RECORDS, batch=60), RECORDS, other, tmp_path / "ledger", KEY)
    shutil.copy(other / TRANSCRIPT, run / TRANSCRIPT)
    with pytest.raises(FedsrcError, match=f"{TRANSCRIPT}: is the transcript of another run"):
        verify(run)


def test_a_release_at_the_end_of_the_calendar_is_refused_in_words(run: Path) -> None:
    """Mutant killed: an OverflowError that is no error of ours."""
    replay, chain = replay_run(run)
    replay.times[:] = ["9999-12-31T00:00:00Z"]
    with pytest.raises(FedsrcError, match="too late for a certificate to expire"):
        issue(replay.registration, replay, chain)


def test_expiry(run: Path) -> None:
    assert not verify(run, now=datetime.now(UTC) + timedelta(days=364)).expired
    assert verify(run, now=datetime.now(UTC) + timedelta(days=366)).expired


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 2}', "[" * 100_000])
def test_what_is_not_a_certificate(run: Path, text: str) -> None:
    (run / CERTIFICATE).write_text(text)
    with pytest.raises(FedsrcError, match="is not a certificate"):
        verify(run)


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(FedsrcError, match="no such run folder"):
        verify(tmp_path / "none")
    with pytest.raises(FedsrcError, match=r"registration\.toml: is missing"):
        verify(tmp_path)


def test_keys_are_made_once_and_kept_private(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "server.key"
    key = load_or_make(path)
    assert public_hex(load_or_make(path)) == public_hex(key)
    assert path.stat().st_mode & 0o777 == 0o600
    signature = sign(key, b"data")
    assert signed_by(public_hex(key), signature, b"data")
    assert not signed_by(public_hex(key), signature, b"other")
    assert not signed_by("zz", signature, b"data")
    path.write_text("no key")
    with pytest.raises(FedsrcError, match="private key"):
        load_or_make(path)
