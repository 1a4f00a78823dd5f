"""The public class `Lock`, and what it has in common with `Semaphore`. The native classes do the
work, including the `with` statement.

This module adds the `_async` forms and the decorators. See the native `lock` module for why `with`
is not here.
"""

import functools
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, ParamSpec, TypeVar, cast

from . import _quorlock
from ._async import result
from ._interrupts import interrupted_only_where_it_waits
from ._lease import Lease
from ._options import LOCK, Duration, given
from ._quorlock import Lease as NativeLease

# Imported here, not on first use: a child that is forked during an import would wait forever.
from ._scope import Scope

if TYPE_CHECKING:
    from ._quorlock import Pending

P = ParamSpec("P")
R = TypeVar("R")
L = TypeVar("L", NativeLease, NativeLease | None)


class Acquirable(_quorlock.Acquirable):
    """What `Lock` and `Semaphore` have in common: how they are acquired, and the decorator."""

    __slots__ = ()

    def try_acquire(self) -> Lease | None:
        """Tries once to acquire, whatever `wait` is. Returns the lease, or None if others hold the
        lock, or too many of the permits.

        Raises QuorumError if too few nodes can vote, as `acquire` does.
        """
        return self._try_hold()

    async def try_acquire_async(self) -> Lease | None:
        """The async form of `try_acquire`."""
        lease = await self._observed(self._try_acquire)
        return None if lease is None else Lease(lease)

    async def _observed(self, start: "Callable[..., Pending[L]]", *options: object) -> L:
        """Awaits an acquire within the observer's context manager."""
        observe = self._observer
        if observe is None:
            return await result(start(*options))
        with observe(self._resources) as acquired:
            lease = await result(start(*options))
            if lease is not None:
                acquired(lease)
        return lease

    @interrupted_only_where_it_waits
    async def __aenter__(self) -> Lease:
        native = await self._observed(self._acquire, {})
        lease = Lease(native)
        scope = Scope(lease)
        self._enter(scope, native)
        scope.cancel_on_loss()
        return lease

    @interrupted_only_where_it_waits
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._leave().leave(error)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorates a function, sync or async, so that each call holds a lease.

        Write it directly above `def`, below all other decorators: a framework's decorator, such as
        `@app.post` of FastAPI or `@app.task` of Celery, must get the function that holds the lease.

        Raises TypeError for a generator function, a context manager of `contextlib`, a class, a
        task, command or fixture that a framework has made of a function, or an object that cannot
        be called. A call raises TypeError if the function returns a generator or an awaitable,
        except for the coroutine of an `async def`: its body would run after the lease is released.
        The body does not run.
        """
        return _decorated(function, lambda *_, **__: self)

    # For type checkers, these would make every attribute and every condition valid.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            from . import _misuse

            raise _misuse.missing_attribute(self, name, Lease)

        def __bool__(self) -> bool:
            from . import _misuse

            instead = "use `with lock:` or `if lease := lock.try_acquire():`"
            raise _misuse.no_truth_value(self, instead)

    def _acquire_options(
        self, misplaced: tuple[object, ...], foreign: dict[str, Any], **options: Any
    ) -> dict[str, Any]:
        """Returns the options that `acquire` was given. Raises TypeError for other arguments."""
        if misplaced or foreign:
            from . import _misuse

            raise _misuse.wrong_arguments(self, misplaced, foreign)
        return given(**options)


class Lock(Acquirable, _quorlock.Lock):
    """A lock on one or several resources, with its options. Created by `Client.lock`.

    It holds no state of its own, so threads and tasks can share it: every acquire or `with` block
    creates its own lease.
    """

    __slots__ = ()

    def acquire(self, *misplaced: Never, wait: Duration | None = LOCK, **foreign: Never) -> Lease:
        """Acquires the lock and returns the lease. Waits for at most `wait` while others hold it.

        `wait` is in seconds, or a `timedelta`: 0 tries once, None waits forever. The default is
        that of the lock.

        Raises LockTimeoutError if others held it for the whole `wait`, and QuorumError if too few
        nodes can vote and this lasts for `connect_timeout` or `wait`, whichever is shorter.
        """
        return self._hold(self._acquire_options(misplaced, foreign, wait=wait))

    async def acquire_async(
        self, *misplaced: Never, wait: Duration | None = LOCK, **foreign: Never
    ) -> Lease:
        """The async form of `acquire`. If it is cancelled, no key is left on reachable nodes."""
        options = self._acquire_options(misplaced, foreign, wait=wait)
        return Lease(await self._observed(self._acquire, options))

    def locked(self) -> bool:
        """Returns True if the lock could not be acquired now because it is held on too many nodes.
        With several resources, returns True if this is the case for any of them.

        Raises QuorumError if too few nodes answer.
        """
        return self._locked().wait()

    async def locked_async(self) -> bool:
        """The async form of `locked`."""
        return await result(self._locked())

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources to lock, in the order in which they were given."""
        return self._resources

    def __repr__(self) -> str:
        names = map(_quorlock.shortened, self.resources)
        return f"<quorlock.Lock on {', '.join(map(repr, names))}>"


class LockDecorator:
    """Decorates functions so that each call holds a lease of the resource that its arguments name.
    Created by `Client.lock` and `Client.semaphore`."""

    __slots__ = ("_made",)

    def __init__(
        self, name: Callable[..., object], make: Callable[[object], Acquirable], example: object
    ) -> None:
        """`name` returns the resource of a call; `make` returns the lock or semaphore for it.
        `example` is a resource with which the options are checked now."""
        make(example)
        self._made = lambda *args, **kwargs: make(name(*args, **kwargs))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorates a function like `Lock` does. Raises ConfigError in a call whose resource is not
        valid."""
        return _decorated(function, self._made)


def _decorated(function: Callable[P, R], made: Callable[..., Acquirable]) -> Callable[P, R]:
    """Returns the function with each call in a block of what `made` returns for it."""
    if isinstance(function, staticmethod | classmethod):
        return cast("Callable[P, R]", type(function)(_decorated(function.__func__, made)))
    from . import _deferred, _misuse

    if (wrong := _misuse.wrong_target(function)) is not None:
        raise wrong
    if _deferred.is_generator(function) or _deferred.is_context_manager(function):
        # The lock would be released before the body runs.
        raise TypeError(
            "a lock cannot decorate a generator or a context manager; use `with` in its body"
        )
    if _deferred.is_async(function):

        @functools.wraps(function)
        async def hold_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            async with made(*args, **kwargs):
                returned = await cast(Any, function)(*args, **kwargs)
                instead = "await it in the function, or use `async with` in its body"
                _deferred.refuse(function, returned, instead)
                return returned

        return cast("Callable[P, R]", hold_async)

    @functools.wraps(function)
    def hold(*args: P.args, **kwargs: P.kwargs) -> R:
        with made(*args, **kwargs):
            returned = function(*args, **kwargs)
            _deferred.refuse(function, returned)
            return returned

    return hold
