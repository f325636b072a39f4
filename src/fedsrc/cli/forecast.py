"""`fedsrc forecast`: how many units and rounds it should take."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import click

from fedsrc.cli.options import FORMAT, TABLE_OPTIONS, options
from fedsrc.cli.output import show
from fedsrc.cli.progress import progress
from fedsrc.cli.streams import command
from fedsrc.cli.table import read_table
from fedsrc.cli.types import EPSILON, SHARE, FilePath, many
from fedsrc.errors import FedsrcError
from fedsrc.maths.kinds import Adjacency
from fedsrc.planning.forecast import forecasts, from_declared, from_development
from fedsrc.planning.plan import availability_words
from fedsrc.protocol.registration import Registration
from fedsrc.records.scan import SUFFIXES

LEVELS = (float("inf"), 8.0, 4.0, 2.0, 1.0)


@click.command("forecast")
@click.argument("registration", type=FilePath)
@click.option("--records", type=FilePath, help="Labelled development records.")
@click.option("--acceptance", type=SHARE, help="Instead of records: acceptance at the threshold you hope for.")
@click.option("--risk", type=click.FloatRange(0, 1), help="Instead of records: risk at that threshold.")
@click.option("--targets", type=many(SHARE), help="Targets to try  [default: the registered one]")
@click.option(
    "--epsilons", type=many(EPSILON), help="Epsilons to try  [default: inf, 8, 4, 2, 1 and the registered one]"
)
@click.option(
    "--adjacency", type=click.Choice(get_args(Adjacency)), help="What epsilon is for  [default: as registered]"
)
@options(TABLE_OPTIONS)
@FORMAT
def forecast_command(registration: Path, records: Path | None, output: str, **given: Any) -> None:
    """How many units and rounds it should take, before any label or privacy is spent.

    From --records it is exact, without noise: for whoever may see them.
    """
    if registration.suffix.lower() in SUFFIXES:
        told = command("fedsrc", "certify", registration, "--check", "--target", 0.2, "--epsilon", 4)
        what = "this is a table; a forecast is of a registration, from --records or rates"
        raise FedsrcError(what, where=str(registration), hint=f"without a registration: {told}")
    registered, acceptance, risk = Registration.read(registration), given["acceptance"], given["risk"]
    if given["adjacency"] is not None:
        privacy = registered.privacy.model_copy(update={"adjacency": given["adjacency"]})
        registered = registered.model_copy(update={"privacy": privacy})
    if records is not None and acceptance is None and risk is None:
        sites = from_development(registered, read_table(records, given, registered))
    elif records is None and acceptance is not None and risk is not None:
        sites = from_declared(registered, acceptance, risk)
    else:
        raise FedsrcError("give either --records, or both --acceptance and --risk")
    aims = given["targets"] or (registered.promised_risk,)
    levels = given["epsilons"] or tuple(sorted({*LEVELS, registered.privacy.epsilon}, reverse=True))
    found = []
    with progress() as step:
        for each in forecasts(registered, sites, aims, levels, sampled=records is not None):
            step(each.sentence())
            found.append(each)
    show(
        output,
        {"registration": registered.digest, "forecasts": [asdict(each) for each in found]},
        *(each.sentence() for each in found),
        *availability_words(registered),
        "Estimates from simulated runs on these rates; the certificate decides.",
    )
