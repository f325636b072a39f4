"""`fedsrc keys`: signing keys, their succession, and trial sets of the live mode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import FORMAT, FilePath, FolderPath, server_key
from fedsrc.cli.output import emit
from fedsrc.cli.streams import command, say
from fedsrc.common import signing
from fedsrc.common.durable import write_whole
from fedsrc.errors import FedsrcError
from fedsrc.federation.flower.trial_keys import make_trial
from fedsrc.protocol.succession import Succession


@click.command("succeed")
@click.argument("old", type=FilePath)
@click.argument("new", type=FilePath)
@click.option("-o", "--output", "target", type=FilePath, default="succession.json", show_default=True)
@FORMAT
def succeed_command(old: Path, new: Path, target: Path, output: str) -> None:
    """State, signed by both, that the key in NEW takes the place of the key in OLD from now on.

    What the old key signs from then on is refused by whoever has the statement. A key has one successor.
    """
    keys = signing.load(old), signing.load(new)
    if target.exists():
        raise FedsrcError("exists already", where=str(target), hint="a statement is never changed; choose another -o")
    if signing.public_hex(keys[0]) == signing.public_hex(keys[1]):
        raise FedsrcError("is the same key", where=str(new), hint="`fedsrc keys FILE` makes a new one")
    stated = Succession.by(*keys)
    write_whole(target, stated.to_bytes(), replace=False)
    if output == "json":
        emit({"file": str(target), **stated.model_dump()})
        return
    click.echo(f"From {stated.time} on, {stated.new} takes the place of {stated.old}.")
    click.echo(f"  {target}: send it to whoever trusts the old key, for --succession")


class Keys(click.Command):
    """A command of its own, and `succeed` below it."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of `succeed` where that is the first word."""
        if args[:1] == ["succeed"]:
            return succeed_command.make_context(f"{info_name} succeed", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command("keys", cls=Keys)
@click.argument("file", type=FilePath, required=False)
@click.option("--trial", type=FolderPath, help="Instead of FILE: a folder for a trial set of the live mode.")
@click.option("--sites", help="Site names of the trial set, comma-separated.")
@click.option("--host", "hosts", multiple=True, help="A name or address of the server, for the trial's certificate.")
@FORMAT
def keys_command(file: Path | None, trial: Path | None, sites: str | None, hosts: tuple[str, ...], output: str) -> None:
    """Make a signing key in FILE if there is none, and show its public part. Without FILE: of the key that commands
    sign with unless told otherwise. `fedsrc keys succeed OLD NEW` puts one key in another's place."""
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
