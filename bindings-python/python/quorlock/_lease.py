"""The public class `Lease`: a lock that is held. The native lease does the work."""

import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from contextvars import copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast, overload

from . import _quorlock, _warnings
from ._async import current, library, result
from ._errors import LeaseDroppedWarning, LeaseLostError
from ._interrupts import interrupted_only_where_it_waits
from ._options import LOCK, Duration, Mode

# Imported here, not on first use: a child that is forked during an import would wait forever.
from ._scope import Scope, entered

if TYPE_CHECKING:
    from inspect import Signature

    from ._quorlock import Pending


Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


class _BothIterable(Iterable[Item_co], AsyncIterable[Item_co], Protocol[Item_co]):
    """Items for `for` and for `async for`."""


class Heartbeats(Iterator[Item], AsyncIterator[Item]):
    """An iterator for `for`, and one for `async for`."""

    __slots__ = ("_async_items", "_items")

    def __init__(
        self, items: Generator[Item, None, None], async_items: AsyncGenerator[Item, None]
    ) -> None:
        self._items = items
        self._async_items = async_items

    def __next__(self) -> Item:
        return next(self._items)

    def __anext__(self) -> Awaitable[Item]:
        return anext(self._async_items)

    def close(self) -> None:
        """Ends the iteration of `for`."""
        self._items.close()

    async def aclose(self) -> None:
        """Ends the iteration of `async for`."""
        await self._async_items.aclose()


class Lease(_quorlock.LeaseBlock):
    """A held lock. Any thread or task can use it.

    It is renewed automatically, unless `auto_extend` is off, until it is released or has been held
    for `max_hold`.

    Use `with lease:`, which keeps the lease and releases it at the end of the block, or keep a
    reference for as long as the work takes. `async with lease:` also cancels the block as soon as
    the lease is lost. Both raise LeaseLostError at the beginning if the lease is not valid, and at
    the end if it was lost and the block raised no other error. A lease can be in one block only,
    also that of `with lock as lease:` or of an election: another one raises RuntimeError.

    If a lease is garbage-collected while valid, it is not released: its renewal stops, and its key
    stays on the nodes until it expires. This issues a LeaseDroppedWarning, and `Client.stats`
    counts the lease as `dropped`. So `if lock.acquire(): ...` protects its body for at most `ttl`.

    In a forked child, a lease of the parent is not valid. The child neither renews nor releases it;
    the parent still holds it.
    """

    __slots__ = ("__weakref__", "_scope")

    _scope: Scope
    """The `with lease:` or `async with lease:` block that the lease is in. Not set outside."""

    @interrupted_only_where_it_waits
    async def __aenter__(self) -> Self:
        self.check()
        self._begin_block()
        scope = Scope(self)
        try:
            scope.cancel_on_loss()
        except BaseException:
            self._end_block()
            raise
        self._enter(scope)
        return self

    @interrupted_only_where_it_waits
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._leave().leave(error)

    @property
    def resource(self) -> str:
        """The first of `resources`: the only one, unless several were locked together."""
        return self._native.resource

    @property
    def resources(self) -> tuple[str, ...]:
        """The locked resources, in the order in which they were given."""
        return self._native.resources

    @property
    def ttl(self) -> float:
        """The ttl with which the lease was acquired, in seconds. `extend` does not change it."""
        return self._native.ttl

    @property
    def token(self) -> str:
        """The value of the keys on the nodes: 40 random hexadecimal digits and, if the lease has a
        name, `;` and the name. Unique to the lease, and the same for all its resources. It is a
        secret: anyone who has it can release the lock."""
        return self._native.token

    @property
    def holder(self) -> str:
        """The name that others see while they wait for this lease; empty if it has none."""
        return self._native.holder

    @property
    def fence(self) -> int:
        """The fencing token: larger than that of any earlier lease of the resource, below 2**53.

        Send it with every write, and let the storage reject a token smaller than the largest it has
        seen. Permits of a semaphore have an order for each slot only: let the storage keep the
        largest token of each. Raises ConfigError for a lease of several resources; use `fences`
        there.
        """
        return self._native.fence

    @property
    def fences(self) -> dict[str, int]:
        """The fencing token of each resource, in the order given, as a new dict.

        Send each with the writes to its resource; see `fence`.
        """
        return self._native.fences

    @property
    def slots(self) -> tuple[int, ...]:
        """The numbers of the permits of a semaphore, in ascending order: each is 0 to `limit` - 1,
        and no other valid lease of the semaphore has it, so it can serve as the number of a worker.
        Empty for a lease of a lock."""
        return self._native.slots

    @property
    def slot(self) -> int:
        """The only one of `slots`. Raises ConfigError if there are several, or none because this is
        a lease of a lock."""
        return self._native.slot

    @property
    def mode(self) -> Mode | None:
        """`exclusive` or `shared`; None if the mode is not the same for all resources: see
        `modes`."""
        return self._native.mode

    @property
    def modes(self) -> dict[str, Mode]:
        """The mode of each resource, in the order given, as a new dict."""
        return self._native.modes

    @property
    def valid(self) -> bool:
        """Whether the lock is held now, by the local clock; sends no request to the nodes.

        Once False, it stays False.
        """
        return self._native.valid

    @property
    def remaining(self) -> float:
        """The time for which the lease stays valid without renewal, in seconds. 0.0 if it is not
        valid."""
        return self._native.remaining

    def check(self) -> None:
        """Raises LeaseLostError, with the reason, unless the lease is valid. Counts as a
        heartbeat."""
        self._native.check()

    def heartbeat(self) -> None:
        """Reports that the work under the lock still goes on. If the lock has a
        `heartbeat_timeout`, the lease is renewed only while its last heartbeat is younger than
        that. `check` and `extend` count as heartbeats, and the acquire is the first one.

        Sends nothing, and takes less than a microsecond. Any thread or task can call it. If the
        renewal has stopped for lack of a heartbeat, and the lease is still valid, it is renewed at
        once. Raises LeaseLostError, with the reason, unless the lease is valid.
        """
        self._native.check()

    @overload
    def heartbeats(self, items: _BothIterable[Item]) -> Heartbeats[Item]: ...

    @overload
    def heartbeats(self, items: Iterable[Item]) -> Iterator[Item]: ...

    @overload
    def heartbeats(self, items: AsyncIterable[Item]) -> AsyncIterator[Item]: ...

    def heartbeats(
        self, items: Iterable[Item] | AsyncIterable[Item]
    ) -> Iterator[Item] | AsyncIterator[Item]:
        """Yields the items, and calls `heartbeat` before each of them:

            for row in lease.heartbeats(rows):
                migrate(row)

        For `async for`, if the items are async, and for both, if they are both, such as a queryset
        of Django. Raises LeaseLostError instead of yielding the next item if the lease has ended.
        """
        if not isinstance(items, AsyncIterable):
            return self._heartbeats(iter(items))
        if isinstance(items, Iterable):
            # Neither generator iterates the items before it is used.
            return Heartbeats(self._heartbeats(items), self._heartbeats_async(items))
        return self._heartbeats_async(items)

    def _heartbeats(self, items: Iterable[Item]) -> Generator[Item, None, None]:
        for item in items:
            self.heartbeat()
            yield item

    async def _heartbeats_async(self, items: AsyncIterable[Item]) -> AsyncGenerator[Item, None]:
        async for item in items:
            self.heartbeat()
            yield item

    def extend(self, ttl: Duration | None = None) -> None:
        """Extends the lease to `ttl` from now: 10 ms to 24 h. Default: the ttl of the acquire.

        Never shortens the lease, and never extends it beyond `max_hold`. Raises LeaseLostError if
        the lease has ended. Raises QuorumError if too few nodes confirm within `connect_timeout`;
        the lease is then unchanged.
        """
        self._native.extend(ttl).wait()

    async def extend_async(self, ttl: Duration | None = None) -> None:
        """The async form of `extend`. Cancelling it does not stop the extension."""
        await result(self._native.extend(ttl))

    def downgrade(self) -> None:
        """Keeps an exclusive lease in shared mode from now on, with the same fence, and lets others
        share it. A lease of several resources is then shared for all of them. Does nothing if the
        lease is shared already.

        Returns when a majority of the nodes has answered, or all have had `node_timeout` for it.
        The others follow when the lease is extended. Raises LeaseLostError if the lease has ended.
        """
        self._native.downgrade().wait()

    async def downgrade_async(self) -> None:
        """The async form of `downgrade`. Cancelling it does not stop the change."""
        await result(self._native.downgrade())

    def try_upgrade(self) -> "Lease | None":
        """Tries once to make a shared lease exclusive. If nobody else reads, returns an exclusive
        lease with a larger fence, and this one ends; it does not count as lost. If others read one
        of the resources, returns None, and this lease stays as it is.

        It never waits for the other readers: two readers that waited for each other would wait
        forever. To wait, release the lease and acquire an exclusive one; others may have written in
        between.

        The lease is not renewed during the try. Raises LeaseLostError if it has ended, QuorumError
        if too few nodes can vote, and ConfigError for an exclusive lease.
        """
        return _lease_or_none(self._native.try_upgrade().wait())

    async def try_upgrade_async(self) -> "Lease | None":
        """The async form of `try_upgrade`. If it is cancelled, an exclusive lease that it gets is
        released."""
        return _lease_or_none(await result(self._native.try_upgrade()))

    def detach(self, within: Duration | None = None) -> str:
        """Gives the lease up, so that another client can adopt it, in any process and language.
        Returns the text to pass to `Client.adopt`. It is a secret: anyone who has it, and access to
        the nodes, can adopt the lease.

        Extends the lease to at least `within` from now, but not beyond `max_hold`: an adopter has
        this time. Then the lease ends: it is not valid and not renewed any more, and does not count
        as lost. The resource stays locked until an adopter releases it, or until the time is over.

        `within` is 10 ms to 24 h, at most `restart_guard`; None for 30 s, or `restart_guard` if
        that is shorter. Raises LeaseLostError if the lease has ended. Raises QuorumError if too few
        nodes confirm within `connect_timeout`; the lease is then unchanged.
        """
        return _text(self._native.detach(within).wait())

    async def detach_async(self, within: Duration | None = None) -> str:
        """The async form of `detach`. If it is cancelled before the lease has ended, the lease
        stays valid; later, the lock is released."""
        return _text(await result(self._native.detach(within)))

    def hand_over(self, successor: str, *, within: Duration | None = None) -> bool:
        """Hands the lease over to the candidate of an election that has this holder name, without
        a time in between in which nobody holds the lock: see `Client.elect`. Returns True if that
        candidate has taken it over.

        If no node knows of such a candidate, returns False, and the lease stays valid. Otherwise,
        the lease ends as in `detach`: finish all writes first. If then the candidate does not take
        over for `within`, or is gone, the lock is released, and the result is False.

        `within` is 10 ms to 24 h, at most `restart_guard`; None for the ttl of the lease. Raises
        LeaseLostError if the lease has ended. Raises QuorumError if too few nodes confirm within
        `connect_timeout`; the lease is then unchanged. Raises ConfigError for a lease of several
        resources, a shared one, and one of a semaphore.
        """
        return self._native.hand_over(successor, within).wait()

    async def hand_over_async(self, successor: str, *, within: Duration | None = None) -> bool:
        """The async form of `hand_over`. If it is cancelled before the lease has ended, the lease
        stays valid; later, the hand-over goes on in the background."""
        return await result(self._native.hand_over(successor, within))

    def release(self, *, keep: Duration | None = LOCK) -> bool:
        """Releases the lock. The lease is not valid from this call on, whatever the nodes answer.

        With `keep`, the nodes keep the key for so long from now on, so that nobody else acquires
        the lock before: 10 ms to 24 h; None or 0 deletes it. The default is that of the lock. A
        lease that was lost keeps nothing. Raises ConfigError for an invalid `keep`; the lease is
        not released then.

        Returns True if the lease was still valid and a majority of the nodes confirms the release.
        Returns False if the lease was already lost or released, or if too few nodes confirm within
        a third of the ttl (at most 10 s, at least `node_timeout`). Never raises an error for
        unreachable nodes: requests to them are retried in the background.
        """
        return self._releasing(keep).wait()

    async def release_async(self, *, keep: Duration | None = LOCK) -> bool:
        """The async form of `release`. Cancelling it does not stop the release."""
        return await result(self._releasing(keep))

    def _releasing(self, keep: Duration | None) -> "Pending[bool]":
        return self._native.release() if keep is LOCK else self._native.release(keep)

    def on_lost(self, callback: Callable[[LeaseLostError], object] | Callable[[], object]) -> None:
        """Registers a function that is called when the lease is lost: at its validity end at the
        latest, or immediately if it is already lost. It is not called if the lease is released or
        detached.

        The function gets the LeaseLostError, or nothing if it takes no argument. It runs in the
        event loop in which `on_lost` was called, or on a daemon thread if there is none. Callbacks
        of one lease run one after another. A slow callback does not delay those of other leases,
        unless 16 of them are slow.

        Raises TypeError for an async function or a generator, whose body would never run: register
        a function that starts a task instead.

        Raises RuntimeError if the system cannot start the thread; the function is not registered
        then.
        """
        call = _taking_loss(callback)
        running = current()
        if running is None:
            self._native.on_lost(None, call)
        else:
            context = copy_context()
            self._native.on_lost(running.inbox(), lambda loss: context.run(call, loss))

    def wait_lost(self, timeout: Duration | None = None) -> bool:
        """Waits until the lease ends, for at most `timeout`; None waits forever.

        Returns True as soon as the lease is lost, at its validity end at the latest. Returns False
        when it is released or detached, or at the timeout.
        """
        return self._native.wait_lost(_quorlock.timeout(timeout))

    async def wait_lost_async(self, timeout: Duration | None = None) -> bool:
        """The async form of `wait_lost`."""
        seconds = _quorlock.timeout(timeout)
        is_lost = await library().result_within(self._native.lost(), seconds)
        # A short timeout may end before the result of a lost lease arrives.
        return self._native.loss is not None if is_lost is None else is_lost

    # For type checkers, this would make every attribute valid.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            from . import _misuse

            raise _misuse.missing_attribute(self, name, Lease)

    def _warn_dropped(self) -> None:
        """Called by the native `__del__`."""
        names = ", ".join(repr(_quorlock.shortened(name)) for name in self.resources)
        text = (
            f"the lease of {names} was dropped while it was valid, so it is not renewed any more; "
            "write `with lock:` instead of `if lock.acquire():`, or keep the lease in a variable "
            "until `lease.release()`"
        )
        _warnings.warn(LeaseDroppedWarning, text, source=self)

    def __repr__(self) -> str:
        state = f"valid for {self.remaining:.3f} s" if self.valid else "not valid"
        fences = self.fences.items()
        held = ", ".join(f"{_quorlock.shortened(name)!r} (fence {fence})" for name, fence in fences)
        return f"<quorlock.Lease of {held}, {state}>"


def current_lease() -> Lease:
    """Returns the lease of the innermost block around the caller: `with` a lock, a semaphore or a
    lease, an async form of these, a decorated function, or the leader of an election.

    Threads and tasks with a copy of the context, such as those of `asyncio.create_task` and
    `asyncio.to_thread`, get the same lease until the block ends. The lease may be lost: see
    `Lease.check`. Raises RuntimeError if there is no block.
    """
    for reference in reversed(entered.get()):
        if (scope := reference()) is not None and not scope.is_left:
            return cast("Lease", scope.lease)
    raise RuntimeError(
        "no lock is held here: current_lease needs a `with` block or a decorated function around it"
    )


def _lease_or_none(native: _quorlock.Lease | None) -> Lease | None:
    return None if native is None else Lease(native)


def _text(detached: _quorlock.Detached) -> str:
    text = detached.take()
    assert text is not None
    return text


def _taking_loss(callback: Callable[..., object]) -> Callable[[Any], object]:
    """Returns the callback as a function that takes the LeaseLostError as its only argument."""
    if not callable(callback):
        raise TypeError(f"the callback must be callable, not {callback!r}")
    from . import _deferred

    if _deferred.is_async(callback):
        raise TypeError(
            f"on_lost takes a function that is not async, not {callback!r}: pass a function that "
            "starts a task, such as `lambda: loop.create_task(stop())`"
        )
    if _deferred.is_generator(callback):
        raise TypeError(
            f"on_lost takes a function that is not a generator, not {callback!r}: its body would "
            "never run"
        )
    try:
        _signature(callback).bind(None)
    except TypeError:
        return lambda _: callback()
    except ValueError:  # the signature is not known
        pass
    return callback


def _signature(function: Callable[..., object]) -> "Signature":
    """Returns the signature, also if a name in an annotation is not defined."""
    from inspect import signature

    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return signature(function, annotation_format=Format.FORWARDREF)
    return signature(function)
