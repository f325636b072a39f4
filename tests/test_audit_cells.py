"""Studies are read as written, and a cell is what its setting says: who calibrates, at which thresholds, on which facts.

Facts, splits and laws are enumerated here a second time, row by row and atom by atom, in plain Python. Rows have
distinct scores, so a score (or a bin of its own) says which row it is.

Chance of a false alarm: seeds are fixed, so none.
"""

from __future__ import annotations

import io
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from fedsrc.audit import boundary, partition
from fedsrc.audit.cell import DEAL, SPLIT, Cell, Parts, binormal, build, split
from fedsrc.audit.engine import run_task, tasks
from fedsrc.audit.population import Support
from fedsrc.audit.study import Binormal, Boundary, Demo, Population, Printed, Setting, Study, Table
from fedsrc.audit.summary import summary
from fedsrc.comparators import METHODS, NATIVE
from fedsrc.errors import FedsrcError
from fedsrc.maths.transfer import eta
from fedsrc.records import Units, read_records
from fedsrc.registration import Registration

SEED = 3
HEAD = 'name = "a study"\ntrials = 4\nmethods = ["fed-src-c"]\n'
BOUNDARY = '[[populations]]\nname = "b"\nboundary = true\n'
TWO = '[[populations]]\nname = "P"\nboundary = true\n[[populations]]\nname = "Q"\nboundary = true\n'
RELEASES = ("paper", "default")


def near(value: Any) -> Any:
    return pytest.approx(value, abs=1e-12)


# ---------------------------------------------------------------- studies


def read(body: str) -> Study:
    return Study.from_toml(HEAD + body)


def told(study: Study) -> list[tuple[Any, ...]]:
    """What `varied` shows of every setting."""
    return [tuple(getattr(each, key) for key in study.varied) for each in study.settings]


def test_what_is_not_said_has_its_default() -> None:
    (setting,) = read(BOUNDARY).settings
    assert setting == Setting(population="b")
    assert math.isinf(setting.epsilon)
    assert (setting.policy, setting.release, setting.thresholds, setting.sites) == ("first", "paper", 20, 5)


def test_the_last_key_of_a_sweep_is_the_fastest() -> None:
    study = read(BOUNDARY + "[setting]\nbatch = 7\n[sweep]\nsites = [2, 3]\nepsilon = [inf, 1.0, 4.0]\n")
    found = [(each.sites, each.epsilon) for each in study.settings]
    assert found == [(2, math.inf), (2, 1.0), (2, 4.0), (3, math.inf), (3, 1.0), (3, 4.0)]
    assert all(each.batch == 7 and each.population == "b" for each in study.settings)


def test_cases_are_slower_than_the_sweep_and_overrule_the_setting() -> None:
    cases = "[[cases]]\ndropout = 0.2\n[[cases]]\nbatch = 9\n"
    study = read(BOUNDARY + "[setting]\nbatch = 7\n[sweep]\nsites = [2, 3]\n" + cases)
    found = [(each.dropout, each.batch, each.sites) for each in study.settings]
    assert found == [(0.2, 7, 2), (0.2, 7, 3), (0.0, 9, 2), (0.0, 9, 3)]


def test_populations_are_swept_first_unless_one_is_named() -> None:
    every = read(TWO + "[sweep]\nsites = [2, 3]\n")
    assert [(each.population, each.sites) for each in every.settings] == [("P", 2), ("P", 3), ("Q", 2), ("Q", 3)]
    assert [each.population for each in read(TWO + '[setting]\npopulation = "Q"\n').settings] == ["Q"]
    swept = read(TWO + '[sweep]\nsites = [2, 3]\npopulation = ["Q", "P"]\n')
    assert [(each.population, each.sites) for each in swept.settings] == [("Q", 2), ("P", 2), ("Q", 3), ("P", 3)]
    cases = read(TWO + '[[cases]]\npopulation = "Q"\n[[cases]]\npopulation = "P"\nsites = 2\n')
    assert [(each.population, each.sites) for each in cases.settings] == [("Q", 5), ("P", 2)]


@pytest.mark.parametrize(
    ("body", "varied"),
    [
        (BOUNDARY, ()),
        (TWO, ("population",)),
        (TWO + "[sweep]\nsites = [2, 3]\nbatch = [5]\n", ("population", "sites")),
        (TWO + '[sweep]\nsites = [2, 3]\npopulation = ["P", "Q"]\n', ("population", "sites")),
        (BOUNDARY + "[sweep]\nepsilon = [inf, 1.0]\n", ("epsilon",)),
        (BOUNDARY + "[[cases]]\ndropout = 0.2\n[[cases]]\nbatch = 9\n", ("dropout",)),
        (BOUNDARY + "[[cases]]\n[[cases]]\nbatch = 9\n[[cases]]\nbatch = 9\nsites = 2\n", ("batch", "sites")),
        (TWO + '[[cases]]\npopulation = "P"\ndrift = 0.1\n[[cases]]\npopulation = "Q"\n', ("population",)),
        (BOUNDARY + "[sweep]\nsites = [2, 3]\n[[cases]]\n[[cases]]\nmoved = 0.1\n", ("sites", "moved")),
    ],
)
def test_varied_tells_settings_apart(body: str, varied: tuple[str, ...]) -> None:
    study = read(body)
    assert study.varied == varied
    assert len(set(told(study))) == len(study.settings)


def test_settings_alike_are_refused() -> None:
    """Nothing tells two equal settings apart, so their rows in a table could not be told apart either."""
    for body in ("[sweep]\nepsilon = [1.0, 1.0]\n", "[[cases]]\nsites = 2\n[[cases]]\nsites = 2\n"):
        with pytest.raises(FedsrcError):
            read(BOUNDARY + body)


MANY = f"[sweep]\nsites = {list(range(1, 102))}\nbatch = {list(range(1, 101))}\n"
REFUSED = {
    "[setting]\nfoo = 1\n": r"^study: foo: Extra inputs are not permitted$",
    "[sweep]\nfoo = [1]\n": r"^study: foo: Extra inputs are not permitted$",
    "[[cases]]\nfoo = 1\n": r"^study: foo: Extra inputs are not permitted$",
    "[other]\nfoo = 1\n": r"^study: other: Extra inputs are not permitted$",
    "[setting]\nsites = 2\n[sweep]\nsites = [2]\n": r"^study: sites is in \[sweep\] and elsewhere too$",
    "[[cases]]\nsites = 2\n[sweep]\nsites = [2]\n": r"^study: sites is in \[sweep\] and elsewhere too$",
    '[setting]\npopulation = "z"\n': r"^study: there is no population 'z'$",
    '[sweep]\npopulation = ["b", "z"]\n': r"^study: there is no population 'z'$",
    '[[cases]]\npopulation = "b"\n[[cases]]\nsites = 2\n': r"^study: population: Field required$",
    MANY: r"^study: there are more than 10,000 settings$",
    "[sweep]\nsites = []\n": r"^study: sweep\.sites: ",
    "[setting]\ntarget_risk = 1.5\n": r"^study: target_risk: Input should be less than 1$",
    "[setting]\nepsilon = nan\n": r"^study: epsilon: ",
    "[setting]\nepsilon = 0.0\n": r"^study: epsilon: ",
    "[setting]\nsites = 2.0\n": r"^study: sites: Input should be a valid integer$",
    '[setting]\nweights = "as calibrated"\nmoved = 0.1\n': r"^study: moved weight needs declared weights",
    '[setting]\nrelease = "default"\ndropout = 0.1\nwithheld = 0.1\n': r"^study: give dropout or withheld, not both$",
    '[setting]\nrelease = "paper"\nwithheld = 0.1\n': r"^study: only the default release has a refusal budget",
    "[setting]\nqueries = 2\n": r"^study: without privacy one message says all: queries = 1$",
    BOUNDARY: r"^study: population names must differ$",
    "trials": r"^study: not a TOML file: ",
}


@pytest.mark.parametrize("body", REFUSED)
def test_a_wrong_study_is_refused_in_one_line(body: str) -> None:
    with pytest.raises(FedsrcError) as caught:
        read(BOUNDARY + body)
    assert pytest.helpers if False else True
    first, *rest = str(caught.value).splitlines()
    import re

    assert re.search(REFUSED[body], first)
    assert all(line.startswith("hint: ") for line in rest)
