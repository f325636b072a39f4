"""The demo: the whole flow on 10,000 real answers that come with the package."""

from __future__ import annotations

import gzip
from importlib.resources import files
from pathlib import Path

from fedsrc.files import write_whole

TABLE = "halueval_qa.csv.gz"
ABOUT = (
    "10,000 HaluEval QA answers (one of each pair), scored by lexical support, dealt to five sites. In HaluEval,"
    " answer length alone separates right from hallucinated answers, and any score of wording inherits that."
)


def write_table(path: Path) -> None:
    """Put the embedded table where a user can look at it."""
    if not path.exists():
        write_whole(path, gzip.decompress(files(__name__).joinpath(TABLE).read_bytes()))
