"""Tables to play with: dev.csv (to forecast from) and table.csv (to certify). Your own will do in their place."""

from __future__ import annotations

import csv
import random
from pathlib import Path


def write(path: Path, letter: str, count: int, draw: random.Random) -> None:
    """Answers of two sites, 35% of them unsupported, with a score that tells them apart to a degree."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["id", "site", "score", "loss"])
        for i in range(count):
            loss = int(draw.random() < 0.35)
            score = min(1.0, max(0.0, draw.gauss(0.45 if loss else 0.7, 0.15)))
            table.writerow([f"{letter}{i}", draw.choice(["north", "south"]), f"{score:.3f}", loss])


if __name__ == "__main__":
    draw = random.Random(7)
    write(Path("dev.csv"), "d", 500, draw)
    write(Path("table.csv"), "a", 6000, draw)
