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
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import tomli_w
from pydantic import Field, SerializerFunctionWrapHandler, ValidationError, model_serializer, model_validator

from fedsrc.common.canonical import digest
from fedsrc.common.durable import read_text
from fedsrc.common.toml import parse_toml
from fedsrc.common.values import Frozen, Hex, Name, Numbers, Probability, Text, describe
from fedsrc.errors import FedsrcError
from fedsrc.protocol.formats import FIRST_FORMAT, FIRST_HINT
from fedsrc.protocol.judgements import Betting, Monitor, Stitched
from fedsrc.protocol.protection import Development, Histograms, Privacy

if TYPE_CHECKING:
    from fedsrc.protocol.mechanism import Mechanism

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


class Own(Frozen):
    """Every site adds its own noise, and its release is opened by itself."""

    kind: Literal["own"] = "own"


class One(Frozen):
    """One claim: of one score, on all the traffic."""

    kind: Literal["one"] = "one"


class There(Frozen):
    """Every record has its label before the first round."""

    kind: Literal["there"] = "there"


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


class Registration(Frozen):
    """A complete registration. Build one with `register`, read one with `Registration.read`."""

    format: Literal[2] = 2
    server_key: Hex | None = None
    renews: Hex | None = None  # the certificate, by the SHA-256 of its file, whose claim is made anew on fresh units
    claim: Claim
    thresholds: Thresholds
    judgement: Annotated[Betting | Stitched | Monitor, Field(discriminator="method", alias="certificate")]
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
        if self.judgement.spent > self.claim.failure_probability * (1 + 1e-9):
            raise ValueError("the certificate's budgets add up to more than the failure probability")
        if isinstance(self.judgement, Betting):
            self._check_ladder(self.judgement.ladder)
        if self.monitor is not None:
            self._check_monitor(self.monitor)
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

    @model_serializer(mode="wrap")
    def _as_in_the_file(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write the judgement under the file's own word for it."""
        return {"certificate" if name == "judgement" else name: value for name, value in write(self).items()}

    @property
    def certificate(self) -> Betting | Stitched:
        """The method that certifies; a monitor has none."""
        if isinstance(self.judgement, Monitor):
            raise FedsrcError("this registration is of a monitor, which raises alarms and certifies nothing")
        return self.judgement

    @property
    def monitor(self) -> Monitor | None:
        """The monitor, where a deployed certificate is watched and nothing is certified."""
        return self.judgement if isinstance(self.judgement, Monitor) else None

    @property
    def most_units(self) -> int:
        """The most units that the schedule asks for, over all rounds: of every site, or of the one recruited."""
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
        return 0.0 if self.monitor is not None else self.claim.failure_probability

    @property
    def charges_dropout(self) -> bool:
        return isinstance(self.judgement, Betting) and self.judgement.refusal_budget > 0

    @cached_property
    def digest(self) -> str:
        return digest(self.model_dump())

    @cached_property
    def mechanism(self) -> Mechanism:
        """The registered noise. A site derives it itself and never takes the server's word for it."""
        from fedsrc.protocol.mechanism import mechanism  # with numpy, which a gate does without

        return mechanism(self.privacy, self.encoding, len(self.thresholds.values))

    @cached_property
    def weights(self) -> tuple[float, ...] | None:
        """Declared deployment weights, or None: the certificate then speaks of the mixture as calibrated."""
        if self.sites[0].weight is None:
            return None
        return tuple(site.weight or 0.0 for site in self.sites)

    def site(self, name: str) -> Site:
        """Return the site of that name; refuse unknown names."""
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
        except _FirstFormatError as error:
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


class _FirstFormatError(Exception):
    """A registration of format 1."""


@lru_cache(maxsize=16)
def _parsed(text: str) -> Registration:
    """Parse a registration. Cached: a site reads the same one, with all sites in it, before every answer."""
    fields = parse_toml(text)
    if fields.get("format") == 1:
        raise _FirstFormatError
    return Registration.model_validate(fields)
