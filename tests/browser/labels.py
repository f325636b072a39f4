"""A labelling page in a process of its own, with made rounds: `python -m tests.browser.labels FOLDER PORT`.

The run looks at `labels.jsonl` itself, as a site does: every answer labelled opens the next round.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from fedsrc.labelling.desk import Desk
from fedsrc.labelling.page import kept_secret, serving
from fedsrc.labelling.queue import tasks, waiting
from fedsrc.site.label_file import read_labels
from fedsrc.site.rounds import Round
from tests.support.rounds import open_round, texts

ROUNDS = [open_round([f"row {n}" for n in range(first, first + 20)], i) for i, first in enumerate((1, 21, 41), start=1)]


def main(folder: Path, port: int) -> None:
    """Serve until killed."""
    path = folder / "labels.jsonl"

    def rounds() -> list[Round]:
        labels = read_labels(path)
        return [each for each in ROUNDS if waiting(tasks([each], labels))][:1]

    desk = Desk(path, rounds, texts, lambda: "" if rounds() else "CERTIFIED: stop labelling.")
    with serving(desk, kept_secret(folder / "secret"), port) as server:
        print(server.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
