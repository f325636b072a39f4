"""Flower's grid as a `Post`: the only place where Flower's own types are made and read."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedsrc.certificate import REGISTRATION
from fedsrc.errors import FedsrcError
from fedsrc.federation.flower_app.fedsrc_relay import wire
from fedsrc.federation.hello import node_key_name
from fedsrc.federation.live import play
from fedsrc.federation.log import LOG, open_log
from fedsrc.federation.post import Letter, Node, Patience, Reply
from fedsrc.files import write_whole
from fedsrc.keys import load
from fedsrc.registration import Registration

VARIABLE = "FEDSRC_LIVE"  # in the SuperLink's environment: the settings file. Nothing of it reaches a node
SETTINGS = "live.json"  # in the run folder, written by `fedsrc server`
RECORD = "fedsrc"


@dataclass(frozen=True)
class Settings:
    """What the run loop inside Flower needs to know."""

    folder: Path
    key: Path
    node_keys: dict[str, str] = field(default_factory=dict)  # names of node keys by site
    patience: Patience = field(default_factory=Patience)

    @property
    def path(self) -> Path:
        """The file that tells the run loop."""
        return self.folder / SETTINGS

    def write(self) -> None:
        text = json.dumps({**asdict(self), "folder": str(self.folder), "key": str(self.key)}, indent=2)
        write_whole(self.path, text.encode())

    @classmethod
    def read(cls, path: Path) -> Settings:
        try:
            found = json.loads(path.read_bytes())
            patience = Patience(**found["patience"])
            return cls(Path(found["folder"]), Path(found["key"]), found["node_keys"], patience)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FedsrcError("cannot be read as settings of a live run", where=str(path)) from error


class FlowerPost:
    """Letters as Flower messages. Replies are known by the message they answer: an error comes from nowhere."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid

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
        return [_reply(message) for message in self._grid.pull_messages(list(numbers))]


def _reply(message: Any) -> Reply:
    """A message of a node, which may hold anything."""
    number = str(message.metadata.reply_to_message_id)
    if not message.has_content():
        return Reply(number, problem=f"Flower: {message.error.reason} (code {message.error.code})")
    try:
        kind, data = message.content[RECORD]["kind"], message.content[RECORD]["data"]
    except (KeyError, TypeError):
        return Reply(number, problem="a reply that is not a relay's")
    if not isinstance(kind, bytes) or not isinstance(data, bytes) or len(data) > wire.MAX_ANSWER:
        return Reply(number, problem="a reply that is not a relay's")
    data = data.rstrip(b" ")  # a site pads its answers to one size
    if kind == wire.GIVEN:
        return Reply(number, data)
    words = data.decode(errors="replace")
    return Reply(number, problem=words, refused=kind == wire.REFUSED)


def serve(grid: Any) -> None:
    """The main loop of a Flower run: continue the transcript of the folder that the settings name."""
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
            body = play(
                registration, settings.folder, key, FlowerPost(grid),
                patience=settings.patience, node_keys=settings.node_keys, tell=tell,
            )  # fmt: skip
        except FedsrcError as error:
            tell(str(error))
            raise
        tell(f"the run has ended: {body['status']}")
