"""The options: their names and types, and keyword arguments whose default another object has.

`Client` describes the options in its docstrings. The core has their defaults and checks their
values, so only the options that the caller gave are passed on.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Literal, Required, TypedDict

Duration = float | timedelta
"""Seconds, or a `timedelta`."""

Mode = Literal["exclusive", "shared"]
"""How a lock holds a resource: alone, or together with others in shared mode."""

Login = tuple[str | None, str]
"""A user, or None for the default user, and a password."""

Credentials = Callable[[str], Login | Awaitable[Login]]
"""Takes the address of a node."""


class LeaseOptions(TypedDict, total=False):
    """Options of whatever acquires a lease, and of a client for all of these."""

    ttl: Duration
    auto_extend: bool
    heartbeat_timeout: Duration | None
    max_hold: Duration | None
    holder: str | None
    keep: Duration | None


class AcquireOptions(LeaseOptions, total=False):
    """Options of an acquire that may stop waiting, and of a client for these."""

    wait: Duration | None


class LockOptions(AcquireOptions, total=False):
    """Options of a single lock: see `Client.lock`."""

    mode: Mode | dict[str, Mode]


class SemaphoreOptions(AcquireOptions, total=False):
    """Options of a semaphore: see `Client.semaphore`."""

    limit: Required[int]
    permits: int


class ClientOptions(AcquireOptions, total=False):
    """Options of a client, and the defaults for its locks: see `Client`."""

    node_timeout: Duration | None
    connect_timeout: Duration
    drift_factor: float
    retry_delay: tuple[Duration, Duration]
    restart_guard: Duration | None
    key_prefix: str
    credentials: Credentials | None


class _Inherited:
    """The default of a keyword argument: the value that another object has."""

    __slots__ = ("_source",)

    def __init__(self, source: str) -> None:
        self._source = source

    def __repr__(self) -> str:
        return f"<that of the {self._source}>"


LOCK: Any = _Inherited("lock")
SEMAPHORE: Any = _Inherited("semaphore")


def given(**options: Any) -> dict[str, Any]:
    """Returns the keyword arguments that the caller gave."""
    return {name: value for name, value in options.items() if not isinstance(value, _Inherited)}
