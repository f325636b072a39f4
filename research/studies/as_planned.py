"""The paper's studies under the default of today: beside the paper's rule and the old default, setting by setting."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from fedsrc.audit.cell import DEVELOPMENT
from fedsrc.audit.page import markdown
from fedsrc.audit.study import Setting, Study
from research.pages import words
from research.studies.results import Result
from research.studies.sides import AS_PLANNED, OLD, PAPER, Compared, Row, apart, compared, mostly

PAGE = "as-planned.md"
SHOWN = ("fired", "trials", "failures", "acceptance", "records")
SIDES = {
    "paper": "paper's rule", "old": "old default", "default": "default", "few": "for few records",
    "end": "old default, all events",
}  # fmt: skip
PLANS = {"acceptance": "default", "records": "few"}
PLAIN = {"first": "old", "final": "end"}
APART = ("release", "policy", "certificate")  # what sides of a setting differ in
DRAWS = dict.fromkeys(("privacy-curve", "redeep", "halueval-surrogate"), DEVELOPMENT)
LABELLED = {**DRAWS, "c1": 125, "reuse": 4_000}  # development records of studies that plan for few records
ABOUT = """\
*The paper's rule* (`fed-src-c`) reads the paper's release (in the secondary grid the default one), *the old default*
its own: an open certificate without a plan, `betting-ladder` in the studies; where a study has no such release (the
registered audit, tasks, eta), the same as registered, beside the plans. Both stop at their first certificate; the old
default looks after every 200 events of each site and cannot take fewer. With *all events* it goes on to the end of its
records. *The default* is what `fedsrc plan --adjacency zero-out` registers for at most as many events: with privacy
sealed, with one look at the end, without privacy open. *For few records* is the same with `--objective records`.
Epsilon is for zero-out throughout; unless told, a plan states it for replacement, which takes more noise.

All share populations, seed, sites and calibration records (in the study of reuse these are others of the same table).
A plan draws other events, because it has rounds of its own. With privacy its thresholds and bets come from one noised
release of the development records, and this one plan serves all trials of a setting: another release would give another
plan. The paper's rule and the old default have thresholds from exact development scores (in the study of reuse from
calibration scores, for made-up laws those of the law), and read no development label. For a made-up law a plan sees 200
exact draws, which no noise protects. Some settings stand here more than once: moved weight 0, drift 0 and IID are the
same trials.

With one look there is no next round. If the round closes without one of five sites of equal weight, a fifth of the
mixture is missing, and here nothing is certified (a real run may wait for it); the old default hears of the site in the
next round. Where unsupported answers are missed, a certificate is true of its labels and not of the answers, whoever
issues it: stopping early, while the bound is loose, is no protection.

Baselines and what can be certified today have pages of their own for the default ([baselines](planned-baselines.md),
[today](certified-today.md)). Recruitment, composition, ablations, stress, the capital heuristic and the paper's rules
at the boundary are about other rules, or about what plans do not have. Scores on RAGTruth and evidence controls need
tables that take a model. Acceptance and records are means over trials that certified, records of calibration alone."""


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
    sides = {"paper": _shipped(base, keys, *PAPER), "old": _shipped(base, keys, *OLD), **_planned(planned, keys)}
    for key, mine in sides["default"].items():
        each = {side: sides.get(side, {}).get(key, {}) for side in SIDES}
        shown = {f"{side}_{what}": row.get(what) for side, row in each.items() for what in SHOWN}
        yield {"study": base.name, "key": dict(zip(keys, key, strict=True)), "epsilon": mine["epsilon_"], **shown}


def _key(setting: Setting, keys: tuple[str, ...]) -> tuple[object, ...]:
    return tuple(getattr(setting, key) for key in keys)


def _planned(result: Result, keys: tuple[str, ...]) -> dict[str, dict[tuple[object, ...], Row]]:
    """Return the rows of plans, and of what is plain beside them, by side and setting."""
    found: dict[str, dict[tuple[object, ...], Row]] = {}
    table = result.tables().methods.iter_rows(named=True)  # one method
    for setting, row in zip(result.study.settings, table, strict=True):
        side = PLAIN[setting.policy] if setting.certificate == "plain" else PLANS[setting.objective]
        found.setdefault(side, {})[_key(setting, keys)] = {**row, "epsilon_": setting.epsilon}
    return found


def _shipped(base: Result, keys: tuple[str, ...], method: str, release: str) -> dict[tuple[object, ...], Row]:
    """Return a method's rows by setting at the first certificate, on that release where the study has both."""
    table = base.tables().methods.filter(method=method)
    settings = [(i, each) for i, each in enumerate(base.study.settings) if each.policy == "first"]
    both = len({each.release for _, each in settings}) > 1
    return {
        _key(each, keys): row
        for i, each in settings
        if not both or each.release == release
        for row in table.filter(pl.col("setting") == i).iter_rows(named=True)
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
    first = compared(found, ("default", "old"), "acceptance")
    private, free = (compared(part, ("default", "end"), "acceptance") for part in apart(found))
    return (
        f"It takes all its events. Where both use up their events and certify in most trials, it accepts less without"
        f" privacy in {free.less} of {free.both}, more in {free.more}, and with privacy less in {private.less} of"
        f" {private.both}, more in {private.more}. The old default stops at its first certificate unless told, and"
        f" beside that the default accepts less in {first.less} of {first.both}, more in {first.more}, with more"
        " records."
    )


def _few(found: list[Row]) -> str:
    takes, kept = (compared(found, ("few", "old"), what) for what in ("records", "acceptance"))
    whole: Compared = compared(
        [{**row, "few_records": (row["few_records"] or 0) + LABELLED[row["study"]]} for row in found],
        ("few", "old"), "records",
    )  # fmt: skip
    return (
        f"Planned for few records it takes more than the old default in {takes.more} of {takes.both} settings that both"
        f" certify in most trials, fewer in {takes.less}, and accepts less in {kept.less}, more in {kept.more}. That"
        " leaves out the development records, whose labels a plan reads and the old default does not: with them it"
        f" takes more in {whole.more}, fewer in {whole.less}."
    )


def _listed(lost: list[Row]) -> str:
    named = [
        f"{_name(row)}: {row['default_fired']} of {row['default_trials']} beside {row['old_fired']}" for row in lost
    ]
    return f" ({'; '.join(named)})" if named else ""


def _name(row: Row) -> str:
    key = row["key"].items()
    return ", ".join([row["study"], *(f"{k} {_value(x)}" if k not in ("population", "case") else x for k, x in key)])


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
        [*map(_value, row["key"].values()), *(cell for side in sides for cell in _cells(row, side))] for row in found
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
