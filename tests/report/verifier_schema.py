"""The schema that the page's verifier reads: that of docs/format/schema.json, of a run alone, without its words.

Written again by `python -m tests.report.verifier_schema`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
WHOLE = ROOT / "docs/format/schema.json"
KEPT = ROOT / "src/fedsrc/report/verifier/schema.json"
PARTS = {
    "registration": "registration.toml", "entry": "transcript.jsonl, a line without n and prev",
    "certificate": "certificate.json", "revocation": "certificate.json.revoked",
}  # fmt: skip
RULES = {
    "$ref", "anyOf", "oneOf", "discriminator", "const", "enum", "type", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "items", "properties", "pattern", "minLength", "maxLength", "minItems", "maxItems",
}  # fmt: skip
LEFT_OUT = {
    "Claim": ["system", "issuer", "contact", "column", "scale"], "Schedule": ["growth"], "There": ["missed"],
    "OnDemand": ["missed", "hours", "twice", "disagreement"], "Development": ["labels"], "Noised": ["labels", "blocks"],
    "Bets": ["priors"], "Groups": ["own"], "Scores": ["checkpoints"], "OtherScore": ["scale", "checkpoints"],
    "registration.toml": ["unlabelled"], "Request": ["parts"], "Release": ["check", "labels"], "Absent": ["members"],
    "certificate.json": ["key", "signature", "missed", "panel"], "ThresholdBounds": ["log_wealth"],
    "PrivacyLoss": ["colluding", "sum_scale", "epsilon_among"], "PanelMember": ["scale", "checkpoints"],
}  # fmt: skip
"""By docs/format.md, Bytes: what is not written while it has its default."""


def kept() -> dict[str, Any]:
    """Return the schema as the page carries it."""
    whole = json.loads(WHOLE.read_bytes())
    return {name: _root(whole[part], part) for name, part in PARTS.items()}


def _root(schema: dict[str, Any], name: str) -> dict[str, Any]:
    parts = {each: _pruned(part, each) for each, part in schema.get("$defs", {}).items()}
    return {**_pruned(schema, name), "$defs": parts}


def _pruned(schema: Any, name: str = "") -> Any:
    if isinstance(schema, list):
        return [_pruned(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    rules = {rule: value for rule, value in schema.items() if rule in RULES}
    pruned = {rule: _pruned(value) for rule, value in rules.items() if rule not in ("properties", "discriminator")}
    if "discriminator" in rules:
        pruned["discriminator"] = rules["discriminator"]
    if "properties" in rules:
        pruned["properties"] = {each: _pruned(value) for each, value in rules["properties"].items()}
        left_out = {each: rules["properties"][each]["default"] for each in LEFT_OUT.get(name, [])}
        pruned |= {"left_out": left_out} if left_out else {}
    return pruned


def text() -> str:
    """Return the bytes of the file, as text."""
    return json.dumps(kept(), separators=(",", ":"), sort_keys=True) + "\n"


if __name__ == "__main__":
    KEPT.write_text(text(), encoding="utf-8")
