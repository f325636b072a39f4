"""Forged transcripts, chained anew: each with the old certificate, and with one that the server issues for it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

from fedsrc.common.canonical import canonical_bytes, digest
from fedsrc.common.signing import Key, sign
from fedsrc.protocol.names import TRANSCRIPT
from tests.recorded.forged_certificates import otherwise
from tests.recorded.forger import EVIL, Files, Forge, Original, Plain, chained, issued, original, resigned
from tests.support.recordings import key, public

Entries = list[Plain]
Rewrite = Callable[[Original, Entries], Entries | None]  # gets a copy that it may change; None where it makes no sense
HUGE = 1 << 60  # no honest release has such numbers


def at(kind: str, change: Callable[[Original, Plain], Any], *, last: bool = False) -> Rewrite:
    """Change the first or last entry of a kind in place; `change` returns None where that makes no sense."""

    def rewrite(run: Original, entries: Entries) -> Entries | None:
        places = run.places(kind)
        if not places or change(run, entries[places[-1 if last else 0]]) is None:
            return None
        return entries

    return rewrite


def field(kind: str, *path: str, new: Any, **how: bool) -> Rewrite:
    """Put something else in a field of an entry; `new` is a value, or makes one of the old."""

    def change(_: Original, entry: Plain) -> Any:
        inner = entry
        for step in path[:-1]:
            inner = inner.get(step) or {}
        if path[-1] not in inner:
            return None
        old = inner[path[-1]]
        inner[path[-1]] = new(old) if callable(new) else new
        return None if inner[path[-1]] == old else entry

    return at(kind, change, **how)


def release(change: Callable[[Original, Plain], Plain | None], by: str = "nobody") -> Rewrite:
    """Change the last release that arrived, which no later one names; its signature stays, or somebody signs it."""

    def rewrite(run: Original, entries: Entries) -> Entries | None:
        entry = next((each for each in reversed(entries) if each["kind"] in ("arrived", "summed")), None)
        if entry is None:
            return None
        old = entry["release"] if entry["kind"] == "arrived" else entry["members"][0]
        made = change(run, copy.deepcopy(old))
        if made is None or made == old or (by == "other" and old["signature"] is None):
            return None
        made = resigned(made, EVIL) if by == "other" else made
        if entry["kind"] == "arrived":
            entry["release"] = made
        else:
            entry["members"][0] = made
        return entries

    return rewrite


def of_release(name: str, new: Any, by: str = "nobody") -> Rewrite:
    """Put something else in a field of a release."""

    def change(_: Original, found: Plain) -> Plain | None:
        return {**found, name: new(found[name]) if callable(new) else new} if name in found else None

    return release(change, by)


def labels_otherwise(_: Original, found: Plain) -> Plain:
    """Name labels on demand where there are none, and none where there are some."""
    if "labels" not in found:
        return {**found, "labels": "a" * 64}
    return {name: value for name, value in found.items() if name != "labels"}


def _more(numbers: list[Any]) -> list[Any]:
    return [int(numbers[0]) + 1, *numbers[1:]]


def _huge(numbers: list[Any]) -> list[Any]:
    return [str(HUGE), *numbers[1:]]


def _moved(parts: list[int]) -> list[int]:
    """Ask one site for a unit more, and the next for one less."""
    return [parts[0] + 1, parts[1] - 1, *parts[2:]]


def keyless_number(run: Original, entries: Entries) -> Entries | None:
    """Change a number of every release as its site, where no site signs: the chain of its releases is made anew."""
    if run.keys or not run.places("arrived"):
        return None
    heads = dict[str, tuple[str, str]]()
    for each in entries:
        if each["kind"] != "arrived":
            continue
        found, old = each["release"], digest(each["release"])
        before = heads.get(found["site"])
        if before is not None and found["before"] == before[0]:
            found["before"] = before[1]
        found["first"] = _more(found["first"])
        heads[found["site"]] = old, digest(found)
    return entries


def wrapped(run: Original, entries: Entries) -> Entries | None:
    """Let every site send the largest numbers that are read at all, signed by itself: their sum is beyond 64 bits."""
    heads, places = dict[str, str](), run.places("arrived")
    if len(places) < 5 or run.registration.held:
        return None
    for i in places:
        old = entries[i]["release"]
        made = {**old, "first": [str((1 << 61) - 1)] * len(old["first"])}
        made["before"] = heads.get(old["before"], old["before"])
        entries[i]["release"] = resigned(made, key(old["site"])) if old["signature"] else made
        heads[digest(old)] = digest(entries[i]["release"])
    return entries


def by_its_site(run: Original, entries: Entries) -> Entries | None:
    """Change the last release and sign it with the site's own key: the site and the server lie together."""
    if not run.places("arrived") or not run.keys:
        return None
    found = entries[run.places("arrived")[-1]]["release"]
    found["first"] = _more(found["first"])
    entries[run.places("arrived")[-1]]["release"] = resigned(found, key(found["site"]))
    return entries


def swapped_signatures(run: Original, entries: Entries) -> Entries | None:
    """Exchange the signatures of two releases."""
    signed = [entries[i]["release"] for i in run.places("arrived") if entries[i]["release"]["signature"]]
    if len(signed) < 2:
        return None
    signed[0]["signature"], signed[-1]["signature"] = signed[-1]["signature"], signed[0]["signature"]
    return entries


def sent_again(run: Original, entries: Entries) -> Entries | None:
    """Let the first release of a site answer its second request too."""
    places = run.places("arrived")
    first = entries[places[0]]["release"] if places else None
    later = [i for i in places[1:] if first and entries[i]["release"]["site"] == first["site"]]
    if not later or first is None:
        return None
    entries[later[0]]["release"] = {**first, "request": entries[later[0]]["release"]["request"]}
    return entries


def left_out(refused: bool, kept: bool, run: Original, entries: Entries) -> Entries | None:
    """Record a release that arrived as absent, or as refused, with or without it: the last one, so that no later
    request follows from it."""
    places = run.places("arrived")
    if not places:
        return None
    found = entries[places[-1]]["release"]
    entries[places[-1]] = {
        "kind": "absent", "request": found["request"], "refused": refused, "reason": "its numbers are implausible",
        "release": found if kept else None,
    }  # fmt: skip
    return entries


def first_left_out(run: Original, entries: Entries) -> Entries | None:
    """Record the first release as absent."""
    places = run.places("arrived")
    if len(places) < 2:
        return None
    request = entries[places[0]]["release"]["request"]
    entries[places[0]] = {"kind": "absent", "request": request, "refused": False, "reason": "lost", "release": None}
    return entries


def taken_after_all(run: Original, entries: Entries) -> Entries | None:
    """Take in a release that was refused."""
    for i in run.places("absent"):
        if entries[i].get("release"):
            entries[i] = {"kind": "arrived", "release": entries[i]["release"]}
            return entries
    return None


def summed_after_all(run: Original, entries: Entries) -> Entries | None:
    """Take in the sum of a cohort that was refused."""
    for i in run.places("absent"):
        members = entries[i].get("members")
        if members:
            first, second = (
                [sum(int(each[name][j]) for each in members) for j in range(len(members[0][name]))]
                for name in ("first", "second")
            )
            entries[i] = {"kind": "summed", "request": entries[i]["request"], "members": members, "first": first,
                          "second": second}  # fmt: skip
            return entries
    return None


def member_missing(run: Original, entries: Entries) -> Entries | None:
    for i in run.places("summed"):
        entries[i]["members"] = entries[i]["members"][:-1]
        return entries
    return None


def members_swapped(run: Original, entries: Entries) -> Entries | None:
    for i in run.places("summed"):
        entries[i]["members"] = entries[i]["members"][::-1]
        return entries
    return None


def member_alone(run: Original, entries: Entries) -> Entries | None:
    """Let a member's masked release stand for the whole cohort."""
    for i in run.places("summed")[-1:]:
        entries[i] = {"kind": "arrived", "release": entries[i]["members"][0]}
        return entries
    return None


def sum_void(run: Original, entries: Entries) -> Entries | None:
    """Refuse a cohort's sum that opens."""
    places = run.places("summed")
    if not places:
        return None
    old = entries[places[-1]]
    entries[places[-1]] = {
        "kind": "absent", "request": old["request"], "refused": True, "reason": "no", "release": None,
        "members": old["members"],
    }  # fmt: skip
    return entries


def inflated(run: Original, entries: Entries) -> Entries | None:
    """Let a site have more units than it said."""
    return _announced(run, entries, lambda units: units + 1000)


def understated(run: Original, entries: Entries) -> Entries | None:
    return _announced(run, entries, lambda units: units - 1)


def _announced(run: Original, entries: Entries, change: Callable[[int], int]) -> Entries | None:
    places = run.places("announced")
    if not places:
        return None
    entries[places[0]]["units"] = change(entries[places[0]]["units"])
    return entries


def said_for_it(run: Original, entries: Entries) -> Entries | None:
    """Sign for a site that it has more, with another key."""
    return _signed_for(EVIL, run, entries)


def said_by_itself(run: Original, entries: Entries) -> Entries | None:
    """Let a site sign that it has more than it said."""
    return (
        _signed_for(_own_key(run, entries[run.places("announced")[0]]["site"]), run, entries)
        if (run.places("announced"))
        else None
    )


def _own_key(run: Original, site: str) -> Key:
    return key("holder" if run.registration.held else site)


def _signed_for(by: Key, run: Original, entries: Entries) -> Entries | None:
    places = run.places("announced")
    if not places:
        return None
    found = entries[places[0]]
    found["units"] += 1000
    found["hello"] = _hello(run, found["site"], found["units"], by)
    return entries


def _hello(run: Original, site: str, units: int, by: Key) -> Plain:
    said = {"registration": run.registration.digest, "site": site, "units": units, "challenge": None, "node_key": None}
    return {**said, "signature": sign(by, canonical_bytes({"fedsrc": "hello", **said}))}


def newcomer(run: Original, entries: Entries) -> Entries | None:
    """Let a site that never came say after the last round what it has."""
    there = {entries[i]["site"] for i in run.places("announced")}
    away = [site.name for site in run.registration.sites if site.name not in there]
    closed = run.places("closed")
    if not away or not closed or run.registration.schedule.dropout == "adversarial":
        return None
    word = _hello(run, away[0], 100, _own_key(run, away[0])) if run.keys else None
    come = {"kind": "announced", "site": away[0], "units": 100, "hello": word}
    return [*entries[: closed[-1] + 1], come, *entries[closed[-1] + 1 :]]


def announced_after_the_end(run: Original, entries: Entries) -> Entries | None:
    """Let a site say what it has once all is over."""
    places = run.places("announced")
    return [*entries, copy.deepcopy(entries[places[0]])] if run.ended and places else None


def hello_gone(run: Original, entries: Entries) -> Entries | None:
    """Keep a site's number and drop its word."""
    for i in run.places("announced"):
        if entries[i]["hello"]:
            entries[i]["hello"] = None
            return entries
    return None


def hello_changed(run: Original, entries: Entries) -> Entries | None:
    """Change both the number and the word, whose signature no longer fits."""
    for i in run.places("announced"):
        if entries[i]["hello"]:
            entries[i]["units"] += 7
            entries[i]["hello"]["units"] += 7
            return entries
    return None


def announced_twice(run: Original, entries: Entries) -> Entries | None:
    places = run.places("announced")
    return [*entries[: places[0] + 1], copy.deepcopy(entries[places[0]]), *entries[places[0] + 1 :]] if places else None


def never_announced(run: Original, entries: Entries) -> Entries | None:
    places = run.places("announced")
    return entries[: places[0]] + entries[places[0] + 1 :] if places else None


def announced_when_charged(run: Original, entries: Entries) -> Entries | None:
    """Announce units where they are registered, and dropout is charged."""
    if run.places("announced") or run.registration.monitor is not None:
        return None
    word = {"kind": "announced", "site": run.registration.sites[0].name, "units": 10**6, "hello": None}
    return [entries[0], word, *entries[1:]]


def announced_late(run: Original, entries: Entries) -> Entries | None:
    """Announce a site again after the first round."""
    places, closed = run.places("announced"), run.places("closed")
    if not places or not closed:
        return None
    return [*entries[: closed[0] + 1], copy.deepcopy(entries[places[0]]), *entries[closed[0] + 1 :]]


def gone(kind: str, last: bool, run: Original, entries: Entries) -> Entries | None:
    """Leave an entry out."""
    places = run.places(kind)
    return None if not places else [each for i, each in enumerate(entries) if i != places[-1 if last else 0]]


def twice(kind: str, run: Original, entries: Entries) -> Entries | None:
    """Write an entry twice."""
    places = run.places(kind)
    return [*entries[: places[0] + 1], copy.deepcopy(entries[places[0]]), *entries[places[0] + 1 :]] if places else None


def exchanged(kind: str, run: Original, entries: Entries) -> Entries | None:
    """Exchange an entry with the one after it."""
    places = [i for i in run.places(kind) if i + 1 < len(entries)]
    if not places:
        return None
    i = places[0]
    return [*entries[:i], entries[i + 1], entries[i], *entries[i + 2 :]]


def closed_early(run: Original, entries: Entries) -> Entries | None:
    """Close the first round before its last answer."""
    places = run.places("closed")
    if not places or entries[places[0] - 1]["kind"] not in ("arrived", "absent", "summed"):
        return None
    i = places[0]
    return [*entries[: i - 1], entries[i], *entries[i + 1 :]]


def ended_as(reason: str, run: Original, entries: Entries) -> Entries | None:
    """Give another reason for the end, or an end to what is open."""
    if not run.ended:
        return [*entries, {"kind": "ended", "reason": reason}]
    if entries[-1]["reason"] == reason:
        return None
    return [*entries[:-1], {"kind": "ended", "reason": reason}]


def ended_early(run: Original, entries: Entries) -> Entries | None:
    """Stop a round earlier, for the same reason."""
    closed = run.places("closed")
    return [*entries[: closed[-2] + 1], entries[-1]] if run.ended and len(closed) > 1 else None


def not_ended(run: Original, entries: Entries) -> Entries | None:
    """Let a run that has ended look open."""
    return entries[:-1] if run.ended else None


def after_the_end(run: Original, entries: Entries) -> Entries | None:
    return [*entries, {"kind": "closed", "round": run.registration.schedule.rounds + 1}] if run.ended else None


def opened_only(run: Original, entries: Entries) -> Entries | None:
    return entries[:1] if len(entries) > 1 else None


def nothing_left(_: Original, __: Entries) -> Entries | None:
    """No line at all."""
    return []


def asked_more(run: Original, entries: Entries) -> Entries | None:
    """Ask another site's question between those that follow."""
    asked = run.places("asked")
    if not asked:
        return None
    extra = copy.deepcopy(entries[asked[-1]])
    extra["request"]["number"] += 1
    return [*entries[: asked[-1] + 1], extra, *entries[asked[-1] + 1 :]]


def of_a_smaller_request(run: Original, entries: Entries) -> Entries | None:
    """Ask for one unit less, and let the answer be of that."""
    asked, arrived = run.places("asked"), run.places("arrived")
    if not asked or not arrived or "parts" in entries[asked[0]]["request"]:
        return None
    request = entries[asked[0]]["request"]
    old = digest(request)
    request["slots"] -= 1
    for i in arrived:
        found = entries[i]["release"]
        if found["request"] == old:
            entries[i]["release"] = {**found, "request": digest(request), "slots": request["slots"]}
    return entries


def less_noise(run: Original, entries: Entries) -> Entries | None:
    """Claim less noise than is registered, in requests and releases."""
    if not run.registration.privacy.private or not run.places("asked"):
        return None
    names = dict[str, str]()
    for each in entries:
        if each["kind"] == "asked":
            old = digest(each["request"])
            each["request"]["scale"] /= 2
            names[old] = digest(each["request"])
        if each["kind"] == "arrived":
            found = each["release"]
            each["release"] = {**found, "scale": found["scale"] / 2, "request": names[found["request"]]}
    return entries


REWRITES: dict[str, Rewrite] = {
    "number": of_release("first", _more),
    "number-of-second": of_release("second", lambda numbers: _more(numbers) if numbers else numbers),
    "number-signed-by-other": of_release("first", _more, "other"),
    "numbers-of-keyless-sites": keyless_number,
    "number-signed-by-its-site": by_its_site,
    "number-huge": of_release("first", _huge),
    "numbers-wrapped": wrapped,
    "number-cut": of_release("first", lambda numbers: numbers[:-1]),
    "slots": of_release("slots", otherwise),
    "scale": of_release("scale", lambda scale: scale + 1),
    "order": of_release("order", lambda order: "in order" if order == "shuffled" else "shuffled"),
    "time": of_release("time", "2031-01-01T00:00:00Z"),
    "place": of_release("place", otherwise),
    "before": of_release("before", "f" * 64),
    "tries": of_release("tries", lambda tries: 1 if tries > 1 else 2),
    "others": of_release("others", lambda others: 0.0 if others else 0.5),
    "site": of_release("site", "elsewhere"),
    "answers-nothing": of_release("request", "e" * 64),
    "labels": release(labels_otherwise),
    "labels-changed": of_release("labels", "b" * 64),
    "check": of_release("check", 0),
    "signature-of-release-gone": of_release("signature", None),
    "signature-of-release-bit": of_release("signature", lambda old: otherwise(old) if old else None),
    "signature-of-release-other": of_release("time", "2025-12-31T00:00:00Z", "other"),
    "signatures-swapped": swapped_signatures,
    "release-sent-again": sent_again,
    "release-absent": partial(left_out, False, False),
    "release-absent-with-it": partial(left_out, False, True),
    "release-refused": partial(left_out, True, False),
    "release-refused-with-it": partial(left_out, True, True),
    "first-release-absent": first_left_out,
    "refused-taken": taken_after_all,
    "refused-sum-taken": summed_after_all,
    "refused-forgotten": field("absent", "release", new=None),
    "refused-called-absent": field("absent", "refused", new=lambda old: not old),
    "reason-in-other-words": field("absent", "reason", new="it was late"),
    "sum-changed": field("summed", "first", new=_more),
    "sum-member-missing": member_missing,
    "sum-members-swapped": members_swapped,
    "sum-member-alone": member_alone,
    "sum-refused": sum_void,
    "announced-more": inflated,
    "announced-less": understated,
    "announced-for-it": said_for_it,
    "announced-by-itself": said_by_itself,
    "announced-after-all": newcomer,
    "announced-after-the-end": announced_after_the_end,
    "hello-gone": hello_gone,
    "hello-changed": hello_changed,
    "announced-twice": announced_twice,
    "announced-late": announced_late,
    "never-announced": never_announced,
    "announced-when-registered": announced_when_charged,
    "announced-unknown-site": field("announced", "site", new="elsewhere"),
    "request-slots": field("asked", "request", "slots", new=otherwise),
    "request-scale": field("asked", "request", "scale", new=lambda scale: scale + 1),
    "request-number": field("asked", "request", "number", new=otherwise),
    "request-round": field("asked", "request", "round", new=otherwise),
    "request-site": field("asked", "request", "site", new="elsewhere"),
    "request-parts": field("asked", "request", "parts", new=_moved),
    "request-of-another": field("asked", "request", "registration", new="d" * 64),
    "request-more": asked_more,
    "request-smaller": of_a_smaller_request,
    "less-noise": less_noise,
    "request-gone": partial(gone, "asked", False),
    "release-gone": partial(gone, "arrived", False),
    "last-release-gone": partial(gone, "arrived", True),
    "absence-gone": partial(gone, "absent", False),
    "close-gone": partial(gone, "closed", False),
    "opening-gone": partial(gone, "opened", False),
    "opened-twice": partial(twice, "opened"),
    "ended-twice": partial(twice, "ended"),
    "release-twice": partial(twice, "arrived"),
    "close-twice": partial(twice, "closed"),
    "asked-exchanged": partial(exchanged, "asked"),
    "arrived-exchanged": partial(exchanged, "arrived"),
    "closed-exchanged": partial(exchanged, "closed"),
    "closed-early": closed_early,
    "closed-as-another": field("closed", "round", new=otherwise),
    "ended-certified": partial(ended_as, "certified"),
    "ended-rounds-used": partial(ended_as, "rounds used"),
    "ended-units-used": partial(ended_as, "units used"),
    "ended-alarm": partial(ended_as, "alarm"),
    "ended-early": ended_early,
    "end-gone": not_ended,
    "after-the-end": after_the_end,
    "opened-only": opened_only,
    "nothing-left": nothing_left,
    "opened-under-another": field("opened", "registration", new=public("server")),
    "opened-in-format-1": field("opened", "format", new=1),
}


def _kept(rewrite: Rewrite, run: Original) -> Files | None:
    made = rewrite(run, run.entries)
    return None if made is None else run.told(chained(made), signed=False)


def _issued(rewrite: Rewrite, run: Original) -> Files | None:
    made = rewrite(run, run.entries) if run.certificate is not None else None
    return None if made is None else issued(run, made)


def of_another_run(run: Original) -> Files | None:
    """The transcript of another run."""
    other = original("certify-private" if run.name != "certify-private" else "certify-exact")
    return run.put(transcript=other.files[TRANSCRIPT])


TRANSCRIPTS: dict[str, Forge] = {
    "transcript-gone": lambda run: run.put(transcript=None),
    "transcript-empty": lambda run: run.put(transcript=b""),
    "transcript-of-another-run": of_another_run,
    **{name: partial(_kept, each) for name, each in REWRITES.items()},
    **{f"{name}-issued": partial(_issued, each) for name, each in REWRITES.items()},
}
