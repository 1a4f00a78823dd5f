"""How long a writer waits among readers, and which of them overtake it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

Turn = tuple[int, int | None, int | None]
"""When an acquire began, when its lease was granted, and when the release began, in nanoseconds."""


def figures(writes: Sequence[Turn], reads: Sequence[Turn]) -> dict[str, Any]:
    """Returns how long the writer waited, and which readers it waited for."""
    granted = [(began, got) for began, got, _ in writes if got is not None]
    waits = [(got - began) / 1e6 for began, got in granted]
    # Readers that came after the writer and got the lock before it.
    later = [
        sum(began < came and got is not None and got < own for came, got, _ in reads)
        for began, own in granted
    ]
    served = [(came, got) for came, got, _ in reads if got is not None]
    span = max(end for _, _, end in reads if end) - min(came for came, _ in served)
    return {
        "writes": len(writes),
        "failed writes": len(writes) - len(granted),
        "median wait ms": median(waits) if waits else None,
        "longest wait ms": max(waits) if waits else None,
        "most later readers": max(later, default=None),
        "reads per second": len(served) / span * 1e9,
    }
