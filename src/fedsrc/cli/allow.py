"""`fedsrc allow`: at a site, read what a registration asks, and allow it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from fedsrc.cli.options import FORMAT
from fedsrc.cli.output import show
from fedsrc.cli.types import EPSILON, FilePath
from fedsrc.protocol.registration import Registration
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow, describe_registration, request_sizes


@click.command("allow")
@click.argument("registration", type=FilePath)
@click.option("--site", required=True, help="The site's name in the registration.")
@click.option("--ledger", type=FilePath, required=True, help="The site's ledger, beside its records.")
@click.option(
    "--max-epsilon",
    type=EPSILON,
    help="Set the most privacy loss the site will ever spend on a unit, for it being this one or any other.",
)
@click.option("--show", "only", is_flag=True, help="Only show what is asked.")
@click.option("--withdraw", is_flag=True, help="Take an earlier permission back.")
@FORMAT
def allow_command(
    registration: Path, site: str, ledger: Path, max_epsilon: float | None, only: bool, withdraw: bool, output: str
) -> None:
    """At a site: read what a registration asks, and allow it."""
    registered = Registration.read(registration)
    asked, privacy = request_sizes(registered, site), registered.privacy
    told = {
        "registration": registered.digest, "site": site, "target_risk": registered.promised_risk, "unit": privacy.unit,
        "epsilon": privacy.epsilon, "delta": privacy.delta, "usual_request": asked.usual, "largest_request": asked.most,
        "capacity": registered.site(site).capacity, "server_key": registered.server_key,
        **_panel(registered),
    }  # fmt: skip
    if output == "text":
        show(output, told, *describe_registration(registered, site))
    done, words = "shown", ""
    if not only:
        with closing(Ledger(ledger, must_exist=withdraw)) as book:
            if withdraw:
                book.forbid(site, registered.digest)
            else:
                allow(book, site, registered, max_epsilon)
        done = "withdrawn" if withdraw else "allowed"
        words = f"No longer allowed at site {site}." if withdraw else f"Allowed at site {site}. Its ledger is {ledger}."
    if words or output == "json":
        show(output, {"status": done, **told}, words)


def _panel(registered: Registration) -> dict[str, object]:
    """Return which groups or scores get totals of their own, and the column of the groups; nothing for one claim."""
    if registered.groups is not None:
        return {"groups": list(registered.block_names), "group_column": registered.groups.column}
    return {} if registered.panel is None else {"scores": list(registered.block_names)}
