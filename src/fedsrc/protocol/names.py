"""Fixed names: of the files in a run folder, and of the one who holds all sites' records, as requests call it."""

from __future__ import annotations

REGISTRATION, TRANSCRIPT, CERTIFICATE = "registration.toml", "transcript.jsonl", "certificate.json"
STATUS = "status.json"  # of a monitor, for gates
HOLDER = "holder"
