"""Three sites and a coordinator who exchange files, each with a folder of its own: python sites_by_files.py parties/"""

from __future__ import annotations

import random
from argparse import ArgumentParser
from contextlib import closing
from pathlib import Path

from fedsrc import register
from fedsrc.common.signing import Key, load_or_make, public_hex
from fedsrc.federation.airgap import answer_file, collect, start
from fedsrc.protocol.messages import read_request
from fedsrc.records.table import read_records
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow

SITES = ("ashford", "birch", "cedar")


def make_table(path: Path, draw: random.Random) -> None:
    losses = [int(draw.random() < 0.35) for _ in range(600)]
    scores = [min(1.0, max(0.0, draw.gauss(0.4 if loss else 0.75, 0.15))) for loss in losses]
    rows = [f"{path.parent.name}-{i},{scores[i]:.3f},{losses[i]}" for i in range(600)]
    path.write_text("\n".join(["id,score,loss", *rows, ""]), encoding="utf-8")


def main(root: Path) -> None:
    keys = {name: load_or_make(root / name / "signing.key") for name in (*SITES, "coordinator")}
    registration = register(  # evenly spaced thresholds: no record is looked at
        target=0.2, epsilon=4, grid=True, rounds=3, sites=SITES, weights=dict.fromkeys(SITES, 1 / 3),
        server_key=public_hex(keys["coordinator"]), capacities=dict.fromkeys(SITES, 600),
        site_keys={site: public_hex(keys[site]) for site in SITES},
    )  # fmt: skip
    for site in SITES:  # each site has a table, reads the registration, and allows it
        make_table(root / site / "records.csv", random.Random(site))
        with closing(Ledger(root / site / "records.ledger")) as ledger:
            allow(ledger, site, registration, max_epsilon=4.0)
    run = root / "coordinator" / "run"
    state = start(registration, run, keys["coordinator"])
    while state.certificate is None:
        releases = [answer(root, request, keys) for request in state.waiting]  # each carried to its site and back
        state = collect(run, releases, keys["coordinator"])
        print(*state.news, sep="\n")
    print(state.certificate.statement)


def answer(root: Path, request: Path, keys: dict[str, Key]) -> Path:
    site = read_request(request).request.site
    release = root / site / request.name.replace("request", "release")
    with closing(Ledger(root / site / "records.ledger")) as ledger:
        release.write_bytes(answer_file(request, lambda: read_records(root / site / "records.csv"), ledger, keys[site]))
    return release


if __name__ == "__main__":
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("root", type=Path)
    main(**vars(arguments.parse_args()))
