"""The live page: the card of a run that is on, read-only, to browsers on this machine unless told otherwise.

One thread reads the run and renders it when it has changed; requests are answered from what it made last.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fedsrc.common import local_page
from fedsrc.errors import FedsrcError
from fedsrc.protocol.names import CERTIFICATE, REGISTRATION
from fedsrc.report.html import fragment, page, policy
from fedsrc.report.outlook import Outlook
from fedsrc.report.view import View, Watched, build_view, estimate, view_json, watched_by
from fedsrc.server.folder import runs_below
from fedsrc.server.follow import Follower, Stamps, stamps

EVERY = 0.5  # seconds between looks at the folder


@dataclass(frozen=True)
class Shown:
    """What is served: made once per change, whoever asks."""

    tag: str
    page: bytes
    card: bytes
    state: bytes


class LiveView:
    """Follows a run folder, and that of its monitor if it has one, and keeps the latest page of them."""

    def __init__(self, folder: Path, *, monitor: Path | None = None, version: str = "") -> None:
        self.folder, self.monitor, self.version = folder, monitor, version
        self.watched: Watched | None = None
        self._monitored: Stamps | None = None
        self.run: Follower | None = None
        self.outlook: Outlook | None = None
        self._estimates = ThreadPoolExecutor(1, thread_name_prefix="estimate")
        self._estimate: Future[Outlook | None] | None = None
        self._estimated = -1  # rounds
        self._refused: tuple[Stamps, Stamps | None] | None = None
        self._said = ""
        self._ends: datetime | None = None  # of what the card says, unless it shows that this is past
        self.shown = _render(None, "reading the run", waiting=True)

    def look(self) -> None:
        """Read what is new, and render the page if anything changed. A run that is refused shows why, and no card."""
        now = stamps(self.folder), None if self.monitor is None else stamps(self.monitor)
        if self._refused == now:
            return
        if self.run is None and not (self.folder / REGISTRATION).exists():
            self._waits()
            return
        try:
            self._follow()
            self._refused, self._said = None, ""
        except Exception as error:
            # once the folder changes, it is read again from its beginning
            self.run, self._monitored, self._refused, self._said = None, None, now, ""
            words = str(error) if isinstance(error, FedsrcError) else f"the page failed: {type(error).__name__}"
            self.shown = _render(None, words)

    def _waits(self) -> None:
        """Say that nothing has begun there, and what is there instead."""
        below = runs_below(self.folder)
        words = f"Waiting for a run in {self.folder.absolute()}; the page shows it as soon as it begins."
        words += f" There is one in {below[0].absolute()}." if below else ""
        if words != self._said:
            self.shown, self._said = _render(None, words, waiting=True), words

    def _follow(self) -> None:
        run = self.run or Follower(self.folder)
        changed = run.update() or self.run is None
        self.run = run
        if self._has_estimate(run) | self._has_word(run) | self._has_expired() | changed:
            view = build_view(run, outlook=self.outlook, monitor=self.watched, version=self.version)
            valid = view["check"]["certificate"] and not view["check"]["expired"]
            self._ends = view["certificate"].expires if valid else None
            self.shown = _render(view, "")

    def _has_expired(self) -> bool:
        return self._ends is not None and datetime.now(UTC) > self._ends

    def _has_word(self, run: Follower) -> bool:
        """Return whether the monitor says something new. It may not have begun, or have nothing to watch yet."""
        if self.monitor is None or not all((each / CERTIFICATE).exists() for each in (run.folder, self.monitor)):
            return False
        now = stamps(self.monitor)
        if now == self._monitored:
            return False
        self.watched, self._monitored = watched_by(self.monitor, run.folder), now
        return True

    def _has_estimate(self, run: Follower) -> bool:
        """Return whether there is a new estimate. They take long, so another thread makes them, one at a time."""
        done = self._estimate if self._estimate is not None and self._estimate.done() else None
        if done is not None:
            self._estimate, self.outlook = None, done.result()
        if self._estimate is None and run.replay.rounds != self._estimated:
            self._estimated = run.replay.rounds
            snapshot = copy.copy(run)
            snapshot.replay = copy.copy(run.replay)
            self._estimate = self._estimates.submit(estimate, snapshot)
        return done is not None

    def close(self) -> None:
        self._estimates.shutdown(wait=False, cancel_futures=True)


def _render(view: View | None, problem: str, *, waiting: bool = False) -> Shown:
    card = fragment(view, problem=problem, waiting=waiting).encode()
    state = "null" if view is None else view_json(view)
    return Shown(
        f'"{hashlib.sha256(card).hexdigest()[:32]}"',
        page(view, live=True, problem=problem, waiting=waiting).encode(),
        card,
        state.encode(),
    )


class Handler(local_page.Handler):
    """Answers GET and HEAD for three addresses, to callers that named this server by its own name."""

    server: Server
    words = {**local_page.Handler.words, 405: "this page is read-only"}  # noqa: RUF012

    def do_GET(self) -> None:
        shown = self.server.watch.shown
        found = {
            "/": (shown.page, "text/html; charset=utf-8"),
            "/card": (shown.card, "text/html; charset=utf-8"),
            "/state.json": (shown.state, "application/json"),
        }.get(self.path.partition("?")[0])
        if not self.is_named():
            return
        if found is None:
            self.send_error(404)
        elif self.headers.get("If-None-Match") == shown.tag and self.path == "/card":
            self.answer(304, b"", None, shown.tag)
        else:
            self.answer(200, *found, shown.tag)

    def do_HEAD(self) -> None:
        self.do_GET()


class Server(local_page.Server):
    """The live page's server."""

    def __init__(self, watch: LiveView, host: str, port: int) -> None:
        self.watch = watch
        super().__init__(host, port, Handler, policy(live=True, header=True))


@contextlib.contextmanager
def serving(
    folder: Path, host: str, port: int, *, monitor: Path | None = None, version: str = "", every: float = EVERY
) -> Iterator[Server]:
    """Serve a run's page until the block ends."""
    watch = LiveView(folder, monitor=monitor, version=version)
    server = Server(watch, host, port)
    over = threading.Event()
    thread = threading.Thread(target=_repeat, args=(watch.look, over, every), daemon=True)
    thread.start()
    try:
        with server.running():
            yield server
    finally:
        over.set()
        thread.join()
        watch.close()


def _repeat(what: Callable[[], None], over: threading.Event, every: float) -> None:
    what()
    while not over.wait(every):
        what()
