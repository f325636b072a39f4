"""What can be certified today: each source once first, then every real population, target and epsilon in the paper's
regime, under its rule and ours."""

from __future__ import annotations

from typing import Any

import polars as pl

from fedsrc.audit.page import markdown
from fedsrc.maths.binomial import clopper_pearson
from research.studies import honest
from research.studies.results import Result

STUDIES = ("today-ragtruth", "today-halueval")
PAPER, OURS = ("fed-src-c", "paper"), ("betting-ladder", "default")
KEYS = ("population", "target_risk", "epsilon")
HEAD = [
    "population", "target", "epsilon", "floor", "limit", "paper: certified", "records", "ours: certified", "records",
    "acceptance", "risk", "reuse", "held-out risk", "95% interval", "held-out above target",
]  # fmt: skip
LIMITS = (
    "What limits it. Three things, in this order. *The score*: no certificate goes below the oracle floor, the least"
    " risk of any threshold with enough acceptance, and near the floor it needs more records than exist; where a target"
    " is never certified, the score does not separate well enough. *Records*: these are events drawn with replacement"
    " from a few hundred to a few thousand labelled answers; 'reuse' says how often each was drawn. An epsilon then"
    " protects one event, not the answer behind it. With every source used once there are too few of them for the"
    " stricter targets (above). *Privacy*: at epsilon 1 the noise, not the sampling, decides how many records"
    " are needed."
)
NOTES = (
    "'Floor' is the least risk of any threshold with acceptance of at least 0.05; 'limit' is the fewest records, on"
    " average and without privacy, that any method needs that is told the best threshold. Records, acceptance and risk"
    " are means over trials that certified; sites answer 200 at a time, so nothing can be certified before 1,000."
    " 'Held-out above target' counts certified trials whose threshold has a held-out risk above target; the interval of"
    " held-out risk is exact for the mean counts of held-out answers accepted and unsupported, rounded. RAGTruth QA is"
    " scored by *familiarity*, 1 / (1 + the number of distinct content words of the response that neither question nor"
    " evidence holds): it needs no model, so that anyone can make the table. It was not chosen blindly: an earlier page"
    " had shown that it ranks mistral's answers well. The RAGTruth test rows draw answers as independent events"
    " although six of them share a source. HaluEval is scored by lift, and answer length alone does better than lift on"
    " its question answering ([scores](scores-halueval.md))."
)


def rows(results: dict[str, Result]) -> list[dict[str, Any]]:
    """One row per population, target and epsilon: the paper's rule and ours."""
    made = []
    for name in STUDIES:
        if name not in results:
            continue
        table = results[name].tables().methods
        for key, part in table.group_by(KEYS, maintain_order=True):
            sides = {side: _side(part, *which) for side, which in (("paper", PAPER), ("ours", OURS))}
            first = part.row(0, named=True)
            shared = {"oracle_floor": first["oracle_floor"], "information_limit": first["information_limit"]}
            both = {f"{side}_{what}": value for side, found in sides.items() for what, value in found.items()}
            made.append({**dict(zip(KEYS, key, strict=True)), **shared, **both})
    return made


def _side(part: pl.DataFrame, method: str, release: str) -> dict[str, Any]:
    row = part.filter((pl.col("method") == method) & (pl.col("release") == release)).row(0, named=True)
    names = ("fired", "trials", "failures", "violations", "records", "acceptance", "risk", "reuse", "heldout_exceeds")
    held = (row["heldout_accepted"], row["heldout_unsupported"])
    low, high = (None, None) if held[0] is None else clopper_pearson(round(held[1]), round(held[0]))
    risk = None if not held[0] else held[1] / held[0]
    return {**{name: row[name] for name in names}, "heldout_risk": risk, "heldout_low": low, "heldout_high": high}


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
    ours, paper = (sum(row[f"{side}_fired"] > row[f"{side}_trials"] / 2 for row in found) for side in ("ours", "paper"))
    failures = sum(row["ours_failures"] + row["paper_failures"] for row in found)
    above = [row for row in found if (row["ours_heldout_risk"] or 0.0) > row["target_risk"]]
    open_ = [row for row in found if (row["ours_heldout_high"] or 0.0) > row["target_risk"]]
    certified = sum(row["ours_fired"] > 0 for row in found)
    lead = (
        f"Of {len(found)} combinations of population, target and epsilon, the default (our certificate on our release)"
        f" certifies {ours} in most trials, the paper's rule on the paper's release {paper}. {failures} of all"
        " certificates were false for the population they were drawn from, where the truth is enumerated. That is not"
        f" the same as new data: of the {certified} combinations with a certificate of ours, the held-out estimate is"
        f" above target in {len(above)}, and its interval reaches above target in {len(open_)}."
    )
    crossed = (
        f"Certificate and release apart: ours on the paper's release certifies {_most(results, PAPER[1], OURS[0])} in"
        f" most trials, the paper's rule on ours {_most(results, OURS[1], PAPER[0])}."
    )
    parts = [
        "# What can be certified today", *honest.parts(), "## The paper's regime", lead, crossed, LIMITS, NOTES,
        markdown(HEAD, [_line(row) for row in found]),
        "![Records to certification](records.svg)", "![Acceptance against target](acceptance.svg)",
        "Made by `python -m research today-ragtruth today-halueval`.",
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _most(results: dict[str, Result], release: str, method: str) -> int:
    """Settings in which that method, on that release, certifies in most trials."""
    tables = [results[name].tables().methods for name in STUDIES if name in results]
    here = (pl.col("release") == release) & (pl.col("method") == method) & (pl.col("fired") * 2 > pl.col("trials"))
    return sum(table.filter(here).height for table in tables)


def _line(row: dict[str, Any]) -> list[str]:
    def figure(name: str, form: str) -> str:
        value = row[name]
        return "–" if value is None else "none" if value == float("inf") else format(value, form)

    interval = (
        "–" if row["ours_heldout_low"] is None else f"[{row['ours_heldout_low']:.3f}, {row['ours_heldout_high']:.3f}]"
    )
    return [
        row["population"], f"{row['target_risk']:.2f}", figure("epsilon", "g"),
        figure("oracle_floor", ".3f"), figure("information_limit", ",.0f"),
        f"{row['paper_fired']}/{row['paper_trials']}", figure("paper_records", ",.0f"),
        f"{row['ours_fired']}/{row['ours_trials']}", figure("ours_records", ",.0f"),
        figure("ours_acceptance", ".3f"), figure("ours_risk", ".3f"), figure("ours_reuse", ".1f"),
        figure("ours_heldout_risk", ".3f"), interval,
        "–" if row["ours_heldout_low"] is None else f"{row['ours_heldout_exceeds']}/{row['ours_fired']}",
    ]  # fmt: skip
