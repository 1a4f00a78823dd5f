"""The exception and warning classes. The core decides which error is raised, with which code and
message."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple


class NodeReport(NamedTuple):
    """The outcome of an operation at one node."""

    address: str
    """The URL of the node, without user and password."""
    outcome: str
    """`granted`, `confirmed`: the node agreed. `held`: others hold the lock there. `missing`: it
    does not have the lease's key. `timeout`: it did not answer within `node_timeout`. `pending`: it
    had not answered when the other nodes had decided the result. `unreachable`: there was no
    connection. `disconnected`: the connection broke before the answer came. `guarded`: it may have
    restarted recently, see `restart_guard`. `duplicate`: it is the same server as another node.
    `loading`, `readonly`, `masterdown`, `oom`, `misconf`, `noperm`: it answered with this error.
    `refused`: it answered with any other error."""
    detail: str
    """Details, such as the error text of the server. May be empty."""


class QuorlockError(Exception):
    """The base class of all quorlock errors."""

    code: ClassVar[str] = "QUORLOCK"
    """The error code, such as `NO_QUORUM`. It is the same in all languages."""

    def __init__(
        self,
        message: str = "",
        resources: Sequence[str] = (),
        nodes: Sequence[NodeReport] = (),
    ) -> None:
        super().__init__(message)
        self.resources: tuple[str, ...] = tuple(resources)
        """The resources that the error concerns. May be empty."""
        self.nodes: tuple[NodeReport, ...] = tuple(nodes)
        """The outcome of the request at each node. Empty if no request was sent."""

    @property
    def resource(self) -> str | None:
        """The first of `resources`; None if there is none."""
        return self.resources[0] if self.resources else None

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.resources, self.nodes))


class ConfigError(QuorlockError, ValueError):
    """A URL, an option or the node list is invalid."""

    code = "CONFIG"


class LockTimeoutError(QuorlockError, TimeoutError):
    """Others held the lock for the whole `wait`."""

    code = "TIMEOUT"

    def __init__(
        self,
        message: str = "",
        resources: Sequence[str] = (),
        nodes: Sequence[NodeReport] = (),
        holder: str | None = None,
    ) -> None:
        super().__init__(message, resources, nodes)
        self.holder = holder
        """The name that the holder has set, for display only. None if the holder has no name, if
        another program or an earlier version of quorlock holds the lock, or if no single name is
        the most frequent one in the nodes' answers."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.resources, self.nodes, self.holder))


class QuorumError(QuorlockError):
    """Too few nodes could vote: they were unreachable, timed out, guarded or returned an error."""

    code = "NO_QUORUM"


class LeaseLostError(QuorlockError):
    """The lease ended before it was released."""

    code = "LEASE_LOST"

    def __init__(
        self,
        message: str = "",
        resources: Sequence[str] = (),
        nodes: Sequence[NodeReport] = (),
        reason: str | None = None,
    ) -> None:
        super().__init__(message, resources, nodes)
        self.reason = reason
        """Why a lease of this client ended: `expired` (it was not extended in time), `max_hold`,
        `no_heartbeat` (see `heartbeat_timeout`), `taken` (a majority of the nodes does not hold it
        any more), `closed`, `released`, `detached` or `upgraded`. None if the error is about a
        lease of another client."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.resources, self.nodes, self.reason))


class ClosedError(QuorlockError):
    """The client is closed."""

    code = "CLOSED"


# Python ignores a ResourceWarning by default, but shows a RuntimeWarning.


class LeaseDroppedWarning(RuntimeWarning):
    """A lease was garbage-collected while it was valid, as in `if lock.acquire(): ...`: it is not
    renewed any more, and the body runs without the lock once the lease has expired."""


class EventLoopBlockedWarning(RuntimeWarning):
    """A blocking call runs in the thread of an event loop, whose tasks all stop until it returns.
    Use the async form of the call."""


# Tracebacks show these names with the module from which programs import them.
for kind in (
    QuorlockError,
    ConfigError,
    LockTimeoutError,
    QuorumError,
    LeaseLostError,
    ClosedError,
    LeaseDroppedWarning,
    EventLoopBlockedWarning,
):
    kind.__module__ = "quorlock"
del kind
