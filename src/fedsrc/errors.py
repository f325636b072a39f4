"""Errors that a user can fix: what happened, where, and what to do next. Code tells them apart by class."""

from __future__ import annotations


class FedsrcError(Exception):
    """An input or a state that fedsrc refuses. Printed as two lines, exit status 2."""

    def __init__(
        self, what: str, *, where: str | None = None, hint: str | None = None, private: tuple[str, ...] = ()
    ) -> None:
        self.what = what
        self.where = where
        self.hint = hint
        self.private = private  # parts that come from records: shown to the user, kept out of logs
        super().__init__(str(self))

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}\nhint: {self.hint}" if self.hint else head

    def for_log(self) -> str:
        """Return the same without anything that comes from records."""
        text = str(self)
        for each in filter(None, self.private):
            text = text.replace(repr(each) if repr(each) in text else each, "(not in the log)")
        return text


class DamagedError(FedsrcError):
    """A file is not as it was written or signed, or is not of the expected kind."""


class BusyError(FedsrcError):
    """Another process holds the resource; retry later."""


class UndecidedError(FedsrcError):
    """Something that only the user can know: an argument, and what each of its values would say."""

    def __init__(self, what: str, argument: str, answers: dict[str, str], *, where: str | None = None) -> None:
        self.argument, self.answers = argument, answers
        told = "; ".join(f"`{argument}={value!r}` if {words}" for words, value in answers.items())
        super().__init__(what, where=where, hint=told)


class MissingExtraError(FedsrcError):
    """A library that comes with an extra is not installed.

    The hint installs the extra from the checkout. It never names a package called fedsrc: no index has one of ours, so
    whoever registered the name would get those installs.
    """

    def __init__(self, library: str, extra: str) -> None:
        self.library, self.extra = library, extra
        super().__init__(f"{library} is not installed", hint=f"in the checkout of fedsrc: pip install '.[{extra}]'")

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        """Pickle it by its arguments."""
        return type(self), (self.library, self.extra)
