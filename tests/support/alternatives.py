"""Everything that a model leaves open, read from its fields: words, kinds, yes or no, something or nothing.

A field that grows a word, a kind or an optional value has an alternative more, which no value shows until there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

PLAIN, EMPTY, LATER = "a plain value", "an empty list", "not the default"


class Alternative(NamedTuple):
    """One of the things that a field may hold: a word, True or False, a kind of value, None, an empty list where that
    is the default, and, where a field came later and is not written by default, something else."""

    model: str
    field: str
    word: str


def allowed(*models: type[BaseModel]) -> set[Alternative]:
    """All alternatives of models and of all models in their fields, where there is more than one."""
    found, todo, seen = set[Alternative](), [*models], set[type[BaseModel]]()
    while todo:
        model = todo.pop()
        if model in seen:
            continue
        seen.add(model)
        for name, info in model.model_fields.items():
            todo += [kind for kind in _kinds(info.annotation) if _is_model(kind)]
            words = _words(model, name, info)
            if len(words) > 1:
                found |= {Alternative(model.__name__, name, word) for word in words}
    return found


def shown(value: Any) -> Iterator[Alternative]:
    """Yield the alternatives that a value takes."""
    if isinstance(value, tuple | list):
        for each in value:
            yield from shown(each)
    if not isinstance(value, BaseModel):
        return
    for name, info in type(value).model_fields.items():
        held, words = getattr(value, name), _words(type(value), name, info)
        if held == () and EMPTY in words:
            yield Alternative(type(value).__name__, name, EMPTY)
        if LATER in words and held != info.default:
            yield Alternative(type(value).__name__, name, LATER)
        for each in _flat(held):
            word = type(each).__name__ if isinstance(each, BaseModel) else str(each)
            yield Alternative(type(value).__name__, name, word if word in words else PLAIN)
        yield from shown(held)


def _words(model: type[BaseModel], name: str, info: FieldInfo) -> set[str]:
    words = {word for kind in _kinds(info.annotation) for word in _of_kind(kind)}
    if info.default == ():
        words.add(EMPTY)
    elif name in getattr(model, "LATER", ()) and words == {PLAIN}:
        words.add(LATER)
    return words


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield what an annotation allows: classes, literals, and what stands in tuples."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif origin in (Union, UnionType, tuple):
        for each in get_args(annotation):
            if each is not Ellipsis:
                yield from _kinds(each)
    else:
        yield annotation


def _of_kind(kind: Any) -> tuple[str, ...]:
    if get_origin(kind) is Literal:
        return tuple(map(str, get_args(kind)))
    if kind is bool:
        return "True", "False"
    if kind is NoneType:
        return ("None",)
    return (kind.__name__ if _is_model(kind) else PLAIN,)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for each in value:
            yield from _flat(each)
    else:
        yield value
