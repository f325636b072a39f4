"""Tests that end alike whenever they run: in their own process, noise of releases and orders of units are seeded.

The real noise is drawn too, so that whatever it refuses is refused, and then replaced. Tests of the noise itself are
marked `entropy` and keep it; so do all commands and children, which are processes of their own.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch
from zlib import crc32

import numpy as np

from fedsrc.maths.arrays import Ints
from fedsrc.simulate.trials import discrete_gaussian
from fedsrc.site import release
from fedsrc.site.noise import add_discrete_gaussian

RANDBITS = secrets.randbits


class Luck:
    """What a test draws: seeded by the test's own name, or the operating system's."""

    def __init__(self) -> None:
        self._rng: np.random.Generator | None = None

    def seed(self, name: str | None) -> None:
        """Draw what the name gives from now on; None: what the operating system gives."""
        self._rng = None if name is None else np.random.default_rng(crc32(name.encode()))

    @contextmanager
    def seeded(self, name: str) -> Iterator[None]:
        """Draw what the name gives meanwhile, and then go on as before."""
        before = self._rng
        self.seed(name)
        yield
        self._rng = before

    def noised(self, values: Ints, scale: float, **promised: float) -> Ints:
        """Do what `add_discrete_gaussian` does."""
        real = add_discrete_gaussian(values, scale, **promised)
        return real if self._rng is None else values + discrete_gaussian(self._rng, scale, values.shape)

    def randbits(self, bits: int) -> int:
        """Do what `secrets.randbits` does."""
        if self._rng is None:
            return RANDBITS(bits)
        return int.from_bytes(self._rng.bytes(bits // 8 + 1)) & ((1 << bits) - 1)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let releases and ledgers of this process draw from here."""
        with (
            patch.object(release, "add_discrete_gaussian", self.noised),
            patch.object(secrets, "randbits", self.randbits),
        ):
            yield
