"""The public class `Semaphore`. The native class does the work, including the `with` statement."""

from typing import TYPE_CHECKING, Never

from . import _quorlock
from ._async import result
from ._lease import Lease
from ._lock import Acquirable
from ._options import SEMAPHORE, Duration

if TYPE_CHECKING:
    from ._reports import SemaphoreStatus


class Semaphore(Acquirable, _quorlock.Semaphore):
    """The permits of a resource, of which at most `limit` are held at the same time. Created by
    `Client.semaphore`.

    It holds no state of its own, so threads and tasks can share it: every acquire or `with` block
    creates its own lease, of `permits` permits. `Lease.slots` has their numbers.

    The permits are independent of the lock on the same resource. Semaphores are not re-entrant: a
    thread or task that acquires twice gets two permits, or waits for itself.
    """

    __slots__ = ()

    def acquire(
        self,
        *misplaced: Never,
        wait: Duration | None = SEMAPHORE,
        permits: int = SEMAPHORE,
        **foreign: Never,
    ) -> Lease:
        """Acquires the permits, all or none, and returns the lease. Waits for at most `wait` while
        others hold too many. Waiters are served in the order of their arrival, so that one that
        wants several permits is not overtaken forever.

        `wait` is in seconds, or a `timedelta`: 0 tries once, None waits forever. `permits` is 1 to
        the limit. The defaults are those of the semaphore.

        Raises LockTimeoutError if others held too many permits for the whole `wait`, QuorumError if
        too few nodes can vote and this lasts for `connect_timeout` or `wait`, whichever is shorter,
        ConfigError for an invalid option, and ClosedError if the client is closed.
        """
        return self._hold(self._acquire_options(misplaced, foreign, wait=wait, permits=permits))

    async def acquire_async(
        self,
        *misplaced: Never,
        wait: Duration | None = SEMAPHORE,
        permits: int = SEMAPHORE,
        **foreign: Never,
    ) -> Lease:
        """The async form of `acquire`. If it is cancelled, no permit stays held on reachable
        nodes."""
        options = self._acquire_options(misplaced, foreign, wait=wait, permits=permits)
        return Lease(await self._observed(self._acquire, options))

    @property
    def resource(self) -> str:
        """The resource whose permits are acquired."""
        return self._resource

    @property
    def limit(self) -> int:
        """The largest number of permits that are held at the same time."""
        return self._limit

    @property
    def permits(self) -> int:
        """The number of permits that each acquire gets by default."""
        return self._permits

    def status(self) -> "SemaphoreStatus":
        """Asks all nodes who holds the permits, how many are free, and how many clients wait.
        Changes nothing on the nodes. The result may be out of date on return.

        Raises QuorumError if fewer than a majority of the nodes answer, and ClosedError if the
        client is closed.
        """
        from ._reports import SemaphoreStatus

        return SemaphoreStatus._of(self._status().wait())

    async def status_async(self) -> "SemaphoreStatus":
        """The async form of `status`."""
        from ._reports import SemaphoreStatus

        return SemaphoreStatus._of(await result(self._status()))

    def __repr__(self) -> str:
        name = _quorlock.shortened(self.resource)
        return f"<quorlock.Semaphore on {name!r}, limit {self.limit}>"
