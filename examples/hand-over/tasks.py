r"""Ships orders. The task takes over the lock of the request that has sent it.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 DATABASE=/tmp/app.sqlite \
  BROKER_URL=redis://127.0.0.1:6379 GATEWAY_URL=http://127.0.0.1:8900 celery --app tasks worker
"""

import json
import os
import urllib.request

import quorlock
from celery import Celery

import store

app = Celery("tasks", broker=os.environ["BROKER_URL"])
app.conf.update(
    # If a worker dies, another one runs its task again.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    task_ignore_result=True,
)

# Created before the pool forks: it does not connect until it is used.
locks = quorlock.Client(ttl=5)

store.create()


@app.task(
    autoretry_for=(quorlock.LockTimeoutError, quorlock.QuorumError, quorlock.LeaseLostError),
    retry_backoff=1,
    retry_backoff_max=60,
    max_retries=None,
)
def ship_order(order: int, text: str) -> str:
    with hold(order, text) as lease:
        if store.is_shipped(order):
            return "shipped before"
        ship(order, lease)
        lease.check()
        store.mark_shipped(order, lease.fence)
        return "shipped"


def hold(order: int, text: str) -> quorlock.Lease:
    try:
        return locks.adopt(text)
    except quorlock.LeaseLostError:
        # An earlier run of this task has adopted the lease, or the task was queued for too long.
        return locks.lock(f"orders:{order}", wait=0).acquire()


def ship(order: int, lease: quorlock.Lease) -> None:
    request = urllib.request.Request(
        os.environ["GATEWAY_URL"] + "/shipments",
        json.dumps({"order": order, "fence": lease.fence}).encode(),
        # Makes a repetition harmless if the worker dies or is paused before `mark_shipped`.
        {"Content-Type": "application/json", "Idempotency-Key": f"order-{order}"},
    )
    with urllib.request.urlopen(request, timeout=60):
        pass
