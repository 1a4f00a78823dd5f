"""Waiting under contention, beside other libraries."""

from __future__ import annotations

from bench.topic import Topic
from bench.waiting import contenders, counting, fairness, handing, waiters
from bench.waiting.goals import goals
from bench.waiting.page import tables

TOPIC = Topic(
    {
        "missing": contenders.missing,
        "hand-offs": handing.measure,
        "fairness": fairness.measure,
        "crowd": waiters.commands,
        "idle": waiters.idle,
        "death": waiters.death,
        # Last: it counts what all others have left.
        "left behind": counting.leftovers,
    },
    goals=goals,
    show=tables,
)
