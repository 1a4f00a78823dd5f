"""A distributed lock over independent Redis or Valkey masters.

client = quorlock.Client(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])

with client.lock("orders:42") as lease:
    save(order, fence=lease.fence)
"""

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
from ._quorlock import __version__

__all__ = [
    "Client",
    "ClientOptions",
    "ClosedError",
    "ConfigError",
    "Lease",
    "LeaseLostError",
    "Lock",
    "LockOptions",
    "LockTimeoutError",
    "NodeReport",
    "QuorlockError",
    "QuorumError",
    "__version__",
]
