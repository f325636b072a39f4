"""One call for each thing that people do first: certify, register, forecast, verify. The command line does the same."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

import polars as pl
from numpy.typing import ArrayLike
from pydantic import TypeAdapter, ValidationError

from fedsrc.common import signing
from fedsrc.common.durable import write_whole
from fedsrc.common.places import labels_beside, ledger_beside, server_key, state_folder
from fedsrc.common.values import describe
from fedsrc.errors import FedsrcError
from fedsrc.federation.local import certify_table, plan_table, register_table
from fedsrc.maths.kinds import Adjacency
from fedsrc.planning import forecast as planning
from fedsrc.planning.aim import Objective
from fedsrc.planning.labels import as_developed, development_labels
from fedsrc.planning.plan import Wish
from fedsrc.planning.register import (
    Aggregation,
    Choices,
    Counted,
    Labelled,
    Preset,
    development_part,
    for_table,
    held_together,
    no_groups,
    register_grid,
)
from fedsrc.planning.register import register as register_exactly
from fedsrc.planning.renew import renew as renewed
from fedsrc.protocol.mask_key import MaskKey, read_mask_key
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.scale import Scale
from fedsrc.records.columns import ORDER, Columns, further_score
from fedsrc.records.listed import check_listed, check_registered, groups_in
from fedsrc.records.memory import KINDS, as_frame, from_arrays, is_frame
from fedsrc.records.rows import tidy
from fedsrc.records.table import LabelState, Missing, frame_records, read_records
from fedsrc.records.units import LOCAL_SITE, Records, Unit, check_unit
from fedsrc.run import Run, key_list
from fedsrc.server import verify as verifying

DEVELOPMENT_SHARE = 0.2  # of a table that brings no registration: it chooses thresholds, and does not calibrate
LEDGER = "ledger.db"
Place: TypeAlias = str | PathLike[str]
Tabular: TypeAlias = "Place | pl.DataFrame | pl.LazyFrame | Mapping[str, ArrayLike] | ArrayLike"


READING = {*(f"{what}_column" for what in ORDER), "score_scale", "unsupported", "supported"}


class Options(TypedDict, total=False):
    """What may be decided besides target and epsilon, under the names of the command line's options.

    The first nine say how the table is read: what its columns are called, the worst and the best score that can be
    ("0:100"; "1:0" where low is good), and words that labels are written in. The others are fields of a registration,
    and `Choices` has their defaults.
    """

    score_column: str
    loss_column: str
    site_column: str
    source_column: str
    group_column: str
    id_column: str
    score_scale: str
    unsupported: str | Sequence[str]
    supported: str | Sequence[str]
    preset: Preset
    method: Literal["contrast", "variance-adaptive", "ratio"]
    unit: Unit
    thresholds: int
    grid: bool
    public_development: bool
    min_acceptance: float
    failure_probability: float
    delta: float
    adjacency: Adjacency
    encoding: Counted
    batch: int
    rounds: int
    aggregation: Aggregation
    cohorts: Mapping[str, Sequence[str]]
    colluding: int
    mask_keys: Sequence[Place]
    policy: Literal["first", "enough", "final", "recruit"]
    dropout: Literal["independent", "adversarial"]
    max_answers: int
    answer_weight: Literal["source", "answer"]
    loss_grid: int
    weights: Mapping[str, float]
    drift: Mapping[str, float]
    validity_days: int
    server_key: str
    site_keys: Mapping[str, str]
    capacities: Mapping[str, int]
    claim: Mapping[str, str]
    labels: Labelled
    label_hours: float
    label_twice: float
    disagreement: Literal["worse", "third"]
    missed: float
    judge_column: str
    groups: Sequence[str]
    group_claim: Literal["each", "all"]
    group_floor: Literal["traffic", "group"]
    group_span: Literal["shares", "whole"]
    group_most: int
    also_scores: Sequence[str | tuple[str, Scale]]
    checkpoints: Mapping[str, Sequence[int]]
    certificate: Literal["sealed", "open", "plain"]
    looks: int
    objective: Objective


def certify(
    table_or_scores: Tabular,
    losses: ArrayLike | None = None,
    *,
    target: float | None = None,
    epsilon: float | None = None,
    registration: Registration | Place | None = None,
    unlabelled: Tabular | None = None,
    output: Place | None = None,
    ledger: Place | None = None,
    key: Place | None = None,
    in_order: bool = False,
    fresh: bool = False,
    missing: Missing = "refuse",
    columns: Columns | None = None,
    sign_with: Mapping[str, Place] | None = None,
    **options: Unpack[Options],
) -> Run:
    """Certify a labelled table: from scores and losses in [0, 1] to a signed certificate, or an honest abstention.

    Every record is released at most once, with noise, and a ledger remembers it. The same call again releases nothing
    and returns the same run. What is registered is planned on the part of the table that is set apart, and uses all of
    the rest: another target or epsilon needs new records.

    Args:
        table_or_scores: A file (CSV, TSV, Parquet, JSON lines), a polars or pandas frame, a mapping of columns, or an
            array of scores. A table has the columns `score` and `loss`, and optionally `site`, `source`, `id`.
        losses: One loss for each score, where scores are an array: 1 is unsupported, 0 is supported.
        target: The largest tolerated share of unsupported answers among those accepted.
        epsilon: The privacy loss of a record; smaller is more private, `float("inf")` is none.
        registration: What was registered before, in place of `target`, `epsilon` and every option: a file, or what
            `register` returned. Without it, a fifth of the table chooses the thresholds and does not calibrate.
        unlabelled: Other records of the same traffic without labels: a file or a frame with `score`, and `site`,
            `source` and `id` as the table has them. They show how many answers are accepted, so that fewer labels do.
        output: The folder of the run. Without it the run is kept in the user's state folder; `run.folder` says where.
        ledger: The ledger. Without it, that of a file lies beside the file. Frames and arrays go to one ledger in the
            user's state folder, which knows rows by what they hold; without privacy, each has one of its own.
        key: The file of the key that signs; made on first use. Without it, the one that `fedsrc keys` shows.
        in_order: The table is a stream: use units in its order, not shuffled.
        fresh: Assert that no unit was in an earlier table, where the ledger cannot tell.
        missing: "keep" makes a missing score one that is never accepted, a missing loss one that is unsupported.
        columns: What the table's columns are called, all at once; `score_column` and so on name one.
        sign_with: Private key files of sites whose keys are registered.
        **options: The names of columns, and anything else that a registration fixes, as `Choices` names it.

    Returns:
        The run, with its certificate, its folder and its registration.

    Raises:
        FedsrcError: The table, a choice or the ledger does not allow it. Nothing was released, unless an earlier call
            did, and the message says what to do.

    Example:
        >>> run = fedsrc.certify("table.csv", target=0.2, epsilon=4, output="run/")
        >>> run.certificate.status
        'CERTIFIED'
        >>> scores, losses = [0.9, 0.2, 0.8, 0.7] * 500, [0, 1, 0, 0] * 500
        >>> fedsrc.certify(scores, losses, target=0.2, epsilon=float("inf")).certificate.acceptance_at_least > 0.5
        True
    """
    given = None if registration is None else _registered(registration)
    on_demand = options.get("labels") == "on demand" if given is None else given.on_demand
    labels: LabelState = "on demand" if on_demand else "there"
    data = _read(table_or_scores, losses, columns, missing, options, labels=labels, registered=given)
    if on_demand and data.path is None:
        raise FedsrcError("people label a table in a file, and their labels lie beside it", hint="name the file")
    if given is None:
        picked = chosen(data.records, data.name, target, epsilon, options)
        choices = held_together(for_table(picked, data.records, options), data.records)
        place = _ledger(data, ledger, private=not math.isinf(choices.epsilon))
        part = development_part(data.records, choices.unit, DEVELOPMENT_SHARE)
        said = options.get("score_scale") is not None or (columns or Columns()).scale is not None
        seen = development_labels(as_developed(choices, data.records, part)[0], part, choices.unit)
        if (warning := seen.check(data.records, data.name, said=said)) is not None:
            warnings.warn(warning, stacklevel=2)
        wish = wished(options)
        more = None
        if unlabelled is not None:
            more = _read(unlabelled, None, data.records.columns, missing, {}, labels="none")
        registered, _ = plan_table(
            choices,
            data.records,
            part,
            place,
            wish,
            unlabelled=None if more is None else more.records,
            unlabelled_ledger=None if more is None else _ledger(more, ledger, private=True),
            in_order=in_order,
            fresh=fresh,
        )
    else:
        _check_free(target, epsilon, {**options, "unlabelled": unlabelled})
        if given.groups is None and options.get("group_column") is not None:
            raise no_listed("`group_column=`", "no groups are registered")
        if (told := check_registered(given, data.records, data.name)) is not None:
            warnings.warn(told, stacklevel=2)
        registered, place = given, _ledger(data, ledger, private=given.privacy.private)
    folder = _run_folder(data.records, registered) if output is None else Path(output)
    signer = signing.load_or_make(server_key() if key is None else Path(key))
    site_keys = {name: signing.load(Path(path)) for name, path in (sign_with or {}).items()}
    certificate = certify_table(
        registered, data.records, folder, place, signer, in_order=in_order, fresh=fresh, site_keys=site_keys,
        labels=None if data.path is None or not on_demand else labels_beside(data.path),
    )  # fmt: skip
    return Run(folder, registered, certificate)


def register(
    table_or_scores: Tabular | None = None,
    losses: ArrayLike | None = None,
    *,
    target: float | None = None,
    epsilon: float | None = None,
    output: Place | None = None,
    sites: Sequence[str] | None = None,
    renew: Place | None = None,
    ledger: Place | None = None,
    fresh: bool = False,
    missing: Missing = "refuse",
    columns: Columns | None = None,
    **options: Unpack[Options],
) -> Registration:
    """Fix everything before calibration: thresholds from labelled development records, and your choices.

    The records are released once, with noise, and can no longer calibrate. To certify one table, `certify` alone does.

    Args:
        table_or_scores: Development records, as `certify` takes a table. Without any, `grid=True` and `sites` are
            needed.
        losses: One loss for each score, where scores are an array.
        target: The largest tolerated share of unsupported answers among those accepted.
        epsilon: The privacy loss of a record; smaller is more private, `float("inf")` is none.
        output: A file for the registration (TOML), which must not exist.
        sites: The names of the sites; without them, those of the table.
        renew: The folder of a run whose certified claim is registered anew, for fresh records. No table is read.
        ledger: The ledger, as for `certify`.
        fresh: Assert that no unit was in an earlier table, where the ledger cannot tell.
        missing: "keep" keeps rows with a missing score or loss.
        columns: What the table's columns are called.
        **options: The names of columns, and anything else that a registration fixes, as `Choices` names it.

    Returns:
        The registration; its `digest` binds every release.

    Raises:
        FedsrcError: The records or the choices do not make a registration, or the file exists.

    Example:
        >>> registration = fedsrc.register(target=0.2, epsilon=4, grid=True, sites=["north", "south"])
        >>> len(registration.thresholds.values)
        20
    """
    _check_names(options)
    file = None if output is None else Path(output)
    if file is not None:
        check_new(file)
    if renew is not None:
        registered = renewal(Path(renew), table_or_scores, target, epsilon, sites, options)
    elif table_or_scores is None:
        registered = register_grid(chosen(None, "", target, epsilon, options), sites)
    else:
        data = _read(table_or_scores, losses, columns, missing, options, labels=options.get("labels") or "there")
        choices = chosen(data.records, data.name, target, epsilon, options)
        part = development_part(data.records, choices.unit, 1.0)
        place = _ledger(data, ledger, private=not math.isinf(choices.epsilon))
        registered = register_table(choices, data.records, part, place, sites=sites, fresh=fresh)
    if file is not None:
        write_whole(file, registered.to_toml().encode())
    return registered


def forecast(
    table_or_scores: Tabular | None = None,
    losses: ArrayLike | None = None,
    *,
    target: float | None = None,
    epsilon: float | None = None,
    registration: Registration | Place | None = None,
    acceptance: float | None = None,
    risk: float | None = None,
    missing: Missing = "refuse",
    columns: Columns | None = None,
    **options: Unpack[Options],
) -> planning.Forecast:
    """Estimate how many records and rounds a target and an epsilon should take. Nothing is spent or written.

    Runs are simulated on labelled records, or on a declared acceptance and risk. From records the estimate is exact,
    without noise: it is for whoever may see them.

    Args:
        table_or_scores: Labelled records that are like those to come, as `certify` takes a table.
        losses: One loss for each score, where scores are an array.
        target: The largest tolerated share of unsupported answers; by default the registered one.
        epsilon: The privacy loss of a record; by default the registered one.
        registration: What was registered before; without it, one is drafted from the records and the options.
        acceptance: In place of records: the share of answers that some threshold accepts.
        risk: In place of records: the share of those that are unsupported.
        missing: "keep" keeps rows with a missing score or loss.
        columns: What the table's columns are called.
        **options: The names of columns, and anything else that a registration fixes, as `Choices` names it.

    Returns:
        The estimate; `sentence()` says it in words.

    Raises:
        FedsrcError: There is nothing to forecast from, or a choice is not one.

    Example:
        >>> found = fedsrc.forecast(acceptance=0.4, risk=0.1, target=0.2, epsilon=4)
        >>> found.records > 0
        True
    """
    _check_names(options)
    declared = acceptance is not None and risk is not None
    if declared == (table_or_scores is not None):
        raise FedsrcError("give either a table, or both `acceptance=` and `risk=`")
    given = None if registration is None else _registered(registration)
    data = None
    if table_or_scores is not None:
        data = _read(table_or_scores, losses, columns, missing, options, registered=given)
    if given is not None:
        _check_free(None, None, options)
        registered = given
    elif data is None:
        choices = chosen(None, "", target, epsilon, options)
        registered = register_grid(replace(choices, grid=True), [*(choices.weights or [LOCAL_SITE])])
    else:
        choices = held_together(chosen(data.records, data.name, target, epsilon, options), data.records)
        choices = replace(choices, public_development=True)
        registered = register_exactly(choices, data.records, development_part(data.records, choices.unit, 1.0))
    if data is not None:
        laws = planning.from_development(registered, data.records)
    else:
        assert acceptance is not None
        assert risk is not None
        laws = planning.from_declared(registered, acceptance, risk)
    aim = registered.promised_risk if target is None else target
    level = registered.privacy.epsilon if epsilon is None else epsilon
    return planning.forecast(registered, laws, aim, level, sampled=data is not None)


def verify(
    folder: Place,
    *,
    trusted: Iterable[str] = (),
    successions: Iterable[Place] = (),
    revocations: Place | None = None,
) -> verifying.Verified:
    """Recompute a run's certificate from its registration and transcript, and check its signature.

    Args:
        folder: The folder of the run.
        trusted: Public keys, got out of band, one of which must have signed. Without any, whoever signed is taken.
        successions: Files by which a trusted key names the one that takes its place.
        revocations: Where notices of revocation lie besides the folder: a file, or a folder of them.

    Returns:
        The certificate, and whether its key is trusted, whether it has expired, and whether it was revoked.

    Raises:
        FedsrcError: There is no such run, or no trusted key signed it.
        DamagedError: Something is not as it was signed.

    Example:
        >>> found = fedsrc.verify("run/")
        >>> found.certificate.status, found.trusted, found.expired
        ('CERTIFIED', False, False)
    """
    elsewhere = None if revocations is None else Path(revocations)
    files = [Path(file) for file in successions]
    return verifying.verify(Path(folder), trusted=key_list(trusted), successions=files, revocations=elsewhere)


def chosen(
    records: Records | None, where: str, target: float | None, epsilon: float | None, options: Mapping[str, Any]
) -> Choices:
    """The user's choices over the preset's, for a table whose unit they fit."""
    for name, value, example in (("target", target, "0.2"), ("epsilon", epsilon, "4")):
        if value is None:
            raise FedsrcError(f"`{name}=` is needed", hint=f"`{name}=` {example}, for example")
    if options.get("method") and options.get("preset") != "paper":
        what = "`method=` belongs to `preset='paper'`"
        raise FedsrcError(what, hint="the default preset is the betting certificate")
    names, asked = {field.name for field in fields(Choices)}, options.get("unit")
    given = {name: value for name, value in options.items() if name in names and value is not None}
    given |= {"target_risk": target, "epsilon": epsilon, "independent": asked == "record"}
    given |= {"mask_keys": _mask_keys(options), "also_scores": _further(options)}
    given |= _listed(options)
    try:
        found = TypeAdapter(Choices).validate_python(given)
    except ValidationError as error:
        raise FedsrcError(f"this cannot be registered: {describe(error)}") from error
    _check_ranges(found)
    _check_read(found)
    if records is None:
        _check_weight(found)
        return replace(found, column=options.get("score_column") or found.column, scale=_scale(options) or found.scale)
    columns = records.columns
    named = replace(found, column=columns.name("score"), scale=columns.scale or found.scale,
                    group_column=columns.name("group"), also_scores=columns.others)  # fmt: skip
    if named.groups is not None and records.group is None:
        raise no_groups(named.group_column)
    if (told := check_listed(named.groups or (), named.group_column, groups_in(records), where)) is not None:
        warnings.warn(told, stacklevel=3)
    settled = replace(named, unit=check_unit(records, asked, where))
    _check_weight(settled)
    return settled


def wished(options: Mapping[str, Any]) -> Wish:
    """What is wanted of a plan: none where batches, rounds or the policy are given, or nothing can be planned."""
    names = {field.name for field in fields(Wish)}
    given = {name: value for name, value in options.items() if name in names and value is not None}
    own = any(options.get(name) is not None for name in ("batch", "rounds", "policy"))
    if own or options.get("grid") or options.get("preset") == "paper":
        if given.get("certificate", "plain") != "plain" or given.keys() - {"certificate"}:
            raise FedsrcError("a plan decides on batches, rounds, policy and thresholds", hint="leave them out")
        return Wish(certificate="plain")
    try:
        wish = TypeAdapter(Wish).validate_python(given)
    except ValidationError as error:
        raise FedsrcError(f"this cannot be planned: {describe(error)}") from error
    if wish.certificate == "plain" and (wish.looks is not None or wish.objective is not None):
        raise FedsrcError("`certificate='plain'` plans nothing: `looks=` and `objective=` are for plans",
                          hint="leave them out")  # fmt: skip
    return wish


def _check_ranges(choices: Choices) -> None:
    """Refuse what no registration could hold, by the name that the user gave it."""
    for name, value in (("target", choices.target_risk), ("min_acceptance", choices.min_acceptance),
                        ("failure_probability", choices.failure_probability), ("delta", choices.delta)):  # fmt: skip
        if not 0 < value < 1:
            raise FedsrcError(f"`{name}=` {value:g} is not between 0 and 1", hint="give a share, such as 0.2 for 20%")
    if not choices.epsilon > 0:
        raise FedsrcError(
            f"`epsilon=` {choices.epsilon:g} is not positive", hint="smaller is more private, inf is none"
        )
    if not 0 <= choices.missed < 1:
        raise FedsrcError(f"`missed=` {choices.missed:g} is no share below 1", hint="give one such as 0.1 for 10%")
    for name in ("thresholds", "batch", "rounds", "max_answers", "loss_grid", "validity_days"):
        if getattr(choices, name) is not None and getattr(choices, name) < 1:
            raise FedsrcError(f"`{name}=` {getattr(choices, name)} is not at least 1")


def _check_read(choices: Choices) -> None:
    """Refuse what is said of records that choose thresholds, where a public grid has them."""
    for name, said in (("public_development", choices.public_development), ("judge_column", choices.judge_column)):
        if choices.grid and said:
            raise FedsrcError(f"`{name}=` is about records that choose thresholds, and with `grid=` none do",
                              hint="leave one of them out")  # fmt: skip


def _check_weight(choices: Choices) -> None:
    """Refuse to weigh the answers of a record, which is one."""
    if choices.unit == "record" and choices.answer_weight == "answer":
        raise FedsrcError("`answer_weight=` is about sources of several answers; a record is one answer",
                          hint="leave it out, or say `unit='source'`")  # fmt: skip


def _check_names(options: Mapping[str, Any]) -> None:
    """Refuse an argument that is none, as Python does."""
    unknown = sorted(set(options) - Options.__annotations__.keys())
    if unknown:
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")


@dataclass(frozen=True)
class _Data:
    """Records, what errors call their table, and its file, if there is one."""

    records: Records
    name: str
    path: Path | None


def _read(
    table: Tabular, losses: ArrayLike | None, columns: Columns | None, missing: Missing, options: Mapping[str, Any],
    *, labels: LabelState = "there", registered: Registration | None = None,
) -> _Data:  # fmt: skip
    """The records in a file, a frame or arrays."""
    _check_names(options)
    named: dict[str, Any] = {
        name.removesuffix("_column"): value
        for name, value in options.items()
        if name.endswith("_column") and name in READING
    }
    for end in ("unsupported", "supported"):
        words = options.get(end)
        named |= {} if words is None else {end: (words,) if isinstance(words, str) else tuple(words)}
    names = replace(columns or Columns(), **named)
    names = names if _scale(options) is None else replace(names, scale=_scale(options))
    names = replace(names, others=_further(options) or names.others)
    names = names if registered is None else names.bound(registered)
    whole = isinstance(table, str | PathLike) or is_frame(table)
    if whole and losses is not None:
        raise FedsrcError("a table holds its own losses", hint="give a table alone, or two arrays: scores and losses")
    if isinstance(table, str | PathLike):
        path = Path(table)
        return _Data(read_records(path, columns=names, missing=missing, labels=labels), str(path), path)
    if not whole and losses is None:
        raise FedsrcError(f"a {type(table).__name__} alone is no table", hint=f"give {KINDS}")
    frame = as_frame(table) if whole else from_arrays(table, losses)  # type: ignore[arg-type]
    return _Data(frame_records(frame, columns=names, missing=missing, labels=labels), "the table", None)


def _listed(options: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The groups, tidied as those of a table are; refuse what is no list of texts, and other choices without any."""
    groups = options.get("groups")
    if groups is None:
        about = ("group_column", "group_claim", "group_floor", "group_span", "group_most")
        if alone := [name for name in about if options.get(name)]:
            raise no_listed(f"`{alone[0]}=`")
        return {}
    if isinstance(groups, str) or not groups or not all(isinstance(each, str) for each in groups):
        raise FedsrcError("`groups=` is a list of groups, in texts", hint="`groups=['adults', 'children']`")
    return {"groups": tuple(tidy(pl.Series(groups)).to_list())}


def no_listed(what: str, why: str = "none are listed") -> FedsrcError:
    """Return the error for a choice about groups where there are none."""
    hint = "list them with `groups=`" if "listed" in why else "leave it out, or register anew with `groups=`"
    return FedsrcError(f"{what} is about groups, and {why}", hint=hint)


def _further(options: Mapping[str, Any]) -> tuple[tuple[str, Scale], ...]:
    """The further scores: columns, or NAME=WORST:BEST where one is not written from 0 to 1."""
    scores = options.get("also_scores") or ()
    if isinstance(scores, str):
        raise FedsrcError("`also_scores=` is a list of columns", hint=f"`also_scores=[{scores!r}]`")
    return tuple(further_score(each) if isinstance(each, str) else each for each in scores)


def _scale(options: Mapping[str, Any]) -> Scale | None:
    """The scale of the scores, where somebody says it."""
    said = options.get("score_scale")
    try:
        return Scale.of(said) if isinstance(said, str) else said
    except ValueError as error:
        raise FedsrcError(f"`score_scale=` {error}") from error


def _ledger(data: _Data, given: Place | None, *, private: bool) -> Path:
    """Where a table's ledger is.

    Tables in memory share one, so that no unit is released twice under another name. A run without privacy protects
    nothing there; it has a ledger for its table alone, by which it resumes and uses every unit once.
    """
    if given is not None:
        return Path(given)
    if data.path is not None:
        return ledger_beside(data.path)
    return state_folder() / LEDGER if private else state_folder() / "without-privacy" / f"{data.records.digest}.ledger"


def _run_folder(records: Records, registration: Registration) -> Path:
    """A folder for the run of one registration on one table, the same whenever it is asked for."""
    return state_folder() / "runs" / f"{records.digest[:16]}-{registration.digest[:16]}"


def _registered(given: Registration | Place) -> Registration:
    return given if isinstance(given, Registration) else Registration.read(Path(given))


def _check_free(target: float | None, epsilon: float | None, options: Mapping[str, Any]) -> None:
    """Refuse a choice beside a registration, which has made it already."""
    asked = {"target": target, "epsilon": epsilon, **options}
    for name, value in asked.items():
        if value is not None and name not in READING:
            raise FedsrcError(f"`{name}=` is fixed by the registration", hint="leave it out, or register anew")


def check_new(file: Path) -> None:
    """Refuse to write a registration over another."""
    if file.exists():
        hint = "choose another `output=`, or delete the file if no site was asked under it"
        raise FedsrcError("exists already", where=str(file), hint=f"a registration is never changed: {hint}")


def renewal(
    run: Path, table: object, target: float | None, epsilon: float | None, sites: object, options: Mapping[str, Any]
) -> Registration:
    """Register a run's claim anew; a choice that the certificate fixes is refused."""
    if table is not None or sites is not None:
        raise FedsrcError("with `renew=` no table and no `sites=` are given", hint="they are those of the run")
    free = ("validity_days", "server_key", "site_keys", "capacities", "mask_keys")
    asked = {"target": target, "epsilon": epsilon, **options}
    fixed = [name for name, value in asked.items() if value is not None and name not in free]
    if fixed:
        raise FedsrcError(f"`{fixed[0]}=` is fixed by the certificate that is renewed", hint="leave it out")
    return renewed(run, **{name: options.get(name) for name in free} | {"mask_keys": _mask_keys(options)})


def _mask_keys(options: Mapping[str, Any]) -> list[MaskKey]:
    """Read the sites' words on their mask keys."""
    return [read_mask_key(Path(file)) for file in options.get("mask_keys") or ()]
