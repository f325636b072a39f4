"""What a card shows, as one plain dictionary with a version: every other form of the card is made from it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedsrc.common.canonical import canonical_bytes
from fedsrc.maths.arrays import Floats
from fedsrc.monitor.monitor import brief
from fedsrc.monitor.monitor import state as monitor_state
from fedsrc.planning.forecast import Forecast
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.damage import check_same
from fedsrc.protocol.disclosure import noise_words
from fedsrc.protocol.judgements import Betting
from fedsrc.protocol.monitor_status import Word
from fedsrc.protocol.names import CERTIFICATE, TRANSCRIPT
from fedsrc.protocol.succession import ANYONE, Keys, keys_of
from fedsrc.report.outlook import ESTIMATED, Outlook, in_short, outlook_words
from fedsrc.report.outlook import outlook as whole_outlook
from fedsrc.report.standing import certified_of, headline, stands, statuses
from fedsrc.server.follow import Follower
from fedsrc.server.issue import issue
from fedsrc.server.verify import revocation_of

FORMAT = 1
LATEST = 5  # who was turned away
View = dict[str, Any]


class Watched(NamedTuple):
    """What a monitor of the traffic says of the certificate since it was issued, and the groups that it rang for."""

    state: Word
    words: str = ""
    groups: tuple[str, ...] = ()


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
    return Watched(found.state, brief(found), found.alarm_groups or ())


def estimate(run: Follower) -> Outlook | None:
    """Estimate what the target should take in all at the rates seen. None once it is certified, before anything came,
    and for schedules so long that it would take minutes."""
    if None not in run.replay.choices or run.registration.schedule.rounds > ESTIMATED:
        return None
    return whole_outlook(run.replay)


def build_view(
    run: Follower,
    *,
    keys: Keys = ANYONE,
    revocations: Path | None = None,
    outlook: Outlook | None = None,
    monitor: Watched | None = None,
    version: str = "",
    now: datetime | None = None,
) -> View:
    """Build the view of a run as far as it was read."""
    certificate = issue(run.registration, run.replay, run.chain)
    check = _check(run, certificate, keys, revocations, now or datetime.now(UTC))
    whole, groups = (None, outlook) if isinstance(outlook, dict) else (outlook, {})
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
        "outlook": None if whole is None or certificate.status == "CERTIFIED" else _outlook(whole, certificate),
        "outlooks": {name: _outlook(each, certificate) for name, each in groups.items()},
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
    able, several = (*(run.rounds[-1].able if run.rounds else ()),), certificate.by_group is not None
    if certificate.status == "OPEN" and several and any(able) and not all(able):
        return f"The evidence so far shows the target for {sum(able)} of {len(able)} groups; the others go on."
    if certificate.status != "OPEN" or run.reached is None:
        return headline(certificate)
    next_comes = "the run is about to end"
    if run.beyond:
        stays = run.registration.fixed_mixture and isinstance(run.registration.certificate, Betting)
        gaining = run.registration.schedule.policy == "enough"
        next_comes = f"{'more units are used while they gain' if gaining else 'the registered rounds go on'} before"
        next_comes += " anything is claimed"
        next_comes += "" if stays else ", and it may fall back"
    what = f"the target for all {len(able)} groups" if several else "the target"
    return f"The evidence has shown {what} since round {run.reached}; {next_comes}."


def _meaning(run: Follower, certificate: Certificate) -> str:
    if certificate.status == "OPEN" and run.reached is not None:
        return MEANING["BEYOND" if run.beyond else "REACHED"]
    if certificate.status == "CERTIFIED" and certificate.by_group is not None:
        return f"{certified_of(certificate)}; {MEANING['CERTIFIED']}"
    return MEANING[certificate.status]


def _evidence(run: Follower, certificate: Certificate) -> View:
    """List the evidence of one threshold by round, with its line: the certified one, or the closest so far. Where every
    group has a claim of its own, list where each of them stands, and by round for how many the target is shown."""
    wealth, registration = run.bounds is not None and run.bounds.log_wealth is not None, run.registration
    several, weights = certificate.by_group is not None, run.weights
    rows = [_shown(run, block, weights) for block in range(len(registration.cuts) if several else 1)]
    shown, names = None if several else rows[0], registration.block_names
    of_score = shown is not None and registration.panel is not None and registration.groups is None
    return {
        "measure": "log-wealth" if wealth or certificate.method == "betting" else "contrast",
        "score": names[(shown or 0) // len(registration.thresholds.values)] if of_score else None,
        **_line(run, shown, weights),
        "rounds": [
            {
                "round": each.round,
                "records": each.records,
                "value": None if several else round(float(each.value[shown or 0]), 9),
                "risk_upper": each.risk_upper,
                **({"shown": sum(each.able)} if several else {}),
            }
            for each in run.rounds
        ],
        "groups": [
            {"name": name, "row": row % len(registration.thresholds.values), **_line(run, row, weights),
             "value": round(float(run.rounds[-1].value[row]), 9)}
            for name, row in zip(names, rows, strict=False) if several and row is not None
        ],
    }  # fmt: skip


def _line(run: Follower, row: int | None, weights: Floats) -> View:
    """Return a threshold, what its evidence must reach, and what that line of the bets is made of: it is 1 / (risk
    budget x the threshold's share of it)."""
    if row is None:
        return {"threshold": None, "line": None, "line_from": None}
    method, line = run.registration.certificate, round(float(run.lines(weights)[row]), 9)
    made = {"risk_budget": method.risk_budget, "share": float(weights[row])} if isinstance(method, Betting) else None
    return {"threshold": run.registration.row_values[row], "line": line, "line_from": made}


def _shown(run: Follower, block: int, weights: Floats) -> int | None:
    """Return the row whose evidence is shown: the one picked, or the closest; of a group that has a claim of its own,
    one of its rows."""
    if not run.rounds or run.bounds is None:
        return None
    choices, value = run.replay.choices, run.rounds[-1].value
    if choices[block] is not None:
        return choices[block]
    ahead = -value if run.bounds.log_wealth is None else value - run.lines(weights)
    enough = run.bounds.acceptance_lower >= run.registration.claim.min_acceptance
    m = value.size // len(choices)
    ahead, enough = ahead[block * m : (block + 1) * m], enough[block * m : (block + 1) * m]
    return block * m + int(np.argmax(np.where(enough, ahead, -np.inf) if enough.any() else ahead))


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
    said = {"words": outlook_words(forecast, missing, unit), "short": in_short(forecast, used, unit)}
    return {**asdict(forecast), "used": used, "missing": missing, **said}
