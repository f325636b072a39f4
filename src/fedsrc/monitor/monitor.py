"""Register the monitor of a deployed certificate, and read its state.

A monitor's folder is a run folder: registration, transcript, and a signed account of them. The registration names the
certificate that it watches by the SHA-256 of its file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from fedsrc.common.canonical import file_digest
from fedsrc.common.words import ADJACENCY
from fedsrc.errors import FedsrcError
from fedsrc.maths.kinds import Adjacency
from fedsrc.maths.label_error import on_labels
from fedsrc.protocol.certificate import Certificate, MonitorAccount, WatchedGroup, WatchedRound
from fedsrc.protocol.damage import check_same
from fedsrc.protocol.judgements import Sealed
from fedsrc.protocol.monitor_status import WORDS, Word
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION, TRANSCRIPT
from fedsrc.protocol.panels import Groups
from fedsrc.protocol.registration import Registration, Schedule
from fedsrc.protocol.succession import Keys, keys_of
from fedsrc.protocol.transcript import Chain, read_entries
from fedsrc.server.alarm import RECENT
from fedsrc.server.folder import read_registration
from fedsrc.server.issue import account
from fedsrc.server.state import Replay
from fedsrc.server.verify import verify

REFUSALS = 0.002  # of the false-alarm probability, kept for honest releases that look implausible


@dataclass(frozen=True)
class MonitorChoices:
    """What a user decides about a monitor; everything else comes from the certificate's registration."""

    target_risk: float | None = None  # of a gate that promises another risk than the registered one
    false_alarm: float | None = None
    run_length: int | None = None
    risk: float | None = None
    epsilon: float | None = None
    batch: int | None = None
    sample: Literal["traffic", "accepted"] = "traffic"
    weights: Mapping[str, float] | None = None
    server_key: str | None = None
    site_keys: Mapping[str, str] | None = None
    capacities: Mapping[str, int] | None = None


@dataclass(frozen=True)
class MonitorState:
    """The state of a monitor, from its verified folder.

    The alarm is `log_evidence` reaching `log_line`; `progress` is their ratio, between 0 and 1. Risk estimates are
    noised and bound nothing. Where groups are watched, these are of the one closest to its line, `groups` has all, and
    `threshold` is None if each has its own.
    """

    state: Word
    sentence: str
    guarantee: str
    certificate: str
    threshold: float | None
    target_risk: float
    alarm_risk: float
    unit: str
    records: int
    rounds: int
    epsilon: float
    delta: float
    adjacency: Adjacency
    log_evidence: float | None
    log_line: float
    progress: float
    recent_risk_estimate: float | None
    alarm_round: int | None
    alarm_records: int | None
    alarm_groups: tuple[str, ...] | None
    likely_since: int | None
    latest: str
    history: tuple[WatchedRound, ...]
    groups: tuple[WatchedGroup, ...] | None
    registration: str
    transcript: str

    @property
    def alarm(self) -> bool:
        return self.state == "alarm"


def register_monitor(folder: Path, choices: MonitorChoices, *, trusted: tuple[str, ...] = ()) -> Registration:
    """Verify the certificate of a run folder, and return the registration of a monitor that watches it.

    It has one threshold, the certified one or that of another target, so that a release is two noised numbers; or one
    for every group that is certified, and a release two numbers for each. Of several scores it has the one picked.
    """
    found = verify(folder, trusted=trusted)
    if found.signed.status != "CERTIFIED" and (choices.target_risk is None or found.signed.status != "ABSTAIN"):
        raise FedsrcError(f"nothing is certified there: status {found.signed.status}", where=str(folder))
    if found.revoked is not None:
        raise FedsrcError(found.revoked.words(), where=str(folder))
    if found.expired:
        raise FedsrcError(f"the certificate expired on {found.signed.expires_on}", where=str(folder))
    base = found.replay.registration
    if choices.false_alarm is not None and choices.run_length is not None:
        raise FedsrcError("give either a false-alarm probability or a run length, not both")
    target = base.promised_risk if choices.target_risk is None else choices.target_risk
    (risk, threshold), missed = _shown(found.certificate, target, str(folder)), base.labelling.missed
    tested = on_labels(risk, missed)  # where fresh labels show more, nothing shows the promise any longer
    fields: dict[str, Any] = {
        "server_key": choices.server_key or base.server_key,
        "claim": {**base.claim.model_dump(), "target_risk": tested, **_picked(found.certificate)},
        "thresholds": {**_one(threshold), "origin": "declared"},
        "certificate": {
            "method": "monitor",
            "certificate": file_digest(folder / CERTIFICATE),
            "risk": tested if choices.risk is None else choices.risk,
            "sample": choices.sample,
            **_guarantee(choices),
        },
        "privacy": {
            **base.privacy.model_dump(),
            "conversion": "tight",
            "epsilon": base.privacy.epsilon if choices.epsilon is None else choices.epsilon,
        },
        "claims": {"kind": "one"} if base.groups is None else _by_group(base.groups, found.certificate),
        "labelling": {"kind": "there", "missed": missed},
        "sites": _sites(base, choices),
        "schedule": {"batch": choices.batch or _batch(base), "rounds": 1_000_000},
    }
    return Registration.of(fields, "this monitor cannot be registered")


def _shown(certificate: Certificate, target: float, where: str) -> tuple[float, float]:
    """Return the risk that is shown at a target, and its threshold: where every group has its own, the first one's."""
    if certificate.by_group is None:
        shown = certificate.claim_at(target, where)
        return shown.target_risk, shown.threshold
    if target != certificate.target_risk:
        raise FedsrcError(f"it speaks of its registered target {certificate.target_risk:g} alone", where=where)
    return target, _certified(certificate)[0][1]


def _certified(certificate: Certificate) -> list[tuple[str, float]]:
    """Return the groups that are certified, and their thresholds."""
    members = () if certificate.panel is None else certificate.panel.members
    return [(each.name, each.threshold) for each in members if each.threshold is not None]


def _by_group(groups: Groups, certificate: Certificate) -> dict[str, Any]:
    """Return the claims that are watched: those of the certified groups, with equal shares of the guarantee."""
    names, values = zip(*_certified(certificate), strict=True)
    own = None if groups.simultaneous else tuple(map(_one, values))
    return {
        "kind": "groups", "column": groups.column, "names": names, "shares": (1.0 / len(names),) * len(names),
        "span": groups.span, "most": min(groups.most, len(names)), "own": own,
    }  # fmt: skip


def _picked(certificate: Certificate) -> dict[str, Any]:
    """Return what the score is that was picked of several, where that is not the claim's own."""
    panel = certificate.panel
    member = None if panel is None or panel.picked is None else panel.member(panel.picked)
    if member is None or member.scale is None or member.name == certificate.claim.column:
        return {}
    return {"score": member.name, "column": member.name, "scale": member.scale.model_dump()}


def _one(threshold: float) -> dict[str, Any]:
    return {"values": (threshold,), "weights": (1.0,)}


def existing_registration(folder: Path, given: Path | None, certificate: Path | None) -> Registration | None:
    """Return the registration that was given, or the folder's own; None if there is neither.

    With `certificate`, a run folder, it must watch over that certificate.
    """
    place = given or folder / REGISTRATION
    if given is None and not place.exists():
        return None
    registered = Registration.read(place)
    if registered.monitor is None:
        raise FedsrcError("is not the registration of a monitor", where=str(place), hint="choose another `output=`")
    if certificate is not None and file_digest(certificate / CERTIFICATE) != registered.monitor.certificate:
        raise FedsrcError(f"watches over another certificate than that of {certificate}", where=str(place))
    return registered


def _batch(base: Registration) -> int:
    """Return the units of a round: those of calibration, unless its rounds were as large as the whole table."""
    return Schedule().batch if isinstance(base.judgement, Sealed) else base.schedule.batch


def state(
    folder: Path,
    *,
    trusted: tuple[str, ...] = (),
    successions: Iterable[Path] = (),
    certificate: Path | None = None,
) -> MonitorState:
    """Recompute the state of a folder's monitor from its transcript, and check chain and signature.

    While the monitor runs, the signed account may be of an earlier line. With `certificate` (a run folder, or the
    file), the monitor must be of that certificate.
    """
    registration = read_registration(folder)
    if registration.monitor is None:
        raise FedsrcError("is not the folder of a monitor", where=str(folder))
    found = state_of(_account(registration, folder, keys_of(trusted, successions)))
    if certificate is not None:
        file = certificate / CERTIFICATE if certificate.is_dir() else certificate
        if file_digest(file) != found.certificate:
            raise FedsrcError(f"watches over another certificate than {file}", where=str(folder))
    return found


def _account(registration: Registration, folder: Path, keys: Keys) -> MonitorAccount:
    """Return what the transcript comes to; the signed account must follow from it as it is or was."""
    where = folder / CERTIFICATE
    found = MonitorAccount.read(where)
    replay, chain, follows = Replay(registration), Chain(), False
    for entry, after in read_entries(folder / TRANSCRIPT):
        replay.step(entry)
        chain = after
        if chain.head == found.transcript:
            expected = account(registration, replay, chain)
            check_same(found, expected, str(where), server_key=registration.server_key, keys=keys)
            follows = True
    if not follows:
        raise FedsrcError(
            "the monitor's account does not follow from the transcript",
            where=str(where),
            hint="do not rely on it; lines of the transcript were cut off or exchanged",
        )
    return account(registration, replay, chain)


def monitor_alarm(folder: Path, *, trusted: tuple[str, ...] = (), certificate: Path | None = None) -> bool:
    """Return whether the monitor in a folder has raised its alarm; a folder that does not verify is an error."""
    return state(folder, trusted=trusted, certificate=certificate).alarm


def state_of(found: MonitorAccount) -> MonitorState:
    """Return a monitor's state from its verified account."""
    level, alarm = found.log_evidence, found.alarm
    named = [each.name for each in fields(MonitorState)]
    alike: dict[str, Any] = {name: getattr(found, name) for name in named if name in MonitorAccount.model_fields}
    private: dict[str, Any] = found.privacy.model_dump(include={"unit", "epsilon", "delta", "adjacency"})
    return MonitorState(
        **alike, **private, state=WORDS[found.status], sentence=found.statement,
        progress=0.0 if level is None else min(1.0, max(0.0, level / found.log_line)),
        alarm_round=None if alarm is None else alarm.round, alarm_records=None if alarm is None else alarm.records,
        likely_since=None if alarm is None else alarm.likely_since, latest=found.calibrated, history=found.evidence,
        alarm_groups=None if alarm is None else alarm.groups,
    )  # fmt: skip


def words(found: MonitorState) -> list[str]:
    """Describe a monitor's state, line by line."""
    lines = [found.sentence, "", f"Monitor: {found.state.upper()}  (line: risk {found.alarm_risk:g})", found.guarantee]
    if found.alarm:
        lines.append(f"The change seems to have begun in round {found.likely_since} (an estimate).")
    closest = "" if found.groups is None else ", in the group closest to the line, times its share"
    lines += ["", f"Evidence of a risk above {found.alarm_risk:g}: the logarithm of what bets on it have won{closest}"]
    lines.append(f"(alarm at {found.log_line:.2f}, the logarithm of {_stake(found)}, which the guarantee above fixes)")
    shown = found.history if len(found.history) <= 8 else (*found.history[:3], None, *found.history[-4:])
    lines += ["  ..." if each is None else _round(each, found.unit) for each in shown] or ["  no release yet"]
    lines += [_group(each) for each in found.groups or ()]
    if found.recent_risk_estimate is not None:
        lines.append(f"Risk {recent_words(found)}, by the noised totals (an estimate, no bound)")
    lines += [
        "",
        f"Privacy: each fresh {found.unit} is released once, epsilon {found.epsilon:g}, delta {found.delta:g},"
        f" against one {found.unit} {ADJACENCY[found.adjacency]}",
        f"Latest release {found.latest or 'none'}",
        f"Certificate  {found.certificate}",
        f"Registration {found.registration}",
        f"Transcript   {found.transcript}",
    ]
    return lines


def brief(found: MonitorState) -> str:
    """Describe a monitor's state in one paragraph."""
    risk = "" if found.recent_risk_estimate is None else f" Risk {recent_words(found)}, an estimate."
    return f"{found.sentence}{risk}"


def recent_words(found: MonitorState) -> str:
    """Describe the latest risk estimate and the rounds it is over: at an alarm the last one alone, because earlier
    rounds may be from before the change."""
    latest = found.history[-1]
    where = "" if latest.group is None else f"in group {latest.group!r} "
    if found.alarm and latest.risk_estimate is not None:
        return f"{where}in round {latest.round} about {latest.risk_estimate:.3g}"
    first, last = found.history[-RECENT:][0].round, latest.round
    rounds = f"in round {last}" if first == last else f"over rounds {first} to {last}"
    return f"{where}{rounds} about {found.recent_risk_estimate:.3g}"


def _stake(found: MonitorState) -> str:
    return f"{math.exp(found.log_line):,.0f}"


def _round(row: WatchedRound, unit: str) -> str:
    group = "" if row.group is None else f"  group {row.group!r}"
    said = f"evidence {row.log_evidence:.2f}{_about(row.risk_estimate)}{group}"
    return f"  round {row.round:>3}  {row.records:>8,} {unit}s  {said}"


def _group(row: WatchedGroup) -> str:
    level = "" if row.log_evidence is None else f"  evidence {row.log_evidence:.2f}"
    return f"  group {row.name!r}, score >= {row.threshold!r}{level}{_about(row.recent_risk_estimate)}"


def _about(risk: float | None) -> str:
    return "" if risk is None else f"  risk about {risk:.3g}"


def _guarantee(choices: MonitorChoices) -> dict[str, Any]:
    if choices.run_length is not None:
        return {"guarantee": "run length", "run_length": choices.run_length}
    level = 0.05 if choices.false_alarm is None else choices.false_alarm
    return {"guarantee": "probability", "false_alarm": level, "refusal_budget": REFUSALS * level}


def _sites(base: Registration, choices: MonitorChoices) -> list[dict[str, Any]]:
    """Return the certificate's sites. Fresh units are of the deployed traffic itself, so there is no drift; accepted
    answers mix the sites differently from traffic, so its weights are not theirs."""
    weights = choices.weights
    if weights is None and choices.sample == "traffic" and base.weights is not None:
        weights = {site.name: site.weight or 0.0 for site in base.sites}
    names = {site.name for site in base.sites}
    for given in (weights, choices.site_keys, choices.capacities):
        unknown = sorted(set(given or {}) - names)
        if unknown:
            raise FedsrcError(f"{unknown[0]!r} is not a site of the certificate")
    return [
        {
            "name": site.name,
            "weight": None if weights is None else weights.get(site.name, 0.0),
            "drift": 0.0,
            "capacity": (choices.capacities or {}).get(site.name),
            "key": (choices.site_keys or {}).get(site.name, site.key),
        }
        for site in base.sites
    ]
