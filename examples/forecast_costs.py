"""What targets and epsilons should cost, before anything is labelled or spent: python forecast_costs.py dev.csv"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path

from fedsrc import Choices, FedsrcError, development_part, read_records, register
from fedsrc.planning.forecast import forecasts, from_development


def main(table: Path) -> None:
    records = read_records(table)
    choices = Choices(target_risk=0.2, epsilon=4.0, public_development=True)  # it is only simulated
    registration = register(choices, records, development_part(records, "record", 1))
    sites = from_development(registration, records)
    for found in forecasts(registration, sites, targets=(0.1, 0.2), epsilons=(float("inf"), 4.0), sampled=True):
        print(found.sentence())


if __name__ == "__main__":
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("table", type=Path)
    try:
        main(**vars(arguments.parse_args()))
    except FedsrcError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
