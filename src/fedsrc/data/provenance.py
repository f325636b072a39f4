"""Whether a score comes from the model that wrote the answer. It is claimed only where the name was declared.

A score of the generator itself is "matched"; a score of any other model is "cross-model" and belongs in a table of its
own. Nothing is guessed from families or sizes: another version, a quantised copy or a fine-tuned one is another model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

Provenance = Literal["matched", "cross-model", "unknown"]
UNKNOWN = frozenset({"", "unknown"})
ALIASES: Mapping[str, Collection[str]] = {  # a collection's name for a generator -> the same weights elsewhere
    "mistral-7b-instruct": ("mistralai/Mistral-7B-Instruct-v0.1",),  # RAGTruth's; the version is the paper's word
    "llama-2-7b-chat": ("meta-llama/Llama-2-7b-chat-hf",),
    "llama-2-13b-chat": ("meta-llama/Llama-2-13b-chat-hf",),
    "llama-2-70b-chat": ("meta-llama/Llama-2-70b-chat-hf",),
}


def provenance(generator: str, model: str, aliases: Mapping[str, Collection[str]] = ALIASES) -> Provenance:
    """Return what a score of `model` on an answer of `generator` may be called.

    "matched" if the names are the same up to case, or declared to be the same; "unknown" if either is not named (a
    score without a model has none); otherwise "cross-model".
    """
    left, right = _same(generator), _same(model)
    if left in UNKNOWN or right in UNKNOWN:
        return "unknown"
    groups = [{_same(name), *map(_same, others)} for name, others in aliases.items()]
    if left == right or any(left in group and right in group for group in groups):
        return "matched"
    return "cross-model"


def _same(name: str) -> str:
    return name.strip().casefold()
