"""Collected only where Playwright is installed: `make test-browser`. One browser serves all tests."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

collect_ignore_glob = [] if find_spec("playwright") else ["test_*.py"]


@pytest.fixture(scope="session")
def chromium() -> Iterator["Browser"]:
    from tests.browser.browse import browser

    with browser() as found:
        yield found
