"""What holds for every test: no deadline of Hypothesis, no luck, and a budget of seconds for every file of tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.luck import Luck

LUCK = Luck()
BUDGET = {"make test": 40.0, "make test-all": 240.0}  # seconds of a file's tests in each tier, on a quiet machine

if find_spec("hypothesis"):
    from hypothesis import settings

    settings.register_profile("fedsrc", deadline=None)  # a slow machine is not a wrong program
    settings.load_profile("fedsrc")


@pytest.fixture(scope="session", autouse=True)
def no_luck() -> Iterator[None]:
    """Noise and orders that are the same whenever a test runs, but for tests marked `entropy`."""
    with LUCK.installed():
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    LUCK.seed(None if item.get_closest_marker("entropy") else item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    """What several tests share does not depend on which of them is first."""
    if fixturedef.scope == "function":
        return (yield)
    with LUCK.seeded(f"{fixturedef.baseid}::{fixturedef.argname}"):
        return (yield)


@pytest.fixture(scope="module")
def warmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A `fedsrc` that is loaded once, and starts at once."""
    from tests.support.warm import warm_command

    command = tmp_path_factory.mktemp("bin") / "fedsrc"
    with warm_command(command):
        yield command


def over_budget(reports: list[pytest.TestReport]) -> list[str]:
    """Files whose tests took longer than their tier allows, worst first."""
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    for report in reports:
        tier = "make test-all" if "thorough" in report.keywords else "make test"
        seconds[report.nodeid.partition("::")[0], tier] += report.duration
    return [
        f"{file}: {spent:.0f} s; a file has {BUDGET[tier]:.0f} s in {tier}"
        for (file, tier), spent in sorted(seconds.items(), key=lambda each: -each[1])
        if spent > BUDGET[tier]
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which files are over their budget. It fails nothing: a clock is no assertion."""
    reports = [
        each for found in terminalreporter.stats.values() for each in found if isinstance(each, pytest.TestReport)
    ]
    if late := over_budget(reports):
        terminalreporter.section("files over their budget: shorten them, or mark their slow tests thorough")
        for line in late:
            terminalreporter.write_line(line)
