"""Text that somebody hostile could put into a name, a reason or a claim, and a view that has it everywhere."""

from __future__ import annotations

import copy
from typing import Any

from fedsrc.protocol.certificate import Certificate
from fedsrc.report.view import View

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "]](javascript:alert(1)) **bold** `code` | cell | https://evil.example/ ![x](https://evil.example/i.png)",
    "\u202egnp.exe \u2066isolated\u2069 \u200f",
    "שלום عالم",
    "\x1b[31mred\x1b]0;title\x07\r\n\x00",
    "# heading\n- list\n```",
    "{{ 7 * 7 }} {% raw %}",
    "&lt;b&gt; &#60;script&#62;",
    "x" * 10_000,
    "a" + "\u0301" * 90,
]


def poisoned(view: View, text: str) -> View:
    """The view with that text in every place that somebody else can fill."""
    found = copy.deepcopy(view)
    certificate: Certificate = found["certificate"]
    fields = ("system", "issuer", "contact", "score", "loss", "population")
    claim = certificate.claim.model_copy(update=dict.fromkeys(fields, text))
    sites = tuple(site.model_copy(update={"name": text}) for site in certificate.sites)
    found["certificate"] = certificate.model_copy(update={"claim": claim, "sites": sites, **_panel(found, text)})
    for each in found["sites"]:
        each |= {"name": text, "reason": text}
    found["progress"] |= {"latest": [text], "turned_away": 1}
    rung = () if certificate.panel is None else (text,)
    found |= {"folder": text, "verify": text, "monitor": {"state": "alarm", "words": text, "groups": rung}}
    return found


def _panel(view: View, text: str) -> dict[str, Any]:
    """What a panel's names stand in: its members and column, the sentence, and the assumptions."""
    certificate: Certificate = view["certificate"]
    panel = certificate.panel
    if panel is None:
        return {}
    members = tuple(each.model_copy(update={"name": text}) for each in panel.members)
    picked = None if panel.picked is None else text
    for each in view["evidence"]["groups"]:
        each["name"] = text
    view["evidence"]["score"] = view["evidence"]["score"] and text
    view |= {"struck": f"Of {text!r}.", "sentence": f"Of {text!r}."}
    assumed = tuple(each.model_copy(update={"what": f"column {text!r}"}) for each in certificate.assumptions)
    panel = panel.model_copy(update={"members": members, "column": text, "picked": picked})
    return {"panel": panel, "assumptions": assumed}
