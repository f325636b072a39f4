"""Keys and certificates to try the live mode with.

An authority that signs one certificate and whose key is then discarded, a node key for each site's SuperNode, and the
keys that sign releases and that mask those of a cohort. In a real run every party makes its own, and private keys
never travel.
"""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedsrc.common.durable import write_whole
from fedsrc.common.places import mask_beside
from fedsrc.common.signing import load, load_or_make, public_hex
from fedsrc.errors import FedsrcError
from fedsrc.protocol.mask_key import MaskKey

DAYS = 90
SERVER = "server"
HERE = ("localhost", "127.0.0.1", "::1")


def make_trial(folder: Path, sites: tuple[str, ...], hosts: tuple[str, ...] = ()) -> dict[str, str]:
    """Write a trial set into a new folder; return the public release keys, by name. The server's certificate is for
    this machine and for `hosts`, its names or addresses as others know it."""
    for name in sites:
        if name in (SERVER, ".", "..") or "/" in name or not name.isprintable() or not name.strip():
            raise FedsrcError(f"a site cannot be called {name!r} here", hint="use plain words for trial sites")
    if len(set(sites)) < len(sites) or not sites:
        raise FedsrcError("every site needs a name of its own", hint="`sites='north,south'`, for example")
    if folder.exists() and any(folder.iterdir()):
        raise FedsrcError("exists already", where=str(folder), hint="keys are never replaced; choose another folder")
    _certificates(folder, hosts)
    public = {SERVER: public_hex(load_or_make(folder / SERVER / "server.key"))}
    for name in sites:
        site = folder / name / "site.key"
        public[name] = public_hex(load_or_make(site))
        word = MaskKey.by(name, load(site), load_or_make(mask_beside(site)))
        write_whole(folder / name / f"{name}.mask.json", word.to_bytes())
        _node_key(folder / name)
    for name, key in public.items():
        write_whole(folder / name / ("server.pub" if name == SERVER else "site.pub"), f"{key}\n".encode())
    return public


def _certificates(folder: Path, hosts: tuple[str, ...]) -> None:
    """Write an authority, whose private key is not kept, and the server's certificate by it."""
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedsrc trial authority")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    known = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    own = (
        _certificate(issuer, issuer, authority)
        .add_extension(x509.BasicConstraints(True, 0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(known, critical=False)
    )
    signed = (
        _certificate(subject, issuer, server)
        .add_extension(x509.BasicConstraints(False, None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_name(host) for host in (*HERE, *hosts)]), critical=False)
        .add_extension(usage, critical=False)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known), critical=False)
    )
    write_whole(folder / "ca.pem", own.sign(authority, hashes.SHA384()).public_bytes(Encoding.PEM))
    write_whole(folder / SERVER / "tls.pem", signed.sign(authority, hashes.SHA384()).public_bytes(Encoding.PEM))
    private = server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_whole(folder / SERVER / "tls.key", private, mode=0o600)


def _usage(*, authority: bool) -> x509.KeyUsage:
    """An authority signs certificates, a server signs what it says."""
    return x509.KeyUsage(
        digital_signature=not authority, key_cert_sign=authority, crl_sign=authority, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise FedsrcError(f"{host!r} is no host name or address") from error


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=DAYS))
    )


def _node_key(folder: Path) -> None:
    """Write a SuperNode's key, in the formats that Flower reads."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    write_whole(folder / "node.key", private, mode=0o600)
    write_whole(folder / "node.pub", key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")
