"""Results of the core in event loops."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ._quorlock import Pending

T = TypeVar("T")


async def result(pending: "Pending[T]") -> T:
    """Waits for an operation of the core. Cancelling it cancels an acquire."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    completing = pending.complete(loop, future)
    try:
        return await future
    finally:
        # Cancelled, perhaps in the moment in which the result came in: a lease is released when
        # nothing refers to it, so the traceback must not.
        completing.cancel()
        del future


def deliver(
    results: Iterable[
        tuple["asyncio.Future[Any] | Callable[[Any], object]", Any, BaseException | None]
    ],
) -> None:
    """Runs in the event loop: hands out the results that came in since its last turn."""
    for target, value, error in results:
        if not asyncio.isfuture(target):
            # An exception of this function is the loop's to report, and not in the others' way.
            asyncio.get_running_loop().call_soon(target, value)
        elif target.done():
            continue
        elif error is None:
            target.set_result(value)
        else:
            target.set_exception(error)
