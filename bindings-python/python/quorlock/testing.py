"""In-memory nodes for unit tests, which fail on demand and whose clock can be moved.

from quorlock.testing import Nodes

with Nodes(3) as nodes:
    client = nodes.client()
    nodes.cut()  # an outage

In pytest, the fixture `quorlock_nodes` is `Nodes(3)`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, Unpack

from ._client import Client
from ._lease import Lease
from ._options import ClientOptions, Duration, LockOptions
from ._quorlock import TestNodes

__all__ = ["Node", "Nodes"]


class _Faults:
    """The faults of one node, or of all."""

    __slots__ = ("_native", "_position")

    def __init__(self, native: TestNodes, position: int | None) -> None:
        self._native = native
        self._position = position

    def freeze(self) -> None:
        """Accepts connections and requests, but answers none until `thaw`: a process that is
        stopped, or a machine that hangs. A request fails after its `node_timeout`."""
        self._apply("freeze")

    def thaw(self) -> None:
        """Ends `freeze`. The requests that have arrived meanwhile are handled in order."""
        self._apply("thaw")

    def cut(self) -> None:
        """Breaks all connections, and refuses new ones until `mend`: a server or a network that is
        down. The data is kept."""
        self._apply("cut")

    def mend(self) -> None:
        """Ends `cut`. Clients have connected again on return."""
        self._apply("mend")

    def forget(self) -> None:
        """Restarts without the data: all keys are lost, and all connections break. The holders
        notice the loss at their next renewal. With `restart_guard`, clients ignore the votes of a
        restarted node as soon as they reconnect."""
        self._apply("forget")

    def _apply(self, fault: str) -> None:
        self._native.apply(self._position, fault).wait()


class Node(_Faults):
    """One node of `Nodes`."""

    __slots__ = ()

    @property
    def url(self) -> str:
        """The URL of the node."""
        assert self._position is not None
        return self._native.urls[self._position]

    def __repr__(self) -> str:
        return f"<quorlock.testing.Node {self.url}>"


class Nodes(_Faults):
    """In-memory nodes for a test. No other test has nodes of the same names.

    Its faults apply to all nodes, those of `nodes[0]` to one. Faults and the clock work with
    threads, asyncio, trio and any client of these nodes.

    The clock is that of the process: moving it affects all in-memory nodes and their clients. It
    only goes forward, so it can end a lease but never prolong one. Timers of other code, such as
    `time.sleep` and `asyncio.sleep`, do not notice it. Moving it raises ConfigError while an open
    client of this process has used nodes that are not in-memory.
    """

    __slots__ = ("_clients", "_held", "_nodes", "_other")

    def __init__(self, count: int = 3) -> None:
        """Creates 1 to 32 nodes. Raises ConfigError for any other number."""
        super().__init__(TestNodes(count), None)
        self._nodes = [Node(self._native, position) for position in range(len(self.urls))]
        self._clients: list[Client] = []
        self._other: Client | None = None
        # A lease that is not referenced any more is not renewed.
        self._held: list[Lease] = []

    @property
    def urls(self) -> list[str]:
        """The URLs of the nodes, for `Client` or for `QUORLOCK_NODES`."""
        return self._native.urls

    def client(self, **options: Unpack[ClientOptions]) -> Client:
        """Returns a new client of these nodes, which `close` closes."""
        client = Client(self.urls, **options)
        self._clients.append(client)
        return client

    def hold(self, *resources: str, **options: Unpack[LockOptions]) -> Lease:
        """Acquires a lock as another process would, and returns the lease. It is renewed until it
        is released, or until `close`. Tries once, unless `wait` is given. Its `holder` is
        `another process`.

        With the option `key_prefix` of the tested client, write the prefix before the resource.
        Raises the same errors as `Lock.acquire`.
        """
        if self._other is None:
            self._other = self.client(max_hold=None, wait=0, holder="another process")
        lease = self._other.lock(*resources, **options).acquire()
        self._held.append(lease)
        return lease

    def steal(self, *resources: str, **options: Unpack[LockOptions]) -> Lease:
        """Takes a lock away from its holder, and holds it as `hold` does. The holder's lease is
        lost on return, as if the nodes had lost its keys."""
        self._native.delete_keys(resources)
        lease = self.hold(*resources, **options)
        self._native.verify_leases().wait()
        return lease

    def advance(self, time: Duration) -> None:
        """Moves the clock ahead by seconds or a `timedelta`, almost at once.

        Everything that quorlock does in that time happens: leases are renewed, waits and requests
        time out, and leases that cannot be renewed are lost.
        """
        self._native.advance(time).wait()

    def suspend(self, time: Duration) -> None:
        """Moves the clock ahead in one jump, as if this process, but not the nodes, had been
        suspended. A lease that ends within the jump is lost, because it was not renewed in time.
        This includes leases of `hold` and `steal`: give those a ttl that is longer than the
        jump."""
        self._native.suspend(time).wait()

    @contextmanager
    def fast_forward(self) -> Iterator[None]:
        """In the `with` block, waiting takes no time: whenever a call of quorlock waits, the clock
        moves to the next moment at which something happens. For code that blocks, such as an
        `acquire` at contention or in an outage."""
        flying = self._native.fast_forward()
        try:
            yield
        finally:
            flying.stop()

    def close(self) -> None:
        """Ends all faults, and closes the clients of `client`, `hold` and `steal`."""
        self.thaw()
        self.mend()
        for client in self._clients:
            client.close()
        self._clients.clear()
        self._held.clear()
        self._other = None

    def __getitem__(self, position: int) -> Node:
        return self._nodes[position]

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<quorlock.testing.Nodes {', '.join(self.urls)}>"
