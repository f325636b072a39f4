"""`fedsrc view`: a run's card on the terminal, as a page, as Markdown or as JSON; or live while the run is on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import fedsrc
from fedsrc.cli.options import LIFE, TRUST, listening, options, output_file
from fedsrc.cli.output import exit_status, show
from fedsrc.cli.streams import say, stopped
from fedsrc.cli.types import FolderPath
from fedsrc.common.durable import write_whole
from fedsrc.errors import FedsrcError
from fedsrc.protocol.names import REGISTRATION
from fedsrc.report.card import view_text
from fedsrc.report.markdown import card_markdown
from fedsrc.report.view import View, view_json, view_run, watched_by

KINDS = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json", ".txt": "text"}


@click.command("view")
@click.argument("folder", type=FolderPath, required=False)
@output_file(help="Write the card to this file; its suffix names the format.")
@click.option("--format", "kind", type=click.Choice(["text", "html", "markdown", "json"]), help="[default: text]")
@TRUST
@options(LIFE)
@click.option("--monitor", type=FolderPath, help="Folder of the certificate's monitor; its state is shown.")
@click.option("--live", is_flag=True, help="Serve the page while the run is on; it keeps itself fresh.")
@click.option(
    "--verifier", is_flag=True, help="Write, without FOLDER, a page that verifies others' cards in a browser."
)
@options(listening(8765, "Address of the live page."))
def view_command(
    folder: Path | None, target: Path | None, kind: str | None, trust: tuple[str, ...], monitor: Path | None,
    **given: Any,
) -> None:  # fmt: skip
    """The card of a run: what it says, on what evidence, and what it does not say. Changes nothing in the run.

    Exit status 0 certified or still open, 1 abstained, revoked, expired or with an alarm, 2 error.
    """
    life = {name: given[name] for name in ("successions", "revocations")}
    if given["verifier"]:
        if folder is not None or kind not in (None, "html") or trust or monitor or given["live"] or any(life.values()):
            raise FedsrcError("--verifier writes a page without a run: give it -o and nothing else")
        _write_verifier(target)
        return
    if folder is None:
        raise click.MissingParameter(param_hint="'FOLDER'", param_type="argument")
    if given["live"]:
        if target is not None or kind not in (None, "text", "json") or trust or any(life.values()):
            raise FedsrcError("--live serves a page; leave -o, --trust and the like out")
        serve(folder, given["host"], given["port"], monitor, kind or "text")
        return
    chosen = kind or _kind(target)
    state = None if monitor is None else watched_by(monitor, folder, trusted=trust, successions=life["successions"])
    found = view_run(folder, trusted=trust, monitor=state, version=fedsrc.__version__, **life)
    text = _page(found, monitor) if chosen == "html" else FORMS[chosen](found)
    if target is None:
        click.echo(text)
    else:
        write_whole(target, text.encode() + b"\n")
        say(f"Wrote {target}: {found['status']}")
    sys.exit(exit_status(found["status"]))


def _kind(target: Path | None) -> str:
    """Return the format that a file's ending names."""
    if target is None:
        return "text"
    if target.suffix.lower() not in KINDS:
        what = f"the suffix {target.suffix!r} names no format" if target.suffix else "has no suffix that names a format"
        raise FedsrcError(what, where=str(target), hint=f"use one of {', '.join(KINDS)}, or give --format")
    return KINDS[target.suffix.lower()]


def _page(view: View, monitor: Path | None) -> str:
    """Write the page with the run in it."""
    from fedsrc.report.carried import carry
    from fedsrc.report.html import page

    return page(view, carried=carry(view, monitor))


def _write_verifier(target: Path | None) -> None:
    """Write the page that verifies cards and saved runs in a browser."""
    from fedsrc.report.html import verifier_page

    if target is None:
        click.echo(verifier_page())
        return
    write_whole(target, verifier_page().encode() + b"\n")
    say(f"Wrote {target}: open it in a browser and give it a card or a saved run; nothing leaves the page")


FORMS: dict[str, Callable[[View], str]] = {"text": view_text, "markdown": card_markdown, "json": view_json}


def serve(folder: Path, host: str, port: int, monitor: Path | None = None, output: str = "text") -> None:
    """Serve the live page until interrupted."""
    from fedsrc.report.live_page import serving

    with serving(folder, host, port, monitor=monitor, version=fedsrc.__version__) as server:
        if not server.loopback:
            say("warning: other machines can read this page; it has no password and no encryption")
        wait = stopped()
        show(output, {"url": server.url}, f"Live page: {server.url}  (read-only; Ctrl-C ends it)")
        if not (folder / REGISTRATION).exists():
            say(f"Waiting for a run in {folder.absolute()}.")
        wait()
