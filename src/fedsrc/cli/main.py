"""The command line: every command by name. `fedsrc x-y` is `x_y_command` of `cli/x_y.py`, loaded when it is called.

stdout is data, stderr is log. Exit status 0 did what was asked (certified, or still open with a next step; `verify` of
a sound abstention), 1 abstained, revoked or an alarm, 2 error.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from importlib import import_module
from typing import Any

import click

import fedsrc
from fedsrc.cli.streams import in_flags, outlive_readers, say
from fedsrc.errors import FedsrcError

COMMANDS = {  # the first sentence of each one's help: `fedsrc --help` loads no command
    "allow": "At a site: read what a registration asks, and allow it.",
    "answers": "Answers of a COLLECTION, chosen and audited, in one file with its manifest beside it.",
    "audit": "Run the STUDY (a TOML file) and print its table; per-trial records are kept as Parquet.",
    "certify": "From a labelled table to a signed certificate (or an honest abstention).",
    "choose": "Choose one score among columns of RECORDS, a table of development answers that `fedsrc score` wrote.",
    "collect": "Take in release files; when a round is complete, write the next requests or the certificate.",
    "demo": "The whole flow on 10,000 real answers: register, release, certify, verify.",
    "fit": "Fit a score on labelled ANSWERS of development sources, and freeze it in a folder.",
    "forecast": "How many units and rounds it should take, before any label or privacy is spent.",
    "gate": "Accept or abstain by CERTIFICATE, a run folder or a certificate file.",
    "keys": "Make a signing key in FILE if there is none, and show its public part.",
    "monitor": "Watch a deployed certificate on fresh labelled RECORDS, table after table, and ring when"
    " its risk has risen.",
    "plan": "Choose the certificate and all that it registers on labelled development RECORDS, for --units to come.",
    "register": "Fix everything before calibration: thresholds from labelled development RECORDS, and your choices.",
    "release": "At a site: answer a request file with a release file.",
    "request": "Start a run by files: write the first requests, to be carried to the sites.",
    "revoke": "Revoke CERTIFICATE, a run folder or a certificate file: write a signed notice beside it.",
    "score": "Score ANSWERS (JSON lines or Parquet: evidence, response; question, loss, source, site)"
    " into a records table.",
    "server": "Run REGISTRATION live: start a SuperLink, ask the sites that connect, and certify.",
    "site": "At a site: serve RECORDS behind their ledger, to signed requests of REGISTRATION alone.",
    "site-status": "At a site: what was spent, what is left, what is allowed, in plain words.",
    "status": "Where a run stands: rounds, sites, what is missing, who was turned away.",
    "verify": "Recompute a run's certificate from its transcript, and check chain, digests and signature.",
    "view": "The card of a run: what it says, on what evidence, and what it does not say.",
}


class Commands(click.Group):
    """Commands that are imported when they are asked for: most need libraries that take a second to load."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, _context: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        stem = cmd_name.replace("-", "_")
        found: click.Command = getattr(import_module(f"fedsrc.cli.{stem}"), f"{stem}_command")
        return found

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        room = formatter.width - 6 - max(map(len, COMMANDS))
        with formatter.section("Commands"):
            formatter.write_dl([(name, _short(COMMANDS[name], room)) for name in sorted(COMMANDS)])


def _short(text: str, room: int) -> str:
    """The sentence as click shortens it."""
    return click.Command(None, help=text).get_short_help_str(room)


@click.group(cls=Commands, context_settings={"auto_envvar_prefix": "FEDSRC", "help_option_names": ["-h", "--help"]})
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
        say(f"error: {in_flags(str(error))}")
    except click.ClickException as error:
        error.show()
    except (click.Abort, KeyboardInterrupt):
        say("interrupted; run the same command again to continue")
        sys.exit(130)
    except Exception:
        traceback.print_exc()
        say("error: this is a fault in fedsrc, please report it; nothing it wrote is half-written")
    sys.exit(2)
