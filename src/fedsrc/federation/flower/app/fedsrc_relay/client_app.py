"""At a SuperNode: hand a question to the site's process and its answer back. Bytes in, bytes out.

The node's configuration names the socket. The app reads no file, holds no key and understands nothing of what it
carries: requests are signed by the server and releases by the site.
"""

from __future__ import annotations

from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from . import wire

SECONDS = 60.0  # for the site's process; the server's own deadline may be shorter

app = ClientApp()


def relay(kind: bytes, message: Any, context: Any) -> Any:
    """The site's answer to a message, or why it could not be asked."""
    try:
        data = bytes(message.content["fedsrc"]["data"])
        answer = wire.ask(str(context.node_config["socket"]), wire.Frame(kind, data), SECONDS)
    except (wire.WireError, KeyError, TypeError) as error:
        answer = wire.Frame(wire.UNREACHED, str(error)[:200].encode())
    record = ConfigRecord({"kind": answer.kind, "data": answer.data})
    return Message(RecordDict({"fedsrc": record}), reply_to=message)


def hello(message: Any, context: Any) -> Any:
    """Who is there?"""
    return relay(wire.HELLO, message, context)


def release(message: Any, context: Any) -> Any:
    """A request for a release."""
    return relay(wire.RELEASE, message, context)


app.query("hello")(hello)
app.query("release")(release)
