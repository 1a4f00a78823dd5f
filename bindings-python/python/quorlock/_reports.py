"""The public report classes: the doctor's diagnosis, the status of a resource or semaphore, and the
statistics of a client.

They only hold values, which the core computes. Imported on first use; see `__init__`.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    level: Level
    """`ok`; `warning`: the lock works, but a guarantee depends on something that may fail, or the
    check was not permitted; `error`: the node cannot vote, or a guarantee does not hold."""
    check: str
    """The name of the check, such as `eviction`."""
    message: str
    """What was found, and what can go wrong."""
    advice: str
    """What to do. Empty if there is nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDiagnosis:
    """The state of one node. Values that could not be read are None.

    For a cluster, `findings` covers all masters that the client has keys on; the other values are
    those of one master.
    """

    address: str
    """The URL of the node, without user and password."""
    reachable: bool
    """Whether the node answered."""
    latency_ms: float | None
    """The median latency of several round trips, in milliseconds."""
    kind: str | None
    """`Redis`, `Valkey`, or another name that the server reports; `memory` for a node in this
    process."""
    version: str | None
    """The version of the server."""
    run_id: str | None
    """The id of the server process."""
    uptime_seconds: int | None
    """The uptime of the server process in seconds, as the server reports it."""
    role: str | None
    """`master` or `slave`."""
    replicas: int | None
    """The number of replicas that are connected to the node."""
    cluster: bool | None
    """Whether the node is part of a Redis Cluster."""
    maxmemory: int | None
    """The memory limit in bytes; 0 for no limit."""
    used_memory: int | None
    """The memory in use, in bytes."""
    maxmemory_policy: str | None
    """What the server does at its memory limit. A lock needs `noeviction`."""
    appendonly: bool | None
    """Whether the server writes an append-only file."""
    appendfsync: str | None
    """When the append-only file is synced: `always`, `everysec` or `no`."""
    clock_offset_ms: float | None
    """The offset of the node's clock from the clock of this machine, in milliseconds. Positive if
    the node's clock is ahead."""
    database: int
    """The number of the database in use."""
    tls: bool
    """Whether the connection is encrypted."""
    permissions: dict[str, Literal["allowed", "denied"]]
    """Whether the user may run each command that quorlock needs."""
    findings: tuple[Finding, ...]
    """The results of all checks of this node."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that must be the same in all clients of a fleet."""

    name: str
    """`nodes`, `restart_guard`, `key_prefix` or `drift_factor`."""
    value: str
    """The value, for people: of `nodes` their number, of a duration such as `30 s`, or `off`."""
    source: str
    """Where the value is from: the option, the name of an environment variable, or `default`."""


class Diagnosis:
    """The result of `Client.doctor`. `str()` returns it as readable text."""

    __slots__ = ("_json", "_text", "findings", "level", "nodes", "settings")

    def __init__(self, text: str, as_json: str) -> None:
        """Called by the client only."""
        diagnosis = json.loads(as_json)
        self._text = text
        self._json = as_json
        self.level: Level = diagnosis["level"]
        """The worst level of all findings."""
        self.settings: tuple[Setting, ...] = tuple(
            Setting(**setting) for setting in diagnosis["settings"]
        )
        """The settings that must be the same in all clients of a fleet."""
        self.findings: tuple[Finding, ...] = _findings(diagnosis)
        """Findings that concern the nodes together."""
        self.nodes: tuple[NodeDiagnosis, ...] = tuple(
            NodeDiagnosis(**{**node, "findings": _findings(node)}) for node in diagnosis["nodes"]
        )
        """The nodes, in the order of the client's node list."""

    def to_json(self) -> str:
        """Returns the diagnosis as JSON, with the same names as the attributes."""
        return self._json

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<quorlock.Diagnosis of {len(self.nodes)} nodes: {self.level}>"


def _findings(decoded: dict[str, Any]) -> tuple[Finding, ...]:
    return tuple(Finding(**finding) for finding in decoded["findings"])


@dataclass(frozen=True, slots=True)
class Leader:
    """A leader, as an observer sees it. A hint: the leader may be gone already."""

    holder: str
    """The name of the leader. Empty if it has none."""
    fence: int
    """The fencing token of the leader's lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A holder of a resource in shared mode."""

    holder: str | None
    """The name of the reader: what it calls itself. None if it has none."""
    token: str
    """The first 8 characters of its token, which tell readers apart. The rest is secret."""
    remaining: float
    """The time until its lease expires if it is not renewed, in seconds: on this node or, in a
    `Status`, on so many that no majority has it."""

    @classmethod
    def _of(cls, decoded: dict[str, Any]) -> "Reader":
        return cls(remaining=decoded.pop("expires_in_ms") / 1000, **decoded)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """What one node stores about a resource."""

    address: str
    """The URL of the node, without user and password."""
    outcome: str
    """`held`; `missing` if the resource is free on this node. Any other outcome says why the node
    gave no report, or why it does not count; see `NodeReport.outcome`."""
    detail: str
    """Details, such as the error text of the server. May be empty."""
    holder: str | None
    """The name of the holder. None if it has none, if there are readers, or if another program
    stored the key."""
    readers: tuple[Reader, ...]
    """The holders in shared mode. The resource is `held` by them together."""
    token: str | None
    """The first 8 characters of the token in the key, which tell holders apart. None if there is no
    key, or its value is not text."""
    remaining: float | None
    """The time until the key expires, in seconds. None if it never does, or if there is no key."""
    fence: int | None
    """The last fencing token that the node granted. None if it has been forgotten."""
    waiters: int | None
    """The number of clients in the node's queue. None if it could not be read."""

    @classmethod
    def _of(cls, decoded: dict[str, Any]) -> "NodeStatus":
        remaining, readers = decoded.pop("expires_in_ms"), decoded.pop("readers")
        return cls(
            remaining=_seconds(remaining), readers=tuple(map(Reader._of, readers)), **decoded
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of a resource: the result of `Client.status`."""

    resource: str
    """The name of the resource."""
    state: Literal["free", "held", "contested", "unknown"]
    """`held`: a majority of the nodes holds the same token. `free`: the resource is free on a
    majority. `contested`: neither, because several clients try to acquire it, or the keys of an
    attempt that failed have not expired. `unknown`: too few nodes answered to tell."""
    holder: str | None
    """The name of the holder: what it calls itself. None if the state is not `held`, if the holder
    has no name, if there are readers, or if another program holds the resource."""
    readers: tuple[Reader, ...]
    """The holders in shared mode: those that a majority of the nodes has."""
    token: str | None
    """The first 8 characters of the holder's token, which tell holders apart. None if the state is
    not `held`. The rest is secret."""
    since: datetime | None
    """When the holder acquired the resource, by the nodes' clocks, in UTC. It is derived from the
    fence, which is the median of the nodes' clocks unless a counter was ahead of them: then the
    time is too late. None if the state is not `held`, if another program holds the resource, or if
    the time would be in the future."""
    fence: int | None
    """The largest fencing token that was granted: the holder's, if the state is `held`."""
    remaining: float | None
    """The time in seconds until a majority of the nodes is free, if no key is extended. None if the
    resource is free, or if the time is unknown."""
    waiters: int
    """The number of clients that wait for the resource: the length of the longest queue."""
    nodes: tuple[NodeStatus, ...]
    """The nodes, in the order of the client's node list."""

    @classmethod
    def _of(cls, as_json: str) -> "Status":
        status = json.loads(as_json)
        since, remaining = status.pop("since_ms"), status.pop("expires_in_ms")
        return cls(
            since=None if since is None else datetime.fromtimestamp(since / 1000, UTC),
            remaining=_seconds(remaining),
            readers=tuple(map(Reader._of, status.pop("readers"))),
            nodes=tuple(NodeStatus._of(node) for node in status.pop("nodes")),
            **status,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitHolder:
    """The holder of one permit of a semaphore: a majority of the nodes has its token."""

    slot: int
    """The number of the permit."""
    holder: str | None
    """The name of the holder: what it calls itself. None if it has none."""
    token: str
    """The first 8 characters of its token, which tell holders apart. A lease of several permits has
    one token. The rest is secret."""
    fence: int | None
    """The largest fencing token of the permit. None if the nodes have forgotten it."""
    remaining: float | None
    """The time in seconds until a majority of the nodes has the permit no more, if it is not
    renewed. None if it is unknown."""

    @classmethod
    def _of(cls, decoded: dict[str, Any]) -> "PermitHolder":
        return cls(remaining=_seconds(decoded.pop("expires_in_ms")), **decoded)


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitNode:
    """What one node reports of a semaphore."""

    address: str
    """The URL of the node, without user and password."""
    outcome: str
    """`confirmed` if the node answered. Any other outcome says why it gave no report; see
    `NodeReport.outcome`."""
    detail: str
    """Details, such as the error text of the server. May be empty."""
    held: int | None
    """The number of permits that are held there. None if the node did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SemaphoreStatus:
    """The status of a semaphore: the result of `Semaphore.status`."""

    resource: str
    """The name of the resource."""
    limit: int
    """The limit of the semaphore that was asked for."""
    free: int
    """The number of permits below the limit that are free on a majority of the nodes."""
    waiters: int
    """The number of clients that wait for permits: the length of the longest queue."""
    holders: tuple[PermitHolder, ...]
    """The holders, in the order of their slots. Those at or above the limit belong to clients with
    a larger limit."""
    nodes: tuple[PermitNode, ...]
    """The nodes, in the order of the client's node list."""

    @classmethod
    def _of(cls, as_json: str) -> "SemaphoreStatus":
        status = json.loads(as_json)
        return cls(
            holders=tuple(map(PermitHolder._of, status.pop("holders"))),
            nodes=tuple(PermitNode(**node) for node in status.pop("nodes")),
            **status,
        )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram of durations."""

    count: int
    """The number of durations."""
    sum: float
    """The sum of all durations, in seconds."""
    bounds: tuple[float, ...]
    """The upper bound of each bucket but the last, in seconds. All histograms have the same
    bounds."""
    counts: tuple[int, ...]
    """The number of durations in each bucket. A bucket counts the durations that are longer than
    the previous bucket's bound and not longer than its own. The last bucket has no upper bound."""

    @classmethod
    def _of(cls, decoded: dict[str, Any]) -> "Histogram":
        bounds, counts = tuple(decoded["bounds"]), tuple(decoded["counts"])
        return cls(decoded["count"], decoded["sum"], bounds, counts)


NodeState = Literal["idle", "connecting", "up", "down", "closed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStats:
    """The statistics of the requests to one node."""

    address: str
    """The URL of the node, without user and password."""
    state: NodeState
    """The current state of the connection: `idle` before the first request, `connecting`, `up`,
    `down` (connecting has failed and is retried), or `closed` with the client."""
    reconnects: int
    """The number of times that the client reconnected after a connection broke or was given up."""
    outcomes: dict[str, int]
    """The number of requests by outcome; see `NodeReport.outcome`. Outcomes that did not occur are
    left out. An extension of many leases is one request."""
    answer_seconds: Histogram
    """The response times. Requests without an answer are only in `outcomes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Counters of a client since this process first used it.

    They are not read atomically, so totals across counters may differ by the operations in
    progress.
    """

    attempts: int
    """Acquires that were started."""
    wins: int
    """Acquires that succeeded and returned a lease."""
    timeouts: int
    """Acquires that ended with LockTimeoutError: others held the lock for the whole `wait`."""
    no_quorum: int
    """Acquires that ended with QuorumError."""
    cancelled: int
    """Acquires that ended in another way: cancelled, the client was closed, or the configuration of
    the nodes is invalid."""
    rounds: int
    """Rounds of requests that acquires needed: one per acquire if none had to wait."""
    releases: int
    """Leases that were valid until they were released."""
    closed: int
    """Leases that were valid until their client was closed."""
    dropped: int
    """Leases that were garbage-collected while valid, without being released. Their keys stay on
    the nodes until they expire."""
    detached: int
    """Leases that were detached while valid, for another client to adopt."""
    elections: int
    """Elections that candidates of this client have won."""
    handed_over: int
    """Leases that a successor has adopted: see `Lease.hand_over`."""
    losses: int
    """Leases that were lost."""
    no_heartbeat: int
    """Lost leases that were not renewed for lack of a heartbeat: see `heartbeat_timeout`."""
    extensions: int
    """Extensions that a majority confirmed."""
    extension_failures: int
    """Extensions that a majority did not confirm. They may have been retried."""
    held: int
    """Leases that are held now."""
    waiting: int
    """Acquires in progress that wait for other holders, or will wait if their first round fails:
    the total length of all local wait queues."""
    acquire_seconds: Histogram
    """The durations of successful acquires, including the wait."""
    wait_seconds: Histogram
    """The durations of acquires that had to wait for other holders, successful or not."""
    hold_seconds: Histogram
    """The durations for which leases were held until they were released, dropped or lost."""
    extension_seconds: Histogram
    """The durations of extensions that a majority confirmed."""
    nodes: tuple[NodeStats, ...]
    """The nodes, in the order of the client's node list."""

    @classmethod
    def _of(cls, as_json: str) -> "Stats":
        stats = {name: _value(name, value) for name, value in json.loads(as_json).items()}
        stats["nodes"] = tuple(
            NodeStats(**{name: _value(name, value) for name, value in node.items()})
            for node in stats["nodes"]
        )
        return cls(**stats)


def _value(name: str, value: Any) -> Any:
    return Histogram._of(value) if name.endswith("_seconds") else value
