"""What the benchmarks of the gate share: certificates that renew each other, and the service as its own process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from fedsrc.common.clock import TIME
from fedsrc.common.signing import Key, public_hex
from fedsrc.federation.local import certify_table
from fedsrc.planning.register import Choices, development_part, register
from fedsrc.protocol.certificate import Certificate
from research.pages import records_of

KEY = Key.generate()
TRUSTED = public_hex(KEY)


def certified() -> Certificate:
    """A certificate on 3,000 records drawn as in population L."""
    rng = np.random.default_rng(0)
    loss = (rng.random(3_000) < 0.41).astype(np.float64)
    score = ndtr(rng.standard_normal(3_000) + np.sqrt(2.0) * ndtri(0.74) * (1.0 - loss))
    table = records_of(score, loss, np.zeros(3_000, np.int64), ("a site",))
    registration = register(Choices(0.3, float("inf")), table, development_part(table, "record", 0.2))
    with tempfile.TemporaryDirectory() as name:
        certificate = certify_table(registration, table, Path(name) / "run", Path(name) / "ledger", KEY)
    if certificate.status != "CERTIFIED":
        raise SystemExit("error: the run did not certify")
    return certificate


def renewed(certificate: Certificate, seconds: int, threshold: float) -> str:
    """The text of a certificate of a run so many seconds later, with that threshold."""
    later = timedelta(seconds=seconds)
    assert certificate.expires is not None
    changed = {
        "calibrated": (datetime.strptime(certificate.calibrated, TIME) + later).strftime(TIME),
        "expires": certificate.expires + later,
        "threshold": threshold,
    }
    return certificate.model_copy(update=changed).signed(KEY).text


@contextmanager
def process(*command: str) -> Iterator[int]:
    """A process of this Python that says where it listens; its port. It must end well when told to."""
    started = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    line = started.stderr.readline()
    try:
        yield int(line.split("http://127.0.0.1:")[1].split(":")[0])
    finally:
        started.terminate()
        words = started.communicate(timeout=60)[1]
    if started.returncode != 0:
        raise SystemExit(f"error: the process ended with {started.returncode}: {line}{words}")


def service(path: Path) -> Any:
    """`fedsrc gate serve`, without a limit on the rate."""
    return process(
        "-m", "fedsrc.cli", "gate", "serve", str(path), "--trust", TRUSTED, "--port", "0",
        "--rate", "1e9", "--reload-seconds", "0.02",
    )  # fmt: skip
