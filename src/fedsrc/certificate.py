"""The certificate: the decision, its statement, what it rests on, digests and a signature.

Versioned JSON. Everything in it except the signature is a pure function of registration and transcript, so `verify`
recomputes it whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedsrc.certify import Bounds, report, sample
from fedsrc.common.clock import TIME
from fedsrc.common.durable import read_text, write_whole
from fedsrc.errors import FedsrcError
from fedsrc.protocol.certificate import (
    FORMAT,
    MAX_BYTES,
    Body,
    as_signed,
    certificate_text,
    check_certificate,
    parse_certificate,
)
from fedsrc.protocol.damage import AGAIN
from fedsrc.protocol.mechanism import registered_mechanism
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.registration import Betting, Monitor, Registration
from fedsrc.protocol.transcript import Chain, Entry, Opened, read_entries, read_transcript
from fedsrc.replay import Replay


class Verified(NamedTuple):
    """What `verify` found: the certificate's body, and whether its key is one the caller trusts."""

    body: Body
    trusted: bool
    expired: bool


def issue(registration: Registration, replay: Replay, chain: Chain) -> Body:
    """The certificate's body for a replayed transcript. A run that has not ended is OPEN.

    A monitor's body is an account of it and certifies nothing.
    """
    if replay.watch is not None:
        return {**_account(registration, replay, chain), **replay.watch.report(), "expires": ""}
    bounds = None
    if replay.look is not None:
        bounds = report(registration, sample(registration, replay.tally), replay.look)
    choice = replay.choice
    return {
        "status": replay.status,
        "statement": statement(registration, replay, bounds),
        "target_risk": registration.claim.target_risk,
        "failure_probability": registration.claim.failure_probability,
        "claim": registration.claim.model_dump(),
        **_selected(registration, bounds, choice if replay.ended else None),
        **_account(registration, replay, chain),
        "eta": None if bounds is None else _number(bounds.eta),
        "thresholds": [] if bounds is None else _table(registration, bounds),
        "every_target": registration.fixed_mixture,
        "also_certified": _also(registration, bounds) if bounds is not None and registration.fixed_mixture else [],
        "evidence": [asdict(each) for each in replay.trace],
        "does_not_say": limits(registration),
        "expires": _expiry(min(replay.times, default=""), registration.claim.validity_days),
    }


def _account(registration: Registration, replay: Replay, chain: Chain) -> Body:
    """What a certificate and the account of a monitor both say."""
    return {
        "format": FORMAT,
        "method": registration.certificate.method,
        "records": replay.tally.arrived,
        "rounds": replay.rounds,
        "releases": replay.tally.releases,
        "absent": replay.absent,
        "refused": replay.refused,
        "sites": _sites(registration, replay),
        "mixture": "as calibrated" if registration.weights is None else "declared",
        "privacy": _privacy(registration),
        "assumptions": _assumptions(registration, replay),
        "calibrated": max(replay.times, default=""),
        "registration": registration.digest,
        "transcript": chain.head,
        "transcript_lines": chain.lines,
    }


def statement(registration: Registration, replay: Replay, bounds: Bounds | None) -> str:
    """The one plain sentence."""
    claim, choice = registration.claim, replay.choice
    if replay.status != "CERTIFIED" or bounds is None or choice is None:
        verb = "was" if replay.status == "ABSTAIN" else "is yet"
        return f"No threshold {verb} shown to keep unsupported answers at or below {_percent(claim.target_risk)}."
    threshold = registration.thresholds.values[choice]
    accepted = _percent(bounds.acceptance_lower[choice], down=True)
    fails = f"this statement fails with probability at most {_percent(claim.failure_probability)}."
    return f"{claimed(registration, f'score >= {threshold!r}', accepted)}; {fails}"


def claimed(registration: Registration, gate: str, accepted: str) -> str:
    """What is claimed of risk and acceptance: shares of answers, or chances of a random answer of a random source."""
    privacy, risk = registration.privacy, _percent(registration.claim.target_risk)
    graded = privacy.loss_grid > 1
    if not privacy.sources_alike:
        share = f"on average at most {risk} is" if graded else f"at most {risk} are"
        return f"Of the answers accepted ({gate}, at least {accepted} of traffic), {share} unsupported"
    bad = f"on average at most {risk} of it is unsupported"
    if not graded:
        bad = f"it is unsupported with probability at most {risk}"
    return f"Take a random answer of a random source: if it is accepted ({gate}; at least {accepted} are), {bad}"


def write_certificate(folder: Path, body: Body) -> None:
    """Put the certificate into a run folder, in one step."""
    write_whole(folder / CERTIFICATE, certificate_text(body).encode())


def read_run(folder: Path) -> tuple[Registration, list[Entry], Chain]:
    """The registration and checked transcript of a run folder."""
    registration = read_registration(folder)
    check_transcript(folder, needed=True)
    entries, chain = read_transcript(folder / TRANSCRIPT)
    return registration, entries, chain


def replay_run(folder: Path) -> tuple[Registration, Replay, Chain]:
    """A run folder's registration and its transcript, replayed line by line."""
    registration = read_registration(folder)
    check_transcript(folder, needed=True)
    replay, chain, lines = Replay(registration), Chain(), read_entries(folder / TRANSCRIPT)
    for entry, chain in lines:
        fold(replay, entry, chain, lines, folder)
    return registration, replay, chain


def fold(replay: Replay, entry: Entry, chain: Chain, rest: Iterator[tuple[Entry, Chain]], folder: Path) -> None:
    """Replay one entry of a run folder. Where it is refused, what became of the folder's files is said first; that a
    line was changed shows in the rest of them."""
    try:
        replay.step(entry)
    except FedsrcError as error:
        for _, after in rest:
            chain = after
        _check_opened(entry, replay.registration, folder)
        _check_head(chain, folder, error)
        raise


def read_registration(folder: Path) -> Registration:
    """The registration of a run folder."""
    if not folder.is_dir():
        raise FedsrcError("there is no such run folder", where=str(folder))
    path = folder / REGISTRATION
    if not path.exists():
        raise _missing(path)
    try:
        return Registration.read(path)
    except FedsrcError as error:
        if not (folder / TRANSCRIPT).exists():
            raise
        what = f"is not the registration that was signed: it was changed or damaged since ({error.what})"
        hint = "put back the file that was registered; one of another version of fedsrc is read by that version"
        raise FedsrcError(what, where=str(path), hint=hint) from error


def check_transcript(folder: Path, *, needed: bool = False) -> None:
    """Refuse a folder without a transcript where one is needed: for a certificate, or because the run is below it."""
    place = folder / TRANSCRIPT
    if not place.exists() and (needed or (folder / CERTIFICATE).exists() or runs_below(folder)):
        raise _missing(place)


def _check_opened(entry: Entry, registration: Registration, folder: Path) -> None:
    """Refuse a registration that is not the one which the transcript was opened under."""
    if isinstance(entry, Opened) and entry.registration != registration.digest:
        found = _signed_certificate(folder)
        if found is not None and found.get("registration") == registration.digest:
            what = f"is the transcript of another run, of registration {entry.registration}"
            raise FedsrcError(what, where=str(folder / TRANSCRIPT), hint=AGAIN)
        raise FedsrcError(
            f"is not the registration that was signed: its digest is {registration.digest}, and the transcript is of"
            f" another registration, {entry.registration}",
            where=str(folder / REGISTRATION),
            hint="it was changed since, or belongs to another run; put back the file that was registered",
        )


def _check_head(chain: Chain, folder: Path, error: FedsrcError) -> None:
    """Refuse a transcript that is not the one which the folder's certificate was signed over."""
    found = _signed_certificate(folder)
    if found is not None and found.get("transcript") != chain.head:
        what = f"the transcript was changed after it was signed ({error.what})"
        raise FedsrcError(what, where=str(folder / TRANSCRIPT), hint=AGAIN) from error


def _signed_certificate(folder: Path) -> Body | None:
    """The folder's certificate, if there is one and its signature fits."""
    path = folder / CERTIFICATE
    if not path.exists():
        return None
    found = parse_certificate(read_text(path, MAX_BYTES), str(path))
    return found if as_signed(found) else None


def runs_below(folder: Path) -> list[Path]:
    """Folders one level below that hold a run."""
    return sorted(path.parent for path in folder.glob(f"*/{TRANSCRIPT}"))


def _missing(path: Path) -> FedsrcError:
    below = [str(each) for each in runs_below(path.parent)]
    if below:
        what = f"there is no run in this folder; there is one below it, in {below[0]}"
        more = f" (and {len(below) - 1} more)" if len(below) > 1 else ""
        return FedsrcError(f"{what}{more}", where=str(path.parent), hint=f"name that folder: {below[0]}")
    files = f"{REGISTRATION}, {TRANSCRIPT} and, once it has ended, {CERTIFICATE}"
    return FedsrcError("is missing", where=str(path), hint=f"the folder of a run holds {files}")


def verify(folder: Path, *, trusted: tuple[str, ...] = (), now: datetime | None = None) -> Verified:
    """Recompute a run's certificate from its registration and transcript, and check its signature.

    Any difference is an error. `trusted` are public keys; when given, the certificate must be signed by one of them.
    """
    registration, replay, chain = replay_run(folder)
    expected = issue(registration, replay, chain)
    where = folder / CERTIFICATE
    if replay.ended is None and not where.exists():
        raise FedsrcError("the run is still open: it has no certificate yet", where=str(folder))
    if not where.exists():
        raise _missing(where)
    check_certificate(read_text(where, MAX_BYTES), expected, registration.server_key, trusted, where=str(where))
    expires = datetime.fromisoformat(expected["expires"]) if expected["expires"] else None
    late = expires is not None and (now or datetime.now(UTC)) > expires
    return Verified(expected, bool(trusted), late)


def _selected(registration: Registration, bounds: Bounds | None, choice: int | None) -> Body:
    if bounds is None or choice is None:
        return {"threshold": None, "contrast_upper": None, "acceptance_lower": None, "risk_upper": None}
    return {
        "threshold": registration.thresholds.values[choice],
        "contrast_upper": _number(bounds.contrast_upper[choice]),
        "acceptance_lower": _number(bounds.acceptance_lower[choice]),
        "risk_upper": _number(bounds.risk_upper[choice]),
    }


def _table(registration: Registration, bounds: Bounds) -> list[Body]:
    rows = []
    for j, value in enumerate(registration.thresholds.values):
        row = {
            "threshold": value,
            "contrast_upper": _number(bounds.contrast_upper[j]),
            "acceptance_lower": _number(bounds.acceptance_lower[j]),
            "risk_upper": _number(bounds.risk_upper[j]),
            "sampling_width": _number(bounds.sampling_width[j]),
            "privacy_width": _number(bounds.privacy_width[j]),
            "certified": bool(bounds.certified[j]),
        }
        if bounds.log_wealth is not None:
            row["log_wealth"] = _number(bounds.log_wealth[j])
        rows.append(row)
    return rows


def _also(registration: Registration, bounds: Bounds) -> list[Body]:
    """For every rung of the ladder, the threshold that would be certified: the risk bound holds for all at once."""
    if not isinstance(registration.certificate, Betting):
        return []
    rows = []
    for rung in registration.certificate.ladder:
        able = (bounds.risk_upper <= rung) & (bounds.acceptance_lower >= registration.claim.min_acceptance)
        if able.any():
            j = int(np.argmax(np.where(able, bounds.acceptance_lower, -1.0)))
            value, accepted = registration.thresholds.values[j], _number(bounds.acceptance_lower[j])
            rows.append({"target_risk": rung, "threshold": value, "acceptance_lower": accepted})
    return rows


def _sites(registration: Registration, replay: Replay) -> list[Body]:
    return [
        {
            "name": site.name,
            "records": replay.tally.slots[i],
            "charged": replay.tally.missing[i],
            "share": _number((replay.tally.slots[i] + replay.tally.missing[i]) / max(1, replay.tally.total)),
            "weight": site.weight,
            "drift": site.drift,
        }
        for i, site in enumerate(registration.sites)
    ]


def _privacy(registration: Registration) -> Body:
    settings, rule = registration.privacy, registered_mechanism(registration)
    return {
        "unit": settings.unit,
        "adjacency": settings.adjacency,
        "mechanism": "discrete Gaussian" if settings.private else "none",
        "encoding": settings.encoding,
        "basis": settings.basis,
        "epsilon": settings.epsilon,
        "delta": settings.delta if settings.private else 0.0,
        "conversion": settings.conversion,
        "rho": rule.rho,
        "scale": rule.scale,
        "releases_per_unit": 1,
    }


DOES_NOT_SAY = (
    "It certifies no single answer: it bounds the share of unsupported answers among those accepted.",
    "Supported is not true: it speaks of the declared loss, as labelled; label errors carry over.",
    "It does not cover other traffic, another model, prompt or score, or drift beyond what was declared.",
)


def limits(registration: Registration) -> list[str]:
    """What a certificate does not say."""
    first, *others = DOES_NOT_SAY
    privacy, uneven = registration.privacy, []
    if privacy.sources_alike:
        uneven = [
            "It weighs all sources alike, however many answers each has: where sources with many answers are worse,"
            " the share among all accepted answers can be higher."
        ]
    elif privacy.max_answers > 1:
        uneven = [f"Of a source with more than {privacy.max_answers} answers, only so many count."]
    return [first, *uneven, *others]


def _assumptions(registration: Registration, replay: Replay) -> list[Body]:
    unit, watched = registration.privacy.unit, isinstance(registration.certificate, Monitor)
    mixture = "deployment mixes the sites by the declared weights"
    if registration.weights is None:
        as_given = "rounds do" if watched else "calibrated (the shares above)"
        mixture = f"deployment mixes the sites as {as_given}"
    traffic = "traffic"
    if isinstance(registration.certificate, Monitor) and registration.certificate.sample == "accepted":
        traffic = "accepted answers"
    drift = "without drift at any site" if not any(s.drift for s in registration.sites) else "within declared drift"
    order = "in a recorded shuffle" if replay.orders <= {"shuffled"} else "in the table's own order"
    dropout, dropout_how = "every requested release arrived", "checked"
    if registration.schedule.dropout == "adversarial":
        dropout = "a release that did not arrive is charged as if withheld on purpose"
    elif replay.absent or replay.refused:
        dropout, dropout_how = "whether a release arrives does not depend on its content", "declared"
    return [
        {"what": "every request followed the registered rule", "how": "checked"},
        {"what": "requests were written down before their answers came", "how": "declared"},
        _origin_note(registration),
        {"what": f"every {unit} was released once", "how": "declared"},
        {"what": f"{unit}s at a site are independent draws of its {traffic}, used {order}", "how": "not checkable"},
        *_sharing_note(registration),
        {"what": f"{mixture}, {drift}", "how": "declared"},
        {"what": dropout, "how": dropout_how},
        {
            "what": f"score, loss and thresholds were fixed before {'monitoring' if watched else 'calibration'}",
            "how": "declared",
        },
        *_development_note(registration),
        *_grid_note(registration),
    ]


def _sharing_note(registration: Registration) -> list[Body]:
    if not registration.privacy.independent:
        return []
    return [{"what": "records that share a source are independent", "how": "declared"}]


def _origin_note(registration: Registration) -> Body:
    if all(site.key is not None for site in registration.sites):
        return {"what": "every release is signed by its site's registered key", "how": "checked"}
    return {"what": "releases are the sites' own (not every site has a registered key)", "how": "declared"}


def _development_note(registration: Registration) -> list[Body]:
    if registration.thresholds.origin != "development":
        return []
    what = "thresholds are published quantiles of development records, which privacy does not protect"
    return [{"what": what, "how": "declared"}]


def _grid_note(registration: Registration) -> list[Body]:
    grid = registration.privacy.loss_grid
    if grid == 1:
        return [{"what": "losses are 0 or 1; any fraction between counts as 1", "how": "checked"}]
    return [{"what": f"losses count in steps of 1/{grid}, rounded up", "how": "checked"}]


def _expiry(calibrated: str, days: int) -> str:
    """Counted from the earliest release, so that one clock that is fast extends nothing."""
    if not calibrated:
        return ""
    moment = datetime.strptime(calibrated, TIME).replace(tzinfo=UTC)
    return (moment + timedelta(days=days)).isoformat()


def _number(value: float) -> float:
    """9 decimals: what the decision compared."""
    return round(float(value), 9) + 0.0


def _percent(value: float, *, down: bool = False) -> str:
    scaled = value * 100
    if down:
        scaled = np.floor(scaled * 10) / 10
    return f"{scaled:.6g}%"
