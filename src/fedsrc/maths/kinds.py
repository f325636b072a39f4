"""The words by which a registration chooses a formula. No import: who reads a registration needs no numpy."""

from __future__ import annotations

from typing import Literal

Conversion = Literal["tight", "paper"]
BasisName = Literal["bins", "suffix"]
Encoding = Literal["paired", "complementary"]
Adjacency = Literal["zero-out", "replacement", "same-group"]
