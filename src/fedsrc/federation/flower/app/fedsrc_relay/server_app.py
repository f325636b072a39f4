"""At the SuperLink: hand the grid to fedsrc's own run loop, which is installed there."""

from __future__ import annotations

from typing import Any

from flwr.serverapp import ServerApp

app = ServerApp()


def main(grid: Any, _context: Any) -> None:
    """One Flower run: it continues the transcript where it stands."""
    from fedsrc.federation.flower.grid import serve

    serve(grid)


app.main()(main)
