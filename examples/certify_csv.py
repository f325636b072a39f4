"""From a labelled table to a signed certificate: python certify_csv.py table.csv run/"""

from __future__ import annotations

import sys
from argparse import ArgumentParser

import fedsrc


def main(table: str, folder: str) -> int:
    run = fedsrc.certify(  # columns score and loss, and optionally site, source, id
        table, target=0.2, epsilon=4, output=folder, key="issuer.key", claim={"score": "made-up score"}
    )
    print(run)
    return 0 if run.certificate.status == "CERTIFIED" else 1


if __name__ == "__main__":
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("table")
    arguments.add_argument("folder")
    try:
        sys.exit(main(**vars(arguments.parse_args())))
    except fedsrc.FedsrcError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
