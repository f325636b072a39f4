"""The card as one HTML page that loads nothing: server-rendered, no script unless it is live, every value escaped."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedsrc.common import local_page
from fedsrc.common.words import ADJACENCY, count, plain
from fedsrc.report import charts, phrases
from fedsrc.report.view import View

IN_WORDS = (
    count, phrases.other_epsilon_words, phrases.left_at, phrases.left_words, phrases.line_words, phrases.mixture_words,
    phrases.cohort_words, phrases.used_words,
    phrases.progress_words, phrases.renewal_words, phrases.revoked_words, phrases.statistician_words,
    phrases.value_words,
)  # fmt: skip


def page(view: View | None, *, live: bool = False, problem: str = "", waiting: bool = False) -> str:
    """Render the whole page. A live one has the script that refreshes it; `problem` stands in for a missing card."""
    values = _values(view, problem, waiting) | {"live": live, "policy": policy(live=live)}
    return _environment().get_template("page.html").render(values, css=_asset("card.css"), script=_asset("live.js"))


def fragment(view: View | None, *, problem: str = "", waiting: bool = False) -> str:
    """Render what the live page swaps in: the page's parts alone."""
    return _environment().get_template("card.html").render(**_values(view, problem, waiting), live=True)


def policy(*, live: bool, header: bool = False) -> str:
    """Return the content security policy of the page."""
    return local_page.policy(_asset("card.css"), _asset("live.js") if live else None, header=header)


def news(view: View | None, problem: str = "") -> str:
    """Return one line for screen readers: it changes when a round closes or the status does."""
    if view is None:
        return problem
    certificate, progress, evidence = view["certificate"], view["progress"], view["evidence"]
    line = f"{view['status']}: round {progress['rounds']} of at most {progress['most_rounds']} closed,"
    line += f" {count(certificate.records, certificate.privacy.unit)} used."
    if evidence["rounds"] and evidence["measure"] == "log-wealth":
        last = evidence["rounds"][-1]["value"]
        line += f" Wealth {phrases.wealth_words(last)}; the line is {phrases.wealth_words(evidence['line'])}."
    return line


def _values(view: View | None, problem: str, waiting: bool) -> dict[str, Any]:
    values: dict[str, Any] = {
        "view": view, "problem": problem, "waiting": waiting, "news": news(view, problem), "drawn": charts.can_draw(),
        "title": view["status"] if view else "Waiting" if waiting else "No card",
    }  # fmt: skip
    if view is not None:
        values |= {
            "certificate": view["certificate"], "unit": view["certificate"].privacy.unit,
            "evidence": phrases.evidence_rows(view), "thresholds": phrases.threshold_rows(view),
            "sites": phrases.site_rows(view),
            "also": [] if view["check"]["revoked"] else phrases.also_rows(view["certificate"]),
            "strongest": "" if view["check"]["revoked"] else phrases.strongest_words(view["certificate"]),
            "evidence_chart": Markup(charts.evidence_chart(view) if charts.can_draw() else ""),  # noqa: S704
            "threshold_chart": Markup(charts.threshold_chart(view) if charts.can_draw() else ""),  # noqa: S704
        }  # fmt: skip
    return values


@lru_cache(maxsize=1)
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("fedsrc.report"), autoescape=True, undefined=StrictUndefined, finalize=_shown,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {"percent_down": phrases.percent_down, "repr": repr, "wealth": phrases.wealth_words}
    made.globals |= {"against": ADJACENCY, **{each.__name__: each for each in IN_WORDS}}
    return made


def _shown(value: Any) -> Any:
    """Make text inert; whatever a template prints goes through here before it is escaped."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@lru_cache(maxsize=4)
def _asset(name: str) -> Markup:
    environment = _environment()
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])  # noqa: S704 (our own file)
