"""The public classes `Election` and `Watch`. The native ones do the work."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self, TypeVar

from . import _quorlock
from ._async import result
from ._errors import LeaseLostError
from ._lease import Lease

if TYPE_CHECKING:
    from ._reports import Leader

R = TypeVar("R")


class Election:
    """A candidate for the leader of a resource. Created by `Client.elect`.

    It holds nothing until it is elected. Threads and tasks can share it: each call of `run` is a
    candidate of its own.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _quorlock.Election) -> None:
        self._native = native

    @property
    def resource(self) -> str:
        """The resource whose leader is elected."""
        return self._native.resource

    def run(self, lead: Callable[[Lease], R]) -> R:
        """Calls `lead` with the lease whenever this candidate is elected, and returns its result.
        Waits without a limit to be elected, also while too few nodes can vote.

        `lead` runs in this thread. It should end when the lease is lost: `lease.valid` is False
        then, and `lease.check()` raises LeaseLostError. If `lead` returns or raises that error
        after the loss, the candidate campaigns again. Otherwise, the lease is released, and `run`
        returns what `lead` returned or raises what it raised. `lead` may also give up the lease
        itself: see `Lease.hand_over`.

        Raises ClosedError if the client is closed.
        """
        from . import _deferred

        if _deferred.is_async(lead) or _deferred.is_generator(lead):
            raise TypeError(f"run takes a function that is not async, not {lead!r}: use run_async")
        while True:
            lease = Lease(self._native.next().wait())
            try:
                with lease:
                    led = lead(lease)
                    _deferred.refuse(lead, led, "use run_async")
                return led
            except LeaseLostError:
                if lease._native.loss is None:
                    raise

    async def run_async(self, lead: Callable[[Lease], Awaitable[R]]) -> R:
        """The asyncio form of `run`. When the lease is lost, `lead` is cancelled, at the validity
        end at the latest, and the candidate campaigns again. If `run_async` is cancelled, `lead` is
        cancelled, and the lease is released."""
        while True:
            lease = Lease(await result(self._native.next()))
            try:
                async with lease:
                    return await lead(lease)
            except LeaseLostError:
                if lease._native.loss is None:
                    raise

    def __repr__(self) -> str:
        return f"<quorlock.Election for {_quorlock.shortened(self.resource)!r}>"


class Watch:
    """An observer of the leader of a resource: an iterator and an asynchronous iterator over the
    leaders. Created by `Client.watch`."""

    __slots__ = ("_fence", "_native")

    def __init__(self, native: _quorlock.Watch) -> None:
        self._native = native
        self._fence = 0

    @property
    def resource(self) -> str:
        """The resource whose leader is observed."""
        return self._native.resource

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> "Leader":
        return self._leader(self._native.after(self._fence).wait())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "Leader":
        return self._leader(await result(self._native.after(self._fence)))

    def _leader(self, found: tuple[str, int]) -> "Leader":
        from ._reports import Leader

        holder, self._fence = found
        return Leader(holder, self._fence)

    def __repr__(self) -> str:
        return f"<quorlock.Watch of {_quorlock.shortened(self.resource)!r}>"
