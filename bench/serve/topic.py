"""`quorlock serve` beside quorlock in process and other libraries."""

from __future__ import annotations

from bench.peers.ecosystems import GO, JAVA
from bench.serve import cycles, idle, kills
from bench.serve.goals import goals
from bench.topic import Topic

TOPIC = Topic(
    {"cycles": cycles.measure, "idle": idle.measure, "kills": kills.measure}, [GO, JAVA], goals
)
