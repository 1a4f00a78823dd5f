"""What the bench has to know of a peer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Language = Literal["Python", "Node.js", "Rust", "Go", "Java"]


@dataclass(frozen=True)
class Peer:
    """Another library, in a program that speaks the protocol of contenders."""

    name: str
    command: list[str]
    """To which the nodes' URLs are added."""
    environment: dict[str, str]
    """What the program has in its environment beside that of this process."""
    nodes: Literal["many", "one"]
    """Whether it locks on a majority of nodes, or knows a single one only."""
    language: Language
    form: Literal["sync", "async"]
    """Whether a cycle blocks its thread. Cycles at once are threads then, and tasks otherwise."""
    concurrency: bool
    """Whether it runs cycles at once."""
    frozen: bool
    """Whether its cycles succeed with one of five nodes frozen, however long they take: some need
    ten seconds. Those of the others fail, or never end."""
