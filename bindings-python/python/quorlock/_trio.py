"""Awaiting the core's operations under trio.

This module owns one `Mailbox` per `trio.run`. `_async` imports it when a trio task calls, and only
then: it imports trio.
"""

import math
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar
from weakref import ref

import trio
from trio.lowlevel import Abort, RunVar, Task, current_task, current_trio_token

from ._interrupts import uninterrupted
from ._quorlock import Inbox, Worker

if TYPE_CHECKING:
    from ._quorlock import Pending

T = TypeVar("T")


class Mailbox:
    """The inbox of one `trio.run`, and the tasks that wait for its results.

    Only the run keeps a mailbox alive. When the run ends, the inbox is dropped, which cancels the
    operations in progress.

    A thread wakes up the run. A system task that watches a socket would end too early: trio ends
    system tasks at the end of the main task, while other tasks still release their leases.
    """

    __slots__ = ("__weakref__", "inbox", "waiting")

    def __init__(self) -> None:
        weak_self, token = ref(self), current_trio_token()

        def deliver() -> None:
            if (mailbox := weak_self()) is not None:
                mailbox.deliver()

        def wake_up() -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(deliver)

        self.inbox = Inbox(wake_up)
        # The tasks by the objects that the core delivers for them.
        self.waiting: dict[object, Task] = {}

    def deliver(self) -> None:
        """Resumes the tasks and calls the callbacks of all results in the inbox.

        Runs in the thread of the run.
        """
        for target, loss in self.inbox.take():
            if loss is None:
                # A cancelled task does not wait any more.
                if (task := self.waiting.pop(target, None)) is not None:
                    trio.lowlevel.reschedule(task)
                continue
            try:
                target(loss)
            except BaseException as error:
                # Raised here, it would end the whole run.
                Worker.report(target, error)


_mailbox: RunVar[Mailbox] = RunVar("quorlock")


def inbox() -> Inbox:
    return _own_mailbox().inbox


async def result(pending: "Pending[T]") -> T:
    mailbox, target = _own_mailbox(), object()
    completing = pending.complete(mailbox.inbox, target)
    mailbox.waiting[target] = current_task()

    def abort(_: object) -> Abort:
        del mailbox.waiting[target]
        return Abort.SUCCEEDED

    try:
        await trio.lowlevel.wait_task_rescheduled(abort)
        return completing.take()
    finally:
        # `cancel` has no effect after `take`. If the task was cancelled, `cancel` drops a result
        # that arrived at the same moment.
        completing.cancel()


async def result_within(pending: "Pending[T]", seconds: float | None) -> T | None:
    with trio.move_on_after(math.inf if seconds is None else seconds):
        return await result(pending)
    return None


async def finish(pending: "Pending[T]") -> T:
    # In a cancelled scope, trio would cancel each wait.
    with trio.CancelScope(shield=True):
        return await result(pending)
    raise AssertionError("the shield was cancelled")


def body() -> "Body":
    return Body()


class Body:
    """The body of an `async with` block, in a cancel scope."""

    __slots__ = ("_scope", "_task")

    def __init__(self) -> None:
        scope = trio.CancelScope()
        scope.__enter__()
        # Weak, as the task is in `_asyncio.Body`. The task keeps its open scopes alive.
        self._scope = ref(scope)
        self._task = ref(current_task())

    def cancel(self, loss: BaseException) -> None:
        if (scope := self._scope()) is not None:
            scope.cancel()

    async def end(self, error: BaseException | None) -> bool:
        scope = self._scope()
        if scope is None or (isinstance(error, GeneratorExit) and not self._is_own_task()):
            # The coroutine is being closed, perhaps after its run.
            return False
        traceback = None if error is None else error.__traceback__
        # Raises the other errors of a group, without its cancellations.
        scope.__exit__(None if error is None else type(error), error, traceback)
        return bool(scope.cancelled_caught)

    def _is_own_task(self) -> bool:
        with suppress(RuntimeError):  # no task runs
            return current_task() is self._task()
        return False


def _own_mailbox() -> Mailbox:
    try:
        mailbox: Mailbox = _mailbox.get()
    except LookupError:
        mailbox = Mailbox()
        _mailbox.set(mailbox)
    return mailbox


for function in [*uninterrupted, result]:
    trio.lowlevel.enable_ki_protection(function)
