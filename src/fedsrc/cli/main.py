"""The command line: every command by name. `fedsrc x-y` is `x_y_command` of `cli/x_y.py`, loaded when it is called.

stdout is data, stderr is log. Exit status 0 did what was asked (certified, or still open with a next step; `verify` of
a sound abstention), 1 abstained, revoked, an alarm, or does not verify, 2 error.
"""

from __future__ import annotations

import re
import sys
import traceback
import warnings
from importlib import import_module
from importlib.resources import files
from typing import Any

import click
from click.shell_completion import CompletionItem

import fedsrc
from fedsrc.cli.settings import kept
from fedsrc.cli.streams import outlive_readers, say
from fedsrc.errors import FedsrcError

GROUPS = {  # by who needs them
    "Start here": ("demo", "inspect", "certify", "verify", "view"),
    "Before calibration": ("plan", "register", "forecast"),
    "In production": ("gate", "monitor", "attest", "revoke", "keys"),
    "Several sites, at the server": ("request", "collect", "server", "status"),
    "Several sites, at each site": ("allow", "release", "site", "label", "site-status"),
    "Scores and studies": ("answers", "score", "fit", "choose", "audit"),
}
COMMANDS = tuple(sorted(name for names in GROUPS.values() for name in names))


class Commands(click.Group):
    """Commands that are imported when they are asked for: most need libraries that take a second to load."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _context: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        stem = cmd_name.replace("-", "_")
        found: click.Command = getattr(import_module(f"fedsrc.cli.{stem}"), f"{stem}_command")
        return found

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, COMMANDS))
        for group, names in GROUPS.items():
            with formatter.section(group):
                shown = [(name.ljust(widest), _short(name, formatter.width - 6 - widest)) for name in names]
                formatter.write_dl(shown)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names without importing the commands."""
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        return [CompletionItem(name, help=_short(name, 80)) for name in names] + click.Command.shell_complete(
            self, ctx, incomplete
        )


def _short(name: str, room: int) -> str:
    """Return the first sentence of a command's help as click shortens it, read off its file without importing it."""
    stem = name.replace("-", "_")
    text = files("fedsrc.cli").joinpath(f"{stem}.py").read_text("utf-8")
    said = re.search(rf'^def {stem}_command\(.*?"""(.*?)"""', text, re.DOTALL | re.MULTILINE)
    return click.Command(None, help=said and said[1]).get_short_help_str(room)


@click.group(
    cls=Commands,
    context_settings={"auto_envvar_prefix": "FEDSRC", "help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(fedsrc.__version__, prog_name="fedsrc")
@click.pass_context
def cli(context: click.Context) -> None:
    """Certify how many accepted answers are unsupported, from labelled records that never leave their sites.

    Every command has --format json: one object on stdout, and everything else on stderr.

    Exit status 0: did what was asked (certified, or still open with a next step; `verify` of a sound abstention);
    1: abstained, revoked, an alarm, or does not verify; 2: error.
    """
    name = context.invoked_subcommand or ""
    asked = context.command.get_command(context, name) if isinstance(context.command, Commands) else None
    if asked is not None and any(each.name == "score_scale" for each in asked.params):  # it reads a table
        context.default_map = {name: kept()}


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    say(f"warning: {message}")


def main() -> None:
    """Entry point. Only 0 and 1 are results; whatever goes wrong is 2, or 130 when interrupted."""
    warnings.showwarning = _show_warning
    outlive_readers()
    try:
        sys.exit(cli(standalone_mode=False) or 0)
    except FedsrcError as error:
        say(f"error: {error}")
    except click.ClickException as error:
        error.show()
    except (click.Abort, KeyboardInterrupt):
        say("interrupted; run the same command again to continue")
        sys.exit(130)
    except Exception:
        traceback.print_exc()
        say("error: this is a fault in fedsrc, please report it; nothing it wrote is half-written")
    sys.exit(2)
