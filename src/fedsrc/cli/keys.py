"""`fedsrc keys`: signing keys, their succession, and trial sets of the live mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedsrc.cli.options import FORMAT, output_file, server_key
from fedsrc.cli.output import show
from fedsrc.cli.streams import command, say
from fedsrc.cli.types import NAME, NAMES, FilePath, FolderPath
from fedsrc.common import signing
from fedsrc.common.durable import write_whole
from fedsrc.common.places import mask_beside
from fedsrc.errors import FedsrcError
from fedsrc.federation.flower.trial_keys import make_trial
from fedsrc.protocol.mask_key import MaskKey, read_mask_key
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
@click.option("--mask", "site", type=NAME, help="A site's name: make its mask key FILE.mask too, for a cohort.")
@output_file(help="Where the public word on the mask key goes  [default: SITE.mask.json]")
@click.option("--trial", type=FolderPath, help="Instead of FILE: a folder for a trial set of the live mode.")
@click.option("--sites", type=NAMES, default=(), help="Site names of the trial set, comma-separated.")
@click.option("--host", "hosts", multiple=True, help="A name or address of the server, for the trial's certificate.")
@FORMAT
def keys_command(
    file: Path | None, site: str | None, target: Path | None, trial: Path | None, sites: tuple[str, ...],
    hosts: tuple[str, ...], output: str,
) -> None:  # fmt: skip
    """Make a signing key in FILE if there is none, and show its public part. Without FILE: of the key that commands
    sign with unless told otherwise. With --mask, a site's mask key beside it, for a cohort. `fedsrc keys succeed OLD
    NEW` puts one key in another's place."""
    if file is not None and trial is not None:
        raise FedsrcError("give either FILE, or --trial FOLDER with --sites")
    if target is not None and site is None:
        raise FedsrcError("-o is for the public word on a mask key", hint="--mask SITE makes one")
    if site is not None:
        if file is None:
            raise FedsrcError("a mask key lies beside its site's signing key", hint="name its file")
        _make_mask(file, site, target or Path(f"{site.replace('/', '-')}.mask.json"), output)
        return
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


def _make_mask(file: Path, site: str, target: Path, output: str) -> None:
    """Make a site's mask key beside its signing key where there is none, and write the site's public word on it."""
    private = mask_beside(file)
    word = MaskKey.by(site, signing.load_or_make(file), signing.load_or_make(private))
    if target.exists():
        read_mask_key(target)  # an earlier word may be replaced, and nothing else: no key made just now
    write_whole(target, word.to_bytes())
    show(
        output,
        {"file": str(file), "public": word.key, "mask": str(private), "word": str(target),
         "fingerprint": word.fingerprint},
        f"Mask key of site {site}: {word.fingerprint}",
        f"  {target}: send it to whoever registers, for --mask-key",
        f"  {private}: private; keep it until the run has ended, and take a new one for the next registration",
    )  # fmt: skip
