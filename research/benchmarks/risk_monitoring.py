"""The monitor beside MAPIE's and GLIDE's: writes docs/results/risk-monitoring.md.

Run: python -m research.benchmarks.risk_monitoring PYTHON  (an interpreter that has glide-py)
"""

from __future__ import annotations

from research.risk_monitoring_page import main

if __name__ == "__main__":
    main()
