"""Random numbers that belong to one draw: they depend on the seed, the prompt and the draw's index alone.

So a response comes out the same whichever others are drawn beside it, and ten responses begin with the same five.
"""

from __future__ import annotations

import hashlib

import numpy as np

from fedsrc.maths.arrays import Floats
from fedsrc.scores.models.model import Sampling, Wanted


def chances(wanted: Wanted, seed: int, count: int) -> Floats:
    """Return numbers in [0, 1), one a token, from a hash."""
    asked = f"{seed}\x00{wanted.place}\x00{wanted.prompt}".encode()
    bits = np.frombuffer(hashlib.shake_256(asked).digest(8 * count), dtype="<u8") >> np.uint64(11)
    return bits.astype(np.float64) / 2.0**53


def request_seed(wanted: Wanted, seed: int) -> int:
    """Return a seed for a server that draws by itself."""
    asked = f"{seed}\x00{wanted.place}\x00{wanted.prompt}".encode()
    return int.from_bytes(hashlib.sha256(asked).digest()[:4], "big") >> 1


def cut(text: str, stops: tuple[str, ...]) -> str | None:
    """Return the text before the first stop in it; None where there is no stop."""
    found = [place for place in (text.find(stop) for stop in stops) if place >= 0]
    return text[: min(found)] if found else None


def pick(logprobs: Floats, chance: float, how: Sampling) -> int:
    """Return the token that a number in [0, 1) falls on, among the most likely that hold top-p together."""
    scaled = logprobs / how.temperature
    p = np.exp(scaled - scaled.max())
    order = np.argsort(-p, kind="stable")
    mass = np.cumsum(p[order])
    kept = int(np.searchsorted(mass, how.top_p * mass[-1])) + 1 if how.top_p < 1 else mass.size
    top = mass[:kept]
    return int(order[min(int(np.searchsorted(top, chance * top[-1], side="right")), kept - 1)])
