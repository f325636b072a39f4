"""In production: answers above the certified threshold pass, the others get a fallback: python use_gate.py run/ KEY"""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from fedsrc import FedsrcError, Gate

ANSWERS = {"The limit is 40 mg a day.": 0.93, "The limit is 400 mg a day.": 0.12}


def main(folder: str, key: str) -> None:
    gate = Gate(folder, trusted=[key], claim={"score": "made-up score", "target_risk": 0.2})
    for text, score in ANSWERS.items():
        print(gate.answer(text, score, fallback=lambda decision: f"No answer: {decision.reason}."))


if __name__ == "__main__":
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("folder")
    arguments.add_argument("key")
    try:
        main(**vars(arguments.parse_args()))
    except FedsrcError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
