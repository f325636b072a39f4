"""The command line: words in, words out, no logic.

stdout is data, stderr is log. Exit status 0 certified (or done), 1 abstained or still open, 2 error.
"""

from __future__ import annotations

import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import fedsrc
from fedsrc.cli_answers import answers_command
from fedsrc.cli_audit import audit_command
from fedsrc.cli_choose import choose_command
from fedsrc.cli_common import FORMAT, FilePath, FolderPath, command, named, outlive_readers, say
from fedsrc.cli_fit import fit_command
from fedsrc.cli_gate import gate_command
from fedsrc.cli_live import demo_live, server_command, show_trial, site_command
from fedsrc.cli_monitor import monitor_command
from fedsrc.cli_reproduce import reproduce_command
from fedsrc.cli_run import FRESH, LEDGER, TABLE_OPTIONS, emit, finish, ledger_of, options, read_table, table_at
from fedsrc.cli_score import score_command
from fedsrc.cli_table import development_words, listed, mixture_words, table_options, uses
from fedsrc.cli_view import view_command
from fedsrc.common import signing
from fedsrc.common.durable import write_whole
from fedsrc.common.words import count
from fedsrc.demo import table as demo_data
from fedsrc.errors import FedsrcError
from fedsrc.federation.airgap import Collected, answer_file, collect, start
from fedsrc.federation.flower.trial_keys import make_trial
from fedsrc.federation.local import certify_table
from fedsrc.planning.forecast import forecasts, from_declared, from_development
from fedsrc.planning.register import Choices, development_labels, development_part, register, register_grid
from fedsrc.protocol.certificate import Body
from fedsrc.protocol.registration import Development, Registration
from fedsrc.records.development import calibrating
from fedsrc.records.stream import Table
from fedsrc.records.table import read_records
from fedsrc.records.units import Records, check_unit
from fedsrc.server.state import Replay
from fedsrc.server.status import run_state, words
from fedsrc.server.verify import verify
from fedsrc.site.ledger import Ledger
from fedsrc.site.policy import allow, describe_registration, status_words
from fedsrc.site.site import note_development

DEVELOPMENT_SHARE = 0.2


class Level(click.ParamType):
    """A number strictly between 0 and 1."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not a number; give a share such as 0.2", param, ctx)
        if not 0 < number < 1:
            self.fail(f"{value} is not between 0 and 1; give a share such as 0.2 for 20%", param, ctx)
        return number


class Epsilon(click.ParamType):
    """A positive number, or `inf` for no privacy."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not a number; give one such as 4, or inf for no privacy", param, ctx)
        if not number > 0:
            self.fail(f"{value} is not positive; smaller is more private, inf is none", param, ctx)
        return number


class Digits(click.ParamType):
    """64 hexadecimal digits: a public key or a digest."""

    name = "64 hex digits"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip().lower()
        if not re.fullmatch(r"[0-9a-f]{64}", text):
            self.fail(f"{value!r} is not 64 hexadecimal digits", param, ctx)
        return text


class PerSite(click.ParamType):
    """name=number,name=number"""

    name = "name=number,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, float]:
        if isinstance(value, dict):
            return value
        try:
            pairs = [part.rsplit("=", 1) for part in str(value).split(",")]
            return {name.strip(): float(number) for name, number in pairs}
        except ValueError:
            self.fail(f"{value!r} is not of the form north=0.5,south=0.5", param, ctx)


class PerSiteText(click.ParamType):
    """name=text,name=text"""

    name = "name=text,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        if isinstance(value, dict):
            return value
        pairs = [part.partition("=") for part in str(value).split(",")]
        if not all(name and equals and text for name, equals, text in pairs):
            self.fail(f"{value!r} is not of the form north=...,south=...", param, ctx)
        return {name.strip(): text.strip() for name, _, text in pairs}


class PerSiteCount(PerSiteText):
    """name=integer,name=integer"""

    name = "name=count,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not all(str(each).isdecimal() for each in found.values()):
            self.fail(f"{value!r} is not of the form north=1200,south=900", param, ctx)
        return {name: int(each) for name, each in found.items()}


class Many(click.ParamType):
    """A comma-separated list of another type."""

    def __init__(self, inner: click.ParamType) -> None:
        self.inner = inner
        self.name = f"{inner.name},..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(self.inner.convert(part.strip(), param, ctx) for part in str(value).split(","))


CHOICES = [
    click.option("--target", "target_risk", type=Level(), help="Largest tolerated share of unsupported answers."),
    click.option("--epsilon", type=Epsilon(), help="Privacy loss per unit; smaller is more private; inf for none."),
    click.option("--preset", type=click.Choice(["default", "paper"]), help="Method and release  [default: default]"),
    click.option(
        "--method",
        type=click.Choice(["contrast", "variance-adaptive", "ratio"]),
        help="Which of the paper's certificates, with --preset paper.",
    ),
    click.option("--unit", type=click.Choice(["record", "source"]), help="What is protected and independent."),
    click.option("--thresholds", type=click.IntRange(1, 10_000), help="How many candidates  [default: 20]"),
    click.option("--grid", is_flag=True, default=None, help="Public evenly spaced thresholds, not quantiles."),
    click.option("--min-acceptance", type=Level(), help="Least useful share of accepted answers  [default: 0.05]"),
    click.option("--failure-probability", type=Level(), help="[default: 0.05]"),
    click.option("--delta", type=Level(), help="[default: 1e-6]"),
    click.option("--batch", type=click.IntRange(1), help="Units per site and round  [default: 200]"),
    click.option("--rounds", type=click.IntRange(1), help="Most rounds  [default: 30]"),
    click.option("--policy", type=click.Choice(["first", "final", "recruit"]), help="[default: first]"),
    click.option("--dropout", type=click.Choice(["independent", "adversarial"]), help="[default: independent]"),
    click.option("--max-answers", type=click.IntRange(1, 20), help="Answers kept per source."),
    click.option(
        "--answer-weight",
        type=click.Choice(["source", "answer"]),
        help="What counts as one: a source with its answers, or each answer  [default: source]",
    ),
    click.option("--loss-grid", type=click.IntRange(1), help="Graded losses are rounded up to multiples of 1/N."),
    click.option("--weights", type=PerSite(), help="Deployment weights of the sites."),
    click.option("--drift", type=PerSite(), help="Declared drift (total variation) of sites."),
    click.option(
        "--claim",
        multiple=True,
        callback=lambda _context, _option, pairs: named(pairs),
        help="NAME=TEXT: what the score, the loss and the population are, in words; repeatable.",
    ),
    click.option("--validity-days", type=click.IntRange(1), help="[default: 365]"),
    click.option("--server-key", help="Public key of the server that may ask and sign."),
    click.option("--site-keys", type=PerSiteText(), help="Public keys of the sites: releases must be signed."),
    click.option("--capacities", type=PerSiteCount(), help="Most units each site will give."),
]
KEY = click.option(
    "--key", type=FilePath, help="Signing key (PEM), made on first use  [default: the one that `fedsrc keys` shows]"
)


@click.group(context_settings={"auto_envvar_prefix": "FEDSRC", "help_option_names": ["-h", "--help"]})
@click.version_option(fedsrc.__version__, prog_name="fedsrc")
def cli() -> None:
    """Certify how many accepted answers are unsupported, from labelled records that never leave their sites."""


@cli.command()
@click.option("-o", "--output", "folder", type=FolderPath, default="fedsrc-demo", show_default=True)
@click.option("--live", is_flag=True, help="Five sites as processes of their own, over Flower with TLS and node keys.")
@FORMAT
@KEY
def demo(folder: Path, live: bool, output: str, key: Path | None) -> None:
    """The whole flow on 10,000 real answers: register, release, certify, verify."""
    if live:
        demo_live(folder, output)
    table = folder / "records.csv"
    demo_data.write_table(table)
    say(demo_data.ABOUT)
    records = read_records(table)
    weights = dict.fromkeys(records.site_names, 0.2)
    registration = new_registration(records, Choices(0.2, 4.0, batch=100, weights=weights))
    body = certified(registration, records, folder / "run", ledger_of(table), key)
    verify(folder / "run")
    finish(body, folder / "run", output)


@cli.command("register")
@click.argument("records", type=FilePath, required=False)
@click.option("-o", "--output", "target", type=FilePath, default="registration.toml", show_default=True)
@click.option("--sites", help="Site names, comma-separated  [default: those of the table]")
@options(CHOICES)
@options(TABLE_OPTIONS)
@LEDGER
@FORMAT
def register_command(
    records: Path | None, target: Path, sites: str | None, ledger: Path | None, output: str, **settings: Any
) -> None:
    """Fix everything before calibration: thresholds from labelled development RECORDS, and your choices.

    With --grid and --sites no records are needed.
    """
    names = tuple(name.strip() for name in sites.split(",")) if sites else None
    if target.exists():
        hint = "a registration is never changed: choose another -o, or delete the file if no site was asked under it"
        raise FedsrcError("exists already", where=str(target), hint=hint)
    if records is None:
        registration = register_grid(choices_of(settings, None, target), names)
    else:
        table = read_table(records, settings)
        picked = choices_of(settings, table, records)
        registration = register(picked, table, development_part(table, picked.unit, 1.0), sites=names)
        if registration.development is not None:
            with closing(Ledger(ledger or ledger_of(records))) as book:
                note_development(table, book)
            say_development(table, registration.development, picked)
    for line in mixture_words(registration):
        say(line)
    write_whole(target, registration.to_toml().encode())
    known = ["--records", records, *table_options(settings)] if records else ["--acceptance", 0.4, "--risk", 0.1]
    show_registration(registration, target, command("fedsrc", "forecast", target, *known), output)


def show_registration(registration: Registration, target: Path, next_command: str, output: str) -> None:
    """What was registered, and what to do next."""
    if output == "json":
        emit({"registration": registration.digest, "file": str(target), "thresholds": registration.thresholds.values})
        return
    click.echo(f"Registered {registration.digest}")
    click.echo(f"  {target}: {len(registration.thresholds.values)} thresholds, {len(registration.sites)} sites")
    if registration.thresholds.origin == "development":
        click.echo(
            "  Thresholds are published quantiles of these records, which privacy does not protect (--grid avoids it)."
        )
    click.echo(f"Next: {next_command}")


@cli.command("forecast")
@click.argument("registration", type=FilePath)
@click.option("--records", type=FilePath, help="Labelled development records.")
@click.option("--acceptance", type=Level(), help="Instead of records: acceptance at the threshold you hope for.")
@click.option("--risk", type=click.FloatRange(0, 1), help="Instead of records: risk at that threshold.")
@click.option("--targets", type=Many(Level()), help="Targets to try  [default: the registered one]")
@click.option(
    "--epsilons", type=Many(Epsilon()), help="Epsilons to try  [default: inf, 8, 4, 2, 1 and the registered one]"
)
@options(TABLE_OPTIONS)
@FORMAT
def forecast_command(
    registration: Path,
    records: Path | None,
    acceptance: float | None,
    risk: float | None,
    targets: tuple[float, ...] | None,
    epsilons: tuple[float, ...] | None,
    output: str,
    **settings: Any,
) -> None:
    """How many units and rounds it should take, before any label or privacy is spent."""
    registered = Registration.read(registration)
    if records is not None and acceptance is None and risk is None:
        sites = from_development(registered, read_table(records, settings))
    elif records is None and acceptance is not None and risk is not None:
        sites = from_declared(registered, acceptance, risk)
    else:
        raise FedsrcError("give either --records, or both --acceptance and --risk")
    aims = targets or (registered.claim.target_risk,)
    levels = epsilons or tuple(sorted({float("inf"), 8.0, 4.0, 2.0, 1.0, registered.privacy.epsilon}, reverse=True))
    found = []
    with progress() as step:
        for each in forecasts(registered, sites, aims, levels, sampled=records is not None):
            step(each.sentence())
            found.append(each)
    if output == "json":
        emit({"registration": registered.digest, "forecasts": [asdict(each) for each in found]})
        return
    for each in found:
        click.echo(each.sentence())
    click.echo("Estimates from simulated runs on these rates; the certificate decides.")


@cli.command()
@click.argument("records", type=FilePath)
@click.option("--registration", type=FilePath, help="What was registered; without it, part of the table is set apart.")
@click.option("-o", "--output", "folder", type=FolderPath, default="run", show_default=True)
@LEDGER
@click.option("--use-all", is_flag=True, help="Use every unit before deciding (policy final).")
@click.option("--in-order", is_flag=True, help="The table is a stream: use units in its order, not shuffled.")
@click.option("--check", is_flag=True, help="Read the table, say what would be used, and spend nothing.")
@FRESH
@click.option("--sign-with", type=PerSiteText(), help="Private key files of sites whose keys are registered.")
@options(CHOICES)
@options(TABLE_OPTIONS)
@FORMAT
@KEY
def certify(
    records: Path,
    registration: Path | None,
    folder: Path,
    ledger: Path | None,
    use_all: bool,
    in_order: bool,
    check: bool,
    fresh: bool,
    sign_with: dict[str, str] | None,
    output: str,
    key: Path | None,
    **settings: Any,
) -> None:
    """From a labelled table to a signed certificate (or an honest abstention)."""
    source = table_at(records, settings)
    table = source.whole()
    if use_all:
        settings["policy"] = "final"
    if registration is not None:
        given = given_choices()
        if given or use_all:
            name = "--use-all" if use_all else given[0]
            raise FedsrcError(f"{name} is fixed by the registration", hint="leave it out, or register anew")
        registered = Registration.read(registration)
        say(uses(source, registered.privacy.unit, table.site_names))
    else:
        picked = choices_of(settings, table, records)
        say(uses(source, picked.unit, table.site_names))
        registered = new_registration(table, picked)
    if check:
        show_check(source, table, registered, output)
        return
    site_keys = {name: signing.load(Path(path)) for name, path in (sign_with or {}).items()}
    place = ledger or ledger_of(records)
    body = certified(registered, table, folder, place, key, in_order=in_order, fresh=fresh, site_keys=site_keys)
    finish(body, folder, output, development=None if registration else [records, *table_options(settings)])


def show_check(source: Table, table: Records, registration: Registration, output: str) -> None:
    """What a run would use of a table."""
    units = {name: len(each) for name, each in calibrating(registration, table).items()}
    used, unused = source.columns.used(source.present), source.columns.unused(source.present)
    unit, total = registration.privacy.unit, sum(units.values())
    if output == "json":
        account = {"rows": len(table), "unit": unit, "calibrating": units}
        emit({"status": "CHECKED", "columns": used, "unused": unused, **account})
        return
    sites = listed([f"{name} {number:,}" for name, number in units.items()])
    click.echo(f"{source.path}: {count(len(table), 'row')}; {count(total, unit)} could calibrate ({sites}).")
    most = min(total, registration.most_units)
    click.echo(f"A run would ask for {most:,} of them at most. Whether some were used before was not looked at.")
    click.echo("Nothing was spent and nothing was written. Run it without --check to certify.")


@cli.command("verify")
@click.argument("folder", type=FolderPath)
@click.option("--trust", type=Digits(), multiple=True, help="Public key that must have signed; repeatable.")
@click.option("--registration", type=Digits(), help="Digest that the registration must have.")
@FORMAT
def verify_command(folder: Path, trust: tuple[str, ...], registration: str | None, output: str) -> None:
    """Recompute a run's certificate from its transcript, and check chain, digests and signature."""
    found = verify(folder, trusted=trust)
    if registration is not None and found.body["registration"] != registration:
        raise FedsrcError(f"the run is of registration {found.body['registration']}", where=str(folder))
    if found.expired:
        raise FedsrcError(f"the certificate expired on {found.body['expires']}", where=str(folder))
    note = click.echo if output == "text" else say
    note("Verified: the certificate follows from registration and transcript, and its signature fits.")
    if not found.trusted:
        note("Its key was not compared with one you trust; pass --trust KEY to do so.")
    finish(found.body, folder, output)


@cli.command("status")
@click.argument("folder", type=FolderPath)
@FORMAT
def status_command(folder: Path, output: str) -> None:
    """Where a run stands: rounds, sites, what is missing, who was turned away. Changes nothing."""
    state = run_state(folder)
    if output == "json":
        emit(asdict(state))
    else:
        click.echo("\n".join(words(state)))
    sys.exit(0 if state.status == "CERTIFIED" else 1)


@cli.command("keys")
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


@cli.command("allow")
@click.argument("registration", type=FilePath)
@click.option("--site", required=True, help="The site's name in the registration.")
@click.option("--ledger", type=FilePath, required=True, help="The site's ledger, beside its records.")
@click.option("--max-epsilon", type=Epsilon(), help="Set the most privacy the site will ever spend on a unit.")
@click.option("--show", is_flag=True, help="Only show what is asked.")
@click.option("--withdraw", is_flag=True, help="Take an earlier permission back.")
def allow_command(
    registration: Path, site: str, ledger: Path, max_epsilon: float | None, show: bool, withdraw: bool
) -> None:
    """At a site: read what a registration asks, and allow it."""
    registered = Registration.read(registration)
    for line in describe_registration(registered, site):
        click.echo(line)
    if show:
        return
    if withdraw:
        with closing(Ledger(ledger, must_exist=True)) as book:
            book.forbid(site, registered.digest)
        click.echo(f"No longer allowed at site {site}.")
        return
    with closing(Ledger(ledger)) as book:
        allow(book, site, registered, max_epsilon)
    click.echo(f"Allowed at site {site}. Its ledger is {ledger}.")


@cli.command("site-status")
@click.argument("ledger", type=FilePath)
def site_status(ledger: Path) -> None:
    """At a site: what was spent, what is left, what is allowed, in plain words."""
    with closing(Ledger(ledger, must_exist=True)) as book:
        for site in book.sites():
            for line in status_words(book, site):
                click.echo(line)


@cli.command("request")
@click.argument("registration", type=FilePath)
@click.option("-o", "--output", "folder", type=FolderPath, default="run", show_default=True)
@FORMAT
@KEY
def request_command(registration: Path, folder: Path, output: str, key: Path | None) -> None:
    """Start a run by files: write the first requests, to be carried to the sites."""
    done = start(Registration.read(registration), folder, signing.load(server_key(key)))
    report_collected(done, folder, output, key)


@cli.command("release")
@click.argument("request", type=FilePath)
@click.argument("records", type=FilePath)
@click.option("--key", type=FilePath, required=True, help="The site's private key.")
@click.option("-o", "--output", "target", type=FilePath, help="[default: the request's name with .release.json]")
@LEDGER
@FRESH
@options(TABLE_OPTIONS)
def release_command(
    request: Path, records: Path, key: Path, target: Path | None, ledger: Path | None, fresh: bool, **settings: Any
) -> None:
    """At a site: answer a request file with a release file. Asked again, it writes the same bytes."""
    place = target or request.with_name(request.name.removesuffix(".json").removesuffix(".request") + ".release.json")
    with closing(Ledger(ledger or ledger_of(records), must_exist=True)) as book:
        data = answer_file(request, lambda: table_at(records, settings), book, signing.load(key), fresh=fresh)
    write_whole(place, data)
    click.echo(f"Wrote {place}: carry it to the server.")


@cli.command("collect")
@click.argument("folder", type=FolderPath)
@click.argument("releases", type=FilePath, nargs=-1)
@click.option("--close", "without_missing", is_flag=True, help="Close the round without the releases still missing.")
@FORMAT
@KEY
def collect_command(
    folder: Path, releases: tuple[Path, ...], without_missing: bool, output: str, key: Path | None
) -> None:
    """Take in release files; when a round is complete, write the next requests or the certificate."""
    done = collect(folder, releases, signing.load(server_key(key)), without_missing=without_missing)
    report_collected(done, folder, output, key)


def report_collected(done: Collected, folder: Path, output: str, key: Path | None) -> NoReturn:
    """What a step of the files mode came to."""
    for path in done.taken_in:
        say(f"{path}: taken in")
    for path, earlier in done.too_late.items():
        say(f"{path}: refused, its round is closed and its request ended as {earlier}")
    for line in done.news:
        say(line)
    if done.body is not None:
        finish(done.body, folder, output)
    lines = [f"  {path}  ({whom})" for path, whom in done.asked.items()]
    if done.too_late and not done.taken_in:
        say("\n".join(["Requests that wait for a release:", *lines]))
        raise FedsrcError("no release was new; nothing was changed", where=str(folder))
    if output == "json":
        emit({"status": "OPEN", "waiting": [str(path) for path in done.waiting]})
    else:
        click.echo("\n".join(["Status: OPEN. Requests that wait for a release:", *lines]))
        again = ["fedsrc", "collect", str(folder), "RELEASE...", *(["--key", str(key)] if key else [])]
        click.echo(f"Next: carry them to their sites, then {shlex.join(again)}")
    sys.exit(1)


def server_key(path: Path | None) -> Path:
    """Where the server's key lies: the file named, or its own."""
    return path or Path(click.get_app_dir("fedsrc")) / "server.key"


def certified(
    registration: Registration, table: Records, folder: Path, ledger: Path, key: Path | None, **how: Any
) -> Body:
    """Run with progress on the terminal."""
    signer = signing.load_or_make(server_key(key))
    with progress() as step:

        def watch(replay: Replay) -> None:
            if replay.trace:
                now = replay.trace[-1]
                bound = f"risk at most {now.risk_upper:.3g}" if now.risk_upper < 1 else "no bound yet"
                step(f"round {now.round}: {now.records:,} records, {bound}")

        return certify_table(registration, table, folder, ledger, signer, watch=watch, **how)


def new_registration(table: Records, picked: Choices) -> Registration:
    """Register from a part of the table itself, and say so."""
    development = development_part(table, picked.unit, DEVELOPMENT_SHARE)
    registration = register(picked, table, development)
    one, apart = development.units == 1, count(development.units, picked.unit)
    why = "to see how losses and sources look" if picked.grid else "to choose thresholds"
    say(
        f"No registration given: {apart} ({DEVELOPMENT_SHARE:.0%}) {'is' if one else 'are'} set apart {why};"
        f" {'it does' if one else 'they do'} not calibrate and privacy does not protect"
        f" {'it' if one else 'them'}."
    )
    say_development(table, development, picked)
    for line in mixture_words(registration):
        say(line)
    return registration


def say_development(table: Records, development: Development, picked: Choices) -> None:
    """What a development part, which is not protected, shows before anything is spent."""
    wanted = 0 if picked.grid else picked.thresholds
    for line in development_words(
        development, picked.unit, development_labels(table, development, picked.unit), wanted
    ):
        say(line)


def choices_of(settings: Mapping[str, Any], table: Records | None, path: Path) -> Choices:
    """The user's choices over the preset's."""
    for name, flag in (("target_risk", "--target"), ("epsilon", "--epsilon")):
        if settings.get(name) is None:
            raise FedsrcError(
                f"{flag} is needed", hint=f"{flag} {'0.2' if name == 'target_risk' else '4'}, for example"
            )
    if settings.get("method") and settings.get("preset") != "paper":
        raise FedsrcError("--method belongs to --preset paper", hint="the default preset is the betting certificate")
    names = {field.name for field in fields(Choices)}
    given = {name: value for name, value in settings.items() if name in names and value is not None}
    asked = settings.get("unit")
    if table is None:
        return Choices(**{**given, "independent": asked == "record"})
    unit = check_unit(table, asked, str(path))
    return Choices(**{**given, "unit": unit, "independent": asked == "record"})


def given_choices() -> list[str]:
    """Which registration options were given on the command line or in the environment."""
    context = click.get_current_context()
    names = {field.name for field in fields(Choices)}
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in names
        and context.get_parameter_source(parameter.name or "")
        in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    ]


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line that moves on a terminal; silence in a pipe."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task("starting")
        yield lambda text: bar.update(task, description=text)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    say(f"warning: {message}")


cli.add_command(answers_command)
cli.add_command(audit_command)
cli.add_command(monitor_command)
cli.add_command(score_command)
cli.add_command(choose_command)
cli.add_command(fit_command)
cli.add_command(gate_command)
cli.add_command(reproduce_command)
cli.add_command(server_command)
cli.add_command(site_command)
cli.add_command(view_command)


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


if __name__ == "__main__":
    main()
