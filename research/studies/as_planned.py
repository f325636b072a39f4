"""The paper's studies under the default of today: beside the paper's rule and the old default, setting by setting."""

from __future__ import annotations

import math
from collections.abc import Iterator

import polars as pl

from fedsrc.audit.cell import DEVELOPMENT
from fedsrc.audit.page import markdown
from fedsrc.audit.study import Demo, Setting, Study, StudyTable
from research.pages import words
from research.studies.results import Result
from research.studies.sides import AS_PLANNED, OLD, PAPER, Row, apart, compared, few_beside_old, mostly

PAGE = "as-planned.md"
SHOWN = ("fired", "trials", "failures", "acceptance", "records", "heldout_accepted", "heldout_unsupported")
SIDES = {
    "paper": "paper's rule", "old": "old default", "default": "default", "few": "for few records",
    "end": "old default, all events", "paper_end": "paper's rule, all events",
}  # fmt: skip
PLANS = {"acceptance": "default", "records": "few"}
PLAIN = {"first": "old", "final": "end"}
OWN = ("epsilon", "target_risk", "label_missed")  # what a setting has one of, for all sides
APART = ("release", "policy", "certificate")  # what sides of a setting differ in
DRAWS = dict.fromkeys(("privacy-curve", "redeep", "halueval-surrogate"), DEVELOPMENT)
LABELLED = {**DRAWS, "c1": 125, "halueval": 4_000, "reuse": 4_000}  # development records of studies that plan for few
NAMED, WORDS = {"population", "case"}, {"target_risk": "target"}  # what a setting's name leaves out, or says otherwise
CLOSE = 1e-3  # of the larger: as many events, but for the rounding of sizes
LARGEST = 10  # losses of acceptance that are named, where there are many
ABOUT = f"""\
*The paper's rule* (`fed-src-c`) reads the paper's release (in the secondary grid the default one), *the old default*
its own: an open certificate without a plan, `betting-ladder` in the studies; where a study has no such release (the
registered audit, tasks, eta), the same as registered, beside the plans. Both stop at their first certificate; the old
default looks after every 200 events of each site and cannot take fewer. With *all events* they go on to the end of
their records; the paper's rule did so in two studies. *The default* is what `fedsrc plan --adjacency zero-out`
registers for at most as many events: with privacy sealed, with one look at the end, without privacy open (sizes are
rounded: by up to 3 events). *For few records* is the same with `--objective records`. Epsilon is for zero-out
throughout; unless told, a plan states it for replacement, which takes more noise.

All share populations, seed, sites and calibration records, but for the studies of reuse and of HaluEval's curve. Their
first designs set no development records apart; plans, and the old default with all events, take a fifth of the table
for that, and calibrate on other answers of it: a plan reads 4,000 labels there that the others do without, to calibrate
on 120 to 480 answers. A plan draws other events, because it has rounds of its own. With privacy its thresholds and bets
come from one noised release of the development records, and this one plan serves all trials of a setting: another
release would give another plan. The paper's rule and the old default have thresholds from exact development scores (at
their first certificate in those two studies from calibration scores, for made-up laws those of the law), and read no
development label, but for scores that were fitted to such labels (`mechanistic`, `franq`, `probe`, `detector`): these
labels no epsilon here protects, whoever issues. For a made-up law a plan sees {DEVELOPMENT} exact draws, which no noise
protects. Some settings stand here more than once: moved weight 0, drift 0 and IID are the same trials, and `sconu-1`
and `self-consistency-1` give the same certificates, false ones too. The seed of [eta](eta.md) was chosen after looking
at its sites.

With one look there is no next round. If the round closes without one of five sites of equal weight, a fifth of the
mixture is missing, and here nothing is certified (a real run may wait for it); the old default hears of the site in the
next round. Where unsupported answers are missed, a certificate is true of its labels, and promises nothing of the
answers. Looser bounds and stopping early made fewer of them false there; neither is a protection.

Baselines and what can be certified today have pages of their own for the default ([baselines](planned-baselines.md),
[today](certified-today.md)). Recruitment, composition, ablations, stress, the capital heuristic and the paper's rules
at the boundary are about other rules, or about what plans do not have. Acceptance and records are means over trials
that certified, records of calibration alone."""


def page(results: dict[str, Result]) -> str:
    """Return the page: first where the default loses, then every study."""
    found = {name: list(rows(results[name], results[planned])) for name, planned in there(results).items()}
    every = [row for each in found.values() for row in each]
    sections = [part for name, each in found.items() for part in _section(name, results[name].study, each)]
    made = f"Made by `python -m research {' '.join((*found, *there(results).values()))}`."
    head = "# Studies of the paper under the default of today"
    return "\n\n".join([head, lead(every), ABOUT, *losses(every), *sections, made]) + "\n"


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
    sides["paper_end"] = _shipped(base, keys, *PAPER, policy="final")
    for key, mine in sides["default"].items():
        each = {side: sides.get(side, {}).get(key, {}) for side in SIDES}
        shown = {f"{side}_{what}": row.get(what) for side, row in each.items() for what in SHOWN}
        own = {name: mine[f"{name}_"] for name in (*OWN, "real")}
        yield {"study": base.name, "key": dict(zip(keys, key, strict=True)), **own, **shown}


def _key(setting: Setting, keys: tuple[str, ...]) -> tuple[object, ...]:
    return tuple(getattr(setting, key) for key in keys)


def _planned(result: Result, keys: tuple[str, ...]) -> dict[str, dict[tuple[object, ...], Row]]:
    """Return the rows of plans, and of what is plain beside them, by side and setting."""
    found: dict[str, dict[tuple[object, ...], Row]] = {}
    table = result.tables().methods.iter_rows(named=True)  # one method
    for setting, row in zip(result.study.settings, table, strict=True):
        side = PLAIN[setting.policy] if setting.certificate == "plain" else PLANS[setting.objective]
        own = {f"{each}_": getattr(setting, each) for each in OWN}
        real = isinstance(result.study.by_name[setting.population], StudyTable | Demo)
        found.setdefault(side, {})[_key(setting, keys)] = {**row, **own, "real_": real}
    return found


def _shipped(
    base: Result, keys: tuple[str, ...], method: str, release: str, policy: str = "first"
) -> dict[tuple[object, ...], Row]:
    """Return a method's rows by setting under a policy, on that release where the study has both."""
    table = base.tables().methods.filter(method=method)
    settings = [(i, each) for i, each in enumerate(base.study.settings) if each.policy == policy]
    both = len({each.release for _, each in settings}) > 1
    return {
        _key(each, keys): row
        for i, each in settings
        if not both or each.release == release
        for row in table.filter(pl.col("setting") == i).iter_rows(named=True)
    }


def lead(found: list[Row]) -> str:
    """Say what the default never certifies, where it loses, and where it is wrong, before anything else."""
    never, most = (
        {side: sum(how(row, side) for row in found) for side in ("default", "old", "paper")} for how in (_never, mostly)
    )
    return "\n\n".join([
        f"Of {len(found)} settings of {len({row['study'] for row in found})} studies, the default never certifies"
        f" {never['default']} (the old default {never['old']}, the paper's rule {never['paper']}). It certifies"
        f" {most['default']} in most trials, the old default {most['old']}, the paper's rule {most['paper']}. That is"
        " one split and one plan of each, and the plan serves all trials of a setting: one that is unlucky, or made on"
        " few development records (90 answers of each of RAGTruth's generators), loses them all."
        " [Other studies](certified-today.md#other-splits) were run on more splits; neither default is ahead in all.",
        _against_paper(found),
        f"Beside the old default, it {_less_often(found, 'old')}{_made_up(found)}{_hollow(found)}."
        f" {_acceptance(found)}",
        _few([row for row in found if row["few_fired"] is not None]),
        f"{_false(found)} {_held_out(found)}",
    ])  # fmt: skip


def _never(row: Row, side: str) -> bool:
    return not row[f"{side}_fired"]


def _lost(found: list[Row], other: str) -> list[Row]:
    return [row for row in found if row["default_fired"] < row[f"{other}_fired"]]


def _gained(found: list[Row], other: str) -> list[Row]:
    return [row for row in found if row["default_fired"] > row[f"{other}_fired"]]


def _less_often(found: list[Row], other: str) -> str:
    lost, gained = len(_lost(found, other)), len(_gained(found, other))
    return f"certifies less often in {lost} settings, more often in {gained}"


def _made_up(found: list[Row]) -> str:
    """Say which of these settings are of made-up laws: nothing protects what a plan sees of them."""
    _, laws = _by_kind(found)
    return f", of which {len(_lost(laws, 'old'))} and {len(_gained(laws, 'old'))} are of made-up laws" if laws else ""


def _hollow(found: list[Row]) -> str:
    """Say in how many of these settings the one that is ahead is ahead by false certificates alone."""
    ahead = ((_lost(found, "old"), "old"), (_gained(found, "old"), "default"))
    lost, gained = (sum(row[f"{side}_failures"] == row[f"{side}_fired"] for row in rows) for rows, side in ahead)
    return f"; in {lost} and {gained} every certificate of the one ahead is false" if lost or gained else ""


def _against_paper(found: list[Row]) -> str:
    kept = compared(found, ("default", "paper"), "acceptance")
    to_the_end = [row for row in found if row["paper_end_fired"] is not None]
    end = compared(to_the_end, ("default", "paper_end"), "acceptance")
    return (
        f"Beside the paper's rule, it {_less_often(found, 'paper')}. Where both certify in most trials, it accepts less"
        f" in {kept.less} of {kept.both}, more in {kept.more}, with all its events, where the paper's rule stops at its"
        f" first certificate. Where that was run to the end of its events too"
        f" ({', '.join(dict.fromkeys(row['study'] for row in to_the_end))}), the default accepts less in {end.less} of"
        f" {end.both}, more in {end.more}."
    )


def as_many(found: list[Row]) -> tuple[list[Row], list[Row]]:
    """Return settings that both defaults certify in most trials: after as many events, and after other numbers."""
    both = [row for row in found if mostly(row, "default") and mostly(row, "end")]
    equal = [row for row in both if math.isclose(row["default_records"], row["end_records"], rel_tol=CLOSE)]
    return equal, [row for row in both if row not in equal]


def _acceptance(found: list[Row]) -> str:
    first = compared(found, ("default", "old"), "acceptance")
    equal, unequal = as_many(found)
    private, free = apart(equal)
    open_, real, laws, rest = (
        compared(part, ("default", "end"), "acceptance") for part in (free, *_by_kind(private), unequal)
    )
    return (
        f"It takes all its events. Where both use up as many and certify in most trials ({len(equal)} settings), it"
        f" accepts less without privacy in {open_.less} of {open_.both}, more in {open_.more}; with privacy on real"
        f" answers less in {real.less} of {real.both}, more in {real.more}; and with privacy on made-up laws, of which"
        f" a plan sees exact draws, less in {laws.less} of {laws.both}, more in {laws.more}. In {rest.both} more they"
        f" certify after unequal numbers, and it accepts less in {rest.less}, more in {rest.more}. The old default"
        f" stops at its first certificate unless told, and beside that the default accepts less in {first.less} of"
        f" {first.both}, more in {first.more}, with more records."
    )


def _by_kind(found: list[Row]) -> tuple[list[Row], list[Row]]:
    """Return settings of real answers, and of made-up laws."""
    return [row for row in found if row["real"]], [row for row in found if not row["real"]]


def _few(found: list[Row]) -> str:
    private, free = apart(found)
    real, laws = _by_kind(private)
    return (
        f"Planned for few records, with privacy on real answers it {_takes(real)}. On made-up laws it {_takes(laws)}."
        f" Without privacy it {_takes(free)}: there it may look after 50 events, the old default after 1,000. The first"
        " counts leave out the development records, whose labels a plan reads and the old default does not."
    )


def _takes(found: list[Row]) -> str:
    takes, whole, kept = few_beside_old(found, lambda row: LABELLED[row["study"]])
    return (
        f"takes more than the old default in {takes.more} of {takes.both} settings that both certify in most trials,"
        f" fewer in {takes.less} (with development records more in {whole.more}, fewer in {whole.less}), and accepts"
        f" less in {kept.less}, more in {kept.more}"
    )


def _false(found: list[Row]) -> str:
    missed = [row for row in found if row["label_missed"]]
    right = [row for row in found if row not in missed]
    return (
        "Certificates that were false for the population they were drawn from, where the truth is enumerated:"
        f" {_failures(right)}. In {len(missed)} more settings labels miss unsupported answers: there"
        f" {_failures(missed)}."
    )


def _failures(found: list[Row]) -> str:
    said = []
    for side, name in SIDES.items():
        failed, issued = (sum(row[f"{side}_{what}"] or 0 for row in found) for what in ("failures", "fired"))
        said += [f"{failed:,} of {issued:,} {_whose(side, name)}"] if issued else []
    return ", ".join(said)


def _whose(side: str, name: str) -> str:
    return f"{'planned' if side == 'few' else 'of the'} {name}"


def _held_out(found: list[Row]) -> str:
    """Say in how many settings answers that were never drawn have a risk above target."""
    said = []
    for side, name in SIDES.items():
        held = [row for row in found if _unseen(row, side) is not None]
        said += [f"{sum(_above(row, side) for row in held)} of {len(held)} {_whose(side, name)}"] if held else []
    return (
        "That is not the same as new data. Where answers are held out (c1, halueval), their risk at the certified"
        f" thresholds is above target in {', '.join(said)}, of settings with a certificate, all trials of a setting"
        " together; of HaluEval the sides hold out other answers. Few are held out:"
        " [by threshold, with intervals](../heldout.md)."
    )


def _unseen(row: Row, side: str) -> float | None:
    """Return the held-out risk of a side's certificates, if it has any."""
    count = row[f"{side}_heldout_accepted"]
    return row[f"{side}_heldout_unsupported"] / count if row[f"{side}_fired"] and count else None


def _above(row: Row, side: str) -> bool:
    risk = _unseen(row, side)
    return risk is not None and bool(risk > row["target_risk"])


def _certified(row: Row, side: str) -> str:
    return f"{row[f'{side}_fired']}/{row[f'{side}_trials']}"


def _accepted(row: Row, side: str) -> str:
    return f"{row[f'{side}_acceptance']:.3f}"


def losses(found: list[Row]) -> list[str]:
    """Name every setting where the default loses to who stops early, the largest beside the old one, and all errors."""
    lost = [("certified", other, row, _certified) for other in ("paper", "old") for row in _lost(found, other)]
    lost += [
        ("acceptance", other, row, _accepted)
        for other in ("paper", "paper_end", "old")
        for row in _accepts_less(found, other)
    ]
    beside = [
        [_name(row), SIDES[other], what, *(shown(row, side) for side in ("default", other))]
        for what, other, row, shown in lost
    ]
    less = _accepts_less(as_many(found)[0], "end")
    largest = sorted(less, key=lambda row: row["default_acceptance"] - row["end_acceptance"])[:LARGEST]
    false = [
        [_name(row), name, f"{row[f'{side}_failures']}/{row[f'{side}_fired']}"]
        for side, name in SIDES.items()
        for row in found
        if row[f"{side}_failures"]
    ]
    above = [
        [_name(row), name, f"{row['target_risk']:.2f}", f"{_unseen(row, side):.3f}"]
        for side, name in SIDES.items()
        for row in found
        if _above(row, side)
    ]
    return [
        "## Where it loses",
        "Certified less often than another, or with less acceptance than the paper's rule, or than the old default at"
        " its first certificate.",
        markdown(["setting", "beside", "what", "default", "the other"], beside),
        f"Less acceptance than the old default after as many events: the {len(largest)} largest of {len(less)} such"
        " settings. The tables of the studies have all.",
        markdown(["setting", "default", "the old default"],
                 [[_name(row), *(_accepted(row, side) for side in ("default", "end"))] for row in largest]),
        "False certificates, of those issued. Where unsupported answers are missed, all rules read the same labels.",
        markdown(["setting", "whose", "false"], false),
        "Held-out risk above target.",
        markdown(["setting", "whose", "target", "held-out risk"], above),
    ]  # fmt: skip


def _accepts_less(found: list[Row], other: str) -> list[Row]:
    """Return settings that both certify in most trials, and where the default accepts less."""
    there = [row for row in found if row[f"{other}_fired"] is not None]
    return [row for row in there if compared([row], ("default", other), "acceptance").less]


def _name(row: Row) -> str:
    key = row["key"].items()
    return ", ".join([row["study"], *(_value(x) if k in NAMED else f"{WORDS.get(k, k)} {_value(x)}" for k, x in key)])


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
    if not row[f"{side}_fired"]:
        return [_certified(row, side), "–", "–"]
    return [_certified(row, side), _accepted(row, side), f"{row[f'{side}_records']:,.0f}"]


def _value(value: object) -> str:
    return words(value) if isinstance(value, float) else str(value)
