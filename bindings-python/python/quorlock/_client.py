"""The client."""

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, TypedDict, Unpack

from . import _quorlock
from ._async import result
from ._lease import Duration
from ._lock import Lock

if TYPE_CHECKING:
    from ._reports import Diagnosis, Stats


class LockOptions(TypedDict, total=False):
    """What a lock can set for itself. Durations in seconds, or as `timedelta`."""

    ttl: Duration
    """How long the nodes keep a lock that is not extended: 10 ms to 24 h. 10 by default."""
    wait: Duration | None
    """How long an acquire waits while others hold the lock: 0 for one try, None or infinity for
    ever. 10 by default."""
    auto_extend: bool
    """Whether the lease is extended, at each third of the ttl, until it is released. True by
    default."""
    max_hold: Duration | None
    """How long a lease can be held at most, however it is extended: 10 ms or more, None or infinity
    for ever. 3600 by default. The first `ttl` is not cut short by it."""


class ClientOptions(LockOptions, total=False):
    """What a client can set for all its locks. Durations in seconds, or as `timedelta`."""

    node_timeout: Duration | None
    """How long one node may take to answer one request: 1 ms to 1 h. By default (None) a twentieth
    of the ttl, but at least 10 ms and at most 200 ms."""
    connect_timeout: Duration
    """How long connecting to a node may take, and for how long an acquire or extension that meets
    too few nodes tries again: 1 ms to 1 h. 1 by default."""
    drift_factor: float
    """By how much clocks may differ in rate: 0 to 0.5. 0.01 (one per cent) by default."""
    retry_delay: tuple[Duration, Duration]
    """The range of the random delay between two tries of a waiter that no node calls: 1 ms to 1 h.
    (0.05, 0.2) by default. The shorter one is also for how long a waiter that is called goes
    first."""
    restart_guard: Duration | None
    """For how long a node that has restarted does not count: 10 ms to 24 h, not shorter than any
    ttl that any client uses; None or 0 for off, the default."""
    key_prefix: str
    """What the keys on the nodes begin with, before the resource. Nothing by default."""


class Client:
    """A client of N independent Redis or Valkey masters.

    Nothing is connected, and no thread is started, before the first lock. Threads, tasks, event
    loops and forked children may share it.
    """

    __slots__ = ("__weakref__", "_native")

    def __init__(
        self, nodes: Iterable[str] | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        """
        `nodes` are URLs: `redis://[user:password@]host[:port][/database]`, `rediss://…` with TLS,
        `redis-sentinel://host,…/service`, `redis-cluster://host,…`, `unix:///path[?db=…]`, or
        `memory://name` for a node in this process, which is for tests. Without it they are taken
        from the environment variable `QUORLOCK_NODES`, separated by commas.

        Raises ConfigError for a bad URL, option or node list.
        """
        self._native = _quorlock.Client(nodes, options)

    def lock(self, *resources: str, **options: Unpack[LockOptions]) -> Lock:
        """The lock on a resource, or on several (up to 64): a recipe for `with`, `async with`,
        `acquire` or a decorator.

        Several are locked all or none, by one request to each node. Their order does not matter:
        locks that overlap cannot block one another for ever.

        Raises ConfigError for no resource, one that is empty or named twice, or a bad option.
        """
        return Lock(self._native, resources, options)

    def stats(self) -> "Stats":
        """What became of locks, and of the requests to each node, counted in this process."""
        from ._reports import Stats

        return Stats._of(self._native.stats())

    def doctor(self) -> "Diagnosis":
        """Looks at all nodes, and says what is amiss with them: what cannot vote, and what may
        break a promise of the lock. It changes nothing on them, and takes at most `connect_timeout`
        to connect and as long again to look.

        Raises ClosedError on a closed client, and nothing else.
        """
        from ._reports import Diagnosis

        return Diagnosis(*self._native.doctor().wait())

    async def doctor_async(self) -> "Diagnosis":
        """`doctor` for asyncio."""
        from ._reports import Diagnosis

        return Diagnosis(*await result(self._native.doctor()))

    def close(self) -> None:
        """Closes the client: leases that are still held end and are released, acquires under way
        raise ClosedError, the connections are closed. Waits for the nodes for at most
        `connect_timeout`. May be called again. A forked child closes its own connections only."""
        self._native.close().wait()

    async def aclose(self) -> None:
        """`close` for asyncio."""
        await result(self._native.close())

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        state = "closed client" if self._native.closed else "client"
        return f"<quorlock {state} of {', '.join(self._native.addresses)}>"
