"""One error for everything a user can put right: what happened, where, and what to do next."""

from __future__ import annotations


class FedsrcError(Exception):
    """An input or a state that fedsrc refuses. Printed as two lines, exit status 2."""

    def __init__(
        self, what: str, *, where: str | None = None, hint: str | None = None, private: tuple[str, ...] = ()
    ) -> None:
        self.what = what
        self.where = where
        self.hint = hint
        self.private = private  # what of it stands in records: said to whoever asked, kept out of logs
        super().__init__(str(self))

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}\nhint: {self.hint}" if self.hint else head

    def for_log(self) -> str:
        """The same without anything that stands in records."""
        text = str(self)
        for each in filter(None, self.private):
            text = text.replace(repr(each) if repr(each) in text else each, "(not in the log)")
        return text
