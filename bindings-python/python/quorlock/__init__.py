"""A distributed lock over independent Redis or Valkey masters.

client = quorlock.Client(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])

with client.lock("orders:42") as lease:
    save(order, fence=lease.fence)
"""

import atexit
from typing import TYPE_CHECKING

# Not when it is used first: a fork while another thread imports it would leave the child waiting.
from . import _logging as _logging
from . import _threads as _threads
from ._client import Client, ClientOptions, LockOptions
from ._errors import (
    ClosedError,
    ConfigError,
    LeaseLostError,
    LockTimeoutError,
    NodeReport,
    QuorlockError,
    QuorumError,
)
from ._lease import Lease
from ._lock import Lock
from ._quorlock import __version__, end, release_all

if TYPE_CHECKING:
    from ._reports import Diagnosis, Finding, Histogram, NodeDiagnosis, NodeStats, Stats

__all__ = [
    "Client",
    "ClientOptions",
    "ClosedError",
    "ConfigError",
    "Diagnosis",
    "Finding",
    "Histogram",
    "Lease",
    "LeaseLostError",
    "Lock",
    "LockOptions",
    "LockTimeoutError",
    "NodeDiagnosis",
    "NodeReport",
    "NodeStats",
    "QuorlockError",
    "QuorumError",
    "Stats",
    "__version__",
]


def __getattr__(name: str) -> object:
    """Imports what few programs use, and what takes its time, when it is used."""
    if name in {"Diagnosis", "Finding", "Histogram", "NodeDiagnosis", "NodeStats", "Stats"}:
        from . import _reports

        return getattr(_reports, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# What is registered last is done first. All clients are closed, so nothing is acquired from then
# on, and others need not wait for what is still held to expire; in seconds, for all together.
atexit.register(end)
atexit.register(release_all, 1)
del atexit, end, release_all
