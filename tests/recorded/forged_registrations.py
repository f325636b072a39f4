"""Forged registrations: other values, the same in other bytes, and whole runs made anew under other values."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import ValidationError

from fedsrc.common.canonical import digest
from fedsrc.common.signing import public_hex
from fedsrc.protocol.names import REGISTRATION
from fedsrc.protocol.registration import Registration
from tests.recorded.forger import EVIL, Files, Forge, Original, Plain, issued, original, resigned, to_toml

Change = Callable[[Plain], Any]  # changes fields in place; None where it makes no sense


def _put(section: str, name: str, new: Any) -> Change:
    def change(fields: Plain) -> Any:
        inner = fields if not section else fields.get(section)
        if inner is None or name not in inner:
            return None
        inner[name] = new(inner[name]) if callable(new) else new
        return fields

    return change


def _site(name: str, new: Any) -> Change:
    def change(fields: Plain) -> Any:
        if name not in fields["sites"][0]:
            return None
        old = fields["sites"][0][name]
        fields["sites"][0][name] = new(old) if callable(new) else new
        return fields

    return change


def weights_swapped(fields: Plain) -> Any:
    """Move weight from one site to another."""
    sites = fields["sites"]
    if "weight" not in sites[0] or len(sites) < 2:
        return None
    sites[0]["weight"], sites[1]["weight"] = sites[0]["weight"] + 0.1, sites[1]["weight"] - 0.1
    return fields


def target_raised(fields: Plain) -> Any:
    """Raise the target, wherever it stands."""
    fields["claim"]["target_risk"] = 0.45
    method = fields["certificate"]
    if "ladder" in method:
        method["ladder"] = [0.45] if len(method["ladder"]) == 1 else [*(x for x in method["ladder"] if x < 0.45), 0.45]
    if "targets" in method:
        method["targets"][0]["risk"] = 0.45
    if "risk" in method:
        method["risk"] = 0.45
    return fields


def weights_of_thresholds(fields: Plain) -> Any:
    weights = fields["thresholds"]["weights"]
    if len(weights) < 2:
        return None
    weights[0], weights[1] = weights[0] / 2, weights[1] + weights[0] / 2
    return fields


def server_key_gone(fields: Plain) -> Any:
    return None if fields.pop("server_key", None) is None else fields


def site_keys_gone(fields: Plain) -> Any:
    there = [site for site in fields["sites"] if site.pop("key", None) is not None]
    held = fields["aggregation"].pop("key", None)
    return fields if (there or held) and fields["aggregation"]["kind"] != "cohorts" else None


def site_added(fields: Plain) -> Any:
    if "weight" in fields["sites"][0] or fields["aggregation"]["kind"] == "cohorts":
        return None
    fields["sites"].append({**fields["sites"][-1], "name": "elsewhere"})
    return fields


CHANGES: dict[str, Change] = {
    "target": target_raised,
    "floor": _put("claim", "min_acceptance", lambda floor: floor / 2),
    "failure": _put("claim", "failure_probability", 0.5),
    "validity": _put("claim", "validity_days", 36_500),
    "population": _put("claim", "population", "everything"),
    "issuer": lambda fields: fields["claim"].update(issuer="somebody else") or fields,
    "threshold": _put("thresholds", "values", lambda values: [*values[:-1], round(values[-1] + 0.001, 3)]),
    "threshold-weights": weights_of_thresholds,
    "origin": _put("thresholds", "origin", "declared"),
    "budget": _put("certificate", "risk_budget", lambda budget: budget / 2),
    "epsilon": _put("privacy", "epsilon", lambda epsilon: epsilon / 2),
    "delta": _put("privacy", "delta", lambda delta: delta / 10),
    "adjacency": _put("privacy", "adjacency", lambda old: "zero-out" if old != "zero-out" else "replacement"),
    "batch": _put("schedule", "batch", lambda batch: batch + 1),
    "rounds": _put("schedule", "rounds", lambda rounds: rounds + 1),
    "policy": _put("schedule", "policy", lambda policy: "final" if policy == "first" else "first"),
    "dropout": _put("schedule", "dropout", lambda old: "adversarial" if old == "independent" else "independent"),
    "weights": weights_swapped,
    "capacity": _site("capacity", lambda units: units * 2),
    "drift": _site("drift", lambda drift: drift / 2 if drift else 0.02),
    "site-name": _site("name", "elsewhere"),
    "site-added": site_added,
    "site-key": _site("key", public_hex(EVIL)),
    "site-keys-gone": site_keys_gone,
    "server-key": _put("", "server_key", public_hex(EVIL)),
    "server-key-gone": server_key_gone,
    "renews": lambda fields: fields.update(renews="c" * 64) or fields,
    "missed": lambda fields: fields["labelling"].update(missed=0.5) or fields,
}  # fmt: skip


def put(change: Change, run: Original) -> Files | None:
    """Another registration in the folder, and nothing else."""
    fields = change(run.registered)
    return None if fields in (None, run.registered) else run.put(registration=to_toml(fields))


def rehashed(change: Change, run: Original) -> Files | None:
    """The whole run under another registration: every digest made anew, and the certificate issued for it. Whatever a
    site has signed is signed by somebody else."""
    fields = change(run.registered)
    if fields in (None, run.registered) or run.certificate is None:
        return None
    try:
        registered = Registration.model_validate(fields)
    except ValidationError:
        return None
    return issued(run, _under(registered, run.entries), registered)


def _under(registered: Registration, entries: list[Plain]) -> list[Plain]:
    """Entries that name another registration: requests have other digests then, and releases other places."""
    requests, releases, made = dict[str, str](), dict[str, str](), copy.deepcopy(entries)

    def moved(release: Plain) -> Plain:
        old = digest(release)
        new = {**release, "request": requests.get(release["request"], release["request"])}
        new["before"] = releases.get(release["before"], release["before"])
        new = resigned(new, EVIL) if release["signature"] else new
        releases[old] = digest(new)
        return new

    for each in made:
        if each["kind"] == "opened":
            each["registration"] = registered.digest
        if each["kind"] == "asked":
            old = digest(each["request"])
            each["request"]["registration"] = registered.digest
            requests[old] = digest(each["request"])
        if each.get("release"):
            each["release"] = moved(each["release"])
        if each.get("members"):
            each["members"] = [moved(member) for member in each["members"]]
        if each["kind"] in ("absent", "summed"):
            each["request"] = requests.get(each["request"], each["request"])
    return made


def _text(change: Callable[[bytes], bytes], run: Original) -> Files | None:
    made = change(run.files[REGISTRATION])
    return None if made == run.files[REGISTRATION] else run.put(registration=made)


def _in_other_order(text: bytes) -> bytes:
    """The first two fields of a table in the other order."""
    return re.sub(rb"(?m)^(\[claim\]\n)(.*\n)(.*\n)", rb"\1\3\2", text, count=1)


def _without_claims(text: bytes) -> bytes:
    return text.replace(b'[claims]\nkind = "one"\n', b"", 1)


TEXTS: dict[str, Callable[[bytes], bytes]] = {
    "comment": lambda text: b"# genuine\n" + text,
    "head-of-another": lambda text: re.sub(rb"(?<=registration )[0-9a-f]{64}", b"b" * 64, text, count=1),
    "carriage-returns": lambda text: text.replace(b"\n", b"\r\n"),
    "lone-carriage-return": lambda text: text.replace(b"\n", b"\r", 1),
    "byte-order-mark": lambda text: b"\xef\xbb\xbf" + text,
    "no-utf-8": lambda text: text.replace(b"# ", b"# \xff", 1),
    "order": _in_other_order,
    "default-left-out": lambda text: text.replace(b"validity_days = 365\n", b"", 1),
    "whole-number": lambda text: re.sub(rb"(?m)(drift = |share = )([0-9]+)\.0\b", rb"\1\2", text, count=1),
    "exponent": lambda text: text.replace(b"min_acceptance = 0.05", b"min_acceptance = 5e-2", 1),
    "underscore": lambda text: re.sub(rb"(?m)^(batch = [0-9])([0-9])", rb"\1_\2", text, count=1),
    "hexadecimal": lambda text: re.sub(rb"(?m)^rounds = ([0-9]+)", lambda old: b"rounds = 0x%x" % int(old[1]), text),
    "escaped": lambda text: text.replace(b'score = "s', b'score = "\\u0073', 1),
    "literal-text": lambda text: text.replace(b'loss = "unsupported"', b"loss = 'unsupported'", 1),
    "dotted": lambda text: re.sub(rb"(?m)^format = 2\n", rb"format = 2\nclaims.kind = 'one'\n", _without_claims(text)),
    "field-more": lambda text: b"note = 1\n" + text,
    "key-twice": lambda text: b"format = 2\n" + text,
    "format-1": lambda text: text.replace(b"format = 2", b"format = 1", 1),
    "format-3": lambda text: text.replace(b"format = 2", b"format = 3", 1),
    "format-in-decimals": lambda text: text.replace(b"format = 2", b"format = 2.0", 1),
    "nan": lambda text: re.sub(rb"(?m)^min_acceptance = .*$", b"min_acceptance = nan", text, count=1),
    "infinity": lambda text: re.sub(rb"(?m)^min_acceptance = .*$", b"min_acceptance = inf", text, count=1),
    "epsilon-infinite": lambda text: re.sub(rb"(?m)^epsilon = .*$", b"epsilon = inf", text, count=1),
    "epsilon-nan": lambda text: re.sub(rb"(?m)^epsilon = .*$", b"epsilon = nan", text, count=1),
    "huge-integer": lambda text: re.sub(rb"(?m)^batch = .*$", b"batch = " + b"9" * 5000, text, count=1),
    "deep": lambda text: text + b"\n[deep]\na = " + b"[" * 5000 + b"]" * 5000 + b"\n",
    "long-key": lambda text: text + b"\n" + b"a." * 20_000 + b"a = 1\n",
    "empty": lambda text: b"",
    "half": lambda text: text[: len(text) // 2],
    "control": lambda text: text.replace(b'population = "', b'population = "\\u202e', 1),
}  # fmt: skip


def of_another_run(run: Original) -> Files:
    other = original("certify-private" if run.name != "certify-private" else "certify-exact")
    return run.put(registration=other.files[REGISTRATION])


REGISTRATIONS: dict[str, Forge] = {
    "registration-gone": lambda run: run.put(registration=None),
    "registration-of-another-run": of_another_run,
    **{f"registration-{name}": partial(put, each) for name, each in CHANGES.items()},
    **{f"registration-{name}-rehashed": partial(rehashed, each) for name, each in CHANGES.items()},
    **{f"registration-text-{name}": partial(_text, each) for name, each in TEXTS.items()},
}
