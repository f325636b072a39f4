"""The key with which a site of a cohort masks its releases: a key of its own, for one registration, in its own word.

Its holder proves that it has the private part, by that key's own signature, and its site vouches for it: a site that
could register another's key, or a point close to it, might see masks cancel that should not.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from fedsrc.common.canonical import canonical_bytes, digest_bytes
from fedsrc.common.signing import Key, public_hex, sign, signed_by
from fedsrc.common.values import Hex, Name, Signature
from fedsrc.errors import FedsrcError
from fedsrc.protocol.documents import SignedMessage, read_document

MAX_BYTES = 4096


class MaskKey(SignedMessage):
    """A site's public mask key: `key` is the site's, `mask` the mask key, `proof` the mask key's own signature."""

    TAG: ClassVar = {"fedsrc": "mask key"}
    site: Name
    key: Hex
    mask: Hex
    proof: Signature

    @classmethod
    def by(cls, site: str, key: Key, mask: Key) -> Self:
        """Make a site's word on its mask key."""
        if public_hex(key) == public_hex(mask):
            raise FedsrcError("a mask key is a key of its own", hint="`fedsrc keys FILE` makes one")
        proof = sign(mask, _held(site, public_hex(key), public_hex(mask)))
        return cls(site=site, key=public_hex(key), mask=public_hex(mask), proof=proof).signed(key)

    @property
    def genuine(self) -> bool:
        """Whether whoever has the mask key, and the site, say so."""
        return signed_by(self.mask, self.proof, _held(self.site, self.key, self.mask)) and self.signed_by(self.key)

    @property
    def fingerprint(self) -> str:
        """128 bits of it, for people to compare by another way than the one that it came by."""
        text = digest_bytes(self.to_bytes())[:32]
        return " ".join(text[i : i + 4] for i in range(0, 32, 4))


def read_mask_key(path: Path) -> MaskKey:
    """Read a site's word on its mask key, or refuse the file."""
    return read_document(MaskKey, path, "a site's word on its mask key", MAX_BYTES)


def _held(site: str, key: str, mask: str) -> bytes:
    return canonical_bytes({"fedsrc": "mask key held", "site": site, "key": key, "mask": mask})
