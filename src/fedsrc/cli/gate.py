"""`fedsrc gate`: a certificate in production, for one score or as a service."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedsrc.cli.options import FORMAT, LIFE, TRUST_NEEDED, Option, listening, named, options
from fedsrc.cli.output import show
from fedsrc.cli.streams import say
from fedsrc.cli.types import QUOTED, SHARE, AnyPath
from fedsrc.errors import FedsrcError, MissingExtraError
from fedsrc.gate.gate import Gate, Status
from fedsrc.protocol.certificate import Certificate, parse_signed
from fedsrc.protocol.scale import Scale

if TYPE_CHECKING:
    from fedsrc.gate.service.serving import Maker
    from fedsrc.gate.service.throttle import Limits, Throttle

CLAIMED: dict[str, Callable[[str], object]] = {
    "target_risk": float, "failure_probability": float, "groups": QUOTED.parse
}  # fmt: skip
DAY = 86_400
ROLES = ("system", "developer", "tool", "user")
ABOUT_EVIDENCE = "Role of messages that hold the evidence; repeatable. The last of the user is the question."
CERTIFICATE = [
    click.argument("certificate", type=AnyPath),
    TRUST_NEEDED,
    click.option(
        "--claim", multiple=True, callback=named, help="NAME=VALUE that the certificate must say; repeatable."
    ),
    click.option("--target", type=SHARE, help="Risk to promise: any shown, or more.  [default: the registered one]"),
    click.option("--halt-file", type=AnyPath, help="Where a halt is kept.  [default: CERTIFICATE's file + .halt]"),
    *LIFE,
    click.option("--monitor", type=AnyPath, help="Folder or status file of the monitor to follow: its alarm halts."),
    click.option(
        "--monitor-days",
        type=click.FloatRange(0, min_open=True),
        help="Stop if the monitor's latest release is older.  [default: never]",
    ),
]


@click.group("gate")
def gate_command() -> None:
    """Accept or abstain by CERTIFICATE, a run folder or a certificate file.

    Exit status of check: 0 accepted, 1 abstained, 2 error. Of serve and guard: 0 when told to stop, 2 error.
    """


@gate_command.command("check")
@options(CERTIFICATE)
@click.option("--score", type=float, required=True, help="The score of an answer, on the registered scale.")
@click.option("--group", help="The group of the answer, if the certificate lists groups.")
@FORMAT
def check_command(score: float, group: str | None, output: str, **given: Any) -> None:
    """Decide on one score: exit status 0 accepted, 1 abstained, 2 error."""
    gate = gate_of(**given)
    decision, status = gate.decide(score, group=group), gate.status()
    word, threshold = "accepted" if decision.accepted else "abstained", decision.threshold
    raw = None if threshold is None else Scale.of(status.scale).value(threshold)
    place = "" if threshold is None else f"threshold {_on_scale(threshold, status)}, "
    picked = _picks_score(gate)
    of = f"score {status.score!r}, " if picked else ""
    words = f"{word}: {decision.reason} ({of}{place}risk at most {decision.target_risk:g})"
    more = {"score": status.score} if picked else {}
    show(output, decision._asdict() | {"scale": status.scale, "raw_threshold": raw} | more, words)
    if output == "text":
        note_expiry(status)
    sys.exit(0 if decision.accepted else 1)


def _serving(port: int, max_bytes: int) -> list[Option[Any]]:
    """Declare how a command serves a gate."""
    return [
        *CERTIFICATE,
        *listening(port, "Where to listen."),
        click.option("--allow-host", multiple=True, help="Host name that clients may use besides --host; repeatable."),
        click.option("--rate", type=click.FloatRange(1), default=1000, help="Requests a second, all clients."),
        click.option("--max-bytes", type=click.IntRange(1), default=max_bytes, help="Largest body."),
        click.option(
            "--reload-seconds",
            type=click.FloatRange(0.01),
            default=5.0,
            help="How often to look for a renewed certificate.",
        ),
        FORMAT,
    ]


@gate_command.command("serve")
@options(_serving(8321, 65_536))
def serve_command(**given: Any) -> None:
    """Serve decisions over HTTP; /openapi.json describes it. SIGTERM ends it, SIGUSR1 halts the gate."""
    _serve("Gate", **given)


@gate_command.command("guard")
@options(_serving(8322, 1 << 20))
@click.option("--scorer", help="The score that was certified, computed here from the texts: one that needs no model.")
@click.option("--evidence", multiple=True, type=click.Choice(ROLES), default=ROLES[:1], help=ABOUT_EVIDENCE)
@click.option("--score-header", help="Instead: header in which whoever calls the proxy gives the score, as a number.")
@click.option("--group-header", help="Header in which whoever calls the proxy names the answer's group.")
@click.option("--group-param", help="Parameter that names the group in the proxy's configuration of the guardrail.")
@click.option("--trust-callers", is_flag=True, help="Take scores and groups from headers: who calls can say anything.")
@click.option("--fallback", help="Text to show in place of answers that are not accepted.  [default: they are blocked]")
def guard_command(
    scorer: str | None, evidence: tuple[str, ...], score_header: str | None, group_header: str | None,
    group_param: str | None, trust_callers: bool, fallback: str | None, **given: Any,
) -> None:  # fmt: skip
    """Serve LiteLLM's guardrail route: texts come in, and only answers that the gate accepts pass."""
    try:
        from fedsrc.guardrail.app import Source, check_score, guardrail, scorer_of
    except ImportError as error:
        raise MissingExtraError(str(error.name), "gate") from error
    if (score_header or group_header) and not trust_callers:
        hint = "say that you mean it with --trust-callers, or use --scorer and --group-param"
        raise FedsrcError("whoever calls the proxy sets its headers, and could have any answer accepted", hint=hint)
    run = scorer_of(scorer) if scorer else None
    source = Source(run, score_header, frozenset(evidence), group_header, group_param, fallback)

    def make(gate: Gate, limits: Limits) -> Throttle:
        return guardrail(gate, source, limits)

    _serve("Guardrail", make, lambda gate: check_score(gate, scorer, given["claim"] or {}), **given)


def _serve(
    name: str, make: Maker | None = None, check: Callable[[Gate], None] = lambda _: None, *, host: str, port: int,
    allow_host: tuple[str, ...], rate: float, max_bytes: int, reload_seconds: float, output: str, **given: Any,
) -> None:  # fmt: skip
    """Serve a gate, with the app that `make` makes of it, until told to stop."""
    try:
        from fedsrc.gate.service.hosts import LOOPBACK, host_names
        from fedsrc.gate.service.serving import bind, serve
        from fedsrc.gate.service.throttle import Limits
    except ImportError as error:
        raise MissingExtraError(str(error.name), "gate") from error
    gate = gate_of(**given)
    check(gate)
    limits = Limits(max_bytes=max_bytes, rate=rate, hosts=host_names(host, allow_host))
    if host not in LOOPBACK:
        say(f"warning: {host} is not this machine alone, and this is HTTP without encryption or a password.")
    with bind(host, port) as listener, gate.watch(reload_seconds):
        log_to_stderr()
        address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        note_expiry(gate.status())
        note_halt(gate)

        def ready() -> None:
            if output == "json":
                show(output, {"address": address, **asdict(gate.status())})
            else:
                say(f"{name} at {address}: {_promise(gate.status())}")

        serve(gate, listener, limits, ready, make)
    say("Stopped.")


def gate_of(certificate: Path, trust: tuple[str, ...], claim: dict[str, str] | None, **files: Any) -> Gate:
    """Open the gate that the options name."""
    try:
        meant = {name: CLAIMED.get(name, str)(value) for name, value in (claim or {}).items()}
    except ValueError as error:
        raise FedsrcError(f"--claim: {error}") from error
    return Gate(certificate, trusted=trust, claim=meant, **files)


def _picks_score(gate: Gate) -> bool:
    """Return whether scores were registered to pick from, so that the one in force is worth its name."""
    found = parse_signed(gate.text, str(gate.path))
    return isinstance(found, Certificate) and found.panel is not None and found.panel.kind == "scores"


def _promise(status: Status) -> str:
    """Say which score must reach which threshold, and what is promised of what that accepts."""
    place = "its group's threshold" if status.threshold is None else _on_scale(status.threshold, status)
    return f"{status.score} >= {place}, risk at most {status.target_risk:g}"


def _on_scale(threshold: float, status: Status) -> str:
    """Say a threshold, on the scale of scores too if they have one."""
    scale = Scale.of(status.scale)
    more = "" if scale == Scale() else f", which is {scale.value(threshold):.6g} on the scale {status.scale}"
    return f"{threshold!r}{more}"


def note_expiry(status: Status) -> None:
    """Warn when the certificate should be renewed."""
    if status.renew_soon:
        say(f"warning: the certificate expires on {status.expires}, in {status.seconds_left / DAY:.1f} days: renew it")


def note_halt(gate: Gate) -> None:
    """Warn if nothing is accepted from the start, or a halt could not be written down."""
    status = gate.status()
    if not status.accepting:
        why = status.monitor_problem or f"{status.halt_problem or status.reason} ({gate.halt_file})"
        say(f"warning: nothing is accepted: {why}")
    elif not os.access(gate.halt_file.parent, os.W_OK):
        say(f"warning: {gate.halt_file.parent} cannot be written to, so a restart would forget a halt: use --halt-file")


def log_to_stderr() -> None:
    """Write the gate's log to stderr, in UTC."""
    handler = logging.StreamHandler()
    words = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    words.converter = time.gmtime
    handler.setFormatter(words)
    logging.getLogger("fedsrc.gate").addHandler(handler)
