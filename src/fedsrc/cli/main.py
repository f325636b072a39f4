"""The command line: every command by name. `fedsrc x-y` is `x_y_command` of `cli/x_y.py`, loaded when it is called.

stdout is data, stderr is log. Exit status 0 did what was asked (certified, or still open with a next step; `verify` of
a sound abstention), 1 abstained, revoked or an alarm, 2 error.
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

import fedsrc
from fedsrc.cli.streams import outlive_readers, say
from fedsrc.errors import FedsrcError

COMMANDS = (
    "allow", "answers", "audit", "certify", "choose", "collect", "demo", "fit", "forecast", "gate", "keys", "label",
    "monitor", "plan", "register", "release", "request", "revoke", "score", "server", "site", "site-status", "status",
    "verify", "view",
)  # fmt: skip


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
        room = formatter.width - 6 - max(map(len, COMMANDS))
        with formatter.section("Commands"):
            formatter.write_dl([(name, _short(name, room)) for name in COMMANDS])


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
def cli() -> None:
    """Certify how many accepted answers are unsupported, from labelled records that never leave their sites.

    Exit status 0: did what was asked (certified, or still open with a next step); 1: abstained, revoked, or an alarm;
    2: error.
    """


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
