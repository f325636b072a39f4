"""A score of your own, from a log of answers to a table to certify: python own_score.py log.jsonl table.csv"""

from __future__ import annotations

import csv
import json
import random
import re
from argparse import ArgumentParser
from pathlib import Path


def support(answer: str, evidence: str) -> float:
    """The share of an answer's words that the evidence holds. Any number in [0, 1] will do, if it looks at no label."""
    words = re.findall(r"\w+", answer.lower())
    known = set(re.findall(r"\w+", evidence.lower()))
    return sum(word in known for word in words) / max(1, len(words))


def make_log(path: Path, count: int) -> None:
    """A log to try it on: in a third of the answers, half of the words come from elsewhere."""
    draw = random.Random(3)
    vocabulary = [f"word{i}" for i in range(400)]
    with path.open("w", encoding="utf-8") as file:
        for i in range(count):
            evidence, unsupported = draw.sample(vocabulary, 40), draw.random() < 0.33
            other = vocabulary if unsupported else evidence
            answer = [draw.choice(evidence if k % 2 else other) for k in range(12)]
            row = {"id": f"q{i}", "evidence": " ".join(evidence), "answer": " ".join(answer), "loss": int(unsupported)}
            print(json.dumps(row), file=file)


def main(log: Path, table: Path) -> None:
    with log.open(encoding="utf-8") as lines, table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "score", "loss"])
        for row in map(json.loads, lines):
            writer.writerow([row["id"], f"{support(row['answer'], row['evidence']):.4f}", row["loss"]])
    print(f"Wrote {table}. Next: python certify_csv.py {table} run-own/")


if __name__ == "__main__":
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("log", type=Path)
    arguments.add_argument("table", type=Path)
    given = arguments.parse_args()
    if not given.log.exists():
        make_log(given.log, 4000)
    main(given.log, given.table)
