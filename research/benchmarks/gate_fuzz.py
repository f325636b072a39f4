"""The service under requests made from its own OpenAPI description, and under bytes that are hardly HTTP.

Writes docs/results/gate-fuzz.md. Run: python -m research.benchmarks.gate_fuzz
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import numpy as np

from fedsrc.protocol.names import CERTIFICATE
from research.benchmarks.gate_common import certified, renewed, service
from research.pages import markdown, publish

EXAMPLES, SEED, RAW = 300, 0, 5_000
BODY = b'{"score": 0.5}'
SOUND = (
    b"POST /v1/decide HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 14\r\n\r\n"
    + BODY
)


def described(port: int) -> tuple[int, int, str]:
    """Schemathesis with every check it has: cases made, cases passed, and what it said."""
    command = ["schemathesis", "run", f"http://127.0.0.1:{port}/openapi.json", "--checks", "all"]
    command[0] = str(Path(sys.executable).with_name("schemathesis"))
    more = ["--max-examples", str(EXAMPLES), "--seed", str(SEED), "--no-color"]
    done = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
    found = re.search(r"(\d[\d,]*) generated, (\d[\d,]*) passed", done.stdout)
    if found is None:
        raise SystemExit(done.stdout + done.stderr)
    made, passed = (int(each.replace(",", "")) for each in found.groups())
    return made, passed, done.stdout


def damaged(rng: np.random.Generator) -> bytes:
    """A sound request with bytes changed, left out, or doubled."""
    data = bytearray(SOUND)
    for _ in range(int(rng.integers(1, 8))):
        at = int(rng.integers(len(data)))
        how = int(rng.integers(3))
        if how == 0:
            data[at] = int(rng.integers(256))
        elif how == 1:
            del data[at : at + int(rng.integers(1, 10))]
        else:
            data[at:at] = data[at : at + int(rng.integers(1, 40))]
        if not data:
            break
    return bytes(data)


def status_of(port: int, data: bytes) -> str:
    """The status of the first response; no more is sent."""
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        try:
            head = connection.recv(65_536)
        except ConnectionResetError:
            return "closed"
    return head.split(b" ", 2)[1].decode() if head.startswith(b"HTTP/1.1 ") else "closed"


def main() -> None:
    rng = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / CERTIFICATE
        path.write_text(renewed(certified(), 60, 0.25))
        with service(path) as port:
            made, passed, words = described(port)
            seen = Counter(status_of(port, damaged(rng)) for _ in range(RAW))
            alive = status_of(port, SOUND)
    phases = re.search(r"Test Phases:\n(.*?)\n\n", words, re.DOTALL)
    print(words)
    rows = [[status, f"{count:,}"] for status, count in sorted(seen.items())]
    faults = sum(count for status, count in seen.items() if status.startswith("5"))
    described_row = [[f"{made:,}", f"{passed:,}", f"{made - passed:,}"]]
    publish("gate-fuzz.md", [
        HEAD.format(version=version("schemathesis"), phases=phases.group(1) if phases else ""),
        markdown(("cases", "passed", "failed"), described_row), RAW_HEAD, markdown(("first status", "requests"), rows),
        f"Server errors (5xx): {faults}. A sound request afterwards: {alive}.",
    ])  # fmt: skip
    if made != passed or faults or alive != "200":
        sys.exit(1)


HEAD = f"""\
# The gate's service, fuzzed

Made by

    python -m research.benchmarks.gate_fuzz

## From its own description

Schemathesis {{version}} reads `/openapi.json` of `fedsrc gate serve`, which runs as a process of its own, and makes
requests from it, right ones and wrong ones: at most {EXAMPLES:,} examples an operation, seed {SEED}, every check it has
(no server error; status, content type, headers and body as declared; wrong input refused, right input taken;
methods that are not declared refused). Its phases:

{{phases}}"""

RAW_HEAD = f"""\
## Bytes that are hardly HTTP

{RAW:,} sound requests with one to seven places changed, left out or doubled, each on a connection of its own. "closed":
the connection ended without a response, which is what happens to a request that never becomes whole."""


if __name__ == "__main__":
    main()
