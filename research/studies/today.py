"""What can be certified today: each source once first, then every real population, target and epsilon in the paper's
regime, by the default, the old default and the paper's rule."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from fedsrc.audit.page import markdown
from fedsrc.maths.binomial import clopper_pearson
from research.pages import words
from research.studies import honest, split_counts
from research.studies.results import Result
from research.studies.sides import (
    KEYS,
    OLD,
    PAPER,
    PLANNED,
    SIDES,
    STUDIES,
    Row,
    apart,
    compared,
    few_beside_old,
    mostly,
)

SHOWN = ("fired", "trials", "failures", "violations", "records", "acceptance", "risk", "reuse", "heldout_exceeds")
ISSUED = ("failures", "fired")
ALL_HEAD = [
    "population", "target", "epsilon", "floor", "paper's rule", "acceptance", "old default", "acceptance", "default",
    "acceptance", "public development", "acceptance", "risk", "reuse", "held-out risk", "95% interval",
    "held-out above target",
]  # fmt: skip
ALL_SIDES = ("paper_all", "old_all", "default", "public")
FIRST_HEAD = [
    "population", "target", "epsilon", "limit", "paper's rule", "records", "old default", "records", "acceptance",
    "for few records", "records", "acceptance",
]  # fmt: skip
ABOUT = (
    "Events are drawn with replacement, up to 6,000 at each of five sites with equal weights, which add their own"
    " noise; 100 trials each. *The default* is what `fedsrc plan` registers for that many: with privacy sealed with one"
    " look, its thresholds and plan from one noised release of the development records at the same epsilon; without"
    " privacy open, planned on these records. Either way a run takes all 30,000 events in one round. *The old default*"
    " (`--certificate plain`) has 20 thresholds, equal weights and no plan; it and *the paper's rule* look after every"
    " 1,000 events, and have thresholds from the exact development records, which their epsilon does not protect."
    " Epsilon is for zero-out, as in the paper, for all of them; the first part of this page has replacement. All share"
    " populations, split and sites. The default draws other events of the same sites, because a plan has rounds of its"
    " own, and is not paired with the other two trial by trial. One split, and at each epsilon one noised release of"
    " its development records, serve all trials of a combination: another release would give another plan."
)
LIMITS = (
    "What limits it. Three things, in this order. *The score*: no threshold has a risk below the score's least with"
    " enough acceptance; the floor in the table is the least among 20 thresholds, and others, as a plan's own grid has"
    " them, can be lower. Near it a certificate needs more records than exist; where a target is never certified, the"
    " score does not separate well enough. *Records*: these are events drawn with replacement"
    " from 463 to 11,000 labelled answers; 'reuse' says how often each was drawn. An epsilon then"
    " protects one event, not the answer behind it. With every source used once there are too few of them for the"
    " stricter targets (above). *Privacy*: at epsilon 1 the noise, not the sampling, decides how many records"
    " are needed, and how well development records can be told apart."
)
ALL_NOTES = (
    "Certified of 100 trials, with all 30,000 events (the old default and the paper's rule under policy `final`)."
    " 'Public development' is the default planned on the exact development records (`--public-development`), as the"
    " thresholds of the other two are; without privacy it is the default. Acceptance and risk are means over trials"
    " that certified; risk, reuse and what follows are the default's. 'Floor' is the least risk of any threshold with"
    " acceptance of at least 0.05, among the 20 quantiles of the exact development scores, which are not all the"
    " thresholds there are. 'Held-out above target' counts"
    " certified trials whose threshold has a held-out risk above target; the interval of held-out risk is exact for the"
    " mean counts of held-out answers accepted and unsupported, rounded. RAGTruth QA is scored by *familiarity*,"
    " 1 / (1 + the number of distinct content words of the response that neither question nor evidence holds): it needs"
    " no model, so that anyone can make the table. It was not chosen blindly: an earlier page had shown that it ranks"
    " mistral's answers well. The RAGTruth test rows draw answers as independent events although six of them share a"
    " source; their intervals are too narrow for that reason. HaluEval is scored by lift, and answer length alone does"
    " better than lift on its question answering ([scores](scores-halueval.md))."
)
LABELLED = {  # development records
    "RAGTruth QA": 125, "RAGTruth test": 402, "HaluEval QA": 3_000, "HaluEval dialogue": 3_000,
    "HaluEval summarization": 600,
}  # fmt: skip
FIRST_NOTES = (
    "Records to the first certificate, where a run stops: means over trials that certified. 'For few records' is the"
    " default with `--objective records`: up to 15 registered looks with privacy, a look after every round without."
    " It plans its own rounds, from 10 events a site; the other two have rounds of 200 a site, so nothing can be"
    " certified before 1,000. 'Limit' is the fewest records, on average and without privacy, that any method needs that"
    " is told the best of those 20 thresholds."
)


def rows(results: dict[str, Result]) -> list[Row]:
    """One row per population, target and epsilon, with every side that was run."""
    return [row for name in STUDIES if name in results for row in _of_study(name, results)]


def _of_study(name: str, results: dict[str, Result]) -> Iterator[Row]:
    table, planned = (results[each].tables().methods for each in (name, PLANNED[name]))
    for key, part in table.group_by(KEYS, maintain_order=True):
        which = dict(zip(KEYS, key, strict=True))
        mine = planned.filter(**which)
        first = part.row(0, named=True)
        facts = {each: first[each] for each in ("oracle_floor", "information_limit")}
        sides = {side: _side(each.row(part, mine)) for side, each in SIDES.items()}
        yield {**which, **facts, **{f"{side}_{what}": x for side, each in sides.items() for what, x in each.items()}}


def _side(row: Row) -> Row:
    held = (row["heldout_accepted"], row["heldout_unsupported"])
    low, high = (None, None) if held[0] is None else clopper_pearson(round(held[1]), round(held[0]))
    risk = None if not held[0] else held[1] / held[0]
    return {**{name: row[name] for name in SHOWN}, "heldout_risk": risk, "heldout_low": low, "heldout_high": high}


def csv(results: dict[str, Result]) -> str:
    """The table with everything."""
    return (
        pl.DataFrame(rows(results), infer_schema_length=None)
        .with_columns(pl.col(pl.Float64).round_sig_figs(6))
        .write_csv()
    )


def page(results: dict[str, Result]) -> str:
    """The page."""
    found = rows(results)
    crossed = (
        "Certificate and release apart: the old default's certificate on the paper's release certifies"
        f" {_most(results, PAPER[1], OLD[0])} in most trials, the paper's rule on the old default's release"
        f" {_most(results, OLD[1], PAPER[0])}."
    )
    parts = [
        "# What can be certified today", *honest.parts(), "## The paper's regime", lead(found), ABOUT, crossed, LIMITS,
        "### With all 30,000 records", ALL_NOTES, markdown(ALL_HEAD, [_with_all(row) for row in found]),
        "![Acceptance against target](acceptance.svg)",
        "### To the first certificate", FIRST_NOTES, markdown(FIRST_HEAD, [_to_first(row) for row in found]),
        "![Records to certification](records.svg)", *split_counts.section(found),
        f"The rest is made by `python -m research {' '.join((*STUDIES, *PLANNED.values()))}`.",
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def lead(found: list[Row]) -> str:
    """Say what the default does not certify, where it loses, and what is false, before anything else."""
    never = [row for row in found if not row["default_fired"]]
    hopeless = sum(row["oracle_floor"] > row["target_risk"] for row in never)
    most = {side: sum(mostly(row, side) for row in found) for side in SIDES}
    return "\n\n".join([
        f"Of {len(found)} combinations of population, target and epsilon, {len(never)} were never certified by the"
        f" default; in {hopeless} of these none of the 20 quantile thresholds with an acceptance of at least"
        f" 0.05 has so low a risk. It certifies"
        f" {most['default']} in most trials; the old default does in {most['old']}, and the paper's rule in"
        f" {most['paper']}."
        f" {split_counts.lead(found)}",
        _against_paper(found),
        f"Where it loses to the old default, in this split. {_less_often(found)}",
        _less_accepted(found),
        _more_records(found),
        _false(found),
    ])  # fmt: skip


def _against_paper(found: list[Row]) -> str:
    """Say where the rule that came first is better."""
    less_often = sum(row["default_fired"] < row["paper_all_fired"] for row in found)
    kept = compared(found, ("default", "paper_all"), "acceptance")
    return (
        f"Where it loses to the paper's rule. It certifies less often in {less_often} combinations. Of {kept.both} that"
        f" both certify in most trials, with all 30,000 records, it accepts less in {kept.less}, more in {kept.more}."
    )


def _less_often(found: list[Row]) -> str:
    lost = [row for row in found if row["default_fired"] < row["old_fired"]]
    each = "; ".join(
        f"{row['population']} at {row['target_risk']:.2f} and epsilon {words(row['epsilon'])}: {row['default_fired']}"
        f" trials beside {row['old_fired']}"
        for row in lost
    )
    gained = sum(row["default_fired"] > row["old_fired"] for row in found)
    return f"It certifies less often in {len(lost)} combinations{f' ({each})' if lost else ''}, more often in {gained}."


def _less_accepted(found: list[Row]) -> str:
    both, less, more = compared(found, ("default", "old_all"), "acceptance")
    private, free = apart(found)
    mine, public, exact = (
        compared(part, (side, "old_all"), "acceptance")
        for part, side in ((private, "default"), (private, "public"), (free, "default"))
    )
    return (
        f"With the same 30,000 records it accepts less in {less} of the {both} combinations that both certify in most"
        f" trials, more in {more}.\n\n* Without privacy: less in {exact.less} of {exact.both}, more in {exact.more}. An"
        " open plan keeps the seven thresholds that are certified soonest, where the old default tries 20.\n"
        f"* With privacy: less in {mine.less} of {mine.both}, more in {mine.more}. A sealed plan keeps up to five, on"
        " the word of noised development records. Planned on the exact ones, which choose the old default's thresholds"
        f" too, it accepts less in {public.less} of {public.both}, more in {public.more}, and certifies"
        f" {sum(mostly(row, 'public') for row in private)} of {len(private)} in most trials, the default"
        f" {sum(mostly(row, 'default') for row in private)}."
    )


def _more_records(found: list[Row]) -> str:
    private, free = (_takes(part) for part in apart(found))
    sooner = sum(mostly(row, "default") and mostly(row, "old") and row["old_records"] < 30_000 for row in found)
    return (
        f"It takes all 30,000 records, where the old default stops at its first certificate with fewer ({sooner}"
        f" combinations). Planned for few records, with privacy it takes {private}. Without privacy it takes {free}: it"
        " may look after 50 events then, the old default after 1,000. Development records count where they are said to:"
        " a plan reads their labels, the old default does not."
    )


def _takes(found: list[Row]) -> str:
    takes, whole, kept = few_beside_old(found, _labelled)
    return (
        f"more records than the old default in {takes.more} of {takes.both} combinations, fewer in {takes.less} (with"
        f" development records more in {whole.more}, fewer in {whole.less}), and accepts less in {kept.less}, more in"
        f" {kept.more}"
    )


def _labelled(row: Row) -> int:
    return next(count for name, count in LABELLED.items() if row["population"].startswith(name))


def _false(found: list[Row]) -> str:
    private, _ = apart(found)  # without privacy development is public anyway
    counts = {
        side: [sum(row[f"{side}_{what}"] for row in (private if side == "public" else found)) for what in ISSUED]
        for side in SIDES
    }
    wrong = ", ".join(
        f"{counts[side][0]} of {counts[side][1]:,} {name}"
        for side, name in (
            ("default", "of the default"), ("public", "planned on exact development records, with privacy"),
            ("few", "planned for few records"), ("old", "of the old default"),
            ("old_all", "of the old default with all records"), ("paper", "of the paper's rule"),
        )
    )  # fmt: skip
    certified = [row for row in found if row["default_fired"]]
    open_ = sum((row["default_heldout_high"] or 0.0) > row["target_risk"] for row in certified)
    (above, of), *others = (_above(found, side) for side in ("default", "old_all", "old", "paper_all"))
    old, first, paper = (f"{some} of {each}" for some, each in others)
    return (
        f"Certificates that were false for the population they were drawn from, where the truth is enumerated: {wrong}."
        f" That is not the same as new data: of the {of} combinations with a certificate of the default,"
        f" the held-out estimate is above target in {above}, and its interval reaches above target in {open_}. The"
        f" estimate is above target in {old} combinations of the old default with all records, in {first} at its first"
        f" certificate, and in {paper} of the paper's rule with all records: drawing each answer again and again brings"
        " a threshold nearer to the target on the answers that are drawn, and on no others."
    )


def _above(found: list[Row], side: str) -> tuple[int, int]:
    """Combinations with a held-out risk above target, of those with a certificate."""
    sure = [row for row in found if row[f"{side}_fired"]]
    return sum((row[f"{side}_heldout_risk"] or 0.0) > row["target_risk"] for row in sure), len(sure)


def _most(results: dict[str, Result], release: str, method: str) -> int:
    """Settings in which that method, on that release, certifies in most trials."""
    tables = [results[name].tables().methods.filter(policy="first") for name in STUDIES if name in results]
    here = (pl.col("release") == release) & (pl.col("method") == method) & (pl.col("fired") * 2 > pl.col("trials"))
    return sum(table.filter(here).height for table in tables)


def _figure(value: float | None, form: str) -> str:
    return "–" if value is None else "none" if value == float("inf") else format(value, form)


def _named(row: Row) -> list[str]:
    return [row["population"], f"{row['target_risk']:.2f}", words(row["epsilon"])]


def _certified(row: Row, side: str, *what: tuple[str, str]) -> list[str]:
    """How many trials a side certified, and means over them."""
    return [f"{row[f'{side}_fired']}", *(_figure(row[f"{side}_{name}"], form) for name, form in what)]


def _with_all(row: Row) -> list[str]:
    held = row["default_heldout_low"] is not None
    interval = f"[{row['default_heldout_low']:.3f}, {row['default_heldout_high']:.3f}]" if held else "–"
    return [
        *_named(row), _figure(row["oracle_floor"], ".3f"),
        *(cell for side in ALL_SIDES for cell in _certified(row, side, ("acceptance", ".3f"))),
        _figure(row["default_risk"], ".3f"), _figure(row["default_reuse"], ".1f"),
        _figure(row["default_heldout_risk"], ".3f"), interval,
        f"{row['default_heldout_exceeds']}/{row['default_fired']}" if held else "–",
    ]  # fmt: skip


def _to_first(row: Row) -> list[str]:
    records, acceptance = ("records", ",.0f"), ("acceptance", ".3f")
    return [
        *_named(row), _figure(row["information_limit"], ",.0f"), *_certified(row, "paper", records),
        *_certified(row, "old", records, acceptance), *_certified(row, "few", records, acceptance),
    ]  # fmt: skip
