"""What can be certified today, again on nine other splits: how much of it is one split's luck.

Run: python -m research.studies.other_splits TABLES [JOBS]; the folder has ragtruth.parquet and detectors.parquet, as
for `python -m research`. Writes what every trial gave to research/results/other_splits.parquet, and makes
docs/results/studies/certified-today.md again.

The studies of `today` and their planned ones, with 1000, 2000, ..., 9000 added to the seed and fewer trials: other
development, calibration and held-out records, other sites, and other noise on the development release.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from fedsrc.audit.engine import run_study
from fedsrc.audit.study import Setting
from fedsrc.audit.study_folder import read_trials
from research.studies.catalogue import path_of
from research.studies.reproduce import publish_overview
from research.studies.results import Places
from research.studies.sides import KEYS, PLANNED, SIDES, STUDIES
from research.studies.split_counts import RECORDS

SHIFTS, TRIALS = range(1000, 10000, 1000), 20
KEPT = ("trial", "fired", "failed", "acceptance", "records")


def shifted(text: str, shift: int) -> str:
    """Return a study with another seed, and fewer trials."""
    text = re.sub(r"(?m)^seed = (\d+)$", lambda found: f"seed = {int(found[1]) + shift}", text)
    return re.sub(r"(?m)^trials = \d+$", f"trials = {TRIALS}", text)


def side_of(setting: Setting, method: str) -> str | None:
    """Return which side a setting shows under a method, if any."""
    here = (method, setting.release, setting.policy, setting.case)
    return next((name for name, side in SIDES.items() if side == here), None)


def trials(shift: int, tables: Path, jobs: int) -> Iterator[pl.DataFrame]:
    """Yield what every trial of one split gave, study by study."""
    for name in (*STUDIES, *PLANNED.values()):
        with tempfile.TemporaryDirectory() as place:
            file = Path(place, "study.toml")
            file.write_text(shifted(path_of(name).read_text(encoding="utf-8"), shift), encoding="utf-8")
            run_study(file, Path(place, "run"), tables=tables, jobs=jobs)
            study, frame = read_trials(Path(place, "run"))
        for (index, method), part in frame.group_by("setting", "method", maintain_order=True):
            setting = study.settings[int(str(index))]
            if (side := side_of(setting, str(method))) is not None:
                named = {"shift": shift, "side": side, **{key: getattr(setting, key) for key in KEYS}}
                yield part.select(*(pl.lit(value).alias(key) for key, value in named.items()), *KEPT)


def main() -> None:
    tables, jobs = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2
    made = []
    for shift in SHIFTS:
        made += list(trials(shift, tables, jobs))
        print(f"split {shift} of {SHIFTS[-1]}", file=sys.stderr, flush=True)
    pl.concat(made).write_parquet(RECORDS, compression="zstd", compression_level=19)
    publish_overview(Places())


if __name__ == "__main__":
    main()
