"""Opening a local model by what a user calls it: a name on the hub, a folder, or a GGUF file."""

from __future__ import annotations

from pathlib import Path

from fedsrc.errors import FedsrcError
from fedsrc.scores.models.llama_cpp_model import LlamaCppModel, load_llama_cpp
from fedsrc.scores.models.torch_tools import device_of
from fedsrc.scores.models.transformers_model import TransformersModel, load

DTYPES = ("float32", "bfloat16", "float16")
BACKENDS = ("transformers", "llama.cpp")


def open_model(
    model: str, *, revision: str | None, device: str, dtype: str, batch_tokens: int | None = None
) -> TransformersModel:
    """Open a local model on a device. Numbers are float32 unless another type is named: "auto" never rounds more."""
    place, kind = device_of(device), "float32" if dtype == "auto" else dtype
    if kind not in DTYPES:
        raise FedsrcError(f"unknown type of numbers {dtype!r}", hint=f"use {', '.join(DTYPES)} or auto")
    return load(model, revision=revision, device=place, dtype=kind, batch_tokens=batch_tokens)


def open_llama_cpp(
    model: str, *, revision: str | None, device: str, dtype: str, batch_tokens: int | None = None
) -> LlamaCppModel:
    """Open a GGUF file with llama.cpp, with the numbers as the file holds them."""
    if not model.endswith(".gguf"):
        raise FedsrcError("llama.cpp reads .gguf files", where=model, hint="use `backend='transformers'`")
    if revision is not None or dtype != "auto" or batch_tokens is not None or device not in ("auto", "cpu"):
        raise FedsrcError(
            "llama.cpp takes the file as it is", hint="leave `revision=`, `device=`, `dtype=` and `batch_tokens=` out"
        )
    return load_llama_cpp(Path(model))
