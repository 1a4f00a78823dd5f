"""Permits of semaphores beside exclusive locks and other libraries."""

from __future__ import annotations

from bench.peers.ecosystems import JAVA, NODE
from bench.semaphores import contention, cycles
from bench.semaphores.goals import goals
from bench.topic import Topic

TOPIC = Topic({"cycles": cycles.measure, "contests": contention.measure}, [JAVA, NODE], goals)
