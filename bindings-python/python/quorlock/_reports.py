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
    """What was found at one node. What could not be seen is None. Of a cluster, the findings are
    those at all masters that the client has keys on, the rest is told of one of them."""

    address: str
    """The node's URL, without user and password."""
    reachable: bool
    """Whether it answered."""
    latency_ms: float | None
    """The median of a few round trips."""
    kind: str | None
    """`Redis`, `Valkey`, or whatever else it calls itself; `memory` for a node in this process."""
    version: str | None
    """Of the server."""
    run_id: str | None
    """Names the server process."""
    uptime_seconds: int | None
    """How long the server process has been up, by its own account."""
    role: str | None
    """`master` or `slave`."""
    replicas: int | None
    """How many are connected to it."""
    cluster: bool | None
    """Whether it is a node of a Redis Cluster."""
    maxmemory: int | None
    """In bytes; 0 for no limit."""
    used_memory: int | None
    """In bytes."""
    maxmemory_policy: str | None
    """What it does when its memory is used up; a lock needs `noeviction`."""
    appendonly: bool | None
    """Whether it writes to a file what it is told."""
    appendfsync: str | None
    """`always`, `everysec` or `no`."""
    clock_offset_ms: float | None
    """How far its clock is ahead of that of this machine."""
    database: int
    """The number of the database that is used."""
    tls: bool
    """Whether the connection is encrypted."""
    permissions: dict[str, Literal["allowed", "denied"]]
    """The commands that quorlock uses."""
    findings: tuple[Finding, ...]
    """What was looked at, and how it is."""


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
class Histogram:
    """How often something took how long."""

    count: int
    """How often."""
    sum: float
    """How long all together, in seconds."""
    bounds: tuple[float, ...]
    """The upper bound of each bucket but the last, in seconds: the same for all histograms."""
    counts: tuple[int, ...]
    """How often it took as long as this bucket says, which means longer than the bound before it,
    and not longer than its own. The last one has no bound."""

    @classmethod
    def _of(cls, told: dict[str, Any]) -> "Histogram":
        return cls(told["count"], told["sum"], tuple(told["bounds"]), tuple(told["counts"]))


NodeState = Literal["idle", "connecting", "up", "down", "closed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStats:
    """What became of the requests to one node."""

    address: str
    """The node's URL, without user and password."""
    state: NodeState
    """Its connection, now: `idle` before anything was asked of it, `connecting` with a chance of
    success, `up`, `down` (it is tried again), or `closed` with the client."""
    reconnects: int
    """How often it was connected again after a connection had broken or was given up."""
    outcomes: dict[str, int]
    """How many requests had this outcome; see `NodeReport.outcome`. Those that none had are left
    out. An extension of many leases is one request."""
    answer_seconds: Histogram
    """How long answers took. Requests that had none are in `outcomes` only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What a client has counted in this process since it was first used here. The counts are read
    one after the other while others go on, so they need not add up to the last one."""

    attempts: int
    """Acquires that were begun."""
    wins: int
    """Acquires that won: leases."""
    timeouts: int
    """Acquires that ended with LockTimeoutError: others held it for the whole `wait`."""
    no_quorum: int
    """Acquires that ended with QuorumError."""
    cancelled: int
    """Acquires that ended otherwise: cancelled, by the end of the client, or by a mistake in its
    nodes."""
    rounds: int
    """Rounds of requests that acquires took. As many as attempts if nobody had to wait."""
    releases: int
    """Leases that were valid until they were released."""
    closed: int
    """Leases that were valid until their client was closed."""
    dropped: int
    """Leases that were garbage-collected while valid, without being released. Their keys stay on
    the nodes until they expire."""
    losses: int
    """Leases that were lost."""
    extensions: int
    """Extensions that a majority confirmed."""
    extension_failures: int
    """Extensions that a majority did not confirm. Another one may have been tried."""
    held: int
    """Leases that are held now."""
    waiting: int
    """Acquires that are under way now and wait for others, or will if they do not win at once: the
    length of all lines together."""
    acquire_seconds: Histogram
    """How long acquires that won took, in all."""
    wait_seconds: Histogram
    """How long acquires took that others kept waiting, won or not."""
    hold_seconds: Histogram
    """How long leases were held, until they were released, dropped or lost."""
    extension_seconds: Histogram
    """How long extensions took that a majority confirmed."""
    nodes: tuple[NodeStats, ...]
    """The nodes, in the order in which the client was given them."""

    @classmethod
    def _of(cls, as_json: str) -> "Stats":
        told = {name: _value(name, value) for name, value in json.loads(as_json).items()}
        told["nodes"] = tuple(
            NodeStats(**{name: _value(name, value) for name, value in node.items()})
            for node in told["nodes"]
        )
        return cls(**told)


def _value(name: str, value: Any) -> Any:
    return Histogram._of(value) if name.endswith("_seconds") else value
