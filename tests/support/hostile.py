"""Text that somebody hostile could put into a name, a reason or a claim, and a view that has it everywhere."""

from __future__ import annotations

import copy

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
    found["certificate"] = certificate.model_copy(update={"claim": claim, "sites": sites})
    for each in found["sites"]:
        each |= {"name": text, "reason": text}
    found["progress"] |= {"latest": [text], "turned_away": 1}
    found |= {"folder": text, "verify": text, "monitor": {"state": "alarm", "words": text}}
    return found
