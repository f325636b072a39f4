"""Plans of a live run over Flower: what the operator of a server or of a site asks for, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

from fedsrc.common.durable import read_bytes, write_whole
from fedsrc.common.signing import MAX_BYTES, load
from fedsrc.errors import FedsrcError
from fedsrc.federation.flower.grid import Settings
from fedsrc.federation.flower.processes import Tls, check_encrypted, program
from fedsrc.federation.flower.superlink import Address, ServerPlan, supervise
from fedsrc.federation.flower.supernode import NodePlan
from fedsrc.federation.live.play import finished, live_session
from fedsrc.federation.live.transport import Patience
from fedsrc.protocol.handshake import node_key_name
from fedsrc.protocol.names import REGISTRATION
from fedsrc.protocol.registration import Registration

# Flower identifies nodes by elliptic-curve keys in OpenSSH's format
MAKE_ONE = "make one with `ssh-keygen -t ecdsa -b 384 -N '' -f node.key`"


def server_plan(
    registration: Registration,
    folder: Path,
    key: Path,
    *,
    address: Address,
    tls: Tls,
    node_keys: Mapping[str, Path],
    running: bool = False,
    insecure: bool = False,
    patience: Patience | None = None,
) -> ServerPlan:
    """Return the plan of a server. `running`: the SuperLink at that address runs already."""
    live_session(registration, folder, load(key))
    if running and (tls.certificate or tls.key):
        raise FedsrcError("`certificate=` belongs to the SuperLink, which runs already", hint="give `ca=` alone")
    parts = (tls.ca, tls.certificate, tls.key)
    if not running and any(parts) and not all(parts):
        raise FedsrcError("`ca=`, `certificate=` and `certificate_key=` belong together")
    check_encrypted(address.host, tls, insecure)
    names = _node_names(registration, node_keys, tls)
    settings = Settings(folder.resolve(), key.resolve(), names, patience or Patience())
    return ServerPlan(settings, address, running, tls=tls, node_keys=dict(node_keys))


def run_server(registration: Registration, plan: ServerPlan, tell: Callable[[str], None]) -> None:
    """Play a live run to its certificate, or return at once if it has ended."""
    folder = plan.settings.folder
    if finished(live_session(registration, folder, load(plan.settings.key))) is None:
        program("flower-superlink")
        write_whole(folder / REGISTRATION, registration.to_toml().encode())
        supervise(plan, tell)


def node_plan(
    site: str, records: Path, socket: Path, superlink: str, tls: Tls, node_key: Path | None, insecure: bool
) -> NodePlan:
    """Return the plan of the SuperNode beside a site."""
    check_encrypted(superlink.rpartition(":")[0], tls, insecure)
    _check_tls(node_key is not None, tls)
    return NodePlan(site, socket, superlink, records.with_name(records.name + ".flower"), tls, node_key)


def node_name(node_key: Path | None, *, private: bool) -> str | None:
    """Return the name of a node key, from its private or its public file."""
    return None if node_key is None else (name_of_private if private else name_of_public)(node_key)


def name_of_private(path: Path) -> str:
    """Return the name of a node key, from its private file."""
    key = _load(path, "private", lambda data: serialization.load_ssh_private_key(data, password=None))
    return _name(path, key.public_key() if isinstance(key, EllipticCurvePrivateKey) else key)


def name_of_public(path: Path) -> str:
    """Return the name of a node key, from its public file."""
    return _name(path, _load(path, "public", serialization.load_ssh_public_key))


def _load(path: Path, part: str, load: Callable[[bytes], object]) -> object:
    try:
        return load(read_bytes(path, MAX_BYTES))
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise FedsrcError(f"cannot be read as a node's {part} key", where=str(path), hint=MAKE_ONE) from error


def _name(path: Path, key: object) -> str:
    if not isinstance(key, EllipticCurvePublicKey):
        raise FedsrcError("is not an elliptic-curve key", where=str(path), hint=MAKE_ONE)
    spelling = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return node_key_name(key.public_bytes(*spelling))


def _node_names(registration: Registration, node_keys: Mapping[str, Path], tls: Tls) -> dict[str, str]:
    """Return the names of the sites' node keys: of every site, or of none."""
    _check_tls(bool(node_keys), tls)
    for name in sorted(node_keys.keys() ^ registration.by_name.keys() if node_keys else ()):
        if name in node_keys:
            raise FedsrcError(f"`node_key=`: {name!r} is not a registered site")
        raise FedsrcError(f"site {name!r} has no `node_key=`", hint="with node keys, every site needs one")
    names = {site: name_of_public(path) for site, path in node_keys.items()}
    if len(set(names.values())) < len(names):
        raise FedsrcError("two sites have the same node key", hint="every SuperNode has its own")
    return names


def _check_tls(node_keys: bool, tls: Tls) -> None:
    if node_keys and tls.ca is None:
        raise FedsrcError("`node_key=` needs `ca=`", hint="Flower takes node keys over TLS only")
