"""As an auditor, without any record: recompute a certificate. python check_certificate.py run/ KEY"""

from __future__ import annotations

import sys
from argparse import ArgumentParser

import fedsrc


def main(folder: str, key: str) -> int:
    try:
        found = fedsrc.verify(folder, trusted=[key])  # KEY: the issuer's public key, got out of band
    except fedsrc.FedsrcError as problem:
        print(f"do not rely on it: {problem}")
        return 2
    print(found.certificate.statement)
    for each in found.certificate.assumptions:
        print(f"  [{each.how}] {each.what}")
    print("expired" if found.expired else f"in force until {found.certificate.expires_on}")
    return 0


if __name__ == "__main__":
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("folder")
    arguments.add_argument("key")
    sys.exit(main(**vars(arguments.parse_args())))
