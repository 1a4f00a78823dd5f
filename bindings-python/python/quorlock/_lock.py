"""The public class `Lock`. The native class does the work, including the `with` statement.

This module adds `async with`, the decorator and the forms of `acquire`. See the native `lock`
module for why `with` is not here.
"""

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from . import _quorlock
from ._async import result
from ._lease import Lease
from ._quorlock import Lease as NativeLease

# Imported here, not on first use: a child that is forked during an import would wait forever.
from ._scope import Scope

P = ParamSpec("P")
R = TypeVar("R")


class Lock(_quorlock.Lock):
    """A lock on one or several resources, with its options. Created by `Client.lock`.

    It holds no state of its own, so threads and tasks can share it: every acquire or `with` block
    creates its own lease.
    """

    __slots__ = ()

    def acquire(self) -> Lease:
        """Acquires the lock and returns the lease. Waits for at most `wait` while others hold it.

        Raises LockTimeoutError if others held it for the whole `wait`, and QuorumError if too few
        nodes can vote and this lasts for `connect_timeout` or `wait`, whichever is shorter.
        """
        observe = self._observer
        if observe is None:
            return Lease(self._acquire().wait())
        with observe(self._resources) as acquired:
            lease = self._acquire().wait()
            acquired(lease)
        return Lease(lease)

    async def acquire_async(self) -> Lease:
        """The asyncio form of `acquire`. If it is cancelled, no key is left on reachable nodes."""
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
        """Returns True if the lock could not be acquired now because it is held on too many nodes.
        With several resources, returns True if this is the case for any of them.

        Raises QuorumError if too few nodes answer.
        """
        return self._locked().wait()

    async def locked_async(self) -> bool:
        """The asyncio form of `locked`."""
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

        Raises TypeError for a generator function, or for an object that cannot be called. A call
        raises TypeError if a function that is not `async def` returns an awaitable, or any function
        returns a generator: its body would run after the lock is released. The body does not run.
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
        names = map(_quorlock.shortened, self._resources)
        return f"<quorlock.Lock on {', '.join(map(repr, names))}>"
