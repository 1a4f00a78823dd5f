"""Locks: recipes for leases."""

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from . import _quorlock
from ._async import result
from ._lease import Lease
from ._quorlock import Lease as NativeLease

# Not when it is used first: a fork while another thread imports it would leave the child waiting.
from ._scope import Scope

P = ParamSpec("P")
R = TypeVar("R")


class Lock(_quorlock.Lock):
    """A lock: a resource or several, and how to acquire it. Made by `Client.lock`.

    It owns nothing, so threads and tasks may share it; every entry makes a lease of its own.
    """

    __slots__ = ()

    def acquire(self) -> Lease:
        """Acquires the lock, waiting for up to `wait` while others hold it.

        Raises LockTimeoutError if others held it for the whole `wait`, and QuorumError if too few
        nodes can vote, and still cannot after `connect_timeout`.
        """
        observe = self._observer
        if observe is None:
            return Lease(self._acquire().wait())
        with observe(self._resources) as acquired:
            lease = self._acquire().wait()
            acquired(lease)
        return Lease(lease)

    async def acquire_async(self) -> Lease:
        """`acquire` for asyncio. Cancelling it leaves no key behind."""
        return Lease(await self._acquired())

    async def _acquired(self) -> NativeLease:
        observe = self._observer
        if observe is None:
            return await result(self._acquire())
        with observe(self._resources) as acquired:
            lease = await result(self._acquire())
            acquired(lease)
        return lease

    def locked(self) -> bool:
        """Whether somebody holds so many nodes that the lock could not be acquired now; of several
        resources, any of them.

        Raises QuorumError if too few nodes answer to tell.
        """
        return self._locked().wait()

    async def locked_async(self) -> bool:
        """`locked` for asyncio."""
        return await result(self._locked())

    async def __aenter__(self) -> Lease:
        lease = await self._acquired()
        scope = Scope(lease)
        self._enter(scope, lease)
        scope.cancel_on_loss()
        return scope.lease

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        scope = self._leave()
        scope.is_left = True
        releasing = scope.lease._native.release()
        if await scope.was_cancelled(error):
            scope.check_not_lost(error)
        await result(releasing)
        if error is None:
            scope.check_not_lost()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorates a function, sync or async, so that each call holds the lock.

        Raises TypeError for a generator function, and for what cannot be called. A call raises
        TypeError if the function returns an awaitable without being known as async, or a generator:
        its body would run after the lock is released. It does not run then.
        """
        if isinstance(function, staticmethod | classmethod):
            return cast("Callable[P, R]", type(function)(self(function.__func__)))
        if not callable(function):
            raise TypeError(f"a lock decorates a function, not {function!r}")
        from . import _deferred

        if _deferred.is_generator(function):
            # The lock would be released before the body runs.
            raise TypeError("a lock cannot decorate a generator; use `with` in its body")
        if _deferred.is_async(function):

            @functools.wraps(function)
            async def hold_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                async with self:
                    returned = await cast(Any, function)(*args, **kwargs)
                    _deferred.refuse(function, returned)
                    return returned

            return cast("Callable[P, R]", hold_async)

        @functools.wraps(function)
        def hold(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                returned = function(*args, **kwargs)
                _deferred.refuse(function, returned)
                return returned

        return hold

    def __repr__(self) -> str:
        return f"<quorlock.Lock on {', '.join(map(repr, self._resources))}>"
