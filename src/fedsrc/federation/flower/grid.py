"""Flower's grid as a `Post`: the only module that makes and reads Flower's own types."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedsrc.common.durable import read_bytes, write_whole
from fedsrc.common.signing import load
from fedsrc.errors import FedsrcError
from fedsrc.federation.flower.app.fedsrc_relay import wire
from fedsrc.federation.live.log import open_log
from fedsrc.federation.live.play import play
from fedsrc.federation.live.transport import Letter, Node, Patience, Reply
from fedsrc.protocol.handshake import node_key_name
from fedsrc.protocol.names import REGISTRATION
from fedsrc.protocol.registration import Registration
from fedsrc.server.folder import LOG

VARIABLE = "FEDSRC_LIVE"  # in the SuperLink's environment: the settings file. Nothing of it reaches a node
SETTINGS = "live.json"  # in the run folder, written by `fedsrc server`
RECORD = "fedsrc"
MAX_SETTINGS = 50_000_000  # bytes
SECONDS = 10.0  # for a reply to be complete, once Flower has announced it


@dataclass(frozen=True)
class Settings:
    """What the run loop inside Flower needs to know."""

    folder: Path
    key: Path
    node_keys: dict[str, str] = field(default_factory=dict)  # names of node keys by site
    patience: Patience = field(default_factory=Patience)

    @property
    def path(self) -> Path:
        """The file that the run loop reads."""
        return self.folder / SETTINGS

    def write(self) -> None:
        write_whole(self.path, TypeAdapter(Settings).dump_json(self, indent=2))

    @classmethod
    def read(cls, path: Path) -> Settings:
        try:
            return TypeAdapter(Settings).validate_json(read_bytes(path, MAX_SETTINGS))
        except ValidationError as error:
            raise FedsrcError("cannot be read as settings of a live run", where=str(path)) from error


class FlowerPost:
    """Letters as Flower messages.

    Flower unpacks what a node sends when it is pulled, and it may be anything: unpacking may fail or never end. So each
    reply is pulled by itself, with a time limit, and is identified by the number it was asked for by.
    """

    def __init__(self, grid: Any, seconds: float = SECONDS) -> None:
        self._grid, self._seconds = grid, seconds

    def nodes(self) -> list[Node]:
        return [Node(int(each.node_id), node_key_name(bytes(each.public_key))) for each in self._grid.get_nodes()]

    def push(self, letters: Sequence[Letter], seconds: float) -> list[str | None]:
        from flwr.app import ConfigRecord, Message, RecordDict

        messages = [
            Message(
                RecordDict({RECORD: ConfigRecord({"data": each.data})}),
                dst_node_id=each.node,
                message_type=f"query.{each.kind}",
                group_id=each.group,
                ttl=seconds,
            )
            for each in letters
        ]
        numbers = list(self._grid.push_messages(messages))
        return [number or None for number in numbers] or [None] * len(letters)

    def pull(self, numbers: Sequence[str]) -> list[Reply]:
        return [reply for number in numbers if (reply := self._pull(number)) is not None]

    def _pull(self, number: str) -> Reply | None:
        """Return the reply to one letter; a problem if it cannot be read, or is not complete in time."""
        found: list[Reply | None] = []
        thread = threading.Thread(target=lambda: found.append(_pulled(self._grid, number)), daemon=True)
        thread.start()
        thread.join(self._seconds)
        return found[0] if found else Reply(number, problem="a reply that did not come whole in time")


def _pulled(grid: Any, number: str) -> Reply | None:
    try:
        messages = list(grid.pull_messages([number]))
        return reply_of(number, messages[0]) if messages else None
    except Exception as error:  # whatever Flower raises at a node's bytes
        return Reply(number, problem=f"a reply that cannot be read: {type(error).__name__}")


def reply_of(number: str, message: Any) -> Reply:
    """Return a node's message as a reply; it may hold anything."""
    if not message.has_content():
        return Reply(number, problem=f"Flower: {message.error.reason} (code {message.error.code})")
    try:
        kind, data = message.content[RECORD]["kind"], message.content[RECORD]["data"]
    except (KeyError, TypeError):
        kind = data = None
    if not isinstance(kind, bytes) or not isinstance(data, bytes) or len(data) > wire.MAX_ANSWER:
        return Reply(number, problem="a reply that is not a relay's")
    data = data.rstrip(b" ")  # a site pads its answers to one size
    if kind == wire.GIVEN:
        return Reply(number, data)
    words = data.decode(errors="replace")
    return Reply(number, problem=words, refused=kind == wire.REFUSED)


def serve(grid: Any) -> None:
    """Run the main loop of a Flower run: continue the transcript of the folder that the settings name."""
    _end_with_parent()
    place = os.environ.get(VARIABLE)
    if place is None:
        raise FedsrcError(
            f"{VARIABLE} is not set where the SuperLink runs",
            hint=f"set it to the run folder's {SETTINGS} before the SuperLink is started",
        )
    settings = Settings.read(Path(place))
    registration, key = Registration.read(settings.folder / REGISTRATION), load(settings.key)
    with open_log(settings.folder / LOG) as tell:
        try:
            certificate = play(
                registration, settings.folder, key, FlowerPost(grid),
                patience=settings.patience, node_keys=settings.node_keys, tell=tell,
            )  # fmt: skip
        except Exception as error:
            tell(str(error) if isinstance(error, FedsrcError) else f"a fault in fedsrc: {error!r}")
            raise
        tell(f"the run has ended: {certificate.status}")


def _end_with_parent() -> None:
    """Kill this process a while after its parent has died, for it holds the transcript.

    Flower asks it to stop, but waits for connections that are gone. A transcript survives a kill at any instant.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        time.sleep(SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
