"""A site's word on its mask key, and which cohorts may be registered with such keys.

Mutants killed: the proof of possession, the site's word or a name in either left out; points of low order; repeated
keys allowed among sites, mask keys, or between them; every other condition on cohorts. Chance of a false alarm: none.
"""

from __future__ import annotations

from typing import Any

import pytest

from fedsrc.common.canonical import canonical_bytes
from fedsrc.common.signing import Key, public_hex, sign
from fedsrc.errors import FedsrcError
from fedsrc.planning.sealing import Seal, seal
from fedsrc.protocol.documents import parse_message
from fedsrc.protocol.mask_key import MaskKey
from fedsrc.protocol.registration import Registration
from tests.support import edwards
from tests.support.cohorts import Member, cohort_registration, member

A, B, C = (member(name) for name in "abc")
THREE = cohort_registration([A, B, C])
FIELDS = THREE.model_dump()


def with_words(*words: MaskKey, **sections: dict[str, Any]) -> Registration:
    """The registration of three sites with these words on their mask keys, and the keys that they name."""
    fields = {name: dict(FIELDS[name], **values) for name, values in sections.items()}
    keys = fields.pop("aggregation", FIELDS["aggregation"]) | {"keys": [each.model_dump() for each in words]}
    sites = [dict(site, key=word.key) for site, word in zip(FIELDS["sites"], words, strict=True)]
    return Registration.of({**FIELDS, **fields, "aggregation": keys, "sites": sites})


def refused(words: str, *given: MaskKey, **sections: dict[str, Any]) -> None:
    with pytest.raises(FedsrcError, match=words):
        with_words(*(given or (A.word, B.word, C.word)), **sections)


# ---------------------------------------------------------------- one word


def test_a_word_is_one_text_and_says_whose_it_is() -> None:
    word = A.word
    assert word.genuine
    assert word.proof == sign(A.mask, held(word.mask))
    assert parse_message(MaskKey, word.to_bytes(), "a mask key") == word
    assert (word.site, word.key, word.mask) == ("a", public_hex(A.key), public_hex(A.mask))
    assert with_words(A.word, B.word, C.word) == THREE
    fingerprints = {
        each.word.fingerprint for each in (A, B, C, Member("a", A.key, B.mask), Member("a2", A.key, A.mask))
    }
    assert len(fingerprints) == 5
    assert all(len(each.replace(" ", "")) == 32 for each in fingerprints)


def test_a_mask_key_is_no_site_key() -> None:
    with pytest.raises(FedsrcError, match="a key of its own"):
        MaskKey.by("a", A.key, A.key)


def forged(site: str, key: Key, mask: str, proof: str) -> MaskKey:
    """A word that its site vouches for, on whatever key, with whatever proof."""
    return MaskKey(site=site, key=public_hex(key), mask=mask, proof=proof).signed(key)


def near(public: str) -> list[str]:
    """Keys that share a key's secrets: it plus a point of low order, or their negatives."""
    point = edwards.decode(public)
    found = [edwards.add(point, low) for low in edwards.of_low_order()]
    return [edwards.encode(each) for one in found for each in (one, edwards.negative(one))]


def held(mask: str) -> bytes:
    """What a holder of a mask key signs with it, at site a."""
    return canonical_bytes({"fedsrc": "mask key held", "key": public_hex(A.key), "mask": mask, "site": "a"})


def proof(kind: str, mask: str) -> str:
    match kind:
        case "the key's own, for its own site":
            return B.word.proof
        case "by the wrong key":
            return sign(A.mask, held(mask))
        case "by the site's key":
            return sign(A.key, held(mask))
    return "0" * 128


KINDS = ["the key's own, for its own site", "by the wrong key", "by the site's key", "none"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mask", near(public_hex(B.mask)))
def test_another_s_key_or_one_close_to_it_is_refused(mask: str, kind: str) -> None:
    word = forged("a", A.key, mask, proof(kind, mask))
    assert not word.genuine
    refused("same key" if mask == B.word.mask else "not proved to be its own", word, B.word, C.word)


@pytest.mark.parametrize("mask", [edwards.encode(point) for point in edwards.of_low_order()])
def test_keys_of_low_order_are_refused_though_anyone_can_prove_them(mask: str) -> None:
    """Of the neutral point any (R, S) with R = S B is a signature; of the others every second, fourth or eighth."""
    word = forged("a", A.key, mask, edwards.encode((0, 1)) + "0" * 64)
    if mask == edwards.encode((0, 1)):
        assert word.genuine
    refused("not proved to be its own", word, B.word, C.word)


def test_a_word_of_another_site_or_without_its_site_is_refused() -> None:
    stolen = B.word.model_copy(update={"site": "a", "key": public_hex(A.key)}).signed(A.key)
    unsigned = A.word.model_copy(update={"signature": None})
    by_another = A.word.model_copy(update={"signature": A.word.signed(B.key).signature})
    for word in (stolen, unsigned, by_another):
        assert not word.genuine
        refused("same key" if word is stolen else "not proved", word, B.word, C.word)
    refused("the key and the mask key of every site", B.word, A.word, C.word)


# ---------------------------------------------------------------- repeated keys


@pytest.mark.parametrize(
    "twin",
    [
        Member("a", B.key, A.mask),  # site and site
        Member("a", A.key, B.mask),  # mask and mask
        Member("a", A.key, B.key),  # mask and site
        Member("a", B.mask, A.mask),  # site and mask
    ],
)
def test_no_key_stands_twice(twin: Member) -> None:
    """By people who hold both, so that every proof is right."""
    assert twin.word.genuine
    refused("two sites of a cohort have the same key", twin.word, B.word, C.word)


# ---------------------------------------------------------------- who is in which cohort


def cohorts(*members: tuple[str, str], colluding: int = 1) -> dict[str, Any]:
    return {"colluding": colluding, "cohorts": [{"name": name, "members": tuple(each)} for name, each in members]}


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("every site is in one cohort, once", cohorts(("x", "ab"))),
        ("every site is in one cohort, once", cohorts(("x", "abc"), ("y", "ab"))),
        ("every site is in one cohort, once", cohorts(("x", "abca"))),
        ("every site is in one cohort, once", cohorts(("x", "abcd"))),
        ("names of cohorts must differ", cohorts(("x", "abc"[:2]), ("x", "c"), colluding=0)),
        ("names of cohorts must differ", cohorts(("a", "abc"))),
        ("names of cohorts must differ", cohorts(("holder", "abc"))),
        ("more members than may collude, which is 1", cohorts(("x", "ab"), ("y", "c"))),
        ("more members than may collude, which is 3", cohorts(("x", "abc"), colluding=3)),
    ],
)
def test_cohorts_are_a_partition_with_names_of_their_own(words: str, given: dict[str, Any]) -> None:
    refused(words, aggregation=given)


def test_a_site_is_not_called_as_the_holder_is() -> None:
    with pytest.raises(FedsrcError, match="names of cohorts must differ"):
        cohort_registration([A, B, member("holder")])


def test_the_largest_t_leaves_everyone_the_whole_noise() -> None:
    reg = with_words(A.word, B.word, C.word, aggregation=cohorts(("x", "abc"), colluding=2))
    assert reg.share_of("x") == reg.mechanism.scale
    assert reg.noise_of("x") == 3


# ---------------------------------------------------------------- with the rest of the registration


@pytest.mark.parametrize(
    ("words", "choices"),
    [
        ("without privacy there is none to share", {"epsilon": float("inf")}),
        ("'recruit' asks one site at a time", {"policy": "recruit"}),
        ("a betting or sealed certificate with a refusal budget", {"preset": "paper", "dropout": "independent"}),
        ("one mask key of every site", {"mask_keys": [A.word, B.word]}),
        ("one mask key of every site", {"mask_keys": [A.word, B.word, C.word, C.word]}),
    ],
)
def test_what_does_not_go_with_cohorts(words: str, choices: dict[str, Any]) -> None:
    with pytest.raises(FedsrcError, match=words):
        cohort_registration([A, B, C], **choices)


def test_a_refusal_budget_is_needed_whatever_dropout_is_declared() -> None:
    for dropout in ("adversarial", "independent"):
        refused(
            "refusal budget",
            certificate={"refusal_budget": 0.0},
            schedule={"dropout": dropout},
        )


def test_a_monitor_hears_every_site() -> None:
    watch = {"method": "monitor", "certificate": "0" * 64, "risk": 0.3, "refusal_budget": 0.001}
    with pytest.raises(FedsrcError, match="a monitor hears every site by itself"):
        Registration.of({**FIELDS, "certificate": watch, "thresholds": {"values": (0.5,), "weights": (1.0,)}})


@pytest.mark.parametrize("line", ["exact", "hybrid"])
def test_a_sealed_certificate_has_a_line_for_less_noise(line: str) -> None:
    plan = Seal((0.4, 0.6), (0.5, 0.5), ((0.2, 1.0, (0.5, 0.5)),), line=line)
    with pytest.raises(FedsrcError, match="line = 'within'"):
        seal(THREE, plan)
    assert seal(THREE, Seal((0.4, 0.6), (0.5, 0.5), plan.targets, line="within")).cohorts == THREE.cohorts


def test_a_share_below_two_lattice_units_is_refused() -> None:
    """Of plain bins, whose lattice is as coarse as records: two units are enough."""
    bins = {"basis": "bins"}
    fine = with_words(A.word, B.word, C.word, encoding=bins, privacy={"epsilon": 1.0})
    assert fine.share_of("all") >= 2
    refused("share of the noise is .* lattice units, and 2 are the least", encoding=bins, privacy={"epsilon": 4.0})
    refused("and 2.03 are the least", encoding=bins, privacy={"epsilon": 8.0})


def test_sums_that_could_wrap_are_refused() -> None:
    """By what units add, and by their noise alone, where each of 24 adds all of it: 40 x 24 scales reach 2^62."""
    refused("overflow", schedule={"batch": 10_000_000, "rounds": 1_000_000}, privacy={"loss_grid": 1_000_000})
    sites = [member(f"s{i}") for i in range(24)]
    settings: dict[str, Any] = {"epsilon": 1e-9, "loss_grid": 250_000, "colluding": 23}
    assert cohort_registration(sites, delta=1.5e-8, **settings).mechanism.scale < (1 << 62) / (40 * 24)
    with pytest.raises(FedsrcError, match="overflow"):
        cohort_registration(sites, delta=1e-8, **settings)
