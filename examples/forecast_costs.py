"""What targets and epsilons should cost, before anything is labelled or spent: python forecast_costs.py dev.csv"""

from __future__ import annotations

import sys
from argparse import ArgumentParser

import fedsrc


def main(table: str) -> None:
    for target in (0.1, 0.2):
        for epsilon in (float("inf"), 4.0):
            print(fedsrc.forecast(table, target=target, epsilon=epsilon).sentence())


if __name__ == "__main__":
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("table")
    try:
        main(**vars(arguments.parse_args()))
    except fedsrc.FedsrcError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
