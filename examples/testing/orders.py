"""The code to test: charges an order while no other process does."""

from collections.abc import Callable

from quorlock import Client, LockTimeoutError, QuorumError


def charge(client: Client, order: int, pay: Callable[[int], None]) -> str:
    try:
        with client.lock(f"orders:{order}", ttl=10, wait=5) as lease:
            pay(lease.fence)
            lease.check()
            return "charged"
    except LockTimeoutError:
        return "busy, try again later"
    except QuorumError:
        return "out of service"
