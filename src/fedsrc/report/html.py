"""The card as one HTML page that loads nothing: server-rendered, every value escaped.

Its one script, by digest, refreshes a live page, or recomputes the run that a page carries."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedsrc.common import local_page
from fedsrc.common.words import count, plain
from fedsrc.report import charts, phrases
from fedsrc.report.carried import Carried
from fedsrc.report.panels import CHARTED
from fedsrc.report.parts import identity, parts, statistics
from fedsrc.report.standing import statuses
from fedsrc.report.view import View

VERIFIER = (
    "outcome", "bytes", "json", "zip", "toml", "schema", "numbers", "normal", "matrix", "basis", "privacy", "recruit",
    "mechanism", "contrasts", "quantiles", "registration", "tally", "betting", "binomial", "sealed", "stitched",
    "transcript", "replay", "printing", "words", "certificate", "verify", "page",
)  # fmt: skip
"""Files of the script that recomputes a run, each after those that it needs."""


def page(
    view: View | None, *, live: bool = False, problem: str = "", waiting: bool = False, carried: Carried | None = None
) -> str:
    """Render the whole page. A live one has the script that refreshes it; `problem` stands in for a missing card;
    `carried` is the run itself, to be saved from the page."""
    checks = carried is not None and bool(carried.link)
    shown = {"live": live, "carried": carried, "policy": policy(live=live, checks=checks)}
    values = _values(view, problem, waiting) | shown | {"css": _asset("card.css"), "script": _script(live, checks)}
    return _environment().get_template("page.html").render(values)


def verifier_page() -> str:
    """Render a page without a run: it recomputes the run of a card, or of the archive saved from one, that its reader
    chooses, and sends nothing anywhere."""
    values = {"policy": policy(live=False, checks=True), "css": _asset("card.css"), "script": verifier_script()}
    return _environment().get_template("verifier.html").render(values)


@lru_cache(maxsize=1)
def verifier_script() -> Markup:
    """Put the verifier's modules together as one script: without their imports and exports, in one scope."""
    folder = files("fedsrc.report").joinpath("verifier")
    data = {name: json.loads(folder.joinpath(f"{name}.json").read_bytes()) for name in ("schema", "words")}
    parts = [_unbound(folder.joinpath(f"{name}.js").read_text("utf-8")) for name in VERIFIER]
    script = "\n".join(['"use strict";', "(() => {", *parts, f"startPage({json.dumps(data)});", "})();"])
    assert not re.search("</|<!--", script)  # nothing ends the element early
    return Markup(script)  # noqa: S704 (our own files)


def _unbound(module: str) -> str:
    lines = module.splitlines()
    kept = [
        line.removeprefix("export ") for line in lines if line != '"use strict";' and not line.startswith("import ")
    ]
    return "\n".join(kept)


def fragment(view: View | None, *, problem: str = "", waiting: bool = False) -> str:
    """Render what the live page swaps in: the page's parts alone."""
    return _environment().get_template("card.html").render(**_values(view, problem, waiting), live=True, carried=None)


def policy(*, live: bool, header: bool = False, checks: bool = False) -> str:
    """Return the content security policy of the page: one that checks its run runs the verifier, and asks nobody."""
    return local_page.policy(_asset("card.css"), _script(live, checks), header=header, asks=live)


def _script(live: bool, checks: bool) -> Markup | None:
    """Return the one script of a page, if it has any."""
    if live:
        return _asset("live.js")
    return verifier_script() if checks else None


def news(view: View | None, problem: str = "") -> str:
    """Return one line for screen readers: it changes when a round closes or the status does."""
    if view is None:
        return problem
    certificate, progress = view["certificate"], view["progress"]
    bound = phrases.so_far(view) if view["evidence"]["rounds"] else "no bound yet"
    line = f"{view['status']}: round {progress['rounds']} of at most {progress['most_rounds']}: {bound}, target"
    return f"{line} {certificate.target_risk:g}; {count(certificate.records, certificate.privacy.unit)} used."


def _values(view: View | None, problem: str, waiting: bool) -> dict[str, Any]:
    values: dict[str, Any] = {
        "view": view, "problem": problem, "waiting": waiting, "news": news(view, problem),
        "title": view["status"] if view else "Waiting" if waiting else "No card",
    }  # fmt: skip
    if view is not None:
        drawn = {"thresholds": charts.threshold_chart(view), **_by_group(view)}
        drawn["progress"] = charts.round_chart(view) if view["certificate"].status == "OPEN" else ""
        values |= {
            "statuses": statuses(view), "identity": identity(view), "parts": parts(view),
            "statistics": statistics(view), "charts": {name: Markup(svg) for name, svg in drawn.items()},  # noqa: S704
        }  # fmt: skip
    return values


def _by_group(view: View) -> dict[str, str]:
    """Draw a chart for each group that is charted, by the id of its table."""
    groups = view["certificate"].by_group
    members = () if groups is None else groups.members[:CHARTED]
    each = {f"group-{i}": member for i, member in enumerate(members, start=1)}
    return {name: charts.threshold_chart(view, member, f"{name}-chart") for name, member in each.items()}


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("fedsrc.report"), autoescape=True, undefined=StrictUndefined, finalize=_shown,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def _shown(value: Any) -> Any:
    """Make text inert; whatever a template prints goes through here before it is escaped."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@lru_cache(maxsize=4)
def _asset(name: str) -> Markup:
    environment = _environment()
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])  # noqa: S704 (our own file)
