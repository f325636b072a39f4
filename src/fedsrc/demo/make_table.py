"""Make the embedded table from HaluEval's original qa file: `python -m fedsrc.demo.make_table qa_data.json`.

One answer of each pair, so that units are independent; which one is decided by SEED through a stable bit stream.
Only id, site, loss and score are kept, no text.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedsrc.demo import TABLE
from fedsrc.scores.lexical import lexical_support

SEED = 20240101
SITES = ("central", "east", "north", "south", "west")


def rows(lines: Iterator[str]) -> Iterator[str]:
    """CSV lines: pair number, site, loss (1 for the hallucinated answer), score."""
    yield "id,site,loss,score"
    pairs = [json.loads(line) for line in lines]
    coins = np.random.PCG64(SEED).random_raw(len(pairs)) >> np.uint64(63)
    for number, (pair, coin) in enumerate(zip(pairs, coins.tolist(), strict=True)):
        answer = pair["hallucinated_answer"] if coin else pair["right_answer"]
        score = lexical_support(answer, pair["knowledge"])
        yield f"{number},{SITES[number % len(SITES)]},{coin},{score:.4f}"


def main(source: Path, target: Path) -> None:
    opener = gzip.open if source.suffix == ".gz" else open
    with opener(source, "rt", encoding="utf-8") as file:
        text = "\n".join(rows(iter(file))) + "\n"
    target.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(__file__).with_name(TABLE))
