"""The host names that the service answers to.

A page from elsewhere can point a name of its own at this machine and have a browser send requests here under it. They
carry that name in their Host header, so other names than the service's own are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address

from fedsrc.errors import FedsrcError

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
NAME = re.compile(r"[a-z0-9._-]{1,253}")
HEADER = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]{1,253}))(?::[0-9]{0,5})?")


def host_names(bound: str, more: Iterable[str] = ()) -> frozenset[str]:
    """Return the loopback names, the host that the service was told to bind, and those named besides."""
    return LOOPBACK | {_plain(bound)} | {_named(each) for each in more}


def named_in(header: bytes) -> str | None:
    """Return the host that a Host header names, without its port; None if it names none."""
    found = HEADER.fullmatch(header.decode("latin-1").lower())
    return None if found is None else _plain(found["address"] or found["name"])


def _named(host: str) -> str:
    """Check a host that an option names: a port would be a mistake, since a header's port is ignored."""
    bare = host.lower().removeprefix("[").removesuffix("]")
    if not NAME.fullmatch(bare) and not _is_address(bare):
        raise FedsrcError(f"{host!r} is no host name", hint="give a name or an address, without a port")
    return _plain(bare)


def _plain(host: str) -> str:
    """Return the one spelling of a name or an address."""
    return str(ip_address(host)) if _is_address(host) else host.lower()


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
