"""Benchmarks of quorlock and other lock libraries; see README.md in this directory.

Uses the servers and other helpers in the directory `tests`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
