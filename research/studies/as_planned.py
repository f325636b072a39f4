"""The paper's studies under the default of today: beside the paper's rule and the old default, setting by setting."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from fedsrc.audit.cell import DEVELOPMENT
from fedsrc.audit.page import markdown
from fedsrc.audit.study import Setting, Study
from research.pages import words
from research.studies.results import Result
from research.studies.sides import AS_PLANNED, OLD, PAPER, Row, compared, mostly

PAGE = "as-planned.md"
SHOWN = ("fired", "trials", "failures", "violations", "acceptance", "records")
SIDES = {"paper": "paper's rule", "old": "old default", "default": "default", "few": "for few records"}
APART = ("release", "policy", "certificate")  # what sides of a setting differ in
DRAWS = dict.fromkeys(("privacy-curve", "redeep", "halueval-surrogate"), DEVELOPMENT)
LABELLED = {**DRAWS, "c1": 125, "reuse": 4_000}  # development records of studies that plan for few records
ABOUT = """\
*The paper's rule* (`fed-src-c`) reads the paper's release (in the secondary grid the default one), *the old default*
its own: an open certificate without a plan, `betting-ladder` in the studies, for tasks and transfer the same as
registered, beside the plans. Both stop at their first certificate; the old default looks after every 200 events of each
site and cannot take fewer. *The default* is what `fedsrc plan --adjacency zero-out` registers for at most as many
events: with privacy sealed, with one look at the end, without privacy open. *For few records* is the same with
`--objective records`. Epsilon is for zero-out throughout; unless told, a plan states it for replacement, which takes
more noise.

All four share populations, seed, sites and calibration records (in the study of reuse these are others of the same
table). The default draws other events, because a plan has rounds of its own. With privacy its thresholds and plan come
from one noised release of the development records, and this one plan serves all trials of a setting: another release
would give another plan. The others have thresholds from the exact development scores, and read no development label. A
made-up law is planned on 200 exact draws, which no noise protects.

A plan with one look asks every site once: where one of five does not answer, the mixture lacks its weight, and nothing
is certified, while the old default hears in the next round of a site that was absent. Where unsupported answers are
missed, a certificate is true of its labels and not of the answers: the default goes as far as its labels allow; the old
default stops early, and is wrong less often for no other reason. Recruitment, composition and the studies of baselines,
ablations, stress and the capital heuristic are not here: they are about other rules, or about what plans do not have.
Acceptance and records are means over trials that certified, records of calibration alone."""


def page(results: dict[str, Result]) -> str:
    """Return the page: first where the default loses, then every study."""
    found = {name: list(rows(results[name], results[planned])) for name, planned in there(results).items()}
    every = [row for each in found.values() for row in each]
    sections = [part for name, each in found.items() for part in _section(name, results[name].study, each)]
    made = f"Made by `python -m research {' '.join((*found, *there(results).values()))}`."
    return (
        "\n\n".join(["# Studies of the paper under the default of today", lead(every), ABOUT, *sections, made]) + "\n"
    )


def there(results: dict[str, Result]) -> dict[str, str]:
    """Return the studies that are there with their planned counterparts."""
    return {name: planned for name, planned in AS_PLANNED.items() if {name, planned} <= results.keys()}


def keys_of(study: Study) -> tuple[str, ...]:
    """Return what tells the settings of a study apart, whichever side."""
    return tuple(key for key in study.varied if key not in APART)


def rows(base: Result, planned: Result) -> Iterator[Row]:
    """Yield a row for every setting that was planned, with every side."""
    keys = keys_of(base.study)
    mine, few, plain = (_planned(planned, keys, what) for what in ("acceptance", "records", "plain"))
    paper, old, end = (_shipped(base, keys, *side) for side in (PAPER, OLD, (*OLD, "final")))
    for key, row in mine.items():
        sides = {"paper": paper[key], "old": (plain or old)[key], "default": row, "few": few.get(key, {})}
        sides |= {"end": end.get(key, {})}  # the old default with all its records
        shown = {f"{side}_{what}": each.get(what) for side, each in sides.items() for what in SHOWN}
        yield {"study": base.name, **dict(zip(keys, key, strict=True)), **shown}


def _key(setting: Setting, keys: tuple[str, ...]) -> tuple[object, ...]:
    return tuple(getattr(setting, key) for key in keys)


def _planned(result: Result, keys: tuple[str, ...], what: str) -> dict[tuple[object, ...], Row]:
    """Return the rows of plans for acceptance or for few records, or of what is plain, by setting."""
    table = zip(result.study.settings, result.rounded().iter_rows(named=True), strict=True)  # one method
    kinds = ((setting.objective if setting.certificate != "plain" else "plain", setting, row) for setting, row in table)
    return {_key(setting, keys): row for kind, setting, row in kinds if kind == what}


def _shipped(
    base: Result, keys: tuple[str, ...], method: str, release: str, policy: str = "first"
) -> dict[tuple[object, ...], Row]:
    """Return a method's rows by setting, on that release where the study has both."""
    name = method if method in base.study.methods else "betting"
    table = base.rounded().filter(method=name)
    settings = [(i, each) for i, each in enumerate(base.study.settings) if each.policy == policy]
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
    return "\n\n".join([
        f"In {len(found)} settings of {len({row['study'] for row in found})} studies, the default certifies"
        f" {most['default']} in most trials, the old default {most['old']}, the paper's rule {most['paper']}.",
        f"Where it loses to the old default. It certifies less often in {len(lost)} settings{_listed(lost)}, more often"
        f" in {gained}. {_acceptance(found)} {_few([row for row in found if row['few_fired'] is not None])}",
        _false(found),
    ])  # fmt: skip


def _acceptance(found: list[Row]) -> str:
    first, end = (compared(part, ("default", side), "acceptance") for part, side in (
        (found, "old"), ([row for row in found if row["end_fired"] is not None], "end")))  # fmt: skip
    return (
        "It takes all its events, where the old default stops at its first certificate; where both certify in most"
        f" trials it then accepts less in {first.less} of {first.both}, more in {first.more}. With as many records as"
        f" it, which the core audit by task shows (on the paper's release), the old default accepts more in {end.less}"
        f" of {end.both}, less in {end.more}."
    )


def _few(found: list[Row]) -> str:
    takes, kept = (compared(found, ("few", "old"), what) for what in ("records", "acceptance"))
    whole = [{**row, "few_records": (row["few_records"] or 0) + LABELLED[row["study"]]} for row in found]
    counted = compared(whole, ("few", "old"), "records")
    return (
        f"Planned for few records it takes more than the old default in {takes.more} of {takes.both} settings that both"
        f" certify in most trials, fewer in {takes.less}, and accepts less in {kept.less}, more in {kept.more}. That"
        " leaves out the development records, whose labels a plan reads and the old default does not: with them it"
        f" takes more in {counted.more}, fewer in {counted.less}."
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
    return [key for key in row if key != "study" and not key.startswith((*(f"{side}_" for side in SIDES), "end_"))]


def _false(found: list[Row]) -> str:
    said = []
    for side, name in SIDES.items():
        wrong = [row for row in found if row[f"{side}_failures"]]
        where = "; ".join(f"{_name(row)}: {row[f'{side}_failures']}" for row in wrong)
        issued = sum(row[f"{side}_fired"] or 0 for row in found)
        count = sum(row[f"{side}_failures"] for row in wrong)
        whose = f"{'planned' if side == 'few' else 'of the'} {name}"
        said.append(f"{count} of {issued:,} {whose}{f' ({where})' if where else ''}")
    return f"Certificates that were false, where the truth is enumerated: {', '.join(said)}."


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
