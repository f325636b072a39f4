"""Attacks on words: shares called by another name, bounds shown that are not proved, a line that does not stay reached,
a limit that can be beaten, and what epsilon, delta and neighbours are.

Chance of a false alarm: none, everything is computed from fixed numbers.
Mutants killed: weights of sources called shares of traffic; other targets in the evidence of a changing mixture;
reached for ever after; the limit without its condition; a replacement epsilon of the zero-out sensitivity, or of
another delta; a study that hides its release or its one split.
"""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from fedsrc.audit.page import notes_on
from fedsrc.audit.study import Study
from fedsrc.common.words import ADJACENCY
from fedsrc.errors import FedsrcError
from fedsrc.maths import limits
from fedsrc.maths.basis import Basis, sensitivity_squared
from fedsrc.maths.privacy import epsilon_tight, rho_tight
from fedsrc.planning.forecast import Forecast
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.disclosure import epsilon_against, privacy_words
from fedsrc.protocol.messages import Link, Request
from fedsrc.protocol.registration import Registration
from fedsrc.protocol.transcript import Announced, Arrived, Asked, Chain, Closed, Ended, Opened
from fedsrc.report import card, phrases
from fedsrc.server.issue import issue
from fedsrc.server.state import Replay
from fedsrc.server.wording_2 import limits as unsaid
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow, cost, describe_registration
from tests.support import ROOT
from tests.support.helpers import registration, release_of, single_units

FIELDS = registration(thresholds=1, grid=True, epsilon=math.inf).model_dump()
DOCS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}


def sites(weights: list[float | None], privacy: dict[str, Any] | None = None, **schedule: Any) -> Registration:
    """A registration at the threshold 0.5, of these sites."""
    return Registration.model_validate(
        {
            **FIELDS,
            "sites": [{"name": f"s{k}", "weight": weight} for k, weight in enumerate(weights)],
            "privacy": {**FIELDS["privacy"], **(privacy or {})},
            "schedule": {**FIELDS["schedule"], "batch": 200, "policy": "final", "rounds": 2, **schedule},
        }
    )


def played(reg: Registration, rounds: list[list[int]]) -> Replay:
    """A run in which every site gives 200 accepted records a round, so many of them unsupported."""
    replay = Replay(reg)
    replay.step(Opened(registration=reg.digest))
    for site in reg.sites:
        replay.step(Announced(site=site.name, units=1000))
    links = {site.name: Link() for site in reg.sites}
    for number, bad in enumerate(rounds, start=1):
        asked: list[Request] = replay.plan()
        for request in asked:
            replay.step(Asked(request=request))
        for request, n in zip(asked, bad, strict=True):
            units = single_units([0.9] * request.slots, [1.0] * n + [0.0] * (request.slots - n))
            release = release_of(reg, request, units, links[request.site])
            links[request.site] = Link(release.place + 1, release.digest)
            replay.step(Arrived(release=release))
        replay.step(Closed(round=number))
    reason = replay.why_over()
    if reason is not None:
        replay.step(Ended(reason=reason))
    return replay


# ---------------------------------------------------------------- V3: weights with answers are shares of sources


BY_ANSWERS = {"unit": "source", "max_answers": 5, "answer_weight": "answer"}


def body_of(reg: Registration, replay: Replay | None = None) -> Certificate:
    return issue(reg, replay or Replay(reg), Chain())


def test_weights_of_sources_are_called_so() -> None:
    """The attack: half the answers from each site, risk 20% of all answers, "at most 15%" by weights of a half."""
    reg = sites([0.5, 0.5], BY_ANSWERS, rounds=1)
    body = body_of(reg, played(reg, [[0, 0]]))
    assert body.status == "CERTIFIED"
    assert "are unsupported (sites weighted by sources);" in body.statement
    assert any("declared weights, as shares of sources" in each.what for each in body.assumptions)
    assert any(line.startswith("The sites' shares are shares of sources, not of answers") for line in unsaid(reg))
    assert "declared weights of sources" in card.card_text(body)
    assert "shares of sources above" in str(body_of(sites([None, None], BY_ANSWERS)).assumptions)


@pytest.mark.parametrize("reg", [sites([0.5, 0.5]), sites([None], BY_ANSWERS), sites([None, None])])
def test_where_there_is_nothing_to_say_nothing_is_said(reg: Registration) -> None:
    assert "not of answers" not in str(unsaid(reg))
    assert "as shares of sources" not in str(body_of(reg).assumptions)


def test_converted_weights_give_the_share_of_answers() -> None:
    """As docs/theory.md (v) converts them: answers per source 5 and 1, risks 5% and 35%, half the answers each."""
    risk, per_source, share = np.array([0.05, 0.35]), np.array([5.0, 1.0]), np.array([0.5, 0.5])

    def certified(w: Any) -> float:
        return float((w * per_source * risk).sum() / (w * per_source).sum())

    weights = share / per_source / (share / per_source).sum()
    assert certified(weights) == pytest.approx(share @ risk) == pytest.approx(0.2)
    assert certified(share) == pytest.approx(0.1)
    assert weights == pytest.approx([1 / 6, 5 / 6])


# ---------------------------------------------------------------- V4, V5: a mixture that changes


def view_of(reg: Registration, values: list[float]) -> dict[str, Any]:
    """As much of a view as its evidence rows need; the line is at 1."""
    return {
        "certificate": body_of(reg),
        "evidence": {
            "measure": "log-wealth",
            "line": 1.0,
            "rounds": [
                {"round": t, "records": 400 * t, "value": v, "risk_upper": 1.0} for t, v in enumerate(values, start=1)
            ],
        },
    }


def test_evidence_shows_only_what_is_proved() -> None:
    rounds = [[2, 2], [90, 90]]
    free, declared = played(sites([None, None]), rounds), played(sites([0.5, 0.5]), rounds)
    assert [each.risk_upper for each in free.trace] == [0.2, 1.0]
    assert declared.trace[0].risk_upper < 0.1
    assert declared.trace[1].risk_upper == declared.trace[0].risk_upper
    assert (free.status, declared.status) == ("ABSTAIN", "CERTIFIED")


def test_what_is_reached_may_be_lost_where_the_mixture_changes() -> None:
    def reached(weights: list[float | None]) -> list[bool]:
        return [row["reached"] for row in phrases.evidence_rows(view_of(sites(weights), [0.5, 1.5, 0.2])).rows]

    assert reached([None, None]) == [False, True, False]
    assert reached([0.5, 0.5]) == reached([None]) == [False, True, True]


def test_the_card_says_what_a_round_speaks_of() -> None:
    text = card.card_text(body_of(sites([None, None])))
    assert "claim nothing" not in text
    assert "of the target 0.2 alone" in phrases.progress_words(body_of(sites([None, None])))
    assert phrases.progress_words(body_of(sites([None]))) == ""


# ---------------------------------------------------------------- V6: the limit holds for draws of the mixture


def test_known_sites_beat_the_limit_for_draws_of_the_mixture() -> None:
    """Weights 0.9 and 0.1, risks 0 and 1, target 0.2: the figures of the theory, (viii)."""

    def information(x: float) -> float:  # risks x and y, whose mixture is at the target
        y = (0.2 - 0.9 * x) / 0.1
        return math.inf if not 0 < y <= 1 else 0.9 * limits.kl(0.0, x) + 0.1 * limits.kl(1.0, y)

    grid = np.linspace(1 / 9, 0.2222, 10_001)
    known = math.log(20) / min(information(float(x)) for x in grid)
    mixture = limits.records_single(1.0, 0.1, 0.2, 0.05)
    assert mixture == pytest.approx(81.65, abs=0.01)
    assert known == pytest.approx(28.26, abs=0.01)
    page = (ROOT / "docs" / "theory" / "08-limits.md").read_text(encoding="utf-8")
    assert "=81.6$" in page
    assert "the limit is 28.3" in page


def test_the_limit_is_said_with_its_condition() -> None:
    assert "any method" not in str(limits.__doc__)
    assert "draws of the mixture" in str(limits.__doc__)
    found = Forecast(0.2, 4.0, 800, 1200, 2, 400, 1.0, 0.5, 166.0, 24_000)
    assert "told the best threshold, not the sites: 166" in found.sentence()


# ---------------------------------------------------------------- V9: releases and splits


STUDY = """
name = "n"
trials = 2
methods = ["fed-src-c"]
[[populations]]
name = "a"
records = 100
unsupported = 0.4
auc = 0.8
about = "x"
[setting]
"""


def notes(more: str) -> str:
    import polars as pl

    study = Study.from_toml(STUDY + more)
    return " ".join(notes_on(study, pl.DataFrame({"conditional": [False], "not_met": [""]})))


def test_a_summary_says_which_release_and_how_many_splits() -> None:
    assert "names no release, so every method reads the paper's" in notes("")
    assert "names no release" not in notes('release = "paper"')
    assert "One split" in notes('draw = "once"')
    assert "One split" not in notes("")
    assert "One split for all trials" in DOCS["audit.md"]


# ---------------------------------------------------------------- P5: epsilon, delta and neighbours


@pytest.mark.parametrize(("epsilon", "other"), [(1.0, 0.691), (4.0, 2.727)])
def test_the_other_epsilon_stands_beside_the_registered_one(epsilon: float, other: float) -> None:
    """Half the rho of the default release; against the sensitivities by search, tests/maths/test_basis.py."""
    reg = registration(epsilon=epsilon)
    assert epsilon_against(reg, "replacement") == epsilon  # any record could have been any other: what is registered
    found = epsilon_against(reg, "zero-out")
    assert found == pytest.approx(epsilon_tight(reg.mechanism.rho / 2, 1e-6), abs=1e-6)
    assert found == pytest.approx(other, abs=0.001)
    body = body_of(reg)
    assert (body.privacy.replacement_epsilon, body.privacy.zero_out_epsilon) == (epsilon, found)
    words = f"against one record being this one, or one that scores below every threshold: epsilon {other}"
    public = "how many records each site has is public"
    for shown in (card.card_text(body), "\n".join(describe_registration(reg, reg.sites[0].name)), privacy_words(reg)):
        assert words in shown
        assert public in shown
        assert "one record being this one or any other" in shown
    assert f"{other}" in DOCS["guarantee.md"]
    assert f"{other}" in DOCS["choosing.md"]


def test_the_table_of_epsilons_is_what_registrations_say() -> None:
    """Zero-out to three digits; e^epsilon to two, and to the thousand at 8."""
    zero_out = {e: f"{epsilon_against(registration(epsilon=e), 'zero-out'):.3f}" for e in (0.5, 1.0, 2.0, 4.0, 8.0)}
    assert f"| 0.5 to 1 | {zero_out[0.5]} to {zero_out[1.0]} | {math.exp(0.5):.1f} to {math.exp(1.0):.1f} times |" in (
        table := DOCS["choosing.md"]
    )
    assert (
        f"| 2 to 4 | {zero_out[2.0]} to {zero_out[4.0]} | {math.exp(2.0):.0f} to {math.exp(4.0):.0f} times |" in table
    )
    assert f"| 8 | {zero_out[8.0]} | {round(math.exp(8.0), -3):,.0f} times |" in table


def test_other_registrations_have_their_own() -> None:
    free, paper = registration(epsilon=math.inf), registration(epsilon=4.0, preset="paper")
    assert math.isinf(epsilon_against(free, "replacement"))
    assert "any other" not in card.card_text(body_of(free))
    basis = Basis("bins", len(paper.thresholds.values), paper.histograms.basis_bits)
    zero_out, replaced = (sensitivity_squared(basis, "paired", each) for each in ("zero-out", "replacement"))
    rho = paper.mechanism.rho * replaced / zero_out
    assert epsilon_against(paper, "replacement") == pytest.approx(epsilon_tight(rho, 1e-6), abs=1e-6)
    assert epsilon_against(paper, "zero-out") == 4.0


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_a_sites_limit_is_for_any_other_whatever_is_registered(tmp_path: Path, preset: str) -> None:
    """The same noise costs the same, under whatever name; by search, tests/maths/test_basis.py."""
    one, two = (registration(epsilon=2.0, preset=preset, adjacency=each) for each in ("replacement", "zero-out"))
    assert cost(two) > 1.4 * cost(one)  # half the variance
    if preset == "default":
        assert cost(one) == pytest.approx(2.0, abs=1e-6)
        assert cost(two) == pytest.approx(epsilon_against(two, "replacement"), abs=1e-6)
    with closing(Ledger(tmp_path / "l")) as ledger:
        allow(ledger, "local", one, max_epsilon=2.0)
        with pytest.raises(FedsrcError, match="for one record being this one or any other"):
            allow(ledger, "local", two)


def test_delta_is_not_the_chance_outside_which_epsilon_holds() -> None:
    """The loss of the Gaussian at (1, 1e-6) is normal with mean rho and variance 2 rho."""
    rho = rho_tight(1.0, 1e-6)
    beyond = norm.sf((1.0 - rho) / math.sqrt(2 * rho))
    assert beyond > 4e-6
    for name, text in DOCS.items():
        assert "outside which epsilon holds" not in text, name
        assert "being there or not" not in text, name
        assert "up to a chance of delta" not in " ".join(text.split()), name
    assert "being there or not" not in str(ADJACENCY)
