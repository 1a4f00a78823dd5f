"""Tracks the blocks that hold a lease, and cancels an async block whose lease is lost.

This module owns the list of open blocks of each thread or task. `_lock`, `_lease` and the native
`scope` module call it.
"""

import _thread
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ._async import inbox_of, result

if TYPE_CHECKING:
    import asyncio
    import weakref

    from ._lease import Lease


def owner() -> int:
    """Returns a unique number for the running asyncio task, or for the thread if there is none."""
    # If asyncio was not imported, or its import is not finished, no task runs.
    tasks = sys.modules.get("asyncio.tasks")
    if tasks is not None and hasattr(tasks, "current_task"):
        # Returns None if no loop runs. The public `get_running_loop` raises an exception instead.
        loop = tasks.events._get_running_loop()
        if loop is not None and (task := tasks.current_task(loop)) is not None:
            return id(task)
    return _thread.get_ident()


class Scope:
    """One `with` or `async with` block, from its entry to its exit."""

    __slots__ = ("_cancelled", "_cancelling", "_task", "is_left", "lease", "owner")

    def __init__(self, lease: "Lease") -> None:
        self.lease = lease
        self.owner = owner()
        """The thread or task that entered the block."""
        # Weak: the `on_lost` callback must not keep a task alive that is discarded with its loop.
        self._task: weakref.ref[asyncio.Task[object]] | None = None
        self._cancelling = 0
        self._cancelled = False
        self.is_left = False
        """Set at the exit of the block. From then on the body is not cancelled, and the lease is
        not the current one, also where the context was copied."""

    async def leave(self, error: BaseException | None) -> None:
        """Releases the lease at the end of an async block. Raises LeaseLostError if it was lost,
        unless the block raised an `error` of its own."""
        releasing = self.lease._native.release()
        if await self._was_cancelled(error):
            self._check_not_lost(error)
        if isinstance(error, GeneratorExit):
            # The coroutine is being closed, perhaps after its event loop, and must not await. The
            # release goes on in the background.
            return
        await result(releasing)
        if error is None:
            self._check_not_lost()
        else:
            self.lease._native.note_loss(error)

    def _check_not_lost(self, cause: BaseException | None = None) -> None:
        if (loss := self.lease._native.loss) is not None:
            raise loss from cause

    # The following methods cancel the task in the same way as asyncio.timeout does.

    def cancel_on_loss(self) -> None:
        """Makes the loss of the lease cancel the current task, until the block is left."""
        import asyncio
        import weakref

        task = asyncio.current_task()
        if task is not None:
            self._task = weakref.ref(task)
            self._cancelling = task.cancelling()
            self.lease._native.on_lost(inbox_of(task.get_loop()), self._cancel)

    def _owner(self) -> "asyncio.Task[object] | None":
        return None if self._task is None else self._task()

    def _cancel(self, loss: BaseException) -> None:
        task = self._owner()
        if task is not None and not self.is_left:
            self._cancelled = task.cancel(str(loss))

    async def _was_cancelled(self, error: BaseException | None) -> bool:
        """Returns whether the body was cancelled because of the loss, and for no other reason."""
        import asyncio

        task = self._owner()
        if not self._cancelled or task is None or task.uncancel() > self._cancelling:
            return False
        if isinstance(error, asyncio.CancelledError):
            return True
        if isinstance(error, GeneratorExit):
            return False
        # The body ended at the moment of the loss. Before Python 3.13, the request to cancel is
        # still pending and would hit the next `await` of the caller, so it is consumed here.
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if task.cancelling() > self._cancelling:
                raise
        return False


entered: ContextVar[tuple[Scope, ...]] = ContextVar("quorlock_entered", default=())
"""The open blocks of this thread or task, innermost last.

Threads and tasks may share a lock object. This variable tells which of its open blocks is being
left."""


def current_lease() -> "Lease":
    """Returns the lease of the innermost block around the caller: `with lock`, `with lease`, one of
    their async forms, a decorated function, or the leader of an election.

    Threads and tasks with a copy of the context, such as those of `asyncio.create_task` and
    `asyncio.to_thread`, get the same lease until the block ends. The lease may be lost: see
    `Lease.check`. Raises RuntimeError if there is no block.
    """
    for scope in reversed(entered.get()):
        if not scope.is_left:
            return scope.lease
    raise RuntimeError(
        "no lock is held here: current_lease needs a `with` block or a decorated function around it"
    )
