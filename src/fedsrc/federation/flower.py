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
from fedsrc.federation.post import Letter, Node, Patience, Reply
from fedsrc.keys import load
from fedsrc.registration import Registration
from fedsrc.release import utc_now

VARIABLE = "FEDSRC_LIVE"  # how `fedsrc server` tells the run loop what to do: nothing of it reaches a node
RECORD = "fedsrc"
LOG = "live.log"  # in the run folder: what happened, in words; the transcript is what counts


@dataclass(frozen=True)
class Settings:
    """What the run loop inside Flower needs to know."""

    folder: Path
    key: Path
    node_keys: dict[str, str] = field(default_factory=dict)  # names of node keys by site
    patience: Patience = field(default_factory=Patience)

    def to_text(self) -> str:
        return json.dumps({**asdict(self), "folder": str(self.folder), "key": str(self.key)})

    @classmethod
    def from_text(cls, text: str) -> Settings:
        found = json.loads(text)
        patience = Patience(**found["patience"])
        return cls(Path(found["folder"]), Path(found["key"]), found["node_keys"], patience)


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
    if kind == wire.GIVEN:
        return Reply(number, data)
    words = data.decode(errors="replace")
    return Reply(number, problem=words, refused=kind == wire.REFUSED)


def serve(grid: Any) -> None:
    """The main loop of a Flower run: continue the transcript of the folder that the environment names."""
    text = os.environ.get(VARIABLE)
    if text is None:
        raise FedsrcError(f"{VARIABLE} is not set", hint="runs are started by `fedsrc server`")
    settings = Settings.from_text(text)
    registration, key = Registration.read(settings.folder / REGISTRATION), load(settings.key)
    with (settings.folder / LOG).open("a", encoding="utf-8", buffering=1) as log:

        def tell(words: str) -> None:
            log.write(f"{utc_now()} {words}\n")

        try:
            body = play(
                registration, settings.folder, key, FlowerPost(grid),
                patience=settings.patience, node_keys=settings.node_keys, tell=tell,
            )  # fmt: skip
        except FedsrcError as error:
            tell(str(error).replace("\n", "; "))
            raise
        tell(f"the run has ended: {body['status']}")
