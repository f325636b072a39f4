"""What every method is given and what it answers: one aim, one evidence, one verdict.

Shapes: sums are (..., T, m), one row per look (after each round) and one column per threshold; record counts and eta
are (..., T). Leading axes are free (trials).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Bools, Floats
from fedsrc.maths.betting import Covariance
from fedsrc.maths.kinds import Adjacency

TOLERANCE = 1e-9  # of comparisons with enumerated facts

Provenance = Literal["paper", "code", "second-hand", "textbook", "reconstruction", "own"]
Role = Literal["reference", "certificate", "heuristic", "control"]
Stops = Literal["at any look", "at the last look"]
Given = Literal[
    "exact sums and development", "exact units and development", "registered releases", "randomised records",
    "randomised records, as registered", "released e-values",
]  # fmt: skip
HOLDS: dict[Given, str] = {
    "exact sums and development": "first", "exact units and development": "wealth", "registered releases": "server",
    "randomised records": "answers", "randomised records, as registered": "answers", "released e-values": "unreleased",
}  # fmt: skip
Assumption = Literal[
    "i.i.d.",
    "exchangeable",
    "partially exchangeable sites",
    "equal sites",
    "homogeneous sites",
    "independent participation",
    "predictable recruitment",
    "declared shift",
    "no shift",
    "fixed n",
    "exact counts",
    "binary loss",
    "no acceptance floor",
    "own release",
    "unproved",
]


@dataclass(frozen=True)
class Aim:
    """What is to be shown: risk at most the target, acceptance at least the floor, both but for this probability.

    Methods that bound risk and acceptance by separate events give `acceptance_share` of the budget to acceptance.
    """

    target_risk: float
    min_acceptance: float = 0.05
    failure_probability: float = 0.05
    acceptance_share: float = 0.1

    def __post_init__(self) -> None:
        """Refuse shares and probabilities outside their ranges."""
        inside = 0 < self.target_risk < 1 and 0 < self.min_acceptance < 1 and 0 < self.failure_probability < 1
        if not (inside and 0 < self.acceptance_share < 1):
            raise FedsrcError(f"{self} has a value outside (0, 1)", hint="every field of an aim is a share")

    @property
    def risk_budget(self) -> float:
        """What the risk bound may spend."""
        return self.failure_probability * (1.0 - self.acceptance_share)

    @property
    def acceptance_budget(self) -> float:
        """What the acceptance bound may spend."""
        return self.failure_probability * self.acceptance_share


@dataclass(frozen=True)
class Sites:
    """The same exact sums per site: (..., T, K, m), and records per site (..., T, K)."""

    accepted: Floats
    unsupported: Floats
    records: Floats


@dataclass(frozen=True)
class Unreleased:
    """What a method with a release of its own needs in a simulation: exact sums, and the randomness it will use.

    `normals` (..., T, m) sums one independent standard normal per release; `releases` (..., T) counts them; `rho` is
    the zCDP budget of one release against `adjacency`; `batch` is how many records a release is planned to hold.
    """

    accepted: Floats
    unsupported: Floats
    normals: Floats
    releases: Floats
    rho: float
    batch: float
    adjacency: Adjacency = "zero-out"


@dataclass(frozen=True)
class Answers:
    """What records say of themselves: sums like the exact ones, (..., T, m), of one random answer a record.

    asked    records that were asked of each threshold (..., T, m): every record is asked of `size` of them
    kept     the chance that an answer is the record's own category; else any of 2 size + 1 is, all alike
    """

    accepted: Floats
    unsupported: Floats
    asked: Floats
    size: int
    kept: float


@dataclass(frozen=True)
class Evidence:
    """Cumulative suffix sums, exact or noised, with the covariance proxy of their noise. Build it with `gather`.

    noise      proxy of the noise on (unsupported, supported); zero for exact sums
    unit       v0, the noise variance of one released coordinate; 1 without noise
    declared   deployment weights are declared, so that every look speaks of the same mixture
    binary     losses are 0 or 1
    worst      supported mass where it is not accepted less unsupported: releases that never arrived are charged with
               each mass at its own worst
    first      the threshold that development units favour
    wealth     the largest log-wealth so far of bets on one unit after the other
    server     what the server decides on the registered releases
    answers    what records say of themselves by randomised response
    """

    accepted: Floats
    unsupported: Floats
    records: Floats
    noise: Covariance
    unit: float
    eta: Floats
    declared: bool
    binary: bool
    sites: Sites | None = None
    unreleased: Unreleased | None = None
    worst: Floats | None = None
    first: int | None = None
    wealth: Floats | None = None
    server: Verdict | None = None
    answers: Answers | None = None

    @property
    def thresholds(self) -> int:
        return int(self.accepted.shape[-1])

    @property
    def noised(self) -> bool:
        return bool(np.any(self.noise.uu) or np.any(self.noise.ss))

    @property
    def supported(self) -> Floats:
        return self.accepted - self.unsupported if self.worst is None else self.worst

    @property
    def V_A(self) -> Floats:
        """Noise variance of accepted mass."""
        return self.noise.of(1.0, 1.0)

    def V_D(self, target_risk: float) -> Floats:
        """Noise variance of the contrast."""
        return self.noise.of(1.0 - target_risk, -target_risk)

    def contrast(self, target_risk: float) -> Floats:
        """D = unsupported - target * accepted."""
        return self.unsupported - target_risk * self.accepted

    def at(self, trial: Any) -> Evidence:
        """Return the trials at that index of the leading axes."""

        def pick(group: Any) -> Any:
            if group is None:
                return None
            arrays = {name: x[trial] for name, x in vars(group).items() if isinstance(x, np.ndarray)}
            return replace(group, **arrays)

        noise = Covariance(*(v[trial] for v in self.noise))
        picked: Evidence = pick(self)
        return replace(picked, noise=noise, sites=pick(self.sites), unreleased=pick(self.unreleased),
                       server=pick(self.server), answers=pick(self.answers))  # fmt: skip


def gather(
    accepted: ArrayLike,
    unsupported: ArrayLike,
    records: ArrayLike,
    *,
    noise: Covariance | None = None,
    unit: float = 1.0,
    eta: ArrayLike = 0.0,
    declared: bool = True,
    binary: bool = True,
    sites: Sites | None = None,
    unreleased: Unreleased | None = None,
) -> Evidence:
    """Return evidence broadcast to full shape; refuse values that are not finite, and looks without records."""
    A, Z = (np.asarray(x, dtype=np.float64) for x in (accepted, unsupported))
    if A.shape != Z.shape or A.ndim < 2:
        raise FedsrcError(f"accepted {A.shape} and unsupported {Z.shape} are not both (..., looks, thresholds)")
    flat = np.broadcast_to(0.0, A.shape)
    V = Covariance(*(np.broadcast_to(np.asarray(v, dtype=np.float64), A.shape) for v in noise or (flat, flat, flat)))
    N, shift = (np.broadcast_to(np.asarray(x, dtype=np.float64), A.shape[:-1]) for x in (records, eta))
    if not all(np.isfinite(x).all() for x in (A, Z, N, shift, *V)):
        raise FedsrcError("evidence holds values that are not finite")
    if not (N >= 1).all():
        raise FedsrcError("a look has no records", hint="start with the first round that has some")
    return Evidence(A, Z, N, V, float(unit), shift, declared, binary, sites, unreleased)


@dataclass(frozen=True)
class Verdict:
    """Per look and threshold: certified or not, and the bounds behind it; NaN where a method has none."""

    certified: Bools
    risk_upper: Floats
    contrast_upper: Floats
    acceptance_lower: Floats

    def at(self, index: Any) -> Verdict:
        """Return the trials at that index of the leading axes."""
        return Verdict(*(value[index] for value in vars(self).values()))


def verdict(
    certified: Bools,
    *,
    risk: Floats | None = None,
    contrast: Floats | None = None,
    acceptance: Floats | None = None,
) -> Verdict:
    """Return a verdict with NaN for the bounds that are not given."""
    none = np.full(certified.shape, np.nan)
    return Verdict(certified, *(none if x is None else x for x in (risk, contrast, acceptance)))


def from_contrast(d: Floats, a: Floats, aim: Aim) -> Verdict:
    """Certify where the contrast is shown not positive and acceptance to reach its floor; R = r + d/a."""
    certified = np.asarray((d <= 0) & (a >= aim.min_acceptance))
    ratio = np.where(a > 0, d / np.where(a > 0, a, 1.0), 1.0)
    risk = np.clip(aim.target_risk + np.where(d > 0, ratio, d), 0.0, 1.0)
    return verdict(certified, risk=risk, contrast=d, acceptance=a)


def from_widths(evidence: Evidence, aim: Aim, contrast: Floats, acceptance: Floats) -> Verdict:
    """Bound contrast and acceptance by their means plus and minus these widths of their sums, and by eta."""
    r, N, eta = aim.target_risk, column(evidence.records), column(evidence.eta)
    d = (evidence.contrast(r) + contrast) / N + eta
    a = (evidence.accepted - acceptance) / N - eta
    return from_contrast(np.minimum(1.0 - r, d), np.maximum(0.0, a), aim)


def column(x: Floats) -> Any:
    """Put per-look values beside a threshold axis. Typed Any: the formulas take scalars or what broadcasts."""
    return np.asarray(x)[..., None]


@dataclass(frozen=True)
class Facts:
    """What is true of the mixture spoken of: acceptance and risk per threshold, broadcast against (..., T, m)."""

    acceptance: Floats
    risk: Floats

    def contrast(self, target_risk: float) -> Floats:
        """d = a (R - r)."""
        return self.acceptance * (self.risk - target_risk)


def misses(found: Verdict, aim: Aim, facts: Facts, *, floor: bool = True) -> Bools:
    """Say whether a look (..., T) has a false certificate, or a bound on the wrong side of its fact."""
    a, R = facts.acceptance, facts.risk
    false = found.certified & ((aim.target_risk < R - TOLERANCE) | (floor & (a < aim.min_acceptance - TOLERANCE)))
    wrong = (found.contrast_upper < facts.contrast(aim.target_risk) - TOLERANCE) | (found.risk_upper < R - TOLERANCE)
    return np.asarray((false | wrong | (found.acceptance_lower > a + TOLERANCE)).any(axis=-1))


Rule = Callable[[Evidence, Aim], Verdict]


@dataclass(frozen=True)
class Method:
    """A rule with what it takes for granted.

    private     valid on noised sums (or by a private release of its own)
    anytime     valid at every look at once, so that one may stop at the first certificate
    proved      its failure probability is proved under `assumptions`, in the form run here
    stops       when a study lets it stop; a control may stop earlier than its guarantee allows
    misled      fed with noised sums without being made for them: a control
    causal      a look's verdict depends on no later look, so that one pass over all looks serves whenever it stops
    given       what it reads, where that is more than sums
    """

    name: str
    rule: Rule
    provenance: Provenance
    assumptions: tuple[Assumption, ...]
    role: Role = "certificate"
    private: bool = False
    anytime: bool = False
    proved: bool = True
    stops: Stops = "at the last look"
    source: str = ""
    misled: bool = False
    causal: bool = True
    given: Given | None = None

    @property
    def reads(self) -> Given | Literal["released sums", "exact sums"]:
        """What a study gives it."""
        if self.given is not None:
            return self.given
        return "released sums" if self.private or self.misled else "exact sums"

    @property
    def floor(self) -> bool:
        """Whether it also shows that acceptance reaches its floor."""
        return "no acceptance floor" not in self.assumptions

    def judge(self, evidence: Evidence, aim: Aim) -> Verdict:
        """Return the verdict; refuse evidence that the method cannot use."""
        if evidence.noised and self.reads.startswith("exact"):
            raise FedsrcError(f"{self.name} takes exact counts", hint="naive(method) is the control on noised sums")
        if "binary loss" in self.assumptions and not evidence.binary:
            raise FedsrcError(f"{self.name} takes binary losses")
        if self.given is not None and getattr(evidence, HOLDS[self.given]) is None:
            raise FedsrcError(f"{self.name} reads {self.given}, which this evidence does not hold")
        return self.rule(evidence, aim)

    def conclude(self, evidence: Evidence, aim: Aim) -> Verdict:
        """Return the verdict (B, m) at the last look of trials (B, T, m)."""
        return self.judge(evidence, aim).at((slice(None), -1))
