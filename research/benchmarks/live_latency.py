"""How long a live round takes with 1, 5 and 20 sites, beside an empty query of Flower's to the same nodes.

Writes docs/results/live-latency.md. Run where Flower is installed: python -m research.benchmarks.live_latency [FOLDER]

Every site is a `fedsrc site` process with a SuperNode beside it, with TLS and node keys, all on this machine. In the
same run, before each round, the server app sends every node of the round a query that its app answers at once with
nothing: what Flower itself takes. Both are polled at the same pace.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from fedsrc.common.durable import write_whole
from fedsrc.demo.parties import Parties, sites_running
from fedsrc.federation.flower import app as flower_app
from fedsrc.federation.flower.grid import Settings
from fedsrc.federation.flower.plans import name_of_public
from fedsrc.federation.flower.processes import Tls
from fedsrc.federation.flower.superlink import Address, ServerPlan, supervise
from fedsrc.federation.flower.trial_keys import make_trial
from fedsrc.federation.live.transport import Patience
from fedsrc.planning.register import Choices, register_grid
from fedsrc.server.verify import verify
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow
from research.pages import markdown, publish

ROUNDS = {1: 5, 5: 5, 20: 2}  # by number of sites
BATCH, RECORDS = 50, 500
PAGE = "live-latency.md"
PATIENCE = Patience(start=900.0, round=600.0, missing=600.0)

CLIENT = '''

def nothing(message: Any, _context: Any) -> Any:
    """What Flower itself takes."""
    return Message(RecordDict({}), reply_to=message)


app.query("nothing")(nothing)
'''

SERVER = '''"""The run loop, with an empty query to the same nodes before every round."""

import json
import os
import time
from pathlib import Path

from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


def main(grid, context):
    from fedsrc.federation.flower import grid as flower
    from fedsrc.federation.live import carrier, play

    place = Path(os.environ[flower.VARIABLE]).parent / "latency.jsonl"

    class Timed(carrier.LiveCarrier):
        def __call__(self, requests):
            nodes = [self.node_of(request.site) for request in requests]
            start = time.monotonic()
            empty = [Message(RecordDict({}), dst_node_id=node, message_type="query.nothing") for node in nodes]
            waiting = set(grid.push_messages(empty))
            while waiting:
                waiting -= {reply.metadata.reply_to_message_id for reply in grid.pull_messages(list(waiting))}
                if waiting:
                    time.sleep(self._patience.poll)
            middle = time.monotonic()
            answers = super().__call__(requests)
            end = time.monotonic()
            row = {"round": requests[0].round, "empty": middle - start, "live": end - middle}
            with place.open("a") as file:
                print(json.dumps(row), file=file)
            return answers

    play.LiveCarrier = Timed
    flower.serve(grid)


app.main()(main)
'''


def timing_app(folder: Path) -> Path:
    """Our app with one more query, which answers with nothing."""
    app = folder / "app"
    shutil.copytree(Path(flower_app.__file__).parent, app, ignore=shutil.ignore_patterns("__pycache__"))
    (app / "fedsrc_relay" / "server_app.py").write_text(SERVER)
    client = app / "fedsrc_relay" / "client_app.py"
    client.write_text(client.read_text() + CLIENT)
    return app


def set_up(folder: Path, count: int) -> Parties:
    """Keys, tables, ledgers and a registration of so many sites that asks all of them in every round."""
    parties = Parties(folder, tuple(f"site-{i:02d}" for i in range(count)))
    public = make_trial(folder / "parties", parties.sites)
    choices = Choices(
        target_risk=0.2, epsilon=4.0, batch=BATCH, rounds=ROUNDS[count], policy="final", grid=True,
        server_key=public["server"], site_keys={site: public[site] for site in parties.sites},
        capacities=dict.fromkeys(parties.sites, RECORDS),
    )  # fmt: skip
    registration = register_grid(choices, parties.sites)
    for place in (parties.registration, parties.run / "registration.toml"):
        write_whole(place, registration.to_toml().encode())
    for i, site in enumerate(parties.sites):
        rng = random.Random(i)
        rows = [f"{site}-{n},{rng.random():.3f},{int(rng.random() < 0.3)}" for n in range(RECORDS)]
        write_whole(parties.table(site), "\n".join(["id,score,loss", *rows, ""]).encode())
        with closing(Ledger(parties.ledger(site))) as ledger:
            allow(ledger, site, registration, max_epsilon=4.0)
    return parties


def measure(folder: Path, count: int) -> list[dict[str, float]]:
    """One run; seconds of each round, and of the empty query before it."""
    parties = set_up(folder, count)
    nodes = {site: parties.of(site, "node.pub") for site in parties.sites}
    names = {site: name_of_public(path) for site, path in nodes.items()}
    key = parties.of("server", "server.key").resolve()
    plan = ServerPlan(
        Settings(parties.run.resolve(), key, names, PATIENCE), Address(port=parties.port),
        tls=Tls(parties.ca, parties.of("server", "tls.pem"), parties.of("server", "tls.key")),
        node_keys=nodes, app=timing_app(folder),
    )  # fmt: skip
    with sites_running(parties, print):
        supervise(plan, print)
    certificate = verify(parties.run).certificate
    assert certificate.releases == ROUNDS[count] * count, "a release is missing"
    return [json.loads(line) for line in (parties.run / "latency.jsonl").read_text().splitlines()]


def page(found: dict[int, list[dict[str, float]]]) -> list[str]:
    """The table, and what it is of."""
    rows = []
    for count, rounds in found.items():
        empty, live = ([row[name] for row in rounds] for name in ("empty", "live"))
        ratio = statistics.median(row["live"] / row["empty"] for row in rounds)
        rows.append(
            [str(count), str(len(rounds)), *(f"{statistics.median(each):.1f} ({min(each):.1f} to {max(each):.1f})"
             for each in (live, empty)), f"{ratio:.2f}"]
        )  # fmt: skip
    head = ["sites", "rounds", "a round, seconds: median (range)", "an empty query, seconds", "median ratio"]
    return [
        "# How long a live round takes",
        f"""Made by `python -m research.benchmarks.live_latency`, where Flower 1.41 is installed. Every site is a
`fedsrc site` process with a SuperNode beside it, with TLS and node keys; SuperLink, server app and all sites share one
machine with {os.cpu_count()} cores. In the same run, before each round, the server app sends every node a query that
its app answers at once with nothing. That is Flower's own floor: the way through the SuperLink and back, and one
process started at the node for each message.""",
        markdown(head, rows),
        """A round is the same way there and back, plus the site's work (checking the request, the histogram, exact
noise, the ledger's transaction, a signature) and the server's. Here the processes of all nodes start on the same cores,
so a round grows with the number of sites; with machines of their own they would start side by side.""",
    ]


def main(folder: Path) -> None:
    """Measure what the folder does not hold yet, and publish."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for count, rounds in ROUNDS.items():
        kept = folder / f"{count}.json"  # what was measured before, if the folder is used again
        if not kept.exists():
            kept.write_text(json.dumps(measure(folder / str(count), count)))
        found[count] = json.loads(kept.read_text())
        assert len(found[count]) == rounds
    publish(PAGE, page(found))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as name:
            main(Path(name))
