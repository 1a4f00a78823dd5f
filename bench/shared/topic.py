"""Shared locks beside exclusive ones."""

from __future__ import annotations

from bench.peers.ecosystems import JAVA
from bench.shared import cycles, phases
from bench.topic import Topic

TOPIC = Topic(
    {"alone": cycles.alone, "together": cycles.together, "phases": phases.measure}, [JAVA]
)
