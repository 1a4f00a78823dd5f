"""What a client tells of its nodes: the doctor's findings, and counts."""

import json
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    """`ok`; `warning`: the lock works, but a promise hangs on something that may fail, or it was
    not permitted to look; `error`: the node cannot vote, or a promise of the lock does not hold."""
    check: str
    """What was looked at, in a word, such as `eviction`."""
    message: str
    """What was found, and what can go wrong."""
    advice: str
    """What to do; empty where nothing is to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDiagnosis:
    """What was found at one node. What could not be seen is None."""

    address: str
    """The node's URL, without user and password."""
    reachable: bool
    latency_ms: float | None
    """The median of a few round trips."""
    kind: str | None
    """`Redis`, `Valkey`, or whatever else it calls itself; `memory` for a node in this process."""
    version: str | None
    run_id: str | None
    """Names the server process."""
    uptime_seconds: int | None
    role: str | None
    """`master` or `slave`."""
    replicas: int | None
    cluster: bool | None
    """Whether it is a node of a Redis Cluster."""
    maxmemory: int | None
    """In bytes; 0 for no limit."""
    used_memory: int | None
    """In bytes."""
    maxmemory_policy: str | None
    appendonly: bool | None
    appendfsync: str | None
    """`always`, `everysec` or `no`."""
    clock_offset_ms: float | None
    """How far its clock is ahead of that of this machine."""
    database: int
    tls: bool
    permissions: dict[str, Literal["allowed", "denied"]]
    """The commands that quorlock uses."""
    findings: tuple[Finding, ...]


class Diagnosis:
    """What the doctor found. `str()` of it is a readable text."""

    __slots__ = ("_json", "_text", "findings", "level", "nodes")

    def __init__(self, text: str, as_json: str) -> None:
        """For the client."""
        told = json.loads(as_json)
        self._text = text
        self._json = as_json
        self.level: Level = told["level"]
        """The worst level of all findings."""
        self.findings: tuple[Finding, ...] = _findings(told)
        """What concerns the nodes together."""
        self.nodes: tuple[NodeDiagnosis, ...] = tuple(
            NodeDiagnosis(**{**node, "findings": _findings(node)}) for node in told["nodes"]
        )
        """The nodes, in the order in which the client was given them."""

    def to_json(self) -> str:
        """The diagnosis as JSON, with the names of the attributes."""
        return self._json

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<quorlock.Diagnosis of {len(self.nodes)} nodes: {self.level}>"


def _findings(told: dict[str, Any]) -> tuple[Finding, ...]:
    return tuple(Finding(**finding) for finding in told["findings"])


@dataclass(frozen=True, slots=True)
class NodeStats:
    """What became of the requests to one node."""

    address: str
    """The node's URL, without user and password."""
    outcomes: dict[str, int]
    """How many requests had this outcome; see `NodeReport.outcome`. Those that none had are left
    out. An extension of many leases is one request."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What a client has counted in this process since it was first used here."""

    nodes: tuple[NodeStats, ...]
    """The nodes, in the order in which the client was given them."""

    @classmethod
    def _of(cls, as_json: str) -> "Stats":
        return cls(tuple(NodeStats(**node) for node in json.loads(as_json)["nodes"]))
