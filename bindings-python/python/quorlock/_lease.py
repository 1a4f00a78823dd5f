"""Leases: locks that are held."""

from datetime import timedelta

from . import _quorlock
from ._async import result

Duration = float | timedelta
"""Seconds, or a `timedelta`."""


class Lease:
    """A held lock. Whoever has the lease owns it: any thread or task may use it.

    A lease that is garbage-collected is released in the background.
    """

    __slots__ = ("__weakref__", "_native")

    def __init__(self, native: _quorlock.Lease) -> None:
        self._native = native

    @property
    def resources(self) -> tuple[str, ...]:
        """What is locked."""
        return (self._native.resource,)

    @property
    def token(self) -> str:
        """The value of the key on the nodes: 40 hexadecimal digits, different for every lease."""
        return self._native.token

    @property
    def fence(self) -> int:
        """The fencing token: larger than that of every earlier lease of the resource, below 2**53.

        Send it with every write, and let the storage refuse a smaller one than it has seen.
        """
        return self._native.fence

    @property
    def valid(self) -> bool:
        """Whether the lock is held now: by the local clock, without asking the nodes.

        Once it is `False`, it stays so.
        """
        return self._native.valid

    @property
    def remaining(self) -> float:
        """How many more seconds the lease is valid; 0.0 if it is not."""
        return self._native.remaining

    def check(self) -> None:
        """Raises LeaseLostError, with the reason, unless the lease is valid."""
        self._native.check()

    def extend(self, ttl: Duration | None = None) -> None:
        """Extends the lease to `ttl` from now (10 ms to 24 h), or by the ttl it was acquired with.

        It is never made shorter. Raises LeaseLostError if the lease is over, and QuorumError if
        too few nodes confirm, and still do not after `connect_timeout`: the lease then stands as
        it was.
        """
        self._native.extend(ttl).wait()

    async def extend_async(self, ttl: Duration | None = None) -> None:
        """`extend` for asyncio. Cancelling it does not stop the extension."""
        await result(self._native.extend(ttl))

    def release(self) -> bool:
        """Releases the lock; it is not valid from this call on, whatever the nodes answer.

        Returns True if the lease was valid until now and a majority of the nodes confirms it;
        False if it was lost or released before, or if too few nodes confirm. Never an error: the
        lock is given up in any case, and nodes that cannot be reached are told in the background.
        """
        return self._native.release().wait()

    async def release_async(self) -> bool:
        """`release` for asyncio. Cancelling it does not stop the release."""
        return await result(self._native.release())

    def __repr__(self) -> str:
        state = f"valid for {self.remaining:.3f} s" if self.valid else "not valid"
        return f"<quorlock.Lease of {self._native.resource!r}, fence {self.fence}, {state}>"
