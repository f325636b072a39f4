"""The registration: everything fixed before the first calibration record is read.

A TOML file. Its digest, SHA-256 of the canonical JSON of the validated values, binds every request, release,
transcript and certificate.
"""

from __future__ import annotations

import math
import tomllib
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import Field, ValidationError, model_validator

from fedsrc.common.canonical import LARGEST, canonical_bytes, digest
from fedsrc.common.durable import read_text
from fedsrc.common.toml import parse_toml
from fedsrc.common.values import Frozen, Hex, Name, Numbers, Probability, Text, describe
from fedsrc.errors import FedsrcError
from fedsrc.maths.kinds import Adjacency, BasisName, Conversion, Encoding
from fedsrc.protocol.formats import FIRST_FORMAT, FIRST_HINT
from fedsrc.protocol.messages import Coordinates

MAX_BYTES = 4_000_000
HEAD, VALID = "# fedsrc registration", "`fedsrc register` writes a valid one"


class Claim(Frozen):
    """What the certificate will say, in words and numbers."""

    score: Text = "score"
    loss: Text = "unsupported"
    population: Text = "traffic like the calibration records"
    target_risk: Probability
    min_acceptance: Probability = 0.05
    failure_probability: Probability = 0.05
    validity_days: int = Field(365, ge=1, le=36500)


class Thresholds(Frozen):
    """Candidate thresholds, their share of the failure budget, and where they came from.

    noised: quantiles of one noised release of the development units, `asked` of them before ties are merged. public:
    exact quantiles of records that are declared public. development: exact quantiles of records, no privacy claimed.
    """

    values: Numbers
    weights: Numbers
    origin: Literal["noised", "public", "development", "grid", "declared"] = "declared"
    asked: int | None = Field(None, ge=1, le=10_000)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.values:
            raise ValueError("at least one threshold is needed")
        if any(b <= a for a, b in pairwise(self.values)):
            raise ValueError("thresholds must be strictly increasing")
        if self.values[0] < 0 or self.values[-1] > 1:
            raise ValueError("thresholds must lie in [0, 1]")
        if len(self.weights) != len(self.values):
            raise ValueError("one weight per threshold is needed")
        if min(self.weights) <= 0 or not math.isclose(math.fsum(self.weights), 1.0, abs_tol=1e-9):
            raise ValueError("threshold weights must be positive and sum to one")
        return self


class Bets(Frozen):
    """Bets at target r: geomspace(low, high / (1 - r), count), uniform prior."""

    count: int = Field(12, ge=1, le=200)
    low: float = Field(0.01, gt=0, lt=1)
    high: float = Field(0.95, gt=0, lt=1)


class CentreBets(Frozen):
    """Acceptance centres min_acceptance * 2^i up to top, each with bets geomspace(low, high / c, count)."""

    top: float = Field(0.8, gt=0, lt=1)
    count: int = Field(8, ge=1, le=200)
    low: float = Field(0.05, gt=0, lt=1)
    high: float = Field(0.5, gt=0, lt=1)


class Betting(Frozen):
    """The betting certificate; the failure probability is split into risk, acceptance and refusal budgets."""

    method: Literal["betting"] = "betting"
    risk_budget: Probability = 0.045
    acceptance_budget: Probability = 0.0049
    refusal_budget: float = Field(0.0001, ge=0, lt=1)
    ladder: Annotated[Numbers, Field(min_length=1, max_length=10_000)] = tuple(i / 100 for i in range(1, 51))
    bets: Bets = Bets()
    centres: CentreBets = CentreBets()

    @property
    def spent(self) -> float:
        return math.fsum([self.risk_budget, self.acceptance_budget, self.refusal_budget])


class Stitched(Frozen):
    """One of the paper's certificates; the failure probability is split into sampling and noise budgets."""

    method: Literal["contrast", "variance-adaptive", "ratio"] = "contrast"
    sampling_budget: Probability = 0.025
    noise_budget: Probability = 0.025
    refusal_budget: float = Field(0.0, ge=0, lt=1)

    @property
    def spent(self) -> float:
        return math.fsum([self.sampling_budget, self.noise_budget, self.refusal_budget])


class AlarmBets(Frozen):
    """Bets that risk is above r: geomspace(low, high / r, count), uniform prior."""

    count: int = Field(12, ge=1, le=200)
    low: float = Field(0.01, gt=0, lt=1)
    high: float = Field(0.95, gt=0, lt=1)


class Monitor(Frozen):
    """Not a certificate: an alarm on one that is deployed, named by the SHA-256 of its file.

    Alarm when the risk is above `risk`. Guaranteed is either the probability of any false alarm (of which the refusal
    budget is a part) or the mean number of units until one. The claim of the registration is the one watched over.
    """

    method: Literal["monitor"] = "monitor"
    certificate: Hex
    risk: Probability
    guarantee: Literal["probability", "run length"] = "probability"
    false_alarm: Probability = 0.05
    run_length: int | None = Field(None, ge=2, le=10**15)
    sample: Literal["traffic", "accepted"] = "traffic"  # what the fresh units are drawn from
    refusal_budget: float = Field(0.0, ge=0, lt=1)
    bets: AlarmBets = AlarmBets()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.guarantee == "run length") != (self.run_length is not None):
            raise ValueError("run_length belongs to guarantee = 'run length', and is needed there")
        if self.refusal_budget >= self.false_alarm or (self.run_length is not None and self.refusal_budget > 0):
            raise ValueError("the refusal budget is part of the false-alarm probability; a run length has none")
        return self

    @property
    def spent(self) -> float:
        """Nothing of the claim's failure probability: a false alarm does not make the certificate wrong."""
        return 0.0


class Histograms(Frozen):
    """What a release holds: two histograms over the thresholds' bins (their kinds), in plain bins or suffix sums."""

    kind: Encoding = "complementary"
    basis: BasisName = "suffix"
    basis_bits: int = Field(8, ge=1, le=20)


IN_SUFFIXES = Histograms()  # a development release is encoded so, whatever calibration releases are


class Own(Frozen):
    """Every site adds its own noise, and its release is opened by itself."""

    kind: Literal["own"] = "own"


class One(Frozen):
    """One claim: of one score, on all the traffic."""

    kind: Literal["one"] = "one"


class There(Frozen):
    """Every record has its label before the first round."""

    kind: Literal["there"] = "there"


class Privacy(Frozen):
    """Who is protected, and by how much. epsilon = inf means no noise."""

    unit: Literal["record", "source"] = "record"
    epsilon: float = Field(gt=0, allow_inf_nan=True)
    delta: Probability = 1e-6
    adjacency: Adjacency = "zero-out"
    conversion: Conversion = "tight"
    loss_grid: int = Field(1, ge=1, le=1_000_000)
    max_answers: int = Field(1, ge=1, le=20)
    answer_weight: Literal["source", "answer"] = "source"
    independent: bool = False  # records that share a source are declared independent

    @model_validator(mode="after")
    def _check(self) -> Self:
        if math.isnan(self.epsilon):
            raise ValueError("epsilon is not a number")
        if self.unit == "record" and self.max_answers != 1:
            raise ValueError("max_answers belongs to unit = 'source'; a record is one answer")
        return self

    @property
    def private(self) -> bool:
        return not math.isinf(self.epsilon)

    @property
    def sources_alike(self) -> bool:
        """Whether every source weighs the same: shares are then those of a random answer of a random source."""
        return self.unit == "source" and (self.answer_weight == "source" or self.max_answers == 1)

    @property
    def mass_grid(self) -> int:
        """g: every mass a unit can add is a multiple of 1/g."""
        shares = math.lcm(*range(1, self.max_answers + 1)) if self.answer_weight == "source" else self.max_answers
        return shares * self.loss_grid


class Site(Frozen):
    """One site: its name, its weight in deployment, declared drift, and optionally capacity and public key."""

    name: Name
    weight: float | None = Field(None, ge=0, le=1)
    drift: float = Field(0.0, ge=0, le=1)
    capacity: int | None = Field(None, ge=0)
    key: Hex | None = None


class Schedule(Frozen):
    """How calibration proceeds: units per site and round, rounds, policy, and what dropout may depend on."""

    batch: int = Field(200, ge=1, le=10_000_000)
    rounds: int = Field(30, ge=1, le=1_000_000)
    policy: Literal["first", "final", "recruit"] = "first"
    dropout: Literal["independent", "adversarial"] = "independent"


class Noised(Frozen):
    """The one release of a table's development units: supported and unsupported mass over a public grid of scores, in
    the suffix basis, with noise. It holds the privacy it was made under: a later registration may use it again.
    """

    privacy: Privacy
    units: int = Field(ge=1, le=LARGEST)
    grid: Annotated[Numbers, Field(min_length=1, max_length=10_000)]
    scale: float = Field(gt=0, le=LARGEST)
    first: Coordinates
    second: Coordinates

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(b <= a for a, b in pairwise((0.0, *self.grid, 1.0))):
            raise ValueError("a grid of scores must be strictly increasing inside (0, 1)")
        if not len(self.first) == len(self.second) == len(self.grid):
            raise ValueError("a development release has two integers for every point of its grid")
        if max(map(abs, (*self.first, *self.second))) >= 1 << 61:
            raise ValueError("the numbers of a development release are absurdly large")
        if not self.privacy.private:
            raise ValueError("a development release is noised, so its epsilon is finite")
        return self

    def thresholds(self, count: int) -> tuple[float, ...]:
        """So many quantiles; ties are merged."""
        from fedsrc.maths.quantiles import released_quantiles  # with numpy, which a gate does without

        settings = self.privacy
        return released_quantiles(
            self.grid, (self.first, self.second), count, k=IN_SUFFIXES.basis_bits, g=settings.mass_grid, s=self.scale,
            n=self.units, known=settings.unit == "record" or settings.answer_weight == "source",
        )  # fmt: skip

    def to_bytes(self) -> bytes:
        return canonical_bytes(self.model_dump())


class Development(Frozen):
    """The units that chose the thresholds: those of a table whose key, by a recorded seed, is below a share.

    All of them: a table of their own. Some: the calibration table holds them, and they are left out of it. The table's
    digest is not here: a public digest of private records would let guesses about them be tested.
    """

    share: float = Field(gt=0, le=1)
    seed: int = Field(0, ge=0, lt=1 << 63)
    release: Noised | None = None

    @property
    def inside(self) -> bool:
        """Whether the calibration table holds these units."""
        return self.share < 1


class Registration(Frozen):
    """A complete registration. Build one with `register`, read one with `Registration.read`."""

    format: Literal[2] = 2
    server_key: Hex | None = None
    renews: Hex | None = None  # the certificate, by the SHA-256 of its file, whose claim is made anew on fresh units
    claim: Claim
    thresholds: Thresholds
    certificate: Annotated[Betting | Stitched | Monitor, Field(discriminator="method")]
    privacy: Privacy
    encoding: Histograms = Histograms()  # this and the next three grow other kinds; what reads them looks at `kind`
    aggregation: Own = Own()
    claims: One = One()
    labelling: There = There()
    sites: Annotated[tuple[Site, ...], Field(strict=False, min_length=1, max_length=100_000)]
    schedule: Schedule = Schedule()
    development: Development | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [site.name for site in self.sites]
        if len(set(names)) != len(names):
            raise ValueError("site names must differ")
        weights = [site.weight for site in self.sites if site.weight is not None]
        if weights and len(weights) != len(self.sites):
            raise ValueError("give every site a weight, or none")
        if weights and not math.isclose(math.fsum(weights), 1.0, abs_tol=1e-9):
            raise ValueError(f"site weights must sum to one, and these sum to {math.fsum(weights):g}")
        if self.privacy.mass_grid << self.encoding.basis_bits > 1 << 28:
            raise ValueError("loss_grid and max_answers make the masses too fine: lower one of them")
        if self.certificate.spent > self.claim.failure_probability * (1 + 1e-9):
            raise ValueError("the certificate's budgets add up to more than the failure probability")
        if isinstance(self.certificate, Betting):
            self._check_ladder(self.certificate.ladder)
        if isinstance(self.certificate, Monitor):
            self._check_monitor(self.certificate)
        self._check_thresholds()
        if self.schedule.dropout == "adversarial" and not self.charges_dropout:
            raise ValueError("dropout = 'adversarial' needs the betting certificate and a refusal budget")
        if self.schedule.dropout == "adversarial" and any(site.capacity is None for site in self.sites):
            raise ValueError("dropout = 'adversarial' needs the capacity of every site: what is not given is charged")
        return self

    def _check_thresholds(self) -> None:
        """Thresholds from a noised release are those that follow from it; exact ones are declared to be public."""
        thresholds, release = self.thresholds, None if self.development is None else self.development.release
        if (thresholds.origin == "noised") != (release is not None) or (release is None) != (thresholds.asked is None):
            raise ValueError("a development release and thresholds of origin 'noised', so many asked for, go together")
        if release is not None and thresholds.values != release.thresholds(thresholds.asked or 1):
            raise ValueError("the thresholds do not follow from the development release")
        if thresholds.origin == "development" and self.privacy.private:
            raise ValueError("thresholds of origin 'development' are exact: with a finite epsilon call them 'public'")

    def _check_ladder(self, rungs: tuple[float, ...]) -> None:
        if any(b <= a for a, b in pairwise(rungs)) or not 0 < rungs[0] <= rungs[-1] < 1:
            raise ValueError("the risk ladder must be strictly increasing inside (0, 1)")
        if self.claim.target_risk not in rungs:
            raise ValueError(f"the target risk {self.claim.target_risk} must be a rung of the ladder")

    def _check_monitor(self, method: Monitor) -> None:
        if len(self.thresholds.values) != 1 or self.development is not None:
            raise ValueError("a monitor watches one threshold, the certified one")
        if self.renews is not None:
            raise ValueError("a monitor renews no certificate: it names the one that it watches")
        if method.risk < self.claim.target_risk:
            raise ValueError("an alarm below the certified target risk would ring at what was certified")

    @property
    def most_units(self) -> int:
        """Units that the schedule asks for at most, over all rounds: of every site, or of the one recruited."""
        asked = 1 if self.schedule.policy == "recruit" else len(self.sites)
        return self.schedule.batch * self.schedule.rounds * asked

    @property
    def fixed_mixture(self) -> bool:
        """Whether the mixture spoken of is the same at every look: bounds then hold for every target at once.

        Theory: (iv), Ladder.
        """
        return self.weights is not None or len(self.sites) == 1

    @property
    def fails(self) -> float:
        """The probability that what is certified is false; an alarm certifies nothing."""
        return 0.0 if isinstance(self.certificate, Monitor) else self.claim.failure_probability

    @property
    def charges_dropout(self) -> bool:
        return isinstance(self.certificate, Betting) and self.certificate.refusal_budget > 0

    @cached_property
    def digest(self) -> str:
        return digest(self.model_dump())

    @property
    def weights(self) -> tuple[float, ...] | None:
        """Declared deployment weights, or None: the certificate then speaks of the mixture as calibrated."""
        if self.sites[0].weight is None:
            return None
        return tuple(site.weight or 0.0 for site in self.sites)

    def site(self, name: str) -> Site:
        """The site of that name; unknown names are refused."""
        if name not in self.by_name:
            raise FedsrcError(f"site {name!r} is not in the registration", hint="register the site before it releases")
        return self.by_name[name]

    @cached_property
    def by_name(self) -> dict[str, Site]:
        return {site.name: site for site in self.sites}

    def to_toml(self) -> str:
        head = f"{HEAD} {self.digest}\n# Any change makes it another registration.\n\n"
        return head + tomli_w.dumps(self.model_dump(exclude_none=True))

    @classmethod
    def from_toml(cls, text: str, *, where: str = "registration") -> Registration:
        try:
            return _parsed(text)
        except FirstFormatError as error:
            raise FedsrcError(f"is a registration of {FIRST_FORMAT}", where=where, hint=FIRST_HINT) from error
        except tomllib.TOMLDecodeError as error:
            raise FedsrcError(f"not a TOML file: {error}", where=where) from error
        except ValidationError as error:
            hint = "it was changed since `fedsrc register` wrote it" if text.startswith(HEAD) else VALID
            raise FedsrcError(describe(error), where=where, hint=hint) from error
        except (RecursionError, ValueError) as error:
            raise FedsrcError(f"cannot be read: {error}", where=where) from error

    @classmethod
    def read(cls, path: Path) -> Registration:
        return cls.from_toml(read_text(path, MAX_BYTES), where=str(path))


class FirstFormatError(Exception):
    """A registration of format 1."""


@lru_cache(maxsize=16)
def _parsed(text: str) -> Registration:
    """The registration that a text says. A site reads the same one before every answer, with all sites in it."""
    fields = parse_toml(text)
    if fields.get("format") == 1:
        raise FirstFormatError
    return Registration.model_validate(fields)


def budgets(preset: str, failure_probability: float) -> dict[str, Any]:
    """A preset's split of the failure probability, in the proportions of the default 0.05."""
    share = failure_probability / 0.05
    if preset == "paper":
        return {"sampling_budget": 0.025 * share, "noise_budget": 0.025 * share}
    return {"risk_budget": 0.045 * share, "acceptance_budget": 0.0049 * share, "refusal_budget": 0.0001 * share}
