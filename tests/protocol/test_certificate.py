"""Certificates and accounts of monitors as values: one text each, nothing unknown in it, a short way to show it.

Mutants killed: a field that is printed and not read, or read and not printed; a number that changes on its way (1.0 and
1, infinity, whole numbers beyond 2^53); an unknown field that is left out; a second text for one value; a signature
over part of it; a registered number compared with a tolerance, a computed one without.

Chance of a false alarm: none by chance; Hypothesis searches for a counterexample to what always holds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsrc.common.canonical import canonical_bytes
from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.protocol.certificate import (
    Certificate,
    MonitorAccount,
    Signed,
    ThresholdBounds,
    parse_signed,
    read_signed,
)

KEY = Key.generate()
ANY_SIZE = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
LINE = st.text(st.characters(categories=["L", "N"]), max_size=20)
DIGEST = st.binary(min_size=32, max_size=32).map(bytes.hex)
COUNT = st.integers(0, (1 << 53) - 1)
REAL = st.floats(allow_nan=False, max_value=1e30, min_value=-1e30) | st.sampled_from([math.inf, -math.inf])
FINITE = st.floats(allow_nan=False, allow_infinity=False, max_value=1e9, min_value=-1e9)
SHARE = st.floats(0, 1)
PART = st.floats(0.001, 0.999)
MOMENT = st.datetimes(datetime(2000, 1, 1), datetime(2999, 1, 1)).map(lambda time: time.replace(microsecond=0))
TIME = MOMENT.map(lambda time: time.strftime("%Y-%m-%dT%H:%M:%SZ"))
EXPIRY = MOMENT.map(lambda time: time.replace(tzinfo=UTC))


def some(part: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(part, max_size=3).map(tuple)


def values(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(parts)


SITES = some(values(name=WORDS, records=COUNT, charged=COUNT, share=REAL, weight=st.none() | FINITE, drift=FINITE))
PRIVACY = values(
    unit=st.sampled_from(["record", "source"]), adjacency=st.sampled_from(["replacement", "zero-out"]),
    mechanism=st.sampled_from(["discrete Gaussian", "none"]), encoding=st.sampled_from(["complementary", "paired"]),
    basis=st.sampled_from(["suffix", "bins"]), epsilon=REAL, replacement_epsilon=REAL,
    zero_out_epsilon=REAL, delta=FINITE,
    conversion=st.sampled_from(["tight", "paper"]), rho=REAL, scale=REAL, thresholds=WORDS,
)  # fmt: skip
SHARED = {
    "statement": WORDS, "target_risk": FINITE, "records": COUNT, "rounds": COUNT, "releases": COUNT, "absent": COUNT,
    "refused": COUNT, "sites": SITES, "mixture": st.sampled_from(["as calibrated", "declared"]), "privacy": PRIVACY,
    "assumptions": some(values(what=WORDS, how=st.sampled_from(["checked", "declared", "not checkable"]))),
    "calibrated": TIME, "registration": DIGEST, "transcript": DIGEST, "transcript_lines": COUNT,
    "does_not_say": some(WORDS), "expires": EXPIRY,
}  # fmt: skip
CLAIM = values(
    score=LINE, loss=LINE, population=LINE, target_risk=PART, min_acceptance=PART, failure_probability=PART,
    validity_days=st.integers(1, 36500),
)  # fmt: skip
BOUNDS = {"threshold": SHARE, "contrast_upper": REAL, "acceptance_lower": REAL, "risk_upper": REAL}
ROW = values(**BOUNDS, sampling_width=REAL, privacy_width=REAL, certified=st.booleans(), log_wealth=st.none() | REAL)
OWN = {
    "method": st.sampled_from(["betting", "contrast", "variance-adaptive", "ratio"]), "failure_probability": FINITE,
    "tries": COUNT, "failure_probability_of_all_tries": REAL, "claim": CLAIM, "eta": st.none() | REAL,
    "thresholds": some(ROW), "every_target": st.booleans(),
    "also_certified": some(values(target_risk=FINITE, threshold=SHARE, acceptance_lower=REAL)),
    "evidence": some(values(round=COUNT, records=COUNT, risk_upper=REAL)), "renews": st.none() | DIGEST,
}  # fmt: skip
NOTHING = {name: st.none() for name in BOUNDS}
BEFORE = {"calibrated": st.just("") | TIME, "expires": st.none() | EXPIRY}
CERTIFIED = values(status=st.just("CERTIFIED"), **SHARED, **OWN, **BOUNDS)
OTHERS = values(status=st.sampled_from(["OPEN", "ABSTAIN"]), **{**SHARED, **BEFORE}, **OWN, **NOTHING)
CERTIFICATES = (CERTIFIED | OTHERS).map(Certificate.model_validate)
ACCOUNTS = values(
    **{**SHARED, **BEFORE, "expires": st.none()}, method=st.just("monitor"), threshold=st.none() | SHARE,
    certificate=DIGEST, status=st.sampled_from(["NOT MONITORED YET", "STILL SUPPORTED", "ALARM"]), alarm_risk=FINITE,
    guarantee=WORDS, log_line=REAL, log_evidence=st.none() | REAL, recent_risk_estimate=st.none() | REAL,
    evidence=some(values(
        round=COUNT, records=COUNT, log_evidence=REAL, risk_estimate=st.none() | REAL, group=st.none() | LINE
    )),
    alarm=st.none() | values(round=COUNT, records=COUNT, likely_since=COUNT, groups=st.none() | some(LINE)),
    groups=st.none() | some(values(
        name=LINE, threshold=SHARE, share=FINITE, log_evidence=st.none() | REAL, recent_risk_estimate=st.none() | REAL
    )),
).map(MonitorAccount.model_validate)  # fmt: skip


@ANY_SIZE
@given(CERTIFICATES | ACCOUNTS, st.booleans())
def test_what_is_printed_is_read_back(found: Certificate | MonitorAccount, sign: bool) -> None:
    found = found.signed(KEY) if sign else found
    again = parse_signed(found.text, "c")
    assert (again, type(again), again.text) == (found, type(found), found.text)
    assert again.differs_from(found) == []
    assert (again.as_signed(), again.key) == ((True, public_hex(KEY)) if sign else (False, None))
    plain = json.loads(found.text)
    assert canonical_bytes(plain) == canonical_bytes(found.model_dump())
    assert ("key" in plain, "signature" in plain, plain["format"]) == (sign, sign, 2)


@ANY_SIZE
@given(CERTIFICATES | ACCOUNTS, st.data())
def test_whatever_is_changed_no_longer_fits_the_signature(
    found: Certificate | MonitorAccount, data: st.DataObject
) -> None:
    good = found.signed(KEY)
    others = {
        "records": good.records + 1,
        "statement": good.statement + "x",
        "does_not_say": (*good.does_not_say, "x"),
        "target_risk": good.target_risk + 1e9,
        "registration": f"{1 - int(good.registration[0] == '1')}{good.registration[1:]}",
        "key": public_hex(Key.generate()),
    }
    name = data.draw(st.sampled_from(sorted(others)))
    bad = good.model_copy(update={name: others[name]})
    assert good.as_signed()
    assert not bad.as_signed()
    with pytest.raises(DamagedError, match="signature does not fit"):
        bad.check_signature("c")


def certificate(**fields: Any) -> Certificate:
    """A certificate that is certified, with other fields."""
    said: dict[str, Any] = {
        "status": "CERTIFIED", "statement": "All is well.", "target_risk": 0.2, "threshold": 0.62, "method": "betting",
        "records": 2000, "rounds": 12, "releases": 24, "absent": 0, "refused": 0, "mixture": "declared",
        "sites": [{"name": "a", "records": 2000, "charged": 0, "share": 1.0, "weight": 1.0, "drift": 0.0}],
        "privacy": {
            "unit": "record", "adjacency": "replacement", "mechanism": "none", "encoding": "complementary",
            "basis": "suffix", "epsilon": math.inf, "replacement_epsilon": math.inf, "zero_out_epsilon": math.inf,
            "delta": 0.0,
            "conversion": "tight", "rho": math.inf, "scale": 0.0, "thresholds": "declared",
        },
        "assumptions": [{"what": "this", "how": "declared"}], "calibrated": "2026-01-02T03:04:05Z",
        "registration": "ab" * 32, "transcript": "cd" * 32, "transcript_lines": 60, "does_not_say": ["More."],
        "expires": datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC), "failure_probability": 0.05, "tries": 1,
        "failure_probability_of_all_tries": 0.05, "claim": {"target_risk": 0.2}, "contrast_upper": -0.01,
        "acceptance_lower": 0.41, "risk_upper": 0.17, "eta": 0.0, "thresholds": [], "every_target": True,
        "also_certified": [], "evidence": [{"round": 1, "records": 2000, "risk_upper": 0.17}], "renews": None,
    }  # fmt: skip
    return Certificate.model_validate({**said, **fields})


def test_it_shows_what_matters() -> None:
    found = certificate()
    shown = "status='CERTIFIED', threshold=0.62, risk_at_most=0.17, acceptance_at_least=0.41, records=2000, rounds=12"
    assert repr(found) == f"Certificate({shown})"
    assert (found.risk_at_most, found.acceptance_at_least, found.expires_on) == (
        0.17,
        0.41,
        "2027-01-02T03:04:05+00:00",
    )
    nothing = {"status": "ABSTAIN", "threshold": None, "calibrated": "", "expires": None, "risk_upper": None}
    assert "status='ABSTAIN', threshold=None, risk_at_most=None" in repr(certificate(**nothing))
    assert (certificate(**nothing).expires, certificate(**nothing).expires_on) == (None, "")


def test_it_is_frozen_and_saved_as_it_is_read(tmp_path: Path) -> None:
    found, path = certificate().signed(KEY), tmp_path / "certificate.json"
    with pytest.raises(ValueError, match="frozen"):
        found.threshold = 0.1  # type: ignore[misc]
    found.save(str(path))
    assert Certificate.read(str(path)) == read_signed(path) == found
    assert path.read_text(encoding="utf-8") == found.text
    with pytest.raises(DamagedError, match="is not a certificate: "):
        MonitorAccount.read(path)


def altered(change: Callable[[dict[str, Any]], Any]) -> str:
    plain = json.loads(certificate().text)
    change(plain)
    return json.dumps(plain, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "an unknown field": (lambda b: b.update(extra=1), "extra: Extra inputs are not permitted"),
    "one in a part": (lambda b: b["privacy"].update(extra=1), r"privacy\.extra: Extra"),
    "one in a row": (lambda b: b["evidence"][0].update(extra=1), r"evidence\.0\.extra: Extra"),
    "a monitor's field": (lambda b: b.update(alarm=None), "alarm: Extra"),
    "a field less": (lambda b: b.pop("eta"), "eta: Field required"),
    "a count that is a fraction": (lambda b: b.update(records=1.5), "records: "),
    "a count that is true": (lambda b: b.update(records=True), "records: "),
    "a negative count": (lambda b: b.update(absent=-1), "absent: "),
    "a number in words": (lambda b: b.update(eta="0.5"), "eta: "),
    "a number beyond all numbers": (lambda b: b.update(eta=10**400), ""),
    "a name for a number": (lambda b: b.update(eta="infinity"), "eta: "),
    "an epsilon that is none": (lambda b: b["privacy"].update(epsilon=math.nan), r"privacy\.epsilon: "),
    "half a surrogate": (lambda b: b.update(statement="\ud800"), "input contains non-UTF-8"),
    "an expiry without a zone": (lambda b: b.update(expires="2027-01-02T03:04:05"), "expires: "),
    "an expiry in words": (lambda b: b.update(expires="never"), "expires: "),
    "another status": (lambda b: b.update(status="FINE"), "status: "),
    "a digest in capitals": (lambda b: b.update(transcript="AB" * 32), "transcript: "),
    "a signature that is none": (lambda b: b.update(signature=5), "signature: "),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_certificate(name: str) -> None:
    change, words = REFUSED[name]
    for parse in (Certificate.parse, parse_signed):
        with pytest.raises(DamagedError, match=f"^c: is not a certificate: {words}"):
            parse(altered(change), "c")


OTHER_TEXTS: dict[str, Callable[[str], str]] = {
    "white space": lambda text: text + " ",
    "a field twice": lambda text: text.replace("{", '{"absent": 1,', 1),
    "a fraction that is none": lambda text: text.replace('"absent": 0', '"absent": 0').replace(
        '"eta": 0', '"eta": 0.0'
    ),
    "nothing spelled out": lambda text: text.replace('"eta"', '"signature": null,\n "eta"'),
    "escaped": lambda text: text.replace("All", "\\u0041ll"),
    "another zone's spelling": lambda text: text.replace("+00:00", "Z"),
}


@pytest.mark.parametrize("name", OTHER_TEXTS)
def test_one_text_says_it(name: str) -> None:
    text = OTHER_TEXTS[name](certificate().text)
    assert text != certificate().text
    with pytest.raises(DamagedError, match="is not a certificate as fedsrc writes it"):
        Certificate.parse(text, "c")


def test_rows_without_bets_have_no_wealth() -> None:
    row = ThresholdBounds(
        threshold=0.5, contrast_upper=0.0, acceptance_lower=0.5, risk_upper=0.1, sampling_width=math.inf,
        privacy_width=0.0, certified=True,
    )  # fmt: skip
    assert "log_wealth" not in row.model_dump()
    assert row.model_copy(update={"log_wealth": -math.inf}).model_dump()["log_wealth"] == -math.inf


def test_registered_numbers_are_compared_to_the_last_bit_and_computed_ones_are_not() -> None:
    """Another machine's last digit is allowed for in what is computed alone."""
    here = certificate()
    for name in ("threshold", "target_risk", "failure_probability"):
        there = here.model_copy(update={name: math.nextafter(getattr(here, name), 1)})
        assert there.differs_from(here) == [name]
    for name in ("risk_upper", "acceptance_lower", "contrast_upper", "eta"):
        assert here.model_copy(update={name: getattr(here, name) + 1e-9}).differs_from(here) == []
        assert here.model_copy(update={name: getattr(here, name) + 1e-7}).differs_from(here) == [name]
    weight = here.sites[0].model_copy(update={"weight": math.nextafter(1.0, 0)})
    share = here.sites[0].model_copy(update={"share": math.nextafter(1.0, 0)})
    epsilon = here.privacy.model_copy(update={"epsilon": 4.0})
    assert here.model_copy(update={"sites": (weight,)}).differs_from(here) == ["sites"]
    assert here.model_copy(update={"sites": (share,)}).differs_from(here) == []
    assert here.model_copy(update={"sites": ()}).differs_from(here) == ["sites"]
    assert here.model_copy(update={"privacy": epsilon}).differs_from(here) == ["privacy"]
    assert here.signed(KEY).differs_from(here) == []


def test_who_signed_it() -> None:
    good = certificate().signed(KEY)
    good.check_signature("c", server_key=public_hex(KEY))
    with pytest.raises(FedsrcError, match="not by the registered server"):
        good.check_signature("c", server_key="0" * 64)
    for name in ("key", "signature"):
        with pytest.raises(DamagedError, match="is not signed"):
            good.model_copy(update={name: None}).check_signature("c")


def test_another_zone_stays() -> None:
    """The text decides; the moment is the same."""
    zone = timezone(timedelta(hours=2))
    found = certificate(expires=datetime(2027, 1, 2, 5, 4, 5, tzinfo=zone))
    assert found.expires_on.endswith("+02:00")
    assert found.expires == certificate().expires
    assert Certificate.parse(found.text, "c").text == found.text
    assert isinstance(found, Signed)
