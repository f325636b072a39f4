"""`fedsrc keys`: signing keys, and trial sets of the live mode."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fedsrc.cli.options import FORMAT, FilePath, FolderPath, server_key
from fedsrc.cli.output import emit
from fedsrc.cli.streams import command, say
from fedsrc.common import signing
from fedsrc.errors import FedsrcError
from fedsrc.federation.flower.trial_keys import make_trial


@click.command("keys")
@click.argument("file", type=FilePath, required=False)
@click.option("--trial", type=FolderPath, help="Instead of FILE: a folder for a trial set of the live mode.")
@click.option("--sites", help="Site names of the trial set, comma-separated.")
@click.option("--host", "hosts", multiple=True, help="A name or address of the server, for the trial's certificate.")
@FORMAT
def keys_command(file: Path | None, trial: Path | None, sites: str | None, hosts: tuple[str, ...], output: str) -> None:
    """Make a signing key in FILE if there is none, and show its public part. Without FILE: of the key that commands
    sign with unless told otherwise."""
    if file is not None and trial is not None:
        raise FedsrcError("give either FILE, or --trial FOLDER with --sites")
    if trial is not None:
        names = tuple(name.strip() for name in (sites or "").split(","))
        show_trial(trial, make_trial(trial, names, hosts), output)
        return
    place = server_key(file)
    if file is None and not place.exists():
        hint = f"`fedsrc certify` makes it on first use, and so does {command('fedsrc', 'keys', place)}"
        raise FedsrcError("there is no key yet", where=str(place), hint=hint)
    public = signing.public_hex(signing.load_or_make(place))
    if output == "json":
        emit({"file": str(place), "public": public})
        return
    if file is None:
        say(f"{place} (private; keep it), its public part:")
    click.echo(public)


def show_trial(folder: Path, public: dict[str, str], output: str) -> None:
    """A trial set: where it lies, and what goes into the registration."""
    if output == "json":
        click.echo(json.dumps({"folder": str(folder), "public": public}))
        return
    server, sites = public["server"], {name: key for name, key in public.items() if name != "server"}
    click.echo(f"Wrote {folder}: certificates, node keys and release keys of {len(sites)} sites, for trials only.")
    click.echo(f"Register with --server-key {server}")
    click.echo(f"  --site-keys {','.join(f'{name}={key}' for name, key in sites.items())}")
