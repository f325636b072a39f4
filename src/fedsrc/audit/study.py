"""A study: what is audited, on which populations, in which settings, by which methods. A TOML file with a digest.

name = "registered audit"
trials = 500
methods = ["fed-src-c", "betting"]

[[populations]]
name = "C1"
table = "c1.parquet"

[setting]               # one value each; what is not said has the default below
target_risk = 0.2

[sweep]                 # lists; every combination is run
epsilon = [inf, 4.0, 1.0]
policy = ["final", "first", "recruit"]
"""

from __future__ import annotations

import math
import tomllib
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from fedsrc.audit.methods import METHODS, NATIVE
from fedsrc.common.canonical import digest
from fedsrc.common.durable import read_text
from fedsrc.common.toml import parse_toml
from fedsrc.common.values import Frozen, Grown, Name, Numbers, Probability, Text, describe
from fedsrc.errors import FedsrcError
from fedsrc.maths.kinds import Adjacency
from fedsrc.planning.aim import Objective
from fedsrc.planning.plan import MOST_LOOKS
from fedsrc.planning.register import GRADED_GRID, Aggregation, Counted

MAX_BYTES = 1_000_000
MAX_SETTINGS = 10_000
OF_GROUPS = "registered"  # the method that makes claims of groups
Share = Annotated[float, Field(ge=0, lt=1)]


class StudyTable(Grown):
    """Real records: a table with loss, scores and optionally site, source and group, beside the study file.

    score    the column that scores
    site     the column that says the site, for a natural partition; a task or a domain, for example
    group    the column that says the group; all its values are listed
    where    keeps rows in which these columns have these values
    """

    LATER: ClassVar[tuple[str, ...]] = ("group", "site")
    name: Name
    table: Text
    score: Text = "score"
    site: Text = "site"
    group: Text = "group"
    where: dict[str, str] = Field(default_factory=dict)
    about: Text = ""


class Demo(Frozen):
    """Real records: an embedded table of scores, or all of them, each a site and a group."""

    name: Name
    demo: Text
    score: Text = "score"
    about: Text = ""


class Binormal(Frozen):
    """A surrogate: normal scores, shifted by the AUC, with that many records and that share unsupported."""

    name: Name
    records: int = Field(ge=2, le=10_000_000)
    unsupported: Probability
    auc: Annotated[float, Field(ge=0.5, lt=1)]
    seed: int = Field(0, ge=0)
    about: Text


class Printed(Frozen):
    """A surrogate: a law with that acceptance and risk at each of its thresholds, the lowest first."""

    name: Name
    acceptance: Numbers
    risk: Numbers
    about: Text

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.acceptance) != len(self.risk) or not self.acceptance:
            raise ValueError("give one acceptance and one risk per threshold")
        return self


class Boundary(Grown):
    """A null: at every threshold the deployment mixture's risk is the target: every certificate counts as false.

    spread     how far the sites' risks lie from the target, alternately above and below
    answers    answers per source, in two halves of equal answers; 1: records
    graded     losses 0, 1/2 and 1 in place of 0 and 1
    promised   what development units show, on which a plan is made: this share of the target risk
    groups     of the units, as many of each; the first `bad` are at the boundary (all, if not said), and the others as
               good as promised
    tied       share of a site's units that are all of one group, at the next site of the next
    """

    LATER: ClassVar[tuple[str, ...]] = ("promised", "groups", "bad", "tied")
    name: Name
    boundary: Literal[True]
    spread: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    answers: Literal[1, 2, 4, 6] = 1
    graded: bool = False
    promised: Annotated[float, Field(ge=0, le=1)] = 0.5
    groups: int = Field(1, ge=1, le=100)
    bad: int | None = Field(None, ge=0)
    tied: Share = 0.0
    about: Text = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.bad or 0) > self.groups:
            raise ValueError(f"of {self.groups} groups, {self.bad} cannot be bad")
        return self


KINDS = {"table": StudyTable, "demo": Demo, "records": Binormal, "acceptance": Printed, "boundary": Boundary}


def kind_of(value: Any) -> str | None:
    """Say which population a TOML table describes: the key that only its kind has."""
    if not isinstance(value, dict):
        return next((key for key, kind in KINDS.items() if isinstance(value, kind)), None)
    return next((key for key in KINDS if key in value), None)


NO_KIND = "a population has table, demo, records, acceptance or boundary"
Population = Annotated[
    Annotated[StudyTable, Tag("table")]
    | Annotated[Demo, Tag("demo")]
    | Annotated[Binormal, Tag("records")]
    | Annotated[Printed, Tag("acceptance")]
    | Annotated[Boundary, Tag("boundary")],
    Discriminator(kind_of, custom_error_type="population", custom_error_message=NO_KIND),
]


def with_scores(given: dict[str, Any]) -> dict[str, Any]:
    """Return the study with every population repeated for each score of the table [scores]."""
    scores, populations = given["scores"], given.get("populations")
    if not isinstance(scores, dict) or not scores or not all(isinstance(about, str) for about in scores.values()):
        raise ValueError("scores is a table of columns, each with a word on what it is")
    if not isinstance(populations, list) or not all(isinstance(each, dict) for each in populations):
        return given
    if said := [each.get("name") for each in populations if "score" in each or kind_of(each) not in ("table", "demo")]:
        raise ValueError(f"with [scores], a population is a table without a score of its own; {said[0]!r} is not")
    every = [
        {**each, "name": f"{each.get('name')}: {score}", "score": score, "about": about}
        for each in populations
        for score, about in scores.items()
    ]
    return {**{key: value for key, value in given.items() if key != "scores"}, "populations": every}


class Setting(Grown):
    """One cell of a study. Defaults are the paper's, its release too; a summary says so where a study names none.

    case              a name for it in tables
    draw              "with replacement": independent events of the calibration units' law; "once": each of these units
                      once, in a fresh order per trial. The split is drawn once per study, and is the same in all trials
    thresholds_from   "development": quantiles of a share of the units, which then leave; "noised": the same from one
                      noised release of them, on which plans are made too; "support": quantiles of the
                      calibration scores themselves, labels unseen, and the guarantee is then conditional on that
                      support (Paper: Proposition (condthresh)); "grid": a public grid
    weights           "equal": declared, each site alike; "by size": declared, in proportion to its calibration units;
                      "as calibrated": the mixture that was drawn
    moved             share of declared weight moved onto the first site, while participation stays equal
    drift             declared drift of every site; its deployment law really moves, by the paper's coupling
    size              calibration units, all sites together; the rest of the table is not used
    heldout_share     share of units that neither choose thresholds nor calibrate: risk there is reported apart
    matched           recruitment gets as many releases, and so as many records and bytes, as the other policies
    dropout           share of requests without an answer, decided before any record is looked at
    withheld          share of releases withheld because of what they hold
    charged           whether withheld releases are charged; false is a control
    queries           messages that hold each unit; together they cost epsilon
    reading           which of them the server uses: their mean, one alone, or (a control) each as if it were fresh
    label_missed      chance that an unsupported unit is labelled supported; label_invented: the reverse
    certificate       what the method "registered" runs: "plain" with equal weights, or what the planner makes of the
                      development units, for each unit once or for batch x rounds units of a site
    encoding          what releases count; what is not said: histograms, or what the planner takes
    loss_grid         graded losses are rounded up to multiples of one over it
    looks, objective  of the plan
    groups            whether "each" group has a claim of its own, or one threshold is for "all"; group_floor: what
                      acceptance is a share of; group_span: how a source counts that is of several
    """

    LATER: ClassVar[tuple[str, ...]] = (
        "certificate", "encoding", "loss_grid", "looks", "objective", "adjacency", "aggregation", "groups",
        "group_floor", "group_span",
    )  # fmt: skip
    population: Name
    case: Text = ""
    target_risk: Probability = 0.2
    min_acceptance: Probability = 0.05
    failure_probability: Probability = 0.05
    epsilon: float = Field(math.inf, gt=0, allow_inf_nan=True)
    delta: Probability = 1e-6
    release: Literal["paper", "default"] = "paper"
    unit: Literal["record", "source"] = "record"
    draw: Literal["with replacement", "once"] = "with replacement"
    thresholds: int = Field(20, ge=1, le=1000)
    thresholds_from: Literal["development", "noised", "support", "grid"] = "development"
    development_share: Probability = 0.2
    heldout_share: Share = 0.0
    partition: Literal["iid", "natural", "dirichlet", "log-normal"] = "iid"
    beta: float = Field(1.0, gt=0)
    sigma: float = Field(1.0, ge=0)
    sites: int = Field(5, ge=1, le=1000)
    size: int | None = Field(None, ge=1)
    weights: Literal["equal", "by size", "as calibrated"] = "equal"
    moved: Share = 0.0
    drift: Share = 0.0
    policy: Literal["final", "first", "enough", "recruit"] = "first"
    matched: bool = False
    batch: int = Field(200, ge=1, le=10_000_000)
    rounds: int = Field(30, ge=1, le=100_000)
    dropout: Share = 0.0
    withheld: Share = 0.0
    charged: bool = True
    queries: int = Field(1, ge=1, le=100)
    reading: Literal["mean", "one", "as fresh"] = "mean"
    label_missed: Share = 0.0
    label_invented: Share = 0.0
    certificate: Literal["plain", "open", "sealed"] = "plain"
    encoding: Counted | None = None
    loss_grid: int = Field(GRADED_GRID, ge=2, le=1000)
    looks: int = Field(1, ge=1, le=MOST_LOOKS)
    objective: Objective = "acceptance"
    adjacency: Adjacency = "zero-out"
    aggregation: Aggregation = "own"
    groups: Literal["none", "each", "all"] = "none"
    group_floor: Literal["traffic", "group"] = "traffic"
    group_span: Literal["shares", "whole"] = "shares"

    @property
    def develops(self) -> bool:
        """Whether some units choose thresholds and plans, and calibrate nothing."""
        return self.thresholds_from in ("development", "noised")

    @property
    def histograms(self) -> bool:
        """Whether releases are histograms over all thresholds, which other rules can read too."""
        return self.certificate == "plain" and self.encoding in (None, "histograms")

    @model_validator(mode="after")
    def _check(self) -> Self:
        planned, sealed = self.certificate != "plain", self.certificate == "sealed"
        exact, held, panel = math.isinf(self.epsilon), self.aggregation == "holder", self.groups != "none"
        refused = {
            "moved weight needs declared weights: weights = 'equal'": self.moved and self.weights != "equal",
            "give dropout or withheld, not both": self.dropout and self.withheld,
            "only the default release has a refusal budget to charge withheld releases with":
                self.withheld and self.release != "default",
            "withheld releases are charged for one message a unit: queries = 1": self.withheld and self.queries > 1,
            "without privacy one message says all: queries = 1": exact and self.queries > 1,
            "without privacy nothing is noised: thresholds_from = 'development'":
                exact and self.thresholds_from == "noised",
            "plans, second moments and levels belong to the default release: release = 'default'":
                not self.histograms and self.release != "default",
            "a plan is made on development units: thresholds_from = 'development' or 'noised'":
                planned and not self.develops,
            "a plan asks every site in every round: policy = 'recruit' has plain certificates":
                planned and self.policy == "recruit",
            "a sealed certificate releases contrasts: leave encoding out": sealed and self.encoding is not None,
            "looks are registered by sealed certificates alone: others look after every round":
                not sealed and self.looks > 1,
            "a sealed run ends at its first certificate: policy = 'first' or 'final'":
                sealed and self.policy == "enough",
            "one holder answers for all sites or not at all: aggregation = 'own'":
                held and (self.dropout or self.withheld),
            "groups belong to the default release: release = 'default'": panel and self.release != "default",
            "groups are planned for acceptance alone: objective = 'acceptance'":
                panel and self.objective != "acceptance",
            "held-out answers and label errors are of one claim: groups = 'none'":
                panel and (self.heldout_share or self.label_missed or self.label_invented),
        }  # fmt: skip
        for why, here in refused.items():
            if here:
                raise ValueError(why)
        return self


class Study(Frozen):
    """A complete study.

    methods    selective-risk methods, compared with one another; the first is what differences are taken from
    native     methods with guarantees of another kind, reported in their own terms
    block      trials that are drawn together: it decides the streams, not how many run at once

    A table [scores] of columns, and what each is, stands for every population with each of these scores.
    """

    format: Literal[1] = 1
    name: Name
    about: Text = ""
    seed: int = Field(0, ge=0, lt=1 << 63)
    trials: int = Field(ge=1, le=10_000_000)
    block: int = Field(100, ge=1, le=10_000)
    methods: Annotated[tuple[Name, ...], Field(strict=False, min_length=1)]
    native: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    populations: Annotated[tuple[Population, ...], Field(strict=False, min_length=1)]
    setting: dict[str, Any] = Field(default_factory=dict)
    sweep: dict[str, Annotated[tuple[Any, ...], Field(strict=False, min_length=1)]] = Field(default_factory=dict)
    cases: Annotated[tuple[dict[str, Any], ...], Field(strict=False)] = ()

    @model_validator(mode="before")
    @classmethod
    def _scores(cls, given: Any) -> Any:
        return with_scores(given) if isinstance(given, dict) and "scores" in given else given

    @model_validator(mode="after")
    def _check(self) -> Self:
        if unknown := [name for name in self.methods if name not in METHODS]:
            if unknown[0] in NATIVE:
                raise ValueError(f"{unknown[0]} has a guarantee of its own kind: name it under native")
            raise ValueError(f"there is no method {unknown[0]!r}; methods: {', '.join(METHODS)}")
        if strange := [name for name in self.native if name not in NATIVE]:
            raise ValueError(f"there is no native method {strange[0]!r}; native methods: {', '.join(NATIVE)}")
        for setting in self.settings:
            self._check_readable(setting)
        if len({*self.methods, *self.native}) != len(self.methods) + len(self.native):
            raise ValueError("a method is named twice")
        if len(set(self.by_name)) != len(self.populations):
            raise ValueError("population names must differ")
        named = {key for case in self.cases for key in case}
        if both := set(self.sweep) & {*self.setting, *named}:
            raise ValueError(f"{min(both)} is in [sweep] and elsewhere too")
        if len(set(self.settings)) != len(self.settings):
            raise ValueError("two settings are the same")
        if missing := [each.population for each in self.settings if each.population not in self.by_name]:
            raise ValueError(f"there is no population {missing[0]!r}")
        return self

    def _check_readable(self, setting: Setting) -> None:
        """Refuse methods that cannot read what the setting has."""
        if setting.groups != "none" and (
            blind := [name for name in (*self.methods, *self.native) if name != OF_GROUPS]
        ):
            raise ValueError(f"{blind[0]} speaks of all the traffic: of groups only {OF_GROUPS!r} does")
        for method in (METHODS[name] for name in self.methods):
            if method.reads == "released sums" and not setting.histograms:
                kind = setting.encoding if setting.certificate == "plain" else f"{setting.certificate} certificates"
                raise ValueError(
                    f"{method.name} reads histograms at every threshold, which {kind} do not release: name"
                    " 'registered', or methods for exact counts"
                )
            if method.given is not None and setting.queries > 1:
                raise ValueError(f"{method.name} reads each unit once: queries = 1")
            if method.reads.endswith("development") and setting.release != "default":
                raise ValueError(f"{method.name} takes its order from a plan: release = 'default'")

    @cached_property
    def by_name(self) -> dict[str, Population]:
        return {population.name: population for population in self.populations}

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Every case with every combination of the sweep, the last key fastest; each population, where none is said."""
        axes, cases = dict(self.sweep), self.cases or ({},)
        if not any("population" in each for each in (axes, self.setting, *cases)):
            axes = {"population": tuple(self.by_name), **axes}
        if len(cases) * math.prod(len(values) for values in axes.values()) > MAX_SETTINGS:
            raise ValueError(f"there are more than {MAX_SETTINGS:,} settings")
        return tuple(
            Setting.model_validate({**self.setting, **case, **dict(zip(axes, values, strict=True))})
            for case in cases
            for values in product(*axes.values())
        )

    @property
    def names_release(self) -> bool:
        """Whether the study says which release is audited."""
        return any("release" in each for each in (self.setting, self.sweep, *self.cases))

    @property
    def varied(self) -> tuple[str, ...]:
        """What tells settings apart: population, then the sweep, then as much of the cases as is needed."""
        keys = [key for key in dict.fromkeys(["population", "case", *self.sweep]) if self._values(key) > 1]
        others = [key for key in dict.fromkeys(key for case in self.cases for key in case) if self._values(key) > 1]
        for key in others:
            if len({tuple(getattr(each, name) for name in keys) for each in self.settings}) == len(self.settings):
                break
            keys += [key] if key not in keys else []
        return tuple(keys)

    def _values(self, key: str) -> int:
        return len({getattr(setting, key) for setting in self.settings})

    @cached_property
    def digest(self) -> str:
        """Of everything that decides a record: the settings themselves, in their order, however they were written."""
        fields = self.model_dump(exclude={"setting", "sweep", "cases"})
        return digest({**fields, "settings": [setting.model_dump() for setting in self.settings]})

    @classmethod
    def from_toml(cls, text: str, *, where: str = "study") -> Study:
        try:
            return cls.model_validate(parse_toml(text))
        except tomllib.TOMLDecodeError as error:
            raise FedsrcError(f"not a TOML file: {error}", where=where) from error
        except ValidationError as error:
            raise FedsrcError(describe(error), where=where, hint="docs/audit.md lists what a study holds") from error
        except (RecursionError, ValueError) as error:
            raise FedsrcError(f"cannot be read: {error}", where=where) from error

    @classmethod
    def read(cls, path: Path) -> Study:
        return cls.from_toml(read_text(path, MAX_BYTES), where=str(path))
