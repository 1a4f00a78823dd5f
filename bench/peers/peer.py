"""The description of a peer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Language = Literal["Python", "Node.js", "Rust", "Go", "Java"]


@dataclass(frozen=True)
class Peer:
    """Another library, wrapped in a program with the protocol of contenders."""

    name: str
    command: list[str]
    """The command of the program. The URLs of the nodes are appended."""
    environment: dict[str, str]
    """Environment variables in addition to those of this process."""
    nodes: Literal["many", "one"]
    """Whether it locks on a majority of nodes, or supports only a single one."""
    language: Language
    form: Literal["sync", "async"]
    """Whether a cycle blocks its thread (`sync`). Concurrent cycles then run in threads, else in
    tasks."""
    concurrency: bool
    """Whether it can run several cycles concurrently."""
    frozen: bool
    """Whether its cycles succeed with one of five nodes frozen, even if they take long: some take
    ten seconds. If not, they fail or hang."""
