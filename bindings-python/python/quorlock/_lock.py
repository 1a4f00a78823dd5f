"""Locks: recipes for leases."""

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from . import _quorlock
from ._async import result
from ._lease import Lease

P = ParamSpec("P")
R = TypeVar("R")

_entered: ContextVar[tuple[Lease, ...]] = ContextVar("quorlock_entered", default=())
"""The leases of the `with` blocks that this thread or task is in, innermost last. A lock object may
be shared, so this tells which lease is the block's own."""


class Lock:
    """A lock: a resource, and how to acquire it. Made by `Client.lock`.

    It owns nothing, so threads and tasks may share it; every entry makes a lease of its own.
    """

    __slots__ = ("_native", "_open")

    def __init__(self, native: _quorlock.Lock) -> None:
        self._native = native
        # The leases of all blocks that are entered and not left.
        self._open: list[Lease] = []

    def acquire(self) -> Lease:
        """Acquires the lock, waiting for up to `wait` while others hold it.

        Raises LockTimeoutError if others held it for the whole `wait`, and QuorumError if too few
        nodes can vote, and still cannot after `connect_timeout`.
        """
        return Lease(self._native.acquire().wait())

    async def acquire_async(self) -> Lease:
        """`acquire` for asyncio. Cancelling it leaves no key behind."""
        return Lease(await result(self._native.acquire()))

    def locked(self) -> bool:
        """Whether somebody holds so many nodes that the lock could not be acquired now.

        Raises QuorumError if too few nodes answer to tell.
        """
        return self._native.locked().wait()

    async def locked_async(self) -> bool:
        """`locked` for asyncio."""
        return await result(self._native.locked())

    def __enter__(self) -> Lease:
        return self._enter(self.acquire())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        lease = self._leave()
        lease.release()
        if error is None:
            lease._native.check_not_lost()

    async def __aenter__(self) -> Lease:
        return self._enter(await self.acquire_async())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        lease = self._leave()
        await lease.release_async()
        if error is None:
            lease._native.check_not_lost()

    def _enter(self, lease: Lease) -> Lease:
        self._open.append(lease)
        _entered.set((*_entered.get(), lease))
        return lease

    def _leave(self) -> Lease:
        """The lease of the block that is being left."""
        entered = _entered.get()
        own = [lease for lease in entered if lease in self._open]
        # A generator may be left in another context than it was entered in; a single open block
        # is the one that is being left all the same.
        if not own and len(self._open) != 1:
            raise RuntimeError(
                "this block was entered in another thread or task, and the lock is shared: "
                "make a lock for each block"
            )
        lease = own[-1] if own else self._open[0]
        self._open.remove(lease)
        _entered.set(tuple(other for other in entered if other is not lease))
        return lease

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorates a function, sync or async, so that each call holds the lock."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            # The lock would be released before the body runs.
            raise TypeError("a lock cannot decorate a generator; use `with` in its body")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def hold_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                async with self:
                    return await function(*args, **kwargs)

            return cast("Callable[P, R]", hold_async)

        @functools.wraps(function)
        def hold(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return hold

    def __repr__(self) -> str:
        return f"<quorlock.Lock on {self._native.resource!r}>"
