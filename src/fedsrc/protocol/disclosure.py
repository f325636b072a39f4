"""What registered releases disclose: epsilon against replacement, and noise and thresholds in words."""

from __future__ import annotations

import math

from fedsrc.errors import FedsrcError
from fedsrc.maths import privacy
from fedsrc.maths.basis import sensitivity_squared
from fedsrc.maths.kinds import Encoding
from fedsrc.protocol.mechanism import Mechanism, development_mechanism
from fedsrc.protocol.protection import IN_SUFFIXES, Noised, Privacy
from fedsrc.protocol.registration import Registration

EPSILON_STEP = 1e6  # an epsilon that is found by a search is rounded up to 6 decimals, alike on every machine


def released_development(registration: Registration) -> Noised | None:
    """Return the development release, if any; refuse one with other noise than its privacy requires."""
    release = None if registration.development is None else registration.development.release
    if release is not None and release.scale != development_mechanism(release.privacy, len(release.grid)).scale:
        raise FedsrcError("the development release has another noise scale than its privacy asks for")
    return release


def replacement_epsilon(registration: Registration) -> float:
    """Return epsilon of the registered noise, at the registered delta, for one unit being this one or any other.

    See docs/theory.md, (i) on replacement and (iii) on the tight conversion.
    """
    settings, release = registration.privacy, released_development(registration)
    if not settings.private:
        return math.inf
    rules = [(registration.mechanism, registration.encoding.kind)]
    if release is not None and release.privacy == settings:
        rules.append((development_mechanism(settings, len(release.grid)), IN_SUFFIXES.kind))
    found = max(_replaced(rule, kind, settings) for rule, kind in rules)
    return math.ceil(found * EPSILON_STEP) / EPSILON_STEP


def _replaced(rule: Mechanism, kind: Encoding, settings: Privacy) -> float:
    squared = sensitivity_squared(rule.basis, kind, "replacement") * settings.mass_grid**2
    return privacy.epsilon_tight(privacy.rho_of_scale(squared, rule.scale), settings.delta)


def replacement_words(registration: Registration) -> str:
    """Describe the replacement epsilon beside a registered zero-out epsilon; "" where there is nothing to add."""
    settings = registration.privacy
    if not settings.private or settings.adjacency == "replacement":
        return ""
    return any_other(replacement_epsilon(registration), settings.unit)


def any_other(epsilon: float, unit: str) -> str:
    """Describe epsilon of a unit against any other, rounded up, and what is not protected at all."""
    rounded = math.ceil(1000 * epsilon) / 1000
    return f"against one {unit} being this one or any other: epsilon {rounded:g}; how many {unit}s there are is public"


def noise_words(registration: Registration) -> str:
    """Describe the registered noise: its scale in units, and in the integers of a release file."""
    settings, rule = registration.privacy, registration.mechanism
    if not settings.private:
        return "no noise at all"
    answers = settings.unit == "source" and settings.answer_weight == "answer"
    noun, shares = ("answer", settings.max_answers) if answers else (settings.unit, 1)
    steps = rule.grid * rule.basis.unit // shares
    inside = f" ({rule.scale:g} in the release's integers, which count 1/{steps:,} of a{'n' * answers} {noun})"
    return f"noise of scale {rule.scale / steps:.4g} {noun}s{inside if steps > 1 else ''}"
