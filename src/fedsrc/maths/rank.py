"""The chance that one sample ranks above another: the area under the ROC curve."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def chance_above(above: NDArray[Any], below: NDArray[Any]) -> float:
    """Chance that a value of one group exceeds one of the other, ties counted half (AUC)."""
    ordered = np.sort(below)
    won = np.searchsorted(ordered, above, "left") + np.searchsorted(ordered, above, "right")
    return float(won.sum() / (2 * len(above) * len(below)))
