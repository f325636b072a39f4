"""The paper's studies under the default of today: beside the paper's rule and the old default, setting by setting."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from fedsrc.audit.page import markdown
from fedsrc.audit.study import Setting, Study
from research.pages import words
from research.studies.results import DIGITS, Result
from research.studies.sides import AS_PLANNED, OLD, PAPER, Compared, Row, compared, mostly

PAGE = "as-planned.md"
SHOWN = ("fired", "trials", "failures", "violations", "acceptance", "records")
SIDES = {"paper": "paper's rule", "old": "old default", "default": "default", "few": "for few records"}
APART = ("release", "policy")  # what sides of a setting differ in
ABOUT = """\
*The paper's rule* (`fed-src-c`) reads the paper's release, *the old default* (`betting-ladder`, an open certificate
without a plan; in the core audit `betting`, the same for one target) its own release, where a study has both releases;
both stop at their first certificate. *The default* is what `fedsrc plan` registers for as many events: with privacy
sealed, with one look after all events, without privacy open. *For few records* is the same with `--objective records`.
All four share populations, seed, split and sites, and epsilon is for zero-out. The default draws other events, because
a plan has rounds of its own. With privacy its thresholds and plan come from one noised release of the development
records, where the others have thresholds from the exact ones; a made-up law is planned on 200 exact draws. Such a plan
asks every site once: where one of five does not answer, the mixture lacks its weight, and nothing is certified, while
the old default hears of a site that was absent in one round in the next. Acceptance and records are means over trials
that certified."""


def page(results: dict[str, Result]) -> str:
    """Return the page: first where the default loses, then every study."""
    found = {name: list(rows(results[name], results[planned])) for name, planned in there(results).items()}
    every = [row for each in found.values() for row in each]
    sections = [part for name, each in found.items() for part in _section(name, results[name].study, each)]
    made = f"Made by `python -m research {' '.join((*found, *there(results).values()))}`."
    return "\n\n".join(["# The paper's studies under the default of today", lead(every), ABOUT, *sections, made]) + "\n"


def there(results: dict[str, Result]) -> dict[str, str]:
    """Return the studies that are there with their planned counterparts."""
    return {name: planned for name, planned in AS_PLANNED.items() if {name, planned} <= results.keys()}


def keys_of(study: Study) -> tuple[str, ...]:
    """Return what tells the settings of a study apart, whichever side."""
    return tuple(key for key in study.varied if key not in APART)


def rows(base: Result, planned: Result) -> Iterator[Row]:
    """Yield a row for every setting that was planned, with every side."""
    keys = keys_of(base.study)
    mine, few = (_planned(planned, keys, objective) for objective in ("acceptance", "records"))
    paper, old = (_shipped(base, keys, *side) for side in (PAPER, OLD))
    for key, row in mine.items():
        sides = {"paper": paper[key], "old": old[key], "default": row, "few": few.get(key, {})}
        shown = {f"{side}_{what}": _published(each.get(what)) for side, each in sides.items() for what in SHOWN}
        yield {"study": base.name, **dict(zip(keys, key, strict=True)), **shown}


def _published(value: float | None) -> float | None:
    """Return a figure as the published tables have it, so that sums in another order are no difference."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _key(setting: Setting, keys: tuple[str, ...]) -> tuple[object, ...]:
    return tuple(getattr(setting, key) for key in keys)


def _planned(result: Result, keys: tuple[str, ...], objective: str) -> dict[tuple[object, ...], Row]:
    """Return the rows of the plans for acceptance, or for few records, by setting."""
    table = zip(result.study.settings, result.tables().methods.iter_rows(named=True), strict=True)  # one method
    return {_key(setting, keys): row for setting, row in table if setting.objective == objective}


def _shipped(base: Result, keys: tuple[str, ...], method: str, release: str) -> dict[tuple[object, ...], Row]:
    """Return a method's rows by setting, on that release where the study has both, at the first certificate."""
    name = method if method in base.study.methods else "betting"
    table = base.tables().methods.filter(method=name)
    settings = [(i, each) for i, each in enumerate(base.study.settings) if each.policy == "first"]
    both = len({each.release for _, each in settings}) > 1
    return {
        _key(each, keys): table.row(by_predicate=pl.col("setting") == i, named=True)
        for i, each in settings
        if not both or each.release == release
    }


def lead(found: list[Row]) -> str:
    """Say where the default certifies less, accepts less, takes more, or is wrong, before anything else."""
    most = {side: sum(mostly(row, side) for row in found) for side in ("paper", "old", "default")}
    lost = [row for row in found if row["default_fired"] < row["old_fired"]]
    gained = sum(row["default_fired"] > row["old_fired"] for row in found)
    accepts = compared(found, ("default", "old"), "acceptance")
    few = [row for row in found if row["few_fired"] is not None]
    takes, kept = (compared(few, ("few", "old"), what) for what in ("records", "acceptance"))
    return "\n\n".join([
        f"In {len(found)} settings of {len({row['study'] for row in found})} studies, the default certifies"
        f" {most['default']} in most trials, the old default {most['old']}, the paper's rule {most['paper']}.",
        f"Where it loses to the old default. It certifies less often in {len(lost)} settings{_listed(lost)}, more often"
        f" in {gained}. It takes all its events, where the old default stops at its first certificate; where both"
        f" certify in most trials it then accepts less in {accepts.less} of {accepts.both}, more in {accepts.more}."
        f" {_few(takes, kept)}",
        _false(found),
    ])  # fmt: skip


def _few(takes: Compared, kept: Compared) -> str:
    return (
        f"Planned for few records it takes more than the old default in {takes.more} of {takes.both} settings, fewer in"
        f" {takes.less}, and accepts less in {kept.less}, more in {kept.more}."
    )


def _listed(lost: list[Row]) -> str:
    named = [
        f"{_name(row)}: {row['default_fired']} of {row['default_trials']} beside {row['old_fired']}" for row in lost
    ]
    return f" ({'; '.join(named)})" if named else ""


def _name(row: Row) -> str:
    said = [f"{key} {_value(row[key])}" if key not in ("population", "case") else row[key] for key in _keys(row)]
    return ", ".join([row["study"], *said])


def _keys(row: Row) -> list[str]:
    return [key for key in row if key != "study" and not key.startswith(tuple(f"{side}_" for side in SIDES))]


def _false(found: list[Row]) -> str:
    wrong = [row for row in found if row["default_failures"]]
    counts = ", ".join(
        f"{sum(row[f'{side}_failures'] or 0 for row in found)} of {sum(row[f'{side}_fired'] or 0 for row in found):,}"
        f" {'of the' if side != 'few' else 'planned'} {name}"
        for side, name in SIDES.items()
    )
    where = f" The default's are in: {'; '.join(_name(row) for row in wrong)}." if wrong else ""
    return f"Certificates that were false, where the truth is enumerated: {counts}.{where}"


def _section(name: str, study: Study, found: list[Row]) -> list[str]:
    keys = keys_of(study)
    sides = [side for side in SIDES if found[0][f"{side}_fired"] is not None]
    head = [*keys, *(cell for side in sides for cell in (SIDES[side], "acceptance", "records"))]
    body = [
        [*(_value(row[key]) for key in keys), *(cell for side in sides for cell in _cells(row, side))] for row in found
    ]
    planned = AS_PLANNED[name]
    return [f"## {study.name}", f"[{name}]({name}.md) beside [{planned}]({planned}.md).", markdown(head, body)]


def _cells(row: Row, side: str) -> list[str]:
    fired = f"{row[f'{side}_fired']}/{row[f'{side}_trials']}"
    if not row[f"{side}_fired"]:
        return [fired, "–", "–"]
    return [fired, f"{row[f'{side}_acceptance']:.3f}", f"{row[f'{side}_records']:,.0f}"]


def _value(value: object) -> str:
    return words(value) if isinstance(value, float) else str(value)
