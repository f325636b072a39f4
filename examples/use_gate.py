"""In production: answers above the certified threshold pass, the others get a fallback: python use_gate.py run/ KEY"""

from __future__ import annotations

import sys

from fedsrc import Gate

ANSWERS = {"The limit is 40 mg a day.": 0.93, "The limit is 400 mg a day.": 0.12}


def main(folder: str, key: str) -> None:
    gate = Gate(folder, trusted=[key], claim={"score": "made-up score", "target_risk": 0.2})
    for text, score in ANSWERS.items():
        print(gate.answer(text, score, fallback=lambda decision: f"No answer: {decision.reason}."))


if __name__ == "__main__":
    main(*sys.argv[1:])
