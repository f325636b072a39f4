"""What the page on the capital heuristic's charge says is so.

Mutants killed: the charge left out, subtracted, or of all rounds so far in place of one; epsilon that is not divided;
a line for one threshold and for all swapped; trials that stop at another round than the study's.

Chance of a false alarm: none, seeds are fixed.
"""

from __future__ import annotations

import math

import polars as pl
import pytest

from research.pages import FIGURES, RESULTS
from research.studies import capital_charge as charge
from research.studies.catalogue import study_of

ONE, ALL = "fractions / alpha", "thresholds x fractions / alpha"
TRIALS = 4


def fired(epsilon: float) -> dict[tuple[str, str], int]:
    made = charge.outcomes(epsilon, TRIALS)
    return {key: sum(int(each.fired.sum()) for each in found) for key, found in made.items()}


@pytest.mark.parametrize(
    ("epsilon", "one", "for_all"),
    [(math.inf, TRIALS, TRIALS), (8.0, TRIALS, 0), (4.0, 0, 0)],
)
def test_with_the_boundary_as_charge_it_fires_where_the_papers_does(epsilon: float, one: int, for_all: int) -> None:
    found = fired(epsilon)
    assert (found[charge.BOUNDARY, ONE], found[charge.BOUNDARY, ALL]) == (one, for_all)
    assert (found[charge.AS_PRINTED, ONE], found[charge.AS_PRINTED, ALL]) == (TRIALS, TRIALS)


def test_without_a_charge_it_is_the_study_and_with_epsilon_divided_it_takes_longer() -> None:
    """On the study's first block, trial by trial."""
    study = study_of("capital")
    setting = [(each.epsilon, each.rounds) for each in study.settings].index((2.0, charge.ROUNDS))
    here = (pl.col("setting") == setting) & (pl.col("method") == "capital") & (pl.col("trial") < study.block)
    kept = pl.read_parquet(FIGURES / "studies" / "capital.parquet").filter(here).sort("trial")
    found = {key: block for key, (block,) in charge.outcomes(2.0, study.block).items()}
    same = found[charge.AS_PRINTED, ALL]
    assert (same.rounds == kept["look"].to_numpy()).all()
    assert same.acceptance == pytest.approx(kept["acceptance"].to_numpy())
    assert (found[charge.AS_PRINTED, ONE].rounds < same.rounds).all()
    assert 0 < found[charge.DIVIDED, ONE].fired.sum() < study.block


@pytest.mark.thorough
def test_the_page_recomputes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, str] = {}
    monkeypatch.setattr(charge, "publish", lambda name, parts: made.update({name: "\n\n".join(parts) + "\n"}))
    charge.main()
    assert made == {"capital-charge.md": (RESULTS / "capital-charge.md").read_text(encoding="utf-8")}
