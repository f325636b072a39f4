"""One script per page of docs/results: `python -m research.benchmarks.NAME`."""
