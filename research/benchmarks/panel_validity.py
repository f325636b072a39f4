"""False group claims at the boundary: writes docs/results/panel-validity.md.

Run: python -m research.benchmarks.panel_validity
"""

from __future__ import annotations

from research.panel_validity import main

if __name__ == "__main__":
    main()
