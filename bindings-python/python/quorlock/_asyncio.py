"""Awaiting the core's operations in asyncio event loops.

This module owns one `Mailbox` per event loop. It must not keep a loop alive: when a loop is closed
or collected, its operations are cancelled. `_async` calls it.
"""

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, ref

from ._hubs import open_inbox
from ._quorlock import Inbox, cork, uncork

# The import of asyncio takes longer than the rest of the package, and programs without an event
# loop do not need it. So all modules import it where they use it.
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable

    from ._quorlock import Pending

T = TypeVar("T")

# Ten years in seconds: longer than any program runs.
_NEVER = 10 * 365 * 86400


class Mailbox:
    """The inbox of one event loop, and the futures that wait for its results.

    Only the event loop keeps a mailbox alive, through the callback that watches the inbox. When the
    loop is closed or collected, the inbox is dropped with it, which cancels the operations in
    progress.
    """

    __slots__ = ("__weakref__", "inbox", "waiting")

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        # The futures of operations in progress. The core has only weak references to them, because
        # strong ones would keep the loop alive.
        self.waiting: set[asyncio.Future[None]] = set()

    def deliver(self) -> None:
        """Completes the futures and schedules the callbacks of all results in the inbox.

        Runs in the event loop.
        """
        results = self.inbox.take()
        for target, loss in results:
            if loss is not None:
                # Schedule the callback instead of calling it. If it raises, the loop reports the
                # exception, and the other results are still delivered.
                _running().call_soon(target, loss)
            elif (future := target()) is not None and not future.done():
                future.set_result(None)
        if len(results) > 1:
            # The tasks that wait for these results often start the next operations. They send their
            # requests together.
            cork()
            _running().call_soon(uncork)


_mailboxes: "WeakKeyDictionary[asyncio.AbstractEventLoop, ref[Mailbox]]" = WeakKeyDictionary()


def inbox() -> Inbox:
    return _mailbox(_running()).inbox


async def result(pending: "Pending[T]") -> T:
    loop = _running()
    future: asyncio.Future[None] = loop.create_future()
    mailbox = _mailbox(loop)
    waiting = mailbox.waiting
    waiting.add(future)
    completing = pending.complete(mailbox.inbox, ref(future))
    # An unfinished coroutine must not keep the mailbox alive when the loop is closed.
    del mailbox, loop
    try:
        await future
        return completing.take()
    finally:
        # `cancel` has no effect after `take`. If this coroutine was cancelled, `cancel` drops a
        # result that arrived at the same moment.
        completing.cancel()
        waiting.discard(future)


async def result_within(pending: "Pending[T]", seconds: float | None) -> T | None:
    import asyncio

    try:
        async with asyncio.timeout(seconds):
            return await result(pending)
    except TimeoutError:
        return None


def finish(pending: "Pending[T]") -> "Awaitable[T]":
    # A cancelled task can wait until it is cancelled again.
    return result(pending)


def body() -> "Body":
    return Body()


class Body:
    """The body of an `async with` block. It is cancelled in the same way as by asyncio.timeout."""

    __slots__ = ("_cancelled", "_cancelling", "_task")

    def __init__(self) -> None:
        import asyncio

        task = asyncio.current_task()
        # Weak: the `on_lost` callback must not keep a task alive that is discarded with its loop.
        self._task = None if task is None else ref(task)
        self._cancelling = 0 if task is None else task.cancelling()
        self._cancelled = False

    def cancel(self, loss: BaseException) -> None:
        if (task := self._owner()) is not None:
            self._cancelled = task.cancel(str(loss))

    async def end(self, error: BaseException | None) -> bool:
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

    def _owner(self) -> "asyncio.Task[object] | None":
        return None if self._task is None else self._task()


def _mailbox(loop: "asyncio.AbstractEventLoop") -> Mailbox:
    own = _mailboxes.get(loop)
    mailbox = None if own is None else own()
    if mailbox is None:
        mailbox = _open(loop)
        _mailboxes[loop] = ref(mailbox)
    return mailbox


def _running() -> "asyncio.AbstractEventLoop":
    import asyncio

    return asyncio.get_running_loop()


def running_loop() -> "asyncio.AbstractEventLoop | None":
    """Returns the event loop that runs in this thread, if there is one."""
    # If asyncio was not imported, or its import is not finished, no event loop runs.
    events = sys.modules.get("asyncio.events")
    try:
        return events.get_running_loop() if events else None
    except (AttributeError, RuntimeError):
        return None


def running_task() -> "asyncio.Task[Any] | None":
    """Returns the task that runs in this thread, if there is one."""
    # If asyncio was not imported, or its import is not finished, no task runs.
    tasks = sys.modules.get("asyncio.tasks")
    if tasks is None or not hasattr(tasks, "current_task"):
        return None
    # Returns None if no loop runs. The public `get_running_loop` raises an exception instead.
    loop = tasks.events._get_running_loop()
    task: asyncio.Task[Any] | None = None if loop is None else tasks.current_task(loop)
    return task


def _open(loop: "asyncio.AbstractEventLoop") -> Mailbox:
    try:
        mailbox = Mailbox(open_inbox())
        fileno = mailbox.inbox.fileno()
        assert fileno is not None
        loop.add_reader(fileno, mailbox.deliver)
    except NotImplementedError:
        # Windows has no Unix sockets, and its event loop cannot watch sockets.
        return _open_without_socket(loop)
    return mailbox


def _open_without_socket(loop: "asyncio.AbstractEventLoop") -> Mailbox:
    """Opens a mailbox for an event loop that cannot watch sockets. A thread wakes up the loop."""
    weak_loop = ref(loop)

    def wake_up() -> None:
        loop = weak_loop()
        own = None if loop is None else _mailboxes.get(loop)
        mailbox = None if own is None else own()
        if loop is not None and mailbox is not None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(mailbox.deliver)

    mailbox = Mailbox(Inbox(wake_up))
    # The pending timer makes the loop refer to the mailbox until the loop is closed.
    loop.call_later(_NEVER, mailbox.deliver)
    return mailbox
