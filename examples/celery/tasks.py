"""Sends invoices, each once, however often its task is sent, repeated or delivered again.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 celery --app tasks worker
"""

import json
import os
import urllib.request

import quorlock
from celery import Celery

import store

app = Celery("invoices", broker=os.environ["BROKER_URL"])
app.conf.update(
    # A task whose worker died is run again, by another one. So it may run twice: hence the lock.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    task_ignore_result=True,
)

# Before the pool forks: nothing is connected yet, and every child gets connections of its own.
locks = quorlock.Client(ttl=5)

store.create()


@app.task(
    # Somebody is at it, the nodes are down, or the lease was lost: later, and later each time.
    autoretry_for=(quorlock.LockTimeoutError, quorlock.QuorumError, quorlock.LeaseLostError),
    retry_backoff=1,
    retry_backoff_max=60,
    max_retries=None,
)
def send_invoice(invoice: int) -> str:
    # Without waiting: a worker has better things to do, and the task comes back.
    with locks.lock(f"invoices:{invoice}", wait=0) as lease:
        # The lock does not remember that the work was done. This does.
        if store.is_sent(invoice):
            return "sent before"
        deliver(invoice)
        lease.check()
        store.mark_sent(invoice, lease.fence)
        return "sent"


def deliver(invoice: int) -> None:
    request = urllib.request.Request(
        os.environ["GATEWAY_URL"] + "/mails",
        json.dumps({"invoice": invoice}).encode(),
        # For the worker that dies, or is paused, between this and `mark_sent`.
        {"Content-Type": "application/json", "Idempotency-Key": f"invoice-{invoice}"},
    )
    with urllib.request.urlopen(request, timeout=60):
        pass
