"""From a labelled table to a signed certificate: python certify_csv.py table.csv run/"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path

from fedsrc import (
    Choices,
    FedsrcError,
    card_text,
    certify_table,
    development_part,
    load_or_make,
    read_records,
    register_table,
)


def main(table: Path, folder: Path) -> int:
    records = read_records(table)  # columns score and loss, and optionally site, source, id
    choices = Choices(target_risk=0.2, epsilon=4.0, claim={"score": "made-up score"})
    ledger = Path(f"{table}.ledger")  # remembers what was released: keep it with the table
    registration = register_table(choices, records, development_part(records, "record", 0.2), ledger)
    certificate = certify_table(registration, records, folder, ledger, load_or_make(Path("issuer.key")))
    print(card_text(certificate, registration=registration))
    return 0 if certificate.status == "CERTIFIED" else 1


if __name__ == "__main__":
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("table", type=Path)
    arguments.add_argument("folder", type=Path)
    try:
        sys.exit(main(**vars(arguments.parse_args())))
    except FedsrcError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
