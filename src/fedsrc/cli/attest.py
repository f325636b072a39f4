"""`fedsrc attest`: a certificate for other tools."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

import fedsrc
from fedsrc.cli.options import FORMAT, KEY, LIFE, TRUST, options, output_file, server_key
from fedsrc.cli.output import show
from fedsrc.cli.streams import say
from fedsrc.cli.table import listed
from fedsrc.cli.types import DIGITS, AnyPath, FilePath, FolderPath
from fedsrc.common import signing
from fedsrc.common.canonical import digest_bytes, file_digest
from fedsrc.common.durable import read_bytes, write_whole
from fedsrc.common.values import printable
from fedsrc.common.words import moment, plain
from fedsrc.errors import DamagedError, FedsrcError
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.names import CERTIFICATE
from fedsrc.report.attestation import MAX_BYTES, outcomes, sealed, statement, tags, verify_attestation
from fedsrc.report.model_card import model_card
from fedsrc.report.standing import revoked_sentence, rung_sentence
from fedsrc.report.view import view_run, watched_by
from fedsrc.server.verify import verify


def _subject(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> list[tuple[str, str]]:
    """Read a repeatable NAME=sha256:HEX."""
    found = []
    for each in given:
        name, _, value = each.rpartition("=sha256:")
        try:
            found.append((printable(name), str(DIGITS.parse(value))))
        except ValueError as error:
            raise click.BadParameter(f"{each!r} is not NAME=sha256:HEX: {error}") from error
    return found


@click.command("attest")
@click.argument("place", metavar="RUN", type=AnyPath)
@output_file(help="File to write.")
@click.option("--as", "form", type=click.Choice(["attestation", "model-card", "mlflow-tags"]), default="attestation",
              help="An in-toto test result, signed; a section in Markdown; or texts by name, in JSON.")  # fmt: skip
@click.option("--subject", "subjects", multiple=True, callback=_subject, metavar="NAME=sha256:HEX",
              help="Artifact that the certificate speaks of, by your word: a model, an image; repeatable.")  # fmt: skip
@click.option("--subject-file", "files", type=FilePath, multiple=True, help="The same, by its file; repeatable.")
@click.option("--verify", "check", is_flag=True, help="RUN is an attestation: check who signed it, and its subjects.")
@click.option("--monitor", type=FolderPath, help="Folder of the certificate's monitor; refuse if it has rung.")
@KEY
@TRUST
@options(LIFE)
@FORMAT
def attest_command(
    place: Path, target: Path | None, check: bool, subjects: list[tuple[str, str]], files: tuple[Path, ...],
    output: str, **given: Any,
) -> None:  # fmt: skip
    """Verify a run and write its result for supply chains, model cards and registries.

    Exit status 0 every claim is certified, 1 a claim is not (result FAILED), 2 error: it does not verify, has expired,
    was revoked, or its monitor rang, and nothing is written. With --verify: 1 the attestation does not verify, or its
    certificate has expired or was revoked.
    """
    named = _named([*subjects, *((path.name, file_digest(path)) for path in files)])
    life = {name: given[name] for name in ("successions", "revocations")}
    if check:
        _check(place, named, output, trust=given["trust"], **life)
    if target is None:
        raise FedsrcError("nothing says where to write", hint="name a file with -o")
    if named and given["form"] != "attestation":
        raise FedsrcError(f"--as {given['form']} names no subjects", hint="leave --subject and --subject-file out")
    monitor, trust = given["monitor"], given["trust"]
    certificate = _standing(place, trust, life)
    watched = None if monitor is None else watched_by(monitor, place, trusted=trust, successions=life["successions"])
    if watched is not None and watched.state == "alarm":
        raise _fallen(rung_sentence(watched.groups), place)
    key = None
    if given["form"] == "model-card":
        data = model_card(view_run(place, monitor=watched, version=fedsrc.__version__, **life)).encode()
    elif given["form"] == "mlflow-tags":
        data = (json.dumps(tags(certificate), indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
    else:
        key = signing.load(server_key(given["key"]))
        data = sealed(statement(certificate, place, named), key)
    if target.exists() and read_bytes(target, MAX_BYTES) != data:
        raise FedsrcError("exists already, and is something else", where=str(target), hint="choose another -o")
    write_whole(target, data)
    found = outcomes(certificate)
    result = "FAILED" if found["failedTests"] else "PASSED"
    told = {"file": str(target), "as": given["form"], "sha256": digest_bytes(data), "status": certificate.status}
    lines = [f"Wrote {target}: {result}, of a certificate that says {certificate.status}"]
    lines += [f"Not shown by its evidence: {listed(found['failedTests'])}"] if found["failedTests"] else []
    lines += [] if trust else ["The certificate's key was not compared with one you trust: --trust KEY does."]
    show(output, {**told, "result": result, **found, "key": key and signing.public_hex(key)}, *lines)
    sys.exit(1 if found["failedTests"] else 0)


def _named(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return subjects by name, each once."""
    found = dict(pairs)
    if len(found) != len(pairs) or CERTIFICATE in found or "" in found:
        hint = f"each has a name of its own, and {CERTIFICATE} is the certificate's"
        raise FedsrcError("two subjects have the same name, or one has none", hint=hint)
    return found


def _standing(folder: Path, trust: tuple[str, ...], life: dict[str, Any]) -> Certificate:
    """Return the certificate of a run that verifies and whose word stands."""
    found = verify(folder, trusted=trust, **life)
    if not isinstance(found.signed, Certificate):
        hint = "attest the run that it watches, with --monitor and this folder"
        raise FedsrcError("is the account of a monitor, which is no certificate", where=str(folder), hint=hint)
    if found.revoked is not None:
        raise _fallen(revoked_sentence(found.revoked.model_dump()), folder)
    if found.expired:
        raise _fallen(f"It expired on {moment(found.signed.expires_on)}. What it said no longer stands.", folder)
    return found.signed


def _fallen(words: str, folder: Path) -> FedsrcError:
    return FedsrcError(words, where=str(folder), hint="nothing is attested of it; calibrate anew")


def _check(file: Path, subjects: dict[str, str], output: str, *, trust: tuple[str, ...], **life: Any) -> NoReturn:
    """Say who signed an attestation, what it says and of what, and what is known of its certificate since."""
    try:
        found = verify_attestation(file, trusted=trust, subjects=subjects, **life)
    except DamagedError as error:
        say(f"error: {error}")
        show(output, {"status": "NOT VERIFIED", "problem": error.what}, "It does not verify: do not rely on it.")
        sys.exit(1)
    late = "REVOKED" if found.revoked else "EXPIRED" if found.expired else ""
    since = found.revoked.words() if found.revoked else "the certificate has expired" if found.expired else ""
    lines = [f"{late}: {since}"] if late else []
    lines += [f"Signed by {found.key}, one that you trust: {found.result}, of"]
    lines += [f"  {plain(name)} sha256:{digest}" for name, digest in found.subjects.items()]
    told = {"status": late or "VERIFIED", "result": found.result, "subjects": found.subjects, "key": found.key}
    show(output, told, *lines, "The run itself was not recomputed: `fedsrc verify` does that.")
    sys.exit(1 if late else 0)
