"""The public class `Client`. The native client does the work."""

from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Never,
    Protocol,
    Self,
    Unpack,
    cast,
    overload,
)

from . import _quorlock
from ._async import library, result
from ._election import Election, Watch
from ._errors import ConfigError
from ._interrupts import interrupted_only_where_it_waits
from ._lease import Lease
from ._lock import Lock, LockDecorator
from ._options import (
    AcquireOptions,
    ClientOptions,
    LeaseOptions,
    LockOptions,
    Login,
    SemaphoreOptions,
)
from ._semaphore import Semaphore

if TYPE_CHECKING:
    from ._errors import NodeReport
    from ._reports import Diagnosis, Stats, Status


class _RedisClient(Protocol):
    """A client of redis-py or valkey-py for one server, sync or asyncio."""

    @property
    def connection_pool(self) -> Any: ...


class _RedisCluster(Protocol):
    """A client of redis-py or valkey-py for a cluster, sync or asyncio."""

    @property
    def nodes_manager(self) -> Any: ...


class Client:
    """A client of N independent Redis or Valkey masters.

    It opens connections and starts threads on first use, not when it is created. Threads, tasks,
    event loops and forked children can share it.
    """

    __slots__ = ("__weakref__", "_native")

    def __init__(
        self, nodes: Iterable[str] | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        """
        `nodes` are URLs: `redis://[user:password@]host[:port][/database]`, `rediss://…` with TLS,
        `redis-sentinel://host,…/service`, `redis-cluster://host,…`, `unix:///path[?db=…]`, or
        `memory://name` for a node in this process, for tests. The default is the environment
        variable `QUORLOCK_NODES`, in which URLs are separated by commas.

        If they are not given, `restart_guard`, `key_prefix` and `drift_factor` are read from the
        environment variables `QUORLOCK_RESTART_GUARD` (such as `30s`), `QUORLOCK_KEY_PREFIX` and
        `QUORLOCK_DRIFT_FACTOR`, unless all nodes are `memory://`. An empty variable counts as not
        set. Without them, `restart_guard` is off, `key_prefix` empty and `drift_factor` 0.01.

        The options `ttl`, `wait`, `auto_extend`, `heartbeat_timeout`, `max_hold`, `holder` and
        `keep` are the defaults of the client's locks: see `lock`. Durations are in seconds, or a
        `timedelta`.

        - `node_timeout`: the maximum time that one node may take to answer one request. 1 ms to
          1 h; None, the default: a twentieth of the ttl, but at least 10 ms and at most 200 ms.
        - `connect_timeout`: the maximum time that connecting to a node may take, and for which an
          acquire or extension keeps trying while too few nodes can vote. 1 ms to 1 h; 1 by default.
        - `drift_factor`: the maximum difference between the rates of clocks, as a fraction. 0 to
          0.5. The validity of a lease is shorter than its ttl by this fraction.
        - `retry_delay`: the range of the random delay between two attempts of a waiter that no node
          notifies. 1 ms to 1 h; (0.05, 0.2) by default. A notified waiter has priority over other
          waiters for a time equal to the shorter delay.
        - `restart_guard`: the time for which the votes of a restarted node are not counted. 10 ms
          to 24 h, at least the largest ttl that any client uses; None or 0 turns it off.
        - `key_prefix`: the prefix of the keys on the nodes, before the resource.
        - `credentials`: a function, sync or async, that takes the address of a node and returns its
          user, or None for the default user, and its password. Called on another thread for each
          new connection, instead of a login in the URLs; an async function runs in asyncio there.
          None, the default, uses the logins in the URLs.

        Raises ConfigError for an invalid URL, option, environment variable or node list.
        """
        self._native = _quorlock.Client(nodes, options)

    @classmethod
    def from_redis(
        cls, *clients: _RedisClient | _RedisCluster, **options: Unpack[ClientOptions]
    ) -> Self:
        """Creates a client whose nodes are those of redis-py or valkey-py clients: `Redis`, sync or
        asyncio, also from `Sentinel.master_for`, and `RedisCluster`. Each client is one node.

            client = quorlock.Client.from_redis(first, second, third, ttl=10)

        Copies hosts, ports, Unix sockets, TLS, users, passwords, credential providers and
        databases, as they are now. Does not use the clients' connections, and does not connect. A
        credential provider is called on another thread for each new connection.

        The options are those of the constructor. The option `credentials` replaces the logins of
        the clients.

        Raises ConfigError for anything that is not such a client, for a setting that quorlock does
        not have, such as `ssl_ca_data`, and as the constructor.
        """
        from ._from_redis import nodes_of

        nodes = nodes_of(clients)
        if options.get("credentials") is not None:
            return cls([node.bare_url for node in nodes], **options)
        if not any(node.is_asked for node in nodes):
            return cls([node.url for node in nodes], **options)
        asked: dict[str, Callable[[], Login | Awaitable[Login]]] = {}
        options["credentials"] = lambda address: asked[address]()
        client = cls([node.bare_url for node in nodes], **options)
        # Nothing is asked before the first connection.
        asked.update(zip(client.nodes, [node.ask for node in nodes], strict=True))
        return client

    @overload
    def lock(self, *resources: str, **options: Unpack[LockOptions]) -> Lock: ...

    @overload
    def lock(
        self,
        resource_of_call: Callable[..., str | tuple[str, ...] | list[str]],
        /,
        **options: Unpack[LockOptions],
    ) -> LockDecorator: ...

    def lock(
        self,
        *resources: str | Callable[..., str | tuple[str, ...] | list[str]],
        **options: Unpack[LockOptions],
    ) -> Lock | LockDecorator:
        """Returns the lock on 1 to 64 resources, to be used with `with`, `async with`, `acquire` or
        as a decorator. Does not acquire it.

        Several resources are locked all or none, with one request to each node. Their order does
        not matter: locks that overlap cannot deadlock.

        A function as the only argument makes a decorator. The function gets the arguments of each
        call, and returns the resource, or a tuple or list of several:

            @client.lock(lambda order_id: f"orders:{order_id}")
            def ship(order_id): ...

        The options are by default those of the client. Durations are in seconds, or a `timedelta`.

        - `ttl`: the time for which the nodes keep the lock if it is not renewed. 10 ms to 24 h; 10
          if the client does not set it.
        - `wait`: the maximum time that an acquire waits while others hold the lock. 0 tries once;
          None or infinity waits forever; 10 if the client does not set it.
        - `auto_extend`: whether the lease is renewed in the background, every third of the ttl,
          until it is released. True if the client does not set it.
        - `heartbeat_timeout`: the lease is renewed only while its last heartbeat is younger than
          this, so a holder that hangs loses the lock: see `Lease.heartbeat`. 10 ms to 24 h; None or
          0 renews it without heartbeats; None if the client does not set it.
        - `max_hold`: the longest time that a lease can be held, however often it is renewed. 10 ms
          or more; None or infinity sets no limit; 3600 if the client does not set it. A limit that
          you set is also one for the `ttl`.
        - `holder`: the name that others see while they wait for the lease. At most 128 bytes in
          UTF-8, without control characters; empty for none; None for `hostname:pid` of the process
          that acquires the lock; None if the client does not set it.
        - `keep`: the time from the release for which the nodes keep the key, so that nobody else
          acquires the lock before: for jobs that hosts start by their own clocks. 10 ms to 24 h;
          None or 0 deletes the key; None if the client does not set it.
        - `mode`: `exclusive`, or `shared` for any number of holders that all hold it in shared
          mode. A dict sets the mode of each resource; those that it does not name are exclusive.

        Raises ConfigError if there is no resource, if one is empty, longer than 8,192 bytes or
        given twice, or for an invalid option.
        """

        def lock(named: tuple[object, ...]) -> Lock:
            return Lock(self._native, cast("tuple[str, ...]", named), options)

        if len(resources) == 1 and callable(resources[0]):
            several = (tuple, list)
            mode = options.get("mode")
            return LockDecorator(
                resources[0],
                lambda named: lock(tuple(named) if isinstance(named, several) else (named,)),
                # A dict of modes names resources that a call locks.
                tuple(mode) if isinstance(mode, dict) and mode else "resource",
            )
        return lock(resources)

    @overload
    def semaphore(self, resource: str, **options: Unpack[SemaphoreOptions]) -> Semaphore: ...

    @overload
    def semaphore(
        self, resource: Callable[..., str], **options: Unpack[SemaphoreOptions]
    ) -> LockDecorator: ...

    def semaphore(
        self,
        resource: str | Callable[..., str],
        *misplaced: Never,
        **options: Unpack[SemaphoreOptions],
    ) -> Semaphore | LockDecorator:
        """Returns the semaphore of a resource, to be used with `with`, `async with`, `acquire` or
        as a decorator. At most `limit` permits of the resource are held at the same time, by all
        clients together. Does not acquire any.

            with client.semaphore("api:stripe", limit=10) as lease:
                call_api(worker=lease.slot)

        A function instead of the resource makes a decorator. The function gets the arguments of
        each call, and returns the resource: see `lock`.

        - `limit`: the largest number of permits that are held at the same time. 1 to 1,024. All
          clients should use the same limit; while they differ, the largest is in force.
        - `permits`: the number of permits that each acquire gets, all or none. 1 to the limit; 1 by
          default.

        The other options are those of `lock`, by default those of the client; `wait` is the maximum
        time that an acquire waits while others hold too many permits.

        Raises ConfigError for an invalid resource or option.
        """
        if misplaced:
            raise ConfigError(_misplaced(misplaced[0]))
        if "limit" not in options:
            raise ConfigError(
                "limit must be a whole number from 1 to 1024, and is missing: write limit=10"
            )
        limit = options["limit"]
        others = {name: value for name, value in options.items() if name != "limit"}

        def semaphore(named: object) -> Semaphore:
            return Semaphore(self._native, cast("str", named), limit, others)

        return (
            LockDecorator(resource, semaphore, "resource")
            if callable(resource)
            else semaphore(resource)
        )

    def adopt(self, text: str, **options: Unpack[AcquireOptions]) -> Lease:
        """Adopts a lease that its holder has detached: see `Lease.detach`, whose result is `text`.
        Returns a new lease of the same resources, with a larger fence. At most one adopter wins.

        The client must have the same nodes, with the same addresses, and the same `key_prefix`. The
        options are those of `lock`; `wait` is the time to try again while other adopters hold the
        lease on some nodes.

        Raises LeaseLostError if the lease was adopted already, was released, or has expired; the
        nodes decide, not the clock. Raises LockTimeoutError if others held it on some nodes for the
        whole `wait`, QuorumError if too few nodes can vote, ConfigError if the text is damaged, of
        another version of quorlock, or of other nodes or another `key_prefix`, or for an invalid
        option, and ClosedError if the client is closed.
        """
        return Lease(self._native.adopt(text, options).wait())

    async def adopt_async(self, text: str, **options: Unpack[AcquireOptions]) -> Lease:
        """The async form of `adopt`. If it is cancelled, others can adopt the lease, unless it
        was adopted at that moment; it is then released."""
        return Lease(await result(self._native.adopt(text, options)))

    def elect(self, resource: str, **options: Unpack[LeaseOptions]) -> Election:
        """Returns a candidate for the leader of a resource. The leader is the holder of the lock on
        the resource; candidates wait for it without a limit. Does not campaign: see `Election.run`
        and `Election.run_async`.

        The options are those of `lock`, except that there is no `wait`, and that a leader keeps its
        lease without a limit unless `max_hold` is given. `ttl` is the longest time without a leader
        after one has crashed. `holder` is the name that observers see, and to which a leader hands
        over.

        Raises ConfigError for an invalid resource or option.
        """
        return Election(self._native.elect(resource, options))

    def watch(self, resource: str) -> Watch:
        """Observes the leader of a resource, and takes no part in the election. Returns an iterator
        over the leaders, for `for` and `async for`: the present one, if there is one, and then each
        new one, by holder name and fence. Never goes back in fence. Of leaders that follow one
        another quickly, some may be left out, except for the last.

        It is a hint, for followers that connect to the leader or redirect to it: the leader may be
        gone by then. What the leader writes is protected by the fence that it sends along.

        Reads each node about once per second, and when a new leader announces itself. An outage
        does not end the iteration. Raises ConfigError for an invalid resource; the iterator raises
        ClosedError if the client is closed.
        """
        return Watch(self._native.watch(resource))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The addresses of the nodes: their URLs without user, password and parameters."""
        return self._native.addresses

    @property
    def closed(self) -> bool:
        """Whether `close` or `aclose` was called."""
        return self._native.closed

    def status(self, resource: str) -> "Status":
        """Asks all nodes who holds a resource, since when and for how long, and how many wait for
        it. Changes nothing on the nodes. The result may be out of date on return.

        Nodes that do not answer are not an error: see `Status.state`. Raises ConfigError for an
        invalid resource and ClosedError if the client is closed.
        """
        from ._reports import Status

        return Status._of(self._native.status(resource).wait())

    async def status_async(self, resource: str) -> "Status":
        """The async form of `status`."""
        from ._reports import Status

        return Status._of(await result(self._native.status(resource)))

    def force_release(self, resource: str) -> "tuple[NodeReport, ...]":
        """Releases a resource on behalf of its current holder, and notifies the next waiter. Use
        it for a holder that hangs, or that crashed and had a long ttl.

        The holder is not notified. If it is alive, it loses the lease at its next renewal, within
        about a third of its ttl. Until then, it may work at the same time as the next holder.

        Returns the outcome at each node: `confirmed` where the key was deleted, `missing` where
        there was none. A key whose value is not text is not deleted, and its node reports `held`.
        Raises ConfigError for an invalid resource and ClosedError if the client is closed.
        """
        return self._native.force_release(resource).wait()

    async def force_release_async(self, resource: str) -> "tuple[NodeReport, ...]":
        """The async form of `force_release`."""
        return await result(self._native.force_release(resource))

    def stats(self) -> "Stats":
        """Returns the statistics of this client in this process: acquires, leases, and the requests
        to each node. Sends no request."""
        from ._reports import Stats

        return Stats._of(self._native.stats())

    def doctor(self) -> "Diagnosis":
        """Examines all nodes and returns the findings: nodes that cannot vote, and settings that
        may break a guarantee of the lock. Changes nothing on the nodes.

        Takes at most twice `connect_timeout`, or three times if a node is a Redis Cluster. Raises
        ClosedError if the client is closed. An unreachable node is a finding, not an error.
        """
        from ._reports import Diagnosis

        return Diagnosis(*self._native.doctor().wait())

    async def doctor_async(self) -> "Diagnosis":
        """The async form of `doctor`."""
        from ._reports import Diagnosis

        return Diagnosis(*await result(self._native.doctor()))

    def close(self) -> None:
        """Closes the client: releases the leases that are still held, ends acquires in progress
        with ClosedError, and closes the connections.

        Waits for the nodes for at most `connect_timeout`. Can be called more than once. In a forked
        child, it closes only the child's own connections.
        """
        self._native.close().wait()

    async def aclose(self) -> None:
        """The async form of `close`."""
        await result(self._native.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    @interrupted_only_where_it_waits
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        closing = self._native.close()
        if not isinstance(error, GeneratorExit):
            # A coroutine that is being closed must not await. The close goes on in the background.
            await library().finish(closing)

    def __repr__(self) -> str:
        state = "closed client" if self.closed else "client"
        return f"<quorlock {state} of {', '.join(self.nodes)}>"


def _misplaced(option: object) -> str:
    """Returns the message for an option of a semaphore that was passed without its name."""
    message = "a semaphore has one resource, and its options are passed by name"
    # Shows only what may be a limit: anything else may be a secret.
    limit = option if type(option) is int and 1 <= option <= 1024 else None
    return message if limit is None else f"{message}; if it is the limit, write limit={limit}"
