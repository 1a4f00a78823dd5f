"""Blocks that hold a lock: which lease is whose, and what becomes of a body whose lease is lost."""

import _thread
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ._async import inbox_of
from ._lease import Lease
from ._quorlock import Lease as NativeLease

if TYPE_CHECKING:
    import asyncio
    import weakref


def owner() -> int:
    """The asyncio task that this runs in, or else the thread, by a number that no other has."""
    # Where asyncio was not imported, or not to its end, no task runs.
    tasks = sys.modules.get("asyncio.tasks")
    if tasks is not None and hasattr(tasks, "current_task"):
        # Does not raise where no loop runs, unlike its public form.
        loop = tasks.events._get_running_loop()
        if loop is not None and (task := tasks.current_task(loop)) is not None:
            return id(task)
    return _thread.get_ident()


class Scope:
    """One block, from its entry until it is left."""

    __slots__ = ("_cancelled", "_cancelling", "_task", "is_left", "lease")

    def __init__(self, lease: NativeLease) -> None:
        self.lease = Lease(lease)
        # Weak: a task that is thrown away with its loop must not be kept by what waits here.
        self._task: weakref.ref[asyncio.Task[object]] | None = None
        self._cancelling = 0
        self._cancelled = False
        self.is_left = False
        """From then on the body is not cancelled."""

    def check_not_lost(self, cause: BaseException | None = None) -> None:
        """Raises why the lease was lost, if it was."""
        if (loss := self.lease._native.loss) is not None:
            raise loss from cause

    # What follows is the pattern of asyncio.timeout.

    def cancel_on_loss(self) -> None:
        """Cancels the task that this runs in when the lease is lost before the block is left."""
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

    async def was_cancelled(self, error: BaseException | None) -> bool:
        """Whether the body was cancelled for the loss of the lease, and for nothing else."""
        import asyncio

        task = self._owner()
        if not self._cancelled or task is None or task.uncancel() > self._cancelling:
            return False
        if isinstance(error, asyncio.CancelledError):
            return True
        # The body was over in the same moment. Before Python 3.13 the request to cancel is still
        # there, for the next `await`.
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if task.cancelling() > self._cancelling:
                raise
        return False


entered: ContextVar[tuple[Scope, ...]] = ContextVar("quorlock_entered", default=())
"""The blocks that this thread or task is in, innermost last. A lock object may be shared, so this
tells which of its open blocks is being left."""
