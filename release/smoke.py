"""Checks that the Python package can be imported and locks. Needs no server."""

import sys
import sysconfig

from quorlock import Client, LockTimeoutError

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    # CPython enables the GIL if a module that it imports does not declare that it works without.
    is_gil_enabled = vars(sys)["_is_gil_enabled"]
    assert not is_gil_enabled(), "the import has enabled the GIL"

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
