"""Awaiting the core's operations in asyncio event loops.

This module owns one `Mailbox` per event loop. It must not keep a loop alive: when a loop is closed
or collected, its operations are cancelled. The `_async` methods and `_scope` call it.
"""

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from ._hubs import open_inbox
from ._quorlock import Inbox

# The import of asyncio takes longer than the rest of the package, and programs without an event
# loop do not need it. So all modules import it where they use it.
if TYPE_CHECKING:
    import asyncio
    from weakref import WeakKeyDictionary, ref

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
        for target, loss in self.inbox.take():
            if loss is not None:
                # Schedule the callback instead of calling it. If it raises, the loop reports the
                # exception, and the other results are still delivered.
                _running().call_soon(target, loss)
            elif (future := target()) is not None and not future.done():
                future.set_result(None)


_shared: "dict[str, WeakKeyDictionary[asyncio.AbstractEventLoop, ref[Mailbox]]]" = {}
"""The mailboxes of all event loops, as the entry `mailboxes`."""


async def result(pending: "Pending[T]") -> T:
    """Awaits an operation of the core and returns its result. Cancellation cancels an acquire."""
    from weakref import ref

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


def inbox_of(loop: "asyncio.AbstractEventLoop") -> Inbox:
    """Returns the inbox of the event loop."""
    return _mailbox(loop).inbox


def _mailbox(loop: "asyncio.AbstractEventLoop") -> Mailbox:
    mailboxes = _all_mailboxes()
    own = mailboxes.get(loop)
    mailbox = None if own is None else own()
    if mailbox is None:
        from weakref import ref

        mailbox = _open(loop)
        mailboxes[loop] = ref(mailbox)
    return mailbox


def _all_mailboxes() -> "WeakKeyDictionary[asyncio.AbstractEventLoop, ref[Mailbox]]":
    mailboxes = _shared.get("mailboxes")
    if mailboxes is None:
        from weakref import WeakKeyDictionary

        # The event loops of several threads may get here at the same time.
        mailboxes = _shared.setdefault("mailboxes", WeakKeyDictionary())
    return mailboxes


def _running() -> "asyncio.AbstractEventLoop":
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "the async methods of quorlock need a running asyncio event loop, and there is none "
            "here (trio and curio have none): call the blocking method in a thread instead, such "
            "as `await trio.to_thread.run_sync(lock.acquire)`"
        ) from None


def running_loop() -> "asyncio.AbstractEventLoop | None":
    """Returns the event loop that runs in this thread, if there is one."""
    # If asyncio was not imported, or its import is not finished, no event loop runs.
    events = sys.modules.get("asyncio.events")
    try:
        return events.get_running_loop() if events else None
    except (AttributeError, RuntimeError):
        return None


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
    from weakref import ref

    weak_loop = ref(loop)

    def wake_up() -> None:
        loop = weak_loop()
        own = None if loop is None else _all_mailboxes().get(loop)
        mailbox = None if own is None else own()
        if loop is not None and mailbox is not None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(mailbox.deliver)

    mailbox = Mailbox(Inbox(wake_up))
    # The pending timer makes the loop refer to the mailbox until the loop is closed.
    loop.call_later(_NEVER, mailbox.deliver)
    return mailbox
