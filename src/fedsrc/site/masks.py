"""Masks: what a member of a cohort adds to its release so that only the cohort's sum can be read.

Every two members share a secret. One of them adds what follows from it and the other takes it off, so over the whole
cohort masks cancel, and over any smaller part they do not.

Theory: (xvii) Privacy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from fedsrc.common.agreement import agreed, agreeing
from fedsrc.common.canonical import canonical_bytes
from fedsrc.common.signing import Key
from fedsrc.protocol.messages import Release, Request
from fedsrc.protocol.registration import Registration

LABEL = "fedsrc cohort mask 1"


def mask_release(
    registration: Registration, request: Request, release: Release, site: str, slots: int, key: Key
) -> Release:
    """Return a member's release of so many slots with everything in it masked, and its slots too."""
    values = masked(registration, request, site, key, [*release.first, *release.second, slots])
    length = len(release.first)
    numbers = {"first": tuple(values[:length]), "second": tuple(values[length:-1]), "check": values[-1]}
    return release.model_copy(update={"site": site, "slots": slots, **numbers})


def masked(registration: Registration, request: Request, site: str, key: Key, values: Sequence[int]) -> list[int]:
    """Return values with the masks that a member shares with every other of its cohort, modulo 2^64 and signed.

    The masks are of this registration, cohort and request, and of no other. Theory: (xvii) Privacy.
    """
    total, mine, words = np.asarray(values, dtype=np.int64).astype(np.uint64), agreeing(key), registration.mask_keys
    for other in registration.answering(request):
        if other != site:
            low, high = sorted((site, other))
            info = [LABEL, registration.digest, request.site, request.digest]
            info += [text for name in (low, high) for text in (name, words[name].key)]
            mask = _stream(agreed(mine, words[other].mask), canonical_bytes(info), total.size)
            total = total + mask if site == low else total - mask
    found: list[int] = total.astype(np.int64).tolist()
    return found


def _stream(secret: bytes, info: bytes, size: int) -> NDArray[np.uint64]:
    """Return so many uniform integers below 2^64: HKDF of a shared secret, one ChaCha20 key per pair and request."""
    key = HKDF(SHA256(), length=32, salt=None, info=info).derive(secret)
    text = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * size))
    return np.frombuffer(text, dtype="<u8").astype(np.uint64)
