"""A distributed lock over independent Redis or Valkey masters.

client = quorlock.Client(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])

with client.lock("orders:42") as lease:
    save(order, fence=lease.fence)
"""

import atexit

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
from ._quorlock import __version__, release_all
from ._reports import Diagnosis, Finding, NodeDiagnosis, NodeStats, Stats

__all__ = [
    "Client",
    "ClientOptions",
    "ClosedError",
    "ConfigError",
    "Diagnosis",
    "Finding",
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

# Others need not wait then for what is still held to expire. In seconds, for all leases together.
atexit.register(release_all, 0.5)
del atexit, release_all
