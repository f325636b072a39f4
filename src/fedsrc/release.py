"""Requests and releases: what the server asks of a site, and the only thing that ever leaves it.

A release is two integer vectors of fixed length, whatever the data: supported and unsupported mass (complementary)
or count and loss (paired), in plain bins or in the suffix basis, plus discrete Gaussian noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedsrc.common.canonical import canonical_bytes, digest
from fedsrc.common.clock import Time
from fedsrc.common.signing import Key, sign, signed_by
from fedsrc.common.values import Frozen, Hex, Name, Signature
from fedsrc.maths import privacy
from fedsrc.maths.arrays import Ints
from fedsrc.maths.basis import Basis, sensitivity_squared
from fedsrc.noise import add_discrete_gaussian
from fedsrc.records import Units
from fedsrc.registration import Privacy, Registration

SCALE_STEP = 1 << 20  # noise scales are rounded up to multiples of 2^-20, exact in every format
Order = Literal["shuffled", "in order"]
Coordinates = Annotated[tuple[int, ...], Field(strict=False)]


class Request(Frozen):
    """The server's question to one site. Written to the transcript before any record is looked at."""

    registration: Hex
    number: int = Field(ge=1)
    round: int = Field(ge=1)
    site: Name
    slots: int = Field(ge=1)
    scale: float = Field(ge=0)

    @property
    def digest(self) -> str:
        return digest(self.model_dump())


class SignedRequest(Frozen):
    """A request as it travels: signed by the server, so that nobody else can make a site spend its units."""

    request: Request
    signature: Signature | None = None

    @classmethod
    def by(cls, request: Request, key: Key) -> SignedRequest:
        return cls(request=request, signature=sign(key, canonical_bytes(request.model_dump())))

    def to_bytes(self) -> bytes:
        return canonical_bytes(self.model_dump())

    def signed_by(self, public: str) -> bool:
        data = canonical_bytes(self.request.model_dump())
        return self.signature is not None and signed_by(public, self.signature, data)


class Release(Frozen):
    """A site's answer to one request: noised integers and public metadata, nothing else."""

    request: Hex
    site: Name
    slots: int = Field(ge=1)
    scale: float = Field(ge=0)
    order: Order
    time: Time
    first: Coordinates
    second: Coordinates
    signature: Signature | None = None

    def to_bytes(self) -> bytes:
        return canonical_bytes(self.model_dump())

    def signed_part(self) -> bytes:
        """What the site's key signs: everything but the signature."""
        return canonical_bytes(self.model_dump(exclude={"signature"}))

    def signed(self, key: Key | None) -> Release:
        """The release with the site's signature; without a key, as it is."""
        return self if key is None else self.model_copy(update={"signature": sign(key, self.signed_part())})

    def signed_by(self, public: str) -> bool:
        """Whether the key with that public part signed this release."""
        return self.signature is not None and signed_by(public, self.signature, self.signed_part())


@dataclass(frozen=True)
class Mechanism:
    """The registered release mechanism: basis, lattice, noise scale and the privacy it costs."""

    basis: Basis
    grid: int
    scale: float
    sensitivity: float
    rho: float

    @property
    def unit_variance(self) -> float:
        """Variance of one coordinate in mass units: (scale / grid)^2, before the basis' variance factor."""
        return (self.scale / self.grid) ** 2


@lru_cache(maxsize=64)
def mechanism(settings: Privacy, thresholds: int) -> Mechanism:
    """The smallest admissible noise scale for the registered privacy, rounded up, and what it costs in zCDP.

    Theory: (ii), s >= 2^k g chat tau.
    """
    basis = Basis(settings.basis, thresholds, settings.basis_bits)
    squared = sensitivity_squared(basis, settings.encoding, settings.adjacency) * settings.mass_grid**2
    cap = privacy.rho_of(settings.epsilon, settings.delta, settings.conversion)
    scale = math.ceil(privacy.scale_of_rho(squared, cap) * SCALE_STEP) / SCALE_STEP
    rho = privacy.rho_of_scale(squared, scale)
    return Mechanism(basis, settings.mass_grid, scale, math.sqrt(squared), rho)


def registered_mechanism(registration: Registration) -> Mechanism:
    """The mechanism that a registration fixes. A site derives it itself and never takes the server's word."""
    return mechanism(registration.privacy, len(registration.thresholds.values))


def noise_words(registration: Registration) -> str:
    """The registered noise as people read it: its scale in units, and in the integers that a release file holds."""
    settings, rule = registration.privacy, registered_mechanism(registration)
    if not settings.private:
        return "no noise at all"
    answers = settings.unit == "source" and settings.answer_weight == "answer"
    noun, shares = ("answer", settings.max_answers) if answers else (settings.unit, 1)
    steps = rule.grid * rule.basis.unit // shares
    inside = f" ({rule.scale:g} in the release's integers, which count 1/{steps:,} of a{'n' * answers} {noun})"
    return f"noise of scale {rule.scale / steps:.4g} {noun}s{inside if steps > 1 else ''}"


def make_release(registration: Registration, request: Request, counts: Ints, *, order: Order, time: str) -> Release:
    """Encode the histogram of exactly the request's slots and add noise."""
    rule = registered_mechanism(registration)
    exact = rule.basis.encode(counts)
    noisy = add_discrete_gaussian(exact, rule.scale, sensitivity=rule.sensitivity, rho=rule.rho)
    return Release(
        request=request.digest,
        site=request.site,
        slots=request.slots,
        scale=rule.scale,
        order=order,
        time=time,
        first=tuple(noisy[0].tolist()),
        second=tuple(noisy[1].tolist()),
    )


def histogram(registration: Registration, units: Units) -> Ints:
    """The two mass vectors of some units, in multiples of 1/grid: shape (2, m+1).

    Theory: (i) complementary masses, (v) sources share their mass among their answers.
    """
    bins, _, first, second = _answers(registration, units)
    length = len(registration.thresholds.values) + 1
    sums = [np.bincount(bins, weights=mass, minlength=length) for mass in (first, second)]
    return np.rint(sums).astype(np.int64)  # floats hold these integers exactly


def unit_masses(registration: Registration, units: Units) -> Ints:
    """The same per unit: shape (units, 2, m+1)."""
    bins, owner, first, second = _answers(registration, units)
    masses = np.zeros((len(units), 2, len(registration.thresholds.values) + 1), dtype=np.int64)
    np.add.at(masses[:, 0], (owner, bins), first)
    np.add.at(masses[:, 1], (owner, bins), second)
    return masses


def grid_losses(loss: np.ndarray[tuple[int], np.dtype[np.float64]], grid: int) -> Ints:
    """Losses as multiples of 1/grid, rounded up (the bound then holds for the larger loss).

    A loss that is the nearest double to some k/grid is that k: 0.07 on a grid of 100 is 7, not 8.
    """
    nearest = np.rint(loss * grid)
    return np.where(nearest / grid == loss, nearest, np.ceil(loss * grid)).astype(np.int64)


def _answers(registration: Registration, units: Units) -> tuple[Ints, Ints, Ints, Ints]:
    """Per answer: its bin, its unit, and what it adds to the first and the second mass vector."""
    settings = registration.privacy
    bins = np.searchsorted(np.asarray(registration.thresholds.values), units.score, side="right")
    sizes = np.diff(units.start)
    owner = np.repeat(np.arange(len(units)), sizes)
    shares = np.full(len(units), settings.max_answers) if settings.answer_weight == "answer" else np.maximum(sizes, 1)
    mass = (settings.mass_grid // shares)[owner]
    bad = mass // settings.loss_grid * grid_losses(units.loss, settings.loss_grid)
    return bins, owner, mass if settings.encoding == "paired" else mass - bad, bad
