"""Masks: a whole cohort's cancel exactly, those of fewer members look like chance, and how they are derived is pinned.

Uniformity: what is left of the releases of every proper subset of the members who do not collude, once the masks of
those who do are taken off, is held against uniform integers below 2^64 (bytes, 16-bit words, correlations over
requests, coordinates and members). Keys are fixed, so nothing is drawn when the tests run; over keys drawn at random
each would fail with probability 1e-6 at most.

Mutants killed, and run here: one stream for two requests, 32-bit streams, no mask for one pair, one word for all
coordinates, a secret of which one bit has no say. By the derivation written out beside: another salt, label, order,
sign or byte order, a name, key, request, cohort or registration left out.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from fedsrc.common.agreement import agreed, agreeing
from fedsrc.common.canonical import canonical_bytes
from fedsrc.common.signing import Key, public_hex
from fedsrc.protocol.messages import Release, Request
from fedsrc.protocol.registration import Registration
from fedsrc.server.opening import open_sum
from fedsrc.site import masks
from fedsrc.site.masks import mask_release, masked
from tests.support.cohorts import Member, cohort_registration, member, request_to

Words = NDArray[np.uint64]
ALARM = 1e-6
PINNED = ["fc3a46377b52f826", "2b01d3dd6d708db1", "b1517484745eb6b3"]
FOUR = [member(name) for name in "abcd"]


@cache
def cohort_of(size: int, colluding: int = 0) -> Registration:
    return cohort_registration([member(name) for name in "abcdefgh"[:size]], colluding=colluding)


# ---------------------------------------------------------------- the whole cohort


@st.composite
def cohorts(draw: st.DrawFn) -> tuple[Request, list[list[int]], list[int]]:
    """A request to a cohort, the exact integers of every member, and their slots, some of them none."""
    size = draw(st.integers(1, 6))
    reg, most = cohort_of(size), (1 << 62) // size
    slots = draw(st.lists(st.integers(0, 1 << 40), min_size=size, max_size=size).filter(any))
    length = sum(reg.mechanism.lengths)
    row = st.lists(st.integers(-most, most) | st.sampled_from([0, most, -most]), min_size=length, max_size=length)
    return request_to(reg, slots), [draw(row) for _ in slots], slots


@settings(max_examples=60)
@given(cohorts())
def test_the_masks_of_a_whole_cohort_cancel_exactly(case: tuple[Request, list[list[int]], list[int]]) -> None:
    request, rows, slots = case
    reg, members = cohort_of(len(slots)), list[Release]()
    half = reg.mechanism.lengths[0]
    for who, row, n in zip("abcdef", rows, slots, strict=False):
        plain = Release(
            request=request.digest, site="all", slots=request.slots, scale=request.scale, order="shuffled",
            time="2026-01-02T03:04:05Z", place=1, before="0" * 64, tries=1, first=tuple(row[:half]),
            second=tuple(row[half:]),
        )  # fmt: skip
        members.append(mask_release(reg, request, plain, who, n, member(who).mask))
        assert (members[-1].site, members[-1].slots) == (who, n)
    found = open_sum(members)
    assert [*found.first, *found.second] == [sum(column) for column in zip(*rows, strict=True)]
    assert found.check == sum(slots) == request.slots


# ---------------------------------------------------------------- fewer than all

REQUESTS, SIZE = 100, 4000


def left(reg: Registration) -> dict[str, Words]:
    """What a request leaves of the releases of nothing of every proper subset of a cohort: requests in rows."""
    names, each = [site.name for site in reg.sites], dict[str, Words]()
    for name in names:
        rows = [
            masked(reg, request_to(reg, [1] * len(names), round), name, member(name).mask, [0] * SIZE)
            for round in range(1, REQUESTS + 1)
        ]
        each[name] = np.asarray(rows, dtype=np.int64).astype(np.uint64)
    several = [some for size in range(1, len(names)) for some in combinations(names, size)]
    return {"".join(some): sum((each[name] for name in some), start=np.zeros(1, np.uint64)) for some in several}


def uneven(counts: NDArray[np.int64]) -> float:
    """The p-value of Pearson's chi-square: whether all cells are as likely."""
    expected = counts.sum() / counts.size
    return float(chi2.sf(((counts - expected) ** 2).sum() / expected, counts.size - 1))


def alike(rows: NDArray[np.float64]) -> float:
    """The p-value, over all pairs of rows at once, of their largest correlation."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    size = np.linalg.norm(centred, axis=1)
    if not size.all():
        return 0.0  # the same number throughout
    r = np.abs(np.triu(centred @ centred.T / np.outer(size, size), 1)).max()
    pairs = len(rows) * (len(rows) - 1) / 2
    return float(min(1.0, 2 * pairs * norm.sf(r * np.sqrt(rows.shape[1]))))


def least_chance(found: dict[str, Words]) -> float:
    """The smallest p-value of all tests, times how many there are."""
    chances = list[float]()
    for words in found.values():
        raw = np.ascontiguousarray(words.astype("<u8"))
        numbers = words.astype(np.float64) / 2.0**64
        chances += [
            uneven(np.bincount(raw.view(np.uint8).ravel(), minlength=1 << 8)),
            uneven(np.bincount(raw.view("<u2").ravel(), minlength=1 << 16)),
            alike(numbers),  # requests
            alike(np.ascontiguousarray(numbers[:, :300].T)),  # coordinates
        ]
    single = [words.ravel().astype(np.float64) for name, words in found.items() if len(name) == 1]
    if len(single) > 2:  # of two members, one has what the other lacks
        chances.append(alike(np.stack(single)))
    return min(chances) * len(chances)


@pytest.mark.parametrize("size", [2, 4])
def test_what_fewer_than_all_members_send_looks_like_chance(size: int) -> None:
    assert least_chance(left(cohort_of(size))) > ALARM


def broken(name: str, made: Callable[[bytes, bytes, int], Words]) -> Callable[[bytes, bytes, int], Words]:
    """A mutant of the streams."""
    return {
        "one stream for two requests": lambda secret, info, size: made(secret, b"", size),
        "32-bit streams": lambda secret, info, size: made(secret, info, size) % np.uint64(2**32),
        "no mask for one pair": lambda secret, info, size: made(secret, info, size) * np.uint64(b'"b"' not in info),
        "one word for all coordinates": lambda secret, info, size: np.repeat(made(secret, info, 1), size),
    }[name]


@pytest.mark.parametrize(
    "name", ["one stream for two requests", "32-bit streams", "no mask for one pair", "one word for all coordinates"]
)
def test_broken_streams_are_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "_stream", broken(name, masks._stream))
    assert least_chance(left(cohort_of(2))) < ALARM**2


# ---------------------------------------------------------------- the derivation


def mask_of(reg: Registration, request: Request, mine: Member, other: Member, size: int) -> Words:
    """The mask that two members share, from scratch: HKDF of RFC 5869 with SHA-256 (no salt, one block), then words of
    ChaCha20 from its first block on, of a nonce of zeros. Of the two names, the lower one's holder adds it."""
    info: list[str] = ["fedsrc cohort mask 1", reg.digest, request.site, request.digest]
    for who in sorted((mine, other), key=lambda each: each.name):
        info += [who.name, public_hex(who.key)]
    secret = agreed(agreeing(mine.mask), public_hex(other.mask))
    key = hmac.digest(hmac.digest(bytes(32), secret, "sha256"), canonical_bytes(info) + b"\x01", "sha256")
    words = np.frombuffer(chacha20(key, 8 * size)[: 8 * size], dtype="<u8").astype(np.uint64)
    return words if mine.name < other.name else -words


def chacha20(key: bytes, size: int) -> bytes:
    """The key stream of ChaCha20 (RFC 8439, section 2.3, with a counter of 64 bits and a nonce of zeros)."""
    found = b""
    for number in range(-(-size // 64)):
        start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), number, 0, 0, 0]
        state = start.copy()
        for _ in range(10):
            for i in range(4):
                _quarter(state, i, i + 4, i + 8, i + 12)
            for i in range(4):
                _quarter(state, i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12)
        found += struct.pack("<16I", *((a + b) % 2**32 for a, b in zip(state, start, strict=True)))
    return found


def _quarter(x: list[int], a: int, b: int, c: int, d: int) -> None:
    for to, by, turned, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x[to] = (x[to] + x[by]) % 2**32
        mixed = x[turned] ^ x[to]
        x[turned] = (mixed << bits | mixed >> 32 - bits) % 2**32


def test_the_derivation_written_out() -> None:
    """Another implementation follows this, and whatever it signs opens here."""
    reg = cohort_of(4, colluding=1)
    request = request_to(reg, [5, 0, 7, 9])
    for mine in FOUR:
        others = [mask_of(reg, request, mine, other, 9) for other in FOUR if other != mine]
        values = np.arange(-4, 5)
        expected = (values.astype(np.uint64) + np.sum(others, axis=0, dtype=np.uint64)).astype(np.int64)
        assert masked(reg, request, mine.name, mine.mask, values.tolist()) == expected.tolist()


def test_the_derivation_is_pinned() -> None:
    """Without a registration, whose digest changes with its words: the stream of a fixed secret and text."""
    assert chacha20(bytes(32), 8)[:8].hex() == "76b8e0ada0f13d90"  # RFC 8439, appendix A.1, vector 1
    stream = masks._stream(bytes(range(32)), b'["fedsrc cohort mask 1","and so on"]', 3)
    assert [f"{word:016x}" for word in stream.tolist()] == PINNED
    key = hmac.digest(
        hmac.digest(bytes(32), bytes(range(32)), "sha256"), b'["fedsrc cohort mask 1","and so on"]\x01', "sha256"
    )
    assert chacha20(key, 24)[:24] == stream.astype("<u8").tobytes()


def test_all_256_bits_of_a_secret_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    reg = cohort_of(2)
    request, whole = request_to(reg, [1, 1]), agreed(agreeing(member("a").mask), public_hex(member("b").mask))

    def flipped(bit: int) -> Callable[..., bytes]:
        number = int.from_bytes(whole, "little") ^ (1 << bit if bit < 256 else 0)
        return lambda *_: number.to_bytes(32, "little")

    found = set[tuple[int, ...]]()
    for bit in range(257):
        monkeypatch.setattr(masks, "agreed", flipped(bit))
        found.add(tuple(masked(reg, request, "a", member("a").mask, [0, 0])))
    assert len(found) == 257
    monkeypatch.undo()
    assert tuple(masked(reg, request, "a", member("a").mask, [0, 0])) in found
    assert len(whole) == 32


def test_every_registration_cohort_request_and_pair_has_masks_of_its_own() -> None:
    """The same two people with the same mask keys throughout, so that one secret is behind all of them but the last."""
    a, b = member("a"), member("b")
    renamed = [Member("a2", a.key, a.mask), Member("b2", b.key, b.mask)]
    rekeyed = [Member("a", member("x").key, a.mask), Member("b", member("y").key, b.mask)]
    others = [a, Member("b", b.key, Key.from_private_bytes(bytes(32)))]
    base = cohort_registration([a, b])
    cases = [
        *((base, request_to(base, slots, round)) for slots, round in (([1, 1], 1), ([1, 2], 1), ([1, 1], 2))),
        *((reg, request_to(reg, [1, 1])) for reg in (
            cohort_registration([a, b], target_risk=0.21), cohort_registration([a, b], {"both": "ab"}),
            cohort_registration(renamed), cohort_registration(rekeyed), cohort_registration(others),
        )),
    ]  # fmt: skip
    cases.append((base, request_to(base, [1, 1]).model_copy(update={"number": 9})))
    found = {masked(reg, request, reg.sites[0].name, a.mask, [0])[0] for reg, request in cases}
    assert len(found) == len(cases)
    three = cohort_registration([member(name) for name in "abc"])
    request = request_to(three, [1, 1, 1])
    assert len({masked(three, request, name, member(name).mask, [0])[0] for name in "abc"}) == 3
