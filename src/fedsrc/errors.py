"""One error for everything a user can put right: what happened, where, and what to do next."""

from __future__ import annotations


class FedsrcError(Exception):
    """An input or a state that fedsrc refuses. Printed as two lines, exit status 2."""

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__(str(self))

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}\nhint: {self.hint}" if self.hint else head
