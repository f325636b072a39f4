"""Collected only where Playwright is installed: `make test-browser`."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("playwright") else ["test_*.py"]
