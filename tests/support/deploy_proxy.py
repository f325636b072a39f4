"""A real nginx with deploy/nginx.conf, on free ports and with certificates of its own, and a client of it."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fedsrc.federation.flower.processes import free_port
from tests.support.deploy import DEPLOY
from tests.support.gate_server import PATIENCE, Reply

NAME = "gate.example.org"
AROUND = """daemon off; pid {folder}/nginx.pid; error_log {folder}/main.log; worker_processes 1;
events {{ worker_connections 512; }}
http {{
    {temporary}
    include {folder}/fedsrc.conf;
}}
"""
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def certificates(folder: Path) -> Path:
    """An authority, the proxy's certificate and a client's, under the names that the file of nginx has for them."""
    folder.mkdir()
    key, name = ec.generate_private_key(ec.SECP256R1()), "authority"
    own = _certificate(name, name, key.public_key(), authority=True).sign(key, hashes.SHA256())
    (folder / "clients.pem").write_bytes(own.public_bytes(Encoding.PEM))
    for stem, subject in (("tls", NAME), ("client", "an application")):
        mine = ec.generate_private_key(ec.SECP256R1())
        signed = _certificate(subject, name, mine.public_key(), authority=False).sign(key, hashes.SHA256())
        (folder / f"{stem}.pem").write_bytes(signed.public_bytes(Encoding.PEM))
        pem = mine.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / f"{stem}.key").write_bytes(pem)
    return folder


def _certificate(
    subject: str, issuer: str, key: ec.EllipticCurvePublicKey, *, authority: bool
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in (subject, issuer)]
    made = x509.CertificateBuilder(names[1], names[0], key, x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.BasicConstraints(authority, 0 if authority else None), critical=True)
    if subject == NAME:
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
    return made


class Proxy:
    """A client of the proxy, a new connection for each request."""

    def __init__(self, port: int, keys: Path) -> None:
        self._port, self._keys = port, keys

    def _context(self, client: bool) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self._keys / "clients.pem"))
        if client:
            context.load_cert_chain(self._keys / "client.pem", self._keys / "client.key")
        return context

    def _connected(self, name: str, client: bool = True) -> ssl.SSLSocket:
        link = socket.create_connection(("127.0.0.1", self._port), PATIENCE)
        try:
            return self._context(client).wrap_socket(link, server_hostname=name)
        except BaseException:
            link.close()
            raise

    def handshake(self, name: str) -> bool:
        """Whether it talks to whoever calls it by that name."""
        try:
            self._connected(name).close()
        except ssl.SSLError:
            return False
        return True

    def ask(self, method: str, path: str, body: Any = None, *, client: bool = True) -> Reply:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPSConnection(NAME)
        connection.sock = self._connected(NAME, client)
        try:
            connection.request(method, path, data, {"content-type": "application/json"})
            reply = connection.getresponse()
            return Reply(reply.status, {key.lower(): value for key, value in reply.getheaders()}, reply.read())
        finally:
            connection.close()


@contextmanager
def proxied(folder: Path, gate: int, keys: Path) -> Iterator[Proxy]:
    """Run nginx before the gate at a port. Its file is as it is, but for places and ports."""
    port, text = free_port(), (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    for old, new in {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "server 127.0.0.1:8321;": f"server 127.0.0.1:{gate};",
        "/etc/fedsrc/proxy": str(keys),
        "/var/log/nginx": str(folder / "log"),
    }.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "log").mkdir()
    (folder / "fedsrc.conf").write_text(text)
    temporary = " ".join(f"{name}_temp_path {folder}/{name};" for name in TEMPORARY)
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder, temporary=temporary))
    command = ["nginx", "-p", str(folder), "-e", str(folder / "main.log"), "-c", str(folder / "nginx.conf")]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "[warn]" not in checked.stderr, checked.stderr
    running = subprocess.Popen(command)
    try:
        _wait(port, running)
        yield Proxy(port, keys)
    finally:
        running.terminate()
        running.wait(PATIENCE)


def _wait(port: int, running: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        assert running.poll() is None
        assert time.monotonic() < end
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
