"""Results of the core in event loops."""

import sys
from typing import TYPE_CHECKING, TypeVar

from ._quorlock import Inbox

# Programs without event loops need no asyncio, whose import takes longer than all the rest. So it
# is imported where it is used, here and in other modules.
if TYPE_CHECKING:
    import asyncio
    from weakref import WeakKeyDictionary

    from ._quorlock import Pending

T = TypeVar("T")

# An event loop that nobody uses any more takes its inbox with it.
_inboxes: "WeakKeyDictionary[asyncio.AbstractEventLoop, Inbox] | None" = None


async def result(pending: "Pending[T]") -> T:
    """Waits for an operation of the core. Cancelling it cancels an acquire."""
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    completing = pending.complete(inbox_of(loop), future)
    try:
        return await future
    finally:
        # Cancelled, perhaps in the moment in which the result came in: a lease is released when
        # nothing refers to it, so the traceback must not.
        completing.cancel()
        del future


def inbox_of(loop: "asyncio.AbstractEventLoop") -> Inbox:
    """Where results for this event loop come in."""
    inboxes = _all_inboxes()
    inbox = inboxes.get(loop)
    if inbox is None:
        inbox = _open(loop)
        inboxes[loop] = inbox
    return inbox


def _all_inboxes() -> "WeakKeyDictionary[asyncio.AbstractEventLoop, Inbox]":
    global _inboxes
    if _inboxes is None:
        from weakref import WeakKeyDictionary

        _inboxes = WeakKeyDictionary()
    return _inboxes


def running_loop() -> "asyncio.AbstractEventLoop | None":
    """The event loop that this runs in, if there is one."""
    # Where asyncio was not imported, or not to its end, no event loop runs.
    events = sys.modules.get("asyncio.events")
    try:
        return events.get_running_loop() if events else None
    except (AttributeError, RuntimeError):
        return None


def _open(loop: "asyncio.AbstractEventLoop") -> Inbox:
    inbox = Inbox(None)
    if (socket := inbox.fileno()) is not None:
        try:
            loop.add_reader(socket, _deliver, loop, inbox)
        except NotImplementedError:
            pass
        else:
            return inbox
    # An event loop that watches no sockets, as that of Windows.
    from weakref import ref

    weak_loop = ref(loop)

    def ring() -> None:
        if (loop := weak_loop()) is not None and (inbox := _all_inboxes().get(loop)) is not None:
            loop.call_soon_threadsafe(_deliver, loop, inbox)

    return Inbox(ring)


def _deliver(loop: "asyncio.AbstractEventLoop", inbox: Inbox) -> None:
    """Runs in the event loop: hands out the results that came in since its last turn."""
    import asyncio

    for target, value, error in inbox.take():
        if not asyncio.isfuture(target):
            # An exception of this function is the loop's to report, and not in the others' way.
            loop.call_soon(target, value)
        elif target.done():
            continue
        elif error is None:
            target.set_result(value)
        else:
            target.set_exception(error)
