r"""Waits for the payment of an order, and records it.

One worker at a time handles an order, whatever its language.

QUORLOCK_SOCKET=/run/quorlock/quorlock.sock SHOP_URL=redis://127.0.0.1:6379 python worker.py 42
"""

import os
import sys
from pathlib import Path

import redis

order = sys.argv[1]
write = Path("../write.lua").read_text()
shop = redis.Redis.from_url(os.environ["SHOP_URL"], socket_timeout=None)  # BLPOP waits
locks = redis.Redis(
    unix_socket_path=os.environ["QUORLOCK_SOCKET"],
    single_connection_client=True,  # a lease belongs to a connection, so do not use a pool
    decode_responses=True,
)
try:
    lease, fence, _ = locks.execute_command("LOCK", f"orders:{order}", "WAIT", 1000)
except redis.ResponseError as error:
    if not str(error).startswith("TIMEOUT "):
        raise
    print(f"order {order} is being handled")
    sys.exit()
print(f"order {order} locked, fence {fence}")
shop.blpop([f"payments:{order}"])
locks.execute_command("CHECK", lease)  # raises if the lease was lost
if not shop.eval(write, 1, f"order:{order}", fence, "paid"):
    sys.exit("a later worker has written")
print(f"order {order} paid")
locks.execute_command("UNLOCK", lease)
