"""The sizes of all scenarios."""

from __future__ import annotations

import os
from pathlib import Path

RESULTS = Path(__file__).with_name("results.json")

SHORT = os.environ.get("SIZES") == "short"
"""Whether the sizes are so small that a run takes a minute. Its figures mean nothing."""


def _sizes(name: str, full: str, short: str) -> list[int]:
    text = os.environ.get(name, short if SHORT else full)
    return [int(size) for size in text.split(",")]


LEASES = _sizes("LEASES", "1000,10000,50000,100000", "100,1000")
"""How many leases one process holds."""
(DISTINCT,) = _sizes("DISTINCT", "2000000", "20000")
"""How many resources are locked one after another."""
PROCESSES = _sizes("PROCESSES", "1,10,100,300,1000", "1,10")
RESOURCES = _sizes("RESOURCES", "1,2,4,8,16,32,64", "1,64")
"""The numbers of resources in one lock."""
COUNTS = _sizes("NODES", "1,2,3,4,5,6,7,8,9", "1,9")
"""The numbers of nodes."""

TTL = 10.0
STAY = 2.0 if SHORT else 20.0
"""Seconds for which leases are held: each is renewed every third of the ttl."""
REST = 1.0 if SHORT else 10.0
"""Seconds for which idle or waiting processes are measured."""
ROUNDS = 1 if SHORT else 8
"""The turns of each contender in the scenarios of short cycles."""
PATIENCE = 300.0
"""Seconds within which a process must answer."""
