"""A certificate as a section of a model card: plain sentences, and the metadata that model hubs read (model-index)."""

from __future__ import annotations

import json

from fedsrc.common.words import plain
from fedsrc.protocol.certificate import Certificate
from fedsrc.report.markdown import fact_lines, inert, part_lines
from fedsrc.report.panels import BASE
from fedsrc.report.parts import identity, parts
from fedsrc.report.standing import certified_of
from fedsrc.report.view import View

SHOWN = ("groups", "scores", "plain", "assumptions", "limits", "check")
ANSWERS = ("how-sure", "data", "tries", "use", "if-wrong", "privacy")


def model_card(view: View) -> str:
    """Write the section, for a stranger: no folder of this machine, and no key that its maker trusts."""
    own = {"folder": "run", "verify": "fedsrc verify run", "check": {**view["check"], "trusted": False}}
    view, certificate = {**view, **own}, view["certificate"]
    named = inert if certificate.panel is not None else str
    found = [part for part in parts(view) if part.id in SHOWN and not part.empty]
    asked = (tuple(each for each in part.facts if part.id != "plain" or each.id in ANSWERS) for part in found)
    shown = ("\n".join(part_lines(p._replace(facts=f), named, level=3)) for p, f in zip(found, asked, strict=True))
    head = ["## Share of unsupported answers among those accepted", f"**{view['status']}**: {named(view['sentence'])}"]
    return "\n\n".join([*_metadata(certificate), *head, "\n".join(fact_lines(identity(view))), *shown]) + "\n"


def _metadata(certificate: Certificate) -> list[str]:
    """Return the YAML block, with what is certified and nothing else; none where nothing is. Texts are JSON strings,
    which YAML reads alike."""
    panel, groups = certificate.panel, certificate.by_group
    rows: list[tuple[str, float | None]] = []
    if groups is not None:
        rows = [(f"group: {each.name}", each.acceptance_lower) for each in groups.members if each.threshold is not None]
    elif certificate.threshold is not None:
        every = "every listed group" if panel is not None and panel.claim == "all" else ""
        rows = [(every, certificate.acceptance_lower)]
    if not rows:
        return []
    sure, base = f"{1 - certificate.failure_probability:.6g}", BASE["traffic" if panel is None else panel.floor]
    risk = _text(f"share of unsupported answers among those accepted, at most (confidence {sure})")
    accepted = _text(f"share of {base} that is accepted, at least (confidence {sure})")
    lines = ["---", "model-index:", f"- name: {_text(certificate.claim.system or 'not stated')}", "  results:"]
    lines += [f"  # {certified_of(certificate)} are certified, and only these are here"] if groups is not None else []
    for config, acceptance in rows:
        lines += ["  - task:", "      type: text-generation", "    dataset:", "      type: calibration-records"]
        lines += [f"      name: {_text(certificate.claim.population)}"]
        lines += [f"      config: {_text(config)}"] if config else []
        lines += ["    metrics:"]
        lines += ["    - type: selective_risk", f"      value: {certificate.target_risk!r}", f"      name: {risk}"]
        lines += ["    - type: acceptance_rate", f"      value: {acceptance!r}", f"      name: {accepted}"]
    return ["\n".join([*lines, "---"])]


def _text(said: str) -> str:
    return json.dumps(plain(said), ensure_ascii=False)
