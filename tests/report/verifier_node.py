"""The page's verifier, run by Node: what tests ask it, and what it answers."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedsrc.common.canonical import canonical_bytes
from fedsrc.errors import FedsrcError
from fedsrc.protocol.names import REGISTRATION
from fedsrc.protocol.registration import Registration
from fedsrc.report.carried import CANONICAL, FILES, NOTICE
from tests.support.recordings import RUNS

NODE = shutil.which("node")
DRIVER = Path(__file__).with_name("verifier.mjs")


def ask(**asked: Any) -> list[Any]:
    """Ask the verifier, and return what it answers."""
    assert NODE is not None
    command, question = [NODE, "--no-warnings", str(DRIVER)], json.dumps(asked).encode()
    done = subprocess.run(command, input=question, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    answers: list[Any] = json.loads(done.stdout)
    return answers


def call(module: str, function: str, *arguments: Any) -> Any:
    """Call one function of the verifier."""
    return ask(calls=[[module, function, list(arguments)]])[0]


def calls(*asked: tuple[str, str, list[Any]]) -> list[Any]:
    """Call several functions of the verifier in one process."""
    return ask(calls=[list(each) for each in asked])


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of a run folder as a page would carry them: with the canonical JSON of its registration, if that can
    be read."""
    files = {name: (folder / name).read_bytes() for name in (*FILES, NOTICE) if (folder / name).exists()}
    with contextlib.suppress(FedsrcError):
        files[CANONICAL] = canonical_bytes(Registration.read(folder / REGISTRATION).model_dump())
    return files


def out_of_reach(name: str) -> bool:
    """Whether a recorded run is of a kind that the verifier names, and of which it says nothing more: panels, cohorts,
    monitors, unlabelled records."""
    registration = Registration.read(RUNS / name / REGISTRATION)
    kinds = (registration.claims.kind != "one", registration.aggregation.kind == "cohorts")
    return any(kinds) or registration.monitor is not None or registration.unlabelled is not None


def verdicts(runs: Sequence[dict[str, bytes]], **options: Any) -> list[dict[str, Any]]:
    """What the verifier says of runs, each given by its files."""
    return ask(verify=[{name: encoded(data) for name, data in files.items()} for files in runs], **options)
