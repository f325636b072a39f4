"""The names of the files in a run folder."""

from __future__ import annotations

REGISTRATION, TRANSCRIPT, CERTIFICATE = "registration.toml", "transcript.jsonl", "certificate.json"
