"""The private side of the line: records, ledger and noise. Nothing here is imported by the server."""
