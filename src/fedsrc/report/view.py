"""What a card shows, as one plain dictionary with a version: every other form of the card is made from it."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedsrc.common.canonical import canonical_bytes
from fedsrc.monitor.monitor import brief
from fedsrc.monitor.monitor import state as monitor_state
from fedsrc.planning.forecast import Forecast, after_abstention
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.damage import check_same
from fedsrc.protocol.disclosure import noise_words
from fedsrc.protocol.judgements import Betting
from fedsrc.protocol.monitor_status import Word
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.succession import ANYONE, Keys, keys_of
from fedsrc.report.standing import stands, statuses
from fedsrc.server.follow import Follower
from fedsrc.server.issue import issue
from fedsrc.server.verify import revocation_of

FORMAT = 1
LATEST = 5  # who was turned away
ESTIMATED = 100  # rounds of a schedule, at most, for which an estimate is made
View = dict[str, Any]


class Watched(NamedTuple):
    """What a monitor of the traffic says of the certificate since it was issued."""

    state: Word
    words: str = ""


MEANING = {
    "CERTIFIED": "shown by the evidence, if what it rests on holds",
    "OPEN": "still collecting; nothing is certified yet",
    "BEYOND": "still collecting; the claim is made when the registered rule ends the run",
    "REACHED": "the run is about to end",
    "ABSTAIN": "the run has ended, and its evidence does not show the target; nothing is certified for it",
}


def view_run(
    folder: Path,
    *,
    trusted: tuple[str, ...] = (),
    successions: Iterable[Path] = (),
    revocations: Path | None = None,
    monitor: Watched | None = None,
    version: str = "",
) -> View:
    """Build the view of a run folder, open or ended. A certificate that does not verify is an error."""
    run, keys = Follower(folder), keys_of(trusted, successions)
    run.update()
    outlook = estimate(run)
    return build_view(run, keys=keys, revocations=revocations, outlook=outlook, monitor=monitor, version=version)


def watched_by(monitor: Path, run: Path, *, trusted: tuple[str, ...] = (), successions: Iterable[Path] = ()) -> Watched:
    """Read the state of a run's monitor from the monitor's folder, which is verified."""
    found = monitor_state(monitor, trusted=trusted, successions=successions, certificate=run)
    return Watched(found.state, brief(found))


def estimate(run: Follower) -> Forecast | None:
    """Estimate what the target should take in all at the rates seen. None once it is certified, before anything came,
    and for schedules so long that it would take minutes."""
    if run.replay.choice is not None or run.registration.schedule.rounds > ESTIMATED:
        return None
    return after_abstention(run.replay)


def build_view(
    run: Follower,
    *,
    keys: Keys = ANYONE,
    revocations: Path | None = None,
    outlook: Forecast | None = None,
    monitor: Watched | None = None,
    version: str = "",
    now: datetime | None = None,
) -> View:
    """Build the view of a run as far as it was read."""
    certificate = issue(run.registration, run.replay, run.chain)
    check = _check(run, certificate, keys, revocations, now or datetime.now(UTC))
    view = {
        "format": FORMAT,
        "fedsrc": version,
        "folder": str(run.folder),
        "sentence": _sentence(run, certificate),
        "struck": "",
        "meaning": _meaning(run, certificate),
        "check": check,
        "certificate": certificate,
        "noise": noise_words(run.registration),
        "evidence": _evidence(run, certificate),
        "progress": _progress(run),
        "sites": _sites(run, certificate),
        "outlook": None if outlook is None or certificate.status == "CERTIFIED" else _outlook(outlook, certificate),
        "monitor": None if monitor is None else monitor._asdict(),
        "verify": f"fedsrc verify {shlex.quote(str(run.folder))}",
    }
    worst = statuses(view)[0]
    if not stands(view):
        view |= {"sentence": worst.words, "struck": view["sentence"]}
    return {**view, "status": worst.word}


def view_json(view: View) -> str:
    """Write the view as JSON; ASCII only, so that it is inert on a terminal."""
    return json.dumps(json.loads(canonical_bytes({**view, "certificate": view["certificate"].model_dump()})), indent=1)


def _check(run: Follower, certificate: Certificate, keys: Keys, revocations: Path | None, now: datetime) -> View:
    """Compare the certificate in the folder with what follows from the transcript, and find the notice that revokes it.
    Any difference is an error."""
    path, known = run.folder / CERTIFICATE, bool(keys.trusted)
    if not path.exists():
        words = "there is no certificate yet" if certificate.status == "OPEN" else "the certificate is not yet written"
        none = {"number": None, "key": None, "trusted": False, "expired": False, "revoked": None}
        return {"certificate": False, **none, "words": words}
    found = Certificate.read(path)
    check_same(found, certificate, str(path), server_key=run.registration.server_key, keys=keys)
    words = "recomputed from registration and transcript, and its signature fits"
    late = certificate.expires is not None and now > certificate.expires
    notice = revocation_of(found, run.folder, keys, revocations)
    revoked = None if notice is None else notice.model_dump()
    return {
        "certificate": True,
        "number": found.digest,
        "key": found.key,
        "trusted": known,
        "expired": late,
        "revoked": revoked,
        "words": words,
    }


def _sentence(run: Follower, certificate: Certificate) -> str:
    """Return the certificate's sentence, or what stands in its place once the target is shown and rounds go on."""
    if certificate.status != "OPEN" or run.reached is None:
        return certificate.statement
    next_comes = "the run is about to end"
    if run.beyond:
        stays = run.registration.fixed_mixture and isinstance(run.registration.certificate, Betting)
        gaining = run.registration.schedule.policy == "enough"
        next_comes = f"{'more units are used while they gain' if gaining else 'the registered rounds go on'} before"
        next_comes += " anything is claimed"
        next_comes += "" if stays else ", and it may fall back"
    return f"The evidence has shown the target since round {run.reached}; {next_comes}."


def _meaning(run: Follower, certificate: Certificate) -> str:
    if certificate.status == "OPEN" and run.reached is not None:
        return MEANING["BEYOND" if run.beyond else "REACHED"]
    return MEANING[certificate.status]


def _evidence(run: Follower, certificate: Certificate) -> View:
    """List the evidence of one threshold by round, with its line: the certified one, or the closest so far."""
    wealth = run.bounds is not None and run.bounds.log_wealth is not None
    shown = _shown(run)
    return {
        "measure": "log-wealth" if wealth or certificate.method == "betting" else "contrast",
        "threshold": None if shown is None else run.registration.thresholds.values[shown],
        "line": None if shown is None else round(float(run.lines[shown]), 9),
        "line_from": None if shown is None else _line_from(run.registration, shown),
        "rounds": [
            {
                "round": each.round,
                "records": each.records,
                "value": round(float(each.value[shown or 0]), 9),
                "risk_upper": each.risk_upper,
            }
            for each in run.rounds
        ],
    }


def _line_from(registration: Registration, threshold: int) -> View | None:
    """Return what the line of the bets is made of: it is 1 / (risk budget x the threshold's share of it)."""
    method = registration.certificate
    if not isinstance(method, Betting):
        return None
    return {"risk_budget": method.risk_budget, "share": registration.thresholds.weights[threshold]}


def _shown(run: Follower) -> int | None:
    if not run.rounds or run.bounds is None:
        return None
    if run.replay.choice is not None:
        return run.replay.choice
    value, lines = run.rounds[-1].value, run.lines
    ahead = -value if run.bounds.log_wealth is None else value - lines
    enough = run.bounds.acceptance_lower >= run.registration.claim.min_acceptance
    return int(np.argmax(np.where(enough, ahead, -np.inf) if enough.any() else ahead))


def _progress(run: Follower) -> View:
    replay = run.replay
    return {
        "rounds": replay.rounds,
        "most_rounds": run.registration.schedule.rounds,
        "open_round": replay.rounds + 1 if replay.in_round else None,
        "waiting": len(replay.asked) + len(replay.due),
        "answered": len(replay.answered),
        "reached": run.reached,
        "ended": replay.ended,
        "policy": run.registration.schedule.policy,
        "left": sum(replay.left),
        "registered": _registered(run),
        "absent": replay.absent,
        "refused": replay.refused,
        "not_there": len(run.registration.sites) - len(replay.announced),
        "turned_away": len(run.turned_away),
        "latest": list(dict.fromkeys(reversed(run.turned_away)))[:LATEST],
        "changed": _changed(run.folder / TRANSCRIPT),
    }


def _registered(run: Follower) -> int | None:
    """Count units registered at the sites that have not come; None unless every one of them registered a number."""
    missing = [site.capacity for site in run.registration.sites if site.name not in run.replay.announced]
    known = [each for each in missing if each is not None]
    return sum(known) if len(known) == len(missing) else None


def _changed(path: Path) -> str | None:
    """Return when the transcript last grew, by this machine's clock."""
    try:
        moment = path.stat().st_mtime
    except OSError:
        return None
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _sites(run: Follower, certificate: Certificate) -> list[View]:
    open_slots = dict[str, int]()
    for request in run.replay.asked.values():
        open_slots |= run.registration.parts(request)
    states = run.sites.now(run.replay)
    rows = []
    for said, state in zip(certificate.sites, states, strict=True):
        asked = (state.announced or 0) - state.left + open_slots.get(state.name, 0)
        capacity = run.registration.site(state.name).capacity
        rows.append({**said.model_dump(), **asdict(state), "asked": asked, "registered": capacity})
    return rows


def _outlook(forecast: Forecast, certificate: Certificate) -> View:
    """Estimate how much is still missing, in numbers and words."""
    used, unit = certificate.records, certificate.privacy.unit
    missing = None if forecast.records is None else max(0, forecast.records - used)
    return {**asdict(forecast), "used": used, "missing": missing, "words": _outlook_words(forecast, missing, unit)}


def _outlook_words(forecast: Forecast, missing: int | None, unit: str) -> str:
    if forecast.too_few:
        return f"the {unit}s so far are too few to tell how many it takes, or whether the target can be reached"
    if math.isinf(forecast.limit):
        return "at the rates seen the target is out of reach: no threshold with enough acceptance is below it"
    if missing is None:
        return f"at the rates seen it takes more than {forecast.horizon:,} {unit}s in all"
    nine = f", at most {forecast.records_90:,} in 9 of 10 simulated runs" if forecast.records_90 else ""
    head = f"about {missing:,} {unit}s are still missing" if missing else "about as many as needed are there"
    return f"{head} (at the rates seen: about {forecast.records:,} in all{nine})"
