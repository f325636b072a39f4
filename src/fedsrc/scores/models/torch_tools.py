"""What the local models share: loading torch and transformers, batches by length, memory errors in words."""

from __future__ import annotations

import copy
import importlib
import io
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from fedsrc.common.canonical import digest, file_digest
from fedsrc.errors import FedsrcError, MissingExtraError
from fedsrc.maths.arrays import Floats

if TYPE_CHECKING:
    import torch

Key = TypeVar("Key", bound=Hashable)
PADDING = 0.1  # the share of a large batch that padding may take


class Response(NamedTuple):
    """One response as tokens, and the prompt it follows."""

    prompt: str
    ids: list[int]
    tokens: tuple[str, ...]
    offsets: Any


class Texts(NamedTuple):
    """Distinct prompts as tokens, and the responses in the order they were asked for."""

    prompts: dict[str, list[int]]
    responses: list[Response]


@contextmanager
def loading(name: str) -> Iterator[None]:
    """Turn whatever a damaged or foreign model raises into one error; show progress on a terminal alone."""
    quiet = nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO())
    try:
        with quiet:
            yield
    except Exception as error:
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise FedsrcError(f"model {name!r} cannot be loaded: {said}", hint="check its name or files") from error


def folder_digest(folder: Path) -> str:
    """Return the digest of a model folder: every file that decides weights or tokens, by name and content."""
    kinds = {".safetensors", ".bin", ".json", ".model", ".txt"}
    names = sorted(each.name for each in folder.iterdir() if each.is_file() and each.suffix in kinds)
    return digest([[name, file_digest(folder / name)] for name in names])


def identity_of(name: str, model: Any, revision: str | None = None) -> dict[str, str]:
    """Return name and revision of a model: the commit on the hub, or the digest of the folder's files."""
    folder = Path(name)
    if folder.is_dir():
        return {"model": folder.resolve().name, "revision": folder_digest(folder)}
    return {"model": name, "revision": str(getattr(model.config, "_commit_hash", None) or revision or "unknown")}


def device_of(name: str) -> str:
    """Return the device by its name; "auto" is the GPU where there is one."""
    cuda = bool(need("torch").cuda.is_available())
    if name == "auto":
        return "cuda" if cuda else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise FedsrcError(f"unknown device {name!r}", hint="use cpu, cuda, cuda:1 or auto")
    if kind == "cuda" and (not cuda or int(number or 0) >= need("torch").cuda.device_count()):
        raise FedsrcError(f"there is no device {name!r} here", hint="use `device='cpu'`")
    return name


def load_encoder(kind: str, name: str, device: str) -> tuple[Any, Any, dict[str, str]]:
    """Load an encoder of an auto class by hub name or folder; return it with its tokenizer and its identity."""
    transformers, torch = need("transformers"), need("torch")
    with loading(name):
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
        encoder = getattr(transformers, kind).from_pretrained(name, dtype=torch.float32)
    encoder.eval()
    encoder.to(device_of(device))
    return encoder, tokenizer, identity_of(name, encoder)


class Known(Generic[Key]):
    """What a model gives for each key, asked for once."""

    def __init__(self, ask: Callable[[Sequence[Key]], Floats]) -> None:
        self._ask = ask
        self._known: dict[Key, Floats] = {}

    def add(self, keys: Iterable[Key]) -> None:
        """Ask for what is new, all in one call."""
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        if new:
            self._known.update(zip(new, self._ask(new), strict=True))


def batches(lengths: Sequence[int], budget: int, extra: int = 0) -> Iterator[list[int]]:
    """Yield places of similar length together, longest first, each batch within the token budget (padding included).

    A batch that is large enough also ends where more than a tenth of it would be padding. `extra` tokens stand before
    each row and are held in memory with it.
    """
    batch: list[int] = []
    width = held = 0
    for place in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        rows = len(batch) + 1
        full = (width + extra) * rows > budget
        loose = 8 * width * rows > budget and held + lengths[place] < (1 - PADDING) * width * rows
        if batch and (full or loose):
            yield batch
            batch, held = [], 0
        width = width if batch else lengths[place]
        batch.append(place)
        held += lengths[place]
    if batch:
        yield batch


def positions(mask: torch.Tensor) -> Any:
    """Return the place of each real token in its own text, whatever padding stands before it."""
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def rows_of(cache: Any, rows: torch.Tensor) -> Any:
    """Return a cache of those rows. Layers replace their tensors and never write into them: a shallow copy will do."""
    kept = copy.copy(cache)
    kept.layers = [copy.copy(layer) for layer in cache.layers]
    kept.batch_select_indices(rows)
    return kept


@contextmanager
def memory() -> Iterator[None]:
    """Turn running out of memory into an error with a hint."""
    try:
        yield
    except need("torch").OutOfMemoryError as error:
        raise FedsrcError("the device ran out of memory", hint="give a smaller `batch_tokens=`") from error


def need(library: str) -> Any:
    """Import a library of the extra `models`, or say how to install it."""
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise MissingExtraError(library, "models") from error
