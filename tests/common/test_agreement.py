"""Secrets that two key holders share: the standard's own example, both forms of a key, and points that share none.

Mutants killed: another map between the forms, the seed itself as the scalar, a key's sign taken into the secret, points
of low order taken. Chance of a false alarm: none, every case is fixed.
"""

from __future__ import annotations

from hashlib import sha512

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedsrc.common.agreement import P, agreed, agreeing, can_agree
from fedsrc.common.signing import Key, public_hex
from fedsrc.errors import FedsrcError
from tests.support import edwards

ONE, OTHER = Key.from_private_bytes(bytes(range(32))), Key.from_private_bytes(bytes(range(1, 33)))


def in_edwards_form(montgomery: str) -> str:
    """The Ed25519 key of an X25519 one, of which the sign is free."""
    u = int.from_bytes(bytes.fromhex(montgomery), "little")
    return ((u - 1) * pow(u + 1, -1, P) % P).to_bytes(32, "little").hex()


def test_the_example_of_the_standard() -> None:
    """RFC 7748, section 6.1: what Alice and Bob share, with each public key in Edwards form."""
    alice = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
    bob = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
    public = {
        alice: "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
        bob: "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
    }
    for mine, theirs in ((alice, bob), (bob, alice)):
        secret = agreed(X25519PrivateKey.from_private_bytes(bytes.fromhex(mine)), in_edwards_form(public[theirs]))
        assert secret.hex() == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


def test_both_forms_of_a_key_are_one_point() -> None:
    for key in (ONE, OTHER):
        assert agreeing(key).private_bytes_raw() == sha512(key.private_bytes_raw()).digest()[:32]
        assert in_edwards_form(agreeing(key).public_key().public_bytes_raw().hex()) == edwards.encode(
            (0, edwards.decode(public_hex(key))[1])
        )


def test_two_holders_share_a_secret_that_a_third_has_not() -> None:
    secret = agreed(agreeing(ONE), public_hex(OTHER))
    assert secret == agreed(agreeing(OTHER), public_hex(ONE))
    assert len(secret) == 32
    assert secret != agreed(agreeing(Key.from_private_bytes(bytes(32))), public_hex(OTHER))


LOW = [edwards.encode(point) for point in edwards.of_low_order()]
OTHERWISE = [
    (y + sign * 2**255).to_bytes(32, "little").hex() for y in (P, P + 1) for sign in (0, 1)
]  # the same, longer


@pytest.mark.parametrize("public", [*LOW, *OTHERWISE])
def test_points_of_low_order_share_nothing(public: str) -> None:
    assert not can_agree(public)
    with pytest.raises(FedsrcError, match="no point with which a secret can be shared"):
        agreed(agreeing(ONE), public)


def test_a_key_close_to_another_shares_its_secrets() -> None:
    """Why possession is proved and bytes are not only compared: seven more keys, and all their negatives, do as well
    as the key itself for whoever masks."""
    point, secret = edwards.decode(public_hex(OTHER)), agreed(agreeing(ONE), public_hex(OTHER))
    near = {edwards.encode(edwards.add(point, low)) for low in edwards.of_low_order()}
    near |= {edwards.encode(edwards.negative(edwards.decode(each))) for each in near}
    assert len(near) == 16
    assert all(can_agree(each) and agreed(agreeing(ONE), each) == secret for each in near)
