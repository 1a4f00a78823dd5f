"""Results of the core in event loops."""

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from ._quorlock import Inbox

# Programs without event loops need no asyncio, whose import takes longer than all the rest. So it
# is imported where it is used, here and in other modules.
if TYPE_CHECKING:
    import asyncio
    from weakref import WeakKeyDictionary, ref

    from ._quorlock import Pending

T = TypeVar("T")

# Far longer than any program runs, in seconds: ten years.
_NEVER = 10 * 365 * 86400


class Mailbox:
    """Where results for one event loop come in, and the futures that wait for them.

    Only the event loop refers to it: by what it watches the inbox with. When the loop is closed or
    collected, the inbox goes with it, and what is under way is cancelled.
    """

    __slots__ = ("__weakref__", "inbox", "waiting")

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        # The core refers to these weakly. Else it would keep the loop, too.
        self.waiting: set[asyncio.Future[None]] = set()

    def deliver(self) -> None:
        """Runs in the event loop: wakes what the results that came in are for."""
        for target, loss in self.inbox.take():
            if loss is not None:
                # An exception of this function is the loop's to report, and not in the others' way.
                _running().call_soon(target, loss)
            elif (future := target()) is not None and not future.done():
                future.set_result(None)


_mailboxes: "WeakKeyDictionary[asyncio.AbstractEventLoop, ref[Mailbox]] | None" = None


async def result(pending: "Pending[T]") -> T:
    """Waits for an operation of the core. Cancelling it cancels an acquire."""
    from weakref import ref

    loop = _running()
    future: asyncio.Future[None] = loop.create_future()
    mailbox = _mailbox(loop)
    waiting = mailbox.waiting
    waiting.add(future)
    completing = pending.complete(mailbox.inbox, ref(future))
    # A coroutine that is never finished must not keep it when the loop is closed.
    del mailbox, loop
    try:
        await future
        return completing.take()
    finally:
        # Cancelled, perhaps in the moment in which the result came in: nobody has taken it then.
        completing.cancel()
        waiting.discard(future)


def inbox_of(loop: "asyncio.AbstractEventLoop") -> Inbox:
    """Where results for this event loop come in."""
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
    global _mailboxes
    if _mailboxes is None:
        from weakref import WeakKeyDictionary

        _mailboxes = WeakKeyDictionary()
    return _mailboxes


def _running() -> "asyncio.AbstractEventLoop":
    import asyncio

    return asyncio.get_running_loop()


def running_loop() -> "asyncio.AbstractEventLoop | None":
    """The event loop that this runs in, if there is one."""
    # Where asyncio was not imported, or not to its end, no event loop runs.
    events = sys.modules.get("asyncio.events")
    try:
        return events.get_running_loop() if events else None
    except (AttributeError, RuntimeError):
        return None


def _open(loop: "asyncio.AbstractEventLoop") -> Mailbox:
    try:
        mailbox = Mailbox(Inbox(None))
        fileno = mailbox.inbox.fileno()
        assert fileno is not None
        loop.add_reader(fileno, mailbox.deliver)
    except NotImplementedError:
        # Windows has no such sockets, and its event loop watches none.
        return _open_without_socket(loop)
    return mailbox


def _open_without_socket(loop: "asyncio.AbstractEventLoop") -> Mailbox:
    """For an event loop that watches no sockets: a thread wakes it."""
    from weakref import ref

    weak_loop = ref(loop)

    def ring() -> None:
        loop = weak_loop()
        own = None if loop is None else _all_mailboxes().get(loop)
        mailbox = None if own is None else own()
        if loop is not None and mailbox is not None:
            with suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(mailbox.deliver)

    mailbox = Mailbox(Inbox(ring))
    # So that the loop refers to it, until it is closed.
    loop.call_later(_NEVER, mailbox.deliver)
    return mailbox
