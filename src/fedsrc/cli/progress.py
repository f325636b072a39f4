"""Progress of long work: a line that moves on a terminal, and silence in a pipe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich import progress as rich
from rich.console import Console


class Tell(Protocol):
    """Says what is done now, and how much of how much."""

    def __call__(self, what: str, done: int = 0, total: int | None = None, /) -> None: ...


@contextmanager
def progress(*, counted: bool = False) -> Iterator[Tell]:
    """Show progress on a terminal: words, and a bar where the work is counted."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _what, _done=0, _total=None: None
        return
    words = rich.SpinnerColumn(), rich.TextColumn("{task.description}")
    bar = (rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn()) if counted else ()
    with rich.Progress(*words, *bar, rich.TimeElapsedColumn(), console=console) as shown:
        task = shown.add_task("starting", total=None)

        def tell(what: str, done: int = 0, total: int | None = None, /) -> None:
            shown.update(task, description=what, completed=done, total=total)

        yield tell
