"""Every table that the pages and examples use, in the current folder. Your own will do in their place."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from random import Random

SITES = {"ashford": 0.30, "birch": 0.33, "cedar": 0.36, "dale": 0.39, "elm": 0.42}  # share of unsupported answers
FACTS = ("is 330 metres tall", "was finished in 1889", "stands in Paris", "has three floors", "is made of iron")
FANCIES = ("was built by giants", "glows at midnight", "is carved from ice", "sings when it rains", "moved here")


def write(path: str, size: int, *columns: str, wrong: float = 0.35, bad: float = 0.45, good: float = 0.7) -> None:
    """Answers, some of them unsupported, with a score that tells them apart to a degree."""
    draw = Random(path)
    Path(path).parent.mkdir(exist_ok=True)
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(columns)
        for i in range(size):
            ward = "adults" if i % 3 else "children"
            worse = 1.5 if "ward" in columns and ward == "children" else 1.0
            loss, year = int(draw.random() < worse * wrong), draw.randint(1800, 1999)
            score = min(1.0, max(0.0, draw.gauss(bad if loss else good, 0.15)))
            row = {"id": f"{path}-{i}", "site": draw.choice(["north", "south"]), "score": f"{score:.3f}", "loss": loss}
            row |= {"ward": ward}
            row |= {"question": f"When did house {i} open?", "evidence": f"House {i} opened in {year}."}
            table.writerow((row | {"response": f"In {year + loss}."})[name] for name in columns)


def write_answers(path: str, count: int) -> None:
    """A log without scores: two statements about a tower, of which the second may be made up."""
    draw = Random(path)
    with Path(path).open("w", encoding="utf-8") as file:
        for i in range(count):
            tower, known, loss = f"Tower {i}", draw.sample(FACTS, 3), int(draw.random() < 0.4)
            said = f"{tower} {draw.choice(known)} and {draw.choice(FANCIES if loss else known)}."
            evidence = " ".join(f"{tower} {each}." for each in known)
            row = {"id": f"a{i}", "source": tower, "question": f"What of {tower}?", "evidence": evidence}
            print(json.dumps(row | {"response": said, "loss": loss}), file=file)


if __name__ == "__main__":
    labelled = ("id", "site", "score", "loss")
    write("dev.csv", 1500, *labelled)
    for name in ("table.csv", "fresh.csv"):
        write(name, 6000, *labelled)
    write("wards.csv", 6000, "id", "ward", "score", "loss")
    write("log.csv", 6000, "id", "score", "question", "evidence", "response")
    write_answers("answers.jsonl", 3000)
    write("week1.csv", 800, *labelled)
    write("week2.csv", 800, *labelled)
    write("week3.csv", 2000, *labelled, wrong=0.6, bad=0.65)  # something has gone wrong
    for name, share in SITES.items():
        write(f"{name}/records.csv", 600, "id", "score", "loss", wrong=share, bad=0.35, good=0.8)
    write("coordinator/dev.csv", 300, "id", "score", "loss", wrong=0.36, bad=0.35, good=0.8)
