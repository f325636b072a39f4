"""Validated values: the frozen base of every file and message, and the kinds of text and number they hold."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from fedsrc.common.canonical import LARGEST

LARGE = re.compile(r"-?[1-9][0-9]{15,39}")


def printable(text: str) -> str:
    """Refuse control, direction and line characters: names and claims are shown to people who decide by them."""
    if not text.isprintable():
        raise ValueError("must be printable text on one line")
    return text


Probability = Annotated[float, Field(gt=0, lt=1)]
Numbers = Annotated[tuple[float, ...], Field(strict=False)]
Text = Annotated[str, Field(max_length=2000), AfterValidator(printable)]
Name = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(printable)]
Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _whole(value: object) -> object:
    """Read an integer as canonical JSON writes it: beyond 2^53 as decimal text."""
    if isinstance(value, str) and LARGE.fullmatch(value) and abs(int(value)) > LARGEST:
        return int(value)
    return value


def _real(value: object) -> object:
    """Read a number as canonical JSON writes it: infinity as text, and so a whole number beyond 2^53."""
    if isinstance(value, str) and (value in ("inf", "-inf") or LARGE.fullmatch(value)):
        return float(value)
    return value


def _not_nan(value: float) -> float:
    if math.isnan(value):
        raise ValueError("is not a number")
    return value


class Frozen(BaseModel):
    """A value: unknown fields, NaN and silent conversions are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def __copy__(self) -> Self:
        """Copy the fields alone: what was cached of them may not hold for a copy that is updated."""
        return super().__copy__()._without_cache()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return super().__deepcopy__(memo)._without_cache()

    def copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:  # type: ignore[override]
        """Copy as `model_copy` does; pydantic's own, of its first version, copies what was cached too."""
        return self.model_copy(update=update, deep=deep)

    def _without_cache(self) -> Self:
        for name in set(self.__dict__) - set(type(self).model_fields):
            del self.__dict__[name]
        return self


class Grown(Frozen):
    """A value with fields that came later: left as they are by default, they are not written, and bytes stay."""

    LATER: ClassVar[tuple[str, ...]]

    @model_serializer(mode="wrap")
    def _as_before(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        unused = {each for each in self.LATER if getattr(self, each) == type(self).model_fields[each].default}
        return {name: value for name, value in write(self).items() if name not in unused}


def describe(error: ValidationError) -> str:
    """Describe the first problem of a validation error, as `field: what`."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    message = str(first["msg"]).removeprefix("Value error, ")
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{field}: {message}{more}" if field else f"{message}{more}"


Real = Annotated[float, Field(allow_inf_nan=True), BeforeValidator(_real), AfterValidator(_not_nan)]  # may be infinite
Whole = Annotated[int, BeforeValidator(_whole)]
Signature = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
