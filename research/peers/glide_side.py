"""GLIDE on streams and on judged records that are handed over in a file: runs in an environment of its own.

glide-py needs Python 3.12 and numpy, and this file nothing else: PYTHON research/peers/glide_side.py IN.npz OUT.npy
In: either `rows` (streams, answers) of 0 and 1, `batch` answers to a look, `line` and `level`; out: the batch in which
GLIDE's monitor first rings, -1 for never. Or `labels` (records, nan where there is none), `judge` and `level`; out: the
upper end of GLIDE's interval that leaves out `level` above, nan where it gives none.
"""

from __future__ import annotations

import sys
from importlib import import_module

import numpy as np


def main() -> None:
    given = np.load(sys.argv[1])
    level = float(given["level"])
    if "rows" in given:
        watch = import_module("glide.monitors").AsymptoticClassicalRM()
        rows = given["rows"].astype(np.float64)
        batches = np.arange(rows.shape[1]) // int(given["batch"])
        found = [
            watch.detect(
                row, batches, higher_is_better=False, threshold=float(given["line"]), confidence_level=1 - level
            )
            for row in rows
        ]
        first = [-1 if each.first_alarm_index is None else each.first_alarm_index for each in found]
        np.save(sys.argv[2], np.array(first))
        return
    estimator, upper = import_module("glide.estimators").PPIMeanEstimator(), []
    for labels, judge in zip(given["labels"], given["judge"].astype(np.float64), strict=True):
        try:
            found = estimator.estimate(labels, judge, confidence_level=1 - 2 * level)
        except ValueError:  # all labels alike
            upper.append(np.nan)
            continue
        upper.append(found.confidence_interval.upper_bound)
    np.save(sys.argv[2], np.array(upper))


if __name__ == "__main__":
    main()
