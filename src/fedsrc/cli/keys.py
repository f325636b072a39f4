"""`fedsrc keys`: signing keys, their succession, and trial sets of the live mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import FORMAT, output_file, server_key
from fedsrc.cli.output import show
from fedsrc.cli.streams import command, say
from fedsrc.cli.types import NAMES, FilePath, FolderPath
from fedsrc.common import signing
from fedsrc.common.durable import write_whole
from fedsrc.errors import FedsrcError
from fedsrc.federation.flower.trial_keys import make_trial
from fedsrc.protocol.succession import Succession


@click.command("succeed")
@click.argument("old", type=FilePath)
@click.argument("new", type=FilePath)
@output_file("succession.json")
@FORMAT
def succeed_command(old: Path, new: Path, target: Path, output: str) -> None:
    """State, signed by both, that the key in NEW takes the place of the key in OLD from now on.

    Whoever has the statement refuses what the old key signs from then on. A key has one successor.
    """
    keys = signing.load(old), signing.load(new)
    if target.exists():
        raise FedsrcError("exists already", where=str(target), hint="a statement is never changed; choose another -o")
    if signing.public_hex(keys[0]) == signing.public_hex(keys[1]):
        raise FedsrcError("is the same key", where=str(new), hint="`fedsrc keys FILE` makes a new one")
    stated = Succession.by(*keys)
    write_whole(target, stated.to_bytes(), replace=False)
    show(
        output,
        {"file": str(target), **stated.model_dump()},
        f"From {stated.time} on, {stated.new} takes the place of {stated.old}.",
        f"  {target}: send it to whoever trusts the old key, for --succession",
    )


class Keys(click.Command):
    """A command of its own, with `succeed` below it."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args[:1] == ["succeed"]:
            return succeed_command.make_context(f"{info_name} succeed", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command("keys", cls=Keys)
@click.argument("file", type=FilePath, required=False)
@click.option("--trial", type=FolderPath, help="Instead of FILE: a folder for a trial set of the live mode.")
@click.option("--sites", type=NAMES, default=(), help="Site names of the trial set, comma-separated.")
@click.option("--host", "hosts", multiple=True, help="A name or address of the server, for the trial's certificate.")
@FORMAT
def keys_command(
    file: Path | None, trial: Path | None, sites: tuple[str, ...], hosts: tuple[str, ...], output: str
) -> None:
    """Make a signing key in FILE if there is none, and show its public part. Without FILE: of the key that commands
    sign with unless told otherwise. `fedsrc keys succeed OLD NEW` puts one key in another's place."""
    if file is not None and trial is not None:
        raise FedsrcError("give either FILE, or --trial FOLDER with --sites")
    if trial is not None:
        public = make_trial(trial, sites, hosts)
        show(
            output,
            {"folder": str(trial), "public": public},
            f"Wrote {trial}: certificates, node keys and release keys of {len(sites)} sites, for trials only.",
            f"Register with --server-key {public['server']}",
            f"  --site-keys {','.join(f'{name}={public[name]}' for name in sites)}",
        )
        return
    place = server_key(file)
    if file is None and not place.exists():
        hint = f"`fedsrc certify` makes it on first use, and so does {command('fedsrc', 'keys', place)}"
        raise FedsrcError("there is no key yet", where=str(place), hint=hint)
    key = signing.public_hex(signing.load_or_make(place))
    if file is None and output == "text":
        say(f"{place} (private; keep it), its public part:")
    show(output, {"file": str(place), "public": key}, key)
