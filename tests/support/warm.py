"""A `fedsrc` that starts at once: one process has loaded every command, and forks for each call.

Python takes a second or two to import what a command needs, and tests make hundreds of calls. The client hands over its
arguments, folder, environment and streams, and ends with the status of the call: a process of its own, as a user's is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SERVER = """
import json, os, signal, socket, sys
from fedsrc.cli.main import COMMANDS, cli, main

for name in COMMANDS:
    cli.get_command(None, name)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
while True:
    caller = listener.accept()[0]
    data, streams, _, _ = socket.recv_fds(caller, 1 << 20, 3)
    if os.fork() == 0:
        sys.argv, folder, variables = json.loads(data)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        for place, stream in enumerate(streams):
            os.dup2(stream, place)
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
        sys.stdout.flush()
        caller.send(bytes([status]))
        os._exit(0)
    for handle in (*streams, caller.detach()):
        os.close(handle)
"""
CLIENT = """#!{python} -IS
import json, os, socket, sys

server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
told = json.dumps([["fedsrc", *sys.argv[1:]], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [told], [0, 1, 2])
answer = server.recv(1)
sys.exit(answer[0] if answer else 70)
"""


@contextmanager
def warm_command(client: Path, environment: Mapping[str, str] | None = None) -> Iterator[None]:
    """Put a `fedsrc` that starts at once into a file."""
    with tempfile.TemporaryDirectory() as place:  # a socket's path must be short
        address = f"{place}/s"
        command = [sys.executable, "-c", SERVER, address]
        server = subprocess.Popen(command, env=environment or os.environ, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        with server.stdout as started:
            assert started.readline() == "ready\n"
        client.write_text(CLIENT.format(python=sys.executable, address=address))
        client.chmod(0o755)
        try:
            yield
        finally:
            server.kill()
            server.wait()
