"""A distributed lock over independent Redis or Valkey masters.

client = quorlock.Client(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])

with client.lock("orders:42") as lease:
    save(order, fence=lease.fence)
"""

import atexit
from typing import TYPE_CHECKING

# Imported here, not on first use: a child that is forked during an import would wait forever.
from . import _logging as _logging
from . import _threads as _threads
from ._client import Client, ClientOptions, LockOptions, SemaphoreOptions
from ._election import Election, Watch
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
from ._semaphore import Semaphore

if TYPE_CHECKING:
    from ._reports import (
        Diagnosis,
        Finding,
        Histogram,
        Leader,
        NodeDiagnosis,
        NodeStats,
        NodeStatus,
        PermitHolder,
        PermitNode,
        Reader,
        SemaphoreStatus,
        Setting,
        Stats,
        Status,
    )

__all__ = [
    "Client",
    "ClientOptions",
    "ClosedError",
    "ConfigError",
    "Diagnosis",
    "Election",
    "Finding",
    "Histogram",
    "Leader",
    "Lease",
    "LeaseLostError",
    "Lock",
    "LockOptions",
    "LockTimeoutError",
    "NodeDiagnosis",
    "NodeReport",
    "NodeStats",
    "NodeStatus",
    "PermitHolder",
    "PermitNode",
    "QuorlockError",
    "QuorumError",
    "Reader",
    "Semaphore",
    "SemaphoreOptions",
    "SemaphoreStatus",
    "Setting",
    "Stats",
    "Status",
    "Watch",
    "__version__",
]


_REPORTS = {
    "Diagnosis",
    "Finding",
    "Histogram",
    "Leader",
    "NodeDiagnosis",
    "NodeStats",
    "NodeStatus",
    "PermitHolder",
    "PermitNode",
    "Reader",
    "SemaphoreStatus",
    "Setting",
    "Stats",
    "Status",
}


def __getattr__(name: str) -> object:
    """Imports the report classes on first use: few programs need them, and the import is slow."""
    if name in _REPORTS:
        from . import _reports

        return getattr(_reports, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# Exit handlers run in reverse order, so `release_all` runs first. It closes all clients and
# releases their leases, so that other processes need not wait for them to expire. It takes at most
# 1 second.
atexit.register(end)
atexit.register(release_all, 1)
del atexit, end, release_all
