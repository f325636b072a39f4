"""A site's own policy: which registrations it has allowed, and the most privacy it will ever spend on a unit."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from fedsrc.common.words import ADJACENCY, neighbour
from fedsrc.errors import FedsrcError
from fedsrc.maths.privacy import epsilon_tight
from fedsrc.protocol.disclosure import (
    beside_words,
    collusion_words,
    epsilon_against,
    epsilon_among,
    floor_of,
    noise_words,
    other_of,
    replacement_rho,
)
from fedsrc.protocol.panels import Groups, Scores
from fedsrc.protocol.registration import Registration
from fedsrc.records.order import IN_ORDER
from fedsrc.site.ledger import DELTA, Account, Ledger
from fedsrc.site.recognition import DEVELOPMENT


def cost(registration: Registration) -> float:
    """Return epsilon of one release for a unit being this one or any other, at the site's own delta: two registrations
    compare so, whatever neighbours they name. In a cohort, against the server and the members that may collude."""
    return epsilon_tight(replacement_rho(registration), DELTA)


def allow(ledger: Ledger, site: str, registration: Registration, max_epsilon: float | None = None) -> None:
    """Allow a registration at a site, within the site's limit; `max_epsilon` sets the limit."""
    registration.site(site)
    if max_epsilon is not None:
        ledger.limit(max_epsilon)
    check_limit(ledger, site, registration)
    ledger.allow(site, registration)


def check_limit(ledger: Ledger, site: str, registration: Registration) -> None:
    """Refuse a registration that costs more than the site's limit."""
    limit, price = ledger.max_epsilon(), cost(registration)
    if limit is not None and not price <= limit:
        raise FedsrcError(
            f"site {site!r} allows epsilon {limit:g} at most; this registration costs {price:.4g} at delta {DELTA:g}"
            f" (for one {registration.privacy.unit} {ADJACENCY['replacement']})",
            where=str(ledger.path),
            hint="the site alone can raise its limit, with `fedsrc allow --max-epsilon`",
        )


class RequestSizes(NamedTuple):
    """How many units one request asks of a site: as a rule, and at most while it has missed none."""

    usual: int
    most: int


def request_sizes(registration: Registration, site: str) -> RequestSizes:
    """Return what a request asks of a site: its share of a round, and up to half as much again where a rest that is
    too small for a release of its own joins it."""
    schedule, place, sites = registration.schedule, registration.site(site), len(registration.sites)
    weighed = registration.weights is not None and schedule.policy != "recruit"
    share = (place.weight or 0.0) * sites if weighed else 1.0
    largest = float(sites) if registration.monitor is not None and not weighed else share  # mixed by what they have
    most = math.ceil(1.5 * largest * schedule.size(schedule.rounds)) if share else 0
    room = most if place.capacity is None else place.capacity
    return RequestSizes(min(room, round(share * schedule.batch)), min(room, most))


def describe_registration(registration: Registration, site: str) -> list[str]:
    """Describe what a registration asks of a site."""
    claim, privacy = registration.claim, registration.privacy
    place, other = registration.site(site), other_of(privacy.adjacency)
    who = "one holder answers for all sites; its" if registration.held else "site's"
    capacity = "as many as it has" if place.capacity is None else f"at most {place.capacity:,}"
    asked, behind = request_sizes(registration, site), "" if registration.weights is None else ", more if it is behind"
    schedule = registration.schedule
    cohort = None if registration.cohorts is None else registration.cohorts.of(site).name
    grows = "" if schedule.growth == 1 else f", {schedule.growth:g} times as many each round"
    floor, against = floor_of(registration), epsilon_against(registration, other)
    return [
        f"Registration {registration.digest}",
        f"  {_purpose(registration)}",
        f"  (its word for the loss: {claim.loss}; for the traffic: {claim.population})",
        *_panel(registration),
        f"  asks for noised totals of about {asked.usual:,} {privacy.unit}s at a time{grows} (at most {asked.most:,} in"
        f" one request{behind}), and {capacity} in all",
        f"  each {privacy.unit} once: epsilon {privacy.epsilon:g} at delta {privacy.delta:g} (smaller is more private)",
        *_against_whom(registration, site),
        f"  with {noise_words(registration, cohort)}",
        f"  protected against: one {privacy.unit} {neighbour(privacy.adjacency, floor)}",
        *([f"  {beside_words(privacy.unit, other, against, floor)}"] if privacy.private else []),
        f"  server key  {registration.server_key or 'none'}",
        f"  {who} key  {registration.key_of(site) or 'none'}",
        *_members(registration, site),
    ]


def _panel(registration: Registration) -> list[str]:
    """Say which further columns a panel reads, and what it makes of them."""
    claims, listed = registration.claims, ", ".join(map(repr, registration.block_names))
    if isinstance(claims, Scores) and not claims.others:
        return [f"  by the score {listed}, the least at {', '.join(map(str, claims.checkpoints))} tokens and the end"]
    if isinstance(claims, Scores):
        return [f"  by the best of the scores {listed}: each unit counts in the totals of every one"]
    if isinstance(claims, Groups):
        kept = f", and a source counts whole in at most {claims.most} of them" if claims.span == "whole" else ""
        return [f"  with totals for each of these groups, by the column {claims.column!r}: {listed}{kept}"]
    return []


def _against_whom(registration: Registration, site: str) -> list[str]:
    cohorts = registration.cohorts
    among = None if cohorts is None else epsilon_among(registration, cohorts.of(site).name)
    return [] if cohorts is None or among is None else [f"  {collusion_words(cohorts.colluding, among)}"]


def _members(registration: Registration, site: str) -> list[str]:
    """Describe the cohort of a site: who is in it, with fingerprints. A server could have invented members."""
    if registration.cohorts is None:
        return []
    cohort = registration.cohorts.of(site)
    return [
        f"  in cohort {cohort.name} of {len(cohort.members)} sites: only the sum of their releases can be read, once"
        " all have answered",
        "  fingerprints of its members' mask keys: compare them out of band, for an invented member is a colluding one",
        *(
            f"    {registration.mask_keys[name].fingerprint}  {name!r}{' (this site)' * (name == site)}"
            for name in cohort.members
        ),
    ]


def _purpose(registration: Registration) -> str:
    if registration.monitor is not None:
        risk = registration.monitor.risk
        bad = "labelled unsupported" if registration.labelling.missed else "unsupported"
        return f"watches a deployed certificate: it rings when more than {100 * risk:g}% are {bad}"
    return f"wants to show that at most {100 * registration.promised_risk:g}% of accepted answers are unsupported"


def status_words(ledger: Ledger, site: str) -> list[str]:
    """Describe a site's account and policy."""
    limit = ledger.max_epsilon()
    lines = [f"Site {site}"]
    lines.append(
        "  no limit on epsilon is set"
        if limit is None
        else f"  allows epsilon {limit:g} at most, for a unit {ADJACENCY['replacement']}"
    )
    for account in ledger.accounts(site):
        lines += _account(account)
    registrations = ledger.allowed(site)
    lines.append(f"  allowed registrations: {len(registrations) or 'none'}")
    for each in registrations:
        given = ledger.given(site, each.digest)
        lines.append(f"    {each.digest}: target {each.promised_risk:g}, {given:,} {each.privacy.unit}s spent")
        lines += [f"    {words}" for words in _against_whom(each, site)]
    if len(registrations) > 1:
        lines.append("    each has its own failure probability; over several they add up")
    return lines


def status_data(ledger: Ledger, site: str) -> dict[str, Any]:
    """Return a site's account and policy as data."""
    return {
        "max_epsilon": ledger.max_epsilon(),
        "tables": [
            {"table": each.intake.content, "units": each.intake.units, "spent": each.spent, "releases": each.releases,
             "left": 0 if locked(each) else each.intake.units - each.spent, "locked": locked(each)}
            for each in ledger.accounts(site)
        ],
        "allowed": [
            {"registration": each.digest, "target_risk": each.promised_risk, "unit": each.privacy.unit,
             "spent": ledger.given(site, each.digest)}
            for each in ledger.allowed(site)
        ],
    }  # fmt: skip


def locked(account: Account) -> bool:
    """Whether a table chose thresholds or a score, so that it can no longer calibrate."""
    return account.intake.cut == DEVELOPMENT


def _account(account: Account) -> list[str]:
    intake = account.intake
    left = intake.units - account.spent
    order = "in the table's order" if intake.seed == IN_ORDER else "shuffled"
    words = [f"  table {intake.content[:16]}...: {intake.units:,} units ({intake.cut}), {order}"]
    words += _developed(account.developed)
    if locked(account):
        return [
            *words,
            f"    locked: its {intake.units:,} units chose thresholds or a score, and can no longer calibrate",
        ]
    if account.asserted:
        words.append("    that none of its units was in an earlier table was asserted (--fresh), not seen")
    if not account.releases:
        opened = f"{account.spent:,} spent, " if account.spent else ""
        return [*words, f"    nothing released, {opened}{left:,} units left"]
    price = _price(account.largest_rho)
    return [*words, f"    {account.spent:,} spent in {account.releases:,} releases ({price}), {left:,} left"]


def _developed(rho: float | None) -> list[str]:
    """Describe what became of the units that chose thresholds."""
    if rho is None:
        return []
    if rho == 0 or math.isinf(rho):
        return ["    its development units are published, and not protected"]
    return [f"    its development units were released once ({_price(rho)})"]


def _price(rho: float) -> str:
    price = epsilon_tight(rho, DELTA)
    return (
        "without noise"
        if math.isinf(price)
        else f"at most epsilon {price:.4g} at delta {DELTA:g} each, {ADJACENCY['replacement']}"
    )
