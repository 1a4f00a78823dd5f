"""Checks that the Python package can be imported and locks. Needs no server."""

from quorlock import Client, LockTimeoutError

with Client(["memory://a", "memory://b", "memory://c"]) as client:
    with client.lock("smoke") as lease:
        assert lease.valid
        assert lease.fence > 0
        try:
            client.lock("smoke", wait=0).acquire()
        except LockTimeoutError:
            pass
        else:
            raise AssertionError("two leases of one resource")
    client.lock("smoke", wait=0).acquire().release()
