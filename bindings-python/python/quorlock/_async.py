"""Awaiting the core's operations under asyncio or trio.

This module finds the library that runs the caller. `_asyncio` and `_trio` have the same functions,
which do the work. It must not import asyncio or trio unless the program has imported them. The
`_async` methods and `_scope` call it.
"""

import sys
from typing import TYPE_CHECKING, TypeVar

# Imported here, not on first use: a child that is forked during an import would wait forever.
from . import _asyncio

T = TypeVar("T")

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import FrameType
    from typing import Protocol

    from ._quorlock import Inbox, Pending

    class Body(Protocol):
        """The body of an `async with` block. It begins when the object is created."""

        def cancel(self, loss: BaseException) -> None:
            """Cancels the body."""

        async def end(self, error: BaseException | None) -> bool:
            """Ends the body, which raised `error`. Returns whether it was cancelled by `cancel`,
            and for no other reason."""

    class Library(Protocol):
        """What `_asyncio` and `_trio` have in common."""

        def inbox(self) -> "Inbox":
            """Returns the inbox of the running event loop."""

        def result(self, pending: "Pending[T]") -> Awaitable[T]:
            """Awaits an operation of the core and returns its result. Cancellation cancels an
            acquire."""

        def result_within(
            self, pending: "Pending[T]", seconds: float | None
        ) -> Awaitable[T | None]:
            """Awaits an operation for at most `seconds`. Returns None if it is not done by then."""

        def finish(self, pending: "Pending[T]") -> Awaitable[T]:
            """Awaits an operation at the end of a block, also of one that was cancelled."""

        def body(self) -> Body:
            """Begins the body of a block in the running task."""


def library() -> "Library":
    """Returns the library that runs the caller. Raises RuntimeError if there is none."""
    running = current()
    if running is None:
        raise RuntimeError(
            "the async methods of quorlock need asyncio or trio, and neither runs here: under "
            "another library, such as curio, call the blocking method in a thread"
        )
    return running


def current() -> "Library | None":
    """Returns the library that runs the caller, if there is one."""
    if trio_task() is not None:
        from . import _trio

        return _trio
    return _asyncio if _asyncio.running_loop() is not None else None


def result(pending: "Pending[T]") -> "Awaitable[T]":
    """Awaits an operation of the core and returns its result. Cancellation cancels an acquire."""
    running: Library = library()
    return running.result(pending)


def task() -> object | None:
    """Returns the running task of asyncio or trio, if there is one."""
    running = trio_task()
    return _asyncio.running_task() if running is None else running


def trio_task() -> object | None:
    """Returns the running trio task, if trio runs the caller."""
    lowlevel = sys.modules.get("trio.lowlevel")
    if lowlevel is None:
        return None
    try:
        running: object = lowlevel.current_task()
    except (AttributeError, RuntimeError):  # the import is not finished, or no task runs
        return None
    if _asyncio.running_task() is not None and not _is_trio_innermost():
        return None
    return running


def _is_trio_innermost() -> bool:
    """Returns whether trio runs inside an asyncio task, and not asyncio inside a trio task."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package in ("trio", "asyncio", "trio_asyncio"):
            return package == "trio"
        frame = frame.f_back
    return False
