"""What registered releases disclose: epsilon for either kind of neighbour, and noise and thresholds in words."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedsrc.common.words import neighbour
from fedsrc.errors import FedsrcError
from fedsrc.maths import privacy
from fedsrc.maths.kinds import Adjacency
from fedsrc.protocol.mechanism import Mechanism, development_mechanism, sensitivity_of
from fedsrc.protocol.protection import IN_SUFFIXES, Contrasts, Encoded, Histograms, Noised, Privacy
from fedsrc.protocol.registration import Registration

EPSILON_STEP = 1e6  # an epsilon that is found by a search is rounded up to 6 decimals, alike on every machine


def released_development(registration: Registration) -> Noised | None:
    """Return the development release, if any; refuse one with other noise than its privacy requires."""
    release = None if registration.development is None else registration.development.release
    if release is not None and release.scale != _developing(registration, release).scale:
        raise FedsrcError("the development release has another noise scale than its privacy asks for")
    return release


def _developing(registration: Registration, release: Noised) -> Mechanism:
    """Return the mechanism of a release of development or unlabelled units."""
    return development_mechanism(release.privacy, len(release.grid), registration.claims.layout)


def epsilon_against(registration: Registration, adjacency: Adjacency) -> float:
    """Return epsilon of the registered noise for a kind of neighbour, at the registered delta: as registered, or found.

    See docs/theory.md, (i) on replacement and (iii) on the tight conversion.
    """
    settings, release = registration.privacy, released_development(registration)
    if not settings.private or adjacency == settings.adjacency:
        return settings.epsilon
    rules: list[tuple[Mechanism, Encoded]] = [(registration.mechanism, registration.encoding)]
    for each in (release, *(registration.unlabelled or ())):
        if each is not None and each.privacy == settings:
            rules.append((_developing(registration, each), IN_SUFFIXES))
    return _rounded_up(max(_rho(rule, code, settings, adjacency) for rule, code in rules), settings.delta)


def replacement_rho(registration: Registration) -> float:
    """Return what a release costs a unit in zCDP, for it being this one or any other: what a site's account counts."""
    return _rho(registration.mechanism, registration.encoding, registration.privacy, "replacement")


def epsilon_among(registration: Registration, cohort: str | None = None) -> float | None:
    """Return epsilon if all other members of a cohort side with the server, so that one's own share of the noise is
    all that is left: of the named cohort, or the largest of all. None without cohorts.

    Theory: (xvii) Privacy.
    """
    if registration.cohorts is None:
        return None
    settings, named = registration.privacy, [cohort] if cohort else registration.cohorts.by_name
    alone = replace(registration.mechanism, scale=min(registration.share_of(name) for name in named))
    return _rounded_up(_rho(alone, registration.encoding, settings, settings.adjacency), settings.delta)


def _rounded_up(rho: float, delta: float) -> float:
    return math.ceil(privacy.epsilon_tight(rho, delta) * EPSILON_STEP) / EPSILON_STEP


def sum_scale(registration: Registration, cohort: str | None = None) -> float | None:
    """Return the noise scale of a cohort's sum: of the named one, or the largest of all. None without cohorts."""
    if registration.cohorts is None:
        return None
    named = [cohort] if cohort else registration.cohorts.by_name
    return registration.mechanism.scale * math.sqrt(max(registration.noise_of(name) for name in named))


def _rho(rule: Mechanism, encoding: Encoded, settings: Privacy, adjacency: Adjacency) -> float:
    kind = encoding.kind if isinstance(encoding, Histograms) else "complementary"
    squared = sensitivity_of(rule.code, settings.mass_grid, adjacency, rule.layout, kind)
    return privacy.rho_of_scale(squared, rule.scale)


def other_of(adjacency: Adjacency) -> Adjacency:
    """Return the kind of neighbour that was not registered, whose epsilon stands beside the other."""
    return "zero-out" if adjacency == "replacement" else "replacement"


def beside_words(unit: str, adjacency: Adjacency, epsilon: float, floor: str | None = None) -> str:
    """Describe epsilon for the kind of neighbour that was not registered, rounded up, and what is not protected."""
    rounded, other = math.ceil(1000 * epsilon) / 1000, neighbour(adjacency, floor)
    return f"against one {unit} {other}: epsilon {rounded:g}; how many {unit}s each site has is public"


def floor_of(registration: Registration) -> str | None:
    """Return what the acceptance floor of groups is a share of; None without groups."""
    return None if registration.groups is None else registration.groups.floor


def privacy_words(registration: Registration) -> str:
    """Describe the registered epsilon and what it is for, with the other beside it."""
    p = registration.privacy
    if not p.private:
        return "none (epsilon infinite)"
    other = other_of(p.adjacency)
    floor = floor_of(registration)
    beside = beside_words(p.unit, other, epsilon_against(registration, other), floor)
    among, cohorts = epsilon_among(registration), registration.cohorts
    beside += "" if among is None or cohorts is None else f"; {collusion_words(cohorts.colluding, among)}"
    return f"epsilon {p.epsilon:g} at delta {p.delta:g}, against one {p.unit} {neighbour(p.adjacency, floor)}; {beside}"


def collusion_words(colluding: int, among: float) -> str:
    """Describe whom the registered epsilon holds against in a cohort, and what is left of it against more."""
    members = "member" if colluding == 1 else "members"
    whom = f"the server and {colluding} other {members} of the cohort together" if colluding else "the server alone"
    rounded = math.ceil(1000 * among) / 1000
    return f"this holds against {whom}; if all other members side with the server: epsilon {rounded:g}"


def noise_words(registration: Registration, cohort: str | None = None) -> str:
    """Describe the registered noise: its scale in units, and in the integers of a release file; with cohorts, that of
    the named one's sum, or the largest of all, and what a member adds."""
    if not registration.privacy.private:
        return "no noise at all"
    together = sum_scale(registration, cohort)
    if together is None:
        return _scale_words(registration, registration.mechanism.scale)
    return f"{_scale_words(registration, together)} in a cohort's sum, to which every member adds its share"


def _scale_words(registration: Registration, scale: float) -> str:
    settings, rule = registration.privacy, registration.mechanism
    answers = settings.unit == "source" and settings.answer_weight == "answer"
    if isinstance(registration.encoding, Contrasts):
        spread = scale * float(np.sqrt((rule.contrasts.inverse**2).sum(axis=1)).max())
        inside = f" ({scale:g} in the release's integers)"
        return f"noise of scale {spread:.4g} {'answer' if answers else settings.unit}s in a contrast{inside}"
    noun, shares = ("answer", settings.max_answers) if answers else (settings.unit, 1)
    steps = rule.grid * rule.basis.unit // shares
    inside = f" ({scale:g} in the release's integers, which count 1/{steps:,} of a{'n' * answers} {noun})"
    return f"noise of scale {scale / steps:.4g} {noun}s{inside if steps > 1 else ''}"
