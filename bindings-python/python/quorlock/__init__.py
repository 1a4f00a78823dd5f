"""A distributed lock over independent Redis or Valkey masters.

client = quorlock.Client(["redis://127.0.0.1:6379"])  # or the URLs of three or five nodes

with client.lock("orders:42") as lease:
    save(order, fence=lease.fence)
"""

from typing import TYPE_CHECKING

# Imported here, not on first use: a child that is forked during an import would wait forever.
from . import _exit as _exit
from . import _logging as _logging
from . import _threads as _threads
from ._client import Client
from ._election import Election, Watch
from ._errors import (
    ClosedError,
    ConfigError,
    EventLoopBlockedWarning,
    LeaseDroppedWarning,
    LeaseLostError,
    LockTimeoutError,
    NodeReport,
    QuorlockError,
    QuorumError,
)
from ._lease import Lease, current_lease
from ._lock import Lock
from ._options import ClientOptions, LockOptions, SemaphoreOptions
from ._quorlock import __version__, import_all
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
    "EventLoopBlockedWarning",
    "Finding",
    "Histogram",
    "Leader",
    "Lease",
    "LeaseDroppedWarning",
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
    "current_lease",
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


# For type checkers, this would make every name valid.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imports the report classes on first use: few programs need them, and the import is
        slow."""
        if name in _REPORTS:
            from . import _reports

            return getattr(_reports, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


import_all()
del import_all
