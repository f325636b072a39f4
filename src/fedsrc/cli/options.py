"""Options that several commands share, each declared once; defaults and choices are those of the library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from pydantic import BaseModel

from fedsrc.cli.streams import flag
from fedsrc.cli.types import (
    COUNTS,
    DIGITS,
    EPSILON,
    JOBS_AT_ONCE,
    NAMES,
    NUMBERS,
    QUOTED,
    SHARE,
    TEXTS,
    FilePath,
    FolderPath,
    Parsed,
    Word,
)
from fedsrc.common import places
from fedsrc.monitor.monitor import MonitorChoices
from fedsrc.planning.aim import Objective
from fedsrc.planning.plan import Wish
from fedsrc.planning.register import Aggregation, Choices, Counted, Labelled, Preset
from fedsrc.protocol.judgements import Monitor, Stitched
from fedsrc.protocol.panels import Groups
from fedsrc.protocol.protection import Privacy
from fedsrc.protocol.registration import OnDemand, Schedule
from fedsrc.protocol.scale import Scale
from fedsrc.records.columns import ORDER, further_score
from fedsrc.records.table import Missing
from fedsrc.scores.models.backends import DTYPES

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Command], Command]


def options(many: Iterable[Option[Any]]) -> Callable[[Command], Command]:
    """Apply several options, in their order."""

    def apply(command: Command) -> Command:
        for option in reversed(list(many)):
            command = option(command)
        return command

    return apply


def named(_context: click.Context, _option: click.Parameter, pairs: Iterable[str]) -> dict[str, str] | None:
    """Read a repeatable NAME=VALUE, each name once; None if there are none."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals and value) or name in found:
            raise click.BadParameter(f"{pair!r} is not of the form NAME=VALUE, each name once")
        found[name] = value
    return found or None


def cohorts(context: click.Context, option: click.Parameter, pairs: Iterable[str]) -> dict[str, tuple[str, ...]] | None:
    """Read a repeatable NAME=SITE,..., each name once; None if there are none."""
    found = named(context, option, pairs)
    return None if found is None else {name: NAMES.parse(members) for name, members in found.items()}


def further_scores(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, Scale], ...] | None:
    """Read a repeatable COLUMN or COLUMN=WORST:BEST; None if there are none."""
    return tuple(map(further_score, values)) or None


def checkpoints(
    context: click.Context, option: click.Parameter, pairs: Iterable[str]
) -> dict[str, tuple[int, ...]] | None:
    """Read a repeatable COLUMN=N,...; None if there are none."""
    found = named(context, option, pairs)
    if found is None:
        return None
    try:
        return {name: tuple(map(int, points.split(","))) for name, points in found.items()}
    except ValueError as error:
        raise click.BadParameter("checkpoints are numbers of tokens, comma-separated") from error


def several(_context: click.Context, _option: click.Parameter, values: tuple[Path, ...]) -> tuple[Path, ...] | None:
    """Return the values of a repeatable option; None if there are none."""
    return values or None


def _labels(text: str) -> str:
    if text.replace("-", " ") not in get_args(Labelled):
        raise ValueError(f"{text!r} is neither there nor on-demand")
    return text.replace("-", " ")


def _one_of(model: type[BaseModel], name: str) -> click.Choice:
    """Return the choices that a field of the protocol has."""
    return click.Choice(get_args(model.model_fields[name].annotation))


# Results

FORMAT = click.option(
    "--format", "output", type=click.Choice(["text", "json"]), default="text", help="json: one object on stdout."
)


def run_folder(default: str = "run") -> Option[Any]:
    """Declare the folder that a command writes."""
    return click.option("-o", "--output", "folder", type=FolderPath, default=default)


def output_file(default: str | None = None, **more: Any) -> Option[Any]:
    """Declare the file that a command writes."""
    return click.option("-o", "--output", "target", type=FilePath, default=default, **more)


def listening(port: int, about: str, *, least: int = 0) -> list[Option[Any]]:
    """Declare where a command listens."""
    return [click.option("--host", default="127.0.0.1", help=about), listening_port(port, "Its port.", least=least)]


def listening_port(port: int, about: str, *, least: int = 0) -> Option[Any]:
    """Declare the port that a command listens on."""
    free = " 0 takes a free one." if least == 0 else ""
    return click.option("--port", type=click.IntRange(least, 65535), default=port, help=f"{about}{free}")


JOBS = click.option("--jobs", type=JOBS_AT_ONCE, default=-1, help="Blocks of trials at once; -1: one per core.")

# Keys and trust

KEY = click.option("--key", type=FilePath, help="Signing key (PEM)  [default: the one that `fedsrc keys` shows]")
SITE_KEY = click.option("--key", type=FilePath, required=True, help="The site's private key, which signs releases.")
MASK_KEY = click.option(
    "--mask-key", type=FilePath, help="The site's private mask key, for a cohort  [default: --key's file + .mask]"
)
CA = click.option("--ca", type=FilePath, help="Certificate of the authority that both ends trust: connections use TLS.")
INSECURE = click.option("--insecure", is_flag=True, help="Talk to another machine without encryption.")


def server_key(path: Path | None) -> Path:
    """Return where the server's key is: the file named, or the user's own."""
    return path or places.server_key()


_TRUST: dict[str, Any] = {"type": DIGITS, "multiple": True, "help": "Public key that may have signed; repeatable."}
TRUST = click.option("--trust", **_TRUST)
TRUST_NEEDED = click.option("--trust", required=True, **_TRUST)
SUCCESSION = click.option(
    "--succession", "successions", type=FilePath, multiple=True, help="Statement of a key's succession; repeatable."
)
LIFE = [
    SUCCESSION,
    click.option(
        "--revocations",
        type=click.Path(path_type=Path),
        help="A notice, or a folder of notices, to look at besides CERTIFICATE's file + .revoked.",
    ),
]

# A table and its ledger

TABLE_OPTIONS = [
    *(
        click.option(f"--{name}-column", f"{name}_column", help=f"Name of the {name} column  [default: {name}]")
        for name in ORDER
    ),
    click.option(
        "--score-scale",
        type=Parsed("worst:best", Scale.of),
        help="The worst and the best score that can be, as scores are written: 0:100, or 1:0 where low is good."
        "  [default: 0:1, or 0:100 where scores plainly are]",
    ),
    *(
        click.option(
            f"--{end}", type=Word(), multiple=True, metavar="WORD", help=f"A label that means {end}; repeatable."
        )
        for end in ("unsupported", "supported")
    ),
    click.option(
        "--missing",
        type=click.Choice(get_args(Missing)),
        default="refuse",
        help="keep: a missing score is never accepted, a missing loss counts as unsupported.",
    ),
]
FRESH = click.option(
    "--fresh", is_flag=True, help="Assert that no unit was in an earlier table, where the ledger cannot tell."
)
LEDGER = click.option("--ledger", type=FilePath, help="The site's ledger  [default: beside the records]")
UNLABELLED = click.option(
    "--unlabelled", type=FilePath, help="Other records of the same traffic, without labels: fewer labels then do."
)
LEDGER_AND_TABLE = [LEDGER, FRESH, *TABLE_OPTIONS]
WHOLE_TABLE = [  # all sites of a table in one process
    click.option("--in-order", is_flag=True, help="Use rows in their order, as a stream, not shuffled."),
    FRESH,
    click.option("--sign-with", type=TEXTS, help="Private key files of sites whose keys are registered."),
    KEY,
    *TABLE_OPTIONS,
]

# A model

MODEL = [
    click.option("--model", help="A local model: hub name, folder or .gguf file."),
    click.option("--revision", help="Revision of the model."),
    click.option("--device", default="auto", help="cpu, cuda, or auto."),
    click.option("--dtype", type=click.Choice(["auto", *DTYPES]), default="auto"),
    click.option("--batch-tokens", type=click.IntRange(1), help="Tokens of one forward pass.  [default: by device]"),
    click.option(
        "--recording",
        type=FilePath,
        help="Where token scores are kept and found again, and beside it a judge's replies and mechanistic signals;"
        " without --model they are replayed.",
    ),
]

# A registration or a monitor: each option by the field of `Choices` or `MonitorChoices` that it sets

FLAG: dict[str, Any] = {"is_flag": True}
CHOICES: dict[str, tuple[Any, str]] = {  # its type, or how it is declared, and its help
    "target_risk": (SHARE, "Largest tolerated share of unsupported answers."),
    "epsilon": (EPSILON, "Privacy loss per unit; smaller is more private; inf for none."),
    "preset": (click.Choice(get_args(Preset)), "Method and release."),
    "encoding": (
        click.Choice(get_args(Counted)),
        "What releases count: totals; also second moments, which gain with sources and graded losses; or a graded loss"
        " level by level.",
    ),
    "method": (_one_of(Stitched, "method"), "Which of the paper's certificates, with --preset paper."),
    "unit": (_one_of(Privacy, "unit"), "What is protected and independent."),
    "thresholds": (click.IntRange(1, 10_000), "How many candidates."),
    "grid": (FLAG, "Public evenly spaced thresholds, not quantiles."),
    "public_development": (FLAG, "Records that choose thresholds are public: take their exact quantiles, unprotected."),
    "min_acceptance": (SHARE, "Least useful share of accepted answers."),
    "failure_probability": (SHARE, "Most probability that the certificate is wrong."),
    "delta": (SHARE, "Probability outside the privacy loss."),
    "adjacency": (
        _one_of(Privacy, "adjacency"),
        "What epsilon is for: a unit being this one or any other, this one or one below every threshold, or any other"
        " of the same groups, where these are public."
        "  [default: replacement; with --preset paper, zero-out]",
    ),
    "batch": (click.IntRange(1), "Units per site and round."),
    "rounds": (click.IntRange(1), "Most rounds."),
    "aggregation": (
        click.Choice(get_args(Aggregation)),
        "own: every site adds its own noise; holder: one process holds all sites and adds one noise a round; cohorts:"
        " sites add up before anyone can read them, and share one noise."
        "  [default: own; holder for a table with several sites that is certified at once]",
    ),
    "cohorts": (
        {"multiple": True, "callback": cohorts, "metavar": "NAME=SITE,..."},
        "Sites that add up together, under a name; repeatable.  [default: all sites, as all]",
    ),
    "colluding": (click.IntRange(0), "Members of a cohort that may side with the server: privacy holds against them."),
    "mask_keys": (
        {"multiple": True, "type": FilePath, "callback": several},
        "A site's public word on its mask key, which `fedsrc keys --mask` wrote; repeatable, one for every site.",
    ),
    "policy": (_one_of(Schedule, "policy"), "When to stop asking, and whom to ask."),
    "dropout": (
        _one_of(Schedule, "dropout"),
        "What a site's absence may depend on.  [default: independent; with cohorts, adversarial]",
    ),
    "max_answers": (click.IntRange(1, 20), "Answers kept per source."),
    "answer_weight": (
        _one_of(Privacy, "answer_weight"),
        "What counts as one: a source with its answers, or an answer.",
    ),
    "loss_grid": (click.IntRange(1), "Graded losses are rounded up to multiples of 1/N."),
    "weights": (NUMBERS, "Deployment weights of the sites: shares of records, or of sources."),
    "drift": (NUMBERS, "Declared drift (total variation) of sites."),
    "claim": (
        {"multiple": True, "callback": named},
        "NAME=TEXT: what the score, the loss and the population are, in words; repeatable.",
    ),
    "validity_days": (click.IntRange(1), "Days until the certificate expires."),
    "server_key": (str, "Public key of the server that may ask and sign."),
    "site_keys": (TEXTS, "Public keys of the sites: releases must be signed."),
    "capacities": (COUNTS, "Most units each site will give."),
    "labels": (
        Parsed("[there|on-demand]", _labels),
        "on-demand: people label what each round needs, the answers that a gate may accept; the others need no label.",
    ),
    "label_hours": (
        click.FloatRange(0, min_open=True),
        "A site releases a round so many hours after it opened, with what is unlabelled by then as unsupported."
        "  [default: when all is labelled, or its operator says so]",
    ),
    "label_twice": (click.FloatRange(0, 1), "Share of answers, drawn at random, that two people label."),
    "disagreement": (
        _one_of(OnDemand, "disagreement"),
        "What counts where two labels differ, or one is unsure: the worse, or what a third person says.",
    ),
    "missed": (
        click.FloatRange(0, 1, max_open=True),
        "Share of the unsupported answers that labels call supported, at most, by your word: the target is then shown"
        " with room for them.",
    ),
    "judge_column": (
        str,
        "Name of a column with a judge model's verdicts (1: unsupported): thresholds are planned on those of the"
        " development part, and the others are not read.",
    ),
    "groups": (
        QUOTED,
        "Groups of answers, comma-separated, as the group column names them (in quotes, where a name has a comma): a"
        " claim for each, or one in all.",
    ),
    "group_claim": (
        _one_of(Groups, "claim"),
        "each: every group has its own status and threshold; all: one threshold that holds in every group.",
    ),
    "group_floor": (
        _one_of(Groups, "floor"),
        "What the least useful share is of: all traffic, or the group's own.",
    ),
    "group_span": (
        _one_of(Groups, "span"),
        "How a source counts that has answers in several groups: by shares, or whole in each, with more noise.",
    ),
    "group_most": (click.IntRange(1, 20), "Groups in which a source may count whole.  [default: all]"),
    "also_scores": (
        {"multiple": True, "callback": further_scores, "metavar": "COLUMN[=WORST:BEST]"},
        "A further score: the best of all, with its threshold, is picked, and the pick is covered; repeatable.",
    ),
    "checkpoints": (
        {"multiple": True, "callback": checkpoints, "metavar": "COLUMN=N,..."},
        "A score column that is the least prefix score at so many tokens; repeatable.",
    ),
    "certificate": (
        click.Choice(["sealed", "open", "plain"]),
        "sealed: registered looks at this target, most power with noise; open: any look, every target; plain: open,"
        " without a plan.  [default: sealed with privacy, open without; plain with --batch, --rounds, --policy or"
        " --grid]",
    ),
    "looks": (
        click.IntRange(1, 20),
        "Looks of a sealed certificate, each with its share of the failure probability.  [default: 1; up to 15 for few"
        " records or labels]",
    ),
    "objective": (
        click.Choice(get_args(Objective)),
        "What a plan is best for: acceptance with the units there are, or few records, labels or rounds."
        "  [default: acceptance; labels where they are made on demand]",
    ),
    "false_alarm": (SHARE, "Most probability of any false alarm, ever."),
    "run_length": (click.IntRange(2), "Instead: least mean number of units until a false alarm."),
    "risk": (SHARE, "Share labelled unsupported above which it rings."),
    "sample": (_one_of(Monitor, "sample"), "What the fresh units are drawn from: all answers, or accepted ones alone."),
}


def choices(
    kind: type[Choices] | type[Wish] | type[MonitorChoices], defaults: Mapping[str, object] | None = None
) -> list[Option[Any]]:
    """Declare the options of a registration or a monitor. Help shows the class's defaults, or those given here."""
    return [_choice(field, (defaults or {}).get(field.name)) for field in fields(kind) if field.name in CHOICES]


def _choice(field: Field[Any], default: object) -> Option[Any]:
    kind, about = CHOICES[field.name]
    if default is None and isinstance(field.default, str | int | float) and kind is not FLAG:
        default = field.default
    shown = "" if default is None else f"  [default: {default}]"
    how = kind if isinstance(kind, dict) else {"type": kind}
    return click.option(flag(field.name), field.name, default=None, help=about + shown, **how)


def given_choices(given: Mapping[str, object], *kinds: type[Choices] | type[Wish] | type[MonitorChoices]) -> list[str]:
    """Return the flags of choices that were made: on the command line or in the environment, for none has a default.
    How a table is read is none of them."""
    names = [field.name for kind in kinds for field in fields(kind) if field.name in CHOICES]
    return [flag(name) for name in names if given.get(name) is not None]
