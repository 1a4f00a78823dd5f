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

_ITERATE = "iterate it in the function"


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

        _check_lead("run", lead)
        if _deferred.is_async(lead):
            raise TypeError(f"run takes a function that is not async, not {lead!r}: use run_async")
        while True:
            lease = Lease(self._native.next().wait())
            try:
                with lease:
                    led = lead(lease)
                    _deferred.refuse(lead, led, "use run_async", _ITERATE)
                return led
            except LeaseLostError:
                if lease._native.loss is None:
                    raise

    async def run_async(self, lead: Callable[[Lease], Awaitable[R]]) -> R:
        """The async form of `run`. When the lease is lost, `lead` is cancelled, at the validity
        end at the latest, and the candidate campaigns again. If `run_async` is cancelled, `lead` is
        cancelled, and the lease is released.

        Raises TypeError, as `run` does, for a `lead` whose body would run after the lease is
        released: a generator, or a function whose result is another awaitable."""
        import inspect

        from . import _deferred

        _check_lead("run_async", lead)
        while True:
            lease = Lease(await result(self._native.next()))
            try:
                async with lease:
                    leading = lead(lease)
                    if not inspect.isawaitable(leading):
                        _deferred.refuse(lead, leading, iterate_instead=_ITERATE)
                        raise TypeError(f"run_async takes an async function, not {lead!r}: use run")
                    led = await leading
                    _deferred.refuse(lead, led, "await it in the function", _ITERATE)
                return led
            except LeaseLostError:
                if lease._native.loss is None:
                    raise

    if not TYPE_CHECKING:

        def __bool__(self) -> bool:
            from . import _misuse

            raise _misuse.no_truth_value(self, "call `run` with the function that leads")

    def __repr__(self) -> str:
        return f"<quorlock.Election for {_quorlock.shortened(self.resource)!r}>"


def _check_lead(method: str, lead: object) -> None:
    """Raises TypeError for what cannot lead, before the candidate campaigns."""
    from . import _deferred

    if not callable(lead):
        raise TypeError(f"{method} takes a function to run as the leader, not {lead!r}")
    if _deferred.is_generator(lead):
        raise TypeError(
            f"{method} takes a function that is not a generator, not {lead!r}: its body would run "
            "after the lock is released"
        )


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
