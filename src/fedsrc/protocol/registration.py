"""The registration: everything fixed before the first calibration record is read.

A TOML file. Its digest, SHA-256 of the canonical JSON of the validated values, binds every request, release,
transcript and certificate.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import tomli_w
from pydantic import Field, SerializerFunctionWrapHandler, ValidationError, model_serializer, model_validator

from fedsrc.common.agreement import can_agree
from fedsrc.common.canonical import digest
from fedsrc.common.durable import read_text
from fedsrc.common.toml import parse_toml
from fedsrc.common.values import Frozen, Grown, Hex, Name, Numbers, Probability, Text, describe
from fedsrc.errors import FedsrcError
from fedsrc.maths.label_error import of_answers
from fedsrc.protocol.formats import FIRST_FORMAT, FIRST_HINT
from fedsrc.protocol.judgements import Betting, Monitor, Sealed, Stitched, in_decimals
from fedsrc.protocol.mask_key import MaskKey
from fedsrc.protocol.names import HOLDER
from fedsrc.protocol.panels import Cuts, Groups, One, Scores, check_cuts
from fedsrc.protocol.protection import Contrasts, Development, Encoded, Histograms, Levels, Moments, Noised, Privacy
from fedsrc.protocol.scale import Scale

if TYPE_CHECKING:
    from fedsrc.protocol.mechanism import Mechanism
    from fedsrc.protocol.messages import Request

MAX_BYTES = 4_000_000
FINE = 1_000  # lattice units of noise: discrete noise then costs next to nothing more than continuous
LARGEST_BATCH = 10_000_000
MOST_LEVELS = 20
FAR = 40  # standard deviations that noise never reaches
CONDITION = 10_000  # of a sealed encoding's matrix: contrasts are computed with its inverse, in floats
HEAD, VALID = "# fedsrc registration", "`fedsrc register` writes a valid one"


class Claim(Grown):
    """What the certificate will say, in words and numbers.

    `system`, `issuer` and `contact` say whose certificate it is. `column` is the name of the score in tables, and
    `scale` how it is written there and in production: records under another name or scale do not calibrate.
    """

    LATER: ClassVar[tuple[str, ...]] = ("system", "issuer", "contact", "column", "scale")
    system: Text = ""
    issuer: Text = ""
    contact: Text = ""
    score: Text = "score"
    column: Text = "score"
    scale: Scale = Scale()
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
        check_cuts(self.values, self.weights)
        return self


class Own(Frozen):
    """Every site adds its own noise, and its release is opened by itself."""

    kind: Literal["own"] = "own"


class Holder(Frozen):
    """One process holds the records of all sites: a round is one release over them, with one noise and one chain.

    Which units are of which site is public. Its key, if it has one, signs releases and what it has of each site.
    """

    kind: Literal["holder"] = "holder"
    key: Hex | None = None


class Cohort(Frozen):
    """Sites that add their releases up before anyone can read them, under one name."""

    name: Name
    members: Annotated[tuple[Name, ...], Field(strict=False, min_length=1)]


class Cohorts(Frozen):
    """Every site is in one cohort: members mask their releases, and only a cohort's sum can be read. Each adds its
    share of the noise, so that the registered privacy holds against the server and `colluding` members together.

    Theory: (xvii).
    """

    kind: Literal["cohorts"] = "cohorts"
    colluding: int = Field(1, ge=0)
    cohorts: Annotated[tuple[Cohort, ...], Field(strict=False, min_length=1)]
    keys: Annotated[tuple[MaskKey, ...], Field(strict=False)]  # of every site, in their order

    @cached_property
    def by_name(self) -> dict[str, Cohort]:
        return {each.name: each for each in self.cohorts}

    def of(self, site: str) -> Cohort:
        """Return the cohort that a site is in."""
        return next(each for each in self.cohorts if site in each.members)


class There(Grown):
    """Every record has its label before the first round. `missed`: of the unsupported answers at or above any
    threshold, at most this share is labelled supported, by declaration."""

    LATER: ClassVar[tuple[str, ...]] = ("missed",)
    kind: Literal["there"] = "there"
    missed: float = Field(0.0, ge=0, lt=1)


class OnDemand(Grown):
    """People label what a round needs once it is open: the answers at or above the lowest threshold.

    A label that is missing when a site releases counts as unsupported, and so does "unsure".

    hours          a site releases so long after it opened a round, and not before; without, when every label is there
                   or its operator closes the round
    twice          the share of answers, drawn by hash, that two people label
    disagreement   of two labels that differ, and of "unsure": the worse counts, or what a third person says
    missed         as above
    """

    LATER: ClassVar[tuple[str, ...]] = ("hours", "twice", "disagreement", "missed")
    kind: Literal["on demand"] = "on demand"
    hours: float | None = Field(None, gt=0, le=100_000)
    twice: float = Field(0.0, ge=0, le=1)
    disagreement: Literal["worse", "third"] = "worse"
    missed: float = Field(0.0, ge=0, lt=1)


class Site(Frozen):
    """One site: its name, its weight in deployment, declared drift, and optionally capacity and public key."""

    name: Name
    weight: float | None = Field(None, ge=0, le=1)
    drift: float = Field(0.0, ge=0, le=1)
    capacity: int | None = Field(None, ge=0)
    key: Hex | None = None


class Schedule(Grown):
    """How calibration proceeds: units per site and round, rounds, policy, and what dropout may depend on.

    With growth, every round asks for so many times the units of the one before.
    """

    LATER: ClassVar[tuple[str, ...]] = ("growth",)
    batch: int = Field(200, ge=1, le=LARGEST_BATCH)
    rounds: int = Field(30, ge=1, le=1_000_000)
    policy: Literal["first", "enough", "final", "recruit"] = "first"
    dropout: Literal["independent", "adversarial"] = "independent"
    growth: float = Field(1.0, ge=1, le=10)

    def sizes(self) -> Iterator[int]:
        """Yield what each round asks of a site: batch x growth^(round - 1), rounded; products are alike everywhere."""
        size = float(self.batch)
        while True:
            yield math.floor(size + 0.5)
            size = min(size * self.growth, LARGEST_BATCH)

    def size(self, round: int) -> int:
        """Return the units that a round asks of a site."""
        return self.batch if self.growth == 1 else next(islice(self.sizes(), round - 1, None))

    def units(self, rounds: int) -> int:
        """Return the units that so many rounds ask of a site."""
        return self.batch * rounds if self.growth == 1 else sum(islice(self.sizes(), rounds))


class Registration(Frozen):
    """A complete registration. Build one with `register`, read one with `Registration.read`."""

    format: Literal[2] = 2
    server_key: Hex | None = None
    renews: Hex | None = None  # the certificate, by the SHA-256 of its file, whose claim is made anew on fresh units
    claim: Claim
    thresholds: Thresholds
    judgement: Annotated[Betting | Sealed | Stitched | Monitor, Field(discriminator="method", alias="certificate")]
    privacy: Privacy
    encoding: Encoded = Histograms()  # this and the next three grow other kinds; what reads them looks at `kind`
    aggregation: Annotated[Own | Holder | Cohorts, Field(discriminator="kind")] = Own()
    claims: Annotated[One | Groups | Scores, Field(discriminator="kind")] = One()
    labelling: Annotated[There | OnDemand, Field(discriminator="kind")] = There()
    sites: Annotated[tuple[Site, ...], Field(strict=False, min_length=1, max_length=100_000)]
    schedule: Schedule = Schedule()
    development: Development | None = None
    unlabelled: Annotated[tuple[Noised, ...], Field(strict=False)] | None = None  # of every site, in their order

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_sites()
        if self.privacy.adjacency == "same-group" and not isinstance(self.claims, Groups):
            raise ValueError("neighbours of the same group need groups: adjacency is 'replacement'")
        if not isinstance(self.claims, One):
            self._check_panel(self.claims)
        if self.unlabelled is not None:
            self._check_unlabelled(self.unlabelled)
        if not isinstance(self.encoding, Contrasts) and self.privacy.mass_grid << self.encoding.basis_bits > 1 << 28:
            raise ValueError("loss_grid and max_answers make the masses too fine: lower one of them")
        if isinstance(self.encoding, Contrasts) or isinstance(self.judgement, Sealed):
            self._check_sealed()
        if isinstance(self.encoding, Moments | Levels):
            self._check_finer(self.encoding)
        if self.judgement.spent > self.claim.failure_probability * (1 + 1e-9):
            raise ValueError("the certificate's budgets add up to more than the failure probability")
        if isinstance(self.judgement, Betting):
            self._check_ladder(self.judgement.ladder)
            if len(self.judgement.bets.priors or self.row_weights) != len(self.row_weights):
                raise ValueError("bets have one prior per threshold, or none")
        if self.monitor is not None:
            self._check_monitor(self.monitor)
        self._check_thresholds()
        self._check_schedule()
        if isinstance(self.aggregation, Cohorts):
            self._check_cohorts(self.aggregation)
        if self.on_demand and self.monitor is not None:
            raise ValueError("a monitor's records have their labels: labels on demand are for certificates")
        return self

    def _check_sites(self) -> None:
        names = [site.name for site in self.sites]
        if len(set(names)) != len(names):
            raise ValueError("site names must differ")
        weights = [site.weight for site in self.sites if site.weight is not None]
        if weights and len(weights) != len(self.sites):
            raise ValueError("give every site a weight, or none")
        if weights and not math.isclose(math.fsum(weights), 1.0, abs_tol=1e-9):
            raise ValueError(f"site weights must sum to one, and these sum to {math.fsum(weights):g}")
        if self.held and any(site.key is not None for site in self.sites):
            raise ValueError("sites of one holder have no keys of their own: the holder signs, or aggregation is 'own'")

    def _check_cohorts(self, asked: Cohorts) -> None:
        """Refuse cohorts whose sums could be read in part, wrap, carry too coarse a noise, or be chosen."""
        from fedsrc.maths.privacy import least_share  # with numpy, which a gate does without

        names = [each.name for each in asked.cohorts]
        members = [name for each in asked.cohorts for name in each.members]
        if sorted(members) != sorted(self.by_name):
            raise ValueError("every site is in one cohort, once")
        if len({*names, *members, HOLDER}) != len(names) + len(members) + 1:
            raise ValueError("the names of cohorts must differ, from each other and from those of sites")
        if min(len(each.members) for each in asked.cohorts) <= asked.colluding:
            raise ValueError(f"a cohort has more members than may collude, which is {asked.colluding}")
        self._check_mask_keys(asked.keys)
        if not self.privacy.private:
            raise ValueError("cohorts share noise: without privacy there is none to share")
        if not self.charges_dropout or self.monitor is not None:
            raise ValueError("cohorts need a betting or sealed certificate with a refusal budget")
        if self.schedule.policy == "recruit":
            raise ValueError("policy = 'recruit' asks one site at a time: a cohort answers together")
        if isinstance(self.judgement, Sealed) and self.judgement.line != "within":
            raise ValueError("a sealed certificate of cohorts has line = 'within': their noise may be less than stated")
        shares = [(len(each.members), self.share_of(each.name)) for each in asked.cohorts]
        least = min(share for _, share in shares)
        needed = least_share(sum(self.mechanism.lengths), self.privacy.epsilon, self.privacy.delta)
        if least < needed:
            raise ValueError(
                f"a member's share of the noise is {least:.3g} lattice units, and {needed:.3g} are the least: raise"
                " basis_bits, or lower epsilon or the size of cohorts"
            )
        noise = max(FAR * size * share for size, share in shares)
        if 2 * self.most_units * self.mechanism.largest + noise >= 1 << 62:
            raise ValueError("the sums of a cohort could overflow: lower max_answers, loss_grid or the rounds")

    def _check_mask_keys(self, keys: tuple[MaskKey, ...]) -> None:
        """Refuse mask keys that are not their site's own, or that two of them share."""
        if [(each.site, each.key) for each in keys] != [(site.name, site.key) for site in self.sites]:
            raise ValueError("cohorts need the key and the mask key of every site")
        if len({public for each in keys for public in (each.key, each.mask)}) != 2 * len(keys):
            raise ValueError("two sites of a cohort have the same key")
        for each in keys:
            if not (each.genuine and can_agree(each.mask)):
                raise ValueError(f"the mask key of site {each.site!r} is not proved to be its own")

    def _check_schedule(self) -> None:
        if self.schedule.policy == "enough" and not (isinstance(self.judgement, Betting) and self.fixed_mixture):
            raise ValueError(
                "policy = 'enough' needs the betting certificate, and site weights or one site: otherwise what a round"
                " has shown may be lost in the next"
            )
        if self.schedule.dropout == "adversarial" and not self.charges_dropout:
            raise ValueError("dropout = 'adversarial' needs the betting certificate and a refusal budget")
        if self.schedule.dropout == "adversarial" and any(site.capacity is None for site in self.sites):
            raise ValueError("dropout = 'adversarial' needs the capacity of every site: what is not given is charged")

    def _check_thresholds(self) -> None:
        """Thresholds from a noised release follow from it, all or some; exact ones are declared to be public."""
        thresholds, release = self.thresholds, None if self.development is None else self.development.release
        if (thresholds.origin == "noised") != (release is not None) or (release is None) != (thresholds.asked is None):
            raise ValueError("a development release and thresholds of origin 'noised', so many asked for, go together")
        if release is not None and release.blocks != self.block_names:
            raise ValueError("the development release is of other groups or scores")
        if release is not None:
            self._check_released(release)
        if thresholds.origin == "development" and self.privacy.private:
            raise ValueError("thresholds of origin 'development' are exact: with a finite epsilon call them 'public'")

    def _check_released(self, release: Noised) -> None:
        """Refuse thresholds that a development release does not give: of all blocks together, or of each. Where they
        show a group's total, the first is 0."""
        together = self.panel is None or self.claims.simultaneous
        total = {0.0} if self.groups is not None and self.groups.floor == "group" else set[float]()
        for block, each in enumerate(self.cuts[:1] if together else self.cuts):
            known = release.thresholds(self.thresholds.asked or 1, None if together else block)
            if not set(each.values) <= {*known} | total:
                raise ValueError("the thresholds do not follow from the development release")

    def _check_ladder(self, rungs: tuple[float, ...]) -> None:
        if any(b <= a for a, b in pairwise(rungs)) or not 0 < rungs[0] <= rungs[-1] < 1:
            raise ValueError("the risk ladder must be strictly increasing inside (0, 1)")
        if self.claim.target_risk not in rungs:
            raise ValueError(f"the target risk {self.claim.target_risk} must be a rung of the ladder")

    def _check_sealed(self) -> None:
        """Refuse what a sealed certificate does not cover, each with its reason. Theory: (xiii), what is registered."""
        sealed, encoding, m = self.judgement, self.encoding, len(self.thresholds.values)
        if not (isinstance(sealed, Sealed) and isinstance(encoding, Contrasts)):
            raise ValueError("a sealed certificate and releases of contrasts go together")
        if sealed.targets[0].risk != self.claim.target_risk:
            raise ValueError(f"the first target of a sealed certificate is the claim's, {self.claim.target_risk:g}")
        bets, rows = 0 if sealed.free else len(self.row_weights), len(sealed.targets) * m
        if any(len(target.bets) != bets for target in sealed.targets) or len(encoding.matrix) != rows:
            raise ValueError("a sealed certificate has a row per target and threshold, and a bet for each or for none")
        if sealed.free != (not encoding.second):
            raise ValueError("a sealed release has second moments where there are bets, and only there")
        shown = encoding.second and self.privacy.mass_grid == 1
        if len(encoding.accepted) not in (0, m) or not (encoding.accepted or shown or self.unlabelled):
            raise ValueError(
                "a sealed release holds the accepted mass of every threshold: single binary answers show it by their"
                " second moments, and unlabelled records by themselves"
            )
        if sealed.free:
            self._check_free(sealed)
        if sealed.looks[-1].round != self.schedule.rounds:
            raise ValueError("the last look of a sealed certificate is after the last round")
        if self.schedule.policy == "recruit" and sealed.line != "hybrid":
            raise ValueError("a sealed certificate that recruits has line = 'hybrid': its looks are not all fixed")
        rule = self.mechanism
        if rule.contrasts.condition > CONDITION:
            raise ValueError("the matrix of a sealed release is close to singular: no contrasts can be told from it")
        if self.privacy.mass_grid > 1 and not rule.contrasts.covers_masses():
            raise ValueError("its second moments weigh more than twice its least contrast: their privacy is not proved")
        if self.privacy.private and rule.scale < FINE:
            raise ValueError(f"the lattice of a sealed release is too coarse: its noise must have a scale of {FINE}")
        if 2 * self.most_units * rule.contrasts.largest() >= 1 << 61:
            raise ValueError("the sums of a sealed release could overflow: lower max_answers, loss_grid or the rounds")

    def _check_free(self, sealed: Sealed) -> None:
        """Refuse a sealed certificate without bets that nothing makes valid. Theory: (xiii) Half-lines."""
        if sealed.line == "hybrid":
            raise ValueError("where recruitment follows what has come in, a sealed certificate registers its bets")
        drift = any(site.drift for site in self.sites)
        counts = not self.privacy.private and self.privacy.mass_grid == 1 and len(self.sites) == 1 and not drift
        if self.unlabelled is None and not counts:
            raise ValueError(
                "a sealed certificate without bets has unlabelled records, or exact counts: one site without drift, no"
                " privacy, units of one answer that is supported or not"
            )

    def _check_unlabelled(self, releases: tuple[Noised, ...]) -> None:
        """Refuse unlabelled records where nothing reads them, or where they are not of every site."""
        if not isinstance(self.judgement, Sealed) or not self.privacy.private:
            raise ValueError("unlabelled records are for sealed certificates with privacy")
        if self.renews is not None:
            raise ValueError("its unlabelled records show what was accepted then, not now: a renewal has none")
        if len(releases) != len(self.sites):
            raise ValueError("unlabelled records are released for every site, or for none")
        if any(each.grid != releases[0].grid for each in releases):
            raise ValueError("the unlabelled records of all sites are released over one grid")
        made, mine = releases[0].privacy, self.privacy
        if any(each.privacy != made for each in releases):
            raise ValueError("the unlabelled records of all sites are released under one privacy")
        if (made.unit, made.max_answers, made.answer_weight) != (mine.unit, mine.max_answers, mine.answer_weight):
            raise ValueError("unlabelled units are made as those that calibrate: records, or as many answers a source")
        from fedsrc.protocol.mechanism import development_mechanism  # with numpy, which a gate does without

        if any(each.scale != development_mechanism(each.privacy, len(each.grid)).scale for each in releases):
            raise ValueError("a release of unlabelled records has another noise scale than its privacy asks for")

    def _check_finer(self, encoding: Moments | Levels) -> None:
        """Refuse second moments and levels where they say nothing or could overflow. Theory: (xiv)."""
        if not isinstance(self.judgement, Betting):
            raise ValueError(f"{encoding.kind} belong to the betting certificate: monitors and the paper's have totals")
        if self.privacy.mass_grid == 1:
            raise ValueError(
                f"units of one answer that is supported or not have no {encoding.kind} to release: their histograms bet"
                " exactly already"
            )
        if isinstance(encoding, Levels) and (self.privacy.max_answers > 1 or self.privacy.loss_grid > MOST_LEVELS):
            raise ValueError(
                f"levels are for units of one answer with a loss_grid of at most {MOST_LEVELS}: take moments"
            )
        largest = 2 * self.privacy.mass_grid**2 if isinstance(encoding, Moments) else 1
        if 2 * self.most_units * (largest << encoding.basis_bits) >= 1 << 61:
            raise ValueError("the sums of releases could overflow: lower max_answers, loss_grid or the rounds")

    def _check_panel(self, panel: Groups | Scores) -> None:
        """Refuse what several claims do not combine with, each with its reason. Theory: (xviii)."""
        method, encoding = self.judgement, self.encoding
        if isinstance(panel, Scores):
            self._check_scores(panel)
        else:
            self._check_groups(panel)
        if {len(each.values) for each in self.cuts} != {len(self.thresholds.values)}:
            raise ValueError("all groups, or all scores, have as many thresholds")
        if self.cuts[0] != Cuts(values=self.thresholds.values, weights=self.thresholds.weights):
            raise ValueError("where groups have thresholds of their own, the registration's are those of the first")
        for each in self.cuts:
            check_cuts(each.values, each.weights)
        if isinstance(method, Stitched):
            raise ValueError("panels are for betting and sealed certificates: the paper's speak of all the traffic")
        if isinstance(method, Betting) and method.ladder != (self.claim.target_risk,):
            raise ValueError("a panel speaks of its registered target alone: it is the ladder's only rung")
        if isinstance(method, Sealed) and (len(method.targets) > 1 or method.free):
            raise ValueError("a sealed panel has one target, and registers its bets")
        if isinstance(encoding, Levels) or encoding.kind == "paired":
            raise ValueError("a panel releases complementary histograms, second moments or contrasts")
        if self.unlabelled is not None:
            raise ValueError("unlabelled records bound acceptance on all the traffic: a panel bounds its own")
        if isinstance(method, Monitor) and (isinstance(panel, Scores) or panel.simultaneous):
            raise ValueError("a monitor watches one score, and every group by itself")

    def _check_groups(self, panel: Groups) -> None:
        """Refuse groups that a unit cannot be in, or whose thresholds do not show what is claimed of them."""
        if panel.most > 1 and self.privacy.unit == "record":
            raise ValueError("a record is one answer, of one group: only sources count whole in several")
        if panel.floor == "group" and any(each.values[0] != 0 or len(each.values) < 2 for each in self.cuts):
            raise ValueError(
                "acceptance within a group needs its total: the first threshold of every group is 0, of several"
            )
        if panel.simultaneous:
            self._check_all_groups(panel)

    def _check_all_groups(self, panel: Groups) -> None:
        """Refuse one threshold for all groups where which group fails may move, or no share is bounded.

        Theory: (xviii) All groups, Acceptance.
        """
        if not self.fixed_mixture:
            raise ValueError(
                "one threshold for all groups needs site weights, or one site: otherwise the mixture moves"
            )
        if panel.span == "whole" and panel.floor == "traffic":
            raise ValueError(
                "sources that count whole in several groups are shares of each group: its floor is 'group'"
            )

    def _check_scores(self, panel: Scores) -> None:
        if self.claim.column in {each.column for each in panel.others}:
            raise ValueError("a score is registered once")

    def _check_monitor(self, method: Monitor) -> None:
        if len(self.thresholds.values) != 1 or self.development is not None:
            raise ValueError("a monitor watches one threshold, the certified one")
        if self.aggregation.kind != "own":
            raise ValueError("a monitor hears every site by itself: its aggregation is 'own'")
        if self.renews is not None:
            raise ValueError("a monitor renews no certificate: it names the one that it watches")
        if self.schedule.policy != "first":
            raise ValueError("a monitor asks every site until its alarm: its policy is 'first'")
        if self.schedule.growth != 1:
            raise ValueError("a monitor asks for as many units in every round: growth belongs to calibration")
        if method.risk < self.claim.target_risk:
            raise ValueError("an alarm below the certified target risk would ring at what was certified")

    @model_serializer(mode="wrap")
    def _as_in_the_file(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write the judgement under the file's own word for it, and unlabelled records where there are some."""
        there = {name: value for name, value in write(self).items() if name != "unlabelled" or value is not None}
        return {"certificate" if name == "judgement" else name: value for name, value in there.items()}

    @property
    def certificate(self) -> Betting | Sealed | Stitched:
        """The method that certifies; a monitor has none."""
        if isinstance(self.judgement, Monitor):
            raise FedsrcError("this registration is of a monitor, which raises alarms and certifies nothing")
        return self.judgement

    @property
    def histograms(self) -> Histograms:
        """How its histograms are encoded, or its totals beside second moments; a sealed certificate has none."""
        if isinstance(self.encoding, Contrasts):
            raise FedsrcError("a sealed certificate releases contrasts, not histograms")
        if isinstance(self.encoding, Moments | Levels):
            return Histograms(basis_bits=self.encoding.basis_bits)
        return self.encoding

    @property
    def monitor(self) -> Monitor | None:
        """The monitor, where a deployed certificate is watched and nothing is certified."""
        return self.judgement if isinstance(self.judgement, Monitor) else None

    @property
    def on_demand(self) -> bool:
        """Whether people label what a round needs once it is open."""
        return isinstance(self.labelling, OnDemand)

    @property
    def must_answer(self) -> bool:
        """Whether every round must be answered: who has seen its labels might withhold it, and nothing charges that
        or answers by itself.

        Theory: (xvi) Rounds without an answer.
        """
        labelling = self.labelling
        waits = isinstance(labelling, OnDemand) and labelling.hours is None
        return waits and self.schedule.dropout == "independent"

    @property
    def promised_risk(self) -> float:
        """The risk that is promised of the answers: the claim's is tested on labels, which may miss a declared share.

        Theory: (xvi) Label errors.
        """
        return self.of_answers(self.claim.target_risk)

    def of_answers(self, risk: float) -> float:
        """Return what a risk that labels show is a risk of the answers."""
        return of_answers(risk, self.labelling.missed)

    @property
    def held(self) -> bool:
        """Whether one holder answers for all sites."""
        return isinstance(self.aggregation, Holder)

    @property
    def cohorts(self) -> Cohorts | None:
        """The cohorts, where sites add up before anyone can read them."""
        return self.aggregation if isinstance(self.aggregation, Cohorts) else None

    @cached_property
    def mask_keys(self) -> dict[str, MaskKey]:
        """The mask keys of a cohort's sites, by site."""
        return {} if self.cohorts is None else {each.site: each for each in self.cohorts.keys}

    def share_of(self, asked: str) -> float:
        """Return the noise scale that whoever answers a request to a site, the holder or a cohort adds: a member's is
        s / sqrt(|C| - t), rounded up.

        Theory: (xvii) Privacy.
        """
        from fedsrc.protocol.mechanism import SCALE_STEP  # with numpy, which a gate does without

        if self.cohorts is None:
            return self.mechanism.scale
        honest = len(self.cohorts.by_name[asked].members) - self.cohorts.colluding
        return math.ceil(self.mechanism.scale / math.sqrt(honest) * SCALE_STEP) / SCALE_STEP

    def noise_of(self, asked: str) -> float:
        """Return the noise variance of what answers a request, in that of one release at the registered scale."""
        if self.cohorts is None:
            return 1.0
        return len(self.cohorts.by_name[asked].members) * (self.share_of(asked) / self.mechanism.scale) ** 2

    @property
    def most_units(self) -> int:
        """The most units that the schedule asks for, over all rounds."""
        return self.units_in(self.schedule.rounds)

    def units_in(self, rounds: int) -> int:
        """Return the most units that so many rounds ask for: of every site, or of the one recruited."""
        asked = 1 if self.schedule.policy == "recruit" else len(self.sites)
        return self.schedule.units(rounds) * asked

    @property
    def panel(self) -> Groups | Scores | None:
        """Its groups or scores, where it makes several claims."""
        return None if isinstance(self.claims, One) else self.claims

    @property
    def groups(self) -> Groups | None:
        """The groups of answers that it makes claims of."""
        return self.claims if isinstance(self.claims, Groups) else None

    @property
    def block_names(self) -> tuple[str, ...]:
        """What the blocks of a release are called: groups, or scores by their columns; none where there is one."""
        if isinstance(self.claims, Groups):
            return self.claims.names
        if isinstance(self.claims, Scores):
            return self.claim.column, *(each.column for each in self.claims.others)
        return ()

    @cached_property
    def cuts(self) -> tuple[Cuts, ...]:
        """The thresholds of every block, and their weights in it."""
        mine, claims = Cuts(values=self.thresholds.values, weights=self.thresholds.weights), self.claims
        if isinstance(claims, Groups):
            return claims.own or (mine,) * len(claims.names)
        others = claims.others if isinstance(claims, Scores) else ()
        return mine, *(Cuts(values=each.values, weights=each.weights) for each in others)

    @cached_property
    def row_weights(self) -> tuple[float, ...]:
        """The share of the failure budget of every threshold, block after block; where one threshold is claimed for
        all blocks together, it has its whole share in each."""
        shares = [1.0] * len(self.cuts)
        if self.panel is not None and not self.claims.simultaneous:
            shares = [*self.panel.shares]
        return tuple(share * w for share, each in zip(shares, self.cuts, strict=True) for w in each.weights)

    @property
    def row_values(self) -> tuple[float, ...]:
        """The thresholds, block after block."""
        return tuple(value for each in self.cuts for value in each.values)

    @property
    def fixed_mixture(self) -> bool:
        """Whether the mixture spoken of is the same at every look: bounds then hold for every target at once.

        Theory: (iv), Ladder.
        """
        return self.weights is not None or len(self.sites) == 1

    @property
    def every_target(self) -> bool:
        """Whether evidence speaks of every target at once: a sealed certificate's, of those it registers alone, and a
        panel's, of its own."""
        return self.fixed_mixture and not isinstance(self.judgement, Sealed) and self.panel is None

    @property
    def fails(self) -> float:
        """The probability that what is certified is false; an alarm certifies nothing."""
        return 0.0 if self.monitor is not None else self.claim.failure_probability

    @property
    def charges_dropout(self) -> bool:
        return isinstance(self.judgement, Betting | Sealed) and self.judgement.refusal_budget > 0

    @cached_property
    def digest(self) -> str:
        return digest(self.model_dump())

    @cached_property
    def mechanism(self) -> Mechanism:
        """The registered noise. A site derives it itself and never takes the server's word for it."""
        from fedsrc.protocol.mechanism import mechanism, sealed_mechanism  # with numpy, which a gate does without

        layout = self.claims.layout
        if isinstance(self.encoding, Contrasts):
            assert isinstance(self.judgement, Sealed)  # checked above
            risks = tuple(in_decimals(target.risk) for target in self.judgement.targets)
            return sealed_mechanism(self.privacy, self.encoding, risks, layout)
        return mechanism(self.privacy, self.encoding, len(self.thresholds.values), layout)

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

    def key_of(self, site: str) -> str | None:
        """Return the public key of whoever speaks for a site: its own, or the holder's."""
        return self.aggregation.key if isinstance(self.aggregation, Holder) else self.site(site).key

    def parts(self, request: Request) -> dict[str, int]:
        """Return how many units a request asks of which sites."""
        if request.parts is None:
            return {request.site: request.slots}
        names = self.by_name if self.cohorts is None else self.cohorts.by_name[request.site].members
        return {name: n for name, n in zip(names, request.parts, strict=True) if n}

    def asked_for(self, site: str) -> tuple[str, int]:
        """Return whom a request names that asks a site for units, and how many parts it has."""
        if self.cohorts is not None:
            cohort = self.cohorts.of(site)
            return cohort.name, len(cohort.members)
        return (HOLDER, len(self.sites)) if self.held else (site, 0)

    def answering(self, request: Request) -> tuple[str, ...]:
        """Return who must answer a request: the site, the holder, or every member of the cohort."""
        return (request.site,) if self.cohorts is None else self.cohorts.by_name[request.site].members

    @cached_property
    def by_name(self) -> dict[str, Site]:
        return {site.name: site for site in self.sites}

    def to_toml(self) -> str:
        head = f"{HEAD} {self.digest}\n# Any change makes it another registration.\n\n"
        return head + tomli_w.dumps(self.model_dump(exclude_none=True))

    @classmethod
    def of(cls, fields: dict[str, Any], refusal: str = "this cannot be registered") -> Registration:
        """Validate fields, or refuse them in words."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise FedsrcError(f"{refusal}: {describe(error)}") from error

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
