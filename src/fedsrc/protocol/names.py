"""What the files of a run folder are called."""

from __future__ import annotations

REGISTRATION, TRANSCRIPT, CERTIFICATE = "registration.toml", "transcript.jsonl", "certificate.json"
