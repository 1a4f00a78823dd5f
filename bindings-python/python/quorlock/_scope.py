"""Tracks the blocks that hold a lease, and cancels an async block whose lease is lost.

This module owns the list of open blocks of each thread or task. `_lock`, `_lease` and the native
`scope` module call it.
"""

import _thread
from contextvars import ContextVar
from typing import TYPE_CHECKING
from weakref import ref

from ._async import library, task

if TYPE_CHECKING:
    from contextvars import Token

    from ._async import Body
    from ._quorlock import LeaseBlock


def owner() -> int:
    """Returns a unique number for the running task of asyncio or trio, or for the thread if there
    is none."""
    running = task()
    return _thread.get_ident() if running is None else id(running)


class Scope:
    """One `with` or `async with` block, from its entry to its exit."""

    __slots__ = ("__weakref__", "_body", "is_left", "lease", "owner", "token")

    token: "Token[tuple[ref[Scope], ...]]"
    """The token of the entry. Shows whether a context is the one in which the block was entered,
    and not a copy of it. Not set before the entry."""

    def __init__(self, lease: "LeaseBlock") -> None:
        self.lease = lease
        self.owner = owner()
        """The thread or task that entered the block."""
        self._body: Body | None = None
        self.is_left = False
        """Set at the exit of the block. From then on the body is not cancelled, and the lease is
        not the current one, also where the context was copied."""

    def cancel_on_loss(self) -> None:
        """Makes the loss of the lease cancel the current task, until the block is left."""
        running = library()
        inbox = running.inbox()
        self._body = running.body()
        reference = ref(self)

        def cancel(loss: BaseException) -> None:
            # A strong reference would keep the lease of a block that nobody can leave any more.
            if (scope := reference()) is not None:
                scope._cancel(loss)

        self.lease._native.on_lost(inbox, cancel)

    async def leave(self, error: BaseException | None) -> None:
        """Releases the lease at the end of an async block. Raises LeaseLostError if it was lost,
        unless the block raised an `error` of its own."""
        releasing = self.lease._native.release()
        if self._body is not None:
            try:
                was_cancelled = await self._body.end(error)
            except BaseException as rest:
                # The errors of a group, without the cancellations that the loss has caused.
                self.lease._native.note_loss(rest)
                raise
            if was_cancelled:
                self._check_not_lost(error)
        if isinstance(error, GeneratorExit):
            # The coroutine is being closed, perhaps after its event loop, and must not await. The
            # release goes on in the background.
            return
        await library().finish(releasing)
        if error is None:
            self._check_not_lost()
        else:
            self.lease._native.note_loss(error)

    def _cancel(self, loss: BaseException) -> None:
        if self._body is not None and not self.is_left:
            self._body.cancel(loss)

    def _check_not_lost(self, cause: BaseException | None = None) -> None:
        if (loss := self.lease._native.loss) is not None:
            raise loss from cause


entered: ContextVar[tuple[ref[Scope], ...]] = ContextVar("quorlock_entered", default=())
"""The open blocks of this thread or task, innermost last.

Threads and tasks may share a lock object. This variable tells which of its open blocks is being
left. It does not keep a block alive: a block that nobody can leave any more, such as that of an
`ExitStack` that was dropped, is garbage, and so is its lease."""
