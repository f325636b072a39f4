"""The example of a study names every key, and what it calls a default is one.

Mutants killed: a key of a setting or a study that the example lacks, a default in it that is not the code's.
"""

from __future__ import annotations

import re

import pytest

from fedsrc.audit.study import Setting, Study
from tests.support import ROOT

PATH = ROOT / "examples" / "study.toml"
OTHERWISE = {"epsilon"}  # keys that the example sets to something else, and says so
NOT_THERE = {"population", "case"}  # keys that a study gives each setting by itself


def test_the_example_names_every_key() -> None:
    text = PATH.read_text(encoding="utf-8")
    named = set(re.findall(r"^(?:# )?([a-z_]+) = ", text, flags=re.MULTILINE))
    assert set(Setting.model_fields) - NOT_THERE <= named
    assert set(Study.model_fields) - {"format"} <= named | set(re.findall(r"\[([a-z]+)\]", text))


@pytest.mark.parametrize("name", sorted(set(Setting.model_fields) - NOT_THERE - OTHERWISE))
def test_defaults_of_the_example_are_the_codes(name: str) -> None:
    found = Study.read(PATH).setting
    if name in found:
        assert found[name] == Setting.model_fields[name].default
    else:
        assert Setting.model_fields[name].default is None
