"""What tests share: builders, scenarios, servers, a reader of pages."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # of the repository
