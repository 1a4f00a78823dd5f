"""The error table. The texts and the decisions come from the core; these are their classes."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple


class NodeReport(NamedTuple):
    """One node's part in an error."""

    address: str
    """The node's URL, without user and password."""
    outcome: str
    """`granted`, `held`, `confirmed`, `missing`; `guarded` (it may have restarted not long ago, see
    `restart_guard`), `duplicate` (it is the same server as another node); `timeout`,
    `disconnected`, `unreachable`; the server's error: `loading`, `readonly`, `masterdown`, `oom`,
    `misconf`, `noperm`, or `refused` for any other; or `pending` (it had not answered when the
    decision was made without it)."""
    detail: str
    """More about it, such as the server's error text; may be empty."""


class QuorlockError(Exception):
    """The base of all errors of quorlock."""

    code: ClassVar[str] = "QUORLOCK"
    """What kind of error it is, such as `NO_QUORUM`: the same in every language."""

    def __init__(
        self,
        message: str = "",
        resources: Sequence[str] = (),
        nodes: Sequence[NodeReport] = (),
    ) -> None:
        super().__init__(message)
        self.resources: tuple[str, ...] = tuple(resources)
        """The resources it is about; empty if it is about none."""
        self.nodes: tuple[NodeReport, ...] = tuple(nodes)
        """What became of the request at each node; empty if none was asked."""

    @property
    def resource(self) -> str | None:
        """The first of `resources`."""
        return self.resources[0] if self.resources else None

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.resources, self.nodes))


class ConfigError(QuorlockError, ValueError):
    """A bad URL, option or node list."""

    code = "CONFIG"


class LockTimeoutError(QuorlockError, TimeoutError):
    """Others held the lock for the whole `wait`."""

    code = "TIMEOUT"


class QuorumError(QuorlockError):
    """Too few nodes could vote: unreachable, timed out, guarded or refusing."""

    code = "NO_QUORUM"


class LeaseLostError(QuorlockError):
    """The lease ended before the work did."""

    code = "LEASE_LOST"


class ClosedError(QuorlockError):
    """The client is closed."""

    code = "CLOSED"
